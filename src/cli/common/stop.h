/*
 * Whether a signal that asks for an end asks for the second time, which means: at once.
 *
 * A signal to a process group, as GNU timeout's or a batch system's, often comes twice: from the
 * sender, and handed on by a parent that got it too. Whoever has waited for an end and asks again
 * needs longer than that, so a second signal counts from a second after the first on. The Ctrl-C of
 * a terminal comes once for each press of the keys, and counts however soon it comes.
 */
#ifndef ZONAL_CLI_COMMON_STOP_H
#define ZONAL_CLI_COMMON_STOP_H

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

/* Zero: nothing has asked yet. */
typedef struct zonal__stop_request {
    _Atomic int64_t first; /* nanoseconds of the monotonic clock */
} zonal__stop_request;

typedef enum zonal__stop_meaning {
    ZONAL__STOP_FIRST,
    ZONAL__STOP_REPEATED, /* the first once more */
    ZONAL__STOP_AT_ONCE
} zonal__stop_meaning;

/* For a handler with SA_SIGINFO, in any thread. */
zonal__stop_meaning zonal__stop_asked(zonal__stop_request *request, const siginfo_t *info);

#endif
