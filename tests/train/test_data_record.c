/* The record of a run's images: src/train/data_record.h. Sources are made up: names and
 * fingerprints are what a test says they are. */
#include "core/memory.h"
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"
#include "train/data_record.h"

/* ---- images that are only names -------------------------------------------------------------- */

typedef struct fake {
    zonal__source source;
    const char *const *names; /* NULL: numbers */
    uint64_t salt;            /* of the fingerprints */
    int64_t replaced;         /* this one has another fingerprint; -1: none */
} fake;

static void fake_name(const zonal__source *source, int64_t index, char name[ZONAL__NAME_ROOM]) {
    const fake *f = (const fake *)source;
    if (f->names)
        snprintf(name, ZONAL__NAME_ROOM, "%s", f->names[index]);
    else
        snprintf(name, ZONAL__NAME_ROOM, "index %lld", (long long)index);
}

static zonal_status fake_fingerprint(zonal__source *source, int64_t index, uint64_t *out) {
    const fake *f = (const fake *)source;
    char name[ZONAL__NAME_ROOM];
    *out = f->salt + (index == f->replaced);
    fake_name(source, index, name);
    for (const char *c = name; *c; c++) *out = *out * 31 + (unsigned char)*c;
    return ZONAL_OK;
}

static const zonal__source_table fake_table = {
    .kind = "fake", .name = fake_name, .fingerprint = fake_fingerprint};
static const zonal__source_table drawn_table = {
    .kind = "textures", .name = fake_name, .fingerprint = fake_fingerprint};

static fake make_fake(const char *const *names, int64_t count) {
    return (fake){.source = {.table = &fake_table, .count = count}, .names = names, .replaced = -1};
}

static zonal_status make_record(fake *train, fake *val, int64_t one_in, zonal__data_record **out) {
    const zonal__data_part parts[] = {{"train", &train->source}, {"val", &val->source}};
    return zonal__data_record_make(parts, 2, one_in, out);
}

/* What a comparison says of "before", which goes through a file, and "now". */
static void check_changes(fake *before[2], fake *now[2], const char *want) {
    test_folder folder;
    zonal__data_record *old = NULL, *read = NULL, *new = NULL;
    zonal__data_changes changes;
    if (!CHECK(test_folder_make(&folder))) return;
    if (CHECK_OK(make_record(before[0], before[1], 0, &old)) &&
        CHECK_OK(zonal__data_record_write(old, test_folder_file(&folder, "data.txt"))) &&
        CHECK_OK(zonal__data_record_read(folder.name, &read)) &&
        CHECK_OK(make_record(now[0], now[1], zonal__data_record_one_in(read), &new))) {
        zonal__data_record_compare(read, new, &changes);
        CHECK_MSG(strcmp(changes.text, want) == 0, "\"%s\", want \"%s\"", changes.text, want);
        CHECK(changes.changed == (want[0] != '\0') && changes.recorded);
    }
    zonal__data_record_destroy(old);
    zonal__data_record_destroy(read);
    zonal__data_record_destroy(new);
    test_folder_remove(&folder);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Names that a file must be able to hold. */
static const char *const odd[] = {"a b.png", "c\nd\t.png", "100%.png", "\x7f\xff\xfe.png",
                                  "caf\xc3\xa9.png"};

static void test_changes(void) {
    static const char *const four[] = {"a", "b", "c", "d"}, *const swapped[] = {"a", "c", "b", "d"};
    static const char *const fewer[] = {"a", "c", "d"}, *const other[] = {"v", "w"};
    static const char *const many[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    static const char *const with_v[] = {"a", "b", "c", "d", "v"};
    fake all = make_fake(four, 4), val = make_fake(other, 2), less = make_fake(fewer, 3);
    fake more = make_fake(many, 8), strange = make_fake(odd, 5), one = make_fake(other + 1, 1);
    fake replaced = make_fake(four, 4), order = make_fake(swapped, 4), taken = make_fake(with_v, 5);
    replaced.replaced = 2;
#define PAIR(x, y) ((fake *[]){&(x), &(y)})
    check_changes(PAIR(all, val), PAIR(all, val), "");
    check_changes(PAIR(strange, val), PAIR(strange, val), "");
    check_changes(PAIR(all, val), PAIR(less, val), "1 removed (b)");
    check_changes(PAIR(less, val), PAIR(all, val), "1 added (b)");
    check_changes(PAIR(all, val), PAIR(more, val), "4 added (e, f, g, ...)");
    check_changes(PAIR(all, val), PAIR(replaced, val), "1 replaced (c)");
    check_changes(PAIR(all, val), PAIR(taken, one), "1 moved to another part (v)");
    check_changes(PAIR(all, val), PAIR(strange, val),
                  "5 added (100%.png, a b.png, c\nd\t.png, ...), 4 removed (a, b, c, ...)");
    /* Training goes through the images in the order of their numbers. */
    check_changes(PAIR(all, val), PAIR(order, val), "train has other images");
}

/* Of more images than are listed every change of a name shows, and a replaced one where it is among
 * the listed. */
static void test_large(void) {
    fake large = make_fake(NULL, 100000), less = make_fake(NULL, 99999), none = make_fake(NULL, 0);
    fake others = make_fake(NULL, 100000);
    zonal__data_record *record;
    others.salt = 7;
    if (CHECK_OK(make_record(&large, &none, 0, &record))) {
        CHECK(zonal__data_record_one_in(record) == 4); /* 100000 / 32768 = 3.05 */
        zonal__data_record_destroy(record);
    }
    check_changes(PAIR(large, none), PAIR(large, none), "");
    zonal__data_record *old, *new;
    zonal__data_changes changes;
    if (CHECK_OK(make_record(&large, &none, 1 << 30, &old)) &&
        CHECK_OK(make_record(&less, &none, 1 << 30, &new))) {
        zonal__data_record_compare(old, new, &changes); /* none is listed */
        CHECK_MSG(strcmp(changes.text, "train had 100000 images and has 99999") == 0, "%s",
                  changes.text);
        zonal__data_record_destroy(old);
        zonal__data_record_destroy(new);
    }
    if (CHECK_OK(make_record(&large, &none, 0, &old)) &&
        CHECK_OK(make_record(&others, &none, 4, &new))) {
        long count = 0;
        zonal__data_record_compare(old, new, &changes);
        CHECK(sscanf(changes.text, "%ld replaced", &count) == 1);
        CHECK_MSG(labs(count - 25000) < 700, "%s", changes.text); /* 5 deviations of a quarter */
        CHECK(strstr(changes.text, "one image in 4") != NULL);
        zonal__data_record_destroy(old);
        zonal__data_record_destroy(new);
    }
}

/* Textures are numbers and settings: no list, but other settings are noticed. */
static void test_drawn(void) {
    fake before = make_fake(NULL, 1000), now = before, none = make_fake(NULL, 0);
    before.source.table = now.source.table = &drawn_table;
    check_changes(PAIR(before, none), PAIR(now, none), "");
    now.salt = 1;
    check_changes(PAIR(before, none), PAIR(now, none), "train has other images");
}

static void test_no_record(void) {
#define HEAD "zonal-data 2 1\n"
#define PART "part train 1 0123456789abcdef 0123456789abcdef\n"
    static const char *const bad[] = {
        "",
        "\n",
        HEAD,
        "zonal-data 3 1\n" PART,
        "zonal-data 2 0\n" PART,
        "zonal-data 2 1" PART,
        HEAD "part train 1 0123456789abcdef 0123456789abcde\n",
        HEAD "part train -1 0123456789abcdef 0123456789abcdef\n",
        HEAD "part train 99999999999999999999 0123456789abcdef 0123456789abcdef\n",
        HEAD "part a-name-that-is-too-long 1 0123456789abcdef 0123456789abcdef\n",
        HEAD PART PART PART PART PART,
        HEAD PART "image val 0123456789abcdef a\n",
        HEAD PART "image train 0123456789abcdef \n",
        HEAD PART "image train 0123456789abcdef a%0\n",
        HEAD PART "image train 0123456789abcdef a%00b\n",
        HEAD PART "image train 0123456789abcdef a",
        HEAD PART "image\n"};
    test_folder folder;
    zonal__data_record *record;
    if (!CHECK(test_folder_make(&folder))) return;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        FILE *file = fopen(test_folder_file(&folder, "data.txt"), "w");
        if (!CHECK(file != NULL)) break;
        fputs(bad[i], file);
        fclose(file);
        CHECK_FAILS(zonal__data_record_read(folder.name, &record), ZONAL_FORMAT, "not a record");
        CHECK(record == NULL);
    }
    FILE *file = fopen(test_folder_file(&folder, "data.txt"), "w");
    if (CHECK(file != NULL)) {
        fputs("zonal-data 1 1\n" PART, file);
        fclose(file);
        CHECK_FAILS(zonal__data_record_read(folder.name, &record), ZONAL_FORMAT,
                    "was written by an earlier zonal");
    }
    CHECK_FAILS(zonal__data_record_read(test_folder_file(&folder, "no"), &record), ZONAL_IO, "no");
    test_folder_remove(&folder);
}

static zonal_status write_and_read(void *context) {
    test_folder *folder = context;
    fake train = make_fake(odd, 5), val = make_fake(NULL, 3);
    zonal__data_record *made = NULL, *read = NULL;
    zonal_status status = make_record(&train, &val, 0, &made);
    if (status == ZONAL_OK)
        status = zonal__data_record_write(made, test_folder_file(folder, "data.txt"));
    if (status == ZONAL_OK) status = zonal__data_record_read(folder->name, &read);
    zonal__data_record_destroy(made);
    zonal__data_record_destroy(read);
    return status;
}

/* More than fit into the first piece of memory. */
static zonal_status make_many(void *context) {
    fake train = make_fake(odd, 5), val = make_fake(NULL, 300);
    zonal__data_record *made;
    (void)context;
    ZONAL_TRY(make_record(&train, &val, 0, &made));
    zonal__data_record_destroy(made);
    return ZONAL_OK;
}

static void test_allocations(void) {
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    test_every_allocation("a record of images", write_and_read, &folder);
    test_every_allocation("a record of many images", make_many, NULL);
    test_folder_remove(&folder);
}

static const test_case tests[] = {{"changes", test_changes},
                                  {"large", test_large},
                                  {"drawn", test_drawn},
                                  {"no_record", test_no_record},
                                  {"allocations", test_allocations},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
