/*
 * Views by the definitions of backend/training/views.h: double, one thread, one loop per formula.
 * The resampling adds up every pixel under its triangle instead of precomputing taps, and the blur
 * every tap of a row and of a column: slow, and what the other devices are tested against.
 */
#include "backend/training/views.h"

#include <math.h>
#include <string.h>

#include "core/bf16.h"
#include "core/memory.h"
#include "core/random_scalar.h"

struct zonal__views {
    zonal__views_spec spec;
    double *now;   /* [height][width][channels], the view on its way */
    double *other; /* [height][width][channels], the half-done blur */
    double *tap;   /* [blur_taps] */
};

static void destroy(zonal__views *views) {
    if (!views) return;
    zonal__free(views->now);
    zonal__free(views->other);
    zonal__free(views->tap);
    zonal__free(views);
}

static zonal_status create(const zonal__views_spec *spec, zonal__views **out) {
    int64_t elements = (int64_t)spec->width * spec->height * spec->channels;
    zonal__views *views;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__views_check_spec(spec));
    ZONAL_TRY(ZONAL_NEW(&views, 1, "the views"));
    views->spec = *spec;
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&views->now, elements, "a view"));
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&views->other, elements, "a view"));
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&views->tap, spec->blur_taps, "the blur"));
    *out = views;
    return ZONAL_OK;
failed:
    destroy(views);
    return status;
}

static double clamp(double x) {
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

static double grey_of(const double *rgb) {
    return 0.2989 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
}

/* Channel c of a view with "channels", from source pixel (x, y). */
static double source_at(const uint8_t *base, const zonal__image_place *image, int channels,
                        int64_t x, int64_t y, int c) {
    const uint8_t *p = base + image->offset + (y * image->width + x) * image->channels;
    if (image->channels == 1) return p[0] / 255.0;
    if (channels == 3) return p[c] / 255.0;
    return grey_of((double[3]){p[0] / 255.0, p[1] / 255.0, p[2] / 255.0});
}

/* ---- photographs ----------------------------------------------------------------------------- */

/* The triangle of pixel o of "to" at pixel k of "from": 1 at the centre, 0 one source or one view
 * pixel away, whichever is wider. */
static double triangle(int o, int to, int k, int from) {
    double scale = (double)from / to, reach = scale > 1 ? scale : 1;
    double w = 1 - fabs(k + 0.5 - (o + 0.5) * scale) / reach;
    return w > 0 ? w : 0;
}

/* The pixels from *low to *high - 1 are all that the triangle can reach. */
static void triangle_range(int o, int to, int from, int *low, int *high) {
    double scale = (double)from / to, reach = scale > 1 ? scale : 1, centre = (o + 0.5) * scale;
    *low = (int)fmax(0, floor(centre - reach));
    *high = (int)fmin(from, ceil(centre + reach));
}

static double resample(const uint8_t *base, const zonal__image_place *image,
                       const zonal__view *view, const zonal__views_spec *spec, int i, int j,
                       int c) {
    int left, right, top, bottom;
    double sum = 0, weights = 0;
    triangle_range(j, spec->width, view->width, &left, &right);
    triangle_range(i, spec->height, view->height, &top, &bottom);
    for (int y = top; y < bottom; y++)
        for (int x = left; x < right; x++) {
            double w = triangle(j, spec->width, x, view->width) *
                       triangle(i, spec->height, y, view->height);
            if (w == 0) continue;
            sum += w * source_at(base, image, spec->channels, view->left + x, view->top + y, c);
            weights += w;
        }
    return sum / weights;
}

static void crop(zonal__views *views, const uint8_t *base, const zonal__image_place *image,
                 const zonal__view *view) {
    const zonal__views_spec *spec = &views->spec;
    for (int i = 0; i < spec->height; i++)
        for (int j = 0; j < spec->width; j++)
            for (int c = 0; c < spec->channels; c++) {
                int from = view->flip ? spec->width - 1 - j : j;
                views->now[((int64_t)i * spec->width + j) * spec->channels + c] =
                    resample(base, image, view, spec, i, from, c);
            }
}

static double blend(double x, double other, double factor) {
    return clamp(factor * x + (1 - factor) * other);
}

/* Hue by way of the hexagon: h in turns, from the largest and the smallest of the three. */
static void turn_hue(double *rgb, double turns) {
    double r = rgb[0], g = rgb[1], b = rgb[2];
    double v = fmax(r, fmax(g, b)), chroma = v - fmin(r, fmin(g, b)), h;
    if (chroma == 0) return;
    if (v == r)
        h = (g - b) / chroma;
    else if (v == g)
        h = 2 + (b - r) / chroma;
    else
        h = 4 + (r - g) / chroma;
    h = h / 6 + turns;
    h = (h - floor(h)) * 6;
    double s = chroma / v, f = h - floor(h);
    double p = clamp(v * (1 - s)), q = clamp(v * (1 - s * f)), t = clamp(v * (1 - s * (1 - f)));
    double hexagon[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
    memcpy(rgb, hexagon[(int)floor(h) % 6], sizeof hexagon[0]);
}

static double mean_grey(const double *x, int64_t pixels, int channels) {
    double sum = 0;
    for (int64_t n = 0; n < pixels; n++) sum += channels == 3 ? grey_of(x + 3 * n) : x[n];
    return sum / (double)pixels;
}

static void adjust(double *x, int64_t pixels, int channels, int which, double factor) {
    double mean = which == ZONAL__ADJUST_CONTRAST ? mean_grey(x, pixels, channels) : 0;
    for (int64_t n = 0; n < pixels; n++) {
        double *pixel = x + n * channels, grey = channels == 3 ? grey_of(pixel) : 0;
        if (which == ZONAL__ADJUST_HUE) {
            if (channels == 3) turn_hue(pixel, factor);
            continue;
        }
        if (which == ZONAL__ADJUST_SATURATION && channels == 1) continue;
        for (int c = 0; c < channels; c++)
            pixel[c] = blend(pixel[c], which == ZONAL__ADJUST_SATURATION ? grey : mean, factor);
    }
}

static void make_grey(double *x, int64_t pixels) {
    for (int64_t n = 0; n < pixels; n++)
        x[3 * n] = x[3 * n + 1] = x[3 * n + 2] = grey_of(x + 3 * n);
}

static int reflect(int k, int n) {
    return k < 0 ? -k : k >= n ? 2 * n - 2 - k : k;
}

static void blur(zonal__views *views, double sigma) {
    const zonal__views_spec *spec = &views->spec;
    int half = spec->blur_taps / 2, channels = spec->channels;
    double *now = views->now, *other = views->other, *tap = views->tap, sum = 0;
    for (int k = -half; k <= half; k++)
        sum += tap[half + k] = exp(-0.5 * (k / sigma) * (k / sigma));
    for (int k = 0; k < spec->blur_taps; k++) tap[k] /= sum;
    for (int i = 0; i < spec->height; i++)
        for (int j = 0; j < spec->width; j++)
            for (int c = 0; c < channels; c++) {
                double *out = &other[((int64_t)i * spec->width + j) * channels + c];
                *out = 0;
                for (int k = -half; k <= half; k++) {
                    int64_t from = (int64_t)i * spec->width + reflect(j + k, spec->width);
                    *out += tap[half + k] * now[from * channels + c];
                }
            }
    for (int i = 0; i < spec->height; i++)
        for (int j = 0; j < spec->width; j++)
            for (int c = 0; c < channels; c++) {
                double *out = &now[((int64_t)i * spec->width + j) * channels + c];
                *out = 0;
                for (int k = -half; k <= half; k++) {
                    int64_t from = (int64_t)reflect(i + k, spec->height) * spec->width + j;
                    *out += tap[half + k] * other[from * channels + c];
                }
            }
}

static void photograph(zonal__views *views, const uint8_t *base, const zonal__image_place *image,
                       const zonal__view *view) {
    const zonal__views_spec *spec = &views->spec;
    int64_t pixels = (int64_t)spec->width * spec->height;
    double *x = views->now;
    crop(views, base, image, view);
    for (int a = 0; a < view->adjustments; a++)
        adjust(x, pixels, spec->channels, view->order[a], (double)view->factor[view->order[a]]);
    if (view->grey && spec->channels == 3) make_grey(x, pixels);
    if (view->blur > 0) blur(views, (double)view->blur);
    for (int64_t n = 0; view->solarise && n < pixels * spec->channels; n++)
        if (x[n] >= 0.5) x[n] = 1 - x[n];
}

/* ---- textures -------------------------------------------------------------------------------- */

/* Between the centres of four source pixels; those outside count as 0. */
static double sample(const uint8_t *base, const zonal__image_place *image, int channels, double x,
                     double y, int c) {
    double left = floor(x - 0.5), top = floor(y - 0.5), sum = 0;
    for (int dy = 0; dy < 2; dy++)
        for (int dx = 0; dx < 2; dx++) {
            double column = left + dx, row = top + dy;
            if (column < 0 || column >= image->width || row < 0 || row >= image->height) continue;
            sum += (1 - fabs(x - 0.5 - column)) * (1 - fabs(y - 0.5 - row)) *
                   source_at(base, image, channels, (int64_t)column, (int64_t)row, c);
        }
    return sum;
}

static double noise(const zonal__view *view, int64_t number) {
    zonal__random random = {.seed = view->seed, .stream = ZONAL__STREAM_NOISE, .step = view->epoch};
    double pair[2];
    zonal__normal_pair(&random, view->draw, (uint32_t)(number / 2), pair);
    return pair[number % 2];
}

static int erased(const zonal__view *view, int i, int j) {
    return i >= view->erase_top && i < view->erase_top + view->erase_height &&
           j >= view->erase_left && j < view->erase_left + view->erase_width;
}

static void texture(zonal__views *views, const uint8_t *base, const zonal__image_place *image,
                    const zonal__view *view) {
    const zonal__views_spec *spec = &views->spec;
    const float *a = view->affine;
    for (int i = 0; i < spec->height; i++)
        for (int j = 0; j < spec->width; j++)
            for (int c = 0; c < spec->channels; c++) {
                int64_t number = ((int64_t)i * spec->width + j) * spec->channels + c;
                double x = (double)a[0] * (j + 0.5) + (double)a[1] * (i + 0.5) + (double)a[2];
                double y = (double)a[3] * (j + 0.5) + (double)a[4] * (i + 0.5) + (double)a[5];
                double value = sample(base, image, spec->channels, x, y, c);
                value = clamp(value + (double)view->brightness);
                value = clamp(value * (double)view->contrast);
                if (view->noise != 0)
                    value = clamp(value + (double)view->noise * noise(view, number));
                views->now[number] = erased(view, i, j) ? (double)view->erase_value : value;
            }
}

/* ---- all ------------------------------------------------------------------------------------- */

static void store(const zonal__views *views, int64_t index, void *out) {
    const zonal__views_spec *spec = &views->spec;
    int64_t elements = (int64_t)spec->width * spec->height * spec->channels;
    for (int64_t n = 0; n < elements; n++) {
        int c = (int)(n % spec->channels);
        float x = (float)((views->now[n] - (double)spec->mean[c]) / (double)spec->std[c]);
        if (spec->dtype == ZONAL_DTYPE_FP32)
            ((float *)out)[index * elements + n] = x;
        else
            ((uint16_t *)out)[index * elements + n] = zonal__bf16_from_float(x);
    }
}

static zonal_status run(zonal__views *views, const uint8_t *base, const zonal__image_place *images,
                        const zonal__view *view, int64_t count, void *out) {
    ZONAL_TRY(zonal__views_check_run(&views->spec, images, view, count));
    for (int64_t n = 0; n < count; n++) {
        const zonal__image_place *image = &images[view[n].image];
        if (views->spec.kind == ZONAL__VIEW_PHOTOGRAPH)
            photograph(views, base, image, &view[n]);
        else
            texture(views, base, image, &view[n]);
        store(views, n, out);
    }
    return ZONAL_OK;
}

static const zonal__views_table table = {
    .name = "ref", .create = create, .run = run, .destroy = destroy};

const zonal__views_table *zonal__views_ref(void) {
    return &table;
}
