/*
 * The launch arithmetic of small batches on CUDA, on the host: whatever the shape, each pair of
 * rows is looked at once, each row is finished once, and shared memory and grid are within the
 * limits. And what the fused kernels for large batches compute on the host: the same for their
 * tiles, and polynomials made shorter.
 */
#include <stdlib.h>

#include "backend/cuda/fused.h"
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

/* Large batches: blocks cover the rows, ranges the columns, without a block or range that has
 * nothing to do; and the gradients of several ranges take no more than they may. */
static void test_fused_cut(void) {
    static const int64_t batches[] = {1025,  1088,  1151,  1152,  2048,   4096,   5000,
                                      12289, 16384, 20000, 65536, 262144, 1048577};
    for (unsigned i = 0; i < sizeof batches / sizeof *batches; i++)
        for (int dim = 2; dim <= 256; dim += 127)
            for (int split = 0; split < 2; split++)
                for (int processors = 1; processors <= 132; processors += 131) {
                    int64_t rows = batches[i], block = split ? 64 : 128;
                    zonal__fused_cut cut;
                    zonal__fused_cut_make(rows, dim, split, processors, &cut);
                    CHECK(cut.blocks * block >= rows && (cut.blocks - 1) * block < rows);
                    CHECK((int64_t)cut.tiles * 64 >= rows &&
                          (int64_t)(cut.tiles - 1 - split) * 64 < rows);
                    CHECK((int64_t)cut.ranges * cut.tiles_each >= cut.tiles);
                    CHECK((int64_t)(cut.ranges - 1) * cut.tiles_each < cut.tiles);
                    CHECK(cut.padded >= cut.blocks * block && cut.padded >= cut.tiles * 64LL);
                    CHECK(!split || (cut.tiles % 2 == 0 && cut.tiles_each % 2 == 0));
                    CHECK(cut.ranges == 1 ||
                          cut.ranges * rows * dim * 4 <= (int64_t)ZONAL__FUSED_PARTIAL);
                    CHECK(cut.ranges == 1 || processors > 1); /* ranges are for idle processors */
                }
}

/* Where there is no gradient every row meets every block of columns once, its own sums and those
 * that others find for it together; ranges cover all steps. */
static void test_sum_cut(void) {
    static const int64_t batches[] = {2, 128, 129, 256, 257, 1025, 4096, 16384, 65536, 65537};
    for (unsigned i = 0; i < sizeof batches / sizeof *batches; i++)
        for (int by_column = 0; by_column < 2; by_column++)
            for (int processors = 1; processors <= 132; processors += 131) {
                int64_t rows = batches[i];
                zonal__sum_cut cut;
                zonal__sum_cut_make(rows, by_column, processors, &cut);
                CHECK(cut.blocks * 128LL >= rows && (cut.blocks - 1) * 128LL < rows);
                CHECK((int64_t)cut.ranges * cut.steps_each >= cut.steps);
                CHECK((cut.ranges - 1) * cut.steps_each < cut.steps);
                CHECK(cut.ranges == 1 || processors > 1);
                CHECK(!by_column ||
                      cut.mirrored * cut.blocks * 512LL <= (int64_t)ZONAL__SUM_MIRROR);
                CHECK(rows > 65536 || cut.mirrored == (cut.blocks - 1) / 2);
                int *met = calloc((size_t)cut.blocks, sizeof *met); /* by block 0 */
                for (int block = 0; block < cut.blocks; block++)
                    for (int step = 0; step < cut.steps; step++) {
                        int other = (block + step) % cut.blocks;
                        if (block == 0) met[other]++;
                        if (other == 0 && step > 0 && step <= cut.mirrored) met[block]++;
                    }
                for (int block = 0; block < cut.blocks; block++) CHECK(met[block] == 1);
                free(met);
            }
}

/* Of (a, b) and (b, a) one counts, and one of the groups 2k, 2k + 1 of columns, a apart. */
static void test_fused_counts(void) {
    for (int a = 0; a < 40; a++)
        for (int b = 0; b < 40; b++) {
            if (a != b) CHECK(zonal__fused_counts(a, b) + zonal__fused_counts(b, a) == 1);
            if (b % 2 == 0 && a / 2 != b / 2)
                CHECK(zonal__fused_counts(a, b) + zonal__fused_counts(a, b + 1) == 1);
        }
}

/* T_k(c) = cos(k acos c). */
static double chebyshev_sum(int n, const double *a, double c) {
    double sum = 0;
    for (int k = 0; k < n; k++) sum += a[k] * cos(k * acos(c));
    return sum;
}

static void test_fused_economise(void) {
    enum { TERMS = 40 };
    double a[TERMS], power[ZONAL__FUSED_TERMS];
    for (int k = 0; k < TERMS; k++) a[k] = (k % 3 == 2 ? -1 : 1) * pow(0.3, k);
    for (double tolerance = 1e-3; tolerance > 1e-9; tolerance /= 10) {
        int n = zonal__fused_economise(TERMS, a, tolerance, power);
        double dropped = 0, worst = 0;
        for (int k = n; k < TERMS; k++) dropped += fabs(a[k]);
        /* As few terms as the tolerance allows. */
        CHECK(n > 2 && dropped <= tolerance && dropped + fabs(a[n - 1]) > tolerance);
        for (int i = 0; i <= 100; i++) {
            double c = -1 + 0.02 * i, sum = 0;
            if (c > 1) c = 1;
            for (int k = ZONAL__FUSED_TERMS - 1; k >= 0; k--) sum = sum * c + power[k];
            worst = fmax(worst, fabs(sum - chebyshev_sum(TERMS, a, c)));
        }
        CHECK_MSG(worst <= tolerance + 1e-13, "%d terms are off by %g, allowed %g", n, worst,
                  tolerance);
        for (int k = n; k < ZONAL__FUSED_TERMS; k++) CHECK(power[k] == 0);
    }
    CHECK(zonal__fused_economise(TERMS, a, 0, power) == 0); /* too many */
    CHECK(zonal__fused_economise(ZONAL__FUSED_TERMS, a, 0, power) == ZONAL__FUSED_TERMS);
    CHECK(zonal__fused_economise(4, (double[]){0, 0, 0, 1}, 0, power) == 4); /* 4 c^3 - 3 c */
    CHECK(power[0] == 0 && power[1] == -3 && power[2] == 0 && power[3] == 4);
}

static const test_case tests[] = {
    {"all_shapes", test_all_shapes},
    {"refusals", test_refusals},
    {"paper_batch", test_paper_batch},
    {"pairs_of_a_tile", test_pairs_of_a_tile},
    {"lanes", test_lanes},
    {"every_pair_once", test_every_pair_once},
    {"fused_cut", test_fused_cut},
    {"sum_cut", test_sum_cut},
    {"fused_counts", test_fused_counts},
    {"fused_economise", test_fused_economise},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
