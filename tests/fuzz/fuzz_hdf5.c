/*
 * Hostile HDF5 files (fuzz.h says how to run this). The test mutates the files of tests/data/hdf5.
 * The labels of what the reader accepts must be classes; of a file without chunks every image must
 * be a piece of the file, byte for byte.
 */
#include "data/hdf5.h"
#include "data/source.h"
#include "folder.h"

#define FUZZ_LARGEST 16384
#include "fuzz.h"

static test_folder folder;
static int64_t accepted, images_read;

static void remove_folder(void) {
    test_folder_remove(&folder);
}

static int is_piece_of(const uint8_t *all, size_t size, const uint8_t *piece, size_t bytes) {
    for (size_t i = 0; i + bytes <= size; i++)
        if (memcmp(all + i, piece, bytes) == 0) return 1;
    return 0;
}

static void read_all(zonal__source *source, const uint8_t *data, size_t size) {
    enum { MOST = 64 }; /* images looked at */
    zonal__image image = {0};
    zonal__hdf5_dataset set = {0};
    zonal__hdf5 *file = NULL;
    int plain;
    REQUIRE(zonal__hdf5_open(source->path, &file) == ZONAL_OK);
    REQUIRE(zonal__hdf5_find(file, "images", &set) == ZONAL_OK);
    plain = set.chunk[0] == 0;
    for (int64_t i = 0; i < source->count && i < MOST; i++) {
        zonal_status status = source->table->read(source, i, &image);
        REQUIRE(source->labels[i] >= 0 && source->labels[i] < 10);
        REQUIRE(status == ZONAL_OK || status == ZONAL_FORMAT);
        if (status != ZONAL_OK) continue;
        images_read++;
        REQUIRE(image.width == source->width && image.height == source->height);
        if (plain)
            REQUIRE(is_piece_of(data, size, image.pixels,
                                (size_t)image.width * (size_t)image.height * 3));
    }
    zonal__hdf5_fini(&set);
    zonal__hdf5_close(file);
    zonal__image_fini(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    zonal__source_options options = {0};
    zonal__source *source;
    zonal_status status;
    FILE *stream;
    if (!folder.path[0]) {
        /* In memory where that can be had: a disk takes a millisecond for a file. */
        if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
        REQUIRE(test_folder_make(&folder));
        atexit(remove_folder);
    }
    options.path = test_folder_file(&folder, "x.h5");
    stream = fopen(options.path, "wb");
    REQUIRE(stream != NULL && fwrite(data, 1, size, stream) == size);
    fclose(stream);
    status = zonal__source_galaxy10(&options, &source);
    if (status == ZONAL_OK) {
        read_all(source, data, size);
        accepted++;
    } else {
        REQUIRE(status == ZONAL_FORMAT || status == ZONAL_UNSUPPORTED);
        REQUIRE(source == NULL && strstr(zonal_last_error()->message, folder.path) != NULL);
    }
    zonal__source_close(source);
    return 0;
}

#ifndef ZONAL_LIBFUZZER

enum { ROUNDS = 8000 };

/* Numbers at which arithmetic goes wrong. */
static const uint64_t numbers[] = {
    0,      1,       2,          7,          8,          64,         255,        0x7fff,    0x8000,
    0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 48, ~0ull >> 1, ~0ull - 7, ~0ull};

/* A byte of the structure rather than of a gap, four times out of five. */
static size_t place(const input *in) {
    size_t at = draw(in->size);
    for (int i = 0; i < 4 && in->at[at] == 0; i++) at = draw(in->size);
    return at;
}

static void mutate(input *in) {
    size_t at, width = (size_t)1 << draw(4);
    if (in->size < 16) return;
    at = place(in);
    switch (draw(6)) {
    case 0:
        flip_bit(in, at);
        break;
    case 1:
        in->at[at] = (uint8_t)draw(256);
        break;
    case 2:
        if (draw(4) == 0) in->size = 1 + at;
        break;
    case 3: /* one address in the place of another */
        at = at / 8 * 8;
        if (at + 8 <= in->size) memcpy(in->at + at, in->at + draw(in->size / 8) * 8, 8);
        break;
    default:
        at = at / width * width;
        if (at + width <= in->size) memcpy(in->at + at, &DRAW_FROM(numbers), width);
        break;
    }
}

static void put_checksum(input *in, size_t begin, size_t bytes) {
    uint32_t sum;
    if (begin > in->size || bytes > in->size - begin || in->size - begin - bytes < 4) return;
    sum = zonal__hdf5_checksum(in->at + begin, bytes);
    memcpy(in->at + begin + bytes, &sum, 4);
}

/* Without this nearly every mutation of a new file would be found by the checksums alone. */
static void mend_checksums(input *in) {
    if (in->size > 48 && in->at[8] >= 2) put_checksum(in, 0, 44);
    for (size_t i = 0; i + 40 < in->size; i++) {
        size_t at = i + 6;
        uint64_t bytes = 0;
        if (memcmp(in->at + i, "OHDR", 4) != 0) continue;
        at += (in->at[i + 5] & 32 ? 16 : 0) + (in->at[i + 5] & 16 ? 4 : 0);
        memcpy(&bytes, in->at + at, (size_t)1 << (in->at[i + 5] & 3));
        if (bytes < in->size)
            put_checksum(in, i, at - i + ((size_t)1 << (in->at[i + 5] & 3)) + (size_t)bytes);
    }
}

static void run(const char *name) {
    input good;
    state = test_seed;
    if (!load(name, &good)) return;
    accepted = images_read = 0;
    LLVMFuzzerTestOneInput(good.at, good.size);
    if (accepted == 0 && zonal_last_error()->status == ZONAL_UNSUPPORTED)
        SKIP("this build has no zlib");
    CHECK(accepted == 1 && images_read == 6);
    for (int round = 0; round < ROUNDS; round++) {
        input in = good;
        for (uint64_t i = 1 + draw(3); i > 0; i--) mutate(&in);
        if (draw(8) > 0) mend_checksums(&in);
        LLVMFuzzerTestOneInput(in.at, in.size);
    }
    check_share(accepted, ROUNDS, 50);
}

static void test_plain(void) {
    run("data/hdf5/plain.h5");
}

static void test_latest(void) {
    run("data/hdf5/latest.h5");
}

static void test_packed(void) {
    run("data/hdf5/packed.h5");
}

static const test_case tests[] = {
    {"plain", test_plain}, {"latest", test_latest}, {"packed", test_packed}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}

#endif
