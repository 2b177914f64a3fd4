/*
 * Which steps of a run are followed by something: a line of metrics, an evaluation, a checkpoint.
 * Each comes every so many steps, counted from the beginning of the run and not of the process, so
 * that a resumed run has them at the same steps; and all come after the last step.
 */
#ifndef ZONAL_TRAIN_CADENCE_H
#define ZONAL_TRAIN_CADENCE_H

#include <stdint.h>

typedef struct zonal__cadence {
    int64_t total;                                   /* steps of the whole run */
    int64_t log_every, eval_every, checkpoint_every; /* steps; 0: never */
} zonal__cadence;

/* To be combined by |. */
enum { ZONAL__DUE_LOG = 1, ZONAL__DUE_EVAL = 2, ZONAL__DUE_CHECKPOINT = 4 };

/* What is due once so many steps are done. */
int zonal__cadence_due(const zonal__cadence *cadence, int64_t step);

#endif
