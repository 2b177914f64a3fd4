/*
 * Principal components and singular values of a few hundred rows, without any library.
 */
#ifndef ZONAL_REPORT_PCA_H
#define ZONAL_REPORT_PCA_H

#include <stdint.h>

#include "core/error.h"

/* The coordinates of the rows x [n][dim] along the first "components" (at most n) principal axes of
 * the centred rows, scores [n][components], and of each axis its share of the variance. The sign of
 * an axis is such that the coordinate farthest from 0 is positive. ZONAL_NUMERIC where all rows are
 * the same, to rounding. Cubic in n. */
zonal_status zonal__pca(int64_t n, int64_t dim, const double *x, int components, double *scores,
                        double *share);

/* The singular values of x [n][dim], descending: value [min(n, dim)]. Of squares, so those below
 * 1e-8 of the largest are rounding. */
zonal_status zonal__singular_values(int64_t n, int64_t dim, const double *x, double *value);

#endif
