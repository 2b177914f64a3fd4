/*
 * What the reader and the writer of safetensors files share.
 */
#ifndef ZONAL_CORE_SAFETENSORS_FORMAT_H
#define ZONAL_CORE_SAFETENSORS_FORMAT_H

#include "core/safetensors.h"

/* The key of the checksum, and what stands in the place of its digits while it is added up; the key
 * that an earlier checksum had, which nothing can compare any more. */
#define ZONAL__SAFETENSORS_SUM_KEY "zonal.xxh64"
#define ZONAL__SAFETENSORS_NO_SUM  "0000000000000000"
#define ZONAL__SAFETENSORS_OLD_KEY "zonal.checksum"

enum {
    ZONAL__SAFETENSORS_SUM_DIGITS = 16,
    ZONAL__SAFETENSORS_HEADER_MOST = 100000000 /* bytes; the limit of the format's own library */
};

/* The elements and bytes of a tensor, from its rank, shape and type. Returns 0 when a number is
 * negative or the product too large. */
int zonal__safetensors_count(const zonal__safetensor *tensor, int64_t *count, int64_t *bytes);

#endif
