/*
 * Effective rank and collapse, with the values uniform points would show: the one definition of
 * both, which zonal/uniformity.h explains.
 */
#ifndef ZONAL_UNIFORMITY_DIAGNOSTICS_H
#define ZONAL_UNIFORMITY_DIAGNOSTICS_H

#include <stdint.h>

#include "zonal/uniformity.h"

/* exp of the entropy of p_k = s_k / sum s, s_k = sqrt of the eigenvalues of the second moment: up
 * to a factor the singular values of the rows. Negative eigenvalues (rounding) count as 0. */
double zonal__effective_rank(int64_t d, const double *eigenvalues);

/* Its value for n uniform points in d dimensions, from the Marchenko-Pastur distribution of the
 * eigenvalues: within 2 % for n, d >= 20. */
double zonal__effective_rank_expected(int64_t n, int64_t d);

/* 1 / sum of squared shares of the eigenvalues: k for points spread evenly over k dimensions. */
double zonal__participation(int64_t d, const double *eigenvalues);
/* n uniform points: 1/E[tr M^2], E[tr M^2] = 1/d + (1 - 1/d)/n. */
double zonal__participation_expected(int64_t n, int64_t d);

/* Whether points with these numbers have collapsed, by limits on the mean cosine and on the share
 * of the expected rank. A number that is NaN says so. */
zonal_collapse zonal__collapse(double mean_cosine, double rank, double expected_rank,
                               double cosine_limit, double rank_limit);

#endif
