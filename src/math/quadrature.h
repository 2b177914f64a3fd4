/*
 * Gauss quadrature for the marginal of the uniform distribution on S^{d-1}, the density
 * rho_d(v) proportional to (1 - v^2)^((d-3)/2) on [-1, 1] (Gauss-Jacobi, alpha = beta = (d-3)/2).
 *
 * Method: Golub and Welsch's tridiagonal eigenproblem by implicit QL for the nodes, one Newton step
 * each, and Christoffel's sum of squares for the weights, all in long double. Accuracy: nodes
 * within a few ulp of long double, weights within n ulp of their value, also the tiny ones.
 */
#ifndef ZONAL_MATH_QUADRATURE_H
#define ZONAL_MATH_QUADRATURE_H

#include <stdint.h>

#include "core/error.h"

/* Fills node[0..n-1] (ascending) and weight[0..n-1] (sum 1) on S^{d-1}; n >= 1, d >= 2. Exact for
 * polynomials of degree 2n - 1. */
zonal_status zonal__gauss_sphere(int n, int64_t d, long double *node, long double *weight);

#endif
