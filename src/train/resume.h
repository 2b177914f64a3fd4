/*
 * Going on with a run: what may be asked of it then, and whether it is still the run it was.
 *
 *     zonal__resume resume = {.training = training, .folder = &folder};
 *     ZONAL_TRY(zonal__resume_check_settings(training));
 *     ZONAL_TRY(zonal__resume_check(&resume));                before zonal__training_open
 *     ...
 *     ZONAL_TRY(zonal__resume_load(&resume, trainer));        the last checkpoint
 *     ...
 *     zonal__resume_close(&resume);
 *
 * A run's numbers are those of its configuration and its images. Both are compared with what was
 * recorded when it began, and options that are given again with the run's; a difference is refused
 * by a sentence that says what it is, but for
 *
 *     --data PATH               the same images in another place
 *     --device NAME             another of the same kind: cuda:1 for cuda:0
 *     --changed-data allow      other images
 *     --epochs N, --steps N     another length; from the step at hand on the learning rates are
 *                               those of a run of the new length
 *
 * which are put into the run's config.toml and data.txt once they have been accepted. A run that
 * was ended before its first checkpoint begins at step 0, as its config.toml says.
 */
#ifndef ZONAL_TRAIN_RESUME_H
#define ZONAL_TRAIN_RESUME_H

#include "train/run_folder.h"
#include "train/training.h"

typedef struct zonal__resume {
    zonal__training *training;
    zonal__run_folder *folder; /* open */
    /* Filled on the way. */
    char checkpoint[ZONAL__RUN_FOLDER_PATH];
    char *before; /* the configuration that it was made with; NULL: by an earlier version */
    zonal__data_changes changes;
    int from_start;    /* it was ended before its first checkpoint, so there is nothing to load */
    int64_t old_total; /* steps; 0: the length stays as it is; -1: it was not recorded */
} zonal__resume;

/* The configuration of a run: RUN/config.toml. ZONAL_IO where there is none to be read. */
zonal_status zonal__resume_find_config(const char *run, char path[ZONAL__TRAINING_PATH]);

/* ZONAL_ARGUMENT for settings that a run which goes on cannot be given. Paths are settled. */
zonal_status zonal__resume_check_settings(zonal__training *training);

/* Compares configuration and images with what was recorded. Nothing is changed. */
zonal_status zonal__resume_check(zonal__resume *resume);
/* Loads the last checkpoint, winds the folder back to it and puts what has been accepted into it.
 */
zonal_status zonal__resume_load(zonal__resume *resume, zonal__trainer *trainer);
void zonal__resume_close(zonal__resume *resume); /* also of one that is all zero */

#endif
