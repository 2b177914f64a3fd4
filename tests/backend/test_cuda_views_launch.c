/*
 * The launch arithmetic of views on CUDA, on the host: tiles cover every pixel once, shared memory
 * and grids are within the limits, and the taps are those of the triangle filter.
 */
#include <stdlib.h>

#include "backend/cuda/training/views_launch.h"
#include "test.h"

static const int sides[] = {1,  2,  3,   5,   7,   8,   9,   31,  32,  33,   63,   64,
                            65, 96, 127, 128, 129, 191, 224, 225, 513, 1000, 4097, 32768};
static const int tap_counts[] = {0, 1, 3, 5, 9, 23, 31, 63, 65, 127};
enum { SIDES = sizeof sides / sizeof *sides, TAPS = sizeof tap_counts / sizeof *tap_counts };

/* Tiles of "tile" pixels cover a side when the last begins inside it and ends at or after it. */
static int covers(int tiles, int tile, int side) {
    return (int64_t)tiles * tile >= side && (int64_t)(tiles - 1) * tile < side;
}

static void check_blur(const zonal__views_shape *s, int taps) {
    int down = s->blur_tiles / s->blur_across;
    int rows = s->blur_height + 2 * s->radius;
    CHECK(s->radius == taps / 2 && s->blur_across * down == s->blur_tiles);
    CHECK(s->blur_width % ZONAL__VIEWS_BLUR_RUN == 0 && s->blur_width <= ZONAL__VIEWS_BLUR_TILE);
    CHECK(s->blur_height % ZONAL__VIEWS_BLUR_RUN == 0 && s->blur_height <= ZONAL__VIEWS_BLUR_TILE);
    CHECK(covers(s->blur_across, s->blur_width, s->width));
    CHECK(covers(down, s->blur_height, s->height));
    CHECK(s->wide_pitch % 2 == 1 && s->wide_pitch >= s->blur_width + 2 * s->radius);
    CHECK(s->thin_pitch % 2 == 1 && s->thin_pitch >= s->blur_width);
    CHECK(s->blur_shared >= (rows * (s->wide_pitch + s->thin_pitch) + taps) * 4);
    CHECK_MSG(s->blur_shared <= ZONAL__VIEWS_SHARED, "%d x %d, %d taps: %d bytes", s->width,
              s->height, taps, s->blur_shared);
}

static void check_shape(int width, int height, int channels, int64_t count, int taps, int keeps) {
    zonal__views_shape s;
    zonal__views_shape_make(width, height, channels, count, taps, keeps, &s);
    int down = s.tiles / s.tiles_across;
    int64_t bytes = s.at_once * s.elements * 2;
    CHECK(s.tiles_across * down == s.tiles && s.elements == (int64_t)width * height * channels);
    CHECK(covers(s.tiles_across, ZONAL__VIEWS_TILE, width));
    CHECK(covers(down, ZONAL__VIEWS_TILE, height));
    check_blur(&s, taps);
    CHECK(s.at_once >= 1 && s.at_once <= count);
    CHECK(s.at_once * s.tiles <= INT32_MAX);
    CHECK(s.at_once * s.blur_tiles * channels <= INT32_MAX);
    CHECK_MSG(!keeps || s.at_once == 1 || bytes <= ZONAL__VIEWS_SCRATCH,
              "%lld of %lld views %d x %d keep %lld bytes", (long long)s.at_once, (long long)count,
              width, height, (long long)bytes);
}

static void test_shapes(void) {
    static const int64_t counts[] = {1, 2, 512, 1000000, INT32_MAX};
    for (int w = 0; w < SIDES; w++)
        for (int h = 0; h < SIDES; h++)
            for (int t = 0; t < TAPS; t++)
                for (int n = 0; n < 5; n++)
                    check_shape(sides[w], sides[h], n % 2 ? 3 : 1, counts[n], tap_counts[t], n < 4);
}

/* The shapes the targets are about go in one launch each, without rows or columns to spare. */
static void test_targets(void) {
    zonal__views_shape s;
    zonal__views_shape_make(224, 224, 3, 512, 23, 1, &s);
    CHECK(s.at_once == 512 && s.tiles == 49);
    CHECK(s.blur_width == 56 && s.blur_height == 56 && s.blur_tiles == 16);
    CHECK(s.blur_shared <= 227 * 1024 / 5); /* five blocks on a multiprocessor */
    zonal__views_shape_make(224, 224, 1, 1000000, 0, 0, &s);
    CHECK(s.at_once == 1000000);
}

/* The definition in double, over all pixels of the source: what is left out has no weight, and the
 * weights are right to what a float's centre allows: 3 roundings of a place below "from", over the
 * reach. */
static void check_taps(int from, int to) {
    double scale = (double)from / to, reach = scale > 1 ? scale : 1;
    double allowed = 3 * 0x1p-24 * from / reach + 4 * 0x1p-24;
    int step = to > 300 ? to / 150 : 1;
    for (int o = 0; o < to; o = o + step < to || o == to - 1 ? o + step : to - 1) {
        zonal__views_taps taps = zonal__views_find_taps(o, from, to);
        double sum = 0;
        CHECK(0 <= taps.low && taps.low < taps.high && taps.high <= from);
        for (int k = 0; k < from; k++) {
            double want = 1 - fabs(k + 0.5 - (o + 0.5) * scale) / reach;
            double got = k < taps.low || k >= taps.high ? 0 : (double)zonal__views_weight(&taps, k);
            if (!(fabs(got - (want > 0 ? want : 0)) <= allowed)) {
                CHECK_MSG(0, "%d to %d, pixel %d, tap %d: weight %g, want %g", from, to, o, k, got,
                          want);
                return;
            }
            sum += got;
        }
        CHECK_MSG(sum >= 0.5 - allowed, "%d to %d, pixel %d: weights add up to %g", from, to, o,
                  sum);
    }
}

static void test_taps(void) {
    static const int from[] = {1, 2, 3, 5, 17, 100, 224, 375, 500, 1023, 4000, 32768};
    static const int to[] = {1, 2, 5, 32, 33, 96, 224, 500, 1024};
    for (int f = 0; f < 12; f++)
        for (int t = 0; t < 9; t++) check_taps(from[f], to[t]);
    check_taps(4000, 32768);
    check_taps(1, 32768);
}

/* The places beyond an end mirror those before it; all others stay within the side. */
static void test_mirror(void) {
    for (int side = 1; side <= 70; side++)
        for (int beyond = 0; beyond < side; beyond++) {
            CHECK(zonal__views_mirror(-beyond, side) == beyond);
            CHECK(zonal__views_mirror(side - 1 + beyond, side) == side - 1 - beyond);
        }
    for (int side = 1; side <= 70; side++)
        for (int i = -63; i < side + 64 + 63; i++) {
            int place = zonal__views_mirror(i, side);
            CHECK(place >= 0 && place < side && (i < 0 || i >= side || place == i));
        }
}

/* Every pixel belongs to one pair, the first of a pair has an even number within the view, and as
 * many pairs as half the row's pixels, rounded up, reach them all. */
static void test_pairs(void) {
    for (int width = 1; width <= 70; width++)
        for (int row = 0; row < 5; row++) {
            int seen[72] = {0};
            for (int pair = 0; pair < (width + 1) / 2; pair++) {
                int x = zonal__views_pair_start(pair, row, width);
                CHECK((row * width + x) % 2 == 0);
                for (int k = 0; k < 2; k++)
                    if (x + k >= 0 && x + k < width) seen[x + k]++;
            }
            for (int x = 0; x < width; x++)
                CHECK_MSG(seen[x] == 1, "width %d, row %d, pixel %d is in %d pairs", width, row, x,
                          seen[x]);
        }
}

static const test_case tests[] = {{"shapes", test_shapes}, {"targets", test_targets},
                                  {"taps", test_taps},     {"mirror", test_mirror},
                                  {"pairs", test_pairs},   {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
