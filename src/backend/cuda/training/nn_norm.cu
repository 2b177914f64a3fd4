/*
 * Batch normalisation with what follows it, on CUDA: backend/training/nn.h, NORM. Memory sets the
 * pace. Forward takes two kernels: "statistics" reads x and makes the mean and 1/sqrt(variance +
 * epsilon) of each channel, "apply" reads x again and writes y. Where the array is not large,
 * "resident" does both in one launch. Backward is nn_norm_back.cu.
 *
 * Statistics are good to about 1e-6: every thread sums differences from the first value it meets,
 * so that a large mean costs nothing, and from there on all is double.
 *
 * Saved: mean and inverse of each channel, and for relu the sign of z, a bit for each element,
 * which is less to read than y and less to keep than what z is made of. (Where channels come one by
 * one, y is read.)
 */
#include "backend/cuda/training/nn_norm_ranks.cuh"
#include "backend/cuda/training/nn_norm_resident.cuh"

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
    int sum_blocks, apply_blocks; /* of a column */
    zonal__resident resident;     /* blocks 0: two kernels */
    unsigned *tickets;            /* device, [columns]; the resident ones' follow */
    norm_kernels kernels;
    norm_ranks ranks;
} norm_layer;

/* ---- kernels --------------------------------------------------------------------------------- */

/* From the sums of x - origin and its square. */
__device__ static channel_statistics statistics_of(const norm_args &args, double origin,
                                                   const double (&total)[2]) {
    double m = (double)args.shape.rows, mean = total[0] / m;
    channel_statistics own = {origin + mean, total[1] - mean * total[0], 0};
    if (own.squares < 0) own.squares = 0; /* a rounding; NaN stays */
    own.inverse = (float)(1 / sqrt(own.squares / m + (double)args.epsilon));
    return own;
}

/* They are kept, or left as sums for all ranks to add up. */
__device__ static void finish_statistics(const norm_args &args, int channel,
                                         const channel_statistics &own) {
    double sum = (double)args.shape.rows * own.mean;
    if (!args.joined) {
        norm_keep_statistics(args, channel, own);
        return;
    }
    args.joined[channel] = sum;
    args.joined[args.shape.channels + channel] = own.squares + sum * own.mean;
}

/* A thread's sums of x - shift and its square. */
template <int V> struct norm_moments {
    float shift[V], sum[V], squares[V];
    int count;
};

template <typename T, int V>
__device__ static inline void add_row(const nn_vector<T, V> &x, norm_moments<V> *moments) {
    float value[V];
    nn_widen(x, value);
    moments->count++;
#pragma unroll
    for (int k = 0; k < V; k++) {
        float difference = value[k] - moments->shift[k];
        moments->sum[k] += difference;
        moments->squares[k] += difference * difference;
    }
}

template <typename T, int V>
__device__ static inline void add_rows(const T *x, int64_t first, int64_t end, int64_t step,
                                       norm_moments<V> *moments) {
    for (int64_t i = first; i < end; i += ROWS_AT_ONCE * step) {
        nn_vector<T, V> read[ROWS_AT_ONCE];
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            if (i + u * step < end) read[u] = nn_read<T, V>(x + i + u * step);
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            if (i + u * step < end) add_row<T, V>(read[u], moments);
    }
}

/* The same about one origin for all threads, the first row, so that they can be added: sum number
 * 0 or 1. */
template <typename T, int V>
__device__ static inline void move_origin(const norm_moments<V> &moments, const T *origin,
                                          int which, double (&out)[V]) {
    float first[V] = {};
    if (moments.count > 0) nn_widen(nn_read<T, V>(origin), first);
#pragma unroll
    for (int k = 0; k < V; k++) {
        double sum = (double)moments.sum[k];
        double move = (double)moments.shift[k] - (double)first[k];
        out[k] = which == 0 ? sum + moments.count * move
                            : (double)moments.squares[k] + move * (2 * sum + moments.count * move);
    }
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

/* From row "last" back to "first": what was read last for the statistics is still in the cache. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void apply_rows(const norm_args &args, const norm_line<V> &line,
                                         int64_t last, int64_t first, int64_t step) {
    constexpr int AT_ONCE = RESIDUAL ? ROWS_AT_ONCE / 2 : ROWS_AT_ONCE;
    for (int64_t i = last; i >= first; i -= AT_ONCE * step) {
        nn_vector<T, V> x[AT_ONCE], residual[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (i - u * step >= first) {
                x[u] = nn_read<T, V>((const T *)args.x + i - u * step);
                if (RESIDUAL) residual[u] = nn_read<T, V>((const T *)args.residual + i - u * step);
            }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (i - u * step >= first)
                apply_row<T, V, A, RESIDUAL>(args, line, i - u * step, x[u], residual[u]);
    }
}

template <typename T, int V>
__global__ void __launch_bounds__(ZONAL__NN_THREADS,
                                  norm_blocks_together<T, ZONAL__ACTIVATION_NONE>())
    norm_statistics(const __grid_constant__ norm_args args) {
    __shared__ double part[V * ZONAL__NN_THREADS];
    const T *x = (const T *)args.x;
    zonal__column_place at = norm_place(args);
    norm_moments<V> moments = {};
    double own[V], total[2];
    int channel;
    if (at.first < at.end) nn_widen(nn_read<T, V>(x + at.first), moments.shift);
    add_rows<T, V>(x, at.first, at.end, at.step, &moments);
    for (int which = 0; which < 2; which++) {
        move_origin<T, V>(moments, x + at.channel, which, own);
        total[which] = norm_sum_block<V>(args, at, which, own, part);
    }
    if (norm_sum_column<V>(args, at, part, total, &channel))
        finish_statistics(args, channel,
                          statistics_of(args, (double)zonal__load(x + channel), total));
}

template <typename T, int V, zonal__activation A, bool RESIDUAL>
__global__ void __launch_bounds__(ZONAL__NN_THREADS, norm_blocks_together<T, A>())
    norm_apply(const __grid_constant__ norm_args args) {
    zonal__column_place at = norm_place(args);
    if (at.first >= at.end) return;
    apply_rows<T, V, A, RESIDUAL>(args, norm_line_of<V>(args, at.channel),
                                  zonal__column_last(&args.shape, &at), 0, at.step);
}

/* ---- all in one ------------------------------------------------------------------------------ */

/* Fills in the column's table, and keeps the statistics. */
template <typename T, int V>
__device__ static inline void find_statistics(const norm_args &args, const zonal__column_place &at,
                                              const norm_moments<V> &moments,
                                              resident_table *table) {
    __shared__ resident_sums sums;
    const T *x = (const T *)args.x;
    int thread = (int)threadIdx.x, channel = resident_channel(args, at);
    float scale = 0, bias = 0;
    double own[V], total[2], origin = 0;
    channel_statistics found = {};
    if (channel >= 0) { /* now, so as not to wait for them later */
        scale = args.scale[channel];
        bias = args.bias[channel];
        origin = (double)zonal__load(x + channel);
    }
    for (int which = 0; which < 2; which++) {
        move_origin<T, V>(moments, x + at.channel, which, own);
        resident_put(&sums, which, own);
    }
    resident_total(args, at, &sums, total);
    if (channel >= 0) {
        found = statistics_of(args, origin, total);
        table->mean[thread] = (float)found.mean;
        table->factor[thread] = scale * found.inverse;
        table->bias[thread] = bias;
    }
    __syncthreads();
    if (channel >= 0 && at.slot == 0) norm_keep_statistics(args, channel, found);
}

template <typename T, zonal__activation A, bool RESIDUAL>
__global__ void __launch_bounds__(ZONAL__RESIDENT_THREADS, RESIDENT_TOGETHER)
    norm_resident(const __grid_constant__ norm_args args) {
    constexpr int V = ZONAL__NN_VECTOR, BYTES = RESIDUAL ? 96 : 192;
    constexpr int HELD = resident_held<T, A, BYTES>;
    __shared__ resident_table table;
    zonal__column_place at = norm_place(args);
    resident_rows rows = resident_rows_of(args, at, HELD);
    nn_vector<T, V> x[HELD], residual[HELD];
    norm_moments<V> moments = {};
#pragma unroll
    for (int u = 0; u < HELD; u++)
        if (rows.kept + u * rows.step < rows.end) {
            x[u] = nn_read<T, V>((const T *)args.x + rows.kept + u * rows.step);
            if (RESIDUAL)
                residual[u] = nn_read<T, V>((const T *)args.residual + rows.kept + u * rows.step);
        }
    if (rows.kept < rows.end) nn_widen(x[0], moments.shift);
    add_rows<T, V>((const T *)args.x, rows.first, rows.kept, rows.step, &moments);
#pragma unroll
    for (int u = 0; u < HELD; u++)
        if (rows.kept + u * rows.step < rows.end) add_row<T, V>(x[u], &moments);
    find_statistics<T, V>(args, at, moments, &table);
    norm_line<V> line = resident_line(table);
#pragma unroll
    for (int u = 0; u < HELD; u++)
        if (rows.kept + u * rows.step < rows.end)
            apply_row<T, V, A, RESIDUAL>(args, line, rows.kept + u * rows.step, x[u], residual[u]);
    apply_rows<T, V, A, RESIDUAL>(args, line, rows.kept - rows.step, rows.first, rows.step);
}

/* ---- create ---------------------------------------------------------------------------------- */

template <typename T, int V, zonal__activation A>
static void choose_apply(int residual, norm_kernels *kernels) {
    kernels->apply = residual ? norm_apply<T, V, A, true> : norm_apply<T, V, A, false>;
    kernels->resident = residual ? norm_resident<T, A, true> : norm_resident<T, A, false>;
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

norm_kernel zonal__norm_statistics(zonal_dtype dtype, int vector) {
    if (dtype == ZONAL_DTYPE_BF16)
        return vector > 1 ? norm_statistics<__nv_bfloat16, ZONAL__NN_VECTOR>
                          : norm_statistics<__nv_bfloat16, 1>;
    return vector > 1 ? norm_statistics<float, ZONAL__NN_VECTOR> : norm_statistics<float, 1>;
}

/* Loads the kernels, which a first launch would do too late for a graph's capture. */
static zonal_status load_kernels(const norm_kernels *kernels) {
    cudaFuncAttributes attributes;
    const norm_kernel all[] = {kernels->statistics,   kernels->apply,
                               kernels->resident,     kernels->back_sums,
                               kernels->back_apply,   kernels->back_apply_stored,
                               kernels->back_resident};
    for (norm_kernel kernel : all)
        ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, (const void *)kernel)));
    return ZONAL_OK;
}

/* Blocks of the kernel that run at once on a multiprocessor. */
static zonal_status ask_room(norm_kernel kernel, int *blocks) {
    return ZONAL_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, (const void *)kernel,
                                                                    ZONAL__RESIDENT_THREADS, 0));
}

/* Into blocks. */
static zonal_status cut(norm_layer *layer) {
    const zonal__layer_spec *spec = &layer->head.spec;
    zonal__columns *shape = &layer->shape;
    int processors, device, there, back, narrow = spec->dtype == ZONAL_DTYPE_BF16;
    int64_t rows = spec->n * spec->h * spec->w;
    ZONAL_TRY(ZONAL_CUDA(cudaGetDevice(&device)));
    ZONAL_TRY(
        ZONAL_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)));
    /* Sums: those that run at the same time, since each has to be added up in the end. */
    layer->sum_blocks = zonal__columns_blocks(shape, ROWS_AT_ONCE, (narrow ? 2 : 1) * processors);
    layer->apply_blocks = zonal__columns_blocks(shape, ROWS_AT_ONCE, APPLY_BLOCKS * processors);
    ZONAL_TRY(ask_room(layer->kernels.resident, &there));
    ZONAL_TRY(ask_room(layer->kernels.back_resident, &back));
    zonal__resident_make(rows, spec->channels, narrow ? 2 : 4, processors,
                         (there < back ? there : back) * processors, &layer->resident);
    /* Between its sums and their use a synchronised norm must hear the other ranks. */
    if (spec->communicator) layer->resident.blocks = 0;
    return ZONAL_OK;
}

static zonal_status create(zonal__layer *opaque) {
    norm_layer *layer = (norm_layer *)opaque;
    const zonal__layer_spec *spec = &opaque->spec;
    void *memory;
    zonal__columns_make(spec->n * spec->h * spec->w, spec->channels, &layer->shape);
    choose_kernels(spec, layer->shape.vector, &layer->kernels);
    ZONAL_TRY(load_kernels(&layer->kernels));
    ZONAL_TRY(cut(layer));
    ZONAL_TRY(zonal__norm_ranks_make(spec, &layer->ranks));
    size_t tickets = (size_t)(layer->shape.columns + layer->resident.shape.columns);
    ZONAL_TRY(zonal__cuda_malloc(tickets * sizeof *layer->tickets, "the tickets of a batch norm",
                                 &memory));
    layer->tickets = (unsigned *)memory;
    return ZONAL_OK;
}

static void destroy(zonal__layer *opaque) {
    cudaFree(((norm_layer *)opaque)->tickets);
    zonal__norm_ranks_drop(&((norm_layer *)opaque)->ranks);
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

static size_t sums_bytes(const zonal__columns *shape, int blocks) {
    size_t tile = (size_t)(shape->across * shape->vector);
    return (size_t)shape->columns * (size_t)blocks * 2 * tile * sizeof(double);
}

/* The means that one kernel leaves to the next, then the blocks' sums. */
static size_t scratch_bytes(const zonal__layer *opaque) {
    const norm_layer *layer = (const norm_layer *)opaque;
    size_t two = sums_bytes(&layer->shape, layer->sum_blocks);
    size_t one = sums_bytes(&layer->resident.shape, layer->resident.blocks);
    return pairs_bytes(layer) + (two > one ? two : one);
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
    args.elements = (double)zonal__layer_norm_elements(spec);
    args.joined = layer->ranks.joined;
    return args;
}

static zonal_status launch(const norm_layer *layer, norm_kernel kernel, int blocks,
                           const norm_args &args) {
    return zonal__launch(layer->head.stream, dim3((unsigned)(blocks * layer->shape.columns)),
                         ZONAL__NN_THREADS, 0, 1, kernel, args);
}

/* All blocks at once, or the launch fails. */
static zonal_status launch_resident(const norm_layer *layer, norm_kernel kernel, norm_args args) {
    const zonal__resident *resident = &layer->resident;
    cudaLaunchAttribute together = {};
    cudaLaunchConfig_t config = {};
    args.shape = resident->shape;
    args.each = resident->each;
    args.tickets = layer->tickets + layer->shape.columns;
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    config.gridDim = dim3((unsigned)(resident->blocks * resident->shape.columns));
    config.blockDim = dim3(ZONAL__RESIDENT_THREADS);
    config.stream = layer->head.stream;
    config.attrs = &together;
    config.numAttrs = 1;
    return ZONAL_CUDA(cudaLaunchKernelEx(&config, kernel, args));
}

static zonal_status forward(zonal__layer *opaque, const zonal__layer_arrays *arrays, int training) {
    const norm_layer *layer = (const norm_layer *)opaque;
    norm_args args = make_args(layer, arrays, training);
    if (training && layer->resident.blocks)
        return launch_resident(layer, layer->kernels.resident, args);
    if (training) {
        ZONAL_TRY(launch(layer, layer->kernels.statistics, layer->sum_blocks, args));
        ZONAL_TRY(zonal__norm_join_statistics(&layer->ranks, args, opaque->stream));
    }
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
    if (layer->resident.blocks) return launch_resident(layer, layer->kernels.back_resident, args);
    ZONAL_TRY(launch(layer, layer->kernels.back_sums, layer->sum_blocks, args));
    ZONAL_TRY(zonal__norm_join_sums(&layer->ranks, args, opaque->stream));
    if (!args.dx) return ZONAL_OK;
    if (!args.dresidual) return launch(layer, layer->kernels.back_apply, layer->apply_blocks, args);
    args.dy = args.dresidual;
    args.dy_more = NULL;
    return launch(layer, layer->kernels.back_apply_stored, layer->apply_blocks, args);
}

const zonal__cuda_layer_kind zonal__cuda_norm = {sizeof(norm_layer), create,  destroy, saved_bytes,
                                                 scratch_bytes,      forward, backward};
