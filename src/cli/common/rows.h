/*
 * Embedding files as the commands take them, and text for people.
 */
#ifndef ZONAL_CLI_COMMON_ROWS_H
#define ZONAL_CLI_COMMON_ROWS_H

#include "core/error.h"
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
} zonal__cli_rows;

/* Reads a whole .npy matrix, with a progress bar when it is large. rows->x is NULL on failure. */
zonal_status zonal__cli_load(const char *path, zonal__load_type type, int quiet,
                             zonal__cli_rows *rows);

/* Prints "lead" and text wrapped to 80 columns on stdout, ended by a newline. */
void zonal__cli_wrap(const char *lead, const char *text);

#endif
