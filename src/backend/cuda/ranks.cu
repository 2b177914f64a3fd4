#include "backend/cuda/ranks.cuh"

static const zonal_communicator *communicator_of(const zonal__cuda_base *base) {
    return &base->problem.ranks->communicator;
}

static int is_staged(const zonal__cuda_base *base) {
    return !communicator_of(base)->on_device;
}

static zonal_status wait(const zonal__cuda_base *base) {
    cudaStreamCaptureStatus capture;
    ZONAL_TRY(ZONAL_CUDA(cudaStreamIsCapturing(base->stream, &capture)));
    if (capture != cudaStreamCaptureStatusNone)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED, "ranks that talk through host memory cannot be "
                                             "captured in a graph; execute without one, or give a "
                                             "communicator for device memory (on_device = 1)");
    return ZONAL_CUDA(cudaStreamSynchronize(base->stream));
}

static zonal_status copy(const zonal__cuda_base *base, void *to, const void *from, size_t bytes) {
    if (bytes == 0) return ZONAL_OK;
    return ZONAL_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, base->stream));
}

zonal_status zonal__cuda_ranks_room(zonal__cuda_base *base, size_t bytes) {
    if (!base->problem.ranks || !is_staged(base)) return ZONAL_OK;
    for (int i = 0; i < 2; i++) {
        cudaError_t error = cudaMallocHost(&base->pinned[i], bytes > 0 ? bytes : 1);
        if (error != cudaSuccess) {
            cudaGetLastError();
            base->pinned[i] = NULL;
            return ZONAL_FAIL(ZONAL_MEMORY,
                              "out of memory: %.1f MiB of pinned memory for other ranks' rows and "
                              "sums could not be had (%s)",
                              (double)bytes / (1024.0 * 1024.0), cudaGetErrorString(error));
        }
    }
    return ZONAL_OK;
}

zonal_status zonal__cuda_ranks_sum(const zonal__cuda_base *base, double *number, int64_t count) {
    if (!base->problem.ranks) return ZONAL_OK;
    const zonal_communicator *c = communicator_of(base);
    if (!is_staged(base))
        return c->all_reduce(c->context, number, count, ZONAL_REDUCE_DOUBLE, base->stream);
    size_t bytes = (size_t)count * sizeof *number;
    ZONAL_TRY(copy(base, base->pinned[0], number, bytes));
    ZONAL_TRY(wait(base));
    ZONAL_TRY(c->all_reduce(c->context, base->pinned[0], count, ZONAL_REDUCE_DOUBLE, NULL));
    return copy(base, number, base->pinned[0], bytes);
}

zonal_status zonal__cuda_ranks_gather(const zonal__cuda_base *base, void *all, size_t row_bytes) {
    const zonal__ranks *ranks = base->problem.ranks;
    if (!ranks) return ZONAL_OK;
    const zonal_communicator *c = &ranks->communicator;
    size_t first = (size_t)ranks->first * row_bytes, own = (size_t)base->problem.rows * row_bytes;
    char *here = is_staged(base) ? (char *)base->pinned[0] : (char *)all;
    for (int r = 0; r < c->ranks; r++) ranks->bytes[r] = ranks->rows[r] * (int64_t)row_bytes;
    if (!is_staged(base))
        return c->all_gather(c->context, here + first, here, ranks->bytes, base->stream);
    ZONAL_TRY(copy(base, here + first, (const char *)all + first, own));
    ZONAL_TRY(wait(base));
    ZONAL_TRY(c->all_gather(c->context, here + first, here, ranks->bytes, NULL));
    return copy(base, all, here, (size_t)ranks->batch * row_bytes);
}

/* Staged, the rows stay in pinned memory from the first step to the last: what was received into
 * one buffer is sent on from there. */
zonal_status zonal__cuda_ranks_shift_begin(const zonal__cuda_base *base, int step, const void *send,
                                           size_t send_bytes, void *receive, size_t receive_bytes) {
    const zonal_communicator *c = communicator_of(base);
    void *here = base->pinned[step % 2], *next = base->pinned[(step + 1) % 2];
    if (!is_staged(base))
        return c->shift_begin(c->context, send, (int64_t)send_bytes, receive,
                              (int64_t)receive_bytes, base->stream);
    if (step == 0) ZONAL_TRY(copy(base, here, send, send_bytes));
    ZONAL_TRY(wait(base)); /* and for the copy from "next" of the step before */
    return c->shift_begin(c->context, here, (int64_t)send_bytes, next, (int64_t)receive_bytes,
                          NULL);
}

zonal_status zonal__cuda_ranks_shift_end(const zonal__cuda_base *base, int step, void *receive,
                                         size_t receive_bytes) {
    const zonal_communicator *c = communicator_of(base);
    if (!is_staged(base)) return c->shift_end(c->context, base->stream);
    ZONAL_TRY(c->shift_end(c->context, NULL));
    return copy(base, receive, base->pinned[(step + 1) % 2], receive_bytes);
}
