/*
 * Convolution and linear layers as one object, shared by the files that compute its three products:
 * nn_product.c (y, dx) and nn_gradient.c (dweight, dbias).
 */
#ifndef ZONAL_BACKEND_CPU_NN_PRODUCT_H
#define ZONAL_BACKEND_CPU_NN_PRODUCT_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/nn_layer.h"
#include "backend/cpu/nn_patches.h"

/* Products that a run is cut into at least, where the shape has so many: room for as many threads.
 */
enum { ZONAL__PRODUCT_TURNS = 16 };

/* How the products are computed. */
typedef enum zonal__product_way {
    ZONAL__WAY_PLAIN, /* fp32 by kernels.h; bf16 is widened */
    ZONAL__WAY_AMX    /* bf16 by tiles */
} zonal__product_way;

/* How the gradient of the weights is cut into turns: (part of the pixels, group of patch lines,
 * block of output channels). */
typedef struct zonal__gradient_plan {
    int lines, groups;        /* patch lines of a group */
    int64_t cols, col_blocks; /* output channels of a turn */
    int64_t rows;             /* pixels gathered at a time */
    int64_t parts, part_rows;
    float *sums; /* [parts][weight], where there is more than one part */
} zonal__gradient_plan;

/* The scratch of one thread. */
typedef struct zonal__product_scratch {
    void *patches;  /* gathered rows */
    void *gradient; /* rows of dy */
    float *result;  /* what is not written where it belongs at once */
} zonal__product_scratch;

typedef struct zonal__product_layer {
    zonal__layer base;
    zonal__product_way way;
    const zonal__cpu_kernels *kernels;
    zonal__patches forward, back; /* y from x; dx from dy */
    void *packed;                 /* the weights as the product of one grid wants them */
    zonal__gradient_plan gradient;
    zonal__product_scratch *scratch; /* [threads] */
} zonal__product_layer;

/* Bytes of each part of a thread's scratch. */
typedef struct zonal__product_bytes {
    size_t patches, gradient, result;
} zonal__product_bytes;

static inline int64_t zonal__least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t zonal__most(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static inline int64_t zonal__ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

zonal_status zonal__gradient_prepare(zonal__product_layer *layer, zonal__product_bytes *bytes);
void zonal__gradient_run(zonal__product_layer *layer, const zonal__layer_arrays *arrays);

/* For tests: layers created from now on use at most this way. Returns the way that this build and
 * machine then give to bf16. Not thread-safe. */
zonal__product_way zonal__product_limit(zonal__product_way way);

#endif
