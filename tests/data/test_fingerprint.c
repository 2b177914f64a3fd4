/* Names and fingerprints of images: src/data/fingerprint.c, and every reader's own. */
#include <sys/stat.h>

#include "data/fingerprint.h"
#include "data/pack.h"
#include "data/source.h"
#include "folder.h"
#include "test.h"

static void save(const char *path, const void *bytes, size_t n) {
    FILE *stream = fopen(path, "wb");
    if (!CHECK(stream != NULL)) return;
    CHECK(fwrite(bytes, 1, n, stream) == n);
    fclose(stream);
}

static uint64_t of_file(const char *path, int samples) {
    uint64_t value = 0;
    CHECK_OK(zonal__fingerprint_file(path, samples, &value));
    return value;
}

/* Two samples of a file of 3 blocks see the first and the last block, and the size; of one of 2
 * blocks they see everything. */
static void test_file(void) {
    static uint8_t bytes[3 * 4096];
    test_folder folder;
    const char *path;
    uint64_t first, none;
    if (!CHECK(test_folder_make(&folder))) return;
    path = test_folder_file(&folder, "file");
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7);
    save(path, bytes, sizeof bytes);
    first = of_file(path, 2);
    CHECK(of_file(path, 2) == first);
    bytes[6000] ^= 1;
    save(path, bytes, sizeof bytes);
    CHECK(of_file(path, 2) == first);
    bytes[0] ^= 1;
    save(path, bytes, sizeof bytes);
    CHECK(of_file(path, 2) != first);
    bytes[0] ^= 1;
    bytes[sizeof bytes - 1] ^= 1;
    save(path, bytes, sizeof bytes);
    CHECK(of_file(path, 2) != first);
    save(path, bytes, 8192);
    first = of_file(path, 2);
    for (size_t i = 0; i < 8192; i += 1000) {
        bytes[i] ^= 1;
        save(path, bytes, 8192);
        CHECK(of_file(path, 2) != first);
        bytes[i] ^= 1;
    }
    save(path, bytes, 0);
    none = of_file(path, 2);
    save(path, "", 1);
    CHECK(of_file(path, 2) != none);
    mkfifo(test_folder_file(&folder, "pipe"), 0600);
    CHECK_FAILS(zonal__fingerprint_file(folder.name, 2, &none), ZONAL_IO, "is not a file; remove");
    CHECK_FAILS(zonal__fingerprint_file(test_folder_file(&folder, "no"), 2, &none), ZONAL_IO,
                "cannot read");
    test_folder_remove(&folder);
}

static zonal__source *open_it(const char *path, zonal__split split) {
    zonal__source_options options = {.path = path, .split = split};
    zonal__source *source;
    return CHECK_OK(zonal__source_open(&options, &source)) ? source : NULL;
}

static void check_name(const zonal__source *source, int64_t index, const char *want) {
    char name[ZONAL__NAME_ROOM];
    zonal__source_name(source, index, name);
    CHECK_MSG(strcmp(name, want) == 0, "image %d is called %s, want %s", (int)index, name, want);
}

static uint64_t print_of(zonal__source *source, int64_t index) {
    uint64_t value = 0;
    CHECK_OK(zonal__source_fingerprint(source, index, &value));
    return value;
}

/* Files are not decoded for this, so anything called .png will do. */
static void test_folder_names(void) {
    test_folder folder;
    zonal__source *source;
    uint64_t before[2];
    char slashed[300];
    if (!CHECK(test_folder_make(&folder))) return;
    mkdir(test_folder_file(&folder, "cat"), 0755);
    mkdir(test_folder_file(&folder, "dog"), 0755);
    save(test_folder_file(&folder, "cat/1.png"), "one", 3);
    save(test_folder_file(&folder, "dog/2.png"), "two", 3);
    snprintf(slashed, sizeof slashed, "%s//", folder.path);
    for (int k = 0; k < 2; k++) {
        source = open_it(k ? slashed : folder.path, ZONAL__SPLIT_ALL);
        if (!source) return;
        check_name(source, 0, "cat/1.png");
        check_name(source, 1, "dog/2.png");
        for (int i = 0; i < 2; i++) before[i] = print_of(source, i);
        zonal__source_close(source);
    }
    CHECK(before[0] != before[1]);
    save(test_folder_file(&folder, "dog/2.png"), "Two", 3);
    source = open_it(folder.path, ZONAL__SPLIT_ALL);
    if (!source) return;
    CHECK(print_of(source, 0) == before[0] && print_of(source, 1) != before[1]);
    zonal__source_close(source);
    remove(test_folder_file(&folder, "cat/1.png"));
    remove(test_folder_file(&folder, "dog/2.png"));
    test_folder_remove(&folder);
}

/* Two images of 1 x 1 in train, one in t10k. */
static void test_idx_names(void) {
    static uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 7, 9};
    static uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 0, 1};
    test_folder folder;
    zonal__source *source, *test;
    if (!CHECK(test_folder_make(&folder))) return;
    save(test_folder_file(&folder, "train-images-idx3-ubyte"), images, sizeof images);
    save(test_folder_file(&folder, "train-labels-idx1-ubyte"), labels, sizeof labels);
    images[7] = labels[7] = 1;
    save(test_folder_file(&folder, "t10k-images-idx3-ubyte"), images, sizeof images - 1);
    save(test_folder_file(&folder, "t10k-labels-idx1-ubyte"), labels, sizeof labels - 1);
    source = open_it(folder.path, ZONAL__SPLIT_ALL);
    test = open_it(folder.path, ZONAL__SPLIT_TEST);
    if (source && test) {
        check_name(source, 1, "train-images-idx3-ubyte index 1");
        check_name(source, 2, "t10k-images-idx3-ubyte index 0");
        check_name(test, 0, "t10k-images-idx3-ubyte index 0");
        CHECK(print_of(source, 0) != print_of(source, 1));
        CHECK(print_of(source, 0) == print_of(source, 2)); /* the same pixel */
        CHECK(print_of(test, 0) == print_of(source, 2));
    }
    zonal__source_close(source);
    zonal__source_close(test);
    source = open_it(test_folder_file(&folder, "t10k-images-idx3-ubyte"), ZONAL__SPLIT_ALL);
    if (source) check_name(source, 0, "index 0");
    zonal__source_close(source);
    test_folder_remove(&folder);
}

static void test_cifar_names(void) {
    static uint8_t records[2][3074];
    test_folder folder;
    zonal__source *source, *test;
    if (!CHECK(test_folder_make(&folder))) return;
    records[1][100] = 1;
    save(test_folder_file(&folder, "train.bin"), records, sizeof records);
    save(test_folder_file(&folder, "test.bin"), records[1], sizeof records[1]);
    source = open_it(folder.path, ZONAL__SPLIT_ALL);
    test = open_it(folder.path, ZONAL__SPLIT_TEST);
    if (source && test) {
        check_name(source, 1, "train.bin index 1");
        check_name(source, 2, "test.bin index 0");
        check_name(test, 0, "test.bin index 0");
        CHECK(print_of(source, 0) != print_of(source, 1));
        CHECK(print_of(source, 1) == print_of(test, 0));
    }
    zonal__source_close(source);
    zonal__source_close(test);
    test_folder_remove(&folder);
}

static void test_pack_names(void) {
    zonal__pack_options options = {0};
    uint8_t pixels[6] = {1, 2, 3, 1, 2, 3};
    const zonal__image image[3] = {
        {2, 1, 3, pixels, 0, 0}, {1, 2, 3, pixels, 0, 0}, {2, 1, 3, pixels, 0, 0}};
    zonal__pack_writer *writer;
    test_folder folder;
    zonal__source *source;
    if (!CHECK(test_folder_make(&folder))) return;
    if (!CHECK_OK(zonal__pack_create(test_folder_file(&folder, "p"), &options, &writer))) return;
    for (int i = 0; i < 3; i++)
        CHECK_OK(zonal__pack_add(writer, &image[i], 0, i ? ZONAL__SPLIT_VAL : ZONAL__SPLIT_TRAIN));
    CHECK_OK(zonal__pack_commit(writer));
    source = open_it(folder.name, ZONAL__SPLIT_VAL);
    if (source) {
        check_name(source, 0, "index 1");
        CHECK(print_of(source, 0) != print_of(source, 1)); /* only their shapes differ */
    }
    zonal__source_close(source);
    test_folder_remove(&folder);
}

static void test_texture_names(void) {
    zonal__source *train = open_it("textures:disk,size=8", ZONAL__SPLIT_TRAIN);
    zonal__source *val = open_it("textures:disk,size=8", ZONAL__SPLIT_VAL);
    zonal__source *other = open_it("textures:disk,size=8,radius=4", ZONAL__SPLIT_TRAIN);
    if (train && val && other) {
        check_name(train, 3, "index 3");
        check_name(val, 3, "index 1099511627779"); /* 2^40 + 3 */
        CHECK(print_of(train, 3) != print_of(val, 3));
        CHECK(print_of(train, 3) != print_of(train, 4));
        CHECK(print_of(train, 3) != print_of(other, 3));
    }
    zonal__source_close(train);
    zonal__source_close(val);
    zonal__source_close(other);
}

static const test_case tests[] = {
    {"file", test_file},
    {"folder", test_folder_names},
    {"idx", test_idx_names},
    {"cifar", test_cifar_names},
    {"pack", test_pack_names},
    {"textures", test_texture_names},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
