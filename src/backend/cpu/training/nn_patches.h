/*
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
#ifndef ZONAL_BACKEND_CPU_TRAINING_NN_PATCHES_H
#define ZONAL_BACKEND_CPU_TRAINING_NN_PATCHES_H

#include "backend/cpu/training/nn_layer.h"

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

#endif
