/*
 * Convolution and linear layers as one object, shared by the files that compute its three products:
 * nn_product.c (y, dx) and nn_gradient.c (dweight, dbias).
 */
#ifndef ZONAL_BACKEND_CPU_TRAINING_NN_PRODUCT_H
#define ZONAL_BACKEND_CPU_TRAINING_NN_PRODUCT_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/training/nn_layer.h"

/* ---- patches ----------------------------------------------------------------------------------
 * Convolutions as matrix products: which elements of the source a pixel of the target is a sum of,
 * and their gathering into rows.
 *
 *     target[pixel m][column] = sum over the patch of m of source element times weight
 *
 * Forward the source is x and the target y. For the gradient with respect to x the source is dy and
 * the target dx: dx[p] sees dy[i] through tap r where p + pad - r = i stride, so the pixels of dx
 * fall into stride^2 grids (p = first + stride i), in each of which every stride-th tap counts, and
 * these lie side by side in dy when the taps are taken from the last to the first. Both are then
 * the same loop: pixel (i, j) of a grid has the patch of source pixels
 *
 *     (move i + top + d, move j + left + e),   d < rows, e < cols,   zero outside,
 *
 * in the order [d][e][channel], and (d, e) meets tap (r + d turn, s + e turn) of the weights.
 */

typedef struct zonal__patch_grid {
    int first_i, first_j; /* pixel (i, j) of the grid is (first_i + step i, ...) of the target */
    int height, width;    /* i < height, j < width */
    int top, left, rows, cols;
    int r, s;
} zonal__patch_grid;

typedef struct zonal__patches {
    int64_t images;
    int source_h, source_w, source_channels;
    int target_h, target_w, target_channels;
    int step, move, turn;
    int grids;
    zonal__patch_grid *grid; /* [grids] */
} zonal__patches;

/* The patches of y in x, and those of dx in dy; *patches is released by zonal__patches_fini. */
zonal_status zonal__patches_forward(const zonal__layer *layer, zonal__patches *patches);
zonal_status zonal__patches_backward(const zonal__layer *layer, zonal__patches *patches);
void zonal__patches_fini(zonal__patches *patches);

/* Pixels of a grid, and elements of one of its patches. */
static inline int64_t zonal__grid_pixels(const zonal__patches *patches,
                                         const zonal__patch_grid *grid) {
    return patches->images * grid->height * grid->width;
}
static inline int64_t zonal__grid_depth(const zonal__patches *patches,
                                        const zonal__patch_grid *grid) {
    return (int64_t)grid->rows * grid->cols * patches->source_channels;
}

/* Where pixel m of a grid begins in the target, in elements. */
int64_t zonal__patch_target(const zonal__patches *patches, const zonal__patch_grid *grid,
                            int64_t m);

/* How elements travel from the source to a patch. */
typedef enum zonal__patch_copy {
    ZONAL__COPY_FP32,
    ZONAL__COPY_BF16,
    ZONAL__WIDEN_BF16 /* bf16 to fp32 */
} zonal__patch_copy;

/* out = lines d0 ... d1 - 1 of the patch of pixel m */
void zonal__patch_gather(const zonal__patches *patches, const zonal__patch_grid *grid,
                         const void *source, zonal__patch_copy copy, int64_t m, int d0, int d1,
                         void *out);

/* ---- layers ---------------------------------------------------------------------------------- */

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
