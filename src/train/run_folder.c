#include "train/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/file_read.h"
#include "core/memory.h"
#include "core/text.h"
#include "train/checkpoint.h"
#include "train/run_folder_lines.h"

static const size_t LONGEST_CONFIG = (size_t)1 << 20;

/* ---- names ----------------------------------------------------------------------------------- */

zonal_status zonal__run_folder_file(const zonal__run_folder *folder, const char *name,
                                    char out[ZONAL__RUN_FOLDER_PATH]) {
    int length = snprintf(out, ZONAL__RUN_FOLDER_PATH, "%s/%s", folder->path, name);
    if (length >= ZONAL__RUN_FOLDER_PATH)
        return ZONAL_FAIL(ZONAL_IO, "the path of the run %.60s... is too long", folder->path);
    return ZONAL_OK;
}

static zonal_status checkpoint_path(const zonal__run_folder *folder, int64_t step,
                                    char out[ZONAL__RUN_FOLDER_PATH]) {
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08" PRId64 ".safetensors", step);
    return zonal__run_folder_file(folder, name, out);
}

/* The step in the name of a checkpoint, or -1. */
static int64_t step_of(const char *name) {
    int64_t step = -1;
    char again[64];
    if (sscanf(name, "step-%" SCNd64 ".safetensors", &step) != 1 || step < 0) return -1;
    snprintf(again, sizeof again, "step-%08" PRId64 ".safetensors", step);
    return strcmp(name, again) == 0 ? step : -1;
}

const char *const zonal__run_folder_files[] = {
    "config.toml", "metrics.jsonl", "log.txt", "data.txt", "autotune.txt", "retries.txt", NULL};

static int is_own_file(const char *name) {
    for (int i = 0; zonal__run_folder_files[i]; i++)
        if (strcmp(name, zonal__run_folder_files[i]) == 0) return 1;
    return 0;
}

static int is_own_checkpoint(const char *name) {
    return step_of(name) >= 0 || strcmp(name, "best.safetensors") == 0;
}

/* ---- making and opening ---------------------------------------------------------------------- */

static zonal_status set_path(zonal__run_folder *folder, const char *path, int64_t keep) {
    *folder = (zonal__run_folder){.lock = -1, .keep = keep, .best = -INFINITY};
    if (snprintf(folder->path, sizeof folder->path, "%s", path) >= (int)sizeof folder->path)
        return ZONAL_FAIL(ZONAL_IO, "the path of the run %.60s... is too long", path);
    return ZONAL_OK;
}

static zonal_status refuse_existing(const char *path) {
    char config[ZONAL__RUN_FOLDER_PATH];
    int length = snprintf(config, sizeof config, "%s/config.toml", path);
    if (length < (int)sizeof config && access(config, F_OK) == 0)
        return ZONAL_FAIL(ZONAL_IO,
                          "%s already exists, and a run is never overwritten; choose another "
                          "--out, or continue it with --resume %s",
                          path, path);
    return ZONAL_FAIL(ZONAL_IO,
                      "%s already exists and is not a run: it has no config.toml; choose another "
                      "--out, or remove it",
                      path);
}

static zonal_status cannot_make(const char *path, int error) {
    const char *remedy = "";
    if (error == EEXIST) return refuse_existing(path);
    if (error == ENOENT) remedy = "; make the folder that it lies in first";
    if (error == EACCES || error == EROFS) remedy = "; choose a place that you may write to";
    return ZONAL_FAIL(ZONAL_IO, "cannot make the run folder %s: %s%s", path, strerror(error),
                      remedy);
}

static zonal_status lock(zonal__run_folder *folder) {
    folder->lock = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->lock < 0)
        return ZONAL_FAIL(ZONAL_IO, "cannot open the run %s: %s", folder->path, strerror(errno));
    if (flock(folder->lock, LOCK_EX | LOCK_NB) == 0) return ZONAL_OK;
    if (errno != EWOULDBLOCK) return ZONAL_OK; /* a file system without locks */
    return ZONAL_FAIL(ZONAL_IO, "another process is training %s; wait for it or end it",
                      folder->path);
}

static zonal_status write_config(const zonal__run_folder *folder, const char *config) {
    char path[ZONAL__RUN_FOLDER_PATH];
    zonal__file *file;
    ZONAL_TRY(zonal__run_folder_file(folder, "config.toml", path));
    ZONAL_TRY(zonal__file_create_plain(path, &file));
    zonal__file_write(file, config, strlen(config));
    return zonal__file_commit(file);
}

static zonal_status open_metrics(zonal__run_folder *folder) {
    char path[ZONAL__RUN_FOLDER_PATH];
    ZONAL_TRY(zonal__run_folder_file(folder, "metrics.jsonl", path));
    return zonal__jsonl_open(path, &folder->metrics);
}

/* What a folder that was just made has in it. */
static zonal_status furnish(zonal__run_folder *folder, const char *config) {
    char path[ZONAL__RUN_FOLDER_PATH];
    ZONAL_TRY(lock(folder));
    ZONAL_TRY(zonal__run_folder_file(folder, "checkpoints", path));
    if (mkdir(path, 0777) != 0) return cannot_make(path, errno);
    ZONAL_TRY(write_config(folder, config));
    ZONAL_TRY(open_metrics(folder));
    return zonal__file_sync_folder(folder->path);
}

/* The folder that a path lies in: "" for the present one, else with its slash. */
static void parent_of(const char *path, char out[ZONAL__RUN_FOLDER_PATH]) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    while (length > 0 && path[length - 1] != '/') length--;
    snprintf(out, ZONAL__RUN_FOLDER_PATH, "%.*s", (int)length, path);
}

/* A folder whose own name is not on the disk is lost with all that is in it. */
static zonal_status sync_parent(const char *path) {
    char parent[ZONAL__RUN_FOLDER_PATH];
    parent_of(path, parent);
    return zonal__file_sync_folder(parent[0] ? parent : ".");
}

static zonal_status furnish_or_close(zonal__run_folder *folder, const char *config) {
    zonal_status status = furnish(folder, config);
    if (status == ZONAL_OK) status = sync_parent(folder->path);
    if (status != ZONAL_OK) zonal__run_folder_close(folder);
    return status;
}

zonal_status zonal__run_folder_check(const char *path) {
    char parent[ZONAL__RUN_FOLDER_PATH];
    struct stat found;
    if (lstat(path, &found) == 0) return cannot_make(path, EEXIST);
    if (strlen(path) >= sizeof parent) return cannot_make(path, ENAMETOOLONG);
    parent_of(path, parent);
    return access(parent[0] ? parent : ".", W_OK | X_OK) == 0 ? ZONAL_OK : cannot_make(path, errno);
}

zonal_status zonal__run_folder_create(const char *path, const char *config, int64_t keep,
                                      zonal__run_folder *folder) {
    ZONAL_TRY(set_path(folder, path, keep));
    if (mkdir(path, 0777) != 0) return cannot_make(path, errno);
    return furnish_or_close(folder, config);
}

zonal_status zonal__run_folder_create_next(const char *parent, const char *name, const char *config,
                                           int64_t keep, zonal__run_folder *folder) {
    char path[ZONAL__RUN_FOLDER_PATH];
    if (mkdir(parent, 0777) == 0)
        ZONAL_TRY(sync_parent(parent));
    else if (errno != EEXIST)
        return cannot_make(parent, errno);
    for (int n = 1;; n++) {
        if (snprintf(path, sizeof path, "%s/%s-%d", parent, name, n) >= (int)sizeof path)
            return ZONAL_FAIL(ZONAL_IO, "the path of the run %.60s... is too long", path);
        if (mkdir(path, 0777) == 0) break;
        if (errno != EEXIST) return cannot_make(path, errno);
    }
    ZONAL_TRY(set_path(folder, path, keep));
    return furnish_or_close(folder, config);
}

zonal_status zonal__run_folder_open_log(const zonal__run_folder *folder, FILE **log) {
    char path[ZONAL__RUN_FOLDER_PATH];
    int descriptor;
    *log = NULL;
    ZONAL_TRY(zonal__run_folder_file(folder, "log.txt", path));
    ZONAL_TRY(zonal__file_open_plain(path, O_WRONLY | O_CREAT | O_APPEND, &descriptor));
    *log = fdopen(descriptor, "a");
    if (*log) return ZONAL_OK;
    close(descriptor);
    return ZONAL_FAIL(ZONAL_IO, "cannot open %s: %s", path, strerror(errno));
}

void zonal__run_folder_close(zonal__run_folder *folder) {
    zonal__checkpoint_writer_destroy(folder->writer);
    folder->writer = NULL;
    zonal__jsonl_close(folder->metrics);
    folder->metrics = NULL;
    zonal__event_log_close(folder->events);
    folder->events = NULL;
    if (folder->lock >= 0) close(folder->lock);
    folder->lock = -1;
}

/* ---- going through the checkpoints ----------------------------------------------------------- */

/* The folder itself (part ".") or its checkpoints. The run may be somebody else's, or have been put
 * together by hand: a link would lead to files that are none of its own. */
static zonal_status open_part(const zonal__run_folder *folder, const char *part, DIR **dir) {
    char path[ZONAL__RUN_FOLDER_PATH];
    struct stat found;
    int descriptor, error;
    *dir = NULL;
    ZONAL_TRY(zonal__run_folder_file(folder, part, path));
    descriptor = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    error = errno;
    if (descriptor >= 0 && (*dir = fdopendir(descriptor)) != NULL) return ZONAL_OK;
    if (descriptor >= 0) close(descriptor);
    if (lstat(path, &found) == 0 && S_ISLNK(found.st_mode))
        return ZONAL_FAIL(ZONAL_IO,
                          "%s is a link, which is not followed in a run; put the folder itself "
                          "there",
                          path);
    return ZONAL_FAIL(ZONAL_IO, "%s is not a run: cannot open %s: %s", folder->path, path,
                      strerror(error));
}

/* Their number, and the least and the largest step. */
static zonal_status survey(const zonal__run_folder *folder, int64_t *count, int64_t *least,
                           int64_t *most) {
    struct dirent *entry;
    DIR *dir;
    *count = 0;
    *least = *most = -1;
    ZONAL_TRY(open_part(folder, "checkpoints", &dir));
    while ((entry = readdir(dir))) {
        int64_t step = step_of(entry->d_name);
        if (step < 0) continue;
        if (*count == 0 || step < *least) *least = step;
        if (step > *most) *most = step;
        (*count)++;
    }
    closedir(dir);
    return ZONAL_OK;
}

zonal_status zonal__run_folder_latest(const zonal__run_folder *folder,
                                      char out[ZONAL__RUN_FOLDER_PATH]) {
    int64_t count, least, most;
    ZONAL_TRY(survey(folder, &count, &least, &most));
    if (count == 0)
        return ZONAL_FAIL(ZONAL_IO,
                          "%s has no checkpoint to resume from; start a new run with --config "
                          "%s/config.toml",
                          folder->path, folder->path);
    return checkpoint_path(folder, most, out);
}

zonal_status zonal__run_folder_is_untouched(const zonal__run_folder *folder, int *untouched) {
    char path[ZONAL__RUN_FOLDER_PATH];
    int64_t count, least, most, step = -1;
    ZONAL_TRY(zonal__run_folder_file(folder, "metrics.jsonl", path));
    ZONAL_TRY(survey(folder, &count, &least, &most));
    /* The line of the first checkpoint, of step 0, is there before its file is. A run whose file
     * of step 0 was removed later has lines of steps too, and nothing else to begin from. */
    if (count == 0) ZONAL_TRY(zonal__run_folder_last_checkpoint(path, &step));
    *untouched = count == 0 && step <= 0;
    return ZONAL_OK;
}

/* Removes the oldest until "keep" are left. One that cannot be removed is no reason to end a run.
 */
static zonal_status prune(const zonal__run_folder *folder) {
    char path[ZONAL__RUN_FOLDER_PATH];
    int64_t count, least, most;
    for (;;) {
        ZONAL_TRY(survey(folder, &count, &least, &most));
        if (count <= folder->keep) return ZONAL_OK;
        ZONAL_TRY(checkpoint_path(folder, least, path));
        if (unlink(path) == 0) continue;
        zonal__log("cannot remove the old checkpoint %s: %s", path, strerror(errno));
        return ZONAL_OK;
    }
}

/* The temporaries (core/file.h) of the run's own files that a killed process left in a part of the
 * folder. What else lies there is not touched. */
static zonal_status remove_temporaries(const zonal__run_folder *folder, const char *part,
                                       int (*is_own)(const char *name)) {
    struct dirent *entry;
    DIR *dir;
    ZONAL_TRY(open_part(folder, part, &dir));
    while ((entry = readdir(dir))) {
        char target[sizeof entry->d_name];
        size_t length = zonal__file_temporary_of(entry->d_name);
        snprintf(target, sizeof target, "%.*s", (int)length, entry->d_name);
        if (length > 0 && is_own(target)) unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    return ZONAL_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Everything in a part of the folder that has the name of a file of ours must be one. */
static zonal_status inspect(const zonal__run_folder *folder, const char *part,
                            int (*is_own)(const char *name)) {
    struct dirent *entry;
    struct stat found;
    DIR *dir;
    zonal_status status = ZONAL_OK;
    ZONAL_TRY(open_part(folder, part, &dir));
    while (status == ZONAL_OK && (entry = readdir(dir))) {
        if (!is_own(entry->d_name) ||
            fstatat(dirfd(dir), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0 ||
            S_ISREG(found.st_mode))
            continue;
        status = ZONAL_FAIL(ZONAL_IO,
                            "%s/%s%s%s is %s, and a run's own files are plain files; nothing was "
                            "changed: put the file itself there, or remove it",
                            folder->path, part[0] == '.' ? "" : part, part[0] == '.' ? "" : "/",
                            entry->d_name, S_ISLNK(found.st_mode) ? "a link" : "not a file");
    }
    closedir(dir);
    return status;
}

zonal_status zonal__run_folder_open(const char *path, int64_t keep, zonal__run_folder *folder) {
    zonal_status status;
    ZONAL_TRY(set_path(folder, path, keep));
    status = lock(folder);
    if (status == ZONAL_OK) status = inspect(folder, ".", is_own_file);
    if (status == ZONAL_OK) status = inspect(folder, "checkpoints", is_own_checkpoint);
    if (status != ZONAL_OK) zonal__run_folder_close(folder);
    return status;
}

/* ---- starting again -------------------------------------------------------------------------- */

static zonal_status read_retries(const char *path, int64_t *count) {
    char *text;
    size_t length;
    zonal_status status;
    *count = 0;
    if (access(path, F_OK) != 0) return ZONAL_OK;
    ZONAL_TRY(zonal__file_read(path, 64, &text, &length));
    text[strcspn(text, "\n")] = '\0';
    status = zonal__text_int64(text, path, count);
    zonal__free(text);
    return status;
}

zonal_status zonal__run_folder_count_retry(const zonal__run_folder *folder, int64_t most) {
    char path[ZONAL__RUN_FOLDER_PATH];
    zonal__file *file;
    int64_t count;
    ZONAL_TRY(zonal__run_folder_file(folder, "retries.txt", path));
    ZONAL_TRY(read_retries(path, &count));
    if (count >= most)
        return ZONAL_FAIL(
            ZONAL_ARGUMENT,
            "%.400s has been started again %lld time%s, as often as --retries allows; "
            "look into its log.txt for why it ends, or raise --retries",
            folder->path, (long long)count, zonal__text_plural(count));
    ZONAL_TRY(zonal__file_create_plain(path, &file));
    (void)zonal__file_print(file, "%lld\n", (long long)count + 1);
    return zonal__file_commit(file);
}

/* ---- rewinding ------------------------------------------------------------------------------- */

zonal_status zonal__run_folder_rewind(zonal__run_folder *folder, int64_t step, int64_t judged) {
    char path[ZONAL__RUN_FOLDER_PATH];
    ZONAL_TRY(zonal__run_folder_file(folder, "metrics.jsonl", path));
    ZONAL_TRY(zonal__jsonl_truncate_after(path, "step", step));
    ZONAL_TRY(remove_temporaries(folder, ".", is_own_file));
    ZONAL_TRY(remove_temporaries(folder, "checkpoints", is_own_checkpoint));
    folder->best = -INFINITY;
    folder->seconds = folder->loss_sum = 0;
    folder->losses = 0;
    ZONAL_TRY(zonal__run_folder_take_lines(folder, path, judged));
    zonal__jsonl_close(folder->metrics);
    return open_metrics(folder);
}

/* ---- the configuration ----------------------------------------------------------------------- */

/* The line of a key in a text of lines; NULL: it has none. */
static char *find_line(char *text, const char *key) {
    static const char blanks[] = " \t";
    size_t length = strlen(key);
    for (char *at = text; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        const char *name =
            at + strspn(at, blanks); /* edited by hand it may be laid out otherwise */
        if (strncmp(name, key, length) == 0 && name[length + strspn(name + length, blanks)] == '=')
            return at;
    }
    return NULL;
}

static zonal_status write_edited(const char *path, char *text, const char *key, const char *value,
                                 const char *comment) {
    /* A new one comes first: at the end it could belong to a section. */
    char *line = find_line(text, key), *rest = text;
    zonal__file *file;
    size_t before = 0;
    if (line) {
        before = (size_t)(line - text);
        rest = line + strcspn(line, "\n");
        rest += *rest == '\n';
    }
    ZONAL_TRY(zonal__file_create_plain(path, &file));
    zonal__file_write(file, text, before);
    zonal__file_print(file, "%s = %s  # %s\n%s", key, value, comment, rest);
    return zonal__file_commit(file);
}

zonal_status zonal__run_folder_edit_config(const zonal__run_folder *folder, const char *key,
                                           const char *value, const char *comment) {
    char path[ZONAL__RUN_FOLDER_PATH], *text;
    size_t length;
    zonal_status status;
    ZONAL_TRY(zonal__run_folder_file(folder, "config.toml", path));
    ZONAL_TRY(zonal__file_read(path, LONGEST_CONFIG, &text, &length));
    status = write_edited(path, text, key, value, comment);
    zonal__free(text);
    return status;
}

/* ---- images ---------------------------------------------------------------------------------- */

zonal_status zonal__run_folder_write_data(const zonal__run_folder *folder,
                                          const zonal__data_record *record) {
    char path[ZONAL__RUN_FOLDER_PATH];
    ZONAL_TRY(zonal__run_folder_file(folder, "data.txt", path));
    return zonal__data_record_write(record, path);
}

zonal_status zonal__run_folder_check_data(const char *run, const zonal__data_part *parts, int count,
                                          zonal__data_changes *changes) {
    zonal__run_folder folder;
    char path[ZONAL__RUN_FOLDER_PATH];
    struct stat found;
    zonal__data_record *before, *now = NULL;
    zonal_status status;
    *changes = (zonal__data_changes){0};
    ZONAL_TRY(set_path(&folder, run, 1));
    ZONAL_TRY(zonal__run_folder_file(&folder, "data.txt", path));
    if (lstat(path, &found) != 0 && errno == ENOENT) return ZONAL_OK;
    ZONAL_TRY(zonal__data_record_read(path, &before));
    status = zonal__data_record_make(parts, count, zonal__data_record_one_in(before), &now);
    if (status == ZONAL_OK) zonal__data_record_compare(before, now, changes);
    zonal__data_record_destroy(before);
    zonal__data_record_destroy(now);
    return status;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* The best comes first: if the process ends before the other is there, the run goes on from an
 * earlier step, comes to this one again and finds the same. The other way round a best checkpoint
 * could be lost. */
static zonal_status store(void *context, const zonal__snapshot *snapshot, int best, int latest) {
    const zonal__run_folder *folder = context;
    char path[ZONAL__RUN_FOLDER_PATH];
    ZONAL_TRY(zonal__jsonl_sync(folder->metrics));
    if (best) {
        ZONAL_TRY(zonal__run_folder_file(folder, "checkpoints/best.safetensors", path));
        ZONAL_TRY(zonal__snapshot_write(snapshot, path));
    }
    if (!latest) return ZONAL_OK;
    ZONAL_TRY(checkpoint_path(folder, zonal__snapshot_step(snapshot), path));
    ZONAL_TRY(zonal__snapshot_write(snapshot, path));
    return prune(folder);
}

static zonal_status store_now(zonal__run_folder *folder, zonal__trainer *trainer, int best) {
    zonal__snapshot *snapshot;
    zonal_status status;
    zonal__event_log_sync(folder->events);
    ZONAL_TRY(zonal__snapshot_create(trainer, &snapshot));
    status = zonal__snapshot_take(snapshot);
    if (status == ZONAL_OK) status = store(folder, snapshot, best, 1);
    zonal__snapshot_destroy(snapshot);
    return status;
}

zonal_status zonal__run_folder_save(zonal__run_folder *folder, zonal__trainer *trainer,
                                    double score) {
    int best = score > folder->best;
    ZONAL_TRY(
        zonal__run_folder_add_checkpoint(folder, zonal__trainer_steps_done(trainer), score, best));
    ZONAL_TRY(folder->writer ? zonal__checkpoint_writer_save(folder->writer, best)
                             : store_now(folder, trainer, best));
    if (best) folder->best = score;
    return ZONAL_OK;
}

zonal_status zonal__run_folder_write_aside(zonal__run_folder *folder, zonal__trainer *trainer,
                                           int all) {
    return zonal__checkpoint_writer_create(store, folder, trainer, all, &folder->writer);
}

zonal_status zonal__run_folder_finish(zonal__run_folder *folder) {
    if (folder->writer) ZONAL_TRY(zonal__checkpoint_writer_finish(folder->writer));
    zonal__event_log_sync(folder->events);
    return ZONAL_OK;
}

zonal_status zonal__run_folder_status(const zonal__run_folder *folder) {
    return folder->writer ? zonal__checkpoint_writer_status(folder->writer) : ZONAL_OK;
}
