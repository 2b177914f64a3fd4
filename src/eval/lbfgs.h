/*
 * L-BFGS: a minimum of a smooth function of many variables, from its values and gradients (Liu and
 * Nocedal, "On the limited memory BFGS method for large scale optimization", 1989). Steps satisfy
 * the weak Wolfe conditions, found by doubling and halving (Lewis and Overton, "Nonsmooth
 * optimization via quasi-Newton methods", 2013), so the curvature of every pair kept is positive.
 */
#ifndef ZONAL_EVAL_LBFGS_H
#define ZONAL_EVAL_LBFGS_H

#include <stdint.h>

#include "core/error.h"

typedef struct zonal__lbfgs_problem {
    int64_t n;
    /* The value at x [n] and the gradient [n] there. */
    void (*evaluate)(void *context, const double *x, double *value, double *gradient);
    /* Called after every iteration with the gradient's largest element; what it returns, unless
     * ZONAL_OK, ends the search. */
    zonal_status (*report)(void *context, int iteration, double gradient);
    void *context;
    double tolerance; /* ends when no element of the gradient is larger */
    int iterations;   /* at most */
} zonal__lbfgs_problem;

typedef struct zonal__lbfgs_end {
    double value, gradient; /* the largest element */
    int iterations;
    int converged; /* 0: too few iterations, or no step along the direction went down */
} zonal__lbfgs_end;

/* Moves x [n] from where it starts to the minimum. ZONAL_NUMERIC where the value at the start is
 * not finite; on failure x is somewhere on the way. */
zonal_status zonal__lbfgs(const zonal__lbfgs_problem *problem, double *x, zonal__lbfgs_end *end);

#endif
