/* What all devices share: neighbours.h. */
#include "backend/training/neighbours.h"

#include <math.h>

zonal_status zonal__neighbours_check(const zonal__neighbours_spec *spec) {
    if (spec->dim < 1 || spec->dim > INT32_MAX || spec->rows < 1 || spec->rows > INT32_MAX ||
        spec->queries < 1 || spec->queries > INT32_MAX)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "nearest neighbours need a dimension and numbers of rows and queries "
                          "from 1 to 2^31 - 1, got %lld, %lld and %lld",
                          (long long)spec->dim, (long long)spec->rows, (long long)spec->queries);
    if (spec->k < 0 || spec->k > ZONAL__NEIGHBOURS_MOST)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "k must be from 1 to %d, got %d", ZONAL__NEIGHBOURS_MOST,
                          spec->k);
    return ZONAL_OK;
}

zonal_status zonal__neighbours_check_bank(const zonal__neighbours_spec *spec, int64_t count) {
    if (count < 1 || count > spec->rows)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the bank must have from 1 to %lld rows, got %lld",
                          (long long)spec->rows, (long long)count);
    return ZONAL_OK;
}

zonal_status zonal__neighbours_check_queries(const zonal__neighbours_spec *spec, int64_t bank,
                                             int64_t count) {
    if (bank < 1) return ZONAL_FAIL(ZONAL_ARGUMENT, "the bank must be set before it is asked");
    if (count < 1 || count > spec->queries)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a call takes from 1 to %lld queries, got %lld",
                          (long long)spec->queries, (long long)count);
    return ZONAL_OK;
}

zonal_status zonal__neighbours_check_nearest(const zonal__neighbours_spec *spec, int64_t bank,
                                             int64_t count, int64_t self) {
    int64_t offered = self >= 0 ? bank - 1 : bank;
    ZONAL_TRY(zonal__neighbours_check_queries(spec, bank, count));
    if (spec->k < 1)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "nearest neighbours were not asked for at creation");
    if (spec->k > offered)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "k = %d is not possible with %lld rows; choose k from "
                          "1 to %lld",
                          spec->k, (long long)offered, (long long)offered);
    if (self >= 0 && self > bank - count)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "queries %lld to %lld are not all rows of the bank",
                          (long long)self, (long long)(self + count - 1));
    return ZONAL_OK;
}

static double norm_of(int64_t dim, const float *row) {
    double sum = 0; /* of squares of floats: neither overflows nor underflows */
    for (int64_t j = 0; j < dim; j++) sum += (double)row[j] * (double)row[j];
    return sqrt(sum);
}

int zonal__neighbours_unit(int64_t dim, const float *row, float *out) {
    double norm = norm_of(dim, row);
    if (!(norm > 0 && norm < INFINITY)) return 0;
    for (int64_t j = 0; j < dim; j++) out[j] = (float)((double)row[j] / norm);
    return 1;
}

zonal_status zonal__neighbours_bad_row(int64_t dim, const float *row, const char *what,
                                       int64_t number) {
    if (norm_of(dim, row) == 0)
        return ZONAL_FAIL(ZONAL_NUMERIC,
                          "%s %lld is zero and has no direction; remove it or fix its source", what,
                          (long long)number);
    return ZONAL_FAIL(ZONAL_NUMERIC, "%s %lld is not finite; embeddings must be finite", what,
                      (long long)number);
}
