#include "backend/ref/rows.h"

#include <float.h>
#include <math.h>

#include "core/memory.h"

zonal_status zonal__ref_create(const zonal__problem *problem, int64_t rows, const int64_t length[4],
                               zonal__work **out) {
    int64_t total = rows * (problem->dim + 1);
    zonal__work *work;
    *out = NULL;
    for (int i = 0; i < 4; i++) total += length[i];
    ZONAL_TRY(ZONAL_NEW(&work, 1, "the reference's work space"));
    zonal_status status = ZONAL_NEW(&work->memory, total, "the reference's work space");
    if (status != ZONAL_OK) {
        zonal__free(work);
        return status;
    }
    work->problem = *problem;
    work->batch = zonal__ranks_batch(problem->ranks, problem->rows);
    work->first = zonal__ranks_first(problem->ranks);
    work->end = work->first + problem->rows;
    work->bytes = (size_t)total * sizeof(double);
    work->unit = work->memory;
    work->norm = work->unit + rows * problem->dim;
    double *next = work->norm + rows;
    for (int i = 0; i < 4; i++) {
        work->part[i] = next;
        next += length[i];
    }
    *out = work;
    return ZONAL_OK;
}

void zonal__ref_destroy(zonal__work *work) {
    if (!work) return;
    zonal__free(work->memory);
    zonal__free(work);
}

size_t zonal__ref_scratch_bytes(const zonal__work *work) {
    return work->bytes;
}

double zonal__ref_get(zonal_precision precision, const void *x, int64_t i) {
    return precision == ZONAL_PRECISION_FP32 ? ((const float *)x)[i] : ((const double *)x)[i];
}

void zonal__ref_set(zonal_precision precision, void *x, int64_t i, double value) {
    if (precision == ZONAL_PRECISION_FP32)
        ((float *)x)[i] = (float)value;
    else
        ((double *)x)[i] = value;
}

zonal_status zonal__ref_load(zonal__work *work, int raw, const void *x, const void *gradient) {
    const zonal__problem *problem = &work->problem;
    double *unit = work->unit + work->first * problem->dim, *norm = work->norm + work->first;
    zonal_status status = raw ? zonal__ref_raw_rows(problem, x, unit)
                              : zonal__ref_unit_rows(problem, x, gradient, unit, norm);
    ZONAL_TRY(zonal__ranks_agree(problem->ranks, status));
    if (!problem->ranks) return ZONAL_OK;
    return zonal__ranks_gather_rows(problem->ranks, work->unit,
                                    (size_t)problem->dim * sizeof(double));
}

zonal_status zonal__ref_raw_rows(const zonal__problem *problem, const void *x, double *unit) {
    int64_t first = zonal__ranks_first(problem->ranks);
    for (int64_t i = 0; i < problem->rows; i++)
        for (int64_t k = 0; k < problem->dim; k++) {
            double element = zonal__ref_get(problem->precision, x, i * problem->dim + k);
            if (!isfinite(element))
                return ZONAL_FAIL(ZONAL_NUMERIC,
                                  "row %lld%s holds %g in column %lld; embeddings must be finite",
                                  (long long)(first + i), zonal__ranks_whose(problem->ranks),
                                  element, (long long)k);
            unit[i * problem->dim + k] = element;
        }
    return ZONAL_OK;
}

zonal_status zonal__ref_unit_rows(const zonal__problem *problem, const void *x,
                                  const void *gradient, double *unit, double *norm) {
    int64_t d = problem->dim, first = zonal__ranks_first(problem->ranks);
    double largest_inverse = problem->precision == ZONAL_PRECISION_FP32 ? FLT_MAX : DBL_MAX;
    ZONAL_TRY(zonal__ref_raw_rows(problem, x, unit));
    for (int64_t i = 0; i < problem->rows; i++) {
        double *row = unit + i * d, largest = 0;
        for (int64_t k = 0; k < d; k++) largest = fmax(largest, fabs(row[k]));
        if (largest == 0)
            return ZONAL_FAIL(
                ZONAL_NUMERIC,
                "row %lld%s is zero and has no direction; remove it or fix its source",
                (long long)(first + i), zonal__ranks_whose(problem->ranks));
        /* Through the largest element, and by division: its inverse may overflow. */
        double sum = 0;
        for (int64_t k = 0; k < d; k++) sum += (row[k] / largest) * (row[k] / largest);
        norm[i] = largest * sqrt(sum);
        if (!problem->unit_rows && gradient && !(1 / norm[i] <= largest_inverse))
            return ZONAL_FAIL(ZONAL_NUMERIC,
                              "row %lld%s has norm %.3g: its gradient, which is divided by that, "
                              "would not be finite; remove it or scale the rows",
                              (long long)(first + i), zonal__ranks_whose(problem->ranks), norm[i]);
        if (!problem->unit_rows) {
            for (int64_t k = 0; k < d; k++) row[k] = row[k] / largest / sqrt(sum);
        } else if (!(fabs(norm[i] - 1) <= 1e-3)) {
            return ZONAL_FAIL(ZONAL_NUMERIC,
                              "row %lld%s has norm %g, but rows were declared unit; leave that out "
                              "and they will be normalised",
                              (long long)(first + i), zonal__ranks_whose(problem->ranks), norm[i]);
        } else {
            norm[i] = 1;
        }
    }
    return ZONAL_OK;
}

long double zonal__ref_cosine(const zonal__problem *problem, const double *unit, int64_t i,
                              int64_t j) {
    int64_t d = problem->dim;
    const double *x = unit + i * d, *y = unit + j * d;
    double c = zonal__ref_dot(d, x, y);
    if (c > 0.5 && !problem->unit_rows) {
        long double square = 0;
        for (int64_t k = 0; k < d; k++) {
            long double difference = (long double)x[k] - y[k];
            square += difference * difference;
        }
        return 1 - square / 2;
    }
    return c > 1 ? 1 : c < -1 ? -1 : c;
}

void zonal__ref_project(const zonal__work *work, int64_t row, const double *g, double factor,
                        void *gradient) {
    int64_t d = work->problem.dim;
    const double *x = work->unit + row * d;
    double radial = zonal__ref_dot(d, g, x) / zonal__ref_dot(d, x, x);
    for (int64_t k = 0; k < d; k++)
        zonal__ref_set(work->problem.precision, gradient, (row - work->first) * d + k,
                       factor * (g[k] - radial * x[k]) / work->norm[row]);
}
