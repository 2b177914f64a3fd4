#include "train/online.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "eval/neighbours.h"
#include "eval/probe.h"
#include "eval/retrieval.h"

/* Each rank has filled its rows, and the others' are 0. */
static zonal_status join_rows(zonal__job *job, float *rows, int64_t count) {
    const zonal_communicator *c = zonal__job_host(job);
    if (!c || !rows) return ZONAL_OK;
    return c->all_reduce(c->context, rows, count, ZONAL_REDUCE_FP32, NULL);
}

/* A device needs larger batches than the processor to be busy, and more small views than large
 * ones: 1024 of 64 pixels take the memory of 256 of 128. */
static int64_t device_batch(int side) {
    return side <= 64 ? 1024 : 256;
}

static zonal_status make_extraction(const zonal__online_options *options, zonal__model *model,
                                    zonal__source *source, int views, zonal__features **out) {
    int parts = zonal__job_count(options->job);
    zonal__features_options wanted = {.source = source,
                                      .views = views,
                                      .augmentations = options->augmentations,
                                      .width = options->side,
                                      .height = options->side,
                                      .max_side = options->max_side,
                                      .seed = options->seed,
                                      .threads = options->threads,
                                      .part = zonal__job_rank(options->job),
                                      .parts = parts};
    if (!zonal__device_is_host(model->device)) wanted.batch = device_batch(options->side) * parts;
    memcpy(wanted.mean, options->mean, sizeof wanted.mean);
    memcpy(wanted.std, options->std, sizeof wanted.std);
    return zonal__features_create(model, &wanted, out);
}

/* Both arrays are zeroed before. */
static zonal_status extract(const zonal__online_options *options, const zonal__model *model,
                            const zonal__source *source, int views, zonal__features *work,
                            float *features, float *projections) {
    int64_t rows = views * source->count;
    zonal_status status = zonal__features_run(work, features, projections);
    ZONAL_TRY(zonal__job_all(options->job, status));
    ZONAL_TRY(join_rows(options->job, features, rows * model->graph.feature_dim));
    return join_rows(options->job, projections, rows * model->graph.projection_dim);
}

static int leads(const zonal__online_options *options) {
    return zonal__job_rank(options->job) == 0;
}

static zonal_status run_retrieval(const zonal__online_options *options, const zonal__model *model,
                                  const zonal__online_work *work, zonal__online_result *result) {
    int64_t count = options->queries->count, dim = model->graph.projection_dim;
    const zonal__retrieval_options retrieval = {
        .views = 2,
        .samples = count,
        .dim = dim,
        .batch = count < ZONAL__ONLINE_GROUP ? count : ZONAL__ONLINE_GROUP,
        .device = options->device,
        .threads = options->threads};
    zonal__retrieval found = {0};
    float *projections;
    zonal_status status =
        ZONAL_NEW(&projections, 2 * count * dim, "the projections of an evaluation");
    status = zonal__job_all(options->job, status);
    if (status == ZONAL_OK)
        status = extract(options, model, options->queries, 2, work->queries, NULL, projections);
    if (status == ZONAL_OK && leads(options))
        status = zonal__retrieval_run(&retrieval, projections, &found);
    zonal__free(projections);
    ZONAL_TRY(status);
    result->r1 = found.r1;
    result->r3 = found.r3;
    result->r5 = found.r5;
    result->map = found.map;
    return ZONAL_OK;
}

/* In the layout and precision of eval/probe.h. */
static void widen_probe(const float *from, const zonal__probe *to) {
    int64_t dim = to->dim;
    for (int c = 0; c < to->classes; c++) {
        double *row = to->parameters + c * (dim + 1);
        for (int64_t j = 0; j < dim; j++) row[j] = (double)from[c * dim + j];
        row[dim] = (double)from[to->classes * dim + c];
    }
}

static zonal_status test_probe(const zonal__online_options *options, int64_t dim,
                               const zonal__labelled *asked, double *accuracy) {
    zonal__probe probe = {
        .dim = dim, .classes = options->memory->classes, .threads = options->threads};
    zonal__scores scores = {0};
    zonal_status status;
    *accuracy = NAN;
    if (!options->probe) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&probe.parameters, probe.classes * (dim + 1), "the probe"));
    widen_probe(options->probe, &probe);
    status = zonal__probe_test(&probe, asked, &scores);
    if (status == ZONAL_OK) *accuracy = zonal__scores_accuracy(&scores);
    zonal__scores_fini(&scores);
    zonal__probe_fini(&probe);
    return status;
}

static zonal_status classify(const zonal__online_options *options, int64_t dim, const float *memory,
                             const float *queries, zonal__online_result *result) {
    const zonal__knn_options knn = {.dim = dim,
                                    .classes = options->memory->classes,
                                    .ks = 1,
                                    .k = &options->k,
                                    .temperatures = 1,
                                    .temperature = &options->temperature,
                                    .device = options->device,
                                    .threads = options->threads};
    const zonal__labelled known = {.count = options->memory->count,
                                   .x = memory,
                                   .label_count = options->memory->count,
                                   .labels = options->memory->labels};
    const zonal__labelled asked = {.count = options->queries->count,
                                   .x = queries,
                                   .label_count = options->queries->count,
                                   .labels = options->queries->labels};
    zonal__scores scores;
    ZONAL_TRY(zonal__knn_run(&knn, &known, &asked, &scores));
    result->accuracy = zonal__scores_accuracy(&scores);
    zonal__scores_fini(&scores);
    return test_probe(options, dim, &asked, &result->probe_accuracy);
}

static zonal_status run_knn(const zonal__online_options *options, const zonal__model *model,
                            const zonal__online_work *work, zonal__online_result *result) {
    int64_t dim = model->graph.feature_dim, known = options->memory->count;
    float *features; /* the memory's rows, then those of the queries */
    zonal_status status = ZONAL_NEW(&features, (known + options->queries->count) * dim,
                                    "the features of an evaluation");
    status = zonal__job_all(options->job, status);
    if (status == ZONAL_OK)
        status = extract(options, model, options->memory, 1, work->memory, features, NULL);
    if (status == ZONAL_OK)
        status = extract(options, model, options->queries, 1, work->queries, features + known * dim,
                         NULL);
    if (status == ZONAL_OK && leads(options))
        status = classify(options, dim, features, features + known * dim, result);
    zonal__free(features);
    return status;
}

zonal_status zonal__online_prepare(const zonal__online_options *options, zonal__model *model,
                                   zonal__online_work *work) {
    int knn = options->protocol == ZONAL__ONLINE_KNN;
    if (options->protocol == ZONAL__ONLINE_NONE) return ZONAL_OK;
    if (knn) ZONAL_TRY(make_extraction(options, model, options->memory, 1, &work->memory));
    return make_extraction(options, model, options->queries, knn ? 1 : 2, &work->queries);
}

void zonal__online_fini(zonal__online_work *work) {
    zonal__features_destroy(work->queries);
    zonal__features_destroy(work->memory);
    *work = (zonal__online_work){0};
}

zonal_status zonal__online_run(const zonal__online_options *options, const zonal__model *model,
                               const zonal__online_work *work, zonal__online_result *result) {
    *result = (zonal__online_result){.protocol = options->protocol, .probe_accuracy = NAN};
    switch (options->protocol) {
    case ZONAL__ONLINE_RETRIEVAL:
        return run_retrieval(options, model, work, result);
    case ZONAL__ONLINE_KNN:
        return run_knn(options, model, work, result);
    case ZONAL__ONLINE_NONE:
        break;
    }
    return ZONAL_OK;
}

double zonal__online_score(const zonal__online_result *result) {
    switch (result->protocol) {
    case ZONAL__ONLINE_RETRIEVAL:
        return result->r1;
    case ZONAL__ONLINE_KNN:
        return result->accuracy;
    case ZONAL__ONLINE_NONE:
        break;
    }
    return NAN;
}
