#include "cli/report/figure_textures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/training/tables.h"
#include "core/memory.h"
#include "data/augmentation.h"
#include "data/codec.h"
#include "data/sheet.h"
#include "data/texture.h"

enum { SAMPLES = 3, VIEWS = 4, SIDE = 224, MARGIN = 8, WHITE = 255 };

/* One colour for each view, dark enough on white and light enough on black. */
static const uint8_t colours[VIEWS][3] = {
    {0, 114, 178}, {213, 94, 0}, {0, 158, 115}, {204, 121, 167}};

static zonal_status write_in(const char *folder, const char *name, const zonal__image *image) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--out is too long a name; choose a shorter one");
    return zonal__image_write_png(path, image);
}

static zonal_status make_texture(zonal__texture_family family, uint64_t seed, int64_t number,
                                 zonal__image *image) {
    zonal__texture_spec spec;
    zonal__texture_maker *maker;
    zonal_status status;
    zonal__texture_defaults(family, &spec);
    spec.seed = seed;
    ZONAL_TRY(zonal__texture_maker_create(&spec, &maker));
    status = zonal__texture_make(maker, number, image);
    zonal__texture_maker_destroy(maker);
    return status;
}

static zonal_status draw_samples(const char *folder, uint64_t seed) {
    const zonal__sheet_options options = {.columns = SAMPLES, .margin = MARGIN, .ground = WHITE};
    zonal__image sample[ZONAL__TEXTURE_FAMILIES * SAMPLES] = {0}, sheet = {0};
    int count = ZONAL__TEXTURE_FAMILIES * SAMPLES;
    zonal_status status = ZONAL_OK;
    for (int i = 0; i < count && status == ZONAL_OK; i++)
        status = make_texture((zonal__texture_family)(i / SAMPLES), seed, i % SAMPLES, &sample[i]);
    if (status == ZONAL_OK) status = zonal__sheet_make(sample, count, &options, &sheet);
    if (status == ZONAL_OK) status = write_in(folder, "textures.png", &sheet);
    for (int i = 0; i < count; i++) zonal__image_fini(&sample[i]);
    zonal__image_fini(&sheet);
    return status;
}

/* ---- regions and views ----------------------------------------------------------------------- */

/* A line from a to b, three pixels wide with soft edges; what lies outside is left out. */
static void draw_line(zonal__image *image, const double a[2], const double b[2],
                      const uint8_t colour[3]) {
    double dx = b[0] - a[0], dy = b[1] - a[1], square = dx * dx + dy * dy;
    for (int y = 0; y < image->height; y++)
        for (int x = 0; x < image->width; x++) {
            double px = x + 0.5 - a[0], py = y + 0.5 - a[1];
            double along = fmin(1, fmax(0, (px * dx + py * dy) / square));
            double cover = 2 - hypot(px - along * dx, py - along * dy);
            uint8_t *at = image->pixels + ((size_t)y * (size_t)image->width + (size_t)x) * 3;
            if (!(cover > 0)) continue;
            cover = fmin(1, cover);
            for (int c = 0; c < 3; c++)
                at[c] = (uint8_t)lround((1 - cover) * at[c] + cover * colour[c]);
        }
}

/* The texture in the middle of a white square with room around it, and the regions drawn in. */
static zonal_status draw_regions(const zonal__image *texture, const zonal__view *view,
                                 zonal__image *out) {
    int side = texture->width, shift = 3 * side / 4, wide = side + 2 * shift;
    ZONAL_TRY(zonal__image_shape(out, wide, wide, 3));
    memset(out->pixels, WHITE, (size_t)wide * (size_t)wide * 3);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            memset(out->pixels + ((size_t)(y + shift) * (size_t)wide + (size_t)(x + shift)) * 3,
                   texture->pixels[y * side + x], 3);
    for (int v = 0; v < VIEWS; v++) {
        double corner[4][2];
        zonal__view_region(&view[v], SIDE, SIDE, corner);
        for (int k = 0; k < 4; k++) {
            double a[2] = {corner[k][0] + shift, corner[k][1] + shift};
            double b[2] = {corner[(k + 1) % 4][0] + shift, corner[(k + 1) % 4][1] + shift};
            draw_line(out, a, b, colours[v]);
        }
    }
    return ZONAL_OK;
}

/* A view as an image, in a frame of its region's colour. */
static zonal_status frame_view(const float *view, const uint8_t colour[3], zonal__image *out) {
    enum { FRAME = 6, WIDE = SIDE + 2 * FRAME };
    ZONAL_TRY(zonal__image_shape(out, WIDE, WIDE, 3));
    for (int y = 0; y < WIDE; y++)
        for (int x = 0; x < WIDE; x++) {
            uint8_t *at = out->pixels + (y * WIDE + x) * 3;
            int inside = x >= FRAME && y >= FRAME && x < WIDE - FRAME && y < WIDE - FRAME;
            if (inside)
                memset(at, (int)lroundf(255 * view[(y - FRAME) * SIDE + x - FRAME]), 3);
            else
                memcpy(at, colour, 3);
        }
    return ZONAL_OK;
}

static zonal_status make_views(const zonal__image *texture, const zonal__view *view, float *out) {
    const zonal__views_spec spec = {.kind = ZONAL__VIEW_TEXTURE,
                                    .width = SIDE,
                                    .height = SIDE,
                                    .channels = 1,
                                    .count = VIEWS,
                                    .std = {1, 1, 1},
                                    .dtype = ZONAL_DTYPE_FP32};
    const zonal__image_place image = {
        .width = texture->width, .height = texture->height, .channels = 1};
    zonal__views *engine;
    zonal_status status;
    ZONAL_TRY(zonal__training_host()->views->create(&spec, &engine));
    status = zonal__training_host()->views->run(engine, texture->pixels, &image, view, VIEWS, out);
    zonal__training_host()->views->destroy(engine);
    return status;
}

/* regions | views, side by side. */
static zonal_status compose(const zonal__image *texture, const zonal__view *view,
                            const float *pixels, zonal__image part[VIEWS], zonal__image whole[2],
                            zonal__image *out) {
    const zonal__sheet_options square = {.columns = 2, .margin = MARGIN, .ground = WHITE};
    ZONAL_TRY(draw_regions(texture, view, &whole[0]));
    for (int v = 0; v < VIEWS; v++)
        ZONAL_TRY(frame_view(pixels + (size_t)v * SIDE * SIDE, colours[v], &part[v]));
    ZONAL_TRY(zonal__sheet_make(part, VIEWS, &square, &whole[1]));
    return zonal__sheet_make(whole, 2, &square, out);
}

static zonal_status draw_views(const char *folder, uint64_t seed) {
    zonal__image texture = {0}, part[VIEWS] = {0}, whole[2] = {0}, figure = {0};
    zonal__augmentation augmentation;
    zonal__view view[VIEWS];
    float *pixels = NULL;
    zonal_status status;
    zonal__augmentation_texture(&augmentation);
    ZONAL_TRY_GOTO(status, done, make_texture(ZONAL__TEXTURE_DISK, seed, 0, &texture));
    for (int v = 0; v < VIEWS; v++)
        zonal__view_draw(&augmentation, seed, 0, 0, v, texture.width, texture.height, SIDE, SIDE,
                         &view[v]);
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&pixels, VIEWS * SIDE * SIDE, "the views"));
    ZONAL_TRY_GOTO(status, done, make_views(&texture, view, pixels));
    ZONAL_TRY_GOTO(status, done, compose(&texture, view, pixels, part, whole, &figure));
    status = write_in(folder, "views.png", &figure);
done:
    for (int v = 0; v < VIEWS; v++) zonal__image_fini(&part[v]);
    for (int i = 0; i < 2; i++) zonal__image_fini(&whole[i]);
    zonal__image_fini(&texture);
    zonal__image_fini(&figure);
    zonal__free(pixels);
    return status;
}

zonal_status zonal__figure_textures(const char *folder, uint64_t seed) {
    ZONAL_TRY(draw_samples(folder, seed));
    return draw_views(folder, seed);
}
