/*
 * Training on the host: pictures -> views -> projections -> loss -> one step of the optimiser.
 *
 *     ZONAL_TRY(zonal__trainer_create(&options, &trainer));
 *     while (zonal__trainer_steps_done(trainer) < total)
 *         ZONAL_TRY(zonal__trainer_step(trainer, &metrics));
 *     ZONAL_TRY(zonal__checkpoint_save(trainer, "run/last.safetensors"));      train/checkpoint.h
 *
 * A step is a function of the options, of its number and of the parameters and optimiser state
 * before it; nothing else is carried over. So the same options give the same weights bit for bit,
 * for any number of threads, and a run that goes on from a checkpoint ends as one that was never
 * interrupted.
 *
 * The views of a group (global, local) go through the network as one batch, [views][batch], so its
 * norms see all of them together; the loss then takes each view by itself.
 */
#ifndef ZONAL_TRAIN_TRAINER_H
#define ZONAL_TRAIN_TRAINER_H

#include "backend/optimiser.h"
#include "data/loader.h"
#include "nn/run.h"
#include "nn/schedule.h"
#include "zonal/loss.h"

typedef struct zonal__trainer_options {
    zonal__network_spec network;
    zonal_objective_options objective; /* device, precision and threads are set here */
    zonal__loader_options loader;    /* group 0: the global views, group 1, if any: the local ones;
                                      * channels, dtype, seed and first_step are set here */
    zonal__optimiser_spec optimiser; /* count and threads are set here */
    int decay_all;                   /* 1: weight decay on norms and biases as well */
    zonal__schedule schedule;
    uint64_t seed; /* of the first weights, the order, the views and sliced losses */
    int zero_last_scale;
    int threads; /* 0: all there are */
} zonal__trainer_options;

typedef struct zonal__trainer_metrics {
    int64_t step, epoch; /* of the step that was made, from 0 */
    zonal_objective_parts loss;
    double rate, gradient_norm;
} zonal__trainer_metrics;

typedef struct zonal__trainer {
    zonal__trainer_options options;
    zonal__model *model;
    zonal__run *run[ZONAL__LOADER_GROUPS];
    zonal__loader *loader;
    zonal_objective *objective;
    const zonal__optimiser_table *optimisers;
    zonal__optimiser *optimiser;
    float *projections, *slopes; /* [all views][batch][projection_dim]: z and its gradient */
    int64_t done;                /* steps */
} zonal__trainer;

/* *trainer is NULL on failure. The source and the laws of views must outlive it. */
zonal_status zonal__trainer_create(const zonal__trainer_options *options, zonal__trainer **trainer);
void zonal__trainer_destroy(zonal__trainer *trainer); /* accepts NULL */

/* Makes one step. ZONAL_NUMERIC, with parameters and state as before, for a loss or gradient that
 * is not finite. */
zonal_status zonal__trainer_step(zonal__trainer *trainer, zonal__trainer_metrics *metrics);

int64_t zonal__trainer_steps_done(const zonal__trainer *trainer);

/* Goes on at this step: for whoever has put other parameters and state in place (checkpoints). */
zonal_status zonal__trainer_resume_at(zonal__trainer *trainer, int64_t step);

#endif
