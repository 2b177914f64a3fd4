/*
 * Pairs on Hopper in `fp32`: as fused_kernel.cuh, with every number as two halves, hi + lo, and
 * three products in place of one (hi hi + hi lo + lo hi: right to 2^-22).
 *
 * A block owns 64 rows, and its two warpgroups take alternate tiles of 64 columns, so that two
 * tiles need not be in shared memory at a time for each of them. The halves of a tile come and go
 * by themselves: five places serve both warpgroups in the order hi 0, lo 0, hi 1, lo 1, hi 2 ...
 *
 * Tensor cores cut their sums off, so O is added to memory, with rounding, every 32 tiles; the
 * warpgroups do so one after the other, in order.
 */
#ifndef ZONAL_BACKEND_CUDA_FUSED_SPLIT_KERNEL_CUH
#define ZONAL_BACKEND_CUDA_FUSED_SPLIT_KERNEL_CUH

#include "backend/cuda/fused_kernel.cuh"

enum {
    ZONAL__SPLIT_PLACES = 5,
    ZONAL__SPLIT_TURNS = 32 /* tiles of a warpgroup until O goes to memory */
};

/* Rows are multiplied by this, so that lo stays clear of half's subnormals. */
constexpr float ZONAL__SPLIT_SCALE = 128;

template <int PANELS> struct zonal__split_layout {
    static constexpr int PANEL = 64 * 128; /* of 64 rows or columns */
    static constexpr int PART = PANELS * PANEL;
    static constexpr int BYTES = (2 + ZONAL__SPLIT_PLACES) * PART;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* One thread: the own rows' hi and lo, then hi and lo of each tile. "lo" is the second image. */
template <int PANELS>
__device__ inline void zonal__split_copy(const zonal__fused_problem &g, const char *lo,
                                         zonal__fused_barriers bars, uint32_t shared, int first,
                                         int count) {
    using layout = zonal__split_layout<PANELS>;
    zonal__barrier_expect(bars.own, 2 * layout::PART);
    for (int part = 0; part < 2; part++)
        for (int p = 0; p < PANELS; p++)
            zonal__bulk_copy(shared + part * layout::PART + p * layout::PANEL,
                             (part ? lo : g.image) + p * g.panel_bytes +
                                 (int64_t)blockIdx.x * layout::PANEL,
                             layout::PANEL, bars.own);
    for (int u = 0; u < 2 * count; u++) {
        int place = u % ZONAL__SPLIT_PLACES, round = u / ZONAL__SPLIT_PLACES;
        if (round > 0) zonal__barrier_wait(bars.empty + 8 * place, (round - 1) & 1);
        zonal__barrier_expect(bars.full + 8 * place, layout::PART);
        for (int p = 0; p < PANELS; p++)
            zonal__bulk_copy(shared + (2 + place) * layout::PART + p * layout::PANEL,
                             (u % 2 ? lo : g.image) + p * g.panel_bytes +
                                 (int64_t)(first + u / 2) * layout::PANEL,
                             layout::PANEL, bars.full + 8 * place);
    }
}

template <int PANELS, bool GRADIENT, int VALUE_TERMS, int WEIGHT_TERMS> struct zonal__split_group {
    using layout = zonal__split_layout<PANELS>;
    static constexpr int NUMBERS = ZONAL__SPLIT_COLUMNS / 2;
    const zonal__fused_profile &f;
    const zonal__fused_problem &g;
    zonal__fused_barriers bars;
    uint32_t own, places;
    int group, first;
    zonal__fused_place at;
    double sum;

    /* Unit u is hi (even) or lo (odd) of tile u/2. */
    __device__ inline uint32_t unit(int u) const {
        return places + u % ZONAL__SPLIT_PLACES * layout::PART;
    }
    __device__ inline void wait_for(int u) const {
        zonal__barrier_wait(bars.full + 8 * (u % ZONAL__SPLIT_PLACES),
                            (u / ZONAL__SPLIT_PLACES) & 1);
    }
    __device__ inline void release(int u) const {
        if (threadIdx.x % 32 == 0)
            zonal__barrier_arrive(bars.empty + 8 * (u % ZONAL__SPLIT_PLACES));
    }

    /* s = or += 64 rows, hi or lo, times those of a unit. */
    template <bool ADD> __device__ inline void cosines(int part, uint32_t b, float *s) const {
#pragma unroll
        for (int k = 0; k < 4 * PANELS; k++) {
            int at_k = k / 4 * layout::PANEL + k % 4 * 32;
            zonal__products<64>::shared(s, zonal__matrix(own + part * layout::PART + at_k, 16),
                                        zonal__matrix(b + at_k, 16), ADD || k > 0);
        }
    }
    __device__ inline void cosines_of_hi(int tile, float (&s)[NUMBERS]) const {
        cosines<false>(1, unit(2 * tile), s);
        cosines<true>(0, unit(2 * tile), s);
        zonal__products_commit();
    }
    __device__ inline void cosines_of_lo(int tile, float (&s)[NUMBERS]) const {
        cosines<true>(0, unit(2 * tile + 1), s);
        zonal__products_commit();
    }

    __device__ inline void look(int tile, float (&s)[NUMBERS], uint32_t (&hi)[NUMBERS / 2],
                                uint32_t (&lo)[NUMBERS / 2]) {
        constexpr float unscale = 1 / (ZONAL__SPLIT_SCALE * ZONAL__SPLIT_SCALE);
        at.columns = (first + tile) * (ZONAL__SPLIT_COLUMNS / 16);
        bool diagonal = at.columns <= at.rows && at.rows < at.columns + ZONAL__SPLIT_COLUMNS / 16;
#pragma unroll
        for (int i = 0; i < NUMBERS; i++) s[i] *= unscale;
        if (diagonal) zonal__fused_clear(at, s);
        sum += diagonal ? zonal__fused_values<VALUE_TERMS, true>(f.value, at, s)
                        : zonal__fused_values<VALUE_TERMS, false>(f.value, at, s);
#pragma unroll
        for (int n = 0; GRADIENT && n < NUMBERS / 8; n++) {
            float w[8];
            zonal__fused_horner<WEIGHT_TERMS>(f.weight, s + 8 * n, w);
#pragma unroll
            for (int i = 0; i < 8; i += 2) {
                __half2 high =
                    __floats2half2_rn(w[i] *= s[8 * n + i], w[i + 1] *= s[8 * n + i + 1]);
                float2 back = __half22float2(high);
                hi[4 * n + i / 2] = zonal__fused_bits(high);
                lo[4 * n + i / 2] =
                    zonal__fused_bits(__floats2half2_rn(w[i] - back.x, w[i + 1] - back.y));
            }
        }
    }

    /* Adds O to memory, or begins it, and begins anew. Group 0 comes first each time. */
    __device__ inline void flush(bool begin, bool last, float (&o)[PANELS * 32]) const {
        int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
        int row = (int)blockIdx.x * ZONAL__SPLIT_ROWS + 16 * warp + lane / 4;
        float *to = g.o + (int64_t)blockIdx.y * g.rows * g.dim;
        if (group == 1 || !begin) zonal__turn_wait(4 - group); /* 3 is passed to group 1 */
        begin = begin && group == 0;
#pragma unroll
        for (int i = 0; i < PANELS * 32; i += 2) {
            int64_t own_row = row + (i & 2 ? 8 : 0);
            int column = i / 4 * 8 + lane % 4 * 2;
            float *here = to + own_row * g.dim + column;
            float2 sum2 = make_float2(o[i] * g.alpha, o[i + 1] * g.alpha);
            o[i] = o[i + 1] = 0;
            if (own_row >= g.rows || column >= g.dim) continue;
            if (g.pairs) {
                float2 old = begin ? make_float2(0, 0) : __ldcg((const float2 *)here);
                *(float2 *)here = make_float2(old.x + sum2.x, old.y + sum2.y);
            } else {
                here[0] = sum2.x + (begin ? 0 : __ldcg(here));
                if (column + 1 < g.dim) here[1] = sum2.y + (begin ? 0 : __ldcg(here + 1));
            }
        }
        __threadfence_block();
        if (!(group == 1 && last)) zonal__turn_pass(3 + group);
    }

    __device__ inline void gather(int tile, uint32_t (&hi)[NUMBERS / 2],
                                  uint32_t (&lo)[NUMBERS / 2], float (&o)[PANELS * 32]) const {
        zonal__hold(o);
        zonal__hold(hi);
        zonal__hold(lo);
        zonal__products_fence();
        zonal__fused_gather<PANELS, ZONAL__SPLIT_COLUMNS>(lo, unit(2 * tile), o);
        zonal__fused_gather<PANELS, ZONAL__SPLIT_COLUMNS>(hi, unit(2 * tile), o);
        zonal__products_commit();
        zonal__fused_gather<PANELS, ZONAL__SPLIT_COLUMNS>(hi, unit(2 * tile + 1), o);
        zonal__products_commit();
    }

    /* "count" is even, and half of it is this group's. */
    __device__ inline void with_gradient(int count) {
        float o[PANELS * 32], s[NUMBERS];
        uint32_t hi[NUMBERS / 2], lo[NUMBERS / 2];
#pragma unroll
        for (int i = 0; i < PANELS * 32; i++) o[i] = 0;
        wait_for(2 * group);
        zonal__turn_wait(1 + group);
        zonal__products_fence();
        cosines_of_hi(group, s);
        zonal__turn_pass(2 - group);
        wait_for(2 * group + 1);
        zonal__products_fence();
        cosines_of_lo(group, s);
        zonal__products_wait<0>();
        zonal__hold(s);
        look(group, s, hi, lo);
        int turn = 0;
        for (int tile = group + 2; tile < count; tile += 2) {
            int before = tile - 2;
            wait_for(2 * tile);
            zonal__turn_wait(1 + group);
            gather(before, hi, lo, o);
            cosines_of_hi(tile, s);
            zonal__products_wait<2>();
            release(2 * before);
            zonal__products_wait<1>();
            zonal__turn_pass(2 - group); /* lo may be on its way for a while */
            release(2 * before + 1);
            wait_for(2 * tile + 1);
            zonal__products_fence();
            cosines_of_lo(tile, s);
            zonal__hold(o);
            if (++turn % ZONAL__SPLIT_TURNS == 0) flush(turn == ZONAL__SPLIT_TURNS, false, o);
            zonal__products_wait<0>();
            zonal__hold(s);
            look(tile, s, hi, lo);
        }
        zonal__turn_wait(1 + group);
        gather(count - 2 + group, hi, lo, o);
        if (group == 0) zonal__turn_pass(2);
        zonal__products_wait<0>();
        zonal__hold(o);
        flush(turn < ZONAL__SPLIT_TURNS, true, o);
    }

    __device__ inline void without_gradient(int count) {
        float s[NUMBERS];
        uint32_t hi[NUMBERS / 2], lo[NUMBERS / 2];
        for (int tile = group; tile < count; tile += 2) {
            wait_for(2 * tile);
            wait_for(2 * tile + 1);
            zonal__turn_wait(1 + group);
            zonal__hold(s);
            zonal__products_fence();
            cosines_of_hi(tile, s);
            cosines_of_lo(tile, s);
            if (group == 0 || tile + 2 < count) zonal__turn_pass(2 - group);
            zonal__products_wait<0>();
            zonal__hold(s);
            release(2 * tile);
            release(2 * tile + 1);
            look(tile, s, hi, lo);
        }
    }
};

#endif

template <int PANELS, bool GRADIENT, int VALUE_TERMS, int WEIGHT_TERMS>
__global__ void __launch_bounds__(ZONAL__FUSED_THREADS, 1)
    zonal__fused_split(const __grid_constant__ zonal__fused_profile f,
                       const __grid_constant__ zonal__fused_problem g, const char *lo) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using layout = zonal__split_layout<PANELS>;
    extern __shared__ __align__(1024) char shared[];
    __shared__ __align__(8) uint64_t barrier[1 + 2 * ZONAL__SPLIT_PLACES];
    uint32_t begin = zonal__shared_address(shared), bar = zonal__shared_address(barrier);
    zonal__fused_barriers bars = {bar, bar + 8, bar + 8 + 8 * ZONAL__SPLIT_PLACES};
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0); /* uniform, for the compiler */
    int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    int first = (int)blockIdx.y * g.tiles_each;
    int count = min(g.tiles - first, g.tiles_each);
    if (threadIdx.x == 0) {
        zonal__barrier_init(bars.own, 1);
        for (int s = 0; s < ZONAL__SPLIT_PLACES; s++) {
            zonal__barrier_init(bars.full + 8 * s, 1);
            zonal__barrier_init(bars.empty + 8 * s, 4); /* warps */
        }
        zonal__barrier_publish();
    }
    __syncthreads();
    if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 256) zonal__split_copy<PANELS>(g, lo, bars, begin, first, count);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    zonal__split_group<PANELS, GRADIENT, VALUE_TERMS, WEIGHT_TERMS> work = {
        f,
        g,
        bars,
        begin,
        begin + 2 * layout::PART,
        group,
        first,
        {(int)blockIdx.x * (ZONAL__SPLIT_ROWS / 16) + warp, 0},
        0};
    if (group == 1) zonal__turn_pass(1);
    zonal__barrier_wait(bars.own, 0);
    if (GRADIENT)
        work.with_gradient(count);
    else
        work.without_gradient(count);
    zonal__fused_store_sum(g, work.sum);
#endif
}

#endif
