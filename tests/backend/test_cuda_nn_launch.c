/*
 * How norms and pools on CUDA are cut into blocks, without a GPU: every element of the array is
 * some thread's, and only one's; every window of a pool is found from each of its pixels.
 */
#include <stdlib.h>

#include "backend/cuda/training/nn_launch.h"
#include "test.h"

static const int channel_counts[] = {1,   2,   3,   7,   8,   16,  24,  64,  65,   96,   127,
                                     128, 129, 136, 192, 200, 256, 320, 512, 1000, 1024, 2048};
static const int64_t row_counts[] = {1, 2, 3, 23, 24, 25, 47, 48, 49, 383, 385, 1000, 5000};
enum {
    CHANNEL_COUNTS = sizeof channel_counts / sizeof channel_counts[0],
    ROW_COUNTS = sizeof row_counts / sizeof row_counts[0]
};

/* What the kernels rely on. */
static void check_columns(const zonal__columns *c) {
    CHECK(c->vector * c->groups == c->channels);
    CHECK(c->across >= 1 && c->down >= 1 && c->across * c->down <= ZONAL__NN_THREADS);
    CHECK(c->across * c->vector <= ZONAL__NN_TILE);
    CHECK(c->columns * c->across >= c->groups && (c->columns - 1) * c->across < c->groups);
    /* One thread each for both sums of a column's channels. */
    CHECK(2 * c->across * c->vector <= ZONAL__NN_THREADS);
}

/* Walks as the threads do, from the first row on (or from the last one back), "at_once" rows in
 * each turn, and counts visits. */
static void walk(const zonal__columns *c, int blocks, int at_once, int back, unsigned char *seen) {
    for (int block = 0; block < blocks; block++)
        for (int thread = 0; thread < ZONAL__NN_THREADS; thread++) {
            zonal__column_place at = zonal__column_find(c, blocks, block, thread);
            if (at.first >= at.end) continue;
            int64_t i = back ? zonal__column_last(c, &at) : at.first;
            int64_t step = back ? -at.step : at.step;
            for (; back ? i >= 0 : i < at.end; i += at_once * step)
                for (int u = 0; u < at_once; u++) {
                    int64_t element = i + u * step;
                    if (element < 0 || element >= at.end) break;
                    CHECK(element % c->channels == at.channel);
                    for (int k = 0; k < c->vector; k++) seen[element + k]++;
                }
        }
}

static void check_walk(const zonal__columns *c, int blocks, int at_once, int back) {
    int64_t count = c->rows * c->channels, wrong = 0;
    unsigned char *seen = calloc((size_t)count, 1);
    if (!CHECK(seen != NULL)) return;
    walk(c, blocks, at_once, back, seen);
    for (int64_t i = 0; i < count; i++) wrong += seen[i] != 1;
    CHECK_MSG(wrong == 0, "%lld rows of %d channels in %d blocks: %lld elements not seen once",
              (long long)c->rows, c->channels, blocks, (long long)wrong);
    free(seen);
}

static void test_every_element_once(void) {
    for (int i = 0; i < CHANNEL_COUNTS; i++)
        for (int k = 0; k < ROW_COUNTS; k++) {
            zonal__columns c;
            if (row_counts[k] * channel_counts[i] > 1 << 20) continue;
            zonal__columns_make(row_counts[k], channel_counts[i], &c);
            check_columns(&c);
            for (int most = 1; most < 300; most = 5 * most + 1) {
                int at_once = k % 2 ? 4 : 2, blocks = zonal__columns_blocks(&c, at_once, most);
                CHECK(blocks >= 1 && (blocks == 1 || blocks * c.columns <= most));
                check_walk(&c, blocks * c.columns, at_once, k / 2 % 2);
            }
        }
}

/* All rows of every thread, first those that are read twice, then "held" ones, as the resident
 * kernels take them. */
static void walk_resident(const zonal__resident *r, int held, unsigned char *seen) {
    int blocks = r->blocks * r->shape.columns, again = r->each > held ? r->each - held : 0;
    for (int block = 0; block < blocks; block++)
        for (int thread = 0; thread < ZONAL__RESIDENT_THREADS; thread++) {
            zonal__column_place at = zonal__column_find(&r->shape, blocks, block, thread);
            if (at.first >= at.end) continue;
            int64_t kept = at.first + again * at.step;
            CHECK(kept < at.end); /* the first held row is there, where two or more are held */
            for (int64_t i = at.first; i < kept; i += at.step)
                for (int k = 0; k < 8; k++) seen[i + k]++;
            for (int u = 0; u < held && kept + u * at.step < at.end; u++)
                for (int k = 0; k < 8; k++) seen[kept + u * at.step + k]++;
        }
}

static void check_resident(int64_t rows, int channels, int processors, int held) {
    zonal__resident r;
    int64_t count = rows * channels, wrong = 0;
    zonal__resident_make(rows, channels, 2, processors, 2 * processors, &r);
    int columns = zonal__nn_ceil(channels, 32);
    CHECK((r.blocks > 0) == (channels % 8 == 0 && columns <= 2 * processors));
    if (r.blocks == 0) return;
    CHECK(r.shape.across * r.shape.down == ZONAL__RESIDENT_THREADS && r.shape.columns == columns);
    CHECK(r.blocks * columns <= 2 * processors);
    CHECK((int64_t)r.blocks * r.shape.down * r.each >= rows);
    unsigned char *seen = calloc((size_t)count, 1);
    if (!CHECK(seen != NULL)) return;
    walk_resident(&r, held, seen);
    for (int64_t i = 0; i < count; i++) wrong += seen[i] != 1;
    CHECK_MSG(wrong == 0, "%lld rows of %d channels on %d processors: %lld elements not seen once",
              (long long)rows, channels, processors, (long long)wrong);
    free(seen);
}

static void test_resident(void) {
    for (int i = 0; i < CHANNEL_COUNTS; i++)
        for (int k = 0; k < ROW_COUNTS; k++) {
            if (row_counts[k] * channel_counts[i] > 1 << 20) continue;
            for (int processors = 1; processors < 200; processors = 3 * processors + 1)
                check_resident(row_counts[k], channel_counts[i], processors, 2 + k % 4);
        }
}

/* Rows, channels; columns, blocks of one and rows of a thread, on an H200: a step of ResNet-18 with
 * 512 images of 32 or 64 pixels. */
static void test_resident_usual(void) {
    static const int usual[][5] = {
        {512, 2048, 64, 2, 4},    {512, 512, 16, 8, 1},   {2048, 256, 8, 16, 2},
        {2048, 512, 16, 8, 4},    {8192, 128, 4, 32, 4},  {32768, 64, 2, 128, 4},
        {131072, 64, 2, 128, 16}, {32768, 128, 4, 64, 8}, {25088, 512, 16, 16, 25}};
    zonal__resident r;
    for (int i = 0; i < 9; i++) {
        zonal__resident_make(usual[i][0], usual[i][1], 2, 132, 264, &r);
        CHECK_MSG(r.shape.columns == usual[i][2] && r.blocks == usual[i][3] &&
                      r.each == usual[i][4],
                  "%d rows of %d channels: %d columns of %d blocks, %d rows a thread", usual[i][0],
                  usual[i][1], r.shape.columns, r.blocks, r.each);
    }
    zonal__resident_make(1 << 18, 64, 2, 132, 264, &r); /* as large as they come */
    CHECK(r.blocks > 0);
    zonal__resident_make((1 << 18) + 1, 64, 2, 132, 264, &r);
    CHECK(r.blocks == 0);
    zonal__resident_make((1 << 17) + 1, 64, 4, 132, 264, &r);
    CHECK(r.blocks == 0);
}

/* More elements than 32 bits count: the last place is where it should be. */
static void test_large(void) {
    zonal__columns c;
    zonal__columns_make((int64_t)1 << 31, 64, &c);
    int blocks = zonal__columns_blocks(&c, 4, 264);
    zonal__column_place at = zonal__column_find(&c, blocks, blocks - 1, 15);
    CHECK(blocks == 264 && at.end == (int64_t)1 << 37 && at.channel == 7 * 8);
    CHECK(at.first == ((int64_t)263 * c.down + 1) * 64 + 56 &&
          at.step == (int64_t)264 * c.down * 64);
    CHECK(zonal__column_last(&c, &at) == at.end - 64 - ((int64_t)263 * c.down + 1) * 64 + 56);
}

/* The sizes that ResNets have in a batch of 512 keep every thread busy. */
static void test_usual(void) {
    static const int usual[][2] = {{64, 48}, {128, 48}, {256, 48}, {512, 48}, {2048, 48}};
    for (int i = 0; i < 5; i++) {
        zonal__columns c;
        zonal__columns_make(1 << 20, usual[i][0], &c);
        CHECK(c.vector == 8 && c.down == usual[i][1]);
        CHECK(c.across * c.down == ZONAL__NN_THREADS && c.columns * c.across == c.groups);
    }
}

static void test_pool_rows(void) {
    for (int i = 0; i < CHANNEL_COUNTS; i++)
        for (int pixels = 1; pixels < 300; pixels += pixels < 20 ? 1 : 31) {
            zonal__pool_shape shape;
            zonal__pool_shape_make(10, pixels, channel_counts[i], &shape);
            CHECK(shape.across * shape.down <= ZONAL__POOL_THREADS && shape.blocks == 10);
            CHECK(shape.down >= 1 && shape.down <= pixels && shape.across <= shape.groups);
            CHECK(shape.vector * shape.groups == channel_counts[i]);
        }
    zonal__pool_shape shape;
    zonal__pool_shape_make((int64_t)1 << 40, 56, 64, &shape);
    CHECK(shape.blocks == 1 << 20);
    CHECK(shape.across == 8 && shape.down == 28); /* two even turns of a row */
}

/* The windows over a pixel, against all windows asked one by one. */
static void test_pool_windows(void) {
    for (int kernel = 1; kernel <= 6; kernel++)
        for (int stride = 1; stride <= 7; stride++)
            for (int pad = 0; pad < kernel; pad++)
                for (int side = 1; side < 20; side++) {
                    int windows = (side + 2 * pad - kernel) / stride + 1;
                    if (kernel > side + 2 * pad) continue;
                    for (int p = 0; p < side; p++) {
                        zonal__pool_windows over =
                            zonal__pool_windows_over(p, kernel, stride, pad, windows);
                        for (int i = 0; i < windows; i++) {
                            int start = i * stride - pad, has = p >= start && p < start + kernel;
                            CHECK(has == (i >= over.first && i <= over.last));
                        }
                    }
                }
}

static const test_case tests[] = {{"every_element_once", test_every_element_once},
                                  {"resident", test_resident},
                                  {"resident_usual", test_resident_usual},
                                  {"large", test_large},
                                  {"usual", test_usual},
                                  {"pool_rows", test_pool_rows},
                                  {"pool_windows", test_pool_windows},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
