/*
 * How long a run will take, said within twenty seconds of its beginning. The first step is slow,
 * because memory is touched and kernels are chosen for the first time, and does not count; then
 * thirty steps in eight seconds or more are enough, and where steps are slower as many as end in
 * time. After two minutes it is looked at once more, since a machine may have been busy with other
 * things at first, and corrected if it was off by more than a fifth.
 *
 *     all = steps left x (seconds of a step) + evaluations left x ... + checkpoints left x ...
 *
 * An evaluation that has not been seen yet is guessed from the images it looks at: a pass forward
 * is about a third of a step's work.
 *
 * Where fourteen seconds go by in the first two steps, the share of the step under way that is done
 * stands for the whole; where its images are not even read by then, the time of reading them is
 * said, as what the run takes at least. Times are handed in, so that this file has no clock.
 */
#ifndef ZONAL_TRAIN_ESTIMATE_H
#define ZONAL_TRAIN_ESTIMATE_H

#include <stdint.h>

typedef struct zonal__estimate {
    /* Set by the caller. */
    int64_t first, total;                 /* steps: those done at the beginning, and all */
    int64_t eval_every, checkpoint_every; /* steps; eval_every 0: none */
    double eval_work;                     /* images of an evaluation over images of a step */
    double save_seconds;                  /* of a checkpoint */
    double started; /* when the run was: what comes before its steps counts against the twenty */
    /* The estimate's own. */
    double began, first_ended; /* seconds of the clock; first_ended 0: not yet */
    double step_began, loaded; /* of the step under way; loaded 0: its images are not there */
    double user, system;       /* seconds of processors then */
    int64_t steps;             /* done since the beginning */
    double aside;              /* seconds of evaluations and checkpoints since first_ended */
    double waited;             /* seconds for images since first_ended */
    double eval_seconds;       /* of the last one; 0: none yet */
    double said;               /* seconds; 0: nothing yet */
    int said_least, done;
} zonal__estimate;

/* How far a step is. */
typedef struct zonal__estimate_part {
    double loaded, computed; /* shares of its images and of its work */
    double now;
    double user, system; /* seconds of processors so far: the program's, and the system's for it */
} zonal__estimate_part;

typedef struct zonal__estimated {
    double seconds;           /* from the beginning to the end */
    double step, evaluations; /* seconds of one step, and of all evaluations */
    double waiting;           /* of a step: for its images */
    int at_least;             /* 1: it is the reading of images alone */
} zonal__estimated;

void zonal__estimate_begin(zonal__estimate *estimate, double now);

/* So many seconds went into an evaluation, or a checkpoint; or, since the step before, into waiting
 * for images. */
void zonal__estimate_evaluated(zonal__estimate *estimate, double seconds);
void zonal__estimate_saved(zonal__estimate *estimate, double seconds);
void zonal__estimate_waited(zonal__estimate *estimate, double seconds);

/* Within a step, and after each, with the number of steps done: 1 when there is something to say.
 * That is once, and again where it has to be corrected. */
int zonal__estimate_within(zonal__estimate *estimate, const zonal__estimate_part *part,
                           zonal__estimated *out);
int zonal__estimate_step(zonal__estimate *estimate, int64_t step, double now,
                         zonal__estimated *out);

/* "40 s", "12 min", "3 h 20 min", "4 days 7 h". */
void zonal__estimate_words(double seconds, char out[40]);

#endif
