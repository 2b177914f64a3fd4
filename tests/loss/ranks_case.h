/*
 * A loss or an objective computed by ranks in threads, each with its part of the rows.
 */
#ifndef ZONAL_TESTS_RANKS_CASE_H
#define ZONAL_TESTS_RANKS_CASE_H

#include <stdlib.h>

#include "batches.h"
#include "core/error.h"
#include "thread_ranks.h"
#include "zonal/loss.h"

typedef struct ranks_case {
    zonal_objective_options options; /* of a plan the loss alone is used */
    int64_t views, globals;          /* 0: a plan */
    int ranks;
    int64_t rows[THREAD_RANKS], dim;
    int without[THREAD_RANKS]; /* 1: this rank does not ask for a gradient */
    const double *x;           /* [views][batch][dim] */
    int near;                  /* 1: near collapse */
    int64_t bad;               /* a row of the batch that is NaN; -1: none */
    /* What they found. */
    double *gradient; /* [views][batch][dim], or NULL */
    double value[THREAD_RANKS];
    zonal_plan_info info[THREAD_RANKS];
    zonal_status status[THREAD_RANKS];
    char message[THREAD_RANKS][800];
} ranks_case;

static inline int64_t batch_of(const ranks_case *c) {
    int64_t sum = 0;
    for (int r = 0; r < c->ranks; r++) sum += c->rows[r];
    return sum;
}

static inline size_t element_size(const ranks_case *c) {
    return c->options.loss.precision == ZONAL_PRECISION_FP32 ? sizeof(float) : sizeof(double);
}

/* Copies this rank's rows of all views between the whole array, of doubles, and its own. */
static inline void copy_rows(const ranks_case *c, int rank, double *whole, void *own, int out) {
    int64_t views = c->views ? c->views : 1, batch = batch_of(c), first = 0;
    for (int r = 0; r < rank; r++) first += c->rows[r];
    for (int64_t v = 0; v < views; v++)
        for (int64_t i = 0; i < c->rows[rank] * c->dim; i++) {
            double *there = whole + (v * batch + first) * c->dim + i;
            int64_t here = v * c->rows[rank] * c->dim + i;
            int is_bad = c->bad >= 0 && first + i / c->dim == c->bad;
            if (out)
                *there =
                    element_size(c) == 4 ? (double)((float *)own)[here] : ((double *)own)[here];
            else if (element_size(c) == 4)
                ((float *)own)[here] = is_bad ? NAN : (float)*there;
            else
                ((double *)own)[here] = is_bad ? NAN : *there;
        }
}

static inline zonal_status execute(ranks_case *c, int rank, const zonal_communicator *communicator,
                                   const void *x, void *gradient) {
    zonal_objective_options options = c->options;
    zonal_objective_parts parts = {.total = NAN};
    zonal_objective *objective = NULL;
    zonal_plan *plan = NULL;
    zonal_status status;
    options.loss.communicator = communicator;
    c->info[rank].size = sizeof c->info[rank];
    if (c->views) {
        status = zonal_objective_create(&options, c->views, c->globals, c->rows[rank], c->dim,
                                        &objective);
        if (status == ZONAL_OK) status = zonal_objective_execute(objective, x, &parts, gradient);
        c->value[rank] = parts.total;
    } else {
        status = zonal_plan_create(&options.loss, c->rows[rank], c->dim, &plan);
        if (status == ZONAL_OK) status = zonal_plan_info_get(plan, &c->info[rank]);
        if (status == ZONAL_OK) status = zonal_plan_execute(plan, x, &c->value[rank], gradient);
        if (status == ZONAL_OK) status = zonal_plan_status(plan);
    }
    zonal_plan_destroy(plan);
    zonal_objective_destroy(objective);
    return status;
}

static inline void run_rank(const zonal_communicator *communicator, void *context) {
    ranks_case *c = context;
    int rank = communicator->rank;
    size_t count = (size_t)((c->views ? c->views : 1) * c->rows[rank] * c->dim);
    void *x = malloc(count * sizeof(double) + 1), *gradient = malloc(count * sizeof(double) + 1);
    int wanted = c->gradient && !c->without[rank];
    copy_rows(c, rank, (double *)(uintptr_t)c->x, x, 0);
    memset(gradient, 0xff, count * element_size(c)); /* NaN: it is written, not added to */
    c->value[rank] = NAN;
    c->status[rank] =
        execute(c, rank, communicator, count ? x : NULL, wanted && count ? gradient : NULL);
    snprintf(c->message[rank], sizeof c->message[rank], "%s",
             c->status[rank] == ZONAL_OK ? "" : zonal_last_error()->message);
    if (wanted) copy_rows(c, rank, c->gradient, gradient, 1);
    free(x);
    free(gradient);
}

/* Runs it; 1 when all ranks were successful. */
static inline int run_ranks(ranks_case *c) {
    int good = CHECK_OK(thread_ranks_run(c->ranks, run_rank, c));
    for (int r = 0; r < c->ranks; r++)
        good &= CHECK_MSG(c->status[r] == ZONAL_OK, "rank %d: %s", r, c->message[r]);
    return good;
}

/* The same on one rank that has all rows, and no communicator. */
static inline ranks_case run_alone(const ranks_case *c, double *gradient) {
    ranks_case alone = *c;
    alone.ranks = 1;
    alone.rows[0] = batch_of(c);
    alone.without[0] = 0;
    alone.gradient = gradient;
    size_t count = (size_t)((c->views ? c->views : 1) * alone.rows[0] * c->dim);
    void *x = malloc(count * sizeof(double)), *own = malloc(count * sizeof(double));
    copy_rows(&alone, 0, (double *)(uintptr_t)c->x, x, 0);
    memset(own, 0xff, count * element_size(c));
    alone.status[0] = execute(&alone, 0, NULL, x, gradient ? own : NULL);
    if (gradient) copy_rows(&alone, 0, gradient, own, 1);
    free(x);
    free(own);
    return alone;
}

#endif
