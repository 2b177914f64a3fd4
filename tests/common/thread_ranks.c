#include "thread_ranks.h"

#include <pthread.h>
#include <string.h>

#include "core/error.h"

/* What all ranks see. Each puts the address of its block here, and reads the others' between two
 * barriers. */
typedef struct meeting {
    int ranks;
    pthread_barrier_t barrier;
    const void *block[THREAD_RANKS];
    int64_t bytes[THREAD_RANKS];
} meeting;

typedef struct rank {
    zonal_communicator communicator;
    meeting *meeting;
    void (*body)(const zonal_communicator *communicator, void *context);
    void *context;
    void *receive;
    int64_t receive_bytes;
} rank;

static void put(rank *own, const void *block, int64_t bytes) {
    own->meeting->block[own->communicator.rank] = block;
    own->meeting->bytes[own->communicator.rank] = bytes;
    pthread_barrier_wait(&own->meeting->barrier);
}

static void leave(rank *own) {
    pthread_barrier_wait(&own->meeting->barrier);
}

static double element(const void *block, int64_t i, zonal_reduce type) {
    return type == ZONAL_REDUCE_FP32 ? (double)((const float *)block)[i]
                                     : ((const double *)block)[i];
}

/* Piece by piece, so that the sum needs no memory that could fail to be had. */
static zonal_status all_reduce(void *context, void *number, int64_t count, zonal_reduce type,
                               void *stream) {
    enum { PIECE = 256 };
    rank *own = context;
    double sum[PIECE];
    (void)stream;
    for (int64_t first = 0; first < count || first == 0; first += PIECE) {
        int64_t n = count - first < PIECE ? count - first : PIECE;
        put(own, number, count);
        for (int64_t i = 0; i < n; i++) {
            sum[i] = 0;
            for (int r = 0; r < own->meeting->ranks; r++)
                sum[i] += element(own->meeting->block[r], first + i, type);
        }
        leave(own);
        for (int64_t i = 0; i < n; i++)
            if (type == ZONAL_REDUCE_FP32)
                ((float *)number)[first + i] = (float)sum[i];
            else
                ((double *)number)[first + i] = sum[i];
    }
    return ZONAL_OK;
}

static zonal_status all_gather(void *context, const void *mine, void *all, const int64_t *bytes,
                               void *stream) {
    rank *own = context;
    int64_t at = 0;
    zonal_status status = ZONAL_OK;
    (void)stream;
    put(own, mine, bytes[own->communicator.rank]);
    for (int r = 0; r < own->meeting->ranks; at += bytes[r++]) {
        if (own->meeting->bytes[r] != bytes[r])
            status = ZONAL_FAIL(ZONAL_SHAPE, "rank %d gathers %lld bytes, not %lld", r,
                                (long long)own->meeting->bytes[r], (long long)bytes[r]);
        else if (bytes[r] > 0)
            memmove((char *)all + at, own->meeting->block[r], (size_t)bytes[r]);
    }
    leave(own);
    return status;
}

static zonal_status shift_begin(void *context, const void *send, int64_t send_bytes, void *receive,
                                int64_t receive_bytes, void *stream) {
    rank *own = context;
    (void)stream;
    own->receive = receive;
    own->receive_bytes = receive_bytes;
    put(own, send, send_bytes);
    return ZONAL_OK;
}

static zonal_status shift_end(void *context, void *stream) {
    rank *own = context;
    int from = (own->communicator.rank + own->meeting->ranks - 1) % own->meeting->ranks;
    zonal_status status = ZONAL_OK;
    (void)stream;
    if (own->meeting->bytes[from] != own->receive_bytes)
        status = ZONAL_FAIL(ZONAL_SHAPE, "rank %d sends %lld bytes, not %lld", from,
                            (long long)own->meeting->bytes[from], (long long)own->receive_bytes);
    else if (own->receive_bytes > 0)
        memcpy(own->receive, own->meeting->block[from], (size_t)own->receive_bytes);
    leave(own);
    return status;
}

static zonal_status broadcast(void *context, void *block, int64_t bytes, int root, void *stream) {
    rank *own = context;
    (void)stream;
    put(own, block, bytes);
    if (own->communicator.rank != root && bytes > 0)
        memcpy(block, own->meeting->block[root], (size_t)bytes);
    leave(own);
    return ZONAL_OK;
}

static void *begin(void *context) {
    rank *own = context;
    own->body(&own->communicator, own->context);
    return NULL;
}

zonal_status thread_ranks_run(int ranks,
                              void (*body)(const zonal_communicator *communicator, void *context),
                              void *context) {
    meeting shared = {.ranks = ranks};
    rank list[THREAD_RANKS];
    pthread_t thread[THREAD_RANKS];
    if (ranks < 1 || ranks > THREAD_RANKS)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "ranks must be from 1 to %d", THREAD_RANKS);
    if (pthread_barrier_init(&shared.barrier, NULL, (unsigned)ranks))
        return ZONAL_FAIL(ZONAL_MEMORY, "no barrier could be made");
    for (int r = 0; r < ranks; r++)
        list[r] = (rank){.communicator = {.size = sizeof list[r].communicator,
                                          .rank = r,
                                          .ranks = ranks,
                                          .context = &list[r],
                                          .all_reduce = all_reduce,
                                          .all_gather = all_gather,
                                          .shift_begin = shift_begin,
                                          .shift_end = shift_end,
                                          .broadcast = broadcast},
                         .meeting = &shared,
                         .body = body,
                         .context = context};
    /* Rank 0 is this thread, so that checks of the harness work there. */
    for (int r = 1; r < ranks; r++)
        if (pthread_create(&thread[r], NULL, begin, &list[r]))
            return ZONAL_FAIL(ZONAL_MEMORY, "no thread could be made");
    begin(&list[0]);
    for (int r = 1; r < ranks; r++) pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&shared.barrier);
    return ZONAL_OK;
}
