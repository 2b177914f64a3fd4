/*
 * The stored losses of golden/loss.h, the rows that they are of, and gradients between guards.
 */
#ifndef ZONAL_TESTS_LOSS_CASE_H
#define ZONAL_TESTS_LOSS_CASE_H

#include <math.h>
#include <stdlib.h>

#include "test.h"
#include "zonal/loss.h"

enum { GOLDEN_WEIGHTS = 33, PROBES = 4, GUARD = 8 };

typedef struct golden_direction {
    uint64_t seed;
    int stream;
    uint32_t step;
    uint64_t sample;
    int n;
    uint32_t words[4]; /* of block 1 */
    double normal[8], direction[8];
} golden_direction;

typedef struct golden_loss {
    const char *method;
    int batch, dim;
    int kind;         /* of rows: see element */
    double parameter; /* t, band, scale or r; 0: the default */
    double low, high, lambda;
    int flat, estimator, kl_norm, raw, unit, knots, views, global_views, slices;
    uint64_t seed;
    uint32_t step;
    int times_n, normalised; /* 0: the default, else 1 + the option */
    zonal_gain gain;
    double gain_value;
    int n_weights;
    double weights[GOLDEN_WEIGHTS];
    double value; /* D; of an objective, the total */
    double bias, norm, derivative;
    double log_p;                                      /* KL: mean log p */
    double invariance, discrepancy, factor, threshold; /* objectives */
    double gradient_norm, probe[PROBES];               /* 0 where there is no gradient */
    double size; /* of the gradient's terms, where they cancel by symmetry */
    int full;    /* 1 + where the gradient begins in golden_gradients; 0: not stored */
} golden_loss;

#include "golden/loss.h"

enum { GOLDEN_LOSSES = sizeof golden_losses / sizeof golden_losses[0] };

/* ---- Rows: the arithmetic of make_loss.py ---- */

enum { MIXED, ORTHONORMAL, THIRD, HALF, NEAR, TWINS, SCALED, UNIT };

static inline int64_t mixed(int64_t i, int64_t k) {
    return (13 * i + 29 * k + 7 * i * k + 3 * k * k + 11 * i * i) % 97 - 48;
}

static inline int64_t element(int kind, int64_t i, int64_t k, int64_t d) {
    static const int tetrahedron[4][3] = {{1, 1, 1}, {1, -1, -1}, {-1, 1, -1}, {-1, -1, 1}};
    static const int triangle[3][3] = {{1, -1, 0}, {0, 1, -1}, {-1, 0, 1}};
    switch (kind) {
    case ORTHONORMAL: {
        int odd = (i & k & 1) ^ (i >> 1 & k >> 1 & 1);
        return (1 + 5 * (k / 4) % 7) * (odd ? -1 : 1);
    }
    case THIRD:
    case HALF:
        if (k / 3 >= d / 3) return 0;
        return (1 + 5 * (k / 3) % 7) * (kind == THIRD ? tetrahedron[i][k % 3] : triangle[i][k % 3]);
    case NEAR:
        return 64 * mixed(0, k) + mixed(i + 1, k);
    case TWINS:
        return i == 2 ? -mixed(0, k) : mixed(i == 1 ? 0 : i, k);
    case UNIT:
        if ((k + i) % (d / 4) != 0) return 0;
        return (i * i + 3 * k + i * k / 5) % 3 == 0 ? -8 : 8;
    default:
        return mixed(i, k);
    }
}

/* The rows in the precision asked for; every one of them is exact in float. */
static inline void *make_rows(int kind, int64_t n, int64_t d, zonal_precision precision) {
    double *x = malloc((size_t)(n * d) * sizeof *x);
    float *f = malloc((size_t)(n * d) * sizeof *f);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < d; k++) {
            int power = kind == SCALED ? (int)(7 * i % 31 - 15) : 0;
            x[i * d + k] = ldexp((double)element(kind, i, k, d), power - 4);
            f[i * d + k] = (float)x[i * d + k];
            CHECK(f[i * d + k] == x[i * d + k]);
        }
    if (precision == ZONAL_PRECISION_FP32) {
        free(x);
        return f;
    }
    free(f);
    return x;
}

/* ---- Elements of either precision ---- */

static inline double read_at(const void *x, int64_t i, zonal_precision precision) {
    return precision == ZONAL_PRECISION_FP32 ? ((const float *)x)[i] : ((const double *)x)[i];
}

static inline void write_at(void *x, int64_t i, zonal_precision precision, double value) {
    if (precision == ZONAL_PRECISION_FP32)
        ((float *)x)[i] = (float)value;
    else
        ((double *)x)[i] = value;
}

/* ---- Gradients between guards ---- */

/* A gradient of n elements, filled with NaN, between guards. */
static inline void *guarded(int64_t n, zonal_precision precision) {
    void *block = malloc((size_t)(n + 2 * GUARD) * sizeof(double));
    for (int64_t i = 0; i < n + 2 * GUARD; i++)
        write_at(block, i, precision, i < GUARD || i >= n + GUARD ? 1234.5 : NAN);
    return block;
}

static inline void *inside(void *block, zonal_precision precision) {
    return (char *)block +
           GUARD * (precision == ZONAL_PRECISION_FP32 ? sizeof(float) : sizeof(double));
}

#endif
