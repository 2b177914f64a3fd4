/*
 * What the kernels that make views share: their arguments, pixels, and how an element is written.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_VIEWS_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_VIEWS_CUH

#include "backend/cuda/common.cuh"
#include "backend/cuda/training/views_launch.h"
#include "backend/cuda/unit_rows.cuh"

extern "C" {
#include "backend/training/views.h"
}

typedef struct views_args {
    zonal__views_shape shape;
    float scale[3], shift[3]; /* (x - mean)/std = scale x + shift */
    const uint8_t *base;
    const zonal__image_place *images;
    const zonal__view *views; /* the first of this launch, as out */
    void *out;                /* [at_once][height][width][channels] */
    uint16_t *kept;           /* [at_once][channels][height][width]: views between two kernels */
    double *grey_sums;        /* [at_once][tiles] */
} views_args;

/* One pixel: C = 1 or 3 channels on [0, 1]. */
template <int C> struct pixel { float x[C]; };

template <int C> __device__ inline float grey_of(const pixel<C> &p) {
    if constexpr (C == 1)
        return p.x[0];
    else
        return 0.2989f * p.x[0] + 0.587f * p.x[1] + 0.114f * p.x[2];
}

/* Grey repeats, RGB becomes grey. */
template <int C, int S> __device__ inline pixel<C> to_channels(const pixel<S> &p) {
    pixel<C> q;
#pragma unroll
    for (int c = 0; c < C; c++) q.x[c] = C == S ? p.x[c < S ? c : 0] : grey_of(p);
    return q;
}

/* The tile of this block: its view, counted from the first of the launch, and first pixel. */
typedef struct tile_place {
    int view, left, top;
} tile_place;

__device__ inline tile_place find_tile(const zonal__views_shape &shape) {
    int view = (int)blockIdx.x / shape.tiles, tile = (int)blockIdx.x % shape.tiles;
    return tile_place{view, tile % shape.tiles_across * ZONAL__VIEWS_TILE,
                      tile / shape.tiles_across * ZONAL__VIEWS_TILE};
}

/* The first element of a view in the output. */
template <typename Out> __device__ inline Out *view_out(const views_args &args, int view) {
    return (Out *)args.out + view * args.shape.elements;
}

#endif
