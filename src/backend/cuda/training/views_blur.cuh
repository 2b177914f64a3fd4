/*
 * The blur of photograph views, the end of those that ask for it: along the rows, then along the
 * columns, of one tile of one channel in shared memory.
 *
 * A thread makes ZONAL__VIEWS_BLUR_RUN neighbouring results at a time: they share all but that many
 * of the elements they are made of, so that each tap costs one element and one weight from shared
 * memory for eight multiplications. Taps further out than six of the Gaussian's widths are left
 * out: together they weigh less than fp32 can tell from nothing.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_VIEWS_BLUR_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_VIEWS_BLUR_CUH

#include "backend/cuda/training/views_photograph.cuh"

/* sum[r] = sum over t of weight[t] from[(r + t) step] */
__device__ inline void blur_run(const float *from, int step, const float *weight, int taps,
                                float sum[ZONAL__VIEWS_BLUR_RUN]) {
    enum { RUN = ZONAL__VIEWS_BLUR_RUN };
    float window[RUN];
#pragma unroll
    for (int r = 0; r < RUN; r++) {
        sum[r] = 0;
        if (r < RUN - 1) window[r] = from[r * step];
    }
    from += (RUN - 1) * step;
#pragma unroll 8
    for (int t = 0; t < taps; t++, from += step) {
        float w = weight[t];
        window[RUN - 1] = *from;
#pragma unroll
        for (int r = 0; r < RUN; r++) sum[r] += w * window[r];
#pragma unroll
        for (int r = 0; r < RUN - 1; r++) window[r] = window[r + 1];
    }
}

/* The Gaussian's weights, by the first warp; they add up to 1. */
__device__ inline void find_blur_weights(float sigma, int radius, float *weight) {
    int lane = (int)threadIdx.x % 32;
    float sum = 0;
    if (threadIdx.x >= 32) return;
    for (int t = lane; t <= 2 * radius; t += 32) {
        float z = (float)(t - radius) / sigma;
        weight[t] = expf(-0.5f * z * z);
        sum += weight[t];
    }
    sum = zonal__warp_sum(sum);
    for (int t = lane; t <= 2 * radius; t += 32) weight[t] /= sum;
}

/* Taps on each side that count. */
__device__ inline int blur_reach(float sigma, int radius) {
    return min(radius, (int)ceilf(6 * sigma));
}

template <typename Out, int C>
static __global__ void __launch_bounds__(ZONAL__VIEWS_THREADS)
    blur_photographs(const __grid_constant__ views_args args) {
    enum { RUN = ZONAL__VIEWS_BLUR_RUN };
    extern __shared__ float blur_shared[];
    const zonal__views_shape &shape = args.shape;
    int channel = (int)blockIdx.x % C, tile = (int)blockIdx.x / C % shape.blur_tiles;
    int number = (int)blockIdx.x / C / shape.blur_tiles;
    const zonal__view &view = args.views[number];
    if (!is_blurred(args, view)) return;
    int left = tile % shape.blur_across * shape.blur_width;
    int top = tile / shape.blur_across * shape.blur_height;
    int reach = blur_reach(view.blur, shape.radius), taps = 2 * reach + 1;
    int rows = shape.blur_height + 2 * reach, columns = shape.blur_width + 2 * reach;
    float *wide = blur_shared;                    /* [rows][wide_pitch] */
    float *thin = wide + rows * shape.wide_pitch; /* [rows][thin_pitch] */
    float *weight = thin + rows * shape.thin_pitch;
    const uint16_t *kept =
        args.kept + number * shape.elements + (int64_t)channel * shape.width * shape.height;

    find_blur_weights(view.blur, reach, weight);
    for (int i = (int)threadIdx.x / 32; i < rows; i += ZONAL__VIEWS_WARPS) {
        int y = zonal__views_mirror(top + i - reach, shape.height);
        for (int j = (int)threadIdx.x % 32; j < columns; j += 32) {
            int x = zonal__views_mirror(left + j - reach, shape.width);
            wide[i * shape.wide_pitch + j] = from_fraction(kept[y * shape.width + x]);
        }
    }
    __syncthreads();

    /* A warp's threads take rows one below the other, whose elements lie in different banks. */
    for (int i = (int)threadIdx.x; i < rows * (shape.blur_width / RUN); i += ZONAL__VIEWS_THREADS) {
        int row = i % rows, column = i / rows * RUN;
        float sum[RUN];
        blur_run(wide + row * shape.wide_pitch + column, 1, weight, taps, sum);
#pragma unroll
        for (int r = 0; r < RUN; r++) thin[row * shape.thin_pitch + column + r] = sum[r];
    }
    __syncthreads();

    Out *out = view_out<Out>(args, number) + channel;
    for (int i = (int)threadIdx.x; i < shape.blur_width * (shape.blur_height / RUN);
         i += ZONAL__VIEWS_THREADS) {
        int column = i % shape.blur_width, row = i / shape.blur_width * RUN;
        int x = left + column, y = top + row;
        float sum[RUN];
        if (x >= shape.width || y >= shape.height) continue;
        blur_run(thin + row * shape.thin_pitch + column, shape.thin_pitch, weight, taps, sum);
#pragma unroll
        for (int r = 0; r < RUN; r++)
            if (y + r < shape.height)
                zonal__store(out + ((int64_t)(y + r) * shape.width + x) * C,
                             finish(args, view, channel, sum[r]));
    }
}

#endif
