/*
 * Collective calls on device memory. Where the communicator takes that (on_device = 1) they go to
 * the stream and nothing here waits; where it takes host memory they pass through pinned buffers,
 * and this thread waits for the stream, so that such a run cannot be captured in a graph.
 *
 * Without ranks every function does nothing.
 */
#ifndef ZONAL_BACKEND_CUDA_RANKS_CUH
#define ZONAL_BACKEND_CUDA_RANKS_CUH

#include "backend/cuda/common.cuh"

extern "C" {
/* Takes the two pinned buffers, where they are needed, of so many bytes each; they are released
 * with the base. Before any of the calls below. */
zonal_status zonal__cuda_ranks_room(zonal__cuda_base *base, size_t bytes);

/* number[i] = the sum of all ranks' number[i]. */
zonal_status zonal__cuda_ranks_sum(const zonal__cuda_base *base, double *number, int64_t count);

/* all [batch][row_bytes] of every rank's rows, of which the own are in their place already. */
zonal_status zonal__cuda_ranks_gather(const zonal__cuda_base *base, void *all, size_t row_bytes);

/* Begins to send a block to the next rank and to receive one from the rank before; "step" counts
 * the shifts of one round from 0, in which what was received is sent on. Work that is put on the
 * stream before the end may read the block that is sent. */
zonal_status zonal__cuda_ranks_shift_begin(const zonal__cuda_base *base, int step, const void *send,
                                           size_t send_bytes, void *receive, size_t receive_bytes);
zonal_status zonal__cuda_ranks_shift_end(const zonal__cuda_base *base, int step, void *receive,
                                         size_t receive_bytes);
}

#endif
