/*
 * What a report needs of a run folder, read from
 *
 *     RUN/config.toml      the settings, each with where it came from
 *     RUN/metrics.jsonl    one curve for every number that was logged
 *     RUN/eval/NAME.json   what evaluations after the training found
 *
 * Only the configuration must be there. A line or file that is damaged is left out; the run keeps a
 * note of it for the page.
 */
#ifndef ZONAL_REPORT_RUN_H
#define ZONAL_REPORT_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum { ZONAL__REPORT_NAME = 96, ZONAL__REPORT_DEGREES = 16, ZONAL__REPORT_NOTES = 8 };

/* A number over the steps. Its name is that of the member of the logged line, "loss" or
 * "mean_cosine"; online evaluations are "PROTOCOL.FEATURES.member": "knn.backbone.accuracy". What
 * was logged as null is NaN. */
typedef struct zonal__report_series {
    char name[ZONAL__REPORT_NAME];
    int64_t count, room;
    double *step, *value; /* [count] */
} zonal__report_series;

/* As texts: quotes are taken off. */
typedef struct zonal__report_setting {
    const char *key, *value, *source; /* source: "default", "--lr", "recipes/x.toml:12"; or "" */
} zonal__report_setting;

/* A number found by an evaluation after the training; named like an online one. Where a file has it
 * for several seeds it is their mean. */
typedef struct zonal__report_result {
    char name[ZONAL__REPORT_NAME];
    double value;
    int count;                       /* of the seeds */
    int file;                        /* the number of the file that has it */
    char prefix[ZONAL__REPORT_NAME]; /* of the names of its object in that file */
} zonal__report_result;

typedef struct zonal__report_run {
    char *folder;     /* as given, without slashes at its end */
    const char *name; /* what the page calls it: a part of "folder" */
    char *config;     /* the text that the settings point into */
    zonal__report_setting *settings;
    int64_t settings_count;
    zonal__report_series *series;
    int64_t series_count, series_room;
    zonal__report_result *results;
    int64_t results_count, results_room;
    int degrees;                          /* of which the excess energy is known */
    double excess[ZONAL__REPORT_DEGREES]; /* [l - 1], in standard deviations */
    char began[24], ended[24];            /* "2026-11-15 13:10 UTC"; of the files; "" unknown */
    char notes[ZONAL__REPORT_NOTES][320]; /* what was left out, and why */
    int notes_count;
} zonal__report_run;

/* Reads a run. ZONAL_IO for a folder that is no run. Release it with zonal__report_run_fini, also
 * after failure. */
zonal_status zonal__report_run_read(zonal__report_run *run, const char *folder);
void zonal__report_run_fini(zonal__report_run *run); /* accepts zeroed memory */

/* NULL where there is none. */
const char *zonal__report_setting_of(const zonal__report_run *run, const char *key);
const zonal__report_series *zonal__report_series_of(const zonal__report_run *run, const char *name);
/* NaN where there is none. */
double zonal__report_result_of(const zonal__report_run *run, const char *name);

/* The last value of a curve that is a number, and the largest; NaN where there is none. */
double zonal__report_last(const zonal__report_run *run, const char *name);
double zonal__report_best(const zonal__report_run *run, const char *name);

/* Copies a curve with at most "most" (>= 8) points and returns how many: all of them, or of equal
 * parts of the curve the first, the smallest and the largest value and one that is no number, each
 * where there is one, and the very last. So no extreme and no gap is lost. */
int64_t zonal__report_thin(const zonal__report_series *series, int64_t most, double *step,
                           double *value);

#endif
