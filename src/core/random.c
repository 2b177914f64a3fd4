#include "core/random.h"

#include <math.h>
#include <string.h>

void zonal__random_words(const zonal__random *random, uint64_t sample, uint32_t block,
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

static double to_unit_interval(uint32_t high, uint32_t low) {
    uint64_t bits = ((uint64_t)high << 32 | low) >> 11;
    return ((double)bits + 0.5) * 0x1p-53;
}

void zonal__random_uniform(const zonal__random *random, uint64_t sample, uint32_t block,
                           double out[2]) {
    uint32_t words[4];
    zonal__random_words(random, sample, block, words);
    out[0] = to_unit_interval(words[0], words[1]);
    out[1] = to_unit_interval(words[2], words[3]);
}

/* log(x) for normal x > 0, within 2 ulp: x = 2^e m with m in [sqrt(1/2), sqrt(2)), and
 * log m = 2 atanh(s), s = (m-1)/(m+1), |s| < .1716: eleven terms of the odd series leave 1e-18. */
static double portable_log(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1) / (m + 1), z = s * s, sum = 0;
    for (int k = 23; k >= 3; k -= 2) sum = sum * z + 1.0 / k;
    return exponent * 0.6931471805599453 + 2 * s * (1 + sum * z);
}

/* sin and cos of 2 pi x for x in [0, 1): the nearest quarter turn is taken off exactly, and Taylor
 * series on |y| <= pi/4 leave 1e-19. */
static void portable_sincos_turn(double x, double *sine, double *cosine) {
    int quarter = (int)(4 * x + 0.5);
    double y = (x - 0.25 * quarter) * 6.283185307179586, z = y * y, s = 1, c = 1;
    for (int k = 18; k >= 2; k -= 2) {
        s = 1 - s * z / (k * (k + 1));
        c = 1 - c * z / (k * (k - 1));
    }
    s *= y;
    switch (quarter & 3) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
    }
}

void zonal__random_normal(const zonal__random *random, uint64_t sample, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i += 2) {
        double u[2], sine, cosine;
        zonal__random_uniform(random, sample, (uint32_t)(i / 2), u);
        double radius = sqrt(-2 * portable_log(u[0])); /* Box and Muller's polar form */
        portable_sincos_turn(u[1], &sine, &cosine);
        out[i] = radius * cosine;
        if (i + 1 < n) out[i + 1] = radius * sine;
    }
}

void zonal__random_direction(const zonal__random *random, uint64_t sample, int64_t n, double *out) {
    double square = 0;
    zonal__random_normal(random, sample, n, out);
    for (int64_t i = 0; i < n; i++) square += out[i] * out[i];
    double scale = 1 / sqrt(square); /* no draw is 0: u < 1 keeps every radius positive */
    for (int64_t i = 0; i < n; i++) out[i] *= scale;
}
