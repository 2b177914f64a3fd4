#include <stdlib.h>

#include "backend/cuda/common.cuh"

extern "C" {
#include "backend/device.h"
}

zonal_status zonal__device_available(void) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return ZONAL_OK;
    cudaGetLastError();
    return ZONAL_FAIL(ZONAL_DEVICE, "no CUDA device is available (%s); use the device cpu",
                      error == cudaSuccess ? "none was found" : cudaGetErrorString(error));
}

zonal_status zonal__device_name(char out[128]) {
    cudaDeviceProp properties;
    ZONAL_TRY(zonal__device_available());
    ZONAL_TRY(ZONAL_CUDA(cudaGetDeviceProperties(&properties, 0)));
    int i = 0;
    for (; i < 127 && properties.name[i]; i++) out[i] = properties.name[i];
    out[i] = '\0';
    return ZONAL_OK;
}

zonal_status zonal__device_alloc(size_t bytes, const char *what, void **out) {
    size_t free_bytes = 0, all_bytes = 0;
    *out = NULL;
    if (cudaMalloc(out, bytes ? bytes : 1) != cudaSuccess) {
        cudaGetLastError();
        *out = NULL;
        (void)cudaMemGetInfo(&free_bytes, &all_bytes);
        return ZONAL_FAIL(
            ZONAL_MEMORY,
            "out of GPU memory: %s would take %.1f MiB, and %.1f of %.1f MiB are free", what,
            (double)bytes / 0x1p20, (double)free_bytes / 0x1p20, (double)all_bytes / 0x1p20);
    }
    ZONAL_TRY(ZONAL_CUDA(cudaMemset(*out, 0, bytes)));
    return ZONAL_CUDA(cudaStreamSynchronize(NULL)); /* other streams do not wait for the memset */
}

void zonal__device_free(void *memory) {
    cudaFree(memory);
}

zonal_status zonal__device_write(void *device, const void *host, size_t bytes) {
    ZONAL_TRY(ZONAL_CUDA(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice)));
    /* cudaMemcpy from ordinary memory may return before the bytes have arrived, and streams made by
     * zonal__device_stream_create do not wait for the default one. */
    return ZONAL_CUDA(cudaStreamSynchronize(NULL));
}

zonal_status zonal__device_read(void *host, const void *device, size_t bytes) {
    return ZONAL_CUDA(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

zonal_status zonal__device_synchronise(void) {
    return ZONAL_CUDA(cudaDeviceSynchronize());
}

zonal_status zonal__device_memory(size_t *free_bytes, size_t *all_bytes) {
    return ZONAL_CUDA(cudaMemGetInfo(free_bytes, all_bytes));
}

zonal_status zonal__device_pinned_alloc(size_t bytes, void **out) {
    *out = NULL;
    return ZONAL_CUDA(cudaMallocHost(out, bytes ? bytes : 1));
}

void zonal__device_pinned_free(void *memory) {
    cudaFreeHost(memory);
}

zonal_status zonal__device_stream_create(void **stream) {
    *stream = NULL;
    return ZONAL_CUDA(cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
}

void zonal__device_stream_destroy(void *stream) {
    if (stream) cudaStreamDestroy((cudaStream_t)stream);
}

zonal_status zonal__device_write_on(void *stream, void *device, const void *host, size_t bytes) {
    return ZONAL_CUDA(
        cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, (cudaStream_t)stream));
}

zonal_status zonal__device_copy_on(void *stream, void *to, const void *from, size_t bytes) {
    return ZONAL_CUDA(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream));
}

/* Thread-local: what cannot be captured is refused in this thread, where it would be a fault, and
 * allowed in others, such as the workers of a loader that take pinned memory meanwhile. */
zonal_status zonal__device_graph_begin(void *stream) {
    return ZONAL_CUDA(
        cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal));
}

zonal_status zonal__device_graph_end(void *stream, void **graph) {
    cudaGraph_t captured = NULL;
    cudaGraphExec_t replay = NULL;
    *graph = NULL;
    ZONAL_TRY(ZONAL_CUDA(cudaStreamEndCapture((cudaStream_t)stream, &captured)));
    zonal_status status = ZONAL_CUDA(cudaGraphInstantiate(&replay, captured, 0));
    cudaGraphDestroy(captured);
    if (status == ZONAL_OK) *graph = replay;
    return status;
}

zonal_status zonal__device_graph_launch(void *graph, void *stream) {
    return ZONAL_CUDA(cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream));
}

void zonal__device_graph_destroy(void *graph) {
    if (graph) cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

zonal_status zonal__device_event_create(void **event) {
    *event = NULL;
    return ZONAL_CUDA(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming));
}

void zonal__device_event_destroy(void *event) {
    if (event) cudaEventDestroy((cudaEvent_t)event);
}

zonal_status zonal__device_event_record(void *event, void *stream) {
    return ZONAL_CUDA(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}

zonal_status zonal__device_event_hold(void *event, void *stream) {
    return ZONAL_CUDA(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
}

zonal_status zonal__device_event_wait(void *event) {
    return ZONAL_CUDA(cudaEventSynchronize((cudaEvent_t)event));
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

typedef struct timer {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    cudaEvent_t begin, end;
} timer;

static zonal_status capture(timer *t, zonal_status (*enqueue)(void *, void *), void *context) {
    ZONAL_TRY(ZONAL_CUDA(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal)));
    zonal_status status = enqueue(context, t->stream);
    zonal_status ended = ZONAL_CUDA(cudaStreamEndCapture(t->stream, &t->graph));
    ZONAL_TRY(status);
    ZONAL_TRY(ended);
    return ZONAL_CUDA(cudaGraphInstantiate(&t->replay, t->graph, 0));
}

static zonal_status once(timer *t, zonal_status (*enqueue)(void *, void *), void *context) {
    if (t->replay) return ZONAL_CUDA(cudaGraphLaunch(t->replay, t->stream));
    return enqueue(context, t->stream);
}

static zonal_status measure(timer *t, zonal_status (*enqueue)(void *, void *), void *context,
                            int graph, int warm, int runs, float *times) {
    ZONAL_TRY(ZONAL_CUDA(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking)));
    ZONAL_TRY(ZONAL_CUDA(cudaEventCreate(&t->begin)));
    ZONAL_TRY(ZONAL_CUDA(cudaEventCreate(&t->end)));
    /* Once as it is: libraries load their kernels on first use, which a capture would refuse. */
    ZONAL_TRY(enqueue(context, t->stream));
    ZONAL_TRY(ZONAL_CUDA(cudaStreamSynchronize(t->stream)));
    if (graph) ZONAL_TRY(capture(t, enqueue, context));
    for (int i = 0; i < warm; i++) ZONAL_TRY(once(t, enqueue, context));
    for (int i = 0; i < runs; i++) {
        ZONAL_TRY(ZONAL_CUDA(cudaEventRecord(t->begin, t->stream)));
        ZONAL_TRY(once(t, enqueue, context));
        ZONAL_TRY(ZONAL_CUDA(cudaEventRecord(t->end, t->stream)));
        ZONAL_TRY(ZONAL_CUDA(cudaEventSynchronize(t->end)));
        ZONAL_TRY(ZONAL_CUDA(cudaEventElapsedTime(&times[i], t->begin, t->end)));
    }
    return ZONAL_OK;
}

zonal_status zonal__device_time(zonal_status (*enqueue)(void *context, void *stream), void *context,
                                int graph, int warm, int runs, double *microseconds) {
    timer t = {};
    void *memory;
    *microseconds = 0;
    ZONAL_TRY(zonal__alloc(runs, sizeof(float), "the times", &memory));
    float *times = (float *)memory;
    zonal_status status = measure(&t, enqueue, context, graph, warm, runs, times);
    if (status == ZONAL_OK) {
        qsort(times, (size_t)runs, sizeof *times, compare);
        *microseconds = 1e3 * times[runs / 2];
    }
    if (t.replay) cudaGraphExecDestroy(t.replay);
    if (t.graph) cudaGraphDestroy(t.graph);
    if (t.begin) cudaEventDestroy(t.begin);
    if (t.end) cudaEventDestroy(t.end);
    if (t.stream) cudaStreamDestroy(t.stream);
    zonal__free(times);
    return status;
}
