/* Scores of classifications, and diagnostics: scores.h. */
#include "eval/scores.h"

#include <math.h>
#include <string.h>

#include "backend/device.h"
#include "core/memory.h"
#include "core/thread.h"

/* ---- classification -------------------------------------------------------------------------- */

zonal_status zonal__scores_init(int classes, zonal__scores *scores) {
    memset(scores, 0, sizeof *scores);
    scores->classes = classes;
    return ZONAL_NEW(&scores->confusion, (int64_t)classes * classes, "the confusion matrix");
}

void zonal__scores_fini(zonal__scores *scores) {
    zonal__free(scores->confusion);
    memset(scores, 0, sizeof *scores);
}

zonal_status zonal__scores_add(zonal__scores *scores, int32_t label, const double *score) {
    int first = 0, ahead = 0;
    for (int c = 0; c < scores->classes; c++) {
        if (isnan(score[c]))
            return ZONAL_FAIL(ZONAL_NUMERIC, "sample %lld has a score that is not a number",
                              (long long)scores->count);
        if (score[c] > score[first]) first = c;
        ahead += score[c] > score[label] || (score[c] == score[label] && c < label);
    }
    scores->count++;
    scores->top1 += ahead < 1;
    scores->top5 += ahead < 5;
    scores->confusion[(int64_t)label * scores->classes + first]++;
    return ZONAL_OK;
}

double zonal__scores_accuracy(const zonal__scores *scores) {
    return scores->count ? (double)scores->top1 / (double)scores->count : NAN;
}

double zonal__scores_top5(const zonal__scores *scores) {
    return scores->count ? (double)scores->top5 / (double)scores->count : NAN;
}

double zonal__scores_class_accuracy(const zonal__scores *scores, int c) {
    const int64_t *row = scores->confusion + (int64_t)c * scores->classes;
    int64_t all = 0;
    for (int predicted = 0; predicted < scores->classes; predicted++) all += row[predicted];
    return all ? (double)row[c] / (double)all : NAN;
}

void zonal__scores_spread(int64_t n, const double *value, double *mean, double *std) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += value[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (value[i] - *mean) * (value[i] - *mean);
    *std = n > 1 ? sqrt(squares / (double)(n - 1)) : NAN;
}

/* ---- diagnostics ----------------------------------------------------------------------------- */

/* exp(-2 |x - y|^2) = exp(4 (c - 1)) as a function of the cosine, and its derivative. */
static long double gauss(const void *context, long double c) {
    (void)context;
    return expl(4 * (c - 1));
}

static long double gauss_derivative(const void *context, long double c) {
    return 4 * gauss(context, c);
}

static zonal_status gauss_to_fit(const void *context, long double c, long double *out) {
    *out = gauss(context, c);
    return ZONAL_OK;
}

/* One run of a backend's operation on fp32 rows. */
static zonal_status run_once(zonal__operation kind, const zonal__problem *problem, const float *x,
                             double *value) {
    const zonal__operation_table *operation = zonal__device_cpu()->backend->operations[kind];
    zonal__work *work;
    ZONAL_TRY(operation->create(problem, &work));
    zonal_status status = operation->run(work, x, 0, value, NULL, 0);
    operation->destroy(work);
    return status;
}

/* The survey also gives every row's nearest neighbour, for which there must be room. */
static zonal_status measure_uniformity(const zonal__problem *rows, const float *x, double *out) {
    zonal__pair_function psi = {.value = gauss, .derivative = gauss_derivative};
    zonal__problem problem = *rows;
    zonal__fit *fit = NULL;
    double *value = NULL, n = (double)rows->rows;
    zonal_status status;
    ZONAL_TRY(zonal__fit_create(gauss_to_fit, NULL, -1, 1e-15, 1e-15, 64, &fit));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&value, 1 + rows->rows, "the survey"));
    psi.fit = fit;
    problem.psi = &psi;
    problem.n_psi = 1;
    ZONAL_TRY_GOTO(status, done, run_once(ZONAL__SURVEY, &problem, x, value));
    *out = log(value[0] * n / (n - 1)); /* the survey divides by n^2 */
done:
    zonal__free(value);
    zonal__fit_destroy(fit);
    return status;
}

/* The operation is the mean over both views of |x - mu|^2, a quarter of |x - y|^2. */
static zonal_status measure_alignment(const zonal__problem *rows, const float *x,
                                      const float *other, double *out) {
    zonal__problem problem = *rows;
    int64_t elements = rows->rows * rows->dim;
    float *both;
    problem.views = problem.global_views = 2;
    ZONAL_TRY(ZONAL_NEW(&both, 2 * elements, "the two views"));
    memcpy(both, x, (size_t)elements * sizeof *both);
    memcpy(both + elements, other, (size_t)elements * sizeof *both);
    zonal_status status = run_once(ZONAL__INVARIANCE, &problem, both, out);
    zonal__free(both);
    *out *= 4;
    return status;
}

zonal_status zonal__diagnostics_run(const zonal_uniformity_options *options, int64_t n, int64_t d,
                                    const float *x, const float *other,
                                    zonal__diagnostics *diagnostics) {
    zonal_uniformity_options fp32 = *options;
    zonal__problem problem = {.rows = n,
                              .dim = d,
                              .precision = ZONAL_PRECISION_FP32,
                              .unit_rows = options->unit_rows,
                              .threads = zonal__thread_count(options->threads)};
    memset(diagnostics, 0, sizeof *diagnostics);
    diagnostics->report.size = sizeof diagnostics->report;
    diagnostics->alignment = diagnostics->uniformity = NAN;
    fp32.precision = ZONAL_PRECISION_FP32;
    ZONAL_TRY(zonal_uniformity_run(&fp32, n, d, x, &diagnostics->report));
    if (!diagnostics->report.skipped[0])
        ZONAL_TRY(measure_uniformity(&problem, x, &diagnostics->uniformity));
    if (other) ZONAL_TRY(measure_alignment(&problem, x, other, &diagnostics->alignment));
    return ZONAL_OK;
}
