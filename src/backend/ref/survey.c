/*
 * Several pair sums at once and the nearest neighbours, by the formula:
 *
 *     value[k] = 1/B^2 sum over i != j of psi_k(c_ij),   value[n + i] = max over j != i of c_ij
 */
#include "backend/ref/rows.h"

static zonal_status create(const zonal__problem *problem, zonal__work **work) {
    ZONAL_TRY(zonal__ranks_refuse(problem->ranks, "a survey"));
    return zonal__ref_create(problem, problem->rows, (int64_t[4]){0}, work);
}

static long double cosine(const zonal__work *work, int64_t i, int64_t j) {
    return zonal__ref_cosine(&work->problem, work->unit, i, j);
}

static zonal_status run(zonal__work *work, const void *x, uint32_t step, double *value,
                        void *gradient, double factor) {
    const zonal__problem *problem = &work->problem;
    int64_t b = problem->rows;
    (void)step, (void)gradient, (void)factor;
    ZONAL_TRY(zonal__ref_unit_rows(problem, x, NULL, work->unit, work->norm));
    for (int k = 0; k < problem->n_psi; k++) {
        const zonal__pair_function *psi = &problem->psi[k];
        long double sum = 0;
        for (int64_t i = 0; i < b; i++)
            for (int64_t j = 0; j < i; j++) sum += 2 * psi->value(psi->context, cosine(work, i, j));
        value[k] = (double)(sum / b / b);
    }
    for (int64_t i = 0; i < b; i++) {
        double nearest = -1;
        for (int64_t j = 0; j < b; j++)
            if (j != i && cosine(work, i, j) > nearest) nearest = (double)cosine(work, i, j);
        value[problem->n_psi + i] = nearest;
    }
    return ZONAL_OK;
}

const zonal__operation_table zonal__ref_survey = {.create = create,
                                                  .run = run,
                                                  .destroy = zonal__ref_destroy,
                                                  .scratch_bytes = zonal__ref_scratch_bytes};
