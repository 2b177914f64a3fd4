/*
 * Pairs and KL on Hopper in `fp32`: as fused_kernel.cuh, with every number as two halves, hi + lo,
 * and three products in place of one (hi hi + hi lo + lo hi: right to 2^-22).
 *
 * A block owns 64 rows, and its two warpgroups take alternate tiles of 64 columns, each by itself:
 * one of them multiplies while the other evaluates. A tile comes in two units, each of half of the
 * elements, hi and lo; five places serve both warpgroups. A warpgroup has no tile but the one it
 * works on, so that the next ones have room to arrive.
 *
 * Tensor cores cut their sums off, so O is added to memory, with rounding, every 32 tiles of a
 * warpgroup; the warpgroups do so one after the other, in order. What was cut off on average is
 * given back then.
 */
#ifndef ZONAL_BACKEND_CUDA_FUSED_SPLIT_KERNEL_CUH
#define ZONAL_BACKEND_CUDA_FUSED_SPLIT_KERNEL_CUH

#include "backend/cuda/fused_kernel.cuh"

enum {
    ZONAL__SPLIT_PLACES = 5,
    ZONAL__SPLIT_TURNS = 32 /* tiles of a warpgroup until O goes to memory */
};

/* Rows are multiplied by this, so that lo stays clear of half's subnormals; polynomials are in
 * powers of the products of such rows. */
constexpr float ZONAL__SPLIT_SCALE = 2;

/* What a tile takes off O, of its value: 12 additions, each of which cuts off half of a unit in the
 * last place, 0.72 2^-24 on average over all mantissas, of a sum that is half of what it comes to.
 * This is nearly all of the error: the rest differs from element to element. */
constexpr float ZONAL__SPLIT_LOSS = 12 * 0.72f / (1 << 25);

template <int PANELS, int MODE> struct zonal__split_layout {
    static constexpr int PANEL = 64 * 128;         /* of 64 rows or columns, hi or lo */
    static constexpr int PANELS_EACH = PANELS / 2; /* of a unit */
    static constexpr int UNIT = PANELS_EACH * 2 * PANEL;
    static constexpr int OWN = 2 * UNIT;
    static constexpr int SHARES = MODE == ZONAL__FUSED_KL ? ZONAL__SPLIT_COLUMNS * 4 : 0;
    static constexpr int BYTES = OWN + ZONAL__SPLIT_PLACES * (UNIT + SHARES);
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* hi and lo of a unit's panels, of the 64 rows or columns of a tile. */
template <int PANELS, int MODE>
__device__ inline void zonal__split_copy_unit(const zonal__fused_problem &g, uint32_t to, int tile,
                                              int unit, uint32_t barrier) {
    using layout = zonal__split_layout<PANELS, MODE>;
    for (int p = 0; p < layout::PANELS_EACH; p++) {
        int64_t from =
            (unit * layout::PANELS_EACH + p) * g.panel_bytes + (int64_t)tile * layout::PANEL;
        uint32_t at = to + 2 * p * layout::PANEL;
        zonal__bulk_copy(at, g.image + from, layout::PANEL, barrier);
        zonal__bulk_copy(at + layout::PANEL, g.lo + from, layout::PANEL, barrier);
    }
}

/* One thread: the own rows, then two units of each tile. */
template <int PANELS, int MODE>
__device__ inline void zonal__split_copy(const zonal__fused_problem &g, zonal__fused_barriers bars,
                                         uint32_t shared, int first, int count) {
    using layout = zonal__split_layout<PANELS, MODE>;
    uint32_t places = shared + layout::OWN, shares = places + ZONAL__SPLIT_PLACES * layout::UNIT;
    zonal__barrier_expect(bars.own, layout::OWN);
    for (int unit = 0; unit < 2; unit++)
        zonal__split_copy_unit<PANELS, MODE>(g, shared + unit * layout::UNIT, (int)blockIdx.x, unit,
                                             bars.own);
    for (int u = 0; u < 2 * count; u++) {
        int place = u % ZONAL__SPLIT_PLACES, round = u / ZONAL__SPLIT_PLACES, tile = first + u / 2;
        uint32_t full = bars.full + 8 * place;
        if (round > 0) zonal__barrier_wait(bars.empty + 8 * place, (round - 1) & 1);
        zonal__barrier_expect(full, layout::UNIT + (u % 2 == 0 ? layout::SHARES : 0));
        zonal__split_copy_unit<PANELS, MODE>(g, places + place * layout::UNIT, tile, u % 2, full);
        if (MODE == ZONAL__FUSED_KL && u % 2 == 0)
            zonal__bulk_copy(shares + place * layout::SHARES,
                             g.share + (int64_t)tile * ZONAL__SPLIT_COLUMNS, layout::SHARES, full);
    }
}

/* Two weights as hi and lo. */
__device__ inline void zonal__split_weights(float x, float y, uint32_t *hi, uint32_t *lo) {
    __half2 high = __floats2half2_rn(x, y);
    float2 back = __half22float2(high);
    *hi = zonal__fused_bits(high);
    *lo = zonal__fused_bits(__floats2half2_rn(x - back.x, y - back.y));
}

template <int PANELS, int MODE, int VALUE_TERMS, int WEIGHT_TERMS> struct zonal__split_group {
    using layout = zonal__split_layout<PANELS, MODE>;
    static constexpr int NUMBERS = ZONAL__SPLIT_COLUMNS / 2;
    const zonal__fused_profile &f;
    const zonal__fused_problem &g;
    zonal__fused_barriers bars;
    uint32_t own, places;
    const float *shares;
    int group, first;
    zonal__fused_place at;
    float share[2];
    double sum;

    __device__ inline uint32_t unit(int u) const {
        return places + u % ZONAL__SPLIT_PLACES * layout::UNIT;
    }
    __device__ inline void wait_for(int u) const {
        zonal__barrier_wait(bars.full + 8 * (u % ZONAL__SPLIT_PLACES),
                            (u / ZONAL__SPLIT_PLACES) & 1);
    }
    __device__ inline void release(int u) const {
        if (threadIdx.x % 32 == 0)
            zonal__barrier_arrive(bars.empty + 8 * (u % ZONAL__SPLIT_PLACES));
    }

    /* s = or += half of the elements of the own rows, hi or lo, times those of a unit. */
    __device__ inline void multiply(int half, int own_part, uint32_t b, int add, float *s) const {
#pragma unroll
        for (int k = 0; k < 4 * layout::PANELS_EACH; k++) {
            int at_k = k / 4 * 2 * layout::PANEL + k % 4 * 32;
            uint32_t a = own + half * layout::UNIT + own_part * layout::PANEL;
            zonal__products<64>::shared(s, zonal__matrix(a + at_k, 16), zonal__matrix(b + at_k, 16),
                                        add || k > 0);
        }
    }
    /* Sums are cut off at every addition, so the small products come first. */
    __device__ inline void cosines(int tile, float (&s)[NUMBERS]) const {
        zonal__fresh(s);
        zonal__products_fence();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            wait_for(2 * tile + half);
            multiply(half, 1, unit(2 * tile + half), half, s);
            multiply(half, 0, unit(2 * tile + half) + layout::PANEL, 1, s);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) multiply(half, 0, unit(2 * tile + half), 1, s);
        zonal__products_commit();
        zonal__products_wait<0>();
        zonal__hold(s);
    }

    __device__ inline void pair_weights(const float *c, uint32_t *hi, uint32_t *lo) const {
        float w[8];
        zonal__fused_horner<WEIGHT_TERMS>(f.weight, c, w);
#pragma unroll
        for (int i = 0; i < 8; i += 2)
            zonal__split_weights(w[i] * c[i], w[i + 1] * c[i + 1], hi + i / 2, lo + i / 2);
    }
    __device__ inline void kl_weights(const float *c, const float *columns, uint32_t *hi,
                                      uint32_t *lo) const {
        float density[8], w[8];
        zonal__fused_density<VALUE_TERMS, false>(f, c, density);
        zonal__fused_horner<WEIGHT_TERMS>(f.weight, c, w);
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            float row = share[i / 2 % 2];
            float2 column = *(const float2 *)(columns + i / 4 * 8 + threadIdx.x % 4 * 2);
            float x = fmaf(w[i], c[i], f.weight[0]), y = fmaf(w[i + 1], c[i + 1], f.weight[0]);
            zonal__split_weights(fmaf(x, density[i] * (row + column.x), -f.base),
                                 fmaf(y, density[i + 1] * (row + column.y), -f.base), hi + i / 2,
                                 lo + i / 2);
        }
    }

    __device__ inline void look(int tile, float (&s)[NUMBERS], uint32_t (&hi)[NUMBERS / 2],
                                uint32_t (&lo)[NUMBERS / 2]) {
        at.columns = (first + tile) * (ZONAL__SPLIT_COLUMNS / 16);
        bool diagonal = at.columns <= at.rows && at.rows < at.columns + ZONAL__SPLIT_COLUMNS / 16;
        if (diagonal) zonal__fused_clear(at, s);
        if (MODE == ZONAL__FUSED_PAIRS)
            sum += diagonal ? zonal__fused_values<VALUE_TERMS, true>(f.value, at, s)
                            : zonal__fused_values<VALUE_TERMS, false>(f.value, at, s);
#pragma unroll
        for (int n = 0; n < NUMBERS / 8; n++) {
            if (MODE == ZONAL__FUSED_PAIRS)
                pair_weights(s + 8 * n, hi + 4 * n, lo + 4 * n);
            else
                kl_weights(s + 8 * n,
                           shares + 2 * tile % ZONAL__SPLIT_PLACES * ZONAL__SPLIT_COLUMNS + 16 * n,
                           hi + 4 * n, lo + 4 * n);
        }
    }

    /* o += weights in registers times a part of a unit. */
    __device__ inline void gather_part(const uint32_t *w, uint32_t b, float *o) const {
#pragma unroll
        for (int k = 0; k < ZONAL__SPLIT_COLUMNS / 16; k++)
            zonal__products<64 * layout::PANELS_EACH>::held(
                o, w + 4 * k, zonal__matrix(b + k * 16 * 128, 2 * layout::PANEL));
    }
    __device__ inline void gather(int tile, uint32_t (&hi)[NUMBERS / 2],
                                  uint32_t (&lo)[NUMBERS / 2], float (&o)[PANELS * 32]) const {
        zonal__hold(o);
        zonal__hold(hi);
        zonal__hold(lo);
        zonal__products_fence();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t b = unit(2 * tile + half);
            float *to = o + half * 32 * layout::PANELS_EACH;
            gather_part(lo, b, to);
            gather_part(hi, b + layout::PANEL, to);
            gather_part(hi, b, to);
            zonal__products_commit();
        }
    }

    /* Adds a part of O to memory at "to", or begins it, and begins anew. All is read before it is
     * written, so that the reads are under way together. */
    template <int FIRST, int COUNT>
    __device__ inline void add_to_memory(float *to, float alpha, bool begin,
                                         float (&o)[PANELS * 32]) const {
        float2 old[COUNT / 2];
        int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
        int row = (int)blockIdx.x * ZONAL__SPLIT_ROWS + 16 * warp + lane / 4;
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) {
            int own_row = row + (i & 2 ? 8 : 0), column = (FIRST + i) / 4 * 8 + lane % 4 * 2;
            const float *here = to + (int64_t)own_row * g.dim + column;
            old[i / 2] = make_float2(0, 0);
            if (begin || own_row >= g.rows || column >= g.dim) continue;
            if (g.pairs)
                old[i / 2] = __ldcg((const float2 *)here);
            else
                old[i / 2] =
                    make_float2(__ldcg(here), column + 1 < g.dim ? __ldcg(here + 1) : 0.0f);
        }
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) {
            int own_row = row + (i & 2 ? 8 : 0), column = (FIRST + i) / 4 * 8 + lane % 4 * 2;
            float *here = to + (int64_t)own_row * g.dim + column;
            float2 sum2 = make_float2(fmaf(o[FIRST + i], alpha, old[i / 2].x),
                                      fmaf(o[FIRST + i + 1], alpha, old[i / 2].y));
            o[FIRST + i] = o[FIRST + i + 1] = 0;
            if (own_row >= g.rows || column >= g.dim) continue;
            if (g.pairs) {
                *(float2 *)here = sum2;
            } else {
                here[0] = sum2.x;
                if (column + 1 < g.dim) here[1] = sum2.y;
            }
        }
    }

    /* O of so many tiles. Group 0 comes first each time. */
    __device__ inline void flush(int tiles, bool begin, bool last, float (&o)[PANELS * 32]) const {
        float alpha = g.alpha * (1 + (float)tiles * ZONAL__SPLIT_LOSS);
        float *to = g.o + (int64_t)blockIdx.y * g.rows * g.dim;
        if (group == 1 || !begin) zonal__turn_wait(4 - group); /* 3 is passed to group 1 */
        begin = begin && group == 0;
        add_to_memory<0, PANELS * 8>(to, alpha, begin, o);
        add_to_memory<PANELS * 8, PANELS * 8>(to, alpha, begin, o);
        add_to_memory<PANELS * 16, PANELS * 8>(to, alpha, begin, o);
        add_to_memory<PANELS * 24, PANELS * 8>(to, alpha, begin, o);
        __threadfence_block();
        if (!(group == 1 && last)) zonal__turn_pass(3 + group);
    }

    /* "count" is even, and half of it is this group's. */
    __device__ inline void run(int count) {
        float o[PANELS * 32], s[NUMBERS];
        uint32_t hi[NUMBERS / 2], lo[NUMBERS / 2];
        int turns = 0;
        bool begin = true;
#pragma unroll
        for (int i = 0; i < PANELS * 32; i++) o[i] = 0;
        for (int tile = group; tile < count; tile += 2) {
            cosines(tile, s);
            look(tile, s, hi, lo);
            gather(tile, hi, lo, o);
            zonal__products_wait<1>();
            release(2 * tile);
            zonal__products_wait<0>();
            release(2 * tile + 1);
            zonal__hold(o);
            if (++turns < ZONAL__SPLIT_TURNS || tile + 2 >= count) continue;
            flush(turns, begin, false, o);
            begin = false;
            turns = 0;
        }
        flush(turns, begin, true, o);
    }
};

#endif

template <int PANELS, int MODE, int VALUE_TERMS, int WEIGHT_TERMS>
__global__ void __launch_bounds__(ZONAL__FUSED_THREADS, 1)
    zonal__fused_split(const __grid_constant__ zonal__fused_profile f,
                       const __grid_constant__ zonal__fused_problem g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using layout = zonal__split_layout<PANELS, MODE>;
    extern __shared__ __align__(1024) char shared[];
    __shared__ __align__(8) uint64_t barrier[1 + 2 * ZONAL__SPLIT_PLACES];
    uint32_t begin = zonal__shared_address(shared);
    int first = (int)blockIdx.y * g.tiles_each, count = min(g.tiles - first, g.tiles_each);
    zonal__fused_start start = zonal__fused_begin<ZONAL__SPLIT_PLACES>(barrier, 4);
    if (start.group == 2) {
        zonal__fused_registers_less();
        if (threadIdx.x == 256) zonal__split_copy<PANELS, MODE>(g, start.bars, begin, first, count);
        return;
    }
    zonal__fused_registers_more();
    int row0 = (int)blockIdx.x * ZONAL__SPLIT_ROWS;
    zonal__split_group<PANELS, MODE, VALUE_TERMS, WEIGHT_TERMS> work = {
        f,
        g,
        start.bars,
        begin,
        begin + layout::OWN,
        (const float *)(shared + layout::OWN + ZONAL__SPLIT_PLACES * layout::UNIT),
        start.group,
        first,
        {row0 / 16 + start.warp, 0},
        {0, 0},
        0};
    if (MODE == ZONAL__FUSED_KL) zonal__fused_own_shares(g, row0 + 16 * start.warp, work.share);
    zonal__barrier_wait(start.bars.own, 0);
    work.run(count);
    if (MODE == ZONAL__FUSED_PAIRS) zonal__fused_store_sum(g.sum, work.sum);
#endif
}

#endif
