/*
 * Residual networks (He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR
 * 2016) with torchvision's layers and names, and a projector behind them:
 *
 *     stem -> 4 groups of blocks -> mean over the pixels = features -> projector = projections
 *
 * depth 18, 34: basic blocks, 512 features; 50: bottlenecks with the stride on the 3 x 3, 2048
 * features; both times the width. There is no fc layer. The projector is PyTorch's Sequential of
 *
 *     Linear, BatchNorm1d, activation, ..., Linear           or, without norm,
 *     Linear, activation, ..., Linear
 *
 * named "projector.0.weight" and so on. A linear layer has a bias unless a batch norm follows,
 * which would take it out again; the last one as the spec says.
 */
#ifndef ZONAL_NN_RESNET_H
#define ZONAL_NN_RESNET_H

#include "backend/training/nn.h"

/* ---- graphs -----------------------------------------------------------------------------------
 * What a network is, whatever the device and the size of its images: a table of what it has
 * learnt, with PyTorch's names and shapes, and its layers in the order in which they are computed.
 *
 *     weight = zonal__graph_declare_convolution(graph, "conv1", 3, 64, 7);
 *     norm = zonal__graph_declare_norm(graph, "bn1", 64);
 *     x = zonal__graph_convolution(graph, ZONAL__NODE_IMAGES, weight, 2);
 *     x = zonal__graph_norm(graph, x, norm, ZONAL__ACTIVATION_RELU, ZONAL__NODE_NONE);
 *
 * Declaring and using are apart, because a state_dict lists the last batch norm of a block before
 * the shortcut that must be computed before it.
 *
 * An output is read by at most two nodes, and by two only if it comes from a NORM or NORM_POOL:
 * these take two gradients (backend/training/nn.h).
 */

typedef enum zonal__entry_kind {
    ZONAL__ENTRY_WEIGHT = 0, /* of a convolution or linear layer */
    ZONAL__ENTRY_SCALE = 1,  /* of a batch norm */
    ZONAL__ENTRY_BIAS = 2,   /* of a batch norm or linear layer */
    ZONAL__ENTRY_RUNNING_MEAN = 3,
    ZONAL__ENTRY_RUNNING_VARIANCE = 4,
    ZONAL__ENTRY_BATCHES = 5 /* num_batches_tracked: an int64, in no block */
} zonal__entry_kind;

enum {
    /* ResNet-50's; each has a weight and a batch norm's five entries, projector layers a bias too.
     */
    ZONAL__MOST_CONVOLUTIONS = 53,
    ZONAL__MOST_PROJECTOR_LAYERS = 8,
    ZONAL__MOST_ENTRIES = 6 * ZONAL__MOST_CONVOLUTIONS + 7 * ZONAL__MOST_PROJECTOR_LAYERS,
    ZONAL__MOST_NODES = 2 * ZONAL__MOST_CONVOLUTIONS + 1 + 3 * ZONAL__MOST_PROJECTOR_LAYERS,
    /* Entries begin at multiples of this many elements: 64 bytes, in bf16 as well. */
    ZONAL__ENTRY_ALIGNMENT = 32
};

/* One line of the table. Shapes are PyTorch's; in our blocks a convolution's weight lies as
 * [out][kernel][kernel][in] and everything else as in PyTorch. */
typedef struct zonal__entry {
    char name[80]; /* "layer1.0.conv1.weight" */
    zonal__entry_kind kind;
    int rank; /* 4 convolution [out][in][kernel][kernel], 2 linear [out][in], 1, 0 BATCHES */
    int64_t shape[4]; /* 1 beyond the rank */
    int64_t offset;   /* in the block of parameters, or of statistics for the RUNNING kinds */
    int64_t count;
    int64_t fan_in; /* inputs of one output of its convolution or linear layer; 0 for norms */
} zonal__entry;

enum { ZONAL__NODE_IMAGES = -1, ZONAL__NODE_NONE = -2 };

/* One layer. A node's number stands for its output as well. */
typedef struct zonal__node {
    zonal__layer_spec layer; /* without n, h, w and what depends on the device */
    int x;                   /* the node whose output it reads, or ZONAL__NODE_IMAGES */
    int residual;            /* norm: the node whose output is added, or ZONAL__NODE_NONE */
    int entry; /* its first entry; convolution and linear: weight (, bias); norms: scale, bias,
                  running mean, running variance, batches */
} zonal__node;

typedef struct zonal__graph {
    zonal__entry entries[ZONAL__MOST_ENTRIES]; /* in the order of PyTorch's state_dict */
    zonal__node nodes[ZONAL__MOST_NODES];
    int entry_count, node_count;
    int64_t parameter_size, statistic_size; /* elements of the blocks, gaps included */
    int channels;                           /* of the images */
    int features, projections;              /* nodes; the same one without a projector */
    int feature_dim, projection_dim;
} zonal__graph;

/* 1 for what is trained, 0 for what is only kept (statistics). */
static inline int zonal__entry_is_trained(const zonal__entry *entry) {
    return entry->kind <= ZONAL__ENTRY_BIAS;
}

/* Each adds its lines to the table, named "name" + ".weight" and so on, and returns the first. */
int zonal__graph_declare_convolution(zonal__graph *graph, const char *name, int in, int out,
                                     int kernel);
int zonal__graph_declare_linear(zonal__graph *graph, const char *name, int in, int out, int bias);
int zonal__graph_declare_norm(zonal__graph *graph, const char *name, int channels);

/* Each adds a node that reads the output of node "x" and returns its number. Convolutions and norm
 * pools of an odd kernel are padded by half of it, so that stride 1 keeps the size. */
int zonal__graph_convolution(zonal__graph *graph, int x, int entry, int stride);
int zonal__graph_linear(zonal__graph *graph, int x, int entry);
int zonal__graph_norm(zonal__graph *graph, int x, int entry, zonal__activation activation,
                      int residual);
int zonal__graph_activation(zonal__graph *graph, int x, zonal__activation activation);
int zonal__graph_norm_pool(zonal__graph *graph, int x, int entry, zonal__activation activation,
                           int kernel, int stride);
int zonal__graph_mean_pool(zonal__graph *graph, int x);

/* The channels of a node's output. */
int zonal__graph_channels(const zonal__graph *graph, int node);

/* Between our layout and PyTorch's. "block" is a whole block, of parameters or of anything laid out
 * like it (gradients, an optimiser's state), or of statistics for the RUNNING kinds; "torch" holds
 * entry->count elements. Not for BATCHES, which lies in no block. */
void zonal__entry_export(const zonal__entry *entry, const float *block, float *torch);
void zonal__entry_import(const zonal__entry *entry, const float *torch, float *block);

/* ---- networks -------------------------------------------------------------------------------- */

typedef enum zonal__stem {
    ZONAL__STEM_IMAGENET = 0, /* 7 x 7, stride 2, then a max pool 3 x 3, stride 2 */
    ZONAL__STEM_SMALL = 1     /* 3 x 3, stride 1: for images of up to about 64 pixels */
} zonal__stem;

typedef struct zonal__network_spec {
    int depth; /* 18, 34 or 50 */
    zonal__stem stem;
    int channels; /* of the images: 1 or 3 */
    /* Factor of all channel counts of the encoder, each then rounded to a multiple of 8, at least
     * 8; 1/64 to 8. */
    double width;
    int projector_layers;                              /* 0 (none) to 8 */
    int projector_width[ZONAL__MOST_PROJECTOR_LAYERS]; /* outputs of each linear layer */
    zonal__activation projector_activation;            /* relu or gelu */
    int projector_norm;                                /* 1: with norms */
    int projector_last_bias;                           /* 1: the last linear layer has a bias */
    zonal_dtype dtype; /* of activations and of the weights they meet: fp32 or bf16 */
} zonal__network_spec;

/* ResNet-18, ImageNet's stem, 3 channels, width 1, projector 2048-2048-256 with norms, GELU and a
 * last bias, fp32. */
zonal__network_spec zonal__network_defaults(void);

/* Fills a zeroed graph. ZONAL_ARGUMENT (ZONAL_DTYPE for the dtype) with a sentence for what is no
 * network. */
zonal_status zonal__network_build(const zonal__network_spec *spec, zonal__graph *graph);

#endif
