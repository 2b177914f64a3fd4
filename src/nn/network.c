/* Models: network.h. */
#include "nn/network.h"

#include <string.h>

#include "core/bf16.h"
#include "core/memory.h"

static zonal_status fill(zonal__model *model) {
    const zonal__graph *graph = &model->graph;
    ZONAL_TRY(zonal__network_build(&model->spec, &model->graph));
    ZONAL_TRY(ZONAL_NEW(&model->parameters, graph->parameter_size, "the parameters"));
    ZONAL_TRY(ZONAL_NEW(&model->gradients, graph->parameter_size, "the parameters' gradients"));
    ZONAL_TRY(ZONAL_NEW(&model->statistics, graph->statistic_size, "the running statistics"));
    if (model->spec.dtype == ZONAL_DTYPE_BF16)
        ZONAL_TRY(ZONAL_NEW(&model->bf16, graph->parameter_size, "the parameters in bf16"));
    return ZONAL_OK;
}

zonal_status zonal__model_create(const zonal__network_spec *spec, const zonal__nn_table *table,
                                 zonal__model **out) {
    zonal__model *model;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&model, 1, "a model"));
    model->spec = *spec;
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
    zonal__free(model->parameters);
    zonal__free(model->gradients);
    zonal__free(model->statistics);
    zonal__free(model->bf16);
    zonal__free(model);
}

void zonal__model_refresh(zonal__model *model) {
    if (!model->bf16) return;
    for (int64_t i = 0; i < model->graph.parameter_size; i++)
        model->bf16[i] = zonal__bf16_from_float(model->parameters[i]);
}

const zonal__entry *zonal__model_find(const zonal__model *model, const char *name) {
    for (int i = 0; i < model->graph.entry_count; i++)
        if (strcmp(model->graph.entries[i].name, name) == 0) return &model->graph.entries[i];
    return NULL;
}
