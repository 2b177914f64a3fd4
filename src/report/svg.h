/*
 * Line charts as SVG: files of 720 x 440, for papers, and smaller ones inside a page.
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
 *
 * In a page (zonal__svg_put) the page's style colours everything by class: "grid" and "axis" lines,
 * "tick" and "label" texts, and the series "c1" to "c7" and "reference". Names are left to a legend
 * of the page; each series carries its points as attributes, for a script to show, and a summary as
 * its title.
 */
#ifndef ZONAL_REPORT_SVG_H
#define ZONAL_REPORT_SVG_H

#include <stdint.h>

#include "core/error.h"
#include "core/file.h"

typedef struct zonal__svg_series {
    const char *name; /* UTF-8; NULL: no label */
    int64_t count;
    const double *x, *y; /* [count] */
    int dashed;          /* 1: dashed, 2: dotted, 3: dashes and dots */
    int marks;           /* 1: a dot at every point */
    int colour;          /* 0: by position; 1 to 7: that colour, to pair series */
    int reference;       /* 1: a grey line to compare with, named where it ends; in pages */
} zonal__svg_series;

typedef struct zonal__svg_chart {
    const char *title, *subtitle; /* UTF-8; NULL: none */
    const char *x_label, *y_label;
    int x_log, y_log;
    double x_low, x_high, y_low, y_high; /* what the axes show; low >= high: from the data */
    const zonal__svg_series *series;
    int series_count;  /* at most 24 */
    int width, height; /* 0: 720 and 440 */
    int page;          /* 0: a file of its own; else the chart's number in its page, from 1 */
} zonal__svg_chart;

/* Writes the chart as a whole or not at all. Fails with ZONAL_NUMERIC when no point can be drawn,
 * ZONAL_ARGUMENT for a wrong number of series or limits that a logarithm has no place for, or as
 * zonal__file_commit does. */
zonal_status zonal__svg_write(const char *path, const zonal__svg_chart *chart);

/* The same into a file that is being written, as an <svg> element; chart->page must be set. Nothing
 * has been written after ZONAL_NUMERIC or ZONAL_ARGUMENT. */
zonal_status zonal__svg_put(zonal__file *file, const zonal__svg_chart *chart);

/* What "dashed" means as SVG's stroke-dasharray, for legends; "none" for 0. */
const char *zonal__svg_pattern(int dashed);

#endif
