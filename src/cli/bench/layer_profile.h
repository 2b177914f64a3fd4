/*
 * Where the time of a step goes: the layers of a network, each timed by itself, forward and
 * backward, beside the least that its arithmetic and its memory traffic would take.
 *
 * Layers alike (same sizes, same arrays) are measured once and counted. By itself a layer may find
 * its arrays in the cache, where they fit, and so be faster than inside of a step.
 */
#ifndef ZONAL_CLI_BENCH_LAYER_PROFILE_H
#define ZONAL_CLI_BENCH_LAYER_PROFILE_H

#include "nn/resnet.h"

/* Convolutions and linear layers go back in two parts, to their input (DATA) and to their weights
 * (FILTER); the time of DATA is that of both less FILTER's alone. All of another layer's backward
 * is DATA. */
typedef enum zonal__layer_part {
    ZONAL__PART_FORWARD = 0,
    ZONAL__PART_DATA = 1,
    ZONAL__PART_FILTER = 2,
    ZONAL__PARTS = 3
} zonal__layer_part;

/* What a piece of work takes, and what it consists of. */
typedef struct zonal__work_cost {
    double ms;
    double flop;  /* products and sums of convolutions and linear layers; 0 for others */
    double bytes; /* every array that it reads or writes, once; 0: not counted */
} zonal__work_cost;

/* A layer, or several that are alike. */
typedef struct zonal__layer_profile {
    zonal__layer_spec spec;
    int layers;                          /* how many */
    int from_images;                     /* 1: it has no gradient to give back */
    int two_gradients;                   /* 1: its output is read twice */
    zonal__work_cost part[ZONAL__PARTS]; /* of one layer */
} zonal__layer_profile;

typedef struct zonal__profile_options {
    zonal__network_spec network;
    const zonal__device *device; /* NULL: the CPU */
    int64_t n;                   /* images that go through at a time */
    int side;
    int threads; /* host; 0: all there are */
} zonal__profile_options;

/* Fills profile [ZONAL__MOST_NODES] in the order of the network and sets *count. */
zonal_status zonal__profile_layers(const zonal__profile_options *options,
                                   zonal__layer_profile *profile, int *count);

#endif
