/*
 * The covariance of the rows, C = mean of y_i y_i^T, in double. The second moment mean x x^T is
 * C + m m^T, because the mean of y is 0.
 *
 * Products of float rows are added up over a few hundred rows in float and from there in double:
 * over any number of rows the error stays that of one such stretch.
 */
#ifndef ZONAL_BACKEND_CPU_SECOND_MOMENT_H
#define ZONAL_BACKEND_CPU_SECOND_MOMENT_H

#include "backend/cpu/rows.h"

typedef struct zonal__cpu_second_moment {
    zonal__cpu_rows *rows;
    int64_t panels, groups; /* of rows of C; of rows of the batch */
    double *sums;           /* [groups][dim][dim]: the upper half; the first one becomes C, whole */
    void *stretch;          /* REAL [threads][PANEL][dim] */
} zonal__cpu_second_moment;

zonal_status zonal__cpu_second_moment_init(zonal__cpu_rows *rows, zonal__cpu_second_moment *moment);
void zonal__cpu_second_moment_fini(zonal__cpu_second_moment *moment);
size_t zonal__cpu_second_moment_bytes(const zonal__cpu_second_moment *moment);

/* Sets *c to C [dim][dim] of all ranks' rows, for rows that have been prepared; it is valid until
 * the next call. Collective. */
zonal_status zonal__cpu_second_moment_run(zonal__cpu_second_moment *moment, double **c);

#endif
