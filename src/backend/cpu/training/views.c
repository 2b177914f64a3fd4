/*
 * Views on the host's threads: float, one view per turn, each thread with scratch of its own, taken
 * at create. Every element is computed by one thread in one order, so the bits do not depend on
 * their number. Against the reference: 2e-6 of the range [0, 1], and for noise up to 4e-4 of its
 * deviation where a draw is next to 0; 1/1020 is promised.
 */
#include "backend/training/views.h"

#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/training/views_photograph.h"
#include "backend/cpu/training/views_scratch.h"
#include "backend/cpu/training/views_texture.h"
#include "core/bf16.h"
#include "core/memory.h"

struct zonal__views {
    zonal__views_spec spec;
    int threads;
    scratch *scratch; /* [threads] */
    float **memory;   /* [threads], what each scratch is cut from */
};

/* ---- scratch --------------------------------------------------------------------------------- */

/* Cuts off room for "count" elements of four bytes, beginning at a cache line; with no memory it
 * only counts. */
static void *cut(float *memory, int64_t *used, int64_t count) {
    void *piece = memory ? memory + *used : NULL;
    *used += (count + 15) / 16 * 16;
    return piece;
}

static void cut_taps(float *memory, int64_t *used, int64_t longest, int side, taps *t) {
    t->first = cut(memory, used, side);
    t->weight = cut(memory, used, side * most_taps((double)longest, side));
}

/* Lays a scratch out over "memory"; returns the floats it takes. */
static int64_t lay_out(const zonal__views_spec *spec, float *memory, scratch *s) {
    int64_t width = spec->width, area = width * spec->height, used = 0;
    for (int c = 0; c < spec->channels; c++) s->plane[c] = cut(memory, &used, area);
    if (spec->kind == ZONAL__VIEW_PHOTOGRAPH) {
        int64_t across = zonal__views_longest(spec, spec->width);
        int64_t down = zonal__views_longest(spec, spec->height);
        int64_t beyond = most_taps((double)across, (double)width);
        s->smooth = cut(memory, &used, spec->blur_taps ? area : 0);
        s->blur = cut(memory, &used, spec->blur_taps);
        s->padded = cut(memory, &used, width + spec->blur_taps);
        s->line = cut(memory, &used, 3 * (across + beyond) + 4);
        s->pixels = cut(memory, &used, 4 * width);
        s->rgb = cut(memory, &used, 3 * width);
        cut_taps(memory, &used, across, spec->width, &s->across);
        cut_taps(memory, &used, down, spec->height, &s->down);
    } else {
        s->normal = cut(memory, &used, area * spec->channels + 1);
    }
    return used;
}

static void destroy(zonal__views *views) {
    if (!views) return;
    for (int t = 0; views->memory && t < views->threads; t++) zonal__free(views->memory[t]);
    zonal__free(views->memory);
    zonal__free(views->scratch);
    zonal__free(views);
}

static zonal_status create(const zonal__views_spec *spec, zonal__views **out) {
    zonal__views *views;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__views_check_spec(spec));
    ZONAL_TRY(ZONAL_NEW(&views, 1, "the views"));
    views->spec = *spec;
    views->threads = zonal__backend_threads(spec->threads);
    if (views->threads > spec->count) views->threads = spec->count > 0 ? (int)spec->count : 1;
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&views->scratch, views->threads, "the views"));
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&views->memory, views->threads, "the views"));
    for (int t = 0; t < views->threads; t++) {
        int64_t floats = lay_out(spec, NULL, &views->scratch[t]);
        ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&views->memory[t], floats, "the views' scratch"));
        lay_out(spec, views->memory[t], &views->scratch[t]);
    }
    *out = views;
    return ZONAL_OK;
failed:
    destroy(views);
    return status;
}

/* ---- output ---------------------------------------------------------------------------------- */

ZONAL__CLONES static void store_grey(int64_t n, const float *restrict x, float mean, float scale,
                                     float *restrict fp32, uint16_t *restrict bf16) {
    if (fp32)
        for (int64_t i = 0; i < n; i++) fp32[i] = (x[i] - mean) * scale;
    else
        for (int64_t i = 0; i < n; i++) bf16[i] = zonal__bf16_from_float((x[i] - mean) * scale);
}

ZONAL__CLONES static void store_rgb(int64_t n, const float *restrict r, const float *restrict g,
                                    const float *restrict b, const float *mean, const float *scale,
                                    float *restrict fp32, uint16_t *restrict bf16) {
    const float m0 = mean[0], m1 = mean[1], m2 = mean[2];
    const float s0 = scale[0], s1 = scale[1], s2 = scale[2];
    if (fp32)
        for (int64_t i = 0; i < n; i++) {
            fp32[3 * i] = (r[i] - m0) * s0;
            fp32[3 * i + 1] = (g[i] - m1) * s1;
            fp32[3 * i + 2] = (b[i] - m2) * s2;
        }
    else
        for (int64_t i = 0; i < n; i++) {
            bf16[3 * i] = zonal__bf16_from_float((r[i] - m0) * s0);
            bf16[3 * i + 1] = zonal__bf16_from_float((g[i] - m1) * s1);
            bf16[3 * i + 2] = zonal__bf16_from_float((b[i] - m2) * s2);
        }
}

static void store(const zonal__views_spec *spec, const scratch *s, int64_t index, void *out) {
    int64_t n = (int64_t)spec->width * spec->height, at = index * n * spec->channels;
    float *fp32 = spec->dtype == ZONAL_DTYPE_FP32 ? (float *)out + at : NULL;
    uint16_t *bf16 = spec->dtype == ZONAL_DTYPE_BF16 ? (uint16_t *)out + at : NULL;
    float scale[3] = {0};
    for (int c = 0; c < spec->channels; c++) scale[c] = 1 / spec->std[c];
    if (spec->channels == 1)
        store_grey(n, s->plane[0], spec->mean[0], scale[0], fp32, bf16);
    else
        store_rgb(n, s->plane[0], s->plane[1], s->plane[2], spec->mean, scale, fp32, bf16);
}

/* ---- run ------------------------------------------------------------------------------------- */

/* One run, as the threads see it. */
struct zonal__work {
    zonal__views *views;
    const uint8_t *base;
    const zonal__image_place *images;
    const zonal__view *view;
    int64_t count;
    void *out;
};

static void make_view(void *context, int64_t i, int thread) {
    const zonal__work *work = context;
    const zonal__views_spec *spec = &work->views->spec;
    const zonal__view *view = &work->view[i];
    const zonal__image_place *image = &work->images[view->image];
    scratch *s = &work->views->scratch[thread];
    if (spec->kind == ZONAL__VIEW_PHOTOGRAPH)
        photograph(spec, s, work->base, image, view);
    else
        texture(spec, s, work->base, image, view);
    store(spec, s, i, work->out);
}

static zonal_status make_all(zonal__work *work, const void *x, double *value, void *gradient,
                             double factor) {
    (void)x, (void)value, (void)gradient, (void)factor;
    zonal__cpu_parallel(work->count, make_view, work);
    return ZONAL_OK;
}

static zonal_status run(zonal__views *views, const uint8_t *base, const zonal__image_place *images,
                        const zonal__view *view, int64_t count, void *out) {
    zonal__work work = {views, base, images, view, count, out};
    ZONAL_TRY(zonal__views_check_run(&views->spec, images, view, count));
    return zonal__cpu_run(views->threads, make_all, &work, NULL, NULL, NULL, 0);
}

static const zonal__views_table table = {
    .name = "cpu", .create = create, .run = run, .destroy = destroy};

const zonal__views_table *zonal__views_cpu(void) {
    return &table;
}
