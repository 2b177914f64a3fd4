/*
 * Embedding files as the commands take them, plans run on their rows, and text for people.
 */
#ifndef ZONAL_CLI_COMMON_ROWS_H
#define ZONAL_CLI_COMMON_ROWS_H

#include "backend/device.h"
#include "zonal/loss.h"

typedef enum zonal__load_type {
    ZONAL__LOAD_AS_STORED, /* float64 as double, everything else as float */
    ZONAL__LOAD_DOUBLE,
    ZONAL__LOAD_FLOAT
} zonal__load_type;

typedef struct zonal__cli_rows {
    int64_t n, d;
    zonal_precision precision; /* ZONAL_PRECISION_DOUBLE or ZONAL_PRECISION_FP32 */
    void *x;                   /* [n][d]; release with zonal__free */
    int64_t all;               /* rows of the file, of which n, perhaps none, are this rank's */
} zonal__cli_rows;

/* Reads a whole .npy matrix, with a progress bar when it is large. rows->x is NULL on failure. */
zonal_status zonal__cli_load(const char *path, zonal__load_type type, int quiet,
                             zonal__cli_rows *rows);

/* The same, but only the rows that are rank's of so many ranks (zonal__job_share) are read. */
zonal_status zonal__cli_load_share(const char *path, zonal__load_type type, int quiet, int rank,
                                   int ranks, zonal__cli_rows *rows);

/* Puts the file's name before a sentence about its shape or its rows; returns the status. */
zonal_status zonal__cli_name_file(zonal_status status, const char *path);

/* Rows "first" to first + n of a batch of normal ones, which losses normalise as in training:
 * double or float, released with zonal__free. */
zonal_status zonal__cli_draw(int64_t first, int64_t n, int64_t d, zonal_precision precision,
                             void **out);

/* Plans run on rows that lie in host memory, whatever device the plan is for. */

/* Executes the plan: the rows are copied to its device and the results back. gradient may be NULL.
 */
zonal_status zonal__cli_execute(zonal_plan *plan, const zonal__device *device,
                                const zonal__cli_rows *rows, double *value, void *gradient);

/* The median time of one execution on a device other than the host, with gradient, in a graph, in
 * microseconds; *runs receives the number of replays. rows hold floats. */
zonal_status zonal__cli_time_on(zonal_plan *plan, const zonal__device *device,
                                const zonal__cli_rows *rows, double *microseconds, int *runs);

/* Prints "lead" and text wrapped to 80 columns on stdout, ended by a newline. */
void zonal__cli_wrap(const char *lead, const char *text);

#endif
