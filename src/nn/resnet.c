/* Residual networks and their projectors as graphs: resnet.h. */
#include "nn/resnet.h"

#include <math.h>
#include <stdio.h>

enum { MOST_PROJECTOR_WIDTH = 1 << 16 };

/* ---- graphs: the table of entries and the list of nodes -------------------------------------- */

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

/* ---- networks -------------------------------------------------------------------------------- */

/* While a network is built. */
typedef struct builder {
    const zonal__network_spec *spec;
    zonal__graph *graph;
    int x; /* the node built last */
} builder;

zonal__network_spec zonal__network_defaults(void) {
    return (zonal__network_spec){.depth = 18,
                                 .stem = ZONAL__STEM_IMAGENET,
                                 .channels = 3,
                                 .width = 1,
                                 .projector_layers = 3,
                                 .projector_width = {2048, 2048, 256},
                                 .projector_activation = ZONAL__ACTIVATION_GELU,
                                 .projector_norm = 1,
                                 .projector_last_bias = 1,
                                 .dtype = ZONAL_DTYPE_FP32};
}

/* ---- what is refused ------------------------------------------------------------------------- */

static zonal_status check_encoder(const zonal__network_spec *spec) {
    if (spec->depth != 18 && spec->depth != 34 && spec->depth != 50)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no ResNet-%d here; use 18, 34 or 50",
                          spec->depth);
    if (spec->stem != ZONAL__STEM_IMAGENET && spec->stem != ZONAL__STEM_SMALL)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no stem %d; use imagenet or small",
                          (int)spec->stem);
    if (spec->channels != 1 && spec->channels != 3)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "images have 1 or 3 channels, not %d", spec->channels);
    if (!(spec->width >= 1.0 / 64 && spec->width <= 8))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the width factor must lie between 1/64 and 8, got %g",
                          spec->width);
    if (spec->dtype != ZONAL_DTYPE_FP32 && spec->dtype != ZONAL_DTYPE_BF16)
        return ZONAL_FAIL(ZONAL_DTYPE, "networks compute in fp32 or bf16, not in type %d",
                          (int)spec->dtype);
    return ZONAL_OK;
}

static zonal_status check_projector(const zonal__network_spec *spec) {
    if (spec->projector_layers < 0 || spec->projector_layers > ZONAL__MOST_PROJECTOR_LAYERS)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a projector has 0 to %d layers, not %d",
                          ZONAL__MOST_PROJECTOR_LAYERS, spec->projector_layers);
    for (int i = 0; i < spec->projector_layers; i++)
        if (spec->projector_width[i] < 1 || spec->projector_width[i] > MOST_PROJECTOR_WIDTH)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "layer %d of the projector must have 1 to %d outputs, got %d", i + 1,
                              MOST_PROJECTOR_WIDTH, spec->projector_width[i]);
    if (spec->projector_activation != ZONAL__ACTIVATION_RELU &&
        spec->projector_activation != ZONAL__ACTIVATION_GELU)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the projector's activation must be relu or gelu");
    return ZONAL_OK;
}

/* ---- the encoder ----------------------------------------------------------------------------- */

static int scaled(const zonal__network_spec *spec, int channels) {
    int eights = (int)lround(channels * spec->width / 8);
    return eights < 1 ? 8 : 8 * eights;
}

static void build_stem(builder *b) {
    int small = b->spec->stem == ZONAL__STEM_SMALL, channels = scaled(b->spec, 64);
    zonal__graph *graph = b->graph;
    int weight = zonal__graph_declare_convolution(graph, "conv1", b->spec->channels, channels,
                                                  small ? 3 : 7);
    int norm = zonal__graph_declare_norm(graph, "bn1", channels);
    b->x = zonal__graph_convolution(graph, ZONAL__NODE_IMAGES, weight, small ? 1 : 2);
    if (small)
        b->x = zonal__graph_norm(graph, b->x, norm, ZONAL__ACTIVATION_RELU, ZONAL__NODE_NONE);
    else
        b->x = zonal__graph_norm_pool(graph, b->x, norm, ZONAL__ACTIVATION_RELU, 3, 2);
}

/* One convolution of a block's branch, and where its norm begins in the table. */
typedef struct unit {
    int kernel, stride, out;
    int weight, norm;
} unit;

static void declare_unit(builder *b, const char *block, int number, int in, unit *u) {
    char name[48];
    snprintf(name, sizeof name, "%s.conv%d", block, number);
    u->weight = zonal__graph_declare_convolution(b->graph, name, in, u->out, u->kernel);
    snprintf(name, sizeof name, "%s.bn%d", block, number);
    u->norm = zonal__graph_declare_norm(b->graph, name, u->out);
}

/* What is added to the branch: the block's input, through a 1 x 1 convolution where the shape
 * changes. */
static int build_shortcut(builder *b, const char *block, int stride, int out) {
    int in = zonal__graph_channels(b->graph, b->x), weight, norm, x;
    char name[48];
    if (stride == 1 && in == out) return b->x;
    snprintf(name, sizeof name, "%s.downsample.0", block);
    weight = zonal__graph_declare_convolution(b->graph, name, in, out, 1);
    snprintf(name, sizeof name, "%s.downsample.1", block);
    norm = zonal__graph_declare_norm(b->graph, name, out);
    x = zonal__graph_convolution(b->graph, b->x, weight, stride);
    return zonal__graph_norm(b->graph, x, norm, ZONAL__ACTIVATION_NONE, ZONAL__NODE_NONE);
}

static void build_block(builder *b, const char *block, int channels, int stride) {
    unit basic[] = {{.kernel = 3, .stride = stride, .out = channels},
                    {.kernel = 3, .stride = 1, .out = channels}};
    unit bottleneck[] = {{.kernel = 1, .stride = 1, .out = channels},
                         {.kernel = 3, .stride = stride, .out = channels},
                         {.kernel = 1, .stride = 1, .out = 4 * channels}};
    int deep = b->spec->depth == 50, count = deep ? 3 : 2, x = b->x;
    unit *units = deep ? bottleneck : basic, *last = &units[count - 1];
    for (int i = 0; i < count; i++)
        declare_unit(b, block, i + 1, i ? units[i - 1].out : zonal__graph_channels(b->graph, b->x),
                     &units[i]);
    for (int i = 0; i < count; i++) {
        int residual = ZONAL__NODE_NONE;
        x = zonal__graph_convolution(b->graph, x, units[i].weight, units[i].stride);
        if (&units[i] == last) residual = build_shortcut(b, block, stride, last->out);
        x = zonal__graph_norm(b->graph, x, units[i].norm, ZONAL__ACTIVATION_RELU, residual);
    }
    b->x = x;
}

static void build_groups(builder *b) {
    static const int blocks_18[4] = {2, 2, 2, 2}, blocks_34_50[4] = {3, 4, 6, 3};
    const int *blocks = b->spec->depth == 18 ? blocks_18 : blocks_34_50;
    for (int group = 0; group < 4; group++)
        for (int i = 0; i < blocks[group]; i++) {
            char block[32];
            snprintf(block, sizeof block, "layer%d.%d", group + 1, i);
            build_block(b, block, scaled(b->spec, 64 << group), group && i == 0 ? 2 : 1);
        }
}

/* ---- the projector --------------------------------------------------------------------------- */

static void build_hidden_end(builder *b, int *number, int width) {
    zonal__activation activation = b->spec->projector_activation;
    char name[24];
    if (b->spec->projector_norm) {
        snprintf(name, sizeof name, "projector.%d", (*number)++);
        b->x = zonal__graph_norm(b->graph, b->x, zonal__graph_declare_norm(b->graph, name, width),
                                 activation, ZONAL__NODE_NONE);
    } else {
        b->x = zonal__graph_activation(b->graph, b->x, activation);
    }
    (*number)++; /* the activation's own place in the Sequential */
}

static void build_projector(builder *b) {
    int number = 0;
    for (int i = 0; i < b->spec->projector_layers; i++) {
        int is_last = i + 1 == b->spec->projector_layers, width = b->spec->projector_width[i];
        int bias = is_last ? b->spec->projector_last_bias : !b->spec->projector_norm;
        char name[24];
        snprintf(name, sizeof name, "projector.%d", number++);
        b->x = zonal__graph_linear(
            b->graph, b->x,
            zonal__graph_declare_linear(b->graph, name, zonal__graph_channels(b->graph, b->x),
                                        width, bias));
        if (!is_last) build_hidden_end(b, &number, width);
    }
}

zonal_status zonal__network_build(const zonal__network_spec *spec, zonal__graph *graph) {
    builder b = {.spec = spec, .graph = graph};
    ZONAL_TRY(check_encoder(spec));
    ZONAL_TRY(check_projector(spec));
    graph->channels = spec->channels;
    build_stem(&b);
    build_groups(&b);
    graph->features = b.x = zonal__graph_mean_pool(graph, b.x);
    graph->feature_dim = zonal__graph_channels(graph, b.x);
    build_projector(&b);
    graph->projections = b.x;
    graph->projection_dim = zonal__graph_channels(graph, b.x);
    return ZONAL_OK;
}
