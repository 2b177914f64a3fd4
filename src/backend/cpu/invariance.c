/*
 * INVARIANCE: alignment of the views [V][B][d] of a sample, the first V_g of them global:
 *
 *     value     mean over n, v of |x_nv - mu_n|^2,   mu_n = mean over the global views of x_nv
 *     gradient  2/(B V) (x_nv - mu_n - [v < V_g] (sum over u of (x_nu - mu_n))/V_g)
 *
 * and both divided by d for raw rows.
 *
 * A turn takes some samples with all their views. The differences are taken in double: between
 * views that agree to many digits they would not survive a float.
 */
#include <stdio.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"
#include "backend/ranks.h"
#include "core/memory.h"

enum { CHUNK = 16 }; /* samples per turn */

struct zonal__work {
    int64_t rows, dim, views, global_views, chunks;
    const zonal__ranks *ranks;
    int unit_rows, raw, threads;
    const zonal__cpu_kernels *kernels;
    double *buffer;  /* [threads][views + 2][dim]: x_nv - mu_n, mu_n, and their sum over v by V_g */
    double *inverse; /* [threads][views]: 1/|z| */
    double *square;  /* [chunks]: sums of |x_nv - mu_n|^2 */
    int64_t *bad;    /* [chunks]: v * B + n of the first row that cannot be used, or -1 */
    const char *x;   /* of the run in progress */
    char *gradient;
    double count, factor;
};

static void destroy(zonal__work *work) {
    if (!work) return;
    zonal__free(work->buffer);
    zonal__free(work->inverse);
    zonal__free(work->square);
    zonal__free(work->bad);
    zonal__free(work);
}

static zonal_status fill(const zonal__problem *problem, zonal__work *work) {
    *work = (zonal__work){.rows = problem->rows,
                          .dim = problem->dim,
                          .ranks = problem->ranks,
                          .views = problem->views,
                          .global_views = problem->global_views,
                          .chunks = (problem->rows + CHUNK - 1) / CHUNK,
                          .unit_rows = problem->unit_rows,
                          .raw = problem->raw_rows,
                          .count = zonal__invariance_count(
                              problem, zonal__ranks_batch(problem->ranks, problem->rows)),
                          .threads = problem->threads,
                          .kernels = zonal__cpu_kernels_get(problem->precision)};
    if (!work->kernels)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED, "the CPU computes in double or fp32 only");
    ZONAL_TRY(ZONAL_NEW(&work->buffer, work->threads * (work->views + 2) * work->dim, "the views"));
    ZONAL_TRY(ZONAL_NEW(&work->inverse, work->threads * work->views, "the norms"));
    ZONAL_TRY(ZONAL_NEW(&work->square, work->chunks, "the sums"));
    return ZONAL_NEW(&work->bad, work->chunks, "the row check");
}

static zonal_status create(const zonal__problem *problem, zonal__work **out) {
    return zonal__cpu_create(problem, sizeof **out, "the views", fill, destroy, out);
}

static size_t scratch_bytes(const zonal__work *work) {
    size_t threads = (size_t)work->threads, views = (size_t)work->views;
    return sizeof *work + threads * ((views + 2) * (size_t)work->dim + views) * sizeof(double) +
           (size_t)work->chunks * (sizeof(double) + sizeof(int64_t));
}

static size_t row_at(const zonal__work *work, int64_t view, int64_t n) {
    return (size_t)((view * work->rows + n) * work->dim) * work->kernels->size;
}

/* The views of sample n as x_nv, one after the other; returns the first bad one, or -1. */
static int64_t load_views(const zonal__work *work, int64_t n, double *x, double *inverse) {
    int64_t d = work->dim;
    double longest = zonal__cpu_longest_inverse(work->kernels, work->gradient);
    for (int64_t v = 0; v < work->views; v++) {
        const void *z = work->x + row_at(work, v, n);
        zonal__cpu_norm norm = work->kernels->norm(d, z);
        if (work->raw ? !norm.finite : !zonal__cpu_row_good(&norm, work->unit_rows, longest))
            return v;
        if (work->raw || work->unit_rows) norm.pre = norm.inverse = 1;
        inverse[v] = norm.pre * norm.inverse;
        for (int64_t k = 0; k < d; k++) x[v * d + k] = 0;
        work->kernels->accumulate(d, z, norm.pre, norm.inverse, x + v * d);
    }
    return -1;
}

/* x_nv becomes x_nv - mu; pull their sum over V_g. Returns the sum of squares. */
static double centre_views(const zonal__work *work, double *x, double *mu, double *pull) {
    int64_t d = work->dim, globals = work->global_views;
    double square = 0;
    for (int64_t k = 0; k < d; k++) mu[k] = pull[k] = 0;
    for (int64_t v = 0; v < globals; v++)
        for (int64_t k = 0; k < d; k++) mu[k] += x[v * d + k];
    for (int64_t k = 0; k < d; k++) mu[k] /= (double)globals;
    for (int64_t v = 0; v < work->views; v++) {
        for (int64_t k = 0; k < d; k++) {
            x[v * d + k] -= mu[k];
            pull[k] += x[v * d + k];
        }
        square += work->kernels->dot(d, x + v * d, x + v * d);
    }
    for (int64_t k = 0; k < d; k++) pull[k] /= (double)globals;
    return square;
}

/* Adds view v's gradient. Here x = away + mu, and away becomes the gradient itself. */
static void add_gradient(const zonal__work *work, int64_t v, int64_t n, double *away,
                         const double *mu, const double *pull, double inverse) {
    int64_t d = work->dim;
    double along = 0, square = 0, factor = work->factor * inverse;
    double pulled = v < work->global_views ? 1 : 0;
    if (!work->raw) {
        /* x.g and x.x with x = away + mu, before away is overwritten */
        double xa = work->kernels->dot(d, away, away) + work->kernels->dot(d, mu, away);
        double xp = work->kernels->dot(d, away, pull) + work->kernels->dot(d, mu, pull);
        square = xa + work->kernels->dot(d, mu, away) + work->kernels->dot(d, mu, mu);
        along = (xa - pulled * xp) / square;
    }
    for (int64_t k = 0; k < d; k++)
        away[k] = factor * (away[k] - pulled * pull[k] - along * (away[k] + mu[k]));
    work->kernels->add(d, away, work->gradient + row_at(work, v, n));
}

static void work_chunk(void *context, int64_t chunk, int thread) {
    zonal__work *work = context;
    int64_t d = work->dim, first = chunk * CHUNK;
    int64_t end = first + CHUNK < work->rows ? first + CHUNK : work->rows;
    double *x = work->buffer + thread * (work->views + 2) * d, *mu = x + work->views * d;
    double *pull = mu + d, *inverse = work->inverse + thread * work->views;
    work->bad[chunk] = -1;
    work->square[chunk] = 0;
    for (int64_t n = first; n < end; n++) {
        int64_t bad = load_views(work, n, x, inverse);
        if (bad >= 0) {
            int64_t at = bad * work->rows + n;
            if (work->bad[chunk] < 0 || at < work->bad[chunk]) work->bad[chunk] = at;
            continue;
        }
        work->square[chunk] += centre_views(work, x, mu, pull);
        for (int64_t v = 0; work->gradient && v < work->views; v++)
            add_gradient(work, v, n, x + v * d, mu, pull, inverse[v]);
    }
}

static zonal_status report_bad(const zonal__work *work) {
    int64_t at = -1;
    char where[40];
    for (int64_t c = 0; c < work->chunks; c++)
        if (work->bad[c] >= 0 && (at < 0 || work->bad[c] < at)) at = work->bad[c];
    if (at < 0) return ZONAL_OK;
    snprintf(where, sizeof where, "view %lld, ", (long long)(at / work->rows));
    return zonal__cpu_bad_row(work->kernels, work->x + row_at(work, 0, at), work->dim,
                              work->unit_rows, where, work->ranks, at % work->rows);
}

static zonal_status compute(zonal__work *work, const void *x, double *value, void *gradient,
                            double factor) {
    double sum[2] = {0};
    work->x = x;
    work->gradient = gradient;
    work->factor = 2 * factor / work->count;
    zonal__cpu_parallel(work->chunks, work_chunk, work);
    zonal_status status = report_bad(work);
    for (int64_t c = 0; c < work->chunks; c++) sum[0] += work->square[c];
    ZONAL_TRY(work->ranks ? zonal__ranks_sum_or_fail(work->ranks, status, sum, 1) : status);
    *value = sum[0] / work->count;
    return ZONAL_OK;
}

static zonal_status run(zonal__work *work, const void *x, uint32_t step, double *value,
                        void *gradient, double factor) {
    (void)step;
    return zonal__cpu_run(work->threads, compute, work, x, value, gradient, factor);
}

const zonal__operation_table zonal__cpu_invariance = {
    .create = create, .run = run, .destroy = destroy, .scratch_bytes = scratch_bytes};
