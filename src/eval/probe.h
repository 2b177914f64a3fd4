/*
 * Linear probes: how well a linear classifier does on frozen features.
 *
 * zonal__probe_fit is multinomial logistic regression, to its optimum:
 *
 *     minimise  mean over samples of the cross-entropy (backend/training/softmax.h) + l2/2 |W|^2
 *
 * W without the biases, by L-BFGS until no element of the gradient is larger than the tolerance.
 * (scikit-learn's LogisticRegression minimises 1/l2 times this, with C = 1/(n l2) for n samples.)
 *
 * With several l2 a stratified, seeded part of the training set is held out; the l2 with the best
 * accuracy there (of equal ones the largest) is fitted again to the whole. Accuracies settle long
 * before the last digits of a fit, so the fits of the choice end at 100 times the tolerance, and
 * each begins where the one before ended. With "standardise" the fits see features with mean 0 and
 * variance 1 over the training set (constant ones as 0); the probe's parameters are those for the
 * features as they come all the same.
 *
 * zonal__probe_sgd is the same classifier trained step by step on batches as they come, for
 * features that change from epoch to epoch (augmentation): SGD with momentum and weight decay (not
 * on the biases), the rate falling as half a cosine or in two steps.
 */
#ifndef ZONAL_EVAL_PROBE_H
#define ZONAL_EVAL_PROBE_H

#include "eval/scores.h"

typedef struct zonal__probe_options {
    int64_t dim;
    int classes;
    int standardise;
    int l2_count;     /* 0: 1e-1, 1e-2, ... 1e-6 */
    const double *l2; /* [l2_count], not negative */
    double held_out;  /* share of the training set; 0: .1 */
    uint64_t seed;
    double tolerance; /* 0: 1e-6 */
    int iterations;   /* of one fit at most; 0: 1000 */
    int threads;      /* 0: all there are */
    zonal__eval_progress progress;
} zonal__probe_options;

typedef struct zonal__probe {
    int64_t dim;
    int classes, threads;
    double *parameters; /* [classes][dim + 1]: weights and bias (backend/training/softmax.h) */
    double l2;
    double held_out_accuracy; /* of that l2; NaN where there was no choice */
    double loss;              /* the objective at the end, l2 term included */
    double gradient;          /* its largest element there */
    int iterations;
    int converged; /* 0: stopped by the number of iterations, or where rounding left no descent */
} zonal__probe;

/* Refuses what zonal__labelled_check does and a class without samples (ZONAL_ARGUMENT): its bias
 * would have no optimum. On failure the probe is zeroed. Release with zonal__probe_fini. */
zonal_status zonal__probe_fit(const zonal__probe_options *options, const zonal__labelled *train,
                              zonal__probe *probe);
void zonal__probe_fini(zonal__probe *probe); /* accepts zeroed memory */

/* Classifies a set; "scores" is initialised here and released by the caller. */
zonal_status zonal__probe_test(const zonal__probe *probe, const zonal__labelled *test,
                               zonal__scores *scores);

typedef struct zonal__probe_sgd_options {
    int64_t dim;
    int classes;
    int64_t steps;       /* of the whole run */
    int steps_down;      /* 0: the rate falls as half a cosine; 1: it is a tenth after 60 % of the
                          * steps and a hundredth after 80 % */
    double rate;         /* 0: .1 */
    double momentum;     /* 0: .9 */
    double weight_decay; /* 0: none */
    int threads;
} zonal__probe_sgd_options;

typedef struct zonal__probe_sgd zonal__probe_sgd;

zonal_status zonal__probe_sgd_create(const zonal__probe_sgd_options *options,
                                     zonal__probe_sgd **sgd);
void zonal__probe_sgd_destroy(zonal__probe_sgd *sgd); /* accepts NULL */
/* One step on a batch, whose cross-entropy before the step is *loss. ZONAL_NUMERIC, and nothing is
 * changed, where that is not finite. */
zonal_status zonal__probe_sgd_step(zonal__probe_sgd *sgd, const zonal__labelled *batch,
                                   double *loss);
/* The classifier as it is now, a copy: test it with zonal__probe_test. */
zonal_status zonal__probe_sgd_probe(const zonal__probe_sgd *sgd, zonal__probe *probe);

#endif
