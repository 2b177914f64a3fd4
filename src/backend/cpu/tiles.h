/*
 * All pairs of rows, as tiles: a block of rows against a block of rows. Each pair is looked at
 * once: tile (I, J) serves the rows of I and, transposed, those of J.
 *
 * So that no two threads touch the same rows, tiles are taken in rounds like the games of a
 * tournament: in one round every block meets at most one other, and in round 0 itself. A row
 * therefore receives its sums in the order of the rounds, whatever the number of threads, and the
 * result is the same bit for bit. A game waits for the last games of its two blocks only, not for
 * the whole round.
 */
#ifndef ZONAL_BACKEND_CPU_TILES_H
#define ZONAL_BACKEND_CPU_TILES_H

#include <stdatomic.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

/* One tile of products y_i.y_j, ready for the work. The fields row_sum ... col_log of "tile" are
 * for the operation to set. */
typedef struct zonal__cpu_meeting {
    int64_t row_block, row_first, col_first;
    int foreign; /* 1: the columns are another rank's, and there is no col_first (ring.h) */
    zonal__cpu_tile tile;
} zonal__cpu_meeting;

typedef void zonal__cpu_visitor(void *context, zonal__cpu_meeting *meeting);

typedef struct zonal__cpu_tiles {
    zonal__cpu_rows *rows;
    int64_t side;            /* rows of a block */
    int64_t blocks;          /* their number */
    void *products;          /* REAL [threads][side][side] */
    _Atomic int64_t *played; /* [blocks + 1]: games each has behind it; the last one is not there */
    zonal__cpu_visitor *visit;
    void *context;
} zonal__cpu_tiles;

zonal_status zonal__cpu_tiles_init(zonal__cpu_rows *rows, zonal__cpu_tiles *tiles);
void zonal__cpu_tiles_fini(zonal__cpu_tiles *tiles);
size_t zonal__cpu_tiles_bytes(const zonal__cpu_tiles *tiles);

/* Calls visit(context, meeting) for every tile. A visit may write what belongs to the rows of its
 * two blocks, and to the number row_block. */
void zonal__cpu_tiles_run(zonal__cpu_tiles *tiles, zonal__cpu_visitor *visit, void *context);

/* One tile: the meeting's columns, whose fields are filled in, with block i of the rows; calls what
 * the last run was given. */
void zonal__cpu_tiles_meet(zonal__cpu_tiles *tiles, int64_t i, zonal__cpu_meeting *meeting,
                           int thread);

/* gradient_I += W y_J and, unless the columns are foreign, gradient_J += W^T y_I, W the tile's
 * weights; the first meeting, of a block with itself, sets instead of adding. */
void zonal__cpu_tiles_spread(const zonal__cpu_tiles *tiles, const zonal__cpu_meeting *meeting,
                             void *gradient);

#endif
