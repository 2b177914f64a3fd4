/* Models: network.h. */
#include "nn/network.h"

#include <string.h>

#include "core/bf16.h"
#include "core/memory.h"
#include "core/random_scalar.h"

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

/* ---- the first values of parameters and statistics ------------------------------------------- */

/* FNV-1a, folded to the 56 bits that a sample has. */
static uint64_t hash_of(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return (hash >> 56 ^ hash) & 0xffffffffffffffu;
}

static void fill_constant(int64_t count, float value, float *out) {
    for (int64_t i = 0; i < count; i++) out[i] = value;
}

static void fill_normal(const zonal__random *random, const zonal__entry *entry, double std,
                        float *out) {
    uint64_t sample = hash_of(entry->name);
    for (int64_t i = 0; i < entry->count; i += 2) {
        double pair[2];
        zonal__normal_pair(random, sample, (uint32_t)(i / 2), pair);
        out[i] = (float)(std * pair[0]);
        if (i + 1 < entry->count) out[i + 1] = (float)(std * pair[1]);
    }
}

static void fill_uniform(const zonal__random *random, const zonal__entry *entry, double bound,
                         float *out) {
    uint64_t sample = hash_of(entry->name);
    for (int64_t i = 0; i < entry->count; i += 2) {
        double pair[2];
        zonal__uniform_pair(random, sample, (uint32_t)(i / 2), pair);
        out[i] = (float)(bound * (2 * pair[0] - 1));
        if (i + 1 < entry->count) out[i + 1] = (float)(bound * (2 * pair[1] - 1));
    }
}

static void initialise_parameter(const zonal__random *random, const zonal__entry *entry,
                                 float *out) {
    if (entry->kind == ZONAL__ENTRY_SCALE)
        fill_constant(entry->count, 1, out);
    else if (entry->fan_in == 0)
        fill_constant(entry->count, 0, out); /* a batch norm's bias */
    else if (entry->rank == 4)
        fill_normal(random, entry,
                    sqrt(2.0 / (double)(entry->shape[0] * entry->shape[2] * entry->shape[3])), out);
    else
        fill_uniform(random, entry, 1 / sqrt((double)entry->fan_in), out);
}

static void draw(const zonal__graph *graph, uint64_t seed, int zero_init_residual,
                 float *parameters, float *statistics) {
    const zonal__random random = {.seed = seed, .stream = ZONAL__STREAM_INIT};
    for (int i = 0; i < graph->entry_count; i++) {
        const zonal__entry *entry = &graph->entries[i];
        if (zonal__entry_is_trained(entry))
            initialise_parameter(&random, entry, parameters + entry->offset);
        else if (entry->kind != ZONAL__ENTRY_BATCHES)
            fill_constant(entry->count, entry->kind == ZONAL__ENTRY_RUNNING_VARIANCE ? 1 : 0,
                          statistics + entry->offset);
    }
    for (int i = 0; zero_init_residual && i < graph->node_count; i++)
        if (graph->nodes[i].residual != ZONAL__NODE_NONE) {
            const zonal__entry *scale = &graph->entries[graph->nodes[i].entry];
            fill_constant(scale->count, 0, parameters + scale->offset);
        }
}

zonal_status zonal__model_initialise(zonal__model *model, uint64_t seed, int zero_init_residual) {
    const zonal__graph *graph = &model->graph;
    float *parameters = NULL, *statistics = NULL;
    zonal_status status;
    ZONAL_TRY_GOTO(status, done,
                   ZONAL_NEW(&parameters, graph->parameter_size, "the first parameters"));
    ZONAL_TRY_GOTO(status, done,
                   ZONAL_NEW(&statistics, graph->statistic_size, "the first statistics"));
    draw(graph, seed, zero_init_residual, parameters, statistics);
    status = zonal__model_write(model, parameters, statistics);
    model->batches = 0;
done:
    zonal__free(parameters);
    zonal__free(statistics);
    return status;
}
