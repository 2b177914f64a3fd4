/*
 * How fused.cu cuts its work, and how it shortens polynomials: arithmetic alone, plain C, so that
 * it is tested without a GPU.
 *
 * Blocks own rows and go through columns in tiles. Where blocks are few, the columns are cut into
 * ranges of tiles, each of which has blocks and a share of the gradient of its own.
 */
#ifndef ZONAL_BACKEND_CUDA_FUSED_H
#define ZONAL_BACKEND_CUDA_FUSED_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ZONAL__FUSED_ANYWHERE __host__ __device__ static inline
#else
#define ZONAL__FUSED_ANYWHERE static inline
#endif

enum {
    ZONAL__FUSED_ROWS = 128, /* of a block */
    ZONAL__FUSED_COLUMNS = 64,
    ZONAL__SPLIT_ROWS = 64, /* the same in `fp32` */
    ZONAL__SPLIT_COLUMNS = 64,
    ZONAL__FUSED_TERMS = 28, /* the most of a polynomial */
    ZONAL__FUSED_RANGES = 16,
    ZONAL__FUSED_PARTIAL = 40 << 20, /* bytes for the gradients of several ranges */
    ZONAL__SUM_ROWS = 128,           /* of a block where there is no gradient, and its columns */
    ZONAL__SUM_MIRROR = 64 << 20     /* bytes for sums of the columns */
};

typedef struct zonal__fused_cut {
    int blocks;            /* of rows */
    int tiles, tiles_each; /* of columns: all, and of a range */
    int ranges;            /* the last may have fewer tiles, but has one */
    int64_t padded;        /* rows that there must be memory for */
} zonal__fused_cut;

/* The number of ranges with the fewest rounds of blocks times the tiles of each, with a little for
 * what a block does once. In `fp32` the tiles of a range are even in number: two warpgroups take
 * alternate ones. */
static inline void zonal__fused_cut_make(int64_t rows, int64_t dim, int split, int processors,
                                         zonal__fused_cut *cut) {
    int block = split ? (int)ZONAL__SPLIT_ROWS : (int)ZONAL__FUSED_ROWS;
    int tile = split ? (int)ZONAL__SPLIT_COLUMNS : (int)ZONAL__FUSED_COLUMNS;
    cut->blocks = (int)((rows + block - 1) / block);
    cut->tiles = (int)((rows + tile - 1) / tile);
    cut->tiles += split && cut->tiles % 2;
    cut->padded = (int64_t)cut->blocks * block + 2 * tile;
    cut->ranges = 1;
    cut->tiles_each = cut->tiles;
    int64_t least = ((int64_t)cut->blocks + processors - 1) / processors * (cut->tiles + 4);
    for (int ranges = 2; ranges <= ZONAL__FUSED_RANGES && ranges <= cut->tiles; ranges++) {
        int each = (cut->tiles + ranges - 1) / ranges;
        each += split && each % 2;
        int64_t rounds = ((int64_t)cut->blocks * ranges + processors - 1) / processors;
        if (rows * dim * (int64_t)sizeof(float) * ranges > ZONAL__FUSED_PARTIAL) break;
        if (rounds * (each + 4) >= least) continue;
        least = rounds * (each + 4);
        cut->tiles_each = each;
        cut->ranges = (cut->tiles + each - 1) / each;
    }
}

/* Without a gradient, blocks of rows meet blocks of columns (fused_sum_kernel.cuh): the block
 * itself, those after it, and the first ones after the last. */
typedef struct zonal__sum_cut {
    int blocks;
    int steps, steps_each; /* blocks that each one meets: all, and of a range */
    int ranges;
    int mirrored; /* steps whose sums count for the columns too: those of 1 to this */
} zonal__sum_cut;

/* by_column: the columns' sums are wanted one by one, and need memory: where that is too much, all
 * pairs of blocks meet twice. */
static inline void zonal__sum_cut_make(int64_t rows, int by_column, int processors,
                                       zonal__sum_cut *cut) {
    int64_t blocks = (rows + ZONAL__SUM_ROWS - 1) / ZONAL__SUM_ROWS, mirrored = (blocks - 1) / 2;
    int64_t bytes = mirrored * blocks * ZONAL__SUM_ROWS * (int64_t)sizeof(float);
    if (by_column && bytes > ZONAL__SUM_MIRROR) mirrored = 0;
    cut->blocks = (int)blocks;
    cut->mirrored = (int)mirrored;
    cut->steps = (int)(blocks - mirrored);
    cut->steps_each = cut->steps;
    cut->ranges = 1;
    int64_t least = (blocks + processors - 1) / processors * (cut->steps + 2);
    for (int ranges = 2; ranges <= ZONAL__FUSED_RANGES && ranges <= cut->steps; ranges++) {
        int each = (cut->steps + ranges - 1) / ranges;
        int64_t rounds = (blocks * ranges + processors - 1) / processors;
        if (rounds * (each + 2) >= least) continue;
        least = rounds * (each + 2);
        cut->steps_each = each;
        cut->ranges = (cut->steps + each - 1) / each;
    }
}

/* Rows and columns in groups of 16. Of the groups (a, b) and (b, a), a != b, one adds to the value,
 * and counts twice: half of the values need not be computed, and of two adjacent groups of columns
 * a warp has one to do. */
ZONAL__FUSED_ANYWHERE int zonal__fused_counts(int a, int b) {
    return ((b - a) & 1) == (b > a);
}

/* A Chebyshev series without the terms at its end that "tolerance" allows, in powers of c, of which
 * there are ZONAL__FUSED_TERMS, zeros included. Returns how many terms there are, or 0 when they
 * are more than that. */
static inline int zonal__fused_economise(int n, const double *chebyshev, double tolerance,
                                         double *power) {
    double dropped = 0, before[ZONAL__FUSED_TERMS] = {1}, now[ZONAL__FUSED_TERMS] = {0, 1};
    while (n > 2 && dropped + fabs(chebyshev[n - 1]) <= tolerance) dropped += fabs(chebyshev[--n]);
    if (n > ZONAL__FUSED_TERMS) return 0;
    for (int k = 0; k < ZONAL__FUSED_TERMS; k++) power[k] = 0;
    for (int k = 0; k < n; k++) { /* "before" is T_k, "now" T_(k+1) = 2 c T_k - T_(k-1) */
        for (int i = 0; i <= k; i++) power[i] += chebyshev[k] * before[i];
        for (int i = ZONAL__FUSED_TERMS - 1; i >= 0; i--) {
            double next = 2 * (i > 0 ? now[i - 1] : 0) - before[i];
            before[i] = now[i];
            now[i] = next; /* now[i - 1] is still T_(k+1)'s */
        }
    }
    return n;
}

#endif
