/*
 * The paper's Figure 2: the accuracy of an online linear probe against the epoch, from the curves
 * that records hold.
 */
#ifndef ZONAL_REPRODUCE_DYNAMICS_H
#define ZONAL_REPRODUCE_DYNAMICS_H

#include "reproduce/matrix.h"

/* Draws the curves of one data set, a colour for each method and a line for each seed. *drawn is 0,
 * and no file is made, where the records have no curve of it. */
zonal_status zonal__dynamics_draw(const zonal__matrix *matrix, int set, const char *variant,
                                  const zonal__records *records, const char *path, int *drawn);

#endif
