/*
 * What evaluations found, one result a row: as a table for people, as JSON, and what several runs
 * or seeds say together.
 */
#ifndef ZONAL_CLI_EVAL_RESULTS_H
#define ZONAL_CLI_EVAL_RESULTS_H

#include "core/json.h"
#include "eval/scores.h"

enum { ZONAL__EVAL_NUMBERS = 4, ZONAL__EVAL_PARAMETERS = 3, ZONAL__EVAL_NAME = 256 };

typedef struct zonal__eval_number {
    const char *name;  /* "r1": its key in JSON */
    const char *title; /* "R@1": the head of its column; NULL: for JSON alone (parameters) */
    double value;
    int percent; /* 1: a share, shown times 100 */
} zonal__eval_number;

typedef struct zonal__eval_result {
    char subject[ZONAL__EVAL_NAME]; /* the run or file as it was named */
    char method[32];                /* the loss a run was trained with; empty for a file */
    const char *protocol;           /* "knn", "linear", "retrieval", "meters" */
    const char *features;           /* "backbone", "projector" */
    /* Which variant of the protocol (of several k and T): results of one variant, the same
     * features and the same method are averaged. */
    int variant;
    int64_t seed;        /* -1: it plays no part */
    int64_t train, test; /* pictures; train 0: none are needed */
    int parameters;
    zonal__eval_number parameter[ZONAL__EVAL_PARAMETERS]; /* k, T, l2 ... */
    char common[48]; /* said once, above the rows: "2 views, 199 candidates"; may be empty */
    int numbers;
    zonal__eval_number number[ZONAL__EVAL_NUMBERS];
    int degrees; /* of which the energy is known; 0: none */
    zonal_uniformity_degree degree[ZONAL_UNIFORMITY_DEGREES];
    zonal__scores scores; /* of a classification, owned by the list; zeroed: it is none */
    char (*class_names)[ZONAL__EVAL_NAME]; /* [scores.classes], likewise; NULL: numbers only */
} zonal__eval_result;

/* Zero-initialise. */
typedef struct zonal__eval_results {
    zonal__eval_result *at;
    int64_t count, room;
    double *values; /* [room]: scratch */
} zonal__eval_results;

/* Adds a result. Its scores and class names become the list's, also on failure. */
zonal_status zonal__eval_results_add(zonal__eval_results *results, zonal__eval_result *result);
void zonal__eval_results_fini(zonal__eval_results *results);

/* A table for each protocol, at most 80 columns, on stdout; rows that differ in run or seed alone,
 * not in method, are followed by their mean and sample standard deviation. "detail": accuracy by
 * class and the confusion matrix of each classification. */
void zonal__eval_results_print(const zonal__eval_results *results, int detail);

/* The results with this protocol and subject (NULL: all) as member "results" of the open JSON
 * object; with neither given also "means", those over the runs of a method
 * and over seeds. */
void zonal__eval_results_json(zonal__json *json, const zonal__eval_results *results,
                              const char *protocol, const char *subject, int detail);

/* Member "energy" of the open JSON object: a run's energy by degree, of the projections if they
 * were looked at. Nothing where no meters are among the results. */
void zonal__eval_results_energy(zonal__json *json, const zonal__eval_results *results,
                                const char *subject);

#endif
