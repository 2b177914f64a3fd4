/*
 * Chebyshev fits of smooth functions of the cosine: what the pair loops evaluate in place of a
 * spectrum or an integral.
 *
 *     f(c) = sum_k value[k] T_k(u),  f'(c) = sum_k derivative[k] T_k(u), u = (c - middle)/half
 *
 * on [low, 1]; below low, f is continued by its tangent there (only log phi of very narrow kernels
 * needs that). A fit is made in long double and rounded once, so its error is a few ulp of the
 * largest coefficient; "error" is a bound on |fit - f| checked at points between the nodes.
 *
 * "monomial" and "monomial_derivative" hold the same polynomials in powers of u where that loses
 * nothing: Horner's rule is half the work of Clenshaw's. They are empty (count 0) where the sum of
 * the magnitudes of the coefficients shows that it would lose more than monomial_tolerance.
 */
#ifndef ZONAL_MATH_CHEBYSHEV_H
#define ZONAL_MATH_CHEBYSHEV_H

#include "core/error.h"

typedef struct zonal__fit {
    double low, middle, half;         /* u = (c - middle) / half, middle + half = 1 */
    int n_value, n_derivative;        /* numbers of coefficients, at least 1 each */
    double *value;                    /* [n_value] */
    double *derivative;               /* [n_derivative], derivative with respect to c */
    int n_monomial;                   /* 0 or n_value */
    double *monomial;                 /* [n_value] */
    double *monomial_derivative;      /* [n_derivative] */
    double low_value, low_derivative; /* f and f' at low, for the tangent below it */
    double error;
} zonal__fit;

/* A function to fit. It may fail (status), e.g. where a logarithm meets a number that is not
 * positive. */
typedef zonal_status (*zonal__fit_function)(const void *context, long double c, long double *out);

/* Fits f on [low, 1] to within "tolerance" (absolute) and drops coefficients it does not need.
 * Fails with ZONAL_NUMERIC when "max_terms" are not enough. */
zonal_status zonal__fit_create(zonal__fit_function f, const void *context, double low,
                               double tolerance, double monomial_tolerance, int max_terms,
                               zonal__fit **fit);
void zonal__fit_destroy(zonal__fit *fit);

/* One point, by Clenshaw's recurrence, with the tangent below low. */
double zonal__fit_value(const zonal__fit *fit, double c);
/* The least and the largest of 0 and the fit's values at 513 places from -1 to 1: what it comes to,
 * near enough to choose how to compute with it. */
void zonal__fit_range(const zonal__fit *fit, double *least, double *most);
double zonal__fit_derivative(const zonal__fit *fit, double c);

#endif
