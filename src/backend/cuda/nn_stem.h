/*
 * The first convolution of a network, on pictures of 1 or 3 channels, in a form that tensor cores
 * like: blocks of block x block pixels become one pixel of many channels, and the kernel, cut the
 * same way, becomes a smaller one of stride 1. Index arithmetic alone, plain C, so that it is
 * tested without a GPU; the kernels (nn_stem.cuh) call the same functions.
 *
 *     7 x 7, stride 2, pad 3, even sides:  block 2, shift 1; 4 x 4, stride 1, pad 1
 *     3 x 3, stride 1, pad 1:              block 1, shift 0; only the channels are filled up
 *
 * Block B holds the pixels block B - shift + p, p < block, along each side; what lies outside the
 * picture is zero. In one dimension, with block 2 and shift 1, tap r = 2a + p of
 *     y[i] = sum over r of x[2i + r - 3] w[r]  reads  x[2(i + a - 1) - 1 + p],
 * pixel p of block i + a - 1: a convolution over the blocks with taps a = 0 to 3 and pad 1. Tap
 * r = 7 does not exist: its weight is zero.
 *
 * Packed channel (p block + q) channels + c, p down and q across; those past block^2 channels are
 * zero, up to a multiple of 8 elements (16 bytes).
 */
#ifndef ZONAL_BACKEND_CUDA_NN_STEM_H
#define ZONAL_BACKEND_CUDA_NN_STEM_H

#include <stdint.h>

#ifdef __CUDACC__
#define ZONAL__STEM __host__ __device__ static inline
#else
#define ZONAL__STEM static inline
#endif

typedef struct zonal__stem {
    int64_t n;
    int h, w, channels, kernel; /* as given */
    int block, shift;
    int packed_h, packed_w, packed_channels, packed_kernel, packed_pad; /* stride 1 */
} zonal__stem;

/* Whether a convolution of these sizes has a packed form; *stem is then filled. */
ZONAL__STEM int zonal__stem_make(int64_t n, int h, int w, int channels, int kernel, int stride,
                                 int pad, zonal__stem *stem) {
    int blocks = kernel == 7 && stride == 2 && pad == 3 && h % 2 == 0 && w % 2 == 0;
    int plain = kernel == 3 && stride == 1 && pad == 1;
    if ((channels != 1 && channels != 3) || !(blocks || plain)) return 0;
    stem->n = n;
    stem->h = h;
    stem->w = w;
    stem->channels = channels;
    stem->kernel = kernel;
    stem->block = blocks ? 2 : 1;
    stem->shift = stem->block - 1;
    stem->packed_h = h / stem->block + stem->shift;
    stem->packed_w = w / stem->block + stem->shift;
    stem->packed_channels = (stem->block * stem->block * channels + 7) / 8 * 8;
    stem->packed_kernel = (kernel + stem->block - 1) / stem->block;
    stem->packed_pad = 1;
    return 1;
}

ZONAL__STEM int64_t zonal__stem_picture_elements(const zonal__stem *stem) {
    return stem->n * stem->packed_h * stem->packed_w * stem->packed_channels;
}

/* Of the weights of one output channel. */
ZONAL__STEM int64_t zonal__stem_weight_elements(const zonal__stem *stem) {
    return (int64_t)stem->packed_kernel * stem->packed_kernel * stem->packed_channels;
}

/* Where element (i, j, packed) of a packed picture comes from, in [h][w][channels]; -1: zero. */
ZONAL__STEM int64_t zonal__stem_picture_source(const zonal__stem *stem, int i, int j, int packed) {
    int pixel = packed / stem->channels, c = packed % stem->channels;
    int p = pixel / stem->block, q = pixel % stem->block;
    int row = i * stem->block - stem->shift + p, column = j * stem->block - stem->shift + q;
    if (p >= stem->block || row < 0 || row >= stem->h || column < 0 || column >= stem->w) return -1;
    return ((int64_t)row * stem->w + column) * stem->channels + c;
}

/* Where element (a, b, packed) of an output channel's packed weights comes from, in
 * [kernel][kernel][channels]; -1: zero. */
ZONAL__STEM int zonal__stem_weight_source(const zonal__stem *stem, int a, int b, int packed) {
    int pixel = packed / stem->channels, c = packed % stem->channels;
    int p = pixel / stem->block, q = pixel % stem->block;
    int row = a * stem->block + p, column = b * stem->block + q;
    if (p >= stem->block || row >= stem->kernel || column >= stem->kernel) return -1;
    return (row * stem->kernel + column) * stem->channels + c;
}

/* Where weight (row, column, c) lies in an output channel's packed weights: the way back. */
ZONAL__STEM int zonal__stem_weight_place(const zonal__stem *stem, int row, int column, int c) {
    int a = row / stem->block, p = row % stem->block;
    int b = column / stem->block, q = column % stem->block;
    int packed = (p * stem->block + q) * stem->channels + c;
    return (a * stem->packed_kernel + b) * stem->packed_channels + packed;
}

#endif
