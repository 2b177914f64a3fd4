/*
 * The kernels of a first convolution in the filled form: images and weights into it, the weights'
 * gradient back. The index arithmetic is nn_stem.h's. bf16 only: in fp32 there are no tensor cores
 * to please.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_STEM_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_STEM_CUH

#include "backend/cuda/common.cuh"
#include "backend/cuda/training/nn_stem.h"

static const int STEM_THREADS = 256;

/* A thread writes the channels of one row, 16 bytes. CHANNELS is known to the compiler so that all
 * 8 are in registers. */
template <int CHANNELS>
static __global__ void fill_channels(int64_t rows, const __nv_bfloat16 *from, uint4 *filled) {
    int64_t row = (int64_t)blockIdx.x * STEM_THREADS + threadIdx.x;
    if (row >= rows) return;
    alignas(16) __nv_bfloat16 out[ZONAL__STEM_FILLED];
#pragma unroll
    for (int c = 0; c < ZONAL__STEM_FILLED; c++) {
        int64_t source = zonal__stem_filled_source(CHANNELS, row * ZONAL__STEM_FILLED + c);
        out[c] = source < 0 ? __float2bfloat16_rn(0) : from[source];
    }
    filled[row] = *(const uint4 *)out;
}

static __global__ void take_gradient(int64_t count, int channels, const float *filled,
                                     int accumulate, float *dweight) {
    int64_t at = (int64_t)blockIdx.x * STEM_THREADS + threadIdx.x;
    if (at >= count) return;
    float value = filled[zonal__stem_filled_place(channels, at)];
    dweight[at] = accumulate ? dweight[at] + value : value;
}

/* ---- launches -------------------------------------------------------------------------------- */

static unsigned stem_blocks(int64_t count) {
    return (unsigned)((count + STEM_THREADS - 1) / STEM_THREADS);
}

/* "rows" rows of 1 or 3 channels to as many of 8; "filled" is aligned to 16 bytes. */
static zonal_status stem_fill(int64_t rows, int channels, cudaStream_t stream, const void *from,
                              void *filled) {
    void (*kernel)(int64_t, const __nv_bfloat16 *, uint4 *) =
        channels == 3 ? fill_channels<3> : fill_channels<1>;
    kernel<<<stem_blocks(rows), STEM_THREADS, 0, stream>>>(rows, (const __nv_bfloat16 *)from,
                                                           (uint4 *)filled);
    return ZONAL_CUDA_LAUNCHED();
}

/* The gradient of "rows" rows of weights from that of the filled ones. */
static zonal_status stem_take_gradient(int64_t rows, int channels, cudaStream_t stream,
                                       const void *filled, int accumulate, float *dweight) {
    int64_t count = rows * channels;
    take_gradient<<<stem_blocks(count), STEM_THREADS, 0, stream>>>(
        count, channels, (const float *)filled, accumulate, dweight);
    return ZONAL_CUDA_LAUNCHED();
}

#endif
