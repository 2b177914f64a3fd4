/*
 * What a training run says: on a terminal a bar, elsewhere a table that grows; all of it, but for
 * the bar, also in RUN/log.txt.
 */
#ifndef ZONAL_CLI_TRAIN_PRINT_H
#define ZONAL_CLI_TRAIN_PRINT_H

#include <stdio.h>

#include "cli/common/progress.h"
#include "train/training_run.h"

typedef struct zonal__train_print {
    FILE *log; /* NULL: there is none yet */
    int quiet;
    int table_begun;
    char label[64]; /* of the bar */
    zonal__progress bar;
} zonal__train_print;

/* Sends the library's log lines here too. */
void zonal__train_print_begin(zonal__train_print *print, int quiet);
/* Opens RUN/log.txt. One that cannot be written is a warning: the run is worth more. */
void zonal__train_print_open_log(zonal__train_print *print, const zonal__run_folder *folder);
void zonal__train_print_end(zonal__train_print *print);

/* A line on stdout, unless quiet; a warning on stderr, in any case. Both without a newline. */
__attribute__((format(printf, 2, 3))) void zonal__train_say(zonal__train_print *print,
                                                            const char *format, ...);
__attribute__((format(printf, 2, 3))) void zonal__train_warn(zonal__train_print *print,
                                                             const char *format, ...);

/* Puts the sentence of the last error into the log, and takes the bar away before it is printed. */
void zonal__train_print_failure(zonal__train_print *print);

/* What is trained, on what and how, and how it begins; warns of a gain below the collapse threshold
 * and of a resumed run that is not what it was. */
void zonal__train_print_start(zonal__train_print *print, const zonal__training *training,
                              const zonal__training_start *start, const char *run);

/* How long the whole will take; if that is over an hour, also which options make it shorter. */
void zonal__train_print_estimate(zonal__train_print *print, const zonal__training *training,
                                 const zonal__estimated *estimated, int64_t steps_left);

/* The bar begins: "seconds" were spent on the steps before. */
void zonal__train_print_begin_steps(zonal__train_print *print, int64_t total, double seconds);
void zonal__train_print_step(zonal__train_print *print, const zonal__training *training,
                             const zonal__step_line *line, const zonal__monitor *monitor);
void zonal__train_print_eval(zonal__train_print *print, int64_t step,
                             const zonal__online_result *result);

#endif
