/*
 * How small batches are cut into blocks: arithmetic alone, plain C, so that it is tested without a
 * GPU. The kernels (small_kernel.cuh) read the shape and use the same index functions.
 *
 * A view's rows are cut into tiles of 16 or 32 rows and into tiles of 32 columns. A cluster of 1 to
 * 8 blocks shares a row tile: block "rank" takes the column tiles rank, rank + cluster, ... of it,
 * so that it reads only its share of the columns, and in the end finishes tile_rows/cluster rows,
 * adding what the cluster's blocks found for them.
 *
 * Rows of up to 512 elements lie in shared memory as a whole ("quads" of four elements per lane: 2
 * or 4); longer ones pass through it in chunks of 256 elements, twice (quads 0).
 */
#ifndef ZONAL_BACKEND_CUDA_LAUNCH_H
#define ZONAL_BACKEND_CUDA_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ZONAL__LAUNCH __host__ __device__ static inline
#else
#define ZONAL__LAUNCH static inline
#endif

enum {
    ZONAL__SMALL_BATCH = 1024,
    ZONAL__SMALL_THREADS = 256,
    ZONAL__SMALL_WARPS = 8,
    ZONAL__SMALL_COLUMNS = 32, /* columns of a tile */
    ZONAL__SMALL_CLUSTER = 8,  /* the largest cluster that every Hopper GPU runs */
    ZONAL__SMALL_CHUNK = 256,  /* elements of a long row at a time */
    ZONAL__SMALL_KEPT = 8,     /* tiles of weights kept in shared memory for long rows */
    ZONAL__SMALL_NORMS = 64,   /* views whose norms are kept; those of more are computed again */
    ZONAL__SMALL_SHARED = 227 * 1024, /* bytes a block may have */
    ZONAL__SMALL_HALF = 113 * 1024    /* bytes that let two blocks live on one multiprocessor */
};

typedef struct zonal__small_shape {
    int64_t views;
    int rows, dim;
    int tile_rows, row_tiles, column_tiles;
    int cluster;         /* blocks of a row tile: 1, 2, 4 or 8 */
    int owned;           /* rows a block finishes: tile_rows / cluster */
    int tiles_per_block; /* column tiles of the block with the most */
    int quads;           /* float4 of a row per lane of a warp: 2, 4; 0: in chunks */
    int row_quads;       /* float4 of a row */
    int pitch;           /* floats from row to row in shared memory */
    int chunks;          /* 1, or chunks of 256 elements */
    int64_t blocks;
    int per; /* blocks that run on one multiprocessor at a time: 1 or 2 */
    /* Shared memory, in bytes from its beginning. The columns follow the rows at the same pitch. */
    int at_rows, at_partial, at_weights, at_row_weights, at_centre, at_offsets, at_scales, at_norms,
        at_sums, at_statistics, shared_bytes;
    /* Device memory, in elements. */
    int64_t cosines; /* float: KL keeps them from its first launch to its second */
    int64_t pulls;   /* float: the objective's alignment gradient; gradients of long rows */
} zonal__small_shape;

/* ---- who computes what ---------------------------------------------------------------------- */

/* A warp's lanes as 8 x 4: bit 0 and 2 of the lane choose columns, 1, 3 and 4 rows. With neighbours
 * (lane ^ 1) at the same row and (lane ^ 2) at the same column the 16-byte loads of both sides are
 * broadcasts that take two passes through shared memory instead of four. */
ZONAL__LAUNCH int zonal__small_lane_row(int lane) {
    return ((lane >> 1) & 1) | ((lane >> 2) & 6);
}

ZONAL__LAUNCH int zonal__small_lane_column(int lane) {
    return (lane & 1) | ((lane >> 1) & 2);
}

/* In the products, each lane has the cosines (row + 8 r, column + 4 s), r < tile_rows/8, s < 8.
 * They are then dealt out to the warps, tile_rows/8 to each thread: "warp" gets one r and that many
 * s. */
ZONAL__LAUNCH int zonal__small_dealt_row(int tile_rows, int warp, int lane) {
    int groups = 64 / tile_rows; /* of columns: 8 / (tile_rows / 8) */
    return zonal__small_lane_row(lane) + 8 * (warp / groups);
}

ZONAL__LAUNCH int zonal__small_dealt_column(int tile_rows, int warp, int lane, int e) {
    int groups = 64 / tile_rows, each = tile_rows / 8;
    return zonal__small_lane_column(lane) + 4 * (each * (warp % groups) + e);
}

/* The number of column tiles of a block: rank, rank + cluster, ... */
ZONAL__LAUNCH int zonal__small_block_tiles(const zonal__small_shape *shape, int rank) {
    return (shape->column_tiles - rank + shape->cluster - 1) / shape->cluster;
}

/* ---- the shape ------------------------------------------------------------------------------ */

ZONAL__LAUNCH int zonal__small_ceil(int a, int b) {
    return (a + b - 1) / b;
}

/* How many clusters of 1, 2, 4 and 8 blocks run at once, one block per multiprocessor. A cluster
 * stays within one part of the GPU, and these parts differ: an H100 runs 15 clusters of 8 on its
 * 132 multiprocessors, so it must be asked. */
typedef struct zonal__small_room {
    int clusters[4];
} zonal__small_room;

/* Clusters as large as the columns allow while all blocks run at once (two per multiprocessor where
 * shared memory allows); for long rows at least so large that the weights fit. */
static inline void zonal__small_choose_cluster(const zonal__small_room *room,
                                               zonal__small_shape *shape) {
    int c = 1, log = 0, most = shape->quads == 2 ? 2 : 1;
    shape->row_tiles = zonal__small_ceil(shape->rows, shape->tile_rows);
    int64_t clusters = shape->views * shape->row_tiles;
    while (c < ZONAL__SMALL_CLUSTER && 2 * c <= shape->column_tiles &&
           (clusters <= (int64_t)most * room->clusters[log + 1] ||
            (shape->quads == 0 && zonal__small_ceil(shape->column_tiles, c) > ZONAL__SMALL_KEPT))) {
        c *= 2;
        log++;
    }
    shape->per = most == 2 && clusters > room->clusters[log] ? 2 : 1;
    shape->cluster = c;
    shape->owned = shape->tile_rows / c;
    shape->tiles_per_block = zonal__small_ceil(shape->column_tiles, c);
    shape->blocks = clusters * c;
}

static inline int zonal__small_place(int *end, int bytes) {
    int at = *end;
    *end = (at + bytes + 15) / 16 * 16;
    return at;
}

static inline void zonal__small_place_all(zonal__small_shape *shape) {
    int end = 0, chunk_quads = shape->quads ? shape->row_quads : ZONAL__SMALL_CHUNK / 4;
    int kept = shape->quads ? 1 : shape->tiles_per_block;
    int row_bytes = shape->pitch * 4, tile = shape->tile_rows;
    /* The warps' sums of rows, then their shares of the cosines, and last the block's share of the
     * gradient. */
    int shares = ZONAL__SMALL_WARPS * tile * ZONAL__SMALL_COLUMNS * 4;
    int gradient = tile * chunk_quads * 16;
    shape->at_rows = zonal__small_place(&end, (tile + ZONAL__SMALL_COLUMNS) * row_bytes);
    shape->at_partial = zonal__small_place(&end, gradient > shares ? gradient : shares);
    shape->at_weights = zonal__small_place(&end, kept * ZONAL__SMALL_COLUMNS * (tile + 4) * 4);
    shape->at_row_weights = zonal__small_place(&end, tile * (64 / tile) * 4);
    shape->at_centre = zonal__small_place(&end, shape->row_quads * 16);
    shape->at_offsets = zonal__small_place(&end, (1 + tile + kept * ZONAL__SMALL_COLUMNS) * 4);
    shape->at_scales = zonal__small_place(&end, (tile + kept * ZONAL__SMALL_COLUMNS) * 8);
    shape->at_norms = zonal__small_place(&end, ZONAL__SMALL_WARPS * ZONAL__SMALL_NORMS * 8);
    shape->at_sums = zonal__small_place(&end, (2 * ZONAL__SMALL_WARPS + tile) * 8);
    shape->at_statistics = zonal__small_place(&end, tile * (64 / tile) * 16);
    shape->shared_bytes = end;
}

static inline void zonal__small_choose(int64_t views, int rows, int dim, int tile_rows, int quads,
                                       const zonal__small_room *room, zonal__small_shape *shape) {
    shape->views = views;
    shape->rows = rows;
    shape->dim = dim;
    shape->tile_rows = tile_rows;
    shape->quads = quads;
    shape->row_quads = zonal__small_ceil(dim, 4);
    shape->column_tiles = zonal__small_ceil(rows, ZONAL__SMALL_COLUMNS);
    /* 4 floats beyond a multiple of 32: eight rows in turn begin in different banks. */
    shape->pitch = (quads ? zonal__small_ceil(dim, 32) * 32 : ZONAL__SMALL_CHUNK) + 4;
    shape->chunks = quads ? 1 : zonal__small_ceil(dim, ZONAL__SMALL_CHUNK);
    zonal__small_choose_cluster(room, shape);
    shape->cosines = shape->blocks * shape->tiles_per_block * tile_rows * ZONAL__SMALL_COLUMNS;
    shape->pulls = views * rows * (int64_t)shape->row_quads * 4;
    zonal__small_place_all(shape);
}

/* Fills *shape and returns 1, or returns 0 when the batch is not a small one. Tiles of 16 rows
 * where those of 32 leave multiprocessors without work and twice the blocks find room. */
static inline int zonal__small_shape_make(int64_t views, int64_t rows, int64_t dim,
                                          const zonal__small_room *room,
                                          zonal__small_shape *shape) {
    int quads = dim <= 256 ? 2 : dim <= 512 ? 4 : 0;
    zonal__small_shape finer;
    if (views < 1 || rows < 2 || rows > ZONAL__SMALL_BATCH || dim < 2 || dim > 4096) return 0;
    if (views > INT32_MAX / (rows + 32)) return 0; /* the grid has at most 2^31 - 1 blocks */
    zonal__small_choose(views, (int)rows, (int)dim, 32, quads, room, shape);
    zonal__small_choose(views, (int)rows, (int)dim, 16, quads, room, &finer);
    if (quads == 2 && finer.per == 1 && finer.blocks > shape->blocks) *shape = finer;
    return shape->shared_bytes <= (shape->per == 2 ? ZONAL__SMALL_HALF : ZONAL__SMALL_SHARED);
}

#endif
