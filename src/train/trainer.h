/*
 * Training: images -> views -> projections -> loss -> one step of the optimiser.
 *
 *     ZONAL_TRY(zonal__trainer_create(&options, &trainer));
 *     while (zonal__trainer_steps_done(trainer) < total) {
 *         ZONAL_TRY(zonal__trainer_step(trainer));
 *         if (...) ZONAL_TRY(zonal__trainer_metrics(trainer, &metrics));
 *     }
 *     ZONAL_TRY(zonal__checkpoint_save(trainer, "run/last.safetensors"));      train/checkpoint.h
 *
 * A step is a function of the options, of its number and of the parameters and optimiser state
 * before it; nothing else is carried over. So the same options give the same weights bit for bit on
 * one device, for any number of threads, and a run that goes on from a checkpoint ends as one that
 * was never interrupted.
 *
 * An online probe (train/online_probe.h) is carried beside them and goes into none of this.
 *
 * The views of a group (global, local) go through the network as one batch, [views][batch], so its
 * norms see all of them together; the loss then takes each view by itself.
 *
 * On the host a step is done when zonal__trainer_step returns. On CUDA it is put on one stream: the
 * first launch by launch, since libraries load their kernels on first use, the others as a replay
 * of a CUDA graph that holds the whole step, from the making of views to the optimiser.
 *
 * Memory for less than a batch: with micro_batch = m, the batch's images go through the network m
 * at a time, each with all of its views, in two passes. The first gathers the projections of the
 * whole batch, of which the loss is taken once; the second goes forward again and back with the
 * loss's gradient. The loss is that of the whole batch; the norms' statistics are those of m
 * images. The usual accumulation, which adds up the gradients of losses of m images each, is
 * not offered: the exact losses are functions of the whole batch, and the mean of their values over
 * parts of it is another loss, with another bias.
 *
 * Several ranks (communicator): a trainer on each, with the same options. A step's batch, its order
 * and its views are those of one rank; each takes an even share of it, in the order of the ranks.
 * The loss is that of all rows together, norms see the images of all ranks, and gradients are added
 * up before they are clipped: so all ranks make the same step, with the same bits, and but for the
 * rounding of sums it is the step of one rank. With micro_batch each micro-batch is shared out.
 * Create, step, metrics and destroy are then collective. What one rank alone meets with when a
 * trainer is made fails on all, with its sentence; in a step that can be the images, and so there
 * is zonal__trainer_fetch, after which the ranks can agree.
 */
#ifndef ZONAL_TRAIN_TRAINER_H
#define ZONAL_TRAIN_TRAINER_H

#include "backend/training/tables.h"
#include "data/feed.h"
#include "nn/run.h"
#include "nn/schedule.h"
#include "zonal/loss.h"

typedef struct zonal__trainer_options {
    const zonal__device *device; /* NULL: the CPU */
    zonal__network_spec network;
    zonal_objective_options objective; /* device, precision, dtype and threads are set here */
    zonal__loader_options loader; /* group 0: the global views, group 1, if any: the local ones;
                                   * channels, dtype, seed and first_step are set here */
    zonal__data_location data_location; /* CUDA: where the images lie */
    int device_decodes;                 /* CUDA, 1: streamed JPEG files are decoded there */
    zonal__optimiser_spec optimiser;    /* count and threads are set here */
    int decay_all;                      /* 1: weight decay on batch norms and biases as well */
    zonal__schedule schedule;
    uint64_t seed; /* of the first weights, the order, the views and sliced losses */
    int zero_init_residual;
    int64_t micro_batch; /* images that go through the network at a time; 0: the whole batch */
    int no_graph;        /* CUDA, 1: every step launch by launch */
    int fold_norms;      /* 1: as zonal__run_spec.fold */
    int fixed_views;     /* 1: for benchmarks: no source and no views of it, but random numbers,
                          * drawn once, in every step */
    int threads;         /* host; 0: all there are */
    int probe_classes;   /* of the online probe (train/online_probe.h); 0: there is none */
    double probe_rate;   /* its learning rate */
    const char *configuration; /* what all this was made from, kept in checkpoints; may be NULL */
    const zonal_communicator *communicator; /* of host memory or the device's; NULL: one rank */
    int own_norms; /* several ranks, 1: the norms of each see its own images alone */
    size_t
        bucket_size; /* several ranks: bytes of gradients that are added up at a time; 0: 25 MiB */
} zonal__trainer_options;

typedef struct zonal__metrics {
    int64_t step, epoch; /* of the step that was made, from 0 */
    zonal_objective_parts loss;
    double rate, gradient_norm;
} zonal__metrics;

typedef struct zonal__trainer zonal__trainer;

/* *trainer is NULL on failure. The source, the augmentations and the
 * configuration must outlive it. ZONAL_MEMORY says
 * what was to be taken, and which option takes less. */
zonal_status zonal__trainer_create(const zonal__trainer_options *options, zonal__trainer **trainer);
void zonal__trainer_destroy(zonal__trainer *trainer); /* accepts NULL */

/* Waits until the images of the next step are there, which step does unless it was done: what can
 * fail of a step on one rank alone. Not collective. */
zonal_status zonal__trainer_fetch(zonal__trainer *trainer);

/* Makes one step. ZONAL_NUMERIC, with parameters and optimiser state as before, for a loss or
 * gradient that is not finite. On CUDA the device leaves out the update of such a step, the steps
 * after it go on, and zonal__trainer_metrics tells. */
zonal_status zonal__trainer_step(zonal__trainer *trainer);

/* Tells, while a step is being made, how far it is, each from 0 to 1: "loaded" of its images, about
 * every second while they are waited for; then "computed" of its work, after each layer, on the
 * host. NULL: nobody listens. */
typedef void zonal__trainer_listener(void *context, double loaded, double computed);
void zonal__trainer_listen(zonal__trainer *trainer, zonal__trainer_listener *listener,
                           void *context);

/* Those of the last step; all 0 before the first. On CUDA waits for the steps under way, and is
 * ZONAL_NUMERIC when one since the last call had a loss or gradient that was not finite; *metrics
 * is filled then too. */
zonal_status zonal__trainer_metrics(zonal__trainer *trainer, zonal__metrics *metrics);

/* The online probe: weight [probe_classes][feature_dim], then bias [probe_classes]. Waits on CUDA.
 */
zonal_status zonal__trainer_probe(zonal__trainer *trainer, float *out);

/* The last step's projections, [views][rows][projection_dim], global views first, rows being those
 * of this rank. Waits on CUDA. */
zonal_status zonal__trainer_projections(zonal__trainer *trainer, float *out);

int64_t zonal__trainer_steps_done(const zonal__trainer *trainer);
int64_t zonal__trainer_steps_per_epoch(const zonal__trainer *trainer); /* fixed_views: 1 */
/* Views in all, global and local. */
int zonal__trainer_views(const zonal__trainer *trainer);
/* Images of a step: this rank's. */
int64_t zonal__trainer_rows(const zonal__trainer *trainer);
/* On which its steps are put; NULL on the host. */
void *zonal__trainer_stream(const zonal__trainer *trainer);

/* The network as the steps so far have made it: to be looked at, or run forward, between steps. On
 * CUDA waits for the steps under way, so that any stream may read it. */
zonal__model *zonal__trainer_model(zonal__trainer *trainer);

/* Continues at this step: for code that has put other parameters and state in place (checkpoints).
 */
zonal_status zonal__trainer_resume_at(zonal__trainer *trainer, int64_t step);

#endif
