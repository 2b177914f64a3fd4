/*
 * Device memory, streams and time for the layers that hold device data without knowing CUDA: the
 * feeding of pictures, tests, the program and its benchmarks. Without CUDA every call fails with
 * ZONAL_UNSUPPORTED. A stream is a cudaStream_t, an event a cudaEvent_t; NULL is the default
 * stream.
 */
#ifndef ZONAL_BACKEND_DEVICE_H
#define ZONAL_BACKEND_DEVICE_H

#include <stddef.h>

#include "core/error.h"

/* ZONAL_OK where a CUDA device can be used; else the reason why not. */
zonal_status zonal__device_available(void);
/* The device's name, at most 127 letters. */
zonal_status zonal__device_name(char out[128]);

/* Bytes of device memory: free now, and in all. */
zonal_status zonal__device_memory(size_t *free_bytes, size_t *all_bytes);

/* Zeroed. ZONAL_MEMORY says what needs how much, and how much is free. */
zonal_status zonal__device_alloc(size_t bytes, const char *what, void **out);
void zonal__device_free(void *memory);
/* Both are done when they return, for every stream. */
zonal_status zonal__device_write(void *device, const void *host, size_t bytes);
zonal_status zonal__device_read(void *host, const void *device, size_t bytes);
zonal_status zonal__device_synchronise(void);

/* Host memory that the device can read while the processor works. */
zonal_status zonal__device_pinned_alloc(size_t bytes, void **out);
void zonal__device_pinned_free(void *memory);

zonal_status zonal__device_stream_create(void **stream);
void zonal__device_stream_destroy(void *stream); /* accepts NULL */
/* Puts a copy on a stream; host memory must be pinned, and stay as it is until the copy is done. */
zonal_status zonal__device_write_on(void *stream, void *device, const void *host, size_t bytes);
/* The same from device memory to device memory. */
zonal_status zonal__device_copy_on(void *stream, void *to, const void *from, size_t bytes);

/* A mark in a stream: later work of another stream, or the processor, can wait for it. */
zonal_status zonal__device_event_create(void **event);
void zonal__device_event_destroy(void *event); /* accepts NULL */
zonal_status zonal__device_event_record(void *event, void *stream);
zonal_status zonal__device_event_hold(void *event, void *stream); /* the stream waits */
zonal_status zonal__device_event_wait(void *event);               /* the processor waits */

/* A graph: work that is put on the stream between begin and end is noted and not done; launch puts
 * all of it on a stream at once, as often as one likes. The work's pointers and plain arguments are
 * frozen, what they point to is not. Between begin and end this thread must not wait for the device
 * nor take memory of it (then end fails); other threads may. */
zonal_status zonal__device_graph_begin(void *stream);
/* Ends what begin began, in every case; *graph is NULL on failure. */
zonal_status zonal__device_graph_end(void *stream, void **graph);
zonal_status zonal__device_graph_launch(void *graph, void *stream);
void zonal__device_graph_destroy(void *graph); /* accepts NULL */

/* Records what "enqueue" puts on a stream in a CUDA graph, replays it "runs" times after "warm"
 * more, and gives the median time of one replay in microseconds. With graph = 0 the calls are timed
 * as they are. */
zonal_status zonal__device_time(zonal_status (*enqueue)(void *context, void *stream), void *context,
                                int graph, int warm, int runs, double *microseconds);

/* Layers on CUDA measure which algorithm is the fastest for their shape, once a process. These
 * keep what was measured in a file, so that a resumed run computes the same bits: read before the
 * first layer is made, write after the last. A file that is not there, or of another GPU or version
 * of the libraries, reads as an empty one; ZONAL_FORMAT for one that is damaged. */
zonal_status zonal__device_choices_read(const char *path);
zonal_status zonal__device_choices_write(const char *path);

#endif
