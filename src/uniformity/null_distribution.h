/*
 * The null distribution of T (that for uniform points): which degrees a test weighs, its variance
 * and its tails.
 */
#ifndef ZONAL_UNIFORMITY_NULL_DISTRIBUTION_H
#define ZONAL_UNIFORMITY_NULL_DISTRIBUTION_H

#include "zonal/loss.h"

/* The degrees that carry the variance; the rest is in extra_variance. */
typedef struct zonal__null_distribution {
    int terms;
    double *share;   /* [terms] b_l */
    double *freedom; /* [terms] N_l */
    double extra_variance;
    double variance; /* of the limit: sum of 2 b_l^2 / N_l */
} zonal__null_distribution;

/* The null distribution of MMD's or KSD's statistic under a kernel. Undo with zonal__null_fini. */
zonal_status zonal__null_of_kernel(const zonal_kernel *kernel, zonal_discrepancy discrepancy,
                                   zonal__null_distribution *null);
/* The null distribution of degree l alone on S^{d-1}. */
zonal_status zonal__null_of_degree(int l, int64_t d, zonal__null_distribution *null);
void zonal__null_fini(zonal__null_distribution *null);

/* The standard deviation of T at n points. */
double zonal__null_sd(const zonal__null_distribution *null, int64_t n);

/* The tails at T = t for n points. */
zonal_status zonal__null_tails(const zonal__null_distribution *null, int64_t n, double t,
                               double *upper, double *log_upper, double *lower);

#endif
