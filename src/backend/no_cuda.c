/* What stands for CUDA in a build without it: every call says so. */
#ifndef ZONAL_HAVE_CUDA

#include "backend/backend.h"
#include "backend/device.h"

static zonal_status no_cuda(void) {
    return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                      "this build of zonal has no CUDA; build it with nvcc, or use the device "
                      "cpu");
}

const zonal__backend *zonal__backend_cuda(void) {
    (void)no_cuda();
    return NULL;
}

zonal_status zonal__device_available(void) {
    return no_cuda();
}

zonal_status zonal__device_name(char out[128]) {
    out[0] = '\0';
    return no_cuda();
}

zonal_status zonal__device_alloc(size_t bytes, const char *what, void **out) {
    (void)bytes, (void)what;
    *out = NULL;
    return no_cuda();
}

void zonal__device_free(void *memory) {
    (void)memory;
}

zonal_status zonal__device_write(void *device, const void *host, size_t bytes) {
    (void)device, (void)host, (void)bytes;
    return no_cuda();
}

zonal_status zonal__device_read(void *host, const void *device, size_t bytes) {
    (void)host, (void)device, (void)bytes;
    return no_cuda();
}

zonal_status zonal__device_synchronise(void) {
    return no_cuda();
}

zonal_status zonal__device_memory(size_t *free_bytes, size_t *all_bytes) {
    *free_bytes = *all_bytes = 0;
    return no_cuda();
}

zonal_status zonal__device_pinned_alloc(size_t bytes, void **out) {
    (void)bytes;
    *out = NULL;
    return no_cuda();
}

void zonal__device_pinned_free(void *memory) {
    (void)memory;
}

zonal_status zonal__device_stream_create(void **stream) {
    *stream = NULL;
    return no_cuda();
}

void zonal__device_stream_destroy(void *stream) {
    (void)stream;
}

zonal_status zonal__device_write_on(void *stream, void *device, const void *host, size_t bytes) {
    (void)stream, (void)device, (void)host, (void)bytes;
    return no_cuda();
}

zonal_status zonal__device_copy_on(void *stream, void *to, const void *from, size_t bytes) {
    (void)stream, (void)to, (void)from, (void)bytes;
    return no_cuda();
}

zonal_status zonal__device_graph_begin(void *stream) {
    (void)stream;
    return no_cuda();
}

zonal_status zonal__device_graph_end(void *stream, void **graph) {
    (void)stream;
    *graph = NULL;
    return no_cuda();
}

zonal_status zonal__device_graph_launch(void *graph, void *stream) {
    (void)graph, (void)stream;
    return no_cuda();
}

void zonal__device_graph_destroy(void *graph) {
    (void)graph;
}

zonal_status zonal__device_event_create(void **event) {
    *event = NULL;
    return no_cuda();
}

void zonal__device_event_destroy(void *event) {
    (void)event;
}

zonal_status zonal__device_event_record(void *event, void *stream) {
    (void)event, (void)stream;
    return no_cuda();
}

zonal_status zonal__device_event_hold(void *event, void *stream) {
    (void)event, (void)stream;
    return no_cuda();
}

zonal_status zonal__device_event_wait(void *event) {
    (void)event;
    return no_cuda();
}

zonal_status zonal__device_time(zonal_status (*enqueue)(void *context, void *stream), void *context,
                                int graph, int warm, int runs, double *microseconds) {
    (void)enqueue, (void)context, (void)graph, (void)warm, (void)runs;
    *microseconds = 0;
    return no_cuda();
}

#else
typedef int zonal__no_cuda_is_empty; /* a C file must declare something */
#endif
