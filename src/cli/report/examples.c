/*
 * The examples of a report, made from the runs themselves: views by the augmentations of the
 * training, and what the trained network finds nearest among views of test images.
 */
#include "cli/report/examples.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/progress.h"
#include "cli/eval/subject.h"
#include "core/memory.h"
#include "eval/retrieval.h"
#include "train/training.h"
#include "zonal/uniformity.h"

enum {
    THUMB = 72, /* longest side of an image in the page */
    SHOWN = 3,  /* images whose views are shown */
    MOST_VIEWS = 6,
    GROUP = 100, /* test images among which is searched: the paper's protocol */
    QUERIES = 4,
    HITS = 5
};

/* ---- thumbnails ------------------------------------------------------------------------------ */

static zonal_status shrink(const zonal__image *in, zonal__image *out) {
    int longest = in->width > in->height ? in->width : in->height;
    int side = longest > THUMB ? THUMB : longest;
    int width = (in->width * side + longest / 2) / longest;
    int height = (in->height * side + longest / 2) / longest;
    zonal__resampler resampler = {0};
    zonal_status status =
        zonal__image_resample(&resampler, in, width > 0 ? width : 1, height > 0 ? height : 1, out);
    zonal__resampler_fini(&resampler);
    return status;
}

/* A view, floats on [0, 1], as a thumbnail. */
static zonal_status shrink_view(const float *view, const zonal__view_group *group, int channels,
                                zonal__image *out) {
    zonal__image whole = {0};
    zonal_status status = zonal__image_shape(&whole, group->width, group->height, channels);
    size_t count = (size_t)group->width * (size_t)group->height * (size_t)channels;
    for (size_t i = 0; i < count && status == ZONAL_OK; i++)
        whole.pixels[i] = (uint8_t)lroundf(255 * fminf(fmaxf(view[i], 0), 1));
    if (status == ZONAL_OK) status = shrink(&whole, out);
    zonal__image_fini(&whole);
    return status;
}

static const float *view_at(const zonal__batch *batch, const zonal__loader_options *options, int g,
                            int view, int64_t sample) {
    const zonal__view_group *group = &options->group[g];
    size_t size = (size_t)group->width * (size_t)group->height * (size_t)options->channels;
    return (const float *)batch->views[g] + size * (size_t)(view * batch->count + sample);
}

/* Views as people look at them: neither shifted nor scaled, in floats. */
static void make_visible(zonal__loader_options *options) {
    memset(options->mean, 0, sizeof options->mean);
    for (int c = 0; c < 3; c++) options->std[c] = 1;
    options->dtype = ZONAL_DTYPE_FP32;
    options->raw = 0;
    options->workers = 1;
    options->ahead = 1;
}

/* ---- views ----------------------------------------------------------------------------------- */

static zonal_status fill_views(const zonal__loader_options *options, const zonal__batch *batch,
                               zonal__gallery *gallery) {
    int all = options->group[0].views + (options->groups > 1 ? options->group[1].views : 0);
    int shown = all < MOST_VIEWS ? all : MOST_VIEWS;
    zonal__image image = {0};
    zonal_status status = zonal__gallery_shape(gallery, (int)batch->count, shown + 1);
    for (int row = 0; row < batch->count && status == ZONAL_OK; row++) {
        zonal__gallery_cell *to = &gallery->cells[row * (shown + 1)];
        int64_t number = batch->samples[row];
        snprintf(to->caption, sizeof to->caption, "image %lld", (long long)number);
        status = zonal__source_read_sound(options->source, &number, &image);
        if (status == ZONAL_OK) status = shrink(&image, &to->image);
        for (int v = 0; v < shown && status == ZONAL_OK; v++) {
            int g = v >= options->group[0].views, within = v - g * options->group[0].views;
            snprintf(to[v + 1].caption, sizeof to[v + 1].caption, "%s view",
                     g ? "local" : "global");
            status = shrink_view(view_at(batch, options, g, within, row), &options->group[g],
                                 options->channels, &to[v + 1].image);
        }
    }
    zonal__image_fini(&image);
    return status;
}

static zonal_status make_views(const zonal__report_run *run, zonal__gallery *gallery) {
    char path[ZONAL__TRAINING_PATH];
    zonal__training training = {0};
    zonal__loader_options options;
    zonal__loader *loader = NULL;
    const zonal__batch *batch;
    zonal_status status;
    if (snprintf(path, sizeof path, "%s/config.toml", run->folder) >= (int)sizeof path)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the name of the run folder is too long");
    ZONAL_TRY_GOTO(status, done, zonal__training_read(path, &training));
    /* The views alone: the run's device may be missing here. */
    ZONAL_TRY_GOTO(status, done, zonal__training_open_views(&training));
    options = training.trainer.loader;
    options.batch = training.source->count < SHOWN ? training.source->count : SHOWN;
    options.channels = (int)training.settings.source.channels;
    options.seed = (uint64_t)training.settings.seed;
    options.first_step = 0;
    make_visible(&options);
    ZONAL_TRY_GOTO(status, done, zonal__loader_create(&options, &loader));
    ZONAL_TRY_GOTO(status, done, zonal__loader_next(loader, &batch));
    status = fill_views(&options, batch, gallery);
done:
    zonal__loader_destroy(loader);
    zonal__training_close(&training);
    return status;
}

/* Whether two runs have the same images and augmentations, by the settings that decide it. */
static int same_views(const zonal__report *report, int a, int b) {
    static const char *const beginnings[] = {"data",    "split",        "view",  "local",
                                             "side",    "augmentation", "class", "channels",
                                             "texture", "seed"};
    for (int64_t k = 0; k < report->keys_count; k++)
        for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++) {
            const char *key = report->keys[k], *x, *y;
            if (strncmp(key, beginnings[i], strlen(beginnings[i])) != 0) continue;
            x = zonal__report_setting_of(&report->runs[a], key);
            y = zonal__report_setting_of(&report->runs[b], key);
            if (!x != !y || (x && strcmp(x, y) != 0)) return 0;
        }
    return 1;
}

/* ---- retrieval ------------------------------------------------------------------------------- */

typedef struct search {
    zonal__subject subject;
    int is_open;
    zonal__source *source;
    zonal__features_options features;
    int64_t group;        /* images that are searched */
    float *projections;   /* [2][group][dim] */
    zonal__image *thumbs; /* [group][2] */
} search;

/* At most "most" of the test images, evenly spread; *all is how many there are. */
static zonal_status open_images(const search *s, int64_t most, zonal__source **source,
                                int64_t *all) {
    int64_t *keep, count;
    zonal_status status;
    ZONAL_TRY(zonal__subject_source(&s->subject, ZONAL__SPLIT_TEST, source));
    *all = (*source)->count;
    if (*all < HITS)
        return ZONAL_FAIL(ZONAL_SHAPE, "there are only %lld test images", (long long)*all);
    count = *all < most ? *all : most;
    ZONAL_TRY(ZONAL_NEW(&keep, count, "the test images"));
    for (int64_t i = 0; i < count; i++) keep[i] = i * *all / count;
    status = zonal__source_select(*source, count, keep);
    zonal__free(keep);
    return status;
}

/* The same views that the network has seen: they depend on the seed and the image alone. */
static zonal_status draw_thumbs(search *s) {
    const zonal__features_options *f = &s->features;
    zonal__loader_options options = {.source = s->source,
                                     .batch = s->group < 10 ? s->group : 10,
                                     .groups = 1,
                                     .group = {{.views = 2,
                                                .width = f->width,
                                                .height = f->height,
                                                .augmentations = f->augmentations}},
                                     .channels = s->subject.model->spec.channels,
                                     .max_side = f->max_side,
                                     .seed = f->seed,
                                     .in_order = 1};
    zonal__loader *loader;
    zonal_status status = ZONAL_OK;
    make_visible(&options);
    ZONAL_TRY(ZONAL_NEW(&s->thumbs, 2 * s->group, "the thumbnails"));
    ZONAL_TRY(zonal__loader_create(&options, &loader));
    for (int64_t done = 0; done < s->group && status == ZONAL_OK;) {
        const zonal__batch *batch;
        status = zonal__loader_next(loader, &batch);
        for (int64_t i = 0; status == ZONAL_OK && i < 2 * batch->count; i++)
            if (done + i / 2 < s->group)
                status = shrink_view(view_at(batch, &options, 0, (int)(i % 2), i / 2),
                                     &options.group[0], options.channels, &s->thumbs[2 * done + i]);
        if (status == ZONAL_OK) done += batch->count;
    }
    zonal__loader_destroy(loader);
    return status;
}

static zonal_status embed(search *s) {
    int64_t dim = s->subject.model->graph.projection_dim, all;
    ZONAL_TRY(open_images(s, GROUP, &s->source, &all));
    s->group = s->source->count;
    s->features = zonal__subject_random(&s->subject, s->source, 2, 0);
    ZONAL_TRY(ZONAL_NEW(&s->projections, 2 * s->group * dim, "the projections"));
    return zonal__features_extract(s->subject.model, &s->features, NULL, s->projections);
}

static zonal_status take_thumb(search *s, int64_t sample, int64_t view, zonal__gallery_cell *to) {
    return zonal__image_convert(&s->thumbs[2 * sample + view], s->subject.model->spec.channels,
                                &to->image);
}

static zonal_status search_all(search *s, zonal__gallery *gallery) {
    const zonal__retrieval_options options = {.views = 2,
                                              .samples = s->group,
                                              .dim = s->subject.model->graph.projection_dim,
                                              .batch = s->group};
    ZONAL_TRY(zonal__gallery_shape(gallery, QUERIES, HITS + 1));
    for (int q = 0; q < QUERIES; q++) {
        zonal__gallery_cell *row = &gallery->cells[q * (HITS + 1)];
        zonal__retrieval_hit hits[HITS];
        int64_t sample = q * s->group / QUERIES;
        ZONAL_TRY(zonal__retrieval_top(&options, s->projections, 0, sample, HITS, hits));
        snprintf(row->caption, sizeof row->caption, "query");
        ZONAL_TRY(take_thumb(s, sample, 0, row));
        for (int h = 0; h < HITS; h++) {
            zonal__gallery_cell *to = &row[h + 1];
            to->right = hits[h].sample == sample;
            snprintf(to->caption, sizeof to->caption, "%.3f", hits[h].cosine);
            ZONAL_TRY(take_thumb(s, hits[h].sample, hits[h].view, to));
        }
    }
    return ZONAL_OK;
}

static zonal_status search_images(search *s, zonal__gallery *gallery) {
    ZONAL_TRY(embed(s));
    ZONAL_TRY(draw_thumbs(s));
    return search_all(s, gallery);
}

/* ---- embeddings ------------------------------------------------------------------------------ */

static zonal_status find_degrees(int64_t count, int64_t dim, const float *projections,
                                 zonal__report_run *run) {
    const zonal_uniformity_options options = {.size = sizeof options,
                                              .precision = ZONAL_PRECISION_FP32};
    zonal_uniformity_report found = ZONAL_UNIFORMITY_REPORT_INIT;
    if (run->degrees > 0) return ZONAL_OK;
    ZONAL_TRY(zonal_uniformity_run(&options, count, dim, projections, &found));
    run->degrees = found.degrees;
    for (int l = 0; l < found.degrees; l++)
        run->excess[l] = found.degree[l].excess / found.degree[l].sd;
    return ZONAL_OK;
}

/* Runs on the same images share their thumbnails. */
static zonal_status take_sheet(zonal__report *report, zonal__source *source, int *number) {
    zonal__image *sheet = &report->sheets[report->sheet_count];
    ZONAL_TRY(zonal__report_make_sheet(source, sheet));
    for (int i = 0; i < report->sheet_count; i++) {
        const zonal__image *other = &report->sheets[i];
        size_t bytes = (size_t)sheet->width * (size_t)sheet->height * (size_t)sheet->channels;
        if (other->height != sheet->height || other->channels != sheet->channels ||
            memcmp(other->pixels, sheet->pixels, bytes) != 0)
            continue;
        zonal__image_fini(sheet);
        *number = i + 1;
        return ZONAL_OK;
    }
    *number = ++report->sheet_count;
    return ZONAL_OK;
}

/* memory: room for the features and the projections of the images, one view of each. */
static zonal_status look_at(const search *s, zonal__report *report, int run, zonal__source *source,
                            int64_t all, float *memory) {
    const zonal__graph *graph = &s->subject.model->graph;
    const zonal__features_options options = zonal__subject_still(&s->subject, source);
    float *projections = memory + source->count * graph->feature_dim;
    zonal__report_embedding *embedding = &report->embeddings[run];
    ZONAL_TRY(zonal__features_extract(s->subject.model, &options, memory, projections));
    ZONAL_TRY(find_degrees(source->count, graph->projection_dim, projections, &report->runs[run]));
    ZONAL_TRY(zonal__report_embedding_fill(embedding, source, all, graph->feature_dim, memory,
                                           graph->projection_dim, projections));
    return take_sheet(report, source, &embedding->sheet);
}

static zonal_status embed_images(const search *s, zonal__report *report, int run, int64_t most) {
    const zonal__graph *graph = &s->subject.model->graph;
    zonal__source *source = NULL;
    float *memory = NULL;
    int64_t all;
    zonal_status status;
    ZONAL_TRY_GOTO(status, done, open_images(s, most, &source, &all));
    ZONAL_TRY_GOTO(status, done,
                   ZONAL_NEW(&memory, source->count * (graph->feature_dim + graph->projection_dim),
                             "the embeddings"));
    status = look_at(s, report, run, source, all, memory);
done:
    zonal__free(memory);
    zonal__source_close(source);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Only want of memory ends the report; what else goes wrong is said in the page. */
static zonal_status settle(zonal_status status, zonal__gallery *gallery) {
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__gallery_fini(gallery);
    snprintf(gallery->missing, sizeof gallery->missing, "%.300s", zonal_last_error()->message);
    return status == ZONAL_MEMORY ? status : ZONAL_OK;
}

static zonal_status settle_embedding(zonal_status status, zonal__report_embedding *embedding) {
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__report_embedding_fini(embedding);
    snprintf(embedding->missing, sizeof embedding->missing, "%.300s", zonal_last_error()->message);
    return status == ZONAL_MEMORY ? status : ZONAL_OK;
}

static zonal_status ask_network(search *s, zonal__report *report, int run, int64_t most) {
    const zonal__subject_settings settings = {.checkpoint = "last", .device = "auto"};
    zonal_status status = zonal__subject_open(report->runs[run].folder, &settings, &s->subject);
    s->is_open = status == ZONAL_OK;
    if (status == ZONAL_OK)
        status = settle(search_images(s, &report->retrieved[run]), &report->retrieved[run]);
    else
        status = settle(status, &report->retrieved[run]);
    if (status != ZONAL_OK) return status;
    if (!s->is_open) {
        memcpy(report->embeddings[run].missing, report->retrieved[run].missing,
               sizeof report->embeddings[run].missing);
        return ZONAL_OK;
    }
    return settle_embedding(embed_images(s, report, run, most), &report->embeddings[run]);
}

static zonal_status make_network_parts(zonal__report *report, int run, int64_t most) {
    search *s; /* too large for the stack */
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&s, 1, "the search"));
    status = ask_network(s, report, run, most);
    for (int64_t i = 0; s->thumbs && i < 2 * s->group; i++) zonal__image_fini(&s->thumbs[i]);
    zonal__free(s->thumbs);
    zonal__free(s->projections);
    zonal__source_close(s->source);
    if (s->is_open) zonal__subject_close(&s->subject);
    zonal__free(s);
    return status;
}

zonal_status zonal__report_make_examples(zonal__report *report, int64_t most, int quiet) {
    zonal__progress progress;
    zonal_status status = ZONAL_OK;
    zonal__progress_begin(&progress, "images", report->count, quiet);
    for (int i = 0; i < report->count && status == ZONAL_OK; i++) {
        int seen = 0;
        for (int k = 0; k < i; k++) seen |= same_views(report, i, k);
        if (!seen)
            status = settle(make_views(&report->runs[i], &report->views[i]), &report->views[i]);
        if (status == ZONAL_OK) status = make_network_parts(report, i, most);
        zonal__progress_update(&progress, i + 1);
    }
    zonal__progress_end(&progress);
    return status;
}
