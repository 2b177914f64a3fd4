/*
 * The way back through a norm on CUDA. With g = (dy + dy_more) activation'(z) and m elements,
 *
 *     dbias = sum of g,  dscale = sum of g xhat,
 *     dx = scale inverse (g - dbias/m - xhat dscale/m)
 *
 * in two kernels: "back_sums" makes the sums, and stores g where the residual wants it;
 * "back_apply" makes dx, from the stored g, which was rounded once, or anew from dy. Where rows are
 * few, "back_whole" does both.
 *
 * relu reads the signs that forward left, or y; gelu computes z again.
 */
#include "backend/cuda/nn_norm.cuh"

enum { ROWS_AT_ONCE = 2 };

/* A thread's channels of one row. */
template <typename T, int V> struct back_row {
    nn_vector<T, V> x, dy, more;
    nn_vector<T, V> other; /* residual for gelu, y for relu without signs */
    unsigned positive;
};

template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline back_row<T, V> read_row(const norm_args &args, int64_t i) {
    back_row<T, V> row;
    row.x = nn_read<T, V>((const T *)args.x + i);
    row.dy = nn_read<T, V>((const T *)args.dy + i);
    if (args.dy_more) row.more = nn_read<T, V>((const T *)args.dy_more + i);
    if (A == ZONAL__ACTIVATION_RELU && V > 1) row.positive = args.positive[i / V];
    if (A == ZONAL__ACTIVATION_RELU && V == 1) row.other = nn_read<T, V>((const T *)args.y + i);
    if (A == ZONAL__ACTIVATION_GELU && RESIDUAL)
        row.other = nn_read<T, V>((const T *)args.residual + i);
    return row;
}

/* The activation's derivative. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void slopes_of(const norm_line<V> &line, const back_row<T, V> &row,
                                        const float (&x)[V], float (&slope)[V]) {
    constexpr bool OTHER =
        A == ZONAL__ACTIVATION_RELU ? V == 1 : A == ZONAL__ACTIVATION_GELU && RESIDUAL;
    float other[V] = {};
    if (OTHER) nn_widen(row.other, other);
#pragma unroll
    for (int k = 0; k < V; k++) {
        if (A == ZONAL__ACTIVATION_RELU)
            slope[k] = V > 1 ? (float)(row.positive >> k & 1) : nn_slope<A>(other[k]);
        else
            slope[k] = nn_slope<A>(norm_before(line, k, x[k]) + other[k]);
    }
}

/* x and g of a row. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void gradient_of(const norm_args &args, const norm_line<V> &line,
                                          const back_row<T, V> &row, float (&x)[V], float (&g)[V]) {
    float more[V] = {}, slope[V];
    nn_widen(row.x, x);
    nn_widen(row.dy, g);
    if (args.dy_more) nn_widen(row.more, more);
    if (A != ZONAL__ACTIVATION_NONE) slopes_of<T, V, A, RESIDUAL>(line, row, x, slope);
#pragma unroll
    for (int k = 0; k < V; k++) {
        g[k] += more[k];
        /* A product, not a choice: a NaN is passed on, as the reference does. */
        if (A != ZONAL__ACTIVATION_NONE) g[k] *= slope[k];
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* From the sums of g and g (x - mean). */
__device__ static void finish_sums(const norm_args &args, int channel, const double (&total)[2]) {
    double m = (double)args.shape.rows, inverse = (double)args.inverse[channel];
    double dbias = total[0], dscale = total[1] * inverse;
    args.mean_g[channel] = (float)(dbias / m);
    args.slope[channel] = (float)(dscale * inverse / m);
    if (args.accumulate) {
        dbias += (double)args.dbias[channel];
        dscale += (double)args.dscale[channel];
    }
    args.dbias[channel] = (float)dbias;
    args.dscale[channel] = (float)dscale;
}

template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void make_sums(const norm_args &args, const zonal__column_place &at) {
    norm_line<V> line = {};
    float sum[V] = {}, product[V] = {};
    if (at.first < at.end) line = norm_line_of<V>(args, at.channel);
    for (int64_t i = at.first; i < at.end; i += ROWS_AT_ONCE * at.step) {
        back_row<T, V> read[ROWS_AT_ONCE];
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            if (i + u * at.step < at.end)
                read[u] = read_row<T, V, A, RESIDUAL>(args, i + u * at.step);
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++) {
            float x[V], g[V];
            if (i + u * at.step >= at.end) break;
            gradient_of<T, V, A, RESIDUAL>(args, line, read[u], x, g);
            if (RESIDUAL && args.dresidual) nn_write((T *)args.dresidual + i + u * at.step, g);
#pragma unroll
            for (int k = 0; k < V; k++) {
                sum[k] += g[k];
                product[k] += g[k] * (x[k] - line.mean[k]);
            }
        }
    }
    __shared__ double part[V * ZONAL__NN_THREADS];
    double own[V], total[2];
    int channel;
#pragma unroll
    for (int k = 0; k < V; k++) own[k] = (double)sum[k];
    total[0] = norm_sum_block<V>(args, at, 0, own, part);
#pragma unroll
    for (int k = 0; k < V; k++) own[k] = (double)product[k];
    total[1] = norm_sum_block<V>(args, at, 1, own, part);
    if (norm_sum_column<V>(args, at, part, total, &channel)) finish_sums(args, channel, total);
}

/* ---- dx -------------------------------------------------------------------------------------- */

/* From the last row to the first: what was read last for the sums is still in the cache. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void back_rows(const norm_args &args, const zonal__column_place &at) {
    if (at.first >= at.end) return;
    norm_line<V> line = norm_line_of<V>(args, at.channel);
    float mean_g[V], slope[V];
    nn_parameters(args.mean_g + at.channel, mean_g);
    nn_parameters(args.slope + at.channel, slope);
    for (int64_t i = zonal__column_last(&args.shape, &at); i >= 0; i -= ROWS_AT_ONCE * at.step) {
        back_row<T, V> read[ROWS_AT_ONCE];
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            if (i - u * at.step >= 0) read[u] = read_row<T, V, A, RESIDUAL>(args, i - u * at.step);
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++) {
            float x[V], g[V];
            if (i - u * at.step < 0) break;
            gradient_of<T, V, A, RESIDUAL>(args, line, read[u], x, g);
#pragma unroll
            for (int k = 0; k < V; k++)
                g[k] = line.factor[k] * (g[k] - mean_g[k] - (x[k] - line.mean[k]) * slope[k]);
            nn_write((T *)args.dx + i - u * at.step, g);
        }
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

template <typename T, int V, zonal__activation A, bool RESIDUAL>
__global__ void __launch_bounds__(ZONAL__NN_THREADS, norm_blocks_together<T, A>())
    norm_back_sums(const __grid_constant__ norm_args args) {
    make_sums<T, V, A, RESIDUAL>(args, norm_place(args));
}

template <typename T, int V, zonal__activation A, bool RESIDUAL>
__global__ void __launch_bounds__(ZONAL__NN_THREADS, norm_blocks_together<T, A>())
    norm_back_apply(const __grid_constant__ norm_args args) {
    back_rows<T, V, A, RESIDUAL>(args, norm_place(args));
}

/* Both, in a block that has all rows of its channels. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__global__ void __launch_bounds__(ZONAL__NN_THREADS, 1)
    norm_back_whole(const __grid_constant__ norm_args args) {
    zonal__column_place at = norm_place(args);
    make_sums<T, V, A, RESIDUAL>(args, at);
    if (!args.dx) return;
    __syncthreads();
    back_rows<T, V, A, RESIDUAL>(args, at);
}

/* ---- choosing -------------------------------------------------------------------------------- */

template <typename T, int V, zonal__activation A>
static void choose_residual(int residual, norm_kernels *kernels) {
    kernels->back_sums = residual ? norm_back_sums<T, V, A, true> : norm_back_sums<T, V, A, false>;
    kernels->back_apply =
        residual ? norm_back_apply<T, V, A, true> : norm_back_apply<T, V, A, false>;
    kernels->back_whole =
        residual ? norm_back_whole<T, V, A, true> : norm_back_whole<T, V, A, false>;
    kernels->back_apply_stored = norm_back_apply<T, V, ZONAL__ACTIVATION_NONE, false>;
}

template <typename T, int V>
static void choose_back(const zonal__layer_spec *spec, norm_kernels *kernels) {
    (spec->activation == ZONAL__ACTIVATION_RELU ? choose_residual<T, V, ZONAL__ACTIVATION_RELU>
     : spec->activation == ZONAL__ACTIVATION_GELU
         ? choose_residual<T, V, ZONAL__ACTIVATION_GELU>
         : choose_residual<T, V, ZONAL__ACTIVATION_NONE>)(spec->residual, kernels);
}

void zonal__norm_choose_back(const zonal__layer_spec *spec, int vector, norm_kernels *kernels) {
    if (spec->dtype == ZONAL_DTYPE_BF16)
        (vector > 1 ? choose_back<__nv_bfloat16, ZONAL__NN_VECTOR>
                    : choose_back<__nv_bfloat16, 1>)(spec, kernels);
    else
        (vector > 1 ? choose_back<float, ZONAL__NN_VECTOR> : choose_back<float, 1>)(spec, kernels);
}
