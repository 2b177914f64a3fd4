/*
 * What a report needs of a run folder, read from
 *
 *     RUN/config.toml      the settings, each with where it came from
 *     RUN/metrics.jsonl    one curve for every number that was logged
 *     RUN/eval/NAME.json   what evaluations after the training found
 *
 * Only the configuration must be there. A file or line that is damaged is left out; the run keeps a
 * note of it for the page. A folder may come from anybody: however large its files are, the memory
 * that is taken is bounded, and nothing in them is more than a name, a number or a text.
 */
#ifndef ZONAL_REPORT_RUN_H
#define ZONAL_REPORT_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "train/run_group.h"

enum {
    ZONAL__REPORT_NAME = 96,
    ZONAL__REPORT_DEGREES = 16,
    ZONAL__REPORT_NOTES = 8,
    ZONAL__REPORT_PATH = 4096
};

/* A number over the steps. Its name is that of the member of the logged line, "loss" or
 * "mean_cosine"; online evaluations are "PROTOCOL.FEATURES.member": "knn.backbone.accuracy". What
 * was logged as null is NaN. */
typedef struct zonal__report_series {
    char name[ZONAL__REPORT_NAME];
    int64_t count, room;
    double *step, *value; /* [count] */
} zonal__report_series;

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
    zonal__run_settings config;
    char *images; /* what the run has recorded of them; NULL: nothing */
    zonal__report_series *series;
    int64_t series_count, series_room;
    zonal__report_result *results;
    int64_t results_count, results_room;
    double steps;                         /* made so far: the largest that was logged; 0: none */
    double steps_per_epoch;               /* NaN: not known */
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
/* NaN where there is none, or its text is no number. */
double zonal__report_setting_number(const zonal__report_run *run, const char *key);
double zonal__report_result_of(const zonal__report_run *run, const char *name);

/* How many steps the settings ask for; NaN where they do not say. */
double zonal__report_total_steps(const zonal__report_run *run);
/* Whether fewer steps were made; whether the mean cosine or the effective rank that was logged last
 * is beyond what the run's settings call collapse. */
int zonal__report_is_unfinished(const zonal__report_run *run);
int zonal__report_is_collapsed(const zonal__report_run *run);

/* The last value of a curve that is a number, and the largest; NaN where there is none. */
double zonal__report_last(const zonal__report_run *run, const char *name);
double zonal__report_best(const zonal__report_run *run, const char *name);

/* Copies a curve with at most "most" (>= 8) points and returns how many: all of them, or of equal
 * parts of the curve the first, the smallest and the largest value and one that is no number, each
 * where there is one, and the very last. So no extreme and no gap is lost. step and value may be
 * the curve's own. */
int64_t zonal__report_thin(const zonal__report_series *series, int64_t most, double *step,
                           double *value);

/* ---- the parts of reading -------------------------------------------------------------------- */

zonal_status zonal__report_read_metrics(zonal__report_run *run);
zonal_status zonal__report_read_evaluations(zonal__report_run *run);

/* Keeps a sentence for the page; those beyond ZONAL__REPORT_NOTES are dropped. */
__attribute__((format(printf, 2, 3))) void zonal__report_note(zonal__report_run *run,
                                                              const char *format, ...);
zonal_status zonal__report_path(const zonal__report_run *run, const char *name,
                                char path[ZONAL__REPORT_PATH]);

#endif
