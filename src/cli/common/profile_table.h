/*
 * Prints what cli/bench/layer_profile.h measured: by kinds of work, then layer by layer.
 *
 * The floor of a piece of work is the larger of its operations over the rate of matrix products and
 * its bytes over that of memory: what it would take if one of the two were all there is to it.
 */
#ifndef ZONAL_CLI_COMMON_PROFILE_TABLE_H
#define ZONAL_CLI_COMMON_PROFILE_TABLE_H

#include "cli/bench/layer_profile.h"

typedef struct zonal__rates {
    double teraflops, terabytes; /* a second; 0: not known, and no floors are printed */
} zonal__rates;

/* A step as a whole, and its parts that are no layers. */
typedef struct zonal__step_profile {
    const char *title;
    double ms;
    zonal__work_cost objective, optimiser;
} zonal__step_profile;

/* What neither layers nor the two other parts account for is printed as the rest; by themselves,
 * parts can also take longer or shorter than inside of the step. */
void zonal__profile_print(const zonal__step_profile *step, const zonal__layer_profile *profile,
                          int count, const zonal__rates *rates);

/* The same as JSON lines, one for each layer: {"row": title, "layer": ..., ...}. */
void zonal__profile_print_json(const char *title, const zonal__layer_profile *profile, int count,
                               const zonal__rates *rates);

#endif
