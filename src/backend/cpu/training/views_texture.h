/*
 * Textures: affine map, brightness, contrast, noise, erase. Included by views.c alone.
 */
#ifndef ZONAL_BACKEND_CPU_TRAINING_VIEWS_TEXTURE_H
#define ZONAL_BACKEND_CPU_TRAINING_VIEWS_TEXTURE_H

#include <math.h>
#include <string.h>

#include "backend/cpu/training/views_scratch.h"
#include "backend/training/views.h"
#include "core/random_scalar.h"

/* ---- affine map ------------------------------------------------------------------------------ */

/* Between which two source pixels a coordinate lies: *low and *low + 1, from -2 to side + 1. What
 * lies further out is as far out as that. */
static inline float split_coordinate(double x, int side, int *low) {
    x -= 0.5;
    x = x > -2 ? x : -2;
    x = x < side + 1 ? x : side + 1;
    *low = (int)(x + 2) - 2;
    return (float)(x - *low);
}

/* Sets *at to a pixel that exists and returns its share: 0 for one that does not. */
static inline float inside(int k, int side, float share, int *at) {
    *at = k < 0 ? 0 : k < side ? k : side - 1;
    return k >= 0 && k < side ? share : 0;
}

/* Where the four neighbours of some pixels of a row lie in the source, and how much of each is
 * taken. */
enum { BLOCK_PIXELS = 64 };
typedef struct neighbours {
    int32_t at[4][BLOCK_PIXELS]; /* number of the source pixel */
    float share[4][BLOCK_PIXELS];
} neighbours;

/* Those of pixels first ... first + BLOCK_PIXELS - 1 of view row i; what lies beyond the row is
 * computed and not used. Coordinates are double: in a large image a float would be off by a
 * visible part of a pixel. */
ZONAL__CLONES static void find_neighbours(int i, int first, const zonal__view *view,
                                          const zonal__image_place *image, neighbours *out) {
    const float *affine = view->affine;
    const int columns = image->width, rows = image->height;
    const double a = (double)affine[0], c = (double)affine[3];
    const double b = (double)affine[1] * (i + 0.5) + (double)affine[2] + a * (first + 0.5);
    const double d = (double)affine[4] * (i + 0.5) + (double)affine[5] + c * (first + 0.5);
    for (int j = 0; j < BLOCK_PIXELS; j++) {
        int column, row, left, right, top, bottom;
        float fx = split_coordinate(a * j + b, columns, &column);
        float fy = split_coordinate(c * j + d, rows, &row);
        float in_left = inside(column, columns, 1 - fx, &left);
        float in_right = inside(column + 1, columns, fx, &right);
        float in_top = inside(row, rows, (1 - fy) * (1 / 255.0f), &top);
        float in_bottom = inside(row + 1, rows, fy * (1 / 255.0f), &bottom);
        out->at[0][j] = top * columns + left;
        out->at[1][j] = top * columns + right;
        out->at[2][j] = bottom * columns + left;
        out->at[3][j] = bottom * columns + right;
        out->share[0][j] = in_top * in_left;
        out->share[1][j] = in_top * in_right;
        out->share[2][j] = in_bottom * in_left;
        out->share[3][j] = in_bottom * in_right;
    }
}

/* One channel of a source with "channels", at n pixels; "source" is its first element. */
ZONAL__CLONES static void sample(int n, const uint8_t *source, int channels, const neighbours *near,
                                 float *out) {
    for (int j = 0; j < n; j++) {
        float sum = 0;
        for (int k = 0; k < 4; k++)
            sum += near->share[k][j] * source[(int64_t)near->at[k][j] * channels];
        out[j] = sum;
    }
}

static void transform(const zonal__views_spec *spec, scratch *s, const uint8_t *base,
                      const zonal__image_place *image, const zonal__view *view) {
    const uint8_t *source = base + image->offset;
    int mix = image->channels == 3 && spec->channels == 1;
    for (int i = 0; i < spec->height; i++)
        for (int first = 0; first < spec->width; first += BLOCK_PIXELS) {
            int64_t at = (int64_t)i * spec->width + first;
            int n = spec->width - first < BLOCK_PIXELS ? spec->width - first : BLOCK_PIXELS;
            float rgb[3][BLOCK_PIXELS];
            neighbours near;
            find_neighbours(i, first, view, image, &near);
            for (int c = 0; c < image->channels; c++)
                sample(n, source + c, image->channels, &near, mix ? rgb[c] : s->plane[c] + at);
            if (mix) mix_grey(n, rgb[0], rgb[1], rgb[2], s->plane[0] + at);
        }
    for (int c = image->channels; c < spec->channels; c++)
        memcpy(s->plane[c], s->plane[0],
               (size_t)spec->width * (size_t)spec->height * sizeof(float));
}

ZONAL__CLONES static void brighten_and_scale(int64_t n, float brightness, float contrast,
                                             float *x) {
    for (int64_t i = 0; i < n; i++) x[i] = clamp(clamp(x[i] + brightness) * contrast);
}

/* ---- noise ----------------------------------------------------------------------------------- */

/* log x for 0 < x < 2: x = 2^e m with m from sqrt(1/2) to sqrt(2), and the series of
 * 2 artanh((m - 1)/(m + 1)), of which the ninth power is the last that a float can show. */
static inline float short_log(float x) {
    int32_t bits, e;
    float m;
    memcpy(&bits, &x, sizeof bits);
    e = (bits - 0x3f3504f3) >> 23; /* 0x3f3504f3 is sqrt(1/2) */
    bits -= e * (1 << 23);
    memcpy(&m, &bits, sizeof m);
    float t = (m - 1) / (m + 1), z = t * t;
    float series = 1 + z * (1 / 3.0f + z * (1 / 5.0f + z * (1 / 7.0f + z * (1 / 9.0f))));
    return (float)e * 0.69314718f + 2 * t * series;
}

/* The normal numbers 2k and 2k + 1 from the four words of block k, as core/random_scalar.h makes
 * them, but in float: 2e-6 away from those, and up to 4e-4 where both are nearer to 0 than 0.05,
 * because the float next to 1 is as far from it as that. words [4][n], out [n][2]. */
ZONAL__CLONES static void words_to_normals(int n, const uint32_t *restrict words,
                                           float *restrict out) {
    for (int k = 0; k < n; k++) {
        float u = (float)words[k] * 0x1p-32f + ((float)words[n + k] * 0x1p-64f + 0x1p-54f);
        float turn = (float)(int32_t)(words[2 * n + k] >> 8) * 0x1p-24f;
        float log_u = short_log(u < 1 ? u : 1), radius = sqrtf(-2 * (log_u < 0 ? log_u : 0));
        int quarter = (int)(4 * turn + 0.5f);
        float y = (turn - 0.25f * (float)quarter) * 6.2831853f, z = y * y;
        float sine = y * (1 - z / 6 * (1 - z / 20 * (1 - z / 42 * (1 - z / 72))));
        float cosine = 1 - z / 2 * (1 - z / 12 * (1 - z / 30 * (1 - z / 56 * (1 - z / 90))));
        float across = quarter & 1 ? -sine : cosine, up = quarter & 1 ? cosine : sine;
        radius = quarter & 2 ? -radius : radius;
        out[2 * k] = radius * across;
        out[2 * k + 1] = radius * up;
    }
}

ZONAL__CLONES static void draw_normals(const zonal__view *view, int64_t count, float *out) {
    enum { BLOCKS = 256 };
    zonal__random random = {.seed = view->seed, .stream = ZONAL__STREAM_NOISE, .step = view->epoch};
    uint32_t words[4 * BLOCKS];
    for (int64_t first = 0, blocks = (count + 1) / 2; first < blocks; first += BLOCKS) {
        int n = (int)(blocks - first < BLOCKS ? blocks - first : BLOCKS);
        for (int k = 0; k < n; k++) {
            uint32_t four[4];
            zonal__philox(&random, view->draw, (uint32_t)(first + k), four);
            for (int w = 0; w < 4; w++) words[w * n + k] = four[w];
        }
        words_to_normals(n, words, out + 2 * first);
    }
}

ZONAL__CLONES static void add_noise(int64_t n, float std, const float *restrict normal, int step,
                                    float *restrict x) {
    if (step == 1)
        for (int64_t i = 0; i < n; i++) x[i] = clamp(x[i] + std * normal[i]);
    else
        for (int64_t i = 0; i < n; i++) x[i] = clamp(x[i] + std * normal[i * step]);
}

/* ---- all ------------------------------------------------------------------------------------- */

static void erase(const zonal__views_spec *spec, const zonal__view *view, float *plane) {
    for (int i = view->erase_top; i < view->erase_top + view->erase_height; i++)
        for (int j = view->erase_left; j < view->erase_left + view->erase_width; j++)
            plane[(int64_t)i * spec->width + j] = view->erase_value;
}

static void texture(const zonal__views_spec *spec, scratch *s, const uint8_t *base,
                    const zonal__image_place *image, const zonal__view *view) {
    int64_t n = (int64_t)spec->width * spec->height;
    transform(spec, s, base, image, view);
    if (view->noise != 0) draw_normals(view, n * spec->channels, s->normal);
    for (int c = 0; c < spec->channels; c++) {
        brighten_and_scale(n, view->brightness, view->contrast, s->plane[c]);
        if (view->noise != 0) add_noise(n, view->noise, s->normal + c, spec->channels, s->plane[c]);
        erase(spec, view, s->plane[c]);
    }
}

#endif
