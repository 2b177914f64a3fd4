/*
 * Hostile files of CIFAR-10 and CIFAR-100 (fuzz.h says how to run this). The first byte of an input
 * says what the rest is: records of the one or the other, or the names of CIFAR-100's classes. What
 * the reader accepts must be consistent and readable.
 */
#include "data/source.h"
#include "folder.h"

enum { PIXELS = 3 * 32 * 32, RECORDS = 2 };
#define FUZZ_LARGEST 6400
#include "fuzz.h"

enum { TEN, HUNDRED, NAMES, KINDS };
static const char *const names[KINDS] = {"test_batch.bin", "test.bin", "fine_label_names.txt"};

static uint8_t good_records[RECORDS * (2 + PIXELS)]; /* of class 0 */
static test_folder folder;
static int64_t accepted;

static void remove_folder(void) {
    test_folder_remove(&folder);
}

static void make_folder(void) {
    /* In memory where that can be had: a disk takes a millisecond for a file. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    REQUIRE(test_folder_make(&folder));
    atexit(remove_folder);
}

static void save(const char *name, const uint8_t *bytes, size_t n) {
    FILE *stream = fopen(test_folder_file(&folder, name), "wb");
    REQUIRE(stream != NULL);
    REQUIRE(fwrite(bytes, 1, n, stream) == n);
    fclose(stream);
}

static void read_all(zonal__source *source) {
    zonal__image image = {0};
    REQUIRE(source->count >= 1 && source->width == 32 && source->height == 32);
    for (int64_t i = 0; i < source->count; i++) {
        REQUIRE(source->table->read(source, i, &image) == ZONAL_OK);
        REQUIRE(image.width == 32 && image.height == 32 && image.channels == 3);
        REQUIRE(source->labels[i] >= 0 && source->labels[i] < source->classes);
    }
    for (int c = 0; source->class_names && c < source->classes; c++)
        REQUIRE(source->class_names[c] && source->class_names[c][0]);
    zonal__image_fini(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    zonal__source_options options = {.split = ZONAL__SPLIT_TEST};
    zonal__source *source;
    zonal_status status;
    int kind = size > 0 ? data[0] % KINDS : TEN;
    if (!folder.path[0]) make_folder();
    for (int k = 0; k < KINDS; k++) (void)unlink(test_folder_file(&folder, names[k]));
    if (size > 0) data++, size--;
    if (kind == NAMES) save(names[HUNDRED], good_records, sizeof good_records);
    save(names[kind], data, size);
    options.path = folder.path;
    status = zonal__source_cifar(&options, &source);
    if (status == ZONAL_OK) {
        read_all(source);
        accepted++;
    } else {
        REQUIRE(status == ZONAL_FORMAT && source == NULL);
        REQUIRE(strstr(zonal_last_error()->message, folder.path) != NULL);
    }
    zonal__source_close(source);
    return 0;
}

#ifndef ZONAL_LIBFUZZER

enum { ROUNDS = 4000 };

static void start_from_good(int kind, input *in) {
    char line[16];
    in->at[0] = (uint8_t)kind;
    in->size = 1;
    if (kind != NAMES) {
        size_t record = (size_t)PIXELS + (kind == TEN ? 1 : 2);
        in->size += draw(RECORDS + 1) * record; /* or an empty file */
        memset(in->at + 1, 0, in->size - 1);
        for (size_t at = record - PIXELS; at < in->size; at += record)
            in->at[at] = (uint8_t)draw(kind == TEN ? 11 : 104); /* now and then one too large */
        return;
    }
    for (int c = 0; c < 100; c++) {
        int length = snprintf(line, sizeof line, "kind %d\n", c);
        memcpy(in->at + in->size, line, (size_t)length);
        in->size += (size_t)length;
    }
}

static void mutate(input *in) {
    if (in->size < 2) return;
    switch (draw(4)) {
    case 0:
        in->at[1 + draw(in->size - 1)] = (uint8_t)draw(256);
        break;
    case 1:
        in->at[1 + draw(in->size - 1)] = '\n';
        break;
    case 2:
        if (draw(4) == 0) in->size = 1 + draw(in->size);
        break;
    default:
        flip_bit(in, 1 + draw(in->size - 1));
        break;
    }
}

static void run_kind(int kind) {
    state = test_seed + (uint64_t)kind;
    accepted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        input in;
        start_from_good(kind, &in);
        for (uint64_t i = draw(4); i > 0; i--) mutate(&in);
        LLVMFuzzerTestOneInput(in.at, in.size);
    }
    check_share(accepted, ROUNDS, 5);
}

static void test_ten(void) {
    run_kind(TEN);
}

static void test_hundred(void) {
    run_kind(HUNDRED);
}

static void test_names(void) {
    run_kind(NAMES);
}

static const test_case tests[] = {
    {"ten", test_ten}, {"hundred", test_hundred}, {"names", test_names}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}

#endif
