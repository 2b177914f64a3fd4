/* The small image files in tests/data/images, in memory. */
#ifndef ZONAL_TESTS_DATA_IMAGE_FILE_H
#define ZONAL_TESTS_DATA_IMAGE_FILE_H

#include <errno.h>
#include <string.h>

#include "test.h"

typedef struct image_file {
    unsigned char at[4096];
    size_t count;
} image_file;

static inline int image_file_load(const char *name, image_file *out) {
    char path[1024];
    FILE *stream;
    snprintf(path, sizeof path, "%s/data/images/%s", ZONAL_TESTS_DIR, name);
    stream = fopen(path, "rb");
    if (!CHECK_MSG(stream != NULL, "%s: %s", path, strerror(errno))) return 0;
    out->count = fread(out->at, 1, sizeof out->at, stream);
    fclose(stream);
    return CHECK(out->count > 0 && out->count < sizeof out->at);
}

#endif
