/*
 * Devices: one GPU, or the host. Everything above src/backend that holds arrays or computes takes a
 * "const zonal__device *" and asks it for memory, streams and tables; nobody asks which backend it
 * is. What a layer above must know about a kind of device is data or a capability of its backend
 * (backend/backend.h): is_host, precisions, an operation that is NULL.
 *
 * To port zonal to another kind of device, fill a zonal__backend with a zonal__runtime in a folder
 * of its own, and a zonal__training_tables (backend/training/tables.h) if networks are to train
 * there:
 *
 *   - every function finds its device in its first argument, or in the problem's or spec's
 *     "device", and leaves the calling thread's idea of a current device as it was;
 *   - a stream, event or graph is a pointer of the backend's own; NULL is the default stream;
 *   - run, forward, step and their like only put work on the stream, take no memory and can be
 *     captured in a graph; what was wrong with their input is noted on the device and told by
 *     check or status;
 *   - the same work gives the same bits every time.
 */
#ifndef ZONAL_BACKEND_DEVICE_H
#define ZONAL_BACKEND_DEVICE_H

#include <stddef.h>

#include "backend/backend.h"
#include "core/error.h"

/* Found once a process and never released, so it may be kept and compared by address. */
struct zonal__device {
    const zonal__backend *backend;
    int index;                    /* among the devices of its backend */
    char name[ZONAL_DEVICE_NAME]; /* "cpu", "cuda:1" */
};

/* The device of a name: "" and "cpu" the processor, "cuda" and "cuda:0" the first GPU, "ref" the
 * oracle. Thread-safe. ZONAL_ARGUMENT for an invalid name, ZONAL_UNSUPPORTED for a backend that was
 * not built, ZONAL_DEVICE for a device that this machine does not have; the sentence says what
 * there is. *out is NULL on failure. */
zonal_status zonal__device_open(const char *name, const zonal__device **out);
/* The same, and for "auto" the first device that is not the host, else the CPU. */
zonal_status zonal__device_choose(const char *name, const zonal__device **out);
const zonal__device *zonal__device_cpu(void); /* always there */
const zonal__device *zonal__device_ref(void);

/* "device", or the CPU for NULL: what options that name no device mean. */
const zonal__device *zonal__device_or_cpu(const zonal__device *device);

/* Adds a backend of the program's own, for tests, before its devices are opened. The record must
 * stay. ZONAL_ARGUMENT for a name that is taken. */
zonal_status zonal__device_register(const zonal__backend *backend);

/* The i-th backend that this build has or could have had, the oracle left out; NULL past the last.
 */
const char *zonal__backend_known(int i);

/* Model, memory and so on; info->size need not be set. */
zonal_status zonal__device_describe(const zonal__device *device, zonal_device_info *info);

/* An operation of the device; ZONAL_UNSUPPORTED, with a sentence, where it has none. */
zonal_status zonal__device_operation(const zonal__device *device, zonal__operation operation,
                                     const zonal__operation_table **table);

/* ---- what a backend can do with its devices: memory, streams, graphs ------------------------- */

typedef struct zonal__runtime {
    /* Zeroed, aligned to 64 bytes. ZONAL_MEMORY names "what", how much it needs and, on a device,
     * how much is free. */
    zonal_status (*alloc)(const zonal__device *device, size_t bytes, const char *what, void **out);
    void (*free)(const zonal__device *device, void *memory); /* accepts NULL */
    /* From and to the host; they wait for the device's work before, and until they are done. */
    zonal_status (*write)(const zonal__device *device, void *to, const void *host, size_t bytes);
    zonal_status (*read)(const zonal__device *device, void *host, const void *from, size_t bytes);
    /* Bytes of memory: free now, and in all. */
    zonal_status (*memory)(const zonal__device *device, size_t *free_bytes, size_t *all_bytes);
    /* Waits until all work of the device is done. */
    zonal_status (*synchronise)(const zonal__device *device);

    /* Host memory that the device can read while the processor works. */
    zonal_status (*pinned_alloc)(const zonal__device *device, size_t bytes, void **out);
    void (*pinned_free)(const zonal__device *device, void *memory); /* accepts NULL */

    zonal_status (*stream_create)(const zonal__device *device, void **stream);
    void (*stream_destroy)(const zonal__device *device, void *stream); /* accepts NULL */
    /* Puts a copy on a stream; host memory must be pinned, and stay as it is until the copy is
     * done. */
    zonal_status (*write_on)(const zonal__device *device, void *stream, void *to, const void *host,
                             size_t bytes);
    /* The same from device memory to device memory; it can be captured in a graph. */
    zonal_status (*copy_on)(const zonal__device *device, void *stream, void *to, const void *from,
                            size_t bytes);

    /* A mark in a stream: later work of another stream, or the processor, can wait for it. */
    zonal_status (*event_create)(const zonal__device *device, void **event);
    void (*event_destroy)(const zonal__device *device, void *event); /* accepts NULL */
    zonal_status (*event_record)(const zonal__device *device, void *event, void *stream);
    zonal_status (*event_hold)(const zonal__device *device, void *event, void *stream);
    zonal_status (*event_wait)(const zonal__device *device, void *event);

    /* A graph: work that is put on the stream between begin and end is noted and not done; launch
     * puts all of it on a stream at once, any number of times. The work's pointers and plain
     * arguments are frozen, what they point to is not. Between begin and end this thread must not
     * wait for the device nor take memory of it (then end fails); other threads may. End ends what
     * begin began, in every case; *graph is NULL on failure. All four NULL: no graphs. */
    zonal_status (*graph_begin)(const zonal__device *device, void *stream);
    zonal_status (*graph_end)(const zonal__device *device, void *stream, void **graph);
    zonal_status (*graph_launch)(const zonal__device *device, void *graph, void *stream);
    void (*graph_destroy)(const zonal__device *device, void *graph); /* accepts NULL */

    /* The median time in microseconds of what "enqueue" puts on a stream, of "runs" times after
     * "warm" more; with graph = 1 recorded once and replayed. */
    zonal_status (*time)(const zonal__device *device,
                         zonal_status (*enqueue)(void *context, void *stream), void *context,
                         int graph, int warm, int runs, double *microseconds);

    /* Whether what was before the event is done, without waiting for it. */
    zonal_status (*event_done)(const zonal__device *device, void *event, int *done);

    /* For what works on devices and is no part of zonal: the library of collective calls between
     * ranks that takes this backend's memory and streams, "nccl"; NULL: there is none, and nothing
     * below. */
    const char *collectives;
    /* Such libraries take the calling thread's current device: makes it this one. "before" is for
     * leave, which goes back to the one before. */
    zonal_status (*enter)(const zonal__device *device, int *before);
    void (*leave)(int before);
    /* A text that no other device of the machine has, whatever processes call it. */
    zonal_status (*identify)(const zonal__device *device, char *out, size_t size);
} zonal__runtime;

/* For the backends of the host: one device, the processor, whose streams do everything at once. */
zonal_status zonal__host_count(int *count);
zonal_status zonal__host_describe(int index, zonal_device_info *info);
extern const zonal__runtime zonal__host_runtime;

/* ---- the same by device ---------------------------------------------------------------------- */

static inline int zonal__device_is_host(const zonal__device *device) {
    return device->backend->is_host;
}

static inline zonal_status zonal__device_alloc(const zonal__device *device, size_t bytes,
                                               const char *what, void **out) {
    return device->backend->runtime->alloc(device, bytes, what, out);
}

static inline void zonal__device_free(const zonal__device *device, void *memory) {
    device->backend->runtime->free(device, memory);
}

static inline zonal_status zonal__device_write(const zonal__device *device, void *to,
                                               const void *host, size_t bytes) {
    return device->backend->runtime->write(device, to, host, bytes);
}

static inline zonal_status zonal__device_read(const zonal__device *device, void *host,
                                              const void *from, size_t bytes) {
    return device->backend->runtime->read(device, host, from, bytes);
}

static inline zonal_status zonal__device_memory(const zonal__device *device, size_t *free_bytes,
                                                size_t *all_bytes) {
    return device->backend->runtime->memory(device, free_bytes, all_bytes);
}

static inline zonal_status zonal__device_synchronise(const zonal__device *device) {
    return device->backend->runtime->synchronise(device);
}

static inline zonal_status zonal__device_pinned_alloc(const zonal__device *device, size_t bytes,
                                                      void **out) {
    return device->backend->runtime->pinned_alloc(device, bytes, out);
}

static inline void zonal__device_pinned_free(const zonal__device *device, void *memory) {
    device->backend->runtime->pinned_free(device, memory);
}

static inline zonal_status zonal__device_stream_create(const zonal__device *device, void **stream) {
    return device->backend->runtime->stream_create(device, stream);
}

static inline void zonal__device_stream_destroy(const zonal__device *device, void *stream) {
    device->backend->runtime->stream_destroy(device, stream);
}

static inline zonal_status zonal__device_write_on(const zonal__device *device, void *stream,
                                                  void *to, const void *host, size_t bytes) {
    return device->backend->runtime->write_on(device, stream, to, host, bytes);
}

static inline zonal_status zonal__device_copy_on(const zonal__device *device, void *stream,
                                                 void *to, const void *from, size_t bytes) {
    return device->backend->runtime->copy_on(device, stream, to, from, bytes);
}

static inline zonal_status zonal__device_event_create(const zonal__device *device, void **event) {
    return device->backend->runtime->event_create(device, event);
}

static inline void zonal__device_event_destroy(const zonal__device *device, void *event) {
    device->backend->runtime->event_destroy(device, event);
}

static inline zonal_status zonal__device_event_record(const zonal__device *device, void *event,
                                                      void *stream) {
    return device->backend->runtime->event_record(device, event, stream);
}

/* The stream waits. */
static inline zonal_status zonal__device_event_hold(const zonal__device *device, void *event,
                                                    void *stream) {
    return device->backend->runtime->event_hold(device, event, stream);
}

/* The processor waits. */
static inline zonal_status zonal__device_event_wait(const zonal__device *device, void *event) {
    return device->backend->runtime->event_wait(device, event);
}

static inline zonal_status zonal__device_event_done(const zonal__device *device, void *event,
                                                    int *done) {
    return device->backend->runtime->event_done(device, event, done);
}

static inline int zonal__device_has_graphs(const zonal__device *device) {
    return device->backend->runtime->graph_begin != NULL;
}

static inline zonal_status zonal__device_graph_begin(const zonal__device *device, void *stream) {
    return device->backend->runtime->graph_begin(device, stream);
}

static inline zonal_status zonal__device_graph_end(const zonal__device *device, void *stream,
                                                   void **graph) {
    return device->backend->runtime->graph_end(device, stream, graph);
}

static inline zonal_status zonal__device_graph_launch(const zonal__device *device, void *graph,
                                                      void *stream) {
    return device->backend->runtime->graph_launch(device, graph, stream);
}

static inline void zonal__device_graph_destroy(const zonal__device *device, void *graph) {
    if (zonal__device_has_graphs(device)) device->backend->runtime->graph_destroy(device, graph);
}

static inline zonal_status zonal__device_time(const zonal__device *device,
                                              zonal_status (*enqueue)(void *context, void *stream),
                                              void *context, int graph, int warm, int runs,
                                              double *microseconds) {
    return device->backend->runtime->time(device, enqueue, context, graph, warm, runs,
                                          microseconds);
}

#endif
