/*
 * The data side from a command line, for tests whose oracle is Python (readers_test.py):
 *
 *     data_tool dump PATH SPLIT CHANNELS SEED OUT     the source's fields; the images go to OUT
 *     data_tool describe PATH WORKERS                 what zonal__describe finds
 *     data_tool pack PATH FIT SIDE OUT                a pack of all images, as one split
 *     data_tool resample IN WIDTH HEIGHT CHANNELS TO_WIDTH TO_HEIGHT OUT
 *     data_tool allocations PATH                      opens and reads with allocations that fail
 *
 * Numbers are those of the enums. Answers are lines "key value ..."; a failure is the two lines
 * "status NAME" and "sentence ..." and exit status 1.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/describe.h"
#include "data/pack.h"
#include "failing_alloc.h"
#include "test.h"

static size_t bytes_of(const zonal__image *image) {
    return (size_t)image->width * (size_t)image->height * (size_t)image->channels;
}

/* ---- dump ------------------------------------------------------------------------------------ */

static void print_fields(const zonal__source *source) {
    printf("kind %s\ncount %" PRId64 "\nclasses %d\nsize %d %d %d\n", source->table->kind,
           source->count, source->classes, source->width, source->height, source->channels);
    for (int c = 0; source->class_names && c < source->classes; c++)
        printf("name %s\n", source->class_names[c]);
    printf("labels");
    for (int64_t i = 0; source->labels && i < source->count; i++) printf(" %d", source->labels[i]);
    printf("\norder");
    for (int64_t i = 0; source->order && i < source->count; i++)
        printf(" %" PRId64, source->order[i]);
    printf("\n");
}

static zonal_status dump_images(zonal__source *source, FILE *out) {
    zonal__image image = {0};
    zonal_status status = ZONAL_OK;
    for (int64_t i = 0; i < source->count && status == ZONAL_OK; i++) {
        status = zonal__source_read(source, i, &image);
        if (status != ZONAL_OK) break;
        printf("image %d %d %d\n", image.width, image.height, image.channels);
        fwrite(image.pixels, 1, bytes_of(&image), out);
    }
    zonal__image_fini(&image);
    return status;
}

static zonal_status dump(char **argument) {
    zonal__source_options options = {
        .path = argument[0],
        .split = (zonal__split)atoi(argument[1]),
        .channels = atoi(argument[2]),
        .seed = strtoull(argument[3], NULL, 10),
    };
    FILE *out = fopen(argument[4], "wb");
    zonal__source *source;
    zonal_status status = zonal__source_open(&options, &source);
    if (status == ZONAL_OK) {
        print_fields(source);
        status = dump_images(source, out);
    }
    zonal__source_close(source);
    fclose(out);
    return status;
}

/* ---- describe -------------------------------------------------------------------------------- */

static zonal_status describe(char **argument) {
    zonal__source_options from = {.path = argument[0]};
    zonal__describe_options options = {.workers = atoi(argument[1])};
    zonal__description d;
    zonal__source *source;
    zonal_status status;
    ZONAL_TRY(zonal__source_open(&from, &source));
    status = zonal__describe(source, &options, &d);
    if (status == ZONAL_OK) {
        printf("count %" PRId64 "\nchannels %d\ngrey %" PRId64 "\nbad %" PRId64 "\n", d.count,
               d.channels, d.grey, d.bad);
        printf("smallest %d %d\nlargest %d %d\ntypical %d %d\n", d.smallest.width,
               d.smallest.height, d.largest.width, d.largest.height, d.typical.width,
               d.typical.height);
        for (int c = 0; c < d.channels; c++) printf("channel %.17g %.17g\n", d.mean[c], d.std[c]);
        for (int c = 0; d.class_counts && c < source->classes; c++)
            printf("class %" PRId64 "\n", d.class_counts[c]);
        zonal__description_fini(&d);
    }
    zonal__source_close(source);
    return status;
}

/* ---- pack ------------------------------------------------------------------------------------ */

static zonal_status pack_all(zonal__source *source, zonal__pack_writer *writer) {
    zonal__image image = {0};
    zonal_status status = ZONAL_OK;
    for (int64_t i = 0; i < source->count && status == ZONAL_OK; i++) {
        status = zonal__source_read(source, i, &image);
        if (status == ZONAL_OK)
            status = zonal__pack_add(writer, &image, source->labels ? source->labels[i] : 0,
                                     ZONAL__SPLIT_ALL);
    }
    zonal__image_fini(&image);
    return status;
}

static zonal_status pack(char **argument) {
    zonal__source_options from = {.path = argument[0]};
    zonal__pack_options options = {.fit = (zonal__pack_fitting)atoi(argument[1]),
                                   .side = atoi(argument[2])};
    zonal__pack_writer *writer = NULL;
    zonal__source *source;
    zonal_status status;
    ZONAL_TRY(zonal__source_open(&from, &source));
    options.classes = source->classes;
    options.class_names = (const char *const *)source->class_names;
    status = zonal__pack_create(argument[3], &options, &writer);
    if (status == ZONAL_OK) status = pack_all(source, writer);
    if (status == ZONAL_OK)
        status = zonal__pack_commit(writer);
    else
        zonal__pack_abandon(writer);
    zonal__source_close(source);
    return status;
}

/* ---- resample -------------------------------------------------------------------------------- */

static zonal_status resample(char **argument) {
    zonal__image in = {0}, out = {0};
    zonal__resampler resampler = {0};
    FILE *from = fopen(argument[0], "rb"), *to = fopen(argument[6], "wb");
    zonal_status status =
        zonal__image_shape(&in, atoi(argument[1]), atoi(argument[2]), atoi(argument[3]));
    if (status == ZONAL_OK && fread(in.pixels, 1, bytes_of(&in), from) == bytes_of(&in))
        status = zonal__image_resample(&resampler, &in, atoi(argument[4]), atoi(argument[5]), &out);
    if (status == ZONAL_OK && out.pixels) fwrite(out.pixels, 1, bytes_of(&out), to);
    zonal__resampler_fini(&resampler);
    zonal__image_fini(&in);
    zonal__image_fini(&out);
    fclose(from);
    fclose(to);
    return status;
}

/* ---- allocations ----------------------------------------------------------------------------- */

static const char *allocations_path;

static zonal_status open_and_read(void *context) {
    zonal__source_options options = {.path = context, .split = ZONAL__SPLIT_TRAIN};
    zonal__image image = {0};
    zonal__source *source;
    zonal_status status;
    ZONAL_TRY(zonal__source_open(&options, &source));
    status = zonal__source_read(source, 0, &image);
    zonal__image_fini(&image);
    zonal__source_close(source);
    return status;
}

static void run_allocations(void) {
    test_every_allocation("a source", open_and_read, (void *)allocations_path);
}

static const test_case allocation_tests[] = {{"allocations", run_allocations}, {0}};

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int arguments;
        zonal_status (*run)(char **argument);
    } commands[] = {
        {"dump", 5, dump}, {"describe", 2, describe}, {"pack", 4, pack}, {"resample", 7, resample}};
    if (argc == 3 && strcmp(argv[1], "allocations") == 0) {
        allocations_path = argv[2];
        return test_main(1, argv, allocation_tests);
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (argc == 2 + commands[i].arguments && strcmp(argv[1], commands[i].name) == 0) {
            if (commands[i].run(argv + 2) == ZONAL_OK) return 0;
            printf("status %s\nsentence %s\n", zonal_status_name(zonal_last_error()->status),
                   zonal_last_error()->message);
            return 1;
        }
    fprintf(stderr, "data_tool: see the head of data_tool.c\n");
    return 2;
}
