/*
 * What the reference operations share: rows as double unit vectors, and gradients back through the
 * normalisation.
 */
#ifndef ZONAL_BACKEND_REF_ROWS_H
#define ZONAL_BACKEND_REF_ROWS_H

#include "backend/backend.h"
#include "backend/ranks.h"

/* The work space of every reference operation: one block, cut into arrays of doubles. On several
 * ranks each holds all rows of the batch and computes everything; the rows first to end - 1 are its
 * own. */
struct zonal__work {
    zonal__problem problem;
    int64_t batch, first, end;
    size_t bytes;    /* of memory */
    double *unit;    /* [all rows][dim] */
    double *norm;    /* [all rows], of which the own are filled */
    double *part[4]; /* what the operation asked for */
    double *memory;
};

/* Makes it for "rows" rows and up to four more arrays of the given lengths (0: none). */
zonal_status zonal__ref_create(const zonal__problem *problem, int64_t rows, const int64_t length[4],
                               zonal__work **work);
void zonal__ref_destroy(zonal__work *work);
size_t zonal__ref_scratch_bytes(const zonal__work *work);

/* Element i of an array of the precision's type. */
double zonal__ref_get(zonal_precision precision, const void *x, int64_t i);
void zonal__ref_set(zonal_precision precision, void *x, int64_t i, double value);

/* Fills unit and norm of the work for the whole batch from the own rows x, by the functions below.
 * Collective. */
zonal_status zonal__ref_load(zonal__work *work, int raw, const void *x, const void *gradient);

/* unit[rows][dim] = x / |x| and norm[rows] = |x| (1 for unit_rows, where x is copied as it is).
 * Names the first row that is zero, not finite, for unit_rows not of unit length, or, where there
 * is a gradient, so short that 1/|x| is out of its type's range; by its number in the batch. */
zonal_status zonal__ref_unit_rows(const zonal__problem *problem, const void *x,
                                  const void *gradient, double *unit, double *norm);
/* unit = x as it is; names the first row that is not finite. */
zonal_status zonal__ref_raw_rows(const zonal__problem *problem, const void *x, double *unit);

/* factor (g - (g.x) x)/|z| for one row of the batch, which is an own one, in its place in the
 * gradient of those. */
void zonal__ref_project(const zonal__work *work, int64_t row, const double *g, double factor,
                        void *gradient);

/* The cosine of unit rows i and j, in [-1, 1]. Near 1 it comes from their distance, since there 1 -
 * c is what counts: chordal's sqrt(1 - c) of two equal rows must be 0, not the root of an ulp.
 * (Rows declared unit are taken as they are.) */
long double zonal__ref_cosine(const zonal__problem *problem, const double *unit, int64_t i,
                              int64_t j);

static inline double zonal__ref_dot(int64_t n, const double *x, const double *y) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* The operations, one file each; ref.c puts them in the table. */
extern const zonal__operation_table zonal__ref_pairs, zonal__ref_kl, zonal__ref_moments,
    zonal__ref_sliced, zonal__ref_invariance, zonal__ref_survey, zonal__ref_covariance,
    zonal__ref_eigenvalues;

#endif
