/*
 * Runs the cells of a matrix: each as zonal train and zonal eval of this program in child
 * processes, several at a time. Of FOLDER it makes
 *
 *     runs/CELL/      the run folders; checkpoints are removed once a cell has its record
 *     logs/CELL.txt   what the children have printed
 *     data/           textures, made once for all cells
 *     recipes/        the recipes that the children are given
 *     lock            held as long as this process or one of its children lives
 *
 * A cell with a record is done; one that was cut off is resumed from its checkpoint, and ends with
 * the weights of one that was not.
 */
#ifndef ZONAL_CLI_REPORT_MATRIX_RUN_H
#define ZONAL_CLI_REPORT_MATRIX_RUN_H

#include "reproduce/matrix.h"

typedef struct zonal__matrix_run_options {
    const char *folder, *records;
    const char *device; /* NULL: as zonal train chooses */
    int64_t threads;    /* of each child; 0: one for each processor */
    int64_t parallel;   /* cells at a time */
    double minutes;     /* 0: no limit */
    int keep_checkpoints, quiet;
} zonal__matrix_run_options;

typedef struct zonal__matrix_run_result {
    int64_t done, failed; /* cells with a record, now; cells that failed */
    int stopped;          /* by a signal */
} zonal__matrix_run_result;

/* Runs what has no record. Each new record is appended to the file and added to "records". A cell
 * that fails is said in a line and does not stop the others; failures of the whole (options that a
 * cell would fail by, a folder that cannot be made, a record that cannot be written) are returned.
 */
zonal_status zonal__matrix_run(const zonal__matrix *matrix,
                               const zonal__matrix_run_options *options, zonal__records *records,
                               zonal__matrix_run_result *result);

/* What would be run, a line for each cell with its predicted time, on stdout. */
void zonal__matrix_list(const zonal__matrix *matrix, const zonal__matrix_run_options *options,
                        const zonal__records *records);

#endif
