/*
 * The making and releasing of moments.cu's and sliced.cu's works, which are alike: both read rows
 * by tiles (split_product.cuh), in fp32 at most, and hold a list of device memory.
 *
 * A work has base, memory, n_memory and what ("the moments", for sentences) under these names.
 */
#ifndef ZONAL_BACKEND_CUDA_TILED_WORK_CUH
#define ZONAL_BACKEND_CUDA_TILED_WORK_CUH

#include "backend/cuda/common.cuh"

enum { ZONAL__TILED_ROWS = 65535 * 64 }; /* of a grid's y */

/* Refuses what tiles do not compute; the dtype is settled. */
static inline zonal_status zonal__tiled_check(zonal__problem *problem) {
    if (problem->precision == ZONAL_PRECISION_DOUBLE)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED, "CUDA computes in fp32, tf32 or bf16; for double use "
                                             "the device cpu");
    if (problem->rows > ZONAL__TILED_ROWS)
        return ZONAL_FAIL(ZONAL_SHAPE, "%lld rows are more than CUDA takes (4194240)",
                          (long long)problem->rows);
    if (problem->dtype == ZONAL_DTYPE_AUTO) problem->dtype = ZONAL_DTYPE_FP32;
    return ZONAL_OK;
}

static inline zonal_status zonal__tiled_processors(int *processors) {
    int device;
    ZONAL_TRY(ZONAL_CUDA(cudaGetDevice(&device)));
    return ZONAL_CUDA(cudaDeviceGetAttribute(processors, cudaDevAttrMultiProcessorCount, device));
}

/* Device memory that goes with the work. */
template <typename Work, typename T>
static zonal_status zonal__tiled_take(Work *work, int64_t count, T **out) {
    void *memory;
    zonal_status status =
        zonal__cuda_alloc(&work->base, (size_t)count * sizeof(T), work->what, &memory);
    if (memory) work->memory[work->n_memory++] = memory;
    *out = (T *)memory;
    return status;
}

template <typename Work> static void zonal__tiled_destroy(zonal__work *opaque) {
    Work *work = (Work *)opaque;
    if (!work) return;
    for (int i = 0; i < work->n_memory; i++) cudaFree(work->memory[i]);
    zonal__cuda_base_fini(&work->base);
    zonal__free(work);
}

/* The three of a file: "allow" readies the kernels for rows of one type (which it is told by a null
 * pointer to it), "fill" takes the memory. */
template <typename Work, typename Allow>
static zonal_status zonal__tiled_build(Work *work, const zonal__problem *problem, Allow allow,
                                       zonal_status (*fill)(Work *work)) {
    ZONAL_TRY(zonal__cuda_base_init(&work->base, problem));
    ZONAL_TRY(zonal__tiled_check(&work->base.problem));
    switch (work->base.problem.dtype) {
    case ZONAL_DTYPE_BF16:
        ZONAL_TRY(allow((const __nv_bfloat16 *)NULL));
        break;
    case ZONAL_DTYPE_FP16:
        ZONAL_TRY(allow((const __half *)NULL));
        break;
    default:
        ZONAL_TRY(allow((const float *)NULL));
    }
    return fill(work);
}

template <typename Work, typename Allow>
static zonal_status zonal__tiled_create(const zonal__problem *problem, const char *what,
                                        Allow allow, zonal_status (*fill)(Work *work),
                                        zonal__work **out) {
    void *memory;
    *out = NULL;
    ZONAL_TRY(zonal__alloc(1, sizeof(Work), what, &memory));
    Work *work = (Work *)memory;
    work->what = what;
    zonal_status status = zonal__tiled_build(work, problem, allow, fill);
    if (status == ZONAL_OK)
        *out = (zonal__work *)work;
    else
        zonal__tiled_destroy<Work>((zonal__work *)work);
    return status;
}

#endif
