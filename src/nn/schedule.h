/*
 * Learning rates over a run: a linear warm-up, then a constant, a straight line or half a cosine
 * down to a floor. A pure function of the step, so a resumed run has nothing to restore.
 *
 * Steps are counted from 0; W = warmup, T = total:
 *
 *   s < W       base (s + 1)/(W + 1): the first step has base/(W + 1), not 0, which would waste it
 *   W <= s < T  with u = (s - W)/(T - W):
 *               CONSTANT  base
 *               LINEAR    base + (floor - base) u
 *               COSINE    floor + (base - floor) (1 + cos(pi u))/2
 *   T <= s      CONSTANT: base, else floor
 *
 * So step W is the first at base, and the last step, T - 1, lies one step before the floor, again
 * because a step with a rate of 0 would be wasted (PyTorch's CosineAnnealingLR ends the same way).
 */
#ifndef ZONAL_NN_SCHEDULE_H
#define ZONAL_NN_SCHEDULE_H

#include <stdint.h>

#include "core/error.h"

typedef enum zonal__schedule_kind {
    ZONAL__SCHEDULE_CONSTANT = 0,
    ZONAL__SCHEDULE_LINEAR = 1,
    ZONAL__SCHEDULE_COSINE = 2
} zonal__schedule_kind;

typedef struct zonal__schedule {
    zonal__schedule_kind kind;
    int64_t total, warmup; /* steps; the warm-up is part of the total */
    double base, floor;    /* learning rates */
} zonal__schedule;

/* ZONAL_ARGUMENT unless total >= 1, 0 <= warmup <= total and 0 <= floor <= base, finite. */
zonal_status zonal__schedule_check(const zonal__schedule *schedule);

/* The learning rate of a step (at least 0) by a schedule that has been checked. */
double zonal__schedule_rate(const zonal__schedule *schedule, int64_t step);

#endif
