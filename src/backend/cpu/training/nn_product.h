/*
 * Convolution and linear layers as one object, shared by the files that compute its three products:
 * nn_product.c (y, dx) and nn_gradient.c (dweight, dbias).
 */
#ifndef ZONAL_BACKEND_CPU_TRAINING_NN_PRODUCT_H
#define ZONAL_BACKEND_CPU_TRAINING_NN_PRODUCT_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/training/nn_layer.h"
#include "backend/cpu/training/nn_patches.h"

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
} zonal__gradient_plan;

/* The scratch of one thread, cut from that of the run. */
typedef struct zonal__product_scratch {
    void *patches;  /* gathered rows */
    void *gradient; /* rows of dy */
    float *result;  /* what is not written where it belongs at once */
} zonal__product_scratch;

/* Bytes of each part of the scratch, multiples of 64. */
typedef struct zonal__product_bytes {
    size_t packed, sums;              /* of a run */
    size_t patches, gradient, result; /* of each thread */
} zonal__product_bytes;

typedef struct zonal__product_layer {
    zonal__layer base;
    zonal__product_way way;
    const zonal__cpu_kernels *kernels;
    zonal__patches forward, back; /* y from x; dx from dy */
    zonal__gradient_plan gradient;
    zonal__product_bytes bytes;
    /* of the run in progress, cut from the scratch that the network's layers share: */
    void *packed;  /* the weights as the product of one grid wants them */
    float *sums;   /* [parts][weight] of the gradient, where there is more than one part */
    char *threads; /* [threads][patches, gradient, result] */
} zonal__product_layer;

/* Raises *bytes, and keeps it a multiple of 64. */
static inline void zonal__want_bytes(size_t *bytes, int64_t a, int64_t b, size_t size) {
    size_t wanted = ((size_t)a * (size_t)b * size + 63) / 64 * 64;
    if (*bytes < wanted) *bytes = wanted;
}

static inline int64_t zonal__least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t zonal__most(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static inline int64_t zonal__ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

zonal__product_scratch zonal__product_scratch_of(const zonal__product_layer *layer, int thread);

/* Plans the gradient, raises layer->bytes to what it needs and returns its number of turns. */
int64_t zonal__gradient_prepare(zonal__product_layer *layer);
void zonal__gradient_run(zonal__product_layer *layer, const zonal__layer_arrays *arrays);

/* For tests: layers created from now on use at most this way. Returns the way that this build and
 * machine then give to bf16. Not thread-safe. */
zonal__product_way zonal__product_limit(zonal__product_way way);

#endif
