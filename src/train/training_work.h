/*
 * A training at work, for the files that do it: training_start.c brings it to its first step,
 * training_run.c makes the steps.
 */
#ifndef ZONAL_TRAIN_TRAINING_WORK_H
#define ZONAL_TRAIN_TRAINING_WORK_H

#include <pthread.h>
#include <stdatomic.h>

#include "train/collapse.h"
#include "train/resume.h"
#include "train/training_run.h"

/* Which steps of a run are followed by something: a line of metrics, an evaluation, a checkpoint.
 * Each comes every so many steps, counted from the beginning of the run and not of the process, so
 * that a resumed run has them at the same steps; and all come after the last step. */
typedef struct zonal__cadence {
    int64_t total;                                   /* steps of the whole run */
    int64_t log_every, eval_every, checkpoint_every; /* steps; 0: never, but after the last */
} zonal__cadence;

/* To be combined by |. */
enum { ZONAL__DUE_LOG = 1, ZONAL__DUE_EVAL = 2, ZONAL__DUE_CHECKPOINT = 4 };

/* What is due once so many steps are done. */
int zonal__cadence_due(const zonal__cadence *cadence, int64_t step);

/* What is to be said of a step. */
typedef struct zonal__training_log {
    int pending; /* 1: it is still to be said */
    zonal__step_line line;
    zonal__monitor monitor;
    zonal_status status; /* of the monitor */
    zonal_error failure;
    pthread_t thread; /* that reads the monitor */
    int has_thread;
    _Atomic int thought; /* 1: the monitor has been read */
} zonal__training_log;

typedef struct zonal__training_work {
    zonal__training *training;
    zonal__training_events events;
    zonal__trainer *trainer;
    zonal__run_folder folder;
    zonal__resume resume;
    char *configuration;        /* what decides the numbers, for the checkpoints */
    zonal__weights_begun begun; /* what was taken from "init" */

    /* The steps. */
    zonal__cadence cadence;
    zonal__collapse_watch watch;
    zonal__estimate estimate;
    zonal__online_work online;
    zonal__training_log log;
    int64_t projection_dim;
    float *projections; /* [views][rows][dim], rows being this rank's */
    float *first_view;  /* [batch][dim]: of all ranks; NULL: one rank, and they begin the others */
    float *probe;       /* a copy of the online probe; NULL: there is none */
    char *run;          /* several ranks: the folder's path, on all of them; else NULL */
    double started;     /* seconds of the clock: when the run was asked for */
    double began;       /* seconds of the clock; those of earlier processes are taken off */
    double marked;      /* when the present stretch of steps began */
    int64_t marked_step;
    double saved; /* when the last checkpoint was taken */
    double score; /* of the step at hand; NaN: it has none */
    double loss_sum;
    int64_t losses; /* logged since the last score */
} zonal__training_work;

/* Calls an event where somebody listens: ZONAL__TELL(work, saved, step). */
#define ZONAL__TELL(work, event, ...)                                                              \
    do {                                                                                           \
        if ((work)->events.event) (work)->events.event((work)->events.context, __VA_ARGS__);       \
    } while (0)

/* Seconds of a clock that only goes forward. */
double zonal__training_now(void);

/* Opens and checks everything and makes the trainer; nothing is written. */
zonal_status zonal__training_prepare(zonal__training_work *work);
/* Makes the run folder, or winds it back to the checkpoint that is loaded. */
zonal_status zonal__training_begin(zonal__training_work *work);
void zonal__training_work_fini(zonal__training_work *work);

#endif
