/* Features: features.h. */
#include "eval/features.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/bf16.h"
#include "core/memory.h"
#include "data/feed.h"
#include "dist/job.h"
#include "nn/run.h"

enum { BATCH = 128 };

struct zonal__features {
    zonal__model *model;
    zonal__features_options options;
    int kept;                        /* 1: run more than once */
    int no_features, no_projections; /* 1: nobody asks for them */
    zonal__loader *loader;           /* on the host */
    zonal__feed *feed;               /* on a device */
    zonal__run *run;
    void *raw;                     /* of a batch, in the model's dtype, on the host */
    float *features, *projections; /* of a batch: [views][count][dim] */
    zonal__share share;            /* of a batch: this part's */
};

/* ---- create and destroy ---------------------------------------------------------------------- */

static zonal_status make_loader(zonal__features *e) {
    const zonal__features_options *o = &e->options;
    zonal__feed_options feed = {.loader = {.source = o->source,
                                           .batch = o->batch,
                                           .share = e->share,
                                           .groups = 1,
                                           .group = {{.views = o->views,
                                                      .width = o->width,
                                                      .height = o->height,
                                                      .augmentations = o->augmentations}},
                                           .channels = e->model->spec.channels,
                                           .max_side = o->max_side,
                                           .dtype = e->model->spec.dtype,
                                           .seed = o->seed,
                                           .in_order = o->epochs == 0,
                                           .workers = o->threads},
                                /* Once through, no image is needed twice. */
                                .device = e->model->device,
                                .data_location =
                                    o->epochs || e->kept ? ZONAL__DATA_AUTO : ZONAL__DATA_ON_HOST};
    memcpy(feed.loader.mean, o->mean, sizeof o->mean);
    memcpy(feed.loader.std, o->std, sizeof o->std);
    return zonal__device_is_host(e->model->device) ? zonal__loader_create(&feed.loader, &e->loader)
                                                   : zonal__feed_create(&feed, &e->feed);
}

static int64_t largest_dim(const zonal__graph *graph) {
    return graph->feature_dim > graph->projection_dim ? graph->feature_dim : graph->projection_dim;
}

static zonal_status prepare(zonal__features *e) {
    const zonal__features_options *o = &e->options;
    const zonal__graph *graph = &e->model->graph;
    const int64_t n = o->views * e->share.count;
    ZONAL_TRY(zonal__run_create(
        e->model,
        &(zonal__run_spec){
            .n = n, .h = o->height, .w = o->width, .forward_only = 1, .threads = o->threads},
        &e->run));
    ZONAL_TRY(
        zonal__alloc(n * largest_dim(graph), sizeof(float), "the features of a batch", &e->raw));
    ZONAL_TRY(ZONAL_NEW(&e->features, n * graph->feature_dim, "the features of a batch"));
    return ZONAL_NEW(&e->projections, n * graph->projection_dim, "the projections of a batch");
}

/* Views are those of epoch 0 in every pass. A loader holds threads and batches of views, so it goes
 * after each; a feed holds the images. */
static zonal_status begin_pass(zonal__features *e) {
    return e->feed ? zonal__feed_seek(e->feed, 0) : make_loader(e);
}

static void end_pass(zonal__features *e) {
    zonal__loader_destroy(e->loader);
    e->loader = NULL;
}

static void drop(zonal__features *e) {
    zonal__loader_destroy(e->loader);
    zonal__feed_destroy(e->feed);
    zonal__run_destroy(e->run);
    zonal__free(e->raw);
    zonal__free(e->features);
    zonal__free(e->projections);
}

/* ---- one batch ------------------------------------------------------------------------------- */

static zonal_status read_rows(zonal__features *e, const void *from, int64_t count, float *to) {
    const uint16_t *halves = e->raw;
    if (e->model->spec.dtype != ZONAL_DTYPE_BF16)
        return zonal__device_read(e->model->device, to, from, (size_t)count * sizeof *to);
    ZONAL_TRY(zonal__device_read(e->model->device, e->raw, from, (size_t)count * sizeof *halves));
    for (int64_t i = 0; i < count; i++) to[i] = zonal__bf16_to_float(halves[i]);
    return ZONAL_OK;
}

/* Without a way out of the loop, which would keep it from being vectorised. */
static int are_finite(const float *rows, int64_t count) {
    int bad = 0;
    for (int64_t i = 0; i < count; i++) bad |= !isfinite(rows[i]);
    return !bad;
}

static zonal_status check_rows(const zonal__features *e, const int64_t *samples, int64_t count,
                               int64_t dim, const float *rows, const char *what) {
    if (are_finite(rows, e->options.views * count * dim)) return ZONAL_OK;
    for (int64_t i = 0; i < e->options.views * count * dim; i++)
        if (!isfinite(rows[i]))
            return ZONAL_FAIL(
                ZONAL_NUMERIC,
                "the network's output is %g for image %" PRId64 " of %s, among its %s; "
                "has its training gone wrong?",
                (double)rows[i], samples[i / dim % count], e->options.source->path, what);
    return ZONAL_OK;
}

static zonal_status take_rows(zonal__features *e, const zonal__batch *batch, const void *from,
                              int64_t dim, float *to, const char *what) {
    ZONAL_TRY(read_rows(e, from, e->options.views * batch->count * dim, to));
    return check_rows(e, batch->samples, batch->count, dim, to, what);
}

/* The run is made for a full batch. In the last one, which may be smaller, the rest of the views'
 * array holds what an earlier batch left there, or zeros; those rows are not looked at. */
static zonal_status compute(zonal__features *e, int64_t first, zonal__features_batch *out) {
    const zonal__graph *graph = &e->model->graph;
    const zonal__batch *batch;
    zonal__run_outputs outputs;
    ZONAL_TRY(e->loader ? zonal__loader_next(e->loader, &batch)
                        : zonal__feed_next(e->feed, NULL, &batch));
    ZONAL_TRY(zonal__run_forward(e->run, batch->views[0], 0, NULL, &outputs));
    if (!e->no_features)
        ZONAL_TRY(
            take_rows(e, batch, outputs.features, graph->feature_dim, e->features, "features"));
    if (!e->no_projections)
        ZONAL_TRY(take_rows(e, batch, outputs.projections, graph->projection_dim, e->projections,
                            "projections"));
    *out = (zonal__features_batch){.first = first,
                                   .count = batch->count,
                                   .samples = batch->samples,
                                   .labels = batch->labels,
                                   .features = e->features,
                                   .projections = e->projections};
    return ZONAL_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static zonal_status stream(zonal__features *e,
                           zonal_status (*take)(void *, const zonal__features_batch *),
                           void *context) {
    const zonal__features_options *o = &e->options;
    zonal__features_batch batch;
    ZONAL_TRY(begin_pass(e));
    const int64_t all =
        o->epochs ? o->epochs * (o->source->count / o->batch * o->batch) : o->source->count;
    for (int64_t done = 0; done < all; done += o->batch) {
        const int64_t end = done + o->batch < all ? done + o->batch : all;
        ZONAL_TRY(compute(e, done + e->share.first, &batch));
        if (batch.count > 0) ZONAL_TRY(take(context, &batch));
        if (o->progress && o->progress(o->progress_context, end))
            return ZONAL_FAIL(ZONAL_CANCELLED, "stopped while features were computed");
    }
    return ZONAL_OK;
}

static void init(zonal__features *e, zonal__model *model, const zonal__features_options *options) {
    int parts = options->parts > 1 ? options->parts : 1;
    *e = (zonal__features){.model = model, .options = *options};
    if (e->options.batch <= 0) e->options.batch = BATCH * (int64_t)parts;
    if (e->options.batch > options->source->count) e->options.batch = options->source->count;
    e->share.of = e->options.batch;
    zonal__job_share(e->share.of, parts, parts > 1 ? options->part : 0, &e->share.first,
                     &e->share.count);
}

zonal_status zonal__features_stream(zonal__model *model, const zonal__features_options *options,
                                    zonal_status (*take)(void *context,
                                                         const zonal__features_batch *batch),
                                    void *context) {
    zonal__features e;
    zonal_status status;
    init(&e, model, options);
    if (e.share.count == 0) return ZONAL_OK; /* fewer images than parts */
    status = prepare(&e);
    if (status == ZONAL_OK) status = stream(&e, take, context);
    drop(&e);
    return status;
}

typedef struct gathering {
    int64_t count, feature_dim, projection_dim;
    int views;
    float *features, *projections;
} gathering;

/* Moves [views][batch->count][dim] into its place in [views][count][dim]. */
static void put(const gathering *g, const zonal__features_batch *batch, int64_t dim,
                const float *from, float *to) {
    for (int v = 0; v < g->views && to; v++)
        memcpy(to + (v * g->count + batch->first) * dim, from + v * batch->count * dim,
               (size_t)(batch->count * dim) * sizeof *to);
}

static zonal_status gather(void *context, const zonal__features_batch *batch) {
    const gathering *g = context;
    put(g, batch, g->feature_dim, batch->features, g->features);
    put(g, batch, g->projection_dim, batch->projections, g->projections);
    return ZONAL_OK;
}

static gathering into(const zonal__model *model, const zonal__features_options *options,
                      float *features, float *projections) {
    return (gathering){.count = options->source->count,
                       .feature_dim = model->graph.feature_dim,
                       .projection_dim = model->graph.projection_dim,
                       .views = options->views,
                       .features = features,
                       .projections = projections};
}

static zonal_status check_order(const zonal__features_options *options) {
    if (!options->epochs) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT, "features of several epochs have no order to lie in");
}

zonal_status zonal__features_extract(zonal__model *model, const zonal__features_options *options,
                                     float *features, float *projections) {
    gathering g = into(model, options, features, projections);
    ZONAL_TRY(check_order(options));
    return zonal__features_stream(model, options, gather, &g);
}

/* ---- more than once -------------------------------------------------------------------------- */

zonal_status zonal__features_create(zonal__model *model, const zonal__features_options *options,
                                    zonal__features **out) {
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(check_order(options));
    ZONAL_TRY(ZONAL_NEW(out, 1, "the features"));
    init(*out, model, options);
    (*out)->kept = 1;
    if ((*out)->share.count == 0) return ZONAL_OK;
    status = prepare(*out);
    if (status == ZONAL_OK && !zonal__device_is_host(model->device)) status = make_loader(*out);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__features_destroy(*out);
    *out = NULL;
    return status;
}

void zonal__features_destroy(zonal__features *e) {
    if (!e) return;
    drop(e);
    zonal__free(e);
}

zonal_status zonal__features_run(zonal__features *e, float *features, float *projections) {
    gathering g = into(e->model, &e->options, features, projections);
    zonal_status status;
    if (e->share.count == 0) return ZONAL_OK;
    e->no_features = !features;
    e->no_projections = !projections;
    status = stream(e, gather, &g);
    end_pass(e);
    return status;
}
