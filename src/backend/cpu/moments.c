/*
 * MOMENTS: kernels of degree 1 and 2 in time linear in the batch, and COVARIANCE. With m = mean x,
 * C the covariance, M = C + m m^T and q = b_2 d/(d-1):
 *
 *     value       b_1 |m|^2 + q |M - I/d|_F^2 - (b_1 + b_2)/B
 *     gradient    1/B (2 b_1 m + 4 q (M - I/d) x_i), projected
 *
 * and, with A = C - I/d and y_i = x_i - m, up to the multiple -x_i/d of x_i,
 *
 *     (M - I/d) x_i = A y_i + y_i/d + C m + (m.x_i) m.
 *
 * Near collapse all that is left after the projection is as small as y_i, and so is every term
 * here, since (m.x_i) m is projected as -(m.x_i) y_i (kernels.h). A m in the place of C m would
 * bring in m/d, which is of order 1 and nearly radial, and leave its rounding. For the same reason
 * the rows of doubles are centred a second time: m is rounded, and what is left of the mean of y
 * would be the same for all rows.
 *
 * Accuracy: as zonal/loss.h says. Without fused multiply-add y_i is off by 1e-16, which gradients
 * of rows within 1e-5 of a point show.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/product.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/second_moment.h"
#include "core/memory.h"

enum { CHUNK = 128 }; /* rows of the gradient that one turn owns */

struct zonal__work {
    zonal__cpu_rows rows;
    zonal__cpu_second_moment moment; /* not there when b_2 = 0 */
    double degree1, degree2;
    double *c;      /* [dim][dim] */
    double *cm;     /* [dim]: C m, then 4 q C m as base */
    double *square; /* [dim]: of the rows of M - I/d */
    void *a;        /* REAL [dim][dim] */
    double *weight; /* [rows]: 4 q (m.x_i - 1/d) + 2 b_1 */
    char *gradient;
};

static void destroy(zonal__work *work) {
    if (!work) return;
    zonal__cpu_rows_fini(&work->rows);
    zonal__cpu_second_moment_fini(&work->moment);
    zonal__free(work->cm);
    zonal__free(work->square);
    zonal__free(work->a);
    zonal__free(work->weight);
    zonal__free(work);
}

static zonal_status fill(const zonal__problem *problem, int matrix, zonal__work *work) {
    int64_t d = problem->dim;
    work->degree1 = problem->degree1;
    work->degree2 = problem->degree2;
    ZONAL_TRY(zonal__cpu_rows_init(problem, 0, &work->rows));
    ZONAL_TRY(ZONAL_NEW(&work->weight, problem->rows, "the moments"));
    if (!matrix) return ZONAL_OK;
    ZONAL_TRY(zonal__cpu_second_moment_init(&work->rows, &work->moment));
    ZONAL_TRY(ZONAL_NEW(&work->cm, d, "the moments"));
    ZONAL_TRY(ZONAL_NEW(&work->square, d, "the moments"));
    return zonal__alloc(d * d, work->rows.kernels->size, "the second moment", &work->a);
}

static size_t scratch_bytes(const zonal__work *work) {
    size_t d = (size_t)work->rows.dim;
    size_t bytes = sizeof *work + zonal__cpu_rows_bytes(&work->rows) +
                   (size_t)work->rows.rows * sizeof(double);
    if (work->moment.rows)
        bytes += zonal__cpu_second_moment_bytes(&work->moment) + 2 * d * sizeof(double) +
                 d * d * work->rows.kernels->size;
    return bytes;
}

/* Row k of A, rounded, the product of C's with m, and the square of that row of M - I/d. */
static void matrix_row(void *context, int64_t k, int thread) {
    zonal__work *work = context;
    const zonal__cpu_rows *rows = &work->rows;
    int64_t d = rows->dim;
    double *c = work->c + k * d;
    (void)thread;
    work->cm[k] = rows->kernels->dot(d, c, rows->mean);
    c[k] -= 1 / (double)d;
    work->square[k] = rows->kernels->moment_row(
        d, c, rows->mean[k], rows->mean, (char *)work->a + (size_t)(k * d) * rows->kernels->size);
}

/* gradient = A y for one chunk of rows. */
static void multiply_chunk(void *context, int64_t chunk, int thread) {
    zonal__work *work = context;
    const zonal__cpu_rows *rows = &work->rows;
    int64_t d = rows->dim, i = chunk * CHUNK;
    size_t at = (size_t)(i * d) * rows->kernels->size;
    (void)thread;
    zonal__cpu_multiply(rows->kernels,
                        &(zonal__cpu_product){.m = rows->rows - i < CHUNK ? rows->rows - i : CHUNK,
                                              .n = d,
                                              .k = d,
                                              .a = (char *)rows->centred + at,
                                              .lda = d,
                                              .b = work->a,
                                              .ldb = d,
                                              .c = work->gradient + at,
                                              .ldc = d});
}

/* A batch whose b_2 is 0 has only the gradient of |m|^2: the same for every row. */
static void gradient_of_mean(zonal__work *work, void *gradient, double factor) {
    zonal__cpu_rows *rows = &work->rows;
    for (int64_t i = 0; i < rows->rows; i++) work->weight[i] = 2 * work->degree1;
    /* 0 * gradient would keep a NaN that is there already. */
    memset(gradient, 0, (size_t)(rows->rows * rows->dim) * rows->kernels->size);
    zonal__cpu_rows_project(rows, gradient, work->weight, factor / (double)rows->batch,
                            &(zonal__cpu_projection){.scale = 0});
}

static zonal_status moments_compute(zonal__work *work, const void *x, double *value, void *gradient,
                                    double factor) {
    zonal__cpu_rows *rows = &work->rows;
    int64_t d = rows->dim;
    double n = (double)rows->batch, q = work->degree2 * (double)d / (double)(d - 1), square = 0;
    ZONAL_TRY(zonal__cpu_rows_prepare(rows, x, gradient));
    if (work->moment.rows) {
        ZONAL_TRY(zonal__cpu_rows_recentre(rows));
        ZONAL_TRY(zonal__cpu_second_moment_run(&work->moment, &work->c));
        zonal__cpu_parallel(d, matrix_row, work);
        for (int64_t k = 0; k < d; k++) square += work->square[k];
    }
    *value = work->degree1 * rows->mean_square + q * square - (work->degree1 + work->degree2) / n;
    if (!gradient) return ZONAL_OK;
    if (!work->moment.rows) {
        gradient_of_mean(work, gradient, factor);
        return ZONAL_OK;
    }
    work->gradient = gradient;
    zonal__cpu_parallel((rows->rows + CHUNK - 1) / CHUNK, multiply_chunk, work);
    for (int64_t k = 0; k < d; k++) work->cm[k] *= 4 * q;
    for (int64_t i = 0; i < rows->rows; i++) /* m.x = m.y + |m|^2 */
        work->weight[i] =
            2 * work->degree1 + 4 * q * (rows->offset[i] + rows->mean_square / 2 - 1 / (double)d);
    zonal__cpu_rows_project(rows, gradient, work->weight, factor / n,
                            &(zonal__cpu_projection){.scale = 4 * q, .base = work->cm});
    return ZONAL_OK;
}

static zonal_status moments_fill(const zonal__problem *problem, zonal__work *work) {
    return fill(problem, problem->degree2 != 0, work);
}

static zonal_status moments_create(const zonal__problem *problem, zonal__work **out) {
    return zonal__cpu_create(problem, sizeof **out, "the moments", moments_fill, destroy, out);
}

static zonal_status moments_run(zonal__work *work, const void *x, uint32_t step, double *value,
                                void *gradient, double scale) {
    (void)step;
    return zonal__cpu_rows_run(&work->rows, moments_compute, work, x, value, gradient, scale);
}

static zonal_status covariance_fill(const zonal__problem *problem, zonal__work *work) {
    return fill(problem, 1, work);
}

static zonal_status covariance_create(const zonal__problem *problem, zonal__work **out) {
    return zonal__cpu_create(problem, sizeof **out, "the moments", covariance_fill, destroy, out);
}

static zonal_status covariance_compute(zonal__work *work, const void *x, double *value,
                                       void *gradient, double factor) {
    int64_t d = work->rows.dim;
    const double *m = work->rows.mean;
    double *c;
    (void)gradient, (void)factor;
    ZONAL_TRY(zonal__cpu_rows_prepare(&work->rows, x, NULL));
    ZONAL_TRY(zonal__cpu_second_moment_run(&work->moment, &c));
    for (int64_t k = 0; k < d; k++) {
        value[k] = m[k];
        for (int64_t j = 0; j < d; j++) value[d + k * d + j] = c[k * d + j] + m[k] * m[j];
    }
    return ZONAL_OK;
}

static zonal_status covariance_run(zonal__work *work, const void *x, uint32_t step, double *value,
                                   void *gradient, double factor) {
    (void)step;
    return zonal__cpu_run(work->rows.threads, covariance_compute, work, x, value, gradient, factor);
}

const zonal__operation_table zonal__cpu_moments = {.create = moments_create,
                                                   .run = moments_run,
                                                   .destroy = destroy,
                                                   .scratch_bytes = scratch_bytes};
const zonal__operation_table zonal__cpu_covariance = {.create = covariance_create,
                                                      .run = covariance_run,
                                                      .destroy = destroy,
                                                      .scratch_bytes = scratch_bytes};
