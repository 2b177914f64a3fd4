/*
 * A run: the layers and activations of a model for images of one size, [n][h][w][channels].
 *
 * All memory is allocated at creation, from the model's device: one piece in which arrays share a
 * place when they are not needed at the same time, and a scratch for all layers of each stream. For
 * training every output stays until its readers have gone back; the gradients on the way back, and
 * all outputs of an inference, are dropped soon after they are used.
 *
 * Runs of one model share its parameters, gradients and statistics: use one at a time.
 */
#ifndef ZONAL_NN_RUN_H
#define ZONAL_NN_RUN_H

#include "nn/network.h"

typedef struct zonal__run_spec {
    int64_t n;        /* images */
    int h, w;         /* their sides */
    int forward_only; /* 1: for inference; a fraction of the memory */
    int threads;      /* host; 0: all there are */
    int fold;         /* 1: norms in the products before them, where the device folds */
    /* Batch norms are those of all ranks' images, all_n of them. NULL: of these n. */
    const zonal_communicator *communicator;
    int64_t all_n;
} zonal__run_spec;

typedef struct zonal__run zonal__run;

/* Memory of the device, of the model's dtype; valid until the run's next forward. */
typedef struct zonal__run_outputs {
    const void *features;    /* [n][feature_dim] */
    const void *projections; /* [n][projection_dim]; without a projector the features */
} zonal__run_outputs;

/* ZONAL_SHAPE for sizes that cannot be, among them a run for training in which a batch norm would
 * see one value per channel; ZONAL_UNSUPPORTED for a dtype that the device does not support. *run
 * is NULL on failure.
 */
zonal_status zonal__run_create(zonal__model *model, const zonal__run_spec *spec, zonal__run **run);
void zonal__run_destroy(zonal__run *run); /* accepts NULL */

/* Bytes of activations, their gradients and what layers save; their scratch is not counted. */
size_t zonal__run_bytes(const zonal__run *run);

/* x: [n][h][w][channels] of the model's dtype; it must stay as it is until backward. "projections"
 * is where they go, [n][projection_dim] of the model's dtype; NULL: a place of the run's own.
 * Training uses the batch's statistics and moves the running ones; inference uses the running ones.
 * "training" is ZONAL_ARGUMENT for a run that is forward_only. On a device this only puts work on
 * the stream, as backward does, which has some of it done beside the stream meanwhile. */
zonal_status zonal__run_forward(zonal__run *run, const void *x, int training, void *projections,
                                zonal__run_outputs *outputs);

/* From the gradient of the loss with respect to the projections, [n][projection_dim] of the model's
 * dtype, to the gradients of all parameters: added to model->gradients when "accumulate" is not 0,
 * else they replace what is there. ZONAL_ARGUMENT unless a training forward came just before: each
 * serves one backward. */
zonal_status zonal__run_backward(zonal__run *run, const void *dprojections, int accumulate);

/* Asked for on the way back: what the stream has so far completes model->gradients from element
 * "first" to the end, as far as this backward goes. NULL: nobody asks. */
typedef zonal_status zonal__run_watcher(void *context, int64_t first);
void zonal__run_watch(zonal__run *run, zonal__run_watcher *watcher, void *context);

/* Work, in multiplications: of one forward; a backward is twice that. A guess: what is not a
 * product counts by the elements it goes over. */
double zonal__run_work(const zonal__run *run);

/* Told after each layer, either way, the work that it was. NULL: nobody listens. */
typedef void zonal__run_listener(void *context, double work);
void zonal__run_listen(zonal__run *run, zonal__run_listener *listener, void *context);

void zonal__run_set_stream(zonal__run *run, void *stream); /* NULL for the host */

#endif
