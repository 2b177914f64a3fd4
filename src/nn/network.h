/*
 * A model: a network's parameters on a device, as one block of fp32 master weights.
 *
 *     zonal__network_spec spec = zonal__network_defaults();
 *     ZONAL_TRY(zonal__model_create(&spec, zonal__device_cpu(), &model));
 *     ZONAL_TRY(zonal__model_initialise(model, seed, 0));
 *     ZONAL_TRY(zonal__run_create(model, &(zonal__run_spec){.n = 512, .h = 64, .w = 64}, &run));
 *     for (;;) {                                               nn/run.h
 *         ZONAL_TRY(zonal__run_forward(run, images, 1, NULL, &outputs));
 *         ZONAL_TRY(zonal__run_backward(run, dprojections, 0));
 *         ... an optimiser moves model->parameters and renews model->bf16 ...
 *     }
 *
 * Images of several sizes go through several runs of one model.
 *
 * All blocks are memory of the model's device, so only that device's layers and optimisers look
 * into them; zonal__model_read and zonal__model_write are the way for everybody else.
 */
#ifndef ZONAL_NN_NETWORK_H
#define ZONAL_NN_NETWORK_H

#include "backend/training/tables.h"
#include "nn/resnet.h"

typedef struct zonal__model {
    zonal__network_spec spec;
    const zonal__device *device;
    const zonal__nn_table *table; /* the device's layers */
    zonal__graph graph;
    float *parameters; /* [graph.parameter_size], at the entries' offsets; 0 in the gaps */
    float *gradients;  /* likewise */
    uint16_t *bf16;    /* parameters in bf16, likewise; NULL when the spec says fp32 */
    float *statistics; /* [graph.statistic_size]: running means and variances */
    /* Training forwards so far: every norm sees every batch, so each one's num_batches_tracked. */
    int64_t batches;
} zonal__model;

/* Everything is 0: initialise or import before use. *model is NULL on failure. ZONAL_UNSUPPORTED
 * for a device without layers. The model must live as long as its runs. */
zonal_status zonal__model_create(const zonal__network_spec *spec, const zonal__device *device,
                                 zonal__model **model);
void zonal__model_destroy(zonal__model *model); /* accepts NULL */

/* Copies the blocks to or from the host's memory, laid out as they are on the device; NULL: not
 * that one. Writing parameters renews the bf16 copy. On a device both wait for its work. */
zonal_status zonal__model_read(const zonal__model *model, float *parameters, float *statistics);
zonal_status zonal__model_write(zonal__model *model, const float *parameters,
                                const float *statistics);

/* Renews model->bf16: after parameters were moved by what does not write the copy itself
 * (optimisers and zonal__model_write do). Nothing to do in fp32. */
zonal_status zonal__model_refresh(zonal__model *model);

/* The entry of this name, NULL if there is none. */
const zonal__entry *zonal__model_find(const zonal__model *model, const char *name);

/*
 * How a network begins, as in torchvision and PyTorch:
 *
 *     convolution   normal, variance 2/(out kernel^2)      (kaiming, fan out, relu)
 *     linear        weight and bias uniform on +-1/sqrt(in)
 *     norm          scale 1, bias 0, running mean 0, running variance 1
 *
 * The numbers of an entry depend on the seed and on its name alone (ZONAL__STREAM_INIT, the sample
 * being a hash of the name): other layers, or another projector, do not move them.
 */

/* Sets all parameters and statistics, batches to 0, and refreshes the bf16 copy. With
 * zero_init_residual the last batch norm of every block begins with scale 0, so that the block
 * begins as its shortcut (torchvision's zero_init_residual). They are computed on the host, for
 * every device. */
zonal_status zonal__model_initialise(zonal__model *model, uint64_t seed, int zero_init_residual);

#endif
