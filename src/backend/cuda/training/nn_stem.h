/*
 * The first convolution of a network for small images, 3 x 3 of stride 1 and pad 1 on 1 or 3
 * channels, in a form that tensor cores like: the channels of images and weights are filled up
 * with zeros to 8, which in bf16 are 16 bytes. Index arithmetic alone, plain C, so that it is
 * tested without a GPU; the kernels (nn_stem.cuh) call the same functions. The 7 x 7 one for large
 * images is in nn_stem_window.h.
 *
 * Both arrays, [n][h][w][channels] and [k][3][3][channels], are rows of channels one behind the
 * other, so the functions do not tell them apart.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_STEM_H
#define ZONAL_BACKEND_CUDA_TRAINING_NN_STEM_H

#include <stdint.h>

#ifdef __CUDACC__
#define ZONAL__STEM __host__ __device__ static constexpr
#else
#define ZONAL__STEM static inline
#endif

enum { ZONAL__STEM_FILLED = 8 }; /* channels in the filled form */

/* Whether a convolution of these sizes is computed in the filled form. */
ZONAL__STEM int zonal__stem_is_filled(int channels, int kernel, int stride, int pad) {
    return (channels == 1 || channels == 3) && kernel == 3 && stride == 1 && pad == 1;
}

/* Where element "at" of a filled array comes from; -1: nowhere, it is 0. */
ZONAL__STEM int64_t zonal__stem_filled_source(int channels, int64_t at) {
    int64_t row = at / ZONAL__STEM_FILLED;
    int c = (int)(at % ZONAL__STEM_FILLED);
    return c < channels ? row * channels + c : -1;
}

/* Where element "at" lies in the filled array: the way back. */
ZONAL__STEM int64_t zonal__stem_filled_place(int channels, int64_t at) {
    return at / channels * ZONAL__STEM_FILLED + at % channels;
}

#endif
