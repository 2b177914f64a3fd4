#include "core/random.h"

#include "core/random_scalar.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(ZONAL_PLAIN_KERNELS)
#define HAVE_AVX2 1
#include <immintrin.h>
#endif

void zonal__random_words(const zonal__random *random, uint64_t sample, uint32_t block,
                         uint32_t out[4]) {
    zonal__philox(random, sample, block, out);
}

void zonal__random_uniform(const zonal__random *random, uint64_t sample, uint32_t block,
                           double out[2]) {
    zonal__uniform_pair(random, sample, block, out);
}

/* ---- many normal numbers --------------------------------------------------------------------- */

enum {
    MOST_PAIRS = 128, /* of one call */
    LANES = 8         /* blocks of random words drawn at a time */
};

/* out[k] from block first + k, for k < pairs. */
typedef void pairs_drawer(const zonal__random *random, uint64_t sample, uint32_t first, int pairs,
                          double out[][2]);

static void draw_pairs(const zonal__random *random, uint64_t sample, uint32_t first, int pairs,
                       double out[][2]) {
    for (int k = 0; k < pairs; k++) zonal__normal_pair(random, sample, first + (uint32_t)k, out[k]);
}

#ifdef HAVE_AVX2
#define AVX2 __attribute__((target("avx2,fma")))

/* The upper and lower halves of the products of eight words with one. */
AVX2 static inline void multiply_words(__m256i words, uint32_t factor, __m256i *upper,
                                       __m256i *lower) {
    __m256i wide = _mm256_set1_epi64x(factor), even = _mm256_mul_epu32(words, wide);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(words, 32), wide);
    *upper = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    *lower = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

AVX2 static inline __m256i all_lanes(uint32_t word) {
    return _mm256_set1_epi32((int)word);
}

/* zonal__philox of blocks first ... first + LANES - 1; word w of block k is out[w][k]. */
AVX2 static inline void draw_words(const zonal__random *random, uint64_t sample, uint32_t first,
                                   uint32_t out[4][LANES]) {
    uint32_t k0 = (uint32_t)random->seed, k1 = (uint32_t)(random->seed >> 32);
    __m256i c0 = _mm256_add_epi32(all_lanes(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i c1 = all_lanes((uint32_t)sample), c2 = all_lanes(random->step);
    __m256i c3 = all_lanes((uint32_t)random->stream << 24 | (uint32_t)(sample >> 32 & 0xffffff));
    for (int round = 0; round < 10; round++) {
        __m256i upper0, upper2, lower0, lower2;
        multiply_words(c0, 0xD2511F53u, &upper0, &lower0);
        multiply_words(c2, 0xCD9E8D57u, &upper2, &lower2);
        c0 = _mm256_xor_si256(_mm256_xor_si256(upper2, c1), all_lanes(k0));
        c1 = lower2;
        c2 = _mm256_xor_si256(_mm256_xor_si256(upper0, c3), all_lanes(k1));
        c3 = lower0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(out[0], &c0, sizeof c0);
    memcpy(out[1], &c1, sizeof c1);
    memcpy(out[2], &c2, sizeof c2);
    memcpy(out[3], &c3, sizeof c3);
}

/* The same bits as draw_pairs: all steps are exact or correctly rounded. */
AVX2 static void draw_pairs_avx2(const zonal__random *random, uint64_t sample, uint32_t first,
                                 int pairs, double out[][2]) {
    double u[2][MOST_PAIRS];
    for (int k = 0; k < pairs; k += LANES) {
        uint32_t words[4][LANES];
        draw_words(random, sample, first + (uint32_t)k, words);
        for (int i = 0; i < LANES; i++) {
            u[0][k + i] = zonal__to_unit_interval(words[0][i], words[1][i]);
            u[1][k + i] = zonal__to_unit_interval(words[2][i], words[3][i]);
        }
    }
    for (int k = 0; k < pairs; k++) zonal__normal_of_uniform(u[0][k], u[1][k], 1, out[k]);
}
#endif

static pairs_drawer *best_drawer(void) {
#ifdef HAVE_AVX2
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return draw_pairs_avx2;
#endif
    return draw_pairs;
}

void zonal__random_normal(const zonal__random *random, uint64_t sample, int64_t n, double *out) {
    pairs_drawer *draw = best_drawer();
    int64_t pairs = n / 2;
    for (int64_t k = 0; k < pairs; k += MOST_PAIRS)
        draw(random, sample, (uint32_t)k, pairs - k < MOST_PAIRS ? (int)(pairs - k) : MOST_PAIRS,
             (double(*)[2])out + k);
    if (n % 2) {
        double pair[2];
        zonal__normal_pair(random, sample, (uint32_t)pairs, pair);
        out[n - 1] = pair[0];
    }
}

/* ---- directions ------------------------------------------------------------------------------ */

void zonal__random_direction(const zonal__random *random, uint64_t sample, int64_t n, double *out) {
    zonal__random_normal(random, sample, n, out);
    double scale = zonal__direction_scale(n, out);
    for (int64_t i = 0; i < n; i++) out[i] *= scale;
}

void zonal__random_four_directions(const zonal__random *random, uint64_t sample, int64_t n,
                                   double *out) {
    double square[4] = {0};
    for (int64_t k = 0; k < 4; k++)
        zonal__random_normal(random, sample + (uint64_t)k, n, out + k * n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < 4; k++) square[k] += zonal__times(out[k * n + i], out[k * n + i]);
    for (int64_t k = 0; k < 4; k++) {
        double scale = 1 / sqrt(square[k]);
        for (int64_t i = 0; i < n; i++) out[k * n + i] *= scale;
    }
}
