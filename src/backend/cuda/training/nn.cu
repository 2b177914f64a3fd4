/*
 * The table of the layers on CUDA: backend/training/nn.h, zonal__nn_cuda. Each kind has a file of
 * its own (nn.cuh); what all of them check, fill in and free is here.
 */
#include "backend/cuda/training/nn.cuh"
#include "backend/cuda/training/nn_fold.cuh"

extern "C" {
#include "backend/device.h"
}

#ifdef ZONAL_HAVE_CUDNN

static const zonal__cuda_layer_kind *kind_of(zonal__layer_kind kind) {
    switch (kind) {
    case ZONAL__LAYER_CONVOLUTION:
        return &zonal__cuda_convolution;
    case ZONAL__LAYER_LINEAR:
        return &zonal__cuda_linear;
    case ZONAL__LAYER_NORM:
        return &zonal__cuda_norm;
    case ZONAL__LAYER_ACTIVATION:
        return &zonal__cuda_activation;
    case ZONAL__LAYER_MAX_POOL:
        return &zonal__cuda_max_pool;
    case ZONAL__LAYER_NORM_POOL:
        return &zonal__cuda_norm_pool;
    case ZONAL__LAYER_PRODUCT_NORM:
        return &zonal__cuda_product_norm;
    default:
        return &zonal__cuda_mean_pool;
    }
}

static void destroy(zonal__layer *layer) {
    if (!layer) return;
    zonal__cuda_on on(layer->spec.device);
    if (layer->kind->destroy) layer->kind->destroy(layer);
    zonal__free(layer);
}

static void fill_head(const zonal__layer_spec *spec, zonal__layer *layer) {
    layer->spec = *spec;
    if (spec->epsilon == 0) layer->spec.epsilon = 1e-5f;
    if (spec->momentum == 0) layer->spec.momentum = 0.1f;
    layer->kind = kind_of(spec->kind);
}

static zonal_status create(const zonal__layer_spec *spec, zonal__layer **out) {
    zonal__cuda_on on(spec->device);
    int h, w, channels;
    void *memory;
    *out = NULL;
    ZONAL_TRY(zonal__layer_shape(spec, &h, &w, &channels));
    ZONAL_TRY(zonal__alloc(1, kind_of(spec->kind)->bytes, "a layer", &memory));
    zonal__layer *layer = (zonal__layer *)memory;
    fill_head(spec, layer);
    layer->out_h = h;
    layer->out_w = w;
    layer->out_channels = channels;
    zonal_status status = layer->kind->create ? layer->kind->create(layer) : ZONAL_OK;
    if (status == ZONAL_OK)
        *out = layer;
    else
        destroy(layer);
    return status;
}

static size_t saved_bytes(const zonal__layer *layer) {
    if (layer->spec.forward_only || !layer->kind->saved_bytes) return 0;
    return layer->kind->saved_bytes(layer);
}

static size_t scratch_bytes(const zonal__layer *layer) {
    return layer->kind->scratch_bytes ? layer->kind->scratch_bytes(layer) : 0;
}

static zonal_status forward(zonal__layer *layer, const zonal__layer_arrays *arrays, int training) {
    zonal__cuda_on on(layer->spec.device);
    ZONAL_TRY(zonal__layer_check_forward(&layer->spec, training));
    return layer->kind->forward(layer, arrays, training);
}

static zonal_status backward(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    zonal__cuda_on on(layer->spec.device);
    ZONAL_TRY(zonal__layer_check_backward(&layer->spec));
    return layer->kind->backward(layer, arrays);
}

static void set_stream(zonal__layer *layer, void *stream) {
    layer->stream = (cudaStream_t)stream;
}

static int folds(const zonal__layer_spec *spec) {
    zonal__cuda_on on(spec->device);
    return zonal__cuda_folds(spec);
}

static const zonal__nn_table table = {
    "cuda",  create,   destroy,    saved_bytes, scratch_bytes,
    forward, backward, set_stream, folds,       zonal__cuda_fold_mask};

extern "C" const zonal__nn_table *zonal__nn_cuda(void) {
    return &table;
}

#else

extern "C" const zonal__nn_table *zonal__nn_cuda(void) {
    return NULL;
}

#endif
