/*
 * The inner loops, one table per instruction set and precision. Everything above this table is
 * ordinary C that does not know the element type: arrays of the plan's precision are void pointers
 * here, float or double by the table in use, called REAL below.
 *
 * Cosines are not taken from the rows themselves but from centred rows y_i = x_i - m, m = mean x:
 *
 *     x_i.x_j = y_i.y_j + o_i + o_j,    o_i = |m|^2/2 + m.y_i (in double)
 *     sum_j w_j x_j = sum_j w_j y_j + (sum_j w_j) m
 *
 * Near collapse the y are small, so a float holds what distinguishes the rows, and the tangent part
 * of a gradient, which is all that remains of it there, keeps its digits.
 */
#ifndef ZONAL_BACKEND_CPU_KERNELS_H
#define ZONAL_BACKEND_CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

enum {
    ZONAL__TILE_MAX = 256,        /* most rows and columns of a tile of pairs */
    ZONAL__SLICE_BLOCK = 32,      /* rows that slices are worked on at a time */
    ZONAL__SLICE_WORK = 16,       /* doubles of scratch per knot */
    ZONAL__SINCOS_LIMIT = 1 << 20 /* beyond, the C library's sine and cosine are used */
};

/* The products y_i.y_j of a block of rows with a block of columns. On the diagonal of the matrix
 * (row block = column block) only j > i is looked at, and row and column arrays are the same. */
typedef struct zonal__cpu_tile {
    void *s; /* REAL [rows][cols]: products, overwritten by weights where those are asked for */
    int64_t rows, cols;
    int diagonal;
    const double *row_offset, *col_offset; /* o_i, o_j */
    int64_t dim;
    const void *row_y, *col_y;   /* REAL [rows][dim], [cols][dim]: the centred rows themselves */
    double *row_sum, *col_sum;   /* added to; col_sum may be NULL, but not on the diagonal */
    double *row_peak, *col_peak; /* running maxima */
    const double *row_log, *col_log; /* KL, second pass: log S_i, or 1/S_i */
} zonal__cpu_tile;

/* How KL adds up phi: see kl.c. */
typedef enum zonal__cpu_kl_mode {
    ZONAL__KL_BROAD, /* sums of phi - 1 */
    ZONAL__KL_PLAIN, /* sums of phi */
    ZONAL__KL_NARROW /* sums of phi / phi(peak), and peaks */
} zonal__cpu_kl_mode;

/* A row's norm as 1/(pre * inverse): pre is a power of two, other than 1 only where the square of
 * the norm would leave the range of double. */
typedef struct zonal__cpu_norm {
    double pre, inverse;
    int finite; /* 0: the row holds NaN or Inf. A zero row has inverse = 0. */
} zonal__cpu_norm;

/* What a row's gradient is made of: g = scale * row + base + weight * mean, up to a multiple of x.
 * Since mean = x - y and x goes away in the projection, -weight * y stands for weight * mean. */
typedef struct zonal__cpu_projection {
    double scale, weight;
    const double *base; /* [dim], or NULL */
    const double *mean; /* [dim] */
    double factor;      /* the result is factor * (g - (g.x) x / (x.x)) */
    double *work;       /* [dim] */
} zonal__cpu_projection;

/* One slice: u_i = scale * (s_i + shift) for i < n, and knots t_k = knot0 + k * step. Both passes
 * go by z = e^(i step u), and w = e^(i knot0 u) where knot0 is not 0. */
typedef struct zonal__cpu_slice {
    int64_t n;
    void *s; /* REAL [n]; the second pass overwrites it by the derivative with respect to u */
    double scale, shift;
    int knots;
    double knot0, step;
    double *z_re, *z_im; /* [n], and room for a multiple of ZONAL__SLICE_BLOCK */
    double *w_re, *w_im; /* the same; not touched when knot0 = 0 */
    double *work;        /* [knots][ZONAL__SLICE_WORK] */
} zonal__cpu_slice;

typedef struct zonal__cpu_kernels {
    const char *name; /* "avx512", "avx2", "plain" */
    size_t size;      /* of REAL */
    int vector_bytes; /* 64, 32, 16 */
    int gemm_cols;    /* columns of a panel */

    /* Rows of d numbers. */
    zonal__cpu_norm (*norm)(int64_t d, const void *z);
    /* sum += scale * (pre * z) */
    void (*accumulate)(int64_t d, const void *z, double pre, double scale, double *sum);
    /* y = scale * (pre * z) - mean; returns mean.y */
    double (*centre)(int64_t d, const void *z, double pre, double scale, const double *mean,
                     void *y);
    /* Overwrites the row g by the projected gradient at x = mean + y. */
    void (*project)(int64_t d, void *g, const void *y, const zonal__cpu_projection *p);
    /* row *= scale */
    void (*scale)(int64_t d, double scale, void *row);
    void (*narrow)(int64_t d, const double *in, void *out);
    void (*add)(int64_t d, const double *in, void *row); /* row += in */
    double (*dot)(int64_t d, const double *a, const double *b);
    /* Row k of the covariance, c, with own = mean[k]: out = c; returns the sum of squares of
     * c + own * mean. */
    double (*moment_row)(int64_t d, const double *c, double own, const double *mean, void *out);

    /* Tiles. */
    /* Returns the sum of psi(c); with "gradient", psi'(c) is put in the place of the products (0 on
     * the diagonal, mirrored) and its sums are added to row_sum and col_sum. */
    double (*pair_tile)(const zonal__cpu_tile *tile, const zonal__pair_function *psi, int gradient);
    /* sums[k] += the sum of psi[k](c); row_peak and col_peak take the largest c. */
    void (*survey_tile)(const zonal__cpu_tile *tile, const zonal__pair_function *psi, int n_psi,
                        double *sums);
    /* Adds to row_sum, col_sum what the mode says. */
    void (*kl_sum_tile)(const zonal__cpu_tile *tile, const zonal__fit *log_phi,
                        zonal__cpu_kl_mode mode);
    /* Products become phi'(c) (1/S_i + 1/S_j), and their sums are added to row_sum, col_sum. */
    void (*kl_weight_tile)(const zonal__cpu_tile *tile, const zonal__fit *log_phi,
                           zonal__cpu_kl_mode mode);

    /* Slices. */
    /* z and w, before either of the others. */
    void (*slice_units)(const zonal__cpu_slice *slice);
    /* re[k], im[k] = sum over i of e^(i t_k u_i) */
    void (*slice_sums)(const zonal__cpu_slice *slice, double *re, double *im);
    /* s_i = sum over k of re[k] cos(t_k u_i) - im[k] sin(t_k u_i) */
    void (*slice_gradients)(const zonal__cpu_slice *slice, const double *re, const double *im);

    /* C = op(A) op(B) + beta C, row-major, op(A) m x k, op(B) k x n, beta 0 or 1. */
    void (*gemm)(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, const void *a,
                 int64_t lda, const void *b, int64_t ldb, int beta, void *c, int64_t ldc);
    /* The same in two steps, for a B that meets many A. Panel after panel [k][gemm_cols], the last
     * one filled up with zeros: "cols" columns of B, whose element (p, j) is b[p down + j across],
     * become a panel ... */
    void (*gemm_pack)(int64_t k, int64_t cols, const void *b, int64_t down, int64_t across,
                      void *panel);
    /* ... and C = A B + beta C for n columns in panels; a[i down + p across] is element (i, p). */
    void (*gemm_panels)(int64_t m, int64_t n, int64_t k, const void *a, int64_t down,
                        int64_t across, const void *panels, int beta, void *c, int64_t ldc);
} zonal__cpu_kernels;

/* The best table this processor can run; NULL for a precision other than double and fp32. */
const zonal__cpu_kernels *zonal__cpu_kernels_get(zonal_precision precision);

/* For tests: makes work created from now on use at most this level (0 plain, 1 avx2, 2 avx512), and
 * returns the level that this machine then gives. Not thread-safe. */
int zonal__cpu_kernels_limit(int level);

#endif
