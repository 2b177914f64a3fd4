#include "backend/cpu/rows.h"

#include <float.h>
#include <math.h>

#include "backend/cpu/cpu.h"
#include "core/memory.h"

enum { CHUNK = 64 }; /* rows whose sum one turn of a loop owns */
static const double unit_tolerance = 1e-3;

zonal_status zonal__cpu_rows_init(const zonal__problem *problem, int raw, zonal__cpu_rows *rows) {
    int64_t n = problem->rows, d = problem->dim;
    *rows = (zonal__cpu_rows){.rows = n,
                              .dim = d,
                              .batch = zonal__ranks_batch(problem->ranks, n),
                              .ranks = problem->ranks,
                              .unit_rows = problem->unit_rows,
                              .threads = problem->threads,
                              .kernels = zonal__cpu_kernels_get(problem->precision),
                              .chunks = (n + CHUNK - 1) / CHUNK,
                              .problem = *problem};
    if (!rows->kernels)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED, "the CPU computes in double or fp32 only");
    if (n > INT32_MAX)
        return ZONAL_FAIL(ZONAL_SHAPE, "%lld rows are more than the CPU backend takes (2^31 - 1)",
                          (long long)n);
    if (!raw)
        ZONAL_TRY(
            zonal__alloc(n, (size_t)d * rows->kernels->size, "the unit rows", &rows->centred));
    if (rows->ranks) ZONAL_TRY(ZONAL_NEW(&rows->exchange, d + 2, "the ranks' sums"));
    ZONAL_TRY(ZONAL_NEW(&rows->mean, d, "the mean"));
    ZONAL_TRY(ZONAL_NEW(&rows->offset, n, "the offsets"));
    ZONAL_TRY(ZONAL_NEW(&rows->pre, n, "the norms"));
    ZONAL_TRY(ZONAL_NEW(&rows->scale, n, "the norms"));
    ZONAL_TRY(ZONAL_NEW(&rows->partial, rows->chunks * d, "the sums of rows"));
    ZONAL_TRY(ZONAL_NEW(&rows->bad, rows->chunks, "the row check"));
    return ZONAL_NEW(&rows->work, rows->threads * d, "the row buffers");
}

void zonal__cpu_rows_fini(zonal__cpu_rows *rows) {
    zonal__free(rows->centred);
    zonal__free(rows->exchange);
    zonal__free(rows->mean);
    zonal__free(rows->offset);
    zonal__free(rows->pre);
    zonal__free(rows->scale);
    zonal__free(rows->partial);
    zonal__free(rows->bad);
    zonal__free(rows->work);
}

size_t zonal__cpu_rows_bytes(const zonal__cpu_rows *rows) {
    size_t n = (size_t)rows->rows, d = (size_t)rows->dim, chunks = (size_t)rows->chunks;
    return (rows->centred ? n * d * rows->kernels->size : 0) + 3 * n * sizeof(double) +
           (1 + chunks + (size_t)rows->threads) * d * sizeof(double) + chunks * sizeof(int64_t) +
           (rows->ranks ? (d + 2) * sizeof(double) : 0);
}

/* 1/(pre * inverse) is the norm. */
static int is_unit(const zonal__cpu_norm *norm) {
    return fabs(1 / (norm->pre * norm->inverse) - 1) <= unit_tolerance;
}

double zonal__cpu_longest_inverse(const zonal__cpu_kernels *kernels, const void *gradient) {
    if (!gradient) return INFINITY;
    return kernels->size == sizeof(float) ? FLT_MAX : DBL_MAX;
}

int zonal__cpu_row_good(const zonal__cpu_norm *norm, int unit_rows, double longest_inverse) {
    return norm->finite && norm->inverse > 0 &&
           (unit_rows ? is_unit(norm) : norm->pre * norm->inverse <= longest_inverse);
}

zonal_status zonal__cpu_bad_row(const zonal__cpu_kernels *kernels, const void *row, int64_t dim,
                                int unit_rows, const char *where, const zonal__ranks *ranks,
                                int64_t i) {
    zonal__cpu_norm norm = kernels->norm(dim, row);
    const char *whose = zonal__ranks_whose(ranks);
    long long number = (long long)(zonal__ranks_first(ranks) + i);
    if (!norm.finite)
        return ZONAL_FAIL(ZONAL_NUMERIC, "%srow %lld%s holds a number that is not finite", where,
                          number, whose);
    if (!(norm.inverse > 0))
        return ZONAL_FAIL(ZONAL_NUMERIC, "%srow %lld%s is zero: it has no direction", where, number,
                          whose);
    if (!unit_rows)
        return ZONAL_FAIL(
            ZONAL_NUMERIC,
            "%srow %lld%s has norm %.3g: its gradient, which is divided by that, would "
            "not be finite; remove it or scale the rows",
            where, number, whose, 1 / norm.inverse / norm.pre);
    return ZONAL_FAIL(ZONAL_NUMERIC,
                      "%srow %lld%s has norm %.6g, but rows were declared to be unit vectors: drop "
                      "unit_rows (--unit) and they are normalised",
                      where, number, whose, 1 / (norm.pre * norm.inverse));
}

static int64_t chunk_end(const zonal__cpu_rows *rows, int64_t chunk) {
    return (chunk + 1) * CHUNK < rows->rows ? (chunk + 1) * CHUNK : rows->rows;
}

/* Norms and the sum of the unit rows of one chunk. */
static void measure_chunk(void *context, int64_t chunk, int thread) {
    zonal__cpu_rows *rows = context;
    const zonal__cpu_kernels *kernels = rows->kernels;
    int64_t d = rows->dim, end = chunk_end(rows, chunk);
    double *sum = rows->partial + chunk * d;
    (void)thread;
    rows->bad[chunk] = -1;
    for (int64_t k = 0; k < d; k++) sum[k] = 0;
    for (int64_t i = chunk * CHUNK; i < end; i++) {
        const void *z = rows->x + (size_t)(i * d) * kernels->size;
        zonal__cpu_norm norm = kernels->norm(d, z);
        if (!zonal__cpu_row_good(&norm, rows->unit_rows, rows->longest_inverse)) {
            rows->bad[chunk] = i;
            return;
        }
        rows->pre[i] = rows->unit_rows ? 1 : norm.pre;
        rows->scale[i] = rows->unit_rows ? 1 : norm.inverse;
        kernels->accumulate(d, z, rows->pre[i], rows->scale[i], sum);
    }
}

static void finite_chunk(void *context, int64_t chunk, int thread) {
    zonal__cpu_rows *rows = context;
    const zonal__cpu_kernels *kernels = rows->kernels;
    int64_t d = rows->dim, end = chunk_end(rows, chunk);
    (void)thread;
    rows->bad[chunk] = -1;
    for (int64_t i = chunk * CHUNK; i < end && rows->bad[chunk] < 0; i++)
        if (!kernels->norm(d, rows->x + (size_t)(i * d) * kernels->size).finite)
            rows->bad[chunk] = i;
}

static void centre_chunk(void *context, int64_t chunk, int thread) {
    zonal__cpu_rows *rows = context;
    const zonal__cpu_kernels *kernels = rows->kernels;
    int64_t d = rows->dim, end = chunk_end(rows, chunk);
    (void)thread;
    for (int64_t i = chunk * CHUNK; i < end; i++) {
        size_t at = (size_t)(i * d) * kernels->size;
        rows->offset[i] =
            rows->mean_square / 2 + kernels->centre(d, rows->x + at, rows->pre[i], rows->scale[i],
                                                    rows->mean, (char *)rows->centred + at);
    }
}

/* Runs a check over all chunks and reports the first bad row, whoever found one first. */
static zonal_status check(zonal__cpu_rows *rows, const void *x,
                          void (*chunk)(void *context, int64_t chunk, int thread)) {
    rows->x = x;
    zonal__cpu_parallel(rows->chunks, chunk, rows);
    for (int64_t c = 0; c < rows->chunks; c++) {
        int64_t i = rows->bad[c];
        if (i < 0) continue;
        const void *row = rows->x + (size_t)(i * rows->dim) * rows->kernels->size;
        return zonal__cpu_bad_row(rows->kernels, row, rows->dim, rows->unit_rows, "", rows->ranks,
                                  i);
    }
    return ZONAL_OK;
}

/* The first words of the ranks in a run: "sum" [count], who wants a gradient and who has failed. */
static zonal_status settle(zonal__cpu_rows *rows, zonal_status status, const void *gradient,
                           double *sum, int64_t count) {
    rows->gradients = gradient != NULL;
    if (!rows->ranks) return status;
    for (int64_t k = 0; k < count; k++) rows->exchange[k] = sum[k];
    rows->exchange[count] = gradient != NULL;
    ZONAL_TRY(zonal__ranks_sum_or_fail(rows->ranks, status, rows->exchange, count + 1));
    for (int64_t k = 0; k < count; k++) sum[k] = rows->exchange[k];
    rows->gradients = rows->exchange[count] > 0;
    return ZONAL_OK;
}

zonal_status zonal__cpu_rows_check(zonal__cpu_rows *rows, const void *x, const void *gradient) {
    return settle(rows, check(rows, x, finite_chunk), gradient, NULL, 0);
}

zonal_status zonal__cpu_rows_prepare(zonal__cpu_rows *rows, const void *x, const void *gradient) {
    int64_t d = rows->dim;
    rows->longest_inverse = zonal__cpu_longest_inverse(rows->kernels, gradient);
    zonal_status status = check(rows, x, measure_chunk);
    for (int64_t k = 0; k < d; k++) rows->mean[k] = 0;
    for (int64_t c = 0; c < rows->chunks; c++)
        for (int64_t k = 0; k < d; k++) rows->mean[k] += rows->partial[c * d + k];
    ZONAL_TRY(settle(rows, status, gradient, rows->mean, d));
    for (int64_t k = 0; k < d; k++) rows->mean[k] /= (double)rows->batch;
    rows->mean_square = rows->kernels->dot(d, rows->mean, rows->mean);
    zonal__cpu_parallel(rows->chunks, centre_chunk, rows);
    return ZONAL_OK;
}

static void sum_centred_chunk(void *context, int64_t chunk, int thread) {
    zonal__cpu_rows *rows = context;
    const double *y = rows->centred;
    int64_t d = rows->dim, end = chunk_end(rows, chunk);
    double *sum = rows->partial + chunk * d;
    (void)thread;
    for (int64_t k = 0; k < d; k++) sum[k] = 0;
    for (int64_t i = chunk * CHUNK; i < end; i++)
        rows->kernels->accumulate(d, y + i * d, 1, 1, sum);
}

static void recentre_chunk(void *context, int64_t chunk, int thread) {
    zonal__cpu_rows *rows = context;
    double *y = rows->centred;
    int64_t d = rows->dim, end = chunk_end(rows, chunk);
    (void)thread;
    for (int64_t i = chunk * CHUNK; i < end; i++) rows->kernels->add(d, rows->work, y + i * d);
}

zonal_status zonal__cpu_rows_recentre(zonal__cpu_rows *rows) {
    int64_t d = rows->dim;
    double *shift = rows->work; /* the sum, then minus the mean */
    if (rows->problem.precision != ZONAL_PRECISION_DOUBLE) return ZONAL_OK;
    zonal__cpu_parallel(rows->chunks, sum_centred_chunk, rows);
    for (int64_t k = 0; k < d; k++) shift[k] = 0;
    for (int64_t c = 0; c < rows->chunks; c++)
        for (int64_t k = 0; k < d; k++) shift[k] += rows->partial[c * d + k];
    ZONAL_TRY(zonal__cpu_rows_sum(rows, shift, d));
    for (int64_t k = 0; k < d; k++) shift[k] /= -(double)rows->batch;
    zonal__cpu_parallel(rows->chunks, recentre_chunk, rows);
    return ZONAL_OK;
}

zonal_status zonal__cpu_rows_sum(const zonal__cpu_rows *rows, double *number, int64_t count) {
    return rows->ranks ? zonal__ranks_sum(rows->ranks, number, count) : ZONAL_OK;
}

static void project_chunk(void *context, int64_t chunk, int thread) {
    zonal__cpu_rows *rows = context;
    int64_t d = rows->dim, end = chunk_end(rows, chunk);
    zonal__cpu_projection p = *rows->projection;
    p.work = rows->work + thread * d;
    for (int64_t i = chunk * CHUNK; i < end; i++) {
        size_t at = (size_t)(i * d) * rows->kernels->size;
        p.weight = rows->weight ? rows->weight[i] : 0;
        p.factor = rows->projection->factor * rows->scale[i] * rows->pre[i];
        rows->kernels->project(d, rows->gradient + at, (char *)rows->centred + at, &p);
    }
}

void zonal__cpu_rows_project(zonal__cpu_rows *rows, void *gradient, const double *weight,
                             double factor, const zonal__cpu_projection *p) {
    zonal__cpu_projection full = *p;
    full.mean = rows->mean;
    full.factor = factor;
    rows->gradient = gradient;
    rows->weight = weight;
    rows->projection = &full;
    zonal__cpu_parallel(rows->chunks, project_chunk, rows);
    rows->projection = NULL;
}

zonal_status zonal__cpu_rows_run(const zonal__cpu_rows *rows, zonal__cpu_body body,
                                 zonal__work *work, const void *x, double *value, void *gradient,
                                 double scale) {
    double raw = NAN;
    zonal_status status =
        zonal__cpu_run(rows->threads, body, work, x, &raw, gradient, scale * rows->problem.factor);
    *value = status == ZONAL_OK ? zonal__problem_value(&rows->problem, raw) : NAN;
    return status;
}
