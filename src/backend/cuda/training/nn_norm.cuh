/*
 * What the norm's kernels, forward (nn_norm.cu) and backward (nn_norm_back.cu), share: their
 * arguments, z from x, and sums over all rows.
 *
 * A sum has three stages. Threads add up some hundred rows in fp32, what they sum shifted so that
 * it is small; a block adds its threads' sums in double; the last block of each column to finish
 * adds the blocks' sums, in their order, and makes of them what the next kernel needs. Whoever
 * comes last, the additions are the same.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_NORM_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_NORM_CUH

#include "backend/cuda/training/nn_launch.h"
#include "backend/cuda/training/nn_vector.cuh"
#include "backend/cuda/unit_rows.cuh"

typedef struct norm_args {
    zonal__columns shape;
    const void *x, *residual;
    void *y;
    /* [channels] each. Inference: the running mean and variance stand for these. */
    float *mean, *inverse;
    const float *scale, *bias;
    float *running_mean, *running_variance;
    float epsilon, momentum;
    int training;
    /* relu with vectors: whether z > 0, one bit for each element; NULL: not wanted. */
    uint8_t *positive;
    double *partial;   /* [columns][blocks of a column][2][channels of a column] */
    unsigned *tickets; /* [columns]: blocks that have come so far */
    int each;          /* resident: rows of a thread; some have one less */
    double elements;   /* of a channel, of all ranks */
    /* [2][channels]: synchronised, the sums over this rank's rows are left here instead of being
     * used; nn_norm_ranks.cuh goes on with them. NULL: not synchronised. */
    double *joined;
    /* backward */
    const void *dy, *dy_more;
    void *dx, *dresidual;
    float *dscale, *dbias;
    float *mean_g, *slope; /* [channels]: the mean of g, and dscale inverse/m */
    int accumulate;
} norm_args;

typedef void (*norm_kernel)(const norm_args);

/* The kernels for one dtype, vector, activation and residual. */
typedef struct norm_kernels {
    norm_kernel statistics, apply;
    norm_kernel back_sums, back_apply;
    norm_kernel back_apply_stored;       /* where back_sums has stored g in dresidual */
    norm_kernel resident, back_resident; /* all in one: nn_norm_resident.cuh */
} norm_kernels;

extern "C" {
/* The one that makes the statistics alone, for a layer that uses them in its own way. */
norm_kernel zonal__norm_statistics(zonal_dtype dtype, int vector);

/* Fills in those of the way back; in nn_norm_back.cu. */
void zonal__norm_choose_back(const zonal__layer_spec *spec, int vector, norm_kernels *kernels);
}

/* A channel's statistics: of this rank's rows, or of all. */
typedef struct channel_statistics {
    double mean, squares; /* of differences from the mean, their sum */
    float inverse;
} channel_statistics;

/* They are saved, and move the running ones. */
__device__ inline void norm_keep_statistics(const norm_args &args, int channel,
                                            const channel_statistics &own) {
    double momentum = (double)args.momentum;
    args.mean[channel] = (float)own.mean;
    args.inverse[channel] = own.inverse;
    args.running_mean[channel] =
        (float)((1 - momentum) * (double)args.running_mean[channel] + momentum * own.mean);
    args.running_variance[channel] =
        (float)((1 - momentum) * (double)args.running_variance[channel] +
                momentum * (own.squares / (args.elements - 1)));
}

__device__ inline zonal__column_place norm_place(const norm_args &args) {
    return zonal__column_find(&args.shape, (int)gridDim.x, (int)blockIdx.x, (int)threadIdx.x);
}

/* Blocks that share a multiprocessor: bf16 with little to remember makes do with 80 registers. */
template <typename T, zonal__activation A> constexpr int norm_blocks_together() {
    return sizeof(T) == 2 && A != ZONAL__ACTIVATION_GELU ? 2 : 1;
}

/* The numbers of a thread's channels: z = (x - mean) factor + bias (+ residual). */
template <int V> struct norm_line { float mean[V], factor[V], bias[V]; };

template <int V> __device__ inline norm_line<V> norm_line_of(const norm_args &args, int channel) {
    norm_line<V> line;
    nn_parameters(args.bias + channel, line.bias);
    nn_parameters(args.scale + channel, line.factor);
    nn_parameters((args.training ? args.mean : args.running_mean) + channel, line.mean);
#pragma unroll
    for (int k = 0; k < V; k++)
        line.factor[k] *= args.training
                              ? args.inverse[channel + k]
                              : 1 / sqrtf(args.running_variance[channel + k] + args.epsilon);
    return line;
}

template <int V> __device__ inline float norm_before(const norm_line<V> &line, int k, float x) {
    return (x - line.mean[k]) * line.factor[k] + line.bias[k];
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Adds own[k] of the threads that share channels; the sums of channel i of the column are then at
 * part[i % V * ZONAL__NN_THREADS + i / V]. */
template <int V>
__device__ inline void norm_add_threads(const zonal__columns &shape, const double (&own)[V],
                                        double *part) {
    int thread = (int)threadIdx.x, down = thread / shape.across;
    __syncthreads(); /* part may still be read from the last time */
#pragma unroll
    for (int k = 0; k < V; k++) part[k * ZONAL__NN_THREADS + thread] = own[k];
    for (int left = shape.down; left > 1; left = (left + 1) / 2) {
        int half = (left + 1) / 2;
        __syncthreads();
        if (down + half < left) {
#pragma unroll
            for (int k = 0; k < V; k++)
                part[k * ZONAL__NN_THREADS + thread] +=
                    part[k * ZONAL__NN_THREADS + thread + half * shape.across];
        }
    }
    __syncthreads();
}

/* True in all threads of the column's block that comes last to this place, which then sees what the
 * others have written before it. The ticket is 0 again afterwards. */
__device__ inline bool norm_is_last(unsigned *ticket, int blocks) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(ticket, 1u) + 1 == (unsigned)blocks;
        if (last) *ticket = 0;
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

/* In the last block: both sums of the column's channel number threadIdx.x, from all of its blocks.
 * "part" has a double for each thread. */
__device__ inline void norm_add_blocks(const zonal__columns &shape, const double *partial,
                                       int blocks, double *part, double (&total)[2]) {
    int tile = shape.across * shape.vector, sums = 2 * tile;
    int ways = ZONAL__NN_THREADS / sums, way = (int)threadIdx.x / sums;
    double sum = 0;
    if (way < ways) {
        const double *from = partial + threadIdx.x % sums;
#pragma unroll 16
        for (int block = way; block < blocks; block += ways) sum += from[(int64_t)block * sums];
    }
    __syncthreads();
    part[threadIdx.x] = sum;
    __syncthreads();
    total[0] = total[1] = 0;
    if ((int)threadIdx.x < tile)
        for (way = 0; way < ways; way++) {
            total[0] += part[way * sums + threadIdx.x];
            total[1] += part[way * sums + tile + threadIdx.x];
        }
}

/* Sum number "which" (0 or 1) of the block, from its threads' own[]: the return value is that of
 * the column's channel number threadIdx.x. */
template <int V>
__device__ inline double norm_sum_block(const norm_args &args, const zonal__column_place &at,
                                        int which, const double (&own)[V], double *part) {
    int tile = args.shape.across * V, thread = (int)threadIdx.x;
    int64_t block = (int64_t)at.column * ((int)gridDim.x / args.shape.columns) + at.slot;
    norm_add_threads<V>(args.shape, own, part);
    if (thread >= tile) return 0;
    double sum = part[thread % V * ZONAL__NN_THREADS + thread / V];
    args.partial[(2 * block + which) * tile + thread] = sum;
    return sum;
}

/* After both: true where this thread has the totals of a channel, and is to finish it. "total" has
 * the block's sums before. */
template <int V>
__device__ inline bool norm_sum_column(const norm_args &args, const zonal__column_place &at,
                                       double *part, double (&total)[2], int *channel) {
    int tile = args.shape.across * V, blocks = (int)gridDim.x / args.shape.columns;
    if (blocks > 1) {
        if (!norm_is_last(&args.tickets[at.column], blocks)) return false;
        norm_add_blocks(args.shape, args.partial + (int64_t)at.column * blocks * 2 * tile, blocks,
                        part, total);
    }
    *channel = at.column * tile + (int)threadIdx.x;
    return (int)threadIdx.x < tile && *channel < args.shape.channels;
}

#endif
