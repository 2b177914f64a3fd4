/*
 * zonal/communicator.h - several ranks that hold one batch together.
 *
 * A communicator is a table of functions that the caller fills: over MPI, NCCL, torch.distributed
 * or threads. A plan or objective that is made with one (zonal_loss_options.communicator) takes
 * this rank's rows, and its value is that of all ranks' rows together, in the order of the ranks:
 *
 *   - every rank gets the same value, bit for bit, and the gradient of that value with respect to
 *     its own rows. Gradients of shared parameters are therefore SUMS over the ranks, never means;
 *   - ranks may hold different numbers of rows, also none, as long as all together are a batch;
 *   - making, executing and asking for the status of such a plan are collective: every rank calls
 *     them in the same order, with the same options. A rank whose rows are bad makes all fail, with
 *     the sentence of the first such rank.
 *
 * All functions return ZONAL_OK or fail with a sentence set by zonal_error_set. A failure is final:
 * the plan that met it, and its communicator, can only be destroyed.
 */
#ifndef ZONAL_COMMUNICATOR_H
#define ZONAL_COMMUNICATOR_H

#include <stddef.h>
#include <stdint.h>

#include "zonal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is added up. */
typedef enum zonal_reduce { ZONAL_REDUCE_DOUBLE = 0, ZONAL_REDUCE_FP32 = 1 } zonal_reduce;

/* The caller keeps it, and what it points to, until the last plan made with it is destroyed. It is
 * used by one thread at a time. */
typedef struct zonal_communicator {
    size_t size; /* ZONAL_COMMUNICATOR_INIT sets it */
    int rank;    /* from 0 to ranks - 1 */
    int ranks;
    /* 0: the functions below take host memory and are done when they return; a plan on a GPU then
     * copies to the host and back, and cannot be captured in a graph. 1: they take memory of the
     * plan's device and put their work on "stream", in order with what is there. */
    int on_device;
    void *context; /* the first argument of every function */

    /* In place, number[i] = the sum of all ranks' number[i], the same bits on every rank. */
    zonal_status (*all_reduce)(void *context, void *number, int64_t count, zonal_reduce type,
                               void *stream);
    /* all = the ranks' blocks one after another, bytes[r] of rank r, which may be 0. "mine" is this
     * rank's block, and may be its place in "all". */
    zonal_status (*all_gather)(void *context, const void *mine, void *all, const int64_t *bytes,
                               void *stream);
    /* Begins to send a block to the next rank, and to receive one of the rank before (in a ring:
     * the last rank's next is rank 0). Both buffers are left alone until shift_end, which waits
     * until both are done; one shift is under way at a time. Either may be empty. */
    zonal_status (*shift_begin)(void *context, const void *send, int64_t send_bytes, void *receive,
                                int64_t receive_bytes, void *stream);
    zonal_status (*shift_end)(void *context, void *stream);
    /* Every rank gets the block of rank "root". */
    zonal_status (*broadcast)(void *context, void *block, int64_t bytes, int root, void *stream);
} zonal_communicator;
#define ZONAL_COMMUNICATOR_INIT ZONAL_SIZED_INIT(zonal_communicator)

#ifdef __cplusplus
}
#endif
#endif
