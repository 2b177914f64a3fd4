/*
 * The folder of a training run:
 *
 *     config.toml                              what was asked for; reproduces the run
 *     metrics.jsonl                            one JSON object a line (below)
 *     log.txt                                  what was printed
 *     checkpoints/step-00001234.safetensors    the last few
 *     checkpoints/best.safetensors             the one with the highest score
 *     events/                                  the same as metrics.jsonl, for TensorBoard
 *     data.txt                                 which images it is trained on (data_record.h)
 *     autotune.txt                             CUDA: the algorithms that were measured best
 *     eval/NAME.json                           later evaluations
 *
 *     ZONAL_TRY(zonal__run_folder_create("runs/disks-1", config, keep, &folder));
 *     for (...) {
 *         ZONAL_TRY(zonal__run_folder_add_step(&folder, &line));
 *         if (...) ZONAL_TRY(zonal__run_folder_save(&folder, trainer, score));
 *     }
 *     zonal__run_folder_close(&folder);
 *
 * and to go on with a run that has ended or was killed at any instant:
 *
 *     ZONAL_TRY(zonal__run_folder_open("runs/disks-1", keep, &folder));
 *     ZONAL_TRY(zonal__run_folder_latest(&folder, path));
 *     ZONAL_TRY(zonal__checkpoint_load(trainer, path));
 *     ZONAL_TRY(zonal__run_folder_rewind(&folder, zonal__trainer_steps_done(trainer)));
 *
 * A folder is trusted in nothing: it may be somebody else's, or have been edited by hand. A link in
 * the place of one of the files above, or of the folder of checkpoints, is refused; of other files
 * in it only the temporaries of those above are removed. The path of the run itself may be a link.
 *
 * The lines of metrics.jsonl, by "kind"; "step" is always the number of steps done, and lines come
 * in its order:
 *
 *     step         epoch, loss, invariance, discrepancy, rate, gradient_norm, images_per_second,
 *                  seconds (of training so far)
 *     monitor      mean_cosine, effective_rank, expected_rank (that of uniform points), log10_p,
 *                  rho, scale
 *     eval         protocol "retrieval": features, r1, r3, r5, map; "knn": features, accuracy
 *     probe        epoch, protocol "probe", features, accuracy (of the online probe)
 *     checkpoint   score, best (whether it is the highest so far)
 *
 * They are on the disk before the checkpoint of the same step is, so that after the cut which
 * rewind makes nothing is missing and nothing is there twice.
 */
#ifndef ZONAL_TRAIN_RUN_FOLDER_H
#define ZONAL_TRAIN_RUN_FOLDER_H

#include <stdio.h>

#include "core/jsonl.h"
#include "train/checkpoint_writer.h"
#include "train/data_record.h"
#include "train/event_log.h"
#include "train/monitor.h"
#include "train/online.h"
#include "train/trainer.h"

enum { ZONAL__RUN_FOLDER_PATH = 4096 };

typedef struct zonal__run_folder {
    char path[ZONAL__RUN_FOLDER_PATH];
    int lock; /* descriptor of the folder, locked: two processes must not train one run */
    int64_t keep;
    zonal__jsonl *metrics;
    zonal__event_log *events;         /* NULL: none; opened by the caller, closed by close */
    zonal__checkpoint_writer *writer; /* NULL: a save is on the disk when it returns */
    double best;                      /* the highest score so far; -INFINITY: none */
    double seconds;                   /* of training, up to the step it was rewound to */
    double loss_sum; /* up to there, of the steps logged since the last one that was judged ... */
    int64_t losses;  /* ... and their number */
} zonal__run_folder;

/* Whether a folder could be made here, for asking before the work that would be lost. */
zonal_status zonal__run_folder_check(const char *path);

/* Makes a folder that is not there yet, with this config.toml. The folder that it lies in must be
 * there. On failure nothing is left to close. */
zonal_status zonal__run_folder_create(const char *path, const char *config, int64_t keep,
                                      zonal__run_folder *folder);
/* The same as PARENT/NAME-N with the first N that is free; makes PARENT too. */
zonal_status zonal__run_folder_create_next(const char *parent, const char *name, const char *config,
                                           int64_t keep, zonal__run_folder *folder);

/* ZONAL_IO, and nothing is changed, if one of its files is not a plain file; as for create. */
zonal_status zonal__run_folder_open(const char *path, int64_t keep, zonal__run_folder *folder);
void zonal__run_folder_close(zonal__run_folder *folder);

/* Opens log.txt for appending; *log is NULL on failure. */
zonal_status zonal__run_folder_open_log(const zonal__run_folder *folder, FILE **log);

/* Puts a line "KEY = VALUE  # COMMENT" in the place of the one that config.toml has for this key,
 * or at its end. The file changes whole or not at all. */
zonal_status zonal__run_folder_edit_config(const zonal__run_folder *folder, const char *key,
                                           const char *value, const char *comment);

/* The files of a run that lie in the folder itself; NULL ends them. */
extern const char *const zonal__run_folder_files[];

/* The path of a file in the folder: "log.txt". */
zonal_status zonal__run_folder_file(const zonal__run_folder *folder, const char *name,
                                    char out[ZONAL__RUN_FOLDER_PATH]);

/* The checkpoint with the most steps. ZONAL_IO where there is none. */
zonal_status zonal__run_folder_latest(const zonal__run_folder *folder,
                                      char out[ZONAL__RUN_FOLDER_PATH]);

/* Whether the run was ended before its first checkpoint was whole: it has none, and its metrics
 * tell of none after that of step 0. */
zonal_status zonal__run_folder_is_untouched(const zonal__run_folder *folder, int *untouched);

/* Makes the folder as it was at the checkpoint of this step, or with -1 before the first: removes
 * what a killed process was writing, cuts metrics.jsonl after the step, and fills "best", "seconds"
 * and the losses of the steps after "judged" from what is left. */
zonal_status zonal__run_folder_rewind(zonal__run_folder *folder, int64_t step, int64_t judged);

/* Notes in retries.txt that the run was started again. ZONAL_ARGUMENT where that has happened
 * "most" times already. */
zonal_status zonal__run_folder_count_retry(const zonal__run_folder *folder, int64_t most);

/* ---- images ---------------------------------------------------------------------------------- */

/* Keeps what the run is trained on in its data.txt. */
zonal_status zonal__run_folder_write_data(const zonal__run_folder *folder,
                                          const zonal__data_record *record);

/* Compares images, which the caller has opened, with the data.txt of a run; "run" is its path, and
 * nothing is locked or changed. A run without a data.txt, of an earlier version, is unchanged;
 * changes->recorded is then 0. ZONAL_IO for images that cannot be read, ZONAL_FORMAT for a data.txt
 * that is none. */
zonal_status zonal__run_folder_check_data(const char *run, const zonal__data_part *parts, int count,
                                          zonal__data_changes *changes);

/* ---- metrics --------------------------------------------------------------------------------- */

typedef struct zonal__step_line {
    int64_t step;
    double epoch, images_per_second, seconds;
    zonal__metrics metrics;
} zonal__step_line;

zonal_status zonal__run_folder_add_step(zonal__run_folder *folder, const zonal__step_line *line);
zonal_status zonal__run_folder_add_monitor(zonal__run_folder *folder, int64_t step,
                                           const zonal__monitor *monitor);
zonal_status zonal__run_folder_add_eval(zonal__run_folder *folder, int64_t step,
                                        const zonal__online_result *result);
zonal_status zonal__run_folder_add_probe(zonal__run_folder *folder, int64_t step, double epoch,
                                         double accuracy);

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Saves the trainer, also as the best if the score is higher than all before (NaN: it is not), and
 * removes all but the last "keep". On failure the checkpoints that were there still are. */
zonal_status zonal__run_folder_save(zonal__run_folder *folder, zonal__trainer *trainer,
                                    double score);

/* From now on saves are written by a thread (checkpoint_writer.h), all of them or those that the
 * disk can follow; close waits for it. The folder must stay where it is, and the trainer there,
 * until then. */
zonal_status zonal__run_folder_write_aside(zonal__run_folder *folder, zonal__trainer *trainer,
                                           int all);
/* Waits until all saves are on the disk. */
zonal_status zonal__run_folder_finish(zonal__run_folder *folder);
/* What the thread has failed at so far. */
zonal_status zonal__run_folder_status(const zonal__run_folder *folder);

#endif
