#include "backend/cpu/tiles.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/product.h"
#include "core/memory.h"

/* Small blocks leave enough tiles in a round for every thread, and waste less on the diagonal;
 * large ones feed the matrix product better. The choice may depend on nothing but the number of
 * rows, or results would change with the machine. */
static int64_t choose_side(int64_t rows) {
    if (rows <= 512) return 64;
    return rows <= 8192 ? 128 : ZONAL__TILE_MAX;
}

zonal_status zonal__cpu_tiles_init(zonal__cpu_rows *rows, zonal__cpu_tiles *tiles) {
    int64_t side = choose_side(rows->rows);
    *tiles =
        (zonal__cpu_tiles){.rows = rows, .side = side, .blocks = (rows->rows + side - 1) / side};
    if (rows->threads > rows->chunks) rows->threads = rows->chunks > 0 ? (int)rows->chunks : 1;
    ZONAL_TRY(zonal__alloc(rows->threads, (size_t)(side * side) * rows->kernels->size,
                           "the tiles of pairs", &tiles->products));
    return ZONAL_NEW(&tiles->played, tiles->blocks + 1, "the order of the tiles");
}

void zonal__cpu_tiles_fini(zonal__cpu_tiles *tiles) {
    zonal__free(tiles->products);
    zonal__free(tiles->played);
}

size_t zonal__cpu_tiles_bytes(const zonal__cpu_tiles *tiles) {
    const zonal__cpu_rows *rows = tiles->rows;
    return (size_t)(rows->threads * tiles->side * tiles->side) * rows->kernels->size +
           (size_t)(tiles->blocks + 1) * sizeof *tiles->played;
}

/* The two blocks that meet in game "game" of round "round" > 0, out of an even number of players:
 * the last player stays, the others move round a circle. */
static void draw(int64_t players, int64_t round, int64_t game, int64_t *i, int64_t *j) {
    int64_t circle = players - 1;
    *i = game == 0 ? circle : (round + game) % circle;
    *j = (round + circle - game) % circle;
}

static char *row_at(const zonal__cpu_rows *rows, const void *base, int64_t i) {
    return (char *)base + (size_t)(i * rows->dim) * rows->kernels->size;
}

/* The tile's products. On the diagonal only those right of it are wanted, so it is cut into strips
 * of rows that begin there. */
static void multiply(const zonal__cpu_rows *rows, const zonal__cpu_tile *tile) {
    enum { STRIP = 32 };
    size_t size = rows->kernels->size;
    int64_t tall = tile->diagonal ? STRIP : tile->rows;
    for (int64_t top = 0; top < tile->rows; top += tall) {
        int64_t left = tile->diagonal ? top : 0;
        zonal__cpu_multiply(
            rows->kernels,
            &(zonal__cpu_product){.transpose_b = 1,
                                  .m = tile->rows - top < tall ? tile->rows - top : tall,
                                  .n = tile->cols - left,
                                  .k = tile->dim,
                                  .a = row_at(rows, tile->row_y, top),
                                  .lda = tile->dim,
                                  .b = row_at(rows, tile->col_y, left),
                                  .ldb = tile->dim,
                                  .c = (char *)tile->s + (size_t)(top * tile->cols + left) * size,
                                  .ldc = tile->cols});
    }
}

void zonal__cpu_tiles_meet(zonal__cpu_tiles *tiles, int64_t i, zonal__cpu_meeting *meeting,
                           int thread) {
    const zonal__cpu_rows *rows = tiles->rows;
    zonal__cpu_tile *tile = &meeting->tile;
    int64_t side = tiles->side, row = i * side;
    meeting->row_block = i;
    meeting->row_first = row;
    tile->rows = rows->rows - row < side ? rows->rows - row : side;
    tile->dim = rows->dim;
    tile->row_offset = rows->offset + row;
    tile->row_y = row_at(rows, rows->centred, row);
    tile->s = (char *)tiles->products + (size_t)(thread * side * side) * rows->kernels->size;
    multiply(rows, tile);
    tiles->visit(tiles->context, meeting);
}

/* Blocks i and j of the rows. */
static void meet(zonal__cpu_tiles *tiles, int64_t i, int64_t j, int thread) {
    const zonal__cpu_rows *rows = tiles->rows;
    int64_t side = tiles->side, col = j * side;
    zonal__cpu_meeting meeting = {
        .col_first = col,
        .tile = {.cols = rows->rows - col < side ? rows->rows - col : side,
                 .diagonal = i == j,
                 .col_offset = rows->offset + col,
                 .col_y = row_at(rows, rows->centred, col)}};
    zonal__cpu_tiles_meet(tiles, i, &meeting, thread);
}

/* Turns are numbered through round 0, one for each block, and then round after round. */
static void play(void *context, int64_t turn, int thread) {
    zonal__cpu_tiles *tiles = context;
    int64_t players = tiles->blocks + tiles->blocks % 2, round = 0, i = turn, j = turn;
    if (turn >= players) {
        round = 1 + (turn - players) / (players / 2);
        draw(players, round, (turn - players) % (players / 2), &i, &j);
    }
    zonal__cpu_wait(&tiles->played[i], round);
    zonal__cpu_wait(&tiles->played[j], round);
    /* with an odd number of blocks the last player is nobody, and who meets it rests */
    if (i < tiles->blocks && j < tiles->blocks) meet(tiles, i, j, thread);
    atomic_store_explicit(&tiles->played[i], round + 1, memory_order_release);
    /* not twice: after the first store the block may play on, and the second would undo that */
    if (j != i) atomic_store_explicit(&tiles->played[j], round + 1, memory_order_release);
}

void zonal__cpu_tiles_run(zonal__cpu_tiles *tiles, zonal__cpu_visitor *visit, void *context) {
    int64_t players = tiles->blocks + tiles->blocks % 2;
    tiles->visit = visit;
    tiles->context = context;
    for (int64_t i = 0; i < players; i++) atomic_store(&tiles->played[i], 0);
    zonal__cpu_parallel(players + (players - 1) * (players / 2), play, tiles);
}

void zonal__cpu_tiles_spread(const zonal__cpu_tiles *tiles, const zonal__cpu_meeting *meeting,
                             void *gradient) {
    const zonal__cpu_rows *rows = tiles->rows;
    const zonal__cpu_tile *tile = &meeting->tile;
    zonal__cpu_product product = {.m = tile->rows,
                                  .n = rows->dim,
                                  .k = tile->cols,
                                  .a = tile->s,
                                  .lda = tile->cols,
                                  .b = tile->col_y,
                                  .ldb = rows->dim,
                                  .beta = !tile->diagonal,
                                  .c = row_at(rows, gradient, meeting->row_first),
                                  .ldc = rows->dim};
    zonal__cpu_multiply(rows->kernels, &product);
    if (tile->diagonal || meeting->foreign) return;
    product.transpose_a = 1;
    product.m = tile->cols;
    product.k = tile->rows;
    product.b = tile->row_y;
    product.c = row_at(rows, gradient, meeting->col_first);
    zonal__cpu_multiply(rows->kernels, &product);
}
