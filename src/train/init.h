/*
 * zonal train --init FILE: a new run begins with the weights of a file, torchvision's or zonal's.
 */
#ifndef ZONAL_TRAIN_INIT_H
#define ZONAL_TRAIN_INIT_H

#include "train/training.h"

/* Puts the weights of --init, if it is given, into a trainer that has made no step. "said" becomes
 * a line on what was taken, "" without --init. A file of another network is refused by a sentence
 * that lists what does not fit and names the options that the file asks for. */
zonal_status zonal__train_init(const zonal__training *training, zonal__trainer *trainer,
                               char said[512]);

#endif
