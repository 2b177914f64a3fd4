/*
 * The curves of a run: every number of every line of metrics.jsonl, read line by line. A curve that
 * grows beyond MOST_POINTS is thinned to half of them, so a file of any length takes bounded memory
 * and keeps its extremes.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "report/flat.h"
#include "report/run.h"

enum { LONGEST_LINE = 1 << 16, MOST_SERIES = 200, MOST_POINTS = 1 << 17 };
static const double most_steps = 9e15; /* a double counts that far, and an int64_t too */

static zonal_status series_for(zonal__report_run *run, const char *name,
                               zonal__report_series **out) {
    *out = NULL;
    for (int64_t i = 0; i < run->series_count; i++)
        if (strcmp(run->series[i].name, name) == 0) {
            *out = &run->series[i];
            return ZONAL_OK;
        }
    if (run->series_count == MOST_SERIES) return ZONAL_OK;
    ZONAL_TRY(ZONAL_GROW(&run->series, run->series_count, &run->series_room, "a run's numbers"));
    *out = &run->series[run->series_count++];
    memcpy((*out)->name, name, strlen(name) + 1);
    return ZONAL_OK;
}

static zonal_status add_point(zonal__report_run *run, const char *name, double step, double value) {
    zonal__report_series *series;
    int64_t room;
    ZONAL_TRY(series_for(run, name, &series));
    if (!series) return ZONAL_OK;
    if (series->count == MOST_POINTS)
        series->count = zonal__report_thin(series, MOST_POINTS / 2, series->step, series->value);
    room = series->room;
    ZONAL_TRY(ZONAL_GROW(&series->step, series->count, &room, "a run's numbers"));
    ZONAL_TRY(ZONAL_GROW(&series->value, series->count, &series->room, "a run's numbers"));
    series->step[series->count] = step;
    series->value[series->count++] = value;
    return ZONAL_OK;
}

static void note_time(zonal__report_run *run, const zonal__flat *line, double step) {
    double epoch = zonal__flat_number(line, "epoch");
    run->steps = fmax(run->steps, step);
    if (epoch > 0) run->steps_per_epoch = rint(step / epoch);
}

/* Adds every number of a line but its place in time. */
static zonal_status add_line(zonal__report_run *run, const zonal__flat *line) {
    double step = zonal__flat_number(line, "step");
    char prefix[80], name[ZONAL__REPORT_NAME];
    if (isnan(step) || !zonal__flat_text(line, "kind"))
        return ZONAL_FAIL(ZONAL_FORMAT, "it has no kind or no step");
    if (!(step >= 0 && step <= most_steps)) return ZONAL_FAIL(ZONAL_FORMAT, "%g is no step", step);
    note_time(run, line, step);
    zonal__flat_protocol(line, "", prefix, sizeof prefix);
    for (int64_t i = 0; i < line->count; i++) {
        const zonal__flat_entry *entry = &line->entry[i];
        if (entry->text || strcmp(entry->name, "step") == 0 || strcmp(entry->name, "epoch") == 0)
            continue;
        if (snprintf(name, sizeof name, "%s%s", prefix, entry->name) < (int)sizeof name)
            ZONAL_TRY(add_point(run, name, step, entry->number));
    }
    return ZONAL_OK;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Reads a line without its newline; 0 at the end of the file. Of a longer line than fits only the
 * first part is kept, and *length says how long it is. */
static int take_line(FILE *stream, char line[LONGEST_LINE + 1], size_t *length) {
    int c = getc_unlocked(stream);
    *length = 0;
    if (c == EOF) return 0;
    for (; c != EOF && c != '\n'; c = getc_unlocked(stream)) {
        if (*length < LONGEST_LINE) line[*length] = (char)c;
        ++*length;
    }
    line[*length < LONGEST_LINE ? *length : LONGEST_LINE] = '\0';
    return 1;
}

static zonal_status read_line(zonal__report_run *run, zonal__flat *flat, char *line,
                              size_t length) {
    if (length > LONGEST_LINE)
        return ZONAL_FAIL(ZONAL_FORMAT, "it has %zu bytes; more than %d are not read", length,
                          LONGEST_LINE);
    if (strspn(line, " \t\r") == length) return ZONAL_OK;
    ZONAL_TRY(zonal__flat_read(flat, line, length, "the line"));
    return add_line(run, flat);
}

static zonal_status read_lines(zonal__report_run *run, FILE *stream, char *line) {
    zonal__flat flat = {0};
    zonal_status status = ZONAL_OK;
    int64_t number = 0, damaged = 0;
    size_t length;
    while (status == ZONAL_OK && take_line(stream, line, &length)) {
        number++;
        status = read_line(run, &flat, line, length);
        if (status != ZONAL_FORMAT) continue;
        if (++damaged <= 3)
            zonal__report_note(run, "line %lld of metrics.jsonl is left out: %s", (long long)number,
                               zonal_last_error()->message);
        status = ZONAL_OK;
    }
    if (status == ZONAL_OK && ferror(stream))
        zonal__report_note(run, "metrics.jsonl cannot be read beyond line %lld", (long long)number);
    if (damaged > 3)
        zonal__report_note(run, "... and %lld more damaged lines of metrics.jsonl",
                           (long long)damaged - 3);
    if (run->series_count == MOST_SERIES)
        zonal__report_note(run, "of metrics.jsonl only the numbers of the first %d names are shown",
                           MOST_SERIES);
    zonal__flat_fini(&flat);
    return status;
}

/* Without O_NONBLOCK a named pipe would wait here for a writer; it means nothing for files. */
static FILE *open_file(const char *path) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat state;
    FILE *stream;
    if (descriptor < 0) return NULL;
    errno = EINVAL;
    stream =
        fstat(descriptor, &state) == 0 && S_ISREG(state.st_mode) ? fdopen(descriptor, "rb") : NULL;
    if (!stream) close(descriptor);
    return stream;
}

zonal_status zonal__report_read_metrics(zonal__report_run *run) {
    char path[ZONAL__REPORT_PATH], *line;
    FILE *stream;
    zonal_status status;
    ZONAL_TRY(zonal__report_path(run, "metrics.jsonl", path));
    stream = open_file(path);
    if (!stream) {
        if (errno == ENOENT)
            zonal__report_note(run, "there is no metrics.jsonl: nothing has been logged");
        else
            zonal__report_note(run, "metrics.jsonl cannot be read: %s", strerror(errno));
        return ZONAL_OK;
    }
    status = ZONAL_NEW(&line, LONGEST_LINE + 1, "a line of metrics.jsonl");
    if (status == ZONAL_OK) status = read_lines(run, stream, line);
    zonal__free(line);
    fclose(stream);
    return status;
}
