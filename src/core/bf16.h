/*
 * bf16: the upper half of a float, that is 8 significant bits and the exponents of float.
 */
#ifndef ZONAL_CORE_BF16_H
#define ZONAL_CORE_BF16_H

#include <stdint.h>
#include <string.h>

static inline float zonal__bf16_to_float(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to the nearest, a tie to the even one; beyond the largest is infinity, a NaN stays one
 * (rounding its bits could carry it into the sign). */
static inline uint16_t zonal__bf16_from_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
