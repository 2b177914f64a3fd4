/*
 * Hopper's matrix products of warpgroups (sm_90a) and what feeds them: barriers in shared memory
 * that count bytes, and copies by the copy engine.
 *
 * Operands lie in shared memory as panels of 64 halves, 128 bytes a row, in which the
 * 16-byte pieces of row r are permuted by exclusive-or with r % 8 (the hardware's 128-byte
 * swizzle). A panel begins at a multiple of 1024 bytes. The same panel serves as [n][k], rows
 * against rows, and as [k][n], weights against rows, so that no transposed copy is needed.
 *
 * A warpgroup is four warps. Of a product of 64 rows and n columns, warp w holds rows 16 w to
 * 16 w + 15, in n/2 numbers a thread: number i is of row lane/4 + (i & 2 ? 8 : 0) and of column
 * i/4 * 8 + lane%4 * 2 + i%2. Two by two, rounded to halves, they are in the order that a left
 * operand has in registers.
 */
#ifndef ZONAL_BACKEND_CUDA_WGMMA_CUH
#define ZONAL_BACKEND_CUDA_WGMMA_CUH

#include <cuda_fp16.h>
#include <stdint.h>

/* ---- barriers and copies -------------------------------------------------------------------- */

__device__ inline uint32_t zonal__shared_address(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

__device__ inline void zonal__barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* After all barriers' init, before the copy engine uses them. */
__device__ inline void zonal__barrier_publish() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void zonal__barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and the phase does not end before so many bytes have been copied. */
__device__ inline void zonal__barrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* Waits for the end of a phase, of which the first has parity 0. */
__device__ inline void zonal__barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Copies bytes (a multiple of 16, to and from multiples of 16) and counts them at the barrier. */
__device__ inline void zonal__bulk_copy(uint32_t to, const void *from, int bytes,
                                        uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* A thread's own copies of 8 or 16 bytes to shared memory, zeros where there is nothing to copy;
 * those until a commit are a group, and wait returns when all but "left" groups are there. */
template <int BYTES>
__device__ inline void zonal__copy_piece(uint32_t to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES),
                 "r"(there ? BYTES : 0)
                 : "memory");
}
__device__ inline void zonal__copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int left> __device__ inline void zonal__copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

/* What this thread wrote to shared memory is seen by products and by the copy engine, once a
 * barrier has let them begin. */
__device__ inline void zonal__shared_publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- named barriers: two warpgroups take turns ---------------------------------------------- */

__device__ inline void zonal__turn_wait(int id) {
    asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory");
}
__device__ inline void zonal__turn_pass(int id) {
    asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory");
}

/* ---- products ------------------------------------------------------------------------------- */

/* A matrix in shared memory: where it begins, the bytes from one panel to the next (of [k][n]
 * alone), and 1024 bytes from eight rows to the next eight. */
__device__ inline uint64_t zonal__matrix(uint32_t address, int panel_bytes) {
    const uint64_t swizzle_128 = (uint64_t)1 << 62, eight_rows = (uint64_t)(1024 >> 4) << 32;
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(panel_bytes >> 4) << 16 | eight_rows |
           swizzle_128;
}

/* Around products: fence before the first (what registers and memory held is seen), commit after
 * the last of a group, wait until all but "left" groups are done. */
__device__ inline void zonal__products_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void zonal__products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int left> __device__ inline void zonal__products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

/* Products write registers after the statement that names them: the compiler may not move uses of
 * these across this place. */
template <int n> __device__ inline void zonal__hold(float (&number)[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+f"(number[i])::"memory");
}
template <int n> __device__ inline void zonal__hold(uint32_t (&number)[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+r"(number[i])::"memory");
}

/* The same for numbers that products begin: what they were does not matter. */
template <int n> __device__ inline void zonal__fresh(float (&number)[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "=f"(number[i])::"memory");
}

#define ZONAL__OUT8(d, i)                                                                          \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define ZONAL__OUT16(d, i) ZONAL__OUT8(d, i), ZONAL__OUT8(d, i + 8)
#define ZONAL__OUT32(d, i) ZONAL__OUT16(d, i), ZONAL__OUT16(d, i + 16)

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
#define ZONAL__MULTIPLY_SHARED(n, names, a_name, b_name, add_name, transposed, ...)                \
    asm volatile("{\n"                                                                             \
                 ".reg .pred add;\n"                                                               \
                 "setp.ne.b32 add, " add_name ", 0;\n"                                             \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" names "}, " a_name     \
                 ", " b_name ", add, 1, 1, " transposed ", " transposed ";\n"                      \
                 "}\n"                                                                             \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "r"(add))
#define ZONAL__MULTIPLY_HELD(n, names, a_names, b_name, ...)                                       \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" names "}, "            \
                 "{" a_names "}, " b_name ", 1, 1, 1, 1;\n"                                        \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

#define ZONAL__MULTIPLY_HELD_64(transposed)                                                        \
    asm volatile("{\n"                                                                             \
                 ".reg .pred add;\n"                                                               \
                 "setp.ne.b32 add, %37, 0;\n"                                                      \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" ZONAL__NAMES_0_31 "}, "    \
                 "{%32, %33, %34, %35}, %36, add, 1, 1, " transposed ";\n"                         \
                 "}\n"                                                                             \
                 : ZONAL__OUT32(d, 0)                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

/* Products of halves with n columns, 16 elements deep:
 *     shared       d = a b^T, with "add" d += a b^T; a [64][16] and b [n][16] in shared memory
 *     columns      d = a^T b, with "add" d += a^T b; a [16][64] and b [16][n] in shared memory
 *     held         d += a b, of 64 columns d = a b without "add"; a [64][16] in registers, b
 *                  [16][n] in shared memory
 *     held_rows    the same with a b^T; b [n][16] */
template <int n> struct zonal__products;

template <> struct zonal__products<64> {
    static __device__ inline void shared(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__MULTIPLY_SHARED(64, ZONAL__NAMES_0_31, "%32", "%33", "%34", "0", ZONAL__OUT32(d, 0));
    }
    static __device__ inline void columns(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__MULTIPLY_SHARED(64, ZONAL__NAMES_0_31, "%32", "%33", "%34", "1", ZONAL__OUT32(d, 0));
    }
    static __device__ inline void held(float *d, const uint32_t *a, uint64_t b, int add) {
        ZONAL__MULTIPLY_HELD_64("1");
    }
    static __device__ inline void held_rows(float *d, const uint32_t *a, uint64_t b, int add) {
        ZONAL__MULTIPLY_HELD_64("0");
    }
    static __device__ inline void held(float *d, const uint32_t *a, uint64_t b) {
        ZONAL__MULTIPLY_HELD(64, ZONAL__NAMES_0_31, "%32, %33, %34, %35", "%36",
                             ZONAL__OUT32(d, 0));
    }
};
template <> struct zonal__products<128> {
    static __device__ inline void shared(float *d, uint64_t a, uint64_t b, int add) {
        ZONAL__MULTIPLY_SHARED(128, ZONAL__NAMES_0_31 ", " ZONAL__NAMES_32_63, "%64", "%65", "%66",
                               "0", ZONAL__OUT32(d, 0), ZONAL__OUT32(d, 32));
    }
    static __device__ inline void held(float *d, const uint32_t *a, uint64_t b) {
        ZONAL__MULTIPLY_HELD(128, ZONAL__NAMES_0_31 ", " ZONAL__NAMES_32_63, "%64, %65, %66, %67",
                             "%68", ZONAL__OUT32(d, 0), ZONAL__OUT32(d, 32));
    }
};
template <> struct zonal__products<256> {
    static __device__ inline void held(float *d, const uint32_t *a, uint64_t b) {
        ZONAL__MULTIPLY_HELD(256,
                             ZONAL__NAMES_0_31 ", " ZONAL__NAMES_32_63 ", " ZONAL__NAMES_64_127,
                             "%128, %129, %130, %131", "%132", ZONAL__OUT32(d, 0),
                             ZONAL__OUT32(d, 32), ZONAL__OUT32(d, 64), ZONAL__OUT32(d, 96));
    }
};

#endif
