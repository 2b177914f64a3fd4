/*
 * A training from the inside, for the files that assemble it: training.c puts it together and
 * settles what is left open, training_data.c has all that concerns the images.
 */
#ifndef ZONAL_TRAIN_TRAINING_PARTS_H
#define ZONAL_TRAIN_TRAINING_PARTS_H

#include "train/training.h"

/* Whether an option was given, by a file or a flag. */
int zonal__training_given(const zonal__training *training, const char *name);
/* What is known of an option's value; NULL where the table has no such option. */
zonal__option_state *zonal__training_state(zonal__training *training, const char *name);

/* Settles an option that was left open: the configuration that is written names the choice, and
 * what it was settled from. */
void zonal__settle_word(zonal__training *training, const char *name, int choice, int *setting);

zonal_status zonal__training_fill_augmentations(zonal__training *training);
void zonal__training_fill_loader(zonal__training *training);
/* ZONAL_ARGUMENT for a --view-... option that has no effect: it was meant to have one. */
zonal_status zonal__training_check_views(const zonal__training *training);

#endif
