/*
 * A communicator with a clock: how long a rank is inside of collective calls, and what it sends.
 *
 *     timed clock;
 *     const zonal_communicator outer = timed_communicator(inner, &clock);
 */
#ifndef ZONAL_BENCH_TIMED_H
#define ZONAL_BENCH_TIMED_H

#include <time.h>

#include "zonal/communicator.h"

static inline double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct timed {
    const zonal_communicator *inner;
    double wall, used, bytes;
} timed;

static inline void timed_start(timed *t) {
    t->wall -= seconds(CLOCK_MONOTONIC);
    t->used -= seconds(CLOCK_THREAD_CPUTIME_ID);
}

static inline void timed_end(timed *t, double bytes) {
    t->wall += seconds(CLOCK_MONOTONIC);
    t->used += seconds(CLOCK_THREAD_CPUTIME_ID);
    t->bytes += bytes;
}

static inline zonal_status timed_all_reduce(void *context, void *number, int64_t count,
                                            zonal_reduce type, void *stream) {
    timed *t = context;
    timed_start(t);
    zonal_status status = t->inner->all_reduce(t->inner->context, number, count, type, stream);
    timed_end(t, (type == ZONAL_REDUCE_FP32 ? 4 : 8) * (double)count);
    return status;
}

static inline zonal_status timed_all_gather(void *context, const void *mine, void *all,
                                            const int64_t *bytes, void *stream) {
    timed *t = context;
    return t->inner->all_gather(t->inner->context, mine, all, bytes, stream);
}

static inline zonal_status timed_shift_begin(void *context, const void *send, int64_t send_bytes,
                                             void *receive, int64_t receive_bytes, void *stream) {
    timed *t = context;
    timed_start(t);
    zonal_status status =
        t->inner->shift_begin(t->inner->context, send, send_bytes, receive, receive_bytes, stream);
    timed_end(t, (double)send_bytes);
    return status;
}

static inline zonal_status timed_shift_end(void *context, void *stream) {
    timed *t = context;
    timed_start(t);
    zonal_status status = t->inner->shift_end(t->inner->context, stream);
    timed_end(t, 0);
    return status;
}

static inline zonal_status timed_broadcast(void *context, void *block, int64_t bytes, int root,
                                           void *stream) {
    timed *t = context;
    return t->inner->broadcast(t->inner->context, block, bytes, root, stream);
}

static inline zonal_communicator timed_communicator(const zonal_communicator *inner, timed *clock) {
    zonal_communicator outer = *inner;
    *clock = (timed){.inner = inner};
    outer.context = clock;
    outer.all_reduce = timed_all_reduce;
    outer.all_gather = timed_all_gather;
    outer.shift_begin = timed_shift_begin;
    outer.shift_end = timed_shift_end;
    outer.broadcast = timed_broadcast;
    return outer;
}

#endif
