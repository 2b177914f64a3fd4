/*
 * Batch normalisation with what follows it, on CUDA: backend/nn.h, NORM. Memory sets the pace.
 * Forward takes two kernels: "statistics" reads x and makes the mean and 1/sqrt(variance + epsilon)
 * of each channel, "apply" reads x again and writes y. Where rows are few, "whole" does both.
 * Backward is nn_norm_back.cu.
 *
 * Statistics are good to about 1e-6: every thread sums differences from the first value it meets,
 * so that a large mean costs nothing, and from there on all is double.
 *
 * Saved: mean and inverse of each channel, and for relu the sign of z, a bit for each element,
 * which is less to read than y and less to keep than what z is made of. (Where channels come one by
 * one, y is read.)
 */
#include "backend/cuda/nn_norm.cuh"

extern "C" {
#include "backend/device.h"
}

enum {
    ROWS_AT_ONCE = 4, /* of a thread, so that many loads are under way */
    APPLY_BLOCKS = 8  /* for each multiprocessor: fast ones take over from slow ones */
};

typedef struct norm_layer {
    zonal__layer head;
    zonal__columns shape;
    int whole;                    /* 1: a block has all rows of its channels */
    int sum_blocks, apply_blocks; /* of a column */
    unsigned *tickets;            /* device, [columns] */
    norm_kernels kernels;
} norm_layer;

/* ---- kernels --------------------------------------------------------------------------------- */

/* The statistics of a channel, and the running ones, from the sums of x - origin and its square. */
__device__ static void finish_statistics(const norm_args &args, int channel, double origin,
                                         const double (&total)[2]) {
    double m = (double)args.shape.rows, momentum = (double)args.momentum;
    double mean = total[0] / m, squares = total[1] - mean * total[0];
    if (squares < 0) squares = 0; /* a rounding; NaN stays */
    mean += origin;
    args.mean[channel] = (float)mean;
    args.inverse[channel] = (float)(1 / sqrt(squares / m + (double)args.epsilon));
    args.running_mean[channel] =
        (float)((1 - momentum) * (double)args.running_mean[channel] + momentum * mean);
    args.running_variance[channel] =
        (float)((1 - momentum) * (double)args.running_variance[channel] +
                momentum * (squares / (m - 1)));
}

template <typename T, int V>
__device__ static inline void make_statistics(const norm_args &args,
                                              const zonal__column_place &at) {
    const T *x = (const T *)args.x;
    float shift[V] = {}, sum[V] = {}, squares[V] = {};
    int count = 0;
    if (at.first < at.end) nn_widen(nn_read<T, V>(x + at.first), shift);
    for (int64_t i = at.first; i < at.end; i += ROWS_AT_ONCE * at.step) {
        nn_vector<T, V> read[ROWS_AT_ONCE];
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            if (i + u * at.step < at.end) read[u] = nn_read<T, V>(x + i + u * at.step);
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++) {
            float value[V];
            if (i + u * at.step >= at.end) break;
            nn_widen(read[u], value);
            count++;
#pragma unroll
            for (int k = 0; k < V; k++) {
                float difference = value[k] - shift[k];
                sum[k] += difference;
                squares[k] += difference * difference;
            }
        }
    }
    /* From here on about one origin, the first row, so that threads can be added. */
    __shared__ double part[V * ZONAL__NN_THREADS];
    double own[V] = {}, total[2];
    float origin[V] = {};
    int channel;
    if (count > 0) nn_widen(nn_read<T, V>(x + at.channel), origin);
#pragma unroll
    for (int k = 0; k < V; k++)
        own[k] = (double)sum[k] + count * ((double)shift[k] - (double)origin[k]);
    total[0] = norm_sum_block<V>(args, at, 0, own, part);
#pragma unroll
    for (int k = 0; k < V; k++) {
        double move = (double)shift[k] - (double)origin[k];
        own[k] = (double)squares[k] + move * (2 * (double)sum[k] + count * move);
    }
    total[1] = norm_sum_block<V>(args, at, 1, own, part);
    if (norm_sum_column<V>(args, at, part, total, &channel))
        finish_statistics(args, channel, (double)zonal__load(x + channel), total);
}

template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void apply_row(const norm_args &args, const norm_line<V> &line, int64_t i,
                                        const nn_vector<T, V> &x, const nn_vector<T, V> &residual) {
    float value[V], more[V];
    unsigned positive = 0;
    nn_widen(x, value);
    if (RESIDUAL) nn_widen(residual, more);
#pragma unroll
    for (int k = 0; k < V; k++) {
        float z = norm_before(line, k, value[k]);
        if (RESIDUAL) z += more[k];
        positive |= (z <= 0 ? 0u : 1u) << k;
        value[k] = nn_activate<A>(z);
    }
    nn_write((T *)args.y + i, value);
    if (A == ZONAL__ACTIVATION_RELU && V == ZONAL__NN_VECTOR && args.positive)
        args.positive[i / V] = (uint8_t)positive;
}

/* From the last row to the first: what was read last for the statistics is still in the cache. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void apply_rows(const norm_args &args, const zonal__column_place &at) {
    constexpr int AT_ONCE = RESIDUAL ? ROWS_AT_ONCE / 2 : ROWS_AT_ONCE;
    if (at.first >= at.end) return;
    norm_line<V> line = norm_line_of<V>(args, at.channel);
    for (int64_t i = zonal__column_last(&args.shape, &at); i >= 0; i -= AT_ONCE * at.step) {
        nn_vector<T, V> x[AT_ONCE], residual[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (i - u * at.step >= 0) {
                x[u] = nn_read<T, V>((const T *)args.x + i - u * at.step);
                if (RESIDUAL)
                    residual[u] = nn_read<T, V>((const T *)args.residual + i - u * at.step);
            }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (i - u * at.step >= 0)
                apply_row<T, V, A, RESIDUAL>(args, line, i - u * at.step, x[u], residual[u]);
    }
}

template <typename T, int V>
__global__ void __launch_bounds__(ZONAL__NN_THREADS,
                                  norm_blocks_together<T, ZONAL__ACTIVATION_NONE>())
    norm_statistics(const __grid_constant__ norm_args args) {
    make_statistics<T, V>(args, norm_place(args));
}

template <typename T, int V, zonal__activation A, bool RESIDUAL>
__global__ void __launch_bounds__(ZONAL__NN_THREADS, norm_blocks_together<T, A>())
    norm_apply(const __grid_constant__ norm_args args) {
    apply_rows<T, V, A, RESIDUAL>(args, norm_place(args));
}

/* Both, in a block that has all rows of its channels. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__global__ void __launch_bounds__(ZONAL__NN_THREADS, 1)
    norm_whole(const __grid_constant__ norm_args args) {
    zonal__column_place at = norm_place(args);
    make_statistics<T, V>(args, at);
    __syncthreads();
    apply_rows<T, V, A, RESIDUAL>(args, at);
}

/* ---- create ---------------------------------------------------------------------------------- */

template <typename T, int V, zonal__activation A>
static void choose_apply(int residual, norm_kernels *kernels) {
    kernels->apply = residual ? norm_apply<T, V, A, true> : norm_apply<T, V, A, false>;
    kernels->whole = residual ? norm_whole<T, V, A, true> : norm_whole<T, V, A, false>;
}

template <typename T, int V>
static void choose_forward(const zonal__layer_spec *spec, norm_kernels *kernels) {
    kernels->statistics = norm_statistics<T, V>;
    (spec->activation == ZONAL__ACTIVATION_RELU ? choose_apply<T, V, ZONAL__ACTIVATION_RELU>
     : spec->activation == ZONAL__ACTIVATION_GELU
         ? choose_apply<T, V, ZONAL__ACTIVATION_GELU>
         : choose_apply<T, V, ZONAL__ACTIVATION_NONE>)(spec->residual, kernels);
}

static void choose_kernels(const zonal__layer_spec *spec, int vector, norm_kernels *kernels) {
    if (spec->dtype == ZONAL_DTYPE_BF16)
        (vector > 1 ? choose_forward<__nv_bfloat16, ZONAL__NN_VECTOR>
                    : choose_forward<__nv_bfloat16, 1>)(spec, kernels);
    else
        (vector > 1 ? choose_forward<float, ZONAL__NN_VECTOR> : choose_forward<float, 1>)(spec,
                                                                                          kernels);
    zonal__norm_choose_back(spec, vector, kernels);
}

/* Loads the kernels, which a first launch would do too late for a graph's capture. */
static zonal_status load_kernels(const norm_kernels *kernels) {
    cudaFuncAttributes attributes;
    const norm_kernel all[] = {kernels->statistics, kernels->apply,      kernels->whole,
                               kernels->back_sums,  kernels->back_apply, kernels->back_apply_stored,
                               kernels->back_whole};
    for (norm_kernel kernel : all)
        ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, (const void *)kernel)));
    return ZONAL_OK;
}

/* Into blocks. */
static zonal_status cut(norm_layer *layer) {
    const zonal__layer_spec *spec = &layer->head.spec;
    zonal__columns *shape = &layer->shape;
    int processors, device, narrow = spec->dtype == ZONAL_DTYPE_BF16;
    int64_t rows = spec->n * spec->h * spec->w;
    ZONAL_TRY(ZONAL_CUDA(cudaGetDevice(&device)));
    ZONAL_TRY(
        ZONAL_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)));
    layer->whole = zonal__columns_make_whole(rows, spec->channels, narrow ? 2 : 4, shape);
    /* Sums: those that run at the same time, since each has to be added up in the end. */
    layer->sum_blocks =
        layer->whole ? 1
                     : zonal__columns_blocks(shape, ROWS_AT_ONCE, (narrow ? 2 : 1) * processors);
    layer->apply_blocks = zonal__columns_blocks(shape, ROWS_AT_ONCE, APPLY_BLOCKS * processors);
    return ZONAL_OK;
}

static zonal_status create(zonal__layer *opaque) {
    norm_layer *layer = (norm_layer *)opaque;
    void *memory;
    ZONAL_TRY(cut(layer));
    choose_kernels(&opaque->spec, layer->shape.vector, &layer->kernels);
    ZONAL_TRY(load_kernels(&layer->kernels));
    ZONAL_TRY(zonal__device_alloc((size_t)layer->shape.columns * sizeof *layer->tickets,
                                  "the tickets of a norm", &memory));
    layer->tickets = (unsigned *)memory;
    return zonal__device_synchronise(); /* they are zeroed; the stream of a run would not wait */
}

static void destroy(zonal__layer *opaque) {
    zonal__device_free(((norm_layer *)opaque)->tickets);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Two floats for each channel, in whole lines of 64 bytes. */
static size_t pairs_bytes(const norm_layer *layer) {
    return ((size_t)layer->shape.channels * 2 * sizeof(float) + 63) / 64 * 64;
}

static int saves_signs(const norm_layer *layer) {
    const zonal__layer_spec *spec = &layer->head.spec;
    return spec->activation == ZONAL__ACTIVATION_RELU && layer->shape.vector > 1;
}

static size_t saved_bytes(const zonal__layer *opaque) {
    const norm_layer *layer = (const norm_layer *)opaque;
    size_t elements = (size_t)layer->shape.rows * (size_t)layer->shape.channels;
    return pairs_bytes(layer) + (saves_signs(layer) ? elements / 8 : 0);
}

/* The means that one kernel leaves to the next, then the blocks' sums. */
static size_t scratch_bytes(const zonal__layer *opaque) {
    const norm_layer *layer = (const norm_layer *)opaque;
    const zonal__columns *shape = &layer->shape;
    size_t tile = (size_t)(shape->across * shape->vector);
    return pairs_bytes(layer) +
           (size_t)shape->columns * (size_t)layer->sum_blocks * 2 * tile * sizeof(double);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static norm_args make_args(const norm_layer *layer, const zonal__layer_arrays *arrays,
                           int training) {
    const zonal__layer_spec *spec = &layer->head.spec;
    norm_args args = {};
    int keeps = !spec->forward_only;
    args.shape = layer->shape;
    args.training = training;
    args.x = arrays->x;
    args.residual = arrays->residual;
    args.y = arrays->y;
    args.scale = arrays->scale;
    args.bias = arrays->bias;
    args.running_mean = arrays->running_mean;
    args.running_variance = arrays->running_variance;
    args.epsilon = spec->epsilon;
    args.momentum = spec->momentum;
    args.mean = (float *)(keeps ? arrays->saved : arrays->scratch);
    args.inverse = args.mean + layer->shape.channels;
    if (training && keeps && saves_signs(layer))
        args.positive = (uint8_t *)arrays->saved + pairs_bytes(layer);
    args.partial = (double *)((char *)arrays->scratch + pairs_bytes(layer));
    args.tickets = layer->tickets;
    return args;
}

static zonal_status launch(const norm_layer *layer, norm_kernel kernel, int blocks,
                           const norm_args &args) {
    return zonal__launch(layer->head.stream, dim3((unsigned)(blocks * layer->shape.columns)),
                         ZONAL__NN_THREADS, 0, 1, kernel, args);
}

static zonal_status forward(zonal__layer *opaque, const zonal__layer_arrays *arrays, int training) {
    const norm_layer *layer = (const norm_layer *)opaque;
    norm_args args = make_args(layer, arrays, training);
    if (training && layer->whole) return launch(layer, layer->kernels.whole, 1, args);
    if (training) ZONAL_TRY(launch(layer, layer->kernels.statistics, layer->sum_blocks, args));
    return launch(layer, layer->kernels.apply, layer->apply_blocks, args);
}

static zonal_status backward(zonal__layer *opaque, const zonal__layer_arrays *arrays) {
    const norm_layer *layer = (const norm_layer *)opaque;
    norm_args args = make_args(layer, arrays, 1);
    args.dy = arrays->dy;
    args.dy_more = arrays->dy_more;
    args.dx = arrays->dx;
    args.dresidual = opaque->spec.residual ? arrays->dresidual : NULL;
    args.dscale = arrays->dscale;
    args.dbias = arrays->dbias;
    args.accumulate = arrays->accumulate;
    args.mean_g = (float *)arrays->scratch;
    args.slope = args.mean_g + layer->shape.channels;
    if (layer->whole) return launch(layer, layer->kernels.back_whole, 1, args);
    ZONAL_TRY(launch(layer, layer->kernels.back_sums, layer->sum_blocks, args));
    if (!args.dx) return ZONAL_OK;
    if (!args.dresidual) return launch(layer, layer->kernels.back_apply, layer->apply_blocks, args);
    args.dy = args.dresidual;
    args.dy_more = NULL;
    return launch(layer, layer->kernels.back_apply_stored, layer->apply_blocks, args);
}

const zonal__cuda_layer_kind zonal__cuda_norm = {sizeof(norm_layer), create,  destroy, saved_bytes,
                                                 scratch_bytes,      forward, backward};
