/*
 * The filter's gradient of the 7 x 7 first convolution (nn_stem_window.h): dy^T times the windows,
 * a sum over all outputs, 16 of them at a time on tensor cores. Each block of threads has a fixed
 * share of the tiles (one output row each) and keeps its sums of all weights in registers; then a
 * second kernel adds the blocks' sums, always in the same order. Sums are fp32.
 *
 * Both factors have the outputs as their inner side, in pairs of neighbours. Those of dy come by
 * the transposing load of matrices. Two outputs' windows are 2 channels numbers apart in the patch:
 * a lane loads a pair of numbers of each and swaps the middle two.
 */
#include "backend/cuda/training/nn_stem_tile.cuh"

static const int THREADS = ZONAL__STEM_FILTER_THREADS, WARPS = THREADS / 32;
static const int BLOCKS_EACH = 3; /* of a multiprocessor; its registers hold no more */
static const int COLUMNS = 16 * ZONAL__STEM_GROUPS;
/* Numbers from one output's channels to the next one's in shared memory: 16 bytes more than they
 * take, so that the 8 rows of a matrix lie in different banks. */
static const int DY_STRIDE = ZONAL__STEM_CHANNELS + 8;

/* What is in shared memory of one tile. */
template <int CHANNELS> struct stage {
    static const int STRIDE = ZONAL__STEM_PATCH * CHANNELS;
    alignas(16) __nv_bfloat16 patch[ZONAL__STEM_SIDE * STRIDE];
    alignas(16) __nv_bfloat16 dy[COLUMNS * DY_STRIDE];
};

/* Begins to copy a tile's dy, 64 channels from "first" on; 0 past the last and right of the
 * image. */
__device__ inline void load_dy(const zonal__stem_window &window, const zonal__stem_tile &tile,
                               int first, const __nv_bfloat16 *dy, __nv_bfloat16 *to) {
    int64_t line = (tile.n * window.out_h + tile.i) * window.out_w;
    for (int at = (int)threadIdx.x; at < window.groups * 16 * 8; at += THREADS) {
        int column = at / 8, channel = at % 8 * 8;
        bool inside = tile.j + column < window.out_w && first + channel < window.out_channels;
        int64_t from = (line + tile.j + column) * window.out_channels + first + channel;
        stem_copy(to + column * DY_STRIDE + channel, dy + (inside ? from : 0), inside);
    }
}

template <int CHANNELS>
__device__ inline void load_stage(const zonal__stem_window &window, int at, int first,
                                  const __nv_bfloat16 *x, const __nv_bfloat16 *dy,
                                  stage<CHANNELS> *to) {
    zonal__stem_tile tile = zonal__stem_tile_at(&window, 1, at);
    stem_load_patch<CHANNELS, 1, WARPS>(window, tile, x, to->patch);
    load_dy(window, tile, first, dy, to->dy);
    stem_commit();
}

/* A lane's pairs of numbers in the windows of two neighbouring outputs, turned to pairs of outputs
 * of the first and of the second number. An output right of the image has none: its dy is 0, but
 * a pixel may be NaN. */
template <int CHANNELS>
__device__ inline void load_pairs(const __nv_bfloat16 *window, int left, unsigned *first,
                                  unsigned *second) {
    unsigned low = left > 0 ? *(const unsigned *)window : 0;
    unsigned high = left > 1 ? *(const unsigned *)(window + 2 * CHANNELS) : 0;
    *first = __byte_perm(low, high, 0x5410);
    *second = __byte_perm(low, high, 0x7632);
}

/* Adds what a tile gives to the warp's sums. */
template <int CHANNELS, int DOUBLES>
__device__ inline void add_tile(const stage<CHANNELS> &s, int columns, const int (&offset)[DOUBLES],
                                float (&sum)[DOUBLES][2][4][4]) {
    int lane = (int)threadIdx.x % 32, pair = lane % 4 * 2; /* of outputs */
    int matrix_row = lane % 8 + lane / 16 * 8, matrix_channel = lane / 8 % 2 * 8;
    for (int j = 0; j < columns; j += 16) {
        const __nv_bfloat16 *dy = s.dy + (j + matrix_row) * DY_STRIDE + matrix_channel;
        const __nv_bfloat16 *window = s.patch + zonal__stem_window_start(CHANNELS, j + pair);
        unsigned a[4][4];
#pragma unroll
        for (int sixteen = 0; sixteen < 4; sixteen++)
            stem_load_transposed(a[sixteen], dy + sixteen * 16);
#pragma unroll
        for (int d = 0; d < DOUBLES; d++) {
            unsigned b[2][2];
            load_pairs<CHANNELS>(window + offset[d], columns - j - pair, &b[0][0], &b[1][0]);
            load_pairs<CHANNELS>(window + offset[d] + 16 * CHANNELS, columns - j - pair - 8,
                                 &b[0][1], &b[1][1]);
#pragma unroll
            for (int second = 0; second < 2; second++)
#pragma unroll
                for (int sixteen = 0; sixteen < 4; sixteen++)
                    stem_multiply(sum[d][second][sixteen], a[sixteen], b[second][0], b[second][1]);
        }
    }
}

/* A block's sums, in the order of zonal__stem_filter_place: [sums][threads]. */
template <int DOUBLES>
__device__ inline void write_sums(const float (&sum)[DOUBLES][2][4][4], float *to) {
#pragma unroll
    for (int i = 0; i < DOUBLES * 32; i++)
        to[i * THREADS + (int)threadIdx.x] = sum[i / 32][i / 16 % 2][i / 4 % 4][i % 4];
}

/* parts: [channel blocks][blocks][sums][threads] */
template <int CHANNELS>
static __global__ void __launch_bounds__(THREADS, BLOCKS_EACH)
    add_tiles(zonal__stem_window window, int tiles, const __nv_bfloat16 *x, const __nv_bfloat16 *dy,
              float *parts) {
    constexpr int DOUBLES = zonal__stem_filter_doubles(CHANNELS);
    extern __shared__ __align__(16) unsigned char shared[];
    stage<CHANNELS> *stages = (stage<CHANNELS> *)shared;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int first = (int)blockIdx.y * ZONAL__STEM_CHANNELS;
    int offset[DOUBLES];
    float sum[DOUBLES][2][4][4] = {};
    for (int d = 0; d < DOUBLES; d++)
        offset[d] = zonal__stem_filter_offset(CHANNELS, stages->STRIDE,
                                              zonal__stem_filter_pair(CHANNELS, warp, d, lane / 4));
    load_stage<CHANNELS>(window, (int)blockIdx.x, first, x, dy, &stages[0]);
    int current = 0;
    for (int at = (int)blockIdx.x; at < tiles; at += (int)gridDim.x, current ^= 1) {
        if (at + (int)gridDim.x < tiles)
            load_stage<CHANNELS>(window, at + (int)gridDim.x, first, x, dy, &stages[current ^ 1]);
        else
            stem_commit(); /* an empty batch, so that stem_wait waits for the one before */
        stem_wait();
        __syncthreads();
        int j = zonal__stem_tile_at(&window, 1, at).j;
        int columns = min(window.groups * 16, window.out_w - j);
        add_tile<CHANNELS, DOUBLES>(stages[current], columns, offset, sum);
        __syncthreads();
    }
    int64_t block = (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
    write_sums<DOUBLES>(sum, parts + block * (DOUBLES * 32 * THREADS));
}

/* ---- the second kernel ----------------------------------------------------------------------- */

static const int SLICES = 16; /* of the parts, a warp each */

/* 32 sums to a block: each warp adds every SLICES-th part, the first one then the warps' sums. */
static __global__ void __launch_bounds__(SLICES * 32)
    add_parts(zonal__stem_window window, int count, const float *parts, int accumulate,
              float *dweight) {
    __shared__ float slices[SLICES][32];
    int slice = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int sums = zonal__stem_filter_sums(window.channels) * THREADS;
    int at = (int)blockIdx.x * 32 + lane, channel;
    const float *from = parts + (int64_t)blockIdx.y * count * sums + at;
    float sum = 0;
#pragma unroll 4
    for (int i = slice; i < count; i += SLICES) sum += from[(int64_t)i * sums];
    slices[slice][lane] = sum;
    __syncthreads();
    int place = zonal__stem_filter_place(window.channels, at % THREADS, at / THREADS, &channel);
    channel += (int)blockIdx.y * ZONAL__STEM_CHANNELS;
    if (slice > 0 || place < 0 || channel >= window.out_channels) return;
    for (int i = 1; i < SLICES; i++) sum += slices[i][lane];
    float *to =
        dweight + (int64_t)channel * ZONAL__STEM_SIDE * ZONAL__STEM_SIDE * window.channels + place;
    *to = accumulate ? *to + sum : sum;
}

/* ---- launches -------------------------------------------------------------------------------- */

zonal_status zonal__stem_filter_workspace(const zonal__stem_window *window, size_t *bytes) {
    int blocks;
    ZONAL_TRY(stem_tile_blocks(zonal__stem_tiles(window, 1), BLOCKS_EACH, &blocks));
    int sums = zonal__stem_filter_sums(window->channels) * THREADS;
    *bytes = (size_t)blocks * (size_t)(stem_channel_blocks(window) * sums) * sizeof(float);
    return ZONAL_OK;
}

template <int CHANNELS>
static zonal_status launch(const zonal__stem_window *window, int blocks, cudaStream_t stream,
                           const void *x, const void *dy, float *parts) {
    dim3 grid((unsigned)blocks, (unsigned)stem_channel_blocks(window));
    int bytes = 2 * (int)sizeof(stage<CHANNELS>), tiles = (int)zonal__stem_tiles(window, 1);
    ZONAL_TRY(stem_use_shared(add_tiles<CHANNELS>, bytes));
    add_tiles<CHANNELS><<<grid, THREADS, bytes, stream>>>(*window, tiles, (const __nv_bfloat16 *)x,
                                                          (const __nv_bfloat16 *)dy, parts);
    return ZONAL_CUDA_LAUNCHED();
}

zonal_status zonal__stem_filter(const zonal__stem_window *window, cudaStream_t stream,
                                const void *x, const void *dy, void *workspace, int accumulate,
                                float *dweight) {
    float *parts = (float *)workspace;
    int blocks;
    ZONAL_TRY(stem_tile_blocks(zonal__stem_tiles(window, 1), BLOCKS_EACH, &blocks));
    if (window->channels == 3)
        ZONAL_TRY(launch<3>(window, blocks, stream, x, dy, parts));
    else
        ZONAL_TRY(launch<1>(window, blocks, stream, x, dy, parts));
    int sums = zonal__stem_filter_sums(window->channels) * THREADS;
    dim3 grid((unsigned)(sums / 32), (unsigned)stem_channel_blocks(window));
    add_parts<<<grid, SLICES * 32, 0, stream>>>(*window, blocks, parts, accumulate, dweight);
    return ZONAL_CUDA_LAUNCHED();
}
