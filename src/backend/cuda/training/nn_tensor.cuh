/*
 * Hopper's matrix products of warpgroups (sm_90a), and tiles that its copy engine moves: what the
 * kernels of nn_fold*.cu are made of.
 *
 * A tile in shared memory is panels of 64 elements of bf16, 128 bytes a row, in which the 16-byte
 * pieces of row r are permuted by exclusive-or with r % 8. The copy engine lays them out and takes
 * them back like that; a panel begins at a multiple of 1024 bytes.
 *
 * A warpgroup is four warps. Of a product of 64 rows and n columns, warp w holds rows 16 w to
 * 16 w + 15, in n/2 numbers a thread: number i is of row lane/4 + (i & 2 ? 8 : 0) and of column
 * i/4 * 8 + lane%4 * 2 + i%2.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_TENSOR_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_TENSOR_CUH

#include <cuda.h>

#include "backend/cuda/training/nn_vector.cuh"

extern "C" {
/* How the copy engine sees bf16 [rows][columns]: boxes of "box_rows" rows and 64 columns. */
zonal_status zonal__tensor_map(const void *array, int64_t rows, int columns, int box_rows,
                               CUtensorMap *map);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- barriers and copies -------------------------------------------------------------------- */

__device__ inline uint32_t tensor_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

__device__ inline void tensor_barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* After the last init, before the copy engine uses them. */
__device__ inline void tensor_barriers_publish() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void tensor_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and the phase does not end before so many bytes have been copied. */
__device__ inline void tensor_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* Waits for the end of a phase, of which the first has parity 0. */
__device__ inline void tensor_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

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

/* A matrix in shared memory: where it begins, the bytes from one panel to the next (where columns
 * are multiplied), and 1024 bytes from eight rows to the next eight. */
__device__ inline uint64_t tensor_matrix(uint32_t address, int panel_bytes) {
    const uint64_t swizzle_128 = (uint64_t)1 << 62, eight_rows = (uint64_t)(1024 >> 4) << 32;
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(panel_bytes >> 4) << 16 | eight_rows |
           swizzle_128;
}

/* Around products: fence before the first, commit after the last of a group, wait until all but
 * "left" groups are done. */
__device__ inline void tensor_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void tensor_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int left> __device__ inline void tensor_finish() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

/* Products write registers after the statement that names them: the compiler may not move uses of
 * these across this place. */
template <int n> __device__ inline void tensor_hold(float (&number)[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+f"(number[i])::"memory");
}

#define ZONAL__OUT8(d, i)                                                                          \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define ZONAL__OUT32(d, i)                                                                         \
    ZONAL__OUT8(d, i), ZONAL__OUT8(d, i + 8), ZONAL__OUT8(d, i + 16), ZONAL__OUT8(d, i + 24)

#define ZONAL__NAMES_0_31                                                                          \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ZONAL__NAMES_32_63                                                                         \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ZONAL__NAMES_64_127                                                                        \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "   \
    "%127"

/* The numbers of d are named first, so the other operands' names depend on how many there are. */
#define ZONAL__MULTIPLY(n, names, a_name, b_name, add_name, transposed, ...)                       \
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
        ZONAL__MULTIPLY(64, ZONAL__NAMES_0_31, "%32", "%33", "%34", "0", ZONAL__OUT32(d, 0));
    }
    static __device__ inline void columns(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__MULTIPLY(64, ZONAL__NAMES_0_31, "%32", "%33", "%34", "1", ZONAL__OUT32(d, 0));
    }
};
template <> struct tensor_products<128> {
    static __device__ inline void rows(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__MULTIPLY(128, ZONAL__NAMES_0_31 ", " ZONAL__NAMES_32_63, "%64", "%65", "%66", "0",
                        ZONAL__OUT32(d, 0), ZONAL__OUT32(d, 32));
    }
    static __device__ inline void columns(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__MULTIPLY(128, ZONAL__NAMES_0_31 ", " ZONAL__NAMES_32_63, "%64", "%65", "%66", "1",
                        ZONAL__OUT32(d, 0), ZONAL__OUT32(d, 32));
    }
};
template <> struct tensor_products<256> {
    static __device__ inline void rows(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__MULTIPLY(256, ZONAL__NAMES_0_31 ", " ZONAL__NAMES_32_63 ", " ZONAL__NAMES_64_127,
                        "%128", "%129", "%130", "0", ZONAL__OUT32(d, 0), ZONAL__OUT32(d, 32),
                        ZONAL__OUT32(d, 64), ZONAL__OUT32(d, 96));
    }
};

#endif /* __CUDA_ARCH_FEAT_SM90_ALL */

#endif
