#include "cli/report/matrix_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/common/cli.h"
#include "core/file.h"
#include "report/run.h"

void zonal__folder_path(const char *folder, const char *part, const char *name, const char *ending,
                        char path[ZONAL__FOLDER_PATH]) {
    snprintf(path, ZONAL__FOLDER_PATH, "%.*s/%s/%s%s", ZONAL__MATRIX_PATH, folder, part, name,
             ending);
}

static void add_part(char *name, size_t size, const char *letter, const char *value) {
    size_t length = strlen(name);
    if (value) snprintf(name + length, size - length, "-%s%.40s", letter, value);
}

void zonal__folder_pack(const char *folder, const char *family, const zonal__assignments *options,
                        char path[ZONAL__FOLDER_PATH]) {
    char name[ZONAL__CELL_NAME];
    snprintf(name, sizeof name, "%s", family);
    add_part(name, sizeof name, "", zonal__assigned(options, "texture-size"));
    add_part(name, sizeof name, "n", zonal__assigned(options, "texture-count"));
    add_part(name, sizeof name, "s", zonal__assigned(options, "data-seed"));
    zonal__folder_path(folder, "data", name, ".zpk", path);
}

/* ---- making it ------------------------------------------------------------------------------- */

static zonal_status write_recipe(const char *folder, const char *name) {
    const char *const *lines = zonal__recipe_lines(name);
    char path[ZONAL__FOLDER_PATH];
    zonal__file *file;
    zonal__folder_path(folder, "recipes", name, ".toml", path);
    ZONAL_TRY(zonal__file_create_plain(path, &file));
    for (int i = 0; lines[i]; i++) zonal__file_print(file, "%s\n", lines[i]);
    return zonal__file_commit(file);
}

zonal_status zonal__folder_make(const char *folder, const zonal__matrix *matrix) {
    static const char *const parts[] = {"runs", "logs", "data", "recipes"};
    char path[ZONAL__FOLDER_PATH];
    if (strlen(folder) >= ZONAL__MATRIX_PATH)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--out is too long a name; choose a shorter one");
    ZONAL_TRY(zonal__cli_make_folder(folder));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, parts[i]);
        ZONAL_TRY(zonal__cli_make_folder(path));
    }
    for (int s = 0; s < matrix->sets; s++)
        ZONAL_TRY(write_recipe(folder, matrix->set[s].set->recipe));
    return ZONAL_OK;
}

zonal_status zonal__folder_lock(const char *folder, int *lock) {
    enum { TRIES = 300 }; /* of 0.1 s: as long as the runs of one that was killed take to stop */
    char path[ZONAL__FOLDER_PATH];
    snprintf(path, sizeof path, "%s/lock", folder);
    *lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (*lock < 0) return ZONAL_FAIL(ZONAL_IO, "cannot open %s: %s", path, strerror(errno));
    for (int i = 0; i < TRIES; i++) {
        if (flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return ZONAL_OK;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    close(*lock);
    *lock = -1;
    return ZONAL_FAIL(ZONAL_IO,
                      "another zonal reproduce works in %s; wait for it, or give another --out",
                      folder);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int has_checkpoint(const char *run) {
    char path[ZONAL__FOLDER_PATH + 32];
    DIR *folder;
    struct dirent *entry;
    int found = 0;
    snprintf(path, sizeof path, "%s/checkpoints", run);
    folder = opendir(path);
    while (folder && !found && (entry = readdir(folder))) {
        size_t length = strlen(entry->d_name), ending = strlen(".safetensors");
        found = strncmp(entry->d_name, "step-", 5) == 0 && length > ending &&
                strcmp(entry->d_name + length - ending, ".safetensors") == 0;
    }
    if (folder) closedir(folder);
    return found;
}

int64_t zonal__folder_logged(const char *folder, const char *cell) {
    char path[ZONAL__FOLDER_PATH];
    struct stat state;
    zonal__folder_path(folder, "runs", cell, "/metrics.jsonl", path);
    return stat(path, &state) == 0 ? (int64_t)state.st_size : 0;
}

int zonal__folder_begun(const char *folder, const char *cell, int64_t *logged, double *seconds) {
    char path[ZONAL__FOLDER_PATH];
    zonal__report_run run = {0};
    *logged = zonal__folder_logged(folder, cell);
    *seconds = 0;
    zonal__folder_path(folder, "runs", cell, "", path);
    if (!has_checkpoint(path)) return 0;
    if (zonal__report_run_read(&run, path) == ZONAL_OK)
        *seconds = fmax(0, zonal__report_last(&run, "seconds")); /* of NaN: 0 */
    zonal__report_run_fini(&run);
    return 1;
}

/* ---- removing -------------------------------------------------------------------------------- */

enum { DEEPEST = 8 }; /* a run folder has two levels */

/* Links are removed, not followed. */
static int remove_at(int parent, const char *name, int depth) {
    int descriptor, failed = 0;
    DIR *folder;
    struct dirent *entry;
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) return 0;
    if (depth == DEEPEST) return -1;
    descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    folder = descriptor < 0 ? NULL : fdopendir(descriptor);
    if (!folder) {
        if (descriptor >= 0) close(descriptor);
        return -1;
    }
    while (!failed && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            failed = remove_at(descriptor, entry->d_name, depth + 1);
    closedir(folder);
    return failed ? failed : unlinkat(parent, name, AT_REMOVEDIR);
}

static zonal_status remove_tree(const char *path) {
    if (remove_at(AT_FDCWD, path, 0) == 0) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_IO, "cannot remove %s: %s; remove it by hand", path, strerror(errno));
}

zonal_status zonal__folder_remove_run(const char *folder, const char *cell) {
    char path[ZONAL__FOLDER_PATH];
    zonal__folder_path(folder, "runs", cell, "", path);
    return has_checkpoint(path) ? ZONAL_OK : remove_tree(path);
}

void zonal__folder_remove_checkpoints(const char *folder, const char *cell) {
    char path[ZONAL__FOLDER_PATH];
    zonal__folder_path(folder, "runs", cell, "/checkpoints", path);
    (void)remove_tree(path); /* it only takes up room */
}

/* ---- what was said --------------------------------------------------------------------------- */

static int is_blank(const char *line) {
    return line[strspn(line, " \r\n\t")] == '\0';
}

void zonal__folder_last_line(const char *folder, const char *cell, char *out, size_t size) {
    char path[ZONAL__FOLDER_PATH], line[1024], last[1024] = "it said nothing";
    FILE *log;
    zonal__folder_path(folder, "logs", cell, ".txt", path);
    log = fopen(path, "r");
    while (log && fgets(line, sizeof line, log))
        if (!is_blank(line)) snprintf(last, sizeof last, "%s", line);
    if (log) fclose(log);
    last[strcspn(last, "\r\n")] = '\0';
    snprintf(out, size, "%s (all of it: %s)", strncmp(last, "zonal: ", 7) == 0 ? last + 7 : last,
             path);
}
