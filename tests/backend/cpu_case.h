/*
 * What the tests of the CPU backend share: rows to run on, one call of an operation, and the
 * comparison that loss.h promises.
 */
#ifndef ZONAL_TESTS_CPU_CASE_H
#define ZONAL_TESTS_CPU_CASE_H

#include <stdint.h>

#include "backend/backend.h"

/* Zeroed memory; ends the program when there is none. */
void *case_take(int64_t count, size_t size);

/* n rows around a common direction: spread 0 is collapse, HUGE_VAL is uniform. Lengths vary. */
double *case_rows(int64_t n, int64_t d, double spread, uint64_t sample);

/* x in the given precision, and x itself rounded to it: what the oracle must see. */
void *case_round(zonal_precision precision, int64_t count, double *x);
double case_element(zonal_precision precision, const void *x, int64_t i);

/* The numbers in a problem's x. */
int64_t case_count(const zonal__problem *problem);

/* Makes the work, runs it once and gives the gradient, unless NULL, as doubles. */
zonal_status case_run(zonal__operation operation, const zonal__problem *problem, const double *x,
                      uint32_t step, double factor, double *value, double *gradient);

/* The value to 1e-12 (double) or 2e-6 (fp32) of "scale", gradients to 1e-11 or 1e-5 of their norm.
 * gradient may be NULL. */
void case_compare(const zonal__problem *problem, const char *what, double got, double want,
                  double scale, const double *gradient, const double *want_gradient);

/* Shapes that fill tiles, panels and vectors partly, exactly and more than once. */
enum { CASE_SHAPES = 10 };
zonal__problem case_shape(int i, zonal_precision precision);
extern const zonal_precision case_precisions[2];

#endif
