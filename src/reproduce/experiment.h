/*
 * The experiments of the paper that need training: which methods on which data sets, how they are
 * evaluated, and which numbers of that a table shows.
 */
#ifndef ZONAL_REPRODUCE_EXPERIMENT_H
#define ZONAL_REPRODUCE_EXPERIMENT_H

#include "core/error.h"

enum { ZONAL__EXPERIMENT_COLUMNS = 5, ZONAL__EXPERIMENT_PROTOCOLS = 2 };

typedef struct zonal__column {
    const char *title;  /* "R@1" */
    const char *metric; /* "retrieval.projector.r1", as zonal report names it; a share */
} zonal__column;

typedef struct zonal__experiment {
    const char *name, *title;
    const char *methods, *seeds; /* unless others are asked for */
    const char *sets;            /* names of data sets, in the order of the tables */
    int textures;                /* the data sets are made here; others are given as NAME=PATH */
    int averaged;                /* a table of means over all data sets comes first */
    int curves;                  /* the online probe's curves are drawn, for each data set */
    const char *options;         /* of zonal train, beyond the recipe */
    const char *variant;         /* the same; --side, --steps, --options replace them */
    const char *protocols[ZONAL__EXPERIMENT_PROTOCOLS]; /* of zonal eval */
    int columns;
    zonal__column column[ZONAL__EXPERIMENT_COLUMNS];
} zonal__experiment;

/* The i-th; NULL past the last. */
const zonal__experiment *zonal__experiment_at(int i);
const zonal__experiment *zonal__experiment_find(const char *name); /* NULL: there is none */

typedef struct zonal__data_set {
    const char *name, *title;
    const char *recipe; /* a name of zonal__recipe_text */
    const char *split;  /* to evaluate on */
} zonal__data_set;

/* ZONAL_ARGUMENT for a name that the experiment does not have. */
zonal_status zonal__data_set_find(const zonal__experiment *experiment, const char *name,
                                  const zonal__data_set **out);

/* The lines of recipes/NAME.toml, NULL-terminated: the program carries them, and so needs no file
 * of the sources. NULL where there is no such recipe. */
const char *const *zonal__recipe_lines(const char *name);

#endif
