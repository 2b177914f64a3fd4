/* The table of the layers on the host's threads: backend/training/nn.h, zonal__nn_cpu. */
#include "backend/training/nn.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/training/nn_amx.h"
#include "backend/cpu/training/nn_layer.h"
#include "core/memory.h"

static const zonal__cpu_family *const families[] = {
    [ZONAL__LAYER_CONVOLUTION] = &zonal__layers_product,
    [ZONAL__LAYER_LINEAR] = &zonal__layers_product,
    [ZONAL__LAYER_NORM] = &zonal__layers_norm,
    [ZONAL__LAYER_ACTIVATION] = &zonal__layers_activation,
    [ZONAL__LAYER_MAX_POOL] = &zonal__layers_max_pool,
    [ZONAL__LAYER_MEAN_POOL] = &zonal__layers_mean_pool,
    [ZONAL__LAYER_NORM_POOL] = &zonal__layers_norm_pool,
};

static void destroy(zonal__layer *layer) {
    if (!layer) return;
    if (layer->family->release) layer->family->release(layer);
    zonal__free(layer);
}

static zonal_status create(const zonal__layer_spec *spec, zonal__layer **out) {
    int h, w, channels;
    zonal__layer *layer;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__layer_shape(spec, &h, &w, &channels));
    ZONAL_TRY(zonal__layer_check_host(spec));
    ZONAL_TRY(zonal__alloc(1, families[spec->kind]->bytes, "a layer", (void **)&layer));
    layer->family = families[spec->kind];
    layer->spec = *spec;
    zonal__layer_complete(&layer->spec);
    layer->out_h = h;
    layer->out_w = w;
    layer->out_channels = channels;
    layer->threads = zonal__backend_threads(spec->threads);
    if (layer->family->prepare) ZONAL_TRY_GOTO(status, failed, layer->family->prepare(layer));
    *out = layer;
    return ZONAL_OK;
failed:
    destroy(layer);
    return status;
}

static size_t saved_bytes(const zonal__layer *layer) {
    return layer->family->saved && !layer->spec.forward_only ? layer->family->saved(layer) : 0;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* One run, as the team of threads sees it. */
struct zonal__work {
    zonal__layer *layer;
    const zonal__layer_arrays *arrays;
    int backward, training;
};

static zonal_status run_layer(zonal__work *work, const void *x, double *value, void *gradient,
                              double factor) {
    const zonal__cpu_family *family = work->layer->family;
    (void)x, (void)value, (void)gradient, (void)factor;
    if (work->backward) return family->backward(work->layer, work->arrays);
    return family->forward(work->layer, work->arrays, work->training);
}

static zonal_status run(zonal__work *work) {
    return zonal__cpu_run(work->layer->threads, run_layer, work, NULL, NULL, NULL, 0);
}

static zonal_status forward(zonal__layer *layer, const zonal__layer_arrays *arrays, int training) {
    zonal__work work = {layer, arrays, 0, training};
    ZONAL_TRY(zonal__layer_check_forward(&layer->spec, training));
    return run(&work);
}

static zonal_status backward(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    zonal__work work = {layer, arrays, 1, 1};
    ZONAL_TRY(zonal__layer_check_backward(&layer->spec));
    return run(&work);
}

static size_t scratch_bytes(const zonal__layer *layer) {
    return layer->family->scratch ? layer->family->scratch(layer) : 0;
}

static const zonal__nn_table table = {.name = "cpu",
                                      .create = create,
                                      .destroy = destroy,
                                      .saved_bytes = saved_bytes,
                                      .scratch_bytes = scratch_bytes,
                                      .forward = forward,
                                      .backward = backward};

const zonal__nn_table *zonal__nn_cpu(void) {
    return &table;
}
