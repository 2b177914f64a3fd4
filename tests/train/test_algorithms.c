/*
 * Where measured algorithms are taken from and kept, on a device that notes which files it is told
 * to read and write.
 */
#include "train/algorithms.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/training/tables.h"
#include "core/error.h"
#include "folder.h"
#include "test.h"

static char calls[4096]; /* "r/path " and "w/path " */
static zonal_status answer;

static void note(char what, const char *path) {
    size_t used = strlen(calls);
    snprintf(calls + used, sizeof calls - used, "%c%s ", what, path);
}

static zonal_status read_file(const zonal__device *device, const char *path) {
    (void)device;
    note('r', path);
    return answer == ZONAL_OK ? ZONAL_OK : ZONAL_FAIL(answer, "the test's answer");
}

static zonal_status write_file(const zonal__device *device, const char *path) {
    FILE *file = fopen(path, "w");
    (void)device;
    note('w', path);
    if (!file) return ZONAL_FAIL(ZONAL_IO, "cannot write %s: %s", path, strerror(errno));
    fclose(file);
    return ZONAL_OK;
}

static zonal_status describe(int index, zonal_device_info *info) {
    (void)index;
    snprintf(info->model, sizeof info->model, "Some (GPU) 9/x");
    return ZONAL_OK;
}

static const zonal__device *open_device(void) {
    static zonal__backend backend;
    static zonal__training_tables tables;
    const zonal__device *device = NULL;
    if (!backend.name) {
        backend = *zonal__backend_cpu();
        backend.name = "measuring";
        backend.describe = describe;
        tables = (zonal__training_tables){
            .backend = "measuring", .autotune_read = read_file, .autotune_write = write_file};
        CHECK_OK(zonal__device_register(&backend));
        CHECK_OK(zonal__training_register(&tables));
    }
    CHECK_OK(zonal__device_open("measuring", &device));
    calls[0] = '\0';
    answer = ZONAL_OK;
    return device;
}

static void check_calls(const char *want) {
    CHECK_MSG(strcmp(calls, want) == 0, "called \"%s\", not \"%s\"", calls, want);
    calls[0] = '\0';
}

static void test_users(void) {
    const zonal__device *device = open_device();
    test_folder folder;
    char cache[900], own[900], want[3000];
    if (!device || !CHECK(test_folder_make(&folder))) return;
    snprintf(own, sizeof own, "%s", test_folder_file(&folder, "own.txt"));
    snprintf(cache, sizeof cache, "%s", test_folder_file(&folder, "cache"));
    setenv("XDG_CACHE_HOME", cache, 1);
    CHECK_OK(zonal__algorithms_take(device, NULL, NULL));
    snprintf(want, sizeof want, "r%s/zonal/autotune-Some--GPU--9-x.txt ", cache);
    check_calls(want);
    CHECK(access(cache, F_OK) != 0); /* looking makes no folder */
    CHECK_OK(zonal__algorithms_keep(device, own, NULL));
    snprintf(want, sizeof want, "w%s w%s/zonal/autotune-Some--GPU--9-x.txt ", own, cache);
    check_calls(want);
    answer = ZONAL_FORMAT; /* a damaged one is no reason to fail */
    CHECK_OK(zonal__algorithms_take(device, NULL, NULL));
    snprintf(want, sizeof want, "%s/zonal/autotune-Some--GPU--9-x.txt", cache);
    unlink(want);
    snprintf(want, sizeof want, "%s/zonal", cache);
    rmdir(want);
    rmdir(cache);
    test_folder_remove(&folder);
}

static void test_others(void) {
    const zonal__device *device = open_device();
    test_folder folder;
    char own[900], given[900], want[3000];
    if (!device || !CHECK(test_folder_make(&folder))) return;
    snprintf(own, sizeof own, "%s", test_folder_file(&folder, "own.txt"));
    snprintf(given, sizeof given, "%s", test_folder_file(&folder, "given.txt"));
    CHECK_FAILS(zonal__algorithms_take(device, NULL, given), ZONAL_IO, "cannot read");
    check_calls("");
    CHECK_OK(write_file(device, given));
    calls[0] = '\0';
    CHECK_OK(zonal__algorithms_take(device, NULL, given));
    snprintf(want, sizeof want, "r%s ", given);
    check_calls(want);
    CHECK_OK(zonal__algorithms_take(device, own, NULL));
    snprintf(want, sizeof want, "r%s ", own);
    check_calls(want);
    CHECK_OK(zonal__algorithms_take(device, NULL, "none"));
    check_calls("");
    CHECK_OK(zonal__algorithms_keep(device, own, "none"));
    snprintf(want, sizeof want, "w%s ", own);
    check_calls(want);
    answer = ZONAL_FORMAT;
    CHECK_FAILS(zonal__algorithms_take(device, own, NULL), ZONAL_FORMAT, "the test's answer");
    CHECK_FAILS(zonal__algorithms_take(device, NULL, given), ZONAL_FORMAT, "the test's answer");
    test_folder_remove(&folder);
}

static void test_no_home(void) {
    const zonal__device *device = open_device();
    test_folder folder;
    char own[900], want[1000];
    if (!device || !CHECK(test_folder_make(&folder))) return;
    snprintf(own, sizeof own, "%s", test_folder_file(&folder, "own.txt"));
    unsetenv("HOME");
    setenv("XDG_CACHE_HOME", "relative", 1);
    CHECK_OK(zonal__algorithms_take(device, NULL, NULL));
    check_calls("");
    CHECK_OK(zonal__algorithms_keep(device, own, NULL));
    snprintf(want, sizeof want, "w%s ", own);
    check_calls(want);
    setenv("HOME", "/nowhere/at/all", 1); /* cannot be written: no reason to fail */
    CHECK_OK(zonal__algorithms_keep(device, own, NULL));
    CHECK(strstr(calls, "w/nowhere/at/all/.cache/zonal/autotune-Some--GPU--9-x.txt ") != NULL);
    test_folder_remove(&folder);
}

static void test_processor(void) {
    calls[0] = '\0';
    CHECK_OK(zonal__algorithms_take(zonal__device_cpu(), "own", NULL));
    CHECK_OK(zonal__algorithms_take(zonal__device_cpu(), NULL, "none"));
    CHECK_OK(zonal__algorithms_keep(zonal__device_cpu(), "own", NULL));
    CHECK_FAILS(zonal__algorithms_take(zonal__device_cpu(), NULL, "file"), ZONAL_ARGUMENT,
                "--autotune-cache file");
    check_calls("");
}

static const test_case tests[] = {{"users", test_users},
                                  {"others", test_others},
                                  {"no_home", test_no_home},
                                  {"processor", test_processor},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
