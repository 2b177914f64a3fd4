/*
 * Batch norms in one kernel, whose blocks all run at once (a cooperative launch). A thread reads
 * its rows once and keeps them, the last "held" of them in registers; the blocks of a column of 32
 * channels leave their sums to each other and wait; then each adds them all, in the same order, and
 * has what it needs to finish its rows. So there is one launch, and x is read once.
 *
 * Rows beyond those held are read again, from the cache.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_NORM_RESIDENT_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_NORM_RESIDENT_CUH

#include "backend/cuda/training/nn_norm.cuh"

enum {
    RESIDENT_WARPS = ZONAL__RESIDENT_THREADS / 32,
    RESIDENT_TILE = ZONAL__RESIDENT_ACROSS * ZONAL__NN_VECTOR, /* channels of a column */
    RESIDENT_SUMS = 2 * RESIDENT_TILE,
    RESIDENT_TOGETHER = 2 /* blocks of a multiprocessor: 128 registers for each thread */
};

/* Rows of an array that a thread holds, in so many bytes; 2 or more, so that the first of them is
 * there in every thread. The code of gelu is long, and not worth repeating more often. */
template <typename T, zonal__activation A, int BYTES>
constexpr int resident_held = A == ZONAL__ACTIVATION_GELU
                                  ? 2
                                  : BYTES / ((int)sizeof(T) * ZONAL__NN_VECTOR);

/* The rows of a thread: those from "first" to "kept" are read again, those from there on held. In
 * elements, as in zonal__column_place; they are few enough for an int, which is half a pointer. */
typedef struct resident_rows {
    int first, kept, step, end;
} resident_rows;

__device__ inline resident_rows resident_rows_of(const norm_args &args,
                                                 const zonal__column_place &at, int held) {
    int again = args.each > held ? args.each - held : 0; /* every thread has more */
    resident_rows rows = {(int)at.first, (int)at.first, (int)at.step, (int)at.end};
    if (at.first < at.end) rows.kept += again * rows.step;
    return rows;
}

/* The numbers of the column's channels, in shared memory. */
typedef struct resident_table {
    float mean[RESIDENT_TILE], factor[RESIDENT_TILE], bias[RESIDENT_TILE];
    float mean_g[RESIDENT_TILE], slope[RESIDENT_TILE]; /* backward */
} resident_table;

/* Where those of the thread's channels begin. */
__device__ inline int resident_group() {
    return (int)threadIdx.x % ZONAL__RESIDENT_ACROSS * ZONAL__NN_VECTOR;
}

__device__ inline norm_line<ZONAL__NN_VECTOR> resident_line(const resident_table &table) {
    norm_line<ZONAL__NN_VECTOR> line;
    nn_parameters(table.mean + resident_group(), line.mean);
    nn_parameters(table.factor + resident_group(), line.factor);
    nn_parameters(table.bias + resident_group(), line.bias);
    return line;
}

/* The channel that the thread finishes: one of the first 32 threads, one channel each. -1: none. */
__device__ inline int resident_channel(const norm_args &args, const zonal__column_place &at) {
    int channel = at.column * RESIDENT_TILE + (int)threadIdx.x;
    return (int)threadIdx.x < RESIDENT_TILE && channel < args.shape.channels ? channel : -1;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Adds own[] of the warp's lanes that share channels, every fourth one: with each lane half as far
 * away it shares out the channels by halves, so that lane l is left with channel l / 4 of its 8. */
__device__ inline double resident_add_warp(double (&own)[ZONAL__NN_VECTOR]) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = ZONAL__NN_VECTOR / 2, away = 16; half > 0; half /= 2, away /= 2) {
        bool upper = (lane & away) != 0;
#pragma unroll
        for (int k = 0; k < half; k++) {
            double gives = upper ? own[k] : own[k + half];
            double keeps = upper ? own[k + half] : own[k];
            own[k] = keeps + __shfl_xor_sync(0xffffffffu, gives, away);
        }
    }
    return own[0];
}

/* Waits until all blocks of the column are here, whose writes can then be read. The first block
 * adds 2^31 less 1 for each of the others: the top bit turns when the last one comes, and below it
 * the count is 0 again. So nothing is left to be reset, whatever number of blocks comes next. */
__device__ inline void resident_meet(unsigned *count, int slot, int blocks) {
    const unsigned top = 0x80000000u;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        unsigned before = atomicAdd(count, slot == 0 ? top - (unsigned)(blocks - 1) : 1u);
        while (((before ^ *(volatile unsigned *)count) & top) == 0) {
        }
        __threadfence();
    }
    __syncthreads();
}

/* The sums of all blocks of the column: of both kinds for the channel with the thread's number, in
 * the first 32 threads. */
__device__ inline void resident_add_blocks(const double *partial, int blocks, double *part,
                                           double (&total)[2]) {
    constexpr int WAYS = ZONAL__RESIDENT_THREADS / RESIDENT_SUMS;
    int thread = (int)threadIdx.x;
    double sum = 0;
#pragma unroll 8
    for (int block = thread / RESIDENT_SUMS; block < blocks; block += WAYS)
        sum += partial[block * RESIDENT_SUMS + thread % RESIDENT_SUMS];
    part[thread] = sum;
    __syncthreads();
    total[0] = total[1] = 0;
    if (thread >= RESIDENT_TILE) return;
    for (int way = 0; way < WAYS; way++) {
        total[0] += part[way * RESIDENT_SUMS + thread];
        total[1] += part[way * RESIDENT_SUMS + RESIDENT_TILE + thread];
    }
}

/* A block's sums: two for each channel, by warps. */
typedef struct resident_sums {
    double part[RESIDENT_WARPS * RESIDENT_SUMS];
} resident_sums;

/* Puts in the threads' own sums of the first kind or the second. */
__device__ inline void resident_put(resident_sums *sums, int which,
                                    double (&own)[ZONAL__NN_VECTOR]) {
    int thread = (int)threadIdx.x;
    int channel = resident_group() + thread % 32 / ZONAL__RESIDENT_ACROSS;
    sums->part[thread / 32 * RESIDENT_SUMS + which * RESIDENT_TILE + channel] =
        resident_add_warp(own);
}

/* After both: the sums of all rows, in the first 32 threads, as above. */
__device__ inline void resident_total(const norm_args &args, const zonal__column_place &at,
                                      resident_sums *sums, double (&total)[2]) {
    int thread = (int)threadIdx.x, blocks = (int)gridDim.x / args.shape.columns;
    double *partial = args.partial + (int64_t)at.column * blocks * RESIDENT_SUMS;
    __syncthreads();
    if (thread < RESIDENT_SUMS) {
        double sum = 0;
        for (int warp = 0; warp < RESIDENT_WARPS; warp++)
            sum += sums->part[warp * RESIDENT_SUMS + thread];
        partial[at.slot * RESIDENT_SUMS + thread] = sum;
    }
    resident_meet(&args.tickets[at.column], at.slot, blocks);
    resident_add_blocks(partial, blocks, sums->part, total);
}

#endif
