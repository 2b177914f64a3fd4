/* The processor as a device: backend/device.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/device.h"
#include "core/memory.h"

/* ---- what it is ------------------------------------------------------------------------------ */

zonal_status zonal__host_count(int *count) {
    *count = 1;
    return ZONAL_OK;
}

/* What follows "key : " in a file of such lines (/proc/cpuinfo); empty where it is not found. */
static void find_value(const char *path, const char *key, size_t size, char *out) {
    char line[512];
    FILE *file = fopen(path, "r");
    out[0] = '\0';
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    if (file) fclose(file);
}

zonal_status zonal__host_describe(int index, zonal_device_info *info) {
    char text[64];
    unsigned long long kilobytes = 0;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    (void)index;
    find_value("/proc/cpuinfo", "model name", sizeof info->model, info->model);
    find_value("/proc/meminfo", "MemAvailable", sizeof text, text);
    if (pages > 0 && page > 0) info->total_memory = (uint64_t)pages * (uint64_t)page;
    if (sscanf(text, "%llu", &kilobytes) == 1) info->free_memory = kilobytes * 1024;
    return ZONAL_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static zonal_status alloc_memory(const zonal__device *device, size_t bytes, const char *what,
                                 void **out) {
    (void)device;
    if (bytes > PTRDIFF_MAX) {
        *out = NULL;
        return ZONAL_FAIL(ZONAL_MEMORY, "%s is more than can be addressed", what);
    }
    return zonal__alloc((int64_t)bytes, 1, what, out);
}

static void free_memory(const zonal__device *device, void *memory) {
    (void)device;
    zonal__free(memory);
}

static zonal_status copy(const zonal__device *device, void *to, const void *from, size_t bytes) {
    (void)device;
    if (bytes) memcpy(to, from, bytes);
    return ZONAL_OK;
}

static zonal_status memory(const zonal__device *device, size_t *free_bytes, size_t *all_bytes) {
    zonal_device_info info = {.size = sizeof info};
    ZONAL_TRY(zonal__host_describe(device->index, &info));
    *free_bytes = (size_t)info.free_memory;
    *all_bytes = (size_t)info.total_memory;
    return ZONAL_OK;
}

static zonal_status alloc_pinned(const zonal__device *device, size_t bytes, void **out) {
    return alloc_memory(device, bytes, "a buffer", out);
}

/* ---- streams: what is put on one is done at once ----------------------------------------------
 */

static zonal_status nothing(const zonal__device *device) {
    (void)device;
    return ZONAL_OK;
}

static zonal_status make_nothing(const zonal__device *device, void **made) {
    (void)device;
    *made = NULL;
    return ZONAL_OK;
}

static void drop_nothing(const zonal__device *device, void *made) {
    (void)device, (void)made;
}

static zonal_status copy_on(const zonal__device *device, void *stream, void *to, const void *from,
                            size_t bytes) {
    (void)stream;
    return copy(device, to, from, bytes);
}

static zonal_status mark(const zonal__device *device, void *event, void *stream) {
    (void)device, (void)event, (void)stream;
    return ZONAL_OK;
}

static zonal_status wait_for(const zonal__device *device, void *event) {
    (void)device, (void)event;
    return ZONAL_OK;
}

static zonal_status always_done(const zonal__device *device, void *event, int *done) {
    (void)device, (void)event;
    *done = 1;
    return ZONAL_OK;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static zonal_status time_work(const zonal__device *device,
                              zonal_status (*enqueue)(void *context, void *stream), void *context,
                              int graph, int warm, int runs, double *microseconds) {
    double *times;
    zonal_status status = ZONAL_OK;
    (void)device, (void)graph;
    *microseconds = 0;
    ZONAL_TRY(ZONAL_NEW(&times, runs, "the times"));
    for (int i = -warm - 1; i < runs && status == ZONAL_OK; i++) {
        double begin = now();
        status = enqueue(context, NULL);
        if (i >= 0) times[i] = now() - begin;
    }
    qsort(times, (size_t)runs, sizeof *times, compare);
    if (status == ZONAL_OK) *microseconds = times[runs / 2];
    zonal__free(times);
    return status;
}

const zonal__runtime zonal__host_runtime = {.alloc = alloc_memory,
                                            .free = free_memory,
                                            .write = copy,
                                            .read = copy,
                                            .memory = memory,
                                            .synchronise = nothing,
                                            .pinned_alloc = alloc_pinned,
                                            .pinned_free = free_memory,
                                            .stream_create = make_nothing,
                                            .stream_destroy = drop_nothing,
                                            .write_on = copy_on,
                                            .copy_on = copy_on,
                                            .event_create = make_nothing,
                                            .event_destroy = drop_nothing,
                                            .event_record = mark,
                                            .event_hold = mark,
                                            .event_wait = wait_for,
                                            .time = time_work,
                                            .event_done = always_done};
