/*
 * Forward of the 7 x 7 first convolution (nn_stem_window.h): for each tile of 4 output rows, the
 * product of the windows, 16 outputs at a time, with the weights on tensor cores. The windows are
 * read from the patch in shared memory as they overlap there, nothing is copied apart. A warp has
 * two of the rows and 32 output channels, whose weights stay in its registers from tile to tile,
 * while the next tile's patch is on its way. Sums are fp32, always in the same order.
 */
#include "backend/cuda/training/nn_stem_tile.cuh"
#include "backend/cuda/training/nn_vector.cuh"

static const int ROWS = ZONAL__STEM_FORWARD_ROWS;
static const int HALVES = ZONAL__STEM_CHANNELS / 32;
static const int WARPS = 4, THREADS = WARPS * 32;
static const int BLOCKS_EACH = 3; /* of a multiprocessor; its registers hold no more */

/*
 * In a product of 16 windows and 8 channels, lane l has, as the instruction wants it,
 *     of the windows   the pair of numbers 2 (l % 4), + 1 of windows l / 4 and l / 4 + 8,
 *     of the weights   the same pair for column l / 4,
 *     of the sums      columns 2 (l % 4), + 1 of windows l / 4 and l / 4 + 8.
 * The numbers are counted in eighths: 8 of a window's row, which has CHANNELS eighths.
 */

/* A lane's weights: two bf16 numbers in each, for each eighth and each of 4 products. */
template <int CHANNELS> struct weights_of {
    static const int EIGHTHS = ZONAL__STEM_SIDE * CHANNELS;
    unsigned pair[EIGHTHS][4];
};

template <int CHANNELS>
__device__ inline unsigned weight_at(const __nv_bfloat16 *filter, int r, int at) {
    int place = zonal__stem_window_weight(CHANNELS, r, at);
    return place < 0 ? 0 : *(const unsigned short *)(filter + place);
}

/* The weights of 32 channels from "first" on; 0 past the last. */
template <int CHANNELS>
__device__ inline void load_weights(weights_of<CHANNELS> &weights, const __nv_bfloat16 *weight,
                                    int first, int out_channels) {
    int lane = (int)threadIdx.x % 32, pair = lane % 4 * 2;
#pragma unroll
    for (int product = 0; product < 4; product++) {
        int channel = first + zonal__stem_forward_channel(product, lane / 4);
        const __nv_bfloat16 *filter =
            weight + (int64_t)channel * ZONAL__STEM_SIDE * ZONAL__STEM_SIDE * CHANNELS;
#pragma unroll
        for (int e = 0; e < weights.EIGHTHS; e++) {
            int r = e / CHANNELS, at = e % CHANNELS * 8 + pair;
            weights.pair[e][product] = 0;
            if (channel < out_channels)
                weights.pair[e][product] = weight_at<CHANNELS>(filter, r, at) |
                                           weight_at<CHANNELS>(filter, r, at + 1) << 16;
        }
    }
}

/* The bits of a lane's pair in a row's first eighth that belong to the window: the rest is the
 * pixel by which it was widened. */
template <int CHANNELS> __device__ inline unsigned window_mask() {
    int pair = (int)threadIdx.x % 4 * 2;
    return (pair >= CHANNELS ? 0x0000ffffu : 0) | (pair + 1 >= CHANNELS ? 0xffff0000u : 0);
}

/* 16 outputs in a row; "window" is the lane's pair of the first eighth, in the first of its two
 * windows. Two eighths make a full product, the last one is left for half of one. */
template <int CHANNELS>
__device__ inline void multiply_windows(const weights_of<CHANNELS> &weights, unsigned mask,
                                        const __nv_bfloat16 *window, float (&sum)[4][4]) {
    constexpr int STRIDE = ZONAL__STEM_PATCH * CHANNELS, EIGHT_OUTPUTS = 16 * CHANNELS;
    constexpr int EIGHTHS = weights_of<CHANNELS>::EIGHTHS; /* odd */
    unsigned a[4] = {};
#pragma unroll
    for (int e = 0; e < EIGHTHS; e++) {
        const __nv_bfloat16 *from = window + e / CHANNELS * STRIDE + e % CHANNELS * 8;
        unsigned keep = e % CHANNELS == 0 ? mask : 0xffffffffu;
        a[e % 2 * 2] = *(const unsigned *)from & keep;
        a[e % 2 * 2 + 1] = *(const unsigned *)(from + EIGHT_OUTPUTS) & keep;
#pragma unroll
        for (int product = 0; product < 4; product++)
            if (e % 2 == 1)
                stem_multiply(sum[product], a, weights.pair[e - 1][product],
                              weights.pair[e][product]);
            else if (e == EIGHTHS - 1)
                stem_multiply_half(sum[product], a[0], a[1], weights.pair[e][product]);
    }
}

/* The 8 channels that a lane has of its first output (at 0) or its second (at 2). */
__device__ inline void write_output(__nv_bfloat16 *to, const float (&sum)[4][4], int at) {
    *(uint4 *)to = make_uint4(
        nn_round_pair(sum[0][at], sum[0][at + 1]), nn_round_pair(sum[1][at], sum[1][at + 1]),
        nn_round_pair(sum[2][at], sum[2][at + 1]), nn_round_pair(sum[3][at], sum[3][at + 1]));
}

/* A warp's row of a tile. */
template <int CHANNELS>
__device__ inline void compute_row(const zonal__stem_window &window, const zonal__stem_tile &tile,
                                   const weights_of<CHANNELS> &weights, int first, int row,
                                   const __nv_bfloat16 *patch, __nv_bfloat16 *y) {
    constexpr int STRIDE = ZONAL__STEM_PATCH * CHANNELS;
    int lane = (int)threadIdx.x % 32, channel = first + lane % 4 * 8;
    if (tile.i + row >= window.out_h || first >= window.out_channels) return;
    unsigned mask = window_mask<CHANNELS>();
    const __nv_bfloat16 *rows = patch + 2 * row * STRIDE + lane % 4 * 2;
    int64_t line = (tile.n * window.out_h + tile.i + row) * window.out_w;
    for (int group = 0; group < window.groups; group++) {
        int j = group * 16 + lane / 4;
        float sum[4][4] = {};
        multiply_windows<CHANNELS>(weights, mask, rows + zonal__stem_window_start(CHANNELS, j),
                                   sum);
        int left = channel < window.out_channels ? window.out_w - tile.j - j : 0;
        __nv_bfloat16 *to = y + (line + tile.j + j) * window.out_channels + channel;
        if (left > 0) write_output(to, sum, 0);
        if (left > 8) write_output(to + 8 * window.out_channels, sum, 2);
    }
}

template <int CHANNELS>
__device__ inline void load_patch(const zonal__stem_window &window, int at, const __nv_bfloat16 *x,
                                  __nv_bfloat16 *patch) {
    zonal__stem_tile tile = zonal__stem_tile_at(&window, ROWS, at);
    stem_load_patch<CHANNELS, ROWS, WARPS>(window, tile, x, patch);
    stem_commit();
}

template <int CHANNELS>
static __global__ void __launch_bounds__(THREADS, BLOCKS_EACH)
    forward(zonal__stem_window window, int tiles, const __nv_bfloat16 *x,
            const __nv_bfloat16 *weight, __nv_bfloat16 *y) {
    constexpr int PATCH = (2 * ROWS + 5) * ZONAL__STEM_PATCH * CHANNELS;
    __shared__ __align__(16) __nv_bfloat16 patch[2][PATCH];
    int warp = (int)threadIdx.x / 32;
    int first = (int)blockIdx.y * ZONAL__STEM_CHANNELS + warp % HALVES * 32;
    weights_of<CHANNELS> weights;
    load_patch<CHANNELS>(window, (int)blockIdx.x, x, patch[0]);
    load_weights<CHANNELS>(weights, weight, first, window.out_channels);
    int current = 0;
    for (int at = (int)blockIdx.x; at < tiles; at += (int)gridDim.x, current ^= 1) {
        if (at + (int)gridDim.x < tiles)
            load_patch<CHANNELS>(window, at + (int)gridDim.x, x, patch[current ^ 1]);
        else
            stem_commit(); /* an empty batch, so that stem_wait waits for the one before */
        stem_wait();
        __syncthreads();
        zonal__stem_tile tile = zonal__stem_tile_at(&window, ROWS, at);
        for (int row = warp / HALVES; row < ROWS; row += WARPS / HALVES)
            compute_row<CHANNELS>(window, tile, weights, first, row, patch[current], y);
        __syncthreads();
    }
}

zonal_status zonal__stem_forward(const zonal__stem_window *window, cudaStream_t stream,
                                 const void *x, const void *weight, void *y) {
    int64_t tiles = zonal__stem_tiles(window, ROWS);
    int blocks;
    ZONAL_TRY(stem_tile_blocks(tiles, BLOCKS_EACH, &blocks));
    auto kernel = window->channels == 3 ? forward<3> : forward<1>;
    ZONAL_TRY(stem_use_shared(kernel, 0));
    dim3 grid((unsigned)blocks, (unsigned)stem_channel_blocks(window));
    kernel<<<grid, THREADS, 0, stream>>>(*window, (int)tiles, (const __nv_bfloat16 *)x,
                                         (const __nv_bfloat16 *)weight, (__nv_bfloat16 *)y);
    return ZONAL_CUDA_LAUNCHED();
}
