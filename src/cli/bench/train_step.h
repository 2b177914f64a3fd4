/*
 * How long a step of training takes: the trainer itself, over and over, on images of noise that
 * lie in memory. What "zonal bench train" prints; bench/train_torch.py makes the same step in
 * PyTorch.
 *
 * The step: two or more views of each image, a ResNet, projector 2048-2048-256 with
 * batch norm and GELU, AdamW.
 */
#ifndef ZONAL_CLI_BENCH_TRAIN_STEP_H
#define ZONAL_CLI_BENCH_TRAIN_STEP_H

#include "cli/bench/layer_profile.h"

enum { ZONAL__TRAIN_BENCH_MOST_VIEWS = 32 };

typedef struct zonal__train_bench_options {
    int depth, side, channels; /* 1 channel: views of textures; 3: BYOL's of photographs */
    int small_stem;            /* 1: CIFAR's, 3 x 3 without pooling; 0: ImageNet's */
    int views;                 /* of each image */
    double width;
    int64_t batch; /* images */
    zonal_dtype dtype;
    const zonal__device *device;
    int threads;        /* host; 0: all there are */
    const char *method; /* the loss */
    int with_views;     /* 0: the step alone, on views that are there; 1: it makes its views */
    int no_graph;       /* CUDA, 1: launch by launch */
    int probe_classes;  /* of an online probe; 0: none */
} zonal__train_bench_options;

typedef struct zonal__train_bench_result {
    double ms, least_ms; /* of a step: median and least of the windows */
    int64_t steps;       /* that were timed */
    int64_t parameters;  /* that are trained */
    double device_bytes; /* that the trainer holds on the device while it runs, and the libraries'
                            kernels that were loaded for it; NAN on the host */
    double loss;         /* of the last step */
    /* Two parts of the step by themselves; all 0 with_views. */
    zonal__work_cost objective, optimiser;
} zonal__train_bench_result;

zonal_status zonal__train_bench(const zonal__train_bench_options *options,
                                zonal__train_bench_result *result);

/* The network that is timed. */
zonal__network_spec zonal__train_bench_network(const zonal__train_bench_options *options);

#endif
