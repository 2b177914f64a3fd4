/*
 * Texture views: one kernel from the source to the output. A thread makes two neighbouring pixels,
 * whose noise is a whole number of pairs of normal numbers, and a warp 16 x 4 of them: however the
 * map turns, few lines of the source lie under such a patch.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_VIEWS_TEXTURE_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_VIEWS_TEXTURE_CUH

#include "backend/cuda/training/views.cuh"

extern "C" {
#include "core/random.h"
#include "core/random_scalar.h"
}

/* ---- noise ----------------------------------------------------------------------------------- */

/* (w + 1/2) 2^-53, w being the upper 53 of the 64 bits. */
__device__ inline float unit_interval(uint32_t high, uint32_t low) {
    return (float)high * 0x1p-32f + ((float)(low >> 11) + 0.5f) * 0x1p-53f;
}

/* The numbers of zonal__normal_pair from the same random words, but in float: they are within 3e-6
 * of those, and take a fraction of the time. Close to 1, where a float has too few digits for its
 * logarithm, u is known by 1 - u, which has the opposite bits. */
__device__ inline float2 normal_pair(const zonal__random &random, uint64_t sample, uint32_t block) {
    uint32_t word[4];
    float sine, cosine;
    zonal__philox(&random, sample, block, word);
    float logarithm = word[0] >> 31 ? log1pf(-unit_interval(~word[0], ~word[1]))
                                    : logf(unit_interval(word[0], word[1]));
    float radius = sqrtf(-2 * logarithm);
    sincospif(2 * unit_interval(word[2], word[3]), &sine, &cosine);
    return make_float2(radius * cosine, radius * sine);
}

/* Normal numbers C p to C p + 2 C - 1 of the view: those of pixels p and p + 1, p even. */
template <int C>
__device__ inline void draw_noise(const zonal__view &view, int64_t p, float normal[2 * C]) {
    zonal__random random = {view.seed, ZONAL__STREAM_NOISE, view.epoch};
#pragma unroll
    for (int c = 0; c < C; c++) {
        float2 pair = normal_pair(random, view.draw, (uint32_t)(p / 2 * C + c));
        normal[2 * c] = pair.x;
        normal[2 * c + 1] = pair.y;
    }
}

/* ---- the source ------------------------------------------------------------------------------ */

/* Pixel (x, y) of the source, zero outside. */
template <int S>
__device__ inline pixel<S> load_pixel(const uint8_t *source, const zonal__image_place &image, int x,
                                      int y) {
    pixel<S> p = {};
    if (x < 0 || y < 0 || x >= image.width || y >= image.height) return p;
    const uint8_t *from = source + ((int64_t)y * image.width + x) * S;
#pragma unroll
    for (int s = 0; s < S; s++) p.x[s] = (float)__ldg(from + s);
    return p;
}

/* Between the four pixels about the point (x, y), in pixels from the centre of the first one. */
template <int S>
__device__ inline pixel<S> interpolate(const uint8_t *source, const zonal__image_place &image,
                                       float x, float y) {
    x = fminf(fmaxf(x, -2), (float)image.width + 1); /* so that far away fits an int */
    y = fminf(fmaxf(y, -2), (float)image.height + 1);
    float left = floorf(x), top = floorf(y), right_weight = x - left, lower_weight = y - top;
    int i = (int)top, j = (int)left;
    pixel<S> a = load_pixel<S>(source, image, j, i);
    pixel<S> b = load_pixel<S>(source, image, j + 1, i);
    pixel<S> c = load_pixel<S>(source, image, j, i + 1);
    pixel<S> d = load_pixel<S>(source, image, j + 1, i + 1);
    pixel<S> p;
#pragma unroll
    for (int s = 0; s < S; s++) {
        float upper = a.x[s] + right_weight * (b.x[s] - a.x[s]);
        float lower = c.x[s] + right_weight * (d.x[s] - c.x[s]);
        p.x[s] = (upper + lower_weight * (lower - upper)) * (1 / 255.0f);
    }
    return p;
}

template <int C>
__device__ inline pixel<C> map_pixel(const uint8_t *source, const zonal__image_place &image,
                                     const zonal__view &view, int j, int i) {
    const float *affine = view.affine;
    float across = (float)j + 0.5f, down = (float)i + 0.5f;
    float x = affine[0] * across + affine[1] * down + affine[2] - 0.5f;
    float y = affine[3] * across + affine[4] * down + affine[5] - 0.5f;
    if (image.channels == 3) return to_channels<C>(interpolate<3>(source, image, x, y));
    return to_channels<C>(interpolate<1>(source, image, x, y));
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Pixel (j, i) of the view, finished. normal: its C normal numbers. */
template <int C>
__device__ inline pixel<C>
make_texture_pixel(const views_args &args, const uint8_t *source, const zonal__image_place &image,
                   const zonal__view &view, int j, int i, const float *normal) {
    pixel<C> p = map_pixel<C>(source, image, view, j, i);
    bool erased = j >= view.erase_left && j - view.erase_left < view.erase_width &&
                  i >= view.erase_top && i - view.erase_top < view.erase_height;
#pragma unroll
    for (int c = 0; c < C; c++) {
        float x = __saturatef(__saturatef(p.x[c] + view.brightness) * view.contrast);
        x = __saturatef(x + view.noise * normal[c]);
        x = erased ? view.erase_value : x;
        p.x[c] = args.scale[c] * x + args.shift[c];
    }
    return p;
}

__device__ inline void store_pair(float *out, float first, float second) {
    *(float2 *)out = make_float2(first, second);
}
__device__ inline void store_pair(__nv_bfloat16 *out, float first, float second) {
    *(__nv_bfloat162 *)out = __floats2bfloat162_rn(first, second);
}

/* Pixels x and x + 1 of a row, from "at" on: two elements at a time where both are in the view and
 * their place is even. */
template <typename Out, int C>
__device__ inline void put_pair(Out *at, int x, int width, const pixel<C> p[2]) {
    bool whole = x >= 0 && x + 1 < width && (uintptr_t)at % (2 * sizeof(Out)) == 0;
    if (whole) {
#pragma unroll
        for (int c = 0; c < C; c++)
            store_pair(at + 2 * c, p[2 * c / C].x[2 * c % C],
                       p[(2 * c + 1) / C].x[(2 * c + 1) % C]);
        return;
    }
#pragma unroll
    for (int k = 0; k < 2; k++)
        if (x + k >= 0 && x + k < width)
#pragma unroll
            for (int c = 0; c < C; c++) zonal__store(at + k * C + c, p[k].x[c]);
}

template <typename Out, int C>
static __global__ void __launch_bounds__(ZONAL__VIEWS_THREADS)
    make_textures(const __grid_constant__ views_args args) {
    const zonal__views_shape &shape = args.shape;
    tile_place tile = find_tile(shape);
    const zonal__view &view = args.views[tile.view];
    const zonal__image_place &image = args.images[view.image];
    const uint8_t *source = args.base + image.offset;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int patch = warp; patch < 16; patch += ZONAL__VIEWS_WARPS) { /* 2 across, 8 down */
        int y = tile.top + patch / 2 * 4 + lane / 8;
        int pair = tile.left / 2 + patch % 2 * 8 + lane % 8;
        int x = zonal__views_pair_start(pair, y, shape.width);
        if (y >= shape.height || x >= shape.width) continue;
        int64_t at = (int64_t)y * shape.width + x;
        float normal[2 * C] = {};
        pixel<C> p[2];
        if (view.noise != 0) draw_noise<C>(view, at, normal);
#pragma unroll
        for (int k = 0; k < 2; k++)
            p[k] = make_texture_pixel<C>(args, source, image, view, x + k, y, normal + k * C);
        put_pair<Out, C>(view_out<Out>(args, tile.view) + at * C, x, shape.width, p);
    }
}

#endif
