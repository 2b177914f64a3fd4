/*
 * SLICED: SUSReg and SIGReg. For directions a and knots t_k, with u_i = row_scale a.x_i,
 *
 *     C_k + i S_k = mean_i e^(i t_k u_i) - target_k
 *     value       mean over a of sum_k weight_k (C_k^2 + S_k^2)
 *     d/du_i      2/(B slices) sum_k weight_k t_k (S_k cos(t_k u_i) - C_k sin(t_k u_i))
 *
 * Nothing of size B x slices x knots exists; of size B x slices there is u, a chunk of slices at a
 * time. For each chunk:
 *
 *     prepare_chunk  draws the directions, the CPU's to the last bit; norms, the first time
 *     project        u = row_scale A X^T on the tensor cores
 *     walk           a block per slice: sums over all rows, the statistic, and d/du in u's place
 *     spread         the gradient, (d/du)^T A on the tensor cores, and its projection
 *
 * The products are split (split_product.cuh). Everything between them is double, which this device
 * does at half the rate of single: one sincos per row and slice, then powers by multiplication.
 *
 * A batch that fills less than the device has its last product cut along the slices, into parts
 * that zonal__finish_rows adds; in a batch whose u is too large for 64 MiB few slices go at a time,
 * so that walk is cut along the rows, into one launch for the sums and one for the gradients. It is
 * cut like this on several ranks too, which add up the chunk's sums in between.
 */
#include <math.h>

#include "backend/cuda/ranks.cuh"
#include "backend/cuda/split_product.cuh"
#include "backend/cuda/tiled_work.cuh"

extern "C" {
#include "core/random.h"
#include "core/random_scalar.h"
}

namespace { /* and kernels are templates: nvcc makes the stubs of others global */

enum { MOST_CLUSTER = 8, PARTS = 12, SEGMENT_ROWS = 2048 };
static const size_t MOST_U = 64 << 20; /* bytes */

/* walk's work: one slice per block along x, one segment of the rows along y. */
typedef struct walk_task {
    float *u; /* [slices][pitch] of the chunk */
    int64_t pitch, rows;
    double batch;     /* rows of all ranks */
    int knots, first; /* first: 1 where t_0 = 0, whose sums are known */
    double knot0, step;
    const double *weight, *target; /* [knots] */
    int segments;
    double *sums;   /* [slices of the chunk][kept][2 knots] */
    int kept;       /* the segments, or 1 where their sums have been added up */
    double du_unit; /* a power of two that keeps d/du inside half's range */
    int gradients;
    double *statistic;            /* [slices of the chunk] */
    const double *all_statistics; /* [all], or NULL while chunks are left */
    int64_t all;
    double offset, factor;
    unsigned *count;
    double *value;
} walk_task;

typedef struct sliced_work {
    zonal__cuda_base base;
    const char *what; /* tiled_work.cuh, as are memory and n_memory */
    int products, knots, large_u, large_g;
    int64_t slices, chunk, chunks;
    int segments, parts; /* of walk's rows; of spread's slices */
    int walk_threads;
    double row_scale, knot0, step, du_unit;
    uint64_t seed;
    int raw;
    int64_t pitch_u, pitch_a;
    zonal__row_scale *scale;      /* [rows] */
    float *directions;            /* [chunk][pitch_a] */
    float *u;                     /* [chunk][pitch_u] */
    double *weight, *target;      /* [knots] */
    double *sums;                 /* [chunk][segments][2 knots], where walk is cut */
    double *all_sums;             /* [chunk][2 knots]: of all segments and ranks */
    double *statistic;            /* [slices] */
    float *product;               /* [parts][rows][dim], where it is needed */
    zonal__gradient_terms *terms; /* one */
    unsigned *count;              /* one */
    void *memory[PARTS];
    int n_memory;
} sliced_work;

/* ---- directions and norms ------------------------------------------------------------------- */

__device__ static void draw_direction(const zonal__random &random, uint64_t slice, int dim,
                                      double *normal, float *out) {
    __shared__ double scale;
    for (int pair = (int)threadIdx.x; pair < (dim + 1) / 2; pair += (int)blockDim.x) {
        double two[2];
        zonal__normal_pair(&random, slice, (uint32_t)pair, two);
        normal[2 * pair] = two[0];
        if (2 * pair + 1 < dim) normal[2 * pair + 1] = two[1];
    }
    __syncthreads();
    /* One after the other, as on the CPU: the order is part of the result. */
    if (threadIdx.x == 0) scale = zonal__direction_scale(dim, normal);
    __syncthreads();
    for (int k = (int)threadIdx.x; k < dim; k += (int)blockDim.x)
        out[k] = (float)(normal[k] * scale);
}

/* Blocks below "count" draw a direction each; the others measure four rows each. */
template <typename T>
__global__ void __launch_bounds__(128)
    prepare_chunk(zonal__random random, const uint32_t *device_step, int64_t slice0, int64_t count,
                  int64_t pitch, float *out, zonal__row_operand<T, false> x, zonal__row_rules rules,
                  zonal__row_scale *scale) {
    extern __shared__ double normal[];
    if (blockIdx.x < count) {
        if (device_step) random.step = *device_step;
        draw_direction(random, (uint64_t)(slice0 + blockIdx.x), x.dim, normal,
                       out + blockIdx.x * pitch);
        return;
    }
    int64_t row = (blockIdx.x - count) * 4 + threadIdx.x / 32;
    if (row >= x.rows) return;
    double square = 0;
    for (int k = (int)threadIdx.x % 32 * 4; k < x.dim; k += 128) {
        float4 v = zonal__widen(zonal__load4(x.z + row * x.dim + k, x.dim - k, x.vector));
        square = fma((double)v.x, (double)v.x, fma((double)v.y, (double)v.y, square));
        square = fma((double)v.z, (double)v.z, fma((double)v.w, (double)v.w, square));
    }
    zonal__row_scale own = zonal__scale_row(rules, zonal__warp_sum(square), row);
    if (threadIdx.x % 32 == 0) scale[row] = own;
}

/* ---- projections ---------------------------------------------------------------------------- */

template <bool TRANSPOSED, int PRODUCTS, bool LARGE> struct choose_tile {
    using type = zonal__large_tile<TRANSPOSED, PRODUCTS>;
};
template <bool TRANSPOSED, int PRODUCTS> struct choose_tile<TRANSPOSED, PRODUCTS, false> {
    using type = zonal__small_tile<TRANSPOSED, PRODUCTS>;
};

/* u [slices][pitch]: slices along x, rows along y. */
template <typename T, int PRODUCTS, bool LARGE>
__global__ void __launch_bounds__(LARGE ? 256 : 128, 1)
    project(zonal__flat_operand directions, zonal__row_operand<T, false> x, int64_t pitch,
            float *u) {
    using tile_type = typename choose_tile<false, PRODUCTS, LARGE>::type;
    constexpr int NI = tile_type::COLUMN_FRAGMENTS;
    constexpr float UNIT = 1 / (ZONAL__ROW_UNIT * ZONAL__ROW_UNIT);
    extern __shared__ __align__(16) unsigned char shared[];
    tile_type tile;
    int64_t slice0 = (int64_t)blockIdx.x * tile_type::M, row0 = (int64_t)blockIdx.y * tile_type::N;
    tile.clear();
    tile.run(directions, x, slice0, row0, 0, x.dim, (__half *)shared);
#pragma unroll
    for (int j = 0; j < NI; j++) {
        int64_t row = row0 + tile_type::column_of((int)threadIdx.x, j * 4);
        float a = row < x.rows ? x.scale[row].u * UNIT : 0;
        float b = row + 1 < x.rows ? x.scale[row + 1].u * UNIT : 0;
        if (row >= x.rows) continue;
#pragma unroll
        for (int i = 0; i < 2 * tile_type::ROW_FRAGMENTS; i++) {
            int64_t slice =
                slice0 + tile_type::row_of((int)threadIdx.x, i / 2 * 4 * NI + i % 2 * 2);
            const float *sum = &tile.sum[i / 2][j][i % 2 * 2];
            if (slice < directions.rows)
                *(float2 *)(u + slice * pitch + row) = make_float2(sum[0] * a, sum[1] * b);
        }
    }
}

/* ---- characteristic functions --------------------------------------------------------------- */

/* Adds up each of a lane's COUNT values over the warp: 31 exchanges for 32 values, since every step
 * halves what a lane is responsible for. Lane l ends with the sum of value l * COUNT / 32 as its
 * first. */
template <int LEFT, int COUNT> __device__ inline void spread_sum(double (&value)[COUNT]) {
    constexpr int OFFSET = LEFT * 32 / COUNT;
    bool upper = threadIdx.x & OFFSET;
#pragma unroll
    for (int i = 0; i < LEFT; i++) {
        double give = upper ? value[i] : value[i + LEFT];
        double keep = upper ? value[i + LEFT] : value[i];
        value[i] = keep + __shfl_xor_sync(0xffffffffu, give, OFFSET);
    }
    if constexpr (LEFT > 1)
        spread_sum<LEFT / 2>(value);
    else
        for (int offset = OFFSET / 2; offset > 0; offset /= 2)
            value[0] += __shfl_xor_sync(0xffffffffu, value[0], offset);
}

/* Sums of e^(i t_k u) over rows begin .. end-1 for all knots, to re and im in shared memory; GROUP
 * knots at a time. */
template <int GROUP>
__device__ inline void add_rows(const walk_task &task, const float *u, int64_t begin, int64_t end,
                                double *re, double *im) {
    __shared__ double part[8][2 * GROUP];
    int thread = (int)threadIdx.x, warps = (int)blockDim.x / 32;
    const double by_pi = 1 / 3.141592653589793;
    for (int k0 = task.first; k0 < task.knots; k0 += GROUP) {
        double sum[2 * GROUP] = {};
        bool start = k0 == 1 && task.first == 1; /* t_1 is the step */
        for (int64_t i = begin + thread; i < end; i += blockDim.x) {
            double at = u[i] * by_pi, z_re, z_im;
            sincospi(at * task.step, &z_im, &z_re);
            double w_re = z_re, w_im = z_im;
            if (!start) sincospi(at * (task.knot0 + k0 * task.step), &w_im, &w_re);
#pragma unroll
            for (int k = 0; k < GROUP; k++) {
                sum[2 * k] += w_re;
                sum[2 * k + 1] += w_im;
                double next = fma(w_re, z_re, -w_im * z_im);
                w_im = fma(w_re, z_im, w_im * z_re);
                w_re = next;
            }
        }
        spread_sum<GROUP>(sum);
        __syncthreads();
        part[thread / 32][thread % 32 * 2 * GROUP / 32] = sum[0];
        __syncthreads();
        if (thread < 2 * GROUP && k0 + thread / 2 < task.knots) {
            double all = 0;
            for (int i = 0; i < warps; i++) all += part[i][thread];
            (thread % 2 ? im : re)[k0 + thread / 2] = all;
        }
    }
    if (task.first && thread == 0) {
        re[0] = (double)(end - begin);
        im[0] = 0;
    }
    __syncthreads();
}

/* From sums to the statistic, and the gradients' coefficients in their place. */
__device__ inline double judge(const walk_task &task, double *re, double *im, double *term) {
    for (int k = (int)threadIdx.x; k < task.knots; k += (int)blockDim.x) {
        double t = task.knot0 + k * task.step, weight = task.weight[k];
        double cosine = re[k] / task.batch - task.target[k];
        double sine = im[k] / task.batch;
        term[k] = weight * (cosine * cosine + sine * sine);
        re[k] = weight * t * sine;
        im[k] = weight * t * cosine;
    }
    __syncthreads();
    double sum = 0;
    for (int k = 0; k < task.knots; k++) sum += term[k];
    return sum;
}

/* d/du in u's place: the real part of sum_k (re + i im)_k e^(i t_k u), by Horner's rule. */
__device__ inline void write_gradients(const walk_task &task, float *u, int64_t begin, int64_t end,
                                       const double *re, const double *im) {
    const double by_pi = 1 / 3.141592653589793;
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        double at = u[i] * by_pi, z_re, z_im, p_re = 0, p_im = 0;
        sincospi(at * task.step, &z_im, &z_re);
        for (int k = task.knots - 1; k >= 0; k--) {
            double next = fma(p_re, z_re, fma(-p_im, z_im, re[k]));
            p_im = fma(p_re, z_im, fma(p_im, z_re, im[k]));
            p_re = next;
        }
        if (!task.first) {
            sincospi(at * task.knot0, &z_im, &z_re);
            p_re = fma(p_re, z_re, -p_im * z_im);
        }
        u[i] = (float)(p_re * task.du_unit);
    }
}

enum { WALK_WHOLE, WALK_SUMS, WALK_GRADIENTS };

template <int GROUP, int MODE>
__global__ void __launch_bounds__(256) walk(const __grid_constant__ walk_task task) {
    extern __shared__ double numbers[];
    __shared__ double part[8];
    double *re = numbers, *im = re + task.knots, *term = im + task.knots;
    float *u = task.u + blockIdx.x * task.pitch;
    int64_t each = (task.rows + task.segments - 1) / task.segments;
    int64_t begin = blockIdx.y * each, end = begin + each < task.rows ? begin + each : task.rows;
    int64_t size = 2 * (int64_t)task.knots;
    double *sums = task.sums + blockIdx.x * task.kept * size;
    if (MODE != WALK_GRADIENTS) add_rows<GROUP>(task, u, begin, end, re, im);
    if (MODE != WALK_WHOLE)
        for (int k = (int)threadIdx.x; k < size; k += (int)blockDim.x) { /* im follows re */
            if (MODE == WALK_SUMS) {
                sums[blockIdx.y * size + k] = re[k];
            } else {
                double all = 0;
                for (int i = 0; i < task.kept; i++) all += sums[i * size + k];
                re[k] = all;
            }
        }
    if (MODE == WALK_SUMS) return;
    __syncthreads();
    double statistic = judge(task, re, im, term);
    if (task.gradients) write_gradients(task, u, begin, end, re, im);
    if (threadIdx.x == 0 && blockIdx.y == 0) task.statistic[blockIdx.x] = statistic;
    if (!task.all_statistics || !zonal__last_block(task.count)) return;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < task.all; i += blockDim.x)
        sum += __ldcg(task.all_statistics + i);
    sum = zonal__block_sum(sum, part);
    if (threadIdx.x == 0) *task.value = task.offset + task.factor * (sum / (double)task.all);
}

/* The sums of a slice's segments; a block per slice. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    add_segments(const double *sums, int segments, int size, double *all_sums) {
    const double *own = sums + (int64_t)blockIdx.x * segments * size;
    for (int k = (int)threadIdx.x; k < size; k += THREADS) {
        double all = 0;
        for (int i = 0; i < segments; i++) all += own[i * size + k];
        all_sums[(int64_t)blockIdx.x * size + k] = all;
    }
}

/* ---- the gradient --------------------------------------------------------------------------- */

/* (d/du)^T A: columns along x, rows along y, parts of the slices along z. */
template <typename T, int PRODUCTS, bool LARGE>
__global__ void __launch_bounds__(LARGE ? 256 : 128, 1)
    spread(zonal__gradient_task<T, false> task, zonal__flat_operand du,
           zonal__flat_operand directions, int64_t part_slices, int add, float *product) {
    using tile_type = typename choose_tile<true, PRODUCTS, LARGE>::type;
    extern __shared__ __align__(16) unsigned char shared[];
    tile_type tile;
    int64_t row0 = (int64_t)blockIdx.y * tile_type::M;
    int column0 = (int)blockIdx.x * tile_type::N;
    int64_t begin = blockIdx.z * part_slices;
    int64_t end = begin + part_slices < du.rows ? begin + part_slices : du.rows;
    tile.clear();
    tile.run(du, directions, row0, column0, begin, end, (__half *)shared);
    if (product)
        zonal__store_tile(tile, task.x.rows, task.x.dim, row0, column0, add,
                          product + blockIdx.z * task.x.rows * task.x.dim);
    else
        zonal__finish_tile(tile, task, row0, column0, (float *)shared);
}

/* ---- launches ------------------------------------------------------------------------------- */

template <typename T, int PRODUCTS, bool LARGE>
static zonal_status launch_project(const sliced_work *work, const zonal__row_operand<T, false> &x,
                                   int64_t count) {
    using tile_type = typename choose_tile<false, PRODUCTS, LARGE>::type;
    zonal__flat_operand directions = {work->directions, count, work->pitch_a, ZONAL__ROW_UNIT};
    dim3 grid((unsigned)((count + tile_type::M - 1) / tile_type::M),
              (unsigned)((x.rows + tile_type::N - 1) / tile_type::N));
    return zonal__launch(work->base.stream, grid, tile_type::THREADS, tile_type::BYTES, 1,
                         project<T, PRODUCTS, LARGE>, directions, x, work->pitch_u, work->u);
}

template <typename T, int PRODUCTS, bool LARGE>
static zonal_status launch_spread(const sliced_work *work,
                                  const zonal__gradient_task<T, false> &task, int64_t count,
                                  int add, float *product) {
    using tile_type = typename choose_tile<true, PRODUCTS, LARGE>::type;
    zonal__flat_operand du = {work->u, count, work->pitch_u, 1};
    zonal__flat_operand directions = {work->directions, count, work->pitch_a, ZONAL__ROW_UNIT};
    int64_t each = ((count + work->parts - 1) / work->parts + 31) / 32 * 32;
    dim3 grid((unsigned)((task.x.dim + tile_type::N - 1) / tile_type::N),
              (unsigned)((task.x.rows + tile_type::M - 1) / tile_type::M), (unsigned)work->parts);
    return zonal__launch(work->base.stream, grid, tile_type::THREADS, tile_type::BYTES,
                         product ? 1 : (int)grid.x, spread<T, PRODUCTS, LARGE>, task, du,
                         directions, each, add, product);
}

static zonal_status launch_walk(const sliced_work *work, walk_task task, int64_t count) {
    size_t shared = 3 * (size_t)task.knots * sizeof(double);
    dim3 grid((unsigned)count, (unsigned)task.segments);
    bool few = task.knots - task.first <= 8;
    if (!work->sums)
        return zonal__launch(work->base.stream, grid, work->walk_threads, shared, 1,
                             few ? walk<8, WALK_WHOLE> : walk<16, WALK_WHOLE>, task);
    ZONAL_TRY(zonal__launch(work->base.stream, grid, work->walk_threads, shared, 1,
                            few ? walk<8, WALK_SUMS> : walk<16, WALK_SUMS>, task));
    if (work->base.problem.ranks) {
        ZONAL_TRY(zonal__launch(work->base.stream, dim3((unsigned)count), 128, 0, 1,
                                add_segments<128>, task.sums, task.segments, 2 * task.knots,
                                work->all_sums));
        ZONAL_TRY(zonal__cuda_ranks_sum(&work->base, work->all_sums, count * 2 * task.knots));
        task.sums = work->all_sums;
        task.kept = 1;
    }
    return zonal__launch(work->base.stream, grid, work->walk_threads, shared, 1,
                         walk<8, WALK_GRADIENTS>, task);
}

/* Whether a cluster makes the gradient at once: all slices together, and whole rows. */
static int at_once(const sliced_work *work) {
    return work->chunks == 1 && work->parts == 1 &&
           work->base.problem.dim <= MOST_CLUSTER * (work->large_g ? 128 : 64);
}

template <typename T>
static zonal_status enqueue_spread(const sliced_work *work,
                                   const zonal__gradient_task<T, false> &task, int64_t count,
                                   int add) {
    float *product = at_once(work) ? NULL : work->product ? work->product : (float *)task.gradient;
    if (work->products == 3)
        return work->large_g ? launch_spread<T, 3, true>(work, task, count, add, product)
                             : launch_spread<T, 3, false>(work, task, count, add, product);
    return work->large_g ? launch_spread<T, 1, true>(work, task, count, add, product)
                         : launch_spread<T, 1, false>(work, task, count, add, product);
}

template <typename T>
static zonal_status enqueue_project(const sliced_work *work, const zonal__row_operand<T, false> &x,
                                    int64_t count) {
    if (work->products == 3)
        return work->large_u ? launch_project<T, 3, true>(work, x, count)
                             : launch_project<T, 3, false>(work, x, count);
    return work->large_u ? launch_project<T, 1, true>(work, x, count)
                         : launch_project<T, 1, false>(work, x, count);
}

static walk_task make_walk(const sliced_work *work, int64_t first, int64_t count, int gradients,
                           double *value) {
    walk_task task = {};
    task.u = work->u;
    task.pitch = work->pitch_u;
    task.rows = work->base.problem.rows;
    task.batch = (double)work->base.batch;
    task.knots = work->knots;
    task.first = work->knot0 == 0;
    task.knot0 = work->knot0;
    task.step = work->step;
    task.weight = work->weight;
    task.target = work->target;
    task.segments = task.kept = work->segments;
    task.sums = work->sums;
    task.du_unit = work->du_unit;
    task.gradients = gradients;
    task.statistic = work->statistic + first;
    task.all_statistics = first + count == work->slices ? work->statistic : NULL;
    task.all = work->slices;
    task.offset = work->base.problem.offset;
    task.factor = work->base.problem.factor;
    task.count = work->count;
    task.value = value;
    return task;
}

template <typename T>
static zonal_status enqueue(const sliced_work *work, const void *z, uint32_t step, double *value,
                            void *gradient, double factor) {
    const zonal__problem *problem = &work->base.problem;
    cudaStream_t stream = work->base.stream;
    int dim = (int)problem->dim;
    int64_t rows = problem->rows;
    bool vector = dim % 4 == 0 && (uintptr_t)z % (4 * sizeof(T)) == 0;
    zonal__row_operand<T, false> x = {(const T *)z, work->scale, NULL, rows, dim, vector};
    zonal__row_rules rules = {problem->unit_rows, work->raw, work->row_scale, work->base.bad_row};
    zonal__random random = {work->seed, ZONAL__STREAM_SLICES, step};
    zonal__gradient_task<T, false> task = {};
    task.x = x;
    task.terms = work->terms;
    task.coefficient =
        (float)(2 * factor * work->row_scale / (double)work->base.batch / (double)work->slices);
    task.raw = work->raw;
    task.gradient = (T *)gradient;
    task.pairs = dim % 2 == 0 && (uintptr_t)gradient % (2 * sizeof(T)) == 0;
    const uint32_t *word = problem->device_step ? *problem->device_step : NULL;
    for (int64_t first = 0; first < work->slices; first += work->chunk) {
        int64_t left = work->slices - first, count = left < work->chunk ? left : work->chunk;
        int64_t blocks = count + (first == 0 ? (rows + 3) / 4 : 0);
        ZONAL_TRY(zonal__launch(stream, dim3((unsigned)blocks), 128, (size_t)dim * sizeof(double),
                                1, prepare_chunk<T>, random, word, first, count, work->pitch_a,
                                work->directions, x, rules, work->scale));
        ZONAL_TRY(enqueue_project<T>(work, x, count));
        ZONAL_TRY(launch_walk(work, make_walk(work, first, count, gradient != NULL, value), count));
        if (gradient) ZONAL_TRY(enqueue_spread<T>(work, task, count, first > 0));
    }
    if (!gradient || at_once(work)) return ZONAL_OK;
    const float *product = work->product ? work->product : (const float *)gradient;
    return zonal__launch(stream, dim3((unsigned)((rows + 7) / 8)), 256, 0, 1,
                         zonal__finish_rows<T, false>, task, product, work->parts);
}

/* ---- the operation -------------------------------------------------------------------------- */

static zonal_status run(zonal__work *opaque, const void *x, uint32_t step, double *value,
                        void *gradient, double factor) {
    const sliced_work *work = (const sliced_work *)opaque;
    switch (work->base.problem.dtype) {
    case ZONAL_DTYPE_BF16:
        return enqueue<__nv_bfloat16>(work, x, step, value, gradient, factor);
    case ZONAL_DTYPE_FP16:
        return enqueue<__half>(work, x, step, value, gradient, factor);
    default:
        return enqueue<float>(work, x, step, value, gradient, factor);
    }
}

template <typename T, int PRODUCTS, bool LARGE> static zonal_status allow_tiles(void) {
    ZONAL_TRY(zonal__allow_shared(project<T, PRODUCTS, LARGE>,
                                  choose_tile<false, PRODUCTS, LARGE>::type::BYTES));
    return zonal__allow_shared(spread<T, PRODUCTS, LARGE>,
                               choose_tile<true, PRODUCTS, LARGE>::type::BYTES);
}

template <typename T> static zonal_status allow_all(const T *) {
    ZONAL_TRY((allow_tiles<T, 3, true>()));
    ZONAL_TRY((allow_tiles<T, 3, false>()));
    ZONAL_TRY((allow_tiles<T, 1, true>()));
    return allow_tiles<T, 1, false>();
}

static zonal_status allow_walk(int knots) {
    size_t bytes = 3 * (size_t)knots * sizeof(double);
    ZONAL_TRY(zonal__allow_shared(walk<8, WALK_WHOLE>, bytes));
    ZONAL_TRY(zonal__allow_shared(walk<16, WALK_WHOLE>, bytes));
    ZONAL_TRY(zonal__allow_shared(walk<8, WALK_SUMS>, bytes));
    ZONAL_TRY(zonal__allow_shared(walk<16, WALK_SUMS>, bytes));
    return zonal__allow_shared(walk<8, WALK_GRADIENTS>, bytes);
}

static zonal_status give(void *to, const void *from, size_t bytes) {
    return ZONAL_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

/* How the work is cut up; depends on the shape and the device alone. */
static void choose_shape(sliced_work *work, int processors) {
    int64_t rows = work->base.problem.rows, dim = work->base.problem.dim;
    work->pitch_u = rows > 0 ? (rows + 3) / 4 * 4 : 4;
    work->pitch_a = (dim + 3) / 4 * 4;
    int64_t most = (int64_t)(MOST_U / sizeof(float)) / work->pitch_u;
    most = most >= 32 ? most / 32 * 32 : most < 1 ? 1 : most;
    work->chunks = (work->slices + most - 1) / most;
    work->chunk = (work->slices + work->chunks - 1) / work->chunks;
    if (work->chunks > 1 && most >= 32) work->chunk = (work->chunk + 31) / 32 * 32;
    work->chunks = (work->slices + work->chunk - 1) / work->chunk;
    work->walk_threads = rows <= 256 ? 64 : rows <= 1024 ? 128 : 256;
    int64_t segments = (4 * processors + work->chunk - 1) / work->chunk;
    if (work->chunk >= processors || segments > rows / SEGMENT_ROWS)
        segments = work->chunk >= processors ? 1 : rows / SEGMENT_ROWS;
    work->segments = (int)(segments < 1 ? 1 : segments);
    int64_t row_tiles = (rows + 127) / 128;
    work->large_u = row_tiles * ((work->chunk + 127) / 128) >= processors && work->chunk > 64;
    work->large_g = row_tiles * ((dim + 127) / 128) >= processors;
    int64_t small = ((rows + 63) / 64) * ((dim + 63) / 64);
    int64_t parts = processors / (small > 0 ? small : 1);
    if (parts > work->chunk / 64) parts = work->chunk / 64;
    work->parts = work->large_g || work->chunks > 1 || parts < 2 ? 1 : (int)parts;
}

/* |d/du| <= sum_k weight_k |t_k| (2 + |target_k|) must stay below half's range. */
static double choose_unit(const zonal__sliced *sliced) {
    double bound = 0;
    for (int k = 0; k < sliced->knots; k++)
        bound += fabs(sliced->weight[k] * (sliced->knot0 + k * sliced->step)) *
                 (2 + fabs(sliced->target[k]));
    return bound > 0 && bound < INFINITY ? ldexp(1.0, 14 - ilogb(bound)) : 1;
}

static zonal_status fill(sliced_work *work) {
    const zonal__problem *problem = &work->base.problem;
    const zonal__sliced *sliced = problem->sliced;
    int64_t rows = problem->rows, dim = problem->dim;
    int processors;
    ZONAL_TRY(zonal__tiled_processors(&processors));
    work->products = problem->precision == ZONAL_PRECISION_FP32 ? 3 : 1;
    work->slices = sliced->slices;
    work->knots = sliced->knots;
    work->knot0 = sliced->knot0;
    work->step = sliced->step;
    work->row_scale = sliced->row_scale;
    work->raw = sliced->raw_rows;
    work->seed = sliced->seed;
    work->du_unit = choose_unit(sliced);
    choose_shape(work, processors);
    ZONAL_TRY(allow_walk(work->knots));
    size_t knot_bytes = (size_t)work->knots * sizeof(double);
    zonal__gradient_terms terms = {(float)(1 / (ZONAL__ROW_UNIT * work->du_unit)), 0, 1};
    ZONAL_TRY(zonal__tiled_take(work, rows, &work->scale));
    ZONAL_TRY(zonal__tiled_take(work, work->chunk * work->pitch_a, &work->directions));
    ZONAL_TRY(zonal__tiled_take(work, work->chunk * work->pitch_u, &work->u));
    ZONAL_TRY(zonal__tiled_take(work, work->knots, &work->weight));
    ZONAL_TRY(zonal__tiled_take(work, work->knots, &work->target));
    ZONAL_TRY(zonal__tiled_take(work, work->slices, &work->statistic));
    ZONAL_TRY(zonal__tiled_take(work, 1, &work->terms));
    ZONAL_TRY(zonal__tiled_take(work, 1, &work->count));
    ZONAL_TRY(give(work->weight, sliced->weight, knot_bytes));
    ZONAL_TRY(give(work->target, sliced->target, knot_bytes));
    ZONAL_TRY(give(work->terms, &terms, sizeof terms));
    int64_t sums = work->chunk * 2 * work->knots;
    if (work->segments > 1 || problem->ranks)
        ZONAL_TRY(zonal__tiled_take(work, work->segments * sums, &work->sums));
    if (problem->ranks) ZONAL_TRY(zonal__tiled_take(work, sums, &work->all_sums));
    ZONAL_TRY(zonal__cuda_ranks_room(&work->base, (size_t)sums * sizeof(double)));
    if (at_once(work) || (work->parts == 1 && problem->dtype == ZONAL_DTYPE_FP32)) return ZONAL_OK;
    return zonal__tiled_take(work, work->parts * rows * dim, &work->product);
}

static void destroy(zonal__work *work) {
    zonal__tiled_destroy<sliced_work>(work);
}

static zonal_status create(const zonal__problem *problem, zonal__work **out) {
    return zonal__tiled_create(
        problem, "the slices", [](auto *rows) { return allow_all(rows); }, fill, out);
}

} // namespace

extern "C" const zonal__operation_table zonal__cuda_sliced = {
    create, run, destroy, zonal__cuda_scratch_bytes, zonal__cuda_set_stream, zonal__cuda_check};
