/*
 * The options of a test of uniformity by name: one list for `zonal test` and for bindings.
 */
#ifndef ZONAL_UNIFORMITY_OPTIONS_H
#define ZONAL_UNIFORMITY_OPTIONS_H

#include "core/options.h"
#include "zonal/uniformity.h"

/* t waits for the dimension. */
typedef struct zonal__uniformity_settings {
    zonal_uniformity_options options;
    zonal__scale t;
} zonal__uniformity_settings;

/* Entry i of a table for a zonal__uniformity_settings. */
int zonal__uniformity_option(int i, zonal__option *entry);

/* The options, complete but for the precision of rows that come from elsewhere, and progress. */
zonal_uniformity_options zonal__uniformity_settle(const zonal__uniformity_settings *settings,
                                                  int64_t d);

#endif
