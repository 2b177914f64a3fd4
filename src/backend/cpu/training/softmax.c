/*
 * Linear classification on the host's threads. Rows are taken in blocks, widened to double in the
 * cache, and go through two products: scores, and what they add to the gradient. Each turn has a
 * part of the rows and a gradient of its own; the parts depend on the shape alone and are added in
 * their order, so the bits do not depend on the threads.
 */
#include "backend/training/softmax.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/clones.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/product.h"
#include "core/memory.h"

enum {
    BLOCK = 128,                  /* rows widened at a time, and the least of a part */
    MOST_PARTS = 32,              /* of the rows */
    PART_BYTES = 64 * 1024 * 1024 /* that the gradients of all parts may take together */
};

/* The scratch of one thread. */
typedef struct scratch {
    double *x;      /* [BLOCK][dim] */
    double *scores; /* [BLOCK][classes] */
} scratch;

struct zonal__softmax {
    zonal__softmax_spec spec;
    const zonal__cpu_kernels *kernels;
    int threads;
    int64_t parts;     /* the most */
    double *gradients; /* [parts][classes][dim + 1] */
    double *losses;    /* [parts] */
    scratch *scratch;  /* [threads] */
    /* the call in progress */
    int64_t rows, part_rows;
    const float *x;
    const int32_t *labels;
    const double *parameters;
    double *loss, *gradient, *out;
};

static void destroy(zonal__softmax *self) {
    if (!self) return;
    for (int t = 0; self->scratch && t < self->threads; t++) {
        zonal__free(self->scratch[t].x);
        zonal__free(self->scratch[t].scores);
    }
    zonal__free(self->scratch);
    zonal__free(self->gradients);
    zonal__free(self->losses);
    zonal__free(self);
}

static int64_t parameters_of(const zonal__softmax *self) {
    return self->spec.classes * (self->spec.dim + 1);
}

static int64_t parts_of(int64_t parameters) {
    int64_t parts = PART_BYTES / (parameters * (int64_t)sizeof(double));
    return parts < 1 ? 1 : parts > MOST_PARTS ? MOST_PARTS : parts;
}

static zonal_status allocate(zonal__softmax *self) {
    int64_t dim = self->spec.dim, classes = self->spec.classes;
    ZONAL_TRY(ZONAL_NEW(&self->gradients, self->parts * parameters_of(self), "the gradients"));
    ZONAL_TRY(ZONAL_NEW(&self->losses, self->parts, "the losses"));
    ZONAL_TRY(ZONAL_NEW(&self->scratch, self->threads, "the blocks of rows"));
    for (int t = 0; t < self->threads; t++) {
        ZONAL_TRY(ZONAL_NEW(&self->scratch[t].x, BLOCK * dim, "a block of rows"));
        ZONAL_TRY(ZONAL_NEW(&self->scratch[t].scores, BLOCK * classes, "the scores"));
    }
    return ZONAL_OK;
}

static zonal_status create(const zonal__softmax_spec *spec, zonal__softmax **out) {
    zonal__softmax *self;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__softmax_check(spec));
    ZONAL_TRY(ZONAL_NEW(&self, 1, "the classifier"));
    self->spec = *spec;
    self->kernels = zonal__cpu_kernels_get(ZONAL_PRECISION_DOUBLE);
    self->threads = zonal__backend_threads(spec->threads);
    self->parts = parts_of(parameters_of(self));
    ZONAL_TRY_GOTO(status, failed, allocate(self));
    *out = self;
    return ZONAL_OK;
failed:
    destroy(self);
    return status;
}

/* ---- a block of rows ------------------------------------------------------------------------- */

ZONAL__CLONES static void widen(int64_t n, const float *in, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = (double)in[i];
}

/* The scores of "rows" rows from "row" on, and the rows themselves, widened. */
static void score_block(const zonal__softmax *self, int64_t row, int64_t rows, double *x,
                        double *scores) {
    int64_t dim = self->spec.dim;
    int classes = self->spec.classes;
    widen(rows * dim, self->x + row * dim, x);
    for (int64_t i = 0; i < rows; i++)
        for (int c = 0; c < classes; c++)
            scores[i * classes + c] = self->parameters[c * (dim + 1) + dim];
    zonal__cpu_product product = {.transpose_b = 1,
                                  .m = rows,
                                  .n = classes,
                                  .k = dim,
                                  .a = x,
                                  .lda = dim,
                                  .b = self->parameters,
                                  .ldb = dim + 1,
                                  .beta = 1,
                                  .c = scores,
                                  .ldc = classes};
    zonal__cpu_multiply(self->kernels, &product);
}

/* Turns the scores of a row into the derivative of its loss, which is returned. A NaN among them
 * is passed on. */
static double differentiate(int classes, int32_t label, double *score) {
    double most = score[0], sum = 0, at_label = score[label];
    for (int c = 1; c < classes; c++)
        if (score[c] > most) most = score[c];
    for (int c = 0; c < classes; c++) sum += score[c] = exp(score[c] - most);
    for (int c = 0; c < classes; c++) score[c] /= sum;
    score[label] -= 1;
    return log(sum) + most - at_label;
}

/* gradient += derivative^T (x, 1) */
static void add_gradient(const zonal__softmax *self, int64_t rows, const double *x,
                         const double *derivative, double *gradient) {
    int64_t dim = self->spec.dim;
    int classes = self->spec.classes;
    zonal__cpu_product product = {.transpose_a = 1,
                                  .m = classes,
                                  .n = dim,
                                  .k = rows,
                                  .a = derivative,
                                  .lda = classes,
                                  .b = x,
                                  .ldb = dim,
                                  .beta = 1,
                                  .c = gradient,
                                  .ldc = dim + 1};
    zonal__cpu_multiply(self->kernels, &product);
    for (int64_t i = 0; i < rows; i++)
        for (int c = 0; c < classes; c++)
            gradient[c * (dim + 1) + dim] += derivative[i * classes + c];
}

/* ---- the loss -------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void part_turn(void *context, int64_t part, int thread) {
    zonal__softmax *self = context;
    const scratch *s = &self->scratch[thread];
    int64_t end = least(self->rows, (part + 1) * self->part_rows);
    int classes = self->spec.classes;
    double *gradient = self->gradients + part * parameters_of(self), loss = 0;
    memset(gradient, 0, (size_t)parameters_of(self) * sizeof *gradient);
    for (int64_t row = part * self->part_rows; row < end; row += BLOCK) {
        int64_t rows = least(BLOCK, end - row);
        score_block(self, row, rows, s->x, s->scores);
        for (int64_t i = 0; i < rows; i++)
            loss += differentiate(classes, self->labels[row + i], s->scores + i * classes);
        add_gradient(self, rows, s->x, s->scores, gradient);
    }
    self->losses[part] = loss;
}

static zonal_status loss_body(zonal__work *work, const void *x, double *value, void *gradient,
                              double factor) {
    zonal__softmax *self = (zonal__softmax *)work;
    int64_t all = parameters_of(self);
    int64_t parts = (self->rows + self->part_rows - 1) / self->part_rows;
    double share = 1 / (double)self->rows, loss = 0;
    (void)x, (void)value, (void)gradient, (void)factor;
    zonal__cpu_parallel(parts, part_turn, self);
    memset(self->gradient, 0, (size_t)all * sizeof *self->gradient);
    for (int64_t p = 0; p < parts; p++) {
        loss += self->losses[p];
        for (int64_t j = 0; j < all; j++) self->gradient[j] += self->gradients[p * all + j];
    }
    for (int64_t j = 0; j < all; j++) self->gradient[j] *= share;
    *self->loss = loss * share;
    return ZONAL_OK;
}

static void loss(zonal__softmax *self, int64_t rows, const float *x, const int32_t *labels,
                 const double *parameters, double *value, double *gradient) {
    int64_t share = (rows + self->parts - 1) / self->parts;
    self->rows = rows;
    self->part_rows = (share + BLOCK - 1) / BLOCK * BLOCK;
    self->x = x;
    self->labels = labels;
    self->parameters = parameters;
    self->loss = value;
    self->gradient = gradient;
    (void)zonal__cpu_run(self->threads, loss_body, (zonal__work *)self, NULL, NULL, NULL, 0);
}

/* ---- scores ---------------------------------------------------------------------------------- */

static void scores_turn(void *context, int64_t turn, int thread) {
    zonal__softmax *self = context;
    int64_t row = turn * BLOCK;
    score_block(self, row, least(BLOCK, self->rows - row), self->scratch[thread].x,
                self->out + row * self->spec.classes);
}

static zonal_status scores_body(zonal__work *work, const void *x, double *value, void *gradient,
                                double factor) {
    zonal__softmax *self = (zonal__softmax *)work;
    (void)x, (void)value, (void)gradient, (void)factor;
    zonal__cpu_parallel((self->rows + BLOCK - 1) / BLOCK, scores_turn, self);
    return ZONAL_OK;
}

static void scores(zonal__softmax *self, int64_t rows, const float *x, const double *parameters,
                   double *out) {
    self->rows = rows;
    self->x = x;
    self->parameters = parameters;
    self->out = out;
    (void)zonal__cpu_run(self->threads, scores_body, (zonal__work *)self, NULL, NULL, NULL, 0);
}

const zonal__softmax_table *zonal__softmax_cpu(void) {
    static const zonal__softmax_table table = {
        .name = "cpu", .create = create, .destroy = destroy, .loss = loss, .scores = scores};
    return &table;
}
