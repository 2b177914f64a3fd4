#include "cli/common/inputs.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "train/run_folder.h"

enum { LONGEST_PATH = 4096 };

/* Devices and pipes keep nothing that could be lost. */
static int find_file(const char *path, struct stat *found) {
    return stat(path, found) == 0 && S_ISREG(found->st_mode);
}

static int is_it(const struct stat *file, const char *path) {
    struct stat other;
    return find_file(path, &other) && other.st_dev == file->st_dev && other.st_ino == file->st_ino;
}

int zonal__cli_is_same_file(const char *a, const char *b) {
    struct stat file;
    if (!a || !b) return 0;
    return strcmp(a, b) == 0 || (find_file(a, &file) && is_it(&file, b));
}

static zonal_status refuse(const char *option, const char *out, const char *input) {
    return ZONAL_FAIL(ZONAL_ARGUMENT, "%s %s would replace %s, an input; choose another name",
                      option, out, input);
}

/* Whether the file is one of a folder's; its path then is in "path". */
static int is_in(const struct stat *file, const char *folder, char path[LONGEST_PATH]) {
    DIR *opened = opendir(folder);
    struct dirent *entry;
    int found = 0;
    while (opened && !found && (entry = readdir(opened))) {
        found = snprintf(path, LONGEST_PATH, "%s/%s", folder, entry->d_name) < LONGEST_PATH &&
                is_it(file, path);
    }
    if (opened) closedir(opened);
    return found;
}

static int is_of_run(const struct stat *file, const char *run, char path[LONGEST_PATH]) {
    static const char *const folders[] = {"checkpoints", "events", "eval"};
    char folder[LONGEST_PATH];
    for (int i = 0; zonal__run_folder_files[i]; i++) {
        snprintf(path, LONGEST_PATH, "%s/%s", run, zonal__run_folder_files[i]);
        if (is_it(file, path)) return 1;
    }
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(folder, sizeof folder, "%s/%s", run, folders[i]);
        if (is_in(file, folder, path)) return 1;
    }
    return 0;
}

zonal_status zonal__cli_keep_input(const char *option, const char *out, const char *input) {
    struct stat file;
    char path[LONGEST_PATH];
    if (!out || !input || !find_file(out, &file)) return ZONAL_OK;
    if (is_it(&file, input)) return refuse(option, out, input);
    if (is_of_run(&file, input, path)) return refuse(option, out, path);
    return ZONAL_OK;
}
