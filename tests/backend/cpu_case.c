#include "cpu_case.h"

#include <math.h>
#include <stdlib.h>

#include "core/random.h"
#include "test.h"

void *case_take(int64_t count, size_t size) {
    void *memory = calloc((size_t)count, size);
    if (!memory) abort();
    return memory;
}

double *case_rows(int64_t n, int64_t d, double spread, uint64_t sample) {
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, 7};
    double *x = case_take(n * d, sizeof *x), centre = isinf(spread) ? 0 : 1;
    for (int64_t i = 0; i < n; i++) {
        zonal__random_direction(&random, sample + (uint64_t)i, d, x + i * d);
        for (int64_t k = 0; k < d; k++) {
            if (centre > 0) x[i * d + k] = spread * x[i * d + k] + (k == d / 2);
            x[i * d + k] *= 1 + (double)(i % 7);
        }
    }
    return x;
}

void *case_round(zonal_precision precision, int64_t count, double *x) {
    void *out =
        case_take(count, precision == ZONAL_PRECISION_FP32 ? sizeof(float) : sizeof(double));
    for (int64_t i = 0; i < count; i++) {
        if (precision == ZONAL_PRECISION_FP32) {
            ((float *)out)[i] = (float)x[i];
            x[i] = (float)x[i];
        } else {
            ((double *)out)[i] = x[i];
        }
    }
    return out;
}

double case_element(zonal_precision precision, const void *x, int64_t i) {
    return precision == ZONAL_PRECISION_FP32 ? ((const float *)x)[i] : ((const double *)x)[i];
}

int64_t case_count(const zonal__problem *p) {
    return p->rows * p->dim * (p->views > 0 ? p->views : 1);
}

zonal_status case_run(zonal__operation operation, const zonal__problem *problem, const double *x,
                      uint32_t step, double factor, double *value, double *gradient) {
    const zonal__operation_table *table = zonal__backend_cpu()->operations[operation];
    int64_t count = case_count(problem);
    double *copy = case_take(count, sizeof *copy), *out = case_take(count, sizeof *out);
    memcpy(copy, x, (size_t)count * sizeof *copy);
    void *rows = case_round(problem->precision, count, copy);
    zonal__work *work;
    zonal__problem whole = *problem;
    whole.factor = 1;
    zonal_status status = table->create(&whole, &work);
    if (status == ZONAL_OK) {
        status = table->run(work, rows, step, value, gradient ? out : NULL, factor);
        table->destroy(work);
    }
    for (int64_t i = 0; gradient && i < count; i++)
        gradient[i] = case_element(problem->precision, out, i);
    free(copy);
    free(out);
    free(rows);
    return status;
}

void case_compare(const zonal__problem *p, const char *what, double got, double want, double scale,
                  const double *gradient, const double *want_gradient) {
    int single = p->precision == ZONAL_PRECISION_FP32;
    double tolerance = single ? 2e-6 * fabs(scale) + 2e-11 : 1e-12 * fabs(scale);
    char name[160];
    snprintf(name, sizeof name, "%s: B %lld, d %lld, %s, %d threads", what, (long long)p->rows,
             (long long)p->dim, single ? "fp32" : "double", p->threads);
    test_close(got, want, tolerance, name, __FILE__, __LINE__);
    if (gradient)
        test_norm_close(case_count(p), gradient, want_gradient, single ? 1e-5 : 1e-11, name,
                        __FILE__, __LINE__);
}

static const int64_t shapes[][2] = {{2, 2},   {3, 2},    {5, 3},    {2, 17},   {127, 17},
                                    {129, 3}, {700, 17}, {129, 64}, {65, 256}, {180, 256}};
_Static_assert(sizeof shapes / sizeof *shapes == CASE_SHAPES, "as many as the header says");

zonal__problem case_shape(int i, zonal_precision precision) {
    return (zonal__problem){
        .rows = shapes[i][0], .dim = shapes[i][1], .precision = precision, .threads = 2};
}

const zonal_precision case_precisions[2] = {ZONAL_PRECISION_DOUBLE, ZONAL_PRECISION_FP32};
