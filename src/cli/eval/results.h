/*
 * What evaluations found, one result a row: as tables for people, as JSON, and what several runs or
 * seeds say together.
 *
 * A mean is taken over runs that differ in nothing but the seed they were trained with
 * (train/run_group.h); each counts once, with its mean over the seeds of the evaluation where there
 * are several of those. A single run has a mean over the seeds of the evaluation.
 */
#ifndef ZONAL_CLI_EVAL_RESULTS_H
#define ZONAL_CLI_EVAL_RESULTS_H

#include "cli/eval/subject.h"
#include "core/json.h"
#include "eval/scores.h"
#include "train/run_group.h"

enum {
    ZONAL__EVAL_NUMBERS = 8,
    ZONAL__EVAL_PARAMETERS = 4,
    ZONAL__EVAL_NAME = 256,
    ZONAL__EVAL_RUNS = 64,
    ZONAL__EVAL_SENTENCE = 768
};

typedef struct zonal__eval_number {
    const char *name;  /* "r1": its key in JSON */
    const char *title; /* "R@1": the head of its column; NULL: for JSON alone */
    double value;
    int percent; /* 1: a share, shown times 100 */
    int single;  /* 1: a p-value, of which a mean says nothing */
} zonal__eval_number;

/* What was evaluated: a run, or a file of weights. */
typedef struct zonal__eval_run {
    char name[ZONAL__TRAINING_PATH]; /* as it was given */
    int is_run;
    zonal__run_settings settings; /* of a run, as it was trained */
    char *images;                 /* its data.txt; NULL: it has none */
    char method[32];              /* of a run; empty for a file */
    char weights[ZONAL__TRAINING_PATH];
    int64_t step;          /* of the weights; -1: they do not say */
    const char *step_name; /* "last", "best" or the file that was asked for */
    char data[ZONAL__TRAINING_PATH];
    int own_data;                         /* 1: what the run was trained on */
    char changes[ZONAL__SUBJECT_CHANGES]; /* overrides of its settings (cli/eval/subject.h); "" */
    const char *part;
    char view[ZONAL__PREPROCESSING_SENTENCE];  /* of an image as it is */
    char drawn[ZONAL__PREPROCESSING_SENTENCE]; /* of random views of it */
    const char *precision;
    zonal__run_place place;              /* once all runs are there */
    char not_kept[ZONAL__EVAL_SENTENCE]; /* why its results could not be stored; "" */
} zonal__eval_run;

typedef struct zonal__eval_result {
    int run;
    const char *protocol; /* "knn", "linear", "lightly-knn", "solo-linear", "retrieval", ... */
    const char *features; /* "backbone", "projector" */
    int drawn;            /* 1: measured on random views */
    int variant;          /* of the protocol, where several k and T were asked for */
    int64_t seed;         /* of the evaluation; -1: it plays no part */
    int64_t train, test;  /* images; train 0: none are needed */
    int64_t limit;        /* of the images of a part, where it left some out; 0: all were taken */
    int parameters;
    zonal__eval_number parameter[ZONAL__EVAL_PARAMETERS]; /* k, T, l2 ... */
    char how[160];   /* what else the protocol was run with: "l2 of 1e-6, 1e-5, standardised" */
    char common[48]; /* said once, above the rows: "2 views, 199 candidates"; may be empty */
    int numbers;
    zonal__eval_number number[ZONAL__EVAL_NUMBERS];
    char verdict[160]; /* a sentence about it, without the run's name; "" */
    int degrees;       /* of which the energy is known; 0: none */
    zonal_uniformity_degree degree[ZONAL_UNIFORMITY_DEGREES];
    zonal__scores scores; /* of a classification, owned by the list; zeroed: it is none */
    char (*class_names)[ZONAL__EVAL_NAME]; /* [scores.classes], likewise; NULL: numbers only */
} zonal__eval_result;

/* Zero-initialise. */
typedef struct zonal__eval_results {
    zonal__eval_run *runs; /* [ZONAL__EVAL_RUNS] */
    int run_count;
    zonal__eval_result *at;
    int64_t count, room;
    int64_t stored; /* of them, the first so many, in the folders of their runs */
    double *values; /* [room]: scratch */
} zonal__eval_results;

/* Adds what the next results are of. "checkpoint" is what was asked for, and must outlive the list.
 */
zonal_status zonal__eval_results_add_run(zonal__eval_results *results,
                                         const zonal__subject *subject, const char *checkpoint,
                                         zonal__split part);

/* Adds a result. Its scores and class names become the list's, also on failure. */
zonal_status zonal__eval_results_add(zonal__eval_results *results, zonal__eval_result *result);
void zonal__eval_results_fini(zonal__eval_results *results);

/* To be called when all runs are there and before anything below: which runs belong together. */
void zonal__eval_results_group(zonal__eval_results *results);

/* What run i is grouped by. */
zonal__run_sample zonal__eval_results_sample(const zonal__eval_results *results, int i);

/* Whether two results are of the same thing but for seeds: their mean may be taken. */
int zonal__eval_results_alike(const zonal__eval_results *results, const zonal__eval_result *a,
                              const zonal__eval_result *b);

typedef struct zonal__eval_mean {
    int64_t count; /* of runs or of seeds */
    int over_runs; /* 0: over seeds of the evaluation */
    double mean[ZONAL__EVAL_NUMBERS], std[ZONAL__EVAL_NUMBERS]; /* of the sample */
} zonal__eval_mean;

/* The mean of result i and all that are alike; 0 where there is none to be taken, or an earlier
 * result is alike too. */
int zonal__eval_results_mean(const zonal__eval_results *results, int64_t i, zonal__eval_mean *mean);

/* Tables of at most 80 columns on stdout, a block for each protocol and number of images, so that
 * no table mixes results of whole parts with others. Means follow the rows that they are of.
 * "detail": accuracy by class and the confusion matrix of each classification. */
void zonal__eval_results_print(const zonal__eval_results *results, int detail);

/* All results and means as members "results" and "means" of the open JSON object. */
void zonal__eval_results_json(zonal__json *json, const zonal__eval_results *results, int detail);

/* One result as a JSON object. "conditions" says in words all that it depends on but the weights'
 * values: results with the same conditions are comparable. */
void zonal__eval_result_json(zonal__json *json, const zonal__eval_results *results,
                             const zonal__eval_result *result, int detail);
enum { ZONAL__EVAL_CONDITIONS = ZONAL__TRAINING_PATH + ZONAL__SUBJECT_CHANGES + 1024 };
void zonal__eval_result_conditions(const zonal__eval_results *results,
                                   const zonal__eval_result *result,
                                   char out[ZONAL__EVAL_CONDITIONS]);

/* Member "energy" of the open JSON object, as zonal test --json writes it: a run's energy by
 * degree, of the projections if they were looked at. Nothing where no diagnostics are among the
 * results.
 */
void zonal__eval_results_energy(zonal__json *json, const zonal__eval_results *results, int run);

#endif
