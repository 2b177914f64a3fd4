/*
 * The first step of every operation on rows: check them, find their norms and their mean, and make
 * the centred copy y_i = x_i - m that the rest works on (kernels.h says why). And the last: carry
 * gradients back through x = z/|z|.
 */
#ifndef ZONAL_BACKEND_CPU_ROWS_H
#define ZONAL_BACKEND_CPU_ROWS_H

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"
#include "backend/ranks.h"

typedef struct zonal__cpu_rows {
    int64_t rows, dim;
    int64_t batch;             /* what means are divided by: the rows of all ranks */
    const zonal__ranks *ranks; /* NULL: one holds all */
    double *exchange;          /* [dim + 2]: what the ranks add up; NULL on one */
    int gradients; /* 1: this rank, or another one, wants the gradient of the run in progress */
    int unit_rows, threads;
    const zonal__cpu_kernels *kernels;
    int64_t chunks;
    void *centred;       /* REAL [rows][dim]; NULL for raw rows */
    double *mean;        /* [dim] */
    double mean_square;  /* |mean|^2 */
    double *offset;      /* [rows]: |mean|^2/2 + mean.y_i */
    double *pre, *scale; /* [rows]: x = scale * (pre * z) */
    double *partial;     /* [chunks][dim]: sums of x */
    int64_t *bad;        /* [chunks]: the first row that cannot be used, or -1 */
    double *work;        /* [threads][dim] */
    const char *x;       /* of the run in progress */
    double longest_inverse;
    char *gradient;
    const zonal__cpu_projection *projection;
    const double *weight; /* [rows] or NULL */
    zonal__problem problem;
} zonal__cpu_rows;

/* With "raw" rows are only ever checked. fini accepts what init left behind when it failed, and
 * zeroed memory. */
zonal_status zonal__cpu_rows_init(const zonal__problem *problem, int raw, zonal__cpu_rows *rows);
void zonal__cpu_rows_fini(zonal__cpu_rows *rows);
size_t zonal__cpu_rows_bytes(const zonal__cpu_rows *rows);

/* Fills centred, mean, offset, pre and scale; ZONAL_NUMERIC names the first row that is zero, not
 * finite, declared unit and is not, or too short for the gradient that is wanted. Collective, and
 * the first call of a run: it settles whether there are gradients. The mean is the whole batch's.
 */
zonal_status zonal__cpu_rows_prepare(zonal__cpu_rows *rows, const void *x, const void *gradient);

/* Subtracts the mean of the centred rows of doubles, which the rounding of "mean" has left, from
 * them: below 1e-16, so that nothing else changes. Floats hold nothing that small beside what
 * their own rounding leaves. After prepare; collective. */
zonal_status zonal__cpu_rows_recentre(zonal__cpu_rows *rows);

/* For rows that enter as they are: ZONAL_NUMERIC names the first that is not finite. Collective. */
zonal_status zonal__cpu_rows_check(zonal__cpu_rows *rows, const void *x, const void *gradient);

/* Turns each row of "gradient" into factor/|z_i| times the projection of
 * p->scale * row + p->base + weight[i] * mean; the other fields of p are filled in here. weight may
 * be NULL. */
void zonal__cpu_rows_project(zonal__cpu_rows *rows, void *gradient, const double *weight,
                             double factor, const zonal__cpu_projection *p);

/* zonal__cpu_run of a loss: "body" finds the bare value and, times what it is given, its gradient;
 * the value is finished here. */
zonal_status zonal__cpu_rows_run(const zonal__cpu_rows *rows, zonal__cpu_body body,
                                 zonal__work *work, const void *x, double *value, void *gradient,
                                 double scale);

/* Adds up what every rank has found; nothing to do on one. */
zonal_status zonal__cpu_rows_sum(const zonal__cpu_rows *rows, double *number, int64_t count);

/* The sentence about row i of this rank, with "where" ("view 2, " or "") in front of it. */
zonal_status zonal__cpu_bad_row(const zonal__cpu_kernels *kernels, const void *row, int64_t dim,
                                int unit_rows, const char *where, const zonal__ranks *ranks,
                                int64_t i);
/* The largest 1/|z| of a row: what a gradient is multiplied by must fit its type. Without a
 * gradient any will do. */
double zonal__cpu_longest_inverse(const zonal__cpu_kernels *kernels, const void *gradient);
/* 1 when the row can be used: finite, not zero, of unit length if declared so, and not too short.
 */
int zonal__cpu_row_good(const zonal__cpu_norm *norm, int unit_rows, double longest_inverse);

#endif
