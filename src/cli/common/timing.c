#include "cli/common/timing.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "backend/device.h"

enum { MOST_RUNS = 1000 };

double zonal__now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

zonal_status zonal__time_host(zonal_status (*work)(void *context, int run), void *context,
                              zonal__timing *timing) {
    double times[MOST_RUNS], begin = zonal__now(), total;
    int runs = 0;
    ZONAL_TRY(work(context, 0));
    for (total = zonal__now() - begin; runs < MOST_RUNS && (runs < 5 || total < .5); runs++) {
        if (runs >= 3 && total > 3) break;
        begin = zonal__now();
        ZONAL_TRY(work(context, runs + 1));
        times[runs] = zonal__now() - begin;
        total += times[runs];
    }
    qsort(times, (size_t)runs, sizeof *times, compare);
    timing->ms = 1e3 * (runs % 2 ? times[runs / 2] : (times[runs / 2 - 1] + times[runs / 2]) / 2);
    timing->least_ms = 1e3 * times[0];
    timing->runs = runs;
    return ZONAL_OK;
}

/* ---- work that may run on a device ------------------------------------------------------------
 */

enum { REPEATS = 10, DEVICE_RUNS = 10, HOST_RUNS = 5 };

typedef struct repeated {
    zonal_status (*enqueue)(void *context, void *stream);
    void *context;
} repeated;

static zonal_status enqueue_repeated(void *context, void *stream) {
    const repeated *r = context;
    for (int i = 0; i < REPEATS; i++) ZONAL_TRY(r->enqueue(r->context, stream));
    return ZONAL_OK;
}

zonal_status zonal__time_work(const zonal__device *device,
                              zonal_status (*enqueue)(void *context, void *stream), void *context,
                              double *ms) {
    double best = INFINITY, microseconds;
    if (!zonal__device_is_host(device)) {
        repeated work = {enqueue, context};
        ZONAL_TRY(
            zonal__device_time(device, enqueue_repeated, &work, 1, 2, DEVICE_RUNS, &microseconds));
        *ms = microseconds / REPEATS / 1e3;
        return ZONAL_OK;
    }
    for (int run = 0; run <= HOST_RUNS; run++) {
        double begin = zonal__now();
        ZONAL_TRY(enqueue(context, NULL));
        double seconds = zonal__now() - begin;
        if (run > 0 && seconds < best) best = seconds; /* the first warms up */
    }
    *ms = 1e3 * best;
    return ZONAL_OK;
}

int zonal__replays(double microseconds) {
    return microseconds > 5e5 ? 3 : microseconds < 500 ? 1000 : (int)(5e5 / microseconds) + 3;
}
