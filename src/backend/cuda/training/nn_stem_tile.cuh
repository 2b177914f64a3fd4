/*
 * What the kernels of the 7 x 7 first convolution share: patches of images in shared memory and
 * the instructions of tensor cores. The shapes are nn_stem_window.h's.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_STEM_TILE_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_STEM_TILE_CUH

#include "backend/cuda/common.cuh"
#include "backend/cuda/training/nn_stem_window.h"

extern "C" {
/* y from x and weight; the arrays are bf16. */
zonal_status zonal__stem_forward(const zonal__stem_window *window, cudaStream_t stream,
                                 const void *x, const void *weight, void *y);
/* dweight from x and dy; workspace of the bytes below, aligned to 16. */
zonal_status zonal__stem_filter(const zonal__stem_window *window, cudaStream_t stream,
                                const void *x, const void *dy, void *workspace, int accumulate,
                                float *dweight);
zonal_status zonal__stem_filter_workspace(const zonal__stem_window *window, size_t *bytes);
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* 16 bytes from global to shared memory while the thread goes on, or zeros. */
__device__ inline void stem_copy(void *to, const void *from, bool inside) {
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                 "r"(inside ? 16 : 0)
                 : "memory");
}

/* Ends a batch of copies. */
__device__ inline void stem_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all batches of this thread but the last. */
__device__ inline void stem_wait() {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

/* Four 8 x 8 matrices, transposed; each lane gives the address of one row of eight. */
__device__ inline void stem_load_transposed(unsigned (&out)[4], const __nv_bfloat16 *row) {
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
}

/* c += a b: 16 x 16 times 16 x 8. */
__device__ inline void stem_multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                     unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* c += a b: 16 x 8 times 8 x 8. */
__device__ inline void stem_multiply_half(float (&c)[4], unsigned a0, unsigned a1, unsigned b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
}

/* ---- patches --------------------------------------------------------------------------------- */

/* Begins to copy the patch of a tile of ROWS output rows, a row to each of WARPS warps in turn.
 * The caller ends the batch. */
template <int CHANNELS, int ROWS, int WARPS>
__device__ inline void stem_load_patch(const zonal__stem_window &window,
                                       const zonal__stem_tile &tile, const __nv_bfloat16 *x,
                                       __nv_bfloat16 *patch) {
    constexpr int STRIDE = ZONAL__STEM_PATCH * CHANNELS;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int count = (window.groups * 32 + 16) * CHANNELS; /* in a row of the patch */
    int first = (2 * tile.j - ZONAL__STEM_LEFT) * CHANNELS, width = window.w * CHANNELS;
    for (int r = warp; r < 2 * ROWS + 5; r += WARPS) {
        int row = 2 * tile.i - 3 + r;
        bool exists = row >= 0 && row < window.h;
        const __nv_bfloat16 *from = x + (tile.n * window.h + (exists ? row : 0)) * width;
        __nv_bfloat16 *to = patch + r * STRIDE;
        if (window.w % 8 == 0) {
            for (int at = lane * 8; at < count; at += 32 * 8) {
                bool inside = exists && first + at >= 0 && first + at < width;
                stem_copy(to + at, from + (inside ? first + at : 0), inside);
            }
        } else {
            for (int at = lane; at < count; at += 32) {
                bool inside = exists && first + at >= 0 && first + at < width;
                to[at] = inside ? from[first + at] : __float2bfloat16_rn(0);
            }
        }
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Blocks that go through the tiles in turn: "each" to a multiprocessor. */
inline zonal_status stem_tile_blocks(int64_t tiles, int each, int *blocks) {
    int device, processors;
    ZONAL_TRY(ZONAL_CUDA(cudaGetDevice(&device)));
    ZONAL_TRY(
        ZONAL_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)));
    *blocks = tiles < processors * each ? (int)tiles : processors * each;
    return ZONAL_OK;
}

/* Lets several blocks of a kernel share a multiprocessor, each with this much dynamic shared
 * memory: as much of the cache as there is becomes shared memory. */
template <typename Kernel> inline zonal_status stem_use_shared(Kernel kernel, int bytes) {
    ZONAL_TRY(ZONAL_CUDA(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)));
    return ZONAL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
}

/* Blocks of 64 output channels. */
inline int stem_channel_blocks(const zonal__stem_window *window) {
    return (window->out_channels + ZONAL__STEM_CHANNELS - 1) / ZONAL__STEM_CHANNELS;
}

#endif
