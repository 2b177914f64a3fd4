/*
 * Views on the GPU against the reference: every operation alone, whole pipelines, odd sizes, both
 * element types, more views than one launch takes, graphs. Skipped where there is no GPU, unless
 * ZONAL_REQUIRE_GPU is set.
 *
 * Views are compared before normalisation, in steps of 1/255. 1 is what views.h promises; here it
 * is a tenth of that. Floats cost about 0.01 (places of up to a few hundred pixels in an image
 * whose neighbours differ by up to 255), 16-bit fractions between kernels 0.002, and the
 * adjustments after them may multiply that by 8.
 */
#include <stdlib.h>

#include "backend/device.h"
#include "backend/training/views.h"
#include "core/random.h"
#include "failing_alloc.h"
#include "gpu.h"

static const double allowed_steps = 0.1;

static int no_gpu(void) {
    return gpu_is_missing(gpu_device() != NULL);
}

/* ---- random numbers -------------------------------------------------------------------------- */

static uint32_t next_draw;

/* Uniform in (low, high), a new one each time. */
static double uniform(double low, double high) {
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, 77};
    double u[2];
    zonal__random_uniform(&random, 0, next_draw++, u);
    return low + (high - low) * u[0];
}

static int whole(int low, int high) {
    return low + (int)uniform(0, high - low + 1);
}

/* ---- images ---------------------------------------------------------------------------------- */

enum { IMAGES = 8 };

typedef struct album {
    zonal__image_place images[IMAGES];
    uint8_t *pixels;
    size_t bytes;
} album;

/* Images of colours that change slowly, with edges and single pixels that do not. The first byte
 * of each lies at an odd place. */
static void album_init(album *a) {
    static const int sizes[IMAGES][3] = {{500, 375, 3}, {256, 256, 1}, {375, 500, 3}, {61, 47, 1},
                                         {300, 5, 3},   {1, 1, 3},     {2, 3, 1},     {97, 211, 3}};
    *a = (album){0};
    for (int n = 0; n < IMAGES; n++) {
        zonal__image_place *p = &a->images[n];
        *p = (zonal__image_place){.offset = (int64_t)a->bytes + 1,
                                  .width = sizes[n][0],
                                  .height = sizes[n][1],
                                  .channels = sizes[n][2]};
        a->bytes = (size_t)p->offset + (size_t)(p->width * p->height * p->channels);
    }
    a->pixels = calloc(a->bytes, 1);
    for (int n = 0; n < IMAGES; n++) {
        const zonal__image_place *p = &a->images[n];
        uint8_t *at = a->pixels + p->offset;
        double turn = uniform(0.01, 0.1), slant = uniform(0.01, 0.1);
        for (int y = 0; y < p->height; y++)
            for (int x = 0; x < p->width; x++)
                for (int c = 0; c < p->channels; c++) {
                    double value = 127 + 90 * sin(turn * x + slant * y + 2 * c);
                    value += (x / 17 + y / 23) % 2 ? 38 : -38;
                    if (whole(0, 40) == 0) value = whole(0, 255);
                    *at++ = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
                }
    }
}

/* ---- one case -------------------------------------------------------------------------------- */

typedef struct views_case {
    const char *name;
    zonal__views_spec spec;
    const album *album;
    const zonal__view *views; /* [spec.count] */
} views_case;

/* Mean and std differ by channel, so that a swapped channel shows. */
static zonal__views_spec make_spec(int kind, int width, int height, int channels, int64_t count,
                                   int blur_taps) {
    return (zonal__views_spec){.kind = kind,
                               .width = width,
                               .height = height,
                               .channels = channels,
                               .count = count,
                               .mean = {0.485f, 0.456f, 0.406f},
                               .std = {0.229f, 0.224f, 0.225f},
                               .blur_taps = blur_taps,
                               .dtype = ZONAL_DTYPE_FP32,
                               .most_shrink = 1000};
}

static int64_t elements_of(const zonal__views_spec *spec) {
    return (int64_t)spec->width * spec->height * spec->channels;
}

static size_t element_size(const zonal__views_spec *spec) {
    return spec->dtype == ZONAL_DTYPE_BF16 ? 2 : 4;
}

static float element(const zonal__views_spec *spec, const void *x, int64_t i) {
    if (spec->dtype == ZONAL_DTYPE_FP32) return ((const float *)x)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

typedef struct device_views {
    const views_case *c;
    zonal__views *views;
    void *base, *images, *params, *out; /* device */
    size_t out_bytes;                   /* with GUARD more than the views take */
} device_views;

enum { GUARD = 256 };

static zonal_status enqueue(void *context, void *stream) {
    device_views *d = context;
    gpu_views()->set_stream(d->views, stream);
    return gpu_views()->run(d->views, d->base, d->images, d->params, d->c->spec.count, d->out);
}

static void device_fini(device_views *d) {
    gpu_views()->destroy(d->views);
    zonal__device_free(gpu_device(), d->base);
    zonal__device_free(gpu_device(), d->images);
    zonal__device_free(gpu_device(), d->params);
    zonal__device_free(gpu_device(), d->out);
}

/* The output begins as all ones, which is NaN in both types. */
static int poison(const device_views *d, void *host) {
    memset(host, 0xff, d->out_bytes);
    return CHECK_OK(zonal__device_write(gpu_device(), d->out, host, d->out_bytes));
}

static int device_init(const views_case *c, device_views *d) {
    size_t params = (size_t)c->spec.count * sizeof *c->views;
    *d = (device_views){.c = c};
    d->out_bytes = (size_t)(c->spec.count * elements_of(&c->spec)) * element_size(&c->spec) + GUARD;
    return CHECK_OK(gpu_views()->create(&c->spec, &d->views)) &&
           CHECK_OK(zonal__device_alloc(gpu_device(), c->album->bytes, "images", &d->base)) &&
           CHECK_OK(
               zonal__device_alloc(gpu_device(), sizeof c->album->images, "images", &d->images)) &&
           CHECK_OK(zonal__device_alloc(gpu_device(), params, "parameters", &d->params)) &&
           CHECK_OK(zonal__device_alloc(gpu_device(), d->out_bytes, "views", &d->out)) &&
           CHECK_OK(
               zonal__device_write(gpu_device(), d->base, c->album->pixels, c->album->bytes)) &&
           CHECK_OK(zonal__device_write(gpu_device(), d->images, c->album->images,
                                        sizeof c->album->images)) &&
           CHECK_OK(zonal__device_write(gpu_device(), d->params, c->views, params));
}

/* Runs into "host", which starts and ends as poison. */
static int device_run(device_views *d, void *host) {
    return poison(d, host) && CHECK_OK(enqueue(d, NULL)) &&
           CHECK_OK(zonal__device_synchronise(gpu_device())) &&
           CHECK_OK(zonal__device_read(gpu_device(), host, d->out, d->out_bytes));
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Where views differ: how many elements, by how much, and the rectangle that holds them. */
typedef struct damage {
    int64_t elements, missing;
    double worst;
    int first_view, last_view, left, right, top, bottom, at[4]; /* at: view, y, x, channel */
    double got, want;
} damage;

static void damage_add(damage *d, int view, int y, int x, int c, double got, double want,
                       double steps) {
    int fresh = d->elements++ == 0;
    if (fresh || view < d->first_view) d->first_view = view;
    if (fresh || view > d->last_view) d->last_view = view;
    if (fresh || x < d->left) d->left = x;
    if (fresh || x > d->right) d->right = x;
    if (fresh || y < d->top) d->top = y;
    if (fresh || y > d->bottom) d->bottom = y;
    d->missing += isnan(got);
    if (!fresh && !(steps > d->worst) && !isnan(steps)) return;
    d->worst = steps;
    d->at[0] = view, d->at[1] = y, d->at[2] = x, d->at[3] = c;
    d->got = got, d->want = want;
}

/* Compares view "number" of "got" with "want"; returns the largest difference in steps. bf16 may
 * be off by half a unit in its 8th digit. */
static double compare_view(const views_case *c, int number, const void *got, const float *want,
                           damage *bad) {
    const zonal__views_spec *spec = &c->spec;
    double largest = 0;
    for (int y = 0; y < spec->height; y++)
        for (int x = 0; x < spec->width; x++)
            for (int k = 0; k < spec->channels; k++) {
                int64_t at = ((int64_t)y * spec->width + x) * spec->channels + k;
                double g = (double)element(spec, got, (int64_t)number * elements_of(spec) + at);
                double w = (double)want[at];
                double rounding = spec->dtype == ZONAL_DTYPE_BF16 ? fabs(w) * 0x1p-8 : 0;
                double off = fabs(g - w) - rounding;
                double steps = (off < 0 ? 0 : off) * (double)spec->std[k] * 255;
                if (!(steps <= allowed_steps)) damage_add(bad, number, y, x, k, g, w, steps);
                if (steps > largest) largest = steps;
            }
    return largest;
}

static void report(const views_case *c, const damage *bad, double largest) {
    const zonal__views_spec *s = &c->spec;
    printf("# %-28s %4lld of %3dx%3dx%d %s: %.4f steps\n", c->name, (long long)s->count, s->width,
           s->height, s->channels, s->dtype == ZONAL_DTYPE_BF16 ? "bf16" : "fp32", largest);
    if (bad->elements == 0) return;
    CHECK_MSG(0,
              "%s, %lld of %dx%dx%d: %lld elements are off (%lld never written), all in views %d "
              "to %d, columns %d to %d, rows %d to %d; the worst, view %d row %d column %d channel "
              "%d, is %g, want %g: %g steps, allowed %g",
              c->name, (long long)s->count, s->width, s->height, s->channels,
              (long long)bad->elements, (long long)bad->missing, bad->first_view, bad->last_view,
              bad->left, bad->right, bad->top, bad->bottom, bad->at[0], bad->at[1], bad->at[2],
              bad->at[3], bad->got, bad->want, bad->worst, allowed_steps);
}

/* Makes view "number" by the reference. */
static int reference(const views_case *c, zonal__views *ref, int64_t number, float *want) {
    return CHECK_OK(zonal__views_ref()->run(ref, c->album->pixels, c->album->images,
                                            c->views + number, 1, want));
}

static void compare_all(const views_case *c, const void *got, int64_t stride) {
    zonal__views_spec spec = c->spec;
    zonal__views *ref;
    float *want = calloc((size_t)elements_of(&spec), sizeof *want);
    damage bad = {0};
    double largest = 0;
    spec.dtype = ZONAL_DTYPE_FP32;
    spec.count = 1;
    if (CHECK_OK(zonal__views_ref()->create(&spec, &ref)))
        for (int64_t n = 0; n < c->spec.count; n += stride)
            if (reference(c, ref, n, want))
                largest = fmax(largest, compare_view(c, (int)n, got, want, &bad));
    zonal__views_ref()->destroy(ref);
    report(c, &bad, largest);
    free(want);
}

static void check_guard(const views_case *c, const device_views *d, const uint8_t *host) {
    for (size_t i = d->out_bytes - GUARD; i < d->out_bytes; i++)
        if (!CHECK_MSG(host[i] == 0xff, "%s wrote %zu bytes beyond its views", c->name,
                       i - (d->out_bytes - GUARD)))
            return;
}

/* Every stride-th view against the reference; then the same bits from a graph, replayed. */
static void run_case(const views_case *c, int64_t stride) {
    device_views d;
    double us;
    if (device_init(c, &d)) {
        uint8_t *host = calloc(d.out_bytes, 1), *again = calloc(d.out_bytes, 1);
        if (device_run(&d, host)) {
            compare_all(c, host, stride);
            check_guard(c, &d, host);
            if (poison(&d, again) &&
                CHECK_OK(zonal__device_time(gpu_device(), enqueue, &d, 1, 1, 2, &us)) &&
                CHECK_OK(zonal__device_read(gpu_device(), again, d.out, d.out_bytes)))
                CHECK_MSG(memcmp(host, again, d.out_bytes) == 0,
                          "%s is not the same when replayed from a graph", c->name);
        }
        free(host);
        free(again);
    }
    device_fini(&d);
}

/* The case in both element types. */
static void run_both(views_case c) {
    run_case(&c, 1);
    c.spec.dtype = ZONAL_DTYPE_BF16;
    run_case(&c, 1);
}

/* ---- photographs ----------------------------------------------------------------------------- */

/* The whole image and nothing else. */
static zonal__view plain_photograph(const album *a, int image) {
    return (zonal__view){.image = image,
                         .kind = ZONAL__VIEW_PHOTOGRAPH,
                         .width = a->images[image].width,
                         .height = a->images[image].height};
}

static void set_crop(zonal__view *view, int left, int top, int width, int height) {
    view->left = left;
    view->top = top;
    view->width = width;
    view->height = height;
}

static void add_adjustment(zonal__view *view, int which, double factor) {
    view->order[view->adjustments++] = which;
    view->factor[which] = (float)factor;
}

static void run_one(const album *a, const char *name, zonal__view view, int width, int height,
                    int channels, int taps) {
    run_both((views_case){name, make_spec(view.kind, width, height, channels, 1, taps), a, &view});
}

/* Crops alone: enlarged, as they are, shrunk by little and by much, at every border. */
static void test_resample(void) {
    static const int crops[][4] = {{0, 0, 500, 375},    {0, 0, 224, 224}, {276, 151, 224, 224},
                                   {100, 100, 67, 71},  {0, 0, 1, 1},     {499, 374, 1, 1},
                                   {499, 0, 1, 375},    {0, 374, 500, 1}, {3, 5, 301, 202},
                                   {250, 180, 250, 195}};
    album a;
    if (no_gpu()) return;
    album_init(&a);
    for (int i = 0; i < 10; i++) {
        zonal__view view = plain_photograph(&a, 0);
        set_crop(&view, crops[i][0], crops[i][1], crops[i][2], crops[i][3]);
        run_one(&a, "crop", view, 224, 224, 3, 0);
        view.flip = 1;
        run_one(&a, "crop, mirrored", view, 37, 61, 3, 0);
        run_one(&a, "crop, made grey first", view, 65, 9, 1, 0);
    }
    for (int n = 0; n < IMAGES; n++) {
        run_one(&a, "whole image", plain_photograph(&a, n), 64, 33, 3, 0);
        run_one(&a, "whole image", plain_photograph(&a, n), 31, 32, 1, 0);
        run_one(&a, "whole image to one pixel", plain_photograph(&a, n), 1, 1, 3, 0);
    }
    free(a.pixels);
}

/* Each adjustment alone, weak and strong, on colours and on grey. */
static void test_adjustments(void) {
    static const double factors[4][5] = {
        {0, 0.6, 1, 1.4, 3}, {0, 0.6, 1, 1.4, 3}, {0, 0.8, 1, 1.2, 3}, {-0.5, -0.1, 0, 0.1, 0.5}};
    static const char *const names[] = {"brightness", "contrast", "saturation", "hue"};
    album a;
    if (no_gpu()) return;
    album_init(&a);
    for (int which = 0; which < 4; which++)
        for (int f = 0; f < 5; f++) {
            zonal__view view = plain_photograph(&a, 7);
            add_adjustment(&view, which, factors[which][f]);
            run_one(&a, names[which], view, 90, 70, 3, 0);
            run_one(&a, names[which], view, 33, 65, 1, 0);
        }
    free(a.pixels);
}

/* All 24 orders of the four adjustments. */
static void test_orders(void) {
    album a;
    if (no_gpu()) return;
    album_init(&a);
    for (int code = 0; code < 256; code++) {
        int order[4] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6}, seen = 0;
        static const double factor[4] = {1.3, 1.4, 0.7, -0.07};
        zonal__view view = plain_photograph(&a, 2);
        for (int i = 0; i < 4; i++) seen |= 1 << order[i];
        if (seen != 15) continue;
        for (int i = 0; i < 4; i++) add_adjustment(&view, order[i], factor[order[i]]);
        run_one(&a, "four adjustments", view, 40, 50, 3, 0);
    }
    free(a.pixels);
}

static void test_blur(void) {
    static const int taps[] = {1, 3, 5, 9, 23, 63};
    static const int sides[][2] = {{224, 224}, {96, 96}, {65, 129}, {33, 40}, {32, 64}};
    static const float sigmas[] = {0.1f, 0.7f, 2, 9};
    album a;
    if (no_gpu()) return;
    album_init(&a);
    for (int t = 0; t < 6; t++)
        for (int s = 0; s < 5; s++) {
            zonal__view view = plain_photograph(&a, 0);
            view.blur = sigmas[(t + s) % 4];
            run_one(&a, "blur", view, sides[s][0], sides[s][1], s % 2 ? 1 : 3, taps[t]);
            view.solarise = 1;
            add_adjustment(&view, ZONAL__ADJUST_CONTRAST, 1.3);
            run_one(&a, "contrast, blur, solarise", view, sides[s][1], sides[s][0], 3, taps[t]);
        }
    run_one(&a, "no blur where there could be", plain_photograph(&a, 0), 40, 41, 3, 23);
    zonal__view view = plain_photograph(&a, 0);
    view.blur = 3;
    run_one(&a, "the widest blur", view, 70, 64, 3, 127);
    run_one(&a, "a blur as wide as the view", view, 5, 9, 3, 9);
    free(a.pixels);
}

static void test_grey_and_solarise(void) {
    album a;
    if (no_gpu()) return;
    album_init(&a);
    for (int n = 0; n < 4; n++) {
        zonal__view view = plain_photograph(&a, n);
        view.grey = 1;
        run_one(&a, "grey", view, 50, 34, 3, 0);
        run_one(&a, "grey of grey", view, 50, 34, 1, 0);
        view.solarise = 1;
        run_one(&a, "grey, solarise", view, 50, 34, 3, 0);
        view.grey = 0;
        run_one(&a, "solarise", view, 50, 34, 3, 0);
    }
    free(a.pixels);
}

/* A view with each operation at random; what is drawn is about what training draws. */
static zonal__view random_photograph(const album *a, int image, int blur) {
    const zonal__image_place *p = &a->images[image];
    zonal__view view = plain_photograph(a, image);
    int width = whole(1, p->width), height = whole(1, p->height), taken = 0;
    set_crop(&view, whole(0, p->width - width), whole(0, p->height - height), width, height);
    view.flip = whole(0, 1);
    for (int count = uniform(0, 1) < 0.8 ? 4 : whole(0, 3); view.adjustments < count;) {
        int which = whole(0, 3);
        if (taken >> which & 1) continue;
        taken |= 1 << which;
        add_adjustment(&view, which,
                       which == ZONAL__ADJUST_HUE ? uniform(-0.1, 0.1) : uniform(0.6, 1.4));
    }
    view.grey = uniform(0, 1) < 0.2;
    view.solarise = uniform(0, 1) < 0.2;
    view.blur = blur && uniform(0, 1) < 0.5 ? (float)uniform(0.1, 2) : 0;
    return view;
}

static void run_random_photographs(const album *a, int width, int height, int channels,
                                   int64_t count, int taps) {
    zonal__view *views = calloc((size_t)count, sizeof *views);
    for (int64_t n = 0; n < count; n++)
        views[n] = random_photograph(a, whole(0, IMAGES - 1), taps > 0);
    run_both((views_case){"random photographs",
                          make_spec(ZONAL__VIEW_PHOTOGRAPH, width, height, channels, count, taps),
                          a, views});
    free(views);
}

static void test_photographs(void) {
    album a;
    if (no_gpu()) return;
    album_init(&a);
    run_random_photographs(&a, 224, 224, 3, 16, 23);
    run_random_photographs(&a, 96, 96, 3, 40, 9);
    run_random_photographs(&a, 33, 31, 3, 100, 0);
    run_random_photographs(&a, 57, 130, 1, 30, 11);
    run_random_photographs(&a, 1, 1, 3, 50, 1);
    run_random_photographs(&a, 2, 300, 3, 20, 3);
    run_random_photographs(&a, 300, 2, 1, 20, 3);
    free(a.pixels);
}

/* ---- textures -------------------------------------------------------------------------------- */

/* The map that takes a width x height view to the whole image, turned and stretched about the
 * centre. */
static zonal__view make_texture(const album *a, int image, int width, int height, double angle,
                                double stretch) {
    const zonal__image_place *p = &a->images[image];
    double sx = stretch * p->width / width, sy = stretch * p->height / height;
    double m[4] = {cos(angle) * sx, -sin(angle) * sy, sin(angle) * sx, cos(angle) * sy};
    zonal__view view = {.image = image, .kind = ZONAL__VIEW_TEXTURE, .contrast = 1};
    view.affine[0] = (float)m[0];
    view.affine[1] = (float)m[1];
    view.affine[2] = (float)(0.5 * (p->width - m[0] * width - m[1] * height));
    view.affine[3] = (float)m[2];
    view.affine[4] = (float)m[3];
    view.affine[5] = (float)(0.5 * (p->height - m[2] * width - m[3] * height));
    return view;
}

static void test_affine(void) {
    static const double angles[] = {0, 0.3, 1.5707963267948966, 3, -2};
    album a;
    if (no_gpu()) return;
    album_init(&a);
    for (int n = 0; n < IMAGES; n++)
        for (int i = 0; i < 5; i++) {
            zonal__view view = make_texture(&a, n, 70, 40, angles[i], 0.6 + 0.2 * i);
            run_one(&a, "affine", view, 70, 40, 1, 0);
            run_one(&a, "affine", view, 33, 65, 3, 0);
        }
    zonal__view far = make_texture(&a, 1, 40, 40, 0, 1);
    far.affine[2] = 1e30f;
    far.affine[5] = -1e30f;
    run_one(&a, "far away", far, 40, 40, 1, 0);
    free(a.pixels);
}

/* Noise on sizes that put pairs of normal numbers across rows, at both ends of the counters. */
static void test_noise(void) {
    static const int sizes[][3] = {{64, 64, 1}, {33, 35, 1}, {33, 35, 3}, {1, 9, 1},
                                   {1, 9, 3},   {31, 2, 3},  {65, 97, 1}, {224, 224, 1}};
    album a;
    if (no_gpu()) return;
    album_init(&a);
    for (int i = 0; i < 8; i++) {
        zonal__view view[3];
        for (int n = 0; n < 3; n++) {
            view[n] = make_texture(&a, 1, sizes[i][0], sizes[i][1], 1, 0.8);
            view[n].noise = n == 1 ? 0.5f : 0.05f;
            view[n].seed = n == 1 ? UINT64_MAX - 3 : (uint64_t)n + 7;
            view[n].draw = n == 2 ? ((uint64_t)1 << 56) - 1 : (uint64_t)(5 + n);
            view[n].epoch = n == 2 ? UINT32_MAX : (uint32_t)(3 * n);
        }
        run_both((views_case){
            "noise", make_spec(ZONAL__VIEW_TEXTURE, sizes[i][0], sizes[i][1], sizes[i][2], 3, 0),
            &a, view});
    }
    free(a.pixels);
}

static zonal__view random_texture(const album *a, int image, int width, int height) {
    zonal__view view = make_texture(a, image, width, height, uniform(0, 6.28), uniform(0.5, 1.3));
    view.affine[1] += (float)uniform(-0.2, 0.2);
    view.affine[2] += (float)uniform(-40, 40);
    view.affine[5] += (float)uniform(-40, 40);
    view.brightness = (float)uniform(-0.3, 0.3);
    view.contrast = (float)uniform(0.6, 1.5);
    view.noise = (float)(whole(0, 3) ? uniform(0, 0.1) : 0);
    view.erase_left = whole(0, width - 1);
    view.erase_top = whole(0, height - 1);
    view.erase_width = whole(0, width - view.erase_left);
    view.erase_height = whole(0, height - view.erase_top);
    view.erase_value = (float)uniform(0, 1);
    view.seed = 99;
    view.draw = (uint64_t)whole(0, 1 << 30);
    view.epoch = (uint32_t)whole(0, 1000);
    return view;
}

static void test_textures(void) {
    static const int sizes[][3] = {
        {224, 224, 1}, {96, 96, 1}, {33, 31, 3}, {127, 64, 3}, {1, 1, 1}};
    album a;
    if (no_gpu()) return;
    album_init(&a);
    for (int i = 0; i < 5; i++) {
        zonal__view views[20];
        for (int n = 0; n < 20; n++)
            views[n] = random_texture(&a, n % IMAGES, sizes[i][0], sizes[i][1]);
        run_both((views_case){
            "random textures",
            make_spec(ZONAL__VIEW_TEXTURE, sizes[i][0], sizes[i][1], sizes[i][2], 20, 0), &a,
            views});
    }
    free(a.pixels);
}

/* ---- many views ------------------------------------------------------------------------------ */

/* More views than one launch takes (256 MiB of them): a prime number of different views in turn, of
 * which every 61st is compared with the reference, and all of them with each other. */
static void test_launches(void) {
    enum { KINDS = 53, SIDE = 256, COUNT = 2300 };
    zonal__views_spec spec = make_spec(ZONAL__VIEW_PHOTOGRAPH, SIDE, SIDE, 1, COUNT, 5);
    zonal__view *views;
    album a;
    if (no_gpu()) return;
    views = calloc(COUNT, sizeof *views);
    album_init(&a);
    for (int n = 0; n < COUNT; n++)
        views[n] = n < KINDS ? random_photograph(&a, n % IMAGES, 1) : views[n - KINDS];
    spec.dtype = ZONAL_DTYPE_BF16;
    views_case c = {"several launches", spec, &a, views};
    device_views d;
    if (device_init(&c, &d)) {
        uint8_t *host = calloc(d.out_bytes, 1);
        size_t bytes = (size_t)SIDE * SIDE * 2;
        if (device_run(&d, host)) {
            compare_all(&c, host, 61);
            check_guard(&c, &d, host);
            for (size_t n = KINDS; n < COUNT; n++)
                if (!CHECK_MSG(memcmp(host + n * bytes, host + (n - KINDS) * bytes, bytes) == 0,
                               "view %zu differs from view %zu, which is the same", n, n - KINDS))
                    break;
        }
        free(host);
    }
    device_fini(&d);
    free(views);
    free(a.pixels);
}

/* The least that runs every kernel, for compute-sanitizer. */
static void test_tiny(void) {
    album a;
    if (no_gpu()) return;
    album_init(&a);
    for (int channels = 1; channels <= 3; channels += 2) {
        run_random_photographs(&a, 35, 37, channels, 6, 5);
        zonal__view views[3];
        for (int n = 0; n < 3; n++) views[n] = random_texture(&a, n, 35, 37);
        run_both((views_case){"random textures",
                              make_spec(ZONAL__VIEW_TEXTURE, 35, 37, channels, 3, 0), &a, views});
    }
    free(a.pixels);
}

/* The shapes the targets are about, from graphs. The times are for the reader: the few images
 * come from the cache, where a training set's would not. */
static void test_targets(void) {
    enum { COUNT = 512 };
    zonal__view *views;
    album a;
    double us = 0;
    if (no_gpu()) return;
    views = calloc(COUNT, sizeof *views);
    album_init(&a);
    for (int kind = 0; kind < 2; kind++) {
        int channels = kind == ZONAL__VIEW_TEXTURE ? 1 : 3;
        views_case c = {"512 views", make_spec(kind, 224, 224, channels, COUNT, 23), &a, views};
        device_views d;
        c.spec.dtype = ZONAL_DTYPE_BF16;
        for (int n = 0; n < COUNT; n++) {
            views[n] = kind == ZONAL__VIEW_TEXTURE ? random_texture(&a, 1, 224, 224)
                                                   : random_photograph(&a, n % 2 * 2, 1);
            if (kind == ZONAL__VIEW_PHOTOGRAPH) views[n].blur = (float)uniform(0.1, 2);
            if (kind == ZONAL__VIEW_TEXTURE) views[n].noise = 0.05f;
        }
        if (device_init(&c, &d) &&
            CHECK_OK(zonal__device_time(gpu_device(), enqueue, &d, 1, 5, 21, &us)))
            printf("# 512 %s at 224 px: %.0f us\n",
                   kind == ZONAL__VIEW_TEXTURE ? "textures with noise" : "photographs, all blurred",
                   us);
        device_fini(&d);
    }
    free(views);
    free(a.pixels);
}

/* ---- the contract ---------------------------------------------------------------------------- */

static zonal_status make_and_drop(void *context) {
    zonal__views *views;
    ZONAL_TRY(gpu_views()->create(context, &views));
    gpu_views()->destroy(views);
    return ZONAL_OK;
}

static void test_contract(void) {
    zonal__views_spec spec = make_spec(ZONAL__VIEW_PHOTOGRAPH, 200, 200, 3, 4, 129);
    zonal__views *views;
    if (no_gpu()) return;
    const zonal__views_table *cuda = gpu_views();
    CHECK_FAILS(cuda->create(&spec, &views), ZONAL_UNSUPPORTED, "at most 127 taps");
    CHECK(views == NULL);
    spec.blur_taps = 9;
    spec.channels = 2;
    CHECK_FAILS(cuda->create(&spec, &views), ZONAL_ARGUMENT, "channels");
    spec.channels = 3;
    if (CHECK_OK(cuda->create(&spec, &views))) {
        CHECK_FAILS(cuda->run(views, NULL, NULL, NULL, 5, NULL), ZONAL_ARGUMENT, "created for 4");
        CHECK_FAILS(cuda->run(views, NULL, NULL, NULL, -1, NULL), ZONAL_ARGUMENT, "-1");
        CHECK_OK(cuda->run(views, NULL, NULL, NULL, 0, NULL));
    }
    cuda->destroy(views);
    cuda->destroy(NULL);
    test_every_allocation("views on CUDA", make_and_drop, &spec);
}

/* Without a GPU there is no table, but a reason. */
static void test_presence(void) {
    const zonal__views_table *cuda = gpu_views();
    if (gpu_device() != NULL) {
        CHECK(cuda != NULL && strcmp(cuda->name, "cuda") == 0);
    } else {
        CHECK(cuda == NULL);
        CHECK(strstr(zonal_last_error()->message, "device cpu") != NULL);
    }
}

static const test_case tests[] = {{"tiny", test_tiny},
                                  {"resample", test_resample},
                                  {"adjustments", test_adjustments},
                                  {"orders", test_orders},
                                  {"grey_and_solarise", test_grey_and_solarise},
                                  {"blur", test_blur},
                                  {"photographs", test_photographs},
                                  {"affine", test_affine},
                                  {"noise", test_noise},
                                  {"textures", test_textures},
                                  {"launches", test_launches},
                                  {"targets", test_targets},
                                  {"contract", test_contract},
                                  {"presence", test_presence},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
