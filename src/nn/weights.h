/*
 * Weights from files: a checkpoint of a training run, or any safetensors file of a backbone with
 * torchvision's names ("conv1.weight", "layer1.0.bn1.running_mean", ...), become a model.
 *
 *     ZONAL_TRY(zonal__safetensors_open(path, ZONAL__SAFETENSORS_ANY, &file));
 *     ZONAL_TRY(zonal__weights_network(file, &network));
 *     network.dtype = ZONAL_DTYPE_BF16;                              as one likes
 *     ZONAL_TRY(zonal__model_create(&network, device, &model));
 *     ZONAL_TRY(zonal__weights_load(file, model));
 *
 * Which network it is can be seen from the names and shapes of its tensors, all but one thing: the
 * projector's activation. Checkpoints tell it in their metadata ("zonal.network"); for other files
 * it is gelu.
 *
 * Tensors of any floating type are read. Left aside are "optimiser.*" and "probe.*" of checkpoints
 * and "fc.*", torchvision's classifier, which is said in the log; num_batches_tracked need not be
 * there. Every other tensor must have its place.
 */
#ifndef ZONAL_NN_WEIGHTS_H
#define ZONAL_NN_WEIGHTS_H

#include "core/safetensors.h"
#include "nn/network.h"

/* The network that the tensors are of; its dtype is fp32. ZONAL_FORMAT where they are of none that
 * is known here. What it gives still has to pass zonal__weights_load, which looks at every tensor.
 */
zonal_status zonal__weights_network(const zonal__safetensors *file, zonal__network_spec *network);

/* Fills parameters, their bf16 copy, and statistics, on whichever device they lie. The model's
 * network may have fewer projector layers than the file only if it has none. ZONAL_FORMAT and
 * ZONAL_SHAPE for weights of another network, ZONAL_DTYPE for whole numbers, ZONAL_NUMERIC for
 * values that are not finite, each naming the tensor; the model is then unchanged. */
zonal_status zonal__weights_load(const zonal__safetensors *file, zonal__model *model);

/* Both: *model is NULL on failure. */
zonal_status zonal__weights_model(const zonal__safetensors *file, const zonal__device *device,
                                  zonal_dtype dtype, zonal__model **model);
/* The same for the name of a file. */
zonal_status zonal__weights_open(const char *path, const zonal__device *device, zonal_dtype dtype,
                                 zonal__model **model);

/* What a training that begins with a file's weights has taken. */
typedef struct zonal__weights_begun {
    int64_t tensors;   /* with a place in the model, of whatever part */
    int has_projector; /* the file has one */
    int projector;     /* 1: and it was taken; 0: the model keeps the projector it has */
} zonal__weights_begun;

/* Puts a file's weights into a model that is initialised: the whole backbone, and the projector
 * where the file has one of the same shape. ZONAL_SHAPE where the backbone does not fit, with a
 * sentence that lists what is missing, what has another shape and what has no place; otherwise
 * fails as zonal__weights_load does. The model is then unchanged. */
zonal_status zonal__weights_begin(const zonal__safetensors *file, zonal__model *model,
                                  zonal__weights_begun *begun);

/* Copies the backbone's tensors of a file, neither projector, optimiser nor classifier, into a new
 * file: what torchvision's network of that depth loads with strict=True once its fc is an Identity.
 * The types stay as they are. The file is checked as zonal__weights_load does. "notes" become its
 * metadata, beside "format": "pt". */
zonal_status zonal__weights_export(const zonal__safetensors *file,
                                   const zonal__safetensors_note *notes, int64_t note_count,
                                   const char *path);

#endif
