/*
 * How long a run will take, said early. The first step is slow, because memory is touched and
 * kernels are chosen for the first time, and does not count; then thirty steps in eight seconds or
 * more are enough, and where steps are slower as many as end within twenty seconds. After two
 * minutes it is looked at once more, since a machine may have been busy with other things at first,
 * and corrected if it was off by more than a fifth.
 *
 *     all = steps left x (seconds of a step) + evaluations left x ... + checkpoints left x ...
 *
 * An evaluation that has not been seen yet is guessed from the images it looks at: a pass forward
 * is about a third of a step's work. Times are handed in, so that this file has no clock.
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
    /* The estimate's own. */
    double began, first_ended; /* seconds of the clock; first_ended 0: not yet */
    double aside;              /* seconds of evaluations and checkpoints since first_ended */
    double eval_seconds;       /* of the last one; 0: none yet */
    double said;               /* seconds; 0: nothing yet */
    int done;
} zonal__estimate;

typedef struct zonal__estimated {
    double seconds;           /* from the beginning to the end */
    double step, evaluations; /* seconds of one step, and of all evaluations */
} zonal__estimated;

void zonal__estimate_begin(zonal__estimate *estimate, double now);

/* So many seconds went into an evaluation, or a checkpoint. */
void zonal__estimate_evaluated(zonal__estimate *estimate, double seconds);
void zonal__estimate_saved(zonal__estimate *estimate, double seconds);

/* After each step, with the number of steps done: 1 when there is something to say, once or, where
 * it has to be corrected, twice. */
int zonal__estimate_step(zonal__estimate *estimate, int64_t step, double now,
                         zonal__estimated *out);

/* "40 s", "12 min", "3 h 20 min", "4 days 7 h". */
void zonal__estimate_words(double seconds, char out[40]);

#endif
