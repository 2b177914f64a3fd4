/*
 * zonal embed: what a network makes of pictures, as .npy files.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/eval_subject.h"
#include "cli/progress.h"
#include "core/npy.h"

typedef struct settings {
    zonal__subject_settings subject;
    const char *out, *projections, *labels;
    int split, quiet;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "out",
     .type = ZONAL__OPTION_STRING,
     AT(out),
     .metavar = "E.npy",
     .help = "write the backbone's features here"},
    {.name = "projections",
     .type = ZONAL__OPTION_STRING,
     AT(projections),
     .metavar = "P.npy",
     .help = "write the projector's output here, not normalised"},
    {.name = "labels",
     .type = ZONAL__OPTION_STRING,
     AT(labels),
     .metavar = "L.npy",
     .help = "write the numbers of the classes here, int32"},
    {.name = "split",
     .type = ZONAL__OPTION_WORD,
     AT(split),
     .words = zonal__split_words,
     .initial = "all",
     .help = "which part of the pictures"},
    ZONAL__SUBJECT_OPTIONS(settings, subject),
    {.name = "quiet", .type = ZONAL__OPTION_FLAG, AT(quiet), .help = "no progress bar, no remarks"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal embed RUN|WEIGHTS --out E.npy [--data PATH] [options]",
    .description =
        "Writes the features that a trained network gives to pictures: a row of float32\n"
        "for each, in the order of the data set, from one view of its centre (textures\n"
        "and small pictures: the whole). The files are written as the features come and\n"
        "appear when they are complete. WEIGHTS is a safetensors file with the names of\n"
        "torchvision's ResNets.\n",
    .argument = "RUN|WEIGHTS",
    .least = 1,
    .most = 1};

typedef struct output {
    zonal__file *features, *projections; /* NULL: not asked for */
    int64_t feature_dim, projection_dim;
} output;

static zonal_status write_batch(void *context, const zonal__features_batch *batch) {
    const output *o = context;
    if (o->features)
        ZONAL_TRY(zonal__file_write(o->features, batch->features,
                                    (size_t)(batch->count * o->feature_dim) * sizeof(float)));
    if (o->projections)
        ZONAL_TRY(zonal__file_write(o->projections, batch->projections,
                                    (size_t)(batch->count * o->projection_dim) * sizeof(float)));
    return ZONAL_OK;
}

static int on_progress(void *context, int64_t done) {
    zonal__progress_update(context, done);
    return 0;
}

static zonal_status compute(const settings *s, zonal__subject *subject, zonal__source *source,
                            output *o) {
    zonal__features_options how = zonal__subject_still(subject, source);
    zonal__progress progress;
    zonal_status status;
    how.progress = on_progress;
    how.progress_context = &progress;
    zonal__progress_begin(&progress, "features", source->count, s->quiet);
    status = zonal__features_stream(subject->model, &how, write_batch, o);
    zonal__progress_end(&progress);
    return status;
}

/* Ends a file: whole after success, gone otherwise. */
static zonal_status end(zonal__file *file, zonal_status status) {
    if (!file) return status;
    if (status == ZONAL_OK) return zonal__file_commit(file);
    zonal__file_abandon(file);
    return status;
}

static zonal_status write_all(const settings *s, zonal__subject *subject, zonal__source *source) {
    const zonal__graph *graph = &subject->model->graph;
    output o = {.feature_dim = graph->feature_dim, .projection_dim = graph->projection_dim};
    zonal_status status = ZONAL_OK;
    if (s->out)
        status =
            zonal__npy_create(s->out, ZONAL__NPY_F4, source->count, o.feature_dim, &o.features);
    if (status == ZONAL_OK && s->projections)
        status = zonal__npy_create(s->projections, ZONAL__NPY_F4, source->count, o.projection_dim,
                                   &o.projections);
    if (status == ZONAL_OK) status = compute(s, subject, source, &o);
    status = end(o.features, status);
    status = end(o.projections, status);
    if (status == ZONAL_OK && s->labels)
        status = zonal__npy_write_labels(s->labels, source->count, source->labels);
    return status;
}

static zonal_status check(const settings *s, const zonal__subject *subject,
                          const zonal__source *source) {
    if (s->projections && subject->model->spec.projector_layers == 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has no projector; leave --projections out",
                          subject->weights);
    if (s->labels && !source->labels)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has no labels; leave --labels out", source->path);
    return ZONAL_OK;
}

static void report(const settings *s, const zonal__subject *subject, const zonal__source *source) {
    const zonal__graph *graph = &subject->model->graph;
    if (s->out)
        printf("%s: %" PRId64 " x %d features of a ResNet-%d\n", zonal__cli_plain(s->out).text,
               source->count, graph->feature_dim, subject->model->spec.depth);
    if (s->projections)
        printf("%s: %" PRId64 " x %d projections\n", zonal__cli_plain(s->projections).text,
               source->count, graph->projection_dim);
    if (s->labels)
        printf("%s: %" PRId64 " label%s of %d class%s\n", zonal__cli_plain(s->labels).text,
               source->count, zonal__text_plural(source->count), source->classes,
               source->classes == 1 ? "" : "es");
}

static zonal_status embed(const settings *s, zonal__subject *subject) {
    zonal__source *source;
    zonal_status status;
    ZONAL_TRY(zonal__subject_source(subject, (zonal__split)s->split, &source));
    status = check(s, subject, source);
    if (status == ZONAL_OK) status = write_all(s, subject, source);
    if (status == ZONAL_OK && !s->quiet) report(s, subject, source);
    zonal__source_close(source);
    return status;
}

int zonal__cli_embed(int argc, char **argv) {
    settings s;
    zonal__options options;
    zonal__subject subject;
    zonal_status result;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (!s.out && !s.projections)
        return zonal__cli_misused("nothing to write: give --out, --projections or both");
    zonal__cli_show_log(s.quiet);
    if (zonal__subject_open(options.arguments[0], &s.subject, &subject) != ZONAL_OK)
        return zonal__cli_failed();
    result = embed(&s, &subject);
    zonal__subject_close(&subject);
    return result == ZONAL_OK ? ZONAL__EXIT_OK : zonal__cli_failed();
}
