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

#include "nn/graph.h"

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
