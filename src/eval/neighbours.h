/*
 * Classification by the k nearest training samples, weighted: class c gets the votes
 *
 *     sum over the k nearest rows i of the training set with label c of exp(cos_i / T)
 *
 * and the class with the most votes is predicted, of equal ones the lower. All k and T are tried in
 * one pass, on the k_max nearest of each sample; the search is exact
 * (backend/training/neighbours.h) and never holds an array of training x test.
 */
#ifndef ZONAL_EVAL_NEIGHBOURS_H
#define ZONAL_EVAL_NEIGHBOURS_H

#include "backend/device.h"
#include "eval/scores.h"

typedef struct zonal__knn_options {
    int64_t dim;
    int classes;                 /* one without training samples is never predicted */
    int ks;                      /* 0: one, k = 20 */
    const int *k;                /* [ks], 1 to 256 and at most the training samples there are */
    int temperatures;            /* 0: one, T = .07 */
    const double *temperature;   /* [temperatures] */
    const zonal__device *device; /* NULL: the CPU */
    int threads;                 /* 0: all there are */
    zonal__eval_progress progress;
} zonal__knn_options;

/* scores [ks][temperatures]: each is initialised here and belongs to the caller, who releases it
 * with zonal__scores_fini; on failure all are zeroed. test NULL: leave one out, every training
 * sample is classified by the others. */
zonal_status zonal__knn_run(const zonal__knn_options *options, const zonal__labelled *train,
                            const zonal__labelled *test, zonal__scores *scores);

#endif
