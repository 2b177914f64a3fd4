/*
 * Retrieval: does an embedding find the other views of its sample among those of others?
 *
 * x [views][samples][dim]. Every row is a query; the candidates are all other rows of its group of
 * "batch" consecutive samples (the paper: 100 samples x 2 views, 199 candidates), ranked by cosine.
 * The views - 1 other views of its sample are right, all else is wrong. With a_j the number of
 * wrong candidates ahead of the j-th best right one (j = 1 ...):
 *
 *     R@k   the share of queries with a_1 < k: a right one is among the first k
 *     mAP   mean over queries and j of j/(j + a_j): average precision; for two views the mean
 *           reciprocal rank
 *
 * A wrong candidate is ahead unless its cosine is smaller by more than rounding could make it
 * (ZONAL__COSINE_ROUNDING): ties count against the embedding, so a collapsed one scores nothing
 * instead of what chance gives.
 */
#ifndef ZONAL_EVAL_RETRIEVAL_H
#define ZONAL_EVAL_RETRIEVAL_H

#include "backend/device.h"
#include "eval/labelled.h"
#include "zonal/loss.h"

typedef struct zonal__retrieval_options {
    int64_t views, samples, dim; /* views >= 2 */
    /* Samples of a group; those left over at the end take no part. 0: all samples are one group. */
    int64_t batch;
    const zonal__device *device; /* NULL: the CPU */
    int threads;                 /* 0: all there are */
    zonal__eval_progress progress;
} zonal__retrieval_options;

typedef struct zonal__retrieval {
    int64_t queries;    /* that took part */
    int64_t candidates; /* of each */
    double r1, r3, r5, map;
} zonal__retrieval;

/* A zero row or one that is not finite is ZONAL_NUMERIC, with its view and sample in the sentence.
 * On failure the result is zeroed. */
zonal_status zonal__retrieval_run(const zonal__retrieval_options *options, const float *x,
                                  zonal__retrieval *result);

typedef struct zonal__retrieval_hit {
    int64_t view, sample;
    double cosine;
} zonal__retrieval_hit;

/* The first "count" (at most 256) candidates of one query, the best first; it is right when its
 * sample is the query's. ZONAL_ARGUMENT for a query that is not there or is left over, or more hits
 * than candidates. */
zonal_status zonal__retrieval_top(const zonal__retrieval_options *options, const float *x,
                                  int64_t view, int64_t sample, int count,
                                  zonal__retrieval_hit *hits);

#endif
