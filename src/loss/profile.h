/*
 * psi, the function of the cosine whose mean over pairs is MMD or KSD, and its fit.
 */
#ifndef ZONAL_LOSS_PROFILE_H
#define ZONAL_LOSS_PROFILE_H

#include "backend/backend.h"
#include "loss/kernel.h"

typedef struct zonal__profile {
    zonal__pair_function psi; /* what a backend needs; points into this object and the kernel */
    zonal__fit *fit;
    double norm;       /* 1 - a_0 (MMD), (d-1) phi'(1)/2 (KSD) */
    double derivative; /* psi'(1) */
} zonal__profile;

/* Makes psi for MMD or KSD under a kernel, fitted to the precision. The kernel must outlive it, and
 * *profile must not move while psi is in use. Undo with zonal__profile_fini, also after failure. */
zonal_status zonal__profile_init(const zonal_kernel *kernel, zonal_discrepancy discrepancy,
                                 zonal_precision precision, zonal__profile *profile);
void zonal__profile_fini(zonal__profile *profile);

/* b_l: the share of degree l in psi = sum over l >= 1 of b_l P_l. */
double zonal__profile_share(const zonal_kernel *kernel, zonal_discrepancy discrepancy, int l);

/* The highest degree with a share, or 0 when there is no last one. */
int zonal__profile_degree(const zonal_kernel *kernel);

/* A fit of log phi cut down to what fp32 plans need. (Double plans use the kernel's own.) */
zonal_status zonal__profile_fit_log(const zonal_kernel *kernel, zonal__fit **fit);

#endif
