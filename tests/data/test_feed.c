/*
 * JPEG files that a device decodes (src/data/feed.h), on a device that is made up: whoever decodes,
 * the views are the same to the bit, since the decoder is the same; odd files are decoded on the
 * host, damaged ones replaced, and what the device refuses is decoded after all or named.
 */

#include "../backend/fake_device.h"
#include "data/codec.h"
#include "data/feed.h"
#include "folder.h"
#include "image_file.h"
#include "made_jpeg.h"
#include "test.h"

enum { BATCH = 8, SIDE = 16, STEPS = 6, COPIES = 9 };

/* ---- a folder -------------------------------------------------------------------------------- */

static void put(test_folder *folder, const char *name, const image_file *file, size_t count) {
    FILE *stream = fopen(test_folder_file(folder, name), "wb");
    if (!CHECK(stream != NULL)) return;
    CHECK(fwrite(file->at, 1, count, stream) == count);
    CHECK(fclose(stream) == 0);
}

static void put_made(test_folder *folder, const char *name, const made_jpeg *j) {
    unsigned char *file = malloc(made_jpeg_most(j));
    FILE *stream = fopen(test_folder_file(folder, name), "wb");
    if (CHECK(file && stream)) {
        size_t count = made_jpeg_write(j, file);
        CHECK(fwrite(file, 1, count, stream) == count);
    }
    if (stream) CHECK(fclose(stream) == 0);
    free(file);
}

/* Plain files, odd ones, one that was cut off and one of 12 bits. */
static int fill_folder(test_folder *folder) {
    static const char *const odd[] = {"grey.jpg", "cmyk.jpg", "progressive.jpg", "turned.jpg"};
    static const made_jpeg made[] = {{60, 44, 2, 2, 1, 0},  {45, 61, 1, 1, 2, 3},
                                     {50, 50, 1, 2, 3, 0},  {51, 20, 2, 1, 4, 0},
                                     {50, 40, 4, 1, 5, 0},  /* 4:1:1 */
                                     {900, 40, 2, 2, 6, 0}, /* over the largest side */
                                     {1, 1, 2, 2, 7, 0}};
    image_file file;
    char name[32];
    if (!CHECK(test_folder_make(folder)) || !image_file_load("colour.jpg", &file)) return 0;
    for (int i = 0; i < COPIES; i++) {
        snprintf(name, sizeof name, "%d.jpg", i);
        put(folder, name, &file, file.count);
    }
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        snprintf(name, sizeof name, "made%zu.jpg", i);
        put_made(folder, name, &made[i]);
    }
    put(folder, "cut.jpg", &file, file.count - 10);
    file.count = made_jpeg_write(&made[0], file.at);
    file.at[6] = 12;
    put(folder, "deep.jpg", &file, file.count);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        if (image_file_load(odd[i], &file)) put(folder, odd[i], &file, file.count);
    return 1;
}

static int can_decode(void) {
    zonal__decoder *decoder;
    zonal__image image = {0};
    image_file file;
    zonal_status status = ZONAL_UNSUPPORTED;
    if (image_file_load("colour.jpg", &file) && CHECK_OK(zonal__decoder_create(&decoder))) {
        status = zonal__image_decode(decoder, file.at, file.count, "colour.jpg", NULL, &image);
        zonal__decoder_destroy(decoder);
    }
    zonal__image_fini(&image);
    return status == ZONAL_OK;
}

/* ---- a feed ---------------------------------------------------------------------------------- */

typedef struct feeding {
    zonal__source *source;
    zonal__augmentation augmentations[2];
    zonal__feed *feed;
} feeding;

static zonal_status begin(feeding *f, const test_folder *folder, int device_decodes) {
    const zonal__source_options from = {.path = folder->path,
                                        .channels = 3,
                                        .max_corrupt = .2,
                                        .val_share = ZONAL__NO_SHARE,
                                        .test_share = ZONAL__NO_SHARE};
    const zonal__device *device;
    *f = (feeding){0};
    ZONAL_TRY(zonal__device_open("fake:0", &device));
    ZONAL_TRY(zonal__source_open(&from, &f->source));
    for (int v = 0; v < 2; v++) zonal__augmentation_byol(v, &f->augmentations[v]);
    const zonal__feed_options options = {.device = device,
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
    return zonal__feed_create(&options, &f->feed);
}

static void end(feeding *f) {
    zonal__feed_destroy(f->feed);
    zonal__source_close(f->source);
}

static zonal_status next_views(feeding *f, float out[2 * BATCH * SIDE * SIDE * 3]) {
    const zonal__device *device;
    const zonal__batch *batch;
    ZONAL_TRY(zonal__device_open("fake:0", &device));
    ZONAL_TRY(zonal__feed_next(f->feed, NULL, &batch));
    return zonal__device_read(device, out, batch->views[0],
                              sizeof(float) * 2 * BATCH * SIDE * SIDE * 3);
}

/* The steps of both, side by side; from step 2 on the device refuses everything if asked to. */
static void check_steps(test_folder *folder, int refuses) {
    static float here[2 * BATCH * SIDE * SIDE * 3], there[2 * BATCH * SIDE * SIDE * 3];
    feeding host, device = {0};
    fake_jpeg = (fake_jpegs){0};
    if (CHECK_OK(begin(&host, folder, 0)) && CHECK_OK(begin(&device, folder, 1)))
        for (int step = 0; step < STEPS; step++) {
            fake_jpeg.refuses = refuses && step >= 2;
            if (!CHECK_OK(next_views(&host, here)) || !CHECK_OK(next_views(&device, there))) break;
            CHECK_MSG(memcmp(here, there, sizeof here) == 0, "step %d differs", step);
        }
    end(&host);
    end(&device);
    CHECK_MSG(fake_jpeg.decoded > (refuses ? 2 : STEPS), "%d files", fake_jpeg.decoded);
    CHECK(fake_count(0).pinned == 0 && fake_count(0).blocks == 0 && fake_count(0).events == 0);
}

/* ---- the cases ------------------------------------------------------------------------------- */

static void test_same_views(void) {
    test_folder folder;
    if (!can_decode()) {
        test_skip("this build reads no JPEG");
        return;
    }
    if (!fake_register() || !fill_folder(&folder)) return;
    check_steps(&folder, 0);
    check_steps(&folder, 1);
    test_folder_remove(&folder);
}

/* A file whose codes are damaged, which only shows when they are decoded: where the device refuses
 * it, so does the host, and the sentence names the file and the remedy. */
static int damage_codes(image_file *file) {
    const image_file sound = *file;
    zonal__decoder *decoder;
    zonal__image image = {0};
    int found = 0;
    if (!CHECK_OK(zonal__decoder_create(&decoder))) return 0;
    for (int fill = 0; fill < 0xff && !found; fill++) {
        const zonal__decode_options encoded = {.encoded_side = 512};
        const size_t last = sound.count - 2, first = last - 8; /* the codes end before the marker */
        *file = sound;
        memset(file->at + first, fill, last - first);
        found = zonal__image_decode(decoder, file->at, file->count, "x", NULL, &image) ==
                    ZONAL_FORMAT &&
                zonal__image_decode(decoder, file->at, file->count, "x", &encoded, &image) ==
                    ZONAL_OK &&
                image.encoded > 0;
    }
    zonal__image_fini(&image);
    zonal__decoder_destroy(decoder);
    return CHECK(found);
}

static void test_refused(void) {
    static float views[2 * BATCH * SIDE * SIDE * 3];
    test_folder folder;
    feeding f;
    image_file file;
    char name[32];
    if (!can_decode()) {
        test_skip("this build reads no JPEG");
        return;
    }
    if (!fake_register() || !CHECK(test_folder_make(&folder)) ||
        !image_file_load("colour.jpg", &file) || !damage_codes(&file))
        return;
    for (int i = 0; i < COPIES; i++) {
        snprintf(name, sizeof name, "broken%d.jpg", i);
        put(&folder, name, &file, file.count);
    }
    fake_jpeg = (fake_jpegs){.refuses = 1};
    if (CHECK_OK(begin(&f, &folder, 1))) {
        CHECK_FAILS(next_views(&f, views), ZONAL_FORMAT, "broken");
        CHECK(strstr(zonal_last_error()->message, "--decoder host") != NULL);
    }
    end(&f);
    fake_jpeg = (fake_jpegs){0};
    test_folder_remove(&folder);
}

static const test_case tests[] = {{"the same views, whoever decodes", test_same_views},
                                  {"what nobody can decode", test_refused},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
