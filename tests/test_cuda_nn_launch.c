/*
 * How norms and pools on CUDA are cut into blocks, without a GPU: every element of the array is
 * some thread's, and only one's; every window of a pool is found from each of its pixels.
 */
#include <stdlib.h>

#include "backend/cuda/nn_launch.h"
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

static void test_whole(void) {
    for (int i = 0; i < CHANNEL_COUNTS; i++)
        for (int k = 0; k < ROW_COUNTS; k++) {
            zonal__columns c;
            int whole = zonal__columns_make_whole(row_counts[k], channel_counts[i], 2, &c);
            CHECK(whole == (channel_counts[i] % 8 == 0 && row_counts[k] <= 8192));
            check_columns(&c);
            if (whole && row_counts[k] * channel_counts[i] <= 1 << 20)
                check_walk(&c, c.columns, 4, k % 2);
        }
    zonal__columns c;
    CHECK(zonal__columns_make_whole(8192, 128, 2, &c) && c.columns == 16 && c.across == 1);
    CHECK(zonal__columns_make_whole(512, 2048, 2, &c) && c.columns == 128 && c.across == 2);
    CHECK(!zonal__columns_make_whole(8193, 128, 2, &c) && c.across == 16);
    CHECK(!zonal__columns_make_whole(4097, 128, 4, &c));
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
    static const int usual[][2] = {{64, 48}, {128, 24}, {256, 24}, {512, 24}, {2048, 24}};
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
                                  {"whole", test_whole},
                                  {"large", test_large},
                                  {"usual", test_usual},
                                  {"pool_rows", test_pool_rows},
                                  {"pool_windows", test_pool_windows},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
