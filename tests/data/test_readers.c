/* Splits, descriptions, and the readers of idx, CIFAR and Galaxy10 files: src/data/{split,describe,
 * idx,cifar,galaxy10}.c. readers_test.py goes through the formats with numpy and h5py. */
#include <stdlib.h>

#include "core/memory.h"
#include "data/describe.h"
#include "data/pack.h"
#include "data/split.h"
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"

/* ---- splits ---------------------------------------------------------------------------------- */

enum { N = 1000, CLASSES = 7 };

/* Classes of very different sizes: 0 has 500 images, 1 has 250, ... */
static void make_labels(int32_t labels[N]) {
    for (int i = 0; i < N; i++) {
        int label = 0;
        for (int rest = i % 128; label < CLASSES - 1 && rest & 1; rest >>= 1) label++;
        labels[i] = label;
    }
}

static int64_t choose(const int32_t *labels, zonal__split split, double val, double test,
                      uint64_t seed, int64_t keep[N]) {
    int64_t kept = -1;
    CHECK_OK(
        zonal__split_choose(N, labels, labels ? CLASSES : 0, split, val, test, seed, keep, &kept));
    return kept;
}

static void check_partition(const int32_t *labels, double val, double test) {
    static const zonal__split splits[] = {ZONAL__SPLIT_VAL, ZONAL__SPLIT_TEST, ZONAL__SPLIT_TRAIN};
    int64_t keep[N], count[3][CLASSES] = {{0}}, size[CLASSES] = {0};
    int seen[N] = {0}, wrong = 0;
    for (int i = 0; i < N; i++) size[labels ? labels[i] : 0]++;
    for (int s = 0; s < 3; s++) {
        int64_t kept = choose(labels, splits[s], val, test, 11, keep);
        for (int64_t i = 0; i < kept; i++) {
            CHECK(i == 0 || keep[i] > keep[i - 1]);
            seen[keep[i]]++;
            count[s][labels ? labels[keep[i]] : 0]++;
        }
    }
    for (int i = 0; i < N; i++) wrong += seen[i] != 1;
    CHECK_MSG(wrong == 0, "%d images are not in exactly one part", wrong);
    for (int c = 0; c < CLASSES; c++) {
        CHECK_CLOSE((double)count[0][c], floor(val * (double)size[c] + .5), 0);
        CHECK_CLOSE((double)count[1][c], floor(test * (double)size[c] + .5), 0);
    }
}

static void test_split_partition(void) {
    int32_t labels[N];
    make_labels(labels);
    check_partition(labels, 0.1, 0.1);
    check_partition(labels, 0.25, 0.1);
    check_partition(labels, 0, 0.3);
    check_partition(labels, 1, 0);
    check_partition(NULL, 0.1, 0.2);
}

/* Two halves of an odd class: val takes the larger one, and nothing is in both. */
static void test_split_halves(void) {
    int64_t keep[3], kept;
    for (uint64_t seed = 0; seed < 20; seed++) {
        CHECK_OK(zonal__split_choose(3, NULL, 0, ZONAL__SPLIT_VAL, .5, .5, seed, keep, &kept));
        CHECK(kept == 2);
        CHECK_OK(zonal__split_choose(3, NULL, 0, ZONAL__SPLIT_TEST, .5, .5, seed, keep, &kept));
        CHECK(kept == 1);
        CHECK_OK(zonal__split_choose(3, NULL, 0, ZONAL__SPLIT_TRAIN, .5, .5, seed, keep, &kept));
        CHECK(kept == 0);
    }
}

static void test_split_seeds(void) {
    int32_t labels[N];
    int64_t a[N], b[N];
    int64_t kept;
    make_labels(labels);
    kept = choose(labels, ZONAL__SPLIT_VAL, .1, .1, 5, a);
    CHECK(choose(labels, ZONAL__SPLIT_VAL, .1, .1, 5, b) == kept);
    CHECK(memcmp(a, b, (size_t)kept * sizeof *a) == 0);
    CHECK(choose(labels, ZONAL__SPLIT_VAL, .1, .1, 6, b) == kept);
    CHECK(memcmp(a, b, (size_t)kept * sizeof *a) != 0);
}

/* Images of another class, put in between, do not change what is chosen of class 0, and are
 * shuffled in another way. */
static void test_split_classes_are_apart(void) {
    int64_t alone[N], among[2 * N], kept_alone, kept_among, at = 0, alike = 0;
    int32_t labels[2 * N];
    for (int i = 0; i < 2 * N; i++) labels[i] = i % 2;
    kept_alone = choose(NULL, ZONAL__SPLIT_TEST, .1, .1, 9, alone);
    CHECK_OK(
        zonal__split_choose(2 * N, labels, 2, ZONAL__SPLIT_TEST, .1, .1, 9, among, &kept_among));
    for (int64_t i = 0; i < kept_among; i++)
        if (among[i] % 2 == 0) CHECK(at < kept_alone && among[i] == 2 * alone[at++]);
    CHECK(at == kept_alone);
    for (int64_t i = 0; i + 1 < kept_among; i++)
        alike += among[i] % 2 == 0 && among[i + 1] == among[i] + 1;
    CHECK_MSG(alike < kept_alone / 2, "%d of %d choices are alike", (int)alike, (int)kept_alone);
}

/* Each of 10 images is among the 3 chosen in 3 of 10 seeds: 5 standard deviations of a binomial
 * count, 5 sqrt(4000 x .3 x .7) = 145. */
static void test_split_fair(void) {
    int64_t keep[10], kept, count[10] = {0};
    for (uint64_t seed = 0; seed < 4000; seed++) {
        CHECK_OK(zonal__split_choose(10, NULL, 0, ZONAL__SPLIT_TEST, .2, .3, test_seed + seed, keep,
                                     &kept));
        for (int64_t i = 0; i < kept; i++) count[keep[i]]++;
    }
    for (int i = 0; i < 10; i++) CHECK_CLOSE((double)count[i], 1200, 145);
}

static void test_split_refuses(void) {
    static const double shares[][2] = {{-.1, .1}, {.1, -.1}, {.6, .5},
                                       {NAN, .1}, {.1, NAN}, {2, 0}};
    int64_t keep[2], kept;
    const int32_t labels[2] = {0, 2}, negative[2] = {-1, 0};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        CHECK_FAILS(zonal__split_choose(2, NULL, 0, ZONAL__SPLIT_VAL, shares[i][0], shares[i][1], 1,
                                        keep, &kept),
                    ZONAL_ARGUMENT, "shares of the split");
    CHECK_FAILS(zonal__split_choose(2, labels, 2, ZONAL__SPLIT_VAL, .1, .1, 1, keep, &kept),
                ZONAL_ARGUMENT, "image 1 has label 2");
    CHECK_FAILS(zonal__split_choose(2, negative, 2, ZONAL__SPLIT_VAL, .1, .1, 1, keep, &kept),
                ZONAL_ARGUMENT, "image 0 has label -1");
}

static zonal_status choose_once(void *context) {
    int64_t keep[N], kept;
    return zonal__split_choose(N, context, CLASSES, ZONAL__SPLIT_VAL, .1, .1, 1, keep, &kept);
}

static void test_split_allocations(void) {
    int32_t labels[N];
    make_labels(labels);
    test_every_allocation("a split", choose_once, labels);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void save(const char *path, const void *bytes, size_t n) {
    FILE *stream = fopen(path, "wb");
    if (!CHECK(stream != NULL)) return;
    CHECK(fwrite(bytes, 1, n, stream) == n);
    fclose(stream);
}

/* 20 images of 3 x 2 for train and 10 for t10k; element j of image i is i + 40 j, its label is
 * i % 2 + 8. */
static void make_mnist(test_folder *folder) {
    static const char *const names[2][2] = {{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
                                            {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}};
    for (int test = 0; test < 2; test++) {
        int n = test ? 10 : 20, first = test ? 20 : 0;
        uint8_t images[16 + 120] = {0, 0, 8, 3, 0, 0, 0, (uint8_t)n, 0, 0, 0, 2, 0, 0, 0, 3};
        uint8_t labels[8 + 20] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)n};
        for (int i = 0; i < 6 * n; i++) images[16 + i] = (uint8_t)(first + i / 6 + 40 * (i % 6));
        for (int i = 0; i < n; i++) labels[8 + i] = (uint8_t)((first + i) % 2 + 8);
        save(test_folder_file(folder, names[test][0]), images, (size_t)(16 + 6 * n));
        save(test_folder_file(folder, names[test][1]), labels, (size_t)(8 + n));
    }
}

static void test_idx(void) {
    int64_t count[4] = {0};
    test_folder folder;
    zonal__image image = {0};
    if (!CHECK(test_folder_make(&folder))) return;
    make_mnist(&folder);
    for (int split = 0; split < 4; split++) {
        zonal__source_options options = {.path = folder.path, .split = (zonal__split)split};
        zonal__source *source;
        if (!CHECK_OK(zonal__source_idx(&options, &source))) continue;
        count[split] = source->count;
        CHECK(source->classes == 10);
        CHECK(source->width == 3 && source->height == 2 && source->channels == 1);
        for (int64_t i = 0; i < source->count; i++) {
            int number = (int)(source->order ? source->order[i] : i) + (split == 3 ? 20 : 0);
            if (!CHECK_OK(zonal__source_read(source, i, &image))) break;
            CHECK(source->labels[i] == number % 2 + 8);
            for (int j = 0; j < 6; j++) CHECK(image.pixels[j] == number + 40 * j);
        }
        zonal__source_close(source);
    }
    CHECK(count[ZONAL__SPLIT_ALL] == 30 && count[ZONAL__SPLIT_TEST] == 10);
    CHECK(count[ZONAL__SPLIT_TRAIN] + count[ZONAL__SPLIT_VAL] == 20 && count[ZONAL__SPLIT_VAL] > 1);
    zonal__image_fini(&image);
    test_folder_remove(&folder);
}

/* "abc" packed by gzip: either this build unpacks it (and finds no idx file), or it says what is
 * missing. */
static void test_idx_packed(void) {
    static const uint8_t packed[] = {0x1f, 0x8b, 8, 0,    0,    0,    0,    0,    2, 3, 0x4b, 0x4c,
                                     0x4a, 0x06, 0, 0xc2, 0x41, 0x24, 0x35, 0x03, 0, 0, 0};
    test_folder folder;
    zonal__source_options options = {0};
    zonal__source *source;
    if (!CHECK(test_folder_make(&folder))) return;
    options.path = test_folder_file(&folder, "t10k-images-idx3-ubyte.gz");
    save(options.path, packed, sizeof packed);
    if (zonal__source_idx(&options, &source) == ZONAL_UNSUPPORTED)
        CHECK(strstr(zonal_last_error()->message, "install zlib1g-dev") != NULL);
    else
        CHECK_FAILS(zonal_last_error()->status, ZONAL_FORMAT, "is not an idx file");
    CHECK(source == NULL);
    test_folder_remove(&folder);
}

/* Files of 8 records; plane k of image i of file f is all i + 8 f + 100 k. */
static void make_cifar(test_folder *folder) {
    static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    static uint8_t records[8][3073];
    for (int f = 0; f < 6; f++) {
        for (int i = 0; i < 8; i++) {
            records[i][0] = (uint8_t)(i % 2);
            for (int j = 0; j < 3072; j++)
                records[i][1 + j] = (uint8_t)(i + 8 * f + 100 * (j / 1024));
        }
        save(test_folder_file(folder, names[f]), records, sizeof records);
    }
}

static void test_cifar(void) {
    int64_t count[4] = {0};
    test_folder folder;
    zonal__image image = {0};
    if (!CHECK(test_folder_make(&folder))) return;
    make_cifar(&folder);
    for (int split = 0; split < 4; split++) {
        zonal__source_options options = {.path = folder.path, .split = (zonal__split)split};
        zonal__source *source;
        if (!CHECK_OK(zonal__source_cifar(&options, &source))) continue;
        count[split] = source->count;
        CHECK(source->classes == 10 && source->channels == 3);
        for (int64_t i = 0; i < source->count; i++) {
            int number = (int)(source->order ? source->order[i] : i) + (split == 3 ? 40 : 0);
            if (!CHECK_OK(zonal__source_read(source, i, &image))) break;
            CHECK(source->labels[i] == number % 8 % 2);
            for (int k = 0; k < 3; k++)
                CHECK(image.pixels[k] == (uint8_t)(number + 100 * k) &&
                      image.pixels[3 * 1023 + k] == (uint8_t)(number + 100 * k));
        }
        zonal__source_close(source);
    }
    CHECK(count[ZONAL__SPLIT_ALL] == 48 && count[ZONAL__SPLIT_TEST] == 8);
    CHECK(count[ZONAL__SPLIT_TRAIN] + count[ZONAL__SPLIT_VAL] == 40 && count[ZONAL__SPLIT_VAL] > 1);
    zonal__image_fini(&image);
    test_folder_remove(&folder);
}

static void test_wrong_places(void) {
    test_folder folder;
    zonal__source_options options = {0};
    zonal__source *source;
    if (!CHECK(test_folder_make(&folder))) return;
    options.path = folder.path;
    CHECK_FAILS(zonal__source_cifar(&options, &source), ZONAL_IO, "has no CIFAR files");
    CHECK_FAILS(zonal__source_idx(&options, &source), ZONAL_IO,
                "has no file train-images-idx3-ubyte");
    options.path = test_folder_file(&folder, "none");
    CHECK_FAILS(zonal__source_cifar(&options, &source), ZONAL_IO, "cannot read the folder");
    CHECK_FAILS(zonal__source_idx(&options, &source), ZONAL_IO, "No such file");
    save(options.path, "text", 4);
    CHECK_FAILS(zonal__source_galaxy10(&options, &source), ZONAL_FORMAT,
                "cannot be opened as an HDF5 file");
    CHECK(source == NULL);
    test_folder_remove(&folder);
}

/* One image is too few for two parts. */
static void test_nothing_left(void) {
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 7};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 1, 0};
    test_folder folder;
    zonal__source_options options = {.split = ZONAL__SPLIT_VAL, .val_share = 1e-9};
    zonal__source *source;
    if (!CHECK(test_folder_make(&folder))) return;
    save(test_folder_file(&folder, "train-images-idx3-ubyte"), images, sizeof images);
    save(test_folder_file(&folder, "train-labels-idx1-ubyte"), labels, sizeof labels);
    options.path = folder.path;
    CHECK_FAILS(zonal__source_idx(&options, &source), ZONAL_ARGUMENT,
                "has no image for the val split: it has 1 in all");
    options.strict_split = 1;
    if (CHECK_OK(zonal__source_idx(&options, &source))) CHECK(source->count == 0);
    zonal__source_close(source);
    options.strict_split = 0;
    options.val_share = 1;
    if (CHECK_OK(zonal__source_idx(&options, &source))) CHECK(source->count == 1);
    zonal__source_close(source);
    options.split = ZONAL__SPLIT_TRAIN;
    options.val_share = options.test_share = ZONAL__NO_SHARE;
    if (CHECK_OK(zonal__source_idx(&options, &source))) CHECK(source->count == 1);
    zonal__source_close(source);
    test_folder_remove(&folder);
}

static zonal_status open_and_read(void *context) {
    zonal__source_options options = {.path = context, .split = ZONAL__SPLIT_TRAIN};
    zonal__source *source;
    zonal__image image = {0};
    zonal_status status;
    ZONAL_TRY(zonal__source_open(&options, &source));
    status = zonal__source_read(source, 0, &image);
    zonal__image_fini(&image);
    zonal__source_close(source);
    return status;
}

static void test_reader_allocations(void) {
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    make_mnist(&folder);
    test_every_allocation("idx", open_and_read, folder.path);
    test_folder_remove(&folder);
    if (!CHECK(test_folder_make(&folder))) return;
    make_cifar(&folder);
    save(test_folder_file(&folder, "batches.meta.txt"), "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n", 20);
    test_every_allocation("cifar", open_and_read, folder.path);
    test_folder_remove(&folder);
}

/* ---- descriptions ---------------------------------------------------------------------------- */

/* A pack of three images of two classes:
 *     0  grey, 2 x 1: 0, 255                        class 0
 *     1  colour, 1 x 1: 255, 0, 0                   class 1
 *     2  colour, 3 x 4, all 51, 102, 153            class 1 */
static zonal_status make_three(const char *path) {
    zonal__pack_options options = {.classes = 2};
    uint8_t grey[2] = {0, 255}, red[3] = {255, 0, 0}, flat[36];
    zonal__image image[3] = {{2, 1, 1, grey, 0, 0}, {1, 1, 3, red, 0, 0}, {3, 4, 3, flat, 0, 0}};
    zonal__pack_writer *writer;
    zonal_status status = ZONAL_OK;
    for (int i = 0; i < 36; i++) flat[i] = (uint8_t)(51 * (i % 3 + 1));
    ZONAL_TRY(zonal__pack_create(path, &options, &writer));
    for (int i = 0; i < 3 && status == ZONAL_OK; i++)
        status = zonal__pack_add(writer, &image[i], i > 0, ZONAL__SPLIT_ALL);
    if (status == ZONAL_OK) return zonal__pack_commit(writer);
    zonal__pack_abandon(writer);
    return status;
}

static int open_three(test_folder *folder, zonal__source **source) {
    zonal__source_options options = {0};
    if (!CHECK(test_folder_make(folder)) ||
        !CHECK_OK(make_three(test_folder_file(folder, "three.zpk"))))
        return 0;
    options.path = folder->name;
    return CHECK_OK(zonal__source_pack(&options, source));
}

/* Mean and std of a channel against those of its 15 values. */
static void check_channel(const zonal__description *d, int channel, const double value[15]) {
    double mean = 0, square = 0;
    for (int i = 0; i < 15; i++) mean += value[i] / 15;
    for (int i = 0; i < 15; i++) square += (value[i] - mean) * (value[i] - mean) / 15;
    CHECK_CLOSE(d->mean[channel], mean, 1e-15); /* a few roundings of numbers below 1 */
    CHECK_CLOSE(d->std[channel], sqrt(square), 1e-15);
}

static void test_describe(void) {
    test_folder folder;
    zonal__source *source;
    zonal__description d;
    if (!open_three(&folder, &source)) return;
    for (int workers = 1; workers < 4; workers++) {
        zonal__describe_options options = {.workers = workers};
        if (!CHECK_OK(zonal__describe(source, &options, &d))) break;
        CHECK(d.count == 3 && d.bad == 0 && d.channels == 3 && d.grey == 1);
        CHECK(d.class_counts[0] == 1 && d.class_counts[1] == 2);
        CHECK(d.smallest.width == 1 && d.smallest.height == 1);
        CHECK(d.largest.width == 3 && d.largest.height == 4);
        CHECK(d.typical.width == 2 && d.typical.height == 1);
        for (int c = 0; c < 3; c++) {
            double value[15] = {0, 1, c == 0};
            for (int i = 3; i < 15; i++) value[i] = .2 * (c + 1);
            check_channel(&d, c, value);
        }
        zonal__description_fini(&d);
    }
    zonal__source_close(source);
    test_folder_remove(&folder);
}

/* Of two images the median is the smaller; of a selection only what is selected counts. */
static void test_describe_selection(void) {
    static const int64_t keep[] = {1, 2};
    test_folder folder;
    zonal__source *source;
    zonal__description d;
    zonal__describe_options options = {.workers = 1};
    if (!open_three(&folder, &source)) return;
    CHECK_OK(zonal__source_select(source, 2, keep));
    if (CHECK_OK(zonal__describe(source, &options, &d))) {
        CHECK(d.count == 2 && d.grey == 0 && d.class_counts[0] == 0 && d.class_counts[1] == 2);
        CHECK(d.typical.width == 1 && d.typical.height == 1);
        zonal__description_fini(&d);
    }
    zonal__source_close(source);
    test_folder_remove(&folder);
}

static void test_describe_bad(void) {
    test_folder folder;
    zonal__source *source;
    zonal__description d;
    zonal__describe_options options = {.workers = 2};
    FILE *stream;
    if (!open_three(&folder, &source)) return;
    zonal__source_close(source);
    stream = fopen(folder.name, "r+b");
    for (int i = 0; i < 2; i++) { /* images 0 and 2 */
        fseek(stream, 64 + 128 * i, SEEK_SET);
        fputc(200, stream);
    }
    fclose(stream);
    if (!CHECK_OK(zonal__source_pack(&(zonal__source_options){.path = folder.name}, &source)))
        return;
    if (CHECK_OK(zonal__describe(source, &options, &d))) {
        CHECK(d.count == 1 && d.bad == 2 && source->bad == 0);
        CHECK(d.class_counts[0] == 0 && d.class_counts[1] == 1);
        CHECK(strstr(d.bad_why[0], "image 0 of ") && strstr(d.bad_why[1], "image 2 of "));
        CHECK(d.bad_why[2] == NULL);
        CHECK_CLOSE(d.mean[0], 1, 0);
        CHECK_CLOSE(d.std[0], 0, 0);
        CHECK_CLOSE(d.mean[1], 0, 0);
        zonal__description_fini(&d);
    }
    zonal__source_close(source);
    test_folder_remove(&folder);
}

static int stop_at_two(void *context, int64_t done) {
    *(int64_t *)context = done;
    return done == 2;
}

static void test_describe_stopped(void) {
    test_folder folder;
    zonal__source *source;
    zonal__description d;
    int64_t done = 0;
    zonal__describe_options options = {.progress = stop_at_two, .progress_context = &done};
    if (!open_three(&folder, &source)) return;
    CHECK_FAILS(zonal__describe(source, &options, &d), ZONAL_CANCELLED, "was stopped");
    CHECK(done == 2 && d.count == 0 && d.class_counts == NULL);
    zonal__source_close(source);
    test_folder_remove(&folder);
}

static zonal_status describe_once(void *context) {
    zonal__source_options from = {.path = context};
    zonal__describe_options options = {.workers = 1};
    zonal__source *source;
    zonal__description d;
    zonal_status status;
    ZONAL_TRY(zonal__source_pack(&from, &source));
    status = zonal__describe(source, &options, &d);
    zonal__description_fini(&d);
    zonal__source_close(source);
    return status;
}

static void test_describe_allocations(void) {
    test_folder folder;
    zonal__source *source;
    if (!open_three(&folder, &source)) return;
    zonal__source_close(source);
    test_every_allocation("a description", describe_once, folder.name);
    test_folder_remove(&folder);
}

static const test_case tests[] = {
    {"split_partition", test_split_partition},
    {"split_halves", test_split_halves},
    {"split_seeds", test_split_seeds},
    {"split_classes_are_apart", test_split_classes_are_apart},
    {"split_fair", test_split_fair},
    {"split_refuses", test_split_refuses},
    {"split_allocations", test_split_allocations},
    {"idx", test_idx},
    {"idx_packed", test_idx_packed},
    {"cifar", test_cifar},
    {"wrong_places", test_wrong_places},
    {"nothing_left", test_nothing_left},
    {"reader_allocations", test_reader_allocations},
    {"describe", test_describe},
    {"describe_selection", test_describe_selection},
    {"describe_bad", test_describe_bad},
    {"describe_stopped", test_describe_stopped},
    {"describe_allocations", test_describe_allocations},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
