/*
 * A small training on textures, as the tests of trainers make it: what a network, a loader, an
 * optimiser and a schedule have in common on the host and on a GPU.
 */
#ifndef ZONAL_TESTS_SETTING_H
#define ZONAL_TESTS_SETTING_H

#include "test.h"
#include "train/trainer_state.h"

typedef struct setting_size {
    double width;        /* of the ResNet, 1: the usual one */
    int projector[2];    /* widths */
    int side, texture;   /* of global views and of the textures they are cut from, in pixels */
    int local_views;     /* of 16 pixels, beside two global ones */
    double rate;         /* the largest */
    int64_t total, warm; /* steps */
} setting_size;

/* A few thousand weights: what two cores can train in a second. */
static const setting_size setting_small = {.width = 0.125,
                                           .projector = {32, 16},
                                           .side = 24,
                                           .texture = 40,
                                           .local_views = 2,
                                           .rate = 3e-3,
                                           .total = 30,
                                           .warm = 3};

enum { SETTING_VIEWS = 5 };

typedef struct setting {
    zonal__source *source;
    zonal__augmentation augmentations[SETTING_VIEWS];
    zonal__trainer_options options;
} setting;

/* Batches of 16, two global views and the local ones. The source is there already, or NULL. */
static inline void setting_fill(setting *s, const setting_size *size, const char *method,
                                zonal_dtype dtype) {
    zonal__trainer_options *o = &s->options;
    for (int v = 0; v < SETTING_VIEWS; v++) zonal__augmentation_texture(&s->augmentations[v]);
    *o = (zonal__trainer_options){.network = zonal__network_defaults(), .seed = test_seed};
    o->network.stem = ZONAL__STEM_SMALL;
    o->network.channels = 1;
    o->network.width = size->width;
    o->network.projector_layers = 2;
    o->network.projector_width[0] = size->projector[0];
    o->network.projector_width[1] = size->projector[1];
    o->network.dtype = dtype;
    o->objective.size = sizeof o->objective;
    CHECK_OK(zonal_objective_defaults(method, &o->objective));
    /* So few rows in so few dimensions learn in 30 steps with a weight that runs would not have. */
    if (strcmp(method, "kl-heat") != 0) o->objective.gain = ZONAL_GAIN_BATCH;
    o->loader = (zonal__loader_options){.source = s->source,
                                        .batch = 16,
                                        .groups = 2,
                                        .group = {{.views = 2,
                                                   .width = size->side,
                                                   .height = size->side,
                                                   .augmentations = s->augmentations},
                                                  {.views = size->local_views,
                                                   .width = 16,
                                                   .height = 16,
                                                   .augmentations = s->augmentations + 2,
                                                   .first = 2}},
                                        .workers = 2};
    o->optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW);
    o->optimiser.weight_decay = 1e-2;
    o->schedule = (zonal__schedule){.kind = ZONAL__SCHEDULE_COSINE,
                                    .total = size->total,
                                    .warmup = size->warm,
                                    .base = size->rate,
                                    .floor = 0};
}

/* Opens 64 textures and fills the options; the source is to be closed. */
static inline int setting_open(setting *s, const setting_size *size, const char *method,
                               zonal_dtype dtype) {
    const zonal__source_options source = {.path = "textures:disk",
                                          .split = ZONAL__SPLIT_TRAIN,
                                          .texture_count = 64,
                                          .texture_size = size->texture};
    if (!CHECK_OK(zonal__source_open(&source, &s->source))) return 0;
    setting_fill(s, size, method, dtype);
    return 1;
}

static inline int make_steps(zonal__trainer *t, int64_t until) {
    while (zonal__trainer_steps_done(t) < until)
        if (!CHECK_OK(zonal__trainer_step(t))) return 0;
    return 1;
}

/* On the host: parameters and statistics to the bit. */
static inline int same_weights(const zonal__trainer *a, const zonal__trainer *b) {
    const zonal__graph *graph = &a->model->graph;
    return memcmp(a->model->parameters, b->model->parameters,
                  (size_t)graph->parameter_size * sizeof(float)) == 0 &&
           memcmp(a->model->statistics, b->model->statistics,
                  (size_t)graph->statistic_size * sizeof(float)) == 0;
}

#endif
