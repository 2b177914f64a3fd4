/*
 * What zonal train would refuse in a cell, known before any cell is started.
 */
#ifndef ZONAL_REPRODUCE_CHECK_H
#define ZONAL_REPRODUCE_CHECK_H

#include "reproduce/matrix.h"

/* Puts the training of each data set and method without a record together as zonal train does, up
 * to the network, which is not made: images are opened, and options that do not fit them, each
 * other or the device are found. "device": of the cells that name none; NULL: as zonal train
 * chooses. Fails with the status of the first mistake, its cell and what zonal train says. */
zonal_status zonal__matrix_check(const zonal__matrix *matrix, const zonal__records *records,
                                 const char *device);

#endif
