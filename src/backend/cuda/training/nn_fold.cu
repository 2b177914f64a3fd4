/*
 * A 1 x 1 convolution and the batch norm behind it as one layer on Hopper: backend/training/nn.h,
 * PRODUCT_NORM. The convolution's output z, wider than its input a, is never stored: all that a
 * norm needs of it follows from matrices no larger than the weights. With W the weights, mu and K
 * mean and covariance of a over the m pixels, f = scale inverse:
 *
 *     mean = W mu,  variance = diag(W K W^T)
 *     y = activation(f (W a) + bias - f mean + residual)
 *
 *     g = activation'(y) (dy + dy_more),  P = sum of g a^T: the weights' gradient, were g dz
 *     dbias = sum of g,  dscale = inverse (diag(P W^T) - mean dbias)
 *     dz = f (g - dbias/m - slope (z - mean)),  slope = dscale inverse/m, so that
 *     dW = f (P - dbias mu^T - slope m W K)
 *     da = (f W)^T g - S a - W^T (f (dbias/m - slope mean)),  S = W^T diag(f slope) W
 *
 * Forward reads a twice, and makes y in one product; backward makes g, where the residual wants it,
 * and reads it twice. z itself would cost eight passes over an array as large as y.
 *
 * Saved: mean and inverse, mu, W K and, for relu, the signs of z.
 */
#include "backend/cuda/training/nn_fold.cuh"
#include "backend/cuda/training/nn_norm.cuh"
#include "backend/cuda/training/nn_plan.cuh"

extern "C" {
#include "backend/device.h"
}

enum {
    TILE = 64,        /* of small products: a block's rows and columns */
    DEPTH = 16,       /* of a step */
    PARTS = 4,        /* that S is summed in */
    ROWS_AT_ONCE = 4, /* of a thread, so that many loads are under way */
    CHANNEL_THREADS = 128
};

typedef struct fold_layer {
    zonal__layer head;
    zonal__columns shape; /* of y */
    int sum_blocks;
    unsigned *tickets;
    zonal__plan *filter; /* P */
} fold_layer;

/* What the small kernels work on. */
typedef struct fold_numbers {
    norm_args norm;              /* of y's channels */
    int channels, out_channels;  /* of a and of y */
    const __nv_bfloat16 *weight; /* [out][channels] */
    const float *mu;             /* [channels] */
    float *covariance;           /* [channels][channels] */
    float *projected;            /* [out][channels]: W K */
    float2 *line;                /* [out]; backward [channels] */
    double *sum_g;               /* [out] */
    const float *product;        /* [out][channels]: P */
    float2 *correction;          /* [out]: f slope, f (dbias/m - slope mean) */
    float *parts;                /* [PARTS][channels][channels]: of S */
    __nv_bfloat16 *data_weight;  /* [channels][out + channels]: f W transposed, -S */
    float *dweight;
} fold_numbers;

/* ---- small products -------------------------------------------------------------------------- */

/* W K */
struct fold_project {
    static __device__ inline float left(const fold_numbers &n, int row, int k) {
        return zonal__load(n.weight + (int64_t)row * n.channels + k);
    }
    static __device__ inline float right(const fold_numbers &n, int k, int column) {
        return n.covariance[(int64_t)k * n.channels + column];
    }
};

/* S = W^T diag(f slope) W */
struct fold_correct {
    static __device__ inline float left(const fold_numbers &n, int row, int k) {
        return zonal__load(n.weight + (int64_t)k * n.channels + row) * n.correction[k].x;
    }
    static __device__ inline float right(const fold_numbers &n, int k, int column) {
        return zonal__load(n.weight + (int64_t)k * n.channels + column);
    }
};

/* out[part][rows][columns], the sum over the part's share of "depth"; all are multiples of TILE. */
template <typename F>
__global__ void __launch_bounds__(256)
    fold_small(const __grid_constant__ fold_numbers n, int depth, float *out) {
    __shared__ float left[DEPTH][TILE + 4], right[DEPTH][TILE + 4];
    int row = (int)blockIdx.y * TILE, column = (int)blockIdx.x * TILE;
    int down = (int)threadIdx.x / 16 * 4, across = (int)threadIdx.x % 16 * 4;
    int share = depth / (int)gridDim.z, first = (int)blockIdx.z * share;
    float sum[4][4] = {};
    for (int k = first; k < first + share; k += DEPTH) {
        __syncthreads();
        for (int i = (int)threadIdx.x; i < DEPTH * TILE; i += 256) {
            left[i / TILE][i % TILE] = F::left(n, row + i % TILE, k + i / TILE);
            right[i / TILE][i % TILE] = F::right(n, k + i / TILE, column + i % TILE);
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            float4 a = *(const float4 *)&left[j][down], b = *(const float4 *)&right[j][across];
            const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int r = 0; r < 16; r++)
                sum[r / 4][r % 4] = fmaf(as[r / 4], bs[r % 4], sum[r / 4][r % 4]);
        }
    }
    int64_t rows = (int64_t)gridDim.y * TILE, columns = (int64_t)gridDim.x * TILE;
    out += (int64_t)blockIdx.z * rows * columns + (row + down) * columns + column + across;
#pragma unroll
    for (int r = 0; r < 4; r++)
        *(float4 *)(out + r * columns) = make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}

/* ---- one warp for each channel of y ---------------------------------------------------------- */

__device__ static inline int channel_of_warp() {
    return (int)(blockIdx.x * (CHANNEL_THREADS / 32) + threadIdx.x / 32);
}

__global__ static void __launch_bounds__(CHANNEL_THREADS)
    fold_statistics(const __grid_constant__ fold_numbers n) {
    int channel = channel_of_warp();
    if (channel >= n.out_channels) return;
    double mean = 0, variance = 0;
    for (int c = (int)threadIdx.x % 32; c < n.channels; c += 32) {
        int64_t i = (int64_t)channel * n.channels + c;
        double w = (double)zonal__load(n.weight + i);
        mean += w * (double)n.mu[c];
        variance += w * (double)n.projected[i];
    }
    mean = zonal__warp_sum(mean);
    variance = zonal__warp_sum(variance);
    if (threadIdx.x % 32) return;
    if (variance < 0) variance = 0; /* a rounding; NaN stays */
    channel_statistics own = {mean, variance * n.norm.elements,
                              (float)(1 / sqrt(variance + (double)n.norm.epsilon))};
    norm_keep_statistics(n.norm, channel, own);
    float factor = n.norm.scale[channel] * own.inverse;
    n.line[channel] =
        make_float2(factor, (float)((double)n.norm.bias[channel] - mean * (double)factor));
}

/* Inference. */
__global__ static void __launch_bounds__(CHANNEL_THREADS)
    fold_running(const __grid_constant__ fold_numbers n) {
    int channel = (int)(blockIdx.x * CHANNEL_THREADS + threadIdx.x);
    if (channel >= n.out_channels) return;
    norm_line<1> line = norm_line_of<1>(n.norm, channel);
    n.line[channel] = make_float2(line.factor[0], line.bias[0] - line.mean[0] * line.factor[0]);
}

/* dscale, dbias and the gradient of the channel's weights; f W for the product that makes da. */
__global__ static void __launch_bounds__(CHANNEL_THREADS)
    fold_totals(const __grid_constant__ fold_numbers n) {
    int channel = channel_of_warp(), lane = (int)threadIdx.x % 32;
    if (channel >= n.out_channels) return;
    const norm_args &norm = n.norm;
    int64_t row = (int64_t)channel * n.channels;
    double m = norm.elements, inverse = (double)norm.inverse[channel], dbias = n.sum_g[channel];
    double factor = (double)norm.scale[channel] * inverse, dscale = 0;
    for (int c = lane; c < n.channels; c += 32)
        dscale += (double)zonal__load(n.weight + row + c) *
                  ((double)n.product[row + c] - dbias * (double)n.mu[c]);
    dscale = zonal__warp_sum(dscale) * inverse;
    double slope = dscale * inverse / m;
    for (int c = lane; c < n.channels; c += 32) {
        double w = (double)zonal__load(n.weight + row + c);
        float dw = (float)(factor * ((double)n.product[row + c] - dbias * (double)n.mu[c] -
                                     slope * m * (double)n.projected[row + c]));
        n.dweight[row + c] = norm.accumulate ? n.dweight[row + c] + dw : dw;
        zonal__store(n.data_weight + (int64_t)c * (n.out_channels + n.channels) + channel,
                     (float)(factor * w));
    }
    if (lane) return;
    norm.dbias[channel] = (float)(dbias + (norm.accumulate ? (double)norm.dbias[channel] : 0));
    norm.dscale[channel] = (float)(dscale + (norm.accumulate ? (double)norm.dscale[channel] : 0));
    n.correction[channel] =
        make_float2((float)(factor * slope),
                    (float)(factor * (dbias / m - slope * (double)norm.mean[channel])));
}

/* One block for each channel c of a: -S's row, and the constant of da. */
__global__ static void __launch_bounds__(CHANNEL_THREADS)
    fold_data(const __grid_constant__ fold_numbers n) {
    __shared__ double part[CHANNEL_THREADS / 32];
    int channel = (int)blockIdx.x;
    int64_t all = (int64_t)n.channels * n.channels, depth = n.out_channels + n.channels;
    double constant = 0;
    for (int c = (int)threadIdx.x; c < n.channels; c += CHANNEL_THREADS) {
        float sum = 0;
        for (int p = 0; p < PARTS; p++) sum += n.parts[p * all + (int64_t)channel * n.channels + c];
        zonal__store(n.data_weight + channel * depth + n.out_channels + c, -sum);
    }
    for (int k = (int)threadIdx.x; k < n.out_channels; k += CHANNEL_THREADS)
        constant += (double)n.correction[k].y *
                    (double)zonal__load(n.weight + (int64_t)k * n.channels + channel);
    constant = zonal__warp_sum(constant);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = constant;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < CHANNEL_THREADS / 32; w++) constant += part[w];
    n.line[channel] = make_float2(1, (float)-constant);
}

/* ---- g and its sums -------------------------------------------------------------------------- */

/* A thread's channels of one row. */
typedef struct gradient_row {
    nn_vector<__nv_bfloat16, 8> dy, more;
    unsigned positive;
} gradient_row;

template <bool RELU>
__device__ static inline gradient_row read_gradient(const norm_args &args, int64_t i,
                                                    const uint8_t *positive) {
    gradient_row row;
    row.dy = nn_read<__nv_bfloat16, 8>((const __nv_bfloat16 *)args.dy + i);
    row.more.raw = make_uint4(0, 0, 0, 0);
    row.positive = 0;
    if (!RELU) return row;
    row.positive = *positive;
    if (args.dy_more) row.more = nn_read<__nv_bfloat16, 8>((const __nv_bfloat16 *)args.dy_more + i);
    return row;
}

/* RELU: g goes to dresidual; else it is dy as it is. */
template <bool RELU>
__device__ static inline void add_gradient(const norm_args &args, int64_t i,
                                           const gradient_row &row, float (&sum)[8]) {
    float g[8], more[8];
    nn_widen(row.dy, g);
    nn_widen(row.more, more);
#pragma unroll
    for (int k = 0; k < 8 && RELU; k++)
        g[k] = __bfloat162float(__float2bfloat16_rn(g[k] + more[k])) *
               (float)(row.positive >> k & 1); /* a NaN is passed on */
    if (RELU) nn_write((__nv_bfloat16 *)args.dresidual + i, g);
#pragma unroll
    for (int k = 0; k < 8; k++) sum[k] += g[k];
}

template <bool RELU>
__global__ void __launch_bounds__(ZONAL__NN_THREADS, 2)
    fold_gradient(const __grid_constant__ norm_args args) {
    __shared__ double part[8 * ZONAL__NN_THREADS];
    zonal__column_place at = norm_place(args);
    float sum[8] = {};
    double own[8], none[8] = {}, total[2];
    int channel;
    /* The signs of the thread's eight channels: 8 bytes from row to row. */
    const uint8_t *positive =
        args.positive + at.channel / 64 * args.shape.rows * 8 + at.channel % 64 / 8;
    int64_t row = (at.first - at.channel) / args.shape.channels;
    int64_t step = at.step / args.shape.channels;
    for (int64_t i = at.first; i < at.end;
         i += ROWS_AT_ONCE * at.step, row += ROWS_AT_ONCE * step) {
        gradient_row read[ROWS_AT_ONCE];
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            if (i + u * at.step < at.end)
                read[u] =
                    read_gradient<RELU>(args, i + u * at.step, positive + (row + u * step) * 8);
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            if (i + u * at.step < at.end) add_gradient<RELU>(args, i + u * at.step, read[u], sum);
    }
#pragma unroll
    for (int k = 0; k < 8; k++) own[k] = (double)sum[k];
    total[0] = norm_sum_block<8>(args, at, 0, own, part);
    total[1] = norm_sum_block<8>(args, at, 1, none, part);
    if (norm_sum_column<8>(args, at, part, total, &channel)) args.joined[channel] = total[0];
}

/* ---- create ---------------------------------------------------------------------------------- */

static int64_t rows_of(const zonal__layer_spec *spec) {
    return spec->n * spec->h * spec->w;
}

/* Loads the kernels, which a first launch would do too late for a graph's capture. */
static zonal_status load_kernels(void) {
    const void *const all[] = {(const void *)fold_small<fold_project>,
                               (const void *)fold_small<fold_correct>,
                               (const void *)fold_statistics,
                               (const void *)fold_running,
                               (const void *)fold_totals,
                               (const void *)fold_data,
                               (const void *)fold_gradient<true>,
                               (const void *)fold_gradient<false>};
    cudaFuncAttributes attributes;
    for (const void *kernel : all)
        ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, kernel)));
    ZONAL_TRY(zonal__fold_product_load());
    return zonal__fold_moments_load();
}

static zonal_status create_backward(fold_layer *layer) {
    const zonal__layer_spec *spec = &layer->head.spec;
    zonal__plan_shape filter = {
        ZONAL__FILTER, spec->dtype, ZONAL_DTYPE_FP32,   spec->n, spec->h, spec->w, spec->channels,
        spec->h,       spec->w,     spec->out_channels, 1,       1,       0};
    int device, processors;
    void *memory;
    ZONAL_TRY(ZONAL_CUDA(cudaGetDevice(&device)));
    ZONAL_TRY(
        ZONAL_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)));
    layer->sum_blocks = zonal__columns_blocks(&layer->shape, ROWS_AT_ONCE, 2 * processors);
    ZONAL_TRY(zonal__cuda_malloc((size_t)layer->shape.columns * sizeof *layer->tickets,
                                 "the tickets of a batch norm", &memory));
    layer->tickets = (unsigned *)memory;
    return zonal__plan_create(&filter, &layer->filter);
}

static zonal_status create(zonal__layer *opaque) {
    fold_layer *layer = (fold_layer *)opaque;
    if (!zonal__cuda_folds(&opaque->spec))
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "this GPU has no product with a batch norm for %d to %d channels; use a "
                          "convolution and a batch norm one after the other",
                          opaque->spec.channels, opaque->spec.out_channels);
    zonal__columns_make(rows_of(&opaque->spec), opaque->spec.out_channels, &layer->shape);
    ZONAL_TRY(load_kernels());
    return opaque->spec.forward_only ? ZONAL_OK : create_backward(layer);
}

static void destroy(zonal__layer *opaque) {
    cudaFree(((fold_layer *)opaque)->tickets);
    zonal__plan_destroy(((fold_layer *)opaque)->filter);
}

int zonal__cuda_folds(const zonal__layer_spec *spec) {
    int residual_or_none = spec->residual ? spec->activation == ZONAL__ACTIVATION_RELU
                                          : spec->activation == ZONAL__ACTIVATION_NONE;
    if (spec->dtype != ZONAL_DTYPE_BF16 || spec->kernel != 1 || spec->stride != 1 ||
        !zonal__cuda_is_hopper())
        return 0;
    if (spec->kind == ZONAL__LAYER_CONVOLUTION)
        return !spec->forward_only && spec->channels % 128 == 0 && spec->out_channels % 64 == 0;
    return residual_or_none && !spec->communicator &&
           (spec->channels == 64 || spec->channels % 128 == 0) && spec->out_channels % 128 == 0 &&
           spec->out_channels >= 2 * spec->channels &&
           rows_of(spec) < INT32_MAX / spec->out_channels * (int64_t)64;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Pieces of 256 bytes each, one after the other. */
typedef struct fold_memory {
    char *next;
} fold_memory;

static char *take(fold_memory *memory, size_t bytes) {
    char *piece = memory->next;
    memory->next += zonal__plan_round_up(bytes);
    return piece;
}

static size_t small_bytes(const fold_layer *layer) {
    return (size_t)layer->head.spec.channels * (size_t)layer->head.spec.out_channels *
           sizeof(float);
}

/* NULL memory: only counts. */
static char *lay_saved(const fold_layer *layer, char *memory, fold_numbers *n) {
    const zonal__layer_spec *spec = &layer->head.spec;
    fold_memory m = {memory};
    n->sum_g = (double *)take(&m, (size_t)spec->out_channels * sizeof(double));
    n->norm.mean = (float *)take(&m, (size_t)spec->out_channels * sizeof(float));
    n->norm.inverse = (float *)take(&m, (size_t)spec->out_channels * sizeof(float));
    n->mu = (float *)take(&m, (size_t)spec->channels * sizeof(float));
    n->projected = (float *)take(&m, small_bytes(layer));
    n->norm.positive = (uint8_t *)take(&m, (size_t)rows_of(spec) * (size_t)spec->out_channels / 8);
    return m.next;
}

typedef struct fold_scratch {
    void *moments, *filter;
    float *product;
} fold_scratch;

static char *lay_forward(const fold_layer *layer, char *memory, fold_numbers *n, fold_scratch *s) {
    const zonal__layer_spec *spec = &layer->head.spec;
    size_t channels = (size_t)spec->channels;
    fold_memory m = {memory};
    n->line = (float2 *)take(&m, (size_t)spec->out_channels * sizeof(float2));
    n->covariance = (float *)take(&m, channels * channels * sizeof(float));
    s->moments = take(&m, zonal__fold_moments_workspace(spec->channels));
    return m.next;
}

static char *lay_backward(const fold_layer *layer, char *memory, fold_numbers *n, fold_scratch *s) {
    const zonal__layer_spec *spec = &layer->head.spec;
    size_t channels = (size_t)spec->channels, out = (size_t)spec->out_channels;
    size_t tile = (size_t)(layer->shape.across * layer->shape.vector);
    fold_memory m = {memory};
    s->product = (float *)take(&m, small_bytes(layer));
    n->correction = (float2 *)take(&m, out * sizeof(float2));
    n->line = (float2 *)take(&m, channels * sizeof(float2));
    n->parts = (float *)take(&m, PARTS * channels * channels * sizeof(float));
    n->data_weight = (__nv_bfloat16 *)take(&m, channels * (out + channels) * 2);
    n->norm.partial = (double *)take(&m, (size_t)layer->shape.columns * (size_t)layer->sum_blocks *
                                             2 * tile * sizeof(double));
    s->filter = take(&m, layer->filter ? zonal__plan_workspace(layer->filter) : 0);
    return m.next;
}

static size_t saved_bytes(const zonal__layer *opaque) {
    fold_numbers n;
    return (size_t)lay_saved((const fold_layer *)opaque, NULL, &n) + ZONAL__PLAN_ALIGNMENT;
}

static size_t scratch_bytes(const zonal__layer *opaque) {
    fold_numbers n;
    fold_scratch s;
    size_t there = (size_t)lay_forward((const fold_layer *)opaque, NULL, &n, &s);
    size_t back = (size_t)lay_backward((const fold_layer *)opaque, NULL, &n, &s);
    return (there > back ? there : back) + ZONAL__PLAN_ALIGNMENT;
}

static char *aligned(void *memory) {
    return (char *)zonal__plan_round_up((size_t)memory);
}

zonal__layer_mask zonal__cuda_fold_mask(const zonal__layer *opaque, void *saved) {
    fold_numbers n;
    lay_saved((const fold_layer *)opaque, aligned(saved), &n);
    return {n.norm.positive, n.sum_g};
}

/* ---- runs ------------------------------------------------------------------------------------ */

static fold_numbers make_numbers(const fold_layer *layer, const zonal__layer_arrays *arrays,
                                 int training) {
    const zonal__layer_spec *spec = &layer->head.spec;
    fold_numbers n = {};
    if (!spec->forward_only) lay_saved(layer, aligned(arrays->saved), &n);
    n.channels = spec->channels;
    n.out_channels = spec->out_channels;
    n.weight = (const __nv_bfloat16 *)arrays->weight;
    n.norm.shape = layer->shape;
    n.norm.training = training;
    n.norm.scale = arrays->scale;
    n.norm.bias = arrays->bias;
    n.norm.running_mean = arrays->running_mean;
    n.norm.running_variance = arrays->running_variance;
    n.norm.epsilon = spec->epsilon;
    n.norm.momentum = spec->momentum;
    n.norm.elements = (double)rows_of(spec);
    n.norm.tickets = layer->tickets;
    return n;
}

static unsigned warps_for(int channels) {
    return (unsigned)zonal__nn_ceil(channels, CHANNEL_THREADS / 32);
}

static zonal_status find_statistics(const fold_layer *layer, const zonal__layer_arrays *arrays,
                                    const fold_numbers &n, const fold_scratch &s) {
    cudaStream_t stream = layer->head.stream;
    zonal__fold_moments moments = {
        rows_of(&layer->head.spec), n.channels, arrays->x, (float *)n.mu, n.covariance, s.moments};
    ZONAL_TRY(zonal__fold_moments_run(&moments, stream));
    dim3 grid((unsigned)(n.channels / TILE), (unsigned)(n.out_channels / TILE));
    fold_small<fold_project><<<grid, 256, 0, stream>>>(n, n.channels, n.projected);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    fold_statistics<<<warps_for(n.out_channels), CHANNEL_THREADS, 0, stream>>>(n);
    return ZONAL_CUDA_LAUNCHED();
}

static zonal_status forward(zonal__layer *opaque, const zonal__layer_arrays *arrays, int training) {
    const fold_layer *layer = (const fold_layer *)opaque;
    fold_numbers n = make_numbers(layer, arrays, training);
    fold_scratch s = {};
    lay_forward(layer, aligned(arrays->scratch), &n, &s);
    if (training) {
        ZONAL_TRY(find_statistics(layer, arrays, n, s));
    } else {
        fold_running<<<(unsigned)zonal__nn_ceil(n.out_channels, CHANNEL_THREADS), CHANNEL_THREADS,
                       0, opaque->stream>>>(n);
        ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    }
    zonal__fold_product product = {rows_of(&opaque->spec),
                                   n.out_channels,
                                   {arrays->x, NULL},
                                   {n.channels, 0},
                                   arrays->weight,
                                   n.line,
                                   opaque->spec.residual ? arrays->residual : NULL,
                                   training ? n.norm.positive : NULL,
                                   arrays->y,
                                   NULL,
                                   NULL};
    return zonal__fold_product_run(&product, opaque->stream);
}

/* g, wherever it is, and its sums, unless a masked convolution has made them. */
static zonal_status find_gradient(const fold_layer *layer, const zonal__layer_arrays *arrays,
                                  fold_numbers *n, const void **g) {
    int relu = layer->head.spec.residual;
    if (relu ? !arrays->dresidual : arrays->dy_more != NULL)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a product with a batch norm makes the gradient of its residual in any "
                          "case, and takes two gradients only with a residual");
    n->norm.dy = arrays->dy;
    n->norm.dy_more = arrays->dy_more;
    n->norm.dresidual = arrays->dresidual;
    n->norm.joined = n->sum_g;
    *g = relu ? arrays->dresidual : arrays->dy;
    if (!arrays->dy) return ZONAL_OK;
    return zonal__launch(
        layer->head.stream, dim3((unsigned)(layer->sum_blocks * layer->shape.columns)),
        ZONAL__NN_THREADS, 0, 1, relu ? fold_gradient<true> : fold_gradient<false>, n->norm);
}

static zonal_status find_dx(const fold_layer *layer, const zonal__layer_arrays *arrays,
                            const fold_numbers &n, const void *g) {
    cudaStream_t stream = layer->head.stream;
    unsigned tiles = (unsigned)(n.channels / TILE);
    fold_small<fold_correct>
        <<<dim3(tiles, tiles, PARTS), 256, 0, stream>>>(n, n.out_channels, n.parts);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    fold_data<<<(unsigned)n.channels, CHANNEL_THREADS, 0, stream>>>(n);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    zonal__fold_product product = {rows_of(&layer->head.spec),
                                   n.channels,
                                   {g, arrays->x},
                                   {n.out_channels, n.channels},
                                   n.data_weight,
                                   n.line,
                                   NULL,
                                   NULL,
                                   arrays->dx,
                                   NULL,
                                   NULL};
    return zonal__fold_product_run(&product, stream);
}

static zonal_status backward(zonal__layer *opaque, const zonal__layer_arrays *arrays) {
    const fold_layer *layer = (const fold_layer *)opaque;
    fold_numbers n = make_numbers(layer, arrays, 1);
    fold_scratch s = {};
    const void *g = NULL;
    lay_backward(layer, aligned(arrays->scratch), &n, &s);
    n.norm.accumulate = arrays->accumulate;
    n.norm.dscale = arrays->dscale;
    n.norm.dbias = arrays->dbias;
    n.dweight = arrays->dweight;
    n.product = s.product;
    ZONAL_TRY(find_gradient(layer, arrays, &n, &g));
    zonal__plan_arrays filter = {arrays->x, s.product, g, s.filter, 0};
    ZONAL_TRY(zonal__plan_run(layer->filter, opaque->stream, &filter));
    fold_totals<<<warps_for(n.out_channels), CHANNEL_THREADS, 0, opaque->stream>>>(n);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    return arrays->dx ? find_dx(layer, arrays, n, g) : ZONAL_OK;
}

const zonal__cuda_layer_kind zonal__cuda_product_norm = {
    sizeof(fold_layer), create, destroy, saved_bytes, scratch_bytes, forward, backward};
