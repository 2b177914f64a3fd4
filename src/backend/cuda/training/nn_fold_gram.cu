/*
 * Means and covariances of channels on Hopper: nn_fold.cuh. The Gram matrix x^T x, in tiles of
 * SIDE = 64 P columns on and below the diagonal; the blocks of a tile share the rows. What lies in
 * shared memory as [rows][columns] is multiplied as it lies there. Threads add up the columns of
 * tiles on the diagonal by themselves, while the tensor cores multiply.
 *
 * A block's sums are fp32 over some thousand rows, all others double; whatever comes first, the
 * additions are the same.
 */
#include "backend/cuda/training/nn_fold.cuh"
#include "backend/cuda/training/nn_tensor.cuh"

extern "C" {
#include "backend/device.h"
}

enum {
    CHUNK = 64,          /* rows at a time */
    PANEL = CHUNK * 128, /* bytes */
    BLOCKS = 132,        /* an H200's processors; fixed, so that sums do not depend on the device */
    MULTIPLIERS = 256,   /* threads; a warp for the copies comes besides */
    THREADS = MULTIPLIERS + 32,
    STAGES = 5
};

typedef struct gram_args {
    int64_t rows;
    int channels, chunks;
    int splits;            /* blocks of a tile */
    float *partial;        /* [tiles][splits][SIDE][SIDE] */
    float *column_partial; /* [tiles of a side][splits][SIDE] */
    double *sums;          /* [channels] */
    float *mean, *covariance;
} gram_args;

static int side_of(int channels) {
    return channels == 64 ? 64 : 128;
}

static int tiles_of(int channels) {
    int across = channels / side_of(channels);
    return across * (across + 1) / 2;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Row i of the lower triangle has i + 1 tiles. */
__device__ static inline void find_tile(int number, int *i, int *j) {
    *i = 0;
    *j = number;
    while (*j > *i) *j -= ++*i;
}

typedef struct gram_place {
    uint32_t ring, full, empty;
    int i, j;        /* the tile */
    int first, last; /* chunks */
} gram_place;

template <int P>
__device__ static inline void bring_chunks(const CUtensorMap *map, const gram_place &at) {
    constexpr int HALF = P * PANEL;
    for (int c = at.first, use = 0; c < at.last; c++, use++) {
        int stage = use % STAGES;
        uint32_t to = at.ring + stage * 2 * HALF, full = at.full + 8 * stage;
        if (use >= STAGES) zonal__barrier_wait(at.empty + 8 * stage, (use / STAGES - 1) & 1);
        zonal__barrier_expect(full, at.i == at.j ? HALF : 2 * HALF);
        for (int q = 0; q < P; q++)
            tensor_load(to + q * PANEL, map, 64 * (P * at.i + q), CHUNK * c, full);
        for (int q = 0; q < P && at.i != at.j; q++)
            tensor_load(to + HALF + q * PANEL, map, 64 * (P * at.j + q), CHUNK * c, full);
    }
}

/* A thread adds up eight columns of every few rows of a chunk. */
template <int P> __device__ static inline void add_columns(uint32_t from, float (&column)[8]) {
    constexpr int STEP = MULTIPLIERS / (8 * P);
    int piece = (int)threadIdx.x % (8 * P), first = (int)threadIdx.x / (8 * P);
#pragma unroll
    for (int r = 0; r < CHUNK / STEP; r++) {
        int row = first + r * STEP;
        nn_vector<__nv_bfloat16, 8> v;
        float wide[8];
        asm volatile(
            "ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(v.raw.x), "=r"(v.raw.y), "=r"(v.raw.z), "=r"(v.raw.w)
            : "r"(from + piece / 8 * PANEL + row * 128 + (uint32_t)((piece % 8 ^ (row & 7)) << 4)));
        nn_widen(v, wide);
#pragma unroll
        for (int k = 0; k < 8; k++) column[k] += wide[k];
    }
}

/* Two panels: a warpgroup has one each. One: each has half of its rows. */
template <int P>
__device__ static inline void multiply_chunks(const gram_place &at, float (&d)[32 * P],
                                              float (&column)[8]) {
    constexpr int HALF = P * PANEL;
    int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 128;
    for (int c = at.first, use = 0; c < at.last; c++, use++) {
        int stage = use % STAGES;
        uint32_t from = at.ring + stage * 2 * HALF, b = from + (at.i == at.j ? 0 : HALF);
        uint32_t a = from + group * (P == 2 ? PANEL : PANEL / 2);
        if (P == 1) b += group * (PANEL / 2);
        zonal__barrier_wait(at.full + 8 * stage, use / STAGES & 1);
        zonal__hold(d);
        zonal__products_fence();
#pragma unroll
        for (int i = 0; i < 2 * P; i++)
            tensor_products<64 * P>::columns(d, zonal__matrix(a + 2048 * i, PANEL),
                                             zonal__matrix(b + 2048 * i, PANEL), 1);
        zonal__products_commit();
        if (at.i == at.j) add_columns<P>(from, column);
        zonal__products_wait<0>();
        zonal__hold(d);
        __syncwarp();
        if (lane == 0) zonal__barrier_arrive(at.empty + 8 * stage);
    }
}

__device__ static inline void meet_multipliers() {
    asm volatile("bar.sync 1, %0;" ::"n"((int)MULTIPLIERS) : "memory");
}

/* One panel: the second warpgroup's sums are added to the first's. */
template <int P> __device__ static inline void join_groups(float *shared, float (&d)[32 * P]) {
    if (P == 2) return;
    int thread = (int)threadIdx.x % 128;
    if (threadIdx.x >= 128)
#pragma unroll
        for (int i = 0; i < 32 * P; i++) shared[i * 128 + thread] = d[i];
    meet_multipliers();
    if (threadIdx.x < 128)
#pragma unroll
        for (int i = 0; i < 32 * P; i++) d[i] += shared[i * 128 + thread];
    meet_multipliers();
}

template <int P>
__device__ static inline void write_sums(const gram_args &args, float *out,
                                         const float (&d)[32 * P]) {
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
    if (P == 1 && threadIdx.x >= 128) return;
#pragma unroll
    for (int j = 0; j < 8 * P; j++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            *(float2 *)(out + (row + 8 * h) * 64 * P + 8 * j + lane % 4 * 2) =
                make_float2(d[4 * j + 2 * h], d[4 * j + 2 * h + 1]);
}

template <int P>
__device__ static inline void write_columns(float *shared, const float (&column)[8], float *out) {
    constexpr int SIDE = 64 * P, STEP = MULTIPLIERS / (8 * P);
    int piece = (int)threadIdx.x % (8 * P), first = (int)threadIdx.x / (8 * P);
    for (int k = 0; k < 8; k++) shared[first * SIDE + piece * 8 + k] = column[k];
    meet_multipliers();
    if ((int)threadIdx.x >= SIDE) return;
    float total = 0;
    for (int r = 0; r < STEP; r++) total += shared[r * SIDE + threadIdx.x];
    out[threadIdx.x] = total;
}

#endif /* __CUDA_ARCH_FEAT_SM90_ALL */

template <int P>
__global__ void __launch_bounds__(THREADS, 1)
    gram_sums(const __grid_constant__ CUtensorMap map, const __grid_constant__ gram_args args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int SIDE = 64 * P;
    extern __shared__ char raw[];
    __shared__ alignas(8) uint64_t barrier[2 * STAGES];
    int split = (int)blockIdx.x % args.splits, warp = (int)threadIdx.x / 32;
    gram_place at;
    at.ring = (zonal__shared_address(raw) + 1023) / 1024 * 1024;
    at.full = zonal__shared_address(barrier);
    at.empty = at.full + 8 * STAGES;
    at.first = (int)((int64_t)args.chunks * split / args.splits);
    at.last = (int)((int64_t)args.chunks * (split + 1) / args.splits);
    find_tile((int)blockIdx.x / args.splits, &at.i, &at.j);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) zonal__barrier_init(at.full + 8 * i, 1);
        for (int i = 0; i < STAGES; i++) zonal__barrier_init(at.empty + 8 * i, MULTIPLIERS / 32);
        zonal__barrier_publish();
    }
    __syncthreads();
    if (warp == MULTIPLIERS / 32) {
        if (threadIdx.x % 32 == 0) bring_chunks<P>(&map, at);
        return;
    }
    float d[32 * P], column[8] = {};
    float *shared = (float *)(raw + (at.ring - zonal__shared_address(raw)));
#pragma unroll
    for (int i = 0; i < 32 * P; i++) d[i] = 0;
    multiply_chunks<P>(at, d, column);
    meet_multipliers(); /* the ring is free */
    join_groups<P>(shared, d);
    write_sums<P>(args, args.partial + (int64_t)blockIdx.x * SIDE * SIDE, d);
    if (at.i == at.j)
        write_columns<P>(shared, column,
                         args.column_partial + ((int64_t)at.i * args.splits + split) * SIDE);
#else
    __trap(); /* only the image for sm_90a has the instructions */
#endif
}

/* Blocks of 32 x 8 threads, which share the splits of 32 numbers; the sum is in the first row. */
__device__ static double add_splits(const float *from, int64_t step, int splits) {
    __shared__ double part[8][32];
    double sum = 0;
    for (int k = (int)threadIdx.y; k < splits; k += 8) sum += (double)from[k * step];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int w = 1; w < 8 && threadIdx.y == 0; w++) sum += part[w][threadIdx.x];
    return sum;
}

__global__ static void gram_means(const __grid_constant__ gram_args args, int side) {
    int c = (int)(blockIdx.x * 32 + threadIdx.x);
    double sum =
        add_splits(args.column_partial + (int64_t)(c / side) * args.splits * side + c % side, side,
                   args.splits);
    if (threadIdx.y) return;
    args.sums[c] = sum;
    args.mean[c] = (float)(sum / (double)args.rows);
}

/* Number i of [channels][channels] on the diagonal's tiles and below; and its mirror image. */
__global__ static void gram_covariances(const __grid_constant__ gram_args args, int side) {
    int64_t i = (int64_t)blockIdx.x * 32 + threadIdx.x;
    int row = (int)(i / args.channels), column = (int)(i % args.channels);
    int down = row / side, across = column / side;
    if (across > down) return; /* all of the block: 32 divides the side */
    int64_t tile = down * (down + 1) / 2 + across, numbers = (int64_t)side * side;
    double sum =
        add_splits(args.partial + tile * args.splits * numbers + row % side * side + column % side,
                   numbers, args.splits);
    if (threadIdx.y) return;
    double m = (double)args.rows;
    float value = (float)((sum - args.sums[row] * args.sums[column] / m) / m);
    args.covariance[i] = value;
    args.covariance[(int64_t)column * args.channels + row] = value;
}

/* ---- launches -------------------------------------------------------------------------------- */

static size_t shared_bytes(int panels) {
    return 1024 + (size_t)(STAGES * 2 * panels * PANEL);
}

zonal_status zonal__fold_moments_load(void) {
    cudaFuncAttributes attributes;
    ZONAL_TRY(ZONAL_CUDA(cudaFuncSetAttribute((const void *)gram_sums<1>,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)shared_bytes(1))));
    ZONAL_TRY(ZONAL_CUDA(cudaFuncSetAttribute((const void *)gram_sums<2>,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)shared_bytes(2))));
    ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, (const void *)gram_means)));
    return ZONAL_CUDA(cudaFuncGetAttributes(&attributes, (const void *)gram_covariances));
}

static int splits_of(int channels) {
    int tiles = tiles_of(channels);
    return tiles < BLOCKS ? BLOCKS / tiles : 1;
}

/* sums, then the blocks' parts */
size_t zonal__fold_moments_workspace(int channels) {
    size_t side = (size_t)side_of(channels), splits = (size_t)splits_of(channels);
    size_t numbers = (size_t)tiles_of(channels) * splits * side * side + (size_t)channels * splits;
    return (size_t)channels * sizeof(double) + numbers * sizeof(float);
}

zonal_status zonal__fold_moments_run(const zonal__fold_moments *m, cudaStream_t stream) {
    CUtensorMap map;
    gram_args args = {};
    int side = side_of(m->channels), tiles = tiles_of(m->channels);
    ZONAL_TRY(zonal__tensor_map(m->x, m->rows, m->channels, CHUNK, &map));
    args.rows = m->rows;
    args.channels = m->channels;
    args.chunks = (int)((m->rows + CHUNK - 1) / CHUNK);
    args.splits = splits_of(m->channels);
    args.sums = (double *)m->workspace;
    args.partial = (float *)(args.sums + m->channels);
    args.column_partial = args.partial + (int64_t)tiles * args.splits * side * side;
    args.mean = m->mean;
    args.covariance = m->covariance;
    unsigned blocks = (unsigned)(tiles * args.splits), groups = (unsigned)m->channels / 32;
    if (side == 64)
        gram_sums<1><<<blocks, THREADS, shared_bytes(1), stream>>>(map, args);
    else
        gram_sums<2><<<blocks, THREADS, shared_bytes(2), stream>>>(map, args);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    gram_means<<<groups, dim3(32, 8), 0, stream>>>(args, side);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    gram_covariances<<<groups *(unsigned)m->channels, dim3(32, 8), 0, stream>>>(args, side);
    return ZONAL_CUDA_LAUNCHED();
}
