/*
 * zonal bench data: how fast images come out of a source.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/bench/bench.h"
#include "cli/common/cli.h"
#include "cli/common/show_log.h"
#include "cli/common/timing.h"
#include "data/loader.h"
#include "data/pool.h"
#include "data/source_options.h"

typedef struct settings {
    zonal__source_settings source;
    int split, json;
    int64_t images, side, threads;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "split",
     .type = ZONAL__OPTION_WORD,
     AT(split),
     .words = zonal__split_words,
     .initial = "all",
     .help = "the split"},
    {.name = "images",
     .type = ZONAL__OPTION_INT,
     AT(images),
     .initial = "1000",
     .least = 1,
     .most = 1e9,
     .help = "how many to read, from the first on"},
    {.name = "side",
     .type = ZONAL__OPTION_INT,
     AT(side),
     .initial = "224",
     .least = 1,
     .most = 2048,
     .metavar = "PIXELS",
     .help = "of the crops"},
    ZONAL__SOURCE_OPTIONS(settings, source),
    ZONAL__THREADS_OPTION(settings, "of the loader; 0: one for each processor"),
    {.name = "json", .type = ZONAL__OPTION_FLAG, AT(json), .help = "print a JSON line for each"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal bench data SOURCE [options]",
    .description =
        "Reads images of a source, one pass for each line:\n\n"
        "  read     one thread, each image as it is stored, at full size\n"
        "  crop     one thread, read (JPEG: scaled, as long as both sides stay at least\n"
        "           --side), then a random crop resampled to --side\n"
        "  loader   the same by the loader's threads, in batches\n"
        "  stream   whole images at full size by the loader's threads, as they are\n"
        "           sent to a GPU, which makes the views itself\n",
    .argument = "SOURCE",
    .least = 1,
    .most = 1};

typedef struct result {
    int64_t images, bytes;
    double seconds;
} result;

static void print_row(const settings *s, const char *what, int threads, const result *r) {
    double rate = (double)r->images / r->seconds, volume = (double)r->bytes / r->seconds / 1e9;
    if (s->json)
        printf("{\"what\": \"%s\", \"threads\": %d, \"images\": %" PRId64
               ", \"seconds\": %.6g, \"images_per_s\": %.6g, \"gb_per_s\": %.6g}\n",
               what, threads, r->images, r->seconds, rate, volume);
    else
        printf("%-8s %8d %10" PRId64 " %10.3f %12.1f %8.3f\n", what, threads, r->images, r->seconds,
               rate, volume);
    fflush(stdout);
}

static zonal_status open_source(const settings *s, const char *path, int min_side,
                                zonal__source **source) {
    zonal__source_options options =
        zonal__source_settings_apply(&s->source, path, (zonal__split)s->split);
    ZONAL_TRY(zonal__source_settings_check(&s->source, path));
    if (min_side && !options.min_side) options.min_side = min_side;
    return zonal__source_open(&options, source);
}

static int64_t how_many(const settings *s, const zonal__source *source) {
    return s->images < source->count ? s->images : source->count;
}

static zonal_status time_reading(const settings *s, const char *path, result *r) {
    zonal__source *source;
    zonal__image image = {0};
    zonal_status status = ZONAL_OK;
    ZONAL_TRY(open_source(s, path, 0, &source));
    double begin = zonal__now();
    for (int64_t i = 0; i < how_many(s, source) && status == ZONAL_OK; i++) {
        status = zonal__source_read(source, i, &image);
        if (status == ZONAL_FORMAT) {
            status = ZONAL_OK;
            continue;
        }
        r->images++;
        r->bytes += (int64_t)image.width * image.height * image.channels;
    }
    r->seconds = zonal__now() - begin;
    zonal__image_fini(&image);
    zonal__source_close(source);
    return status;
}

/* Random crops alone, without the rest of a pipeline. */
static void crop_augmentation(zonal__augmentation *augmentation) {
    zonal__augmentation_byol(0, augmentation);
    augmentation->flip = augmentation->jitter = augmentation->grey = augmentation->blur =
        augmentation->solarise = 0;
}

/* raw: whole images at full size, for a device that makes the views. */
static zonal_status time_loading(const settings *s, const char *path, int workers, int raw,
                                 result *r) {
    zonal__source *source;
    zonal__loader *loader = NULL;
    zonal__augmentation augmentation;
    const zonal__batch *batch;
    zonal_status status;
    crop_augmentation(&augmentation);
    ZONAL_TRY(open_source(s, path, raw ? 0 : (int)s->side, &source));
    int64_t wanted = how_many(s, source);
    zonal__loader_options options = {.source = source,
                                     .batch = wanted < 64 ? wanted : 64,
                                     .groups = 1,
                                     .group = {{.views = 1,
                                                .width = (int)s->side,
                                                .height = (int)s->side,
                                                .augmentations = &augmentation}},
                                     .channels = source->channels == 1 ? 1 : 3,
                                     .dtype = ZONAL_DTYPE_BF16,
                                     .in_order = 1,
                                     .raw = raw,
                                     .workers = workers};
    double begin = zonal__now();
    ZONAL_TRY_GOTO(status, done, zonal__loader_create(&options, &loader));
    while (r->images < wanted) {
        ZONAL_TRY_GOTO(status, done, zonal__loader_next(loader, &batch));
        r->images += batch->count;
        r->bytes +=
            raw ? (int64_t)batch->bytes : batch->count * s->side * s->side * options.channels;
    }
    r->seconds = zonal__now() - begin;
done:
    zonal__loader_destroy(loader);
    zonal__source_close(source);
    return status;
}

static zonal_status run(const settings *s, const char *path) {
    result read = {0}, crop = {0}, load = {0}, streamed = {0};
    if (!s->json)
        printf("%-8s %8s %10s %10s %12s %8s\n", "", "threads", "images", "seconds", "images/s",
               "GB/s");
    ZONAL_TRY(time_reading(s, path, &read));
    print_row(s, "read", 1, &read);
    ZONAL_TRY(time_loading(s, path, 1, 0, &crop));
    print_row(s, "crop", 1, &crop);
    ZONAL_TRY(time_loading(s, path, (int)s->threads, 0, &load));
    print_row(s, "loader", zonal__pool_workers((int)s->threads), &load);
    ZONAL_TRY(time_loading(s, path, (int)s->threads, 1, &streamed));
    print_row(s, "stream", zonal__pool_workers((int)s->threads), &streamed);
    return ZONAL_OK;
}

int zonal__cli_bench_data(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    zonal__cli_show_log(s.json);
    if (run(&s, options.arguments[0]) != ZONAL_OK) return zonal__cli_failed();
    return ZONAL__EXIT_OK;
}
