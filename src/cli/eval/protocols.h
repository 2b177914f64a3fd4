/*
 * The protocols of zonal eval: features of a subject's images, and what is measured on them.
 */
#ifndef ZONAL_CLI_EVAL_PROTOCOLS_H
#define ZONAL_CLI_EVAL_PROTOCOLS_H

#include "cli/eval/results.h"
#include "cli/eval/subject.h"

enum { ZONAL__PROTOCOL_LIST = 32 }; /* the most values of a sweep */

typedef struct zonal__protocol_options {
    int knn, linear, retrieval, diagnostics; /* which to run */
    int backbone, projector;                 /* on which features */
    int ks, k[ZONAL__PROTOCOL_LIST];
    int usual_k; /* nobody has asked for k: among fewer images it is their number */
    int temperatures;
    double temperature[ZONAL__PROTOCOL_LIST];
    int l2_count; /* 0: the probe's own */
    double l2[ZONAL__PROTOCOL_LIST];
    int standardise;
    int64_t sgd; /* the linear probe by SGD on augmented images, this many epochs; 0: by L-BFGS */
    double rate; /* of SGD */
    int solo;    /* SGD as solo-learn's: its crops and its schedule */
    const char *knn_name, *linear_name; /* what the results are called */
    zonal__split test;       /* the part that is classified, or whose views are looked for */
    int views;               /* retrieval, diagnostics */
    int64_t retrieval_batch; /* 0: among all images */
    int64_t seed, seeds;     /* the first, and how many */
    int quiet;
    /* Called whenever a protocol, or a seed of it, has been added to the results; NULL: nobody is
     * told. What it does with them is no failure of the protocol. */
    void (*found)(zonal__eval_results *results);
} zonal__protocol_options;

/* Runs the protocols on one subject and adds their results; on failure those found until then are
 * there. ZONAL_ARGUMENT where a protocol needs labels and the images have none, or more images than
 * there are. */
zonal_status zonal__protocols_run(zonal__subject *subject, const zonal__protocol_options *options,
                                  zonal__eval_results *results);

#endif
