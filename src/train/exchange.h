/*
 * Gradients of several ranks, added up while the way back goes on.
 *
 *     ZONAL_TRY(zonal__exchange_init(&exchange, &options));
 *     zonal__run_watch(run, zonal__exchange_complete, &exchange);
 *     for (each step) {
 *         zonal__exchange_begin(&exchange, model->gradients, count);
 *         ZONAL_TRY(zonal__run_backward(...));          complete from the end of the block on
 *         ZONAL_TRY(zonal__exchange_end(&exchange));    now all of them are sums over the ranks
 *     }
 *     zonal__exchange_fini(&exchange);
 *
 * The block is cut into buckets from its end, where gradients are complete first; which ones is the
 * same on every rank. With a communicator on the device a bucket is added up on a stream of its
 * own, beside the layers that are still to go back, also inside a graph. With one for host memory
 * it is added up at once, and arrays of a device go through pinned memory, for which the processor
 * waits: the calling thread is the one that may use the communicator, and batch norms use it too.
 */
#ifndef ZONAL_TRAIN_EXCHANGE_H
#define ZONAL_TRAIN_EXCHANGE_H

#include "backend/device.h"
#include "zonal/communicator.h"

typedef struct zonal__exchange_options {
    const zonal_communicator *communicator; /* NULL: one rank, and nothing to do */
    const zonal__device *device;            /* of the gradients */
    void *stream;                           /* on which they are computed; NULL on the host */
    size_t bucket_size;                     /* bytes; 0: 25 MiB */
} zonal__exchange_options;

typedef struct zonal__exchange {
    zonal__exchange_options options;
    int64_t bucket;         /* gradients */
    float *gradients;       /* of the step under way; NULL: nothing is added up now */
    int64_t open;           /* those from here on have been added up */
    float *pinned;          /* [bucket]; a communicator for host memory and arrays of a device */
    void *side;             /* the stream of a communicator on the device */
    void *complete, *added; /* events */
} zonal__exchange;

/* On failure what is there is released by fini. */
zonal_status zonal__exchange_init(zonal__exchange *exchange,
                                  const zonal__exchange_options *options);
void zonal__exchange_fini(zonal__exchange *exchange); /* also of one that is all zero */

void zonal__exchange_begin(zonal__exchange *exchange, float *gradients, int64_t count);
/* A zonal__run_watcher: gradients from "first" on are complete. Does nothing before begin. */
zonal_status zonal__exchange_complete(void *exchange, int64_t first);
zonal_status zonal__exchange_end(zonal__exchange *exchange);

#endif
