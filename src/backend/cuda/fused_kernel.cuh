/*
 * Pairs and KL on Hopper, from rows to the unprojected gradient in one launch: see fused.cu.
 *
 * A block owns 128 rows and goes through a range of the columns, 64 at a time. Two warpgroups of 64
 * rows each compute
 *
 *     S = X_I X_J^T         64 columns of cosines, in registers
 *     W = weight(S)         a polynomial in halves, in registers
 *     O_I += W X_J          in registers to the end
 *
 * and take turns, so that one multiplies while the other evaluates. A third one has copies of the
 * next columns under way, four tiles deep. Each tile is used as [columns][elements] by the first
 * product and as [columns][elements] transposed by the second, where it lies.
 *
 * Rows are an image of what shared memory holds: [panel of 64 elements][row][128 bytes], the
 * 16-byte pieces of a row permuted (wgmma.cuh), so that a tile of a panel is one piece of memory.
 * Rows and elements beyond the last are zeros. Polynomials have no constant term, so that zeros add
 * nothing to any sum; cosines of a row with itself are made zeros too.
 *
 * All sums are added in an order that depends on the shape alone.
 */
#ifndef ZONAL_BACKEND_CUDA_FUSED_KERNEL_CUH
#define ZONAL_BACKEND_CUDA_FUSED_KERNEL_CUH

#include "backend/cuda/fused.h"
#include "backend/cuda/wgmma.cuh"

enum {
    ZONAL__FUSED_STAGES = 4,
    ZONAL__FUSED_THREADS = 384,
    ZONAL__FUSED_SUMS = 8,  /* of a block: one a warp */
    ZONAL__FUSED_MANY = 20, /* terms of a long polynomial */
    ZONAL__FUSED_LOW = 6    /* the first power that halves can hold, of a shorter logarithm */
};

/* What becomes of a cosine.
 *     PAIRS      the sum of value(c); weight(c)
 *     KL         weight(c) 2^value(c) (share_i + share_j) - base */
enum { ZONAL__FUSED_PAIRS, ZONAL__FUSED_KL };

/* Coefficients by power of c. value[0] is 0; weight[0] is 0 but for KL. */
typedef struct zonal__fused_profile {
    float value[ZONAL__FUSED_TERMS], weight[ZONAL__FUSED_TERMS];
    __half2 halves[ZONAL__FUSED_TERMS]; /* weight, twice each */
    __half2 value_halves[ZONAL__FUSED_TERMS];
    float base;
} zonal__fused_profile;

typedef struct zonal__fused_problem {
    const char *image, *lo; /* lo: `fp32` */
    int64_t panel_bytes;
    int rows, dim;
    int tiles, tiles_each; /* tiles of columns: all, and of a range */
    const float *share;    /* [padded rows], KL */
    float alpha;           /* what O is multiplied by */
    float *o;              /* [ranges][rows][dim] */
    int pairs;             /* 1: two elements of o can be stored at once */
    double *sum;           /* PAIRS: [ranges][blocks][8] */
} zonal__fused_problem;

template <int PANELS, int MODE> struct zonal__fused_layout {
    static constexpr int OWN_PANEL = ZONAL__FUSED_ROWS * 128;
    static constexpr int OWN = PANELS * OWN_PANEL;
    static constexpr int PANEL = ZONAL__FUSED_COLUMNS * 128;
    static constexpr int SHARES = MODE == ZONAL__FUSED_KL ? ZONAL__FUSED_COLUMNS * 4 : 0;
    static constexpr int TILE = PANELS * PANEL;
    static constexpr int BYTES = OWN + ZONAL__FUSED_STAGES * (TILE + SHARES);
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- the functions of the cosine ------------------------------------------------------------ */

/* The sum over 1 <= k < TERMS of a[k] c^(k-1), of eight cosines. */
template <int TERMS>
__device__ inline void zonal__fused_horner(const float *a, const float *c, float *out) {
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = a[TERMS - 1];
#pragma unroll
    for (int k = TERMS - 2; k > 0; k--)
#pragma unroll
        for (int i = 0; i < 8; i++) out[i] = fmaf(out[i], c[i], a[k]);
}

__device__ inline float zonal__fused_power(float x) { /* 2^x */
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The sum over FIRST <= k < TERMS of a[k] c^(k-FIRST), of eight cosines, two by two. */
template <int FIRST, int TERMS>
__device__ inline void zonal__fused_halves(const __half2 *a, const float *c, __half2 *out) {
    __half2 both[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        both[i] = __floats2half2_rn(c[2 * i], c[2 * i + 1]);
        out[i] = a[TERMS - 1];
    }
#pragma unroll
    for (int k = TERMS - 2; k >= FIRST; k--)
#pragma unroll
        for (int i = 0; i < 4; i++) out[i] = __hfma2(out[i], both[i], a[k]);
}

__device__ inline uint32_t zonal__fused_bits(__half2 both) {
    return *(const uint32_t *)&both;
}

/* Where a thread is: its warp's 16 rows are group "rows", and the tile's first 16 columns are group
 * "columns". */
typedef struct zonal__fused_place {
    int rows, columns;
} zonal__fused_place;

/* Makes zeros of a row's cosines with itself. */
template <int NUMBERS>
__device__ inline void zonal__fused_clear(zonal__fused_place at, float (&s)[NUMBERS]) {
    int lane = (int)threadIdx.x % 32, row = 16 * (at.rows - at.columns) + lane / 4;
#pragma unroll
    for (int i = 0; i < NUMBERS; i++)
        if (i / 4 * 8 + lane % 4 * 2 + i % 2 == row + (i & 2 ? 8 : 0)) s[i] = 0;
}

/* The sum of c (value / c) over eight cosines. */
template <int TERMS> __device__ inline float zonal__fused_sum(const float *a, const float *c) {
    float value[8], sum = 0;
    zonal__fused_horner<TERMS>(a, c, value);
#pragma unroll
    for (int i = 0; i < 8; i++) sum = fmaf(value[i], c[i], sum);
    return sum;
}

/* Half of the sum of the values of a tile, as zonal__fused_counts has it. */
template <int TERMS, bool DIAGONAL, int NUMBERS>
__device__ inline float zonal__fused_values(const float *a, zonal__fused_place at,
                                            const float (&s)[NUMBERS]) {
    float sum = 0;
    bool first = zonal__fused_counts(at.rows, at.columns);
#pragma unroll
    for (int g = 0; g < NUMBERS / 8; g += DIAGONAL ? 1 : 2) {
        int columns = at.columns + g;
        float c[8];
#pragma unroll
        for (int i = 0; i < 8; i++) c[i] = DIAGONAL || first ? s[8 * g + i] : s[8 * (g + 1) + i];
        float factor = !DIAGONAL                               ? 1.0f
                       : columns == at.rows                    ? 0.5f
                       : zonal__fused_counts(at.rows, columns) ? 1.0f
                                                               : 0.0f;
        sum = fmaf(zonal__fused_sum<TERMS>(a, c), factor, sum);
    }
    return sum;
}

template <int TERMS, int NUMBERS>
__device__ inline void zonal__fused_weights(const __half2 *a, const float (&s)[NUMBERS],
                                            uint32_t (&w)[NUMBERS / 2]) {
#pragma unroll
    for (int g = 0; g < NUMBERS / 8; g++) {
        __half2 weight[4];
        zonal__fused_halves<0, TERMS>(a, s + 8 * g, weight);
#pragma unroll
        for (int i = 0; i < 4; i++) w[4 * g + i] = zonal__fused_bits(weight[i]);
    }
}

/* 2^value of eight cosines. Of few terms, those from ZONAL__FUSED_LOW on are summed in halves. */
template <int TERMS, bool HALVES>
__device__ inline void zonal__fused_density(const zonal__fused_profile &f, const float *c,
                                            float *density) {
    if (HALVES) {
        __half2 high[4];
        zonal__fused_halves<ZONAL__FUSED_LOW, TERMS>(f.value_halves, c, high);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 both = __half22float2(high[i]);
            density[2 * i] = both.x;
            density[2 * i + 1] = both.y;
        }
#pragma unroll
        for (int k = ZONAL__FUSED_LOW - 1; k > 0; k--)
#pragma unroll
            for (int i = 0; i < 8; i++) density[i] = fmaf(density[i], c[i], f.value[k]);
    } else {
        zonal__fused_horner<TERMS>(f.value, c, density);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) density[i] = zonal__fused_power(density[i] * c[i]);
}

/* The shares of a thread's two rows, of a warp's from row0 on. */
__device__ inline void zonal__fused_own_shares(const zonal__fused_problem &g, int row0,
                                               float *share) {
    share[0] = g.share[row0 + (int)threadIdx.x % 32 / 4];
    share[1] = g.share[row0 + (int)threadIdx.x % 32 / 4 + 8];
}

/* share: of the thread's two rows; "shares", in shared memory, of the tile's columns. */
template <int VALUE_TERMS, int WEIGHT_TERMS, bool HALVES, int NUMBERS>
__device__ inline void zonal__fused_kl_weights(const zonal__fused_profile &f, const float *share,
                                               const float *shares, const float (&s)[NUMBERS],
                                               uint32_t (&w)[NUMBERS / 2]) {
#pragma unroll
    for (int g = 0; g < NUMBERS / 8; g++) {
        float density[8];
        __half2 derivative[4];
        zonal__fused_density<VALUE_TERMS, HALVES>(f, s + 8 * g, density);
        zonal__fused_halves<0, WEIGHT_TERMS>(f.halves, s + 8 * g, derivative);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float row = share[i % 2];
            float2 columns = *(const float2 *)(shares + 16 * g + i / 2 * 8 + threadIdx.x % 4 * 2);
            float2 weight = __half22float2(derivative[i]);
            weight.x = fmaf(weight.x, density[2 * i] * (row + columns.x), -f.base);
            weight.y = fmaf(weight.y, density[2 * i + 1] * (row + columns.y), -f.base);
            w[4 * g + i] = zonal__fused_bits(__floats2half2_rn(weight.x, weight.y));
        }
    }
}

/* ---- the products --------------------------------------------------------------------------- */

/* s = 64 rows in shared memory times the rows of a tile. */
template <int PANELS, int COLUMNS>
__device__ inline void zonal__fused_cosines(uint32_t own, int own_panel, uint32_t tile, float *s) {
#pragma unroll
    for (int k = 0; k < 4 * PANELS; k++) /* 16 elements, 32 bytes, at a time */
        zonal__products<COLUMNS>::shared(
            s, zonal__matrix(own + k / 4 * own_panel + k % 4 * 32, 16),
            zonal__matrix(tile + k / 4 * COLUMNS * 128 + k % 4 * 32, 16), k > 0);
}

/* o += weights in registers times the rows of a tile. */
template <int PANELS, int COLUMNS>
__device__ inline void zonal__fused_gather(const uint32_t *w, uint32_t tile, float *o) {
    constexpr int WIDTH = PANELS % 4 == 0 ? 4 : 2; /* panels at a time */
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; k++)
#pragma unroll
        for (int p = 0; p < PANELS; p += WIDTH)
            zonal__products<64 * WIDTH>::held(
                o + 32 * p, w + 4 * k,
                zonal__matrix(tile + p * COLUMNS * 128 + k * 16 * 128, COLUMNS * 128));
}

/* ---- how a block begins --------------------------------------------------------------------- */

typedef struct zonal__fused_barriers {
    uint32_t own, full, empty; /* addresses; full and empty of each place, 8 bytes apart */
} zonal__fused_barriers;

/* Who a thread is: two warpgroups multiply, the third one copies. */
typedef struct zonal__fused_start {
    zonal__fused_barriers bars;
    int group, warp; /* uniform, for the compiler */
} zonal__fused_start;

/* barrier: 1 + 2 PLACES in shared memory; "users" warps release a place. */
template <int PLACES>
__device__ inline zonal__fused_start zonal__fused_begin(uint64_t *barrier, int users) {
    uint32_t bar = zonal__shared_address(barrier);
    zonal__fused_start start = {{bar, bar + 8, bar + 8 + 8 * PLACES},
                                __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0),
                                __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0)};
    if (threadIdx.x == 0) {
        zonal__barrier_init(start.bars.own, 1);
        for (int place = 0; place < PLACES; place++) {
            zonal__barrier_init(start.bars.full + 8 * place, 1);
            zonal__barrier_init(start.bars.empty + 8 * place, users);
        }
        zonal__barrier_publish();
    }
    __syncthreads();
    return start;
}

/* The registers of a block go to the warpgroups that multiply. */
__device__ inline void zonal__fused_registers_less() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
}
__device__ inline void zonal__fused_registers_more() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
}

/* ---- the copies ----------------------------------------------------------------------------- */

/* One thread: the own rows, then the tiles from "first" on as their places become free. */
template <int PANELS, int MODE>
__device__ inline void zonal__fused_copy(const zonal__fused_problem &g, zonal__fused_barriers bars,
                                         uint32_t shared, int first, int count) {
    using layout = zonal__fused_layout<PANELS, MODE>;
    uint32_t tiles = shared + layout::OWN, shares = tiles + ZONAL__FUSED_STAGES * layout::TILE;
    zonal__barrier_expect(bars.own, layout::OWN);
    for (int p = 0; p < PANELS; p++)
        zonal__bulk_copy(shared + p * layout::OWN_PANEL,
                         g.image + p * g.panel_bytes + (int64_t)blockIdx.x * layout::OWN_PANEL,
                         layout::OWN_PANEL, bars.own);
    for (int j = 0; j < count; j++) {
        int stage = j % ZONAL__FUSED_STAGES, round = j / ZONAL__FUSED_STAGES;
        uint32_t full = bars.full + 8 * stage;
        if (round > 0) zonal__barrier_wait(bars.empty + 8 * stage, (round - 1) & 1);
        zonal__barrier_expect(full, layout::TILE + layout::SHARES);
        for (int p = 0; p < PANELS; p++)
            zonal__bulk_copy(tiles + stage * layout::TILE + p * layout::PANEL,
                             g.image + p * g.panel_bytes + (int64_t)(first + j) * layout::PANEL,
                             layout::PANEL, full);
        if (MODE == ZONAL__FUSED_KL)
            zonal__bulk_copy(shares + stage * layout::SHARES,
                             g.share + (int64_t)(first + j) * ZONAL__FUSED_COLUMNS, layout::SHARES,
                             full);
    }
}

/* ---- results -------------------------------------------------------------------------------- */

/* The 64 rows of a warpgroup from row0 on. */
template <int NUMBERS>
__device__ inline void zonal__fused_store(const zonal__fused_problem &g, int row0,
                                          const float (&o)[NUMBERS]) {
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    int row = row0 + 16 * warp + lane / 4;
    float *to = g.o + (int64_t)blockIdx.y * g.rows * g.dim;
#pragma unroll
    for (int i = 0; i < NUMBERS; i += 2) {
        int64_t own = row + (i & 2 ? 8 : 0);
        int column = i / 4 * 8 + lane % 4 * 2;
        float *at = to + own * g.dim + column;
        if (own >= g.rows || column >= g.dim) continue;
        if (g.pairs) {
            *(float2 *)at = make_float2(o[i] * g.alpha, o[i + 1] * g.alpha);
        } else {
            at[0] = o[i] * g.alpha;
            if (column + 1 < g.dim) at[1] = o[i + 1] * g.alpha;
        }
    }
}

/* One number of each thread of the eight warps that multiply, added by warps. */
__device__ inline void zonal__fused_store_sum(double *to, double sum) {
    int64_t block = (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) to[block * ZONAL__FUSED_SUMS + threadIdx.x / 32] = sum;
}

/* ---- a warpgroup ---------------------------------------------------------------------------- */

template <int PANELS, int MODE, int VALUE_TERMS, int WEIGHT_TERMS> struct zonal__fused_group {
    using layout = zonal__fused_layout<PANELS, MODE>;
    static constexpr int COLUMNS = ZONAL__FUSED_COLUMNS, NUMBERS = COLUMNS / 2;
    static constexpr bool HALVES = VALUE_TERMS < ZONAL__FUSED_MANY;
    const zonal__fused_profile &f;
    const zonal__fused_problem &g;
    zonal__fused_barriers bars;
    uint32_t own, tiles;
    const float *shares;
    int group, first;
    zonal__fused_place at;
    float share[2];
    double sum;

    __device__ inline uint32_t tile(int j) const {
        return tiles + j % ZONAL__FUSED_STAGES * layout::TILE;
    }
    __device__ inline void wait_for(int j) const {
        zonal__barrier_wait(bars.full + 8 * (j % ZONAL__FUSED_STAGES),
                            (j / ZONAL__FUSED_STAGES) & 1);
    }
    __device__ inline void release(int j) const {
        if (threadIdx.x % 32 == 0)
            zonal__barrier_arrive(bars.empty + 8 * (j % ZONAL__FUSED_STAGES));
    }

    /* From cosines to weights and sums. */
    __device__ inline void look(int j, float (&s)[NUMBERS], uint32_t (&w)[NUMBERS / 2]) {
        at.columns = (first + j) * (COLUMNS / 16);
        bool diagonal = at.columns <= at.rows && at.rows < at.columns + COLUMNS / 16;
        if (diagonal) zonal__fused_clear(at, s);
        if (MODE == ZONAL__FUSED_KL) {
            zonal__fused_kl_weights<VALUE_TERMS, WEIGHT_TERMS, HALVES>(
                f, share, shares + j % ZONAL__FUSED_STAGES * COLUMNS, s, w);
        } else {
            sum += diagonal ? zonal__fused_values<VALUE_TERMS, true>(f.value, at, s)
                            : zonal__fused_values<VALUE_TERMS, false>(f.value, at, s);
            zonal__fused_weights<WEIGHT_TERMS>(f.halves, s, w);
        }
    }

    __device__ inline void cosines(int j, float (&s)[NUMBERS]) const {
        zonal__fused_cosines<PANELS, COLUMNS>(own, layout::OWN_PANEL, tile(j), s);
        zonal__products_commit();
    }
    __device__ inline void gather(int j, uint32_t (&w)[NUMBERS / 2],
                                  float (&o)[PANELS * 32]) const {
        zonal__hold(o);
        zonal__hold(w);
        zonal__products_fence();
        zonal__fused_gather<PANELS, COLUMNS>(w, tile(j), o);
        zonal__products_commit();
    }

    /* The products of a turn are those that add up a tile and those that begin the next one. */
    __device__ inline void run(int count) {
        float o[PANELS * 32], s[NUMBERS];
        uint32_t w[NUMBERS / 2];
#pragma unroll
        for (int i = 0; i < PANELS * 32; i++) o[i] = 0;
        wait_for(0);
        zonal__turn_wait(1 + group);
        zonal__products_fence();
        cosines(0, s);
        zonal__turn_pass(2 - group);
        zonal__products_wait<0>();
        zonal__hold(s);
        look(0, s, w);
        for (int j = 1; j < count; j++) {
            wait_for(j);
            zonal__turn_wait(1 + group);
            gather(j - 1, w, o);
            cosines(j, s);
            zonal__products_wait<1>();
            zonal__turn_pass(2 - group); /* the rest overlaps with the other's first products */
            zonal__hold(o);
            release(j - 1);
            zonal__products_wait<0>();
            zonal__hold(s);
            look(j, s, w);
        }
        zonal__turn_wait(1 + group);
        gather(count - 1, w, o);
        if (group == 0) zonal__turn_pass(2);
        zonal__products_wait<0>();
        zonal__hold(o);
        zonal__fused_store(g, (int)blockIdx.x * ZONAL__FUSED_ROWS + 64 * group, o);
    }
};

#endif

template <int PANELS, int MODE, int VALUE_TERMS, int WEIGHT_TERMS>
__global__ void __launch_bounds__(ZONAL__FUSED_THREADS, 1)
    zonal__fused(const __grid_constant__ zonal__fused_profile f,
                 const __grid_constant__ zonal__fused_problem g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using layout = zonal__fused_layout<PANELS, MODE>;
    extern __shared__ __align__(1024) char shared[];
    __shared__ __align__(8) uint64_t barrier[1 + 2 * ZONAL__FUSED_STAGES];
    uint32_t begin = zonal__shared_address(shared);
    int first = (int)blockIdx.y * g.tiles_each, count = min(g.tiles - first, g.tiles_each);
    zonal__fused_start start = zonal__fused_begin<ZONAL__FUSED_STAGES>(barrier, 8);
    if (start.group == 2) {
        zonal__fused_registers_less();
        if (threadIdx.x == 256) zonal__fused_copy<PANELS, MODE>(g, start.bars, begin, first, count);
        return;
    }
    zonal__fused_registers_more();
    int row0 = (int)blockIdx.x * ZONAL__FUSED_ROWS + 64 * start.group;
    zonal__fused_group<PANELS, MODE, VALUE_TERMS, WEIGHT_TERMS> work = {
        f,
        g,
        start.bars,
        begin + start.group * 64 * 128,
        begin + layout::OWN,
        (const float *)(shared + layout::OWN + ZONAL__FUSED_STAGES * layout::TILE),
        start.group,
        first,
        {row0 / 16 + start.warp, 0},
        {0, 0},
        0};
    if (MODE == ZONAL__FUSED_KL) zonal__fused_own_shares(g, row0 + 16 * start.warp, work.share);
    if (start.group == 1) zonal__turn_pass(1);
    zonal__barrier_wait(start.bars.own, 0);
    work.run(count);
    if (MODE == ZONAL__FUSED_PAIRS) zonal__fused_store_sum(g.sum, work.sum);
#endif
}

#endif
