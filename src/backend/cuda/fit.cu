#include "backend/cuda/fit.cuh"

#include <math.h>

static zonal_status upload(zonal__cuda_base *base, int n, const double *host, const double **out) {
    void *memory;
    ZONAL_TRY(zonal__cuda_alloc(base, (size_t)n * sizeof *host, "a profile", &memory));
    *out = (const double *)memory;
    return ZONAL_CUDA(cudaMemcpy(memory, host, (size_t)n * sizeof *host, cudaMemcpyHostToDevice));
}

zonal_status zonal__device_fit_init(zonal__cuda_base *base, const zonal__pair_function *psi,
                                    const zonal__fit *fit, zonal__device_fit *out) {
    *out = zonal__device_fit();
    if (psi && !psi->fit) {
        out->chord = 1;
        out->chord_scale = psi->chord;
        out->low = -1;
        return ZONAL_OK;
    }
    if (psi) fit = psi->fit;
    out->n_value = fit->n_value;
    out->n_derivative = fit->n_derivative;
    out->monomial = fit->n_monomial > 0;
    out->low = fit->low;
    out->low_value = fit->low_value;
    out->low_derivative = fit->low_derivative;
    out->middle = fit->middle;
    out->inverse_half = 1 / fit->half;
    /* Single precision is all the products that follow can use, but only where the derivative at
     * typical cosines is not lost beside the one at c = 1. */
    out->float_derivative =
        out->monomial && fit->n_value <= ZONAL__FIT_TERMS &&
        fabs(zonal__fit_derivative(fit, 0)) > fabs(zonal__fit_derivative(fit, 1)) / 32;
    const double *value = out->monomial ? fit->monomial : fit->value;
    const double *derivative = out->monomial ? fit->monomial_derivative : fit->derivative;
    if (fit->n_value > ZONAL__FIT_TERMS) {
        ZONAL_TRY(upload(base, fit->n_value, value, &out->long_value));
        return upload(base, fit->n_derivative, derivative, &out->long_derivative);
    }
    for (int k = 0; k < fit->n_value; k++) {
        out->value[k] = value[k];
        out->single_value[k] = (float)value[k];
    }
    for (int k = 0; k < fit->n_derivative; k++) {
        out->derivative[k] = derivative[k];
        out->single_derivative[k] = (float)derivative[k];
    }
    return ZONAL_OK;
}

void zonal__device_fit_fini(zonal__device_fit *fit) {
    cudaFree((void *)fit->long_value);
    cudaFree((void *)fit->long_derivative);
    *fit = zonal__device_fit();
}
