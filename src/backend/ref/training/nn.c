/* The table of the reference layers: backend/training/nn.h, zonal__nn_ref. */
#include "backend/ref/training/nn.h"

#include "core/memory.h"

typedef struct layer_family {
    zonal_status (*forward)(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                            int training);
    zonal_status (*backward)(const zonal__layer *layer, const zonal__layer_arrays *arrays);
    size_t (*saved)(const zonal__layer *layer); /* NULL: nothing is saved */
} layer_family;

static const layer_family families[] = {
    [ZONAL__LAYER_CONVOLUTION] = {zonal__ref_convolution, zonal__ref_convolution_back, NULL},
    [ZONAL__LAYER_LINEAR] = {zonal__ref_convolution, zonal__ref_convolution_back, NULL},
    [ZONAL__LAYER_NORM] = {zonal__ref_norm, zonal__ref_norm_back, zonal__ref_norm_saved},
    [ZONAL__LAYER_ACTIVATION] = {zonal__ref_activation, zonal__ref_activation_back, NULL},
    [ZONAL__LAYER_MAX_POOL] = {zonal__ref_max_pool, zonal__ref_max_pool_back,
                               zonal__ref_max_pool_saved},
    [ZONAL__LAYER_MEAN_POOL] = {zonal__ref_mean_pool, zonal__ref_mean_pool_back, NULL},
    [ZONAL__LAYER_NORM_POOL] = {zonal__ref_norm_pool, zonal__ref_norm_pool_back,
                                zonal__ref_norm_pool_saved},
};

static void destroy(zonal__layer *layer) {
    if (!layer) return;
    zonal__free(layer->sum);
    zonal__free(layer);
}

static zonal_status create(const zonal__layer_spec *spec, zonal__layer **out) {
    int h, w, channels;
    zonal__layer *layer;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__layer_shape(spec, &h, &w, &channels));
    ZONAL_TRY(zonal__layer_check_host(spec));
    ZONAL_TRY(ZONAL_NEW(&layer, 1, "a layer"));
    layer->spec = *spec;
    zonal__layer_complete(&layer->spec);
    layer->out_h = h;
    layer->out_w = w;
    layer->out_channels = channels;
    ZONAL_TRY_GOTO(status, failed,
                   ZONAL_NEW(&layer->sum, 2 * (int64_t)spec->channels, "a layer's sums"));
    *out = layer;
    return ZONAL_OK;
failed:
    destroy(layer);
    return status;
}

static size_t saved_bytes(const zonal__layer *layer) {
    const layer_family *family = &families[layer->spec.kind];
    return family->saved && !layer->spec.forward_only ? family->saved(layer) : 0;
}

static zonal_status forward(zonal__layer *layer, const zonal__layer_arrays *arrays, int training) {
    ZONAL_TRY(zonal__layer_check_forward(&layer->spec, training));
    return families[layer->spec.kind].forward(layer, arrays, training);
}

static zonal_status backward(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    ZONAL_TRY(zonal__layer_check_backward(&layer->spec));
    return families[layer->spec.kind].backward(layer, arrays);
}

static size_t scratch_bytes(const zonal__layer *layer) {
    return layer->spec.kind == ZONAL__LAYER_NORM_POOL ? zonal__ref_norm_pool_scratch(layer) : 0;
}

static const zonal__nn_table table = {.name = "ref",
                                      .create = create,
                                      .destroy = destroy,
                                      .saved_bytes = saved_bytes,
                                      .scratch_bytes = scratch_bytes,
                                      .forward = forward,
                                      .backward = backward};

const zonal__nn_table *zonal__nn_ref(void) {
    return &table;
}
