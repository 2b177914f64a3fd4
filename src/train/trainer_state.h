/*
 * A trainer from the inside: for its own files (trainer.c makes it, step.c runs it), for
 * checkpoints and for tests.
 */
#ifndef ZONAL_TRAIN_TRAINER_STATE_H
#define ZONAL_TRAIN_TRAINER_STATE_H

#include "backend/ranks.h"
#include "train/exchange.h"
#include "train/online_probe.h"
#include "train/trainer.h"

/* What changes from step to step, where the step's work finds it, and what the step leaves. Both
 * lie on the trainer's device. With an online probe the input is followed by the labels of the
 * images, int32 [rows], so that all of it goes there in one copy. */
typedef struct zonal__step_input {
    zonal__optimiser_numbers numbers;
    zonal__optimiser_numbers probe; /* the same for the online probe */
    uint32_t step;                  /* of the sliced losses */
} zonal__step_input;

typedef struct zonal__step_output {
    zonal_objective_parts loss;
    double gradient_norm;
    double probe_norm; /* of the online probe's gradient */
} zonal__step_output;

/* The views of one size. Arrays lie on the device. */
typedef struct zonal__trainer_group {
    zonal__run *run;   /* for [views][micro] images */
    size_t view_bytes; /* of one view */
    size_t first_row;  /* of its projections among those of all views */
    const void *views; /* [views][rows], of the step under way */
    void *fixed;       /* options.fixed_views: these */
    void *micro_views; /* [views][micro]; two passes */
} zonal__trainer_group;

/* CUDA: the stream, the graphs and the way of a step's input to the device. */
typedef struct zonal__trainer_launch {
    void *stream;                         /* NULL: on the host */
    int warm;                             /* 1: the kernels have been loaded by a first step */
    void *graphs[ZONAL__FEED_TURNS];      /* by the feed's turn; NULL: not yet captured */
    char *pinned;                         /* [ZONAL__FEED_TURNS] inputs; steps take turns */
    void *pinned_read[ZONAL__FEED_TURNS]; /* events: this one has been copied */
} zonal__trainer_launch;

struct zonal__trainer {
    zonal__trainer_options options;
    const zonal__device *device; /* where the blocks lie: options.device */
    zonal__model *model;
    zonal__trainer_group groups[ZONAL__LOADER_GROUPS];
    zonal__loader *loader; /* on the host */
    zonal__feed *feed;     /* on CUDA */
    zonal__ranks *ranks;   /* NULL: there is but this one */
    zonal__exchange exchange;
    zonal_objective *objective;
    const zonal__optimiser_table *optimisers;
    zonal__optimiser *optimiser;
    zonal__online_probe *probe; /* NULL: none */
    zonal__step_input *input;
    zonal__step_output *output;
    int64_t rows; /* images of a step: this rank's share of the batch */
    /* z and its gradient, [views of all groups][rows][projection_dim]: in the network's dtype, on
     * the device; and, for a network in bf16 on the host, in fp32, which the loss takes there. */
    void *projections, *gradients;
    float *wide_projections, *wide_gradients;
    /* Two passes, where micro < rows. */
    int64_t micro;                             /* images at a time, of this rank */
    void *micro_projections, *micro_gradients; /* [views of a group][micro][projection_dim] */
    float *kept_statistics;
    zonal__trainer_launch launch;
    zonal__trainer_listener *listener;
    void *listener_context;
    double work, worked;   /* of a step; of that under way, so far */
    const int32_t *labels; /* of the images that were fetched last; NULL: they have none */
    int fetched, turn;     /* 1: the views of the next step are there; the feed's turn */
    int64_t epoch;         /* of the views that were fetched last */
    int64_t done;          /* steps */
    zonal__metrics last;   /* without what the step's output holds */
};

/* Bytes of an input with its labels. */
size_t zonal__trainer_input_bytes(const zonal__trainer *trainer);
/* Bytes of an element of the network's dtype. */
size_t zonal__trainer_element(const zonal__trainer *trainer);
/* What its optimiser moves. */
zonal__optimiser_arrays zonal__trainer_arrays(const zonal__trainer *trainer);
/* So many steps are done. */
void zonal__trainer_set_done(zonal__trainer *trainer, int64_t steps);

#endif
