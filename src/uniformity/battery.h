/*
 * The battery of tests for one shape: kernels, their psi and null distributions, and the survey
 * that computes all statistics of a batch in one pass over its pairs.
 */
#ifndef ZONAL_UNIFORMITY_BATTERY_H
#define ZONAL_UNIFORMITY_BATTERY_H

#include "loss/profile.h"
#include "uniformity/null_distribution.h"
#include "uniformity/survey.h"
#include "zonal/uniformity.h"

enum {
    ZONAL__BATTERY_KERNELS = ZONAL_UNIFORMITY_TESTS - 2,   /* beside Rayleigh's and Bingham's */
    ZONAL__BATTERY_DEGREES = ZONAL_UNIFORMITY_DEGREES - 2, /* by pairs: 3 and up */
    ZONAL__BATTERY_PSI = ZONAL__BATTERY_KERNELS + ZONAL__BATTERY_DEGREES
};

typedef struct zonal__battery_test {
    const char *name;
    zonal__null_distribution null;
    int narrow;             /* heat below .7 log(d)/d: the null distribution's tail does not hold */
    zonal_kernel *kernel;   /* NULL for degrees 1 and 2 */
    zonal__profile profile; /* likewise */
} zonal__battery_test;

typedef struct zonal__degree {
    int l;
    int64_t d;
    zonal__fit *fit;
} zonal__degree;

typedef struct zonal__battery {
    zonal__problem problem;
    int tests; /* 2, or more with pairs */
    zonal__battery_test test[ZONAL_UNIFORMITY_TESTS];
    zonal__degree degree[ZONAL__BATTERY_DEGREES];
    zonal__pair_function psi[ZONAL__BATTERY_PSI]; /* the kernels', then degrees 3 to 6 */
    zonal__survey survey;
} zonal__battery;

/* problem: rows, dim, precision, unit_rows, threads. t > 0 adds a heat kernel of that time. The
 * battery must not move afterwards. Undo with zonal__battery_fini, also after failure. */
zonal_status zonal__battery_init(const zonal__problem *problem, int pairs, double t,
                                 zonal__battery *battery);
void zonal__battery_fini(zonal__battery *battery);

/* statistic[0 .. tests-1] of x; the survey keeps the rest. */
zonal_status zonal__battery_run(zonal__battery *battery, const void *x, double *statistic);

/* The excess of degree 3 to 6 of the batch last run. */
double zonal__battery_degree(const zonal__battery *battery, int l);

#endif
