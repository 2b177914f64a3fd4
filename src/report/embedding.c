#include "report/embedding.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "eval/neighbours.h"
#include "report/pca.h"
#include "report/tsne.h"

enum { NEIGHBOURS = 20 }; /* the k of zonal eval */

/* ---- rows ------------------------------------------------------------------------------------ */

static zonal_status unit_rows(int64_t n, int64_t dim, const float *x, double **out) {
    ZONAL_TRY(ZONAL_NEW(out, n * dim, "the embeddings"));
    for (int64_t i = 0; i < n; i++) {
        double square = 0;
        for (int64_t k = 0; k < dim; k++) square += (double)x[i * dim + k] * x[i * dim + k];
        for (int64_t k = 0; k < dim && square > 0; k++)
            (*out)[i * dim + k] = x[i * dim + k] / sqrt(square);
    }
    return ZONAL_OK;
}

/* ---- singular values ------------------------------------------------------------------------- */

static zonal_status fill_values(int64_t n, int64_t dim, const double *x, double **value) {
    int64_t count = n < dim ? n : dim;
    ZONAL_TRY(ZONAL_NEW(value, count, "the singular values"));
    ZONAL_TRY(zonal__singular_values(n, dim, x, *value));
    for (int64_t i = 0; i < count; i++) (*value)[i] /= sqrt((double)n);
    return ZONAL_OK;
}

static zonal_status fill_uniform(int64_t n, int64_t dim, double **value) {
    const zonal__random random = {.stream = ZONAL__STREAM_UNIFORM};
    double *x;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&x, n * dim, "uniform points"));
    for (int64_t i = 0; i < n; i++) zonal__random_direction(&random, (uint64_t)i, dim, x + i * dim);
    status = fill_values(n, dim, x, value);
    zonal__free(x);
    return status;
}

static zonal_status fill_spectrum(int64_t n, int64_t dim, const double *x, int compared,
                                  zonal__report_spectrum *out) {
    out->count = n < dim ? n : dim;
    out->dim = dim;
    ZONAL_TRY(fill_values(n, dim, x, &out->value));
    return compared ? fill_uniform(n, dim, &out->uniform) : ZONAL_OK;
}

/* ---- maps ------------------------------------------------------------------------------------ */

static zonal_status fill_maps(zonal__report_embedding *e, int64_t dim, const double *x) {
    ZONAL_TRY(ZONAL_NEW(&e->pca, 2 * e->count, "a map"));
    ZONAL_TRY(ZONAL_NEW(&e->tsne, 2 * e->count, "a map"));
    ZONAL_TRY(zonal__pca(e->count, dim, x, 2, e->pca, e->share));
    memcpy(e->tsne, e->pca, (size_t)(2 * e->count) * sizeof *e->pca);
    return zonal__tsne(e->count, dim, x, 0, e->tsne);
}

/* Embeddings that are all the same have no map; what else is known of them stays. */
static zonal_status leave_maps_out(zonal__report_embedding *e) {
    zonal__free(e->pca);
    zonal__free(e->tsne);
    e->pca = e->tsne = NULL;
    snprintf(e->missing, sizeof e->missing, "%.300s", zonal_last_error()->message);
    return ZONAL_OK;
}

/* ---- classes --------------------------------------------------------------------------------- */

static void name_class(const zonal__source *source, int c, char out[ZONAL__REPORT_CLASS]) {
    if (source->class_names)
        snprintf(out, ZONAL__REPORT_CLASS, "%s", source->class_names[c]);
    else
        snprintf(out, ZONAL__REPORT_CLASS, "%d", c);
}

/* Only the classes of these images: no neighbour can be of another. */
static zonal_status copy_classes(zonal__report_embedding *e, const zonal__source *source) {
    ZONAL_TRY(ZONAL_NEW(&e->labels, e->count, "the classes"));
    ZONAL_TRY(ZONAL_NEW(&e->class_names, source->classes, "the names of the classes"));
    for (int c = 0; c < source->classes; c++) {
        int found = 0;
        for (int64_t i = 0; i < e->count; i++) {
            if (source->labels[i] != c) continue;
            e->labels[i] = e->classes;
            found = 1;
        }
        if (found) name_class(source, c, e->class_names[e->classes++]);
    }
    return ZONAL_OK;
}

static zonal_status classify(zonal__report_embedding *e, int64_t dim, const float *features) {
    const zonal__labelled set = {
        .count = e->count, .x = features, .label_count = e->count, .labels = e->labels};
    zonal__knn_options options = {.dim = dim, .classes = e->classes, .ks = 1, .k = &e->k};
    e->k = e->count - 1 < NEIGHBOURS ? (int)e->count - 1 : NEIGHBOURS;
    return zonal__knn_run(&options, &set, NULL, &e->scores);
}

/* ---- the whole ------------------------------------------------------------------------------- */

zonal_status zonal__report_embedding_fill(zonal__report_embedding *e, const zonal__source *source,
                                          int64_t all, int64_t feature_dim, const float *features,
                                          int64_t projection_dim, const float *projections) {
    double *unit = NULL, *projected = NULL;
    zonal_status status;
    e->count = source->count;
    e->all = all;
    ZONAL_TRY_GOTO(status, done, unit_rows(e->count, feature_dim, features, &unit));
    ZONAL_TRY_GOTO(status, done, unit_rows(e->count, projection_dim, projections, &projected));
    ZONAL_TRY_GOTO(status, done, fill_spectrum(e->count, feature_dim, unit, 0, &e->features));
    ZONAL_TRY_GOTO(status, done,
                   fill_spectrum(e->count, projection_dim, projected, 1, &e->projections));
    if (source->labels && source->classes > 1) {
        ZONAL_TRY_GOTO(status, done, copy_classes(e, source));
        if (e->classes > 1) ZONAL_TRY_GOTO(status, done, classify(e, feature_dim, features));
    }
    status = fill_maps(e, feature_dim, unit);
    if (status == ZONAL_NUMERIC) status = leave_maps_out(e);
done:
    zonal__free(unit);
    zonal__free(projected);
    return status;
}

static void spectrum_fini(zonal__report_spectrum *spectrum) {
    zonal__free(spectrum->value);
    zonal__free(spectrum->uniform);
}

void zonal__report_embedding_fini(zonal__report_embedding *e) {
    zonal__free(e->pca);
    zonal__free(e->tsne);
    spectrum_fini(&e->projections);
    spectrum_fini(&e->features);
    zonal__free(e->labels);
    zonal__free(e->class_names);
    zonal__scores_fini(&e->scores);
    *e = (zonal__report_embedding){0};
}

/* ---- thumbnails ------------------------------------------------------------------------------ */

/* In the middle of its tile. */
static void put_tile(const zonal__image *tile, int64_t index, zonal__image *sheet) {
    int left = (int)(index % ZONAL__REPORT_COLUMNS) * ZONAL__REPORT_TILE +
               (ZONAL__REPORT_TILE - tile->width) / 2;
    int top = (int)(index / ZONAL__REPORT_COLUMNS) * ZONAL__REPORT_TILE +
              (ZONAL__REPORT_TILE - tile->height) / 2;
    for (int y = 0; y < tile->height; y++)
        memcpy(sheet->pixels + ((size_t)(top + y) * (size_t)sheet->width + (size_t)left) *
                                   (size_t)sheet->channels,
               tile->pixels + (size_t)y * (size_t)tile->width * (size_t)tile->channels,
               (size_t)tile->width * (size_t)tile->channels);
}

static zonal_status fill_sheet(zonal__source *source, int channels, zonal__resampler *resampler,
                               zonal__image parts[3], zonal__image *sheet) {
    for (int64_t i = 0; i < source->count; i++) {
        zonal__image *whole = &parts[0], *same = &parts[1], *tile = &parts[2];
        int64_t index = i;
        int longest, width, height;
        ZONAL_TRY(zonal__source_read_sound(source, &index, whole));
        ZONAL_TRY(zonal__image_convert(whole, channels, same));
        longest = same->width > same->height ? same->width : same->height;
        width = same->width * ZONAL__REPORT_TILE / longest;
        height = same->height * ZONAL__REPORT_TILE / longest;
        ZONAL_TRY(zonal__image_resample(resampler, same, width > 0 ? width : 1,
                                        height > 0 ? height : 1, tile));
        put_tile(tile, i, sheet);
    }
    return ZONAL_OK;
}

zonal_status zonal__report_make_sheet(zonal__source *source, zonal__image *sheet) {
    int rows = (int)((source->count + ZONAL__REPORT_COLUMNS - 1) / ZONAL__REPORT_COLUMNS);
    int channels = source->channels == 1 ? 1 : 3;
    zonal__resampler resampler = {0};
    zonal__image parts[3] = {{0}};
    zonal_status status = zonal__image_shape(sheet, ZONAL__REPORT_COLUMNS * ZONAL__REPORT_TILE,
                                             rows * ZONAL__REPORT_TILE, channels);
    if (status == ZONAL_OK) {
        memset(sheet->pixels, 128, (size_t)sheet->width * (size_t)sheet->height * (size_t)channels);
        status = fill_sheet(source, channels, &resampler, parts, sheet);
    }
    for (int i = 0; i < 3; i++) zonal__image_fini(&parts[i]);
    zonal__resampler_fini(&resampler);
    return status;
}
