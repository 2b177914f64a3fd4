#include "backend/cpu/ring.h"

#include <string.h>

#include "backend/cpu/cpu.h"
#include "core/memory.h"

static size_t block_bytes(const zonal__cpu_rows *rows, int64_t n) {
    return (size_t)n * (2 * sizeof(double) + (size_t)rows->dim * rows->kernels->size);
}

zonal_status zonal__cpu_ring_init(zonal__cpu_tiles *tiles, zonal__cpu_ring *ring) {
    const zonal__cpu_rows *rows = tiles->rows;
    *ring = (zonal__cpu_ring){.tiles = tiles};
    if (!rows->ranks) return ZONAL_OK;
    for (int i = 0; i < 2; i++)
        ZONAL_TRY(zonal__alloc(1, block_bytes(rows, rows->ranks->most), "the other ranks' rows",
                               (void **)&ring->block[i]));
    return ZONAL_OK;
}

void zonal__cpu_ring_fini(zonal__cpu_ring *ring) {
    zonal__free(ring->block[0]);
    zonal__free(ring->block[1]);
}

size_t zonal__cpu_ring_bytes(const zonal__cpu_ring *ring) {
    const zonal__cpu_rows *rows = ring->tiles->rows;
    return rows->ranks ? 2 * block_bytes(rows, rows->ranks->most) : 0;
}

static void pack(const zonal__cpu_rows *rows, const double *mark, char *block) {
    size_t n = (size_t)rows->rows;
    double *numbers = (double *)(void *)block;
    if (n == 0) return;
    memcpy(numbers, rows->offset, n * sizeof(double));
    if (mark) memcpy(numbers + n, mark, n * sizeof(double));
    memcpy(numbers + 2 * n, rows->centred, n * (size_t)rows->dim * rows->kernels->size);
}

/* One block of own rows against all the visitors: no other turn writes to these rows. */
static void meet_visitors(void *context, int64_t i, int thread) {
    zonal__cpu_ring *ring = context;
    zonal__cpu_tiles *tiles = ring->tiles;
    const zonal__cpu_rows *rows = tiles->rows;
    int64_t n = ring->visitors;
    const double *offset = (const double *)(const void *)ring->here, *mark = offset + n;
    const char *y = (const char *)(mark + n);
    for (int64_t col = 0; col < n; col += tiles->side) {
        zonal__cpu_meeting meeting = {
            .foreign = 1,
            .tile = {.cols = n - col < tiles->side ? n - col : tiles->side,
                     .col_offset = offset + col,
                     .col_log = mark + col,
                     .col_y = y + (size_t)(col * rows->dim) * rows->kernels->size}};
        zonal__cpu_tiles_meet(tiles, i, &meeting, thread);
    }
}

zonal_status zonal__cpu_ring_run(zonal__cpu_ring *ring, const double *mark,
                                 zonal__cpu_visitor *visit, void *context) {
    zonal__cpu_tiles *tiles = ring->tiles;
    const zonal__ranks *ranks = tiles->rows->ranks;
    if (!ranks) {
        zonal__cpu_tiles_run(tiles, visit, context);
        return ZONAL_OK;
    }
    const zonal_communicator *c = &ranks->communicator;
    pack(tiles->rows, mark, ring->block[0]);
    for (int step = 0; step < c->ranks; step++) {
        int more = step + 1 < c->ranks;
        int64_t next = ranks->rows[zonal__ranks_owner(ranks, step + 1)];
        ring->here = ring->block[step % 2];
        ring->visitors = ranks->rows[zonal__ranks_owner(ranks, step)];
        if (more)
            ZONAL_TRY(c->shift_begin(
                c->context, ring->here, (int64_t)block_bytes(tiles->rows, ring->visitors),
                ring->block[(step + 1) % 2], (int64_t)block_bytes(tiles->rows, next), NULL));
        if (step == 0)
            zonal__cpu_tiles_run(tiles, visit, context);
        else
            zonal__cpu_parallel(tiles->blocks, meet_visitors, ring);
        if (more) ZONAL_TRY(c->shift_end(c->context, NULL));
    }
    return ZONAL_OK;
}
