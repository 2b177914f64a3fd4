/*
 * zonal reproduce table-...: runs the cells that have no record, and prints the tables.
 */
#ifndef ZONAL_CLI_REPORT_REPRODUCE_TABLE_H
#define ZONAL_CLI_REPORT_REPRODUCE_TABLE_H

#include <stdint.h>

#include "reproduce/experiment.h"

typedef struct zonal__table_settings {
    const char *out, *records, *merge;
    const char *above; /* a folder around "out" that is made as well; NULL: none */
    const char *methods, *families, *data, *seeds, *options, *device;
    int64_t side, steps, epochs, parallel, threads;
    double minutes;
    int dry_run, print, markdown, keep_checkpoints, quiet;
} zonal__table_settings;

/* Returns the exit status. */
int zonal__reproduce_table(const zonal__experiment *experiment,
                           const zonal__table_settings *settings);

#endif
