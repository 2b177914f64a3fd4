/*
 * The numbers a report is made from, for one batch: moments, and sums over pairs of several
 * functions at once. Made once for a shape, run on the data and on simulated batches alike.
 */
#ifndef ZONAL_UNIFORMITY_SURVEY_H
#define ZONAL_UNIFORMITY_SURVEY_H

#include "backend/device.h"

typedef struct zonal__survey {
    int64_t n, d;
    const zonal__backend *backend;
    zonal__work *covariance;
    zonal__work *pairs; /* NULL when pairs are not looked at */
    int n_psi;
    double *moments; /* [d + d*d] mean and second moment */
    double *sums;    /* [n_psi + n] sums over pairs / n^2, nearest cosines */
} zonal__survey;

/* psi[0..n_psi-1] must outlive the survey; n_psi = 0: no pairs. Undo with zonal__survey_fini. */
zonal_status zonal__survey_init(const zonal__problem *problem, const zonal__pair_function *psi,
                                int n_psi, zonal__survey *survey);
void zonal__survey_fini(zonal__survey *survey);

/* Fills moments and sums from x. */
zonal_status zonal__survey_run(zonal__survey *survey, const void *x);

/* T of degree 1 and 2, from the moments. */
double zonal__survey_rayleigh(const zonal__survey *survey);
double zonal__survey_bingham(const zonal__survey *survey);
/* T of psi[k]. */
double zonal__survey_pairs(const zonal__survey *survey, int k);

/* Fills x with n uniform points, those of the replicate'th simulated batch. row is [d] scratch. */
void zonal__survey_simulate(const zonal__problem *problem, uint64_t seed, uint32_t replicate,
                            double *row, void *x);

#endif
