/*
 * Photograph views: crop, resample and adjust. A thread makes up to four pixels of one column.
 *
 * The contrast, of which a view has at most one, needs the mean of the whole view as it then is.
 * So the first kernel goes as far as the contrast and adds up its tile; the second adds up the
 * tiles, in a fixed order, and goes on. A view that is blurred waits once more (views_blur.cuh). In
 * between, views are kept as 16-bit fractions, off by 0.002/255 at most; what needs neither is
 * finished by the first kernel.
 *
 * Resampling sums the source pixels under a pixel's triangles one by one. Neighbours share most of
 * them, but at a crop of 1 to 2 times the view's size there are 4 to 16, from the cache, and
 * sharing would cost more than it saves.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_VIEWS_PHOTOGRAPH_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_VIEWS_PHOTOGRAPH_CUH

#include "backend/cuda/training/views.cuh"

/* ---- resampling ------------------------------------------------------------------------------ */

/* One pixel of a crop, which begins at "crop" and whose rows are row_bytes apart. across_sum: the
 * sum of the weights of "across". */
template <int S>
__device__ inline pixel<S> sum_taps(const uint8_t *crop, int64_t row_bytes,
                                    const zonal__views_taps &across, float across_sum,
                                    const zonal__views_taps &down) {
    pixel<S> total = {};
    float down_sum = 0;
    for (int y = down.low; y < down.high; y++) {
        const uint8_t *from = crop + y * row_bytes + across.low * S;
        float row_weight = zonal__views_weight(&down, y);
        pixel<S> line = {};
        for (int x = across.low; x < across.high; x++, from += S) {
            float weight = zonal__views_weight(&across, x);
#pragma unroll
            for (int s = 0; s < S; s++) line.x[s] += weight * (float)__ldg(from + s);
        }
#pragma unroll
        for (int s = 0; s < S; s++) total.x[s] += row_weight * line.x[s];
        down_sum += row_weight;
    }
    float scale = 1 / (255 * across_sum * down_sum);
#pragma unroll
    for (int s = 0; s < S; s++) total.x[s] *= scale;
    return total;
}

/* A view's pixels of one column. */
typedef struct column_source {
    const uint8_t *crop;
    int64_t row_bytes;
    int channels, crop_height;
    zonal__views_taps across;
    float across_sum;
} column_source;

__device__ inline column_source find_column(const views_args &args, const zonal__view &view,
                                            int x) {
    const zonal__image_place &image = args.images[view.image];
    int width = args.shape.width;
    column_source source;
    source.channels = image.channels;
    source.row_bytes = (int64_t)image.width * image.channels;
    source.crop = args.base + image.offset + view.top * source.row_bytes +
                  (int64_t)view.left * image.channels;
    source.crop_height = view.height;
    source.across = zonal__views_find_taps(view.flip ? width - 1 - x : x, view.width, width);
    source.across_sum = 0;
    for (int k = source.across.low; k < source.across.high; k++)
        source.across_sum += zonal__views_weight(&source.across, k);
    return source;
}

template <int C>
__device__ inline pixel<C> resample(const column_source &source, int y, int height) {
    zonal__views_taps down = zonal__views_find_taps(y, source.crop_height, height);
    if (source.channels == 3)
        return to_channels<C>(
            sum_taps<3>(source.crop, source.row_bytes, source.across, source.across_sum, down));
    return to_channels<C>(
        sum_taps<1>(source.crop, source.row_bytes, source.across, source.across_sum, down));
}

/* ---- adjustments ----------------------------------------------------------------------------- */

/* factor x + (1 - factor) other, clamped. */
template <int C> __device__ inline void blend(float factor, float other, pixel<C> *p) {
#pragma unroll
    for (int c = 0; c < C; c++) p->x[c] = __saturatef(factor * p->x[c] + (1 - factor) * other);
}

/* Turns the hue. In sixths of a turn h, the channel whose distance from pure is k = offset + h
 * (mod 6), offset 5, 3, 1 for red, green, blue, is
 *     largest - (largest - least) clamp(min(k, 4 - k), 0, 1). */
__device__ inline void turn_hue(float turn, pixel<3> *p) {
    float red = p->x[0], green = p->x[1], blue = p->x[2];
    float largest = fmaxf(red, fmaxf(green, blue)), least = fminf(red, fminf(green, blue));
    float range = largest - least, inverse = range > 0 ? 1 / range : 0;
    float hue = largest == red     ? (green - blue) * inverse
                : largest == green ? 2 + (blue - red) * inverse
                                   : 4 + (red - green) * inverse;
    hue += 6 * turn;
#pragma unroll
    for (int c = 0; c < 3; c++) {
        float k = hue + (float)(5 - 2 * c);
        k -= 6 * floorf(k * (1 / 6.0f));
        p->x[c] = __saturatef(largest - range * __saturatef(fminf(k, 4 - k)));
    }
}

/* The adjustments from "begin" to before "end" of the view's order. "mean" is for the contrast. */
template <int C>
__device__ inline void adjust(const zonal__view &view, int begin, int end, float mean,
                              pixel<C> *p) {
    for (int i = begin; i < end; i++) {
        int which = view.order[i];
        float factor = view.factor[which];
        if (which == ZONAL__ADJUST_BRIGHTNESS)
            blend<C>(factor, 0, p);
        else if (which == ZONAL__ADJUST_CONTRAST)
            blend<C>(factor, mean, p);
        else if constexpr (C == 3) {
            if (which == ZONAL__ADJUST_SATURATION)
                blend<C>(factor, grey_of(*p), p);
            else
                turn_hue(factor, p);
        }
    }
}

/* The place of the contrast in the view's order; view.adjustments where there is none. */
__device__ inline int find_contrast(const zonal__view &view) {
    int i = 0;
    while (i < view.adjustments && view.order[i] != ZONAL__ADJUST_CONTRAST) i++;
    return i;
}

/* ---- between kernels, and the end ------------------------------------------------------------ */

__device__ inline bool is_blurred(const views_args &args, const zonal__view &view) {
    return args.shape.radius > 0 && view.blur > 0;
}

__device__ inline float from_fraction(uint16_t x) {
    return (float)x * (1 / 65535.0f);
}

/* Pixel number "at" of a view, channel by channel in planes of their own. */
template <int C>
__device__ inline void keep(const views_args &args, int view, int at, const pixel<C> &p) {
    uint16_t *kept = args.kept + view * args.shape.elements + at;
    int64_t plane = (int64_t)args.shape.width * args.shape.height;
#pragma unroll
    for (int c = 0; c < C; c++)
        kept[c * plane] = (uint16_t)__float2uint_rn(__saturatef(p.x[c]) * 65535);
}

template <int C> __device__ inline pixel<C> fetch(const views_args &args, int view, int at) {
    const uint16_t *kept = args.kept + view * args.shape.elements + at;
    int64_t plane = (int64_t)args.shape.width * args.shape.height;
    pixel<C> p;
#pragma unroll
    for (int c = 0; c < C; c++) p.x[c] = from_fraction(kept[c * plane]);
    return p;
}

/* What comes after the blur, for one element. */
__device__ inline float finish(const views_args &args, const zonal__view &view, int channel,
                               float x) {
    if (view.solarise && x >= 0.5f) x = 1 - x;
    return args.scale[channel] * x + args.shift[channel];
}

/* Pixel number "at" after its last adjustment: greyed, and kept for the blur or finished. */
template <typename Out, int C>
__device__ inline void put(const views_args &args, const zonal__view &view, int number, int at,
                           pixel<C> p) {
    if (view.grey) p = to_channels<C>(pixel<1>{{grey_of(p)}});
    if (is_blurred(args, view)) return keep(args, number, at, p);
    Out *out = view_out<Out>(args, number) + (int64_t)at * C;
#pragma unroll
    for (int c = 0; c < C; c++) zonal__store(out + c, finish(args, view, c, p.x[c]));
}

/* ---- the kernels ----------------------------------------------------------------------------- */

template <typename Out, int C>
static __global__ void __launch_bounds__(ZONAL__VIEWS_THREADS)
    make_photographs(const __grid_constant__ views_args args) {
    __shared__ double part[ZONAL__VIEWS_WARPS];
    const zonal__views_shape &shape = args.shape;
    tile_place tile = find_tile(shape);
    const zonal__view &view = args.views[tile.view];
    int contrast = find_contrast(view);
    bool waits = contrast < view.adjustments;
    int x = tile.left + (int)threadIdx.x % 32;
    int end = min(tile.top + ZONAL__VIEWS_TILE, shape.height);
    float sum = 0;
    if (x < shape.width) {
        column_source source = find_column(args, view, x);
        for (int y = tile.top + (int)threadIdx.x / 32; y < end; y += ZONAL__VIEWS_WARPS) {
            pixel<C> p = resample<C>(source, y, shape.height);
            int at = y * shape.width + x;
            adjust<C>(view, 0, contrast, 0, &p);
            if (waits) {
                keep(args, tile.view, at, p);
                sum += grey_of(p);
            } else {
                put<Out, C>(args, view, tile.view, at, p);
            }
        }
    }
    if (!waits) return;
    double total = zonal__block_sum((double)sum, part);
    if (threadIdx.x == 0) args.grey_sums[blockIdx.x] = total;
}

/* The mean grey of the view before its contrast. */
__device__ inline float mean_grey(const views_args &args, int view, double *part) {
    const zonal__views_shape &shape = args.shape;
    double sum = 0;
    for (int i = (int)threadIdx.x; i < shape.tiles; i += ZONAL__VIEWS_THREADS)
        sum += args.grey_sums[(int64_t)view * shape.tiles + i];
    return (float)(zonal__block_sum(sum, part) / ((double)shape.width * shape.height));
}

template <typename Out, int C>
static __global__ void __launch_bounds__(ZONAL__VIEWS_THREADS)
    adjust_photographs(const __grid_constant__ views_args args) {
    __shared__ double part[ZONAL__VIEWS_WARPS];
    const zonal__views_shape &shape = args.shape;
    tile_place tile = find_tile(shape);
    const zonal__view &view = args.views[tile.view];
    int contrast = find_contrast(view);
    if (contrast == view.adjustments) return;
    float mean = mean_grey(args, tile.view, part);
    int x = tile.left + (int)threadIdx.x % 32;
    int end = min(tile.top + ZONAL__VIEWS_TILE, shape.height);
    if (x >= shape.width) return;
    for (int y = tile.top + (int)threadIdx.x / 32; y < end; y += ZONAL__VIEWS_WARPS) {
        int at = y * shape.width + x;
        pixel<C> p = fetch<C>(args, tile.view, at);
        adjust<C>(view, contrast, view.adjustments, mean, &p);
        put<Out, C>(args, view, tile.view, at, p);
    }
}

#endif
