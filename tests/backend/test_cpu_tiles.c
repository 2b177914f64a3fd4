/*
 * The order of the tiles (backend/cpu/tiles.h) among threads that can be interrupted between any
 * two of their stores, as happens very rarely: here they are, after each of them. A store that
 * undoes another thread's leaves a tournament waiting for ever, and this test with it.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/* A store, and then a rest in which all others go on. */
static void store_and_rest(_Atomic int64_t *number, int64_t value, memory_order order) {
    atomic_store_explicit(number, value, order);
    nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
}

#undef atomic_store_explicit
#define atomic_store_explicit store_and_rest
#include "backend/cpu/tiles.c"

#include "test.h"

enum { MOST = 7, THREADS = 4, TOURNAMENTS = 40 };

/* Blocks of one row each. */
typedef struct tournament {
    zonal__cpu_tiles tiles;
    int64_t games[MOST];  /* of each, by itself and with others */
    uint64_t order[MOST]; /* a hash of whom it met, from the first to the last */
} tournament;

static void note(tournament *t, int64_t block, int64_t other) {
    t->games[block]++;
    t->order[block] = t->order[block] * 31 + (uint64_t)other + 1;
}

static void note_game(void *context, zonal__cpu_meeting *meeting) {
    note(context, meeting->row_first, meeting->col_first);
    if (!meeting->tile.diagonal) note(context, meeting->col_first, meeting->row_first);
}

static zonal_status play_all(zonal__work *work, const void *x, double *value, void *gradient,
                             double factor) {
    tournament *t = (tournament *)(void *)work;
    (void)x, (void)value, (void)gradient, (void)factor;
    zonal__cpu_tiles_run(&t->tiles, note_game, t);
    return ZONAL_OK;
}

static tournament played_by(int threads, int64_t blocks) {
    float y[MOST] = {0}, products[THREADS];
    double offset[MOST] = {0};
    _Atomic int64_t played[MOST + 1];
    zonal__cpu_rows rows = {.rows = blocks,
                            .dim = 1,
                            .threads = threads,
                            .kernels = zonal__cpu_kernels_get(ZONAL_PRECISION_FP32),
                            .centred = y,
                            .offset = offset};
    tournament t = {
        .tiles = {
            .rows = &rows, .side = 1, .blocks = blocks, .products = products, .played = played}};
    CHECK_OK(zonal__cpu_run(threads, play_all, (zonal__work *)(void *)&t, NULL, NULL, NULL, 1));
    return t;
}

/* Every block meets itself and every other one once, in the order that one thread has. */
static void test_interrupted(void) {
    for (int64_t blocks = 1; blocks <= MOST; blocks++) {
        tournament alone = played_by(1, blocks);
        for (int i = 0; i < TOURNAMENTS; i++) {
            tournament t = played_by(THREADS, blocks);
            for (int64_t k = 0; k < blocks; k++)
                CHECK(t.games[k] == blocks && t.order[k] == alone.order[k]);
        }
    }
}

static const test_case tests[] = {{"interrupted", test_interrupted}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
