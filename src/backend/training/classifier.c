/* Classifiers on the host, and what every device's create checks: classifier.h. */
#include "backend/training/classifier.h"

#include "core/bf16.h"
#include "core/memory.h"

struct zonal__classifier {
    zonal__classifier_spec spec;
    const zonal__softmax_table *table;
    zonal__softmax *softmax;
    float *wide;                    /* [rows][dim]: of features in bf16; NULL: they are fp32 */
    double *parameters, *gradients; /* [classes][dim + 1]: the bias is the last of each */
};

int64_t zonal__classifier_parameters(const zonal__classifier_spec *spec) {
    return spec->classes * (spec->dim + 1);
}

zonal_status zonal__classifier_check(const zonal__classifier_spec *spec) {
    ZONAL_TRY(zonal__softmax_check(&(zonal__softmax_spec){spec->dim, spec->classes, 0}));
    if (spec->rows < 1 || spec->all_rows < spec->rows)
        return ZONAL_FAIL(
            ZONAL_SHAPE,
            "a classifier needs at least 1 row and a batch of at least as many, got %lld of %lld",
            (long long)spec->rows, (long long)spec->all_rows);
    if (spec->dtype != ZONAL_DTYPE_FP32 && spec->dtype != ZONAL_DTYPE_BF16)
        return ZONAL_FAIL(ZONAL_DTYPE, "the features of a classifier are fp32 or bf16");
    return ZONAL_OK;
}

void zonal__classifier_host_destroy(zonal__classifier *self) {
    if (!self) return;
    self->table->destroy(self->softmax);
    zonal__free(self->wide);
    zonal__free(self->parameters);
    zonal__free(self->gradients);
    zonal__free(self);
}

static zonal_status fill(zonal__classifier *self) {
    const zonal__classifier_spec *spec = &self->spec;
    int64_t count = zonal__classifier_parameters(spec);
    ZONAL_TRY(self->table->create(&(zonal__softmax_spec){spec->dim, spec->classes, spec->threads},
                                  &self->softmax));
    ZONAL_TRY(ZONAL_NEW(&self->parameters, count, "a classifier's parameters"));
    ZONAL_TRY(ZONAL_NEW(&self->gradients, count, "a classifier's gradient"));
    if (spec->dtype == ZONAL_DTYPE_FP32) return ZONAL_OK;
    return ZONAL_NEW(&self->wide, spec->rows * spec->dim, "a classifier's features");
}

zonal_status zonal__classifier_host_create(const zonal__softmax_table *softmax,
                                           const zonal__classifier_spec *spec,
                                           zonal__classifier **out) {
    zonal__classifier *self;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__classifier_check(spec));
    ZONAL_TRY(ZONAL_NEW(&self, 1, "a classifier"));
    self->spec = *spec;
    self->table = softmax;
    status = fill(self);
    if (status == ZONAL_OK)
        *out = self;
    else
        zonal__classifier_host_destroy(self);
    return status;
}

static const float *widen(zonal__classifier *self, const void *x) {
    if (!self->wide) return x;
    for (int64_t i = 0; i < self->spec.rows * self->spec.dim; i++)
        self->wide[i] = zonal__bf16_to_float(((const uint16_t *)x)[i]);
    return self->wide;
}

zonal_status zonal__classifier_host_gradient(zonal__classifier *self, const void *x,
                                             const int32_t *labels, const float *parameters,
                                             float *gradients) {
    int64_t dim = self->spec.dim;
    int classes = self->spec.classes;
    const float *bias = parameters + classes * dim;
    double loss, factor = (double)self->spec.rows / (double)self->spec.all_rows;
    for (int c = 0; c < classes; c++) {
        double *row = self->parameters + c * (dim + 1);
        for (int64_t j = 0; j < dim; j++) row[j] = (double)parameters[c * dim + j];
        row[dim] = (double)bias[c];
    }
    self->table->loss(self->softmax, self->spec.rows, widen(self, x), labels, self->parameters,
                      &loss, self->gradients);
    for (int c = 0; c < classes; c++) {
        const double *row = self->gradients + c * (dim + 1);
        for (int64_t j = 0; j < dim; j++) gradients[c * dim + j] = (float)(factor * row[j]);
        gradients[classes * dim + c] = (float)(factor * row[dim]);
    }
    return ZONAL_OK;
}
