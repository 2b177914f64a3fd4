/*
 * A map of points as an <svg> element of a page: a dot for each, coloured by its class. The page's
 * style colours the classes "k0" to "k9"; beyond ten they repeat as squares. Each class is one path
 * whose attribute data-i has the numbers of its points, for a script to find them.
 */
#ifndef ZONAL_REPORT_SCATTER_H
#define ZONAL_REPORT_SCATTER_H

#include <stdint.h>

#include "core/file.h"

typedef struct zonal__scatter {
    const char *title;             /* for who does not see it */
    const char *x_label, *y_label; /* NULL: the axes mean nothing */
    int64_t count;
    const double *xy;                                           /* [count][2] */
    int classes;                                                /* 0: none */
    const int32_t *labels;                                      /* [count]; with classes */
    const char *(*name)(const void *context, int class_number); /* with classes */
    const void *context;
    int sheet; /* number of the thumbnails, from 1; 0: none */
} zonal__scatter;

zonal_status zonal__scatter_put(zonal__file *file, const zonal__scatter *scatter);

/* The classes "k3" or "k3 square" of a class of points. */
void zonal__scatter_put_class(zonal__file *file, int class_number);

#endif
