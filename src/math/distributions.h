/*
 * Classical distribution functions: the chi-square, and the area of caps on the sphere.
 *
 * None of them allocates or fails; arguments outside the domain give NaN. Thread-safe. The
 * accuracies are the largest errors in test_distributions.c, against 50 digits and more.
 */
#ifndef ZONAL_MATH_DISTRIBUTIONS_H
#define ZONAL_MATH_DISTRIBUTIONS_H

#include <stdint.h>

/* The three faces of one tail; log_upper goes on where upper has underflowed to 0. */
typedef struct zonal__tail {
    double upper, log_upper, lower;
} zonal__tail;

/* The distribution of a centred mean square: P(chi2(N)/N - 1 > excess) and its complement, for N =
 * freedom > 0 up to 1e300 and any excess; 1 and 0 at excess <= -1. The argument is the excess and
 * not chi2 itself because at N = 1e12 a double chi2 = N (1 + excess) has lost the digits that make
 * the tail.
 *
 * Method: the regularised incomplete gamma function from, with a = N/2 and x = a (1 + excess),
 *     Gamma(a, x) = x^a e^-x int_0^inf exp(a tau - x (e^tau - 1)) dtau       (excess >= 0)
 *     gamma(a, x) = x^a e^-x int_0^inf exp(x (1 - e^-tau) - a tau) dtau      (excess < 0),
 * log-concave integrands that fall from 1, by tanh-sinh quadrature; the factor before them by
 * Stirling's series and excess - log(1 + excess). It shares nothing with weighted_chi2.h and is
 * there to check it. Accuracy: relative error of the smaller tail below 2e-13 from .999999 to
 * 1e-300, N = 1 to 1e12. */
zonal__tail zonal__chi2_tail(double freedom, double excess);

/* Regularised incomplete gamma functions: upper = Q(a, x), lower = P(a, x), for a > 0, x >= 0. As
 * above with N = 2 a; the error grows by (x - a) times the rounding of x where a is large. */
zonal__tail zonal__gamma_tail(double a, double x);

/* The share of S^{d-1} within "angle" of a point, and its logarithm, which goes on below the range
 * of double; d >= 2, angle in radians, 0 below 0 and 1 from pi on.
 *
 * Method: 1/2 I(sin^2 angle; (d-1)/2, 1/2) up to the equator, its complement beyond; the continued
 * fraction of the incomplete beta function (DLMF 8.17.22). Accuracy: relative error below 1e-13, of
 * the share and of its logarithm, for d up to 4096. */
double zonal__cap_fraction(int64_t d, double angle);
double zonal__cap_log_fraction(int64_t d, double angle);

/* The mean angle from one of n independent uniform points on S^{d-1} to the nearest other,
 *     int_0^pi (1 - F(theta))^(n-1) dtheta,   F = zonal__cap_fraction; n >= 2, d >= 2.
 * Method: tanh-sinh quadrature over the angles where the integrand is neither 1 nor 0. Accuracy:
 * relative error below 1e-14 for n up to 1e7 and d up to 4096. Time: below 0.5 ms. */
double zonal__expected_nearest_angle(int64_t n, int64_t d);

#endif
