/*
 * The 7 x 7 convolution of stride 2 and pad 3 on images of 1 or 3 channels, as own kernels on
 * tensor cores compute it (nn_stem_forward.cu, nn_stem_filter.cu): how the work is cut into tiles
 * and where each number of a product lies. Index arithmetic alone, plain C, so that it is tested
 * without a GPU.
 *
 * One row of the window of output (i, j) is 7 pixels from column 2j - 3 on: 7 channels numbers, one
 * after the other as the image has them. It is widened by the pixel before it, to 8 pixels from
 * the even column 2j - 4 on. So it has 8 channels numbers, which are whole eighths of a product's
 * inner side, and begins at an even place, from where two bf16 numbers are one load of 4 bytes. The
 * products with that pixel do not count: its weight is 0, and forward clears the pixel itself too,
 * since it may be NaN.
 *
 * A tile is a part of an output row, "groups" times 16 columns, or that of several rows. It reads a
 * patch of the image whose rows begin ZONAL__STEM_LEFT pixels before column 2j of the tile's
 * first output j: a multiple of 8 pixels, hence of 16 bytes where w is one too. Outside the image
 * a patch is 0.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_STEM_WINDOW_H
#define ZONAL_BACKEND_CUDA_TRAINING_NN_STEM_WINDOW_H

#include <stdint.h>

#include "backend/cuda/training/nn_stem.h"

enum {
    ZONAL__STEM_SIDE = 7,    /* of the window */
    ZONAL__STEM_WIDENED = 8, /* pixels in a widened row of it */
    ZONAL__STEM_GROUPS =
        7,                /* at most, of 16 columns, in a tile: 112 columns, those of 224 pixels */
    ZONAL__STEM_LEFT = 8, /* pixels of a patch's row before column 2j */
    ZONAL__STEM_PATCH = 32 * ZONAL__STEM_GROUPS + 16, /* pixels of a patch's row */
    ZONAL__STEM_CHANNELS = 64,                        /* outputs of one block of threads */
    ZONAL__STEM_FORWARD_ROWS = 4,                     /* output rows of a tile; the gradient's: 1 */
    ZONAL__STEM_FILTER_THREADS = 128
};

typedef struct zonal__stem_window {
    int64_t n;
    int h, w, channels, out_h, out_w, out_channels;
    int across, groups; /* tiles beside each other; groups of 16 columns in each, the last fewer */
} zonal__stem_window;

/* Where a tile lies: its image and first output. */
typedef struct zonal__stem_tile {
    int64_t n;
    int i, j;
} zonal__stem_tile;

ZONAL__STEM int64_t zonal__stem_tiles(const zonal__stem_window *window, int rows) {
    return window->n * ((window->out_h + rows - 1) / rows) * window->across;
}

/* Whether the kernels do a convolution of these sizes; *window is then filled. */
ZONAL__STEM int zonal__stem_window_make(int64_t n, int h, int w, int channels, int out_channels,
                                        int kernel, int stride, int pad,
                                        zonal__stem_window *window) {
    if (kernel != ZONAL__STEM_SIDE || stride != 2 || pad != 3) return 0;
    if ((channels != 1 && channels != 3) || out_channels % 8 != 0) return 0;
    window->n = n;
    window->h = h;
    window->w = w;
    window->channels = channels;
    window->out_h = (h - 1) / 2 + 1;
    window->out_w = (w - 1) / 2 + 1;
    window->out_channels = out_channels;
    int columns = (window->out_w + 15) / 16;
    window->across = (columns + ZONAL__STEM_GROUPS - 1) / ZONAL__STEM_GROUPS;
    window->groups = (columns + window->across - 1) / window->across;
    /* A tile's number is an int, also one past the last plus a grid's width. */
    return zonal__stem_tiles(window, 1) < 1 << 30;
}

/* Tile "at" of those with this many rows. */
ZONAL__STEM zonal__stem_tile zonal__stem_tile_at(const zonal__stem_window *window, int rows,
                                                 int at) {
    int down = (window->out_h + rows - 1) / rows, line = at / window->across;
    zonal__stem_tile tile = {line / down, line % down * rows,
                             at % window->across * window->groups * 16};
    return tile;
}

/* Where in a patch's row the widened window of the tile's output column j begins. */
ZONAL__STEM int zonal__stem_window_start(int channels, int j) {
    return (2 * j + ZONAL__STEM_LEFT - 4) * channels;
}

/* Where the weight of number "at" in row r of the widened window lies in an output channel's
 * [7][7][channels]; -1: nowhere, it is 0. */
ZONAL__STEM int zonal__stem_window_weight(int channels, int r, int at) {
    if (r >= ZONAL__STEM_SIDE || at < channels) return -1;
    return (r * ZONAL__STEM_SIDE - 1) * channels + at;
}

/* ---- forward ---------------------------------------------------------------------------------
 *
 * A warp computes 32 output channels, 4 products of 8 columns. Which channel a column is, is free:
 * it is chosen so that the 8 sums a thread gets for one output lie side by side, as 16 bytes. */

/* The channel (of 32) of column "column" in product "product". */
ZONAL__STEM int zonal__stem_forward_channel(int product, int column) {
    return column / 2 * 8 + product * 2 + column % 2;
}

/* ---- the filter's gradient -------------------------------------------------------------------
 *
 * A sum over outputs of dy [64 channels] times widened window [7 rows of 4 channels pairs]. A pair
 * is two neighbours in a row. Each of 4 warps has "doubles" times 8 pairs: for each, the product of
 * the pairs' first numbers and that of their second ones, each 8 columns wide. */

ZONAL__STEM int zonal__stem_filter_doubles(int channels) {
    return (ZONAL__STEM_SIDE * 4 * channels + 31) / 32;
}

/* Sums in a thread: doubles, 2 products in each, 4 times 16 output channels, 4 in each of them. */
ZONAL__STEM int zonal__stem_filter_sums(int channels) {
    return zonal__stem_filter_doubles(channels) * 32;
}

/* Which pair, counted through the rows of the window, column "column" of a warp's double is; those
 * past the last are no pairs. */
ZONAL__STEM int zonal__stem_filter_pair(int channels, int warp, int number, int column) {
    return (warp * zonal__stem_filter_doubles(channels) + number) * 8 + column;
}

/* Where a pair lies in a patch whose rows are "stride" numbers long, relative to where the window
 * of the output begins; something within the patch for those that are no pairs. */
ZONAL__STEM int zonal__stem_filter_offset(int channels, int stride, int pair) {
    int row = pair / (4 * channels);
    if (row >= ZONAL__STEM_SIDE) return 0;
    return row * stride + pair % (4 * channels) * 2;
}

/* Which weight a thread's sum is the gradient of: *channel of 64 and the place in
 * [7][7][channels], which is returned; -1: none. */
ZONAL__STEM int zonal__stem_filter_place(int channels, int thread, int sum, int *channel) {
    int lane = thread % 32, part = sum % 4, sixteen = sum / 4 % 4, second = sum / 16 % 2;
    int column = lane % 4 * 2 + part % 2;
    int pair = zonal__stem_filter_pair(channels, thread / 32, sum / 32, column);
    int row = pair / (4 * channels), at = pair % (4 * channels) * 2 + second;
    *channel = sixteen * 16 + part / 2 * 8 + lane / 4;
    return zonal__stem_window_weight(channels, row, at);
}

#endif
