/*
 * How views are cut into blocks, which source pixels a view's pixel averages, and how borders
 * mirror: arithmetic alone, plain C, so that it is tested without a GPU. The kernels (views_*.cuh)
 * read the shape and call the same functions.
 *
 * A view is cut into tiles of 32 x 32 pixels, one block each. The blur cuts it anew, channel by
 * channel, into tiles of even sizes up to 64 x 64, which are a better bargain there: a block also
 * reads "radius" pixels beyond each side of its tile.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_VIEWS_LAUNCH_H
#define ZONAL_BACKEND_CUDA_TRAINING_VIEWS_LAUNCH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ZONAL__VIEWS_LAUNCH __host__ __device__ static inline
#else
#define ZONAL__VIEWS_LAUNCH static inline
#endif

enum {
    ZONAL__VIEWS_THREADS = 256,
    ZONAL__VIEWS_WARPS = 8,
    ZONAL__VIEWS_TILE = 32,
    ZONAL__VIEWS_BLUR_TILE = 64, /* at most */
    ZONAL__VIEWS_BLUR_RUN = 8,   /* neighbouring results of a thread, which share what it reads */
    ZONAL__VIEWS_MOST_TAPS = 127,
    ZONAL__VIEWS_SHARED = 227 * 1024 /* bytes a block may have */
};

/* Bytes for the views between two kernels; more views than fit go in several launches. */
static const int64_t ZONAL__VIEWS_SCRATCH = (int64_t)256 << 20;

typedef struct zonal__views_shape {
    int width, height, channels;
    int tiles_across, tiles; /* of a view */
    int64_t elements;        /* of a view */
    int64_t at_once;         /* views of one launch */
    /* The blur; radius 0: there is none. */
    int radius;
    int blur_width, blur_height; /* of a tile: multiples of ZONAL__VIEWS_BLUR_RUN */
    int blur_across, blur_tiles; /* of one channel of a view */
    int wide_pitch, thin_pitch;  /* floats from row to row in shared memory: odd */
    int blur_shared;             /* bytes */
} zonal__views_shape;

/* ---- in kernels too -------------------------------------------------------------------------- */

/* The source pixels low <= k < high of a side's pixel, weighted by a triangle about its centre that
 * reaches one pixel of the source or of the view, whichever is larger. */
typedef struct zonal__views_taps {
    int low, high;
    float centre, inverse_reach;
} zonal__views_taps;

/* Pixel "to_index" of a side of "to" pixels made of "from". At least one weight is 1/2 or more. */
ZONAL__VIEWS_LAUNCH zonal__views_taps zonal__views_find_taps(int to_index, int from, int to) {
    float scale = (float)from / (float)to, reach = scale > 1 ? scale : 1;
    zonal__views_taps taps;
    taps.centre = ((float)to_index + 0.5f) * scale;
    taps.inverse_reach = 1 / reach;
    taps.low = (int)(taps.centre - reach + 0.5f);
    taps.high = (int)(taps.centre + reach + 0.5f);
    taps.low = taps.low < 0 ? 0 : taps.low;
    taps.high = taps.high > from ? from : taps.high;
    return taps;
}

/* The weights of a pixel are these over their sum. */
ZONAL__VIEWS_LAUNCH float zonal__views_weight(const zonal__views_taps *taps, int k) {
    return fmaxf(0, 1 - fabsf((float)k + 0.5f - taps->centre) * taps->inverse_reach);
}

/* Where the blur reads for place i of a side: mirrored at the first and last pixel. Places that
 * only the part of a tile beyond the view asks for (further out than radius < side) lead to some
 * pixel inside. */
ZONAL__VIEWS_LAUNCH int zonal__views_mirror(int i, int side) {
    i = i < 0 ? -i : i;
    i = i >= side ? 2 * (side - 1) - i : i;
    return i < 0 ? 0 : i;
}

/* The first pixel of pair number "pair" of a row. Noise comes in pairs of normal numbers, so the
 * pairs count on through the view: where an odd number of pixels lies before the row, its first
 * pair begins at -1, in the row before. */
ZONAL__VIEWS_LAUNCH int zonal__views_pair_start(int pair, int row, int width) {
    return 2 * pair - (row & width & 1);
}

/* ---- the shape ------------------------------------------------------------------------------ */

static inline int zonal__views_ceil(int a, int b) {
    return (a + b - 1) / b;
}

/* The side of the blur's tiles: even shares, in whole runs. */
static inline int zonal__views_blur_tile(int side) {
    int share = zonal__views_ceil(side, zonal__views_ceil(side, ZONAL__VIEWS_BLUR_TILE));
    return zonal__views_ceil(share, ZONAL__VIEWS_BLUR_RUN) * ZONAL__VIEWS_BLUR_RUN;
}

static inline void zonal__views_shape_blur(int taps, zonal__views_shape *shape) {
    int rows;
    shape->radius = taps / 2;
    shape->blur_width = zonal__views_blur_tile(shape->width);
    shape->blur_height = zonal__views_blur_tile(shape->height);
    shape->blur_across = zonal__views_ceil(shape->width, shape->blur_width);
    shape->blur_tiles = shape->blur_across * zonal__views_ceil(shape->height, shape->blur_height);
    /* Odd, so that 32 rows in turn begin in different banks. */
    shape->wide_pitch = (shape->blur_width + 2 * shape->radius) | 1;
    shape->thin_pitch = shape->blur_width | 1;
    rows = shape->blur_height + 2 * shape->radius;
    shape->blur_shared =
        (rows * (shape->wide_pitch + shape->thin_pitch) + taps) * (int)sizeof(float);
}

/* Sides from 1 to 32768, channels 1 or 3, count at least 1; taps odd and at most
 * ZONAL__VIEWS_MOST_TAPS, or 0. keeps: whether views wait in scratch memory between kernels. */
static inline void zonal__views_shape_make(int width, int height, int channels, int64_t count,
                                           int taps, int keeps, zonal__views_shape *shape) {
    int64_t by_grid, by_scratch, blocks;
    shape->width = width;
    shape->height = height;
    shape->channels = channels;
    shape->tiles_across = zonal__views_ceil(width, ZONAL__VIEWS_TILE);
    shape->tiles = shape->tiles_across * zonal__views_ceil(height, ZONAL__VIEWS_TILE);
    shape->elements = (int64_t)width * height * channels;
    zonal__views_shape_blur(taps, shape);
    blocks = shape->blur_tiles * channels;
    blocks = blocks > shape->tiles ? blocks : shape->tiles;
    by_grid = INT32_MAX / blocks;
    by_scratch = ZONAL__VIEWS_SCRATCH / (shape->elements * (int64_t)sizeof(uint16_t));
    shape->at_once = count < by_grid ? count : by_grid;
    if (keeps && shape->at_once > by_scratch) shape->at_once = by_scratch > 1 ? by_scratch : 1;
}

#endif
