/*
 * First and second moments, by the formula:
 *
 *     value[k] = mean_i x_ik,   value[d + k d + l] = mean_i x_ik x_il
 */
#include "backend/ref/rows.h"

static zonal_status create(const zonal__problem *problem, zonal__work **work) {
    int64_t b = zonal__ranks_batch(problem->ranks, problem->rows);
    return zonal__ref_create(problem, b, (int64_t[4]){0}, work);
}

static zonal_status run(zonal__work *work, const void *x, uint32_t step, double *value,
                        void *gradient, double factor) {
    int64_t b = work->batch, d = work->problem.dim;
    const double *unit = work->unit;
    (void)step, (void)gradient, (void)factor;
    ZONAL_TRY(zonal__ref_load(work, 0, x, NULL));
    for (int64_t k = 0; k < d; k++) {
        long double sum = 0;
        for (int64_t i = 0; i < b; i++) sum += unit[i * d + k];
        value[k] = (double)(sum / b);
        for (int64_t l = 0; l <= k; l++) {
            sum = 0;
            for (int64_t i = 0; i < b; i++) sum += (long double)unit[i * d + k] * unit[i * d + l];
            value[d + k * d + l] = value[d + l * d + k] = (double)(sum / b);
        }
    }
    return ZONAL_OK;
}

const zonal__operation_table zonal__ref_covariance = {.create = create,
                                                      .run = run,
                                                      .destroy = zonal__ref_destroy,
                                                      .scratch_bytes = zonal__ref_scratch_bytes};
