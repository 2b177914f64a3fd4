/*
 * JPEG files of a folder that a GPU decodes: every kind that is left to it comes out as libjpeg's,
 * odd and damaged files go the way they go without it, and a step's images stay until its views are
 * made, however far the GPU is behind. Skipped where there is no GPU, or none with such decoders,
 * unless ZONAL_REQUIRE_GPU is set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "backend/training/tables.h"
#include "data/codec.h"
#include "data/feed.h"
#include "data/formats.h"
#include "folder.h"
#include "gpu.h"
#include "image_file.h"
#include "made_jpeg.h"

enum { BATCH = 16, SIDE = 64, STEPS = 8, VIEWS = 2 * BATCH * SIDE * SIDE * 3 };

/* The table, and an engine if wanted; 0: the test is over. */
static int have_decoder(const zonal__jpeg_table **table, zonal__jpeg_engine **engine) {
    if (gpu_is_missing(gpu_device() != NULL)) return 0;
    if (!CHECK_OK(zonal__device_jpeg(gpu_device(), table))) return 0;
    if ((*table)->create(gpu_device(), engine) == ZONAL_OK) return 1;
    test_skip(zonal_last_error()->message);
    return 0;
}

static unsigned char *make_file(const made_jpeg *j, size_t *size) {
    unsigned char *file = malloc(made_jpeg_most(j));
    *size = CHECK(file != NULL) ? made_jpeg_write(j, file) : 0;
    return file;
}

/* ---- every kind ------------------------------------------------------------------------------ */

static zonal_status decode_on_gpu(const zonal__jpeg_table *table, zonal__jpeg_engine *engine,
                                  const unsigned char *file, size_t size, zonal__image *out) {
    size_t bytes = (size_t)out->width * (size_t)out->height * 3;
    zonal_status status;
    void *memory;
    ZONAL_TRY(zonal__device_alloc(gpu_device(), bytes, "an image", &memory));
    status = table->decode(engine, NULL, 1,
                           &(zonal__jpeg_file){file, size, memory, out->width, out->height});
    if (status == ZONAL_OK) status = zonal__device_synchronise(gpu_device());
    if (status == ZONAL_OK) status = zonal__device_read(gpu_device(), out->pixels, memory, bytes);
    zonal__device_free(gpu_device(), memory);
    return status;
}

static int largest_difference(const zonal__image *a, const zonal__image *b) {
    int worst = 0;
    for (int64_t i = 0; i < (int64_t)a->width * a->height * 3; i++)
        if (abs(a->pixels[i] - b->pixels[i]) > worst) worst = abs(a->pixels[i] - b->pixels[i]);
    return worst;
}

static void check_kind(const zonal__jpeg_table *table, zonal__jpeg_engine *engine,
                       zonal__decoder *decoder, const made_jpeg *j) {
    zonal__image here = {0}, there = {0};
    size_t size;
    unsigned char *file = make_file(j, &size);
    zonal_status status = ZONAL_OK;
    CHECK(zonal__jpeg_is_plain(&(zonal__encoded){.bytes = file, .size = size, .name = "made"}));
    if (CHECK_OK(zonal__image_decode(decoder, file, size, "made", NULL, &here)) &&
        CHECK_OK(zonal__image_shape(&there, here.width, here.height, 3))) {
        status = decode_on_gpu(table, engine, file, size, &there);
        if (status == ZONAL_FORMAT)
            printf("  %d x %d, %d x %d pixels: refused\n", j->across, j->down, j->width, j->height);
        else if (CHECK_OK(status))
            CHECK_MSG(largest_difference(&here, &there) <= 3, "%d x %d, %d x %d pixels: off by %d",
                      j->across, j->down, j->width, j->height, largest_difference(&here, &there));
    }
    /* Tiny ones may be refused and are then libjpeg's; a photograph's size must not be. */
    CHECK(status == ZONAL_OK || j->width < 64);
    zonal__image_fini(&here);
    zonal__image_fini(&there);
    free(file);
}

static void test_kinds(void) {
    static const int sizes[][2] = {{500, 375}, {512, 512}, {375, 500}, {97, 65}, {64, 48},
                                   {32, 32},   {17, 9},    {8, 8},     {1, 1}};
    const zonal__jpeg_table *table;
    zonal__jpeg_engine *engine = NULL;
    zonal__decoder *decoder = NULL;
    if (!have_decoder(&table, &engine)) return;
    if (CHECK_OK(zonal__decoder_create(&decoder)))
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (int across = 1; across <= 2; across++)
                for (int down = 1; down <= 2; down++)
                    for (int restart = 0; restart <= 3; restart += 3)
                        check_kind(
                            table, engine, decoder,
                            &(made_jpeg){sizes[s][0], sizes[s][1], across, down, 5, restart});
    zonal__decoder_destroy(decoder);
    table->destroy(engine);
}

/* ---- a feed ---------------------------------------------------------------------------------- */

typedef struct feeding {
    zonal__source *source;
    zonal__augmentation augmentations[2];
    zonal__feed *feed;
    void *stream;
} feeding;

static zonal_status begin(feeding *f, const test_folder *folder, int device_decodes) {
    const zonal__source_options from = {.path = folder->path,
                                        .channels = 3,
                                        .max_corrupt = .2,
                                        .val_share = ZONAL__NO_SHARE,
                                        .test_share = ZONAL__NO_SHARE};
    *f = (feeding){0};
    ZONAL_TRY(zonal__source_open(&from, &f->source));
    for (int v = 0; v < 2; v++) zonal__augmentation_byol(v, &f->augmentations[v]);
    const zonal__feed_options options = {.device = gpu_device(),
                                         .device_decodes = device_decodes,
                                         .data_location = ZONAL__DATA_ON_HOST,
                                         .loader = {.source = f->source,
                                                    .batch = BATCH,
                                                    .groups = 1,
                                                    .group = {{.views = 2,
                                                               .width = SIDE,
                                                               .height = SIDE,
                                                               .augmentations = f->augmentations}},
                                                    .channels = 3,
                                                    .workers = 2,
                                                    .seed = test_seed}};
    ZONAL_TRY(zonal__device_stream_create(gpu_device(), &f->stream));
    return zonal__feed_create(&options, &f->feed);
}

static void end(feeding *f) {
    zonal__feed_destroy(f->feed);
    zonal__device_stream_destroy(gpu_device(), f->stream);
    zonal__source_close(f->source);
}

static void put(test_folder *folder, const char *name, const unsigned char *file, size_t size) {
    FILE *stream = fopen(test_folder_file(folder, name), "wb");
    if (!CHECK(stream != NULL)) return;
    CHECK(fwrite(file, 1, size, stream) == size);
    CHECK(fclose(stream) == 0);
}

static void put_made(test_folder *folder, const char *name, const made_jpeg *j) {
    size_t size;
    unsigned char *file = make_file(j, &size);
    put(folder, name, file, size);
    free(file);
}

/* Photographs' sizes, of all kinds in turn. */
static int fill_folder(test_folder *folder, int count) {
    char name[32];
    if (!CHECK(test_folder_make(folder))) return 0;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%02d.jpg", i);
        put_made(folder, name,
                 &(made_jpeg){500 - i, 375 + i, 1 + i % 2, 1 + i / 2 % 2, (unsigned)i, 0});
    }
    return 1;
}

/* ---- a GPU that is behind -------------------------------------------------------------------- */

enum { BLOCK = 1 << 28, BLOCKS = 60 };

/* Some ten milliseconds of work, before every step: decoding takes less. */
static zonal_status delay(void *stream, char *block) {
    for (int i = 0; i < BLOCKS; i++)
        ZONAL_TRY(zonal__device_copy_on(gpu_device(), stream, block, block + BLOCK, BLOCK));
    return ZONAL_OK;
}

/* The views of every step, in "out"; with a block the GPU is late, and nobody waits for it. */
static zonal_status run_steps(feeding *f, char *block, float *out) {
    const zonal__batch *batch;
    for (int step = 0; step < STEPS; step++) {
        if (block) ZONAL_TRY(delay(f->stream, block));
        ZONAL_TRY(zonal__feed_next(f->feed, f->stream, &batch));
        ZONAL_TRY(zonal__device_copy_on(gpu_device(), f->stream, out + (size_t)step * VIEWS,
                                        batch->views[0], VIEWS * sizeof *out));
        if (!block) ZONAL_TRY(zonal__device_synchronise(gpu_device()));
    }
    return zonal__device_synchronise(gpu_device());
}

static zonal_status all_views(const test_folder *folder, char *block, float *host) {
    const size_t bytes = (size_t)STEPS * VIEWS * sizeof *host;
    feeding f;
    void *views;
    zonal_status status;
    ZONAL_TRY(zonal__device_alloc(gpu_device(), bytes, "views", &views));
    status = begin(&f, folder, 1);
    if (status == ZONAL_OK) status = run_steps(&f, block, views);
    if (status == ZONAL_OK) status = zonal__device_read(gpu_device(), host, views, bytes);
    end(&f);
    zonal__device_free(gpu_device(), views);
    return status;
}

static void test_behind(void) {
    static float calm[STEPS * VIEWS], late[STEPS * VIEWS];
    const zonal__jpeg_table *table;
    zonal__jpeg_engine *engine = NULL;
    test_folder folder;
    void *block = NULL;
    if (!have_decoder(&table, &engine)) return;
    table->destroy(engine);
    if (!fill_folder(&folder, 5 * BATCH)) return;
    if (CHECK_OK(zonal__device_alloc(gpu_device(), 2 * (size_t)BLOCK, "a block", &block)) &&
        CHECK_OK(all_views(&folder, NULL, calm)) && CHECK_OK(all_views(&folder, block, late)))
        for (int step = 0; step < STEPS; step++)
            CHECK_MSG(memcmp(calm + (size_t)step * VIEWS, late + (size_t)step * VIEWS,
                             VIEWS * sizeof *calm) == 0,
                      "step %d is made of other images", step);
    zonal__device_free(gpu_device(), block);
    test_folder_remove(&folder);
}

/* ---- odd files ------------------------------------------------------------------------------- */

static void put_odd(test_folder *folder) {
    static const char *const odd[] = {"grey.jpg", "cmyk.jpg", "progressive.jpg", "turned.jpg"};
    const made_jpeg usual = {500, 375, 2, 2, 77, 0};
    size_t size;
    unsigned char *file = make_file(&usual, &size);
    image_file kept;
    put(folder, "cut.jpg", file, size * 2 / 3);
    put(folder, "end.jpg", file, size - 1);
    file[6] = 12; /* bits */
    put(folder, "deep.jpg", file, size);
    free(file);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        if (image_file_load(odd[i], &kept)) put(folder, odd[i], kept.at, kept.count);
    put_made(folder, "narrow.jpg", &(made_jpeg){400, 300, 4, 1, 78, 0}); /* 4:1:1 */
    put_made(folder, "large.jpg", &(made_jpeg){3000, 2000, 2, 2, 79, 0});
    put_made(folder, "tiny.jpg", &(made_jpeg){1, 1, 2, 2, 80, 0});
    put_made(folder, "long.jpg", &(made_jpeg){700, 16, 1, 1, 81, 0});
}

static double views_difference(const zonal__batch *here, const zonal__batch *there) {
    static float a[VIEWS], b[VIEWS];
    double worst = 0;
    if (!CHECK_OK(zonal__device_read(gpu_device(), a, here->views[0], sizeof a)) ||
        !CHECK_OK(zonal__device_read(gpu_device(), b, there->views[0], sizeof b)))
        return INFINITY;
    for (int i = 0; i < VIEWS; i++) {
        double e = fabs((double)a[i] - b[i]);
        worst = !(e <= worst) ? e : worst;
    }
    return worst;
}

/* Enough steps for every file to come. */
static void test_odd(void) {
    const zonal__jpeg_table *table;
    zonal__jpeg_engine *engine = NULL;
    feeding host = {0}, device = {0};
    test_folder folder;
    if (!have_decoder(&table, &engine)) return;
    table->destroy(engine);
    if (!fill_folder(&folder, 2 * BATCH)) return;
    put_odd(&folder);
    if (CHECK_OK(begin(&host, &folder, 0)) && CHECK_OK(begin(&device, &folder, 1)))
        for (int step = 0; step < 2 * STEPS; step++) {
            const zonal__batch *a, *b;
            if (!CHECK_OK(zonal__feed_next(host.feed, host.stream, &a)) ||
                !CHECK_OK(zonal__feed_next(device.feed, device.stream, &b)) ||
                !CHECK_OK(zonal__device_synchronise(gpu_device())))
                break;
            CHECK(a->count == BATCH && b->count == BATCH);
            CHECK(memcmp(a->samples, b->samples, BATCH * sizeof *a->samples) == 0);
            CHECK_MSG(views_difference(a, b) <= 6. / 255, "step %d: off by %.3g of 1/255", step,
                      255 * views_difference(a, b));
        }
    CHECK(host.source && device.source && host.source->bad == 3 && device.source->bad == 3);
    end(&host);
    end(&device);
    test_folder_remove(&folder);
}

static const test_case tests[] = {
    {"kinds", test_kinds}, {"behind", test_behind}, {"odd", test_odd}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
