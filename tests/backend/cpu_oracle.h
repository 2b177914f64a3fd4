/*
 * What the operations of a backend should give, computed here in long double straight from the
 * definitions in backend/backend.h, without the library's fits, reference code or vectors.
 */
#ifndef ZONAL_TESTS_CPU_ORACLE_H
#define ZONAL_TESTS_CPU_ORACLE_H

#include <stdint.h>

#include "backend/backend.h"

/* A function of the cosine and its derivative, and a fit of it made here from its values at
 * Chebyshev points. */
typedef struct oracle_function {
    long double (*value)(const void *context, long double c);
    long double (*derivative)(const void *context, long double c);
    const void *context;
} oracle_function;

/* Terms: enough that what is left of the series is below rounding. low: where the tangent begins.
 * monomials: 1 to give the fit powers as well (the function must then be a polynomial of degree <
 * terms <= 12; they are found by divided differences). Release with oracle_fit_free. */
zonal__fit *oracle_fit(const oracle_function *f, int terms, double low, int monomials);
void oracle_fit_free(zonal__fit *fit);

/* c0 + c1 c + c2 c^2 + c3 c^3, context: four doubles; and exp(k (c - 1)), context: k. */
extern const oracle_function oracle_cubic, oracle_exponential;
oracle_function oracle_with(oracle_function f, const void *context);

/* x is [rows][dim] (INVARIANCE: [views][rows][dim]); value and gradient as the operations define
 * them, with factor 1 and gradient of the normalised rows projected back. gradient may be NULL. */
void oracle_pairs(const zonal__problem *problem, const oracle_function *psi, const double *x,
                  double *value, double *gradient);
void oracle_kl(const zonal__problem *problem, const oracle_function *log_phi, const double *x,
               double *value, double *gradient);
void oracle_sliced(const zonal__problem *problem, uint32_t step, const double *x, double *value,
                   double *gradient);
void oracle_invariance(const zonal__problem *problem, const double *x, double *value,
                       double *gradient);
void oracle_survey(const zonal__problem *problem, const oracle_function *psi, const double *x,
                   double *value);
void oracle_covariance(const zonal__problem *problem, const double *x, double *value);

#endif
