#include "report/run.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/memory.h"
#include "core/text.h"
#include "train/monitor.h"

void zonal__report_note(zonal__report_run *run, const char *format, ...) {
    va_list arguments;
    if (run->notes_count == ZONAL__REPORT_NOTES) return;
    va_start(arguments, format);
    vsnprintf(run->notes[run->notes_count++], sizeof run->notes[0], format, arguments);
    va_end(arguments);
}

zonal_status zonal__report_path(const zonal__report_run *run, const char *name,
                                char path[ZONAL__REPORT_PATH]) {
    if (snprintf(path, ZONAL__REPORT_PATH, "%s/%s", run->folder, name) >= ZONAL__REPORT_PATH)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the name of the run folder is too long");
    return ZONAL_OK;
}

/* ---- the configuration ----------------------------------------------------------------------- */

static zonal_status read_settings(zonal__report_run *run) {
    char path[ZONAL__REPORT_PATH];
    struct stat state;
    zonal_status status;
    ZONAL_TRY(zonal__report_path(run, "config.toml", path));
    if (stat(path, &state) != 0)
        return ZONAL_FAIL(ZONAL_IO,
                          "%s is not a run folder: it has no config.toml (%s); give a folder that "
                          "zonal train wrote",
                          run->folder, strerror(errno));
    run->images = zonal__run_images_read(run->folder);
    status = zonal__run_settings_read(path, &run->config);
    if (status != ZONAL_FORMAT && status != ZONAL_IO) return status;
    zonal__report_note(run, "the settings are left out: %s", zonal_last_error()->message);
    return ZONAL_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* When a file of the run was written last: what a run says of its own time. */
static void file_time(const zonal__report_run *run, const char *name, char out[24]) {
    char path[ZONAL__REPORT_PATH];
    struct stat state;
    struct tm parts;
    out[0] = '\0';
    if (zonal__report_path(run, name, path) != ZONAL_OK || stat(path, &state) != 0) return;
    if (gmtime_r(&state.st_mtime, &parts)) strftime(out, 24, "%Y-%m-%d %H:%M UTC", &parts);
}

/* "runs/one/" -> "runs/one", called "one". */
static zonal_status take_folder(zonal__report_run *run, const char *folder) {
    size_t length = strlen(folder);
    const char *slash;
    while (length > 1 && folder[length - 1] == '/') length--;
    ZONAL_TRY(ZONAL_NEW(&run->folder, length + 1, "the name of a run"));
    memcpy(run->folder, folder, length);
    slash = strrchr(run->folder, '/');
    run->name = slash && slash[1] ? slash + 1 : run->folder;
    return ZONAL_OK;
}

zonal_status zonal__report_run_read(zonal__report_run *run, const char *folder) {
    *run = (zonal__report_run){.steps_per_epoch = NAN};
    ZONAL_TRY(take_folder(run, folder));
    ZONAL_TRY(read_settings(run));
    ZONAL_TRY(zonal__report_read_metrics(run));
    ZONAL_TRY(zonal__report_read_evaluations(run));
    file_time(run, "config.toml", run->began);
    file_time(run, "metrics.jsonl", run->ended);
    return ZONAL_OK;
}

void zonal__report_run_fini(zonal__report_run *run) {
    for (int64_t i = 0; i < run->series_count; i++) {
        zonal__free(run->series[i].step);
        zonal__free(run->series[i].value);
    }
    zonal__free(run->series);
    zonal__free(run->results);
    zonal__run_settings_fini(&run->config);
    zonal__free(run->images);
    zonal__free(run->folder);
    *run = (zonal__report_run){0};
}

/* ---- asking ---------------------------------------------------------------------------------- */

const char *zonal__report_setting_of(const zonal__report_run *run, const char *key) {
    return zonal__run_settings_of(&run->config, key);
}

double zonal__report_setting_number(const zonal__report_run *run, const char *key) {
    const char *text = zonal__report_setting_of(run, key);
    double value;
    return text && zonal__text_double(text, key, &value) == ZONAL_OK ? value : NAN;
}

const zonal__report_series *zonal__report_series_of(const zonal__report_run *run,
                                                    const char *name) {
    for (int64_t i = 0; i < run->series_count; i++)
        if (strcmp(run->series[i].name, name) == 0) return &run->series[i];
    return NULL;
}

double zonal__report_result_of(const zonal__report_run *run, const char *name) {
    for (int64_t i = 0; i < run->results_count; i++)
        if (strcmp(run->results[i].name, name) == 0) return run->results[i].value;
    return NAN;
}

double zonal__report_total_steps(const zonal__report_run *run) {
    double steps = zonal__report_setting_number(run, "steps");
    if (steps > 0) return steps;
    return zonal__report_setting_number(run, "epochs") * run->steps_per_epoch;
}

int zonal__report_is_unfinished(const zonal__report_run *run) {
    return run->steps < zonal__report_total_steps(run);
}

static double known(double value, double otherwise) {
    return isnan(value) ? otherwise : value;
}

/* To training a NaN is collapse; here it is a number that the run did not log or set, such as the
 * expected rank in runs of earlier versions, and says nothing. */
int zonal__report_is_collapsed(const zonal__report_run *run) {
    const zonal__monitor monitor = {
        .mean_cosine = known(zonal__report_last(run, "mean_cosine"), -INFINITY),
        .effective_rank = known(zonal__report_last(run, "effective_rank"), INFINITY),
        .expected_rank = known(zonal__report_last(run, "expected_rank"), 0),
        .scale = zonal__report_last(run, "scale")};
    const zonal__collapse_limits limits = {
        .cosine = known(zonal__report_setting_number(run, "collapse-cosine"), INFINITY),
        .rank = known(zonal__report_setting_number(run, "collapse-rank"), 0)};
    return zonal__monitor_collapsed(&monitor, &limits) != NULL;
}

double zonal__report_last(const zonal__report_run *run, const char *name) {
    const zonal__report_series *series = zonal__report_series_of(run, name);
    for (int64_t i = series ? series->count - 1 : -1; i >= 0; i--)
        if (isfinite(series->value[i])) return series->value[i];
    return NAN;
}

double zonal__report_best(const zonal__report_run *run, const char *name) {
    const zonal__report_series *series = zonal__report_series_of(run, name);
    double best = NAN; /* which loses to any number in fmax */
    for (int64_t i = 0; series && i < series->count; i++)
        if (isfinite(series->value[i])) best = fmax(best, series->value[i]);
    return best;
}

int64_t zonal__report_thin(const zonal__report_series *series, int64_t most, double *step,
                           double *value) {
    int64_t parts = (most - 1) / 4, n = series->count, kept = 0;
    if (n <= most) parts = n; /* one point each */
    for (int64_t part = 0; part < parts; part++) {
        int64_t begin = part * n / parts, end = (part + 1) * n / parts;
        int64_t low = -1, high = -1, gap = -1;
        for (int64_t i = begin; i < end; i++) {
            double v = series->value[i];
            if (!isfinite(v)) gap = i;
            if (isfinite(v) && (low < 0 || v < series->value[low])) low = i;
            if (isfinite(v) && (high < 0 || v > series->value[high])) high = i;
        }
        for (int64_t i = begin; i < end; i++) {
            if (i != begin && i != low && i != high && i != gap && i != n - 1) continue;
            step[kept] = series->step[i];
            value[kept++] = series->value[i];
        }
    }
    return kept;
}
