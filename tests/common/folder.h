/*
 * A folder of its own for a test that writes files: made empty, listed, removed.
 */
#ifndef ZONAL_TESTS_FOLDER_H
#define ZONAL_TESTS_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct test_folder {
    char path[256];
    char name[768]; /* of the last test_folder_file */
} test_folder;

static inline int test_folder_make(test_folder *folder) {
    const char *base = getenv("TMPDIR");
    snprintf(folder->path, sizeof folder->path, "%s/zonal-test-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder->path) != NULL;
}

/* The path of a file in the folder; valid until the next call. */
static inline const char *test_folder_file(test_folder *folder, const char *name) {
    snprintf(folder->name, sizeof folder->name, "%s/%s", folder->path, name);
    return folder->name;
}

/* The number of entries. */
static inline int test_folder_count(const test_folder *folder) {
    DIR *dir = opendir(folder->path);
    struct dirent *entry;
    int count = 0;
    if (!dir) return -1;
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) count++;
    closedir(dir);
    return count;
}

/* Removes the folder and the files, links and empty folders in it. */
static inline void test_folder_remove(test_folder *folder) {
    DIR *dir = opendir(folder->path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove(test_folder_file(folder, entry->d_name));
    if (dir) closedir(dir);
    rmdir(folder->path);
}

#endif
