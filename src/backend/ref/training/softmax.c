/* Linear classification by the formulas of backend/training/softmax.h, one row after the other. */
#include "backend/training/softmax.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"

struct zonal__softmax {
    zonal__softmax_spec spec;
    double *score; /* [classes], of one row */
};

static void destroy(zonal__softmax *self) {
    if (!self) return;
    zonal__free(self->score);
    zonal__free(self);
}

static zonal_status create(const zonal__softmax_spec *spec, zonal__softmax **out) {
    zonal__softmax *self;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__softmax_check(spec));
    ZONAL_TRY(ZONAL_NEW(&self, 1, "the classifier"));
    self->spec = *spec;
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&self->score, spec->classes, "the scores"));
    *out = self;
    return ZONAL_OK;
failed:
    destroy(self);
    return status;
}

static void score_row(const zonal__softmax *self, const float *x, const double *parameters,
                      double *score) {
    int64_t dim = self->spec.dim;
    for (int c = 0; c < self->spec.classes; c++) {
        const double *weight = parameters + c * (dim + 1);
        score[c] = weight[dim];
        for (int64_t j = 0; j < dim; j++) score[c] += weight[j] * (double)x[j];
    }
}

/* Turns scores into shares and returns the row's cross-entropy. */
static double softmax(int classes, int32_t label, double *score) {
    double most = score[0], sum = 0, at_label = score[label];
    for (int c = 1; c < classes; c++) most = fmax(most, score[c]);
    for (int c = 0; c < classes; c++) sum += exp(score[c] - most);
    for (int c = 0; c < classes; c++) score[c] = exp(score[c] - most) / sum;
    return log(sum) + most - at_label;
}

static void loss(zonal__softmax *self, int64_t rows, const float *x, const int32_t *labels,
                 const double *parameters, double *value, double *gradient) {
    int64_t dim = self->spec.dim;
    int classes = self->spec.classes;
    memset(gradient, 0, (size_t)(classes * (dim + 1)) * sizeof *gradient);
    *value = 0;
    for (int64_t i = 0; i < rows; i++) {
        score_row(self, x + i * dim, parameters, self->score);
        *value += softmax(classes, labels[i], self->score) / (double)rows;
        for (int c = 0; c < classes; c++) {
            double *g = gradient + c * (dim + 1);
            double share = (self->score[c] - (c == labels[i])) / (double)rows;
            for (int64_t j = 0; j < dim; j++) g[j] += share * (double)x[i * dim + j];
            g[dim] += share;
        }
    }
}

static void scores(zonal__softmax *self, int64_t rows, const float *x, const double *parameters,
                   double *out) {
    for (int64_t i = 0; i < rows; i++)
        score_row(self, x + i * self->spec.dim, parameters, out + i * self->spec.classes);
}

const zonal__softmax_table *zonal__softmax_ref(void) {
    static const zonal__softmax_table table = {
        .name = "ref", .create = create, .destroy = destroy, .loss = loss, .scores = scores};
    return &table;
}
