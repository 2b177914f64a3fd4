/*
 * The first convolution of a network as CUDA computes it, its index arithmetic on the host: 3 x 3
 * with the channels filled up (backend/cuda/training/nn_stem.h) and 7 x 7 by own kernels
 * (backend/cuda/training/nn_stem_window.h), each against the convolution as it is defined in
 * backend/training/nn.h. All numbers are small integers, so both are exact.
 */
#include "backend/cuda/training/nn_stem.h"
#include "backend/cuda/training/nn_stem_window.h"
#include "core/memory.h"
#include "test.h"

static int64_t mix(int64_t i) {
    return (i * 7919 + 13) % 23 - 11;
}

/* One output of a convolution, by the formula. */
static int64_t convolve(const int64_t *x, const int64_t *weight, int h, int w, int channels,
                        int kernel, int stride, int pad, int i, int j) {
    int64_t sum = 0;
    for (int r = 0; r < kernel; r++)
        for (int s = 0; s < kernel; s++) {
            int row = i * stride + r - pad, column = j * stride + s - pad;
            if (row < 0 || row >= h || column < 0 || column >= w) continue;
            for (int c = 0; c < channels; c++)
                sum += x[((int64_t)row * w + column) * channels + c] *
                       weight[(r * kernel + s) * channels + c];
        }
    return sum;
}

/* ---- filled channels ------------------------------------------------------------------------- */

/* h, w, channels */
static const int images[][3] = {{1, 1, 1}, {2, 3, 3}, {5, 4, 1}, {7, 9, 1}, {6, 2, 3}, {16, 16, 3}};
enum { IMAGES = sizeof images / sizeof *images };

typedef struct both_forms {
    int64_t *plain;  /* [count][channels] */
    int64_t *filled; /* [count][ZONAL__STEM_FILLED] */
} both_forms;

static void drop(both_forms *b) {
    zonal__free(b->plain);
    zonal__free(b->filled);
}

static int make(both_forms *b, int64_t count, int channels, int64_t seed) {
    *b = (both_forms){0};
    if (!CHECK_OK(ZONAL_NEW(&b->plain, count * channels, "rows")) ||
        !CHECK_OK(ZONAL_NEW(&b->filled, count * ZONAL__STEM_FILLED, "filled rows")))
        return 0;
    for (int64_t i = 0; i < count * channels; i++) b->plain[i] = mix(i + seed);
    for (int64_t i = 0; i < count * ZONAL__STEM_FILLED; i++) {
        int64_t from = zonal__stem_filled_source(channels, i);
        b->filled[i] = from < 0 ? 0 : b->plain[from];
    }
    return 1;
}

static void test_filled_convolution(void) {
    for (int p = 0; p < IMAGES; p++) {
        int h = images[p][0], w = images[p][1], channels = images[p][2], wrong = 0;
        both_forms x = {0}, weight = {0};
        if (make(&x, (int64_t)h * w, channels, 0) && make(&weight, 9, channels, 1000))
            for (int i = 0; i < h; i++)
                for (int j = 0; j < w; j++)
                    wrong +=
                        convolve(x.plain, weight.plain, h, w, channels, 3, 1, 1, i, j) !=
                        convolve(x.filled, weight.filled, h, w, ZONAL__STEM_FILLED, 3, 1, 1, i, j);
        CHECK_MSG(wrong == 0, "%d x %d x %d: %d outputs differ", h, w, channels, wrong);
        drop(&x);
        drop(&weight);
    }
}

/* Each element has one place in the filled form, the others there are zeros. The arrays of the test
 * above would not show elements that changed places in both images and weights. */
static void test_filled_places(void) {
    enum { ROWS = 18 };
    for (int channels = 1; channels <= 3; channels += 2) {
        int zeros = 0;
        for (int i = 0; i < ROWS * ZONAL__STEM_FILLED; i++)
            zeros += zonal__stem_filled_source(channels, i) < 0;
        CHECK(zeros == ROWS * (ZONAL__STEM_FILLED - channels));
        for (int i = 0; i < ROWS * channels; i++) {
            int64_t place = zonal__stem_filled_place(channels, i);
            CHECK(place / ZONAL__STEM_FILLED == i / channels);
            CHECK(place % ZONAL__STEM_FILLED == i % channels);
            CHECK(zonal__stem_filled_source(channels, place) == i);
        }
    }
}

static void test_what_is_filled(void) {
    CHECK(zonal__stem_is_filled(1, 3, 1, 1) && zonal__stem_is_filled(3, 3, 1, 1));
    CHECK(!zonal__stem_is_filled(3, 7, 2, 3));  /* own kernels */
    CHECK(!zonal__stem_is_filled(4, 3, 1, 1));  /* neither grey nor RGB */
    CHECK(!zonal__stem_is_filled(3, 3, 2, 1));  /* another stride */
    CHECK(!zonal__stem_is_filled(3, 3, 1, 0));  /* another pad */
    CHECK(!zonal__stem_is_filled(64, 3, 1, 1)); /* not a first layer */
}

/* ---- own kernels ----------------------------------------------------------------------------- */

/* h, w, channels, output channels, images */
static const int windows[][5] = {{1, 1, 1, 8, 1},   {2, 2, 3, 8, 2},   {7, 9, 3, 16, 1},
                                 {8, 8, 1, 64, 2},  {9, 224, 3, 8, 1}, {5, 226, 3, 24, 1},
                                 {3, 233, 1, 8, 3}, {4, 531, 3, 8, 1}};
enum { WINDOWS = sizeof windows / sizeof *windows };

/* The number at (row, place) of a tile's patch, as the kernels fill it. */
static int64_t patch_at(const zonal__stem_window *window, const zonal__stem_tile *tile,
                        const int64_t *x, int row, int place) {
    int width = window->w * window->channels;
    int down = 2 * tile->i - 3 + row;
    int across = (2 * tile->j - ZONAL__STEM_LEFT) * window->channels + place;
    if (down < 0 || down >= window->h || across < 0 || across >= width) return 0;
    return x[(tile->n * window->h + down) * width + across];
}

/* Output (row, j) of a tile by its widened window. */
static int64_t widened(const zonal__stem_window *window, const zonal__stem_tile *tile,
                       const int64_t *x, const int64_t *weight, int row, int j) {
    int64_t sum = 0;
    int start = zonal__stem_window_start(window->channels, j);
    for (int r = 0; r < ZONAL__STEM_SIDE; r++)
        for (int at = 0; at < ZONAL__STEM_WIDENED * window->channels; at++) {
            int place = zonal__stem_window_weight(window->channels, r, at);
            if (place < 0) continue;
            sum += patch_at(window, tile, x, 2 * row + r, start + at) * weight[place];
        }
    return sum;
}

/* All tiles of "rows" output rows: how many outputs are wrong; each must come once. */
static int64_t wrong_outputs(const zonal__stem_window *window, int rows, const int64_t *x,
                             const int64_t *weight, int64_t *outputs) {
    int64_t wrong = 0, image = (int64_t)window->h * window->w * window->channels;
    for (int at = 0; at < zonal__stem_tiles(window, rows); at++) {
        zonal__stem_tile tile = zonal__stem_tile_at(window, rows, at);
        for (int row = 0; row < rows && tile.i + row < window->out_h; row++)
            for (int j = 0; j < 16 * window->groups && tile.j + j < window->out_w; j++) {
                int64_t direct = convolve(x + tile.n * image, weight, window->h, window->w,
                                          window->channels, 7, 2, 3, tile.i + row, tile.j + j);
                wrong += widened(window, &tile, x, weight, row, j) != direct;
                ++*outputs;
            }
    }
    return wrong;
}

static void test_windows(void) {
    for (int i = 0; i < WINDOWS; i++) {
        const int *k = windows[i];
        zonal__stem_window window = {0};
        int64_t *x = NULL, *weight = NULL, count = (int64_t)k[4] * k[0] * k[1] * k[2];
        if (!CHECK(zonal__stem_window_make(k[4], k[0], k[1], k[2], k[3], 7, 2, 3, &window)))
            continue;
        CHECK(window.groups <= ZONAL__STEM_GROUPS);
        if (CHECK_OK(ZONAL_NEW(&x, count, "x")) && CHECK_OK(ZONAL_NEW(&weight, 49 * k[2], "w"))) {
            for (int64_t at = 0; at < count; at++) x[at] = mix(at);
            for (int64_t at = 0; at < 49 * k[2]; at++) weight[at] = mix(at + 1000);
            for (int rows = 1; rows <= ZONAL__STEM_FORWARD_ROWS; rows += 3) {
                int64_t outputs = 0;
                CHECK(wrong_outputs(&window, rows, x, weight, &outputs) == 0);
                CHECK(outputs == window.n * window.out_h * window.out_w);
            }
        }
        zonal__free(x);
        zonal__free(weight);
    }
}

/* What a lane reads lies in a patch, in pairs of 4 bytes; the rows' beginnings allow 16. */
static void test_alignment(void) {
    for (int channels = 1; channels <= 3; channels += 2) {
        int last = zonal__stem_window_start(channels, 16 * ZONAL__STEM_GROUPS - 1);
        int row = ZONAL__STEM_PATCH * channels;
        CHECK(last + ZONAL__STEM_WIDENED * channels <= row);
        CHECK(row % 8 == 0);
        for (int j = 0; j < 16 * ZONAL__STEM_GROUPS; j++)
            CHECK(zonal__stem_window_start(channels, j) % 2 == 0);
        for (int j = 0; j < 64; j += 16) CHECK((2 * j - ZONAL__STEM_LEFT) * channels % 8 == 0);
    }
}

/* The 4 products of 8 columns are 32 channels; a thread's are neighbours in their order. */
static void test_forward_channels(void) {
    int seen[32] = {0};
    for (int product = 0; product < 4; product++)
        for (int column = 0; column < 8; column++)
            seen[zonal__stem_forward_channel(product, column)]++;
    for (int i = 0; i < 32; i++) CHECK(seen[i] == 1);
    for (int lane = 0; lane < 4; lane++)
        for (int i = 0; i < 8; i++)
            CHECK(zonal__stem_forward_channel(i / 2, 2 * lane + i % 2) == 8 * lane + i);
}

/* Each weight's gradient is one thread's sum. */
static void test_filter_places(void) {
    for (int channels = 1; channels <= 3; channels += 2) {
        int taps = 49 * channels, twice = 0, seen[64 * 49 * 3] = {0};
        for (int thread = 0; thread < ZONAL__STEM_FILTER_THREADS; thread++)
            for (int sum = 0; sum < zonal__stem_filter_sums(channels); sum++) {
                int channel, place = zonal__stem_filter_place(channels, thread, sum, &channel);
                if (place < 0) continue;
                if (CHECK(channel >= 0 && channel < 64 && place < taps))
                    seen[channel * taps + place]++;
            }
        for (int i = 0; i < 64 * taps; i++) twice += seen[i] != 1;
        CHECK_MSG(twice == 0, "%d channels: %d weights have no sum or several", channels, twice);
    }
}

/* The pair whose sums go to a weight is read from where that weight's pixel is. */
static void test_filter_pairs(void) {
    enum { STRIDE = 1000 };
    for (int channels = 1; channels <= 3; channels += 2)
        for (int pair = 0; pair < 7 * 4 * channels; pair++) {
            int offset = zonal__stem_filter_offset(channels, STRIDE, pair);
            int warp = pair / 8 / zonal__stem_filter_doubles(channels);
            int number = pair / 8 % zonal__stem_filter_doubles(channels), channel;
            CHECK(zonal__stem_filter_pair(channels, warp, number, pair % 8) == pair);
            for (int second = 0; second < 2; second++) {
                int thread = warp * 32 + pair % 8 / 2;
                int sum = number * 32 + second * 16 + pair % 2;
                CHECK(
                    zonal__stem_filter_place(channels, thread, sum, &channel) ==
                    zonal__stem_window_weight(channels, offset / STRIDE, offset % STRIDE + second));
            }
        }
}

static void test_what_windows_do(void) {
    zonal__stem_window window;
    CHECK(zonal__stem_window_make(512, 224, 224, 3, 64, 7, 2, 3, &window));
    CHECK(window.across == 1 && window.groups == 7);
    CHECK(!zonal__stem_window_make(1, 8, 8, 3, 33, 7, 2, 3, &window)); /* no whole 16 bytes */
    CHECK(!zonal__stem_window_make(1, 8, 8, 4, 64, 7, 2, 3, &window)); /* neither grey nor RGB */
    CHECK(!zonal__stem_window_make(1, 8, 8, 3, 64, 7, 1, 3, &window)); /* another stride */
    CHECK(!zonal__stem_window_make(1, 8, 8, 3, 64, 7, 2, 2, &window)); /* another pad */
    CHECK(!zonal__stem_window_make(1, 8, 8, 3, 64, 3, 1, 1, &window)); /* another kernel */
    CHECK(!zonal__stem_window_make(1 << 30, 8, 8, 3, 64, 7, 2, 3, &window)); /* too many tiles */
}

static const test_case tests[] = {{"filled_convolution", test_filled_convolution},
                                  {"filled_places", test_filled_places},
                                  {"what_is_filled", test_what_is_filled},
                                  {"windows", test_windows},
                                  {"alignment", test_alignment},
                                  {"forward_channels", test_forward_channels},
                                  {"filter_places", test_filter_places},
                                  {"filter_pairs", test_filter_pairs},
                                  {"what_windows_do", test_what_windows_do},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
