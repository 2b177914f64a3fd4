/*
 * Pools on CUDA: backend/training/nn.h, MAX_POOL and MEAN_POOL. Memory sets the pace.
 *
 * A block has one row of pixels at a time, of y on the way forward and of x on the way back; a
 * thread has 8 channels of a pixel where their number allows it, else 1.
 *
 * Saved by MAX_POOL: for each element of y, the number of the window's element that won, a byte.
 * Backward asks for each pixel of x which of the windows over it it has won, so that it writes
 * every dx once and adds in a fixed order.
 */
#include "backend/cuda/training/nn_launch.h"
#include "backend/cuda/training/nn_vector.cuh"
#include "backend/cuda/unit_rows.cuh"

enum { MOST_KERNEL = 16 /* whose windows a byte can number */ };

typedef struct pool_args {
    zonal__pool_shape shape;
    int64_t n;
    int h, w, out_h, out_w, channels;
    int kernel, stride, pad;
    const void *x, *dy, *dy_more;
    void *y, *dx;
    uint8_t *winner; /* NULL: not wanted */
} pool_args;

typedef void (*pool_kernel)(const pool_args);

/* Where pixel (i, j) of image n begins, in an array of h x w pixels. */
__device__ static inline int64_t pixel_at(int64_t n, int i, int j, int h, int w, int channels) {
    return ((n * h + i) * w + j) * (int64_t)channels;
}

/* The gradient that came back to element i of y, by one way or by two. */
template <typename T, int V>
__device__ static inline void gradient_at(const pool_args &args, int64_t i, float (&dy)[V]) {
    nn_widen(nn_read<T, V>((const T *)args.dy + i), dy);
    if (args.dy_more) {
        float more[V];
        nn_widen(nn_read<T, V>((const T *)args.dy_more + i), more);
#pragma unroll
        for (int k = 0; k < V; k++) dy[k] += more[k];
    }
}

/* ---- the largest ----------------------------------------------------------------------------- */

template <int V> struct bytes { uint8_t at[V]; };
template <> struct __align__(8) bytes<8> {
    uint8_t at[8];
};

/* K: the kernel where it is known beforehand, else 0. */
template <typename T, int V, int K>
__device__ static inline void pool_pixel(const pool_args &args, int64_t n, int i, int j,
                                         int channel) {
    const int kernel = K ? K : args.kernel;
    int top = i * args.stride - args.pad, left = j * args.stride - args.pad;
    int first = (top < 0 ? -top : 0) * kernel + (left < 0 ? -left : 0);
    float largest[V];
    int winner[V];
#pragma unroll
    for (int k = 0; k < V; k++) {
        largest[k] = -INFINITY;
        winner[k] = first;
    }
#pragma unroll
    for (int r = 0; r < kernel; r++)
#pragma unroll
        for (int s = 0; s < kernel; s++) {
            int p = top + r, q = left + s;
            if (p < 0 || p >= args.h || q < 0 || q >= args.w) continue;
            float value[V];
            nn_widen(nn_read<T, V>((const T *)args.x +
                                   pixel_at(n, p, q, args.h, args.w, args.channels) + channel),
                     value);
#pragma unroll
            for (int k = 0; k < V; k++) /* the first of the largest, but the first NaN before all */
                if (!(value[k] <= largest[k]) && largest[k] == largest[k]) {
                    largest[k] = value[k];
                    winner[k] = r * kernel + s;
                }
        }
    int64_t out = pixel_at(n, i, j, args.out_h, args.out_w, args.channels) + channel;
    nn_write((T *)args.y + out, largest);
    if (!args.winner) return;
    bytes<V> number;
#pragma unroll
    for (int k = 0; k < V; k++) number.at[k] = (uint8_t)winner[k];
    *(bytes<V> *)(args.winner + out) = number;
}

template <typename T, int V, int K>
__global__ void max_pool(const __grid_constant__ pool_args args) {
    const zonal__pool_shape &shape = args.shape;
    for (int64_t row = blockIdx.x; row < args.n * args.out_h; row += gridDim.x) {
        int64_t n = row / args.out_h;
        int i = (int)(row - n * args.out_h);
        for (int j = (int)threadIdx.x / shape.across; j < args.out_w; j += shape.down)
            for (int g = (int)threadIdx.x % shape.across; g < shape.groups; g += shape.across)
                pool_pixel<T, V, K>(args, n, i, j, g * V);
    }
}

template <typename T, int V>
__device__ static inline void pool_pixel_back(const pool_args &args, int64_t n, int p, int q,
                                              int channel) {
    zonal__pool_windows rows =
        zonal__pool_windows_over(p, args.kernel, args.stride, args.pad, args.out_h);
    zonal__pool_windows columns =
        zonal__pool_windows_over(q, args.kernel, args.stride, args.pad, args.out_w);
    float sum[V] = {};
    for (int i = rows.first; i <= rows.last; i++)
        for (int j = columns.first; j <= columns.last; j++) {
            int64_t at = pixel_at(n, i, j, args.out_h, args.out_w, args.channels) + channel;
            int own =
                (p + args.pad - i * args.stride) * args.kernel + (q + args.pad - j * args.stride);
            bytes<V> winner = *(const bytes<V> *)(args.winner + at);
            float dy[V];
            gradient_at<T, V>(args, at, dy);
#pragma unroll
            for (int k = 0; k < V; k++) sum[k] += winner.at[k] == own ? dy[k] : 0;
        }
    nn_write((T *)args.dx + pixel_at(n, p, q, args.h, args.w, args.channels) + channel, sum);
}

template <typename T, int V> __global__ void max_pool_back(const __grid_constant__ pool_args args) {
    const zonal__pool_shape &shape = args.shape;
    for (int64_t row = blockIdx.x; row < args.n * args.h; row += gridDim.x) {
        int64_t n = row / args.h;
        int p = (int)(row - n * args.h);
        for (int q = (int)threadIdx.x / shape.across; q < args.w; q += shape.down)
            for (int g = (int)threadIdx.x % shape.across; g < shape.groups; g += shape.across)
                pool_pixel_back<T, V>(args, n, p, q, g * V);
    }
}

/* ---- the mean -------------------------------------------------------------------------------- */

/* Here an image is one row of "w" pixels, and a block adds up as many as it has threads. */
template <typename T, int V> __global__ void mean_pool(const __grid_constant__ pool_args args) {
    __shared__ float part[V * ZONAL__POOL_THREADS];
    const zonal__pool_shape &shape = args.shape;
    int thread = (int)threadIdx.x, down = thread / shape.across;
    for (int64_t n = blockIdx.x; n < args.n; n += gridDim.x)
        for (int start = 0; start < shape.groups; start += shape.across) {
            int channel = (start + thread % shape.across) * V;
            bool inside = channel < args.channels;
            float sum[V] = {}, value[V];
#pragma unroll 4
            for (int q = down; inside && q < args.w; q += shape.down) {
                nn_widen(nn_read<T, V>((const T *)args.x +
                                       pixel_at(n, 0, q, 1, args.w, args.channels) + channel),
                         value);
#pragma unroll
                for (int k = 0; k < V; k++) sum[k] += value[k];
            }
            __syncthreads(); /* part may still be read from the last time */
#pragma unroll
            for (int k = 0; k < V; k++) part[k * ZONAL__POOL_THREADS + thread] = sum[k];
            __syncthreads();
            if (down > 0 || !inside) continue;
            for (int other = 1; other < shape.down; other++)
#pragma unroll
                for (int k = 0; k < V; k++)
                    sum[k] += part[k * ZONAL__POOL_THREADS + other * shape.across + thread];
#pragma unroll
            for (int k = 0; k < V; k++) sum[k] /= (float)args.w;
            nn_write((T *)args.y + n * args.channels + channel, sum);
        }
}

template <typename T, int V>
__global__ void mean_pool_back(const __grid_constant__ pool_args args) {
    const zonal__pool_shape &shape = args.shape;
    for (int64_t n = blockIdx.x; n < args.n; n += gridDim.x)
        for (int g = (int)threadIdx.x % shape.across; g < shape.groups; g += shape.across) {
            float dy[V];
            nn_widen(nn_read<T, V>((const T *)args.dy + n * args.channels + g * V), dy);
#pragma unroll
            for (int k = 0; k < V; k++) dy[k] /= (float)args.w;
            for (int q = (int)threadIdx.x / shape.across; q < args.w; q += shape.down)
                nn_write((T *)args.dx + pixel_at(n, 0, q, 1, args.w, args.channels) + g * V, dy);
        }
}

/* ---- the layers ------------------------------------------------------------------------------ */

typedef struct pool_layer {
    zonal__layer head;
    zonal__pool_shape shape, back_shape;
    pool_kernel kernel, back_kernel;
} pool_layer;

template <typename T, int V> static void choose_kernels(pool_layer *layer) {
    if (layer->head.spec.kind == ZONAL__LAYER_MEAN_POOL) {
        layer->kernel = mean_pool<T, V>;
        layer->back_kernel = mean_pool_back<T, V>;
    } else {
        layer->kernel = layer->head.spec.kernel == 3 ? max_pool<T, V, 3> : max_pool<T, V, 0>;
        layer->back_kernel = max_pool_back<T, V>;
    }
}

/* Also loads the kernels, which a first launch would do too late for a graph's capture. */
static zonal_status prepare(pool_layer *layer) {
    cudaFuncAttributes attributes;
    int vector = layer->shape.vector > 1;
    if (layer->head.spec.dtype == ZONAL_DTYPE_BF16)
        (vector ? choose_kernels<__nv_bfloat16, ZONAL__NN_VECTOR>
                : choose_kernels<__nv_bfloat16, 1>)(layer);
    else
        (vector ? choose_kernels<float, ZONAL__NN_VECTOR> : choose_kernels<float, 1>)(layer);
    ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, (const void *)layer->kernel)));
    return ZONAL_CUDA(cudaFuncGetAttributes(&attributes, (const void *)layer->back_kernel));
}

static zonal_status create_max(zonal__layer *opaque) {
    pool_layer *layer = (pool_layer *)opaque;
    const zonal__layer_spec *spec = &opaque->spec;
    if (spec->kernel > MOST_KERNEL)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "on CUDA a max pool has a kernel of at most %d, got %d; use a smaller "
                          "one, or the device cpu",
                          MOST_KERNEL, spec->kernel);
    zonal__pool_shape_make(spec->n * opaque->out_h, opaque->out_w, spec->channels, &layer->shape);
    zonal__pool_shape_make(spec->n * spec->h, spec->w, spec->channels, &layer->back_shape);
    return prepare(layer);
}

static zonal_status create_mean(zonal__layer *opaque) {
    pool_layer *layer = (pool_layer *)opaque;
    const zonal__layer_spec *spec = &opaque->spec;
    int64_t pixels = (int64_t)spec->h * spec->w;
    if (pixels > INT32_MAX)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "on CUDA a mean pool takes images of fewer than 2^31 pixels, got %d x "
                          "%d; use smaller ones, or the device cpu",
                          spec->h, spec->w);
    zonal__pool_shape_make(spec->n, (int)pixels, spec->channels, &layer->shape);
    layer->back_shape = layer->shape;
    return prepare(layer);
}

/* One byte for each element of y. */
static size_t saved_bytes(const zonal__layer *layer) {
    return (size_t)(layer->spec.n * layer->out_h * layer->out_w) * (size_t)layer->out_channels;
}

static pool_args make_args(const pool_layer *layer, const zonal__pool_shape &shape) {
    const zonal__layer_spec *spec = &layer->head.spec;
    pool_args args = {};
    args.shape = shape;
    args.n = spec->n;
    args.channels = spec->channels;
    args.h = spec->kind == ZONAL__LAYER_MEAN_POOL ? 1 : spec->h;
    args.w = spec->kind == ZONAL__LAYER_MEAN_POOL ? spec->h * spec->w : spec->w;
    args.out_h = layer->head.out_h;
    args.out_w = layer->head.out_w;
    args.kernel = spec->kernel;
    args.stride = spec->stride;
    args.pad = spec->pad;
    return args;
}

static zonal_status launch(const pool_layer *layer, pool_kernel kernel, const pool_args &args) {
    return zonal__launch(layer->head.stream, dim3((unsigned)args.shape.blocks),
                         args.shape.across * args.shape.down, 0, 1, kernel, args);
}

static zonal_status forward(zonal__layer *opaque, const zonal__layer_arrays *arrays, int training) {
    const pool_layer *layer = (const pool_layer *)opaque;
    pool_args args = make_args(layer, layer->shape);
    args.x = arrays->x;
    args.y = arrays->y;
    if (training && !opaque->spec.forward_only) args.winner = (uint8_t *)arrays->saved;
    return launch(layer, layer->kernel, args);
}

static zonal_status backward(zonal__layer *opaque, const zonal__layer_arrays *arrays) {
    const pool_layer *layer = (const pool_layer *)opaque;
    pool_args args = make_args(layer, layer->back_shape);
    if (!arrays->dx) return ZONAL_OK;
    args.dy = arrays->dy;
    args.dy_more = arrays->dy_more;
    args.dx = arrays->dx;
    args.winner = (uint8_t *)arrays->saved;
    return launch(layer, layer->back_kernel, args);
}

const zonal__cuda_layer_kind zonal__cuda_max_pool = {
    sizeof(pool_layer), create_max, NULL, saved_bytes, NULL, forward, backward};
const zonal__cuda_layer_kind zonal__cuda_mean_pool = {
    sizeof(pool_layer), create_mean, NULL, NULL, NULL, forward, backward};
