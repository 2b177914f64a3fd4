/* Models: network.h. */
#include "nn/network.h"

#include <string.h>

#include "core/bf16.h"
#include "core/memory.h"

static zonal_status alloc(const zonal__model *model, int64_t count, size_t size, const char *what,
                          void **block) {
    return zonal__device_alloc(model->device, (size_t)count * size, what, block);
}

static zonal_status fill(zonal__model *model) {
    const zonal__graph *graph = &model->graph;
    void *block;
    ZONAL_TRY(zonal__network_build(&model->spec, &model->graph));
    ZONAL_TRY(alloc(model, graph->parameter_size, sizeof(float), "the parameters", &block));
    model->parameters = block;
    ZONAL_TRY(
        alloc(model, graph->parameter_size, sizeof(float), "the parameters' gradients", &block));
    model->gradients = block;
    ZONAL_TRY(alloc(model, graph->statistic_size, sizeof(float), "the running statistics", &block));
    model->statistics = block;
    if (model->spec.dtype != ZONAL_DTYPE_BF16) return ZONAL_OK;
    ZONAL_TRY(
        alloc(model, graph->parameter_size, sizeof(uint16_t), "the parameters in bf16", &block));
    model->bf16 = block;
    return ZONAL_OK;
}

zonal_status zonal__model_create(const zonal__network_spec *spec, const zonal__device *device,
                                 zonal__model **out) {
    const zonal__nn_table *table;
    zonal__model *model;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__device_layers(device, &table));
    ZONAL_TRY(ZONAL_NEW(&model, 1, "a model"));
    model->spec = *spec;
    model->device = device;
    model->table = table;
    status = fill(model);
    if (status != ZONAL_OK) {
        zonal__model_destroy(model);
        return status;
    }
    *out = model;
    return ZONAL_OK;
}

void zonal__model_destroy(zonal__model *model) {
    if (!model) return;
    zonal__device_free(model->device, model->parameters);
    zonal__device_free(model->device, model->gradients);
    zonal__device_free(model->device, model->statistics);
    zonal__device_free(model->device, model->bf16);
    zonal__free(model);
}

/* ---- between host and device ----------------------------------------------------------------- */

static void narrow(int64_t count, const float *from, uint16_t *to) {
    for (int64_t i = 0; i < count; i++) to[i] = zonal__bf16_from_float(from[i]);
}

/* "parameters" are the model's, in the host's memory. */
static zonal_status renew_bf16(zonal__model *model, const float *parameters) {
    int64_t count = model->graph.parameter_size;
    uint16_t *copy;
    zonal_status status;
    if (!model->bf16) return ZONAL_OK;
    if (zonal__device_is_host(model->device)) {
        narrow(count, parameters, model->bf16);
        return ZONAL_OK;
    }
    ZONAL_TRY(ZONAL_NEW(&copy, count, "the parameters in bf16"));
    narrow(count, parameters, copy);
    status = zonal__device_write(model->device, model->bf16, copy, (size_t)count * sizeof *copy);
    zonal__free(copy);
    return status;
}

zonal_status zonal__model_read(const zonal__model *model, float *parameters, float *statistics) {
    const zonal__graph *graph = &model->graph;
    if (parameters)
        ZONAL_TRY(zonal__device_read(model->device, parameters, model->parameters,
                                     (size_t)graph->parameter_size * sizeof(float)));
    if (statistics)
        ZONAL_TRY(zonal__device_read(model->device, statistics, model->statistics,
                                     (size_t)graph->statistic_size * sizeof(float)));
    return ZONAL_OK;
}

zonal_status zonal__model_write(zonal__model *model, const float *parameters,
                                const float *statistics) {
    const zonal__graph *graph = &model->graph;
    if (statistics)
        ZONAL_TRY(zonal__device_write(model->device, model->statistics, statistics,
                                      (size_t)graph->statistic_size * sizeof(float)));
    if (!parameters) return ZONAL_OK;
    ZONAL_TRY(zonal__device_write(model->device, model->parameters, parameters,
                                  (size_t)graph->parameter_size * sizeof(float)));
    return renew_bf16(model, parameters);
}

zonal_status zonal__model_refresh(zonal__model *model) {
    float *parameters;
    zonal_status status;
    if (!model->bf16) return ZONAL_OK;
    if (zonal__device_is_host(model->device)) return renew_bf16(model, model->parameters);
    ZONAL_TRY(ZONAL_NEW(&parameters, model->graph.parameter_size, "a copy of the parameters"));
    status = zonal__model_read(model, parameters, NULL);
    if (status == ZONAL_OK) status = renew_bf16(model, parameters);
    zonal__free(parameters);
    return status;
}

const zonal__entry *zonal__model_find(const zonal__model *model, const char *name) {
    for (int i = 0; i < model->graph.entry_count; i++)
        if (strcmp(model->graph.entries[i].name, name) == 0) return &model->graph.entries[i];
    return NULL;
}
