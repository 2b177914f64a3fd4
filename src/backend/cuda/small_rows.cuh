/*
 * What the kernels of small batches are told, where their threads stand, and how rows come into
 * shared memory: normalised and centred. See small_kernel.cuh for the whole.
 */
#ifndef ZONAL_BACKEND_CUDA_SMALL_ROWS_CUH
#define ZONAL_BACKEND_CUDA_SMALL_ROWS_CUH

#include "backend/cuda/common.cuh"
#include "backend/cuda/fit.cuh"
#include "backend/cuda/launch.h"

namespace {

enum { WARPS = ZONAL__SMALL_WARPS, COLUMNS = ZONAL__SMALL_COLUMNS, CHUNK = ZONAL__SMALL_CHUNK };

/* MMD and KSD do all in one launch; KL's gradient needs the sums of all rows first. */
enum small_pass { PAIRS, KL_SUMS, KL_GRADIENT };

struct small_args {
    zonal__small_shape shape;
    zonal__device_fit fit;
    const void *x;
    void *gradient; /* NULL: value only */
    double *value;
    unsigned long long *bad_row;
    float *cosines;   /* KL: as the threads of the first launch had them */
    double *log_sums; /* KL: log S_i, [views][rows] */
    float *pulls;     /* [views][rows][4 row_quads] */
    double2 *sums;    /* [blocks]: over the pairs (KL: the rows), and of the alignment */
    unsigned *ticket;
    int vectors; /* rows begin where four elements can be loaded at once */
    int unit_rows, objective, global_views, keep_diagonal, broad;
    float pair_weight, align_weight; /* of the gradients' parts */
    double pair_mean, align_mean;    /* sums times these are means */
    double offset, factor, lambda, gain, threshold;
};

/* Where a thread stands. */
struct small_place {
    int lane, warp, rank, tiles;
    long long view, view_row; /* the view, and the number of its first row */
    int first_row;            /* of the cluster's tile, within the view */
    int own_row;              /* the first of the rows this block finishes, within the tile */
};

/* Shared memory: see launch.h. */
struct small_memory {
    float *rows, *columns, *partial, *weights;
    float *row_weights; /* [tile_rows][groups]: sums of weights, each by a group of four lanes */
    float4 *centre;     /* m */
    float *offsets;     /* o of rows, then of columns */
    float *half_square; /* |m|^2/2 */
    float2 *scales;     /* of rows, then of columns: x = z * (a power of two) * (an inverse norm) */
    double *norms, *sums;
    double2 *statistics;
};

__device__ __forceinline__ char *shared_memory() {
    extern __shared__ float4 zonal__small_shared[];
    return reinterpret_cast<char *>(zonal__small_shared);
}

__device__ __forceinline__ small_memory find_memory(const zonal__small_shape &shape) {
    char *base = shared_memory();
    small_memory m;
    m.rows = reinterpret_cast<float *>(base + shape.at_rows);
    m.columns = m.rows + shape.tile_rows * shape.pitch;
    m.partial = reinterpret_cast<float *>(base + shape.at_partial);
    m.weights = reinterpret_cast<float *>(base + shape.at_weights);
    m.row_weights = reinterpret_cast<float *>(base + shape.at_row_weights);
    m.centre = reinterpret_cast<float4 *>(base + shape.at_centre);
    m.half_square = reinterpret_cast<float *>(base + shape.at_offsets);
    m.offsets = m.half_square + 1;
    m.scales = reinterpret_cast<float2 *>(base + shape.at_scales);
    m.norms = reinterpret_cast<double *>(base + shape.at_norms);
    m.sums = reinterpret_cast<double *>(base + shape.at_sums);
    m.statistics = reinterpret_cast<double2 *>(base + shape.at_statistics);
    return m;
}

__device__ __forceinline__ small_place find_place(const zonal__small_shape &shape) {
    small_place p;
    int cluster = (int)blockIdx.x / shape.cluster;
    p.lane = (int)threadIdx.x % 32;
    p.warp = (int)threadIdx.x / 32;
    p.rank = (int)blockIdx.x % shape.cluster;
    p.tiles = zonal__small_block_tiles(&shape, p.rank);
    p.view = cluster / shape.row_tiles;
    p.view_row = p.view * shape.rows;
    p.first_row = cluster % shape.row_tiles * shape.tile_rows;
    p.own_row = p.rank * shape.owned;
    return p;
}

/* ---- four elements at a time ---------------------------------------------------------------- */

__device__ __forceinline__ float4 load_vector(const float *row, int q) {
    return __ldg(reinterpret_cast<const float4 *>(row) + q);
}

__device__ __forceinline__ float4 load_vector(const __nv_bfloat16 *row, int q) {
    uint2 z = __ldg(reinterpret_cast<const uint2 *>(row) + q);
    return make_float4(__uint_as_float(z.x << 16), __uint_as_float(z.x & 0xffff0000u),
                       __uint_as_float(z.y << 16), __uint_as_float(z.y & 0xffff0000u));
}

__device__ __forceinline__ float4 load_vector(const __half *row, int q) {
    uint2 z = __ldg(reinterpret_cast<const uint2 *>(row) + q);
    return make_float4(__half2float(__ushort_as_half((unsigned short)(z.x & 0xffffu))),
                       __half2float(__ushort_as_half((unsigned short)(z.x >> 16))),
                       __half2float(__ushort_as_half((unsigned short)(z.y & 0xffffu))),
                       __half2float(__ushort_as_half((unsigned short)(z.y >> 16))));
}

template <typename E>
__device__ __forceinline__ float4 load_elements(const E *row, int q, int dim) {
    float4 z = make_float4(0, 0, 0, 0);
    int k = 4 * q;
    if (k < dim) z.x = zonal__load(row + k);
    if (k + 1 < dim) z.y = zonal__load(row + k + 1);
    if (k + 2 < dim) z.z = zonal__load(row + k + 2);
    if (k + 3 < dim) z.w = zonal__load(row + k + 3);
    return z;
}

template <typename E>
__device__ __forceinline__ float4 load_quad(const small_args &a, const E *row, int q) {
    return a.vectors ? load_vector(row, q) : load_elements(row, q, a.shape.dim);
}

__device__ __forceinline__ void store_vector(float *row, int q, float4 g) {
    reinterpret_cast<float4 *>(row)[q] = g;
}

__device__ __forceinline__ void store_vector(__nv_bfloat16 *row, int q, float4 g) {
    __nv_bfloat162 *to = reinterpret_cast<__nv_bfloat162 *>(row) + 2 * q;
    to[0] = __floats2bfloat162_rn(g.x, g.y);
    to[1] = __floats2bfloat162_rn(g.z, g.w);
}

__device__ __forceinline__ void store_vector(__half *row, int q, float4 g) {
    __half2 *to = reinterpret_cast<__half2 *>(row) + 2 * q;
    to[0] = __floats2half2_rn(g.x, g.y);
    to[1] = __floats2half2_rn(g.z, g.w);
}

template <typename E>
__device__ __forceinline__ void store_quad(const small_args &a, E *row, int q, float4 g) {
    int k = 4 * q, dim = a.shape.dim;
    if (a.vectors) {
        store_vector(row, q, g);
        return;
    }
    if (k < dim) zonal__store(row + k, g.x);
    if (k + 1 < dim) zonal__store(row + k + 1, g.y);
    if (k + 2 < dim) zonal__store(row + k + 2, g.z);
    if (k + 3 < dim) zonal__store(row + k + 3, g.w);
}

__device__ __forceinline__ float4 times(float4 z, float2 scale) {
    return make_float4(z.x * scale.x * scale.y, z.y * scale.x * scale.y, z.z * scale.x * scale.y,
                       z.w * scale.x * scale.y);
}

/* z * scale - centre with one rounding where the scale's power of two is 1. */
__device__ __forceinline__ float4 centred(float4 z, float2 scale, float4 centre) {
    return make_float4(
        fmaf(z.x * scale.x, scale.y, -centre.x), fmaf(z.y * scale.x, scale.y, -centre.y),
        fmaf(z.z * scale.x, scale.y, -centre.z), fmaf(z.w * scale.x, scale.y, -centre.w));
}

__device__ __forceinline__ void add_product(float4 &sum, float w, float4 x) {
    sum.x = fmaf(w, x.x, sum.x);
    sum.y = fmaf(w, x.y, sum.y);
    sum.z = fmaf(w, x.z, sum.z);
    sum.w = fmaf(w, x.w, sum.w);
}

__device__ __forceinline__ float add_dot(float sum, float4 x, float4 y) {
    return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
}

__device__ __forceinline__ double add_dot(double sum, float4 x, float4 y) {
    return fma((double)x.w, (double)y.w,
               fma((double)x.z, (double)y.z,
                   fma((double)x.y, (double)y.y, fma((double)x.x, (double)y.x, sum))));
}

template <typename E>
__device__ __forceinline__ const E *row_of(const small_args &a, long long row) {
    return static_cast<const E *>(a.x) + row * a.shape.dim;
}

/* ---- load ----------------------------------------------------------------------------------- */

__device__ __forceinline__ bool is_usual(float sum) {
    return sum > 0x1p-60f && sum < 0x1p100f;
}

/* A row's scale from the sum of its squares. Sums near the ends of fp32's range are taken "again",
 * of elements times a power of two that brings any row with a direction into its middle. A row that
 * cannot be used is reported and becomes NaN, as everything that sees it. */
template <typename Again>
__device__ __forceinline__ float2 row_scale(const small_args &a, long long row, int lane, float sum,
                                            Again again) {
    float pre = 1;
    if (!is_usual(sum)) {
        pre = sum < 1 ? 0x1p90f : 0x1p-90f;
        sum = again(pre);
    }
    float norm = sqrtf(sum);
    int trouble = zonal__row_trouble(norm, a.unit_rows && pre == 1);
    if (trouble < 0 && a.unit_rows && pre != 1) trouble = ZONAL__BAD_NOT_UNIT;
    if (trouble >= 0) {
        if (lane == 0) zonal__report_row(a.bad_row, row, trouble);
        return make_float2(1, NAN);
    }
    return a.unit_rows ? make_float2(1, 1) : make_float2(pre, 1 / norm);
}

/* Rows row, row + 1, ... of the view, to be kept from "slot" on; those beyond the batch are zero.
 */
struct small_segment {
    int count, row, slot, scale;
};

__device__ __forceinline__ int segment_row(const small_args &a, const small_segment *s, int k) {
    int row = k < s[0].count ? s[0].row + k : s[1].row + k - s[0].count;
    return k < s[0].count + s[1].count && row < a.shape.rows ? row : -1;
}

/* Elements [4 first, ...) of BATCH rows of a warp, U float4 per lane, all loads in flight. */
template <typename E, int U, int BATCH>
__device__ __forceinline__ void fetch_rows(const small_args &a, const small_place &p,
                                           const small_segment *s, int k0, int first,
                                           float4 (&z)[BATCH][U]) {
    int quads = a.shape.row_quads;
    if (a.vectors) {
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            int row = segment_row(a, s, k0 + n * WARPS);
#pragma unroll
            for (int u = 0; u < U; u++) {
                int q = first + p.lane + 32 * u;
                z[n][u] = make_float4(0, 0, 0, 0);
                if (row >= 0 && q < quads) z[n][u] = load_vector(row_of<E>(a, p.view_row + row), q);
            }
        }
    } else {
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            int row = segment_row(a, s, k0 + n * WARPS);
#pragma unroll
            for (int u = 0; u < U; u++) {
                int q = first + p.lane + 32 * u;
                z[n][u] = make_float4(0, 0, 0, 0);
                if (row >= 0)
                    z[n][u] = load_elements(row_of<E>(a, p.view_row + row), q, a.shape.dim);
            }
        }
    }
}

/* Sums over the lanes of P values at once: lane l gets the sum of value l / (32/P). Each step
 * halves the values a lane still carries: for 8 values 9 exchanges in place of 40. */
template <int P> __device__ __forceinline__ float spread_sum(int lane, float (&value)[P]) {
    int offset = 16;
#pragma unroll
    for (int half = P / 2; half > 0; half /= 2, offset /= 2) {
        bool upper = lane & offset;
#pragma unroll
        for (int n = 0; n < half; n++) {
            float mine = upper ? value[n + half] : value[n];
            float other = upper ? value[n] : value[n + half];
            value[n] = mine + __shfl_xor_sync(~0u, other, offset);
        }
    }
    for (; offset > 0; offset /= 2) value[0] += __shfl_xor_sync(~0u, value[0], offset);
    return value[0];
}

/* The scales of the rows k0, k0 + 8, ... of a warp, row n's in the lanes of value n of spread_sum.
 * Rows of an ordinary size, all at once; others one by one. */
template <int U, int BATCH, int P>
__device__ __forceinline__ float2 batch_scales(const small_args &a, const small_place &p,
                                               const small_segment *s, int k0,
                                               const float4 (&z)[BATCH][U], bool &usual) {
    enum { LANES = 32 / P };
    float squares[P];
#pragma unroll
    for (int n = 0; n < P; n++) {
        squares[n] = 0;
#pragma unroll
        for (int u = 0; u < U; u++)
            if (n < BATCH) squares[n] = add_dot(squares[n], z[n % BATCH][u], z[n % BATCH][u]);
    }
    float sum = spread_sum<P>(p.lane, squares);
    int mine = p.lane / LANES;
    int row = mine < BATCH ? segment_row(a, s, k0 + mine * WARPS) : -1;
    float2 scale = make_float2(1, 1);
    usual = __all_sync(~0u, row < 0 || is_usual(sum));
    if (usual) {
        if (row >= 0)
            scale = row_scale(a, p.view_row + row, p.lane % LANES, sum, [&](float) { return sum; });
        return scale;
    }
#pragma unroll
    for (int n = 0; n < BATCH; n++) {
        int row_n = segment_row(a, s, k0 + n * WARPS);
        float sum_n = __shfl_sync(~0u, sum, n * LANES);
        if (row_n < 0) continue;
        float2 scale_n = row_scale(a, p.view_row + row_n, p.lane, sum_n, [&](float pre) {
            float again = 0;
#pragma unroll
            for (int u = 0; u < U; u++) {
                float4 t = times(z[n][u], make_float2(pre, 1));
                again = add_dot(again, t, t);
            }
            return zonal__warp_sum(again);
        });
        if (mine == n) scale = scale_n;
    }
    return scale;
}

/* The mean of the rows at hand: the warps' sums meet in shared memory. */
template <int U>
__device__ __forceinline__ void find_centre(const small_args &a, const small_place &p,
                                            const small_memory &m, int count, float4 (&centre)[U]) {
    float4 *sums = reinterpret_cast<float4 *>(m.partial);
    int quads = a.shape.row_quads;
#pragma unroll
    for (int u = 0; u < U; u++)
        if (p.lane + 32 * u < quads) sums[p.warp * quads + p.lane + 32 * u] = centre[u];
    __syncthreads();
#pragma unroll
    for (int u = 0; u < U; u++) {
        int q = p.lane + 32 * u;
        centre[u] = make_float4(0, 0, 0, 0);
        if (q >= quads) continue;
#pragma unroll
        for (int w = 0; w < WARPS; w++) add_product(centre[u], 1.0f / count, sums[w * quads + q]);
        if (p.warp == 0) m.centre[q] = centre[u];
    }
}

/* Rows of the first n of two segments that are in the batch. */
__device__ __forceinline__ int count_rows(const small_args &a, small_segment s0, small_segment s1,
                                          int n) {
    int from0 = min(min(s0.count, n), a.shape.rows - s0.row);
    int from1 = min(min(s1.count, n - s0.count), a.shape.rows - s1.row);
    return max(from0, 0) + max(from1, 0);
}

/* Centred unit rows of two segments into shared memory, their scales and offsets. With FIRST, the
 * centre is that of the first BATCH rows of each warp; all threads meet once. */
template <typename E, int U, int BATCH, bool FIRST>
__device__ __forceinline__ void load_rows(const small_args &a, const small_place &p,
                                          const small_memory &m, small_segment s0,
                                          small_segment s1) {
    enum { P = BATCH > 4 ? 8 : 4, LANES = 32 / P };
    const small_segment s[2] = {s0, s1};
    int count = s0.count + s1.count, quads = a.shape.row_quads;
    float4 centre[U];
    float half_square = 0;
    for (int k0 = p.warp; k0 < count; k0 += WARPS * BATCH) {
        float4 z[BATCH][U];
        bool usual;
        fetch_rows<E, U, BATCH>(a, p, s, k0, 0, z);
        float2 mine = batch_scales<U, BATCH, P>(a, p, s, k0, z, usual), scale[BATCH];
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            scale[n] = make_float2(1, __shfl_sync(~0u, mine.y, n * LANES));
            if (usual) continue;
            scale[n].x = __shfl_sync(~0u, mine.x, n * LANES);
#pragma unroll
            for (int u = 0; u < U; u++) z[n][u] = times(z[n][u], make_float2(scale[n].x, 1));
        }
        if (k0 == p.warp) {
#pragma unroll
            for (int u = 0; u < U; u++) {
                int q = p.lane + 32 * u;
                centre[u] = make_float4(0, 0, 0, 0);
                if (!FIRST && q < quads) centre[u] = m.centre[q];
#pragma unroll
                for (int n = 0; FIRST && n < BATCH; n++)
                    add_product(centre[u], scale[n].y, z[n][u]);
            }
            if (FIRST) find_centre<U>(a, p, m, count_rows(a, s0, s1, WARPS * BATCH), centre);
#pragma unroll
            for (int u = 0; u < U; u++) half_square = add_dot(half_square, centre[u], centre[u]);
            half_square = zonal__warp_sum(half_square) / 2;
            if (FIRST && threadIdx.x == 0) *m.half_square = half_square;
        }
        float along[P];
#pragma unroll
        for (int n = 0; n < P; n++) {
            int k = k0 + n * WARPS;
            along[n] = 0;
            if (n >= BATCH || k >= count) continue;
            float4 *to = reinterpret_cast<float4 *>(
                m.rows + (k < s0.count ? s0.slot + k : s1.slot + k - s0.count) * a.shape.pitch);
#pragma unroll
            for (int u = 0; u < U; u++) {
                int q = p.lane + 32 * u;
                float4 y = centred(z[n % BATCH][u], make_float2(1, scale[n % BATCH].y), centre[u]);
                along[n] = add_dot(along[n], y, centre[u]);
                if (q < quads) to[q] = y;
            }
        }
        float offset = half_square + spread_sum<P>(p.lane, along);
        int k = k0 + p.lane / LANES * WARPS;
        if (p.lane % LANES == 0 && p.lane / LANES < BATCH && k < count) {
            int slot = k < s0.count ? s0.slot + k : s1.slot + k - s0.count;
            m.scales[slot] = mine;
            m.offsets[slot] = offset;
        }
    }
}

/* Long rows: their scales first, ... */
template <typename E>
__device__ __forceinline__ void load_scales(const small_args &a, const small_place &p,
                                            const small_memory &m, small_segment s) {
    for (int k = p.warp; k < s.count; k += WARPS) {
        float2 scale = make_float2(1, 1);
        if (s.row + k < a.shape.rows) {
            const E *z = row_of<E>(a, p.view_row + s.row + k);
            auto squares = [&](float pre) {
                double sum = 0;
                for (int q = p.lane; q < a.shape.row_quads; q += 32) {
                    float4 t = times(load_quad(a, z, q), make_float2(pre, 1));
                    sum += add_dot(0.0f, t, t);
                }
                return (float)zonal__warp_sum(sum);
            };
            scale = row_scale(a, p.view_row + s.row + k, p.lane, squares(1), squares);
        }
        if (p.lane == 0) m.scales[s.scale + k] = scale;
    }
}

/* ... then their centre, in shared memory as a whole, ... */
template <typename E>
__device__ __forceinline__ void find_long_centre(const small_args &a, const small_place &p,
                                                 const small_memory &m, small_segment s) {
    int count = min(s.count, a.shape.rows - s.row);
    for (int q = (int)threadIdx.x; q < a.shape.row_quads; q += ZONAL__SMALL_THREADS) {
        float4 sum = make_float4(0, 0, 0, 0);
        for (int k = 0; k < count; k++)
            add_product(sum, 1.0f / count,
                        times(load_quad(a, row_of<E>(a, p.view_row + s.row + k), q),
                              m.scales[s.scale + k]));
        m.centre[q] = sum;
    }
}

/* ... their offsets, ... */
template <typename E>
__device__ __forceinline__ void load_offsets(const small_args &a, const small_place &p,
                                             const small_memory &m, small_segment s) {
    for (int k = p.warp; k < s.count; k += WARPS) {
        double along = 0, square = 0;
        if (s.row + k >= a.shape.rows) break;
        for (int q = p.lane; q < a.shape.row_quads; q += 32) {
            float4 z = load_quad(a, row_of<E>(a, p.view_row + s.row + k), q), c = m.centre[q];
            along += add_dot(0.0f, centred(z, m.scales[s.scale + k], c), c);
            square = add_dot(square, c, c);
        }
        square = zonal__warp_sum(square) / 2;
        along = zonal__warp_sum(along) + square;
        if (p.lane == 0) m.offsets[s.scale + k] = (float)along;
        if (threadIdx.x == 0 && k == 0) *m.half_square = (float)square;
    }
}

/* ... and then their elements by chunks. */
template <typename E>
__device__ __forceinline__ void load_chunk(const small_args &a, const small_place &p,
                                           const small_memory &m, int chunk, small_segment s0,
                                           small_segment s1) {
    enum { U = CHUNK / 128, BATCH = 8 };
    const small_segment s[2] = {s0, s1};
    int count = s0.count + s1.count;
    float4 centre[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
        int q = chunk * (CHUNK / 4) + p.lane + 32 * u;
        centre[u] = q < a.shape.row_quads ? m.centre[q] : make_float4(0, 0, 0, 0);
    }
    for (int k0 = p.warp; k0 < count; k0 += WARPS * BATCH) {
        float4 z[BATCH][U];
        fetch_rows<E, U, BATCH>(a, p, s, k0, chunk * (CHUNK / 4), z);
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            int k = k0 + n * WARPS;
            if (k >= count) break;
            int second = k >= s0.count, i = second ? k - s0.count : k;
            float2 scale = m.scales[(second ? s1.scale : s0.scale) + i];
            float4 *to = reinterpret_cast<float4 *>(m.rows + ((second ? s1.slot : s0.slot) + i) *
                                                                 a.shape.pitch);
#pragma unroll
            for (int u = 0; u < U; u++) to[p.lane + 32 * u] = centred(z[n][u], scale, centre[u]);
        }
    }
}

} // namespace

#endif
