/*
 * Spherical harmonics on S^{d-1} as far as zonal functions need them: eigenvalues, multiplicities,
 * and Gegenbauer series sum_l a_l P_l(c) with P_l(1) = 1.
 *
 * Everything here is long double: the series of narrow kernels have thousands of terms and the
 * recurrence near c = 1 loses l^2 ulp, which extended precision absorbs.
 */
#ifndef ZONAL_MATH_HARMONICS_H
#define ZONAL_MATH_HARMONICS_H

#include <stdint.h>

/* L_l = l (l + d - 2) */
static inline long double zonal__eigenvalue(int64_t l, int64_t d) {
    return (long double)l * (long double)(l + d - 2);
}

/* N_{l+1}/N_l, from N_0 = 1, N_1 = d, and (2l+d)(l+d-2) / ((2l+d-2)(l+1)) for l >= 1. */
static inline long double zonal__multiplicity_ratio(int64_t l, int64_t d) {
    if (l == 0) return (long double)d;
    return (long double)(2 * l + d) * (long double)(l + d - 2) /
           ((long double)(2 * l + d - 2) * (long double)(l + 1));
}

/* log N_l, by the same product: accurate to l ulp, where lgamma would lose eleven digits. */
long double zonal__log_multiplicity(int64_t l, int64_t d);

/* sum over first <= l < n of a[l] P_l(c) on S^{d-1}, forward recurrence
 * (l+d-2) P_{l+1} = (2l+d-2) c P_l - l P_{l-1}, started at P_0 = 1, P_1 = c. */
long double zonal__series(int first, int n, const long double *a, int64_t d, long double c);

/* The derivative of that order (1, 2, 3): P_l'(c; d) = L_l/(d-1) P_{l-1}(c; d+2), applied term by
 * term while the recurrence runs in dimension d + 2 order. */
long double zonal__series_derivative(int n, const long double *a, int64_t d, int order,
                                     long double c);

/* log |S^{d-1}| = log 2 + (d/2) log pi - log Gamma(d/2); Gamma as an exact product. */
long double zonal__log_sphere_area(int64_t d);

/* log Gamma(n/2) for an integer n >= 1, as a sum of logarithms: within n ulp of extended precision
 */
long double zonal__log_gamma_half(int64_t n);

#endif
