/*
 * Nearest neighbours by the definition of backend/training/neighbours.h: every cosine in double,
 * one thread, the k largest by insertion.
 */
#include "backend/training/neighbours.h"

#include "core/memory.h"

struct zonal__neighbours {
    zonal__neighbours_spec spec;
    int64_t bank; /* rows in it */
    float *rows;  /* [spec.rows][dim], of unit length */
    float *query; /* [dim], of unit length */
};

static void destroy(zonal__neighbours *self) {
    if (!self) return;
    zonal__free(self->rows);
    zonal__free(self->query);
    zonal__free(self);
}

static zonal_status create(const zonal__neighbours_spec *spec, zonal__neighbours **out) {
    zonal__neighbours *self;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__neighbours_check(spec));
    ZONAL_TRY(ZONAL_NEW(&self, 1, "nearest neighbours"));
    self->spec = *spec;
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&self->rows, spec->rows * spec->dim, "the bank"));
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&self->query, spec->dim, "a query"));
    *out = self;
    return ZONAL_OK;
failed:
    destroy(self);
    return status;
}

static zonal_status set_bank(zonal__neighbours *self, int64_t count, const float *rows) {
    int64_t dim = self->spec.dim;
    ZONAL_TRY(zonal__neighbours_check_bank(&self->spec, count));
    self->bank = 0;
    for (int64_t i = 0; i < count; i++)
        if (!zonal__neighbours_unit(dim, rows + i * dim, self->rows + i * dim))
            return zonal__neighbours_bad_row(dim, rows + i * dim, "row", i);
    self->bank = count;
    return ZONAL_OK;
}

static double cosine_with(const zonal__neighbours *self, int64_t i) {
    const float *row = self->rows + i * self->spec.dim;
    double sum = 0;
    for (int64_t j = 0; j < self->spec.dim; j++) sum += (double)self->query[j] * (double)row[j];
    return sum;
}

static zonal_status take_query(zonal__neighbours *self, const float *queries, int64_t i) {
    const float *query = queries + i * self->spec.dim;
    if (!zonal__neighbours_unit(self->spec.dim, query, self->query))
        return zonal__neighbours_bad_row(self->spec.dim, query, "query", i);
    return ZONAL_OK;
}

/* The k largest so far, in falling order; a newcomer goes behind its equals. */
static void insert(int k, int *found, double value, int64_t i, double *cosine, int32_t *row) {
    int at;
    if (*found == k && !(value > cosine[k - 1])) return;
    if (*found < k) ++*found;
    for (at = *found - 1; at > 0 && value > cosine[at - 1]; at--)
        cosine[at] = cosine[at - 1], row[at] = row[at - 1];
    cosine[at] = value, row[at] = (int32_t)i;
}

static zonal_status nearest(zonal__neighbours *self, int64_t count, const float *queries,
                            int64_t first, double *cosine, int32_t *row) {
    int k = self->spec.k;
    ZONAL_TRY(zonal__neighbours_check_nearest(&self->spec, self->bank, count, first));
    for (int64_t q = 0; q < count; q++) {
        int found = 0;
        ZONAL_TRY(take_query(self, queries, q));
        for (int64_t i = 0; i < self->bank; i++)
            if (first < 0 || i != first + q)
                insert(k, &found, cosine_with(self, i), i, cosine + q * k, row + q * k);
    }
    return ZONAL_OK;
}

static zonal_status cosines(zonal__neighbours *self, int64_t count, const float *queries,
                            float *out) {
    ZONAL_TRY(zonal__neighbours_check_queries(&self->spec, self->bank, count));
    for (int64_t q = 0; q < count; q++) {
        ZONAL_TRY(take_query(self, queries, q));
        for (int64_t i = 0; i < self->bank; i++)
            out[q * self->bank + i] = (float)cosine_with(self, i);
    }
    return ZONAL_OK;
}

const zonal__neighbours_table *zonal__neighbours_ref(void) {
    static const zonal__neighbours_table table = {.name = "ref",
                                                  .create = create,
                                                  .destroy = destroy,
                                                  .set_bank = set_bank,
                                                  .nearest = nearest,
                                                  .cosines = cosines};
    return &table;
}
