#include "backend/cpu/blas.h"

static void multiply_ourselves(const zonal__cpu_kernels *kernels, const zonal__cpu_product *p) {
    kernels->gemm(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->a, p->lda, p->b, p->ldb,
                  p->beta, p->c, p->ldc);
}

#ifdef ZONAL_HAVE_OPENBLAS

#include <cblas.h>
#include <pthread.h>
#include <stdatomic.h>
#include <strings.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int entered, saved_threads;

void zonal__cpu_blas_enter(void) {
    pthread_mutex_lock(&lock);
    if (entered++ == 0) {
        saved_threads = openblas_get_num_threads();
        if (saved_threads != 1) openblas_set_num_threads(1);
    }
    pthread_mutex_unlock(&lock);
}

void zonal__cpu_blas_leave(void) {
    pthread_mutex_lock(&lock);
    if (--entered == 0 && saved_threads != 1) openblas_set_num_threads(saved_threads);
    pthread_mutex_unlock(&lock);
}

/* OpenBLAS knows processors by their model numbers, and takes one that is younger than itself for
 * a Prescott: SSE3, a fifth of what the machine can do. Our own product is better then. */
static int openblas_is_lost(void) {
    static const char *const wide[] = {"Haswell", "Zen", "SkylakeX", "Cooperlake",
                                       "SapphireRapids"};
    static _Atomic int answer = -1;
    int lost = atomic_load_explicit(&answer, memory_order_relaxed);
    if (lost >= 0) return lost;
    lost = 1;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        if (strcasecmp(openblas_get_corename(), wide[i]) == 0) lost = 0;
    atomic_store_explicit(&answer, lost, memory_order_relaxed);
    return lost;
}

void zonal__cpu_multiply(const zonal__cpu_kernels *kernels, const zonal__cpu_product *p) {
    if (kernels->vector_bytes > 16 && openblas_is_lost()) {
        multiply_ourselves(kernels, p);
        return;
    }
    enum CBLAS_TRANSPOSE a = p->transpose_a ? CblasTrans : CblasNoTrans;
    enum CBLAS_TRANSPOSE b = p->transpose_b ? CblasTrans : CblasNoTrans;
    int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    int lda = (int)p->lda, ldb = (int)p->ldb, ldc = (int)p->ldc;
    if (kernels->size == sizeof(float))
        cblas_sgemm(CblasRowMajor, a, b, m, n, k, 1, p->a, lda, p->b, ldb, (float)p->beta, p->c,
                    ldc);
    else
        cblas_dgemm(CblasRowMajor, a, b, m, n, k, 1, p->a, lda, p->b, ldb, p->beta, p->c, ldc);
}

#else

void zonal__cpu_blas_enter(void) {
}

void zonal__cpu_blas_leave(void) {
}

void zonal__cpu_multiply(const zonal__cpu_kernels *kernels, const zonal__cpu_product *p) {
    multiply_ourselves(kernels, p);
}

#endif
