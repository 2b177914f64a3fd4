/*
 * Batches of rows and the losses of them, for tests of what must hold whatever the values are.
 */
#ifndef ZONAL_TESTS_BATCHES_H
#define ZONAL_TESTS_BATCHES_H

#include <math.h>
#include <stdlib.h>

#include "core/random.h"
#include "test.h"
#include "zonal/loss.h"

/* Shares 1 : .4 : .2 : 0 : .1 of the degrees: positive, so that KL takes it too. */
static inline const double *some_weights(double d) {
    static double weights[5];
    double n2 = (d + 2) * (d - 1) / 2, n4 = (d + 6) * d * (d + 1) * (d - 1) / 24;
    weights[0] = 1;
    weights[1] = 0.4 / d;
    weights[2] = 0.2 / n2;
    weights[4] = 0.1 / n4;
    return weights;
}

/* ---- Batches and plans ---- */

static inline zonal__random stream(uint32_t step) {
    return (zonal__random){test_seed, ZONAL__STREAM_TEST, step};
}

/* Gaussian rows: directions uniform, lengths of all kinds. */
static inline double *draw_rows(int64_t n, int64_t d, uint32_t step) {
    double *x = malloc((size_t)(n * d) * sizeof *x);
    zonal__random random = stream(step);
    for (int64_t i = 0; i < n; i++) zonal__random_normal(&random, (uint64_t)i, d, x + i * d);
    return x;
}

/* Rows that lean to one side, so that no gradient is small by accident. */
static inline double *draw_leaning_rows(int64_t n, int64_t d, uint32_t step) {
    double *x = draw_rows(n, d, step);
    for (int64_t i = 0; i < n; i++) x[i * d] += 1;
    return x;
}

static inline zonal_loss_options defaults(const char *method, int64_t d) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    CHECK_OK(zonal_loss_defaults(method, &options));
    options.precision = ZONAL_PRECISION_DOUBLE;
    options.kernel.weights = some_weights((double)d);
    options.kernel.n_weights = 5;
    if (options.sliced.slices) options.sliced.slices = 16;
    return options;
}

/* D of a batch and, unless NULL, its gradient; NaN after a failure, which is recorded. */
static inline double run(const zonal_loss_options *options, int64_t n, int64_t d, const void *x,
                         void *gradient) {
    zonal_plan *plan;
    double value = NAN;
    if (!CHECK_OK(zonal_plan_create(options, n, d, &plan))) return NAN;
    CHECK_OK(zonal_plan_execute(plan, x, &value, gradient));
    zonal_plan_destroy(plan);
    return value;
}

static inline double norm_of(int64_t n, const double *x) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static inline double dot(int64_t n, const double *x, const double *y) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static inline int is_sliced(const char *method) {
    return strcmp(method, "susreg") == 0 || strcmp(method, "sigreg") == 0;
}

static inline int is_chordal(const char *method) {
    return strcmp(method, "mmd-chordal") == 0;
}

static inline int is_kl(const char *method) {
    return strncmp(method, "kl-", 3) == 0;
}

/* What D is relative to: KL at small d is far from 1 on both sides, so its size is that of its
 * parts. */
static inline double size_of(const char *method, double value) {
    return is_kl(method) ? 1 + fabs(value - 1) : fabs(value);
}

/* What every method can be asked for: the reference, and what the plan chooses. */
#define FOR_EACH_METHOD(method, k)                                                                 \
    for (const char *method = zonal_method_name(0); method; method = NULL)                         \
        for (int i_ = 0; (method = zonal_method_name(i_)) != NULL; i_++)                           \
            for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_REF; k++)

#endif
