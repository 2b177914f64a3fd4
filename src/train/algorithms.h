/*
 * Which algorithms a network runs by, on a device that measures the fastest: where they are taken
 * from before anything is measured, and where they are kept (backend/training/autotune_cache.h).
 *
 *   1. a resumed run takes those of its own folder, and goes on bit for bit;
 *   2. --autotune-cache FILE takes those of another run;
 *   3. otherwise those that this user has measured before on such a device are taken, and new ones
 *      are added: $XDG_CACHE_HOME/zonal/autotune-MODEL.txt, with ~/.cache in place of a variable
 *      that is not set. Measuring takes longer than all the rest of a start. A file that cannot be
 *      read or written is passed over with a line in the log. --autotune-cache none measures anew.
 *
 * A device that measures nothing has none of these files.
 */
#ifndef ZONAL_TRAIN_ALGORITHMS_H
#define ZONAL_TRAIN_ALGORITHMS_H

#include "backend/device.h"

/* "own" is the file of the run that is resumed, or NULL; "given" the option's value, or NULL. */
zonal_status zonal__algorithms_take(const zonal__device *device, const char *own,
                                    const char *given);

/* After the network was made. "own" is the run's file. */
zonal_status zonal__algorithms_keep(const zonal__device *device, const char *own,
                                    const char *given);

#endif
