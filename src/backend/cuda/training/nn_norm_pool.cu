/*
 * A batch norm and a max pool as one layer on CUDA: backend/training/nn.h, NORM_POOL, for windows
 * of 3 x 3 that lie 2 apart with a padding of 1. Memory sets the pace, and the array between the
 * two, four times y, is never written.
 *
 * Forward takes two kernels: the norm's "statistics", and one that reads x, normalises it and takes
 * the largest of each window. A thread walks down a column of windows, so that the row which two of
 * them share is read once.
 *
 * Backward takes two as well. The gradient g that reaches the norm is 0 but at winners, so its
 * sums, of g and g (x - mean), run over y's elements, a quarter of x's; for them forward saves x of
 * every winner. Then each pixel of x takes the gradients of the windows that it has won.
 *
 * Saved: mean and inverse of each channel; for each element of y the number of its winner, a byte,
 * or DEAD where relu is flat; and x of the winner, in dtype.
 */
#include "backend/cuda/training/nn_norm_ranks.cuh"

extern "C" {
#include "backend/device.h"
}

enum {
    KERNEL = 3,
    STRIDE = 2,
    PAD = 1,
    DEAD = 255,        /* the number of a winner that gets no gradient */
    STRIP = 8,         /* windows that a thread walks down: one row in 17 is read twice */
    SUM_ROWS = 2,      /* of a thread at a time, so that many loads are under way */
    STATISTIC_ROWS = 4 /* the same of the norm's kernel, where the rows are x's */
};

typedef struct norm_pool_args {
    norm_args norm; /* x, dx and the statistics are the norm's; y and its gradients are pooled. The
                       shape is x's on the way forward, y's on the way back */
    zonal__pool_shape shape;
    int64_t n;
    int h, w, out_h, out_w;
    uint8_t *winner; /* [n][out_h][out_w][channels]; NULL: not wanted */
    void *winner_x;  /* dtype, the same shape */
} norm_pool_args;

typedef void (*norm_pool_kernel)(const norm_pool_args);

/* Where pixel (i, j) of image n begins, in an array of h x w pixels. */
__device__ static inline int64_t pixel_at(int64_t n, int i, int j, int h, int w, int channels) {
    return ((n * h + i) * w + j) * (int64_t)channels;
}

/* The numbers of V winners as they lie in memory. */
template <int V> struct numbers;
template <> struct numbers<1> { uint8_t raw; };
template <> struct numbers<8> { uint2 raw; };

__device__ static inline int number_at(const numbers<1> &own, int) {
    return own.raw;
}
__device__ static inline int number_at(const numbers<8> &own, int k) {
    return (k < 4 ? own.raw.x : own.raw.y) >> 8 * (k % 4) & 255;
}

__device__ static inline void write_numbers(uint8_t *to, const unsigned (&number)[1]) {
    *to = (uint8_t)number[0];
}
__device__ static inline void write_numbers(uint8_t *to, const unsigned (&number)[8]) {
    uint2 raw = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        raw.x |= number[k] << 8 * k;
        raw.y |= number[k + 4] << 8 * k;
    }
    *(uint2 *)to = raw;
}

/* Calls visit(image, first row, row after the last, column, channel) for the block's strips of
 * windows. From the last image to the first: what the kernel before read last is still in the
 * cache. */
template <int V, typename Visit>
__device__ static inline void visit_strips(const norm_pool_args &args, Visit visit) {
    const zonal__pool_shape &shape = args.shape;
    int strips = (args.out_h + STRIP - 1) / STRIP;
    for (int64_t row = args.n * strips - 1 - blockIdx.x; row >= 0; row -= gridDim.x) {
        int64_t n = row / strips;
        int first = (int)(row - n * strips) * STRIP;
        int end = first + STRIP < args.out_h ? first + STRIP : args.out_h;
        for (int j = (int)threadIdx.x / shape.across; j < args.out_w; j += shape.down)
            for (int g = (int)threadIdx.x % shape.across; g < shape.groups; g += shape.across)
                visit(n, first, end, j, g * V);
    }
}

/* ---- the largest of a window ----------------------------------------------------------------- */

/*
 * Elements travel in words of 32 bits: two neighbours where they are bf16 and come by 8, else one,
 * as a float. A word of values is rounded to dtype, since that decides ties.
 *
 * In training no window has a NaN beside a number: one NaN or infinity in a channel makes its mean
 * or variance NaN, and with it all its values. So a NaN needs to win the value alone, which is all
 * that inference wants.
 */
template <typename T, int V> struct words {
    static constexpr int COUNT = V;
    static constexpr unsigned ONE = 1; /* in each element */
    __device__ static void read(const T *from, unsigned (&word)[COUNT]) {
        float value[V];
        nn_widen(nn_read<T, V>(from), value);
#pragma unroll
        for (int k = 0; k < V; k++) word[k] = __float_as_uint(value[k]);
    }
    __device__ static void write(T *to, const unsigned (&word)[COUNT]) {
        float value[V];
#pragma unroll
        for (int k = 0; k < V; k++) value[k] = __uint_as_float(word[k]);
        nn_write(to, value);
    }
    __device__ static unsigned lowest() {
        return __float_as_uint(-INFINITY);
    }
    __device__ static void widen(unsigned word, float *out) {
        *out = __uint_as_float(word);
    }
    __device__ static unsigned round(const float *value) {
        T rounded;
        zonal__store(&rounded, *value);
        return __float_as_uint(zonal__load(&rounded));
    }
    /* All bits of an element where a > b, or a <= b. */
    __device__ static unsigned greater(unsigned a, unsigned b) {
        return __uint_as_float(a) > __uint_as_float(b) ? ~0u : 0u;
    }
    __device__ static unsigned at_most(unsigned a, unsigned b) {
        return __uint_as_float(a) <= __uint_as_float(b) ? ~0u : 0u;
    }
    /* NaN is the largest. */
    __device__ static unsigned larger(unsigned a, unsigned b) {
        float x = __uint_as_float(a), y = __uint_as_float(b);
        return x > y || x != x ? a : b;
    }
};

template <> struct words<__nv_bfloat16, 8> {
    static constexpr int COUNT = 4;
    static constexpr unsigned ONE = 0x00010001;
    __device__ static void read(const __nv_bfloat16 *from, unsigned (&word)[COUNT]) {
        uint4 raw = nn_read<__nv_bfloat16, 8>(from).raw;
        word[0] = raw.x, word[1] = raw.y, word[2] = raw.z, word[3] = raw.w;
    }
    __device__ static void write(__nv_bfloat16 *to, const unsigned (&word)[COUNT]) {
        *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
    }
    __device__ static unsigned lowest() {
        return 0xff80ff80u;
    }
    __device__ static void widen(unsigned word, float *out) {
        nn_widen_pair(word, out);
    }
    __device__ static unsigned round(const float *value) {
        return nn_round_pair(value[0], value[1]);
    }
    __device__ static __nv_bfloat162 pair(unsigned word) {
        return *(const __nv_bfloat162 *)&word;
    }
    __device__ static unsigned greater(unsigned a, unsigned b) {
        return __hgt2_mask(pair(a), pair(b));
    }
    __device__ static unsigned at_most(unsigned a, unsigned b) {
        return __hle2_mask(pair(a), pair(b));
    }
    __device__ static unsigned larger(unsigned a, unsigned b) {
        __nv_bfloat162 c = __hmax2_nan(pair(a), pair(b));
        return *(const unsigned *)&c;
    }
};

/* The first of the largest elements so far: its value, number in the window and x. */
template <typename T, int V> struct best {
    unsigned value[words<T, V>::COUNT], number[words<T, V>::COUNT], x[words<T, V>::COUNT];
};

/* "other" comes later, and its numbers count from "first" on. */
template <typename T, int V>
__device__ static inline void take_larger(best<T, V> &own, const best<T, V> &other, int first) {
    using W = words<T, V>;
#pragma unroll
    for (int k = 0; k < W::COUNT; k++) {
        unsigned wins = W::greater(other.value[k], own.value[k]);
        own.number[k] = ((other.number[k] + first * W::ONE) & wins) | (own.number[k] & ~wins);
        own.x[k] = (other.x[k] & wins) | (own.x[k] & ~wins);
        own.value[k] = W::larger(other.value[k], own.value[k]);
    }
}

/* The three columns of a window in one row of x. */
template <typename T, int V> struct window_row {
    unsigned x[KERNEL][words<T, V>::COUNT];
    bool inside[KERNEL];
};

/* Outside of x something is read as well, and not used. */
template <typename T, int V>
__device__ static inline window_row<T, V> read_row(const norm_pool_args &args, int64_t n, int p,
                                                   int j, int channel) {
    window_row<T, V> row;
    int left = j * STRIDE - PAD, near = p < 0 ? 0 : p < args.h ? p : args.h - 1;
    const T *x = (const T *)args.norm.x + channel +
                 pixel_at(n, near, 0, args.h, args.w, args.norm.shape.channels);
#pragma unroll
    for (int s = 0; s < KERNEL; s++) {
        int q = left + s < 0 ? 0 : left + s < args.w ? left + s : args.w - 1;
        row.inside[s] = p == near && q == left + s;
        words<T, V>::read(x + (int64_t)q * args.norm.shape.channels, row.x[s]);
    }
    return row;
}

/* Column s of a row, normalised. */
template <typename T, int V>
__device__ static inline best<T, V> normalise(const norm_line<V> &line, const window_row<T, V> &row,
                                              int s) {
    using W = words<T, V>;
    constexpr int EACH = V / W::COUNT;
    best<T, V> own;
#pragma unroll
    for (int k = 0; k < W::COUNT; k++) {
        float z[EACH];
        W::widen(row.x[s][k], z);
#pragma unroll
        for (int e = 0; e < EACH; e++) z[e] = norm_before(line, k * EACH + e, z[e]);
        own.value[k] = row.inside[s] ? W::round(z) : W::lowest();
        own.number[k] = 0;
        own.x[k] = row.x[s][k];
    }
    return own;
}

template <typename T, int V>
__device__ static inline best<T, V> best_of_row(const norm_line<V> &line,
                                                const window_row<T, V> &row) {
    best<T, V> own = normalise(line, row, 0);
#pragma unroll
    for (int s = 1; s < KERNEL; s++) take_larger(own, normalise(line, row, s), s);
    return own;
}

template <typename T, int V, zonal__activation A>
__device__ static inline void write_window(const norm_pool_args &args, best<T, V> own, int64_t at) {
    using W = words<T, V>;
    constexpr int EACH = V / W::COUNT;
    unsigned number[V];
#pragma unroll
    for (int k = 0; k < W::COUNT; k++) {
        if (A == ZONAL__ACTIVATION_RELU) {
            unsigned flat = W::at_most(own.value[k], 0);
            own.value[k] &= ~flat;
            own.number[k] |= flat & DEAD * W::ONE;
        }
#pragma unroll
        for (int e = 0; e < EACH; e++) number[k * EACH + e] = own.number[k] >> 16 * e & 255;
    }
    W::write((T *)args.norm.y + at, own.value);
    if (!args.winner) return;
    W::write((T *)args.winner_x + at, own.x);
    write_numbers(args.winner + at, number);
}

/* Windows first, ..., end - 1 of column j, from the top down: the lowest row of one is the highest
 * of the next. */
template <typename T, int V, zonal__activation A>
__device__ static inline void pool_strip(const norm_pool_args &args, int64_t n, int first, int end,
                                         int j, int channel) {
    norm_line<V> line = norm_line_of<V>(args.norm, channel);
    int p = first * STRIDE - PAD;
    best<T, V> shared = best_of_row(line, read_row<T, V>(args, n, p, j, channel));
    for (int i = first; i < end; i++, p += STRIDE) {
        window_row<T, V> middle = read_row<T, V>(args, n, p + 1, j, channel);
        window_row<T, V> lowest = read_row<T, V>(args, n, p + 2, j, channel);
        best<T, V> own = shared;
#pragma unroll
        for (int s = 0; s < KERNEL; s++) take_larger(own, normalise(line, middle, s), KERNEL + s);
        shared = best_of_row(line, lowest);
        take_larger(own, shared, 2 * KERNEL);
        write_window<T, V, A>(args, own,
                              pixel_at(n, i, j, args.out_h, args.out_w, args.norm.shape.channels) +
                                  channel);
    }
}

template <typename T, int V, zonal__activation A>
__global__ void __launch_bounds__(ZONAL__POOL_THREADS, sizeof(T) == 2 ? 3 : 1)
    norm_pool(const __grid_constant__ norm_pool_args args) {
    visit_strips<V>(args, [&](int64_t n, int first, int end, int j, int channel) {
        pool_strip<T, V, A>(args, n, first, end, j, channel);
    });
}

/* ---- backward: sums -------------------------------------------------------------------------- */

/* As in nn_norm_back.cu, but the means are those over x's elements. */
__device__ static void finish_sums(const norm_pool_args &args, int channel,
                                   const double (&total)[2]) {
    const norm_args &norm = args.norm;
    double m = (double)(args.n * args.h * args.w), inverse = (double)norm.inverse[channel];
    double dbias = total[0], dscale = total[1] * inverse;
    if (norm.joined) {
        norm.joined[channel] = total[0];
        norm.joined[norm.shape.channels + channel] = total[1];
    } else {
        norm.mean_g[channel] = (float)(dbias / m);
        norm.slope[channel] = (float)(dscale * inverse / m);
    }
    if (norm.accumulate) {
        dbias += (double)norm.dbias[channel];
        dscale += (double)norm.dscale[channel];
    }
    norm.dbias[channel] = (float)dbias;
    norm.dscale[channel] = (float)dscale;
}

/* What came back to y, and to whom it goes on. */
template <typename T, int V> struct window_gradient {
    nn_vector<T, V> dy, more;
    numbers<V> winner;
};

template <typename T, int V>
__device__ static inline window_gradient<T, V> read_window(const norm_pool_args &args, int64_t at) {
    window_gradient<T, V> window = {};
    window.dy = nn_read<T, V>((const T *)args.norm.dy + at);
    if (args.norm.dy_more) window.more = nn_read<T, V>((const T *)args.norm.dy_more + at);
    window.winner = *(const numbers<V> *)(args.winner + at);
    return window;
}

template <typename T, int V>
__device__ static inline void sum_gradients(const window_gradient<T, V> &window, float (&g)[V]) {
    float more[V];
    nn_widen(window.dy, g);
    nn_widen(window.more, more);
#pragma unroll
    for (int k = 0; k < V; k++) g[k] += more[k];
}

template <typename T, int V>
__device__ static inline void add_row(const window_gradient<T, V> &window,
                                      const nn_vector<T, V> &winner_x, const float (&mean)[V],
                                      float (&sum)[V], float (&product)[V]) {
    float x[V], g[V];
    nn_widen(winner_x, x);
    sum_gradients(window, g);
#pragma unroll
    for (int k = 0; k < V; k++) {
        /* A product, not a choice: a NaN is passed on, as the reference does. */
        g[k] *= number_at(window.winner, k) == DEAD ? 0.0f : 1.0f;
        sum[k] += g[k];
        product[k] += g[k] * (x[k] - mean[k]);
    }
}

/* The sums of g and g (x - mean) over a thread's rows. */
template <typename T, int V>
__device__ static inline void add_rows(const norm_pool_args &args, const zonal__column_place &at,
                                       float (&sum)[V], float (&product)[V]) {
    float mean[V];
    if (at.first >= at.end) return;
    nn_parameters(args.norm.mean + at.channel, mean);
    for (int64_t i = at.first; i < at.end; i += SUM_ROWS * at.step) {
        window_gradient<T, V> window[SUM_ROWS];
        nn_vector<T, V> x[SUM_ROWS];
#pragma unroll
        for (int u = 0; u < SUM_ROWS; u++)
            if (i + u * at.step < at.end) {
                window[u] = read_window<T, V>(args, i + u * at.step);
                x[u] = nn_read<T, V>((const T *)args.winner_x + i + u * at.step);
            }
#pragma unroll
        for (int u = 0; u < SUM_ROWS; u++)
            if (i + u * at.step < at.end) add_row<T, V>(window[u], x[u], mean, sum, product);
    }
}

template <typename T, int V>
__global__ void __launch_bounds__(ZONAL__NN_THREADS,
                                  norm_blocks_together<T, ZONAL__ACTIVATION_NONE>())
    norm_pool_sums(const __grid_constant__ norm_pool_args args) {
    __shared__ double part[V * ZONAL__NN_THREADS];
    zonal__column_place at = norm_place(args.norm);
    float sum[V] = {}, product[V] = {};
    double own[V], total[2];
    int channel;
    add_rows<T, V>(args, at, sum, product);
#pragma unroll
    for (int k = 0; k < V; k++) own[k] = (double)sum[k];
    total[0] = norm_sum_block<V>(args.norm, at, 0, own, part);
#pragma unroll
    for (int k = 0; k < V; k++) own[k] = (double)product[k];
    total[1] = norm_sum_block<V>(args.norm, at, 1, own, part);
    if (norm_sum_column<V>(args.norm, at, part, total, &channel)) finish_sums(args, channel, total);
}

/* ---- backward: dx ---------------------------------------------------------------------------- */

/* dx = factor (g - (x slope + base)) */
template <int V> struct back_line { float factor[V], slope[V], base[V]; };

template <int V>
__device__ static inline back_line<V> back_line_of(const norm_args &args, int channel) {
    back_line<V> line;
#pragma unroll
    for (int k = 0; k < V; k++) {
        int c = channel + k;
        line.factor[k] = args.scale[c] * args.inverse[c];
        line.slope[k] = args.slope[c];
        line.base[k] = args.mean_g[c] - args.mean[c] * args.slope[c];
    }
    return line;
}

/* dx of a pixel, from its gradient and x. */
template <typename T, int V>
__device__ static inline void write_dx(T *dx, const back_line<V> &line, const nn_vector<T, V> &x,
                                       const float (&g)[V]) {
    float value[V];
    nn_widen(x, value);
#pragma unroll
    for (int k = 0; k < V; k++)
        value[k] = line.factor[k] * (g[k] - (value[k] * line.slope[k] + line.base[k]));
    nn_write(dx, value);
}

template <int V>
__device__ static inline void add_where_won(const numbers<V> &winner, int number,
                                            const float (&g)[V], float (&sum)[V]) {
#pragma unroll
    for (int k = 0; k < V; k++)
        if (number_at(winner, k) == number) sum[k] += g[k];
}

/* Whether x has pixel (p, q) of those that go with window (i, j). */
__device__ static inline bool is_inside(const norm_pool_args &args, int i, int j, int p, int q) {
    return i * STRIDE + p < args.h && j * STRIDE + q < args.w;
}

/*
 * Four pixels of x: the middle of window (i, j), its right neighbour, and the two below. Pixel
 * (p, q) of them lies in the windows (i + down, j + right) with down <= p and right <= q, and in no
 * others.
 */
template <typename T, int V>
__device__ static inline void back_pixels(const norm_pool_args &args, const back_line<V> &line,
                                          int64_t n, int i, int j, int channel) {
    int channels = args.norm.shape.channels;
    int64_t of_y = pixel_at(n, i, j, args.out_h, args.out_w, channels) + channel;
    int64_t of_x = pixel_at(n, i * STRIDE, j * STRIDE, args.h, args.w, channels) + channel;
    window_gradient<T, V> window[2][2];
    nn_vector<T, V> x[2][2];
    float g[2][2][V];
#pragma unroll
    for (int u = 0; u < 4; u++) {
        int p = u / 2, q = u % 2;
        bool inside = i + p < args.out_h && j + q < args.out_w;
        int64_t to_window = ((int64_t)p * args.out_w + q) * channels;
        if (is_inside(args, i, j, p, q))
            x[p][q] =
                nn_read<T, V>((const T *)args.norm.x + of_x + ((int64_t)p * args.w + q) * channels);
        /* Outside, something is read as well, and nobody has won it: so all loads are under way
         * before any is used. */
        window[p][q] = read_window<T, V>(args, of_y + (inside ? to_window : 0));
        if (!inside) memset(&window[p][q].winner, DEAD, sizeof window[p][q].winner);
    }
#pragma unroll
    for (int u = 0; u < 4; u++) sum_gradients(window[u / 2][u % 2], g[u / 2][u % 2]);
#pragma unroll
    for (int u = 0; u < 4; u++) {
        int p = u / 2, q = u % 2;
        float sum[V] = {};
        if (!is_inside(args, i, j, p, q)) continue;
#pragma unroll
        for (int down = 0; down <= p; down++)
#pragma unroll
            for (int right = 0; right <= q; right++) {
                int number = (p + PAD - STRIDE * down) * KERNEL + q + PAD - STRIDE * right;
                add_where_won(window[down][right].winner, number, g[down][right], sum);
            }
        write_dx((T *)args.norm.dx + of_x + ((int64_t)p * args.w + q) * channels, line, x[p][q],
                 sum);
    }
}

template <typename T, int V>
__global__ void __launch_bounds__(ZONAL__POOL_THREADS, sizeof(T) == 2 ? 2 : 1)
    norm_pool_back(const __grid_constant__ norm_pool_args args) {
    visit_strips<V>(args, [&](int64_t n, int first, int end, int j, int channel) {
        back_line<V> line = back_line_of<V>(args.norm, channel);
        for (int i = first; i < end; i++) back_pixels<T, V>(args, line, n, i, j, channel);
    });
}

/* ---- create ---------------------------------------------------------------------------------- */

typedef struct norm_pool_layer {
    zonal__layer head;
    zonal__columns shape, pooled; /* rows of x and of y */
    int statistic_blocks, sum_blocks;
    zonal__pool_shape strips;
    unsigned *tickets; /* device, [columns] */
    norm_kernel statistics;
    norm_pool_kernel pool, sums, back;
    norm_ranks ranks;
} norm_pool_layer;

template <typename T, int V> static void choose_kernels(norm_pool_layer *layer) {
    int relu = layer->head.spec.activation == ZONAL__ACTIVATION_RELU;
    layer->pool =
        relu ? norm_pool<T, V, ZONAL__ACTIVATION_RELU> : norm_pool<T, V, ZONAL__ACTIVATION_NONE>;
    layer->sums = norm_pool_sums<T, V>;
    layer->back = norm_pool_back<T, V>;
}

/* Also loads the kernels, which a first launch would do too late for a graph's capture. */
static zonal_status prepare(norm_pool_layer *layer) {
    cudaFuncAttributes attributes;
    int vector = layer->shape.vector;
    layer->statistics = zonal__norm_statistics(layer->head.spec.dtype, vector);
    if (layer->head.spec.dtype == ZONAL_DTYPE_BF16)
        (vector > 1 ? choose_kernels<__nv_bfloat16, ZONAL__NN_VECTOR>
                    : choose_kernels<__nv_bfloat16, 1>)(layer);
    else
        (vector > 1 ? choose_kernels<float, ZONAL__NN_VECTOR> : choose_kernels<float, 1>)(layer);
    const void *all[] = {(const void *)layer->statistics, (const void *)layer->pool,
                         (const void *)layer->sums, (const void *)layer->back};
    for (const void *kernel : all)
        ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, kernel)));
    return ZONAL_OK;
}

/* Into blocks; of those that sum, as many as run at the same time. */
static zonal_status cut(norm_pool_layer *layer) {
    const zonal__layer_spec *spec = &layer->head.spec;
    int out_h = layer->head.out_h, out_w = layer->head.out_w, processors, device;
    int together = spec->dtype == ZONAL_DTYPE_BF16 ? 2 : 1;
    ZONAL_TRY(ZONAL_CUDA(cudaGetDevice(&device)));
    ZONAL_TRY(
        ZONAL_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)));
    zonal__columns_make(spec->n * spec->h * spec->w, spec->channels, &layer->shape);
    zonal__columns_make(spec->n * out_h * out_w, spec->channels, &layer->pooled);
    layer->statistic_blocks =
        zonal__columns_blocks(&layer->shape, STATISTIC_ROWS, together * processors);
    layer->sum_blocks = zonal__columns_blocks(&layer->pooled, SUM_ROWS, together * processors);
    zonal__pool_shape_make(spec->n * zonal__nn_ceil(out_h, STRIP), out_w, spec->channels,
                           &layer->strips);
    return ZONAL_OK;
}

static zonal_status create(zonal__layer *opaque) {
    norm_pool_layer *layer = (norm_pool_layer *)opaque;
    const zonal__layer_spec *spec = &opaque->spec;
    void *memory;
    if (spec->kernel != KERNEL || spec->stride != STRIDE || spec->pad != PAD)
        return ZONAL_FAIL(
            ZONAL_UNSUPPORTED,
            "on CUDA a batch norm with a max pool has kernel 3, stride 2 and padding 1, "
            "got %d, %d and %d; use a batch norm and a max pool one after the other",
            spec->kernel, spec->stride, spec->pad);
    ZONAL_TRY(cut(layer));
    ZONAL_TRY(prepare(layer));
    ZONAL_TRY(zonal__norm_ranks_make(spec, &layer->ranks));
    ZONAL_TRY(zonal__cuda_malloc((size_t)layer->shape.columns * sizeof *layer->tickets,
                                 "the tickets of a batch norm", &memory));
    layer->tickets = (unsigned *)memory;
    return ZONAL_OK;
}

static void destroy(zonal__layer *opaque) {
    cudaFree(((norm_pool_layer *)opaque)->tickets);
    zonal__norm_ranks_drop(&((norm_pool_layer *)opaque)->ranks);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t lines(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* Two floats for each channel. */
static size_t pairs_bytes(const norm_pool_layer *layer) {
    return lines((size_t)layer->shape.channels * 2 * sizeof(float));
}

/* One byte for each element of y. */
static size_t winner_bytes(const norm_pool_layer *layer) {
    return lines((size_t)layer->pooled.rows * (size_t)layer->pooled.channels);
}

static size_t saved_bytes(const zonal__layer *opaque) {
    const norm_pool_layer *layer = (const norm_pool_layer *)opaque;
    size_t element = opaque->spec.dtype == ZONAL_DTYPE_BF16 ? 2 : 4;
    return pairs_bytes(layer) + (1 + element) * winner_bytes(layer);
}

/* The means that one kernel leaves to the next, then the blocks' sums. */
static size_t scratch_bytes(const zonal__layer *opaque) {
    const norm_pool_layer *layer = (const norm_pool_layer *)opaque;
    const zonal__columns *shape = &layer->shape;
    int blocks =
        layer->statistic_blocks > layer->sum_blocks ? layer->statistic_blocks : layer->sum_blocks;
    size_t tile = (size_t)(shape->across * shape->vector);
    return pairs_bytes(layer) + (size_t)shape->columns * (size_t)blocks * 2 * tile * sizeof(double);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static norm_args make_norm_args(const norm_pool_layer *layer, const zonal__layer_arrays *arrays,
                                int training) {
    const zonal__layer_spec *spec = &layer->head.spec;
    norm_args args = {};
    args.shape = layer->shape;
    args.training = training;
    args.x = arrays->x;
    args.y = arrays->y;
    args.scale = arrays->scale;
    args.bias = arrays->bias;
    args.running_mean = arrays->running_mean;
    args.running_variance = arrays->running_variance;
    args.epsilon = spec->epsilon;
    args.momentum = spec->momentum;
    args.mean = (float *)(spec->forward_only ? arrays->scratch : arrays->saved);
    args.inverse = args.mean + layer->shape.channels;
    args.partial = (double *)((char *)arrays->scratch + pairs_bytes(layer));
    args.tickets = layer->tickets;
    args.elements = (double)zonal__layer_norm_elements(spec);
    args.joined = layer->ranks.joined;
    return args;
}

static norm_pool_args make_args(const norm_pool_layer *layer, const zonal__layer_arrays *arrays,
                                int training) {
    const zonal__layer_spec *spec = &layer->head.spec;
    norm_pool_args args = {};
    args.norm = make_norm_args(layer, arrays, training);
    args.shape = layer->strips;
    args.n = spec->n;
    args.h = spec->h;
    args.w = spec->w;
    args.out_h = layer->head.out_h;
    args.out_w = layer->head.out_w;
    if (training && !spec->forward_only) {
        args.winner = (uint8_t *)arrays->saved + pairs_bytes(layer);
        args.winner_x = args.winner + winner_bytes(layer);
    }
    return args;
}

/* Blocks that sum, over rows of x or y. */
template <typename Args>
static zonal_status launch_sums(const norm_pool_layer *layer, void (*kernel)(const Args),
                                int blocks, const Args &args) {
    return zonal__launch(layer->head.stream, dim3((unsigned)(blocks * layer->shape.columns)),
                         ZONAL__NN_THREADS, 0, 1, kernel, args);
}

static zonal_status launch_strips(const norm_pool_layer *layer, norm_pool_kernel kernel,
                                  const norm_pool_args &args) {
    const zonal__pool_shape *strips = &layer->strips;
    return zonal__launch(layer->head.stream, dim3((unsigned)strips->blocks),
                         strips->across * strips->down, 0, 1, kernel, args);
}

static zonal_status forward(zonal__layer *opaque, const zonal__layer_arrays *arrays, int training) {
    const norm_pool_layer *layer = (const norm_pool_layer *)opaque;
    norm_pool_args args = make_args(layer, arrays, training);
    if (training) {
        ZONAL_TRY(launch_sums(layer, layer->statistics, layer->statistic_blocks, args.norm));
        ZONAL_TRY(zonal__norm_join_statistics(&layer->ranks, args.norm, opaque->stream));
    }
    return launch_strips(layer, layer->pool, args);
}

static zonal_status backward(zonal__layer *opaque, const zonal__layer_arrays *arrays) {
    const norm_pool_layer *layer = (const norm_pool_layer *)opaque;
    norm_pool_args args = make_args(layer, arrays, 1);
    args.norm.shape = layer->pooled;
    args.norm.dy = arrays->dy;
    args.norm.dy_more = arrays->dy_more;
    args.norm.dx = arrays->dx;
    args.norm.dscale = arrays->dscale;
    args.norm.dbias = arrays->dbias;
    args.norm.accumulate = arrays->accumulate;
    args.norm.mean_g = (float *)arrays->scratch;
    args.norm.slope = args.norm.mean_g + layer->shape.channels;
    ZONAL_TRY(launch_sums(layer, layer->sums, layer->sum_blocks, args));
    ZONAL_TRY(zonal__norm_join_sums(&layer->ranks, args.norm, opaque->stream));
    if (!arrays->dx) return ZONAL_OK;
    return launch_strips(layer, layer->back, args);
}

const zonal__cuda_layer_kind zonal__cuda_norm_pool = {
    sizeof(norm_pool_layer), create, destroy, saved_bytes, scratch_bytes, forward, backward};
