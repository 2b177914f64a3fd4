/*
 * The spectrum a_l of each family, and the quadrature of the induced kernel. Used by kernel.c
 * alone.
 */
#ifndef ZONAL_LOSS_SPECTRUM_H
#define ZONAL_LOSS_SPECTRUM_H

#include "loss/kernel.h"

/* Fills degrees, a, log_a0 and one_minus_a0 of a kernel whose spec and dim are set; for the induced
 * family also nodes, kappa and node_weight. What was allocated stays in the kernel on failure. */
zonal_status zonal__spectrum_build(zonal_kernel *kernel);

#endif
