/*
 * zonal data info: what a source holds.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/common/cli.h"
#include "cli/common/progress.h"
#include "cli/common/show_log.h"
#include "cli/data/data.h"
#include "core/json.h"
#include "data/describe.h"
#include "data/source_options.h"

enum { MOST_CLASSES = 20 }; /* in the text for people; --json prints all */

typedef struct settings {
    zonal__source_settings source;
    int split, json, quiet;
    int64_t threads;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "split",
     .type = ZONAL__OPTION_WORD,
     AT(split),
     .words = zonal__split_words,
     .initial = "all",
     .help = "the split"},
    ZONAL__SOURCE_OPTIONS(settings, source),
    ZONAL__THREADS_OPTION(settings, "threads to use; 0: one for each processor"),
    {.name = "json", .type = ZONAL__OPTION_FLAG, AT(json), .help = "print JSON"},
    {.name = "quiet",
     .type = ZONAL__OPTION_FLAG,
     AT(quiet),
     .help = "no progress bar and no hints"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal data info SOURCE [options]",
    .description =
        "Reads every image of a source once and prints their number, classes and sizes,\nthe mean "
        "and standard deviation by channel (for normalisation), and the corrupt\nfiles.\n",
    .argument = "SOURCE",
    .least = 1,
    .most = 1};

static int on_progress(void *context, int64_t done) {
    zonal__progress_update(context, done);
    return 0;
}

static const char *class_name(const zonal__source *source, int k, char number[16]) {
    if (source->class_names && source->class_names[k]) return source->class_names[k];
    snprintf(number, 16, "%d", k);
    return number;
}

static void print_classes(const zonal__source *source, const zonal__description *d) {
    char number[16];
    if (source->classes > 0) printf("  classes    %d\n", source->classes);
    for (int k = 0; k < source->classes && k < MOST_CLASSES && d->class_counts; k++)
        printf("    %-32s %8" PRId64 "\n", zonal__cli_plain(class_name(source, k, number)).text,
               d->class_counts[k]);
    if (source->classes > MOST_CLASSES)
        printf("    ... and %d more (--json prints all)\n", source->classes - MOST_CLASSES);
}

static void print_bad(const zonal__description *d) {
    for (int i = 0; i < ZONAL__DESCRIPTION_BAD && d->bad_why[i]; i++)
        printf("  bad        %s\n", zonal__cli_plain(d->bad_why[i]).text);
    if (d->bad > ZONAL__DESCRIPTION_BAD)
        printf("    ... and %" PRId64 " more\n", d->bad - ZONAL__DESCRIPTION_BAD);
}

static void print_text(const zonal__source *source, const zonal__description *d) {
    printf("%s: %s, %" PRId64 " image%s", zonal__cli_plain(source->path).text, source->table->kind,
           d->count, zonal__text_plural(d->count));
    if (d->bad) printf(" and %" PRId64 " that cannot be read", d->bad);
    if (d->count == 0) {
        putchar('\n');
    } else if (d->smallest.width == d->largest.width && d->smallest.height == d->largest.height) {
        printf("\n  size       %d x %d\n", d->largest.width, d->largest.height);
    } else {
        printf("\n  size       %d x %d to %d x %d, typically %d x %d\n", d->smallest.width,
               d->smallest.height, d->largest.width, d->largest.height, d->typical.width,
               d->typical.height);
    }
    if (d->count > 0) {
        printf("  channels   %s\n", d->channels == 1 ? "1, grey"
                                    : d->grey        ? "3, RGB; some are grey"
                                                     : "3, RGB");
        printf("  mean      ");
        for (int c = 0; c < d->channels; c++) printf(" %.4f", d->mean[c]);
        printf("\n  std       ");
        for (int c = 0; c < d->channels; c++) printf(" %.4f", d->std[c]);
        putchar('\n');
    }
    print_classes(source, d);
    print_bad(d);
}

static void write_size(zonal__json *json, const char *key, zonal__size size) {
    zonal__json_key(json, key);
    zonal__json_begin_array(json);
    zonal__json_int(json, size.width);
    zonal__json_int(json, size.height);
    zonal__json_end_array(json);
}

static void write_channels(zonal__json *json, const char *key, int channels, const double *x) {
    zonal__json_key(json, key);
    zonal__json_begin_array(json);
    for (int c = 0; c < channels; c++) zonal__json_double(json, x[c]);
    zonal__json_end_array(json);
}

static zonal_status print_json(const zonal__source *source, const zonal__description *d) {
    char number[16];
    zonal__json json;
    zonal__json_init(&json, stdout);
    zonal__json_begin_object(&json);
    zonal__json_key_text(&json, "source", source->path);
    zonal__json_key_text(&json, "kind", source->table->kind);
    zonal__json_key_int(&json, "count", d->count);
    zonal__json_key_int(&json, "bad", d->bad);
    write_size(&json, "smallest", d->smallest);
    write_size(&json, "largest", d->largest);
    write_size(&json, "typical", d->typical);
    zonal__json_key_int(&json, "channels", d->channels);
    zonal__json_key_int(&json, "grey", d->grey);
    write_channels(&json, "mean", d->channels, d->mean);
    write_channels(&json, "std", d->channels, d->std);
    zonal__json_key(&json, "classes");
    zonal__json_begin_array(&json);
    for (int k = 0; k < source->classes && d->class_counts; k++) {
        zonal__json_begin_object(&json);
        zonal__json_key_text(&json, "name", class_name(source, k, number));
        zonal__json_key_int(&json, "count", d->class_counts[k]);
        zonal__json_end_object(&json);
    }
    zonal__json_end_array(&json);
    zonal__json_key(&json, "why_bad");
    zonal__json_begin_array(&json);
    for (int i = 0; i < ZONAL__DESCRIPTION_BAD && d->bad_why[i]; i++)
        zonal__json_text(&json, d->bad_why[i]);
    zonal__json_end_array(&json);
    zonal__json_end_object(&json);
    zonal_status status = zonal__json_finish(&json, NULL);
    zonal__json_fini(&json);
    return status;
}

static zonal_status run(const settings *s, const char *path) {
    const zonal__source_options options =
        zonal__source_settings_apply(&s->source, path, (zonal__split)s->split);
    zonal__progress progress;
    const zonal__describe_options how = {
        .workers = (int)s->threads, .progress = on_progress, .progress_context = &progress};
    zonal__source *source;
    zonal__description description;
    zonal_status status;
    ZONAL_TRY(zonal__source_settings_check(&s->source, path));
    ZONAL_TRY(zonal__source_open(&options, &source));
    zonal__progress_begin(&progress, "reading", source->count, s->quiet);
    status = zonal__describe(source, &how, &description);
    zonal__progress_end(&progress);
    if (status == ZONAL_OK) {
        if (s->json)
            status = print_json(source, &description);
        else
            print_text(source, &description);
        zonal__description_fini(&description);
    }
    zonal__source_close(source);
    return status;
}

int zonal__cli_data_info(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    zonal__cli_show_log(s.quiet);
    if (run(&s, options.arguments[0]) != ZONAL_OK) return zonal__cli_failed();
    return ZONAL__EXIT_OK;
}
