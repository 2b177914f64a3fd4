/*
 * Event files: the checksum against RFC 3720, the bytes of a record against ones worked out by
 * hand, cutting at every length and with every byte damaged, a full disk. tensorboard_test.py
 * reads whole files with a reader of its own and with TensorBoard's.
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/checksum.h"
#include "core/event_file.h"
#include "core/file_read.h"
#include "core/memory.h"
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"
#include "train/run_folder.h"

static void test_crc32c(void) {
    /* RFC 3720, appendix B.4, and the check value of the CRC's catalogue for "123456789" */
    static const uint8_t read_command[48] = {
        0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02};
    uint8_t bytes[32] = {0};
    CHECK(zonal__crc32c(bytes, 32) == 0x8a9136aa);
    memset(bytes, 0xff, 32);
    CHECK(zonal__crc32c(bytes, 32) == 0x62a8ab43);
    for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
    CHECK(zonal__crc32c(bytes, 32) == 0x46dd794e);
    for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)(31 - i);
    CHECK(zonal__crc32c(bytes, 32) == 0x113fdb5c);
    CHECK(zonal__crc32c(read_command, 48) == 0xd9963a56);
    CHECK(zonal__crc32c("123456789", 9) == 0xe3069283);
    CHECK(zonal__crc32c(NULL, 0) == 0);
}

static int write_file(const char *path, int64_t first, int64_t last) {
    zonal__event_file *file;
    int good = 1;
    if (!CHECK_OK(zonal__event_file_create(path, first, &file))) return 0;
    for (int64_t step = first; step <= last; step++) {
        const zonal__scalar scalars[] = {{"loss/total", .5}, {"a", (double)step}};
        good &= CHECK_OK(zonal__event_file_add(file, step, 2, scalars));
    }
    CHECK_OK(zonal__event_file_sync(file));
    zonal__event_file_close(file);
    return good;
}

static size_t read_file(const char *path, char **text) {
    size_t length = 0;
    *text = NULL;
    CHECK_OK(zonal__file_read(path, 1 << 20, text, &length));
    return length;
}

static void put_file(const char *path, const char *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    if (!CHECK(file != NULL)) return;
    CHECK(fwrite(bytes, 1, n, file) == n);
    fclose(file);
}

static void test_bytes(void) {
    /* the event of step 300 but for its time: step, summary of 30 bytes, two values */
    static const uint8_t want[] = {0x10, 0xac, 0x02, 0x2a, 29,  0x0a, 17,   0x0a, 10,
                                   'l',  'o',  's',  's',  '/', 't',  'o',  't',  'a',
                                   'l',  0x15, 0,    0,    0,   0x3f, 0x0a, 8,    0x0a,
                                   1,    'a',  0x15, 0,    0,   0x96, 0x43}; /* 0.5f, 300f */
    test_folder folder;
    const char *path;
    char *text;
    size_t length;
    if (!CHECK(test_folder_make(&folder))) return;
    path = test_folder_file(&folder, "e");
    if (write_file(path, 300, 300) && (length = read_file(path, &text)) > sizeof want + 4) {
        CHECK(memcmp(text + length - 4 - sizeof want, want, sizeof want) == 0);
        zonal__free(text);
    }
    test_folder_remove(&folder);
}

/* Where each record of a file of steps "first" to "last" ends: cutting one step further each time.
 */
static int find_ends(const char *path, const char *bytes, size_t length, int64_t last,
                     size_t ends[16]) {
    for (int64_t step = 0; step <= last; step++) {
        struct stat state;
        put_file(path, bytes, length);
        if (!CHECK_OK(zonal__event_file_truncate_after(path, step))) return 0;
        if (!CHECK(stat(path, &state) == 0)) return 0;
        ends[step] = (size_t)state.st_size;
    }
    return 1;
}

static void test_cutting(void) {
    enum { LAST = 4 };
    test_folder folder;
    const char *path;
    char *text;
    size_t ends[16], length;
    struct stat state;
    if (!CHECK(test_folder_make(&folder))) return;
    path = test_folder_file(&folder, "e");
    if (!write_file(path, 1, LAST)) return;
    length = read_file(path, &text);
    if (find_ends(path, text, length, LAST, ends)) {
        /* 0: the version alone, since START has step 1; then a record for each step */
        CHECK(ends[0] > 0 && ends[LAST] == length);
        for (int k = 1; k <= LAST; k++) CHECK(ends[k] > ends[k - 1]);
        CHECK(ends[3] - ends[2] == ends[4] - ends[3]);
        for (size_t cut = 0; cut <= length; cut++) { /* a file that ends anywhere */
            put_file(path, text, cut);
            CHECK_OK(zonal__event_file_truncate_after(path, LAST));
            CHECK(stat(path, &state) == 0 && (size_t)state.st_size <= cut);
            CHECK_MSG(cut < ends[1] || (size_t)state.st_size >= ends[1], "cut at %zu: %lld", cut,
                      (long long)state.st_size);
        }
        for (size_t at = ends[1]; at < length; at++) { /* a damaged byte ends what is kept */
            size_t whole = ends[1];
            for (int k = 2; k <= LAST; k++)
                if (ends[k] <= at) whole = ends[k];
            text[at] ^= 0x10;
            put_file(path, text, length);
            text[at] ^= 0x10;
            CHECK_OK(zonal__event_file_truncate_after(path, LAST));
            CHECK(stat(path, &state) == 0);
            CHECK_MSG((size_t)state.st_size == whole, "byte %zu: %lld, want %zu", at,
                      (long long)state.st_size, whole);
        }
    }
    zonal__free(text);
    test_folder_remove(&folder);
}

static void test_refused(void) {
    const zonal__scalar one = {"x", 1},
                        longest = {
                            "0123456789012345678901234567890123456789012345678901234567890123", 1};
    test_folder folder;
    zonal__event_file *file, *again;
    const char *path;
    if (!CHECK(test_folder_make(&folder))) return;
    path = test_folder_file(&folder, "e");
    if (CHECK_OK(zonal__event_file_create(path, 1, &file))) {
        CHECK_FAILS(zonal__event_file_add(file, 1, 0, &one), ZONAL_ARGUMENT, "1 to 16");
        CHECK_FAILS(zonal__event_file_add(file, 1, 17, &one), ZONAL_ARGUMENT, "1 to 16");
        CHECK_FAILS(zonal__event_file_add(file, 1, 1, &longest), ZONAL_ARGUMENT, "tag");
        CHECK_FAILS(zonal__event_file_create(path, 1, &again), ZONAL_IO, "cannot write");
        zonal__event_file_close(file);
    }
    CHECK_FAILS(zonal__event_file_create(test_folder_file(&folder, "no/e"), 1, &file), ZONAL_IO,
                "cannot write");
    CHECK_FAILS(zonal__event_file_truncate_after(test_folder_file(&folder, "no"), 1), ZONAL_IO,
                "no");
    test_folder_remove(&folder);
}

/* ---- the log of a run ------------------------------------------------------------------------ */

static void count_line(void *context, const char *line) {
    if (strstr(line, "TensorBoard") && strstr(line, "cannot write")) ++*(int *)context;
}

/* A disk that is full: one remark, no harm to what was written before. */
static void test_full_disk(void) {
    const zonal__monitor monitor = {.mean_cosine = .5};
    const struct rlimit small = {4096, RLIM_INFINITY};
    struct rlimit usual;
    test_folder folder;
    zonal__event_log *log;
    int remarks = 0;
    char *text;
    struct stat before, after;
    if (!CHECK(test_folder_make(&folder))) return;
    zonal_set_log(count_line, &remarks);
    signal(SIGXFSZ, SIG_IGN);
    if (CHECK(getrlimit(RLIMIT_FSIZE, &usual) == 0) &&
        CHECK_OK(zonal__event_log_open(folder.path, 0, &log))) {
        const char *path = test_folder_file(&folder, "events/events.out.tfevents.000001");
        setrlimit(RLIMIT_FSIZE, &small);
        for (int step = 1; step <= 200; step++) zonal__event_log_monitor(log, step, &monitor);
        setrlimit(RLIMIT_FSIZE, &usual);
        zonal__event_log_sync(log);
        CHECK_MSG(remarks == 1, "%d remarks", remarks);
        CHECK(stat(path, &before) == 0 && before.st_size > 3900);
        CHECK_OK(zonal__event_file_truncate_after(path, 1000)); /* nothing is half there */
        CHECK(stat(path, &after) == 0 && after.st_size == before.st_size);
        zonal__event_log_close(log);
        if (read_file(path, &text) > 0) zonal__free(text);
        remove(path);
    }
    zonal_set_log(NULL, NULL);
    test_folder_remove(&folder);
}

static void test_no_log(void) {
    const zonal__step_line line = {.step = 1};
    const zonal__monitor monitor = {0};
    const zonal__online_result result = {0};
    zonal__event_log_step(NULL, &line);
    zonal__event_log_monitor(NULL, 1, &monitor);
    zonal__event_log_eval(NULL, 1, &result);
    zonal__event_log_sync(NULL);
    zonal__event_log_close(NULL);
}

static zonal_status open_and_close(void *context) {
    test_folder *folder = context;
    zonal__event_log *log;
    ZONAL_TRY(zonal__event_log_open(folder->path, 5, &log));
    zonal__event_log_close(log);
    remove(test_folder_file(folder, "events/events.out.tfevents.000002"));
    return ZONAL_OK;
}

static void test_memory(void) {
    test_folder folder, events;
    zonal__event_log *old;
    if (!CHECK(test_folder_make(&folder))) return;
    if (CHECK_OK(zonal__event_log_open(folder.path, 0, &old))) zonal__event_log_close(old);
    test_every_allocation("a log of events", open_and_close, &folder);
    snprintf(events.path, sizeof events.path, "%.240s/events", folder.path);
    test_folder_remove(&events);
    test_folder_remove(&folder);
}

static const test_case tests[] = {{"crc32c", test_crc32c},       {"bytes", test_bytes},
                                  {"cutting", test_cutting},     {"refused", test_refused},
                                  {"full disk", test_full_disk}, {"no log", test_no_log},
                                  {"memory", test_memory},       {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
