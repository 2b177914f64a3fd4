/*
 * Evaluation while a network trains: a small one, on a part of the images that it does not learn
 * from, with a number that says which checkpoint is the best. The network is not changed.
 */
#ifndef ZONAL_TRAIN_ONLINE_H
#define ZONAL_TRAIN_ONLINE_H

#include "backend/device.h"
#include "dist/job.h"
#include "eval/features.h"

typedef enum zonal__online_protocol {
    ZONAL__ONLINE_NONE = 0,
    ZONAL__ONLINE_RETRIEVAL = 1, /* does a projection find the other view of its image? */
    ZONAL__ONLINE_KNN = 2        /* do the nearest features have the same class? */
} zonal__online_protocol;

typedef struct zonal__online_options {
    zonal__online_protocol protocol;
    zonal__source *queries, *memory;          /* memory: k-NN's labelled images to compare with */
    const zonal__augmentation *augmentations; /* retrieval: of both views; k-NN: of the one */
    int side;                                 /* of the views */
    int max_side;                             /* of the images, as in zonal__loader_options */
    float mean[3], std[3];
    uint64_t seed; /* of the views' draws: the same in every evaluation */
    int k;         /* k-NN; at most the memory's count */
    double temperature;
    const float
        *probe; /* k-NN; NULL: none. Weight [classes][dim], bias [classes]: what is tested too */
    const zonal__device *device; /* NULL: the CPU */
    zonal__job *job;             /* the ranks that share the work; NULL: one */
    int threads;
} zonal__online_options;

enum { ZONAL__ONLINE_GROUP = 100 }; /* images among which retrieval looks: the paper's */

typedef struct zonal__online_result {
    zonal__online_protocol protocol;
    double r1, r3, r5, map; /* retrieval */
    double accuracy;        /* k-NN */
    double probe_accuracy;  /* of the online probe on k-NN's queries; NaN: there is none */
} zonal__online_result;

/* What all evaluations with the same options and model use. Zero-initialise; release before the
 * model. */
typedef struct zonal__online_work {
    zonal__features *queries, *memory;
} zonal__online_work;

/* Before the first evaluation. On a device this chooses algorithms, so it belongs to what a run
 * does before it writes down which it uses. Each rank can fail alone. */
zonal_status zonal__online_prepare(const zonal__online_options *options, zonal__model *model,
                                   zonal__online_work *work);
void zonal__online_fini(zonal__online_work *work);

/* Collective. The result is rank 0's; elsewhere it has the protocol alone. */
zonal_status zonal__online_run(const zonal__online_options *options, const zonal__model *model,
                               const zonal__online_work *work, zonal__online_result *result);

/* The number that is best when it is highest: R@1 or the accuracy. */
double zonal__online_score(const zonal__online_result *result);

#endif
