/*
 * The packed form of a network's first convolution (backend/cuda/nn_stem.h), on the host: the
 * convolution of the packed picture with the packed weights is the convolution as it is defined in
 * backend/nn.h. All numbers are small integers, so both are exact.
 */
#include "backend/cuda/nn_stem.h"
#include "core/memory.h"
#include "test.h"

typedef struct stem_case {
    int h, w, channels, kernel, stride, pad;
} stem_case;

static const stem_case cases[] = {{2, 2, 1, 7, 2, 3},   {2, 4, 3, 7, 2, 3},   {4, 2, 3, 7, 2, 3},
                                  {6, 8, 1, 7, 2, 3},   {8, 6, 1, 7, 2, 3},   {10, 10, 3, 7, 2, 3},
                                  {7, 9, 1, 3, 1, 1},   {12, 14, 3, 7, 2, 3}, {32, 32, 3, 7, 2, 3},
                                  {1, 1, 1, 3, 1, 1},   {2, 3, 3, 3, 1, 1},   {5, 4, 1, 3, 1, 1},
                                  {16, 16, 3, 3, 1, 1}, {30, 18, 1, 7, 2, 3}};
enum { CASES = sizeof cases / sizeof *cases };

static int64_t mix(int64_t i) {
    return (i * 7919 + 13) % 23 - 11;
}

typedef struct arrays {
    int64_t *x, *weight, *packed_x, *packed_weight;
} arrays;

static void drop(arrays *a) {
    zonal__free(a->x);
    zonal__free(a->weight);
    zonal__free(a->packed_x);
    zonal__free(a->packed_weight);
}

static int make(arrays *a, const zonal__stem *s) {
    int64_t pixels = (int64_t)s->h * s->w * s->channels;
    int64_t taps = (int64_t)s->kernel * s->kernel * s->channels;
    memset(a, 0, sizeof *a);
    if (CHECK_OK(ZONAL_NEW(&a->x, pixels, "x")) && CHECK_OK(ZONAL_NEW(&a->weight, taps, "w")) &&
        CHECK_OK(ZONAL_NEW(&a->packed_x, zonal__stem_picture_elements(s), "packed x")) &&
        CHECK_OK(ZONAL_NEW(&a->packed_weight, zonal__stem_weight_elements(s), "packed w"))) {
        for (int64_t i = 0; i < pixels; i++) a->x[i] = mix(i);
        for (int64_t i = 0; i < taps; i++) a->weight[i] = mix(i + 1000);
        return 1;
    }
    drop(a);
    return 0;
}

static void pack(arrays *a, const zonal__stem *s) {
    int64_t at = 0;
    for (int i = 0; i < s->packed_h; i++)
        for (int j = 0; j < s->packed_w; j++)
            for (int c = 0; c < s->packed_channels; c++) {
                int64_t from = zonal__stem_picture_source(s, i, j, c);
                a->packed_x[at++] = from < 0 ? 0 : a->x[from];
            }
    at = 0;
    for (int i = 0; i < s->packed_kernel; i++)
        for (int j = 0; j < s->packed_kernel; j++)
            for (int c = 0; c < s->packed_channels; c++) {
                int from = zonal__stem_weight_source(s, i, j, c);
                a->packed_weight[at++] = from < 0 ? 0 : a->weight[from];
            }
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

static void check_case(const stem_case *k) {
    zonal__stem s = {0};
    arrays a;
    if (!CHECK(zonal__stem_make(1, k->h, k->w, k->channels, k->kernel, k->stride, k->pad, &s)))
        return;
    int out_h = (k->h + 2 * k->pad - k->kernel) / k->stride + 1;
    int out_w = (k->w + 2 * k->pad - k->kernel) / k->stride + 1;
    int64_t wrong = 0;
    CHECK(s.packed_h + 2 * s.packed_pad - s.packed_kernel + 1 == out_h);
    CHECK(s.packed_w + 2 * s.packed_pad - s.packed_kernel + 1 == out_w);
    CHECK(s.packed_channels % 8 == 0);
    if (!make(&a, &s)) return;
    pack(&a, &s);
    for (int i = 0; i < out_h; i++)
        for (int j = 0; j < out_w; j++) {
            int64_t direct = convolve(a.x, a.weight, k->h, k->w, k->channels, k->kernel, k->stride,
                                      k->pad, i, j);
            int64_t packed = convolve(a.packed_x, a.packed_weight, s.packed_h, s.packed_w,
                                      s.packed_channels, s.packed_kernel, 1, s.packed_pad, i, j);
            wrong += direct != packed;
        }
    CHECK_MSG(wrong == 0, "%d x %d x %d, kernel %d: %lld of %d outputs differ", k->h, k->w,
              k->channels, k->kernel, (long long)wrong, out_h * out_w);
    drop(&a);
}

static void test_convolution(void) {
    for (int i = 0; i < CASES; i++) check_case(&cases[i]);
}

/* Each weight has one place among the packed ones, and what is there comes from it. */
static void test_weights_back(void) {
    for (int i = 0; i < CASES; i++) {
        const stem_case *k = &cases[i];
        zonal__stem s = {0};
        int places = 0;
        CHECK(zonal__stem_make(1, k->h, k->w, k->channels, k->kernel, k->stride, k->pad, &s));
        for (int at = 0; at < zonal__stem_weight_elements(&s); at++) {
            int c = at % s.packed_channels, tap = at / s.packed_channels;
            int from =
                zonal__stem_weight_source(&s, tap / s.packed_kernel, tap % s.packed_kernel, c);
            if (from < 0) continue;
            places++;
            CHECK(zonal__stem_weight_place(&s, from / s.channels / s.kernel,
                                           from / s.channels % s.kernel, from % s.channels) == at);
        }
        CHECK(places == k->kernel * k->kernel * k->channels);
    }
}

static void test_what_has_none(void) {
    zonal__stem s = {0};
    CHECK(!zonal__stem_make(1, 9, 8, 3, 7, 2, 3, &s));  /* an odd side */
    CHECK(!zonal__stem_make(1, 8, 8, 4, 7, 2, 3, &s));  /* neither grey nor RGB */
    CHECK(!zonal__stem_make(1, 8, 8, 3, 7, 1, 3, &s));  /* another stride */
    CHECK(!zonal__stem_make(1, 8, 8, 3, 3, 1, 0, &s));  /* another pad */
    CHECK(!zonal__stem_make(1, 8, 8, 64, 3, 1, 1, &s)); /* not a first layer */
}

static const test_case tests[] = {{"convolution", test_convolution},
                                  {"weights_back", test_weights_back},
                                  {"what_has_none", test_what_has_none},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
