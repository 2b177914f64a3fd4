/*
 * zonal embed: what a network makes of images, as .npy files, and a .csv of what each row is of.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common/cli.h"
#include "cli/common/inputs.h"
#include "cli/common/progress.h"
#include "cli/common/show_log.h"
#include "cli/eval/subject.h"
#include "core/npy.h"
#include "core/text.h"

typedef struct settings {
    zonal__subject_settings subject;
    const char *out, *projections, *labels, *index;
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
    {.name = "index",
     .type = ZONAL__OPTION_STRING,
     AT(index),
     .metavar = "I.csv|none",
     .help = "write index, name, label and class of each row here; E.csv unless given"},
    {.name = "split",
     .type = ZONAL__OPTION_WORD,
     AT(split),
     .words = zonal__split_words,
     .initial = "all",
     .help = "the split of the images"},
    ZONAL__SUBJECT_OPTIONS(settings, subject),
    {.name = "quiet",
     .type = ZONAL__OPTION_FLAG,
     AT(quiet),
     .help = "no progress bar and no hints"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal embed RUN|WEIGHTS --out E.npy [--data PATH] [options]",
    .description =
        "Writes the features of images: a row of float32 for each, in the order of the\ndata set, "
        "computed from its centre (textures and small images: the whole). Files\nappear when they "
        "are complete. WEIGHTS is a safetensors file with the names of\n"
        "torchvision's ResNets.\n\n"
        "Beside E.npy lies E.csv, with a line for each row: its number, the image's name\n"
        "(its path in the folder, or its number in a file), the number and the name of\n"
        "its class. In Python:\n\n"
        "    images = pandas.read_csv(\"E.csv\").assign(row=list(numpy.load(\"E.npy\")))\n\n"
        "A corrupt image is replaced by another one, which its line then names.\n",
    .argument = "RUN|WEIGHTS",
    .least = 1,
    .most = 1};

#define INDEX_HEAD "index,name,label,class\n"

typedef struct output {
    zonal__file *features, *projections, *index; /* NULL: not asked for */
    int64_t feature_dim, projection_dim;
    const zonal__source *source;
} output;

/* ---- what the rows are of -------------------------------------------------------------------- */

/* A field as RFC 4180 has it; bytes that are not UTF-8 become U+FFFD, or nobody could read the
 * rest.
 */
static void put_field(zonal__file *file, const char *text) {
    const int quoted = text[strcspn(text, ",\"\r\n")] != 0;
    if (quoted) zonal__file_write(file, "\"", 1);
    for (const char *c = text; *c;) {
        const int bytes = zonal__text_utf8(c);
        if (*c == '"') zonal__file_write(file, "\"", 1);
        if (bytes)
            zonal__file_write(file, c, (size_t)bytes);
        else
            zonal__file_write(file, "\xef\xbf\xbd", 3);
        c += bytes ? bytes : 1;
    }
    if (quoted) zonal__file_write(file, "\"", 1);
}

static void put_lines(const output *o, const zonal__features_batch *batch) {
    const zonal__source *source = o->source;
    char name[ZONAL__NAME_ROOM];
    for (int64_t i = 0; i < batch->count; i++) {
        zonal__source_name(source, batch->samples[i], name);
        zonal__file_print(o->index, "%" PRId64 ",", batch->first + i);
        put_field(o->index, name);
        if (batch->labels)
            zonal__file_print(o->index, ",%" PRId32 ",", batch->labels[i]);
        else
            zonal__file_print(o->index, ",,");
        if (batch->labels && source->class_names)
            put_field(o->index, source->class_names[batch->labels[i]]);
        zonal__file_print(o->index, "\n");
    }
}

static const char *rows_path(const settings *s) {
    return s->out ? s->out : s->projections;
}

/* By default an index lies beside a file, not beside a pipe or a device, nor beside what standard
 * output was redirected to, whose name is not known. */
static int wants_index(const settings *s) {
    const char *rows = rows_path(s);
    struct stat there;
    if (s->index) return strcmp(s->index, "none") != 0;
    if (strcmp(rows, "/dev/stdout") == 0 || strncmp(rows, "/dev/fd/", 8) == 0) return 0;
    return stat(rows, &there) != 0 || S_ISREG(there.st_mode);
}

/* E.csv for E.npy. */
static zonal_status index_path(const settings *s, char out[ZONAL__TRAINING_PATH]) {
    const char *rows = rows_path(s);
    const size_t length = strlen(rows);
    const int npy = length > 4 && strcmp(rows + length - 4, ".npy") == 0;
    if (s->index)
        snprintf(out, ZONAL__TRAINING_PATH, "%.*s", ZONAL__TRAINING_PATH - 1, s->index);
    else if (snprintf(out, ZONAL__TRAINING_PATH, "%.*s.csv", (int)(npy ? length - 4 : length),
                      rows) >= ZONAL__TRAINING_PATH)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the name %.80s... is too long", rows);
    return ZONAL_OK;
}

static int is_index(const char *path) {
    char start[sizeof INDEX_HEAD] = "";
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t length;
    if (descriptor < 0) return 0;
    length = read(descriptor, start, sizeof INDEX_HEAD - 1);
    close(descriptor);
    return length == (ssize_t)sizeof INDEX_HEAD - 1 && strcmp(start, INDEX_HEAD) == 0;
}

/* A name that nobody gave may be that of somebody's own file. */
static zonal_status check_index(const settings *s) {
    char path[ZONAL__TRAINING_PATH];
    struct stat there;
    if (s->index || !wants_index(s)) return ZONAL_OK;
    ZONAL_TRY(index_path(s, path));
    if (lstat(path, &there) != 0 || is_index(path)) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_IO,
                      "%s already exists and is not an index of zonal embed; move it, or give "
                      "--index another name or none",
                      path);
}

static zonal_status begin_index(const settings *s, output *o) {
    char path[ZONAL__TRAINING_PATH];
    if (!wants_index(s)) return ZONAL_OK;
    ZONAL_TRY(index_path(s, path));
    ZONAL_TRY(zonal__file_create(path, &o->index));
    zonal__file_print(o->index, INDEX_HEAD);
    return ZONAL_OK;
}

/* ---- the rows -------------------------------------------------------------------------------- */

static zonal_status write_batch(void *context, const zonal__features_batch *batch) {
    const output *o = context;
    if (o->index) put_lines(o, batch); /* what fails is remembered until the commit */
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
    output o = {.feature_dim = graph->feature_dim,
                .projection_dim = graph->projection_dim,
                .source = source};
    zonal_status status = ZONAL_OK;
    if (s->out)
        status =
            zonal__npy_create(s->out, ZONAL__NPY_F4, source->count, o.feature_dim, &o.features);
    if (status == ZONAL_OK && s->projections)
        status = zonal__npy_create(s->projections, ZONAL__NPY_F4, source->count, o.projection_dim,
                                   &o.projections);
    if (status == ZONAL_OK) status = begin_index(s, &o);
    if (status == ZONAL_OK) status = compute(s, subject, source, &o);
    status = end(o.index, status); /* first: rows without their index are of no use */
    status = end(o.features, status);
    status = end(o.projections, status);
    if (status == ZONAL_OK && s->labels)
        status = zonal__npy_write_labels(s->labels, source->count, source->labels);
    return status;
}

/* The images may be a file too, which a run's configuration names. */
static zonal_status keep_inputs(const settings *s, const zonal__subject *subject,
                                const zonal__source *source) {
    const struct {
        const char *option, *path;
    } files[] = {{"--out", s->out},
                 {"--projections", s->projections},
                 {"--labels", s->labels},
                 {"--index", s->index}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        ZONAL_TRY(
            zonal__subject_keep_inputs(files[i].option, files[i].path, subject->name, &s->subject));
        ZONAL_TRY(zonal__cli_keep_input(files[i].option, files[i].path, source->path));
    }
    return ZONAL_OK;
}

static zonal_status check(const settings *s, const zonal__subject *subject,
                          const zonal__source *source) {
    if (s->projections && subject->model->spec.projector_layers == 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has no projector; leave --projections out",
                          subject->weights);
    if (s->labels && !source->labels)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has no labels; leave --labels out", source->path);
    ZONAL_TRY(keep_inputs(s, subject, source));
    return check_index(s);
}

static void report_index(const settings *s) {
    char path[ZONAL__TRAINING_PATH];
    if (index_path(s, path) == ZONAL_OK)
        printf("%s: what each row is of\n", zonal__cli_plain(path).text);
}

static void report(const settings *s, const zonal__subject *subject, const zonal__source *source) {
    const zonal__graph *graph = &subject->model->graph;
    if (s->out)
        printf("%s: %" PRId64 " x %d features of a ResNet-%d\n", zonal__cli_plain(s->out).text,
               source->count, graph->feature_dim, subject->model->spec.depth);
    if (s->projections)
        printf("%s: %" PRId64 " x %d projections\n", zonal__cli_plain(s->projections).text,
               source->count, graph->projection_dim);
    if (wants_index(s)) report_index(s);
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
    if (zonal__cli_is_same_file(s.index, s.out) || zonal__cli_is_same_file(s.index, s.projections))
        return zonal__cli_misused("--index %s is the file of the rows; choose another name",
                                  s.index);
    zonal__cli_show_log(s.quiet);
    if (zonal__subject_open(options.arguments[0], &s.subject, &subject) != ZONAL_OK)
        return zonal__cli_failed();
    result = embed(&s, &subject);
    zonal__subject_close(&subject);
    return result == ZONAL_OK ? ZONAL__EXIT_OK : zonal__cli_failed();
}
