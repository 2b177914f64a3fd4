#include "report/run.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/file_read.h"
#include "core/memory.h"
#include "report/flat.h"

enum { LONGEST_PATH = 4096, LONGEST_FILE = 256, MOST_EVALUATIONS = 64 };
static const size_t longest_config = (size_t)1 << 20, longest_file = (size_t)1 << 30;

__attribute__((format(printf, 2, 3))) static void note(zonal__report_run *run, const char *format,
                                                       ...) {
    va_list arguments;
    if (run->notes_count == ZONAL__REPORT_NOTES) return;
    va_start(arguments, format);
    vsnprintf(run->notes[run->notes_count++], sizeof run->notes[0], format, arguments);
    va_end(arguments);
}

static zonal_status path_in(const zonal__report_run *run, const char *name, char *path) {
    if (snprintf(path, LONGEST_PATH, "%s/%s", run->folder, name) >= LONGEST_PATH)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the name of the run folder is too long");
    return ZONAL_OK;
}

/* Room for one more element; "array" is the address of a pointer to elements of "size" bytes. */
static zonal_status grow(void *array, size_t size, int64_t count, int64_t *room) {
    void **pointer = array, *larger;
    int64_t wanted = *room ? 2 * *room : 16;
    if (count < *room) return ZONAL_OK;
    ZONAL_TRY(zonal__alloc(wanted, size, "a run's numbers", &larger));
    if (count > 0) memcpy(larger, *pointer, (size_t)count * size);
    zonal__free(*pointer);
    *pointer = larger;
    *room = wanted;
    return ZONAL_OK;
}

/* ---- the configuration ----------------------------------------------------------------------- */

static char *trim(char *text) {
    size_t length;
    text += strspn(text, " \t\r");
    length = strlen(text);
    while (length > 0 && strchr(" \t\r", text[length - 1])) text[--length] = '\0';
    return text;
}

/* Takes the quotes off a text, where it stands, and returns what follows it. \" and \\ become what
 * they stand for; other escapes are shown as they are written. */
static char *unquote(char *text) {
    char *out = text, *at = text + 1;
    for (; *at && *at != '"'; at++) {
        if (*at == '\\' && (at[1] == '"' || at[1] == '\\')) at++;
        *out++ = *at;
    }
    at += *at == '"';
    *out = '\0';
    return at;
}

/* key = value  # source. Returns 0 for a line without a setting. */
static int read_setting(char *line, zonal__report_setting *setting) {
    char *value = strchr(line, '='), *rest;
    line = trim(line);
    if (line[0] == '#' || line[0] == '[' || !value || value == line) return 0;
    *value++ = '\0';
    value += strspn(value, " \t");
    rest = *value == '"' ? unquote(value) : value;
    rest += strcspn(rest, "#");
    setting->source = *rest ? trim(rest + 1) : "";
    *rest = '\0';
    setting->key = trim(line);
    setting->value = trim(value);
    return 1;
}

static zonal_status read_config(zonal__report_run *run) {
    char path[LONGEST_PATH];
    struct stat state;
    size_t length;
    int64_t lines = 1;
    ZONAL_TRY(path_in(run, "config.toml", path));
    if (stat(path, &state) != 0)
        return ZONAL_FAIL(ZONAL_IO,
                          "%s is no run folder: it has no config.toml (%s); give a folder that "
                          "zonal train wrote",
                          run->folder, strerror(errno));
    ZONAL_TRY(zonal__file_read(path, longest_config, &run->config, &length));
    for (size_t i = 0; i < length; i++) lines += run->config[i] == '\n';
    ZONAL_TRY(ZONAL_NEW(&run->settings, lines, "a run's settings"));
    for (char *line = run->config, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        run->settings_count += read_setting(line, &run->settings[run->settings_count]);
    }
    return ZONAL_OK;
}

/* ---- curves ---------------------------------------------------------------------------------- */

static zonal_status series_for(zonal__report_run *run, const char *name,
                               zonal__report_series **out) {
    for (int64_t i = 0; i < run->series_count; i++)
        if (strcmp(run->series[i].name, name) == 0) {
            *out = &run->series[i];
            return ZONAL_OK;
        }
    ZONAL_TRY(grow(&run->series, sizeof *run->series, run->series_count, &run->series_room));
    *out = &run->series[run->series_count++];
    memcpy((*out)->name, name, strlen(name) + 1);
    return ZONAL_OK;
}

static zonal_status add_point(zonal__report_run *run, const char *name, double step, double value) {
    zonal__report_series *series;
    int64_t room;
    ZONAL_TRY(series_for(run, name, &series));
    room = series->room;
    ZONAL_TRY(grow(&series->step, sizeof(double), series->count, &room));
    ZONAL_TRY(grow(&series->value, sizeof(double), series->count, &series->room));
    series->step[series->count] = step;
    series->value[series->count++] = value;
    return ZONAL_OK;
}

/* "PROTOCOL.FEATURES." of the object whose members begin with "prefix"; "" for none. */
static void protocol_of(const zonal__flat *flat, const char *prefix, char *out, size_t size) {
    char name[160];
    const char *protocol, *features;
    snprintf(name, sizeof name, "%sprotocol", prefix);
    protocol = zonal__flat_text(flat, name);
    snprintf(name, sizeof name, "%sfeatures", prefix);
    features = zonal__flat_text(flat, name);
    if (!features) features = zonal__flat_text(flat, "features");
    out[0] = '\0';
    if (protocol) snprintf(out, size, "%.40s.%.24s.", protocol, features ? features : "backbone");
}

/* Joins two parts of a name; 0 where it is too long, and the number it names is passed over. */
static int join(const char *first, const char *second, char out[ZONAL__REPORT_NAME]) {
    int length = snprintf(out, ZONAL__REPORT_NAME, "%s%s", first, second);
    return length < ZONAL__REPORT_NAME;
}

/* Adds every number of a line but its place in time. */
static zonal_status add_line(zonal__report_run *run, const zonal__flat *line) {
    double step = zonal__flat_number(line, "step");
    char prefix[80], name[ZONAL__REPORT_NAME];
    if (!isfinite(step) || !zonal__flat_text(line, "kind"))
        return ZONAL_FAIL(ZONAL_FORMAT, "it has no kind or no step");
    protocol_of(line, "", prefix, sizeof prefix);
    for (int64_t i = 0; i < line->count; i++) {
        const zonal__flat_entry *entry = &line->entry[i];
        if (entry->text || strcmp(entry->name, "step") == 0 || strcmp(entry->name, "epoch") == 0)
            continue;
        if (join(prefix, entry->name, name)) ZONAL_TRY(add_point(run, name, step, entry->number));
    }
    return ZONAL_OK;
}

static zonal_status add_lines(zonal__report_run *run, char *text, size_t length) {
    zonal__flat flat = {0};
    zonal_status status = ZONAL_OK;
    int64_t number = 0, damaged = 0;
    const char *end = text + length;
    for (char *line = text, *next; line < end && status == ZONAL_OK; line = next) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t size;
        next = stop ? stop + 1 : text + length;
        if (stop) *stop = '\0';
        number++;
        size = (size_t)((stop ? stop : end) - line);
        if (strspn(line, " \t\r") == size) continue;
        status = zonal__flat_read(&flat, line, size, "the line");
        if (status == ZONAL_OK) status = add_line(run, &flat);
        if (status != ZONAL_FORMAT) continue;
        if (++damaged <= 3)
            note(run, "line %lld of metrics.jsonl is left out: %s", (long long)number,
                 zonal_last_error()->message);
        status = ZONAL_OK;
    }
    if (damaged > 3)
        note(run, "... and %lld more damaged lines of metrics.jsonl", (long long)damaged - 3);
    zonal__flat_fini(&flat);
    return status;
}

static zonal_status read_metrics(zonal__report_run *run) {
    char path[LONGEST_PATH], *text;
    struct stat state;
    size_t length;
    zonal_status status;
    ZONAL_TRY(path_in(run, "metrics.jsonl", path));
    if (stat(path, &state) != 0 && errno == ENOENT) {
        note(run, "there is no metrics.jsonl: nothing has been logged");
        return ZONAL_OK;
    }
    ZONAL_TRY(zonal__file_read(path, longest_file, &text, &length));
    status = add_lines(run, text, length);
    zonal__free(text);
    return status;
}

/* ---- evaluations ----------------------------------------------------------------------------- */

/* Results of one protocol and the same features: those of other seeds are averaged; of other
 * variants (another k, more candidates) the first is taken. */
static int is_variant(const zonal__flat *flat, const char *a, const char *b) {
    static const char *const parameters[] = {"k", "temperature", "views", "candidates", "batch"};
    char x[160], y[160];
    for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++) {
        double left, right;
        snprintf(x, sizeof x, "%s%s", a, parameters[i]);
        snprintf(y, sizeof y, "%s%s", b, parameters[i]);
        left = zonal__flat_number(flat, x);
        right = zonal__flat_number(flat, y);
        if (left != right && !(isnan(left) && isnan(right))) return 1;
    }
    return 0;
}

/* "file": the number of the file that a result came from first; later files do not add to it. */
static zonal_status add_result(zonal__report_run *run, const zonal__flat *flat, const char *prefix,
                               const char *name, int file, double value) {
    zonal__report_result *result;
    for (int64_t i = 0; i < run->results_count; i++) {
        result = &run->results[i];
        if (strcmp(result->name, name) != 0) continue;
        if (result->file != file || is_variant(flat, result->prefix, prefix)) return ZONAL_OK;
        result->count++;
        result->value += (value - result->value) / result->count;
        return ZONAL_OK;
    }
    ZONAL_TRY(grow(&run->results, sizeof *run->results, run->results_count, &run->results_room));
    result = &run->results[run->results_count++];
    *result = (zonal__report_result){.value = value, .count = 1, .file = file};
    memcpy(result->name, name, strlen(name) + 1);
    memcpy(result->prefix, prefix, strlen(prefix) + 1);
    return ZONAL_OK;
}

/* Every number beside a "protocol", at whatever depth that stands. */
static zonal_status add_results(zonal__report_run *run, const zonal__flat *flat, int file) {
    for (int64_t i = 0; i < flat->count; i++) {
        const zonal__flat_entry *entry = &flat->entry[i];
        const char *dot = strrchr(entry->name, '.');
        int length = dot ? (int)(dot + 1 - entry->name) : 0;
        char outer[ZONAL__REPORT_NAME], prefix[80], name[ZONAL__REPORT_NAME];
        if (entry->text) continue;
        snprintf(outer, sizeof outer, "%.*s", length, entry->name);
        protocol_of(flat, outer, prefix, sizeof prefix);
        if (!prefix[0] || !join(prefix, entry->name + length, name)) continue;
        ZONAL_TRY(add_result(run, flat, outer, name, file, entry->number));
    }
    return ZONAL_OK;
}

/* "energy": a list with "excess" and "sd" of each degree, as zonal test --json writes it. */
static void add_degrees(zonal__report_run *run, const zonal__flat *flat) {
    while (run->degrees < ZONAL__REPORT_DEGREES) {
        char excess[48], sd[48];
        double value;
        snprintf(excess, sizeof excess, "energy.%d.excess", run->degrees);
        snprintf(sd, sizeof sd, "energy.%d.sd", run->degrees);
        value = zonal__flat_number(flat, excess) / zonal__flat_number(flat, sd);
        if (!isfinite(value)) return;
        run->excess[run->degrees++] = value;
    }
}

static zonal_status read_evaluation(zonal__report_run *run, const char *file, int number) {
    char path[LONGEST_PATH], name[5 + LONGEST_FILE], *text;
    zonal__flat flat = {0};
    size_t length;
    zonal_status status;
    snprintf(name, sizeof name, "eval/%.*s", LONGEST_FILE - 1, file);
    ZONAL_TRY(path_in(run, name, path));
    status = zonal__file_read(path, longest_file, &text, &length);
    if (status == ZONAL_OK) status = zonal__flat_read(&flat, text, length, "the file");
    if (status == ZONAL_OK) status = add_results(run, &flat, number);
    if (status == ZONAL_OK && run->degrees == 0) add_degrees(run, &flat);
    zonal__flat_fini(&flat);
    zonal__free(text);
    if (status != ZONAL_FORMAT && status != ZONAL_IO) return status;
    note(run, "%.40s is left out: %s", name, zonal_last_error()->message);
    return ZONAL_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(a, b);
}

/* In the order of their names, which no file system promises. */
static zonal_status read_evaluations(zonal__report_run *run) {
    char path[LONGEST_PATH], names[MOST_EVALUATIONS][LONGEST_FILE];
    int count = 0;
    struct dirent *entry;
    DIR *folder;
    ZONAL_TRY(path_in(run, "eval", path));
    folder = opendir(path);
    if (!folder) return ZONAL_OK;
    while ((entry = readdir(folder)) && count < MOST_EVALUATIONS) {
        size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0)
            snprintf(names[count++], sizeof names[0], "%s", entry->d_name);
    }
    closedir(folder);
    qsort(names, (size_t)count, sizeof names[0], compare_names);
    for (int i = 0; i < count; i++) ZONAL_TRY(read_evaluation(run, names[i], i));
    return ZONAL_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* When a file of the run was written last: what a run says of its own time. */
static void file_time(const zonal__report_run *run, const char *name, char out[24]) {
    char path[LONGEST_PATH];
    struct stat state;
    struct tm parts;
    out[0] = '\0';
    if (path_in(run, name, path) != ZONAL_OK || stat(path, &state) != 0) return;
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
    *run = (zonal__report_run){0};
    ZONAL_TRY(take_folder(run, folder));
    ZONAL_TRY(read_config(run));
    ZONAL_TRY(read_metrics(run));
    ZONAL_TRY(read_evaluations(run));
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
    zonal__free(run->settings);
    zonal__free(run->config);
    zonal__free(run->folder);
    *run = (zonal__report_run){0};
}

/* ---- asking ---------------------------------------------------------------------------------- */

const char *zonal__report_setting_of(const zonal__report_run *run, const char *key) {
    for (int64_t i = 0; i < run->settings_count; i++)
        if (strcmp(run->settings[i].key, key) == 0) return run->settings[i].value;
    return NULL;
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
