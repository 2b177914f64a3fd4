/*
 * Rows on their way into the tensor cores, and gradients on their way back: what MOMENTS and SLICED
 * share besides the products (split_product.cuh).
 *
 * A row enters as x = q (p z), p a power of two and p q = 1/|z|, so that no row overflows or
 * underflows on the way, subnormal ones included. Raw rows (SIGReg) are brought to a norm in [1, 2)
 * by powers of two alone, and "u" takes that back.
 */
#ifndef ZONAL_BACKEND_CUDA_UNIT_ROWS_CUH
#define ZONAL_BACKEND_CUDA_UNIT_ROWS_CUH

#include "backend/cuda/common.cuh"

/* Unit rows and directions are multiplied by this before they are cut into halves: |x - c| <= 2
 * stays below half's 65504, and what is left over after cutting stays clear of its subnormals. */
constexpr float ZONAL__ROW_UNIT = 16384;

/* One row's numbers; the order is a float4's. A bad row has NaN, which every result then shows. */
typedef struct __align__(16) zonal__row_scale {
    float p, q;
    float inverse_square; /* 1/(x.x): 1 but for rows that were declared unit */
    float u;              /* SLICED: what a projection is multiplied by */
}
zonal__row_scale;

/* Launches through one function, with clusters of blocks along x where "cluster" is above 1. A grid
 * without blocks, of a rank without rows, is nothing to do. */
template <typename... Parameters, typename... Arguments>
static zonal_status zonal__launch(cudaStream_t stream, dim3 grid, int block, size_t shared,
                                  int cluster, void (*kernel)(Parameters...),
                                  Arguments... arguments) {
    cudaLaunchAttribute attribute = {};
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return ZONAL_OK;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3((unsigned)block);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = cluster > 1;
    return ZONAL_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

/* More than 48 KiB of shared memory must be asked for. The limit is the kernel's, whoever asked: it
 * is only ever raised, so that what was made before still runs. */
template <typename... Parameters>
static zonal_status zonal__allow_shared(void (*kernel)(Parameters...), size_t bytes) {
    cudaFuncAttributes attributes;
    ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, (const void *)kernel)));
    if (bytes <= (size_t)attributes.maxDynamicSharedSizeBytes) return ZONAL_OK;
    return ZONAL_CUDA(cudaFuncSetAttribute(
        (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

/* ---- four elements -------------------------------------------------------------------------- */

template <typename T> struct zonal__four { uint2 raw; /* two pairs of 16 bits */ };
template <> struct zonal__four<float> { float4 raw; };

__device__ inline float4 zonal__widen(const zonal__four<float> &four) {
    return four.raw;
}
__device__ inline float4 zonal__widen(const zonal__four<__half> &four) {
    float2 a = __half22float2(*(const __half2 *)&four.raw.x);
    float2 b = __half22float2(*(const __half2 *)&four.raw.y);
    return make_float4(a.x, a.y, b.x, b.y);
}
__device__ inline float4 zonal__widen(const zonal__four<__nv_bfloat16> &four) {
    float2 a = __bfloat1622float2(*(const __nv_bfloat162 *)&four.raw.x);
    float2 b = __bfloat1622float2(*(const __nv_bfloat162 *)&four.raw.y);
    return make_float4(a.x, a.y, b.x, b.y);
}

/* The first "count" of four elements, zeros for the rest. "vector": rows are aligned to four
 * elements, so that count is at least 4, or at most 0. */
template <typename T>
__device__ inline zonal__four<T> zonal__load4(const T *from, int count, bool vector) {
    zonal__four<T> four = {};
    if (vector) {
        if (count > 0) four = *(const zonal__four<T> *)from;
    } else {
        alignas(16) T element[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i < count) element[i] = from[i];
        four = *(const zonal__four<T> *)element;
    }
    return four;
}

/* ---- norms ---------------------------------------------------------------------------------- */

__device__ inline float zonal__power_of_two(int exponent) { /* -126 <= exponent <= 127 */
    return __int_as_float((exponent + 127) << 23);
}

typedef struct zonal__row_rules {
    int unit_rows, raw;
    double u; /* the common factor of all projections */
    unsigned long long *bad_row;
} zonal__row_rules;

/* One row's numbers from the sum of its squares; called by one thread of the row. */
__device__ inline zonal__row_scale zonal__scale_row(const zonal__row_rules &rules, double square,
                                                    int64_t row) {
    double norm = sqrt(square);
    int trouble = !rules.raw    ? zonal__row_trouble(norm, rules.unit_rows)
                  : norm < 1e38 ? -1 /* so that projections are finite floats */
                                : (int)ZONAL__BAD_NOT_FINITE;
    if (trouble >= 0) {
        zonal__report_row(rules.bad_row, row, trouble);
        return zonal__row_scale{1, NAN, 1, NAN};
    }
    if (!rules.raw && rules.unit_rows)
        return zonal__row_scale{1, 1, (float)(1 / square), (float)rules.u};
    int exponent = norm > 0 ? ilogb(norm) : 0;
    int within = exponent > 126 ? 126 : exponent < -126 ? -126 : exponent;
    float p = zonal__power_of_two(-within);
    if (rules.raw)
        return zonal__row_scale{p, (float)ldexp(1.0, within - exponent), 1,
                                (float)ldexp(rules.u, exponent)};
    return zonal__row_scale{p, (float)(1 / (norm * p)), 1, (float)rules.u};
}

/* ---- sums over a block ---------------------------------------------------------------------- */

/* The sum of one double per thread in a fixed order, the same in all threads. part: a double per
 * warp in shared memory. */
__device__ inline double zonal__block_sum(double value, double *part) {
    value = zonal__warp_sum(value);
    __syncthreads(); /* part may still be read from the last time */
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    double sum = 0;
    for (unsigned i = 0; i < blockDim.x / 32; i++) sum += part[i];
    return sum;
}

/* True in all threads of the block that comes last to this place, which then sees what the others
 * have written before it. The count is 0 again afterwards. */
__device__ inline bool zonal__last_block(unsigned *count) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(count, 1u) + 1 == gridDim.x * gridDim.y;
        if (last) *count = 0;
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

#endif
