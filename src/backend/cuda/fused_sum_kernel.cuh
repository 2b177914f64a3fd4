/*
 * Sums of functions of the cosine on Hopper, without a gradient: of all pairs (the value alone), or
 * by row (KL's densities). In halves, or in `fp32` as hi + lo with three products.
 *
 * A block owns 128 rows, 64 for each of two warpgroups, and meets blocks of 128 columns one after
 * the other: itself, the next one, ... and the last one is followed by the first. Half way round,
 * every pair of blocks has met, so a block goes no further, and what it finds counts for the
 * columns too: their sums over a block's rows go to "mirror". (Of an even number of blocks, those
 * just opposite meet twice.) Where that has no room, blocks go all the way round.
 *
 * Columns come in tiles of 128, or 64 in `fp32`, and a tile in two units of half of the elements.
 * Rows beyond the last are zeros, which add value(0) = 0, or a density of 1.
 */
#ifndef ZONAL_BACKEND_CUDA_FUSED_SUM_KERNEL_CUH
#define ZONAL_BACKEND_CUDA_FUSED_SUM_KERNEL_CUH

#include "backend/cuda/fused_kernel.cuh"

enum { ZONAL__SUM_VALUES, ZONAL__SUM_DENSITIES };

typedef struct zonal__sum_problem {
    const char *image, *lo; /* lo: `fp32` */
    int64_t panel_bytes;
    int rows, blocks;
    int steps, steps_each; /* blocks that a block meets: all, and of a range */
    int mirrored;          /* steps 1 to this count for the columns too */
    float *mirror;         /* DENSITIES: [mirrored][128 blocks] */
    double *sum;           /* VALUES: [ranges][blocks][8]; DENSITIES: [ranges][rows] */
} zonal__sum_problem;

template <int PANELS, bool SPLIT> struct zonal__sum_layout {
    static constexpr int PARTS = SPLIT ? 2 : 1, COLUMNS = SPLIT ? 64 : 128;
    static constexpr int TILES = 128 / COLUMNS; /* of a block */
    static constexpr int PANEL = 128 * 128;     /* 128 rows; 128 columns, or hi and lo of 64 */
    static constexpr int OWN = PANELS * PARTS * PANEL;
    static constexpr int PANELS_EACH = PANELS / 2; /* of a unit */
    static constexpr int UNIT = PANELS_EACH * PANEL;
    static constexpr int PLACES = SPLIT ? 3 : 4;
    static constexpr int BYTES = OWN + PLACES * UNIT + 8 * COLUMNS * (int)sizeof(float);
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* One thread: the own rows, then two units of each tile from "first" on. */
template <int PANELS, bool SPLIT>
__device__ inline void zonal__sum_copy(const zonal__sum_problem &g, zonal__fused_barriers bars,
                                       uint32_t shared, int first, int count) {
    using layout = zonal__sum_layout<PANELS, SPLIT>;
    zonal__barrier_expect(bars.own, layout::OWN);
    for (int p = 0; p < PANELS * layout::PARTS; p++)
        zonal__bulk_copy(shared + p * layout::PANEL,
                         (p % layout::PARTS ? g.lo : g.image) + p / layout::PARTS * g.panel_bytes +
                             (int64_t)blockIdx.x * layout::PANEL,
                         layout::PANEL, bars.own);
    for (int u = 0; u < 2 * count; u++) {
        int place = u % layout::PLACES, round = u / layout::PLACES;
        int tile = (first + u / 2) % (g.blocks * layout::TILES);
        constexpr int PIECE = layout::COLUMNS * 128;
        if (round > 0) zonal__barrier_wait(bars.empty + 8 * place, (round - 1) & 1);
        zonal__barrier_expect(bars.full + 8 * place, layout::UNIT);
        for (int p = 0; p < layout::PANELS_EACH * layout::PARTS; p++)
            zonal__bulk_copy(shared + layout::OWN + place * layout::UNIT + p * PIECE,
                             (p % layout::PARTS ? g.lo : g.image) +
                                 (u % 2 * layout::PANELS_EACH + p / layout::PARTS) * g.panel_bytes +
                                 (int64_t)tile * PIECE,
                             PIECE, bars.full + 8 * place);
    }
}

/* Of 2 HALF numbers of two lanes, each keeps the sums of HALF: the lane without "mask" the first
 * ones. Returns which its first one is. */
template <int HALF> __device__ inline int zonal__sum_with_lane(int mask, float *number) {
    bool upper = threadIdx.x & mask;
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        float keep = upper ? number[i + HALF] : number[i];
        float send = upper ? number[i] : number[i + HALF];
        number[i] = keep + __shfl_xor_sync(0xffffffffu, send, mask);
    }
    return upper ? HALF : 0;
}

/* Adds a warp's numbers over its rows: of COUNT numbers, each of the eight lanes that have them of
 * different rows is left with COUNT/8, from the returned one on. */
template <int COUNT> __device__ inline int zonal__sum_over_rows(float *number) {
    int first = zonal__sum_with_lane<COUNT / 2>(16, number);
    first += zonal__sum_with_lane<COUNT / 4>(8, number);
    return first + zonal__sum_with_lane<COUNT / 8>(4, number);
}

template <int PANELS, bool SPLIT, int KIND, int TERMS> struct zonal__sum_group {
    using layout = zonal__sum_layout<PANELS, SPLIT>;
    static constexpr int NUMBERS = layout::COLUMNS / 2;
    static constexpr bool HALVES = !SPLIT && TERMS < ZONAL__FUSED_MANY;
    const zonal__fused_profile &f;
    const zonal__sum_problem &g;
    zonal__fused_barriers bars;
    uint32_t own, places;
    float *meeting;         /* [8 warps][columns], shared */
    uint32_t written, read; /* barriers: all 256 threads have, and the second warpgroup */
    int meetings;
    int group, warp, first;
    zonal__fused_place at;
    double sum[2];

    __device__ inline void wait_for(int u) const {
        zonal__barrier_wait(bars.full + 8 * (u % layout::PLACES), (u / layout::PLACES) & 1);
    }
    __device__ inline void release(int u) const {
        if (threadIdx.x % 32 == 0) zonal__barrier_arrive(bars.empty + 8 * (u % layout::PLACES));
    }

    /* s: cosines, or hi hi and hi lo; rest: lo hi. */
    __device__ inline void cosines(int t, float (&s)[64], float (&rest)[32]) const {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int u = 2 * t + half;
            wait_for(u);
#pragma unroll
            for (int k = 0; k < 4 * layout::PANELS_EACH; k++) {
                uint32_t b =
                    places + u % layout::PLACES * layout::UNIT + k / 4 * layout::PANEL + k % 4 * 32;
                uint32_t a = own +
                             (half * layout::PANELS_EACH + k / 4) * layout::PARTS * layout::PANEL +
                             k % 4 * 32;
                zonal__products<128>::shared(s, zonal__matrix(a, 16), zonal__matrix(b, 16),
                                             half > 0 || k > 0);
                if (SPLIT)
                    zonal__products<64>::shared(rest, zonal__matrix(a + layout::PANEL, 16),
                                                zonal__matrix(b, 16), half > 0 || k > 0);
            }
            zonal__products_commit();
        }
    }

    /* Columns' sums over the warps' rows meet in shared memory, and the second warpgroup adds
     * them. */
    __device__ inline void mirror(int step, int tile, float (&column)[NUMBERS / 2]) {
        int lane = (int)threadIdx.x % 32, begin = zonal__sum_over_rows<NUMBERS / 2>(column);
        uint32_t phase = (uint32_t)meetings++ & 1;
        if (meetings > 1) zonal__barrier_wait(read, phase ^ 1);
#pragma unroll
        for (int i = 0; i < NUMBERS / 16; i += 2)
            *(float2 *)(meeting + (4 * group + warp) * layout::COLUMNS + (begin + i) / 2 * 8 +
                        lane % 4 * 2) = make_float2(column[i], column[i + 1]);
        zonal__barrier_arrive(written);
        if (group == 0) return;
        zonal__barrier_wait(written, phase);
        int own_column = (int)threadIdx.x % 128;
        if (own_column < layout::COLUMNS) {
            float all = 0;
            for (int w = 0; w < 8; w++) all += meeting[w * layout::COLUMNS + own_column];
            g.mirror[(int64_t)(step - 1) * g.blocks * 128 + tile * layout::COLUMNS + own_column] =
                all;
        }
        zonal__barrier_arrive(read);
    }

    __device__ inline void densities(int step, int tile, bool mirrored, const float (&c)[NUMBERS]) {
        float row[2] = {0, 0}, column[NUMBERS / 2];
#pragma unroll
        for (int n = 0; n < NUMBERS / 8; n++) {
            float density[8];
            zonal__fused_density<TERMS, HALVES>(f, c + 8 * n, density);
#pragma unroll
            for (int i = 0; i < 8; i++) row[i / 2 % 2] += density[i];
#pragma unroll
            for (int i = 0; i < 4; i++)
                column[4 * n + i] = density[i / 2 * 4 + i % 2] + density[i / 2 * 4 + i % 2 + 2];
        }
        sum[0] += row[0];
        sum[1] += row[1];
        if (mirrored) mirror(step, tile, column);
    }

    __device__ inline void look(int t, const float (&s)[64], const float (&rest)[32]) {
        float c[NUMBERS];
        int step = (first + t) / layout::TILES;
        int tile = ((int)blockIdx.x * layout::TILES + first + t) % (g.blocks * layout::TILES);
        bool mirrored = step > 0 && step <= g.mirrored;
#pragma unroll
        for (int i = 0; i < NUMBERS; i++)
            c[i] = SPLIT ? s[i % 64] + (s[(i + 32) % 64] + rest[i % 32]) : s[i];
        at.columns = tile * (layout::COLUMNS / 16);
        if (at.columns <= at.rows && at.rows < at.columns + layout::COLUMNS / 16)
            zonal__fused_clear(at, c);
        if (KIND == ZONAL__SUM_DENSITIES) {
            densities(step, tile, mirrored, c);
            return;
        }
        float all = 0;
#pragma unroll
        for (int n = 0; n < NUMBERS / 8; n++) all += zonal__fused_sum<TERMS>(f.value, c + 8 * n);
        sum[0] += mirrored ? all : 0.5f * all; /* pairs that are met twice */
    }

    __device__ inline void run(int count) {
        float s[64], rest[32];
        for (int t = 0; t < count; t++) {
            zonal__turn_wait(1 + group);
            zonal__hold(s);
            if (SPLIT) zonal__hold(rest);
            zonal__products_fence();
            cosines(t, s, rest);
            zonal__products_wait<1>();
            if (group == 0 || t + 1 < count) zonal__turn_pass(2 - group);
            release(2 * t);
            zonal__products_wait<0>();
            release(2 * t + 1);
            zonal__hold(s);
            if (SPLIT) zonal__hold(rest);
            look(t, s, rest);
        }
    }

    /* Two rows of each thread, of which four lanes hold a share. */
    __device__ inline void store_rows() {
        int lane = (int)threadIdx.x % 32, row = 16 * at.rows + lane / 4;
        for (int i = 0; i < 2; i++) {
            sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 1);
            sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 2);
            if (lane % 4 == 0 && row + 8 * i < g.rows)
                g.sum[(int64_t)blockIdx.y * g.rows + row + 8 * i] = sum[i];
        }
    }
};

#endif

template <int PANELS, bool SPLIT, int KIND, int TERMS>
__global__ void __launch_bounds__(ZONAL__FUSED_THREADS, 1)
    zonal__fused_sum(const __grid_constant__ zonal__fused_profile f,
                     const __grid_constant__ zonal__sum_problem g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using layout = zonal__sum_layout<PANELS, SPLIT>;
    extern __shared__ __align__(1024) char shared[];
    __shared__ __align__(8) uint64_t barrier[1 + 2 * layout::PLACES], meeting[2];
    uint32_t begin = zonal__shared_address(shared), meet = zonal__shared_address(meeting);
    int first = (int)blockIdx.y * g.steps_each;
    int count = min(g.steps - first, g.steps_each) * layout::TILES;
    first *= layout::TILES;
    if (threadIdx.x == 0) {
        zonal__barrier_init(meet, 256);
        zonal__barrier_init(meet + 8, 128);
    }
    zonal__fused_start start = zonal__fused_begin<layout::PLACES>(barrier, 8);
    if (start.group == 2) {
        zonal__fused_registers_less();
        if (threadIdx.x == 256)
            zonal__sum_copy<PANELS, SPLIT>(g, start.bars, begin,
                                           (int)blockIdx.x * layout::TILES + first, count);
        return;
    }
    zonal__fused_registers_more();
    zonal__sum_group<PANELS, SPLIT, KIND, TERMS> work = {
        f,
        g,
        start.bars,
        begin + start.group * 64 * 128,
        begin + layout::OWN,
        (float *)(shared + layout::OWN + layout::PLACES * layout::UNIT),
        meet,
        meet + 8,
        0,
        start.group,
        start.warp,
        first,
        {((int)blockIdx.x * 128 + 64 * start.group) / 16 + start.warp, 0},
        {0, 0}};
    if (start.group == 1) zonal__turn_pass(1);
    zonal__barrier_wait(start.bars.own, 0);
    work.run(count);
    if (KIND == ZONAL__SUM_DENSITIES)
        work.store_rows();
    else
        zonal__fused_store_sum(g.sum, work.sum[0]);
#endif
}

#endif
