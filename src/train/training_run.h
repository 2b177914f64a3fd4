/*
 * A training from its first step to its last, without a process around it: nothing is printed, no
 * signal is caught, and events tell the caller what happens.
 *
 *     zonal__training training;
 *     zonal__training_result result;
 *     ZONAL_TRY(zonal__training_init(&training));              or zonal__training_resume
 *     ZONAL_TRY(zonal__training_set(&training, "data", "photos"));
 *     ZONAL_TRY(zonal__training_set(&training, "lr", "5e-4"));
 *     status = zonal__training_run(&training, &events, &result);
 *     zonal__training_close(&training);
 *
 * It makes the run folder, or goes on with one, opens the images, makes the steps, and logs,
 * evaluates and saves at the steps that train/training_work.h says. Several trainings may run at
 * once, in threads of their own; the log lines of the library (zonal_set_log) are those of all of
 * them.
 */
#ifndef ZONAL_TRAIN_TRAINING_RUN_H
#define ZONAL_TRAIN_TRAINING_RUN_H

#include "nn/weights.h"
#include "train/estimate.h"
#include "train/run_folder.h"
#include "train/training.h"

/* A run that is about to make steps. */
typedef struct zonal__training_start {
    zonal__trainer *trainer;
    const zonal__weights_begun *init; /* what was taken from the file of "init"; NULL: there is none
                                       */
    int resumed;
    int64_t step;             /* how many are done */
    const char *changed_data; /* resumed: how its images have changed; "": they have not */
    int other_length;         /* resumed: it has another number of steps than when it began */
} zonal__training_start;

/* Told from the thread that called zonal__training_run, in this order; any may be NULL. What they
 * are given lasts for the call. */
typedef struct zonal__training_events {
    void *context;
    /* All is opened and checked, and nothing has been written yet. A process that is to end from
     * here on should do so by "stop", which leaves a checkpoint. */
    void (*ready)(void *context, const zonal__training *training);
    /* The run folder is there; it stays where it is until the run ends. */
    void (*opened)(void *context, const zonal__run_folder *folder);
    void (*begun)(void *context, const zonal__training_start *start);
    /* The number of steps done: before the first, and after each. */
    void (*progressed)(void *context, int64_t step);
    /* Once, and again where it has to be corrected; also within a step: how long it will take. */
    void (*estimated)(void *context, const zonal__estimated *estimated, int64_t steps_left);
    void (*logged)(void *context, const zonal__step_line *line, const zonal__monitor *monitor);
    void (*evaluated)(void *context, int64_t step, const zonal__online_result *result);
    void (*saved)(void *context, int64_t step); /* a checkpoint; that of a new run's step 0 too */
    /* Something is wrong, and the run goes on. */
    void (*warned)(void *context, const char *sentence);
    /* Asked once after each step, after all that takes long: not 0 ends the run, with a checkpoint.
     */
    int (*stop)(void *context);
} zonal__training_events;

typedef struct zonal__training_result {
    char folder[ZONAL__RUN_FOLDER_PATH]; /* "": none was made */
    int64_t step, total;                 /* steps done, and all; fewer done: it was stopped */
} zonal__training_result;

/* "events" and "result" may be NULL. A training runs once; the training stays the caller's to
 * close. On failure the folder, if there is one, holds the last checkpoint that was made. */
zonal_status zonal__training_run(zonal__training *training, const zonal__training_events *events,
                                 zonal__training_result *result);

#endif
