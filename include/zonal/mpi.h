/*
 * zonal/mpi.h - a communicator over MPI, for programs that use MPI themselves.
 *
 *     zonal_mpi mpi;
 *     zonal_communicator communicator = ZONAL_COMMUNICATOR_INIT;
 *     zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
 *
 *     if (zonal_mpi_open(&mpi, MPI_COMM_WORLD, 60, &communicator)) ...    (collective)
 *     options.communicator = &communicator;
 *     ... plans ...
 *     zonal_mpi_close(&mpi);                                              (collective)
 *
 * All of it is in this header and nothing in libzonal, which knows no MPI: compile and link with
 * what your MPI asks for (mpicc). Buffers are host memory; MPI_THREAD_SINGLE will do.
 *
 * Every call is nonblocking inside and polled, so that a rank that does not come is noticed: the
 * call fails after "timeout" seconds. all_reduce exchanges numbers and adds them up itself, in
 * double and in the order of the ranks, each of them on one rank or on all alike: so all ranks get
 * the same bits, whatever algorithm MPI takes, and get them again the next time. Messages of more
 * than 2^30 bytes travel in pieces.
 */
#ifndef ZONAL_MPI_H
#define ZONAL_MPI_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zonal/communicator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Filled by zonal_mpi_open; "watch" may be set after it. */
typedef struct zonal_mpi {
    MPI_Comm comm; /* a duplicate of the caller's, whose messages cannot meet others */
    int rank, ranks;
    double timeout;     /* seconds; 0: wait for ever */
    int *bytes, *place; /* [ranks] each: what MPI's calls want to know */
    int *bytes_in, *place_in;
    char *scratch; /* [ZONAL_MPI_SCRATCH + 8 ranks]: others' numbers, to be added up */
    MPI_Request shift[2];
    const char *send; /* what is left of a shift behind its first pieces */
    char *receive;
    int64_t send_left, receive_left;
    /* Called again and again while a call waits, with the seconds it has waited, and with those of
     * "timeout" once they are over. It returns ZONAL_OK to go on, or fails with a sentence of its
     * own. NULL: zonal_mpi_watch below. */
    zonal_status (*watch)(void *context, double waited);
    void *watch_context;
} zonal_mpi;

/* Bytes of one message: MPI counts in int. */
#ifndef ZONAL_MPI_PIECE
#define ZONAL_MPI_PIECE (1 << 30)
#endif

enum {
    ZONAL_MPI_SCRATCH = 1 << 22, /* bytes that are added up at a time */
    ZONAL_MPI_SMALL = 1 << 16    /* of all ranks together: every rank adds them up by itself */
};

static inline zonal_status zonal_mpi_fail(int code) {
    char text[MPI_MAX_ERROR_STRING + 80] = "MPI: ";
    int length = 0;
    if (code == MPI_SUCCESS) return ZONAL_OK;
    if (MPI_Error_string(code, text + strlen(text), &length) != MPI_SUCCESS)
        snprintf(text, sizeof text, "MPI: error %d", code);
    return zonal_error_set(ZONAL_IO, text);
}

static inline zonal_status zonal_mpi_watch(void *context, double waited) {
    const zonal_mpi *mpi = (const zonal_mpi *)context;
    char text[160];
    if (mpi->timeout <= 0 || waited < mpi->timeout) return ZONAL_OK;
    snprintf(text, sizeof text, "rank %d has waited %g s for other ranks: one has died or is stuck",
             mpi->rank, mpi->timeout);
    return zonal_error_set(ZONAL_IO, text);
}

/* Until all requests are done. The watch looks at the clock, so it is not asked every time. */
static inline zonal_status zonal_mpi_wait(zonal_mpi *mpi, int count, MPI_Request *request) {
    enum { POLLS = 64 };
    double begun = MPI_Wtime();
    for (;;) {
        zonal_status status;
        for (int i = 0; i < POLLS; i++) {
            int done = 0, code = MPI_Testall(count, request, &done, MPI_STATUSES_IGNORE);
            if (code != MPI_SUCCESS) return zonal_mpi_fail(code);
            if (done) return ZONAL_OK;
        }
        status = mpi->watch ? mpi->watch(mpi->watch_context, MPI_Wtime() - begun)
                            : zonal_mpi_watch(mpi, MPI_Wtime() - begun);
        if (status != ZONAL_OK) return status;
    }
}

/* The next piece of "left" bytes. */
static inline int zonal_mpi_piece(int64_t left) {
    return left < ZONAL_MPI_PIECE ? (int)left : ZONAL_MPI_PIECE;
}

static inline zonal_status zonal_mpi_broadcast(void *context, void *block, int64_t bytes, int root,
                                               void *stream) {
    zonal_mpi *mpi = (zonal_mpi *)context;
    char *at = (char *)block;
    (void)stream;
    while (bytes > 0) {
        MPI_Request request;
        int n = zonal_mpi_piece(bytes),
            code = MPI_Ibcast(at, n, MPI_BYTE, root, mpi->comm, &request);
        zonal_status status =
            code == MPI_SUCCESS ? zonal_mpi_wait(mpi, 1, &request) : zonal_mpi_fail(code);
        if (status != ZONAL_OK) return status;
        at += n;
        bytes -= n;
    }
    return ZONAL_OK;
}

/* sum[i] = that of "ranks" blocks of so many numbers each, one after another in "block". */
static inline void zonal_mpi_add(const void *block, int ranks, int64_t count, zonal_reduce type,
                                 void *sum) {
    for (int64_t i = 0; i < count; i++) {
        double total = 0;
        for (int r = 0; r < ranks; r++)
            total += type == ZONAL_REDUCE_FP32 ? (double)((const float *)block)[r * count + i]
                                               : ((const double *)block)[r * count + i];
        if (type == ZONAL_REDUCE_FP32)
            ((float *)sum)[i] = (float)total;
        else
            ((double *)sum)[i] = total;
    }
}

/* Few numbers: everybody gets everything, which takes one message's time. */
static inline zonal_status zonal_mpi_reduce_small(zonal_mpi *mpi, void *number, int64_t count,
                                                  int size, zonal_reduce type) {
    MPI_Request request;
    zonal_status status;
    int bytes = (int)count * size;
    int code =
        MPI_Iallgather(number, bytes, MPI_BYTE, mpi->scratch, bytes, MPI_BYTE, mpi->comm, &request);
    status = code == MPI_SUCCESS ? zonal_mpi_wait(mpi, 1, &request) : zonal_mpi_fail(code);
    if (status == ZONAL_OK) zonal_mpi_add(mpi->scratch, mpi->ranks, count, type, number);
    return status;
}

/* Many: each rank adds up a share of them, and then sends it to all. */
static inline zonal_status zonal_mpi_reduce_shares(zonal_mpi *mpi, void *number, int64_t count,
                                                   int size, zonal_reduce type) {
    int64_t each = (count + mpi->ranks - 1) / mpi->ranks, own;
    MPI_Request request;
    zonal_status status;
    int code;
    for (int r = 0; r < mpi->ranks; r++) {
        int64_t first = r * each < count ? r * each : count;
        int64_t last = first + each < count ? first + each : count;
        mpi->place[r] = (int)first * size;
        mpi->bytes[r] = (int)(last - first) * size;
    }
    own = mpi->bytes[mpi->rank] / size;
    for (int r = 0; r < mpi->ranks; r++) {
        mpi->bytes_in[r] = (int)own * size;
        mpi->place_in[r] = r * (int)own * size;
    }
    code = MPI_Ialltoallv(number, mpi->bytes, mpi->place, MPI_BYTE, mpi->scratch, mpi->bytes_in,
                          mpi->place_in, MPI_BYTE, mpi->comm, &request);
    status = code == MPI_SUCCESS ? zonal_mpi_wait(mpi, 1, &request) : zonal_mpi_fail(code);
    if (status != ZONAL_OK) return status;
    zonal_mpi_add(mpi->scratch, mpi->ranks, own, type, (char *)number + mpi->place[mpi->rank]);
    code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, number, mpi->bytes, mpi->place, MPI_BYTE,
                           mpi->comm, &request);
    return code == MPI_SUCCESS ? zonal_mpi_wait(mpi, 1, &request) : zonal_mpi_fail(code);
}

static inline zonal_status zonal_mpi_all_reduce(void *context, void *number, int64_t count,
                                                zonal_reduce type, void *stream) {
    zonal_mpi *mpi = (zonal_mpi *)context;
    int size = type == ZONAL_REDUCE_FP32 ? (int)sizeof(float) : (int)sizeof(double);
    char *at = (char *)number;
    (void)stream;
    while (count > 0) {
        int64_t most = ZONAL_MPI_SCRATCH / size, n = count < most ? count : most;
        zonal_status status = n * size * mpi->ranks <= ZONAL_MPI_SMALL
                                  ? zonal_mpi_reduce_small(mpi, at, n, size, type)
                                  : zonal_mpi_reduce_shares(mpi, at, n, size, type);
        if (status != ZONAL_OK) return status;
        at += n * size;
        count -= n;
    }
    return ZONAL_OK;
}

/* Blocks that MPI cannot count together are sent round one by one. */
static inline zonal_status zonal_mpi_gather_large(zonal_mpi *mpi, const void *mine, void *all,
                                                  const int64_t *bytes) {
    char *at = (char *)all;
    for (int r = 0; r < mpi->ranks; at += bytes[r++]) {
        zonal_status status;
        if (r == mpi->rank && at != mine && bytes[r] > 0) memcpy(at, mine, (size_t)bytes[r]);
        status = zonal_mpi_broadcast(mpi, at, bytes[r], r, NULL);
        if (status != ZONAL_OK) return status;
    }
    return ZONAL_OK;
}

static inline zonal_status zonal_mpi_all_gather(void *context, const void *mine, void *all,
                                                const int64_t *bytes, void *stream) {
    zonal_mpi *mpi = (zonal_mpi *)context;
    MPI_Request request;
    int64_t place = 0;
    int code;
    (void)stream;
    for (int r = 0; r < mpi->ranks; place += bytes[r++]) {
        if (place + bytes[r] > ZONAL_MPI_PIECE)
            return zonal_mpi_gather_large(mpi, mine, all, bytes);
        mpi->bytes[r] = (int)bytes[r];
        mpi->place[r] = (int)place;
    }
    if ((const char *)mine == (const char *)all + mpi->place[mpi->rank]) mine = MPI_IN_PLACE;
    code = MPI_Iallgatherv(mine, mpi->bytes[mpi->rank], MPI_BYTE, all, mpi->bytes, mpi->place,
                           MPI_BYTE, mpi->comm, &request);
    return code == MPI_SUCCESS ? zonal_mpi_wait(mpi, 1, &request) : zonal_mpi_fail(code);
}

/* Sends and receives the next pieces of a shift; an empty one is no message. */
static inline zonal_status zonal_mpi_shift_pieces(zonal_mpi *mpi) {
    int n = zonal_mpi_piece(mpi->receive_left), code = MPI_SUCCESS;
    mpi->shift[0] = mpi->shift[1] = MPI_REQUEST_NULL;
    if (n > 0)
        code = MPI_Irecv(mpi->receive, n, MPI_BYTE, (mpi->rank + mpi->ranks - 1) % mpi->ranks, 0,
                         mpi->comm, &mpi->shift[0]);
    mpi->receive += n;
    mpi->receive_left -= n;
    if (code != MPI_SUCCESS) return zonal_mpi_fail(code);
    n = zonal_mpi_piece(mpi->send_left);
    if (n > 0)
        code = MPI_Isend(mpi->send, n, MPI_BYTE, (mpi->rank + 1) % mpi->ranks, 0, mpi->comm,
                         &mpi->shift[1]);
    mpi->send += n;
    mpi->send_left -= n;
    return zonal_mpi_fail(code);
}

static inline zonal_status zonal_mpi_shift_begin(void *context, const void *send,
                                                 int64_t send_bytes, void *receive,
                                                 int64_t receive_bytes, void *stream) {
    zonal_mpi *mpi = (zonal_mpi *)context;
    (void)stream;
    mpi->send = (const char *)send;
    mpi->receive = (char *)receive;
    mpi->send_left = send_bytes;
    mpi->receive_left = receive_bytes;
    return zonal_mpi_shift_pieces(mpi);
}

static inline zonal_status zonal_mpi_shift_end(void *context, void *stream) {
    zonal_mpi *mpi = (zonal_mpi *)context;
    zonal_status status = zonal_mpi_wait(mpi, 2, mpi->shift);
    (void)stream;
    while (status == ZONAL_OK && (mpi->send_left > 0 || mpi->receive_left > 0)) {
        status = zonal_mpi_shift_pieces(mpi);
        if (status == ZONAL_OK) status = zonal_mpi_wait(mpi, 2, mpi->shift);
    }
    return status;
}

/* Collective, before MPI_Finalize and after the last plan has been destroyed. Not after a failure
 * of a call above: a rank that is gone cannot take part; end the program with MPI_Abort then. */
static inline void zonal_mpi_close(zonal_mpi *mpi) {
    free(mpi->bytes);
    free(mpi->scratch);
    MPI_Comm_free(&mpi->comm);
}

/* Collective, after MPI_Init. Fills *communicator, which is used with *mpi in its place until
 * zonal_mpi_close; there is nothing to close after a failure. */
static inline zonal_status zonal_mpi_open(zonal_mpi *mpi, MPI_Comm comm, double timeout,
                                          zonal_communicator *communicator) {
    int code;
    memset(mpi, 0, sizeof *mpi);
    mpi->timeout = timeout;
    code = MPI_Comm_dup(comm, &mpi->comm);
    if (code != MPI_SUCCESS) return zonal_mpi_fail(code);
    /* Otherwise MPI would end the program, without a sentence of ours. */
    MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(mpi->comm, &mpi->rank);
    MPI_Comm_size(mpi->comm, &mpi->ranks);
    mpi->bytes = (int *)calloc((size_t)mpi->ranks * 4, sizeof(int));
    mpi->scratch = (char *)malloc((size_t)ZONAL_MPI_SCRATCH + 8 * (size_t)mpi->ranks);
    if (!mpi->bytes || !mpi->scratch) {
        zonal_mpi_close(mpi);
        return zonal_error_set(ZONAL_MEMORY, "no memory for an MPI communicator");
    }
    mpi->place = mpi->bytes + mpi->ranks;
    mpi->bytes_in = mpi->place + mpi->ranks;
    mpi->place_in = mpi->bytes_in + mpi->ranks;
    communicator->rank = mpi->rank;
    communicator->ranks = mpi->ranks;
    communicator->on_device = 0;
    communicator->context = mpi;
    communicator->all_reduce = zonal_mpi_all_reduce;
    communicator->all_gather = zonal_mpi_all_gather;
    communicator->shift_begin = zonal_mpi_shift_begin;
    communicator->shift_end = zonal_mpi_shift_end;
    communicator->broadcast = zonal_mpi_broadcast;
    return ZONAL_OK;
}

#ifdef __cplusplus
}
#endif
#endif
