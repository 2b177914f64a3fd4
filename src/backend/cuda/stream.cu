/*
 * Pairs and KL for batches of any size, in tiles on the tensor cores: nothing of size B x B exists.
 *
 *     for each pair of panels of rows I <= J (2048 rows each):
 *         S = X_I X_J^T                          matrix product, fp32 sums
 *         W = psi'(S), sums of psi(S)            one kernel, a block per row
 *         O_I += W X_J,  O_J += W^T X_I          matrix products
 *     gradient = projection of O
 *
 * A tile of S is 16 MiB and stays in the L2 cache between the steps; O is the gradient's own memory
 * where that is fp32. KL makes one pass for the log-densities of all rows before this one.
 *
 * Precision. The tensor cores multiply 16-bit numbers. Rows are scaled by 2^7 and written as
 * hi + lo, two halves of 11 bits each, so that hi hi + hi lo + lo hi is right to 2^-22: that is
 * `fp32`. `tf32` takes hi alone: a half has TF32's mantissa at twice its rate, and unit rows do not
 * need its exponent. `bf16` takes bfloat16. The functions of the cosine are evaluated in single
 * precision where their fit is in powers of c and tame, and in double otherwise and for KL in fp32.
 *
 * Tensor cores cut their sums off instead of rounding them, so all cosines are a little too small,
 * by about 1e-7 of their value, and the mean of c^2 with them: more than D may be off when D is
 * 1/B. The value's degrees 1 and 2 are therefore taken from the moments, where such a bias cancels,
 * and only the rest of psi is summed over pairs.
 *
 * Several ranks. Every rank's rows, split and, in KL's second pass, with their log S, go round the
 * ring of the ranks once for each pass, and meet the own rows as columns of more tiles; a block is
 * sent on while it is worked on, and two blocks of the largest rank are all the memory this takes.
 * The rows of ranks that have few are collected until they fill a panel. A pair of two ranks is
 * looked at twice, by each for its own row.
 */
#include <math.h>

#include "backend/cuda/blas.cuh"
#include "backend/cuda/fit.cuh"
#include "backend/cuda/ranks.cuh"
#include "backend/cuda/stream.cuh"

static const int64_t PANEL = 2048; /* rows and columns of a tile */
static const int THREADS = 256;
static const int EACH = 8; /* columns of a thread */
static_assert(EACH * THREADS == PANEL, "a block covers a row of a tile");
static const size_t WORKSPACE = 8 << 20;

/* Tensor cores cut off at every addition, so the error of a sum grows with its length: longer rows
 * are taken in parts, whose sums are added with rounding. */
static const int64_t LONGEST_SUM = 512;

static const float ROW_SCALE = 128; /* 2^7: lo stays clear of half's subnormals */

/* psi less its degrees 1 and 2, b_1 P_1(c) + b_2 P_2(c) = k0 + c (k1 + c k2). Where the fit is in
 * powers of c the difference is too, and small enough at typical cosines for single precision. */
typedef struct high_degrees {
    double k0, k1, k2;
    int terms; /* of value; 0: evaluate the fit in double and subtract */
    float value[ZONAL__FIT_TERMS];
} high_degrees;

/* What a tile of a narrow kernel's weights is scaled by, and what its products are multiplied by:
 * on the device, where they are found. */
typedef struct tile_numbers {
    float scale, alpha, one;
} tile_numbers;

/* The rows that tiles have as columns: the own ones, or another rank's. */
typedef struct columns {
    const void *hi, *lo; /* [count][ld] 16 bit */
    const double *log_s; /* [count], KL */
    int64_t count;
    int foreign;
} columns;

typedef struct stream_work {
    zonal__cuda_base base;
    int kl, split, bf16;
    int64_t rows, dim, ld; /* ld: dim rounded up to 8 elements, 16 bytes */
    void *block[2];        /* other ranks' rows on their way: hi, lo, log_s; NULL on one rank */
    void *collected;       /* PANEL rows of other ranks, as in a block; NULL on one rank */
    double *total;         /* device, ranks: the sum over all rows of all of them */
    zonal__device_fit fit;
    void *hi, *lo; /* [rows][ld] 16 bit */
    float *s;      /* [PANEL][PANEL]; lent by the moments where theirs is large enough */
    int own_s;
    void *w_hi, *w_lo;  /* [PANEL][PANEL] 16 bit */
    float *o;           /* [rows][dim], NULL where the gradient itself serves */
    high_degrees high;  /* pairs: psi without degrees 1 and 2, in powers of c */
    int single;         /* 1: the functions of the cosine in single precision */
    double *row_sum;    /* [rows] sum of psi over the row's pairs; KL: log S_i */
    double *row_top;    /* [rows] KL: running maximum of log phi */
    zonal__work *low;   /* the moments: the mean, and for pairs the value's degrees 1 and 2 */
    double *low_value;  /* device: its value */
    float weight_scale; /* of w: a power of two that keeps it inside half's range */
    int narrow;     /* 1: typical weights are lost beside the largest possible: a scale a tile */
    float *largest; /* [PANEL], narrow: of the weights of each row of a tile */
    tile_numbers *numbers; /* device, narrow */
    int range;             /* KL: BROAD, PLAIN or RUNNING */
    double centre;         /* KL, PLAIN: log phi at c = 0 */
    float base_weight;     /* taken off every weight: see project_rows */
    const zonal__blas *cublas;
    cublasHandle_t blas;
    void *workspace;
} stream_work;

/* ---- kernels --------------------------------------------------------------------------------- */

template <typename T> __device__ inline T to16(float x);
template <> __device__ inline __half to16<__half>(float x) {
    return __float2half_rn(x);
}
template <> __device__ inline __nv_bfloat16 to16<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}
__device__ inline float from16(__half x) {
    return __half2float(x);
}
__device__ inline float from16(__nv_bfloat16 x) {
    return __bfloat162float(x);
}

/* A warp per row: the norm in double, then x/|x| scaled and split. */
template <typename In, typename T>
static __global__ void split_rows(const In *x, int64_t rows, int64_t dim, int64_t ld, int unit_rows,
                                  T *hi, T *lo, unsigned long long *bad_row) {
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    double sum = 0;
    for (int64_t k = lane; k < dim; k += 32) {
        double element = zonal__load(x + row * dim + k);
        sum += element * element;
    }
    sum = zonal__warp_sum(sum);
    double length = sqrt(sum);
    int trouble = zonal__row_trouble(length, unit_rows);
    if (trouble >= 0 && lane == 0) zonal__report_row(bad_row, row, trouble);
    double inverse = trouble >= 0 ? 0 : unit_rows ? 1 : 1 / length;
    for (int64_t k = lane; k < dim; k += 32) {
        float scaled = (float)(zonal__load(x + row * dim + k) * inverse * 128.0);
        T high = to16<T>(scaled);
        hi[row * ld + k] = high;
        if (lo) lo[row * ld + k] = to16<T>(scaled - from16(high));
    }
}

/* The sum over a block of one double per thread, in a fixed order; right in thread 0. */
__device__ inline double block_sum(double value) {
    __shared__ double part[THREADS / 32];
    value = zonal__warp_sum(value);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < THREADS / 32; i++) sum += part[i];
    __syncthreads();
    return sum;
}

__device__ inline double block_max(double value) {
    __shared__ double part[THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmax(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    double top = part[0];
    for (int i = 1; i < THREADS / 32; i++) top = fmax(top, part[i]);
    __syncthreads();
    return top;
}

/* Where a block is: one row of a tile, EACH consecutive columns a
 * thread; columns past the end are read as cosine 0 and left out of every sum. */
typedef struct tile {
    int64_t row0;
    int64_t col0; /* NO_DIAGONAL: none of the columns is one of the rows */
    int cols;     /* columns of this tile, at most PANEL */
} tile;
static const int64_t NO_DIAGONAL = (int64_t)1 << 62;

/* To [-1, 1]; a NaN stays one. */
__device__ inline float clamp_cosine(float c) {
    return c > 1 ? 1 : c < -1 ? -1 : c;
}

__device__ inline void load_cosines(const float *s, float *c) {
    const float4 *from = (const float4 *)(s + (int64_t)blockIdx.x * PANEL + threadIdx.x * EACH);
#pragma unroll
    for (int i = 0; i < EACH / 4; i++) {
        float4 four = from[i];
        c[4 * i] = clamp_cosine(four.x);
        c[4 * i + 1] = clamp_cosine(four.y);
        c[4 * i + 2] = clamp_cosine(four.z);
        c[4 * i + 3] = clamp_cosine(four.w);
    }
}

__device__ inline bool counts(const tile &at, int i) {
    int column = threadIdx.x * EACH + i;
    return column < at.cols && at.col0 + column != at.row0 + (int64_t)blockIdx.x;
}

/* Writes the weights less "base" and scaled; pairs that do not count have weight 0. */
template <typename T>
__device__ inline void store_weights(const tile &at, const float *w, float base, float scale,
                                     T *w_hi, T *w_lo) {
    int64_t first = (int64_t)blockIdx.x * PANEL + threadIdx.x * EACH;
    alignas(16) T high[EACH], low[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        float scaled = counts(at, i) ? (w[i] - base) * scale : 0;
        high[i] = to16<T>(scaled);
        low[i] = to16<T>(scaled - from16(high[i]));
    }
    *(uint4 *)(w_hi + first) = *(const uint4 *)high;
    if (w_lo) *(uint4 *)(w_lo + first) = *(const uint4 *)low;
}

__device__ inline void widen(const float *c, double *wide) {
#pragma unroll
    for (int i = 0; i < EACH; i++) wide[i] = c[i];
}

/* psi without its low degrees, and psi', at the thread's cosines. SINGLE: in single precision. */
template <bool SINGLE>
__device__ inline void psi_of(const zonal__device_fit &fit, const high_degrees &high,
                              const float *c, bool derivatives, float *value, float *derivative) {
    if (SINGLE) {
        zonal__horner<EACH>(high.terms, high.value, c, value);
        if (derivatives) zonal__fit_derivatives_single<EACH>(fit, c, derivative);
        return;
    }
    double wide[EACH], f[EACH];
    widen(c, wide);
    zonal__fit_values<EACH>(fit, wide, f);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        value[i] = (float)(f[i] - fma(wide[i], fma(wide[i], high.k2, high.k1), high.k0));
    if (derivatives) zonal__fit_derivatives<EACH>(fit, wide, derivative);
}

/* times is 2 for a tile off the diagonal, which stands for its mirror image too. */
template <typename T, bool GRADIENT, bool SINGLE>
static __global__ void __launch_bounds__(THREADS)
    psi_tile(const __grid_constant__ zonal__device_fit fit,
             const __grid_constant__ high_degrees high, tile at, double times, const float *s,
             float base, float scale, const tile_numbers *own, T *w_hi, T *w_lo, double *row_sum) {
    float c[EACH], f[EACH], w[EACH];
    double sum = 0;
    load_cosines(s, c);
    psi_of<SINGLE>(fit, high, c, GRADIENT, f, w);
#pragma unroll
    for (int i = 0; i < EACH; i++) sum += counts(at, i) ? (double)f[i] : 0;
    sum = block_sum(sum);
    if (threadIdx.x == 0) row_sum[at.row0 + blockIdx.x] += times * sum; /* this block's row alone */
    if (GRADIENT) store_weights(at, w, base, own ? own->scale : scale, w_hi, w_lo);
}

/* The largest weight of each row of a tile, less base. */
static __global__ void __launch_bounds__(THREADS)
    largest_weights(const __grid_constant__ zonal__device_fit fit, tile at, const float *s,
                    float base, float *largest) {
    float c[EACH], w[EACH];
    double wide[EACH], top = 0;
    load_cosines(s, c);
    widen(c, wide);
    zonal__fit_derivatives<EACH>(fit, wide, w);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (counts(at, i)) top = fmax(top, (double)fabsf(w[i] - base));
    top = block_max(top);
    if (threadIdx.x == 0) largest[blockIdx.x] = (float)top;
}

/* One block: the scale of a tile from its largest weight. */
static __global__ void __launch_bounds__(THREADS)
    scale_tile(int rows, const float *largest, tile_numbers *numbers) {
    double top = 0;
    for (int i = (int)threadIdx.x; i < rows; i += THREADS) top = fmax(top, (double)largest[i]);
    top = block_max(top);
    if (threadIdx.x > 0) return;
    int exponent = top > 0 && top < INFINITY ? 11 - ilogb(top) : 0;
    exponent = exponent > 110 ? 110 : exponent; /* alpha stays clear of fp32's subnormals */
    numbers->scale = ldexpf(1, exponent);
    numbers->alpha = ldexpf(1 / ROW_SCALE, -exponent);
    numbers->one = 1;
}

/* log phi at the thread's cosines. */
template <bool SINGLE>
__device__ inline void log_phi_of(const zonal__device_fit &fit, const float *c, double *l) {
    if (SINGLE) {
        float single[EACH];
        zonal__fit_values_single<EACH>(fit, c, single);
        widen(single, l);
        return;
    }
    double wide[EACH];
    widen(c, wide);
    zonal__fit_values<EACH>(fit, wide, l);
}

/* How the densities are summed: a broad kernel's log phi, spanning less than 1, as expm1 in double;
 * one that stays within single precision's exponents of its value at c = 0, against that value; a
 * narrow one by a running maximum. */
enum { BROAD, PLAIN, RUNNING };

/* KL, first pass: the log-sum-exp of each row. */
template <bool SINGLE>
static __global__ void __launch_bounds__(THREADS)
    kl_density(const __grid_constant__ zonal__device_fit fit, tile at, const float *s, int range,
               double centre, double *row_top, double *row_sum) {
    float c[EACH];
    double l[EACH], top = -INFINITY, sum = 0;
    int64_t row = at.row0 + blockIdx.x;
    load_cosines(s, c);
    log_phi_of<SINGLE>(fit, c, l);
    if (range != RUNNING) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (!counts(at, i)) continue;
            sum += range == BROAD ? expm1(l[i]) : (double)__expf((float)(l[i] - centre));
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0) row_sum[row] += sum;
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (counts(at, i)) top = fmax(top, l[i]);
    top = fmax(block_max(top), row_top[row]);
    if (!(top > -INFINITY)) return; /* nothing counts yet */
#pragma unroll
    for (int i = 0; i < EACH; i++) sum += counts(at, i) ? (double)__expf((float)(l[i] - top)) : 0;
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        row_sum[row] = row_sum[row] * exp(row_top[row] - top) + sum;
        row_top[row] = top;
    }
}

/* KL, between the passes: log S_i, with phi(1) = 1 added when the diagonal is kept. */
static __global__ void kl_close(int64_t rows, double n, int range, double centre, int keep_diagonal,
                                const double *row_top, double *row_sum) {
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    if (range == BROAD) {
        row_sum[row] = log1p(row_sum[row] / n) + log(n);
        return;
    }
    double top = range == PLAIN ? centre : row_top[row], sum = row_sum[row];
    if (keep_diagonal && top < 0) {
        sum = sum * exp(top) + 1;
        top = 0;
    } else if (keep_diagonal) {
        sum += exp(-top);
    }
    row_sum[row] = top + log(sum);
}

/* KL, second pass: the weights phi'(c) (1/S_i + 1/S_j). */
template <typename T, bool SINGLE>
static __global__ void __launch_bounds__(THREADS)
    kl_tile(const __grid_constant__ zonal__device_fit fit, tile at, const float *s, float base,
            float scale, const double *log_s, const double *column_log_s, T *w_hi, T *w_lo) {
    float c[EACH], w[EACH];
    double l[EACH], own = log_s[at.row0 + blockIdx.x];
    load_cosines(s, c);
    log_phi_of<SINGLE>(fit, c, l);
    if (SINGLE) {
        zonal__fit_derivatives_single<EACH>(fit, c, w);
    } else {
        double wide[EACH];
        widen(c, wide);
        zonal__fit_derivatives<EACH>(fit, wide, w);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (counts(at, i)) {
            double other = column_log_s[threadIdx.x * EACH + i];
            w[i] *= __expf((float)(l[i] - own)) + __expf((float)(l[i] - other));
        }
    }
    store_weights(at, w, base, scale, w_hi, w_lo);
}

/* A warp per row: g = O + common, then scale (g - (g.x) x)/|z|. O holds sums with weights less
 * base_weight, so that what all pairs have in common, base_weight times the sum of all rows, is not
 * lost in the tensor cores' cut-off sums but added here, in double: common_weight = base_weight B
 * times the mean. (The row's own share of it is radial.) O and the gradient may be the same memory:
 * each element is read before it is written, by the same lane. */
template <typename In>
static __global__ void project_rows(const In *x, const float *o, const double *mean,
                                    double common_weight, int64_t rows, int64_t dim, int unit_rows,
                                    double scale, In *gradient) {
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    const In *z = x + row * dim;
    const float *g = o + row * dim;
    double along = 0, square = 0;
    for (int64_t k = lane; k < dim; k += 32) {
        double element = zonal__load(z + k);
        along += element * (g[k] + common_weight * mean[k]);
        square += element * element;
    }
    along = zonal__warp_sum(along);
    square = zonal__warp_sum(square);
    double radial = along / square, length = unit_rows ? 1.0 : sqrt(square);
    for (int64_t k = lane; k < dim; k += 32) {
        double element = zonal__load(z + k), own = g[k] + common_weight * mean[k];
        zonal__store(gradient + row * dim + k, (float)(scale * (own - radial * element) / length));
    }
}

/* One block: value = offset + factor * (low + total / divisor), rows added in a fixed order. */
static __global__ void finish_value(int64_t rows, const double *row_sum, double shift,
                                    double divisor, const double *low, double offset, double factor,
                                    double *value) {
    __shared__ double part[32];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) sum += row_sum[i] - shift;
    sum = zonal__warp_sum(sum);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    sum = 0;
    for (unsigned i = 0; i < blockDim.x / 32; i++) sum += part[i];
    *value = offset + factor * ((low ? *low : 0) + sum / divisor);
}

/* The same from a sum over all rows of all ranks. */
static __global__ void close_value(const double *total, double divisor, const double *low,
                                   double offset, double factor, double *value) {
    *value = offset + factor * ((low ? *low : 0) + *total / divisor);
}

static __global__ void fill_doubles(int64_t n, double value, double *out) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = value;
}

/* ---- host ------------------------------------------------------------------------------------ */

static zonal_status blas_status(cublasStatus_t status, const char *call) {
    if (status == CUBLAS_STATUS_SUCCESS) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_DEVICE, "cuBLAS failed with status %d in %s", (int)status, call);
}
#define BLAS(call) blas_status((call), #call)

static cudaDataType type16(const stream_work *work) {
    return work->bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* out[n][m] (row-major, leading dimension ldo) = alpha b a + beta out, in fp32; a and b are 16-bit
 * row-major: a is [k][m], or [m][k] with a_across; b is [n][k], or [k][n] with b_across. */
static zonal_status multiply(const stream_work *work, int a_across, int b_across, int64_t m,
                             int64_t n, int64_t k, const float *alpha, const void *a, int64_t lda,
                             const void *b, int64_t ldb, const float *beta, float *out,
                             int64_t ldo) {
    return BLAS(work->cublas->gemm(
        work->blas, a_across ? CUBLAS_OP_T : CUBLAS_OP_N, b_across ? CUBLAS_OP_T : CUBLAS_OP_N,
        (int)m, (int)n, (int)k, alpha, a, type16(work), (int)lda, b, type16(work), (int)ldb, beta,
        out, CUDA_R_32F, (int)ldo, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

static const void *at16(const void *base, int64_t elements) {
    return (const char *)base + 2 * elements;
}

/* S = X_I X_J^T, X_J the columns from col0 on. */
static zonal_status cosines(const stream_work *work, const columns *from, int64_t col0,
                            const tile *at, int64_t rows) {
    int64_t ld = work->ld, i0 = at->row0 * ld, j0 = col0 * ld;
    const void *left[] = {work->hi, work->hi, work->lo}, *right[] = {from->hi, from->lo, from->hi};
    const float alpha = 1 / (ROW_SCALE * ROW_SCALE), zero = 0, one = 1;
    int64_t length = work->split ? LONGEST_SUM : work->dim;
    for (int part = 0; part < (work->split ? 3 : 1); part++)
        for (int64_t k = 0; k < work->dim; k += length) {
            int64_t count = work->dim - k < length ? work->dim - k : length;
            ZONAL_TRY(multiply(work, 1, 0, at->cols, rows, count, &alpha, at16(right[part], j0 + k),
                               ld, at16(left[part], i0 + k), ld, part || k ? &one : &zero, work->s,
                               PANEL));
        }
    return ZONAL_OK;
}

/* O_I += W X_J and, of own columns off the diagonal, O_J += W^T X_I. */
static zonal_status gather(const stream_work *work, const columns *from, int64_t col0,
                           const tile *at, int64_t rows, float *o) {
    int64_t ld = work->ld, dim = work->dim, i0 = at->row0, j0 = col0;
    const void *weight[] = {work->w_hi, work->w_lo, work->w_hi};
    const void *row[] = {work->hi, work->hi, work->lo};
    const void *column[] = {from->hi, from->hi, from->lo};
    const float fixed = 1 / (ROW_SCALE * work->weight_scale), sum = 1;
    const float *alpha = work->narrow ? &work->numbers->alpha : &fixed;
    const float *one = work->narrow ? &work->numbers->one : &sum;
    if (work->narrow)
        ZONAL_TRY(BLAS(work->cublas->set_pointer_mode(work->blas, CUBLAS_POINTER_MODE_DEVICE)));
    for (int part = 0; part < (work->split ? 3 : 1); part++) {
        ZONAL_TRY(multiply(work, 0, 0, dim, rows, at->cols, alpha, at16(column[part], j0 * ld), ld,
                           weight[part], PANEL, one, o + i0 * dim, dim));
        if (!from->foreign && i0 != j0)
            ZONAL_TRY(multiply(work, 0, 1, dim, at->cols, rows, alpha, at16(row[part], i0 * ld), ld,
                               weight[part], PANEL, one, o + j0 * dim, dim));
    }
    return BLAS(work->cublas->set_pointer_mode(work->blas, CUBLAS_POINTER_MODE_HOST));
}

template <typename In, typename T> static zonal_status split(stream_work *work, const void *x) {
    unsigned blocks = (unsigned)((work->rows + 3) / 4);
    if (blocks == 0) return ZONAL_OK;
    split_rows<In, T><<<blocks, 128, 0, work->base.stream>>>(
        (const In *)x, work->rows, work->dim, work->ld, work->base.problem.unit_rows, (T *)work->hi,
        (T *)work->lo, work->base.bad_row);
    return ZONAL_CUDA_LAUNCHED();
}

template <typename T> static zonal_status split_any(stream_work *work, const void *x) {
    switch (work->base.problem.dtype) {
    case ZONAL_DTYPE_BF16:
        return split<__nv_bfloat16, T>(work, x);
    case ZONAL_DTYPE_FP16:
        return split<__half, T>(work, x);
    default:
        return split<float, T>(work, x);
    }
}

template <typename In>
static zonal_status project(const stream_work *work, const void *x, const float *o, double scale,
                            void *gradient) {
    if (work->rows == 0) return ZONAL_OK;
    project_rows<In><<<(unsigned)((work->rows + 3) / 4), 128, 0, work->base.stream>>>(
        (const In *)x, o, zonal__cuda_moments_mean(work->low),
        (double)work->base_weight * (double)work->base.batch, work->rows, work->dim,
        work->base.problem.unit_rows, scale, (In *)gradient);
    return ZONAL_CUDA_LAUNCHED();
}

static zonal_status project_any(const stream_work *work, const void *x, const float *o,
                                double scale, void *gradient) {
    switch (work->base.problem.dtype) {
    case ZONAL_DTYPE_BF16:
        return project<__nv_bfloat16>(work, x, o, scale, gradient);
    case ZONAL_DTYPE_FP16:
        return project<__half>(work, x, o, scale, gradient);
    default:
        return project<float>(work, x, o, scale, gradient);
    }
}

static zonal_status fill(const stream_work *work, double value, double *out) {
    if (work->rows == 0) return ZONAL_OK;
    fill_doubles<<<(unsigned)((work->rows + 255) / 256), 256, 0, work->base.stream>>>(work->rows,
                                                                                      value, out);
    return ZONAL_CUDA_LAUNCHED();
}

/* What happens to a tile of cosines. Of other ranks' columns each side sums its own. */
template <typename T>
static zonal_status visit(const stream_work *work, const columns *from, int64_t col0,
                          const tile *at, int64_t rows, int density, int gradient) {
    cudaStream_t stream = work->base.stream;
    T *w_hi = (T *)work->w_hi, *w_lo = (T *)work->w_lo;
    unsigned blocks = (unsigned)rows;
    double times = from->foreign || at->row0 == at->col0 ? 1 : 2;
    if (work->narrow && gradient) {
        largest_weights<<<blocks, THREADS, 0, stream>>>(work->fit, *at, work->s, work->base_weight,
                                                        work->largest);
        scale_tile<<<1, THREADS, 0, stream>>>((int)rows, work->largest, work->numbers);
    }
    if (density)
        (work->single ? kl_density<true> : kl_density<false>)<<<blocks, THREADS, 0, stream>>>(
            work->fit, *at, work->s, work->range, work->centre, work->row_top, work->row_sum);
    else if (work->kl)
        (work->single ? kl_tile<T, true> : kl_tile<T, false>)<<<blocks, THREADS, 0, stream>>>(
            work->fit, *at, work->s, work->base_weight, work->weight_scale, work->row_sum,
            from->log_s + col0, w_hi, w_lo);
    else
        (gradient       ? work->single ? psi_tile<T, true, true> : psi_tile<T, true, false>
               : work->single ? psi_tile<T, false, true>
                        : psi_tile<T, false, false>)<<<blocks, THREADS, 0, stream>>>(
            work->fit, work->high, *at, times, work->s, work->base_weight, work->weight_scale,
            work->numbers, w_hi, w_lo, work->row_sum);
    return ZONAL_CUDA_LAUNCHED();
}

static int64_t panel_at(int64_t count, int64_t first) {
    return count - first < PANEL ? count - first : PANEL;
}

/* The own rows against some columns: all tiles for the densities, which are sums along rows alone,
 * and for other ranks' columns, and half of them otherwise. o is NULL where there is no gradient.
 */
template <typename T>
static zonal_status meet(const stream_work *work, const columns *from, int density, float *o) {
    for (int64_t row0 = 0; row0 < work->rows; row0 += PANEL) {
        int64_t rows = panel_at(work->rows, row0);
        for (int64_t col0 = density || from->foreign ? 0 : row0; col0 < from->count;
             col0 += PANEL) {
            tile at = {row0, from->foreign ? NO_DIAGONAL : col0, (int)panel_at(from->count, col0)};
            ZONAL_TRY(cosines(work, from, col0, &at, rows));
            ZONAL_TRY(visit<T>(work, from, col0, &at, rows, density, o != NULL));
            if (o) ZONAL_TRY(gather(work, from, col0, &at, rows, o));
        }
    }
    return ZONAL_OK;
}

/* Bytes of so many rows on their way: the densities' pass goes before log_s is known. */
static size_t block_bytes(const stream_work *work, int64_t count, int with_log) {
    return (size_t)count * ((size_t)work->ld * (work->split ? 4 : 2) + (with_log ? 8 : 0));
}

/* The rows in a block that has room for "room" of them. */
static columns columns_in(const stream_work *work, const void *block, int64_t room, int64_t count) {
    const char *at = (const char *)block;
    size_t part = (size_t)(room * work->ld) * 2;
    columns rows = {at, work->split ? at + part : NULL,
                    (const double *)(at + (work->split ? 2 : 1) * part), count, 1};
    return rows;
}

static zonal_status copy_on(const stream_work *work, const void *to, const void *from,
                            size_t bytes) {
    if (bytes == 0) return ZONAL_OK;
    return ZONAL_CUDA(
        cudaMemcpyAsync((void *)to, from, bytes, cudaMemcpyDeviceToDevice, work->base.stream));
}

/* Puts rows behind those that are there. */
static zonal_status append(const stream_work *work, const columns *rows, int with_log,
                           columns *to) {
    int64_t at = to->count * work->ld;
    size_t part = (size_t)(rows->count * work->ld) * 2;
    ZONAL_TRY(copy_on(work, at16(to->hi, at), rows->hi, part));
    if (work->split) ZONAL_TRY(copy_on(work, at16(to->lo, at), rows->lo, part));
    if (with_log)
        ZONAL_TRY(copy_on(work, to->log_s + to->count, rows->log_s,
                          (size_t)rows->count * sizeof(double)));
    to->count += rows->count;
    return ZONAL_OK;
}

/* The own rows against another rank's, or these put with others' for later. */
template <typename T>
static zonal_status meet_visitors(const stream_work *work, const columns *from, int density,
                                  int with_log, float *o, columns *collected) {
    if (from->count >= PANEL) return meet<T>(work, from, density, o);
    if (collected->count + from->count > PANEL) {
        ZONAL_TRY(meet<T>(work, collected, density, o));
        collected->count = 0;
    }
    return append(work, from, with_log, collected);
}

/* The own rows against all rows of the batch. */
template <typename T> static zonal_status meet_all(const stream_work *work, int density, float *o) {
    const zonal__ranks *ranks = work->base.problem.ranks;
    columns own = {work->hi, work->lo, work->row_sum, work->rows, 0};
    if (!ranks) return meet<T>(work, &own, density, o);
    int last = ranks->communicator.ranks - 1, with_log = work->kl && !density;
    columns packed = columns_in(work, work->block[0], work->rows, 0);
    columns collected = columns_in(work, work->collected, PANEL, 0);
    if (last > 0) ZONAL_TRY(append(work, &own, with_log, &packed));
    for (int step = 0; step <= last; step++) {
        int64_t count = ranks->rows[zonal__ranks_owner(ranks, step)];
        void *here = work->block[step % 2], *next = work->block[(step + 1) % 2];
        columns from = columns_in(work, here, count, count);
        size_t next_bytes =
            block_bytes(work, ranks->rows[zonal__ranks_owner(ranks, step + 1)], with_log);
        if (step < last)
            ZONAL_TRY(zonal__cuda_ranks_shift_begin(
                &work->base, step, here, block_bytes(work, count, with_log), next, next_bytes));
        ZONAL_TRY(step == 0 ? meet<T>(work, &own, density, o)
                            : meet_visitors<T>(work, &from, density, with_log, o, &collected));
        if (step < last)
            ZONAL_TRY(zonal__cuda_ranks_shift_end(&work->base, step, next, next_bytes));
    }
    return meet<T>(work, &collected, density, o);
}

/* One pass over the tiles. */
template <typename T>
static zonal_status pass(const stream_work *work, const void *x, int density, double scale,
                         void *gradient) {
    float *o = !gradient ? NULL : work->o ? work->o : (float *)gradient;
    if (gradient && work->rows > 0)
        ZONAL_TRY(ZONAL_CUDA(cudaMemsetAsync(o, 0, (size_t)(work->rows * work->dim) * sizeof *o,
                                             work->base.stream)));
    ZONAL_TRY(meet_all<T>(work, density, o));
    return gradient ? project_any(work, x, o, scale, gradient) : ZONAL_OK;
}

/* value = offset + factor (low + sum over all rows of (row_sum - shift)/divisor) */
static zonal_status write_value(const stream_work *work, double shift, double divisor,
                                const double *low, double *value) {
    const zonal__problem *problem = &work->base.problem;
    cudaStream_t stream = work->base.stream;
    if (!problem->ranks) {
        finish_value<<<1, 1024, 0, stream>>>(work->rows, work->row_sum, shift, divisor, low,
                                             problem->offset, problem->factor, value);
        return ZONAL_CUDA_LAUNCHED();
    }
    finish_value<<<1, 1024, 0, stream>>>(work->rows, work->row_sum, shift, 1, NULL, 0, 1,
                                         work->total);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    ZONAL_TRY(zonal__cuda_ranks_sum(&work->base, work->total, 1));
    close_value<<<1, 1, 0, stream>>>(work->total, divisor, low, problem->offset, problem->factor,
                                     value);
    return ZONAL_CUDA_LAUNCHED();
}

static zonal_status close_densities(const stream_work *work, double n) {
    if (work->rows == 0) return ZONAL_OK;
    kl_close<<<(unsigned)((work->rows + 255) / 256), 256, 0, work->base.stream>>>(
        work->rows, n, work->range, work->centre, work->base.problem.keep_diagonal, work->row_top,
        work->row_sum);
    return ZONAL_CUDA_LAUNCHED();
}

template <typename T>
static zonal_status run_as(stream_work *work, const void *x, double *value, void *gradient,
                           double factor) {
    const zonal__problem *problem = &work->base.problem;
    double b = (double)work->base.batch, n = problem->keep_diagonal ? b : b - 1;
    cudaStream_t stream = work->base.stream;
    ZONAL_TRY(BLAS(work->cublas->set_stream(work->blas, stream)));
    /* Setting the stream resets the workspace to cuBLAS's own pool: ours again, for graphs. */
    ZONAL_TRY(BLAS(work->cublas->set_workspace(work->blas, work->workspace, WORKSPACE)));
    zonal__cuda_moments.set_stream(work->low, stream);
    ZONAL_TRY(zonal__cuda_moments.run(work->low, x, 0, work->low_value, NULL, 0));
    ZONAL_TRY(split_any<T>(work, x));
    ZONAL_TRY(fill(work, 0, work->row_sum));
    if (work->kl) {
        ZONAL_TRY(fill(work, -INFINITY, work->row_top));
        ZONAL_TRY(pass<T>(work, x, 1, 0, NULL));
        ZONAL_TRY(close_densities(work, n));
        if (gradient) ZONAL_TRY(pass<T>(work, x, 0, factor / b, gradient));
        return write_value(work, log(n), b, NULL, value);
    }
    ZONAL_TRY(pass<T>(work, x, 0, 2 * factor / (b * b), gradient));
    return write_value(work, 0, b * b, work->low_value, value);
}

zonal_status zonal__cuda_stream_run(zonal__work *opaque, const void *x, uint32_t step,
                                    double *value, void *gradient, double factor) {
    stream_work *work = (stream_work *)opaque;
    (void)step;
    if (work->bf16) return run_as<__nv_bfloat16>(work, x, value, gradient, factor);
    return run_as<__half>(work, x, value, gradient, factor);
}

void zonal__cuda_stream_destroy(zonal__work *opaque) {
    stream_work *work = (stream_work *)opaque;
    if (!work) return;
    if (work->low) zonal__cuda_moments.destroy(work->low);
    void *memory[] = {work->hi,       work->lo,       work->own_s ? work->s : NULL,
                      work->w_hi,     work->w_lo,     work->o,
                      work->row_sum,  work->row_top,  work->low_value,
                      work->largest,  work->numbers,  work->workspace,
                      work->block[0], work->block[1], work->collected,
                      work->total};
    for (void *block : memory) cudaFree(block);
    if (work->blas) work->cublas->destroy(work->blas);
    zonal__device_fit_fini(&work->fit);
    zonal__cuda_base_fini(&work->base);
    zonal__free(work);
}

template <typename P>
static zonal_status alloc(stream_work *work, int64_t count, size_t size, const char *what,
                          P **out) {
    void *memory = NULL;
    zonal_status status = zonal__cuda_alloc(&work->base, (size_t)count * size, what, &memory);
    *out = (P *)memory;
    return status;
}

/* The power of two that brings the largest weight near 2^12: weights a thousandth of it still have
 * all their bits, and lo too. */
static float scale_for(double largest) {
    return largest > 0 ? ldexpf(1, 12 - (int)ceil(log2(largest))) : 1;
}

/* psi without degrees 1 and 2. */
static void split_degrees(const zonal__problem *problem, high_degrees *high) {
    const zonal__fit *fit = problem->psi->fit;
    double b2 = problem->degree2 / (double)(problem->dim - 1);
    high->k0 = -b2;
    high->k1 = problem->degree1;
    high->k2 = b2 * (double)problem->dim;
    if (!fit || fit->n_monomial == 0 || fit->n_monomial > ZONAL__FIT_TERMS || fit->low > -1) return;
    double low[3] = {high->k0, high->k1, high->k2};
    high->terms = fit->n_monomial < 3 ? 3 : fit->n_monomial;
    for (int k = 0; k < high->terms; k++)
        high->value[k] =
            (float)((k < fit->n_monomial ? fit->monomial[k] : 0) - (k < 3 ? low[k] : 0));
}

static zonal_status build_tiles(stream_work *work) {
    const zonal__problem *problem = &work->base.problem;
    int64_t side = work->rows < PANEL ? work->rows : PANEL;
    size_t lent = 0;
    zonal__problem low = *problem;
    low.offset = 0;
    low.factor = 1;
    if (work->kl) { /* the mean alone */
        low.degree1 = 1;
        low.degree2 = 0;
    } else {
        split_degrees(problem, &work->high);
    }
    ZONAL_TRY(zonal__cuda_moments.create(&low, &work->low));
    ZONAL_TRY(alloc(work, 1, sizeof(double), "the moments' value", &work->low_value));
    work->base.bytes += zonal__cuda_moments.scratch_bytes(work->low);
    work->s = (float *)zonal__cuda_moments_lend(work->low, &lent);
    if (lent < (size_t)(side * PANEL) * sizeof(float)) {
        work->own_s = 1;
        ZONAL_TRY(alloc(work, side * PANEL, sizeof(float), "a tile of cosines", &work->s));
    }
    ZONAL_TRY(alloc(work, side * PANEL, 2, "a tile of weights", &work->w_hi));
    if (work->split) ZONAL_TRY(alloc(work, side * PANEL, 2, "a tile of weights", &work->w_lo));
    if (problem->dtype != ZONAL_DTYPE_FP32)
        ZONAL_TRY(
            alloc(work, work->rows * work->dim, sizeof(float), "the gradient in fp32", &work->o));
    return ZONAL_OK;
}

static zonal_status build_ranks(stream_work *work) {
    const zonal__ranks *ranks = work->base.problem.ranks;
    if (!ranks) return ZONAL_OK;
    size_t bytes = block_bytes(work, ranks->most, work->kl);
    for (int i = 0; i < 2; i++)
        ZONAL_TRY(alloc(work, 1, bytes, "the other ranks' rows", &work->block[i]));
    ZONAL_TRY(alloc(work, 1, block_bytes(work, PANEL, work->kl), "the other ranks' rows",
                    &work->collected));
    ZONAL_TRY(alloc(work, 1, sizeof(double), "the ranks' sum", &work->total));
    return zonal__cuda_ranks_room(&work->base, bytes > sizeof(double) ? bytes : sizeof(double));
}

static zonal_status build(stream_work *work) {
    const zonal__problem *problem = &work->base.problem;
    const zonal__fit *fit = work->kl ? problem->log_phi : problem->psi->fit;
    double largest = 1;
    ZONAL_TRY(zonal__cuda_blas(&work->cublas));
    ZONAL_TRY(zonal__device_fit_init(&work->base, work->kl ? NULL : problem->psi, problem->log_phi,
                                     &work->fit));
    if (fit) {
        largest = fmax(fabs(zonal__fit_derivative(fit, 1)), fabs(zonal__fit_derivative(fit, -1)));
        double at_zero = zonal__fit_value(fit, 0), at_low = zonal__fit_value(fit, -1);
        work->centre = at_zero;
        work->range = at_low > -1                              ? BROAD
                      : at_zero > -80 && at_low > at_zero - 80 ? PLAIN
                                                               : RUNNING;
        work->base_weight =
            (float)(zonal__fit_derivative(fit, 0) * (work->kl ? 2 / (double)work->base.batch : 1));
    }
    work->weight_scale = scale_for(work->kl ? 2 * largest : largest);
    ZONAL_TRY(alloc(work, work->rows * work->ld, 2, "the rows", &work->hi));
    if (work->split) ZONAL_TRY(alloc(work, work->rows * work->ld, 2, "the rows", &work->lo));
    ZONAL_TRY(build_tiles(work));
    ZONAL_TRY(build_ranks(work));
    work->single = work->fit.float_derivative &&
                   (work->kl ? !work->split && work->range != BROAD : work->high.terms > 0);
    /* Halves hold weights down to 2^-24 of the largest, and all their bits to 2^-13 or so. */
    work->narrow =
        !work->kl && fit && !work->bf16 && fabs(zonal__fit_derivative(fit, 0)) < largest / 1024;
    if (work->narrow) {
        ZONAL_TRY(alloc(work, PANEL, sizeof(float), "the largest weights", &work->largest));
        ZONAL_TRY(alloc(work, 1, sizeof(tile_numbers), "a tile's scale", &work->numbers));
    }
    ZONAL_TRY(alloc(work, work->rows, sizeof(double), "the row sums", &work->row_sum));
    if (work->kl) ZONAL_TRY(alloc(work, work->rows, sizeof(double), "the maxima", &work->row_top));
    ZONAL_TRY(
        alloc(work, (int64_t)WORKSPACE, 1, "the matrix products' workspace", &work->workspace));
    ZONAL_TRY(BLAS(work->cublas->create(&work->blas)));
    return BLAS(work->cublas->set_math_mode(work->blas, CUBLAS_DEFAULT_MATH));
}

zonal_status zonal__cuda_stream_create(const zonal__problem *problem, zonal__operation operation,
                                       zonal__work **out) {
    void *memory;
    *out = NULL;
    ZONAL_TRY(zonal__alloc(1, sizeof(stream_work), "the work space", &memory));
    stream_work *work = (stream_work *)memory;
    zonal_status status = zonal__cuda_base_init(&work->base, problem);
    work->kl = operation == ZONAL__KL;
    work->split = problem->precision == ZONAL_PRECISION_FP32;
    work->bf16 = problem->precision == ZONAL_PRECISION_BF16;
    work->rows = problem->rows;
    work->dim = problem->dim;
    work->ld = (problem->dim + 7) / 8 * 8;
    if (status == ZONAL_OK) status = build(work);
    if (status == ZONAL_OK)
        *out = (zonal__work *)work;
    else
        zonal__cuda_stream_destroy((zonal__work *)work);
    return status;
}
