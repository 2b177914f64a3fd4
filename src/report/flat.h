/*
 * A JSON text as a flat list of names and values, for files whose members are only partly known.
 *
 *     {"protocol": "knn", "sweep": [{"k": 5}, {"k": 20}]}
 *
 * becomes protocol = "knn", sweep.0.k = 5, sweep.1.k = 20. True and false are 1 and 0, null is NaN.
 */
#ifndef ZONAL_REPORT_FLAT_H
#define ZONAL_REPORT_FLAT_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

typedef struct zonal__flat_entry {
    char name[96];    /* a value with a longer name is passed over */
    const char *text; /* in the text that was read; NULL: a number */
    double number;
} zonal__flat_entry;

/* Zero-initialise; the memory is kept from text to text. */
typedef struct zonal__flat {
    zonal__flat_entry *entry;
    int64_t count, room;
} zonal__flat;

/* Reads an object; text[length] must be a zero byte. The text is changed and must outlive the list.
 * ZONAL_FORMAT for what is no JSON, with "name" and the byte in the sentence. */
zonal_status zonal__flat_read(zonal__flat *flat, char *text, size_t length, const char *name);
void zonal__flat_fini(zonal__flat *flat);

/* NULL, or NaN, where there is no such entry. */
const char *zonal__flat_text(const zonal__flat *flat, const char *name);
double zonal__flat_number(const zonal__flat *flat, const char *name);

#endif
