/*
 * The law of T for uniform points: which degrees a test weighs, its variance and its tails.
 */
#ifndef ZONAL_UNIFORMITY_LAW_H
#define ZONAL_UNIFORMITY_LAW_H

#include "zonal/loss.h"

/* The degrees that carry the variance; the rest is in extra_variance. */
typedef struct zonal__law {
    int terms;
    double *share;   /* [terms] b_l */
    double *freedom; /* [terms] N_l */
    double extra_variance;
    double variance; /* of the limit: sum of 2 b_l^2 / N_l */
} zonal__law;

/* The law of MMD's or KSD's statistic under a kernel. Undo with zonal__law_fini. */
zonal_status zonal__law_of_kernel(const zonal_kernel *kernel, zonal_discrepancy discrepancy,
                                  zonal__law *law);
/* The law of degree l alone on S^{d-1}. */
zonal_status zonal__law_of_degree(int l, int64_t d, zonal__law *law);
void zonal__law_fini(zonal__law *law);

/* The standard deviation of T at n points. */
double zonal__law_sd(const zonal__law *law, int64_t n);

/* The tails at T = t for n points. */
zonal_status zonal__law_tails(const zonal__law *law, int64_t n, double t, double *upper,
                              double *log_upper, double *lower);

#endif
