/*
 * Profiles on the device: a fit's coefficients travel in the kernel's parameters, which are
 * constant memory, and are read once for several cosines.
 */
#ifndef ZONAL_BACKEND_CUDA_FIT_CUH
#define ZONAL_BACKEND_CUDA_FIT_CUH

#include "backend/cuda/common.cuh"

enum { ZONAL__FIT_TERMS = 64 }; /* in the parameters; longer fits are read from memory */

typedef struct zonal__device_fit {
    int n_value, n_derivative;
    int monomial;         /* 1: powers of u (Horner), 0: Chebyshev (Clenshaw) */
    int float_derivative; /* 1: derivatives in single precision: they do not span many magnitudes */
    int chord;            /* 1: no fit: psi(c) = 1 - chord_scale sqrt((1-c)/2) */
    double chord_scale;
    double low, low_value, low_derivative;
    double middle, inverse_half;
    double value[ZONAL__FIT_TERMS], derivative[ZONAL__FIT_TERMS];
    float single_value[ZONAL__FIT_TERMS],
        single_derivative[ZONAL__FIT_TERMS];    /* where float_derivative */
    const double *long_value, *long_derivative; /* device; used when n_value > ZONAL__FIT_TERMS */
} zonal__device_fit;

/* Sum of k < n coefficients times T_k(u) or u^k at COUNT points at once. */
template <int COUNT>
__device__ inline void zonal__polynomial(int n, int monomial, const double *a, const double *u,
                                         double *out) {
    if (monomial) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) out[i] = a[n - 1];
        for (int k = n - 2; k >= 0; k--) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) out[i] = fma(out[i], u[i], a[k]);
        }
        return;
    }
    double b1[COUNT], b2[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) b1[i] = b2[i] = 0;
    for (int k = n - 1; k > 0; k--) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            double b = fma(2 * u[i], b1[i], a[k] - b2[i]);
            b2[i] = b1[i];
            b1[i] = b;
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) out[i] = fma(u[i], b1[i], a[0] - b2[i]);
}

/* Clamps to [-1, 1]; a NaN stays one. */
__device__ inline double zonal__clamp_cosine(float c) {
    return c > 1.0f ? 1.0 : c < -1.0f ? -1.0 : (double)c;
}

/* f(c) at COUNT cosines. */
template <int COUNT>
__device__ inline void zonal__fit_values(const zonal__device_fit &fit, const double *c,
                                         double *out) {
    double u[COUNT];
    if (fit.chord) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) out[i] = 1 - fit.chord_scale * sqrt((1 - c[i]) / 2);
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) u[i] = (c[i] - fit.middle) * fit.inverse_half;
    zonal__polynomial<COUNT>(fit.n_value, fit.monomial, fit.long_value ? fit.long_value : fit.value,
                             u, out);
    if (fit.low > -1) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (c[i] < fit.low) out[i] = fit.low_value + fit.low_derivative * (c[i] - fit.low);
    }
}

/* A polynomial in powers of u at COUNT points, in single precision. */
template <int COUNT>
__device__ inline void zonal__horner(int n, const float *a, const float *u, float *out) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) out[i] = a[n - 1];
    for (int k = n - 2; k >= 0; k--) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) out[i] = fmaf(out[i], u[i], a[k]);
    }
}

/* u of COUNT cosines, and the tangent below low where there is one. */
template <int COUNT>
__device__ inline void zonal__fit_points(const zonal__device_fit &fit, const float *c, float *u) {
    float middle = (float)fit.middle, inverse = (float)fit.inverse_half;
#pragma unroll
    for (int i = 0; i < COUNT; i++) u[i] = (c[i] - middle) * inverse;
}

/* f(c) and f'(c) at COUNT cosines in single precision; only where float_derivative is 1. */
template <int COUNT>
__device__ inline void zonal__fit_values_single(const zonal__device_fit &fit, const float *c,
                                                float *out) {
    float u[COUNT];
    zonal__fit_points<COUNT>(fit, c, u);
    zonal__horner<COUNT>(fit.n_value, fit.single_value, u, out);
    if (fit.low > -1) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (c[i] < (float)fit.low)
                out[i] = (float)fit.low_value + (float)fit.low_derivative * (c[i] - (float)fit.low);
    }
}

template <int COUNT>
__device__ inline void zonal__fit_derivatives_single(const zonal__device_fit &fit, const float *c,
                                                     float *out) {
    float u[COUNT];
    zonal__fit_points<COUNT>(fit, c, u);
    zonal__horner<COUNT>(fit.n_derivative, fit.single_derivative, u, out);
    if (fit.low > -1) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (c[i] < (float)fit.low) out[i] = (float)fit.low_derivative;
    }
}

/* f'(c) at COUNT cosines, in double. */
template <int COUNT>
__device__ inline void zonal__fit_derivatives(const zonal__device_fit &fit, const double *c,
                                              float *out) {
    double u[COUNT], f[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) u[i] = (c[i] - fit.middle) * fit.inverse_half;
    zonal__polynomial<COUNT>(fit.n_derivative, fit.monomial,
                             fit.long_derivative ? fit.long_derivative : fit.derivative, u, f);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        out[i] = c[i] < fit.low ? (float)fit.low_derivative : (float)f[i];
}

extern "C" {
/* Fills the device form of a pair function's fit (or of a fit alone, psi NULL). Long fits take
 * device memory, which zonal__device_fit_fini releases. */
zonal_status zonal__device_fit_init(zonal__cuda_base *base, const zonal__pair_function *psi,
                                    const zonal__fit *fit, zonal__device_fit *out);
void zonal__device_fit_fini(zonal__device_fit *fit);
}

#endif
