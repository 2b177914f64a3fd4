/*
 * Contact sheets: many images in one, in rows and columns.
 */
#ifndef ZONAL_DATA_SHEET_H
#define ZONAL_DATA_SHEET_H

#include "data/image.h"

typedef struct zonal__sheet_options {
    int columns;    /* 0: as many as rows, or one more */
    int margin;     /* pixels between the images and around them */
    uint8_t ground; /* the grey of the margins */
} zonal__sheet_options;

/* Shapes "out" for a sheet of count images, none larger than width x height: to learn that it is
 * too large (ZONAL_SHAPE) before they are made. */
zonal_status zonal__sheet_shape(int count, int width, int height, int channels,
                                const zonal__sheet_options *options, zonal__image *out);

/* Lays count >= 1 images out row by row. A cell is as large as the largest width and height, and
 * each image is in the middle of its cell. The sheet is RGB where one of them is. */
zonal_status zonal__sheet_make(const zonal__image *images, int count,
                               const zonal__sheet_options *options, zonal__image *out);

#endif
