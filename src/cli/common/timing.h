/* How long a piece of work takes, warm. */
#ifndef ZONAL_CLI_COMMON_TIMING_H
#define ZONAL_CLI_COMMON_TIMING_H

#include "backend/device.h"
#include "core/error.h"

typedef struct zonal__timing {
    double ms, least_ms; /* median and least of the runs */
    int runs;
} zonal__timing;

/* Seconds of a clock that only goes forward. */
double zonal__now(void);

/* Times work(context, run), run = 1, 2, ...: at least 5 runs (3 where they are slow) and about half
 * a second of them, after one that is not counted, which finds caches and pages cold. */
zonal_status zonal__time_host(zonal_status (*work)(void *context, int run), void *context,
                              zonal__timing *timing);

/* Milliseconds of short work, wherever it runs: on a GPU of what "enqueue" puts on the stream, ten
 * times over in one graph, so that the launch does not count: the median of the replays; on the
 * host, with stream NULL, the least of five calls. */
zonal_status zonal__time_work(const zonal__device *device,
                              zonal_status (*enqueue)(void *context, void *stream), void *context,
                              double *ms);

/* How many replays of something that takes this long make about half a second. */
int zonal__replays(double microseconds);

#endif
