/*
 * Checkpoints: one safetensors file with a checksum, holding all that a trainer carries from step
 * to step. Parameters and statistics have PyTorch's names and layout ("conv1.weight", ...), so the
 * file loads there too; the optimiser's state lies beside them as "optimiser.exp_avg.conv1.weight"
 * and so on, and an online probe as
 * "probe.weight" and "probe.bias" with its own state. The metadata says which step comes next
 * ("zonal.step") and for which network and optimiser it was made ("zonal.network",
 * "zonal.optimiser"), and holds the configuration that the trainer was made from
 * ("zonal.configuration"), where it has one.
 *
 * A file appears whole or not at all, and what it replaces stays intact until then. A trainer that
 * has loaded one goes on bit for bit as the one that saved it would have.
 */
#ifndef ZONAL_TRAIN_CHECKPOINT_H
#define ZONAL_TRAIN_CHECKPOINT_H

#include "train/trainer.h"

zonal_status zonal__checkpoint_save(zonal__trainer *trainer, const char *path);

/* The same in two parts, so that training can go on while a file is written: what the trainer
 * carries is copied to host memory between two steps, and written at any time later, by any thread,
 * as long as the trainer is there. A snapshot can be taken again. */
typedef struct zonal__snapshot zonal__snapshot;
zonal_status zonal__snapshot_create(zonal__trainer *trainer, zonal__snapshot **out);
void zonal__snapshot_destroy(zonal__snapshot *snapshot); /* accepts NULL */
zonal_status zonal__snapshot_take(zonal__snapshot *snapshot);
zonal_status zonal__snapshot_write(const zonal__snapshot *snapshot, const char *path);
int64_t zonal__snapshot_step(const zonal__snapshot *snapshot); /* steps done when it was taken */

/* ZONAL_FORMAT for a file that is damaged, or was made for another network or optimiser; the
 * trainer is then unchanged. */
zonal_status zonal__checkpoint_load(zonal__trainer *trainer, const char *path);

/* Collective, after rank 0 has loaded one or begun: every rank's trainer becomes what rank 0's is,
 * so that one file serves any number of ranks and they begin with the same bits. The communicator
 * takes host memory, whatever the trainer's takes; NULL: one rank, and nothing to do. */
zonal_status zonal__checkpoint_spread(zonal__trainer *trainer,
                                      const zonal_communicator *communicator);

/* The configuration that a checkpoint was made with, as the trainer's options had it; *text is NULL
 * where it has none, else release it with zonal__free. ZONAL_FORMAT for a file that is damaged. */
zonal_status zonal__checkpoint_configuration(const char *path, char **text);

#endif
