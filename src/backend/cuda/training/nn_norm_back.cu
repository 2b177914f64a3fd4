/*
 * The way back through a batch norm on CUDA. With g = (dy + dy_more) activation'(z) and m elements,
 *
 *     dbias = sum of g,  dscale = sum of g xhat,
 *     dx = scale inverse (g - dbias/m - xhat dscale/m)
 *
 * in two kernels: "back_sums" makes the sums, and stores g where the residual wants it;
 * "back_apply" makes dx, from the stored g, which was rounded once, or anew from dy. Where the
 * array is not large, "back_resident" does both in one launch.
 *
 * relu reads the signs that forward left, or y; gelu computes z again.
 */
#include "backend/cuda/training/nn_norm_resident.cuh"

enum { ROWS_AT_ONCE = 2 };

/* A thread's channels of one row. */
template <typename T, int V> struct back_row {
    nn_vector<T, V> x, dy, more;
    nn_vector<T, V> other; /* residual for gelu, y for relu without signs */
    unsigned positive;
};

/* All but x and dy. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void read_rest(const norm_args &args, int64_t i, back_row<T, V> *row) {
    if (args.dy_more) row->more = nn_read<T, V>((const T *)args.dy_more + i);
    if (A == ZONAL__ACTIVATION_RELU && V > 1) row->positive = args.positive[i / V];
    if (A == ZONAL__ACTIVATION_RELU && V == 1) row->other = nn_read<T, V>((const T *)args.y + i);
    if (A == ZONAL__ACTIVATION_GELU && RESIDUAL)
        row->other = nn_read<T, V>((const T *)args.residual + i);
}

template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline back_row<T, V> read_row(const norm_args &args, int64_t i) {
    back_row<T, V> row;
    row.x = nn_read<T, V>((const T *)args.x + i);
    row.dy = nn_read<T, V>((const T *)args.dy + i);
    read_rest<T, V, A, RESIDUAL>(args, i, &row);
    return row;
}

/* The activation's derivative. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void derivatives_of(const norm_line<V> &line, const back_row<T, V> &row,
                                             const float (&x)[V], float (&derivative)[V]) {
    constexpr bool OTHER =
        A == ZONAL__ACTIVATION_RELU ? V == 1 : A == ZONAL__ACTIVATION_GELU && RESIDUAL;
    float other[V] = {};
    if (OTHER) nn_widen(row.other, other);
#pragma unroll
    for (int k = 0; k < V; k++) {
        if (A == ZONAL__ACTIVATION_RELU)
            derivative[k] = V > 1 ? (float)(row.positive >> k & 1) : nn_derivative<A>(other[k]);
        else
            derivative[k] = nn_derivative<A>(norm_before(line, k, x[k]) + other[k]);
    }
}

/* x and g of a row. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void gradient_of(const norm_args &args, const norm_line<V> &line,
                                          const back_row<T, V> &row, float (&x)[V], float (&g)[V]) {
    float more[V] = {}, derivative[V];
    nn_widen(row.x, x);
    nn_widen(row.dy, g);
    if (args.dy_more) nn_widen(row.more, more);
    if (A != ZONAL__ACTIVATION_NONE) derivatives_of<T, V, A, RESIDUAL>(line, row, x, derivative);
#pragma unroll
    for (int k = 0; k < V; k++) {
        g[k] += more[k];
        /* A product, not a choice: a NaN is passed on, as the reference does. */
        if (A != ZONAL__ACTIVATION_NONE) g[k] *= derivative[k];
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Of a channel. */
typedef struct back_totals {
    double dbias, dscale;
    float mean_g, slope; /* as in norm_args */
} back_totals;

/* From the sums of g and g (x - mean). */
__device__ static back_totals totals_of(const norm_args &args, double inverse,
                                        const double (&total)[2]) {
    double m = (double)args.shape.rows, dscale = total[1] * inverse;
    return back_totals{total[0], dscale, (float)(total[0] / m), (float)(dscale * inverse / m)};
}

__device__ static void keep_totals(const norm_args &args, int channel, back_totals own) {
    if (args.accumulate) {
        own.dbias += (double)args.dbias[channel];
        own.dscale += (double)args.dscale[channel];
    }
    args.dbias[channel] = (float)own.dbias;
    args.dscale[channel] = (float)own.dscale;
}

/* A thread's sums of g and g (x - mean). */
template <int V> struct back_sums { float g[V], product[V]; };

/* Adds a row, and stores its g where the residual wants it; the row then has that as its dy. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void add_row(const norm_args &args, const norm_line<V> &line, int64_t i,
                                      back_row<T, V> *row, back_sums<V> *sums) {
    float x[V], g[V];
    gradient_of<T, V, A, RESIDUAL>(args, line, *row, x, g);
    if (RESIDUAL && args.dresidual) {
        nn_write((T *)&row->dy, g);
        *(nn_vector<T, V> *)((T *)args.dresidual + i) = row->dy;
    }
#pragma unroll
    for (int k = 0; k < V; k++) {
        sums->g[k] += g[k];
        sums->product[k] += g[k] * (x[k] - line.mean[k]);
    }
}

template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void add_rows(const norm_args &args, const norm_line<V> &line,
                                       int64_t first, int64_t end, int64_t step,
                                       back_sums<V> *sums) {
    for (int64_t i = first; i < end; i += ROWS_AT_ONCE * step) {
        back_row<T, V> row[ROWS_AT_ONCE];
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            if (i + u * step < end) row[u] = read_row<T, V, A, RESIDUAL>(args, i + u * step);
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            if (i + u * step < end)
                add_row<T, V, A, RESIDUAL>(args, line, i + u * step, &row[u], sums);
    }
}

template <int V> __device__ static inline void widen_sums(const float (&sum)[V], double (&out)[V]) {
#pragma unroll
    for (int k = 0; k < V; k++) out[k] = (double)sum[k];
}

template <typename T, int V, zonal__activation A, bool RESIDUAL>
__global__ void __launch_bounds__(ZONAL__NN_THREADS, norm_blocks_together<T, A>())
    norm_back_sums(const __grid_constant__ norm_args args) {
    __shared__ double part[V * ZONAL__NN_THREADS];
    zonal__column_place at = norm_place(args);
    norm_line<V> line = {};
    back_sums<V> sums = {};
    double own[V], total[2];
    int channel;
    if (at.first < at.end) line = norm_line_of<V>(args, at.channel);
    add_rows<T, V, A, RESIDUAL>(args, line, at.first, at.end, at.step, &sums);
    widen_sums(sums.g, own);
    total[0] = norm_sum_block<V>(args, at, 0, own, part);
    widen_sums(sums.product, own);
    total[1] = norm_sum_block<V>(args, at, 1, own, part);
    if (norm_sum_column<V>(args, at, part, total, &channel)) {
        back_totals found = totals_of(args, (double)args.inverse[channel], total);
        if (args.joined) {
            args.joined[channel] = total[0];
            args.joined[args.shape.channels + channel] = total[1];
        } else {
            args.mean_g[channel] = found.mean_g;
            args.slope[channel] = found.slope;
        }
        keep_totals(args, channel, found);
    }
}

/* ---- dx -------------------------------------------------------------------------------------- */

/* The numbers of a thread's channels. */
template <int V> struct back_line { float mean_g[V], slope[V]; };

template <typename T, int V>
__device__ static inline void write_dx(const norm_args &args, const norm_line<V> &line,
                                       const back_line<V> &back, int64_t i, const float (&x)[V],
                                       const float (&g)[V]) {
    float dx[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        dx[k] = line.factor[k] * (g[k] - back.mean_g[k] - (x[k] - line.mean[k]) * back.slope[k]);
    nn_write((T *)args.dx + i, dx);
}

/* From row "last" back to "first": what was read last for the sums is still in the cache. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void back_rows(const norm_args &args, const norm_line<V> &line,
                                        const back_line<V> &back, int64_t last, int64_t first,
                                        int64_t step) {
    for (int64_t i = last; i >= first; i -= ROWS_AT_ONCE * step) {
        back_row<T, V> row[ROWS_AT_ONCE];
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            if (i - u * step >= first) row[u] = read_row<T, V, A, RESIDUAL>(args, i - u * step);
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            if (i - u * step >= first) {
                float x[V], g[V];
                gradient_of<T, V, A, RESIDUAL>(args, line, row[u], x, g);
                write_dx<T, V>(args, line, back, i - u * step, x, g);
            }
    }
}

template <typename T, int V, zonal__activation A, bool RESIDUAL>
__global__ void __launch_bounds__(ZONAL__NN_THREADS, norm_blocks_together<T, A>())
    norm_back_apply(const __grid_constant__ norm_args args) {
    zonal__column_place at = norm_place(args);
    back_line<V> back;
    if (at.first >= at.end) return;
    nn_parameters(args.mean_g + at.channel, back.mean_g);
    nn_parameters(args.slope + at.channel, back.slope);
    back_rows<T, V, A, RESIDUAL>(args, norm_line_of<V>(args, at.channel), back,
                                 zonal__column_last(&args.shape, &at), 0, at.step);
}

/* ---- all in one ------------------------------------------------------------------------------ */

/* The column's table, before the sums are known, and after. */
__device__ static inline void begin_table(const norm_args &args, int channel,
                                          resident_table *table) {
    if (channel >= 0) {
        norm_line<1> line = norm_line_of<1>(args, channel);
        table->mean[threadIdx.x] = line.mean[0];
        table->factor[threadIdx.x] = line.factor[0];
        table->bias[threadIdx.x] = line.bias[0];
    }
    __syncthreads();
}

template <int V>
__device__ static inline void finish_table(const norm_args &args, const zonal__column_place &at,
                                           int channel, const back_sums<V> &sums,
                                           resident_table *table) {
    __shared__ resident_sums shared;
    double own[V], total[2], inverse = channel >= 0 ? (double)args.inverse[channel] : 0;
    widen_sums(sums.g, own);
    resident_put(&shared, 0, own);
    widen_sums(sums.product, own);
    resident_put(&shared, 1, own);
    resident_total(args, at, &shared, total);
    back_totals found = totals_of(args, inverse, total);
    if (channel >= 0) {
        table->mean_g[threadIdx.x] = found.mean_g;
        table->slope[threadIdx.x] = found.slope;
    }
    __syncthreads();
    if (channel >= 0 && at.slot == 0) keep_totals(args, channel, found);
}

/* The g of a row whose x and dy are held: stored ones were left there in place of dy. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void held_gradient(const norm_args &args, const norm_line<V> &line,
                                            int64_t i, back_row<T, V> *row, float (&x)[V],
                                            float (&g)[V]) {
    if (RESIDUAL && args.dresidual) {
        nn_widen(row->x, x);
        nn_widen(row->dy, g);
        return;
    }
    read_rest<T, V, A, RESIDUAL>(args, i, row);
    gradient_of<T, V, A, RESIDUAL>(args, line, *row, x, g);
}

/* The rows that are not held: the same once more. */
template <typename T, int V, zonal__activation A, bool RESIDUAL>
__device__ static inline void back_again(const norm_args &args, const norm_line<V> &line,
                                         const back_line<V> &back, const resident_rows &rows) {
    if (RESIDUAL && args.dresidual) {
        norm_args stored = args;
        stored.dy = args.dresidual;
        stored.dy_more = NULL;
        back_rows<T, V, ZONAL__ACTIVATION_NONE, false>(stored, line, back, rows.kept - rows.step,
                                                       rows.first, rows.step);
    } else {
        back_rows<T, V, A, RESIDUAL>(args, line, back, rows.kept - rows.step, rows.first,
                                     rows.step);
    }
}

template <typename T, zonal__activation A, bool RESIDUAL>
__global__ void __launch_bounds__(ZONAL__RESIDENT_THREADS, RESIDENT_TOGETHER)
    norm_back_resident(const __grid_constant__ norm_args args) {
    constexpr int V = ZONAL__NN_VECTOR, HELD = resident_held<T, A, 64>;
    __shared__ resident_table table;
    zonal__column_place at = norm_place(args);
    resident_rows rows = resident_rows_of(args, at, HELD);
    int channel = resident_channel(args, at);
    back_row<T, V> row[HELD];
    back_sums<V> sums = {};
#pragma unroll
    for (int u = 0; u < HELD; u++)
        if (rows.kept + u * rows.step < rows.end)
            row[u] = read_row<T, V, A, RESIDUAL>(args, rows.kept + u * rows.step);
    begin_table(args, channel, &table);
    norm_line<V> line = resident_line(table);
#pragma unroll
    for (int u = 0; u < HELD; u++)
        if (rows.kept + u * rows.step < rows.end)
            add_row<T, V, A, RESIDUAL>(args, line, rows.kept + u * rows.step, &row[u], &sums);
    add_rows<T, V, A, RESIDUAL>(args, line, rows.first, rows.kept, rows.step, &sums);
    finish_table<V>(args, at, channel, sums, &table);
    if (!args.dx) return;
    back_line<V> back;
    line = resident_line(table); /* again, so as not to hold it all the time */
    nn_parameters(table.mean_g + resident_group(), back.mean_g);
    nn_parameters(table.slope + resident_group(), back.slope);
#pragma unroll
    for (int u = 0; u < HELD; u++)
        if (rows.kept + u * rows.step < rows.end) {
            float x[V], g[V];
            held_gradient<T, V, A, RESIDUAL>(args, line, rows.kept + u * rows.step, &row[u], x, g);
            write_dx<T, V>(args, line, back, rows.kept + u * rows.step, x, g);
        }
    back_again<T, V, A, RESIDUAL>(args, line, back, rows);
}

/* ---- choosing -------------------------------------------------------------------------------- */

template <typename T, int V, zonal__activation A>
static void choose_residual(int residual, norm_kernels *kernels) {
    kernels->back_sums = residual ? norm_back_sums<T, V, A, true> : norm_back_sums<T, V, A, false>;
    kernels->back_apply =
        residual ? norm_back_apply<T, V, A, true> : norm_back_apply<T, V, A, false>;
    kernels->back_resident =
        residual ? norm_back_resident<T, A, true> : norm_back_resident<T, A, false>;
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
