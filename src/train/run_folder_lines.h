/*
 * Of the lines of a run's metrics.jsonl, what only the run folder itself has to do with.
 */
#ifndef ZONAL_TRAIN_RUN_FOLDER_LINES_H
#define ZONAL_TRAIN_RUN_FOLDER_LINES_H

#include "train/run_folder.h"

zonal_status zonal__run_folder_add_checkpoint(zonal__run_folder *folder, int64_t step, double score,
                                              int best);

/* Fills "best", "seconds" and the losses after the step "judged" from the lines of the file at this
 * path, if it is there. */
zonal_status zonal__run_folder_take_lines(zonal__run_folder *folder, const char *path,
                                          int64_t judged);

/* The largest step of a checkpoint's line in the file at this path; -1: it has none, or is not
 * there. Damaged lines are passed over. */
zonal_status zonal__run_folder_last_checkpoint(const char *path, int64_t *step);

#endif
