/*
 * What evaluations share: features with labels, and a way to say how far they are.
 */
#ifndef ZONAL_EVAL_LABELLED_H
#define ZONAL_EVAL_LABELLED_H

#include <stdint.h>

#include "core/error.h"

/* Features, a row for each sample, with the number of its class. They come from two places (a
 * network, a source), so each brings its own count, and the counts are compared. */
typedef struct zonal__labelled {
    int64_t count;
    const float *x; /* [count][dim] */
    int64_t label_count;
    const int32_t *labels; /* [label_count] */
} zonal__labelled;

/* ZONAL_SHAPE for no rows or another number of labels; ZONAL_ARGUMENT for fewer than 2 classes or a
 * label that is none of them; ZONAL_NUMERIC for a row that is not finite. "name" ("the training
 * set") and the row's number are in the sentence. */
zonal_status zonal__labelled_check(const zonal__labelled *set, int64_t dim, int classes,
                                   const char *name);

/* Called with the share done, 0 to 1; a non-zero return stops the work with ZONAL_CANCELLED.
 * Zeroed: nobody is told. */
typedef struct zonal__eval_progress {
    int (*report)(void *context, double share);
    void *context;
} zonal__eval_progress;

zonal_status zonal__eval_report(const zonal__eval_progress *progress, double share);

#endif
