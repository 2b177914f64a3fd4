/*
 * zonal data pack: a source as one file.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "cli/common/inputs.h"
#include "cli/common/progress.h"
#include "cli/common/show_log.h"
#include "cli/data/data.h"
#include "core/memory.h"
#include "data/pack.h"
#include "data/pool.h"
#include "data/source_options.h"

static const char *const fittings[] = {"as-is", "center", "stretch", NULL};

enum { MOST_SPLITS = 3, USUAL_SIDE = 256 };

typedef struct settings {
    zonal__source_settings source;
    const char *out, *split;
    int fit, enlarge, quiet;
    int64_t side, threads;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "out",
     .type = ZONAL__OPTION_STRING,
     AT(out),
     .metavar = "FILE.zpk",
     .rules = ZONAL__OPTION_REQUIRED,
     .help = "the pack to write"},
    {.name = "split",
     .type = ZONAL__OPTION_STRING,
     AT(split),
     .initial = "train,val,test",
     .metavar = "train,val,test|all",
     .help = "the splits to pack, those that exist; all: everything, without splits"},
    {.name = "fit",
     .type = ZONAL__OPTION_WORD,
     AT(fit),
     .words = fittings,
     .initial = "as-is",
     .help = "as-is: original sizes; center: the largest centred square; stretch: the whole image"},
    {.name = "side",
     .type = ZONAL__OPTION_INT,
     AT(side),
     .least = 1,
     .most = 16384,
     .metavar = "PIXELS",
     .help = "center, stretch: stored width and height, or less if an image is smaller; 256 unless "
             "given"},
    {.name = "enlarge",
     .type = ZONAL__OPTION_FLAG,
     AT(enlarge),
     .help = "center, stretch: enlarge smaller images to --side"},
    ZONAL__SOURCE_OPTIONS(settings, source),
    ZONAL__THREADS_OPTION(settings, "threads to use; 0: one for each processor"),
    {.name = "quiet", .type = ZONAL__OPTION_FLAG, AT(quiet), .help = "print nothing"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal data pack SOURCE --out FILE.zpk [options]",
    .description =
        "Writes images, labels, class names and splits into one file with checksums.\nCorrupt "
        "images are left out and named. The file appears whole or not at all.\n\n"
        "examples:\n"
        "  zonal data pack imagenette --fit center --side 160 --out imagenette.zpk\n"
        "  zonal data pack textures:disk --split train --out disks.zpk\n",
    .argument = "SOURCE",
    .least = 1,
    .most = 1};

typedef struct job {
    const settings *settings;
    zonal__source *source;
    zonal__split split;
    zonal__pack_writer *writer;
    struct scratch {
        zonal__image read;
        zonal__pack_scratch fitting;
    } * scratch; /* [workers] */
    zonal__progress progress;
    int labelled;                         /* the parts packed so far */
    int64_t packed[1 + MOST_SPLITS], bad; /* by zonal__split */
    _Atomic int64_t small;                /* images that were not made larger */
} job;

static zonal_status make(void *context, int worker, int64_t i, zonal__image *image) {
    job *j = context;
    struct scratch *own = &j->scratch[worker];
    int side = (int)j->settings->side, shorter;
    ZONAL_TRY(zonal__source_read(j->source, i, &own->read));
    shorter = own->read.width < own->read.height ? own->read.width : own->read.height;
    if (j->settings->fit != ZONAL__PACK_AS_IS && shorter < side && !j->settings->enlarge) {
        side = shorter;
        atomic_fetch_add(&j->small, 1);
    }
    return zonal__pack_fit(&own->read, (zonal__pack_fitting)j->settings->fit, side, &own->fitting,
                           image);
}

static zonal_status use(void *context, int64_t i, zonal_status made, const zonal__image *image) {
    job *j = context;
    zonal__progress_update(&j->progress, i + 1);
    if (made == ZONAL_FORMAT) { /* named in the log already */
        j->bad++;
        return ZONAL_OK;
    }
    ZONAL_TRY(made);
    j->packed[j->split]++;
    return zonal__pack_add(j->writer, image, j->source->labels ? j->source->labels[i] : 0,
                           j->split);
}

/* The first part that is packed says what the classes are; the others must have some where it has,
 * and none where it has none. */
static zonal_status begin(job *j) {
    const zonal__source *source = j->source;
    if (j->writer && (source->classes > 0) != j->labelled)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "the %s images of %s have %sclasses, but those before them have %s; "
                          "pack them into separate files (--split)",
                          zonal__split_words[j->split], source->path, j->labelled ? "no " : "",
                          j->labelled ? "some" : "none");
    if (j->writer) return ZONAL_OK;
    j->labelled = source->classes > 0;
    const zonal__pack_options options = {.fit = ZONAL__PACK_AS_IS, /* make has fitted them */
                                         .classes = source->classes,
                                         .class_names = (const char *const *)source->class_names};
    return zonal__pack_create(j->settings->out, &options, &j->writer);
}

static zonal_status pack_part(job *j, const char *path, zonal__split split) {
    zonal__source_options options = zonal__source_settings_apply(&j->settings->source, path, split);
    const zonal__pool_task task = {.context = j, .make = make, .use = use};
    zonal_status status;
    j->split = split;
    options.strict_split = 1; /* nothing is packed twice */
    ZONAL_TRY(zonal__source_open(&options, &j->source));
    status = j->source->count > 0 ? begin(j) : ZONAL_OK;
    if (status == ZONAL_OK && j->source->count > 0) {
        zonal__progress_begin(&j->progress, "packing", j->source->count, j->settings->quiet);
        status = zonal__pool_run(&task, j->source->count, (int)j->settings->threads);
        zonal__progress_end(&j->progress);
    }
    zonal__source_close(j->source);
    j->source = NULL;
    return status;
}

/* "train,val" as the numbers of the parts. */
static zonal_status split_parts(const char *text, zonal__split parts[MOST_SPLITS], int *count) {
    const char *at = text;
    *count = 0;
    for (;;) {
        size_t length = strcspn(at, ",");
        int found = -1;
        for (int k = 0; zonal__split_words[k]; k++)
            if (strlen(zonal__split_words[k]) == length &&
                strncmp(at, zonal__split_words[k], length) == 0)
                found = k;
        int mixed = found == ZONAL__SPLIT_ALL && (at != text || at[length]);
        for (int k = 0; k < *count; k++) mixed |= parts[k] == (zonal__split)found;
        if (found < 0 || mixed || *count == MOST_SPLITS)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "--split must be all, or one or more of train, val and test with "
                              "commas between them, got %s",
                              text);
        parts[(*count)++] = (zonal__split)found;
        if (!at[length]) return ZONAL_OK;
        at += length + 1;
    }
}

static zonal_status run(const settings *s, const char *path, job *j) {
    zonal__split parts[MOST_SPLITS];
    int count, workers = zonal__pool_workers((int)s->threads);
    zonal_status status;
    ZONAL_TRY(zonal__cli_keep_input("--out", s->out, path));
    ZONAL_TRY(zonal__cli_keep_input("--out", s->out, s->source.class_list));
    ZONAL_TRY(zonal__source_settings_check(&s->source, path));
    ZONAL_TRY(split_parts(s->split, parts, &count));
    ZONAL_TRY(ZONAL_NEW(&j->scratch, workers, "the workers' images"));
    status = ZONAL_OK;
    for (int k = 0; k < count && status == ZONAL_OK; k++) status = pack_part(j, path, parts[k]);
    if (status == ZONAL_OK && !j->writer)
        status = ZONAL_FAIL(ZONAL_ARGUMENT, "%s has no image in %s; choose other splits (--split)",
                            path, s->split);
    if (status == ZONAL_OK)
        status = zonal__pack_commit(j->writer);
    else
        zonal__pack_abandon(j->writer);
    for (int w = 0; w < workers; w++) {
        zonal__image_fini(&j->scratch[w].read);
        zonal__pack_scratch_fini(&j->scratch[w].fitting);
    }
    zonal__free(j->scratch);
    return status;
}

/* photos.zpk: 120 images (train 96, val 12, test 12), 1 corrupt ones left out */
static void print_result(const settings *s, const job *j) {
    int64_t total = 0;
    const char *between = " (";
    for (int k = 0; k <= MOST_SPLITS; k++) total += j->packed[k];
    printf("%s: %" PRId64 " images", zonal__cli_plain(s->out).text, total);
    for (int k = ZONAL__SPLIT_TRAIN; k <= MOST_SPLITS; k++)
        if (j->packed[k] > 0) {
            printf("%s%s %" PRId64, between, zonal__split_words[k], j->packed[k]);
            between = ", ";
        }
    printf("%s", j->packed[ZONAL__SPLIT_ALL] == total ? "" : ")");
    if (j->bad) printf(", %" PRId64 " corrupt ones left out", j->bad);
    putchar('\n');
    if (j->small)
        printf("%" PRId64 " are smaller than %" PRId64 " x %" PRId64
               " and were not made larger (--enlarge does it)\n",
               j->small, s->side, s->side);
}

int zonal__cli_data_pack(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    job j = {.settings = &s};
    if ((s.side || s.enlarge) && s.fit == ZONAL__PACK_AS_IS)
        return zonal__cli_misused("--side and --enlarge go with --fit center or --fit stretch");
    status = zonal__cli_check_ending("--out", s.out, ".zpk");
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (!s.side) s.side = USUAL_SIDE;
    zonal__cli_show_log(s.quiet);
    if (run(&s, options.arguments[0], &j) != ZONAL_OK) return zonal__cli_failed();
    if (!s.quiet) print_result(&s, &j);
    return ZONAL__EXIT_OK;
}
