/*
 * One product of a convolution or linear layer on one shape, by whichever way was measured to be
 * the fastest:
 *
 *     FORWARD   y = x * weight
 *     DATA      dx from dy and weight
 *     FILTER    dweight from x and dy
 *
 * A linear layer is a convolution of 1 x 1 images with a 1 x 1 kernel. Three ways compete, each a
 * table of its own: cuDNN's engines (nn_cudnn.cu), matrix products of cuBLASLt for 1 x 1 kernels of
 * stride 1 (nn_product.cu) and own plain loops (nn_direct.cu), taken only where the others have
 * nothing. What is the same in every run is all that may be chosen: ways that add in a changing
 * order are left out, and so are, in fp32, those that multiply less than fp32.
 *
 * A way tells its contenders as texts, from which each can be built again. The fastest one's text
 * is kept in the process's autotuning cache (nn_libraries.cuh): a shape is measured once a process,
 * and not at all where the table came from a file.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_PLAN_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_PLAN_CUH

#include "backend/cuda/common.cuh"

extern "C" {
#include "backend/training/autotune_cache.h"
}

typedef enum zonal__direction {
    ZONAL__FORWARD = 0,
    ZONAL__DATA = 1,
    ZONAL__FILTER = 2
} zonal__direction;

typedef struct zonal__plan_shape {
    zonal__direction direction;
    zonal_dtype dtype;     /* of what is read */
    zonal_dtype out_dtype; /* of what is written: dtype or fp32 */
    int64_t n;
    int h, w, c;             /* of x: [n][h][w][c] */
    int out_h, out_w, k;     /* of y: [n][out_h][out_w][k] */
    int kernel, stride, pad; /* weight: [k][kernel][kernel][c] */
} zonal__plan_shape;

/* x, weight and y, or their gradients: the direction says which one is written. */
typedef struct zonal__plan_arrays {
    const void *x, *weight, *y;
    void *workspace; /* zonal__plan_workspace bytes, aligned to ZONAL__PLAN_ALIGNMENT */
    int accumulate;  /* FILTER: add to what is there */
} zonal__plan_arrays;

enum {
    ZONAL__PLAN_ALIGNMENT = 256,
    ZONAL__PLAN_CONTENDERS = 40,    /* at most, of all ways */
    ZONAL__PLAN_WORKSPACE = 1 << 28 /* bytes at most: an engine that needs more is left out */
};

/* Texts, most promising first. */
typedef struct zonal__contenders {
    int count;
    char text[ZONAL__PLAN_CONTENDERS][ZONAL__AUTOTUNE_TEXT];
} zonal__contenders;

typedef struct zonal__way {
    const char *name; /* what its texts begin with, followed by a blank or the end */
    /* Adds its contenders, none for a shape it cannot do. */
    zonal_status (*list)(const zonal__plan_shape *shape, zonal__contenders *contenders);
    /* "text" may come from a file: anything but what "list" could have said is refused. *out is
     * NULL on failure. */
    zonal_status (*create)(const zonal__plan_shape *shape, const char *text, void **out);
    void (*destroy)(void *object);
    size_t (*workspace)(const void *object);
    zonal_status (*run)(void *object, cudaStream_t stream, const zonal__plan_arrays *arrays);
} zonal__way;

typedef struct zonal__plan zonal__plan;

extern "C" {
extern const zonal__way zonal__way_cudnn, zonal__way_product, zonal__way_direct;

/* Measures, or takes the entry that is known. *out is NULL on failure: ZONAL_MEMORY where the
 * arrays of the shape do not fit on the device. */
zonal_status zonal__plan_create(const zonal__plan_shape *shape, zonal__plan **out);
void zonal__plan_destroy(zonal__plan *plan); /* accepts NULL */
size_t zonal__plan_workspace(const zonal__plan *plan);
/* Only puts work on the stream. */
zonal_status zonal__plan_run(zonal__plan *plan, cudaStream_t stream,
                             const zonal__plan_arrays *arrays);

/* ---- for the ways ---------------------------------------------------------------------------- */

/* Elements of x, weight, y (0, 1, 2), and which of them is written. */
int64_t zonal__plan_elements(const zonal__plan_shape *shape, int which);
int zonal__plan_output(const zonal__plan_shape *shape);
/* The shape as the key of the table and for error sentences. */
void zonal__plan_describe(const zonal__plan_shape *shape, char out[ZONAL__AUTOTUNE_KEY]);
/* The next free text; NULL when there is no room. */
char *zonal__contenders_next(zonal__contenders *contenders);
}

inline size_t zonal__plan_round_up(size_t bytes) {
    return (bytes + ZONAL__PLAN_ALIGNMENT - 1) / ZONAL__PLAN_ALIGNMENT * ZONAL__PLAN_ALIGNMENT;
}

#endif
