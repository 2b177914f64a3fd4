/*
 * How good a classification is: accuracy, top 5, accuracy by class and the confusion matrix; what
 * several runs say together; and the diagnostics of embeddings.
 */
#ifndef ZONAL_EVAL_SCORES_H
#define ZONAL_EVAL_SCORES_H

#include "eval/labelled.h"
#include "zonal/uniformity.h"

/* Counts over the samples added so far. The classes of a sample are ranked by score, of equal
 * scores the lower class first; the first is the prediction. */
typedef struct zonal__scores {
    int classes;
    int64_t count;
    int64_t top1, top5; /* samples whose class is the first, among the first five */
    int64_t *confusion; /* [classes][classes]: samples of class [row] predicted as [column] */
} zonal__scores;

zonal_status zonal__scores_init(int classes, zonal__scores *scores);
void zonal__scores_fini(zonal__scores *scores); /* accepts zeroed memory */

/* One sample: its class and the scores [classes] of all. ZONAL_NUMERIC for a score that is NaN, and
 * the sample is not counted. */
zonal_status zonal__scores_add(zonal__scores *scores, int32_t label, const double *score);

/* Shares of all samples, or of those of class c; NaN where there are none. */
double zonal__scores_accuracy(const zonal__scores *scores);
double zonal__scores_top5(const zonal__scores *scores);
double zonal__scores_class_accuracy(const zonal__scores *scores, int c);

/* The mean of n numbers and their sample standard deviation (divided by n - 1; NaN for n = 1). */
void zonal__scores_spread(int64_t n, const double *value, double *mean, double *std);

/* Diagnostics of embeddings x [n][d], rows of any length. "other" [n][d] are the embeddings of a
 * second view of the same samples, or NULL. */
typedef struct zonal__diagnostics {
    double alignment;  /* mean |x_i - other_i|^2 of unit rows; NaN without a second view */
    double uniformity; /* log of the mean over i != j of exp(-2 |x_i - x_j|^2); NaN if skipped */
    zonal_uniformity_report report; /* RankMe (effective_rank), degrees, p-values: zonal test */
} zonal__diagnostics;

/* options: as for zonal_uniformity_run; the precision is always fp32. Beyond pair_limit rows what
 * needs all pairs is skipped. (Wang and Isola, "Understanding contrastive representation learning
 * through alignment and uniformity on the hypersphere", 2020, with their alpha = 2 and t = 2.) */
zonal_status zonal__diagnostics_run(const zonal_uniformity_options *options, int64_t n, int64_t d,
                                    const float *x, const float *other,
                                    zonal__diagnostics *diagnostics);

#endif
