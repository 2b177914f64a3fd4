/*
 * The distribution of a centred sum of chi-squares,
 *
 *     T = sum_l b_l (chi2(N_l)/N_l - 1) + sqrt(v) N(0,1),        all terms independent.
 *
 * It is the limit of B * D - sum b_l for a batch of B uniform points on the sphere: degree l of the
 * kernel has weight b_l and N_l harmonics, and v stands for the degrees that a truncated spectrum
 * left out, which are as good as normal.
 *
 * Method. With the cumulant-generating function
 *
 *     K(s) = sum_l N_l/2 [-log(1 - u_l) - u_l] + v s^2/2,        u_l = 2 s b_l / N_l,
 *
 * the tail is P(T > x) = 1/(2 pi i) int exp(K(s) - s x) ds/s over a contour that passes between the
 * pole at 0 and the branch points N_l/(2 b_l); P(T <= x) is minus the same integral left of the
 * pole. The contour is a hyperbola through the saddle point of exp(K(s) - s x)/s, with asymptotes
 * at 67.5 degrees: within 45 to 90 degrees every term, chi-square or normal, decays from the saddle
 * outwards (the derivation is in the .c file), so the trapezoid rule on it converges geometrically
 * whatever the mixture. The saddle of the integrand with its 1/s stays off the pole also at the
 * mean. The integral is taken relative to its value at the saddle, in a form without differences of
 * large numbers: a freedom of 1e300 loses no digits and neither does a tail of 1e-300.
 *
 * Accuracy. Measured in test_distributions.c against 50 to 340 digits: single chi-squares
 * with N = 1 to 1e12, mixtures in closed form (up to 3000 terms) and heat spectra for d = 3 to
 * 2048, with and without a normal part. The smaller tail has relative error below 3e-13 from p = .5
 * down to 1e-298, about |log p| times the rounding of double, and so has log p; far out log p is
 * better still (1e-14 for N = 2, down to -1e300).
 *
 * Time: 10 to 40 microseconds for a heat spectrum at any d; 2 ms for 4000 terms that fall like
 * l^-2, 10 ms for 4000 that fall slowly or not at all.
 */
#ifndef ZONAL_MATH_WEIGHTED_CHI2_H
#define ZONAL_MATH_WEIGHTED_CHI2_H

#include "core/error.h"

/* Sets *p_upper = P(T > x), *log_p_upper = log P(T > x) and *p_lower = P(T <= x).
 *
 * n_terms >= 0; weight[l] = b_l >= 0 (a zero is left out); freedom[l] = N_l >= 1, not necessarily
 * whole; both finite, in any order. extra_variance = v >= 0. At least one weight or v is positive.
 * x may be infinite, not NaN.
 *
 * The tail on x's side of the mean is computed and the other is its complement, so that each is
 * right to its last digits where it is small. *p_upper is 0 below the range of double; *log_p_upper
 * goes on. When v = 0, x at or below the lower end -sum b_l gives p_upper = 1, p_lower = 0 exactly.
 *
 * ZONAL_ARGUMENT when an argument is out of its range, ZONAL_MEMORY, or ZONAL_NUMERIC when the
 * integral did not converge (not known to happen); the results are then NaN. Thread-safe. */
zonal_status zonal__weighted_chi2_tail(int n_terms, const double *weight, const double *freedom,
                                       double extra_variance, double x, double *p_upper,
                                       double *log_p_upper, double *p_lower);

#endif
