/*
 * The ranks that hold a batch together, as an operation sees them: whose rows are whose, and the
 * collective calls in the form that operations need them (zonal/communicator.h has the calls
 * themselves).
 *
 * Whatever one rank alone can notice (a bad row, memory that is not there) must end the call on all
 * ranks, or the others would wait for it. So everyone keeps to this order: note the own status, go
 * on to the next collective call, and let that one carry it (zonal__ranks_agree, or the last number
 * of zonal__ranks_sum_or_fail).
 */
#ifndef ZONAL_BACKEND_RANKS_H
#define ZONAL_BACKEND_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/device.h"
#include "zonal/communicator.h"

typedef struct zonal__ranks {
    zonal_communicator communicator; /* the caller's, with all members of this version */
    const zonal__device *device;
    int64_t *rows;        /* [ranks]: of each rank */
    int64_t *bytes;       /* [ranks]: room for the sizes of blocks that are gathered */
    int64_t first, batch; /* the number of this rank's first row, and of all rows */
    int64_t most;         /* rows of the rank that has the most */
    void *message;        /* device memory for words between the ranks; NULL on the host */
} zonal__ranks;

/* What all ranks must agree on, by name. */
typedef struct zonal__agreed {
    const char *name;
    double value;
    const char *(*word)(int value); /* what a value is called, NULL for none; or NULL: a number */
} zonal__agreed;

/* Collective. Finds out who has how many rows; "status" is how this rank has fared so far, and a
 * rank that failed, or whose values differ from those of rank 0, makes all of them fail. Without a
 * communicator *out is NULL and the status is given back. */
zonal_status zonal__ranks_create(const zonal_communicator *communicator,
                                 const zonal__device *device, int64_t rows,
                                 const zonal__agreed *values, int count, zonal_status status,
                                 zonal__ranks **out);
void zonal__ranks_destroy(zonal__ranks *ranks); /* accepts NULL */

/* Collective. ZONAL_OK where all ranks come with that; otherwise the status and sentence of the
 * first rank that failed, on all of them. Without ranks it is the status itself. */
zonal_status zonal__ranks_agree(const zonal__ranks *ranks, zonal_status status);

/* Collective, host memory: number[i] = the sum of all ranks' number[i]. */
zonal_status zonal__ranks_sum(const zonal__ranks *ranks, double *number, int64_t count);

/* The same with an agreement at no further cost: number has room for count + 1. */
zonal_status zonal__ranks_sum_or_fail(const zonal__ranks *ranks, zonal_status status,
                                      double *number, int64_t count);

/* Collective, host memory: all[batch][row_bytes] of every rank's rows, of which the own are in
 * their place already. */
zonal_status zonal__ranks_gather_rows(const zonal__ranks *ranks, void *all, size_t row_bytes);

/* Of a problem's ranks, which may be NULL: the number of its first row, and of all rows. */
static inline int64_t zonal__ranks_first(const zonal__ranks *ranks) {
    return ranks ? ranks->first : 0;
}

/* Said after such a number: rows are numbered through all ranks. */
static inline const char *zonal__ranks_whose(const zonal__ranks *ranks) {
    return ranks ? " of the whole batch" : "";
}

static inline int64_t zonal__ranks_batch(const zonal__ranks *ranks, int64_t rows) {
    return ranks ? ranks->batch : rows;
}

/* For operations that are made locally. */
zonal_status zonal__ranks_refuse(const zonal__ranks *ranks, const char *what);

/* The rank whose block is here after "step" shifts: the one "step" ranks before this one. */
static inline int zonal__ranks_owner(const zonal__ranks *ranks, int step) {
    const zonal_communicator *c = &ranks->communicator;
    return (c->rank + c->ranks - step % c->ranks) % c->ranks;
}

#endif
