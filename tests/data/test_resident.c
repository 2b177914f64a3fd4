/*
 * Images of 1024 pixels give the same views wherever they lie: on the host, in a streamed batch and
 * resident. Host, streamed and resident images go through the functions that the device's feed uses
 * (data/feed.c), with ordinary memory in the place of the device's; tests/data/test_cuda_feed.c
 * compares with the views of a GPU.
 */
#include <stdlib.h>

#include "core/memory.h"
#include "data/loader.h"
#include "data/pack.h"
#include "data/resident.h"
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"

enum { COUNT = 6, BATCH = 3, STEPS = 3, SIDE = 32, LARGE = 1024, LIMIT = 512 };

/* ---- a source of large images ---------------------------------------------------------------- */

typedef struct large {
    zonal__source source;
    int varied;  /* sizes differ */
    int corrupt; /* -1: none is */
} large;

static void size_of(const large *l, int64_t index, int *width, int *height) {
    static const int sizes[3][2] = {{LARGE, 640}, {300, LARGE}, {200, 100}};
    *width = l->varied ? sizes[index % 3][0] : LARGE;
    *height = l->varied ? sizes[index % 3][1] : 640;
}

static void paint(int64_t index, zonal__image *image) {
    int64_t n = (int64_t)image->width * image->height * image->channels;
    uint32_t state = (uint32_t)index * 2654435761u + 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        image->pixels[i] = (uint8_t)(state >> 24);
    }
}

static zonal_status read_large(zonal__source *source, int64_t index, zonal__image *out) {
    const large *l = (const large *)source;
    int width, height;
    if (index == l->corrupt) return ZONAL_FAIL(ZONAL_FORMAT, "image %d is torn", (int)index);
    size_of(l, index, &width, &height);
    ZONAL_TRY(zonal__image_shape(out, width, height, 3));
    paint(index, out);
    return ZONAL_OK;
}

static const zonal__source_table large_table = {.kind = "made up", .read = read_large};

static large make_large(int varied) {
    return (large){.source = {.table = &large_table,
                              .count = COUNT,
                              .width = varied ? 0 : LARGE,
                              .height = varied ? 0 : 640,
                              .channels = 3,
                              .path = "made-up",
                              .max_corrupt = 0.5},
                   .varied = varied,
                   .corrupt = -1};
}

static zonal__augmentation byol[2];

static zonal__loader_options options_for(zonal__source *source) {
    for (int v = 0; v < 2; v++) zonal__augmentation_byol(v, &byol[v]);
    return (zonal__loader_options){
        .source = source,
        .batch = BATCH,
        .groups = 1,
        .group = {{.views = 2, .width = SIDE, .height = SIDE, .augmentations = byol}},
        .channels = 3,
        .seed = test_seed,
        .workers = 2};
}

/* ---- the same views -------------------------------------------------------------------------- */

static zonal_status write_memory(void *context, size_t offset, const void *bytes, size_t n) {
    memcpy((uint8_t *)context + offset, bytes, n);
    return ZONAL_OK;
}

/* Fills a block of ordinary memory, with a byte behind it that must stay as it is. */
static uint8_t *load_resident(zonal__source *source, int max_side, zonal__resident *resident) {
    uint8_t *block = NULL;
    if (!CHECK_OK(zonal__resident_init(source, max_side, resident)) || resident->bytes == 0)
        return NULL;
    block = malloc(resident->bytes + 1);
    const zonal__resident_sink sink = {.write = write_memory, .context = block};
    block[resident->bytes] = 77;
    CHECK_OK(zonal__resident_load(resident, 2, &sink));
    CHECK(block[resident->bytes] == 77);
    return block;
}

static void run_views(const zonal__loader_options *o, int longest, const uint8_t *pixels,
                      const zonal__image_place *places, const zonal__view *parameters, float *out) {
    zonal__views_spec spec;
    zonal__views *engine;
    zonal__loader_views_spec(o, 0, longest, 2 * BATCH, &spec);
    if (!CHECK_OK(zonal__views_cpu()->create(&spec, &engine))) return;
    CHECK_OK(zonal__views_cpu()->run(engine, pixels, places, parameters, 2 * BATCH, out));
    zonal__views_cpu()->destroy(engine);
}

enum { ELEMENTS = 2 * BATCH * SIDE * SIDE * 3 };

/* The views of a step as the feed draws them of resident images. */
static void run_resident(const zonal__loader_options *o, const zonal__batch *batch,
                         const zonal__resident *r, const uint8_t *block, float *out) {
    zonal__view parameters[2 * BATCH];
    for (int64_t i = 0; i < BATCH; i++) {
        int64_t sample = r->numbers[batch->samples[i]];
        const zonal__image_place *p = &r->places[sample];
        zonal__view_group_draw(&o->group[0], o->seed, batch->epoch, sample, p->width, p->height,
                               (int32_t)sample, BATCH, parameters + i);
    }
    run_views(o, r->longest, block, r->places, parameters, out);
}

static int same_image(const zonal__image_place *a, const uint8_t *x, const zonal__image_place *b,
                      const uint8_t *y) {
    size_t bytes = (size_t)a->width * (size_t)a->height * (size_t)a->channels;
    return a->width == b->width && a->height == b->height && a->channels == b->channels &&
           memcmp(x + a->offset, y + b->offset, bytes) == 0;
}

static void check_step(const zonal__loader_options *o, int longest, const zonal__batch *host,
                       const zonal__batch *streamed, const zonal__resident *r,
                       const uint8_t *block) {
    float *out = malloc(ELEMENTS * sizeof *out);
    CHECK(memcmp(host->samples, streamed->samples, BATCH * sizeof *host->samples) == 0);
    run_views(o, longest, streamed->pixels, streamed->places, streamed->parameters[0], out);
    CHECK_MSG(memcmp(out, host->views[0], ELEMENTS * sizeof *out) == 0,
              "step %d: streamed images make other views", (int)host->step);
    if (block) {
        for (int64_t i = 0; i < BATCH; i++)
            CHECK(same_image(&streamed->places[i], streamed->pixels,
                             &r->places[streamed->samples[i]], block));
        run_resident(o, host, r, block, out);
        CHECK_MSG(memcmp(out, host->views[0], ELEMENTS * sizeof *out) == 0,
                  "step %d: resident images make other views", (int)host->step);
    }
    free(out);
}

/* "resident" says whether the source can be. */
static void check_same(zonal__source *source, int max_side, int resident) {
    zonal__loader_options options = options_for(source);
    zonal__loader *host = NULL, *streamed = NULL;
    zonal__resident r;
    uint8_t *block;
    options.max_side = max_side;
    block = load_resident(source, zonal__loader_max_side(&options), &r);
    CHECK((block != NULL) == resident);
    zonal__loader_options raw = options;
    raw.raw = 1;
    if (CHECK_OK(zonal__loader_create(&options, &host)) &&
        CHECK_OK(zonal__loader_create(&raw, &streamed)))
        for (int step = 0; step < STEPS; step++) {
            const zonal__batch *a, *b;
            if (!CHECK_OK(zonal__loader_next(host, &a)) ||
                !CHECK_OK(zonal__loader_next(streamed, &b)))
                break;
            check_step(&options, zonal__loader_longest(streamed), a, b, &r, block);
            for (int i = 0; i < BATCH; i++)
                CHECK(b->places[i].width <= zonal__loader_max_side(&options) &&
                      b->places[i].height <= zonal__loader_max_side(&options));
        }
    zonal__loader_destroy(host);
    zonal__loader_destroy(streamed);
    zonal__resident_fini(&r);
    free(block);
}

static void test_one_size(void) {
    large l = make_large(0);
    check_same(&l.source, 0, 1);
    check_same(&l.source, 100, 1);
    check_same(&l.source, 4096, 1);
}

static void test_sizes(void) {
    large l = make_large(1);
    check_same(&l.source, 0, 0);
}

static void test_corrupt(void) {
    large l = make_large(0);
    l.corrupt = 4;
    check_same(&l.source, 0, 1);
    zonal__free((void *)l.source.known_bad); /* all that a source without a file has taken */
}

/* ---- packs ----------------------------------------------------------------------------------- */

/* Large ones, and small ones alone; "grey" are every other of them. */
static int write_pack(test_folder *folder, int small, int grey) {
    const large l = make_large(1);
    zonal__pack_options options = {0};
    zonal__pack_writer *writer;
    zonal__image image = {0};
    if (!CHECK(test_folder_make(folder)) ||
        !CHECK_OK(zonal__pack_create(test_folder_file(folder, "x"), &options, &writer)))
        return 0;
    for (int i = 0; i < COUNT; i++) {
        int width, height;
        size_of(&l, i, &width, &height);
        if (!CHECK_OK(zonal__image_shape(&image, small ? 40 + i : width, small ? 30 : height,
                                         grey && i % 2 ? 1 : 3)))
            break;
        paint(i, &image);
        CHECK_OK(zonal__pack_add(writer, &image, 0, ZONAL__SPLIT_ALL));
    }
    zonal__image_fini(&image);
    return CHECK_OK(zonal__pack_commit(writer));
}

static void check_pack(int small, int grey, int whole_file) {
    zonal__source_options options = {.channels = 3};
    zonal__source *source;
    zonal__resident r;
    test_folder folder;
    if (!write_pack(&folder, small, grey)) return;
    options.path = folder.name;
    if (CHECK_OK(zonal__source_open(&options, &source))) {
        check_same(source, 0, 1);
        CHECK_OK(zonal__resident_init(source, LIMIT, &r));
        CHECK(r.whole_file == whole_file);
        zonal__resident_fini(&r);
    }
    zonal__source_close(source);
    test_folder_remove(&folder);
}

static void test_pack(void) {
    check_pack(0, 0, 0);
    check_pack(1, 0, 1);
}

/* Grey images are made colour as they are read, and so they are resident. */
static void test_pack_converted(void) {
    check_pack(1, 1, 0);
    check_pack(0, 1, 0);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static zonal_status count_write(void *context, size_t offset, const void *bytes, size_t n) {
    int64_t *seen = context; /* writes, and the bytes of all of them, in order */
    (void)bytes;
    CHECK(offset == (size_t)seen[1]);
    seen[0]++;
    seen[1] += (int64_t)n;
    return ZONAL_OK;
}

/* A device is written to 16 MiB at a time: once for 20 small images, thrice for as many of 1.9 MiB,
 * of which 8 fit. */
static void test_pieces(void) {
    for (int max_side = 64; max_side <= 4096; max_side *= 64) {
        large l = make_large(0);
        int64_t seen[2] = {0};
        zonal__resident r;
        l.source.count = 20;
        const zonal__resident_sink sink = {.write = count_write, .context = seen};
        if (!CHECK_OK(zonal__resident_init(&l.source, max_side, &r))) return;
        CHECK_OK(zonal__resident_load(&r, 2, &sink));
        CHECK(seen[1] == (int64_t)r.bytes);
        CHECK_MSG(seen[0] == (max_side == 64 ? 1 : 3), "%d writes", (int)seen[0]);
        zonal__resident_fini(&r);
    }
}

/* ---- the limit ------------------------------------------------------------------------------- */

static void test_default(void) {
    large l = make_large(0);
    zonal__loader_options options = options_for(&l.source);
    CHECK(zonal__loader_max_side(&options) == LIMIT);
    options.raw = 1;
    CHECK(zonal__loader_max_side(&options) == LIMIT);
    options.group[0].height = 384;
    CHECK(zonal__loader_max_side(&options) == 768);
    options.max_side = 5;
    CHECK(zonal__loader_max_side(&options) == 5);
    CHECK(zonal__max_side(224) == LIMIT && zonal__max_side(1024) == 2048);
}

static void test_limited_size(void) {
    static const int cases[][5] = {/* limit, before, after */
                                   {512, 1024, 640, 512, 320}, {512, 640, 1024, 320, 512},
                                   {512, 512, 512, 512, 512},  {512, 513, 513, 512, 512},
                                   {512, 1000, 3, 512, 2},     {512, 4000, 1, 512, 1},
                                   {512, 20, 10, 20, 10},      {1, 7, 900, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int width = cases[i][1], height = cases[i][2];
        zonal__image_limited_size(cases[i][0], &width, &height);
        CHECK_MSG(width == cases[i][3] && height == cases[i][4], "%d x %d becomes %d x %d",
                  cases[i][1], cases[i][2], width, height);
    }
}

/* A ramp stays one: the filter is symmetric, so away from the border it gives the ramp's value at
 * the centre of each result pixel, 2 o + 1/2 in source pixels, rounded. */
static void test_limit_is_an_average(void) {
    zonal__image image = {0}, spare = {0};
    zonal__resampler resampler = {0};
    if (!CHECK_OK(zonal__image_shape(&image, 250, 4, 1))) return;
    for (int i = 0; i < 1000; i++) image.pixels[i] = (uint8_t)(i % 250);
    CHECK_OK(zonal__image_limit(&resampler, 125, &spare, &image));
    if (CHECK(image.width == 125 && image.height == 2 && spare.width == 250))
        for (int o = 2; o < 123; o++)
            CHECK_MSG(abs(2 * image.pixels[125 + o] - (4 * o + 1)) <= 1, "pixel %d is %d", o,
                      image.pixels[125 + o]);
    CHECK_OK(zonal__image_limit(&resampler, 125, &spare, &image));
    CHECK(image.width == 125 && image.height == 2);
    zonal__image_fini(&image);
    zonal__image_fini(&spare);
    zonal__resampler_fini(&resampler);
}

/* ---- trouble --------------------------------------------------------------------------------- */

static int stop_at_three(void *context, int64_t done) {
    *(int64_t *)context = done;
    return done == 3;
}

static void test_stopped(void) {
    large l = make_large(0);
    int64_t done = 0;
    zonal__resident r;
    if (!CHECK_OK(zonal__resident_init(&l.source, 64, &r))) return;
    uint8_t *block = malloc(r.bytes);
    const zonal__resident_sink sink = {.write = write_memory,
                                       .context = block,
                                       .progress = stop_at_three,
                                       .progress_context = &done};
    CHECK_FAILS(zonal__resident_load(&r, 1, &sink), ZONAL_CANCELLED, "stopped");
    CHECK(done == 3);
    zonal__resident_fini(&r);
    free(block);
}

static zonal_status load_all(void *context) {
    large l = make_large(0);
    zonal__resident r;
    zonal_status status = zonal__resident_init(&l.source, 16, &r);
    const zonal__resident_sink sink = {.write = write_memory, .context = context};
    if (status == ZONAL_OK) status = zonal__resident_load(&r, 1, &sink);
    zonal__resident_fini(&r);
    return status;
}

static void test_allocations(void) {
    static uint8_t block[COUNT * 16 * 16 * 3];
    test_every_allocation("resident images", load_all, block);
}

static const test_case tests[] = {{"one_size", test_one_size},
                                  {"sizes", test_sizes},
                                  {"corrupt", test_corrupt},
                                  {"pack", test_pack},
                                  {"pack_converted", test_pack_converted},
                                  {"pieces", test_pieces},
                                  {"default", test_default},
                                  {"limited_size", test_limited_size},
                                  {"limit_is_an_average", test_limit_is_an_average},
                                  {"stopped", test_stopped},
                                  {"allocations", test_allocations},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
