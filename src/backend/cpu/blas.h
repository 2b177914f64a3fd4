/*
 * Matrix products of one thread, from OpenBLAS where it was built in and knows the processor, and
 * from our own loops otherwise.
 *
 * The backend's threads call the products side by side, so OpenBLAS must not start threads of its
 * own meanwhile: enter and leave bracket every run. Its thread count belongs to the whole process;
 * the first to enter saves it and sets it to 1, the last to leave restores it. A caller that uses
 * OpenBLAS from another thread at the same time gets one thread while a run lasts, and one that
 * changes the count meanwhile finds its change undone.
 */
#ifndef ZONAL_BACKEND_CPU_BLAS_H
#define ZONAL_BACKEND_CPU_BLAS_H

#include "backend/cpu/kernels.h"

void zonal__cpu_blas_enter(void);
void zonal__cpu_blas_leave(void);

/* C = op(A) op(B) + beta C, row-major, op(A) m x k, op(B) k x n, beta 0 or 1; all of them, and the
 * leading dimensions, below 2^31. */
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
void zonal__cpu_multiply(const zonal__cpu_kernels *kernels, const zonal__cpu_product *product);

#endif
