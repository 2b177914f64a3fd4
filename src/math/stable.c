#include "math/stable.h"

#include <math.h>

#include "core/random_scalar.h"

/* In (0, 1), symmetric about 1/2. */
static double unit(uint32_t word) {
    return ((double)word + 0.5) * 0x1p-32;
}

/* tan(pi (u - 1/2)). Lambert's continued fraction, cut off where it leaves 1e-11, gives the tangent
 * up to pi/4; beyond, the tangent is the inverse of that of the rest to pi/2. */
static float cauchy(uint32_t word) {
    double turn = unit(word) - 0.5, size = fabs(turn);
    double x = M_PI * (size <= 0.25 ? size : 0.5 - size), z = x * x;
    double above = x * (10395 + z * (-1260 + z * 21));
    double below = 10395 + z * (-4725 + z * (210 - z));
    return (float)copysign(size <= 0.25 ? above / below : below / above, turn);
}

static float stable(double alpha, uint32_t word, uint32_t other) {
    double v = M_PI * (unit(word) - 0.5), w = -zonal__portable_log(unit(other));
    double tail = sin(alpha * v) / pow(cos(v), 1 / alpha);
    return (float)(tail * pow(cos((1 - alpha) * v) / w, (1 - alpha) / alpha));
}

void zonal__stable_draw(const zonal__random *random, uint64_t sample, double alpha, int64_t n,
                        float *out) {
    int each = alpha == 1 ? 4 : 2; /* draws of a block */
    for (int64_t first = 0; first < n; first += each) {
        uint32_t words[4];
        zonal__philox(random, sample, (uint32_t)(first / each), words);
        for (int k = 0; k < each && first + k < n; k++)
            out[first + k] =
                each == 4 ? cauchy(words[k]) : stable(alpha, words[2 * k], words[2 * k + 1]);
    }
}
