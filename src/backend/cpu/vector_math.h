/*
 * exp, expm1, sine and cosine in double, as straight lines of + - * and integer shifts: a loop
 * around one of them becomes vector code of any width. Measured against long double (test_cpu.c):
 *
 *     function            domain                 largest error
 *     zonal__exp          all doubles            1.1 ulp; subnormal results to half the last place
 *     zonal__expm1_small  |x| <= 1               1.5 ulp
 *     zonal__sincos       |x| <= 2^20            2e-16 absolute
 *     zonal__sincos_turns |x| <= 2^18            2e-13 absolute; half the time of zonal__sincos
 *
 * NaN gives NaN. The rounding mode must be to nearest.
 */
#ifndef ZONAL_BACKEND_CPU_VECTOR_MATH_H
#define ZONAL_BACKEND_CPU_VECTOR_MATH_H

#include <stdint.h>
#include <string.h>

#define ZONAL__INLINE static inline __attribute__((always_inline, unused))

/* Adding 1.5 * 2^52 rounds to an integer, which then stands in the low bits. */
static const double zonal__rounder = 0x1.8p52;

ZONAL__INLINE uint64_t zonal__bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* 2^k for -1022 <= k <= 1023, modulo 2^64: any other k, such as one made of a NaN, gives some
 * number and no undefined behaviour. */
ZONAL__INLINE double zonal__power_of_two(uint64_t k) {
    uint64_t bits = (k + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* x = k log 2 + r with |r| <= log(2)/2, Taylor's series for exp(r) to r^13 (the rest is below
 * 5e-18), and 2^k in two factors so that subnormal results come out rounded and not flushed. */
ZONAL__INLINE double zonal__exp(double x) {
    x = x < -746 ? -746 : x; /* exp(-745.14) is the last that does not round to 0 */
    x = x > 710 ? 710 : x;
    double shifted = x * 1.4426950408889634 + zonal__rounder;
    uint64_t k = zonal__bits(shifted) - zonal__bits(zonal__rounder);
    double n = shifted - zonal__rounder;
    /* log 2 in two parts, the first of 32 bits: n times it is exact */
    double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    double p = 1.6059043836821613e-10;
    p = p * r + 2.08767569878681e-09;
    p = p * r + 2.505210838544172e-08;
    p = p * r + 2.755731922398589e-07;
    p = p * r + 2.7557319223985893e-06;
    p = p * r + 2.48015873015873e-05;
    p = p * r + 1.984126984126984e-04;
    p = p * r + 1.388888888888889e-03;
    p = p * r + 8.333333333333333e-03;
    p = p * r + 4.1666666666666664e-02;
    p = p * r + 1.6666666666666666e-01;
    p = p * r + 0.5;
    p = (p * r) * r + r + 1; /* r enters late: its rounding errors are then the only ones */
    uint64_t half = ((k + 2048) >> 1) - 1024; /* floor(k / 2), k >= -1077 */
    return p * zonal__power_of_two(half) * zonal__power_of_two(k - half);
}

/* Taylor's series to x^19; the rest is 4e-19 x at |x| = 1. */
ZONAL__INLINE double zonal__expm1_small(double x) {
    double p = 8.22063524662433e-18;
    p = p * x + 1.5619206968586225e-16;
    p = p * x + 2.8114572543455206e-15;
    p = p * x + 4.779477332387385e-14;
    p = p * x + 7.647163731819816e-13;
    p = p * x + 1.1470745597729725e-11;
    p = p * x + 1.6059043836821613e-10;
    p = p * x + 2.08767569878681e-09;
    p = p * x + 2.505210838544172e-08;
    p = p * x + 2.755731922398589e-07;
    p = p * x + 2.7557319223985893e-06;
    p = p * x + 2.48015873015873e-05;
    p = p * x + 1.984126984126984e-04;
    p = p * x + 1.388888888888889e-03;
    p = p * x + 8.333333333333333e-03;
    p = p * x + 4.1666666666666664e-02;
    p = p * x + 1.6666666666666666e-01;
    p = p * x + 0.5;
    return (p * x) * x + x;
}

/* The nearest multiple n of pi/2 is taken off with pi/2 in three parts of 33, 33 and 53 bits (the
 * first two products are exact for n < 2^20), then Taylor's series on |r| <= pi/4. */
ZONAL__INLINE void zonal__sincos(double x, double *sine, double *cosine) {
    double shifted = x * 0.6366197723675814 + zonal__rounder;
    uint64_t quarter = zonal__bits(shifted) & 3;
    double n = shifted - zonal__rounder;
    double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
    double z = r * r;
    double s = 2.8114572543455206e-15;
    s = s * z - 7.647163731819816e-13;
    s = s * z + 1.6059043836821613e-10;
    s = s * z - 2.505210838544172e-08;
    s = s * z + 2.7557319223985893e-06;
    s = s * z - 1.984126984126984e-04;
    s = s * z + 8.333333333333333e-03;
    s = s * z - 1.6666666666666666e-01;
    s = (s * z) * r + r;
    double c = 4.779477332387385e-14;
    c = c * z - 1.1470745597729725e-11;
    c = c * z + 2.08767569878681e-09;
    c = c * z - 2.755731922398589e-07;
    c = c * z + 2.48015873015873e-05;
    c = c * z - 1.388888888888889e-03;
    c = c * z + 4.1666666666666664e-02;
    c = (c * z) * z + (1 - 0.5 * z);
    double first = quarter & 1 ? c : s, second = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -first : first;
    *cosine = (quarter + 1) & 2 ? -second : second;
}

/* sin and cos of 2 pi x: the nearest whole turn is taken off, Taylor's series of a quarter of what
 * is left, at most pi/4, to its 14th power, and that angle doubled twice. */
ZONAL__INLINE void zonal__sincos_turns(double x, double *sine, double *cosine) {
    double f = x - ((x + zonal__rounder) - zonal__rounder), z = f * f;
    double s = 5.692172921967927e-08;
    s = s * z - 3.598843235212085e-06;
    s = s * z + 0.00016044118478735983;
    s = s * z - 0.004681754135318688;
    s = s * z + 0.07969262624616705;
    s = s * z - 0.6459640975062463;
    s = s * z + 1.5707963267948966;
    s *= f;
    double c = -6.386603083791852e-09;
    c = c * z + 4.710874778818172e-07;
    c = c * z - 2.5202042373060607e-05;
    c = c * z + 0.0009192602748394266;
    c = c * z - 0.02086348076335296;
    c = c * z + 0.25366950790104803;
    c = c * z - 1.2337005501361697;
    c = c * z + 1.0;
    double s2 = 2 * s * c, c2 = 1 - 2 * s * s;
    *sine = 2 * s2 * c2;
    *cosine = 1 - 2 * s2 * s2;
}

#endif
