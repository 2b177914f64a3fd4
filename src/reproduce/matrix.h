/*
 * A matrix of runs: methods x data sets x seeds. Each cell is one training with its evaluations.
 *
 *     zonal__matrix_request request = {.experiment = zonal__experiment_find("table-textures"),
 *                                      .seeds = "0,1"};
 *     ZONAL_TRY(zonal__matrix_init(&matrix, &request));
 *     for (int64_t i = 0; i < matrix.count; i++)
 *         if (!zonal__matrix_record(&matrix, &matrix.cell[i], &records)) ... run it ...
 *     zonal__matrix_fini(&matrix);
 */
#ifndef ZONAL_REPRODUCE_MATRIX_H
#define ZONAL_REPRODUCE_MATRIX_H

#include "core/config.h"
#include "reproduce/experiment.h"
#include "reproduce/records.h"

enum {
    ZONAL__MATRIX_SETS = 8,
    ZONAL__MATRIX_METHODS = 64,
    ZONAL__MATRIX_SEEDS = 64,
    ZONAL__CELL_METHOD = 128,
    ZONAL__CELL_NAME = 192,
    ZONAL__MATRIX_PATH = 2048
};

/* What is NULL or 0 is as the experiment has it. */
typedef struct zonal__matrix_request {
    const zonal__experiment *experiment;
    const char *methods; /* "susreg,kl-heat:t=3/d:selectivity=10" */
    const char *sets;    /* "disk,cloud", or "imagenette=PATH,imagenet100=PATH:class-list=FILE" */
    const char *seeds;   /* "0,1,2" */
    const char *options; /* of zonal train, for all cells: "batch=128,width=0.5" */
    int64_t side, steps, epochs;
    int needs_paths; /* data sets that are not made here must be given with a path */
} zonal__matrix_request;

typedef struct zonal__matrix_set {
    const zonal__data_set *set;
    char path[ZONAL__MATRIX_PATH]; /* of the images; "": made here, or not given */
    zonal__assignments options;
} zonal__matrix_set;

typedef struct zonal__cell {
    char method[ZONAL__CELL_METHOD]; /* with its options, as it was asked for */
    int set;                         /* the number of its data set */
    int64_t seed;
    zonal__assignments options;  /* of zonal train, beyond the recipe */
    char *configuration;         /* as in a record */
    char name[ZONAL__CELL_NAME]; /* of its run folder: another configuration has another one */
} zonal__cell;

typedef struct zonal__matrix {
    const zonal__experiment *experiment;
    char *variant; /* as in a record */
    int methods, sets, seeds;
    char method[ZONAL__MATRIX_METHODS][ZONAL__CELL_METHOD];
    zonal__matrix_set set[ZONAL__MATRIX_SETS];
    int64_t seed[ZONAL__MATRIX_SEEDS];
    zonal__cell *cell; /* [count]: all methods of the first data set and seed, and so on */
    int64_t count;
} zonal__matrix;

/* Checks every option as zonal train would. ZONAL_ARGUMENT with a sentence for what is asked
 * wrongly. Release with zonal__matrix_fini, also after failure. */
zonal_status zonal__matrix_init(zonal__matrix *matrix, const zonal__matrix_request *request);
void zonal__matrix_fini(zonal__matrix *matrix); /* accepts zeroed memory */

/* The record of a cell; NULL where it has not been run. */
const zonal__record *zonal__matrix_record(const zonal__matrix *matrix, const zonal__cell *cell,
                                          const zonal__records *records);

/* How many seconds the cell will take while so many run at once: the median of what cells of this
 * data set have taken, or of any data set, under the same variant; NaN where nothing is known.
 * Cells share the machine: two at once take twice as long each. Records that do not say how many
 * ran at once count where there are no others, as if it had been so many. */
double zonal__matrix_seconds(const zonal__matrix *matrix, const zonal__cell *cell,
                             const zonal__records *records, double at_once);

/* The options of a cell as its training has them: the recipe, and over it the cell's own. "options"
 * was initialised with zonal__train_table; keep *config as long, and destroy it also on failure. */
zonal_status zonal__cell_read(const zonal__matrix *matrix, const zonal__cell *cell,
                              zonal__options *options, zonal__config **config);

/* "disk kl-heat seed 0", for people. */
void zonal__cell_title(const zonal__matrix *matrix, const zonal__cell *cell, char *out,
                       size_t size);

#endif
