/*
 * What the paper reports, table by table, in percent: the one place of these numbers.
 */
#ifndef ZONAL_REPRODUCE_PAPER_H
#define ZONAL_REPRODUCE_PAPER_H

#include "reproduce/experiment.h"

/* The data set of the means over all textures. */
#define ZONAL__PAPER_AVERAGE "average"

typedef struct zonal__paper_value {
    int table;         /* its number in the paper; 0: the paper has no such value */
    double value, std; /* NaN where it has none */
    int exact;         /* it is of this very method with its options */
} zonal__paper_value;

/* Of a method, or a method with options as in "mmd-heat:t=4/d": where those are not in the paper,
 * what it has for the method alone. "column" is the experiment's. */
zonal__paper_value zonal__paper_find(const zonal__experiment *experiment, const char *data,
                                     const char *method, int column);

/* The number of the table with this data set; 0: it is in none. */
int zonal__paper_table(const zonal__experiment *experiment, const char *data);

#endif
