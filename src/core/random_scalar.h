/*
 * The scalar code behind core/random.h, shared by C and CUDA: the same bits on both. Include it for
 * device code, or to draw many numbers without a call for each; everybody else wants random.h. It
 * has no branches that depend on the numbers, so that a loop around it becomes vector code.
 *
 * The bits depend on every product and sum being rounded on its own. In C the build turns
 * contraction off; nvcc has no such switch for a part of a file, so a product whose sum could be
 * contracted goes through zonal__times. Products by powers of two are exact either way, and
 * division and square root round correctly on both.
 */
#ifndef ZONAL_CORE_RANDOM_SCALAR_H
#define ZONAL_CORE_RANDOM_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/random.h"

#ifdef __CUDACC__
#define ZONAL__SCALAR static inline __host__ __device__
#else
#define ZONAL__SCALAR                                                                              \
    static inline __attribute__((always_inline)) /* then it has the caller's target */
#endif

#ifdef __CUDA_ARCH__
#define ZONAL__UNROLL _Pragma("unroll")
#elif defined(__CUDACC__) /* the host's half, which nobody calls */
#define ZONAL__UNROLL
#else
#define ZONAL__UNROLL _Pragma("GCC unroll 16")
#endif

ZONAL__SCALAR double zonal__times(double a, double b) {
#ifdef __CUDA_ARCH__
    return __dmul_rn(a, b);
#else
    return a * b;
#endif
}

ZONAL__SCALAR void zonal__philox(const zonal__random *random, uint64_t sample, uint32_t block,
                                 uint32_t out[4]) {
    uint32_t k0 = (uint32_t)random->seed, k1 = (uint32_t)(random->seed >> 32);
    uint32_t c0 = block, c1 = (uint32_t)sample, c2 = random->step;
    uint32_t c3 = (uint32_t)random->stream << 24 | (uint32_t)(sample >> 32 & 0xffffff);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* the golden ratio and sqrt(3) - 1, the paper's Weyl increments */
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* (w + 1/2) 2^-53 of the first 53 bits w, in halves that vector units can convert: 26 and 27 of
 * them. With all bits set that rounds to 1, and the largest number below 1 stands for it. */
ZONAL__SCALAR double zonal__to_unit_interval(uint32_t high, uint32_t low) {
    int32_t upper = (int32_t)(high >> 6), lower = (int32_t)((high & 63) << 21 | low >> 11);
    double u = ((upper * 0x1p27 + lower) + 0.5) * 0x1p-53;
    return u < 1 ? u : 0x1.fffffffffffffp-1;
}

/* log(x) for normal x > 0, within 2 ulp: x = 2^e m with m in (sqrt(1/2), sqrt(2)], and
 * log m = 2 atanh(s), s = (m-1)/(m+1), |s| < .1716: eleven terms of the odd series leave 1e-18. */
ZONAL__SCALAR double zonal__portable_log(double x) {
    const uint64_t least = 0x3fe6a09e667f3bce; /* the bits of the smallest m */
    const uint64_t one = 0x3ff0000000000000, exponent_bits = 0xfff0000000000000;
    uint64_t bits, shifted, biased;
    double m, exponent;
    memcpy(&bits, &x, sizeof bits);
    shifted = bits - least + one; /* its exponent field is e + 1023 */
    bits += one - (shifted & exponent_bits);
    memcpy(&m, &bits, sizeof m);
    biased = shifted >> 52 | 0x4330000000000000; /* the bits of 2^52 + e + 1023 */
    memcpy(&exponent, &biased, sizeof exponent);
    exponent -= 0x1p52 + 1023;
    double s = (m - 1) / (m + 1), z = zonal__times(s, s), sum = 0;
    ZONAL__UNROLL
    for (int k = 23; k >= 3; k -= 2) sum = zonal__times(sum, z) + 1.0 / k;
    return zonal__times(exponent, 0.6931471805599453) +
           zonal__times(2 * s, 1 + zonal__times(sum, z));
}

/* x/n for a constant whole n < 2^10, correctly rounded. Where fma is one instruction ("fused") that
 * takes two: with 1/n = high + low to 2^-105, the second rounds a number that is as near to x/n.
 * And x/n itself is further than 2^-64 of its size from every midpoint between two doubles: n times
 * such a midpoint has 54 bits or more, so it is not x, but differs by one unit of its last place or
 * more. Sizes whose low part would be subnormal are not taken. */
ZONAL__SCALAR double zonal__over(double x, int n, int fused) {
    if (!fused) return x / n;
    double high = 1.0 / n, low = fma(-high, (double)n, 1.0) / n;
    return fma(x, high, zonal__times(x, low));
}

/* sin and cos of 2 pi x for x in [0, 1): the nearest quarter turn is taken off exactly, and Taylor
 * series on |y| <= pi/4 leave 1e-19. */
ZONAL__SCALAR void zonal__sincos_turn(double x, int fused, double *sine, double *cosine) {
    int quarter = (int)(4 * x + 0.5);
    double y = (x - 0.25 * quarter) * 6.283185307179586, z = zonal__times(y, y), s = 1, c = 1;
    ZONAL__UNROLL
    for (int k = 18; k >= 2; k -= 2) {
        s = 1 - zonal__over(zonal__times(s, z), k * (k + 1), fused);
        c = 1 - zonal__over(zonal__times(c, z), k * (k - 1), fused);
    }
    s *= y;
    double first = quarter & 1 ? c : s, second = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -first : first;
    *cosine = (quarter + 1) & 2 ? -second : second;
}

ZONAL__SCALAR void zonal__portable_sincos_turn(double x, double *sine, double *cosine) {
    zonal__sincos_turn(x, 0, sine, cosine);
}

ZONAL__SCALAR void zonal__uniform_pair(const zonal__random *random, uint64_t sample, uint32_t block,
                                       double out[2]) {
    uint32_t words[4];
    zonal__philox(random, sample, block, words);
    out[0] = zonal__to_unit_interval(words[0], words[1]);
    out[1] = zonal__to_unit_interval(words[2], words[3]);
}

/* Two standard normal numbers of two uniform ones, by Box and Muller's polar form. */
ZONAL__SCALAR void zonal__normal_of_uniform(double first, double second, int fused, double out[2]) {
    double sine, cosine, radius = sqrt(-2 * zonal__portable_log(first));
    zonal__sincos_turn(second, fused, &sine, &cosine);
    out[0] = radius * cosine;
    out[1] = radius * sine;
}

ZONAL__SCALAR void zonal__normal_pair(const zonal__random *random, uint64_t sample, uint32_t block,
                                      double out[2]) {
    double u[2];
    zonal__uniform_pair(random, sample, block, u);
    zonal__normal_of_uniform(u[0], u[1], 0, out);
}

/* What makes n normal numbers a direction: 1/|x|, the squares added up from the first to the last.
 * No draw is 0: u < 1 keeps every radius positive. */
ZONAL__SCALAR double zonal__direction_scale(int64_t n, const double *x) {
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += zonal__times(x[i], x[i]);
    return 1 / sqrt(square);
}

#endif
