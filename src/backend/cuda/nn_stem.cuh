/*
 * The kernels of a packed first convolution: pictures and weights into their packed form, the
 * gradient of packed weights back. The index arithmetic is nn_stem.h's. bf16 only: in fp32 there
 * are no tensor cores to please.
 */
#ifndef ZONAL_BACKEND_CUDA_NN_STEM_CUH
#define ZONAL_BACKEND_CUDA_NN_STEM_CUH

#include "backend/cuda/common.cuh"
#include "backend/cuda/nn_stem.h"

static const int STEM_THREADS = 256;

/* A thread writes 8 elements, 16 bytes; a picture to each y of the grid. BLOCK and CHANNELS are the
 * stem's, known to the compiler so that it need not divide. */
template <int BLOCK, int CHANNELS>
static __global__ void pack_pictures(zonal__stem stem, const __nv_bfloat16 *x, uint4 *packed) {
    stem.block = BLOCK;
    stem.shift = BLOCK - 1;
    stem.channels = CHANNELS;
    constexpr int EIGHTS = (BLOCK * BLOCK * CHANNELS + 7) / 8;
    int at = (int)blockIdx.x * STEM_THREADS + (int)threadIdx.x;
    int count = stem.packed_h * stem.packed_w * EIGHTS;
    if (at >= count) return;
    int pixel = at / EIGHTS, first = at % EIGHTS * 8;
    int i = pixel / stem.packed_w, j = pixel % stem.packed_w;
    for (int64_t n = blockIdx.y; n < stem.n; n += gridDim.y) {
        const __nv_bfloat16 *picture = x + n * stem.h * stem.w * CHANNELS;
        alignas(16) __nv_bfloat16 eight[8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int64_t from = zonal__stem_picture_source(&stem, i, j, first + e);
            eight[e] = from < 0 ? __float2bfloat16_rn(0) : picture[from];
        }
        packed[n * count + at] = *(const uint4 *)eight;
    }
}

/* [k][kernel][kernel][channels] to [k][packed_kernel][packed_kernel][packed_channels]. */
static __global__ void pack_weights(zonal__stem stem, int out_channels, const __nv_bfloat16 *weight,
                                    __nv_bfloat16 *packed) {
    int each = (int)zonal__stem_weight_elements(&stem);
    int at = (int)blockIdx.x * STEM_THREADS + (int)threadIdx.x;
    if (at >= out_channels * each) return;
    int k = at / each, tap = at % each / stem.packed_channels, c = at % stem.packed_channels;
    int from =
        zonal__stem_weight_source(&stem, tap / stem.packed_kernel, tap % stem.packed_kernel, c);
    const __nv_bfloat16 *filter = weight + k * stem.kernel * stem.kernel * stem.channels;
    packed[at] = from < 0 ? __float2bfloat16_rn(0) : filter[from];
}

static __global__ void unpack_gradient(zonal__stem stem, int out_channels, const float *packed,
                                       int accumulate, float *dweight) {
    int each = stem.kernel * stem.kernel * stem.channels;
    int at = (int)blockIdx.x * STEM_THREADS + (int)threadIdx.x;
    if (at >= out_channels * each) return;
    int k = at / each, c = at % stem.channels, tap = at % each / stem.channels;
    int place = zonal__stem_weight_place(&stem, tap / stem.kernel, tap % stem.kernel, c);
    float value = packed[k * zonal__stem_weight_elements(&stem) + place];
    dweight[at] = accumulate ? dweight[at] + value : value;
}

/* ---- launches -------------------------------------------------------------------------------- */

static unsigned stem_blocks(int64_t count) {
    return (unsigned)((count + STEM_THREADS - 1) / STEM_THREADS);
}

static zonal_status stem_pack_pictures(const zonal__stem *stem, cudaStream_t stream, const void *x,
                                       void *packed) {
    void (*kernel)(zonal__stem, const __nv_bfloat16 *, uint4 *) =
        stem->block == 2 ? (stem->channels == 3 ? pack_pictures<2, 3> : pack_pictures<2, 1>)
                         : (stem->channels == 3 ? pack_pictures<1, 3> : pack_pictures<1, 1>);
    int64_t eights = zonal__stem_picture_elements(stem) / stem->n / 8;
    unsigned most = 65535; /* of a grid's y */
    dim3 grid(stem_blocks(eights), stem->n < most ? (unsigned)stem->n : most);
    kernel<<<grid, STEM_THREADS, 0, stream>>>(*stem, (const __nv_bfloat16 *)x, (uint4 *)packed);
    return ZONAL_CUDA_LAUNCHED();
}

static zonal_status stem_pack_weights(const zonal__stem *stem, cudaStream_t stream,
                                      int out_channels, const void *weight, void *packed) {
    unsigned blocks = stem_blocks(out_channels * zonal__stem_weight_elements(stem));
    pack_weights<<<blocks, STEM_THREADS, 0, stream>>>(
        *stem, out_channels, (const __nv_bfloat16 *)weight, (__nv_bfloat16 *)packed);
    return ZONAL_CUDA_LAUNCHED();
}

static zonal_status stem_unpack_gradient(const zonal__stem *stem, cudaStream_t stream,
                                         int out_channels, const void *packed, int accumulate,
                                         float *dweight) {
    unsigned blocks =
        stem_blocks((int64_t)out_channels * stem->kernel * stem->kernel * stem->channels);
    unpack_gradient<<<blocks, STEM_THREADS, 0, stream>>>(*stem, out_channels, (const float *)packed,
                                                         accumulate, dweight);
    return ZONAL_CUDA_LAUNCHED();
}

#endif
