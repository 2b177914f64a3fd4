/*
 * What the layers on CUDA share. A kind of layer is a table of its own, one file each; nn.cu puts
 * them together. A layer of any kind begins with a zonal__layer.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_CUH

#include "backend/cuda/common.cuh"

extern "C" {
#include "backend/training/nn.h"
}

typedef struct zonal__cuda_layer_kind {
    /* "layer" is zeroed memory of "bytes", whose head nn.cu has filled. On failure destroy is
     * called. */
    size_t bytes;
    zonal_status (*create)(zonal__layer *layer);
    void (*destroy)(zonal__layer *layer); /* all but the memory of the layer itself */
    size_t (*saved_bytes)(const zonal__layer *layer);
    size_t (*scratch_bytes)(const zonal__layer *layer);
    zonal_status (*forward)(zonal__layer *layer, const zonal__layer_arrays *arrays, int training);
    zonal_status (*backward)(zonal__layer *layer, const zonal__layer_arrays *arrays);
} zonal__cuda_layer_kind;

struct zonal__layer {
    zonal__layer_spec spec;
    int out_h, out_w, out_channels;
    const zonal__cuda_layer_kind *kind;
    cudaStream_t stream;
};

extern const zonal__cuda_layer_kind zonal__cuda_convolution, zonal__cuda_linear, zonal__cuda_norm,
    zonal__cuda_activation, zonal__cuda_max_pool, zonal__cuda_mean_pool, zonal__cuda_norm_pool,
    zonal__cuda_product_norm;

#endif
