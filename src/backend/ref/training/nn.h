/*
 * The reference layers: plain loops over the formulas of backend/training/nn.h, every sum in
 * double, one rounding when a result is stored. One file for each family of kinds; nn.c has the
 * table.
 */
#ifndef ZONAL_BACKEND_REF_TRAINING_NN_H
#define ZONAL_BACKEND_REF_TRAINING_NN_H

#include "backend/training/nn.h"
#include "core/bf16.h"

struct zonal__layer {
    zonal__layer_spec spec; /* defaults filled in; linear with the window of a 1 x 1 convolution */
    int out_h, out_w, out_channels;
    double *sum; /* [2][channels]: backward of a convolution; both ways of a norm */
};

/* Element i of an array of the layer's dtype. */
static inline double zonal__ref_element(const zonal__layer *layer, const void *x, int64_t i) {
    if (layer->spec.dtype == ZONAL_DTYPE_FP32) return (double)((const float *)x)[i];
    return (double)zonal__bf16_to_float(((const uint16_t *)x)[i]);
}

static inline void zonal__ref_store(const zonal__layer *layer, void *x, int64_t i, double value) {
    if (layer->spec.dtype == ZONAL_DTYPE_FP32)
        ((float *)x)[i] = (float)value;
    else
        ((uint16_t *)x)[i] = zonal__bf16_from_float((float)value);
}

/* Where pixel (i, j) of image n begins, in x and in y. */
static inline int64_t zonal__ref_x_at(const zonal__layer *layer, int64_t n, int i, int j) {
    const zonal__layer_spec *spec = &layer->spec;
    return ((n * spec->h + i) * spec->w + j) * spec->channels;
}

static inline int64_t zonal__ref_y_at(const zonal__layer *layer, int64_t n, int i, int j) {
    return ((n * layer->out_h + i) * layer->out_w + j) * layer->out_channels;
}

/* The row or column of the output that sees input p through tap r of its window; -1: none does. */
static inline int zonal__ref_output_of(const zonal__layer_spec *spec, int out_side, int p, int r) {
    int start = p + spec->pad - r;
    if (start < 0 || start % spec->stride != 0) return -1;
    return start / spec->stride < out_side ? start / spec->stride : -1;
}

/* Element i of the gradient that came back to y, by one way or by two. */
static inline double zonal__ref_dy(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                   int64_t i) {
    double dy = zonal__ref_element(layer, arrays->dy, i);
    return arrays->dy_more ? dy + zonal__ref_element(layer, arrays->dy_more, i) : dy;
}

/* A parameter's gradient: stored, or added to what is there. */
static inline void zonal__ref_store_gradient(const zonal__layer_arrays *arrays, float *gradient,
                                             int64_t i, double value) {
    gradient[i] = (float)(arrays->accumulate ? (double)gradient[i] + value : value);
}

/* One layer of each family; what "training" means is said in backend/training/nn.h. "saved" gives
 * the bytes that a training forward leaves to backward. */
zonal_status zonal__ref_convolution(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                    int training);
zonal_status zonal__ref_convolution_back(const zonal__layer *layer,
                                         const zonal__layer_arrays *arrays);

zonal_status zonal__ref_norm(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                             int training);
zonal_status zonal__ref_norm_back(const zonal__layer *layer, const zonal__layer_arrays *arrays);
size_t zonal__ref_norm_saved(const zonal__layer *layer);

zonal_status zonal__ref_activation(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                   int training);
zonal_status zonal__ref_activation_back(const zonal__layer *layer,
                                        const zonal__layer_arrays *arrays);

zonal_status zonal__ref_max_pool(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                 int training);
zonal_status zonal__ref_max_pool_back(const zonal__layer *layer, const zonal__layer_arrays *arrays);
size_t zonal__ref_max_pool_saved(const zonal__layer *layer);

zonal_status zonal__ref_norm_pool(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                  int training);
zonal_status zonal__ref_norm_pool_back(const zonal__layer *layer,
                                       const zonal__layer_arrays *arrays);
size_t zonal__ref_norm_pool_saved(const zonal__layer *layer);
size_t zonal__ref_norm_pool_scratch(const zonal__layer *layer);

zonal_status zonal__ref_mean_pool(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                  int training);
zonal_status zonal__ref_mean_pool_back(const zonal__layer *layer,
                                       const zonal__layer_arrays *arrays);

#endif
