/*
 * Device memory and time for the layers that hold device data without knowing CUDA: tests, the
 * program and its benchmarks. Without CUDA every call fails with ZONAL_UNSUPPORTED.
 */
#ifndef ZONAL_BACKEND_DEVICE_H
#define ZONAL_BACKEND_DEVICE_H

#include <stddef.h>

#include "core/error.h"

/* ZONAL_OK where a CUDA device can be used; else the reason why not. */
zonal_status zonal__device_available(void);
/* The device's name, at most 127 letters. */
zonal_status zonal__device_name(char out[128]);

zonal_status zonal__device_alloc(size_t bytes, const char *what, void **out);
void zonal__device_free(void *memory);
zonal_status zonal__device_write(void *device, const void *host, size_t bytes);
zonal_status zonal__device_read(void *host, const void *device, size_t bytes);
zonal_status zonal__device_synchronise(void);

/* Records what "enqueue" puts on a stream in a CUDA graph, replays it "runs" times after "warm"
 * more, and gives the median time of one replay in microseconds. With graph = 0 the calls are timed
 * as they are. */
zonal_status zonal__device_time(zonal_status (*enqueue)(void *context, void *stream), void *context,
                                int graph, int warm, int runs, double *microseconds);

#endif
