/*
 * Matrix products of one thread, by our own kernels; the backend's threads call them side by side.
 *
 * BLAS is not used for them. OpenBLAS is no faster where it knows the processor and several times
 * slower where it does not, its number of threads belongs to the whole process, and where the
 * address space is limited (ulimit -v) it waits for ever for the 128 MiB that it wants for each
 * thread.
 */
#ifndef ZONAL_BACKEND_CPU_PRODUCT_H
#define ZONAL_BACKEND_CPU_PRODUCT_H

#include "backend/cpu/kernels.h"

/* C = op(A) op(B) + beta C, row-major, op(A) m x k, op(B) k x n, beta 0 or 1. */
typedef struct zonal__cpu_product {
    int transpose_a, transpose_b;
    int64_t m, n, k;
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    int beta;
    void *c;
    int64_t ldc;
} zonal__cpu_product;

static inline void zonal__cpu_multiply(const zonal__cpu_kernels *kernels,
                                       const zonal__cpu_product *p) {
    kernels->gemm(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->a, p->lda, p->b, p->ldb,
                  p->beta, p->c, p->ldc);
}

#endif
