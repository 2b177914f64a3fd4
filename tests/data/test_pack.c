/* Packs: src/data/pack.h. The file is written by the library and taken apart here by the words of
 * that header; readers_test.py does the same in Python. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/memory.h"
#include "data/pack.h"
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"

static const char *const three_names[] = {"cat", "dog", "sea horse"};

/* An image of known elements: each depends on its place and on the image's number. */
static uint8_t element(int number, int i) {
    return (uint8_t)(7 * i + 31 * number + i / 50);
}

static int make_image(zonal__image *image, int number, int width, int height, int channels) {
    if (!CHECK_OK(zonal__image_shape(image, width, height, channels))) return 0;
    for (int i = 0; i < width * height * channels; i++) image->pixels[i] = element(number, i);
    return 1;
}

static int64_t wrong_elements(const uint8_t *pixels, int number, int n) {
    int64_t wrong = 0;
    for (int i = 0; i < n; i++) wrong += pixels[i] != element(number, i);
    return wrong;
}

/* Image i of the set that most tests use: three sizes, grey and colour. */
static void shape_of(int i, int *width, int *height, int *channels) {
    static const int sizes[3][2] = {{5, 4}, {1, 1}, {9, 16}};
    *width = sizes[i % 3][0];
    *height = sizes[i % 3][1];
    *channels = i % 2 ? 1 : 3;
}

/* n images of three classes, "split" of each by its number. */
static zonal_status write_set(const char *path, int n, zonal__split (*split)(int)) {
    zonal__pack_options options = {.classes = 3, .class_names = three_names};
    zonal__pack_writer *writer;
    zonal__image image = {0};
    zonal_status status;
    ZONAL_TRY(zonal__pack_create(path, &options, &writer));
    for (int i = 0; i < n; i++) {
        int width, height, channels;
        shape_of(i, &width, &height, &channels);
        ZONAL_TRY_GOTO(status, fail, zonal__image_shape(&image, width, height, channels));
        for (int k = 0; k < width * height * channels; k++) image.pixels[k] = element(i, k);
        ZONAL_TRY_GOTO(status, fail, zonal__pack_add(writer, &image, i % 3, split(i)));
    }
    zonal__image_fini(&image);
    return zonal__pack_commit(writer);
fail:
    zonal__image_fini(&image);
    zonal__pack_abandon(writer);
    return status;
}

static zonal__split undivided(int i) {
    (void)i;
    return ZONAL__SPLIT_ALL;
}

static zonal__split divided(int i) {
    return i % 5 == 0 ? ZONAL__SPLIT_VAL : ZONAL__SPLIT_TRAIN;
}

static zonal_status open_split(const char *path, zonal__split split, zonal__source **source) {
    zonal__source_options options = {.path = path, .split = split, .seed = 3};
    return zonal__source_pack(&options, source);
}

/* A folder with one pack, whose path is folder->name. */
static int make_pack(test_folder *folder, int n, zonal__split (*split)(int)) {
    return CHECK(test_folder_make(folder)) &&
           CHECK_OK(write_set(test_folder_file(folder, "set.zpk"), n, split));
}

/* ---- whole files as bytes -------------------------------------------------------------------- */

typedef struct content {
    uint8_t *at;
    size_t size;
} content;

static content load(const char *path) {
    content c = {0};
    struct stat state;
    FILE *stream = fopen(path, "rb");
    if (!CHECK(stream && stat(path, &state) == 0)) return c;
    c.size = (size_t)state.st_size;
    c.at = malloc(c.size);
    CHECK(fread(c.at, 1, c.size, stream) == c.size);
    fclose(stream);
    return c;
}

static void save(const char *path, const uint8_t *bytes, size_t n) {
    FILE *stream = fopen(path, "wb");
    if (!CHECK(stream != NULL)) return;
    CHECK(fwrite(bytes, 1, n, stream) == n);
    fclose(stream);
}

static uint64_t number(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static void put_number(uint8_t *at, int bytes, uint64_t value) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* ---- round trips ----------------------------------------------------------------------------- */

static void check_images(zonal__source *source) {
    zonal__image image = {0};
    for (int i = 0; i < source->count; i++) {
        int width, height, channels;
        shape_of(i, &width, &height, &channels);
        if (!CHECK_OK(zonal__source_read(source, i, &image))) break;
        CHECK(image.width == width && image.height == height && image.channels == channels);
        CHECK(wrong_elements(image.pixels, i, width * height * channels) == 0);
        CHECK(source->labels[i] == i % 3);
    }
    zonal__image_fini(&image);
}

static void test_round_trip(void) {
    test_folder folder;
    zonal__source *source;
    if (!make_pack(&folder, 20, undivided)) return;
    CHECK(test_folder_count(&folder) == 1);
    if (CHECK_OK(open_split(folder.name, ZONAL__SPLIT_ALL, &source))) {
        CHECK(strcmp(source->table->kind, "pack") == 0);
        CHECK(source->count == 20 && source->classes == 3 && !source->order);
        CHECK(source->width == 0 && source->height == 0 && source->channels == 0);
        for (int c = 0; c < 3; c++) CHECK(strcmp(source->class_names[c], three_names[c]) == 0);
        check_images(source);
        check_images(source); /* now without the checksums */
        CHECK_OK(zonal__pack_verify(source));
        zonal__source_close(source);
    }
    test_folder_remove(&folder);
}

static void test_one_size_unlabelled(void) {
    zonal__pack_options options = {0};
    zonal__pack_writer *writer;
    zonal__source *source;
    zonal__image image = {0};
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__pack_create(test_folder_file(&folder, "x"), &options, &writer));
    for (int i = 0; i < 3; i++)
        if (make_image(&image, i, 6, 7, 3))
            CHECK_OK(zonal__pack_add(writer, &image, 99, ZONAL__SPLIT_ALL));
    CHECK_OK(zonal__pack_commit(writer));
    if (CHECK_OK(open_split(folder.name, ZONAL__SPLIT_ALL, &source))) {
        CHECK(source->width == 6 && source->height == 7 && source->channels == 3);
        CHECK(source->classes == 0 && !source->labels && !source->class_names);
        zonal__source_close(source);
    }
    zonal__image_fini(&image);
    test_folder_remove(&folder);
}

/* More images than the writer's first table holds. */
static void test_many(void) {
    test_folder folder;
    zonal__source *source;
    if (!make_pack(&folder, 2500, undivided)) return;
    if (CHECK_OK(open_split(folder.name, ZONAL__SPLIT_ALL, &source))) {
        CHECK(source->count == 2500);
        check_images(source);
        zonal__source_close(source);
    }
    test_folder_remove(&folder);
}

static void test_channels(void) {
    test_folder folder;
    zonal__source *source;
    zonal__image image = {0};
    zonal__source_options options = {.channels = 3};
    if (!make_pack(&folder, 4, undivided)) return;
    options.path = folder.name;
    if (CHECK_OK(zonal__source_pack(&options, &source))) {
        CHECK(source->channels == 3);
        CHECK_OK(zonal__source_read(source, 3, &image)); /* grey, 5 x 4 */
        CHECK(image.channels == 3 && image.width == 5 && image.height == 4);
        for (int i = 0; i < 60; i++) CHECK(image.pixels[i] == element(3, i / 3));
        zonal__source_close(source);
    }
    zonal__image_fini(&image);
    test_folder_remove(&folder);
}

/* ---- the format, word by word ---------------------------------------------------------------- */

static void test_layout(void) {
    test_folder folder;
    content c;
    const uint8_t *foot, *table;
    if (!make_pack(&folder, 7, divided)) return;
    c = load(folder.name);
    foot = c.at + c.size - 64;
    CHECK(memcmp(c.at, "ZONALPK2", 8) == 0 && memcmp(foot + 56, "ZONALEND", 8) == 0);
    for (int i = 8; i < 64; i++) CHECK(c.at[i] == 0);
    CHECK(number(foot + 8, 8) == 7 && number(foot + 24, 4) == 3 && number(foot + 28, 4) == 2);
    CHECK(number(foot + 16, 8) == sizeof "cat" + sizeof "dog" + sizeof "sea horse");
    CHECK(number(foot, 8) % 64 == 0);
    CHECK(number(foot, 8) + 7 * 32 + number(foot + 16, 8) + 64 == c.size);
    table = c.at + number(foot, 8);
    CHECK(memcmp(table + 7 * 32, "cat\0dog\0sea horse", 18) == 0);
    for (int i = 0; i < 7; i++) {
        const uint8_t *entry = table + 32 * i;
        int width, height, channels;
        shape_of(i, &width, &height, &channels);
        CHECK(number(entry, 8) % 64 == 0);
        CHECK(number(entry + 16, 4) == (uint64_t)width &&
              number(entry + 20, 4) == (uint64_t)height);
        CHECK(number(entry + 24, 4) == (uint64_t)(i % 3));
        CHECK(number(entry + 28, 2) == (uint64_t)channels && number(entry + 30, 2) == divided(i));
        CHECK(wrong_elements(c.at + number(entry, 8), i, width * height * channels) == 0);
    }
    free(c.at);
    test_folder_remove(&folder);
}

/* XXH64's published values: those of its authors' own test (seed 0, the bytes that it generates),
 * and of well-known texts. */
static void test_checksum_values(void) {
    uint8_t bytes[222];
    uint64_t state = 2654435761u;
    for (int i = 0; i < 222; i++) {
        bytes[i] = (uint8_t)(state >> 56);
        state *= 11400714785074694797u;
    }
    CHECK(zonal__pack_checksum(bytes, 0) == 0xef46db3751d8e999u);
    CHECK(zonal__pack_checksum(bytes, 1) == 0xe934a84adb052768u);
    CHECK(zonal__pack_checksum(bytes, 4) == 0x9136a0dca57457eeu);
    CHECK(zonal__pack_checksum(bytes, 14) == 0x8282dcc4994e35c8u);
    CHECK(zonal__pack_checksum(bytes, 222) == 0xb641ae8cb691c174u);
    CHECK(zonal__pack_checksum("a", 1) == 0xd24ec4f1a98c6e5bu);
    CHECK(zonal__pack_checksum("abc", 3) == 0x44bc2cf5ad770999u);
    CHECK(zonal__pack_checksum("Nobody inspects the spammish repetition", 39) ==
          0xfbcea83c8a378bf1u);
}

/* Other damage is missed with the probability 2^-64: not once in a test's lifetime. */
static void test_checksum_notices(void) {
    uint8_t bytes[77] = {0};
    uint64_t right = zonal__pack_checksum(bytes, sizeof bytes);
    int missed = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        for (int value = 1; value < 256; value++) {
            bytes[i] = (uint8_t)value;
            missed += zonal__pack_checksum(bytes, sizeof bytes) == right;
            bytes[i] = 0;
        }
    CHECK_MSG(missed == 0, "%d changed bytes were not noticed", missed);
    CHECK(zonal__pack_checksum(bytes, 76) != right); /* zeros, but fewer */
}

/* ---- fitting --------------------------------------------------------------------------------- */

static void test_fit_centre(void) {
    zonal__image in = {0}, out = {0};
    zonal__pack_scratch scratch = {0};
    if (make_image(&in, 0, 9, 4, 3) &&
        CHECK_OK(zonal__pack_fit(&in, ZONAL__PACK_CENTER, 4, &scratch, &out))) {
        CHECK(out.width == 4 && out.height == 4 && out.channels == 3);
        for (int y = 0; y < 4; y++)
            CHECK(memcmp(out.pixels + 12 * y, in.pixels + 27 * y + 6, 12) == 0);
    }
    if (make_image(&in, 0, 3, 8, 1) &&
        CHECK_OK(zonal__pack_fit(&in, ZONAL__PACK_CENTER, 3, &scratch, &out)))
        CHECK(memcmp(out.pixels, in.pixels + 6, 9) == 0);
    zonal__image_fini(&in);
    zonal__pack_scratch_fini(&scratch);
    zonal__image_fini(&out);
}

/* An image of two halves stretched to 2 x 2 keeps its halves, cut to a square it does too; a
 * constant one stays constant. */
static void test_fit_stretch(void) {
    zonal__image in = {0}, out = {0};
    zonal__pack_scratch scratch = {0};
    CHECK_OK(zonal__image_shape(&in, 64, 10, 1));
    memset(in.pixels, 77, 640);
    CHECK_OK(zonal__pack_fit(&in, ZONAL__PACK_STRETCH, 5, &scratch, &out));
    CHECK(out.width == 5 && out.height == 5);
    for (int i = 0; i < 25; i++) CHECK(out.pixels[i] == 77);
    CHECK_OK(zonal__pack_fit(&in, ZONAL__PACK_AS_IS, 5, &scratch, &out));
    CHECK(out.width == 64 && out.height == 10 && memcmp(out.pixels, in.pixels, 640) == 0);
    zonal__image_fini(&in);
    zonal__pack_scratch_fini(&scratch);
    zonal__image_fini(&out);
}

static void test_fit_when_adding(void) {
    zonal__pack_options options = {.fit = ZONAL__PACK_CENTER, .side = 4};
    zonal__pack_writer *writer;
    zonal__source *source;
    zonal__image image = {0};
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__pack_create(test_folder_file(&folder, "x"), &options, &writer));
    for (int width = 4; width < 9; width++)
        if (make_image(&image, 0, width, 4, 1))
            CHECK_OK(zonal__pack_add(writer, &image, 0, ZONAL__SPLIT_ALL));
    CHECK_OK(zonal__pack_commit(writer));
    if (CHECK_OK(open_split(folder.name, ZONAL__SPLIT_ALL, &source))) {
        CHECK(source->width == 4 && source->height == 4 && source->channels == 1);
        CHECK_OK(zonal__source_read(source, 4, &image));
        for (int i = 0; i < 16; i++) CHECK(image.pixels[i] == element(0, i / 4 * 8 + 2 + i % 4));
        zonal__source_close(source);
    }
    zonal__image_fini(&image);
    test_folder_remove(&folder);
}

/* ---- splits, zero-copy ----------------------------------------------------------------------- */

static void test_own_splits(void) {
    zonal__source_options options;
    test_folder folder;
    zonal__source *source;
    zonal__image image = {0};
    if (!make_pack(&folder, 20, divided)) return;
    if (CHECK_OK(open_split(folder.name, ZONAL__SPLIT_VAL, &source))) {
        CHECK(source->count == 4);
        for (int i = 0; i < source->count; i++) {
            CHECK(source->order[i] == 5 * i && source->labels[i] == 5 * i % 3);
            CHECK_OK(zonal__source_read(source, i, &image));
            CHECK(image.pixels[0] == element(5 * i, 0));
        }
        zonal__source_close(source);
    }
    if (CHECK_OK(open_split(folder.name, ZONAL__SPLIT_ALL, &source))) {
        CHECK(source->count == 20);
        zonal__source_close(source);
    }
    if (CHECK_OK(open_split(folder.name, ZONAL__SPLIT_TEST, &source))) {
        CHECK(source->count == 4 && source->order[1] == 5); /* val serves as test */
        zonal__source_close(source);
    }
    options =
        (zonal__source_options){.path = folder.name, .split = ZONAL__SPLIT_TEST, .strict_split = 1};
    if (CHECK_OK(zonal__source_pack(&options, &source))) CHECK(source->count == 0);
    zonal__source_close(source);
    zonal__image_fini(&image);
    test_folder_remove(&folder);
}

static void test_seeded_split(void) {
    static const zonal__split splits[] = {ZONAL__SPLIT_TRAIN, ZONAL__SPLIT_VAL, ZONAL__SPLIT_TEST};
    static const double wanted[] = {240, 30, 30};
    test_folder folder;
    int seen[300] = {0}, wrong = 0;
    if (!make_pack(&folder, 300, undivided)) return;
    for (int s = 0; s < 3; s++) {
        zonal__source *source;
        if (!CHECK_OK(open_split(folder.name, splits[s], &source))) continue;
        /* 4 standard deviations: sqrt(300 x .2 x .8) = 6.9, sqrt(300 x .1 x .9) = 5.2 */
        CHECK_CLOSE((double)source->count, wanted[s], s ? 21 : 28);
        for (int64_t i = 0; i < source->count; i++) seen[source->order[i]]++;
        zonal__source_close(source);
    }
    for (int i = 0; i < 300; i++) wrong += seen[i] != 1;
    CHECK_MSG(wrong == 0, "%d images are not in exactly one split", wrong);
    test_folder_remove(&folder);
}

/* What a device is sent: the file as it is, and where each image lies in it. */
static void test_whole_file(void) {
    test_folder folder;
    zonal__source *source;
    content c;
    uint8_t piece[10];
    if (!make_pack(&folder, 20, divided)) return;
    c = load(folder.name);
    if (CHECK_OK(open_split(folder.name, ZONAL__SPLIT_VAL, &source))) {
        CHECK(zonal__pack_bytes(source) == c.size);
        CHECK_OK(zonal__pack_copy(source, 3, sizeof piece, piece));
        CHECK(memcmp(piece, c.at + 3, sizeof piece) == 0);
        for (int i = 0; i < source->count; i++) {
            zonal__image_place image = zonal__pack_image(source, i);
            int width, height, channels;
            shape_of(5 * i, &width, &height, &channels);
            CHECK(image.offset % 64 == 0);
            CHECK(image.width == width && image.height == height && image.channels == channels);
            CHECK(wrong_elements(c.at + image.offset, 5 * i, width * height * channels) == 0);
        }
        zonal__source_close(source);
    }
    free(c.at);
    test_folder_remove(&folder);
}

/* A pack that is cut off while it is read is an error, not the end of the process. */
static void test_cut_while_open(void) {
    test_folder folder;
    zonal__source *source;
    zonal__image image = {0};
    if (!make_pack(&folder, 300, undivided)) return;
    if (CHECK_OK(open_split(folder.name, ZONAL__SPLIT_ALL, &source))) {
        CHECK_OK(zonal__source_read(source, 0, &image));
        CHECK(truncate(folder.name, 100) == 0);
        for (int i = 1; i < 300; i += 50)
            CHECK_FAILS(zonal__source_read(source, i, &image), ZONAL_IO,
                        "was truncated while it was read");
        CHECK_FAILS(zonal__pack_verify(source), ZONAL_IO, "was truncated");
        CHECK_FAILS(zonal__pack_copy(source, 4096, 1, &image), ZONAL_IO, "was truncated");
        zonal__source_close(source);
    }
    zonal__image_fini(&image);
    test_folder_remove(&folder);
}

static void *read_all(void *context) {
    zonal__source *source = context;
    zonal__image image = {0};
    intptr_t wrong = 0;
    for (int i = 0; i < source->count; i++) {
        int width, height, channels;
        shape_of(i, &width, &height, &channels);
        wrong += zonal__source_read(source, i, &image) != ZONAL_OK ||
                 wrong_elements(image.pixels, i, width * height * channels) != 0;
    }
    zonal__image_fini(&image);
    return (void *)wrong;
}

static void test_threads(void) {
    test_folder folder;
    zonal__source *source;
    pthread_t thread[4];
    if (!make_pack(&folder, 1000, undivided)) return;
    if (CHECK_OK(open_split(folder.name, ZONAL__SPLIT_ALL, &source))) {
        for (int i = 0; i < 4; i++)
            if (!CHECK(pthread_create(&thread[i], NULL, read_all, source) == 0)) return;
        for (int i = 0; i < 4; i++) {
            void *wrong;
            pthread_join(thread[i], &wrong);
            CHECK(wrong == NULL);
        }
        zonal__source_close(source);
    }
    test_folder_remove(&folder);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void check_damaged(const char *path, const char *sentence) {
    zonal__source *source;
    CHECK_FAILS(open_split(path, ZONAL__SPLIT_ALL, &source), ZONAL_FORMAT, sentence);
    CHECK_MSG(strstr(zonal_last_error()->message, path) != NULL, "the file is not named: %s",
              zonal_last_error()->message);
    CHECK(source == NULL);
}

static void test_cut_short(void) {
    test_folder folder;
    content c;
    if (!make_pack(&folder, 3, undivided)) return;
    c = load(folder.name);
    for (size_t n = 0; n < c.size; n++) {
        save(folder.name, c.at, n);
        check_damaged(folder.name, n < 128 ? "it is too short" : "its end is missing");
    }
    free(c.at);
    test_folder_remove(&folder);
}

/* A pack from before XXH64: whatever its end says, the first bytes tell. */
static void test_earlier_version(void) {
    test_folder folder;
    content c;
    if (!make_pack(&folder, 3, undivided)) return;
    c = load(folder.name);
    c.at[7] = '1';
    save(folder.name, c.at, c.size);
    check_damaged(folder.name, "is a pack of version 1, but this zonal reads version 2; make it "
                               "again with zonal data pack");
    c.at[7] = 'x';
    save(folder.name, c.at, c.size);
    check_damaged(folder.name, "its beginning is invalid");
    free(c.at);
    test_folder_remove(&folder);
}

static void test_not_a_pack(void) {
    test_folder folder;
    uint8_t bytes[400];
    zonal__source *source;
    memset(bytes, 'x', sizeof bytes);
    if (!CHECK(test_folder_make(&folder))) return;
    save(test_folder_file(&folder, "x"), bytes, sizeof bytes);
    check_damaged(folder.name, "begin with ZONALPK2; give a file that zonal data pack wrote");
    CHECK_FAILS(open_split(folder.path, ZONAL__SPLIT_ALL, &source), ZONAL_IO, "is not a file");
    CHECK_FAILS(open_split(test_folder_file(&folder, "none"), ZONAL__SPLIT_ALL, &source), ZONAL_IO,
                "No such file");
    CHECK(zonal__pack_is("ZONALPK1", 8)); /* so that its version is named */
    CHECK(!zonal__pack_is("ZONALPK", 7) && zonal__pack_is("ZONALPK2", 8));
    CHECK(!zonal__pack_is("ZONALPX2", 8));
    test_folder_remove(&folder);
}

/* Every byte of a pack turned over in turn: it is found at opening or at reading, or it was in a
 * gap and all images are as they were. */
static void test_every_byte(void) {
    test_folder folder;
    content c;
    int found = 0, harmless = 0;
    if (!make_pack(&folder, 3, undivided)) return;
    c = load(folder.name);
    for (size_t at = 0; at < c.size; at++) {
        zonal__source *source;
        c.at[at] ^= 0xff;
        save(folder.name, c.at, c.size);
        c.at[at] ^= 0xff;
        if (open_split(folder.name, ZONAL__SPLIT_ALL, &source) != ZONAL_OK) {
            CHECK(zonal_last_error()->status == ZONAL_FORMAT);
            found++;
            continue;
        }
        if (zonal__pack_verify(source) == ZONAL_OK) {
            check_images(source);
            harmless++;
        } else {
            CHECK(zonal_last_error()->status == ZONAL_FORMAT);
            found++;
        }
        zonal__source_close(source);
    }
    /* 56 zeros of the head; gaps behind 60, 1 and 432 bytes of pixels */
    CHECK_MSG(harmless == 56 + 4 + 63 + 16, "%d changes were harmless", harmless);
    CHECK(found + harmless == (int)c.size);
    free(c.at);
    test_folder_remove(&folder);
}

static void test_damaged_image(void) {
    test_folder folder;
    content c;
    zonal__source *source;
    zonal__image image = {0};
    if (!make_pack(&folder, 300, undivided)) return;
    c = load(folder.name);
    c.at[64 + 64] ^= 1; /* the one pixel of image 1 */
    save(folder.name, c.at, c.size);
    if (CHECK_OK(open_split(folder.name, ZONAL__SPLIT_ALL, &source))) {
        CHECK_OK(zonal__source_read(source, 0, &image));
        CHECK_FAILS(zonal__source_read(source, 1, &image), ZONAL_FORMAT, "image 1 of ");
        CHECK_FAILS(zonal__source_read(source, 1, &image), ZONAL_FORMAT, "its checksum is wrong");
        CHECK_OK(zonal__source_read(source, 2, &image));
        CHECK_FAILS(zonal__pack_verify(source), ZONAL_FORMAT, "image 1 of ");
        CHECK(source->bad == 1);
        zonal__source_close(source);
    }
    zonal__image_fini(&image);
    free(c.at);
    test_folder_remove(&folder);
}

/* Numbers that lie, under checksums that are right. */
static void test_lies(void) {
    enum { FOOT, ENTRY };
    static const struct {
        int where, at, bytes;
        uint64_t value;
        const char *sentence;
    } cases[] = {
        {FOOT, 0, 8, 0, "its table does not fit"},
        {FOOT, 0, 8, 1, "its table does not fit"},
        {FOOT, 0, 8, (uint64_t)1 << 63, "its table does not fit"},
        {FOOT, 0, 8, UINT64_MAX - 63, "its table does not fit"},
        {FOOT, 8, 8, 0, "its table does not fit"},
        {FOOT, 8, 8, 4, "its table does not fit"},
        {FOOT, 8, 8, (uint64_t)1 << 59, "its table does not fit"},
        {FOOT, 8, 8, UINT64_MAX, "its table does not fit"},
        {FOOT, 16, 8, 0, "its table does not fit"},
        {FOOT, 16, 8, UINT64_MAX, "its table does not fit"},
        {FOOT, 24, 4, 0, "a label is not one of its classes"},
        {FOOT, 24, 4, 2, "a label is not one of its classes"},
        {FOOT, 24, 4, 4, "names of classes are missing"},
        {FOOT, 24, 4, (1 << 20) + 1, "too many classes"},
        {FOOT, 24, 4, UINT32_MAX, "too many classes"},
        {FOOT, 28, 4, 3,
         "is a pack of version 3, but this zonal reads version 2; make it again with"},
        {ENTRY, 0, 8, 0, "an image lies outside"},
        {ENTRY, 0, 8, 65, "an image lies outside"},
        {ENTRY, 0, 8, 1 << 20, "an image lies outside"},
        {ENTRY, 0, 8, UINT64_MAX - 63, "an image lies outside"},
        {ENTRY, 16, 4, 0, "an impossible shape"},
        {ENTRY, 16, 4, 32769, "an impossible shape"},
        {ENTRY, 16, 4, UINT32_MAX, "an impossible shape"},
        {ENTRY, 16, 4, 32768, "an image lies outside"},
        {ENTRY, 20, 4, 0, "an impossible shape"},
        {ENTRY, 20, 4, UINT32_MAX, "an impossible shape"},
        {ENTRY, 24, 4, 3, "a label is not one of its classes"},
        {ENTRY, 24, 4, UINT32_MAX, "a label is not one of its classes"},
        {ENTRY, 28, 2, 0, "an impossible shape"},
        {ENTRY, 28, 2, 4, "an impossible shape"},
        {ENTRY, 30, 2, 1, "an unknown split"},
        {ENTRY, 30, 2, 4, "an unknown split"},
    };
    test_folder folder;
    content good;
    if (!make_pack(&folder, 3, undivided)) return;
    good = load(folder.name);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t *lie = malloc(good.size), *foot = lie + good.size - 64;
        uint64_t table = number(good.at + good.size - 64, 8);
        memcpy(lie, good.at, good.size);
        put_number((cases[i].where == FOOT ? foot : lie + table) + cases[i].at, cases[i].bytes,
                   cases[i].value);
        put_number(foot + 32, 8, zonal__pack_checksum(lie + table, good.size - 64 - table));
        put_number(foot + 48, 8, zonal__pack_checksum(foot, 48));
        save(folder.name, lie, good.size);
        check_damaged(folder.name, cases[i].sentence);
        free(lie);
    }
    free(good.at);
    test_folder_remove(&folder);
}

/* Classes 0 and 1 only are in use; the third name is one too many. */
static void test_more_names_than_classes(void) {
    test_folder folder;
    content c;
    if (!make_pack(&folder, 2, undivided)) return;
    c = load(folder.name);
    put_number(c.at + c.size - 64 + 24, 4, 2);
    put_number(c.at + c.size - 64 + 48, 8, zonal__pack_checksum(c.at + c.size - 64, 48));
    save(folder.name, c.at, c.size);
    check_damaged(folder.name, "there are more names than classes");
    free(c.at);
    test_folder_remove(&folder);
}

/* Right in all but that it has no image. */
static void test_no_image(void) {
    uint8_t bytes[128] = "ZONALPK2", *foot = bytes + 64;
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    put_number(foot, 8, 64);
    put_number(foot + 28, 4, 2);
    put_number(foot + 32, 8, zonal__pack_checksum(foot, 0));
    put_number(foot + 48, 8, zonal__pack_checksum(foot, 48));
    memcpy(foot + 56, "ZONALEND", 8);
    save(test_folder_file(&folder, "x"), bytes, sizeof bytes);
    check_damaged(folder.name, "its table does not fit");
    test_folder_remove(&folder);
}

/* ---- the writer's refusals ------------------------------------------------------------------- */

static void test_writer_refuses(void) {
    zonal__pack_options options = {.classes = 3};
    zonal__pack_writer *writer;
    zonal__image image = {0};
    test_folder folder;
    const char *path;
    if (!CHECK(test_folder_make(&folder)) || !make_image(&image, 0, 3, 3, 1)) return;
    path = test_folder_file(&folder, "x");
    options.fit = ZONAL__PACK_CENTER;
    CHECK_FAILS(zonal__pack_create(path, &options, &writer), ZONAL_ARGUMENT, "from 1 to 16384");
    options.fit = ZONAL__PACK_AS_IS;
    options.classes = -1;
    CHECK_FAILS(zonal__pack_create(path, &options, &writer), ZONAL_ARGUMENT, "classes, got -1");
    options.classes = 3;
    CHECK_OK(zonal__pack_create(path, &options, &writer));
    CHECK_FAILS(zonal__pack_commit(writer), ZONAL_ARGUMENT, "at least one image");
    CHECK(test_folder_count(&folder) == 0);
    CHECK_OK(zonal__pack_create(path, &options, &writer));
    CHECK_OK(zonal__pack_add(writer, &image, 2, ZONAL__SPLIT_TRAIN));
    CHECK_FAILS(zonal__pack_add(writer, &image, 3, ZONAL__SPLIT_TRAIN), ZONAL_ARGUMENT,
                "image 1 has label 3, but the pack has 3 classes");
    CHECK_FAILS(zonal__pack_add(writer, &image, -1, ZONAL__SPLIT_TRAIN), ZONAL_ARGUMENT,
                "label -1");
    CHECK_FAILS(zonal__pack_add(writer, &image, 0, ZONAL__SPLIT_ALL), ZONAL_ARGUMENT,
                "either all or none");
    zonal__pack_abandon(writer);
    CHECK(test_folder_count(&folder) == 0);
    zonal__pack_abandon(NULL);
    CHECK_FAILS(zonal__pack_create(test_folder_file(&folder, "no/x"), &options, &writer), ZONAL_IO,
                "does its folder exist?");
    CHECK(writer == NULL);
    zonal__image_fini(&image);
    test_folder_remove(&folder);
}

/* A limit on the size of files stands in for a full disk. */
static void test_disk_full(void) {
    struct rlimit old, small;
    test_folder folder;
    content before, after;
    if (!make_pack(&folder, 3, undivided)) return;
    before = load(folder.name);
    signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = (struct rlimit){100000, old.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK_FAILS(write_set(folder.name, 2500, undivided), ZONAL_IO, "cannot write");
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    signal(SIGXFSZ, SIG_DFL);
    CHECK(test_folder_count(&folder) == 1);
    after = load(test_folder_file(&folder, "set.zpk"));
    CHECK(before.size == after.size && memcmp(before.at, after.at, after.size) == 0);
    free(before.at);
    free(after.at);
    test_folder_remove(&folder);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static zonal_status write_fitted(void *context) {
    zonal__pack_options options = {
        .fit = ZONAL__PACK_CENTER, .side = 2, .classes = 3, .class_names = three_names};
    zonal__pack_writer *writer;
    uint8_t pixels[15] = {0};
    zonal__image image = {.width = 5, .height = 3, .channels = 1, .pixels = pixels};
    zonal_status status;
    ZONAL_TRY(zonal__pack_create(context, &options, &writer));
    status = zonal__pack_add(writer, &image, 1, ZONAL__SPLIT_ALL);
    if (status == ZONAL_OK) return zonal__pack_commit(writer);
    zonal__pack_abandon(writer);
    return status;
}

static zonal_status read_one(void *context) {
    zonal__source *source;
    zonal__image image = {0};
    zonal_status status;
    ZONAL_TRY(open_split(context, ZONAL__SPLIT_TRAIN, &source));
    status = zonal__source_read(source, 0, &image);
    zonal__image_fini(&image);
    zonal__source_close(source);
    return status;
}

static void test_allocations(void) {
    test_folder folder;
    if (!make_pack(&folder, 30, undivided)) return;
    test_every_allocation("reading a pack", read_one, folder.name);
    test_every_allocation("writing a pack", write_fitted, folder.name);
    CHECK_OK(write_set(folder.name, 30, divided));
    test_every_allocation("reading a divided pack", read_one, folder.name);
    CHECK(test_folder_count(&folder) == 1);
    test_folder_remove(&folder);
}

static const test_case tests[] = {
    {"round_trip", test_round_trip},
    {"one_size_unlabelled", test_one_size_unlabelled},
    {"many", test_many},
    {"channels", test_channels},
    {"layout", test_layout},
    {"checksum_values", test_checksum_values},
    {"checksum_notices", test_checksum_notices},
    {"fit_centre", test_fit_centre},
    {"fit_stretch", test_fit_stretch},
    {"fit_when_adding", test_fit_when_adding},
    {"own_splits", test_own_splits},
    {"seeded_split", test_seeded_split},
    {"whole_file", test_whole_file},
    {"cut_while_open", test_cut_while_open},
    {"threads", test_threads},
    {"cut_short", test_cut_short},
    {"earlier_version", test_earlier_version},
    {"not_a_pack", test_not_a_pack},
    {"every_byte", test_every_byte},
    {"damaged_image", test_damaged_image},
    {"lies", test_lies},
    {"more_names_than_classes", test_more_names_than_classes},
    {"no_image", test_no_image},
    {"writer_refuses", test_writer_refuses},
    {"disk_full", test_disk_full},
    {"allocations", test_allocations},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
