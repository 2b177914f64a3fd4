/*
 * Small batches: the pairs of a tile, from products to weights and back to rows, and the alignment
 * of views. See small_kernel.cuh for the whole.
 */
#ifndef ZONAL_BACKEND_CUDA_SMALL_PAIRS_CUH
#define ZONAL_BACKEND_CUDA_SMALL_PAIRS_CUH

#include <cooperative_groups.h>

#include "backend/cuda/small_rows.cuh"

namespace {

namespace cg = cooperative_groups;

/* ---- products, gather ----------------------------------------------------------------------- */

/* This warp's part of the dot products of all pairs of the tile. */
template <int R, int UNROLL>
__device__ __forceinline__ void add_products(const small_args &a, const small_place &p,
                                             const small_memory &m, int quads, float (&dot)[R][8]) {
    int pitch = a.shape.pitch / 4;
    const float4 *rows =
        reinterpret_cast<const float4 *>(m.rows) + zonal__small_lane_row(p.lane) * pitch;
    const float4 *columns =
        reinterpret_cast<const float4 *>(m.columns) + zonal__small_lane_column(p.lane) * pitch;
#pragma unroll UNROLL
    for (int q = p.warp; q < quads; q += WARPS) {
        float4 x[R];
#pragma unroll
        for (int r = 0; r < R; r++) x[r] = rows[8 * r * pitch + q];
#pragma unroll
        for (int s = 0; s < 8; s++) {
            float4 y = columns[4 * s * pitch + q];
#pragma unroll
            for (int r = 0; r < R; r++) dot[r][s] = add_dot(dot[r][s], x[r], y);
        }
    }
}

/* As many floats as a thread has pairs of a tile. */
template <int R> struct alignas(4 * R) small_pack { float at[R]; };

/* Deals the products out: c[e] is the cosine of zonal__small_dealt_row and _column. "first" is
 * where the columns' offsets begin. */
template <int R>
__device__ __forceinline__ void deal_products(const small_place &p, const small_memory &m,
                                              int first, const float (&dot)[R][8], float (&c)[R]) {
    small_pack<R> *share = reinterpret_cast<small_pack<R> *>(m.partial);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int h = 0; h < 8 / R; h++) {
            small_pack<R> some;
#pragma unroll
            for (int e = 0; e < R; e++) some.at[e] = dot[r][R * h + e];
            share[(p.warp * WARPS + r * (8 / R) + h) * 32 + p.lane] = some;
        }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < R; e++) c[e] = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        small_pack<R> some = share[(w * WARPS + p.warp) * 32 + p.lane];
#pragma unroll
        for (int e = 0; e < R; e++) c[e] += some.at[e];
    }
    float offset = m.offsets[zonal__small_dealt_row(8 * R, p.warp, p.lane)];
#pragma unroll
    for (int e = 0; e < R; e++)
        c[e] += offset + m.offsets[first + zonal__small_dealt_column(8 * R, p.warp, p.lane, e)];
}

/* Adds sum over the tile's columns j of w_ij x_j: a quarter of the rows and, of every 64 float4,
 * one per thread. */
template <int R, int T>
__device__ __forceinline__ void add_gather(const small_args &a, const small_place &p,
                                           const small_memory &m, const float *weights, int quads,
                                           float4 (&g)[T][2 * R]) {
    int pitch = a.shape.pitch / 4, tile_rows = 8 * R, at[T];
    const float4 *columns = reinterpret_cast<const float4 *>(m.columns);
    weights += p.warp / 2 * 2 * R;
#pragma unroll
    for (int t = 0; t < T; t++) at[t] = min(p.lane + 32 * (p.warp % 2) + 64 * t, quads - 1);
#pragma unroll 4
    for (int j = 0; j < COLUMNS; j++) {
        float w[2 * R];
#pragma unroll
        for (int r = 0; r < 2 * R; r += 4)
            *reinterpret_cast<float4 *>(w + r) =
                *reinterpret_cast<const float4 *>(weights + j * (tile_rows + 4) + r);
#pragma unroll
        for (int t = 0; t < T; t++) {
            float4 x = columns[j * pitch + at[t]];
#pragma unroll
            for (int r = 0; r < 2 * R; r++) add_product(g[t][r], w[r], x);
        }
    }
}

/* The block's share of the gradient, without multiples of x_i, for the cluster to see. The rows and
 * the centre are those of a chunk that begins at float4 number "from". */
template <int R, int T>
__device__ __forceinline__ void leave_gradient(const small_args &a, const small_place &p,
                                               const small_memory &m, int from, int quads,
                                               const float4 (&g)[T][2 * R]) {
    float4 *partial = reinterpret_cast<float4 *>(m.partial), centre[T];
    int first = p.warp / 2 * 2 * R;
#pragma unroll
    for (int t = 0; t < T; t++) {
        int q = from + p.lane + 32 * (p.warp % 2) + 64 * t;
        centre[t] = q < a.shape.row_quads ? m.centre[q] : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int r = 0; r < 2 * R; r++) {
        const float4 *row = reinterpret_cast<const float4 *>(m.rows + (first + r) * a.shape.pitch);
        float weight = 0, along = *m.half_square + m.offsets[first + r]; /* m.x_i */
#pragma unroll
        for (int k = 0; k < 8 / R; k++) weight += m.row_weights[(first + r) * (8 / R) + k];
#pragma unroll
        for (int t = 0; t < T; t++) {
            int q = p.lane + 32 * (p.warp % 2) + 64 * t;
            float4 share = g[t][r];
            if (q >= quads) continue;
            add_product(share, weight * (1 - along), centre[t]);
            add_product(share, -weight * along, row[q]);
            partial[(first + r) * quads + q] = share;
        }
    }
}

/* pair_weight times the sum of the blocks' shares, in the order of their ranks. */
__device__ __forceinline__ float4 collect_gradient(const small_args &a, const small_memory &m,
                                                   cg::cluster_group &cluster, int quads, int row,
                                                   int q) {
    float4 share[ZONAL__SMALL_CLUSTER], g = make_float4(0, 0, 0, 0);
    float4 *partial = reinterpret_cast<float4 *>(m.partial) + row * quads + q;
#pragma unroll
    for (int k = 0; k < ZONAL__SMALL_CLUSTER; k++)
        if (k < a.shape.cluster) share[k] = *cluster.map_shared_rank(partial, k);
#pragma unroll
    for (int k = 0; k < ZONAL__SMALL_CLUSTER; k++)
        if (k < a.shape.cluster) add_product(g, a.pair_weight, share[k]);
    return g;
}

/* ---- the profile ---------------------------------------------------------------------------- */

/* f and, with DERIVATIVE, f' in double. Coefficients from the kernel's parameters or from memory
 * are two calls, so that the first reads constant memory. */
template <int N, bool DERIVATIVE>
__device__ __forceinline__ void profile(const zonal__device_fit &fit, const float (&cosine)[N],
                                        double (&value)[N], double (&derivative)[N]) {
    double c[N], u[N];
#pragma unroll
    for (int e = 0; e < N; e++) c[e] = zonal__clamp_cosine(cosine[e]);
    if (fit.chord) {
#pragma unroll
        for (int e = 0; e < N; e++) {
            value[e] = 1 - fit.chord_scale * sqrt((1 - c[e]) / 2);
            derivative[e] = 0;
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < N; e++)
        u[e] = ((c[e] < fit.low ? fit.low : c[e]) - fit.middle) * fit.inverse_half;
    if (fit.long_value) {
        zonal__polynomial<N>(fit.n_value, fit.monomial, fit.long_value, u, value);
        if (DERIVATIVE)
            zonal__polynomial<N>(fit.n_derivative, fit.monomial, fit.long_derivative, u,
                                 derivative);
    } else {
        zonal__polynomial<N>(fit.n_value, fit.monomial, fit.value, u, value);
        if (DERIVATIVE)
            zonal__polynomial<N>(fit.n_derivative, fit.monomial, fit.derivative, u, derivative);
    }
#pragma unroll
    for (int e = 0; e < N; e++) /* below low: the tangent */
        if (c[e] < fit.low) value[e] += fit.low_derivative * (c[e] - fit.low);
}

/* What a thread carries from tile to tile: the sum of psi, or of exp(log phi - peak) of its row
 * (KL; for broad kernels of expm1(log phi), whose digits 1 + log phi would lose). */
struct small_sum {
    double sum, peak;
};

/* What KL's first launch leaves to the thread in the same place of its second: its cosines of a
 * tile, and log S of its row and columns. */
template <int R> struct small_kept {
    float cosine[R];
    double row, column[R];
};

/* Step 3 of one tile: c are this thread's cosines, of one row; "kept" is read by KL's gradient. */
template <int R, int PASS>
__device__ __forceinline__ void weigh(const small_args &a, const small_place &p,
                                      const small_memory &m, int tile, const float (&c)[R],
                                      const small_kept<R> &kept, float *weights, small_sum &all) {
    const int tile_rows = 8 * R, first_column = (p.rank + tile * a.shape.cluster) * COLUMNS;
    int local_row = zonal__small_dealt_row(tile_rows, p.warp, p.lane);
    int row = p.first_row + local_row;
    double value[R], derivative[R];
    bool pair[R]; /* of two different rows of the batch */
#pragma unroll
    for (int e = 0; e < R; e++) {
        int column = first_column + zonal__small_dealt_column(tile_rows, p.warp, p.lane, e);
        pair[e] = row < a.shape.rows && column < a.shape.rows && row != column;
    }
    if (PASS == KL_SUMS || (PASS == PAIRS && !a.gradient))
        profile<R, false>(a.fit, c, value, derivative);
    else
        profile<R, true>(a.fit, c, value, derivative);
    if (PASS == PAIRS) {
#pragma unroll
        for (int e = 0; e < R; e++) all.sum += pair[e] ? value[e] : 0;
    } else if (PASS == KL_SUMS) {
        double peak = all.peak;
#pragma unroll
        for (int e = 0; e < R; e++)
            if (pair[e] && value[e] > peak && !a.broad) peak = value[e];
        if (!a.broad) all.sum *= exp(all.peak - peak);
        all.peak = peak;
#pragma unroll
        for (int e = 0; e < R; e++) {
            double term = a.broad ? expm1(value[e]) : exp(value[e] - peak);
            all.sum += pair[e] ? term : 0;
        }
        return;
    } else {
#pragma unroll
        for (int e = 0; e < R; e++)
            derivative[e] *=
                expf((float)(value[e] - kept.row)) + expf((float)(value[e] - kept.column[e]));
    }
    if (!a.gradient) return;
    float row_weight = 0;
#pragma unroll
    for (int e = 0; e < R; e++) {
        int column = zonal__small_dealt_column(tile_rows, p.warp, p.lane, e);
        float weight = pair[e] ? (float)derivative[e] : 0;
        weights[column * (tile_rows + 4) + local_row] = weight;
        row_weight += weight;
    }
    /* The four lanes of a row differ in the bits 0 and 2; it is theirs in every tile. */
    row_weight += __shfl_xor_sync(~0u, row_weight, 1);
    row_weight += __shfl_xor_sync(~0u, row_weight, 4);
    if (zonal__small_lane_column(p.lane) != 0) return;
    float *sum = m.row_weights + local_row * (8 / R) + p.warp % (8 / R);
    *sum = tile == 0 ? row_weight : *sum + row_weight;
}

/* ---- alignment ------------------------------------------------------------------------------ */

/* 1/|z| of a row by a warp, in double. */
template <typename E>
__device__ __forceinline__ double inverse_norm(const small_args &a, const E *z, int lane) {
    double sum = 0;
    for (int q = lane; q < a.shape.row_quads; q += 32) {
        float4 t = load_quad(a, z, q);
        sum = add_dot(sum, t, t);
    }
    sum = zonal__warp_sum(sum);
    return a.unit_rows ? 1 : rsqrt(sum);
}

struct double4_sum {
    double x, y, z, w;
};

__device__ __forceinline__ void add_scaled(double4_sum &sum, double by, float4 z) {
    sum.x += by * z.x;
    sum.y += by * z.y;
    sum.z += by * z.z;
    sum.w += by * z.w;
}

/* One element: adds |x - mu|^2 to sum and returns the alignment's gradient without its factor; mu
 * and all are the sums over the global and over all views. */
__device__ __forceinline__ double align(double x, double mu, double all, double views,
                                        double over_globals, bool pulled, double &sum) {
    mu *= over_globals;
    double away = x - mu;
    sum = fma(away, away, sum);
    return pulled ? away - (all - views * mu) * over_globals : away;
}

__device__ __forceinline__ double4_sum align(const double4_sum &x, const double4_sum &mu,
                                             const double4_sum &all, double views,
                                             double over_globals, bool pulled, double &sum) {
    return {align(x.x, mu.x, all.x, views, over_globals, pulled, sum),
            align(x.y, mu.y, all.y, views, over_globals, pulled, sum),
            align(x.z, mu.z, all.z, views, over_globals, pulled, sum),
            align(x.w, mu.w, all.w, views, over_globals, pulled, sum)};
}

__device__ __forceinline__ void store_pull(const small_args &a, long long row, int q,
                                           const double4_sum &g) {
    reinterpret_cast<float4 *>(a.pulls)[row * a.shape.row_quads + q] =
        make_float4((float)(a.align_weight * g.x), (float)(a.align_weight * g.y),
                    (float)(a.align_weight * g.z), (float)(a.align_weight * g.w));
}

/* Two views v, v + 1 of a sample, in a warp's registers. */
template <typename E, int U>
__device__ __forceinline__ void fetch_views(const small_args &a, const small_place &p, int v, int n,
                                            float4 (&z)[2][U]) {
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int u = 0; u < U; u++) {
            int q = p.lane + 32 * u;
            z[k][u] = make_float4(0, 0, 0, 0);
            if (v + k < a.shape.views && n < a.shape.rows && q < a.shape.row_quads)
                z[k][u] = load_quad(a, row_of<E>(a, (v + k) * (long long)a.shape.rows + n), q);
        }
}

/* The rows this block finishes against their other views, in double: views that agree to many
 * digits leave little else of a float. Returns this warp's sum of |x - mu|^2 and, with "keep",
 * leaves the weighted gradient in pulls, to be read by the lanes that wrote it. "ahead" holds the
 * first two views of the warp's first row, loaded long before. */
template <typename E, int U>
__device__ __forceinline__ double align_rows(const small_args &a, const small_place &p, bool keep,
                                             float4 (&ahead)[2][U]) {
    const zonal__small_shape &shape = a.shape;
    double views = (double)shape.views, over_globals = 1.0 / a.global_views, sum = 0;
    /* Where all views are global their differences from mu add up to 0. */
    bool pulled = p.view < a.global_views && a.global_views < shape.views;
    for (int own = p.warp; own < shape.owned; own += WARPS) {
        int n = p.first_row + p.own_row + own;
        if (n >= shape.rows) break;
        double4_sum x[U] = {}, mu[U] = {}, all[U] = {};
        for (int v = 0; v < shape.views; v += 2) {
            if (v > 0 || own > p.warp) fetch_views<E, U>(a, p, v, n, ahead);
            double square[2] = {0, 0};
#pragma unroll
            for (int k = 0; k < 2; k++)
#pragma unroll
                for (int u = 0; u < U; u++)
                    square[k] = add_dot(square[k], ahead[k][u], ahead[k][u]);
#pragma unroll
            for (int k = 0; k < 2; k++) square[k] = zonal__warp_sum(square[k]);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                if (v + k >= shape.views) break;
                double by = a.unit_rows ? 1 : rsqrt(square[k]);
#pragma unroll
                for (int u = 0; u < U; u++) {
                    if (v + k == p.view) add_scaled(x[u], by, ahead[k][u]);
                    if (v + k < a.global_views) add_scaled(mu[u], by, ahead[k][u]);
                    if (pulled) add_scaled(all[u], by, ahead[k][u]);
                }
            }
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            int q = p.lane + 32 * u;
            double4_sum g = align(x[u], mu[u], all[u], views, over_globals, pulled, sum);
            if (keep && q < shape.row_quads) store_pull(a, p.view_row + n, q, g);
        }
    }
    return zonal__warp_sum(sum);
}

/* The same for long rows: norms first, then element by element. */
template <typename E>
__device__ double align_long_rows(const small_args &a, const small_place &p, const small_memory &m,
                                  bool keep) {
    const zonal__small_shape &shape = a.shape;
    double *norms = m.norms + p.warp * ZONAL__SMALL_NORMS, sum = 0;
    double views = (double)shape.views, over_globals = 1.0 / a.global_views;
    bool pulled = p.view < a.global_views && a.global_views < shape.views;
    for (int own = p.warp; own < shape.owned; own += WARPS) {
        int n = p.first_row + p.own_row + own;
        if (n >= shape.rows) break;
        __syncwarp();
        for (int v = 0; v < shape.views && v < ZONAL__SMALL_NORMS; v++) {
            double inverse = inverse_norm(a, row_of<E>(a, v * (long long)shape.rows + n), p.lane);
            if (p.lane == 0) norms[v] = inverse;
        }
        __syncwarp();
        for (int q0 = 0; q0 < shape.row_quads; q0 += 32) {
            int q = q0 + p.lane;
            bool here = q < shape.row_quads;
            double4_sum x = {}, mu = {}, all = {};
            for (int v = 0; v < shape.views; v++) {
                const E *z = row_of<E>(a, v * (long long)shape.rows + n);
                double by = v < ZONAL__SMALL_NORMS ? norms[v] : inverse_norm(a, z, p.lane);
                float4 t = here ? load_quad(a, z, q) : make_float4(0, 0, 0, 0);
                if (v == p.view) add_scaled(x, by, t);
                if (v < a.global_views) add_scaled(mu, by, t);
                if (pulled) add_scaled(all, by, t);
            }
            double4_sum g = align(x, mu, all, views, over_globals, pulled, sum);
            if (keep && here) store_pull(a, p.view_row + n, q, g);
        }
    }
    return zonal__warp_sum(sum);
}

} // namespace

#endif
