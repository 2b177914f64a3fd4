/*
 * Steps of training from given weights on given views, for torch_steps_test.py:
 *
 *   steps_tool WEIGHTS VIEWS OUT [WORD or NAME=NUMBER]...
 *
 * WEIGHTS is a safetensors file with torchvision's names, which also says what the network is;
 * VIEWS a matrix [steps][2][batch] x [side][side][channels], normalised. The objective is mmd-heat
 * with the batch as its gain, the optimiser AdamW. What is left at the end is written to OUT, as a
 * checkpoint, and for each step a line is printed: {"loss": .., "invariance": .., "discrepancy":
 * .., "gradient_norm": ..}.
 *
 *   words     cuda, bf16, fold (fold_norms)
 *   numbers   side, batch, steps, rate, decay, lambda
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bf16.h"
#include "core/memory.h"
#include "core/npy.h"
#include "nn/weights.h"
#include "train/checkpoint.h"
#include "train/trainer_state.h"

enum { VIEWS = 2 };

typedef struct task {
    double cuda, bf16, fold;
    double side, batch, steps, rate, decay, lambda;
} task;

/* ---- what is asked for ----------------------------------------------------------------------- */

static int read_argument(const char *argument, task *t) {
    const struct {
        const char *name;
        double *number;
        int is_word;
    } known[] = {{"cuda", &t->cuda, 1}, {"bf16", &t->bf16, 1},   {"fold", &t->fold, 1},
                 {"side", &t->side, 0}, {"batch", &t->batch, 0}, {"steps", &t->steps, 0},
                 {"rate", &t->rate, 0}, {"decay", &t->decay, 0}, {"lambda", &t->lambda, 0}};
    size_t length = strcspn(argument, "=");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char *end;
        if (strlen(known[i].name) != length || strncmp(argument, known[i].name, length) != 0 ||
            known[i].is_word != (argument[length] == 0))
            continue;
        *known[i].number = known[i].is_word ? 1 : strtod(argument + length + 1, &end);
        return known[i].is_word || (*end == 0 && end > argument + length + 1);
    }
    return 0;
}

static zonal_status fill_options(const task *t, const zonal__safetensors *weights,
                                 zonal__trainer_options *o) {
    *o = (zonal__trainer_options){
        .loader = {.batch = (int64_t)t->batch,
                   .groups = 1,
                   .group = {{.views = VIEWS, .width = (int)t->side, .height = (int)t->side}}},
        .optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW),
        .schedule = {.kind = ZONAL__SCHEDULE_CONSTANT, .total = (int64_t)t->steps, .base = t->rate},
        .fold_norms = t->fold != 0,
        .fixed_views = 1, /* which are replaced before each step */
    };
    o->optimiser.weight_decay = t->decay;
    ZONAL_TRY(zonal__device_open(t->cuda != 0 ? "cuda" : "cpu", &o->device));
    ZONAL_TRY(zonal__weights_network(weights, &o->network));
    o->network.dtype = t->bf16 != 0 ? ZONAL_DTYPE_BF16 : ZONAL_DTYPE_FP32;
    o->objective.size = sizeof o->objective;
    ZONAL_TRY(zonal_objective_defaults("mmd-heat", &o->objective));
    o->objective.lambda = t->lambda;
    o->objective.gain = ZONAL_GAIN_BATCH;
    return ZONAL_OK;
}

/* ---- views ----------------------------------------------------------------------------------- */

static zonal_status check_views(const zonal__npy *npy, const zonal__trainer *t, int64_t steps) {
    const zonal__loader_options *loader = &t->options.loader;
    int64_t rows = steps * VIEWS * loader->batch;
    int64_t cols =
        (int64_t)loader->group[0].width * loader->group[0].height * t->options.network.channels;
    if (npy->rows == rows && npy->cols == cols) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_SHAPE, "%s is %lld x %lld, and %lld x %lld is needed", npy->path,
                      (long long)npy->rows, (long long)npy->cols, (long long)rows, (long long)cols);
}

/* Step "step"'s, in place of those that the trainer has; "row" and "narrow" hold one view. */
static zonal_status give_views(const zonal__npy *npy, zonal__trainer *t, int64_t step, float *row,
                               uint16_t *narrow) {
    const zonal__trainer_group *group = &t->groups[0];
    int is_bf16 = t->options.network.dtype == ZONAL_DTYPE_BF16;
    int64_t count = VIEWS * t->options.loader.batch;
    for (int64_t v = 0; v < count; v++) {
        ZONAL_TRY(zonal__npy_read_f4(npy, step * count + v, 1, row));
        for (int64_t i = 0; is_bf16 && i < npy->cols; i++)
            narrow[i] = zonal__bf16_from_float(row[i]);
        ZONAL_TRY(zonal__device_write(t->device,
                                      (char *)group->fixed + (size_t)v * group->view_bytes,
                                      is_bf16 ? (void *)narrow : row, group->view_bytes));
    }
    return ZONAL_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static zonal_status make_step(const zonal__npy *npy, zonal__trainer *t, float *row,
                              uint16_t *narrow) {
    zonal__metrics m;
    ZONAL_TRY(give_views(npy, t, zonal__trainer_steps_done(t), row, narrow));
    ZONAL_TRY(zonal__trainer_step(t));
    ZONAL_TRY(zonal__trainer_metrics(t, &m)); /* waits: then views may be replaced */
    printf("{\"loss\": %.17g, \"invariance\": %.17g, \"discrepancy\": %.17g, "
           "\"gradient_norm\": %.17g}\n",
           m.loss.total, m.loss.invariance, m.loss.discrepancy, m.gradient_norm);
    return ZONAL_OK;
}

static zonal_status make_steps(const zonal__npy *npy, zonal__trainer *t, int64_t steps) {
    float *row = NULL;
    uint16_t *narrow = NULL;
    zonal_status status = check_views(npy, t, steps);
    if (status == ZONAL_OK) status = ZONAL_NEW(&row, npy->cols, "a view");
    if (status == ZONAL_OK) status = ZONAL_NEW(&narrow, npy->cols, "a view");
    while (status == ZONAL_OK && zonal__trainer_steps_done(t) < steps)
        status = make_step(npy, t, row, narrow);
    zonal__free(row);
    zonal__free(narrow);
    return status;
}

static zonal_status train(const task *t, const zonal__safetensors *weights, const zonal__npy *npy,
                          const char *out) {
    zonal__trainer_options options;
    zonal__trainer *trainer;
    zonal_status status;
    ZONAL_TRY(fill_options(t, weights, &options));
    ZONAL_TRY(zonal__trainer_create(&options, &trainer));
    status = zonal__weights_load(weights, trainer->model);
    if (status == ZONAL_OK) status = make_steps(npy, trainer, (int64_t)t->steps);
    if (status == ZONAL_OK) status = zonal__checkpoint_save(trainer, out);
    zonal__trainer_destroy(trainer);
    return status;
}

static zonal_status run(const task *t, char **path) {
    zonal__safetensors *weights;
    zonal__npy npy;
    zonal_status status;
    ZONAL_TRY(zonal__safetensors_open(path[0], ZONAL__SAFETENSORS_ANY, &weights));
    status = zonal__npy_open(path[1], &npy);
    if (status == ZONAL_OK) {
        status = train(t, weights, &npy, path[2]);
        zonal__npy_close(&npy);
    }
    zonal__safetensors_close(weights);
    return status;
}

int main(int argc, char **argv) {
    task t = {.side = 32, .batch = 32, .steps = 10, .rate = 1e-3, .lambda = 0.05};
    int known = argc >= 4;
    for (int i = 4; i < argc; i++) known = known && read_argument(argv[i], &t);
    if (!known) {
        fprintf(stderr, "usage: at the head of steps_tool.c\n");
        return 2;
    }
    if (run(&t, argv + 1) == ZONAL_OK) return 0;
    fprintf(stderr, "steps_tool: %s\n", zonal_last_error()->message);
    return 1;
}
