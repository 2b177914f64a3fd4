/*
 * Tiles that Hopper's copy engine moves, and products of warpgroups on them (backend/cuda/wgmma.cuh
 * has barriers, the layout of operands and that of results): what the kernels of nn_fold*.cu are
 * made of.
 *
 * The copy engine lays a tile out in panels of 64 elements of bf16 as the products read them, and
 * takes it back like that.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_TENSOR_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_TENSOR_CUH

#include <cuda.h>

#include "backend/cuda/training/nn_vector.cuh"
#include "backend/cuda/wgmma.cuh"

extern "C" {
/* How the copy engine sees bf16 [rows][columns]: boxes of "box_rows" rows and 64 columns. */
zonal_status zonal__tensor_map(const void *array, int64_t rows, int columns, int box_rows,
                               CUtensorMap *map);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- copies --------------------------------------------------------------------------------- */

__device__ inline void tensor_load(uint32_t to, const CUtensorMap *map, int column, int row,
                                   uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

/* What threads have written must be fenced first; a group of stores ends with commit. */
__device__ inline void tensor_store(const CUtensorMap *map, int column, int row, uint32_t from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
                 " [%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(column), "r"(row), "r"(from)
                 : "memory");
}
__device__ inline void tensor_store_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void tensor_store_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Until all but "left" groups have been read from shared memory. */
template <int left> __device__ inline void tensor_store_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(left) : "memory");
}

__device__ inline uint32_t tensor_read(uint32_t address) {
    uint32_t value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
    return value;
}
__device__ inline void tensor_write(uint32_t address, uint32_t value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

/* ---- products ------------------------------------------------------------------------------- */

/* The numbers of d are named first, so the other operands' names depend on how many there are. */
#define ZONAL__TENSOR_MULTIPLY(n, names, a_name, b_name, add_name, transposed, ...)                \
    asm volatile("{\n"                                                                             \
                 ".reg .pred add;\n"                                                               \
                 "setp.ne.b32 add, " add_name ", 0;\n"                                             \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" names "}, " a_name   \
                 ", " b_name ", add, 1, 1, " transposed ", " transposed ";\n"                      \
                 "}\n"                                                                             \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "r"(add))

/* Products with n columns, 16 elements deep; without "add" what d held is forgotten:
 *     rows      d += a b^T, a [64][16], b [n][16]
 *     columns   d += a^T b, a [16][64], b [16][n] */
template <int n> struct tensor_products;
template <> struct tensor_products<64> {
    static __device__ inline void rows(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__TENSOR_MULTIPLY(64, ZONAL__NAMES_0_31, "%32", "%33", "%34", "0", ZONAL__OUT32(d, 0));
    }
    static __device__ inline void columns(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__TENSOR_MULTIPLY(64, ZONAL__NAMES_0_31, "%32", "%33", "%34", "1", ZONAL__OUT32(d, 0));
    }
};
template <> struct tensor_products<128> {
    static __device__ inline void rows(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__TENSOR_MULTIPLY(128, ZONAL__NAMES_0_31 ", " ZONAL__NAMES_32_63, "%64", "%65", "%66",
                               "0", ZONAL__OUT32(d, 0), ZONAL__OUT32(d, 32));
    }
    static __device__ inline void columns(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__TENSOR_MULTIPLY(128, ZONAL__NAMES_0_31 ", " ZONAL__NAMES_32_63, "%64", "%65", "%66",
                               "1", ZONAL__OUT32(d, 0), ZONAL__OUT32(d, 32));
    }
};
template <> struct tensor_products<256> {
    static __device__ inline void rows(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__TENSOR_MULTIPLY(256,
                               ZONAL__NAMES_0_31 ", " ZONAL__NAMES_32_63 ", " ZONAL__NAMES_64_127,
                               "%128", "%129", "%130", "0", ZONAL__OUT32(d, 0), ZONAL__OUT32(d, 32),
                               ZONAL__OUT32(d, 64), ZONAL__OUT32(d, 96));
    }
};

#endif /* __CUDA_ARCH_FEAT_SM90_ALL */

#endif
