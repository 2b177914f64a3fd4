#include "uniformity/survey.h"

#include "core/memory.h"
#include "core/random.h"

zonal_status zonal__survey_init(const zonal__problem *problem, const zonal__pair_function *psi,
                                int n_psi, zonal__survey *survey) {
    zonal__problem local = *problem;
    *survey = (zonal__survey){.n = problem->rows, .d = problem->dim, .n_psi = n_psi};
    survey->backend = zonal__device_cpu()->backend;
    local.psi = psi;
    local.n_psi = n_psi;
    ZONAL_TRY(ZONAL_NEW(&survey->moments, survey->d * (survey->d + 1), "the moments"));
    ZONAL_TRY(ZONAL_NEW(&survey->sums, n_psi + survey->n, "the sums over pairs"));
    ZONAL_TRY(survey->backend->operations[ZONAL__COVARIANCE]->create(&local, &survey->covariance));
    if (n_psi > 0)
        ZONAL_TRY(survey->backend->operations[ZONAL__SURVEY]->create(&local, &survey->pairs));
    return ZONAL_OK;
}

void zonal__survey_fini(zonal__survey *survey) {
    if (!survey->backend) return;
    survey->backend->operations[ZONAL__COVARIANCE]->destroy(survey->covariance);
    survey->backend->operations[ZONAL__SURVEY]->destroy(survey->pairs);
    zonal__free(survey->moments);
    zonal__free(survey->sums);
    *survey = (zonal__survey){0};
}

zonal_status zonal__survey_run(zonal__survey *survey, const void *x) {
    ZONAL_TRY(survey->backend->operations[ZONAL__COVARIANCE]->run(survey->covariance, x, 0,
                                                                  survey->moments, NULL, 0));
    if (survey->pairs)
        ZONAL_TRY(survey->backend->operations[ZONAL__SURVEY]->run(survey->pairs, x, 0, survey->sums,
                                                                  NULL, 0));
    return ZONAL_OK;
}

double zonal__survey_rayleigh(const zonal__survey *survey) {
    double square = 0;
    for (int64_t k = 0; k < survey->d; k++) square += survey->moments[k] * survey->moments[k];
    return (double)survey->n * square - 1;
}

double zonal__survey_bingham(const zonal__survey *survey) {
    int64_t d = survey->d;
    const double *m = survey->moments + d;
    double square = 0;
    for (int64_t k = 0; k < d; k++)
        for (int64_t l = 0; l < d; l++) {
            double excess = m[k * d + l] - (k == l ? 1 / (double)d : 0);
            square += excess * excess;
        }
    return (double)survey->n * square * (double)d / (double)(d - 1) - 1;
}

double zonal__survey_pairs(const zonal__survey *survey, int k) {
    return (double)survey->n * survey->sums[k];
}

void zonal__survey_simulate(const zonal__problem *problem, uint64_t seed, uint32_t replicate,
                            double *row, void *x) {
    zonal__random random = {seed, ZONAL__STREAM_UNIFORM, replicate};
    int64_t d = problem->dim;
    for (int64_t i = 0; i < problem->rows; i++) {
        zonal__random_direction(&random, (uint64_t)i, d, row);
        for (int64_t k = 0; k < d; k++) {
            if (problem->precision == ZONAL_PRECISION_FP32)
                ((float *)x)[i * d + k] = (float)row[k];
            else
                ((double *)x)[i * d + k] = row[k];
        }
    }
}
