/*
 * log phi as a fit, for KL. log_profile.c says how.
 */
#ifndef ZONAL_LOSS_LOG_PROFILE_H
#define ZONAL_LOSS_LOG_PROFILE_H

#include "loss/kernel.h"

/* Fits log phi on [-1, 1], or down to where phi = 1e-250; ZONAL_ARGUMENT unless phi > 0. */
zonal_status zonal__kernel_fit_log(const zonal_kernel *kernel, zonal__fit **fit);

/* For the families' records: from a spectrum in 1024 bits. */
zonal_status zonal__fit_log_heat(const zonal_kernel *kernel, zonal__fit **fit);
zonal_status zonal__fit_log_band(const zonal_kernel *kernel, zonal__fit **fit);
zonal_status zonal__fit_log_given(const zonal_kernel *kernel, zonal__fit **fit);

#endif
