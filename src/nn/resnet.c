/* Residual networks and their projectors as graphs: resnet.h. */
#include "nn/resnet.h"

#include <math.h>
#include <stdio.h>

enum { MOST_PROJECTOR_WIDTH = 1 << 16 };

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
