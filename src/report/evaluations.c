/*
 * What evaluations after the training found: the files RUN/eval/NAME.json.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file_read.h"
#include "core/memory.h"
#include "report/flat.h"
#include "report/run.h"

enum { LONGEST_FILE = 256, MOST_FILES = 64, LONGEST_CONDITIONS = 16384 };
static const size_t longest_text = (size_t)1 << 26;

static double number_of(const zonal__flat *flat, const char *prefix, const char *member) {
    char name[160];
    snprintf(name, sizeof name, "%s%s", prefix, member);
    return zonal__flat_number(flat, name);
}

static const char *text_of(const zonal__flat *flat, const char *prefix, const char *member) {
    char name[160];
    snprintf(name, sizeof name, "%s%s", prefix, member);
    return zonal__flat_text(flat, name);
}

/* Writes "; "-separated conditions without the seed, which stands at the end of the first. */
static void drop_seed(const char *conditions, char *out, size_t size) {
    const size_t first = strcspn(conditions, ";");
    const char *seed = strstr(conditions, ", seed ");
    const size_t kept = seed && seed < conditions + first ? (size_t)(seed - conditions) : first;
    snprintf(out, size, "%.*s%s", (int)kept, conditions, conditions + first);
}

static int same_conditions(const char *x, const char *y) {
    char a[LONGEST_CONDITIONS], b[LONGEST_CONDITIONS];
    drop_seed(x, a, sizeof a);
    drop_seed(y, b, sizeof b);
    return strcmp(a, b) == 0;
}

static int same_numbers_and_texts(const zonal__flat *flat, const char *a, const char *b) {
    static const char *const numbers[] = {"k",    "temperature", "views", "candidates", "batch",
                                          "test", "train",       "limit", "epochs",     "rate"};
    static const char *const texts[] = {"data", "part"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        double x = number_of(flat, a, numbers[i]), y = number_of(flat, b, numbers[i]);
        if (x != y && !(isnan(x) && isnan(y))) return 0;
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *x = text_of(flat, a, texts[i]), *y = text_of(flat, b, texts[i]);
        if (x && y ? strcmp(x, y) != 0 : x != y) return 0;
    }
    return 1;
}

/* Whether nothing but the seed and the step differs in two results of one protocol and the same
 * features. Those without conditions are of an earlier version. */
static int is_alike(const zonal__flat *flat, const char *a, const char *b) {
    const char *x = text_of(flat, a, "conditions"), *y = text_of(flat, b, "conditions");
    return x && y ? same_conditions(x, y) : same_numbers_and_texts(flat, a, b);
}

/* "knn.backbone.accuracy" and "knn.backbone.test" are of one evaluation. */
static int same_evaluation(const char *a, const char *b) {
    ptrdiff_t length = strrchr(a, '.') - a;
    return strrchr(b, '.') - b == length && strncmp(a, b, (size_t)length) == 0;
}

/* "file": the number of the file that an evaluation came from first; later files do not add to it.
 */
static zonal_status add_result(zonal__report_run *run, const zonal__flat *flat, const char *prefix,
                               const char *name, int file, double value) {
    zonal__report_result *result;
    double step, known;
    for (int64_t i = 0; i < run->results_count; i++) {
        result = &run->results[i];
        if (result->file != file && same_evaluation(result->name, name)) return ZONAL_OK;
        if (strcmp(result->name, name) != 0) continue;
        /* Of variants (another k, more candidates, other images) the first is taken, ... */
        if (!is_alike(flat, result->prefix, prefix)) return ZONAL_OK;
        step = number_of(flat, prefix, "step");
        known = number_of(flat, result->prefix, "step");
        if (step > known) {
            /* ... of steps the last: what the run's later weights do is what counts, ... */
            result->value = value;
            result->count = 1;
            memcpy(result->prefix, prefix, strlen(prefix) + 1);
            return ZONAL_OK;
        }
        if (step != known && !(isnan(step) && isnan(known))) return ZONAL_OK;
        /* ... and seeds are averaged. */
        result->count++;
        result->value += (value - result->value) / result->count;
        return ZONAL_OK;
    }
    ZONAL_TRY(ZONAL_GROW(&run->results, run->results_count, &run->results_room, "a run's numbers"));
    result = &run->results[run->results_count++];
    *result = (zonal__report_result){.value = value, .count = 1, .file = file};
    memcpy(result->name, name, strlen(name) + 1);
    memcpy(result->prefix, prefix, strlen(prefix) + 1);
    return ZONAL_OK;
}

/* Every number beside a "protocol", at whatever depth that stands. One that was found by overriding
 * what the run was trained with, its split for example, says nothing of the run. */
static zonal_status add_results(zonal__report_run *run, const zonal__flat *flat, int file) {
    for (int64_t i = 0; i < flat->count; i++) {
        const zonal__flat_entry *entry = &flat->entry[i];
        const char *dot = strrchr(entry->name, '.');
        int length = dot ? (int)(dot + 1 - entry->name) : 0;
        char outer[ZONAL__REPORT_NAME], prefix[80], name[ZONAL__REPORT_NAME];
        if (entry->text) continue;
        snprintf(outer, sizeof outer, "%.*s", length, entry->name);
        zonal__flat_protocol(flat, outer, prefix, sizeof prefix);
        if (!prefix[0] || text_of(flat, outer, "overrides")) continue;
        if (snprintf(name, sizeof name, "%s%s", prefix, entry->name + length) < (int)sizeof name)
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

static zonal_status read_evaluation(zonal__report_run *run, const char *within, const char *file,
                                    int number) {
    char path[ZONAL__REPORT_PATH], name[32 + LONGEST_FILE], *text;
    zonal__flat flat = {0};
    size_t length;
    zonal_status status;
    snprintf(name, sizeof name, "%.20s/%.*s", within, LONGEST_FILE - 1, file);
    ZONAL_TRY(zonal__report_path(run, name, path));
    status = zonal__file_read(path, longest_text, &text, &length);
    if (status == ZONAL_OK) status = zonal__flat_read(&flat, text, length, "the file");
    if (status == ZONAL_OK) status = add_results(run, &flat, number);
    if (status == ZONAL_OK && run->degrees == 0) add_degrees(run, &flat);
    zonal__flat_fini(&flat);
    zonal__free(text);
    if (status != ZONAL_FORMAT && status != ZONAL_IO) return status;
    zonal__report_note(run, "%.40s is left out: %s", name, zonal_last_error()->message);
    return ZONAL_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(a, b);
}

/* In the order of their names, which no file system promises; "number" is that of the first. */
static zonal_status read_folder(zonal__report_run *run, const char *within, int number) {
    char path[ZONAL__REPORT_PATH], names[MOST_FILES][LONGEST_FILE];
    int count = 0;
    struct dirent *entry;
    DIR *folder;
    ZONAL_TRY(zonal__report_path(run, within, path));
    folder = opendir(path);
    if (!folder) return ZONAL_OK;
    while ((entry = readdir(folder)) && count < MOST_FILES) {
        size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0)
            snprintf(names[count++], sizeof names[0], "%s", entry->d_name);
    }
    closedir(folder);
    qsort(names, (size_t)count, sizeof names[0], compare_names);
    for (int i = 0; i < count; i++) ZONAL_TRY(read_evaluation(run, within, names[i], number + i));
    return ZONAL_OK;
}

/* What was found on a part of the images counts only where there is nothing of the whole. */
zonal_status zonal__report_read_evaluations(zonal__report_run *run) {
    ZONAL_TRY(read_folder(run, "eval", 0));
    return read_folder(run, "eval/partial", MOST_FILES);
}
