/* Folders of images, and what all sources have in common: src/data/folder.c, source.h. */
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/codec.h"
#include "data/pack.h"
#include "data/source.h"
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"

static test_folder top;
static char log_text[8192];

static void keep_log(void *context, const char *line) {
    (void)context;
    strncat(log_text, line, sizeof log_text - strlen(log_text) - 2);
    strcat(log_text, "\n");
}

static int begin(void) {
    log_text[0] = '\0';
    zonal_set_log(keep_log, NULL);
    return CHECK(test_folder_make(&top));
}

/* Files, links and, after what is in them, folders. */
static void remove_all(const char *path) {
    DIR *dir = remove(path) == 0 ? NULL : opendir(path);
    struct dirent *entry;
    char below[1024];
    if (!dir) return;
    while ((entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        remove_all(below);
    }
    closedir(dir);
    remove(path);
}

static void end(void) {
    zonal_set_log(NULL, NULL);
    remove_all(top.path);
}

/* The path of something in the folder of the test; valid until the next call. */
static const char *at(const char *name) {
    return test_folder_file(&top, name);
}

static void make_folders(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s", at(name));
    for (char *slash = path + strlen(top.path) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
}

static void put(const char *name, const char *content) {
    FILE *stream;
    make_folders(name);
    stream = fopen(at(name), "wb");
    if (!CHECK_MSG(stream != NULL, "%s cannot be written", name)) return;
    fputs(content, stream);
    fclose(stream);
}

/* One grey pixel. Returns 0 where PNG cannot be written. */
static int put_image(const char *name, int value) {
    uint8_t pixel = (uint8_t)value;
    zonal__image image = {.width = 1, .height = 1, .channels = 1, .pixels = &pixel, .room = 1};
    zonal_status status;
    make_folders(name);
    status = zonal__image_write_png(at(name), &image);
    return status == ZONAL_OK || (CHECK(status == ZONAL_UNSUPPORTED) && 0);
}

static zonal__source *open_split(const char *name, zonal__split split) {
    zonal__source_options options = {.path = at(name), .split = split};
    zonal__source *source;
    return CHECK_OK(zonal__source_open(&options, &source)) ? source : NULL;
}

static void check_refused(const char *name, zonal__split split, const char *class_list,
                          zonal_status status, const char *sentence) {
    char path[1024];
    zonal__source_options options = {.path = path, .split = split, .class_list = class_list};
    zonal__source *source;
    snprintf(path, sizeof path, "%s", at(name));
    CHECK_FAILS(zonal__source_open(&options, &source), status, sentence);
    CHECK(source == NULL);
}

/* The values of all images, in order, as text: "1 2 3 ". */
static const char *values(zonal__source *source) {
    static char text[1024];
    zonal__image image = {0};
    text[0] = '\0';
    for (int64_t i = 0; i < source->count; i++) {
        if (!CHECK_OK(zonal__source_read(source, i, &image))) break;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%d ", image.pixels[0]);
    }
    zonal__image_fini(&image);
    return text;
}

static const char *labels(const zonal__source *source) {
    static char text[1024];
    text[0] = '\0';
    for (int64_t i = 0; source->labels && i < source->count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s ",
                 source->class_names[source->labels[i]]);
    return text;
}

#define CHECK_TEXT(got, want)                                                                      \
    CHECK_MSG(strcmp(got, want) == 0, "%s is \"%s\", want \"%s\"", #got, got, want)

static void check_images(zonal__source *source, const char *want_values, const char *want_labels) {
    CHECK_TEXT(values(source), want_values);
    CHECK_TEXT(labels(source), want_labels);
    zonal__source_close(source);
}

static void check_source(zonal__source *source, const char *want_values, const char *want_labels) {
    if (!source) return;
    CHECK(strcmp(source->table->kind, "folder") == 0);
    CHECK(source->width == 0 && source->height == 0 && source->channels == 0);
    check_images(source, want_values, want_labels);
}

/* ---- layouts --------------------------------------------------------------------------------- */

static void test_classes(void) {
    if (!begin()) return;
    if (!put_image("set/b/2.png", 2)) {
        end();
        SKIP("built without libpng");
    }
    put_image("set/b/10.PNG", 10); /* byte order: 1 before 2 */
    put_image("set/B/7.png", 7);
    put_image("set/a/z.png", 5);
    put_image("set/a/inner/a.png", 6); /* after the files of the folder itself */
    put_image("set/a/.hidden.png", 99);
    put_image("set/.git/x.png", 99);
    put("set/a/notes.txt", "not an image");
    put("set/LICENCE", "not a class");
    check_source(open_split("set", ZONAL__SPLIT_ALL), "7 5 6 10 2 ", "B a a b b ");
    end();
}

static void test_flat(void) {
    zonal__source *source;
    if (!begin()) return;
    if (!put_image("set/c.png", 3)) {
        end();
        SKIP("built without libpng");
    }
    put_image("set/a.png", 1);
    put_image("set/b.png", 2);
    source = open_split("set", ZONAL__SPLIT_ALL);
    if (source) CHECK(source->classes == 0 && !source->labels && !source->class_names);
    check_source(source, "1 2 3 ", "");
    end();
}

static void test_divided(void) {
    zonal__source *source;
    if (!begin()) return;
    if (!put_image("set/train/a/1.png", 1)) {
        end();
        SKIP("built without libpng");
    }
    put_image("set/train/b/2.png", 2);
    put_image("set/train/c/3.png", 3);
    put_image("set/valid/b/4.png", 4); /* has no class a: b keeps its number */
    check_source(open_split("set", ZONAL__SPLIT_TRAIN), "1 2 3 ", "a b c ");
    source = open_split("set", ZONAL__SPLIT_VAL);
    if (source) CHECK(source->classes == 3 && source->labels[0] == 1);
    check_source(source, "4 ", "b ");
    CHECK_TEXT(log_text, "");
    check_source(open_split("set", ZONAL__SPLIT_TEST), "4 ", "b ");
    CHECK_MSG(strstr(log_text, "has no test folder") != NULL, "the log: %s", log_text);
    check_source(open_split("set", ZONAL__SPLIT_ALL), "1 2 4 3 ", "a b b c ");
    put_image("set/test/c/5.png", 5);
    check_source(open_split("set", ZONAL__SPLIT_TEST), "5 ", "c ");
    put_image("set/val/a/6.png", 6);
    check_refused("set", ZONAL__SPLIT_TRAIN, NULL, ZONAL_FORMAT,
                  "has both val and valid for its validation images; put them into one");
    end();
}

/* A set that is not divided may have classes of these names. */
static void test_names_like_splits(void) {
    if (!begin()) return;
    if (!put_image("set/val/1.png", 1)) {
        end();
        SKIP("built without libpng");
    }
    put_image("set/valid/2.png", 2);
    put_image("set/other/3.png", 3);
    check_source(open_split("set", ZONAL__SPLIT_ALL), "3 1 2 ", "other val valid ");
    CHECK_TEXT(log_text, "");
    put_image("large/Train/a/1.png", 1);
    put_image("large/Test/a/2.png", 2);
    check_source(open_split("large", ZONAL__SPLIT_ALL), "2 1 ", "Test Train ");
    CHECK_MSG(strstr(log_text, "large/Train is taken for a class") != NULL, "the log: %s",
              log_text);
    end();
}

/* A test folder without labels, as ImageNet's. */
static void test_unlabelled_test(void) {
    if (!begin()) return;
    if (!put_image("set/train/a/1.png", 1)) {
        end();
        SKIP("built without libpng");
    }
    put_image("set/val/a/2.png", 2);
    put_image("set/test/3.png", 3);
    check_source(open_split("set", ZONAL__SPLIT_TEST), "3 ", "");
    check_source(open_split("set", ZONAL__SPLIT_TRAIN), "1 ", "a ");
    CHECK_TEXT(log_text, "");
    check_source(open_split("set", ZONAL__SPLIT_ALL), "1 2 ", "a a ");
    CHECK_MSG(strstr(log_text, "1 image in no class's folder is") != NULL, "the log: %s", log_text);
    end();
}

/* A class may be called train, as long as there are others and it holds images. */
static void test_class_called_train(void) {
    if (!begin()) return;
    if (!put_image("set/train/1.png", 1)) {
        end();
        SKIP("built without libpng");
    }
    put_image("set/bus/2.png", 2);
    put_image("set/test/3.png", 3);
    check_source(open_split("set", ZONAL__SPLIT_ALL), "2 3 1 ", "bus test train ");
    end();
}

/* ---- splits ---------------------------------------------------------------------------------- */

/* Train, val and test have no image in common and all together; each has some of each class. */
static void check_partition(const char *name, int total) {
    int seen[256] = {0}, found = 0;
    for (int split = ZONAL__SPLIT_TRAIN; split <= ZONAL__SPLIT_TEST; split++) {
        zonal__source *source = open_split(name, (zonal__split)split);
        zonal__image image = {0};
        int of_class[2] = {0};
        if (!source) return;
        for (int64_t i = 0; i < source->count; i++) {
            if (!CHECK_OK(zonal__source_read(source, i, &image))) break;
            found += seen[image.pixels[0]]++ == 0;
            CHECK((image.pixels[0] >= 100) == source->labels[i]);
            of_class[source->labels[i]]++;
        }
        CHECK_MSG(of_class[0] >= 1 && of_class[1] >= 1 &&
                      (split != ZONAL__SPLIT_TRAIN || (of_class[0] >= 10 && of_class[1] >= 10)),
                  "split %d has %d and %d", split, of_class[0], of_class[1]);
        zonal__image_fini(&image);
        zonal__source_close(source);
    }
    CHECK_MSG(found == total, "%d of %d images are in a split", found, total);
}

static void test_seeded_split(void) {
    if (!begin()) return;
    if (!put_image("set/x/0.png", 0)) {
        end();
        SKIP("built without libpng");
    }
    for (int i = 0; i < 20; i++) {
        char name[64];
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s/%d.png", k ? "set/y" : "set/x", i);
            put_image(name, i + 100 * k);
            snprintf(name, sizeof name, "%s/%d.png", k ? "two/train/y" : "two/train/x", i);
            put_image(name, i + 100 * k);
        }
    }
    check_partition("set", 40);
    check_partition("two", 40); /* train alone */
    put_image("two/test/x/20.png", 20);
    put_image("two/test/y/20.png", 120);
    check_partition("two", 42);
    CHECK_MSG(strstr(log_text, "has no val folder") != NULL, "the log: %s", log_text);
    end();
}

/* What each of the files 0 to n - 1 of a set belongs to; 0: not there. Nothing is decoded. */
static void assign(const char *name, uint64_t seed, int n, int *split) {
    memset(split, 0, (size_t)n * sizeof *split);
    for (int s = ZONAL__SPLIT_TRAIN; s <= ZONAL__SPLIT_TEST; s++) {
        zonal__source_options options = {.path = at(name), .split = (zonal__split)s, .seed = seed};
        zonal__source *source;
        if (!CHECK_OK(zonal__source_open(&options, &source))) return;
        for (int64_t i = 0; i < source->count; i++) {
            char text[ZONAL__NAME_ROOM];
            int number = -1;
            zonal__source_name(source, i, text);
            CHECK(sscanf(text + 2, "%d", &number) == 1 && number >= 0 && number < n);
            CHECK_MSG(split[number] == 0, "%s is in two splits", text);
            split[number] = s;
        }
        zonal__source_close(source);
    }
}

static void put_number(const char *set, int number) {
    char name[64];
    snprintf(name, sizeof name, "%s/%c/%04d.jpg", set, 'a' + number % 2, number);
    put(name, "");
}

/* Images that are added or removed move no other; the seed moves most; each class has its share
 * within 4 standard deviations of a binomial count, sqrt(150 x .1 x .9) = 3.7. */
static void test_split_stands(void) {
    enum { BEFORE = 300, AFTER = 420 };
    int before[AFTER], after[AFTER], other[AFTER], moved = 0, share[2][4] = {{0}};
    if (!begin()) return;
    for (int i = 0; i < BEFORE; i++) put_number("set", i);
    assign("set", 7, AFTER, before);
    for (int i = BEFORE; i < AFTER; i++) put_number("set", i);
    for (int i = 0; i < BEFORE; i += 10) {
        char name[64];
        snprintf(name, sizeof name, "set/a/%04d.jpg", i);
        remove(at(name));
    }
    assign("set", 7, AFTER, after);
    assign("set", 8, AFTER, other);
    for (int i = 0; i < BEFORE; i++) {
        CHECK(before[i] != 0);
        share[i % 2][before[i]]++;
        if (i % 10 == 0) continue;
        CHECK_MSG(after[i] == before[i], "image %d went from %d to %d", i, before[i], after[i]);
        moved += other[i] != after[i];
    }
    for (int c = 0; c < 2; c++)
        for (int s = ZONAL__SPLIT_VAL; s <= ZONAL__SPLIT_TEST; s++)
            CHECK_CLOSE((double)share[c][s], 15, 15);
    CHECK_MSG(moved > 40, "another seed moved %d of 270", moved);
    end();
}

/* Classes of 3 have one of each part; of 2, one for training and one for validation. */
static void test_split_of_few(void) {
    int split[64], count[8][4] = {{0}};
    if (!begin()) return;
    for (int i = 0; i < 23; i++) {
        char name[64];
        snprintf(name, sizeof name, "set/%c/%04d.jpg", 'a' + i / 3, i); /* the last has 2 */
        put(name, "");
    }
    for (uint64_t seed = 0; seed < 40; seed++) {
        memset(count, 0, sizeof count);
        assign("set", seed, 64, split);
        for (int i = 0; i < 23; i++) count[i / 3][split[i]]++;
        for (int c = 0; c < 7; c++)
            CHECK_MSG(count[c][1] == 1 && count[c][2] == 1 && count[c][3] == 1,
                      "class %d: %d %d %d", c, count[c][1], count[c][2], count[c][3]);
        CHECK(count[7][ZONAL__SPLIT_TRAIN] == 1);
    }
    end();
}

/* ---- class lists ----------------------------------------------------------------------------- */

static void test_class_list(void) {
    char list[1024];
    zonal__source_options options = {.class_list = list};
    char path[1024];
    zonal__source *source;
    FILE *stream;
    if (!begin()) return;
    if (!put_image("set/train/n01/1.png", 1)) {
        end();
        SKIP("built without libpng");
    }
    put_image("set/train/n02/2.png", 2);
    put_image("set/train/n03/3.png", 3);
    put_image("set/val/n03/4.png", 4);
    put("list", "# our classes\n\nn03 great white shark\r\n  n01\ttench");
    snprintf(list, sizeof list, "%s", at("list"));
    snprintf(path, sizeof path, "%s", at("set"));
    options.path = path;
    options.split = ZONAL__SPLIT_TRAIN;
    if (CHECK_OK(zonal__source_open(&options, &source))) {
        CHECK(source->classes == 2 && strcmp(source->class_names[0], "n03") == 0);
        check_source(source, "3 1 ", "n03 n01 ");
    }
    put("list", "n01\nn0x\n");
    check_refused("set", ZONAL__SPLIT_TRAIN, list, ZONAL_FORMAT, "names class n0x");
    CHECK(strstr(zonal_last_error()->message, "did you mean n01?") != NULL);
    put("list", "n01\nn02\nn01\n");
    check_refused("set", ZONAL__SPLIT_TRAIN, list, ZONAL_FORMAT, "names class n01 twice");
    put("list", "# nothing\n\n");
    check_refused("set", ZONAL__SPLIT_TRAIN, list, ZONAL_FORMAT, "names no class");
    put_image("set/train/n01 great white/5.png", 5);
    put("list", "\xef\xbb\xbfn03\n n01 great white \r\n");
    if (CHECK_OK(zonal__source_open(&options, &source)))
        check_source(source, "3 5 ", "n03 n01 great white ");
    if (CHECK((stream = fopen(list, "wb")) != NULL)) {
        fwrite("n01\0\nn02\n", 1, 9, stream);
        fclose(stream);
    }
    check_refused("set", ZONAL__SPLIT_TRAIN, list, ZONAL_FORMAT,
                  "has a byte of 0, so it is no text");
    check_refused("set", ZONAL__SPLIT_TRAIN, "/nowhere/list", ZONAL_IO, "/nowhere/list");
    end();
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_bad_folders(void) {
    if (!begin()) return;
    put("empty/notes.txt", "");
    check_refused("empty", ZONAL__SPLIT_TRAIN, NULL, ZONAL_FORMAT, "empty contains no image");
    put("lonely/a/1.jpg", "");
    put("lonely/b/notes.txt", "");
    put("lonely/c/notes.txt", "");
    check_refused("lonely", ZONAL__SPLIT_ALL, NULL, ZONAL_FORMAT,
                  "empty classes: 2 beside 1 images, where 1 are accepted");
    CHECK_MSG(strstr(log_text, "class b has no image") && strstr(log_text, "class c has no image"),
              "the log: %s", log_text);
    put("valonly/val/a/1.jpg", "");
    check_refused("valonly", ZONAL__SPLIT_TRAIN, NULL, ZONAL_FORMAT, "has no train folder");
    check_refused("nowhere", ZONAL__SPLIT_ALL, NULL, ZONAL_IO, "No such file");
    put("tiny/a/1.jpg", "");
    check_refused("tiny", ZONAL__SPLIT_VAL, NULL, ZONAL_ARGUMENT, "no image for the val split");
    put("text.txt", "a text, not a source of images");
    check_refused("text.txt", ZONAL__SPLIT_ALL, NULL, ZONAL_FORMAT, "textures:FAMILY");
    if (geteuid() != 0) {
        put("closed/a/1.jpg", "");
        chmod(at("closed/a"), 0);
        check_refused("closed", ZONAL__SPLIT_ALL, NULL, ZONAL_IO, "make it readable");
        chmod(at("closed/a"), 0755);
    }
    end();
}

static void link_to(const char *target, const char *name) {
    make_folders(name);
    CHECK(symlink(target, at(name)) == 0);
}

static void test_links(void) {
    if (!begin()) return;
    if (!put_image("store/one.png", 1)) {
        end();
        SKIP("built without libpng");
    }
    put_image("store/two/2.png", 2);
    link_to("../../store/one.png", "set/a/1.png");
    link_to("../store/two", "set/b");
    link_to("nowhere", "set/a/broken.txt"); /* not an image: no matter */
    check_source(open_split("set", ZONAL__SPLIT_ALL), "1 2 ", "a b ");
    CHECK_TEXT(log_text, "");
    link_to("../../set", "set/a/up");
    check_source(open_split("set", ZONAL__SPLIT_ALL), "1 2 ", "a b "); /* one is accepted */
    CHECK_MSG(strstr(log_text, "set/a/up is a link to a folder that it lies in") != NULL,
              "the log: %s", log_text);
    link_to("self.png", "set/a/self.png");
    link_to("nowhere.png", "set/a/broken.png");
    link_to("nowhere", "set/c");
    log_text[0] = '\0';
    check_refused("set", ZONAL__SPLIT_ALL, NULL, ZONAL_FORMAT,
                  "empty classes: 4 beside 2 images, where 1 are accepted");
    CHECK_MSG(strstr(log_text, "set/a/up is a link") && strstr(log_text, "set/a/self.png leads") &&
                  strstr(log_text, "set/a/broken.png leads nowhere: No such file") &&
                  strstr(log_text, "set/c leads nowhere"),
              "the log: %s", log_text);
    end();
}

/* A flat set, whose folder is looked into twice: each broken link counts once. */
static void test_broken_links_counted_once(void) {
    zonal__source_options options = {.max_corrupt = .5};
    zonal__source *source;
    if (!begin()) return;
    put("set/1.jpg", "");
    put("set/2.jpg", "");
    link_to("nowhere", "set/3.jpg");
    link_to("nowhere", "set/4.jpg");
    check_refused("set", ZONAL__SPLIT_ALL, NULL, ZONAL_FORMAT, "2 beside 2 images");
    options.path = at("set");
    if (CHECK_OK(zonal__source_open(&options, &source))) CHECK(source->count == 2);
    zonal__source_close(source);
    end();
}

/* 23 folders, each with two links to the next: 2^23 paths. */
static void test_many_paths(void) {
    char link[64], target[64];
    if (!begin()) return;
    for (int i = 0; i < 23; i++) {
        snprintf(target, sizeof target, "../%d", i + 1);
        for (int k = 0; k < 2; k++) {
            snprintf(link, sizeof link, "store/%d/%c", i, 'a' + k);
            link_to(target, link);
        }
    }
    put("store/23/1.jpg", "");
    link_to("../store/0", "set/class");
    check_refused("set", ZONAL__SPLIT_ALL, NULL, ZONAL_IO, "folders are reached through links");
    end();
}

static void test_class_list_pipe(void) {
    char list[1024];
    if (!begin()) return;
    put("set/a/1.jpg", "");
    snprintf(list, sizeof list, "%s", at("list"));
    CHECK(mkfifo(list, 0600) == 0);
    check_refused("set", ZONAL__SPLIT_ALL, list, ZONAL_IO, "it is not a file");
    end();
}

/* Formats that are known and not read are named with their number. */
static void test_unread_formats(void) {
    if (!begin()) return;
    put("set/a/1.jpg", "");
    put("set/a/2.HEIC", "");
    put("set/b/3.heif", "");
    put("set/b/4.jpg", "");
    put("set/b/5.jxl", "");
    zonal__source_close(open_split("set", ZONAL__SPLIT_ALL));
    CHECK_MSG(strstr(log_text, "skipped 2 HEIC files: zonal does not read it; convert them") &&
                  strstr(log_text, "skipped 1 JPEG XL files"),
              "the log: %s", log_text);
    put("phone/1.heic", "");
    check_refused("phone", ZONAL__SPLIT_ALL, NULL, ZONAL_FORMAT,
                  "contains no readable image, but 1 HEIC files");
    end();
}

/* ---- which kind ------------------------------------------------------------------------------ */

/* The readers refuse these files; their sentences show that they were asked. */
static void test_kinds(void) {
    zonal__source_options textures = {.path = "textures:none-such"};
    zonal__source *source;
    if (!begin()) return;
    put("cifar10/data_batch_1.bin", "x");
    put("cifar100/train.bin", "x");
    put("mnist/train-images-idx3-ubyte", "x");
    put("mnist.gz/train-images-idx3-ubyte.gz", "x");
    put("cifar-test/test_batch.bin", "x"); /* the training images are missing */
    put("mnist-test/t10k-images-idx3-ubyte", "x");
    put("x.h5", "x");
    put("x-idx3-ubyte", "x");
    check_refused("cifar10", ZONAL__SPLIT_ALL, NULL, ZONAL_FORMAT, "data_batch_1.bin");
    check_refused("cifar100", ZONAL__SPLIT_ALL, NULL, ZONAL_FORMAT, "train.bin");
    check_refused("mnist", ZONAL__SPLIT_ALL, NULL, ZONAL_FORMAT, "train-images-idx3-ubyte");
    check_refused("cifar-test", ZONAL__SPLIT_TRAIN, NULL, ZONAL_IO, "data_batch_1.bin");
    check_refused("mnist-test", ZONAL__SPLIT_TRAIN, NULL, ZONAL_IO, "train-images-idx3-ubyte");
    check_refused("x-idx3-ubyte", ZONAL__SPLIT_ALL, NULL, ZONAL_FORMAT, "x-idx3-ubyte");
    for (int i = 0; i < 2; i++) { /* without zlib the status is another */
        zonal__source_options options = {.path = at(i ? "x.h5" : "mnist.gz")};
        zonal_status status = zonal__source_open(&options, &source);
        CHECK_MSG(status == ZONAL_FORMAT || status == ZONAL_UNSUPPORTED, "%s: %s", options.path,
                  zonal_status_name(status));
    }
    CHECK_FAILS(zonal__source_open(&textures, &source), ZONAL_ARGUMENT, "none-such");
    textures.path = "";
    CHECK_FAILS(zonal__source_open(&textures, &source), ZONAL_ARGUMENT, "needs a name");
    end();
}

/* A pack is known by its first bytes, whatever its name. */
static void test_pack(void) {
    uint8_t pixel = 42;
    zonal__image image = {.width = 1, .height = 1, .channels = 1, .pixels = &pixel, .room = 1};
    zonal__pack_options options = {0};
    zonal__pack_writer *writer;
    zonal__source *source;
    if (!begin()) return;
    if (CHECK_OK(zonal__pack_create(at("some.name"), &options, &writer))) {
        CHECK_OK(zonal__pack_add(writer, &image, 0, ZONAL__SPLIT_ALL));
        CHECK_OK(zonal__pack_commit(writer));
        source = open_split("some.name", ZONAL__SPLIT_ALL);
        if (source) {
            CHECK_TEXT(source->table->kind, "pack");
            CHECK_TEXT(values(source), "42 ");
        }
        zonal__source_close(source);
    }
    end();
}

/* A class list also chooses among the classes of a pack, and is refused where they have no names.
 */
static void test_class_list_of_others(void) {
    static const char *const names[] = {"ant", "bee", "cat"};
    uint8_t pixel;
    zonal__image image = {.width = 1, .height = 1, .channels = 1, .pixels = &pixel, .room = 1};
    zonal__pack_options named = {.classes = 3, .class_names = names}, plain = {.classes = 3};
    char list[1024], path[1024];
    zonal__source_options options = {.path = path, .class_list = list};
    zonal__pack_writer *writer;
    zonal__source *source;
    if (!begin()) return;
    put("list", "cat\nant\n");
    snprintf(list, sizeof list, "%s", at("list"));
    for (int k = 0; k < 2; k++) {
        if (!CHECK_OK(zonal__pack_create(at(k ? "plain" : "named"), k ? &plain : &named, &writer)))
            continue;
        for (int i = 0; i < 6; i++) {
            pixel = (uint8_t)(10 + i);
            CHECK_OK(zonal__pack_add(writer, &image, i % 3,
                                     i < 5 ? ZONAL__SPLIT_TRAIN : ZONAL__SPLIT_VAL));
        }
        CHECK_OK(zonal__pack_commit(writer));
    }
    snprintf(path, sizeof path, "%s", at("named"));
    if (CHECK_OK(zonal__source_open(&options, &source))) {
        CHECK(source->classes == 2 && source->labels[0] == 1 && source->labels[1] == 0);
        check_images(source, "10 12 13 15 ", "ant cat ant cat ");
    }
    options.split = ZONAL__SPLIT_VAL;
    if (CHECK_OK(zonal__source_open(&options, &source))) check_images(source, "15 ", "cat ");
    put("list", "ant\n");
    CHECK_FAILS(zonal__source_open(&options, &source), ZONAL_FORMAT,
                "has no image of the classes in");
    CHECK(source == NULL);
    put("list", "ent\n");
    CHECK_FAILS(zonal__source_open(&options, &source), ZONAL_FORMAT,
                "named has no such class; did you mean ant?");
    snprintf(path, sizeof path, "%s", at("plain"));
    CHECK_FAILS(zonal__source_open(&options, &source), ZONAL_ARGUMENT,
                "has classes with numbers only; leave it out");
    snprintf(path, sizeof path, "textures:disk");
    CHECK_FAILS(zonal__source_open(&options, &source), ZONAL_ARGUMENT,
                "textures:disk has no classes");
    end();
}

/* ---- corrupt images -------------------------------------------------------------------------- */

/* 300 images, of which 4 are corrupt, are too many beyond the 3 of 1 %; each counts once. */
static void test_corrupt_images(void) {
    static const int64_t corrupt[] = {10, 20, 30, 40};
    zonal__source *source;
    zonal__image image = {0};
    if (!begin()) return;
    for (int i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof name, "set/%c/%03d.png", i < 150 ? 'a' : 'b', i);
        if (i == 10 || i == 20 || i == 30 || i == 40) {
            put(name, "no image");
        } else if (!put_image(name, i % 256)) {
            end();
            SKIP("built without libpng");
        }
    }
    source = open_split("set", ZONAL__SPLIT_ALL);
    if (source && CHECK(source->count == 300)) {
        for (int round = 0; round < 2; round++)
            for (int i = 0; i < 3; i++)
                CHECK_FAILS(zonal__source_read(source, corrupt[i], &image), ZONAL_FORMAT,
                            "is neither JPEG, PNG, WebP");
        CHECK(source->bad == 3);
        CHECK(strstr(log_text, "set/a/010.png is neither") != NULL);
        CHECK(strstr(strstr(log_text, "010.png") + 1, "010.png") == NULL);
        CHECK_OK(zonal__source_read(source, 11, &image));
        CHECK_FAILS(zonal__source_read(source, corrupt[3], &image), ZONAL_IO,
                    "4 of 300, where 3 are accepted");
        CHECK(strstr(zonal_last_error()->message, "040.png") != NULL);
        CHECK_FAILS(zonal__source_read(source, corrupt[0], &image), ZONAL_IO, "too many");
        CHECK_FAILS(zonal__source_read(source, 300, &image), ZONAL_ARGUMENT, "0 to 299");
        CHECK_FAILS(zonal__source_read(source, -1, &image), ZONAL_ARGUMENT, "0 to 299");
    }
    zonal__image_fini(&image);
    zonal__source_close(source);
    end();
}

static void test_replacement(void) {
    static int32_t of[] = {0, 0, 1, 0, 1, 2};
    zonal__source source = {.count = 6, .labels = of, .classes = 3};
    CHECK(zonal__source_replacement(&source, 0) == 1);
    CHECK(zonal__source_replacement(&source, 1) == 3);
    CHECK(zonal__source_replacement(&source, 3) == 0);
    CHECK(zonal__source_replacement(&source, 4) == 2);
    CHECK(zonal__source_replacement(&source, 5) == 0); /* alone in its class: the next */
    source.labels = NULL;
    CHECK(zonal__source_replacement(&source, 1) == 2);
    CHECK(zonal__source_replacement(&source, 5) == 0);
    source.count = 1;
    CHECK(zonal__source_replacement(&source, 0) == 0);
}

static void test_select(void) {
    static const int64_t first[] = {4, 2, 1}, second[] = {2, 0};
    zonal__source *source;
    if (!begin()) return;
    for (int i = 0; i < 6; i++) {
        char name[64];
        snprintf(name, sizeof name, "set/%c/%d.png", "abc"[i / 2], i);
        if (!put_image(name, i)) {
            end();
            SKIP("built without libpng");
        }
    }
    source = open_split("set", ZONAL__SPLIT_ALL);
    if (source) {
        CHECK_OK(zonal__source_select(source, 3, first));
        CHECK_TEXT(values(source), "4 2 1 ");
        CHECK_TEXT(labels(source), "c b a ");
        CHECK_OK(zonal__source_select(source, 2, second)); /* numbers of the order so far */
        CHECK_TEXT(values(source), "1 4 ");
        CHECK_TEXT(labels(source), "a c ");
    }
    zonal__source_close(source);
    end();
}

static void test_bad_options(void) {
    zonal__source_options options = {.path = "/tmp", .channels = 2};
    zonal__source *source;
    CHECK_FAILS(zonal__source_folder(&options, &source), ZONAL_ARGUMENT, "1 or 3 channels, not 2");
    options.channels = 0;
    options.max_corrupt = (double)NAN;
    CHECK_FAILS(zonal__source_folder(&options, &source), ZONAL_ARGUMENT, "from 0 to 1");
    options.max_corrupt = 1.5;
    CHECK_FAILS(zonal__source_folder(&options, &source), ZONAL_ARGUMENT, "from 0 to 1");
}

/* ---- threads and memory ---------------------------------------------------------------------- */

enum { THREADS = 6, IMAGES = 40 };

typedef struct reader {
    zonal__source *source;
    int wrong;
} reader;

/* Every image several times; image i has value i, number 7 is corrupt. */
static void *read_all(void *context) {
    reader *r = context;
    zonal__image image = {0};
    for (int round = 0; round < 20; round++)
        for (int64_t i = 0; i < IMAGES; i++) {
            zonal_status status = zonal__source_read(r->source, i, &image);
            r->wrong += i == 7 ? status != ZONAL_FORMAT
                               : status != ZONAL_OK || image.pixels[0] != (uint8_t)i;
        }
    zonal__image_fini(&image);
    return NULL;
}

static int put_numbered(void) {
    for (int i = 0; i < IMAGES; i++) {
        char name[64];
        snprintf(name, sizeof name, "set/%c/%02d.png", i < 20 ? 'a' : 'b', i);
        if (i == 7)
            put(name, "no image");
        else if (!put_image(name, i))
            return 0;
    }
    return 1;
}

static void test_threads(void) {
    pthread_t threads[THREADS];
    reader readers[THREADS] = {0};
    zonal__source *source;
    if (!begin()) return;
    if (!put_numbered()) {
        end();
        SKIP("built without libpng");
    }
    source = open_split("set", ZONAL__SPLIT_ALL);
    if (source) {
        for (int i = 0; i < THREADS; i++) {
            readers[i].source = source;
            CHECK(pthread_create(&threads[i], NULL, read_all, &readers[i]) == 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            CHECK_MSG(readers[i].wrong == 0, "thread %d read %d images wrong", i, readers[i].wrong);
        }
        CHECK(source->bad == 1);
    }
    zonal__source_close(source);
    end();
}

static zonal_status open_and_read(void *context) {
    zonal__source *source;
    zonal__image image = {0};
    zonal_status status;
    ZONAL_TRY(zonal__source_open(context, &source));
    status = zonal__source_read(source, 3, &image);
    if (status == ZONAL_OK) {
        status = zonal__source_read(source, 7, &image);
        if (status == ZONAL_FORMAT) status = ZONAL_OK;
    }
    zonal__image_fini(&image);
    zonal__source_close(source);
    return status;
}

static void test_no_memory(void) {
    char path[1024], list[1024];
    zonal__source_options options = {.path = path};
    if (!begin()) return;
    if (!put_numbered()) {
        end();
        SKIP("built without libpng");
    }
    snprintf(path, sizeof path, "%s", at("set"));
    test_every_allocation("a folder", open_and_read, &options);
    put("list", "b\na\n");
    snprintf(list, sizeof list, "%s", at("list"));
    options.class_list = list;
    options.split = ZONAL__SPLIT_TRAIN;
    options.val_share = 0.1;
    test_every_allocation("a folder with a list of classes", open_and_read, &options);
    end();
}

static void test_steady_state(void) {
    zonal__source_options options = {0};
    zonal__source *source;
    zonal__image image = {0};
    int64_t before;
    if (!begin()) return;
    if (!put_numbered()) {
        end();
        SKIP("built without libpng");
    }
    options.path = at("set");
    failing_alloc_install(-1, 0);
    if (CHECK_OK(zonal__source_open(&options, &source))) {
        CHECK_OK(zonal__source_read(source, 0, &image));
        before = failing_alloc_calls();
        for (int64_t i = 8; i < IMAGES; i++) CHECK_OK(zonal__source_read(source, i, &image));
        CHECK(failing_alloc_calls() == before);
        zonal__source_close(source);
    }
    zonal__image_fini(&image);
    CHECK(failing_alloc_remove() == 0);
    end();
}

static const test_case tests[] = {
    {"classes", test_classes},
    {"flat", test_flat},
    {"divided", test_divided},
    {"names like splits", test_names_like_splits},
    {"unlabelled test", test_unlabelled_test},
    {"class called train", test_class_called_train},
    {"seeded split", test_seeded_split},
    {"split stands", test_split_stands},
    {"split of few", test_split_of_few},
    {"class list", test_class_list},
    {"class list of others", test_class_list_of_others},
    {"bad folders", test_bad_folders},
    {"links", test_links},
    {"broken links count once", test_broken_links_counted_once},
    {"many paths", test_many_paths},
    {"class list that is a pipe", test_class_list_pipe},
    {"unread formats", test_unread_formats},
    {"kinds", test_kinds},
    {"pack", test_pack},
    {"corrupt images", test_corrupt_images},
    {"replacement", test_replacement},
    {"select", test_select},
    {"bad options", test_bad_options},
    {"threads", test_threads},
    {"no memory", test_no_memory},
    {"steady state", test_steady_state},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
