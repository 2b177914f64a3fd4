/*
 * EIGENVALUES: LAPACK's dsyevd without vectors, that is, tridiagonalisation and a root-free QR. The
 * work arrays are taken beforehand. The reference's own code does it where LAPACK is not built in.
 *
 * LAPACK rests on a BLAS, mostly OpenBLAS, which needs looking after. One thread is enough here;
 * its number of threads belongs to the whole process, so the first to enter saves it and sets it to
 * 1, and the last to leave restores it. And it takes 128 MiB of its own at the first call; where
 * the system refuses them it asks again for ever, so we ask first.
 */
#ifdef ZONAL_HAVE_LAPACKE

#include <lapacke.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#ifdef ZONAL_HAVE_OPENBLAS
#include <cblas.h>
#endif

#include "backend/cpu/cpu.h"
#include "core/memory.h"

enum { BLAS_BYTES = 160 << 20 }; /* what OpenBLAS takes, and some more */

#ifdef ZONAL_HAVE_OPENBLAS

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int entered, saved_threads;

static void enter_blas(void) {
    pthread_mutex_lock(&lock);
    if (entered++ == 0) {
        saved_threads = openblas_get_num_threads();
        if (saved_threads != 1) openblas_set_num_threads(1);
    }
    pthread_mutex_unlock(&lock);
}

static void leave_blas(void) {
    pthread_mutex_lock(&lock);
    if (--entered == 0 && saved_threads != 1) openblas_set_num_threads(saved_threads);
    pthread_mutex_unlock(&lock);
}

#else

static void enter_blas(void) {
}

static void leave_blas(void) {
}

#endif

/* Without a limit there is always room for addresses. */
static zonal_status check_room(void) {
    static _Atomic int has_it; /* BLAS, from its first call on */
    struct rlimit limit;
    if (atomic_load(&has_it) || getrlimit(RLIMIT_AS, &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY)
        return ZONAL_OK;
    void *room = mmap(NULL, BLAS_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return ZONAL_FAIL(ZONAL_MEMORY,
                          "eigenvalues need %d MiB more memory than is allowed (ulimit -v is %llu "
                          "MiB); raise the limit",
                          BLAS_BYTES >> 20, (unsigned long long)limit.rlim_cur >> 20);
    munmap(room, BLAS_BYTES);
    atomic_store(&has_it, 1);
    return ZONAL_OK;
}

struct zonal__work {
    int64_t dim;
    double *matrix; /* [dim][dim]; LAPACK overwrites it */
    double *work;   /* [n_work] */
    lapack_int *integers;
    lapack_int n_work, n_integers;
};

static void destroy(zonal__work *work) {
    if (!work) return;
    zonal__free(work->matrix);
    zonal__free(work->work);
    zonal__free(work->integers);
    zonal__free(work);
}

static zonal_status fill(const zonal__problem *problem, zonal__work *work) {
    lapack_int n = (lapack_int)problem->dim, n_integers = 0;
    double n_work = 0, unused = 0;
    work->dim = problem->dim;
    if (LAPACKE_dsyevd_work(LAPACK_COL_MAJOR, 'N', 'U', n, &unused, n, &unused, &n_work, -1,
                            &n_integers, -1) != 0)
        return ZONAL_FAIL(ZONAL_DEVICE, "LAPACK refuses a matrix of %lld rows",
                          (long long)problem->dim);
    work->n_work = (lapack_int)n_work;
    work->n_integers = n_integers;
    ZONAL_TRY(ZONAL_NEW(&work->matrix, problem->dim * problem->dim, "the matrix"));
    ZONAL_TRY(ZONAL_NEW(&work->work, work->n_work, "the eigenvalues"));
    return ZONAL_NEW(&work->integers, work->n_integers, "the eigenvalues");
}

static zonal_status create(const zonal__problem *problem, zonal__work **out) {
    return zonal__cpu_create(problem, sizeof **out, "the eigenvalues", fill, destroy, out);
}

static size_t scratch_bytes(const zonal__work *work) {
    return sizeof *work + (size_t)(work->dim * work->dim + work->n_work) * sizeof(double) +
           (size_t)work->n_integers * sizeof(lapack_int);
}

static zonal_status run(zonal__work *work, const void *x, uint32_t step, double *value,
                        void *gradient, double factor) {
    const double *matrix = x;
    lapack_int n = (lapack_int)work->dim;
    (void)step, (void)gradient, (void)factor;
    for (int64_t i = 0; i < work->dim * work->dim; i++)
        if (!isfinite(matrix[i]))
            return ZONAL_FAIL(ZONAL_NUMERIC, "the matrix holds %g in row %lld", matrix[i],
                              (long long)(i / work->dim));
    memcpy(work->matrix, matrix, (size_t)(work->dim * work->dim) * sizeof *matrix);
    ZONAL_TRY(check_room());
    enter_blas();
    lapack_int info =
        LAPACKE_dsyevd_work(LAPACK_COL_MAJOR, 'N', 'U', n, work->matrix, n, value, work->work,
                            work->n_work, work->integers, work->n_integers);
    leave_blas();
    if (info != 0)
        return ZONAL_FAIL(ZONAL_NUMERIC,
                          "the eigenvalues of the matrix were not found (LAPACK's "
                          "dsyevd says %d)",
                          (int)info);
    return ZONAL_OK;
}

const zonal__operation_table zonal__cpu_eigenvalues = {
    .create = create, .run = run, .destroy = destroy, .scratch_bytes = scratch_bytes};

#else
typedef int zonal__cpu_no_lapack; /* a file of C may not be empty */
#endif
