/* Records by hand, for the tests. */
#ifndef ZONAL_TESTS_RECORD_TEXT_H
#define ZONAL_TESTS_RECORD_TEXT_H

#include <stdio.h>
#include <string.h>

#include "reproduce/records.h"

/* A record of the first cell's method on a data set, with R@1 to mAP (emb) all "share". */
static char *record_text(const char *method, const char *data, int seed, double share,
                         const char *extra) {
    static char text[2048];
    snprintf(text, sizeof text,
             "{\"experiment\": \"table-textures\", \"method\": \"%s\", \"data\": \"%s\", "
             "\"seed\": %d, \"variant\": \"side=128,steps=6400,texture-size=160\", \"metrics\": "
             "{\"retrieval.projector.r1\": %g, \"retrieval.projector.r3\": %g, "
             "\"retrieval.projector.r5\": %g, \"retrieval.projector.map\": %g, "
             "\"retrieval.backbone.map\": %g}, \"configuration\": {\"b\": \"2\", \"a\": \"1\"}, "
             "\"seconds\": 40%s}",
             method, data, seed, share, share, share, share, share, extra);
    return text;
}

static zonal_status add_record(zonal__records *records, const char *text) {
    return zonal__records_add(records, text, strlen(text), "a record");
}

#endif
