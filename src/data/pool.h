/*
 * Images made by many threads and used by one, in order: for packing, describing and writing
 * whole sets.
 *
 *     make(context, worker, i, image)     on any worker, several at once
 *     use(context, i, made, image)        on the calling thread, for i = 0, 1, 2, ...
 *
 * "worker", from 0 to zonal__pool_workers(workers) - 1, tells make whose scratch memory to use.
 * "made" is the status of make; where it is not ZONAL_OK its sentence is the calling thread's last
 * error, so that use can log it and go on, or return it and end the run.
 */
#ifndef ZONAL_DATA_POOL_H
#define ZONAL_DATA_POOL_H

#include "data/image.h"

typedef struct zonal__pool_task {
    void *context;
    zonal_status (*make)(void *context, int worker, int64_t i, zonal__image *image);
    zonal_status (*use)(void *context, int64_t i, zonal_status made, const zonal__image *image);
} zonal__pool_task;

/* How many workers there are when "workers" are asked for: as core/thread.h has it, at most 256. */
int zonal__pool_workers(int workers);

/* Runs the task over count images. Returns the first status of use that is not ZONAL_OK, having
 * stopped there, or a failure of its own. */
zonal_status zonal__pool_run(const zonal__pool_task *task, int64_t count, int workers);

#endif
