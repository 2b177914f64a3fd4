/*
 * The null distribution of T (that for n uniform points): which degrees a test weighs, its variance
 * and its tails. It is the limit for many points,
 *
 *     T -> sum over l of b_l (chi2(N_l)/N_l - 1),    of variance v = sum of 2 b_l^2/N_l,
 *
 * with N_l n/(n-1) in the place of N_l. That makes the variance (1 - 1/n) v, which is T's at every
 * n, and leaves the lower end of the support at -sum b_l, where T's is: a factor on T would move
 * it, and n D near 0, which in few dimensions is nothing rare, would lie beyond the end and have a
 * lower tail of 0.
 *
 * Accuracy: the variance is exact to rounding; tails are the limit's, measured by simulation in
 * test_uniformity.c.
 */
#ifndef ZONAL_UNIFORMITY_NULL_DISTRIBUTION_H
#define ZONAL_UNIFORMITY_NULL_DISTRIBUTION_H

#include "zonal/loss.h"

/* Below so many points the tails are off by up to an order of magnitude. */
enum { ZONAL__FEW_POINTS = 5 };

/* The degrees that carry the variance; the rest is in extra_variance. */
typedef struct zonal__null_distribution {
    int terms;
    double *share;   /* [terms] b_l */
    double *freedom; /* [terms] N_l n/(n-1) */
    double extra_variance;
    double variance; /* of T */
} zonal__null_distribution;

/* The null distribution of MMD's or KSD's statistic of n >= 2 points under a kernel. Undo with
 * zonal__null_fini. */
zonal_status zonal__null_of_kernel(const zonal_kernel *kernel, zonal_discrepancy discrepancy,
                                   int64_t n, zonal__null_distribution *null);
/* The same of degree l alone on S^{d-1}. */
zonal_status zonal__null_of_degree(int l, int64_t d, int64_t n, zonal__null_distribution *null);
void zonal__null_fini(zonal__null_distribution *null);

/* The standard deviation of T. */
double zonal__null_sd(const zonal__null_distribution *null);

/* The tails at T = t. */
zonal_status zonal__null_tails(const zonal__null_distribution *null, double t, double *upper,
                               double *log_upper, double *lower);

#endif
