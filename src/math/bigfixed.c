#include "math/bigfixed.h"

#include <math.h>
#include <string.h>

enum { LIMBS = ZONAL__BIG_LIMBS, FRACTION = ZONAL__BIG_FRACTION };

typedef unsigned __int128 wide; /* gcc and clang on every 64-bit target */

void zonal__big_from(zonal__big *out, long double x) {
    memset(out, 0, sizeof *out);
    out->negative = x < 0;
    x = fabsl(x);
    for (int i = LIMBS - 1; i >= 0 && x > 0; i--) {
        uint64_t part = (uint64_t)x;
        out->limb[i] = part;
        x = ldexpl(x - (long double)part, 64);
    }
}

long double zonal__big_to(const zonal__big *x, int *exponent) {
    int top = LIMBS - 1;
    while (top >= 0 && x->limb[top] == 0) top--;
    *exponent = 0;
    if (top < 0) return 0;
    /* Three limbs hold at least 129 significant bits, more than any long double. */
    long double value = 0;
    for (int i = top; i >= 0 && i > top - 3; i--)
        value += ldexpl((long double)x->limb[i], 64 * (i - top));
    value = frexpl(value, exponent);
    *exponent += 64 * (top - FRACTION);
    return x->negative ? -value : value;
}

static int compare_magnitude(const zonal__big *x, const zonal__big *y) {
    for (int i = LIMBS - 1; i >= 0; i--)
        if (x->limb[i] != y->limb[i]) return x->limb[i] < y->limb[i] ? -1 : 1;
    return 0;
}

static void add_magnitude(zonal__big *out, const zonal__big *x, const zonal__big *y) {
    wide carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        carry += (wide)x->limb[i] + y->limb[i];
        out->limb[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

/* x - y for |x| >= |y| */
static void subtract_magnitude(zonal__big *out, const zonal__big *x, const zonal__big *y) {
    uint64_t borrow = 0;
    for (int i = 0; i < LIMBS; i++) {
        wide difference = (wide)x->limb[i] - y->limb[i] - borrow;
        out->limb[i] = (uint64_t)difference;
        borrow = (uint64_t)(difference >> 64) & 1;
    }
}

static void add_signed(zonal__big *out, const zonal__big *x, const zonal__big *y, int y_negative) {
    int x_negative = x->negative;
    if (x_negative == y_negative) {
        add_magnitude(out, x, y);
        out->negative = x_negative;
    } else if (compare_magnitude(x, y) >= 0) {
        subtract_magnitude(out, x, y);
        out->negative = x_negative;
    } else {
        subtract_magnitude(out, y, x);
        out->negative = y_negative;
    }
}

void zonal__big_add(zonal__big *out, const zonal__big *x, const zonal__big *y) {
    add_signed(out, x, y, y->negative);
}

void zonal__big_subtract(zonal__big *out, const zonal__big *x, const zonal__big *y) {
    add_signed(out, x, y, !y->negative);
}

void zonal__big_multiply(zonal__big *out, const zonal__big *x, const zonal__big *y) {
    uint64_t product[2 * LIMBS] = {0};
    for (int i = 0; i < LIMBS; i++) {
        uint64_t carry = 0;
        if (x->limb[i] == 0) continue;
        for (int j = 0; j < LIMBS; j++) {
            wide sum = (wide)x->limb[i] * y->limb[j] + product[i + j] + carry;
            product[i + j] = (uint64_t)sum;
            carry = (uint64_t)(sum >> 64);
        }
        product[i + LIMBS] = carry;
    }
    out->negative = x->negative != y->negative;
    memcpy(out->limb, product + FRACTION, sizeof out->limb);
}

void zonal__big_multiply_small(zonal__big *out, const zonal__big *x, uint64_t factor) {
    wide carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        carry += (wide)x->limb[i] * factor;
        out->limb[i] = (uint64_t)carry;
        carry >>= 64;
    }
    out->negative = x->negative;
}

void zonal__big_divide_small(zonal__big *out, const zonal__big *x, uint64_t divisor) {
    wide remainder = 0;
    for (int i = LIMBS - 1; i >= 0; i--) {
        wide part = remainder << 64 | x->limb[i];
        out->limb[i] = (uint64_t)(part / divisor);
        remainder = part % divisor;
    }
    out->negative = x->negative;
}

void zonal__big_shift_right(zonal__big *out, const zonal__big *x, int bits) {
    for (int i = 0; i < LIMBS; i++) {
        uint64_t above = i + 1 < LIMBS && bits ? x->limb[i + 1] << (64 - bits) : 0;
        out->limb[i] = x->limb[i] >> bits | above;
    }
    out->negative = x->negative;
}

void zonal__big_exp(zonal__big *out, const zonal__big *x) {
    /* exp(x) = exp(x / 2^20)^(2^20): |y| < 2^-14, so 80 terms leave 2^-1500; each squaring at most
     * doubles the error, and while the number is small it shrinks with it. */
    enum { HALVINGS = 20, TERMS = 80 };
    zonal__big y, term, sum;
    zonal__big_shift_right(&y, x, HALVINGS);
    zonal__big_from(&term, 1);
    sum = term;
    for (unsigned k = 1; k <= TERMS; k++) {
        zonal__big_multiply(&term, &term, &y);
        zonal__big_divide_small(&term, &term, k);
        zonal__big_add(&sum, &sum, &term);
    }
    for (int i = 0; i < HALVINGS; i++) zonal__big_multiply(&sum, &sum, &sum);
    *out = sum;
}
