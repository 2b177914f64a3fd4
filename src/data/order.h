/*
 * Which images a step takes: a pure function of (seed, step), so that a resumed run, or any rank
 * of many, knows it without having seen the steps before.
 *
 * An epoch goes through a source once in a shuffled order; what does not fill a batch is left out.
 * Or, in_order, everything is visited as it comes, and the last batch of an epoch is smaller.
 */
#ifndef ZONAL_DATA_ORDER_H
#define ZONAL_DATA_ORDER_H

#include <stdint.h>

#include "core/error.h"

/* order [n] = 0 ... n-1, shuffled (Fisher-Yates) by (seed, epoch). */
void zonal__order_shuffle(uint64_t seed, uint32_t epoch, int64_t n, int64_t *order);

typedef struct zonal__steps {
    int64_t count, batch; /* images in all; in a step */
    uint64_t seed;
    int in_order;
    int64_t per_epoch;   /* steps */
    int64_t *order;      /* [count]; NULL: in order */
    int64_t order_epoch; /* whose order that is; -1: none */
} zonal__steps;

/* 1 <= batch <= count. */
zonal_status zonal__steps_init(int64_t count, int64_t batch, uint64_t seed, int in_order,
                               zonal__steps *steps);
void zonal__steps_fini(zonal__steps *steps);

/* The samples of a step; returns how many they are. Quickest when steps come in order. */
int64_t zonal__steps_samples(zonal__steps *steps, int64_t step, int64_t *epoch, int64_t *samples);

#endif
