/*
 * Hostile packs and idx files (fuzz.h says how to run this). The first byte of an input says what
 * the rest is: a pack, a file of images or a file of labels. What the readers accept must be
 * consistent and readable.
 */
#include "data/pack.h"
#include "folder.h"

#define FUZZ_LARGEST 2048
#include "fuzz.h"

enum { PACK, IMAGES, LABELS, KINDS };

/* Four images of 3 x 2, and their labels. */
static const uint8_t good_images[16 + 24] = {0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 3, 9};
static const uint8_t good_labels[8 + 4] = {0, 0, 8, 1, 0, 0, 0, 4, 0, 1, 2, 1};

static test_folder folder;
static int64_t accepted;

static void remove_folder(void) {
    test_folder_remove(&folder);
}

static void save(const char *name, const uint8_t *bytes, size_t n) {
    FILE *stream = fopen(test_folder_file(&folder, name), "wb");
    REQUIRE(stream != NULL);
    REQUIRE(fwrite(bytes, 1, n, stream) == n);
    fclose(stream);
}

static void read_all(zonal__source *source) {
    zonal__image image = {0};
    REQUIRE(source->count >= 1 && source->classes >= 0);
    for (int64_t i = 0; i < source->count; i++) {
        zonal_status status = source->table->read(source, i, &image);
        REQUIRE(status == ZONAL_OK || status == ZONAL_FORMAT);
        if (status == ZONAL_OK)
            REQUIRE(image.width >= 1 && image.height >= 1 &&
                    (image.channels == 1 || image.channels == 3));
        if (source->labels) REQUIRE(source->labels[i] >= 0 && source->labels[i] < source->classes);
    }
    zonal__image_fini(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    zonal__source_options options = {0};
    zonal__source *source;
    zonal_status status;
    int kind = size > 0 ? data[0] % KINDS : PACK;
    if (!folder.path[0]) {
        /* In memory where that can be had: a disk takes a millisecond for a file. */
        if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
        REQUIRE(test_folder_make(&folder));
        atexit(remove_folder);
    }
    if (size > 0) data++, size--;
    if (kind == PACK) {
        save("x", data, size);
    } else {
        save("t10k-labels-idx1-ubyte", kind == LABELS ? data : good_labels,
             kind == LABELS ? size : sizeof good_labels);
        save("t10k-images-idx3-ubyte", kind == LABELS ? good_images : data,
             kind == LABELS ? sizeof good_images : size);
    }
    options.path = folder.name;
    status =
        kind == PACK ? zonal__source_pack(&options, &source) : zonal__source_idx(&options, &source);
    if (status == ZONAL_OK) {
        read_all(source);
        accepted++;
    } else {
        REQUIRE(status == ZONAL_FORMAT || status == ZONAL_UNSUPPORTED);
        REQUIRE(source == NULL && strstr(zonal_last_error()->message, folder.path) != NULL);
    }
    zonal__source_close(source);
    return 0;
}

#ifndef ZONAL_LIBFUZZER

enum { ROUNDS = 20000 };

/* Numbers at which arithmetic goes wrong. */
static const uint64_t numbers[] = {
    0,      1,       31,         32,         63,         64,         0x7fff,     0x8000,     0x8001,
    0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 59, ~0ull >> 1, ~0ull - 63, ~0ull};

/* A pack of three images in two named classes. */
static int make_good_pack(input *good) {
    static const char *const names[] = {"a", "bc"};
    zonal__pack_options options = {.classes = 2, .class_names = names};
    uint8_t pixels[48] = {1, 2, 3};
    zonal__pack_writer *writer;
    test_folder own;
    FILE *stream;
    if (!CHECK(test_folder_make(&own)) ||
        !CHECK_OK(zonal__pack_create(test_folder_file(&own, "x"), &options, &writer)))
        return 0;
    for (int i = 0; i < 3; i++) {
        zonal__image image = {4 - i, 4, i == 1 ? 1 : 3, pixels, 0, 0};
        CHECK_OK(zonal__pack_add(writer, &image, i % 2, ZONAL__SPLIT_ALL));
    }
    CHECK_OK(zonal__pack_commit(writer));
    stream = fopen(own.name, "rb");
    good->at[0] = PACK;
    good->size = 1 + fread(good->at + 1, 1, FUZZ_LARGEST - 1, stream);
    fclose(stream);
    test_folder_remove(&own);
    return CHECK(good->size > 64 && good->size < FUZZ_LARGEST);
}

static void start_from_good(const input *pack, int kind, input *in) {
    *in = *pack;
    in->at[0] = (uint8_t)kind;
    if (kind == IMAGES) memcpy(in->at + 1, good_images, sizeof good_images);
    if (kind == LABELS) memcpy(in->at + 1, good_labels, sizeof good_labels);
    if (kind == IMAGES) in->size = 1 + sizeof good_images;
    if (kind == LABELS) in->size = 1 + sizeof good_labels;
}

/* Without this nearly every mutation of a pack would be found by the checksums alone. */
static void mend_checksums(input *in) {
    uint8_t *file = in->at + 1, *foot = in->at + in->size - 64;
    size_t size = in->size - 1;
    uint64_t table, sum;
    if (size < 128) return;
    memcpy(&table, foot, sizeof table);
    if (table <= size - 64) {
        sum = zonal__pack_checksum(file + table, size - 64 - table);
        memcpy(foot + 32, &sum, sizeof sum);
    }
    sum = zonal__pack_checksum(foot, 48);
    memcpy(foot + 48, &sum, sizeof sum);
}

static void put_number(input *in) {
    uint64_t number = DRAW_FROM(numbers);
    size_t width = (size_t)1 << draw(4), at;
    if (in->size < 1 + width) return;
    at = 1 + draw((in->size - 1) / width) * width; /* where a number may stand */
    if (in->at[0] != PACK) number = __builtin_bswap64(number << (64 - 8 * width));
    memcpy(in->at + at, &number, width);
}

static void mutate(input *in) {
    if (in->size < 2) return;
    switch (draw(5)) {
    case 0:
        flip_bit(in, 1 + draw(in->size - 1));
        break;
    case 1:
        in->at[1 + draw(in->size - 1)] = (uint8_t)draw(256);
        break;
    case 2:
        in->size = 1 + draw(in->size);
        break;
    default:
        put_number(in);
        break;
    }
}

static void run_kind(int kind) {
    input pack;
    state = test_seed + (uint64_t)kind;
    accepted = 0;
    if (!make_good_pack(&pack)) return;
    for (int round = 0; round < ROUNDS; round++) {
        input in;
        start_from_good(&pack, kind, &in);
        for (uint64_t i = draw(4); i > 0; i--) mutate(&in);
        if (kind == PACK && draw(8) > 0) mend_checksums(&in);
        LLVMFuzzerTestOneInput(in.at, in.size);
    }
    check_share(accepted, ROUNDS, 20);
}

static void test_packs(void) {
    run_kind(PACK);
}

static void test_images(void) {
    run_kind(IMAGES);
}

static void test_labels(void) {
    run_kind(LABELS);
}

static const test_case tests[] = {
    {"packs", test_packs},
    {"images", test_images},
    {"labels", test_labels},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}

#endif
