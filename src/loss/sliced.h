/*
 * The knots, weights and targets of SUSReg and SIGReg.
 */
#ifndef ZONAL_LOSS_SLICED_H
#define ZONAL_LOSS_SLICED_H

#include "backend/backend.h"

typedef struct zonal__sliced_tables {
    zonal__sliced sliced; /* points at the arrays below */
    double *weight, *target;
    double divisor; /* the expected value at collapse, or 1 */
    /* Of the divided statistic, in the mean over directions: */
    double derivative; /* as psi'(1): by so much D falls with the variance of rows near collapse */
    double anisotropy; /* q of zonal_plan_info */
} zonal__sliced_tables;

#define ZONAL__SLICED_SCALE 1e8 /* the largest s^2; the induced kernel's quadrature serves 1e4 */

/* scale is SUSReg's s^2 (0: d). Undo with zonal__sliced_fini, also after failure. */
zonal_status zonal__sliced_init(zonal_discrepancy discrepancy, const zonal_sliced_options *options,
                                double scale, int64_t dim, zonal__sliced_tables *tables);
void zonal__sliced_fini(zonal__sliced_tables *tables);

#endif
