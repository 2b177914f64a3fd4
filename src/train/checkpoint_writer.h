/*
 * Checkpoints that are written while training goes on. A save copies what the trainer carries
 * (train/checkpoint.h) and returns; a thread of the writer's own brings it to the disk, in the
 * order that a run folder promises: lines of metrics first, then the best, then that of the step.
 *
 *     ZONAL_TRY(zonal__checkpoint_writer_create(store, context, trainer, 0, &writer));
 *     for (...) ZONAL_TRY(zonal__checkpoint_writer_save(writer, best));
 *     status = zonal__checkpoint_writer_finish(writer);
 *
 * A disk that is slower than the saves holds nobody up: of those that wait, the latest one and the
 * best one are written and the others are not. Where all are wanted, a save waits until the last
 * one's turn has come. At most three copies are held. What fails in the thread is told by the next
 * call.
 */
#ifndef ZONAL_TRAIN_CHECKPOINT_WRITER_H
#define ZONAL_TRAIN_CHECKPOINT_WRITER_H

#include "train/checkpoint.h"

typedef struct zonal__checkpoint_writer zonal__checkpoint_writer;

/* What is done with a snapshot, in the writer's thread: it is the best so far, the latest, or both.
 */
typedef zonal_status zonal__checkpoint_store(void *context, const zonal__snapshot *snapshot,
                                             int best, int latest);

zonal_status zonal__checkpoint_writer_create(zonal__checkpoint_store *store, void *context,
                                             zonal__trainer *trainer, int all,
                                             zonal__checkpoint_writer **out);
/* Writes what is still waiting, and accepts NULL. What fails is no longer told. */
void zonal__checkpoint_writer_destroy(zonal__checkpoint_writer *writer);

/* Takes a snapshot, for which the device is waited for, and hands it over. */
zonal_status zonal__checkpoint_writer_save(zonal__checkpoint_writer *writer, int best);

/* Waits until all that was handed over is on the disk. */
zonal_status zonal__checkpoint_writer_finish(zonal__checkpoint_writer *writer);

/* What has failed so far, without waiting. */
zonal_status zonal__checkpoint_writer_status(zonal__checkpoint_writer *writer);

#endif
