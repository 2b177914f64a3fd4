#include "train/event_log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/event_file.h"
#include "core/memory.h"
#include "train/run_folder.h"

struct zonal__event_log {
    zonal__event_file *file; /* NULL after a failure */
};

static const char NAME[] = "events.out.tfevents.%06d"; /* TensorBoard looks for "tfevents" */

/* ---- the folder ------------------------------------------------------------------------------ */

static zonal_status file_path(const char *run, int number, char out[ZONAL__RUN_FOLDER_PATH]) {
    char name[64];
    snprintf(name, sizeof name, NAME, number);
    if (snprintf(out, ZONAL__RUN_FOLDER_PATH, "%s/events/%s", run, name) >= ZONAL__RUN_FOLDER_PATH)
        return ZONAL_FAIL(ZONAL_IO, "the path of the run %.60s... is too long", run);
    return ZONAL_OK;
}

/* The number in the name of a file, or 0. */
static int number_of(const char *name) {
    int number = 0;
    char again[64];
    if (sscanf(name, NAME, &number) != 1 || number < 1) return 0;
    snprintf(again, sizeof again, NAME, number);
    return strcmp(name, again) == 0 ? number : 0;
}

/* Cuts all files back, and finds the number of the last. */
static zonal_status cut_back(const char *run, const char *folder, int64_t step, int *last) {
    char path[ZONAL__RUN_FOLDER_PATH];
    zonal_status status = ZONAL_OK;
    struct dirent *entry;
    struct stat found;
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = descriptor < 0 ? NULL : fdopendir(descriptor);
    *last = 0;
    if (!dir) return ZONAL_FAIL(ZONAL_IO, "cannot open %s: %s", folder, strerror(errno));
    while (status == ZONAL_OK && (entry = readdir(dir))) {
        int number = number_of(entry->d_name);
        if (number == 0) continue;
        if (number > *last) *last = number;
        /* A link is somebody else's: what it leads to is not cut. */
        if (fstatat(dirfd(dir), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(found.st_mode))
            continue;
        status = file_path(run, number, path);
        if (status == ZONAL_OK) status = zonal__event_file_truncate_after(path, step);
    }
    closedir(dir);
    return status;
}

static zonal_status open_next(const char *run, int64_t step, zonal__event_file **out) {
    char path[ZONAL__RUN_FOLDER_PATH];
    int last;
    if (snprintf(path, sizeof path, "%s/events", run) >= (int)sizeof path)
        return ZONAL_FAIL(ZONAL_IO, "the path of the run %.60s... is too long", run);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return ZONAL_FAIL(ZONAL_IO, "cannot make the folder %s: %s", path, strerror(errno));
    ZONAL_TRY(cut_back(run, path, step, &last));
    ZONAL_TRY(file_path(run, last + 1, path));
    return zonal__event_file_create(path, step + 1, out);
}

zonal_status zonal__event_log_open(const char *run, int64_t step, zonal__event_log **out) {
    zonal__event_log *log;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&log, 1, "the log of events"));
    status = open_next(run, step, &log->file);
    if (status == ZONAL_OK)
        *out = log;
    else
        zonal__event_log_close(log);
    return status;
}

void zonal__event_log_close(zonal__event_log *log) {
    if (!log) return;
    zonal__event_file_close(log->file);
    zonal__free(log);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void give_up(zonal__event_log *log) {
    zonal__log("the curves for TensorBoard are no longer written: %s", zonal_last_error()->message);
    zonal__event_file_close(log->file);
    log->file = NULL;
}

static void add(zonal__event_log *log, int64_t step, int count, const zonal__scalar *scalars) {
    if (!log || !log->file) return;
    if (zonal__event_file_add(log->file, step, count, scalars) != ZONAL_OK) give_up(log);
}

void zonal__event_log_step(zonal__event_log *log, const zonal__step_line *line) {
    const zonal__metrics *metrics = &line->metrics;
    const zonal__scalar scalars[] = {{"loss/total", metrics->loss.total},
                                     {"loss/invariance", metrics->loss.invariance},
                                     {"loss/discrepancy", metrics->loss.discrepancy},
                                     {"optimiser/learning_rate", metrics->rate},
                                     {"optimiser/gradient_norm", metrics->gradient_norm},
                                     {"speed/images_per_second", line->images_per_second}};
    add(log, line->step, sizeof scalars / sizeof scalars[0], scalars);
}

void zonal__event_log_monitor(zonal__event_log *log, int64_t step, const zonal__monitor *monitor) {
    const zonal__scalar rho = {"monitor/rho", monitor->rho}; /* of the two one is known */
    const zonal__scalar scale = {"monitor/scale", monitor->scale};
    const zonal__scalar scalars[] = {{"monitor/mean_cosine", monitor->mean_cosine},
                                     {"monitor/effective_rank", monitor->effective_rank},
                                     isnan(monitor->scale) ? rho : scale};
    add(log, step, sizeof scalars / sizeof scalars[0], scalars);
}

void zonal__event_log_eval(zonal__event_log *log, int64_t step,
                           const zonal__online_result *result) {
    const zonal__scalar retrieval[] = {{"eval/retrieval_r1", result->r1},
                                       {"eval/retrieval_r3", result->r3},
                                       {"eval/retrieval_r5", result->r5},
                                       {"eval/retrieval_map", result->map}};
    const zonal__scalar knn = {"eval/knn_accuracy", result->accuracy};
    if (result->protocol == ZONAL__ONLINE_RETRIEVAL)
        add(log, step, sizeof retrieval / sizeof retrieval[0], retrieval);
    else
        add(log, step, 1, &knn);
}

void zonal__event_log_probe(zonal__event_log *log, int64_t step, double accuracy) {
    const zonal__scalar scalar = {"eval/probe_accuracy", accuracy};
    add(log, step, 1, &scalar);
}

void zonal__event_log_sync(zonal__event_log *log) {
    if (log && log->file && zonal__event_file_sync(log->file) != ZONAL_OK) give_up(log);
}
