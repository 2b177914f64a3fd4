/*
 * The kernel of small batches: value and gradient of raw rows [views][rows][dim] in one launch (KL:
 * two), normalisation, alignment and weighting included. launch.h says who computes what.
 *
 *   1. load      (small_rows.cuh) a block reads its rows and a tile of columns, each row by a
 *                warp, straight into registers, all in flight at once; the norms are taken there,
 *                and centred unit rows go to shared memory.
 *   2. products  (small_pairs.cuh) cosines of the tile in fp32: each warp takes every eighth
 *                float4 of all the tile's pairs (4 x 8 of them per lane, so that shared memory
 *                keeps up), and the warps' shares are added in a fixed order.
 *   3. weights   psi in double from the cosine, summed in double, and psi' as weights; KL's first
 *                launch sums log phi instead and keeps the cosines for its second.
 *   4. gather    sum over j of w_ij x_j while the columns are still there.
 *   5. finish    (here) the blocks of a cluster add their shares of the gradient through
 *                distributed shared memory, each for rows of its own, and make it tangent. One
 *                warp meanwhile leaves the block's sums in memory; the last block to do so adds
 *                all of them in order.
 *
 * Rows are centred, y = x - m with m the mean of the first rows a block has in hand, so that near
 * collapse, where rows differ in their last digits, their differences are exact:
 *
 *     x_i.x_j = y_i.y_j + o_i + o_j,     o_i = |m|^2/2 + m.y_i
 *     sum_j w_ij x_j = sum_j w_ij y_j + (sum_j w_ij) m
 *     m = (1 - a) m - a y_i + a x_i,     a = m.x_i
 *
 * where the projection removes the last part, a multiple of x_i.
 *
 * Nothing depends on the order in which blocks run: results are the same bit for bit.
 */
#ifndef ZONAL_BACKEND_CUDA_SMALL_KERNEL_CUH
#define ZONAL_BACKEND_CUDA_SMALL_KERNEL_CUH

#include "backend/cuda/small_pairs.cuh"

namespace {

/* ---- finish --------------------------------------------------------------------------------- */

/* (g - (g.x) x)/|z|, stored. */
template <typename E>
__device__ __forceinline__ void store_tangent(const small_args &a, long long row, int q, float4 g,
                                              float4 x, float radial, float2 scale) {
    float4 tangent =
        make_float4(g.x - radial * x.x, g.y - radial * x.y, g.z - radial * x.z, g.w - radial * x.w);
    store_quad(a, static_cast<E *>(a.gradient) + row * a.shape.dim, q, times(tangent, scale));
}

/* Rows in shared memory: a warp each. */
template <typename E, int U>
__device__ __forceinline__ void finish_rows(const small_args &a, const small_place &p,
                                            const small_memory &m, cg::cluster_group &cluster) {
    const zonal__small_shape &shape = a.shape;
    const float4 *pulls = reinterpret_cast<const float4 *>(a.pulls);
    int quads = shape.row_quads;
    for (int own = p.warp; own < shape.owned; own += WARPS) {
        int local = p.own_row + own;
        long long row = p.view_row + p.first_row + local;
        if (p.first_row + local >= shape.rows) break;
        const float4 *rows = reinterpret_cast<const float4 *>(m.rows + local * shape.pitch);
        float4 g[U], x[U];
        double radial = 0, square = 0;
#pragma unroll
        for (int u = 0; u < U; u++) {
            int q = p.lane + 32 * u;
            g[u] = x[u] = make_float4(0, 0, 0, 0);
            if (q >= quads) continue;
            x[u] = rows[q];
            add_product(x[u], 1, m.centre[q]);
            g[u] = collect_gradient(a, m, cluster, quads, local, q);
            if (a.objective) add_product(g[u], 1, pulls[row * quads + q]);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            radial = add_dot(radial, g[u], x[u]);
            square = add_dot(square, x[u], x[u]);
        }
        radial = zonal__warp_sum(radial) / zonal__warp_sum(square);
#pragma unroll
        for (int u = 0; u < U; u++)
            if (p.lane + 32 * u < quads)
                store_tangent<E>(a, row, p.lane + 32 * u, g[u], x[u], (float)radial,
                                 m.scales[local]);
    }
}

/* Long rows: adds a chunk of the gradient to pulls, by the lanes that hold it there, ... */
__device__ __forceinline__ void finish_chunk(const small_args &a, const small_place &p,
                                             const small_memory &m, cg::cluster_group &cluster,
                                             int chunk) {
    const zonal__small_shape &shape = a.shape;
    for (int own = p.warp; own < shape.owned; own += WARPS) {
        int local = p.own_row + own;
        if (p.first_row + local >= shape.rows) break;
        float4 *pulls = reinterpret_cast<float4 *>(a.pulls) +
                        (p.view_row + p.first_row + local) * shape.row_quads + chunk * (CHUNK / 4);
        for (int q = p.lane; q < CHUNK / 4; q += 32) {
            float4 g = collect_gradient(a, m, cluster, CHUNK / 4, local, q);
            if (chunk * (CHUNK / 4) + q >= shape.row_quads) continue;
            if (a.objective) add_product(g, 1, pulls[q]);
            pulls[q] = g;
        }
    }
}

/* ... and when all are there projects it. */
template <typename E>
__device__ __forceinline__ void finish_long_rows(const small_args &a, const small_place &p,
                                                 const small_memory &m) {
    const zonal__small_shape &shape = a.shape;
    for (int own = p.warp; own < shape.owned; own += WARPS) {
        int local = p.own_row + own;
        long long row = p.view_row + p.first_row + local;
        if (p.first_row + local >= shape.rows) break;
        const float4 *pulls = reinterpret_cast<const float4 *>(a.pulls) + row * shape.row_quads;
        const E *z = row_of<E>(a, row);
        float2 scale = m.scales[local];
        double radial = 0, square = 0;
        for (int q = p.lane; q < shape.row_quads; q += 32) {
            float4 x = times(load_quad(a, z, q), scale);
            radial = add_dot(radial, pulls[q], x);
            square = add_dot(square, x, x);
        }
        radial = zonal__warp_sum(radial) / zonal__warp_sum(square);
        for (int q = p.lane; q < shape.row_quads; q += 32)
            store_tangent<E>(a, row, q, pulls[q], times(load_quad(a, z, q), scale), (float)radial,
                             scale);
    }
}

/* log(S_i/n) of the rows this block finishes, a warp each, from the statistics of the cluster;
 * returns their sum over the warp's rows. */
template <int R>
__device__ __forceinline__ double finish_log_sums(const small_args &a, const small_place &p,
                                                  const small_memory &m,
                                                  cg::cluster_group &cluster) {
    const zonal__small_shape &shape = a.shape;
    enum { GROUPS = 8 / R }; /* threads that know of a row, per block */
    double n = a.keep_diagonal ? shape.rows : shape.rows - 1, total = 0;
    for (int own = p.warp; own < shape.owned; own += WARPS) {
        int local = p.own_row + own;
        if (p.first_row + local >= shape.rows) break;
        double2 part = make_double2(0, -1e300);
        if (p.lane < GROUPS * shape.cluster)
            part = *cluster.map_shared_rank(m.statistics + local * GROUPS + p.lane % GROUPS,
                                            p.lane / GROUPS);
        double log_density;
        if (a.broad) { /* the diagonal adds expm1(0) = 0 */
            log_density = log1p(zonal__warp_sum(part.x) / n);
        } else {
            double peak = part.y;
            for (int offset = 16; offset > 0; offset /= 2)
                peak = fmax(peak, __shfl_xor_sync(~0u, peak, offset));
            if (a.keep_diagonal && peak < 0) peak = 0; /* log phi(1) = 0 */
            double sum = zonal__warp_sum(part.x * exp(part.y - peak));
            if (a.keep_diagonal) sum += exp(-peak);
            log_density = peak + log(sum / n);
        }
        if (p.lane == 0) a.log_sums[p.view_row + p.first_row + local] = log_density + log(n);
        total += log_density;
    }
    return total;
}

/* One warp: leaves the block's sums in memory; the last block to come adds all of them, in order,
 * and writes the value. Its ticket turns the counter back to 0 for the next run. */
__device__ __forceinline__ void finish_value(const small_args &a, int lane, double pairs,
                                             double aligned) {
    unsigned blocks = gridDim.x, ticket = 0;
    if (lane == 0) {
        a.sums[blockIdx.x] = make_double2(pairs, aligned);
        __threadfence();
        ticket = atomicInc(a.ticket, blocks - 1);
    }
    ticket = __shfl_sync(~0u, ticket, 0);
    if (ticket != blocks - 1) return;
    __threadfence();
    pairs = aligned = 0;
#pragma unroll 4
    for (unsigned k = lane; k < blocks; k += 32) {
        double2 some = __ldcg(a.sums + k);
        pairs += some.x;
        aligned += some.y;
    }
    pairs = zonal__warp_sum(pairs);
    aligned = zonal__warp_sum(aligned);
    if (lane != 0) return;
    double discrepancy = a.offset + a.factor * (pairs * a.pair_mean);
    if (!a.objective) {
        a.value[0] = discrepancy;
        return;
    }
    double invariance = aligned * a.align_mean; /* the fields of zonal_objective_parts */
    a.value[0] = (1 - a.lambda) * invariance + a.lambda * a.gain * discrepancy;
    a.value[1] = invariance;
    a.value[2] = discrepancy;
    a.value[3] = a.gain;
    a.value[4] = a.threshold;
}

/* Every warp leaves its sums; the last warp, which has the fewest rows to finish, carries them out.
 * Between the two all threads must have met. */
__device__ __forceinline__ void leave_sums(const small_place &p, const small_memory &m,
                                           double pairs, double aligned) {
    pairs = zonal__warp_sum(pairs);
    if (p.lane != 0) return;
    m.sums[p.warp] = pairs;
    m.sums[WARPS + p.warp] = aligned;
}

__device__ __forceinline__ void carry_sums(const small_args &a, const small_place &p,
                                           const small_memory &m) {
    if (p.warp != WARPS - 1) return;
    double pairs = 0, aligned = 0;
    for (int w = 0; w < WARPS; w++) {
        pairs += m.sums[w];
        aligned += m.sums[WARPS + w];
    }
    finish_value(a, p.lane, pairs, aligned);
}

/* KL's first launch, from the threads' sums to the value. */
template <int R>
__device__ __forceinline__ void finish_kl_sums(const small_args &a, const small_place &p,
                                               const small_memory &m, cg::cluster_group &cluster,
                                               small_sum all, double aligned) {
    enum { GROUPS = 8 / R };
    int row = zonal__small_dealt_row(8 * R, p.warp, p.lane), group = p.warp % GROUPS;
    /* The four lanes of a row differ in the bits 0 and 2. */
    double peak = fmax(all.peak, __shfl_xor_sync(~0u, all.peak, 1));
    peak = fmax(peak, __shfl_xor_sync(~0u, peak, 4));
    if (!a.broad) all.sum *= exp(all.peak - peak);
    all.sum += __shfl_xor_sync(~0u, all.sum, 1);
    all.sum += __shfl_xor_sync(~0u, all.sum, 4);
    if (zonal__small_lane_column(p.lane) == 0)
        m.statistics[row * GROUPS + group] = make_double2(all.sum, peak);
    cluster.sync();
    double logs = finish_log_sums<R>(a, p, m, cluster);
    cluster.barrier_arrive();
    leave_sums(p, m, p.lane == 0 ? logs : 0, aligned);
    __syncthreads();
    carry_sums(a, p, m);
    cluster.barrier_wait();
}

template <int R>
__device__ __forceinline__ small_pack<R> *kept_cosines(const small_args &a, int tile) {
    return reinterpret_cast<small_pack<R> *>(a.cosines) +
           ((long long)blockIdx.x * a.shape.tiles_per_block + tile) * ZONAL__SMALL_THREADS +
           (int)threadIdx.x;
}

template <int R>
__device__ __forceinline__ void keep_cosines(const small_args &a, int tile, const float (&c)[R]) {
    small_pack<R> some;
#pragma unroll
    for (int e = 0; e < R; e++) some.at[e] = c[e];
    *kept_cosines<R>(a, tile) = some;
}

template <int R>
__device__ __forceinline__ void recall(const small_args &a, const small_place &p, int tile,
                                       small_kept<R> &kept) {
    const double *log_sums = a.log_sums + p.view_row;
    int row = p.first_row + zonal__small_dealt_row(8 * R, p.warp, p.lane);
    int first_column = (p.rank + tile * a.shape.cluster) * COLUMNS;
    small_pack<R> some = *kept_cosines<R>(a, tile);
    kept.row = row < a.shape.rows ? log_sums[row] : 0;
#pragma unroll
    for (int e = 0; e < R; e++) {
        int column = first_column + zonal__small_dealt_column(8 * R, p.warp, p.lane, e);
        kept.column[e] = column < a.shape.rows ? log_sums[column] : 0;
        kept.cosine[e] = some.at[e];
    }
}

/* ---- the kernels ---------------------------------------------------------------------------- */

template <int R> __device__ __forceinline__ void clear(float (&dot)[R][8]) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int s = 0; s < 8; s++) dot[r][s] = 0;
}

template <int R, int T> __device__ __forceinline__ void clear(float4 (&g)[T][2 * R]) {
#pragma unroll
    for (int t = 0; t < T; t++)
#pragma unroll
        for (int r = 0; r < 2 * R; r++) g[t][r] = make_float4(0, 0, 0, 0);
}

/* Rows of up to 256 T elements. R: rows of a tile by 8. PER: blocks on a multiprocessor; alone, a
 * block has registers to spare and runs faster. */
template <typename E, int R, int T, int PER, int PASS>
__global__ void __launch_bounds__(ZONAL__SMALL_THREADS, PER)
    small_short(const __grid_constant__ small_args a) {
    enum { TILE_ROWS = 8 * R, U = 2 * T, BATCH = T == 1 && PER == 1 ? R + 4 : 4 };
    cg::cluster_group cluster = cg::this_cluster();
    const small_place p = find_place(a.shape);
    const small_memory m = find_memory(a.shape);
    int quads = a.shape.row_quads;
    small_sum all = {0, -1e300};
    small_kept<R> kept;
    small_segment rows = {TILE_ROWS, p.first_row, 0, 0};
    small_segment columns = {COLUMNS, p.rank * COLUMNS, TILE_ROWS, 0};
    if (PASS == KL_GRADIENT) recall<R>(a, p, 0, kept);
    /* Asked for first, where registers allow, so that nothing waits for them. */
    float4 views[2][U];
    const bool align = a.objective && p.warp < a.shape.owned;
    if (PER == 1 && align) fetch_views<E, U>(a, p, 0, p.first_row + p.own_row + p.warp, views);
    load_rows<E, U, BATCH, true>(a, p, m, rows, columns);
    if (PER == 2 && align) fetch_views<E, U>(a, p, 0, p.first_row + p.own_row + p.warp, views);
    double aligned = 0;
    if (a.objective) aligned = align_rows<E, U>(a, p, a.gradient && PASS != KL_SUMS, views);
    float4 g[T][2 * R];
    clear<R, T>(g);
    for (int tile = 0; tile < p.tiles; tile++) {
        __syncthreads(); /* the columns have come */
        if (PASS == KL_GRADIENT) {
            weigh<R, PASS>(a, p, m, tile, kept.cosine, kept, m.weights, all);
        } else {
            float dot[R][8], c[R];
            clear<R>(dot);
            add_products<R, PER == 1 ? 2 : 1>(a, p, m, quads, dot);
            deal_products<R>(p, m, TILE_ROWS, dot, c);
            if (PASS == KL_SUMS && a.gradient) keep_cosines<R>(a, tile, c);
            weigh<R, PASS>(a, p, m, tile, c, kept, m.weights, all);
        }
        if (PASS != KL_SUMS && a.gradient) {
            __syncthreads(); /* the weights are there */
            add_gather<R, T>(a, p, m, m.weights, quads, g);
        }
        if (tile + 1 < p.tiles) {
            __syncthreads(); /* the columns are done with */
            columns.row += a.shape.cluster * COLUMNS;
            if (PASS == KL_GRADIENT) recall<R>(a, p, tile + 1, kept);
            load_rows<E, U, 4, false>(a, p, m, {0, 0, 0, 0}, columns);
        }
    }
    if (PASS == KL_SUMS) {
        finish_kl_sums<R>(a, p, m, cluster, all, aligned);
        return;
    }
    if (PASS == PAIRS) leave_sums(p, m, all.sum, aligned);
    if (!a.gradient) {
        __syncthreads();
        carry_sums(a, p, m);
        return;
    }
    /* The shares of the products, whose place this takes, were read before the last barrier. */
    leave_gradient<R, T>(a, p, m, 0, quads, g);
    __syncthreads(); /* the cluster's would do, but racecheck does not know that */
    cluster.sync();
    finish_rows<E, U>(a, p, m, cluster);
    cluster.barrier_arrive();
    if (PASS == PAIRS) carry_sums(a, p, m);
    cluster.barrier_wait(); /* the others may still read from this block */
}

/* Longer rows, by chunks: a first sweep for the cosines, whose weights stay, and a second for the
 * gradient. */
template <typename E, int PASS>
__global__ void __launch_bounds__(ZONAL__SMALL_THREADS, 1)
    small_long(const __grid_constant__ small_args a) {
    enum { R = 4, TILE_ROWS = 8 * R, QUADS = CHUNK / 4, KEPT = COLUMNS * (TILE_ROWS + 4) };
    cg::cluster_group cluster = cg::this_cluster();
    const small_place p = find_place(a.shape);
    const small_memory m = find_memory(a.shape);
    const int stride = a.shape.cluster * COLUMNS, first = p.rank * COLUMNS;
    small_sum all = {0, -1e300};
    for (int tile = 0; tile < p.tiles; tile++)
        load_scales<E>(a, p, m, {COLUMNS, first + tile * stride, 0, TILE_ROWS + tile * COLUMNS});
    load_scales<E>(a, p, m, {TILE_ROWS, p.first_row, 0, 0});
    __syncthreads();
    find_long_centre<E>(a, p, m, {TILE_ROWS, p.first_row, 0, 0});
    __syncthreads();
    for (int tile = 0; tile < p.tiles; tile++)
        load_offsets<E>(a, p, m, {COLUMNS, first + tile * stride, 0, TILE_ROWS + tile * COLUMNS});
    load_offsets<E>(a, p, m, {TILE_ROWS, p.first_row, 0, 0});
    double aligned = 0;
    if (a.objective) aligned = align_long_rows<E>(a, p, m, a.gradient && PASS != KL_SUMS);
    for (int tile = 0; tile < p.tiles; tile++) {
        small_kept<R> kept;
        float c[R];
        if (PASS == KL_GRADIENT) {
            recall<R>(a, p, tile, kept);
            weigh<R, PASS>(a, p, m, tile, kept.cosine, kept, m.weights + tile * KEPT, all);
        } else {
            float dot[R][8];
            clear<R>(dot);
            for (int chunk = 0; chunk < a.shape.chunks; chunk++) {
                __syncthreads();
                load_chunk<E>(
                    a, p, m, chunk, {TILE_ROWS, p.first_row, 0, 0},
                    {COLUMNS, first + tile * stride, TILE_ROWS, TILE_ROWS + tile * COLUMNS});
                __syncthreads();
                add_products<R, 2>(a, p, m, QUADS, dot);
            }
            deal_products<R>(p, m, TILE_ROWS + tile * COLUMNS, dot, c);
            if (PASS == KL_SUMS && a.gradient) keep_cosines<R>(a, tile, c);
            weigh<R, PASS>(a, p, m, tile, c, kept, m.weights + tile * KEPT, all);
        }
    }
    if (PASS == KL_SUMS) {
        finish_kl_sums<R>(a, p, m, cluster, all, aligned);
        return;
    }
    if (PASS == PAIRS) leave_sums(p, m, all.sum, aligned);
    __syncthreads();
    if (a.gradient) {
        for (int chunk = 0; chunk < a.shape.chunks; chunk++) {
            float4 g[1][2 * R];
            clear<R, 1>(g);
            for (int tile = 0; tile < p.tiles; tile++) {
                __syncthreads();
                load_chunk<E>(
                    a, p, m, chunk, {tile == 0 ? TILE_ROWS : 0, p.first_row, 0, 0},
                    {COLUMNS, first + tile * stride, TILE_ROWS, TILE_ROWS + tile * COLUMNS});
                __syncthreads();
                add_gather<R, 1>(a, p, m, m.weights + tile * KEPT, QUADS, g);
            }
            leave_gradient<R, 1>(a, p, m, chunk * QUADS, QUADS, g);
            cluster.sync();
            finish_chunk(a, p, m, cluster, chunk);
            cluster.sync();
        }
        finish_long_rows<E>(a, p, m);
    }
    if (PASS == PAIRS) carry_sums(a, p, m);
}

} // namespace

#endif
