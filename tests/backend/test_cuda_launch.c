/*
 * The launch arithmetic of small batches on CUDA, on the host: whatever the shape, each pair of
 * rows is looked at once, each row is finished once, and shared memory and grid are within the
 * limits.
 */
#include <stdlib.h>

#include "backend/cuda/launch.h"
#include "test.h"

/* A GPU whose parts are even, one whose are not, and a small one. */
static const zonal__small_room rooms[] = {
    {{132, 66, 33, 16}}, {{132, 66, 31, 15}}, {{114, 57, 27, 12}}, {{20, 10, 4, 1}}};
enum { ROOMS = sizeof rooms / sizeof *rooms };

static const int dims[] = {2,   3,    4,    31,   32,   33,   64,   100,  128,
                           255, 256,  257,  300,  400,  511,  512,  513,  514,
                           700, 1000, 1024, 2047, 2048, 2049, 3000, 4095, 4096};
static const int64_t view_counts[] = {1, 2, 3, 8, 65, 1000};
enum { DIMS = sizeof dims / sizeof *dims, VIEWS = sizeof view_counts / sizeof *view_counts };

/* Where the parts of shared memory end, by what the kernels put there. */
static int rows_end(const zonal__small_shape *s) {
    return s->at_rows + (s->tile_rows + ZONAL__SMALL_COLUMNS) * s->pitch * 4;
}

static void check_memory(const zonal__small_shape *s) {
    int quads = s->quads ? s->row_quads : ZONAL__SMALL_CHUNK / 4;
    int kept = s->quads ? 1 : s->tiles_per_block, scaled = s->tile_rows + kept * 32;
    int shares = 8 * s->tile_rows * 32 * 4, gradient = s->tile_rows * quads * 16;
    int sums = s->quads ? 8 * s->row_quads * 16 : 0;
    CHECK(s->at_rows == 0 && rows_end(s) <= s->at_partial);
    CHECK(s->at_partial + shares <= s->at_weights && s->at_partial + gradient <= s->at_weights);
    CHECK(s->at_partial + sums <= s->at_weights);
    CHECK(s->at_weights + kept * 32 * (s->tile_rows + 4) * 4 <= s->at_row_weights);
    CHECK(s->at_row_weights + 64 * 4 <= s->at_centre);
    CHECK(s->at_centre + s->row_quads * 16 <= s->at_offsets);
    CHECK(s->at_offsets + (1 + scaled) * 4 <= s->at_scales);
    CHECK(s->at_scales + scaled * 8 <= s->at_norms);
    CHECK(s->at_norms + 8 * ZONAL__SMALL_NORMS * 8 <= s->at_sums);
    CHECK(s->at_sums + 16 * 8 <= s->at_statistics);
    CHECK(s->at_statistics + 64 * 16 <= s->shared_bytes);
    CHECK((s->at_partial | s->at_weights | s->at_centre | s->at_scales | s->at_norms | s->at_sums |
           s->at_statistics) %
              16 ==
          0);
    CHECK_MSG(s->shared_bytes <= ZONAL__SMALL_SHARED, "%d rows of %d: %d bytes", s->rows, s->dim,
              s->shared_bytes);
    CHECK(s->per == 1 || (s->per == 2 && s->shared_bytes <= ZONAL__SMALL_HALF));
}

static void check_blocks(const zonal__small_shape *s) {
    char columns[ZONAL__SMALL_BATCH / 32] = {0}, owned[32] = {0};
    int most = 0;
    CHECK(s->tile_rows == 32 || (s->tile_rows == 16 && s->quads == 2 && s->per == 1));
    CHECK(s->cluster == 1 || s->cluster == 2 || s->cluster == 4 || s->cluster == 8);
    CHECK(s->owned * s->cluster == s->tile_rows);
    CHECK(s->row_tiles * s->tile_rows >= s->rows && (s->row_tiles - 1) * s->tile_rows < s->rows);
    CHECK(s->column_tiles * 32 >= s->rows && (s->column_tiles - 1) * 32 < s->rows);
    CHECK(s->blocks == s->views * s->row_tiles * s->cluster && s->blocks <= INT32_MAX);
    for (int rank = 0; rank < s->cluster; rank++) {
        int tiles = zonal__small_block_tiles(s, rank);
        CHECK(tiles >= 1 && tiles <= s->tiles_per_block);
        most = tiles > most ? tiles : most;
        for (int tile = 0; tile < tiles; tile++) columns[rank + tile * s->cluster]++;
        for (int own = 0; own < s->owned; own++) owned[rank * s->owned + own]++;
    }
    CHECK(most == s->tiles_per_block);
    for (int i = 0; i < s->column_tiles; i++) CHECK(columns[i] == 1);
    for (int i = 0; i < s->tile_rows; i++) CHECK(owned[i] == 1);
    CHECK(s->quads != 0 || s->tiles_per_block <= ZONAL__SMALL_KEPT);
}

static void check_rows(const zonal__small_shape *s) {
    CHECK(4 * s->row_quads >= s->dim && 4 * (s->row_quads - 1) < s->dim);
    CHECK(s->quads == 0 || 128 * s->quads >= s->dim);
    CHECK(s->quads == 0 || s->pitch >= 4 * s->row_quads);
    CHECK(s->chunks * (s->quads ? 512 : ZONAL__SMALL_CHUNK) >= s->dim);
    CHECK(s->quads || s->pitch >= ZONAL__SMALL_CHUNK);
    CHECK(s->pitch % 32 == 4); /* eight rows in turn begin in different banks */
}

static void check_shapes(const zonal__small_room *room) {
    for (int v = 0; v < VIEWS; v++)
        for (int k = 0; k < DIMS; k++)
            for (int rows = 2; rows <= ZONAL__SMALL_BATCH; rows += rows < 130 ? 1 : 7) {
                zonal__small_shape s;
                if (!CHECK_MSG(zonal__small_shape_make(view_counts[v], rows, dims[k], room, &s),
                               "%d rows of %d are refused", rows, dims[k]))
                    return;
                check_memory(&s);
                check_blocks(&s);
                check_rows(&s);
            }
}

static void test_all_shapes(void) {
    for (int k = 0; k < ROOMS; k++) check_shapes(&rooms[k]);
}

static void test_refusals(void) {
    zonal__small_shape s;
    CHECK(!zonal__small_shape_make(1, 1, 64, &rooms[0], &s));
    CHECK(!zonal__small_shape_make(1, 1025, 64, &rooms[0], &s));
    CHECK(!zonal__small_shape_make(1, 64, 1, &rooms[0], &s));
    CHECK(!zonal__small_shape_make(1, 64, 4097, &rooms[0], &s));
    CHECK(!zonal__small_shape_make(0, 64, 64, &rooms[0], &s));
    CHECK(!zonal__small_shape_make((int64_t)1 << 40, 64, 64, &rooms[0], &s));
}

/* The paper's batch runs at once, whatever the parts of the GPU are. */
static void test_paper_batch(void) {
    zonal__small_shape s;
    CHECK(zonal__small_shape_make(2, 256, 256, &rooms[0], &s));
    CHECK(s.tile_rows == 32 && s.cluster == 8 && s.blocks == 128 && s.per == 1);
    CHECK(zonal__small_shape_make(2, 256, 256, &rooms[1], &s));
    CHECK(s.tile_rows == 32 && s.cluster == 8 && s.blocks == 128 && s.per == 2);
    CHECK(zonal__small_shape_make(1, 256, 256, &rooms[0], &s));
    CHECK(s.tile_rows == 16 && s.cluster == 8 && s.blocks == 128 && s.per == 1);
    CHECK(zonal__small_shape_make(1, 256, 256, &rooms[1], &s));
    CHECK(s.tile_rows == 32 && s.cluster == 8 && s.blocks == 64 && s.per == 1);
    CHECK(zonal__small_shape_make(2, 512, 256, &rooms[0], &s));
    CHECK(s.per == 2 && s.blocks == 256);
}

/* The warps' products and the pairs dealt to the threads are the same pairs, each once. */
static void test_pairs_of_a_tile(void) {
    for (int tile_rows = 16; tile_rows <= 32; tile_rows += 16) {
        int made[32][32] = {{0}}, dealt[32][32] = {{0}}, each = tile_rows / 8;
        for (int lane = 0; lane < 32; lane++)
            for (int r = 0; r < each; r++)
                for (int s = 0; s < 8; s++)
                    made[zonal__small_lane_row(lane) + 8 * r]
                        [zonal__small_lane_column(lane) + 4 * s]++;
        for (int warp = 0; warp < 8; warp++)
            for (int lane = 0; lane < 32; lane++)
                for (int e = 0; e < each; e++) {
                    /* where the kernel finds it: r and s of product number "warp" of this lane */
                    int r = warp / (8 / each), s = each * (warp % (8 / each)) + e;
                    int row = zonal__small_dealt_row(tile_rows, warp, lane);
                    int column = zonal__small_dealt_column(tile_rows, warp, lane, e);
                    CHECK(row == zonal__small_lane_row(lane) + 8 * r);
                    CHECK(column == zonal__small_lane_column(lane) + 4 * s);
                    dealt[row][column]++;
                }
        for (int i = 0; i < tile_rows; i++)
            for (int j = 0; j < 32; j++) CHECK(made[i][j] == 1 && dealt[i][j] == 1);
    }
}

/* Neighbours share addresses as the comment in launch.h says, and the four lanes of a row differ in
 * the bits 0 and 2. */
static void test_lanes(void) {
    for (int lane = 0; lane < 32; lane++) {
        CHECK(zonal__small_lane_row(lane) == zonal__small_lane_row(lane ^ 1));
        CHECK(zonal__small_lane_row(lane) == zonal__small_lane_row(lane ^ 4));
        CHECK(zonal__small_lane_column(lane) == zonal__small_lane_column(lane ^ 2));
        CHECK(zonal__small_lane_row(lane) < 8 && zonal__small_lane_column(lane) < 4);
    }
}

/* Walks through a launch as the blocks and threads do and counts the pairs of the batch. */
static void count_pairs(const zonal__small_room *room, int64_t views, int rows, int dim) {
    zonal__small_shape s;
    if (!CHECK(zonal__small_shape_make(views, rows, dim, room, &s))) return;
    int64_t pairs = views * rows * rows;
    unsigned char *seen = calloc((size_t)pairs, 1), *finished = calloc((size_t)(views * rows), 1);
    if (!CHECK(seen && finished)) goto done;
    for (int64_t block = 0; block < s.blocks; block++) {
        int rank = (int)(block % s.cluster);
        int64_t cluster = block / s.cluster, view = cluster / s.row_tiles;
        int first_row = (int)(cluster % s.row_tiles) * s.tile_rows;
        for (int own = 0; own < s.owned; own++)
            if (first_row + rank * s.owned + own < rows)
                finished[view * rows + first_row + rank * s.owned + own]++;
        for (int tile = 0; tile < zonal__small_block_tiles(&s, rank); tile++)
            for (int thread = 0; thread < ZONAL__SMALL_THREADS; thread++)
                for (int e = 0; e < s.tile_rows / 8; e++) {
                    int warp = thread / 32, lane = thread % 32;
                    int i = first_row + zonal__small_dealt_row(s.tile_rows, warp, lane);
                    int j = (rank + tile * s.cluster) * 32 +
                            zonal__small_dealt_column(s.tile_rows, warp, lane, e);
                    if (i < rows && j < rows) seen[(view * rows + i) * rows + j]++;
                }
    }
    for (int64_t k = 0; k < pairs; k++)
        if (!CHECK_MSG(seen[k] == 1, "pair %lld of %d rows seen %d times", (long long)k, rows,
                       seen[k]))
            break;
    for (int64_t k = 0; k < views * rows; k++) CHECK(finished[k] == 1);
done:
    free(seen);
    free(finished);
}

static void test_every_pair_once(void) {
    static const int sizes[] = {2, 3, 16, 17, 31, 32, 33, 64, 65, 100, 255, 256, 257, 500, 1024};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        count_pairs(&rooms[k % ROOMS], 1, sizes[k], 256);
        count_pairs(&rooms[k % ROOMS], 2, sizes[k], 512);
        count_pairs(&rooms[k % ROOMS], 3, sizes[k], 1000);
        count_pairs(&rooms[k % ROOMS], 9, sizes[k], 64);
    }
}

static const test_case tests[] = {
    {"all_shapes", test_all_shapes},
    {"refusals", test_refusals},
    {"paper_batch", test_paper_batch},
    {"pairs_of_a_tile", test_pairs_of_a_tile},
    {"lanes", test_lanes},
    {"every_pair_once", test_every_pair_once},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
