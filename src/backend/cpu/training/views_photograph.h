/*
 * Photographs: crop and resample, adjustments, grey, blur, solarise. Included by views.c alone.
 */
#ifndef ZONAL_BACKEND_CPU_TRAINING_VIEWS_PHOTOGRAPH_H
#define ZONAL_BACKEND_CPU_TRAINING_VIEWS_PHOTOGRAPH_H

#include <math.h>
#include <string.h>

#include "backend/cpu/training/views_scratch.h"
#include "backend/training/views.h"

/* ---- crop and resample ----------------------------------------------------------------------- */

/* At most this many taps when "from" pixels become "to". */
static int64_t most_taps(double from, double to) {
    double scale = from / to;
    return (int64_t)ceil(2 * (scale > 1 ? scale : 1)) + 1;
}

/* A triangle about the centre of each view pixel, as wide as the larger of one source pixel and one
 * view pixel to either side, cut off at the border and brought to sum "total". The weights of a
 * pixel lie together, so t->count must be known first: the widest pixel's. */
static void taps_fill(int from, int to, int flip, double total, taps *t) {
    double scale = (double)from / to, reach = scale > 1 ? scale : 1;
    t->count = 1;
    for (int o = 0; o < to; o++) {
        double centre = (o + 0.5) * scale;
        int low = (int)fmax(0, centre - reach + 0.5), high = (int)fmin(from, centre + reach + 0.5);
        if (high - low > t->count) t->count = high - low;
    }
    for (int o = 0; o < to; o++) {
        double centre = (o + 0.5) * scale, sum = 0;
        int place = flip ? to - 1 - o : o;
        int low = (int)fmax(0, centre - reach + 0.5), high = (int)fmin(from, centre + reach + 0.5);
        float *weight = t->weight + (int64_t)place * t->count;
        t->first[place] = low;
        for (int k = low; k < high; k++) sum += 1 - fabs(k + 0.5 - centre) / reach;
        for (int k = 0; k < t->count; k++) {
            double w = 1 - fabs(low + k + 0.5 - centre) / reach;
            weight[k] = low + k < high ? (float)(w * total / sum) : 0;
        }
    }
}

/* line = a * first + b * second, or added to what is there. */
ZONAL__CLONES static void add_rows(int64_t n, const uint8_t *restrict first, float a,
                                   const uint8_t *restrict second, float b, int more,
                                   float *restrict line) {
    if (more)
        for (int64_t x = 0; x < n; x++)
            line[x] += a * (float)(int)first[x] + b * (float)(int)second[x];
    else
        for (int64_t x = 0; x < n; x++)
            line[x] = a * (float)(int)first[x] + b * (float)(int)second[x];
}

/* The rows under the triangle of view row i, two at a time. */
static void add_up_rows(const uint8_t *crop, int64_t stride, const zonal__view *view, int channels,
                        const taps *down, int i, float *line) {
    const float *weight = down->weight + (int64_t)i * down->count;
    for (int k = 0; k < down->count; k += 2) {
        int last = view->height - 1, row = down->first[i] + k;
        int64_t first = row < last ? row : last, second = row + 1 < last ? row + 1 : last;
        float b = k + 1 < down->count ? weight[k + 1] : 0;
        add_rows((int64_t)view->width * channels, crop + first * stride, weight[k],
                 crop + second * stride, b, k > 0, line);
    }
}

/* Four floats at a time are a pixel and the beginning of the next, which is not looked at. */
typedef float quad __attribute__((vector_size(16)));

ZONAL__CLONES static void resample_rgb(int width, const taps *across, const float *restrict line,
                                       float *restrict pixels, float *restrict r, float *restrict g,
                                       float *restrict b) {
    int count = across->count;
    for (int x = 0; x < width; x++) {
        const float *from = line + 3 * (int64_t)across->first[x];
        const float *weight = across->weight + (int64_t)x * count;
        quad sum = {0}, pixel;
        for (int k = 0; k < count; k++) {
            memcpy(&pixel, from + 3 * k, sizeof pixel);
            sum += weight[k] * pixel;
        }
        memcpy(pixels + 4 * x, &sum, sizeof sum);
    }
    for (int x = 0; x < width; x++) {
        r[x] = pixels[4 * x];
        g[x] = pixels[4 * x + 1];
        b[x] = pixels[4 * x + 2];
    }
}

ZONAL__CLONES static void resample_grey(int width, const taps *across, const float *restrict line,
                                        float *restrict out) {
    int count = across->count;
    for (int x = 0; x < width; x++) {
        const float *from = line + across->first[x];
        const float *weight = across->weight + (int64_t)x * count;
        float sum = 0;
        for (int k = 0; k < count; k++) sum += weight[k] * from[k];
        out[x] = sum;
    }
}

/* Rows first, then along the row: each view row needs one line of the crop's width. Grey is mixed
 * after resampling, which is the same sum in another order. */
static void crop_and_resample(const zonal__views_spec *spec, scratch *s, const uint8_t *base,
                              const zonal__image_place *image, const zonal__view *view) {
    int channels = image->channels;
    int64_t stride = (int64_t)image->width * channels, width = spec->width;
    const uint8_t *crop =
        base + image->offset + view->top * stride + (int64_t)view->left * channels;
    float *grey = s->plane[0];
    taps_fill(view->width, spec->width, view->flip, 1, &s->across);
    taps_fill(view->height, spec->height, 0, 1.0 / 255, &s->down);
    /* read with weight 0, hence only to be finite */
    memset(s->line + (int64_t)view->width * channels, 0,
           (size_t)(s->across.count * channels + 4) * sizeof *s->line);
    for (int i = 0; i < spec->height; i++) {
        int64_t at = i * width;
        add_up_rows(crop, stride, view, channels, &s->down, i, s->line);
        if (channels == 1) {
            resample_grey(spec->width, &s->across, s->line, grey + at);
        } else if (spec->channels == 3) {
            resample_rgb(spec->width, &s->across, s->line, s->pixels, s->plane[0] + at,
                         s->plane[1] + at, s->plane[2] + at);
        } else {
            float *r = s->rgb, *g = r + width, *b = g + width;
            resample_rgb(spec->width, &s->across, s->line, s->pixels, r, g, b);
            mix_grey(width, r, g, b, grey + at);
        }
    }
    for (int c = 1; channels == 1 && c < spec->channels; c++)
        memcpy(s->plane[c], grey, (size_t)(width * spec->height) * sizeof *grey);
}

/* ---- adjustments ----------------------------------------------------------------------------- */

/* x = clamp(factor x + constant): brightness, and contrast once its mean is known */
ZONAL__CLONES static void scale_and_add(int64_t n, float factor, float constant, float *x) {
    for (int64_t i = 0; i < n; i++) x[i] = clamp(factor * x[i] + constant);
}

/* The sum of a row in sixteen chains: their order, and with it the bits, is the same for every
 * vector length. */
typedef float lanes __attribute__((vector_size(64)));

ZONAL__CLONES static double sum_row(int64_t n, const float *x) {
    enum { LANES = 16 };
    lanes sums = {0}, some;
    double total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        memcpy(&some, x + i, sizeof some);
        sums += some;
    }
    for (int k = 0; k < LANES; k++) total += (double)sums[k];
    for (; i < n; i++) total += (double)x[i];
    return total;
}

static double mean(int width, int height, const float *x) {
    double sum = 0;
    for (int i = 0; i < height; i++) sum += sum_row(width, x + (int64_t)i * width);
    return sum / ((double)width * height);
}

static void contrast(const zonal__views_spec *spec, scratch *s, float factor) {
    double grey = mean(spec->width, spec->height, s->plane[0]);
    if (spec->channels == 3)
        grey = 0.2989 * grey + 0.587 * mean(spec->width, spec->height, s->plane[1]) +
               0.114 * mean(spec->width, spec->height, s->plane[2]);
    for (int c = 0; c < spec->channels; c++)
        scale_and_add((int64_t)spec->width * spec->height, factor,
                      (float)((1 - (double)factor) * grey), s->plane[c]);
}

ZONAL__CLONES static void saturate(int64_t n, float factor, float *restrict r, float *restrict g,
                                   float *restrict b) {
    for (int64_t i = 0; i < n; i++) {
        float grey = (1 - factor) * (0.2989f * r[i] + 0.587f * g[i] + 0.114f * b[i]);
        r[i] = clamp(factor * r[i] + grey);
        g[i] = clamp(factor * g[i] + grey);
        b[i] = clamp(factor * b[i] + grey);
    }
}

/* What the hue h (in sixths of a turn, 0 <= h < 6) takes away from the channel that lies "ahead"
 * sixths before it, as a share of the chroma: 0 for a third of the circle, 1 for the opposite
 * third, linear between them. */
static inline float hexagon(float h, float ahead) {
    float k = h + ahead;
    k = k >= 6 ? k - 6 : k;
    k = k < 4 - k ? k : 4 - k;
    return clamp(k);
}

/* Hue without branches: the largest value less a share of the chroma for each channel. It is the
 * same function as by way of saturation and sector, with one division instead of four. */
ZONAL__CLONES static void turn_hue(int64_t n, float turns, float *restrict r, float *restrict g,
                                   float *restrict b) {
    for (int64_t i = 0; i < n; i++) {
        float x = r[i], y = g[i], z = b[i];
        float high = x > y ? x : y, low = x < y ? x : y;
        high = high > z ? high : z;
        low = low < z ? low : z;
        float chroma = high - low, rest = 1 / (chroma > 0 ? chroma : 1);
        float h =
            high == x ? (y - z) * rest : (high == y ? 2 + (z - x) * rest : 4 + (x - y) * rest);
        h += 6 * turns; /* from -4 to 8 */
        h = h < 0 ? h + 6 : h;
        h = h >= 6 ? h - 6 : h;
        r[i] = clamp(high - chroma * hexagon(h, 5));
        g[i] = clamp(high - chroma * hexagon(h, 3));
        b[i] = clamp(high - chroma * hexagon(h, 1));
    }
}

static void adjust(const zonal__views_spec *spec, scratch *s, int which, float factor) {
    int64_t n = (int64_t)spec->width * spec->height;
    switch (which) {
    case ZONAL__ADJUST_BRIGHTNESS:
        for (int c = 0; c < spec->channels; c++) scale_and_add(n, factor, 0, s->plane[c]);
        break;
    case ZONAL__ADJUST_CONTRAST:
        contrast(spec, s, factor);
        break;
    case ZONAL__ADJUST_SATURATION:
        if (spec->channels == 3) saturate(n, factor, s->plane[0], s->plane[1], s->plane[2]);
        break;
    default:
        if (spec->channels == 3) turn_hue(n, factor, s->plane[0], s->plane[1], s->plane[2]);
        break;
    }
}

/* ---- blur, solarise -------------------------------------------------------------------------- */

/* Fills blur[0 .. half] from the centre outwards and returns how far it reaches: taps that all
 * together weigh less than a float can show are left out. */
static int blur_taps(int half, double sigma, float *blur) {
    double sum = 1;
    int reach = 0;
    for (int k = 1; k <= half; k++) sum += 2 * exp(-0.5 * (k / sigma) * (k / sigma));
    for (int k = 0; k <= half; k++) {
        double w = exp(-0.5 * (k / sigma) * (k / sigma)) / sum;
        blur[k] = (float)w;
        if (w > 1e-8) reach = k;
    }
    return reach;
}

static int reflect(int k, int n) {
    return k < 0 ? -k : k >= n ? 2 * n - 2 - k : k;
}

/* out[x] = blur[0] in[x] + sum over k of blur[k] (in[x - k] + in[x + k]), in blocks that stay in
 * registers. */
ZONAL__CLONES static void blur_row(int width, int reach, const float *restrict blur,
                                   const float *restrict in, float *restrict out) {
    enum { BLOCK = 64 };
    int x = 0;
    for (; x + BLOCK <= width; x += BLOCK) {
        float sum[BLOCK];
        for (int i = 0; i < BLOCK; i++) sum[i] = blur[0] * in[x + i];
        for (int k = 1; k <= reach; k++)
            for (int i = 0; i < BLOCK; i++) sum[i] += blur[k] * (in[x + i - k] + in[x + i + k]);
        memcpy(out + x, sum, sizeof sum);
    }
    for (; x < width; x++) {
        out[x] = blur[0] * in[x];
        for (int k = 1; k <= reach; k++) out[x] += blur[k] * (in[x - k] + in[x + k]);
    }
}

ZONAL__CLONES static void scale_row(int width, float weight, const float *restrict in,
                                    float *restrict out) {
    for (int x = 0; x < width; x++) out[x] = weight * in[x];
}

/* One more pair of rows, above and below. */
ZONAL__CLONES static void add_pair(int width, float weight, const float *restrict above,
                                   const float *restrict below, float *restrict out) {
    for (int x = 0; x < width; x++) out[x] += weight * (above[x] + below[x]);
}

static void blur_plane(const zonal__views_spec *spec, scratch *s, int reach, float *plane) {
    int width = spec->width, height = spec->height;
    float *row = s->padded + reach;
    for (int i = 0; i < height; i++) {
        memcpy(row, plane + (int64_t)i * width, (size_t)width * sizeof *row);
        for (int k = 1; k <= reach; k++) {
            row[-k] = row[reflect(-k, width)];
            row[width - 1 + k] = row[reflect(width - 1 + k, width)];
        }
        blur_row(width, reach, s->blur, row, s->smooth + (int64_t)i * width);
    }
    for (int i = 0; i < height; i++) {
        float *out = plane + (int64_t)i * width;
        scale_row(width, s->blur[0], s->smooth + (int64_t)i * width, out);
        for (int k = 1; k <= reach; k++)
            add_pair(width, s->blur[k], s->smooth + (int64_t)reflect(i - k, height) * width,
                     s->smooth + (int64_t)reflect(i + k, height) * width, out);
    }
}

ZONAL__CLONES static void solarise(int64_t n, float *x) {
    for (int64_t i = 0; i < n; i++) x[i] = x[i] >= 0.5f ? 1 - x[i] : x[i];
}

static void photograph(const zonal__views_spec *spec, scratch *s, const uint8_t *base,
                       const zonal__image_place *image, const zonal__view *view) {
    int64_t n = (int64_t)spec->width * spec->height;
    int same = spec->channels == 1; /* are all planes equal to the first? */
    crop_and_resample(spec, s, base, image, view);
    for (int a = 0; a < view->adjustments; a++)
        adjust(spec, s, view->order[a], view->factor[view->order[a]]);
    if (view->grey && !same) {
        mix_grey(n, s->plane[0], s->plane[1], s->plane[2], s->plane[0]);
        same = 1;
    }
    if (view->blur > 0) {
        int reach = blur_taps(spec->blur_taps / 2, (double)view->blur, s->blur);
        for (int c = 0; c < (same ? 1 : 3); c++) blur_plane(spec, s, reach, s->plane[c]);
    }
    for (int c = 0; view->solarise && c < (same ? 1 : 3); c++) solarise(n, s->plane[c]);
    for (int c = 1; same && c < spec->channels; c++)
        memcpy(s->plane[c], s->plane[0], (size_t)n * sizeof *s->plane[0]);
}

#endif
