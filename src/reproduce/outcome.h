/*
 * The record of a cell, from the folder of its run: what zonal train and zonal eval left there.
 */
#ifndef ZONAL_REPRODUCE_OUTCOME_H
#define ZONAL_REPRODUCE_OUTCOME_H

#include "reproduce/matrix.h"

/* What a run folder does not say. */
typedef struct zonal__outcome {
    const zonal__matrix *matrix;
    const zonal__cell *cell;
    const char *run;                              /* its folder */
    double seconds;                               /* training and evaluations, with their starts */
    double at_once;                               /* cells in that time, on the average; or NaN */
    const char *device, *commit, *version, *date; /* "NVIDIA H200" ... */
} zonal__outcome;

/* Sets *text to the record, one JSON object; release it with zonal__free. ZONAL_FORMAT where the
 * run has no number for one of the experiment's columns. */
zonal_status zonal__outcome_record(const zonal__outcome *outcome, char **text);

#endif
