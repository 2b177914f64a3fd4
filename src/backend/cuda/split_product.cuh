/*
 * Matrix products on the tensor cores that keep single precision, and the gradients made of them.
 *
 * The tensor cores multiply halves, of 11 bits. A number is cut into two halves, a = hi + lo to 22
 * bits, on its way into shared memory, and
 *
 *     a b = hi lo + lo hi + hi hi        to 2^-22
 *
 * These are PRODUCTS = 3; with 1, hi hi alone, a product has TF32's precision.
 *
 * Two things about these units matter. Their sums cut every term off at the last place of the
 * largest, so terms of one sign that meet a long sum come out too small, by about 5e-7 in 16 of
 * them: after every 16 terms the sum goes to another one, which rounds, and begins again at 0. And
 * half's range ends at 65504: callers scale by powers of two.
 *
 * C [M][N] = A B with a tile of C per block. Two layouts of the operands as they lie in memory:
 *     straight     A [M][K], B [N][K]: the inner index is contiguous
 *     transposed   A [K][M], B [K][N]: the outer ones are
 */
#ifndef ZONAL_BACKEND_CUDA_SPLIT_PRODUCT_CUH
#define ZONAL_BACKEND_CUDA_SPLIT_PRODUCT_CUH

#include <cooperative_groups.h>

#include "backend/cuda/unit_rows.cuh"

/* ---- operands ------------------------------------------------------------------------------- */

/* Rows of the batch, scaled to unit length, less a common centre c: ROW_UNIT (x - c). Near collapse
 * the differences are all that matters, and are rounded as the small numbers they are. */
template <typename T, bool CENTRED> struct zonal__row_operand {
    const T *z;                    /* [rows][dim] */
    const zonal__row_scale *scale; /* [rows] */
    const float *centre;           /* ROW_UNIT c; zeros from dim to the next multiple of 128 */
    int64_t rows;
    int dim;
    bool vector; /* see zonal__load4 */

    struct piece {
        zonal__four<T> data;
        float p, q;
    };
    __device__ piece get(int64_t row, int64_t end, int column) const {
        piece out = {};
        if (row >= end) return out;
        float2 pq = *(const float2 *)&scale[row];
        out.data = zonal__load4(z + row * dim + column, dim - column, vector);
        out.p = pq.x;
        out.q = pq.y;
        return out;
    }
    __device__ float4 centre_at(int column) const {
        return CENTRED ? *(const float4 *)(centre + column) : make_float4(0, 0, 0, 0);
    }
    __device__ float4 finish(const piece &in, const float4 &c) const {
        float4 v = zonal__widen(in.data);
        float q = in.q * ZONAL__ROW_UNIT;
        float inside = CENTRED && in.p > 0 ? -1.0f : 0.0f; /* rows past the end stay 0 */
        v.x = fmaf(v.x * in.p, q, inside * c.x);
        v.y = fmaf(v.y * in.p, q, inside * c.y);
        v.z = fmaf(v.z * in.p, q, inside * c.z);
        v.w = fmaf(v.w * in.p, q, inside * c.w);
        return v;
    }
};

/* A plain matrix times "unit"; rows begin at multiples of four floats. */
struct zonal__flat_operand {
    const float *a; /* [rows][pitch] */
    int64_t rows, pitch;
    float unit;

    struct piece {
        float4 data;
    };
    __device__ piece get(int64_t row, int64_t end, int64_t column) const {
        piece out = {};
        if (row < end && column < pitch) out.data = *(const float4 *)(a + row * pitch + column);
        return out;
    }
    __device__ float4 centre_at(int64_t) const {
        return make_float4(0, 0, 0, 0);
    }
    __device__ float4 finish(const piece &in, const float4 &) const {
        return make_float4(in.data.x * unit, in.data.y * unit, in.data.z * unit, in.data.w * unit);
    }
};

/* A part of an operand, [ROWS][COLUMNS] of it, held in the registers of a block until there is room
 * in shared memory. */
template <typename Operand, int ROWS, int COLUMNS, int THREADS> struct zonal__fetch {
    static constexpr int ACROSS = COLUMNS / 4, EACH = ROWS * ACROSS / THREADS;
    static constexpr int DOWN = THREADS / ACROSS;
    static_assert(EACH * THREADS == ROWS * ACROSS, "every thread has as many pieces");
    typename Operand::piece piece[EACH];
    float4 centre;

    __device__ void load(const Operand &operand, int64_t row0, int64_t end, int64_t column0) {
        int row = (int)threadIdx.x / ACROSS, column = (int)threadIdx.x % ACROSS * 4;
        centre = operand.centre_at(column0 + column);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            piece[i] = operand.get(row0 + row + i * DOWN, end, column0 + column);
    }

    /* hi, and lo behind it: [ROWS][PITCH] halves each. */
    template <int PITCH, bool LOW> __device__ void store(const Operand &operand, __half *hi) const {
        int row = (int)threadIdx.x / ACROSS, column = (int)threadIdx.x % ACROSS * 4;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            __half *at = hi + (row + i * DOWN) * PITCH + column;
            float4 v = operand.finish(piece[i], centre);
            __half2 high[2] = {__floats2half2_rn(v.x, v.y), __floats2half2_rn(v.z, v.w)};
            *(uint2 *)at = make_uint2(*(unsigned *)&high[0], *(unsigned *)&high[1]);
            if (LOW) {
                float2 a = __half22float2(high[0]), b = __half22float2(high[1]);
                __half2 low[2] = {__floats2half2_rn(v.x - a.x, v.y - a.y),
                                  __floats2half2_rn(v.z - b.x, v.w - b.y)};
                *(uint2 *)(at + ROWS * PITCH) =
                    make_uint2(*(unsigned *)&low[0], *(unsigned *)&low[1]);
            }
        }
    }
};

/* ---- the instructions ----------------------------------------------------------------------- */

/* Four 8 x 8 matrices of halves; each lane gives the address of one row of eight. */
__device__ inline void zonal__load_matrices(unsigned (&out)[4], const __half *row) {
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
}

__device__ inline void zonal__load_transposed(unsigned (&out)[4], const __half *row) {
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
}

/* c += a b: 16 x 16 times 16 x 8. */
__device__ inline void zonal__multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                       unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* c = a b */
__device__ inline void zonal__multiply_first(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

/* ---- a tile of the product ------------------------------------------------------------------ */

/* WARPS_M x WARPS_N warps, each with MI x NI fragments of 16 x 8. */
template <int WARPS_M, int WARPS_N, int MI, int NI, bool TRANSPOSED, int PRODUCTS>
struct zonal__tile {
    static constexpr int M = WARPS_M * MI * 16, N = WARPS_N * NI * 8, K = 32;
    static constexpr int ACROSS = WARPS_N, ROW_FRAGMENTS = MI, COLUMN_FRAGMENTS = NI;
    static constexpr int THREADS = 32 * WARPS_M * WARPS_N, REGISTERS = MI * NI * 4;
    static constexpr bool LOW = PRODUCTS == 3;
    /* Eight halves more than a row is long put the eight rows of a matrix into different banks. */
    static constexpr int ROWS_A = TRANSPOSED ? K : M, ROWS_B = TRANSPOSED ? K : N;
    static constexpr int COLUMNS_A = TRANSPOSED ? M : K, COLUMNS_B = TRANSPOSED ? N : K;
    static constexpr int PITCH_A = COLUMNS_A + 8, PITCH_B = COLUMNS_B + 8;
    static constexpr int PLANE_A = ROWS_A * PITCH_A, PLANE_B = ROWS_B * PITCH_B;
    static constexpr int STAGE = (LOW ? 2 : 1) * (PLANE_A + PLANE_B);
    static constexpr size_t BYTES = 2 * STAGE * sizeof(__half);

    float sum[MI][NI][4];

    /* Where register r of a thread lies in the tile, r counting through sum. */
    __host__ __device__ static int row_of(int thread, int r) {
        int warp = thread / 32, lane = thread % 32;
        return (warp / WARPS_N * MI + r / (4 * NI)) * 16 + lane / 4 + (r % 4 / 2) * 8;
    }
    __host__ __device__ static int column_of(int thread, int r) {
        int warp = thread / 32, lane = thread % 32;
        return (warp % WARPS_N * NI + r / 4 % NI) * 8 + lane % 4 * 2 + r % 2;
    }

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < REGISTERS; i++) sum[i / (4 * NI)][i / 4 % NI][i % 4] = 0;
    }

    __device__ static void load_a(unsigned (&out)[MI][4], const __half *a, int k) {
        int lane = (int)threadIdx.x % 32, row0 = (int)threadIdx.x / 32 / WARPS_N * MI * 16;
#pragma unroll
        for (int i = 0; i < MI; i++)
            if (TRANSPOSED)
                zonal__load_transposed(out[i], a + (k + lane % 8 + lane / 16 * 8) * PITCH_A + row0 +
                                                   i * 16 + lane / 8 % 2 * 8);
            else
                zonal__load_matrices(out[i],
                                     a + (row0 + i * 16 + lane % 16) * PITCH_A + k + lane / 16 * 8);
    }

    __device__ static void load_b(unsigned (&out)[NI / 2][4], const __half *b, int k) {
        int lane = (int)threadIdx.x % 32, column0 = (int)threadIdx.x / 32 % WARPS_N * NI * 8;
#pragma unroll
        for (int i = 0; i < NI / 2; i++)
            if (TRANSPOSED)
                zonal__load_transposed(out[i], b + (k + lane % 16) * PITCH_B + column0 + i * 16 +
                                                   lane / 16 * 8);
            else
                zonal__load_matrices(out[i],
                                     b + (column0 + i * 16 + lane % 8 + lane / 16 * 8) * PITCH_B +
                                         k + lane / 8 % 2 * 8);
    }

    template <bool FIRST>
    __device__ static void multiply_all(float (&part)[MI][NI][4], const unsigned (&a)[MI][4],
                                        const unsigned (&b)[NI / 2][4]) {
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NI; j++) {
                unsigned b0 = b[j / 2][j % 2 * 2], b1 = b[j / 2][j % 2 * 2 + 1];
                if (FIRST)
                    zonal__multiply_first(part[i][j], a[i], b0, b1);
                else
                    zonal__multiply(part[i][j], a[i], b0, b1);
            }
    }

    /* sum += A B for one stage, the small products first. */
    __device__ void multiply_stage(const __half *a, const __half *b) {
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            float part[MI][NI][4];
            unsigned a_high[MI][4], b_high[NI / 2][4];
            load_a(a_high, a, k);
            load_b(b_high, b, k);
            if (LOW) {
                unsigned a_low[MI][4], b_low[NI / 2][4];
                load_b(b_low, b + PLANE_B, k);
                multiply_all<true>(part, a_high, b_low);
                load_a(a_low, a + PLANE_A, k);
                multiply_all<false>(part, a_low, b_high);
            }
            multiply_all<!LOW>(part, a_high, b_high);
#pragma unroll
            for (int i = 0; i < REGISTERS; i++)
                sum[i / (4 * NI)][i / 4 % NI][i % 4] += part[i / (4 * NI)][i / 4 % NI][i % 4];
        }
    }

    /* sum += the tile at (m0, n0), over k0 <= k < k1. Two stages of shared memory: while one is
     * multiplied, the next is on its way from memory. same: B is A, and m0 = n0. */
    template <typename A, typename B>
    __device__ void run(const A &a, const B &b, int64_t m0, int64_t n0, int64_t k0, int64_t k1,
                        __half *shared, bool same = false) {
        zonal__fetch<A, ROWS_A, COLUMNS_A, THREADS> next_a;
        zonal__fetch<B, ROWS_B, COLUMNS_B, THREADS> next_b;
        int stage = 0;
        __syncthreads(); /* whoever used the shared memory before is done */
        for (int64_t k = k0; k < k1 + K; k += K) {
            __half *to = shared + (1 - stage) * STAGE;
            __half *from = shared + stage * STAGE, *from_b = same ? from : from + STAGE_B;
            if (k < k1) {
                next_a.load(a, TRANSPOSED ? k : m0, TRANSPOSED ? k1 : a.rows, TRANSPOSED ? m0 : k);
                if (!same)
                    next_b.load(b, TRANSPOSED ? k : n0, TRANSPOSED ? k1 : b.rows,
                                TRANSPOSED ? n0 : k);
            }
            if (k > k0) multiply_stage(from, from_b);
            if (k < k1) {
                next_a.template store<PITCH_A, LOW>(a, to);
                if (!same) next_b.template store<PITCH_B, LOW>(b, to + STAGE_B);
            }
            __syncthreads();
            stage = 1 - stage;
        }
    }
    static constexpr int STAGE_B = (LOW ? 2 : 1) * PLANE_A; /* where B begins in a stage */
};

/* 128 x 128 by 8 warps where there are enough tiles to fill the device, else 64 x 64 by 4. */
template <bool TRANSPOSED, int PRODUCTS>
using zonal__large_tile = zonal__tile<2, 4, 4, 4, TRANSPOSED, PRODUCTS>;
template <bool TRANSPOSED, int PRODUCTS>
using zonal__small_tile = zonal__tile<2, 2, 2, 4, TRANSPOSED, PRODUCTS>;

/* ---- from a product to the gradient --------------------------------------------------------- */

/* The gradient of row i, with y = x_i - c and G the product:
 *
 *     g = scale G_i - alpha y + offset,    gradient_i = coefficient (g - (g.x) x/(x.x)) p q
 *
 * raw: gradient_i = coefficient scale G_i. */
typedef struct zonal__gradient_terms {
    float scale, alpha;
    float unit; /* of the product's second operand: see MOMENTS */
} zonal__gradient_terms;

template <typename T, bool CENTRED> struct zonal__gradient_task {
    zonal__row_operand<T, CENTRED> x;
    const zonal__gradient_terms *terms; /* device */
    const float *offset;                /* [dim], zeros up to a multiple of 128; CENTRED alone */
    float coefficient;
    int raw;
    T *gradient; /* [rows][dim] */
    bool pairs;  /* gradient's rows are aligned to two elements */
};

__device__ inline void zonal__store2(float *at, float a, float b) {
    *(float2 *)at = make_float2(a, b);
}
__device__ inline void zonal__store2(__half *at, float a, float b) {
    *(__half2 *)at = __floats2half2_rn(a, b);
}
__device__ inline void zonal__store2(__nv_bfloat16 *at, float a, float b) {
    *(__nv_bfloat162 *)at = __floats2bfloat162_rn(a, b);
}

template <typename T, bool CENTRED>
__device__ inline void zonal__put_pair(const zonal__gradient_task<T, CENTRED> &task, int64_t row,
                                       int column, float a, float b) {
    T *at = task.gradient + row * task.x.dim + column;
    if (task.pairs) {
        if (column < task.x.dim) zonal__store2(at, a, b);
    } else {
        if (column < task.x.dim) zonal__store(at, a);
        if (column + 1 < task.x.dim) zonal__store(at + 1, b);
    }
}

/* g of one element from G and z, and x. y is exact to its own size where rows nearly agree. */
template <bool CENTRED>
__device__ inline float zonal__gradient_element(const zonal__gradient_terms &terms,
                                                const zonal__row_scale &scale, float product,
                                                float z, float c, float offset, float *x) {
    float g = terms.scale * product, y = fmaf(z * scale.p, scale.q, -c);
    *x = y + c;
    return CENTRED ? fmaf(-terms.alpha, y, g) + offset : g;
}

__device__ inline float2 zonal__pair(const float *at) {
    return *(const float2 *)at;
}
__device__ inline float2 zonal__pair(const __half *at) {
    return __half22float2(*(const __half2 *)at);
}
__device__ inline float2 zonal__pair(const __nv_bfloat16 *at) {
    return __bfloat1622float2(*(const __nv_bfloat162 *)at);
}

/* z at two neighbouring columns, the first of them even; 0 outside. */
template <typename T, bool CENTRED>
__device__ inline float2 zonal__load2(const zonal__row_operand<T, CENTRED> &x, int64_t row,
                                      int column) {
    const T *at = x.z + row * x.dim + column;
    float2 out = make_float2(0, 0);
    if (row >= x.rows || column >= x.dim) return out;
    if (x.vector) return zonal__pair(at);
    out.x = zonal__load(at);
    if (column + 1 < x.dim) out.y = zonal__load(at + 1);
    return out;
}

template <typename T, bool CENTRED>
__device__ inline float zonal__centre_element(const zonal__gradient_task<T, CENTRED> &task,
                                              int column) {
    return CENTRED ? task.x.centre[column] * (1 / ZONAL__ROW_UNIT) : 0.0f;
}

template <typename T, bool CENTRED>
__device__ inline float zonal__offset_element(const zonal__gradient_task<T, CENTRED> &task,
                                              int column) {
    return CENTRED ? task.offset[column] : 0.0f;
}

/* The gradient from a tile that holds G at (row0, column0). The blocks of a cluster hold the whole
 * rows between them; each learns g.x from all. */
template <typename Tile, typename T, bool CENTRED>
__device__ inline void zonal__finish_tile(Tile &tile, const zonal__gradient_task<T, CENTRED> &task,
                                          int64_t row0, int column0, float *shared) {
    constexpr int MI = Tile::ROW_FRAGMENTS, NI = Tile::COLUMN_FRAGMENTS;
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    zonal__gradient_terms terms = *task.terms;
    float *by_warp = shared, *own = by_warp + Tile::M * Tile::ACROSS, *radial = own + Tile::M;
    int thread = (int)threadIdx.x, warp_column = thread / 32 % Tile::ACROSS;
    float x[MI][NI][4], c[2 * NI], offset[2 * NI];
#pragma unroll
    for (int j = 0; j < 2 * NI; j++) {
        int column = column0 + Tile::column_of(thread, j / 2 * 4 + j % 2);
        c[j] = zonal__centre_element(task, column);
        offset[j] = zonal__offset_element(task, column);
    }
    __syncthreads(); /* the product is done with the shared memory */
#pragma unroll
    for (int i = 0; i < 2 * MI; i++) { /* this thread's rows */
        int local = Tile::row_of(thread, i / 2 * 4 * NI + i % 2 * 2);
        int64_t row = row0 + local;
        zonal__row_scale scale = {};
        if (row < task.x.rows) scale = task.x.scale[row];
        float dot = 0;
#pragma unroll
        for (int j = 0; j < NI; j++) {
            float *g = &tile.sum[i / 2][j][i % 2 * 2], *at = &x[i / 2][j][i % 2 * 2];
            float2 z = zonal__load2(task.x, row, column0 + Tile::column_of(thread, j * 4));
            g[0] = zonal__gradient_element<CENTRED>(terms, scale, g[0], z.x, c[2 * j],
                                                    offset[2 * j], &at[0]);
            g[1] = zonal__gradient_element<CENTRED>(terms, scale, g[1], z.y, c[2 * j + 1],
                                                    offset[2 * j + 1], &at[1]);
            dot = fmaf(g[0], at[0], fmaf(g[1], at[1], dot));
        }
        dot += __shfl_xor_sync(0xffffffffu, dot, 1);
        dot += __shfl_xor_sync(0xffffffffu, dot, 2);
        if (thread % 4 == 0) by_warp[local * Tile::ACROSS + warp_column] = dot;
    }
    __syncthreads();
    for (int r = thread; r < Tile::M; r += Tile::THREADS) {
        float dot = 0;
        for (int i = 0; i < Tile::ACROSS; i++) dot += by_warp[r * Tile::ACROSS + i];
        own[r] = dot;
    }
    cluster.sync();
    for (int r = thread; r < Tile::M; r += Tile::THREADS) {
        float dot = 0;
        for (unsigned i = 0; i < cluster.num_blocks(); i++)
            dot += cluster.map_shared_rank(own, i)[r];
        radial[r] = dot;
    }
    __syncthreads(); /* the cluster's would do, but racecheck does not know that */
    cluster.sync();  /* no block leaves while another reads its sums */
#pragma unroll
    for (int i = 0; i < 2 * MI; i++) {
        int local = Tile::row_of(thread, i / 2 * 4 * NI + i % 2 * 2);
        int64_t row = row0 + local;
        if (row >= task.x.rows) continue;
        zonal__row_scale scale = task.x.scale[row];
        float along = task.raw ? 0 : radial[local] * scale.inverse_square;
        float p = task.raw ? 1 : scale.p, q = task.raw ? 1 : scale.q;
#pragma unroll
        for (int j = 0; j < NI; j++) {
            const float *g = &tile.sum[i / 2][j][i % 2 * 2], *at = &x[i / 2][j][i % 2 * 2];
            int column = column0 + Tile::column_of(thread, j * 4);
            zonal__put_pair(task, row, column, task.coefficient * (g[0] - along * at[0]) * q * p,
                            task.coefficient * (g[1] - along * at[1]) * q * p);
        }
    }
}

/* The tile as it is, to g [rows][dim]; "add": to what is there. */
template <typename Tile>
__device__ inline void zonal__store_tile(const Tile &tile, int64_t rows, int dim, int64_t row0,
                                         int column0, bool add, float *g) {
#pragma unroll
    for (int r = 0; r < Tile::REGISTERS; r++) {
        int64_t row = row0 + Tile::row_of((int)threadIdx.x, r);
        int column = column0 + Tile::column_of((int)threadIdx.x, r);
        if (row >= rows || column >= dim) continue;
        float value =
            tile.sum[r / (4 * Tile::COLUMN_FRAGMENTS)][r / 4 % Tile::COLUMN_FRAGMENTS][r % 4];
        float *at = g + row * dim + column;
        *at = add ? *at + value : value;
    }
}

/* The gradient from G in memory, as a sum of "parts" arrays [rows][dim] (0: G = 0), a warp per row.
 * G may be the gradient itself. For rows longer than a cluster holds, and sums cut into parts. */
template <typename T, bool CENTRED>
__global__ void __launch_bounds__(256)
    zonal__finish_rows(zonal__gradient_task<T, CENTRED> task, const float *g, int parts) {
    int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, dim = task.x.dim;
    int lane = (int)threadIdx.x % 32;
    if (row >= task.x.rows) return;
    zonal__gradient_terms terms = *task.terms;
    zonal__row_scale scale = task.x.scale[row];
    auto element = [&](int column, float *x) {
        float product = 0;
        for (int i = 0; i < parts; i++) product += g[(i * task.x.rows + row) * dim + column];
        return zonal__gradient_element<CENTRED>(
            terms, scale, product, zonal__load(task.x.z + row * dim + column),
            zonal__centre_element(task, column), zonal__offset_element(task, column), x);
    };
    float along = 0, p = 1, q = 1, x;
    if (!task.raw) {
        for (int k = lane; k < dim; k += 32) {
            float value = element(k, &x);
            along = fmaf(value, x, along);
        }
        along = zonal__warp_sum(along) * scale.inverse_square;
        p = scale.p;
        q = scale.q;
    }
    for (int k = lane; k < dim; k += 32) {
        float value = element(k, &x);
        zonal__store(task.gradient + row * dim + k, task.coefficient * (value - along * x) * q * p);
    }
}

#endif
