/*
 * Fingerprints: 64 bits that tell whether a file or an image is still the one it was, cheaply and
 * without regard to times of change, which a copy does not keep. They are XXH64
 * (core/checksum.h): against accidents, not against malice.
 */
#ifndef ZONAL_DATA_FINGERPRINT_H
#define ZONAL_DATA_FINGERPRINT_H

#include <stdint.h>

#include "core/error.h"

/* Of a file: its size and "samples" (at least 2) blocks of 4 KiB of it, from the first to the last
 * at even distances; all of it where it has no more. "path" is for the sentence. */
zonal_status zonal__fingerprint_descriptor(int descriptor, const char *path, int samples,
                                           uint64_t *fingerprint);
zonal_status zonal__fingerprint_file(const char *path, int samples, uint64_t *fingerprint);

/* Of one element of something that has a fingerprint. */
uint64_t zonal__fingerprint_element(uint64_t whole, int64_t number);

#endif
