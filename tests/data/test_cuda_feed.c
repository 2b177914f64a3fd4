/*
 * Views on the GPU, fed step by step, against the loader's on the host: the same samples and
 * labels, the same images to 1/255, whether the source is resident or streamed. Skipped where
 * there is no GPU, unless ZONAL_REQUIRE_GPU is set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "backend/training/tables.h"
#include "core/memory.h"
#include "data/codec.h"
#include "data/feed.h"
#include "gpu.h"

enum { BATCH = 12, SIDE = 40, LOCAL = 24, STEPS = 9 };

static int no_gpu(void) {
    return gpu_is_missing(gpu_device() != NULL);
}

typedef struct augmentations {
    zonal__augmentation global[2], local[3];
} augmentations;

static zonal__loader_options options_for(zonal__source *source, augmentations *l, int photographs) {
    for (int v = 0; v < 2; v++) {
        if (photographs)
            zonal__augmentation_byol(v, &l->global[v]);
        else
            zonal__augmentation_texture(&l->global[v]);
    }
    for (int v = 0; v < 3; v++) {
        if (photographs)
            zonal__augmentation_local(&l->local[v]);
        else
            zonal__augmentation_texture(&l->local[v]);
    }
    return (zonal__loader_options){
        .source = source,
        .batch = BATCH,
        .groups = 2,
        .group =
            {{.views = 2, .width = SIDE, .height = SIDE, .augmentations = l->global},
             {.views = 3, .width = LOCAL, .height = LOCAL, .augmentations = l->local, .first = 2}},
        .channels = photographs ? 3 : 1,
        .seed = test_seed};
}

/* The largest difference between one group's views on the host and on the device. */
static double largest_difference(const zonal__loader_options *o, int g, const zonal__batch *host,
                                 const zonal__batch *device) {
    const zonal__view_group *group = &o->group[g];
    size_t n = (size_t)(group->views * host->count * group->width * group->height * o->channels);
    float *there = malloc(n * sizeof *there);
    const float *here = host->views[g];
    double worst = 0;
    if (!CHECK_OK(zonal__device_read(gpu_device(), there, device->views[g], n * sizeof *there)))
        worst = INFINITY;
    for (size_t i = 0; i < n && worst < INFINITY; i++) {
        double e = fabs((double)there[i] - here[i]);
        worst = !(e <= worst) ? e : worst;
    }
    free(there);
    return worst;
}

/* Images of one size and of three classes, of which one is corrupt. */
enum { MADE_UP = 50, CORRUPT = 11, MADE_UP_SIDE = 32 };

static zonal_status read_made_up(zonal__source *source, int64_t index, zonal__image *out) {
    (void)source;
    if (index == CORRUPT) return ZONAL_FAIL(ZONAL_FORMAT, "image %d is torn", (int)index);
    ZONAL_TRY(zonal__image_shape(out, MADE_UP_SIDE, MADE_UP_SIDE, 1));
    for (int64_t i = 0; i < MADE_UP_SIDE * MADE_UP_SIDE; i++)
        out->pixels[i] = (uint8_t)((index * 7 + i * 3) % 251);
    return ZONAL_OK;
}

static void check_steps(zonal__source *source, int photographs,
                        zonal__data_location data_location) {
    augmentations l;
    zonal__feed_options options = {.device = gpu_device(),
                                   .loader = options_for(source, &l, photographs),
                                   .data_location = data_location};
    zonal__loader *loader;
    zonal__feed *feed;
    void *stream = NULL;
    if (!CHECK_OK(zonal__loader_create(&options.loader, &loader))) return;
    if (CHECK_OK(zonal__feed_create(&options, &feed)) &&
        CHECK_OK(zonal__device_stream_create(gpu_device(), &stream))) {
        CHECK(zonal__feed_is_resident(feed) == (data_location == ZONAL__DATA_ON_DEVICE));
        for (int step = 0; step < STEPS; step++) {
            const zonal__batch *host, *device;
            if (!CHECK_OK(zonal__loader_next(loader, &host)) ||
                !CHECK_OK(zonal__feed_next(feed, stream, &device)) ||
                !CHECK_OK(zonal__device_synchronise(gpu_device())))
                break;
            CHECK(host->step == device->step && host->count == device->count);
            CHECK(memcmp(host->samples, device->samples, (size_t)host->count * 8) == 0);
            if (host->labels && CHECK(device->labels != NULL))
                CHECK(memcmp(host->labels, device->labels, (size_t)host->count * 4) == 0);
            for (int g = 0; g < 2; g++) {
                double worst = largest_difference(&options.loader, g, host, device);
                CHECK_MSG(worst <= 1.0 / 255, "step %d, group %d: off by %.3g of 1/255", step, g,
                          worst * 255);
            }
        }
    }
    zonal__feed_destroy(feed);
    zonal__device_stream_destroy(gpu_device(), stream);
    zonal__loader_destroy(loader);
}

/* Bytes of a step's views in group 0. */
static size_t bytes_of(const zonal__loader_options *o) {
    const zonal__view_group *group = &o->group[0];
    return sizeof(float) *
           (size_t)(group->views * o->batch * group->width * group->height * o->channels);
}

/* Copies the views of "count" steps to "kept", each many times, so that the next ones are there
 * before the last copy is done. Nothing waits for the device meanwhile. */
static zonal_status keep_steps(zonal__feed *feed, const zonal__loader_options *o, void *stream,
                               int64_t first, int count, char *kept) {
    const zonal__batch *batch;
    int turn;
    for (int step = 0; step < count; step++) {
        ZONAL_TRY(zonal__feed_prepare(feed, stream, &batch, &turn));
        CHECK(batch->step == first + step && turn == (first + step) % ZONAL__FEED_TURNS);
        for (int again = 0; again < 50; again++)
            ZONAL_TRY(zonal__device_copy_on(gpu_device(), stream, kept + step * bytes_of(o),
                                            batch->views[0], bytes_of(o)));
        ZONAL_TRY(zonal__feed_release(feed, stream));
    }
    return zonal__device_synchronise(gpu_device());
}

/* The same steps one by one. */
static void compare_steps(zonal__feed *feed, const zonal__loader_options *o, int count,
                          const char *kept) {
    const zonal__batch *batch;
    char *x = malloc(bytes_of(o)), *y = malloc(bytes_of(o));
    for (int step = 0; step < count; step++) {
        if (!CHECK_OK(zonal__feed_next(feed, NULL, &batch)) ||
            !CHECK_OK(zonal__device_read(gpu_device(), x, batch->views[0], bytes_of(o))) ||
            !CHECK_OK(zonal__device_read(gpu_device(), y, kept + step * bytes_of(o), bytes_of(o))))
            break;
        CHECK_MSG(memcmp(x, y, bytes_of(o)) == 0, "step %d: ahead are other views",
                  (int)batch->step);
    }
    free(x);
    free(y);
}

/* One feed ahead, the other not; in between both go elsewhere. */
static void check_ahead(zonal__source *source, zonal__data_location data_location) {
    enum { KEPT = 5 };
    static const int64_t places[] = {0, 7, 2};
    augmentations l;
    zonal__feed_options options = {.device = gpu_device(),
                                   .loader = options_for(source, &l, 0),
                                   .data_location = data_location};
    const zonal__loader_options *o = &options.loader;
    zonal__feed *ahead = NULL, *usual = NULL;
    void *stream = NULL, *kept = NULL;
    if (!CHECK_OK(zonal__feed_create(&options, &usual))) return;
    options.ahead = 1;
    if (CHECK_OK(zonal__feed_create(&options, &ahead)) &&
        CHECK_OK(zonal__device_stream_create(gpu_device(), &stream)) &&
        CHECK_OK(zonal__device_alloc(gpu_device(), KEPT * bytes_of(o), "views", &kept)))
        for (int i = 0; i < 3; i++) {
            if (!CHECK_OK(zonal__feed_seek(ahead, places[i])) ||
                !CHECK_OK(zonal__feed_seek(usual, places[i])) ||
                !CHECK_OK(keep_steps(ahead, o, stream, places[i], KEPT, kept)))
                break;
            compare_steps(usual, o, KEPT, kept);
        }
    zonal__feed_destroy(ahead);
    zonal__feed_destroy(usual);
    zonal__device_free(gpu_device(), kept);
    zonal__device_stream_destroy(gpu_device(), stream);
}

static void test_ahead(void) {
    const zonal__source_options options = {.path = "textures:disk",
                                           .split = ZONAL__SPLIT_TRAIN,
                                           .texture_count = 50,
                                           .texture_size = 64};
    zonal__source *source;
    if (no_gpu() || !CHECK_OK(zonal__source_open(&options, &source))) return;
    check_ahead(source, ZONAL__DATA_ON_DEVICE);
    check_ahead(source, ZONAL__DATA_ON_HOST);
    zonal__source_close(source);
}

static void check_both(const char *path, int channels, int photographs) {
    const zonal__source_options options = {.path = path,
                                           .split = ZONAL__SPLIT_TRAIN,
                                           .channels = channels,
                                           .texture_count = 50,
                                           .texture_size = 64};
    zonal__source *source;
    if (!CHECK_OK(zonal__source_open(&options, &source))) return;
    check_steps(source, photographs, ZONAL__DATA_ON_DEVICE);
    check_steps(source, photographs, ZONAL__DATA_ON_HOST);
    zonal__source_close(source);
}

static void test_textures(void) {
    if (no_gpu()) return;
    check_both("textures:disk", 1, 0);
}

static void test_photographs(void) {
    if (no_gpu()) return;
    check_both("textures:cloud", 3, 1);
}

static void test_corrupt(void) {
    static const zonal__source_table table = {.kind = "made up", .read = read_made_up};
    int32_t labels[MADE_UP];
    zonal__source source = {.table = &table,
                            .count = MADE_UP,
                            .labels = labels,
                            .classes = 3,
                            .width = MADE_UP_SIDE,
                            .height = MADE_UP_SIDE,
                            .channels = 1,
                            .path = "made-up",
                            .max_corrupt = 0.5};
    if (no_gpu()) return;
    for (int i = 0; i < MADE_UP; i++) labels[i] = i % 3;
    check_steps(&source, 0, ZONAL__DATA_ON_DEVICE);
    check_steps(&source, 0, ZONAL__DATA_ON_HOST);
    CHECK(source.bad == 1);
    zonal__free((void *)source.known_bad); /* all that a source without a file has taken */
}

/* Images over the largest side are shrunk alike in all places. */
enum { LARGE = 1024 };

static zonal_status read_large(zonal__source *source, int64_t index, zonal__image *out) {
    ZONAL_TRY(zonal__image_shape(out, LARGE, LARGE * 3 / 4, 3));
    (void)source;
    for (int64_t i = 0; i < LARGE * (LARGE * 3 / 4) * 3; i++)
        out->pixels[i] = (uint8_t)((index * 7 + i * i % 1021 + i / 3072 * 5) % 251);
    return ZONAL_OK;
}

static void test_large(void) {
    static const zonal__source_table table = {.kind = "made up", .read = read_large};
    zonal__source source = {.table = &table,
                            .count = 2 * BATCH,
                            .width = LARGE,
                            .height = LARGE * 3 / 4,
                            .channels = 3,
                            .path = "made-up",
                            .max_corrupt = 0.5};
    if (no_gpu()) return;
    check_steps(&source, 1, ZONAL__DATA_ON_DEVICE);
    check_steps(&source, 1, ZONAL__DATA_ON_HOST);
}

static void test_refusals(void) {
    zonal__source_options options = {.path = "textures:disk", .texture_count = 20};
    zonal__source *source;
    augmentations l;
    zonal__feed *feed;
    if (!CHECK_OK(zonal__source_open(&options, &source))) return;
    zonal__feed_options feeding = {.device = gpu_device(), .loader = options_for(source, &l, 0)};
    feeding.loader.batch = 1000;
    zonal_status status = zonal__feed_create(&feeding, &feed);
    CHECK(status != ZONAL_OK && feed == NULL && zonal_last_error()->message[0]);
    zonal__source_close(source);
}

/* ---- the GPU's JPEG decoder ------------------------------------------------------------------ */

enum { JPEG_LARGEST = 4096, JPEG_FILES = 3, JPEG_BYTES = 32 * 16 * 3 };

static size_t load_jpeg(unsigned char file[JPEG_LARGEST]) {
    char path[1024];
    FILE *stream;
    size_t count;
    snprintf(path, sizeof path, "%s/data/images/colour.jpg", ZONAL_TESTS_DIR);
    stream = fopen(path, "rb");
    if (!CHECK(stream != NULL)) return 0;
    count = fread(file, 1, JPEG_LARGEST, stream);
    fclose(stream);
    return count;
}

/* Three times the same file into one array, so that an image that is written beyond its end shows;
 * ZONAL_FORMAT where the decoder does not take files of that kind. */
static zonal_status decode_three(const zonal__jpeg_table *table, zonal__jpeg_engine *engine,
                                 const unsigned char *file, size_t size,
                                 uint8_t out[JPEG_FILES * JPEG_BYTES]) {
    zonal__jpeg_file files[JPEG_FILES];
    zonal_status status;
    void *memory;
    ZONAL_TRY(zonal__device_alloc(gpu_device(), JPEG_FILES * JPEG_BYTES, "images", &memory));
    for (int i = 0; i < JPEG_FILES; i++)
        files[i] =
            (zonal__jpeg_file){file, size, (uint8_t *)memory + (size_t)i * JPEG_BYTES, 32, 16};
    status = table->decode(engine, NULL, JPEG_FILES, files);
    if (status == ZONAL_OK) status = zonal__device_synchronise(gpu_device());
    if (status == ZONAL_OK)
        status = zonal__device_read(gpu_device(), out, memory, JPEG_FILES * JPEG_BYTES);
    zonal__device_free(gpu_device(), memory);
    return status;
}

static void check_decoded(const zonal__jpeg_table *table, zonal__jpeg_engine *engine,
                          unsigned char *file, size_t size, const zonal__image *want) {
    static uint8_t got[JPEG_FILES * JPEG_BYTES], again[JPEG_FILES * JPEG_BYTES];
    zonal_status status;
    if (!CHECK(want->width == 32 && want->height == 16)) return;
    status = decode_three(table, engine, file, size, got);
    if (status == ZONAL_FORMAT) {
        test_skip("this decoder takes no image of 32 x 16");
        return;
    }
    if (!CHECK_OK(status)) return;
    for (int i = 0; i < JPEG_FILES * JPEG_BYTES; i++)
        if (!CHECK_MSG(abs(got[i] - want->pixels[i % JPEG_BYTES]) <= 4, "element %d: %d for %d", i,
                       got[i], want->pixels[i % JPEG_BYTES]))
            break;
    memset(file + size / 2, 0x5a, size / 2 - 2); /* whatever it makes of it, it goes on */
    zonal_status damaged = decode_three(table, engine, file, size, again);
    CHECK(damaged == ZONAL_OK || damaged == ZONAL_FORMAT);
    if (load_jpeg(file) == size && CHECK_OK(decode_three(table, engine, file, size, again)))
        CHECK(memcmp(got, again, sizeof got) == 0);
}

static void test_jpeg(void) {
    const zonal__jpeg_table *table;
    zonal__jpeg_engine *engine = NULL;
    zonal__decoder *decoder = NULL;
    zonal__image want = {0};
    unsigned char file[JPEG_LARGEST];
    size_t size;
    if (no_gpu() || !CHECK_OK(zonal__device_jpeg(gpu_device(), &table))) return;
    if (table->create(gpu_device(), &engine) == ZONAL_UNSUPPORTED) {
        test_skip(zonal_last_error()->message);
        return;
    }
    size = load_jpeg(file);
    if (CHECK(engine != NULL) && size > 0 && CHECK_OK(zonal__decoder_create(&decoder)) &&
        CHECK_OK(zonal__image_decode(decoder, file, size, "colour.jpg", NULL, &want)))
        check_decoded(table, engine, file, size, &want);
    zonal__image_fini(&want);
    zonal__decoder_destroy(decoder);
    table->destroy(engine);
}

static const test_case tests[] = {{"textures", test_textures},       {"jpeg", test_jpeg},
                                  {"photographs", test_photographs}, {"large", test_large},
                                  {"corrupt", test_corrupt},         {"ahead", test_ahead},
                                  {"refusals", test_refusals},       {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
