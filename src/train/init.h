/*
 * A new run may begin with the weights of a file, torchvision's or zonal's: the option "init".
 */
#ifndef ZONAL_TRAIN_INIT_H
#define ZONAL_TRAIN_INIT_H

#include "nn/weights.h"
#include "train/trainer.h"

/* Puts the weights of the file into a trainer that has made no step, and tells what was taken. A
 * file of another network is refused by a sentence that lists what does not fit and names the
 * options that the file asks for. */
zonal_status zonal__train_init(const char *path, zonal__trainer *trainer,
                               zonal__weights_begun *begun);

#endif
