#include "core/random.h"

#include "core/random_scalar.h"

void zonal__random_words(const zonal__random *random, uint64_t sample, uint32_t block,
                         uint32_t out[4]) {
    zonal__philox(random, sample, block, out);
}

void zonal__random_uniform(const zonal__random *random, uint64_t sample, uint32_t block,
                           double out[2]) {
    zonal__uniform_pair(random, sample, block, out);
}

void zonal__random_normal(const zonal__random *random, uint64_t sample, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i += 2) {
        double pair[2];
        zonal__normal_pair(random, sample, (uint32_t)(i / 2), pair);
        out[i] = pair[0];
        if (i + 1 < n) out[i + 1] = pair[1];
    }
}

void zonal__random_direction(const zonal__random *random, uint64_t sample, int64_t n, double *out) {
    zonal__random_normal(random, sample, n, out);
    double scale = zonal__direction_scale(n, out);
    for (int64_t i = 0; i < n; i++) out[i] *= scale;
}
