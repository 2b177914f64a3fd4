/*
 * What the layers of the fast host side share: the object, how a family of kinds is entered in
 * nn.c, and access to elements of either type.
 *
 * A run is cut into turns by the shapes alone, never by the number of threads, each turn is worked
 * by one thread in one order, and sums over turns are made in the order of the turns: the bits are
 * the same for any number of threads.
 */
#ifndef ZONAL_BACKEND_CPU_TRAINING_NN_LAYER_H
#define ZONAL_BACKEND_CPU_TRAINING_NN_LAYER_H

#include "backend/cpu/vector_math.h"
#include "backend/training/nn.h"
#include "core/bf16.h"

typedef struct zonal__cpu_family {
    size_t bytes; /* of the family's own object, which begins with a zonal__layer */
    zonal_status (*prepare)(zonal__layer *layer); /* takes all scratch; NULL: none is needed */
    void (*release)(zonal__layer *layer);         /* what prepare took, all or part of it */
    size_t (*saved)(const zonal__layer *layer);   /* NULL: nothing is saved */
    size_t (*scratch)(const zonal__layer *layer); /* NULL: it keeps its own */
    zonal_status (*forward)(zonal__layer *layer, const zonal__layer_arrays *arrays, int training);
    zonal_status (*backward)(zonal__layer *layer, const zonal__layer_arrays *arrays);
} zonal__cpu_family;

extern const zonal__cpu_family zonal__layers_product; /* convolution, linear */
extern const zonal__cpu_family zonal__layers_norm;
extern const zonal__cpu_family zonal__layers_activation;
extern const zonal__cpu_family zonal__layers_max_pool;
extern const zonal__cpu_family zonal__layers_mean_pool;
extern const zonal__cpu_family zonal__layers_norm_pool;

struct zonal__layer {
    const zonal__cpu_family *family;
    zonal__layer_spec spec; /* defaults filled in; linear with the window of a 1 x 1 convolution */
    int out_h, out_w, out_channels;
    int threads;
};

/* Element i of an array; with a constant "bf16" the choice is made by the compiler. */
ZONAL__INLINE float zonal__load(const void *x, int64_t i, int bf16) {
    return bf16 ? zonal__bf16_to_float(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

ZONAL__INLINE void zonal__store(void *x, int64_t i, int bf16, float value) {
    if (bf16)
        ((uint16_t *)x)[i] = zonal__bf16_from_float(value);
    else
        ((float *)x)[i] = value;
}

static inline int zonal__is_bf16(const zonal__layer *layer) {
    return layer->spec.dtype == ZONAL_DTYPE_BF16;
}

/* Element "at" of an array of the layer's type, as an address. */
static inline const void *zonal__at(const zonal__layer *layer, const void *x, int64_t at) {
    return (const char *)x + at * (zonal__is_bf16(layer) ? 2 : 4);
}

static inline void *zonal__at_mutable(const zonal__layer *layer, void *x, int64_t at) {
    return (char *)x + at * (zonal__is_bf16(layer) ? 2 : 4);
}

#endif
