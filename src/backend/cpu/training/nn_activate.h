/*
 * Activations and their derivatives, as straight lines that vectorise. Accuracy: relu exact; gelu
 * and its derivative to 2e-7 (1 + |z|). NaN is passed on.
 */
#ifndef ZONAL_BACKEND_CPU_TRAINING_NN_ACTIVATE_H
#define ZONAL_BACKEND_CPU_TRAINING_NN_ACTIVATE_H

#include "backend/cpu/training/nn_layer.h"

/* Phi(z), the normal distribution, and exp(-z^2/2). Abramowitz and Stegun 7.1.26: erf(a) = 1 -
 * p(t) exp(-a^2) with t = 1/(1 + .3275911 a), to 1.5e-7. */
ZONAL__INLINE double zonal__normal(double z, double *bell) {
    double a = (z < 0 ? -z : z) * 0.7071067811865476, t = 1 / (1 + 0.3275911 * a), p, tail;
    p = 1.061405429;
    p = p * t - 1.453152027;
    p = p * t + 1.421413741;
    p = p * t - 0.284496736;
    p = p * t + 0.254829592;
    *bell = zonal__exp(-0.5 * z * z);
    tail = 0.5 * p * t * *bell;
    return z < 0 ? tail : 1 - tail;
}

ZONAL__INLINE float zonal__activate(float z, zonal__activation activation) {
    double bell;
    if (activation == ZONAL__ACTIVATION_RELU) return z <= 0 ? 0 : z;
    if (activation == ZONAL__ACTIVATION_GELU)
        return (float)((double)z * zonal__normal((double)z, &bell));
    return z;
}

/* The derivative at z. For relu y may stand for z: both are positive together. */
ZONAL__INLINE float zonal__activation_derivative(float z, zonal__activation activation) {
    double bell, phi;
    if (activation == ZONAL__ACTIVATION_RELU) return z <= 0 ? 0 : 1;
    if (activation == ZONAL__ACTIVATION_NONE) return 1;
    phi = zonal__normal((double)z, &bell);
    return (float)(phi + (double)z * bell * 0.3989422804014327);
}

#endif
