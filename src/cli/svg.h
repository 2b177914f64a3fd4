/*
 * Line charts as SVG files: 720 x 440, for reports and papers.
 *
 *     const zonal__svg_series series[] = {{.name = "heat, t = 5/d", .count = n, .x = c, .y = phi}};
 *     const zonal__svg_chart chart = {.title = "Kernels", .x_label = "cosine", .y_label = "value",
 *                                     .series = series, .series_count = 1};
 *     ZONAL_TRY(zonal__svg_write("kernels.svg", &chart));
 *
 * Every series with a name is labelled at the right, at the height where its line ends, with labels
 * moved apart where they would touch. Colours are the eight of Okabe and Ito, told apart by people
 * with any kind of colour vision; beyond seven series they repeat, dashed. A point that is not
 * finite, or not positive on a logarithmic axis, breaks the line.
 */
#ifndef ZONAL_CLI_SVG_H
#define ZONAL_CLI_SVG_H

#include <stdint.h>

#include "core/error.h"

typedef struct zonal__svg_series {
    const char *name; /* UTF-8; NULL: no label */
    int64_t count;
    const double *x, *y; /* [count] */
    int dashed;          /* 1: dashed */
    int marks;           /* 1: a dot at every point */
    int colour;          /* 0: by position; 1 to 7: that colour, to pair series */
} zonal__svg_series;

typedef struct zonal__svg_chart {
    const char *title, *subtitle; /* UTF-8; NULL: none */
    const char *x_label, *y_label;
    int x_log, y_log;
    double x_low, x_high, y_low, y_high; /* what the axes show; low >= high: from the data */
    const zonal__svg_series *series;
    int series_count; /* at most 20 */
} zonal__svg_chart;

/* Writes the chart as a whole or not at all. Fails with ZONAL_NUMERIC when no point can be drawn,
 * ZONAL_ARGUMENT for a wrong number of series or limits that a logarithm has no place for, or as
 * zonal__file_commit does. */
zonal_status zonal__svg_write(const char *path, const zonal__svg_chart *chart);

#endif
