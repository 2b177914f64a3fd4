/*
 * A training from the inside, for the files that assemble it: training.c puts the parts together,
 * training_settle.c, training_loss.c and training_views.c make them.
 */
#ifndef ZONAL_TRAIN_TRAINING_PARTS_H
#define ZONAL_TRAIN_TRAINING_PARTS_H

#include "train/training.h"

/* Whether an option was given, by a file or a flag. */
int zonal__training_given(const zonal__training *training, const char *name);
/* What is known of an option's value; NULL where the table has no such option. */
zonal__option_state *zonal__training_state(zonal__training *training, const char *name);

/* Settles an option that was left open: the configuration that is written names the choice, and
 * what it was settled from. A path becomes absolute, in "room", so that a run can be resumed from
 * another folder; one that is not given, or leads nowhere, stays. */
void zonal__settle_word(zonal__training *training, const char *name, int choice, int *setting);
void zonal__settle_path(zonal__training *training, const char *name,
                        char room[ZONAL__TRAINING_PATH], const char **setting);
/* Device, precision and what depends on them. */
zonal_status zonal__settle_device(zonal__training *training);
/* Sides, channels, augmentation, crop and stem, by the images of the open source. */
zonal_status zonal__settle_views(zonal__training *training);
void zonal__settle_batch(zonal__training *training);

/* trainer.objective and weight, by the projector's widths in trainer.network. */
zonal_status zonal__training_fill_objective(zonal__training *training);

zonal_status zonal__training_fill_augmentations(zonal__training *training);
void zonal__training_fill_loader(zonal__training *training);
/* ZONAL_ARGUMENT for a --view-... option that has no effect: it was meant to have one. */
zonal_status zonal__training_check_views(const zonal__training *training);

#endif
