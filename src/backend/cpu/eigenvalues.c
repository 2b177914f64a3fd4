/*
 * EIGENVALUES: LAPACK's dsyevd without vectors, that is, tridiagonalisation and a root-free QR. The
 * work arrays are taken beforehand. The reference's own code does it where LAPACK is not built in.
 */
#ifdef ZONAL_HAVE_LAPACKE

#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/blas.h"
#include "backend/cpu/cpu.h"
#include "core/memory.h"

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
    zonal__work *work;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&work, 1, "the eigenvalues"));
    zonal_status status = fill(problem, work);
    if (status != ZONAL_OK) {
        destroy(work);
        return status;
    }
    *out = work;
    return ZONAL_OK;
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
    zonal__cpu_blas_enter();
    lapack_int info =
        LAPACKE_dsyevd_work(LAPACK_COL_MAJOR, 'N', 'U', n, work->matrix, n, value, work->work,
                            work->n_work, work->integers, work->n_integers);
    zonal__cpu_blas_leave();
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
