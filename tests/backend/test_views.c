/*
 * Views: src/backend/training/views.h, the reference against torchvision's functional operations
 * and the fast side against the reference. The augmentations they are drawn from are tested in
 * test_augmentation.c.
 */
#include "backend/training/views.h"

#include "core/memory.h"
#include "core/random.h"
#include "data/augmentation.h"
#include "failing_alloc.h"
#include "test.h"

/* ---- images and runs ------------------------------------------------------------------------- */

typedef struct golden_view {
    const char *name;
    int source[3]; /* width, height, channels */
    int size[3];   /* the view's */
    int blur_taps;
    int64_t at; /* of the first element among golden_values */
    zonal__view view;
} golden_view;

#include "golden/views.h"

static const int64_t golden_count = sizeof golden_views / sizeof golden_views[0];

static uint32_t mix(uint32_t n) {
    n = n * 2654435761u + 974711u;
    n = (n ^ n >> 15) * 2246822519u;
    return n ^ n >> 13;
}

/* The images of golden/make_views.py: flat blocks, edges and some noise. */
static void fill_image(int width, int height, int channels, uint8_t *out) {
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++) {
                uint32_t block = (uint32_t)((y / 3 * 4096 + x / 3) * 4 + c);
                uint32_t own = (uint32_t)((y * 4096 + x) * 4 + c);
                *out++ = (uint8_t)(mix(block) % 224 + mix(own + 7) % 32);
            }
}

static zonal__views_spec spec_of(int kind, int width, int height, int channels, int blur_taps,
                                 float most_shrink) {
    return (zonal__views_spec){.kind = kind,
                               .width = width,
                               .height = height,
                               .channels = channels,
                               .count = 64,
                               .mean = {0, 0, 0},
                               .std = {1, 1, 1},
                               .blur_taps = blur_taps,
                               .dtype = ZONAL_DTYPE_FP32,
                               .threads = 1,
                               .most_shrink = most_shrink};
}

/* Creates, runs once, destroys. */
static zonal_status make(const zonal__views_table *table, const zonal__views_spec *spec,
                         const uint8_t *base, const zonal__image_place *images,
                         const zonal__view *view, int64_t count, void *out) {
    zonal__views *views;
    zonal_status status = table->create(spec, &views);
    if (status == ZONAL_OK) status = table->run(views, base, images, view, count, out);
    table->destroy(views);
    return status;
}

static double largest_difference(int64_t n, const float *a, const float *b) {
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= worst)) worst = difference; /* NaN stays */
    }
    return worst;
}

/* ---- torchvision ----------------------------------------------------------------------------- */

static void check_golden(const zonal__views_table *table, double tolerance,
                         double blurred_tolerance) {
    static uint8_t pixels[64 * 64 * 3];
    static float out[32 * 32 * 3];
    for (int64_t g = 0; g < golden_count; g++) {
        const golden_view *golden = &golden_views[g];
        zonal__image_place image = {
            .width = golden->source[0], .height = golden->source[1], .channels = golden->source[2]};
        zonal__views_spec spec = spec_of(golden->view.kind, golden->size[0], golden->size[1],
                                         golden->size[2], golden->blur_taps, 64);
        double allowed = golden->view.blur > 0 ? blurred_tolerance : tolerance, worst = 0;
        fill_image(image.width, image.height, image.channels, pixels);
        if (!CHECK_OK(make(table, &spec, pixels, &image, &golden->view, 1, out))) continue;
        for (int64_t i = 0; i < spec.width * spec.height * spec.channels; i++) {
            double difference = fabs((double)out[i] - golden_values[golden->at + i]);
            if (!(difference <= worst)) worst = difference;
        }
        CHECK_MSG(worst <= allowed, "%s, %s: %g away from torchvision, allowed %g", table->name,
                  golden->name, worst, allowed);
    }
}

/* Both sides compute in double; the output's last bit is 2^-25 = 3e-8 of 1. torchvision's blur
 * makes its taps in float32, each 6e-8 off, which the sum of the taps shares. */
static void test_torchvision_ref(void) {
    check_golden(zonal__views_ref(), 4e-8, 3e-7);
}

/* Some tens of float operations; 1/1020 is the promise, this is what it keeps. */
static void test_torchvision_cpu(void) {
    check_golden(zonal__views_cpu(), 3e-6, 3e-6);
}

/* ---- closed forms ---------------------------------------------------------------------------- */

/* A constant image stays constant under crop, blur and any affine map that stays inside. */
static void test_constant_image(void) {
    static uint8_t pixels[40 * 30 * 3];
    static float out[21 * 17 * 3];
    const zonal__views_table *tables[] = {zonal__views_ref(), zonal__views_cpu()};
    zonal__image_place image = {.width = 40, .height = 30, .channels = 3};
    zonal__view view = {.left = 3, .top = 2, .width = 36, .height = 27, .blur = 1.5f};
    zonal__view turned = {
        .kind = ZONAL__VIEW_TEXTURE, .affine = {0.6f, 0.8f, 7, -0.8f, 0.6f, 18}, .contrast = 1};
    zonal__views_spec spec = spec_of(ZONAL__VIEW_PHOTOGRAPH, 21, 17, 3, 11, 2);
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(51 * (1 + i % 3));
    for (int t = 0; t < 2; t++)
        for (int kind = 0; kind < 2; kind++) {
            spec.kind = kind;
            if (!CHECK_OK(make(tables[t], &spec, pixels, &image, kind ? &turned : &view, 1, out)))
                continue;
            for (int64_t i = 0; i < 21 * 17 * 3; i++)
                CHECK_CLOSE((double)out[i], 0.2 * (double)(1 + i % 3), 5e-7);
        }
}

static void test_normalise(void) {
    static const uint8_t pixels[3] = {0, 51, 255};
    zonal__image_place image = {.width = 1, .height = 1, .channels = 3};
    zonal__view view = {.width = 1, .height = 1};
    zonal__views_spec spec = spec_of(ZONAL__VIEW_PHOTOGRAPH, 1, 1, 3, 0, 1);
    const zonal__views_table *tables[] = {zonal__views_ref(), zonal__views_cpu()};
    spec.mean[0] = 0.5f, spec.mean[1] = 0.2f, spec.mean[2] = 0.25f;
    spec.std[0] = 0.25f, spec.std[1] = 0.5f, spec.std[2] = 2;
    for (int t = 0; t < 2; t++) {
        float out[3] = {9, 9, 9};
        if (!CHECK_OK(make(tables[t], &spec, pixels, &image, &view, 1, out))) continue;
        CHECK_CLOSE((double)out[0], -2, 1e-6);
        CHECK_CLOSE((double)out[1], 0, 1e-7);
        CHECK_CLOSE((double)out[2], 0.375, 1e-6);
    }
}

/* The noise is what random.h says, number by number, and of the standard deviation asked for. */
static void test_noise(void) {
    enum { WIDTH = 37, HEIGHT = 21, CHANNELS = 3, N = WIDTH * HEIGHT * CHANNELS };
    static const uint8_t pixels[1] = {255};
    static float out[N];
    static double normal[N];
    const zonal__views_table *tables[] = {zonal__views_ref(), zonal__views_cpu()};
    zonal__image_place image = {.width = 1, .height = 1, .channels = 1};
    zonal__view view = {.kind = ZONAL__VIEW_TEXTURE,
                        .affine = {0, 0, 0.5f, 0, 0, 0.5f},
                        .contrast = 0.5f,
                        .noise = 0.05f,
                        .seed = test_seed,
                        .draw = ((uint64_t)1 << 55) + 12345,
                        .epoch = 77};
    zonal__views_spec spec = spec_of(ZONAL__VIEW_TEXTURE, WIDTH, HEIGHT, CHANNELS, 0, 0);
    zonal__random random = {test_seed, ZONAL__STREAM_NOISE, 77};
    zonal__random_normal(&random, view.draw, N, normal);
    for (int t = 0; t < 2; t++) {
        if (!CHECK_OK(make(tables[t], &spec, pixels, &image, &view, 1, out))) continue;
        for (int i = 0; i < N; i++)
            CHECK_CLOSE((double)out[i], 0.5 + (double)0.05f * normal[i], 4e-7);
    }
}

static void test_erase(void) {
    static const uint8_t pixels[1] = {255};
    const zonal__views_table *tables[] = {zonal__views_ref(), zonal__views_cpu()};
    zonal__image_place image = {.width = 1, .height = 1, .channels = 1};
    zonal__view view = {.kind = ZONAL__VIEW_TEXTURE,
                        .affine = {0, 0, 0.5f, 0, 0, 0.5f},
                        .contrast = 1,
                        .erase_left = 2,
                        .erase_top = 1,
                        .erase_width = 3,
                        .erase_height = 2,
                        .erase_value = 0.125f};
    zonal__views_spec spec = spec_of(ZONAL__VIEW_TEXTURE, 6, 4, 1, 0, 0);
    for (int t = 0; t < 2; t++) {
        float out[24];
        if (!CHECK_OK(make(tables[t], &spec, pixels, &image, &view, 1, out))) continue;
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 6; j++) {
                int erased = j >= 2 && j < 5 && i >= 1 && i < 3;
                CHECK_CLOSE((double)out[i * 6 + j], erased ? 0.125 : 1, 1e-7);
            }
    }
}

/* ---- the fast side against the reference ----------------------------------------------------- */

/* Images of odd shapes, one after the other in one block. */
static const int shapes[][3] = {{1, 1, 3},   {1, 1, 1},   {1, 7, 3},    {5, 300, 3},  {300, 5, 1},
                                {33, 47, 3}, {64, 64, 1}, {97, 120, 3}, {210, 180, 3}};
enum { SHAPES = sizeof shapes / sizeof shapes[0], VIEWS = 3 * SHAPES };

typedef struct album {
    zonal__image_place images[SHAPES];
    uint8_t *base;
} album;

static int album_make(album *a) {
    int64_t bytes = 0;
    for (int p = 0; p < SHAPES; p++) {
        a->images[p] = (zonal__image_place){.offset = bytes,
                                            .width = shapes[p][0],
                                            .height = shapes[p][1],
                                            .channels = shapes[p][2]};
        bytes += (int64_t)shapes[p][0] * shapes[p][1] * shapes[p][2];
    }
    /* exactly as long: one byte too far is then seen by the address sanitizer */
    if (!CHECK_OK(ZONAL_NEW(&a->base, bytes, "an album"))) return 0;
    for (int p = 0; p < SHAPES; p++)
        fill_image(shapes[p][0], shapes[p][1], shapes[p][2], a->base + a->images[p].offset);
    return 1;
}

/* Three views of every image, from augmentations that ask for everything often. */
static void draw_views(const zonal__views_spec *spec, uint32_t epoch, zonal__view *view) {
    zonal__augmentation augmentation;
    if (spec->kind == ZONAL__VIEW_TEXTURE) {
        zonal__augmentation_texture(&augmentation);
    } else {
        zonal__augmentation_byol(0, &augmentation);
        augmentation.area.low = 0.01;
        augmentation.aspect = (zonal__range){0.2, 5};
        augmentation.jitter = 0.9;
        augmentation.brightness = augmentation.contrast = augmentation.saturation = 0.9;
        augmentation.hue = 0.5;
        augmentation.solarise = 0.5;
        augmentation.blur = spec->blur_taps ? 0.7 : 0;
    }
    for (int n = 0; n < VIEWS; n++) {
        const int *shape = shapes[n % SHAPES];
        zonal__view_draw(&augmentation, test_seed, epoch, n, n / SHAPES, shape[0], shape[1],
                         spec->width, spec->height, &view[n]);
        view[n].image = n % SHAPES;
    }
}

static const struct {
    int width, height, channels, blur_taps;
} sizes[] = {{1, 1, 3, 1},   {7, 5, 3, 3},   {224, 32, 3, 23}, {32, 224, 1, 23}, {33, 64, 1, 7},
             {17, 19, 3, 0}, {64, 65, 3, 9}, {130, 3, 3, 5},   {48, 48, 1, 95}};

static void check_against_ref(int kind) {
    album a;
    zonal__view view[VIEWS];
    double worst = 0;
    if (!album_make(&a)) return;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        zonal__views_spec spec = spec_of(kind, sizes[k].width, sizes[k].height, sizes[k].channels,
                                         sizes[k].blur_taps, 300);
        int64_t n = (int64_t)VIEWS * spec.width * spec.height * spec.channels;
        float *want = NULL, *got = NULL;
        draw_views(&spec, (uint32_t)k, view);
        if (CHECK_OK(ZONAL_NEW(&want, n, "views")) && CHECK_OK(ZONAL_NEW(&got, n, "views")) &&
            CHECK_OK(make(zonal__views_ref(), &spec, a.base, a.images, view, VIEWS, want)) &&
            CHECK_OK(make(zonal__views_cpu(), &spec, a.base, a.images, view, VIEWS, got))) {
            double difference = largest_difference(n, got, want);
            if (!(difference <= worst)) worst = difference;
        }
        zonal__free(want);
        zonal__free(got);
    }
    printf("# largest difference of an element: %.2g\n", worst);
    /* 1/1020 is promised; kept are some 2e-6 of rounding and 4e-4 of the noise's std, 0.05 */
    CHECK_MSG(worst <= 2e-5, "an element is %g away from the reference", worst);
    zonal__free(a.base);
}

static void test_cpu_photographs(void) {
    check_against_ref(ZONAL__VIEW_PHOTOGRAPH);
}

/* Whole images with buffers for just that much shrinking, a quotient that no float holds. */
static void test_most_shrink(void) {
    static float want[29 * 13 * 3], got[29 * 13 * 3];
    album a;
    if (!album_make(&a)) return;
    for (int p = 0; p < SHAPES; p++) {
        zonal__view view = {.image = p, .width = shapes[p][0], .height = shapes[p][1], .flip = 1};
        float across = (float)view.width / 29, down = (float)view.height / 13;
        zonal__views_spec spec =
            spec_of(ZONAL__VIEW_PHOTOGRAPH, 29, 13, 3, 0, across > down ? across : down);
        if (CHECK_OK(make(zonal__views_ref(), &spec, a.base, a.images, &view, 1, want)) &&
            CHECK_OK(make(zonal__views_cpu(), &spec, a.base, a.images, &view, 1, got)))
            CHECK(largest_difference(29 * 13 * 3, got, want) <= 2e-6);
    }
    zonal__free(a.base);
}

static void test_cpu_textures(void) {
    check_against_ref(ZONAL__VIEW_TEXTURE);
}

static void test_threads(void) {
    album a;
    zonal__view view[VIEWS];
    if (!album_make(&a)) return;
    for (int kind = 0; kind < 2; kind++) {
        zonal__views_spec spec = spec_of(kind, 45, 39, 3, 9, 10);
        int64_t n = (int64_t)VIEWS * spec.width * spec.height * spec.channels;
        float *one = NULL, *more = NULL;
        draw_views(&spec, 5, view);
        if (CHECK_OK(ZONAL_NEW(&one, n, "views")) && CHECK_OK(ZONAL_NEW(&more, n, "views")) &&
            CHECK_OK(make(zonal__views_cpu(), &spec, a.base, a.images, view, VIEWS, one)))
            for (int threads = 0; threads <= 4; threads++) {
                spec.threads = threads;
                memset(more, 0xff, (size_t)n * sizeof *more);
                CHECK_OK(make(zonal__views_cpu(), &spec, a.base, a.images, view, VIEWS, more));
                CHECK_MSG(memcmp(one, more, (size_t)n * sizeof *one) == 0,
                          "%d threads give other bits than one", threads);
            }
        zonal__free(one);
        zonal__free(more);
    }
    zonal__free(a.base);
}

/* A view does not depend on what was made before it with the same scratch. */
static void test_order_of_views(void) {
    album a;
    zonal__view view[VIEWS], reversed[VIEWS];
    zonal__views_spec spec = spec_of(ZONAL__VIEW_PHOTOGRAPH, 31, 29, 3, 9, 12);
    int64_t one = (int64_t)spec.width * spec.height * spec.channels;
    float *forward = NULL, *backward = NULL;
    if (!album_make(&a)) return;
    draw_views(&spec, 6, view);
    for (int n = 0; n < VIEWS; n++) reversed[n] = view[VIEWS - 1 - n];
    if (CHECK_OK(ZONAL_NEW(&forward, VIEWS * one, "views")) &&
        CHECK_OK(ZONAL_NEW(&backward, VIEWS * one, "views")) &&
        CHECK_OK(make(zonal__views_cpu(), &spec, a.base, a.images, view, VIEWS, forward)) &&
        CHECK_OK(make(zonal__views_cpu(), &spec, a.base, a.images, reversed, VIEWS, backward)))
        for (int n = 0; n < VIEWS; n++)
            CHECK_MSG(memcmp(forward + n * one, backward + (VIEWS - 1 - n) * one,
                             (size_t)one * sizeof *forward) == 0,
                      "view %d depends on its neighbours", n);
    zonal__free(forward);
    zonal__free(backward);
    zonal__free(a.base);
}

/* ---- bf16 ------------------------------------------------------------------------------------ */

static double from_bf16(uint32_t half) {
    uint32_t bits = half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* Of the stored number and its two neighbours none is nearer to the float than the stored one. */
static int is_nearest(float x, uint16_t half) {
    double error = fabs(from_bf16(half) - (double)x);
    return error <= fabs(from_bf16(half + 1u) - (double)x) &&
           ((half & 0x7fff) == 0 || error <= fabs(from_bf16(half - 1u) - (double)x));
}

static void test_bf16(void) {
    const zonal__views_table *tables[] = {zonal__views_ref(), zonal__views_cpu()};
    album a;
    zonal__view view[VIEWS];
    if (!album_make(&a)) return;
    for (int t = 0; t < 2; t++)
        for (int channels = 1; channels <= 3; channels += 2) {
            zonal__views_spec spec = spec_of(ZONAL__VIEW_PHOTOGRAPH, 19, 23, channels, 3, 20);
            int64_t n = (int64_t)VIEWS * spec.width * spec.height * spec.channels, wrong = 0;
            float *wide = NULL;
            uint16_t *narrow = NULL;
            draw_views(&spec, 8, view);
            for (int c = 0; c < 3; c++) spec.mean[c] = 0.45f, spec.std[c] = 0.23f;
            if (CHECK_OK(ZONAL_NEW(&wide, n, "views")) &&
                CHECK_OK(ZONAL_NEW(&narrow, n, "views")) &&
                CHECK_OK(make(tables[t], &spec, a.base, a.images, view, VIEWS, wide))) {
                spec.dtype = ZONAL_DTYPE_BF16;
                CHECK_OK(make(tables[t], &spec, a.base, a.images, view, VIEWS, narrow));
                for (int64_t i = 0; i < n; i++) wrong += !is_nearest(wide[i], narrow[i]);
                CHECK_MSG(wrong == 0, "%s: %lld of %lld elements are not the nearest",
                          tables[t]->name, (long long)wrong, (long long)n);
            }
            zonal__free(wide);
            zonal__free(narrow);
        }
    zonal__free(a.base);
}

/* ---- refusals and memory --------------------------------------------------------------------- */

static void check_spec_refused(zonal__views_spec spec, zonal_status status, const char *sentence) {
    const zonal__views_table *tables[] = {zonal__views_ref(), zonal__views_cpu()};
    for (int t = 0; t < 2; t++) {
        zonal__views *views = (zonal__views *)&spec;
        CHECK_FAILS(tables[t]->create(&spec, &views), status, sentence);
        CHECK(views == NULL);
        tables[t]->destroy(views);
    }
}

static void test_bad_specs(void) {
    const zonal__views_spec good = spec_of(ZONAL__VIEW_PHOTOGRAPH, 8, 6, 3, 3, 2);
    zonal__views_spec bad;
#define REFUSED(change, status, sentence)                                                          \
    (bad = good, bad.change, check_spec_refused(bad, status, sentence))
    REFUSED(kind = 2, ZONAL_ARGUMENT, "kind 2");
    REFUSED(width = 0, ZONAL_ARGUMENT, "views of 0 x 6");
    REFUSED(height = 40000, ZONAL_ARGUMENT, "views of 8 x 40000");
    REFUSED(channels = 2, ZONAL_ARGUMENT, "1 or 3 channels");
    REFUSED(count = 0, ZONAL_ARGUMENT, "number of views");
    REFUSED(blur_taps = 4, ZONAL_ARGUMENT, "odd");
    REFUSED(blur_taps = -1, ZONAL_ARGUMENT, "odd");
    REFUSED(blur_taps = 13, ZONAL_ARGUMENT, "use at most 11");
    REFUSED(mean[1] = NAN, ZONAL_ARGUMENT, "channel 1");
    REFUSED(std[2] = 0, ZONAL_ARGUMENT, "channel 2");
    REFUSED(std[0] = NAN, ZONAL_ARGUMENT, "channel 0");
    REFUSED(dtype = ZONAL_DTYPE_FP16, ZONAL_DTYPE, "fp32 or bf16");
    REFUSED(threads = -1, ZONAL_ARGUMENT, "threads");
    REFUSED(most_shrink = 0, ZONAL_ARGUMENT, "shrink");
    REFUSED(most_shrink = NAN, ZONAL_ARGUMENT, "shrink");
#undef REFUSED
}

static void check_view_refused(int kind, zonal__view view, int64_t count, const char *sentence) {
    static const uint8_t pixels[16 * 12 * 3];
    static float out[8 * 6 * 3 * 64];
    zonal__image_place image = {.width = 16, .height = 12, .channels = 3};
    const zonal__views_table *tables[] = {zonal__views_ref(), zonal__views_cpu()};
    zonal__views_spec spec = spec_of(kind, 8, 6, 3, 0, 1.5f);
    for (int t = 0; t < 2; t++)
        CHECK_FAILS(make(tables[t], &spec, pixels, &image, &view, count, out), ZONAL_ARGUMENT,
                    sentence);
}

static void test_bad_images(void) {
    static const zonal__image_place bad[] = {
        {.width = 0, .height = 4, .channels = 3},
        {.width = 4, .height = -1, .channels = 3},
        {.width = 4, .height = 4, .channels = 4},
        {.width = 32768, .height = 32768, .channels = 1},
        {.offset = -1, .width = 4, .height = 4, .channels = 1}};
    const zonal__views_table *tables[] = {zonal__views_ref(), zonal__views_cpu()};
    static const uint8_t pixels[4 * 4 * 4];
    zonal__views_spec spec = spec_of(ZONAL__VIEW_PHOTOGRAPH, 4, 4, 3, 0, 1);
    zonal__view view = {.width = 1, .height = 1};
    float out[4 * 4 * 3];
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
            CHECK_FAILS(make(tables[t], &spec, pixels, &bad[i], &view, 1, out), ZONAL_ARGUMENT,
                        "view 0: its image has");
}

static void test_bad_views(void) {
    const zonal__view photograph = {.width = 8,
                                    .height = 6,
                                    .adjustments = 1,
                                    .order = {ZONAL__ADJUST_HUE},
                                    .factor = {1, 1, 1, 0.1f}};
    const zonal__view texture = {.kind = ZONAL__VIEW_TEXTURE, .affine = {1, 0, 0, 0, 1, 0}};
    zonal__view bad;
#define REFUSED(good, change, sentence)                                                            \
    (bad = good, bad.change, check_view_refused(good.kind, bad, 1, sentence))
    REFUSED(photograph, kind = 1, "kind");
    REFUSED(photograph, image = -1, "no image");
    REFUSED(photograph, left = -1, "not inside its image");
    REFUSED(photograph, left = 9, "not inside its image");
    REFUSED(photograph, top = INT32_MAX, "not inside its image");
    REFUSED(photograph, width = 0, "not inside its image");
    REFUSED(photograph, height = 13, "not inside its image");
    REFUSED(photograph, width = 13, "raise most_shrink");
    REFUSED(photograph, height = 10, "raise most_shrink");
    REFUSED(photograph, adjustments = 5, "5 adjustments");
    REFUSED(photograph, order[0] = 4, "no adjustment 4");
    REFUSED(photograph, adjustments = 3, "made twice"); /* the rest of the order is brightness */
    REFUSED(photograph, factor[3] = 0.6f, "out of range");
    REFUSED(photograph, factor[3] = NAN, "out of range");
    REFUSED(photograph, blur = 1, "blur 1");
    REFUSED(photograph, blur = NAN, "blur");
    REFUSED(texture, affine[4] = INFINITY, "affine");
    REFUSED(texture, noise = NAN, "must be finite");
    REFUSED(texture, draw = (uint64_t)1 << 56, "2^56");
    REFUSED(texture, erase_width = 9, "not inside the view");
    REFUSED(texture, erase_top = -1, "not inside the view");
#undef REFUSED
    check_view_refused(ZONAL__VIEW_PHOTOGRAPH, photograph, 65, "room was made for 64");
    check_view_refused(ZONAL__VIEW_PHOTOGRAPH, photograph, -1, "room was made for 64");
}

typedef struct creation {
    const zonal__views_table *table;
    zonal__views_spec spec;
} creation;

static zonal_status create_and_drop(void *context) {
    const creation *c = context;
    zonal__views *views;
    ZONAL_TRY(c->table->create(&c->spec, &views));
    c->table->destroy(views);
    return ZONAL_OK;
}

static void test_allocations(void) {
    const zonal__views_table *tables[] = {zonal__views_ref(), zonal__views_cpu()};
    for (int t = 0; t < 2; t++)
        for (int kind = 0; kind < 2; kind++) {
            creation c = {tables[t], spec_of(kind, 20, 10, 3, 5, 2)};
            c.spec.threads = 3;
            test_every_allocation(tables[t]->name, create_and_drop, &c);
        }
}

static void test_run_allocates_nothing(void) {
    const zonal__views_table *tables[] = {zonal__views_ref(), zonal__views_cpu()};
    album a;
    zonal__view view[VIEWS];
    static float out[VIEWS * 20 * 10 * 3];
    if (!album_make(&a)) return;
    for (int t = 0; t < 2; t++)
        for (int kind = 0; kind < 2; kind++) {
            zonal__views_spec spec = spec_of(kind, 20, 10, 3, 5, 30);
            zonal__views *views;
            draw_views(&spec, 9, view);
            spec.threads = 2;
            if (!CHECK_OK(tables[t]->create(&spec, &views))) continue;
            failing_alloc_install(0, 1);
            CHECK_OK(tables[t]->run(views, a.base, a.images, view, VIEWS, out));
            CHECK(failing_alloc_calls() == 0);
            CHECK(failing_alloc_remove() == 0);
            tables[t]->destroy(views);
        }
    zonal__free(a.base);
}

static const test_case tests[] = {{"torchvision_ref", test_torchvision_ref},
                                  {"torchvision_cpu", test_torchvision_cpu},
                                  {"constant_image", test_constant_image},
                                  {"normalise", test_normalise},
                                  {"noise", test_noise},
                                  {"erase", test_erase},
                                  {"cpu_photographs", test_cpu_photographs},
                                  {"most_shrink", test_most_shrink},
                                  {"cpu_textures", test_cpu_textures},
                                  {"threads", test_threads},
                                  {"order_of_views", test_order_of_views},
                                  {"bf16", test_bf16},
                                  {"bad_specs", test_bad_specs},
                                  {"bad_images", test_bad_images},
                                  {"bad_views", test_bad_views},
                                  {"allocations", test_allocations},
                                  {"run_allocates_nothing", test_run_allocates_nothing},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
