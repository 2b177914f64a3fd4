/*
 * Fixed-point numbers of 1024 fraction bits, sign and a 64-bit integer part: what it takes to sum a
 * narrow kernel's Gegenbauer series far from c = 1, where up to 260 digits cancel (d = 2048, t =
 * 2/d, c = -.88: terms near 1 add up to 1e-240). |P_l| <= 1 and a_l <= 1, so plain fixed point
 * does: the error of a sum is counted in units of the last place, and no exponents are needed.
 *
 * All operations truncate: each is off by at most one unit of 2^-1024. Overflow of the integer part
 * is the caller's to exclude.
 */
#ifndef ZONAL_MATH_BIGFIXED_H
#define ZONAL_MATH_BIGFIXED_H

#include <stdint.h>

enum { ZONAL__BIG_FRACTION = 16, ZONAL__BIG_LIMBS = ZONAL__BIG_FRACTION + 1 };

typedef struct zonal__big {
    uint64_t limb[ZONAL__BIG_LIMBS]; /* little-endian magnitude; the last is the integer part */
    int negative;
} zonal__big;

/* Exact for |x| < 2^63 and x a multiple of 2^-1024. */
void zonal__big_from(zonal__big *out, long double x);
/* Rounded to the nearest long double, scaled: the value is mantissa * 2^*exponent, and mantissa is
 * 0 or in [1/2, 1) in magnitude. */
long double zonal__big_to(const zonal__big *x, int *exponent);

/* out may be any of the operands. */
void zonal__big_add(zonal__big *out, const zonal__big *x, const zonal__big *y);
void zonal__big_subtract(zonal__big *out, const zonal__big *x, const zonal__big *y);
void zonal__big_multiply(zonal__big *out, const zonal__big *x, const zonal__big *y);
void zonal__big_multiply_small(zonal__big *out, const zonal__big *x, uint64_t factor);
void zonal__big_divide_small(zonal__big *out, const zonal__big *x, uint64_t divisor);
/* x 2^-bits, 0 <= bits < 64 */
void zonal__big_shift_right(zonal__big *out, const zonal__big *x, int bits);
/* exp(x) for |x| <= 40 */
void zonal__big_exp(zonal__big *out, const zonal__big *x);

#endif
