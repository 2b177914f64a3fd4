/*
 * All pairs of a batch that several ranks hold together: every rank's rows go round the ring of the
 * ranks once, and meet the rows of each rank where those are. While a block is worked on it is sent
 * on, and the next one is received: two blocks of the largest rank's size are all the memory that
 * this takes.
 *
 * A pair of two ranks is looked at twice, by each for its own row: what a block would collect on
 * its way, and carry home, is not smaller than the block itself.
 *
 * Without ranks this is zonal__cpu_tiles_run.
 */
#ifndef ZONAL_BACKEND_CPU_RING_H
#define ZONAL_BACKEND_CPU_RING_H

#include "backend/cpu/rows.h"
#include "backend/cpu/tiles.h"

typedef struct zonal__cpu_ring {
    zonal__cpu_tiles *tiles;
    /* Rows on their way: double offset[n], double mark[n], REAL y[n][dim], of the rank that has the
     * most rows. The own ones begin in the first. */
    char *block[2];
    char *here;       /* the block that is worked on ... */
    int64_t visitors; /* ... and its rows */
} zonal__cpu_ring;

/* The rows must be there, and the tiles; fini accepts zeroed memory. */
zonal_status zonal__cpu_ring_init(zonal__cpu_tiles *tiles, zonal__cpu_ring *ring);
void zonal__cpu_ring_fini(zonal__cpu_ring *ring);
size_t zonal__cpu_ring_bytes(const zonal__cpu_ring *ring);

/* Collective. Calls visit for every tile of the own rows, as zonal__cpu_tiles_run does, and then
 * for every tile of own rows with those of the other ranks. There meeting->foreign is 1, the
 * columns have no sums, and mark, which is [rows] or NULL, has come along as their col_log. */
zonal_status zonal__cpu_ring_run(zonal__cpu_ring *ring, const double *mark,
                                 zonal__cpu_visitor *visit, void *context);

#endif
