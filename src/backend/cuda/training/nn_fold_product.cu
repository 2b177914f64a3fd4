/*
 * Products of rows with weights on Hopper, with what a batch norm needs of them on the way out:
 * nn_fold.cuh. Where sources are narrow and results wide, memory sets the pace.
 *
 * A block owns 128 rows and COLUMNS columns at a time, and keeps to its columns. Two warpgroups of
 * 64 rows each multiply; one thread has copies of the next operands under way, STAGES deep; another
 * brings the residual's tile to where the result is made of it, in place, and takes that away.
 * There are TILES such places, so that coming, making and going overlap.
 */
#include "backend/cuda/training/nn_fold.cuh"
#include "backend/cuda/training/nn_tensor.cuh"

extern "C" {
#include "backend/device.h"
}

enum {
    ROWS = 128,         /* of a tile */
    PANEL = ROWS * 128, /* bytes */
    MULTIPLIERS = 256,  /* threads; a warp for operands and one for tiles come besides */
    THREADS = MULTIPLIERS + 64
};

/* What becomes of t: see zonal__fold_product. */
enum { AFFINE, RESIDUAL, MASK };

typedef struct fold_args {
    int rows, columns;
    int across, tiles;      /* tiles of columns, all tiles */
    int first_steps, steps; /* of 64 elements: of the first source, of both */
    const float2 *line;
    uint8_t *positive;
    float *partial; /* [blocks][columns of a block] */
} fold_args;

typedef struct fold_maps {
    CUtensorMap x[2], weight, residual, y;
} fold_maps;

template <int COLUMNS, int STAGES, int TILES> struct fold_layout {
    static constexpr int STAGE = PANEL + COLUMNS * 128;
    static constexpr int TILE = COLUMNS / 64 * PANEL;
    static constexpr int LINE = COLUMNS * 8;                    /* MASK has none */
    static constexpr int SUMS = MULTIPLIERS / 32 * COLUMNS * 4; /* MASK alone */
    static constexpr int BYTES = 1024 + STAGES * STAGE + TILES * TILE;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Addresses in shared memory. */
typedef struct fold_places {
    uint32_t ring, tile;
    uint32_t full, empty;           /* barriers of the stages, 8 bytes apart */
    uint32_t tile_full, tile_ready; /* of the places for tiles */
} fold_places;

/* ---- one thread each: operands, tiles ------------------------------------------------------- */

template <int COLUMNS, int STAGES, int TILES>
__device__ static inline void bring_operands(const fold_maps &maps, const fold_args &args,
                                             const fold_places &at, int column) {
    using layout = fold_layout<COLUMNS, STAGES, TILES>;
    int use = 0;
    for (int t = (int)blockIdx.x; t < args.tiles; t += (int)gridDim.x) {
        int row = t / args.across * ROWS;
        for (int k = 0; k < args.steps; k++, use++) {
            int stage = use % STAGES, second = k >= args.first_steps;
            uint32_t to = at.ring + stage * layout::STAGE, full = at.full + 8 * stage;
            if (use >= STAGES) zonal__barrier_wait(at.empty + 8 * stage, (use / STAGES - 1) & 1);
            zonal__barrier_expect(full, layout::STAGE);
            tensor_load(to, &maps.x[second], 64 * (k - (second ? args.first_steps : 0)), row, full);
            tensor_load(to + PANEL, &maps.weight, 64 * k, column, full);
        }
    }
}

/* The residual of tile t comes to the place of use number "use"; without one, the place is free. */
template <int COLUMNS, int END, int TILES>
__device__ static inline void bring_tile(const fold_maps &maps, const fold_args &args,
                                         const fold_places &at, int column, int t, int use) {
    constexpr int TILE = COLUMNS / 64 * PANEL;
    uint32_t to = at.tile + use % TILES * TILE, full = at.tile_full + 8 * (use % TILES);
    if (t >= args.tiles) return;
    if (END == AFFINE) {
        zonal__barrier_arrive(full);
        return;
    }
    zonal__barrier_expect(full, TILE);
    for (int i = 0; i < COLUMNS / 64; i++)
        tensor_load(to + i * PANEL, &maps.residual, column + 64 * i, t / args.across * ROWS, full);
}

template <int COLUMNS, int END, int TILES>
__device__ static inline void move_tiles(const fold_maps &maps, const fold_args &args,
                                         const fold_places &at, int column) {
    constexpr int TILE = COLUMNS / 64 * PANEL;
    int step = (int)gridDim.x, use = 0;
    for (int i = 0; i < TILES; i++)
        bring_tile<COLUMNS, END, TILES>(maps, args, at, column, (int)blockIdx.x + i * step, i);
    for (int t = (int)blockIdx.x; t < args.tiles; t += step, use++) {
        uint32_t from = at.tile + use % TILES * TILE;
        zonal__barrier_wait(at.tile_ready + 8 * (use % TILES), use / TILES & 1);
        for (int i = 0; i < COLUMNS / 64; i++)
            tensor_store(&maps.y, column + 64 * i, t / args.across * ROWS, from + i * PANEL);
        tensor_store_commit();
        /* The place of the tile before this one, or the only one, is free once it has been read. */
        tensor_store_wait<TILES == 1 ? 0 : 1>();
        int freed = TILES == 1 ? use : use - 1;
        if (freed >= 0)
            bring_tile<COLUMNS, END, TILES>(maps, args, at, column,
                                            t + (freed + TILES - use) * step, freed + TILES);
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* ---- the warps that multiply ---------------------------------------------------------------- */

template <int COLUMNS, int STAGES, int TILES>
__device__ static inline void multiply(const fold_args &args, const fold_places &at, int *use,
                                       float (&d)[COLUMNS / 2]) {
    using layout = fold_layout<COLUMNS, STAGES, TILES>;
    int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 128;
    for (int k = 0; k < args.steps; k++, (*use)++) {
        int stage = *use % STAGES;
        uint32_t a = at.ring + stage * layout::STAGE + group * 64 * 128;
        uint32_t b = at.ring + stage * layout::STAGE + PANEL;
        zonal__barrier_wait(at.full + 8 * stage, *use / STAGES & 1);
        zonal__products_fence();
#pragma unroll
        for (int i = 0; i < 4; i++)
            tensor_products<COLUMNS>::rows(d, zonal__matrix(a + 32 * i, 16),
                                           zonal__matrix(b + 32 * i, 16), k + i > 0);
        zonal__products_commit();
        if (k == 0) continue;
        zonal__products_wait<1>();
        if (lane == 0) zonal__barrier_arrive(at.empty + 8 * ((*use - 1) % STAGES));
    }
    zonal__products_wait<0>();
    zonal__hold(d);
    if (lane == 0) zonal__barrier_arrive(at.empty + 8 * ((*use - 1) % STAGES));
}

/* Two neighbouring columns of a row: t in, y out. *bits: whether each is above 0, or a NaN. */
template <int END>
__device__ static inline uint32_t finish_pair(float low, float high, uint32_t more, float4 line,
                                              uint32_t *bits) {
    float z0 = fmaf(low, line.x, line.y), z1 = fmaf(high, line.z, line.w), added[2];
    if (END == AFFINE) return nn_round_pair(z0, z1);
    nn_widen_pair(more, added);
    z0 += added[0], z1 += added[1];
    *bits = (z0 <= 0 ? 0u : 1u) | (z1 <= 0 ? 0u : 2u);
    return nn_round_pair(z0 <= 0 ? 0 : z0, z1 <= 0 ? 0 : z1);
}

/* The signs of 32 columns of a row, of which each of the four lanes that share the row has two in
 * every eight: all of them, in lane "writer". */
__device__ static inline void write_signs(const fold_args &args, uint32_t word, int writer,
                                          int64_t row, int column) {
    word |= __shfl_xor_sync(0xffffffffu, word, 1);
    word |= __shfl_xor_sync(0xffffffffu, word, 2);
    if (args.positive && row < args.rows && (int)threadIdx.x % 4 == writer)
        *(uint32_t *)(args.positive + (column / 64 * (int64_t)args.rows + row) * 8 +
                      column % 64 / 8) = word;
}

/* A tile from t in registers, in place of its residual. row: the thread's first, in the array. */
template <int COLUMNS, int END>
__device__ static inline void finish_tile(const fold_args &args, uint32_t tile, const float4 *line,
                                          int64_t row, int column, const float (&d)[COLUMNS / 2]) {
    int lane = (int)threadIdx.x % 32, in_tile = (int)threadIdx.x / 32 * 16 + lane / 4;
    uint32_t word[2] = {0, 0}, at = tile + in_tile * 128 + lane % 4 * 4;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
        float4 pair = line[4 * j + lane % 4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t where =
                at + j / 8 * PANEL + h * 8 * 128 + (uint32_t)((j % 8 ^ (in_tile & 7)) << 4);
            uint32_t bits = 0, more = END == RESIDUAL ? tensor_read(where) : 0;
            tensor_write(
                where, finish_pair<END>(d[4 * j + 2 * h], d[4 * j + 2 * h + 1], more, pair, &bits));
            if (END == AFFINE) continue;
            word[h] |= bits << (j % 4 * 8 + lane % 4 * 2);
            if (j % 4 < 3) continue;
            write_signs(args, word[h], j / 4 % 4, row + 8 * h, column + 8 * (j - 3));
            word[h] = 0;
        }
    }
}

/* ---- MASK ------------------------------------------------------------------------------------ */

/* The signs of the thread's two rows, 64 columns each time. */
template <int COLUMNS>
__device__ static inline void read_signs(const fold_args &args, int64_t row, int column,
                                         uint2 (&signs)[2][COLUMNS / 64]) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < COLUMNS / 64; i++) {
            int64_t at = (column / 64 + i) * (int64_t)args.rows + row + 8 * h;
            signs[h][i] = make_uint2(0, 0);
            if (row + 8 * h < args.rows) signs[h][i] = ((const uint2 *)args.positive)[at];
        }
}

/* Two neighbouring columns of a row: (t + more) where the bit is set; added to the sums as rounded.
 * A NaN is passed on where it is not set, too. */
__device__ static inline uint32_t mask_pair(float low, float high, uint32_t more, uint32_t bits,
                                            float *sum) {
    float pair[2];
    nn_widen_pair(more, pair);
    nn_widen_pair(nn_round_pair(low + pair[0], high + pair[1]), pair);
    pair[0] *= (float)(bits & 1);
    pair[1] *= (float)(bits >> 1 & 1);
    sum[0] += pair[0];
    sum[1] += pair[1];
    return nn_round_pair(pair[0], pair[1]);
}

/* Adds v[] of the eight lanes that share columns, sharing out the columns by halves. The lane is
 * left with two, of which the first has the number that is returned. */
template <int HALF, int AWAY> __device__ static inline int add_lanes(float (&v)[16]) {
    bool upper = threadIdx.x & AWAY;
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        float gives = upper ? v[i] : v[i + HALF], keeps = upper ? v[i + HALF] : v[i];
        v[i] = keeps + __shfl_xor_sync(0xffffffffu, gives, AWAY);
    }
    if constexpr (AWAY > 4) return (upper ? HALF : 0) + add_lanes<HALF / 2, AWAY / 2>(v);
    return upper ? HALF : 0;
}

/* "sums": the warp's, of the block's columns. */
template <int COLUMNS>
__device__ static inline void mask_tile(uint32_t tile, const uint2 (&signs)[2][COLUMNS / 64],
                                        const float (&d)[COLUMNS / 2], float *sums) {
    int lane = (int)threadIdx.x % 32, in_tile = (int)threadIdx.x / 32 * 16 + lane / 4;
    uint32_t at = tile + in_tile * 128 + lane % 4 * 4;
#pragma unroll
    for (int q = 0; q < COLUMNS / 64; q++) {
        float v[16] = {};
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int j = i / 2, h = i % 2, number = 32 * q + 4 * j + 2 * h;
            uint32_t where = at + q * PANEL + h * 8 * 128 + (uint32_t)((j ^ (in_tile & 7)) << 4);
            uint32_t word = j < 4 ? signs[h][q].x : signs[h][q].y;
            tensor_write(where, mask_pair(d[number], d[number + 1], tensor_read(where),
                                          word >> (j % 4 * 8 + lane % 4 * 2) & 3, v + 2 * j));
        }
        int first = add_lanes<8, 16>(v); /* even: 2 j, of columns 8 j and so on */
        float *to = sums + 64 * q + first / 2 * 8 + lane % 4 * 2;
        to[0] += v[0];
        to[1] += v[1];
    }
}

#endif /* __CUDA_ARCH_FEAT_SM90_ALL */

/* Registers: 96 for two blocks on a multiprocessor. */
template <int COLUMNS, int END, int STAGES, int TILES>
__global__ void __launch_bounds__(THREADS, COLUMNS > 128 ? 1 : 2)
    fold_product(const __grid_constant__ fold_maps maps, const __grid_constant__ fold_args args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using layout = fold_layout<COLUMNS, STAGES, TILES>;
    extern __shared__ char raw[];
    __shared__ alignas(8) uint64_t barrier[2 * STAGES + 2 * TILES];
    fold_places at;
    at.ring = (zonal__shared_address(raw) + 1023) / 1024 * 1024;
    at.tile = at.ring + STAGES * layout::STAGE;
    at.full = zonal__shared_address(barrier);
    at.empty = at.full + 8 * STAGES;
    at.tile_full = at.empty + 8 * STAGES;
    at.tile_ready = at.tile_full + 8 * TILES;
    char *rest = raw + (at.tile - zonal__shared_address(raw)) + TILES * layout::TILE;
    float2 *line = (float2 *)rest; /* AFFINE, RESIDUAL */
    float *sums = (float *)rest;   /* MASK: [warps][COLUMNS] */
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int column = (int)blockIdx.x % args.across * COLUMNS; /* the grid is a multiple of "across" */

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) zonal__barrier_init(at.full + 8 * i, 1);
        for (int i = 0; i < STAGES; i++) zonal__barrier_init(at.empty + 8 * i, MULTIPLIERS / 32);
        for (int i = 0; i < TILES; i++) zonal__barrier_init(at.tile_full + 8 * i, 1);
        for (int i = 0; i < TILES; i++)
            zonal__barrier_init(at.tile_ready + 8 * i, MULTIPLIERS / 32);
        zonal__barrier_publish();
    }
    for (int i = (int)threadIdx.x; i < COLUMNS && END != MASK; i += THREADS)
        line[i] = args.line[column + i];
    for (int i = (int)threadIdx.x; i < layout::SUMS / 4 && END == MASK; i += THREADS) sums[i] = 0;
    __syncthreads();

    if (warp == MULTIPLIERS / 32) {
        if (lane == 0) bring_operands<COLUMNS, STAGES, TILES>(maps, args, at, column);
        return;
    }
    if (warp > MULTIPLIERS / 32) {
        if (lane == 0) move_tiles<COLUMNS, END, TILES>(maps, args, at, column);
        return;
    }
    float d[COLUMNS / 2];
    int use = 0, made = 0;
    for (int t = (int)blockIdx.x; t < args.tiles; t += (int)gridDim.x, made++) {
        int place = made % TILES;
        int64_t row = (int64_t)(t / args.across) * ROWS + warp * 16 + lane / 4;
        uint32_t tile = at.tile + place * layout::TILE;
        uint2 signs[2][COLUMNS / 64];
        if (END == MASK) read_signs<COLUMNS>(args, row, column, signs); /* early: they are far */
        multiply<COLUMNS, STAGES, TILES>(args, at, &use, d);
        zonal__barrier_wait(at.tile_full + 8 * place, made / TILES & 1);
        if (END == MASK)
            mask_tile<COLUMNS>(tile, signs, d, sums + warp * COLUMNS);
        else
            finish_tile<COLUMNS, END>(args, tile, (const float4 *)line, row, column, d);
        tensor_store_fence();
        __syncwarp();
        if (lane == 0) zonal__barrier_arrive(at.tile_ready + 8 * place);
    }
    if (END != MASK) return;
    asm volatile("bar.sync 1, %0;" ::"n"((int)MULTIPLIERS) : "memory");
    for (int i = (int)threadIdx.x; i < COLUMNS; i += MULTIPLIERS) {
        float total = 0;
        for (int w = 0; w < MULTIPLIERS / 32; w++) total += sums[w * COLUMNS + i];
        args.partial[(int64_t)blockIdx.x * COLUMNS + i] = total;
    }
#else
    __trap(); /* only the image for sm_90a has the instructions */
#endif
}

/* MASK: the sums of 32 columns over the blocks that have them, in blocks of 32 x 8 threads. */
__global__ static void fold_column_sums(const float *partial, int blocks, int across, int columns,
                                        double *sums) {
    __shared__ double part[8][32];
    int c = (int)(blockIdx.x * 32 + threadIdx.x);
    double sum = 0;
    for (int b = c / columns + (int)threadIdx.y * across; b < blocks; b += 8 * across)
        sum += (double)partial[(int64_t)b * columns + c % columns];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y) return;
    for (int w = 1; w < 8; w++) sum += part[w][threadIdx.x];
    sums[c] = sum;
}

/* ---- launches -------------------------------------------------------------------------------- */

typedef void (*fold_kernel)(const fold_maps, const fold_args);

/* A kernel with what its template says. */
typedef struct fold_variant {
    fold_kernel kernel;
    int columns, bytes, together; /* together: blocks of a multiprocessor */
} fold_variant;

template <int COLUMNS, int END, int STAGES, int TILES> static fold_variant variant() {
    using layout = fold_layout<COLUMNS, STAGES, TILES>;
    return {fold_product<COLUMNS, END, STAGES, TILES>, COLUMNS,
            layout::BYTES + (END == MASK ? layout::SUMS : layout::LINE), COLUMNS > 128 ? 1 : 2};
}

/* As measured on an H200 (results/training-cuda.md). */
static fold_variant choose(int columns, int depth, int end) {
    if (end == RESIDUAL)
        return depth < 256 ? variant<64, RESIDUAL, 2, 3>() : variant<128, RESIDUAL, 2, 1>();
    if (end == MASK) return depth < 256 ? variant<64, MASK, 2, 3>() : variant<128, MASK, 2, 1>();
    if (columns % 256 == 0 && depth > 512) return variant<256, AFFINE, 3, 1>();
    return columns % 128 ? variant<64, AFFINE, 3, 1>() : variant<128, AFFINE, 2, 1>();
}

zonal_status zonal__fold_product_load(void) {
    const fold_variant all[] = {choose(128, 64, RESIDUAL), choose(128, 256, RESIDUAL),
                                choose(128, 64, MASK),     choose(128, 256, MASK),
                                choose(64, 64, AFFINE),    choose(128, 64, AFFINE),
                                choose(256, 1024, AFFINE)};
    cudaFuncAttributes attributes;
    ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, (const void *)fold_column_sums)));
    for (const fold_variant &v : all)
        ZONAL_TRY(ZONAL_CUDA(cudaFuncSetAttribute(
            (const void *)v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, v.bytes)));
    return ZONAL_OK;
}

zonal_status zonal__tensor_map(const void *array, int64_t rows, int columns, int box_rows,
                               CUtensorMap *map) {
    typedef CUresult (*encoder)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    cudaDriverEntryPointQueryResult found;
    void *entry = NULL;
    ZONAL_TRY(ZONAL_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                          cudaEnableDefault, &found)));
    if (!entry)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "the driver has no tensor maps; a driver for CUDA 12 has them");
    const cuuint64_t sides[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    const cuuint64_t stride = (cuuint64_t)columns * 2;
    const cuuint32_t box[2] = {64, (cuuint32_t)box_rows}, every[2] = {1, 1};
    CUresult result =
        ((encoder)entry)(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)array, sides, &stride,
                         box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_DEVICE, "CUDA refused a tensor map of %lld x %d (error %d)",
                      (long long)rows, columns, (int)result);
}

static zonal_status make_maps(const zonal__fold_product *p, const fold_variant *v,
                              fold_maps *maps) {
    int depth = p->depth[0] + p->depth[1], second = p->depth[1] > 0;
    ZONAL_TRY(zonal__tensor_map(p->x[0], p->rows, p->depth[0], ROWS, &maps->x[0]));
    ZONAL_TRY(zonal__tensor_map(p->x[second], p->rows, p->depth[second], ROWS, &maps->x[1]));
    ZONAL_TRY(zonal__tensor_map(p->weight, p->columns, depth, v->columns, &maps->weight));
    ZONAL_TRY(zonal__tensor_map(p->residual ? p->residual : p->y, p->rows, p->columns, ROWS,
                                &maps->residual));
    return zonal__tensor_map(p->y, p->rows, p->columns, ROWS, &maps->y);
}

zonal_status zonal__fold_product_run(const zonal__fold_product *p, cudaStream_t stream) {
    int end = p->sums ? MASK : p->residual ? RESIDUAL : AFFINE;
    fold_variant v = choose(p->columns, p->depth[0] + p->depth[1], end);
    fold_maps maps;
    fold_args args = {};
    int device, processors;
    ZONAL_TRY(make_maps(p, &v, &maps));
    ZONAL_TRY(ZONAL_CUDA(cudaGetDevice(&device)));
    ZONAL_TRY(
        ZONAL_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)));
    args.rows = (int)p->rows;
    args.columns = p->columns;
    args.across = p->columns / v.columns;
    args.tiles = (int)((p->rows + ROWS - 1) / ROWS) * args.across;
    args.first_steps = p->depth[0] / 64;
    args.steps = (p->depth[0] + p->depth[1]) / 64;
    args.line = p->line;
    args.positive = p->positive;
    args.partial = (float *)p->workspace;
    int blocks = v.together * processors / args.across * args.across;
    if (blocks < args.across) blocks = args.across;
    if (blocks > args.tiles) blocks = args.tiles;
    v.kernel<<<(unsigned)blocks, THREADS, (size_t)v.bytes, stream>>>(maps, args);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    if (end != MASK) return ZONAL_OK;
    fold_column_sums<<<(unsigned)(p->columns / 32), dim3(32, 8), 0, stream>>>(
        args.partial, blocks, args.across, v.columns, p->sums);
    return ZONAL_CUDA_LAUNCHED();
}
