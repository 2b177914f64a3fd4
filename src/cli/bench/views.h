/*
 * How long views take: a batch of them, drawn by the usual augmentations from images that are
 * already decoded, made over and over. What "zonal bench augment" prints; bench/augment_torch.py
 * measures the same batch in torchvision and Pillow.
 */
#ifndef ZONAL_CLI_BENCH_VIEWS_H
#define ZONAL_CLI_BENCH_VIEWS_H

#include "backend/training/tables.h"

/* Zero asks for the number in brackets. */
typedef struct zonal__view_bench_options {
    int kind;                      /* photographs: both of BYOL's pipelines in turn */
    int64_t count;                 /* views of a batch [512] */
    int side;                      /* of a view [224] */
    int image_width, image_height; /* [photographs 500 x 375, textures 256 x 256] */
    int64_t images;                /* different ones [64] */
    const zonal__device *device;   /* from and to its memory [the CPU] */
    int threads;                   /* host [all there are] */
    zonal_dtype dtype;             /* [fp32 on the host, bf16 on a GPU] */
    uint64_t seed;
} zonal__view_bench_options;

/* Sets *milliseconds to the median time of a batch. */
zonal_status zonal__view_bench(const zonal__view_bench_options *options, double *milliseconds);

#endif
