/*
 * Several ranks in one process, a thread each: what a communicator promises, without a launcher.
 *
 *     static void body(const zonal_communicator *communicator, void *context) { ... }
 *     CHECK_OK(thread_ranks_run(3, body, &shared));
 *
 * A rank that fails must tell the others through what it tests: a thread that does not come to a
 * collective call that the others make leaves them waiting.
 */
#ifndef ZONAL_TESTS_THREAD_RANKS_H
#define ZONAL_TESTS_THREAD_RANKS_H

#include "zonal/communicator.h"

enum { THREAD_RANKS = 16 }; /* at most */

/* Calls body once for each rank, each in a thread of its own, and waits for all. */
zonal_status thread_ranks_run(int ranks,
                              void (*body)(const zonal_communicator *communicator, void *context),
                              void *context);

#endif
