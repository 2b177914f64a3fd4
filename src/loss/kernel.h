/*
 * Kernels from the inside: long double profiles and their derivatives, which the fits and the
 * reference implementation are made from. The manual is zonal/kernel.h.
 */
#ifndef ZONAL_LOSS_KERNEL_H
#define ZONAL_LOSS_KERNEL_H

#include <float.h>

#include "math/chebyshev.h"
#include "zonal/kernel.h"

/* Narrow kernels have spectra and series that a double cannot carry. */
_Static_assert(LDBL_MANT_DIG >= 64 && LDBL_MAX_EXP >= 16384,
               "zonal needs a long double of at least 80 bits (x86-64, AArch64 Linux)");

struct zonal_kernel {
    zonal_kernel_spec spec;             /* weights is our copy */
    const struct zonal__family *family; /* its record */
    double parameter;                   /* of the family, in this dimension */
    int64_t dim;
    int degrees;
    long double *a;           /* [degrees] the spectrum, sum 1 (chordal: a little less) */
    long double log_a0;       /* log a_0 */
    long double one_minus_a0; /* sum over l >= 1 of a_l, without cancellation */
    int nodes;                /* induced: positive nodes u_k of the rule, as kappa_k = s^2 u_k^2 */
    long double *kappa;       /* [nodes] */
    long double *node_weight; /* [nodes], sum 1 */
    zonal__fit *log_phi;      /* when spec.log_profile */
};

/* The derivative of phi of order 0, 1, 2 or 3 at c. */
long double zonal__kernel_derivative(const zonal_kernel *kernel, int order, long double c);

/* (phi(c) - a_0)/(1 - a_0), without cancellation: psi of MMD. */
long double zonal__kernel_centred(const zonal_kernel *kernel, long double c);

/* ---- ways to the spectrum a_l that families share ------------------------------------------- */

/* Of a spectrum: narrower kernels are refused. */
enum { ZONAL__SPECTRUM_DEGREES = 20000, ZONAL__MOST_WEIGHTS = 4096 };

/* From the family's ratios w_{l+1}/w_l, degrees 0 to "last" at most. The number of degrees follows
 * from the tail. */
zonal_status zonal__spectrum_chain(zonal_kernel *kernel, int last);
/* From the spec's weights. */
zonal_status zonal__spectrum_given(zonal_kernel *kernel);

/* The sentence for a kernel of which a double sees nothing but its mean. */
zonal_status zonal__spectrum_is_constant(int64_t dim);

#endif
