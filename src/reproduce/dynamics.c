#include "reproduce/dynamics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "report/svg.h"

enum { MOST_LINES = 24, MOST_POINTS = 1000 };

typedef struct figure {
    int lines;
    zonal__svg_series series[MOST_LINES];
    double *numbers[MOST_LINES]; /* [2][points]: epochs and accuracies in percent */
} figure;

static void fini(figure *f) {
    for (int i = 0; i < f->lines; i++) zonal__free(f->numbers[i]);
    zonal__free(f);
}

static double point(const zonal__record *record, int64_t i, const char *member) {
    char name[64];
    snprintf(name, sizeof name, "curve.%lld.%s", (long long)i, member);
    return zonal__flat_number(&record->flat, name);
}

/* The dotted names of a curve's points stand one after the other. */
static int64_t count_points(const zonal__record *record) {
    int64_t count = 0;
    for (int64_t i = 0; i < record->flat.count; i++) {
        const char *name = record->flat.entry[i].name;
        size_t length = strlen(name);
        if (strncmp(name, "curve.", 6) == 0 && length > 6 &&
            strcmp(name + length - 6, ".epoch") == 0)
            count++;
    }
    return count < MOST_POINTS ? count : MOST_POINTS;
}

static zonal_status add_line(figure *f, const zonal__record *record, int method, int first) {
    int64_t points = count_points(record);
    double *numbers;
    if (points == 0 || f->lines == MOST_LINES) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&numbers, 2 * points, "a curve"));
    for (int64_t i = 0; i < points; i++) {
        numbers[i] = point(record, i, "epoch");
        numbers[points + i] = 100 * point(record, i, "accuracy");
    }
    f->numbers[f->lines] = numbers;
    f->series[f->lines++] = (zonal__svg_series){.name = first ? record->method : NULL,
                                                .count = points,
                                                .x = numbers,
                                                .y = numbers + points,
                                                .dashed = strcmp(record->method, "susreg") == 0,
                                                .colour = 1 + method % 7};
    return ZONAL_OK;
}

/* Of a seed that was run twice, under other settings for example, the last. */
static int is_last(const zonal__records *records, int64_t i) {
    const zonal__record *r = &records->at[i];
    for (int64_t k = i + 1; k < records->count; k++) {
        const zonal__record *later = &records->at[k];
        if (later->seed == r->seed && strcmp(later->experiment, r->experiment) == 0 &&
            strcmp(later->method, r->method) == 0 && strcmp(later->data, r->data) == 0 &&
            strcmp(later->variant, r->variant) == 0)
            return 0;
    }
    return 1;
}

static zonal_status add_method(figure *f, const zonal__matrix *matrix, int method, const char *data,
                               const char *variant, const zonal__records *records) {
    int first = 1;
    for (int64_t i = 0; i < records->count; i++) {
        const zonal__record *r = &records->at[i];
        if (strcmp(r->experiment, matrix->experiment->name) != 0 ||
            strcmp(r->method, matrix->method[method]) != 0 || strcmp(r->data, data) != 0 ||
            strcmp(r->variant, variant) != 0 || !is_last(records, i))
            continue;
        int before = f->lines;
        ZONAL_TRY(add_line(f, r, method, first));
        if (f->lines > before) first = 0;
    }
    return ZONAL_OK;
}

static zonal_status draw(const figure *f, const zonal__data_set *set, const char *path) {
    char title[96];
    const zonal__svg_chart chart = {.title = title,
                                    .subtitle =
                                        "a linear classifier trained along with the network",
                                    .x_label = "epoch",
                                    .y_label = "accuracy, percent",
                                    .series = f->series,
                                    .series_count = f->lines};
    snprintf(title, sizeof title, "Online linear accuracy, %s", set->title);
    return zonal__svg_write(path, &chart);
}

zonal_status zonal__dynamics_draw(const zonal__matrix *matrix, int set, const char *variant,
                                  const zonal__records *records, const char *path, int *drawn) {
    figure *f;
    zonal_status status;
    const zonal__data_set *data = matrix->set[set].set;
    *drawn = 0;
    ZONAL_TRY(ZONAL_NEW(&f, 1, "the curves"));
    status = ZONAL_OK;
    for (int m = 0; m < matrix->methods && status == ZONAL_OK; m++)
        status = add_method(f, matrix, m, data->name, variant, records);
    if (status == ZONAL_OK && f->lines > 0) {
        status = draw(f, data, path);
        *drawn = status == ZONAL_OK;
    }
    fini(f);
    return status;
}
