/* The table of entries and the list of nodes: graph.h. */
#include "nn/graph.h"

#include <stdio.h>

/* Kinds up to BIAS lie one behind the other in the block of parameters, the RUNNING ones in that of
 * statistics. */
static int64_t place(zonal__graph *graph, zonal__entry_kind kind, int64_t count) {
    int64_t *size = kind <= ZONAL__ENTRY_BIAS ? &graph->parameter_size : &graph->statistic_size;
    int64_t offset = *size;
    if (kind == ZONAL__ENTRY_BATCHES) return 0;
    *size += (count + ZONAL__ENTRY_ALIGNMENT - 1) / ZONAL__ENTRY_ALIGNMENT * ZONAL__ENTRY_ALIGNMENT;
    return offset;
}

static int declare(zonal__graph *graph, const char *name, const char *part, zonal__entry_kind kind,
                   int rank, const int64_t *shape, int64_t fan_in) {
    zonal__entry *entry = &graph->entries[graph->entry_count];
    snprintf(entry->name, sizeof entry->name, "%s.%s", name, part);
    entry->kind = kind;
    entry->rank = rank;
    entry->count = 1;
    for (int i = 0; i < 4; i++) {
        entry->shape[i] = i < rank ? shape[i] : 1;
        entry->count *= entry->shape[i];
    }
    entry->offset = place(graph, kind, entry->count);
    entry->fan_in = fan_in;
    return graph->entry_count++;
}

int zonal__graph_declare_convolution(zonal__graph *graph, const char *name, int in, int out,
                                     int kernel) {
    const int64_t shape[4] = {out, in, kernel, kernel};
    return declare(graph, name, "weight", ZONAL__ENTRY_WEIGHT, 4, shape,
                   (int64_t)in * kernel * kernel);
}

int zonal__graph_declare_linear(zonal__graph *graph, const char *name, int in, int out, int bias) {
    const int64_t shape[2] = {out, in};
    int first = declare(graph, name, "weight", ZONAL__ENTRY_WEIGHT, 2, shape, in);
    if (bias) declare(graph, name, "bias", ZONAL__ENTRY_BIAS, 1, shape, in);
    return first;
}

int zonal__graph_declare_norm(zonal__graph *graph, const char *name, int channels) {
    const int64_t shape[1] = {channels};
    int first = declare(graph, name, "weight", ZONAL__ENTRY_SCALE, 1, shape, 0);
    declare(graph, name, "bias", ZONAL__ENTRY_BIAS, 1, shape, 0);
    declare(graph, name, "running_mean", ZONAL__ENTRY_RUNNING_MEAN, 1, shape, 0);
    declare(graph, name, "running_var", ZONAL__ENTRY_RUNNING_VARIANCE, 1, shape, 0);
    declare(graph, name, "num_batches_tracked", ZONAL__ENTRY_BATCHES, 0, NULL, 0);
    return first;
}

int zonal__graph_channels(const zonal__graph *graph, int node) {
    if (node == ZONAL__NODE_IMAGES) return graph->channels;
    return graph->nodes[node].layer.out_channels;
}

static int add_node(zonal__graph *graph, int x, int residual, int entry, zonal__layer_spec layer) {
    zonal__node *node = &graph->nodes[graph->node_count];
    layer.channels = zonal__graph_channels(graph, x);
    if (layer.out_channels == 0) layer.out_channels = layer.channels;
    layer.residual = residual != ZONAL__NODE_NONE;
    *node = (zonal__node){.layer = layer, .x = x, .residual = residual, .entry = entry};
    return graph->node_count++;
}

int zonal__graph_convolution(zonal__graph *graph, int x, int entry, int stride) {
    const int64_t *shape = graph->entries[entry].shape;
    return add_node(graph, x, ZONAL__NODE_NONE, entry,
                    (zonal__layer_spec){.kind = ZONAL__LAYER_CONVOLUTION,
                                        .out_channels = (int)shape[0],
                                        .kernel = (int)shape[2],
                                        .stride = stride,
                                        .pad = (int)shape[2] / 2});
}

int zonal__graph_linear(zonal__graph *graph, int x, int entry) {
    int bias =
        entry + 1 < graph->entry_count && graph->entries[entry + 1].kind == ZONAL__ENTRY_BIAS;
    return add_node(graph, x, ZONAL__NODE_NONE, entry,
                    (zonal__layer_spec){.kind = ZONAL__LAYER_LINEAR,
                                        .out_channels = (int)graph->entries[entry].shape[0],
                                        .bias = bias});
}

int zonal__graph_norm(zonal__graph *graph, int x, int entry, zonal__activation activation,
                      int residual) {
    return add_node(graph, x, residual, entry,
                    (zonal__layer_spec){.kind = ZONAL__LAYER_NORM, .activation = activation});
}

int zonal__graph_activation(zonal__graph *graph, int x, zonal__activation activation) {
    return add_node(graph, x, ZONAL__NODE_NONE, 0,
                    (zonal__layer_spec){.kind = ZONAL__LAYER_ACTIVATION, .activation = activation});
}

int zonal__graph_norm_pool(zonal__graph *graph, int x, int entry, zonal__activation activation,
                           int kernel, int stride) {
    return add_node(graph, x, ZONAL__NODE_NONE, entry,
                    (zonal__layer_spec){.kind = ZONAL__LAYER_NORM_POOL,
                                        .activation = activation,
                                        .kernel = kernel,
                                        .stride = stride,
                                        .pad = kernel / 2});
}

int zonal__graph_mean_pool(zonal__graph *graph, int x) {
    return add_node(graph, x, ZONAL__NODE_NONE, 0,
                    (zonal__layer_spec){.kind = ZONAL__LAYER_MEAN_POOL});
}

void zonal__entry_export(const zonal__entry *entry, const float *block, float *torch) {
    const float *ours = block + entry->offset;
    int64_t in = entry->rank == 4 ? entry->shape[1] : 1;
    int64_t window = entry->shape[2] * entry->shape[3], outer = entry->count / (in * window);
    for (int64_t k = 0; k < outer; k++)
        for (int64_t c = 0; c < in; c++)
            for (int64_t r = 0; r < window; r++)
                torch[(k * in + c) * window + r] = ours[(k * window + r) * in + c];
}

void zonal__entry_import(const zonal__entry *entry, const float *torch, float *block) {
    float *ours = block + entry->offset;
    int64_t in = entry->rank == 4 ? entry->shape[1] : 1;
    int64_t window = entry->shape[2] * entry->shape[3], outer = entry->count / (in * window);
    for (int64_t k = 0; k < outer; k++)
        for (int64_t c = 0; c < in; c++)
            for (int64_t r = 0; r < window; r++)
                ours[(k * window + r) * in + c] = torch[(k * in + c) * window + r];
}
