/*
 * Degree <= 2 from the first two moments, by the formula:
 *
 *     value = b_1 |m|^2 + b_2 d/(d-1) |M - I/d|_F^2 - (b_1 + b_2)/B
 *     g_i   = (2 b_1 m + 4 b_2 d/(d-1) (M - I/d) x_i)/B
 */
#include <math.h>

#include "backend/ref/rows.h"

enum { MEAN, EXCESS, ROW }; /* the parts: [d], [d][d] M - I/d, [d] */

static zonal_status create(const zonal__problem *problem, zonal__work **work) {
    int64_t b = zonal__ranks_batch(problem->ranks, problem->rows), d = problem->dim;
    return zonal__ref_create(problem, b, (int64_t[4]){d, d * d, d}, work);
}

static void moments(const zonal__work *work) {
    int64_t b = work->batch, d = work->problem.dim;
    double *mean = work->part[MEAN], *excess = work->part[EXCESS];
    for (int64_t k = 0; k < d; k++) {
        long double sum = 0;
        for (int64_t i = 0; i < b; i++) sum += work->unit[i * d + k];
        mean[k] = (double)(sum / b);
        for (int64_t l = 0; l <= k; l++) {
            sum = 0;
            for (int64_t i = 0; i < b; i++)
                sum += (long double)work->unit[i * d + k] * work->unit[i * d + l];
            sum = sum / b - (k == l ? 1.0L / d : 0);
            excess[k * d + l] = excess[l * d + k] = (double)sum;
        }
    }
}

static zonal_status run(zonal__work *work, const void *x, uint32_t step, double *value,
                        void *gradient, double scale) {
    int64_t b = work->batch, d = work->problem.dim;
    double b1 = work->problem.degree1;
    double b2 = work->problem.degree2 * (double)d / (double)(d - 1);
    const double *mean = work->part[MEAN], *excess = work->part[EXCESS];
    double *g = work->part[ROW];
    (void)step;
    *value = NAN;
    ZONAL_TRY(zonal__ref_load(work, 0, x, gradient));
    moments(work);
    *value = zonal__problem_value(&work->problem, b1 * zonal__ref_dot(d, mean, mean) +
                                                      b2 * zonal__ref_dot(d * d, excess, excess) -
                                                      (b1 + work->problem.degree2) / (double)b);
    for (int64_t i = work->first; gradient && i < work->end; i++) {
        const double *row = work->unit + i * d;
        for (int64_t k = 0; k < d; k++)
            g[k] = 2 * b1 * mean[k] + 4 * b2 * zonal__ref_dot(d, excess + k * d, row);
        zonal__ref_project(work, i, g, scale * work->problem.factor / (double)b, gradient);
    }
    return ZONAL_OK;
}

const zonal__operation_table zonal__ref_moments = {.create = create,
                                                   .run = run,
                                                   .destroy = zonal__ref_destroy,
                                                   .scratch_bytes = zonal__ref_scratch_bytes};
