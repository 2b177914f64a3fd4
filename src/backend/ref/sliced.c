/*
 * SUSReg and SIGReg, by the formula: for each direction a and knot t,
 *
 *     C = mean_i cos(t u_i) - target,  S = mean_i sin(t u_i),  u_i = row_scale a.x_i
 *     value = mean over a of sum_k weight_k (C_k^2 + S_k^2)
 *     d value / d u_i = 2/(B slices) sum_k weight_k t_k (S_k cos(t_k u_i) - C_k sin(t_k u_i))
 */
#include <math.h>

#include "backend/ref/rows.h"
#include "core/random.h"

enum { DIRECTION, U, DU, G }; /* the parts: [d]; [B] projections; [B] derivatives; [B][d] */

static zonal_status create(const zonal__problem *problem, zonal__work **work) {
    int64_t b = zonal__ranks_batch(problem->ranks, problem->rows), d = problem->dim;
    return zonal__ref_create(problem, b, (int64_t[4]){d, b, b, b * d}, work);
}

/* EP of one direction's projections u, and its derivative with respect to them. */
static double epps_pulley(const zonal__sliced *sliced, int64_t b, const double *u, double *du) {
    double value = 0;
    for (int64_t i = 0; i < b; i++) du[i] = 0;
    for (int k = 0; k < sliced->knots; k++) {
        double t = sliced->knot0 + k * sliced->step, c = 0, s = 0;
        for (int64_t i = 0; i < b; i++) {
            c += cos(t * u[i]);
            s += sin(t * u[i]);
        }
        c = c / (double)b - sliced->target[k];
        s = s / (double)b;
        value += sliced->weight[k] * (c * c + s * s);
        for (int64_t i = 0; i < b; i++)
            du[i] +=
                2 * sliced->weight[k] * t * (s * cos(t * u[i]) - c * sin(t * u[i])) / (double)b;
    }
    return value;
}

static zonal_status run(zonal__work *work, const void *x, uint32_t step, double *value,
                        void *gradient, double scale) {
    const zonal__sliced *sliced = work->problem.sliced;
    zonal__random random = {sliced->seed, ZONAL__STREAM_SLICES, step};
    int64_t b = work->batch, d = work->problem.dim;
    double sum = 0, *direction = work->part[DIRECTION], *g = work->part[G];
    double *u = work->part[U], *du = work->part[DU];
    *value = NAN;
    ZONAL_TRY(zonal__ref_load(work, sliced->raw_rows, x, gradient));
    for (int64_t i = 0; i < b * d; i++) g[i] = 0;
    for (int64_t slice = 0; slice < sliced->slices; slice++) {
        zonal__random_direction(&random, (uint64_t)slice, d, direction);
        for (int64_t i = 0; i < b; i++)
            u[i] = sliced->row_scale * zonal__ref_dot(d, direction, work->unit + i * d);
        sum += epps_pulley(sliced, b, u, du);
        for (int64_t i = 0; gradient && i < b; i++)
            for (int64_t k = 0; k < d; k++)
                g[i * d + k] += sliced->row_scale * du[i] * direction[k];
    }
    double factor = scale * work->problem.factor / (double)sliced->slices;
    *value = zonal__problem_value(&work->problem, sum / (double)sliced->slices);
    for (int64_t i = work->first; gradient && i < work->end; i++) {
        if (sliced->raw_rows)
            for (int64_t k = 0; k < d; k++)
                zonal__ref_set(work->problem.precision, gradient, (i - work->first) * d + k,
                               factor * g[i * d + k]);
        else
            zonal__ref_project(work, i, g + i * d, factor, gradient);
    }
    return ZONAL_OK;
}

const zonal__operation_table zonal__ref_sliced = {.create = create,
                                                  .run = run,
                                                  .destroy = zonal__ref_destroy,
                                                  .scratch_bytes = zonal__ref_scratch_bytes};
