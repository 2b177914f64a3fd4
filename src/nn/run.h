/*
 * A run: the layers and activations of a model for pictures of one size, [n][h][w][channels].
 *
 * All memory is taken at creation, as one piece in which arrays share a place when they are not
 * needed at the same time. For training every output stays until its readers have gone back; the
 * gradients on the way back, and all outputs of an inference, are dropped as soon as they are used.
 *
 * Runs of one model share its parameters, gradients and statistics: use one at a time.
 */
#ifndef ZONAL_NN_RUN_H
#define ZONAL_NN_RUN_H

#include "nn/network.h"

typedef struct zonal__run_spec {
    int64_t n;        /* pictures */
    int h, w;         /* their sides */
    int forward_only; /* 1: for inference; a fraction of the memory */
    int threads;      /* host; 0: all there are */
} zonal__run_spec;

typedef struct zonal__run zonal__run;

/* Valid until the run's next forward. */
typedef struct zonal__run_outputs {
    const void *features;          /* [n][feature_dim], model's dtype */
    const void *projections;       /* [n][projection_dim], model's dtype; without a projector the
                                      features */
    const float *projections_fp32; /* the same numbers, for losses on the host */
} zonal__run_outputs;

/* ZONAL_SHAPE for sizes that cannot be, among them a run for training in which a norm would see one
 * value per channel; ZONAL_UNSUPPORTED for a dtype that the device has not. *run is NULL on
 * failure.
 */
zonal_status zonal__run_create(zonal__model *model, const zonal__run_spec *spec, zonal__run **run);
void zonal__run_destroy(zonal__run *run); /* accepts NULL */

/* Bytes of activations, their gradients and what layers save; scratch inside of layers is not
 * counted. */
size_t zonal__run_bytes(const zonal__run *run);

/* x: [n][h][w][channels] of the model's dtype; it must stay as it is until backward. Training uses
 * the batch's statistics and moves the running ones; inference uses the running ones. "training" is
 * ZONAL_ARGUMENT for a run that is forward_only. */
zonal_status zonal__run_forward(zonal__run *run, const void *x, int training,
                                zonal__run_outputs *outputs);

/* From the gradient of the loss with respect to the projections, [n][projection_dim] in fp32, to
 * the gradients of all parameters: added to model->gradients when "accumulate" is not 0, else they
 * replace what is there. ZONAL_ARGUMENT unless a training forward came just before: each serves one
 * backward. */
zonal_status zonal__run_backward(zonal__run *run, const float *dprojections, int accumulate);

void zonal__run_set_stream(zonal__run *run, void *stream); /* NULL for the host */

#endif
