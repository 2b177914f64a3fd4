/* GPUs as devices: zonal__cuda_ functions act on the current one, those of the runtime on theirs.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/cuda/common.cuh"

zonal_status zonal__cuda_count(int *count) {
    *count = 0;
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaSuccess && *count > 0) return ZONAL_OK;
    cudaGetLastError();
    *count = 0;
    return ZONAL_FAIL(ZONAL_DEVICE, "no CUDA device is available (%s); use the device cpu",
                      error == cudaSuccess ? "none was found" : cudaGetErrorString(error));
}

zonal_status zonal__cuda_describe(int index, zonal_device_info *info) {
    cudaDeviceProp properties;
    size_t free_bytes = 0, all_bytes = 0;
    zonal__cuda_on on(index);
    ZONAL_TRY(ZONAL_CUDA(cudaGetDeviceProperties(&properties, index)));
    snprintf(info->model, sizeof info->model, "%.127s", properties.name);
    info->compute_major = properties.major;
    info->compute_minor = properties.minor;
    ZONAL_TRY(ZONAL_CUDA(cudaMemGetInfo(&free_bytes, &all_bytes)));
    info->free_memory = free_bytes;
    info->total_memory = all_bytes;
    return ZONAL_OK;
}

zonal_status zonal__cuda_malloc(size_t bytes, const char *what, void **out) {
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

static zonal_status alloc_memory(const zonal__device *device, size_t bytes, const char *what,
                                 void **out) {
    zonal__cuda_on on(device->index);
    return zonal__cuda_malloc(bytes, what, out);
}

static void free_memory(const zonal__device *device, void *memory) {
    zonal__cuda_on on(device->index);
    cudaFree(memory);
}

/* CUDA refuses to wait for a device while any stream of it is captured, also in another thread. So
 * one thread waits until the other has its graph; a thread that captures is still refused. */
static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static thread_local int capturing;

/* Thread-local: what cannot be captured is refused in this thread, where it would be a fault, and
 * allowed in others, such as the workers of a loader that take pinned memory meanwhile. */
static zonal_status begin_capture(cudaStream_t stream) {
    pthread_mutex_lock(&capture_lock);
    zonal_status status =
        ZONAL_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    capturing = status == ZONAL_OK;
    if (!capturing) pthread_mutex_unlock(&capture_lock);
    return status;
}

static zonal_status end_capture(cudaStream_t stream, cudaGraph_t *graph) {
    zonal_status status = ZONAL_CUDA(cudaStreamEndCapture(stream, graph));
    if (capturing) pthread_mutex_unlock(&capture_lock);
    capturing = 0;
    return status;
}

/* A capture that is not ours (PyTorch's, in another thread) is over soon, too. */
static zonal_status wait_for_device(void) {
    const struct timespec moment = {0, 1000000};
    cudaError_t error;
    for (int milliseconds = 0;; milliseconds++) {
        if (!capturing) pthread_mutex_lock(&capture_lock);
        error = cudaDeviceSynchronize();
        if (!capturing) pthread_mutex_unlock(&capture_lock);
        if (error != cudaErrorStreamCaptureUnsupported || capturing || milliseconds == 10000) break;
        cudaGetLastError();
        nanosleep(&moment, NULL);
    }
    return zonal__cuda_status(error, "cudaDeviceSynchronize()", __FILE__, __LINE__);
}

zonal_status zonal__cuda_write(void *to, const void *host, size_t bytes) {
    ZONAL_TRY(wait_for_device());
    ZONAL_TRY(ZONAL_CUDA(cudaMemcpy(to, host, bytes, cudaMemcpyHostToDevice)));
    /* cudaMemcpy from ordinary memory may return before the bytes have arrived, and streams made by
     * stream_create do not wait for the default one. */
    return ZONAL_CUDA(cudaStreamSynchronize(NULL));
}

static zonal_status upload(const zonal__device *device, void *to, const void *host, size_t bytes) {
    zonal__cuda_on on(device->index);
    return zonal__cuda_write(to, host, bytes);
}

zonal_status zonal__cuda_read(void *host, const void *from, size_t bytes) {
    ZONAL_TRY(wait_for_device());
    return ZONAL_CUDA(cudaMemcpy(host, from, bytes, cudaMemcpyDeviceToHost));
}

static zonal_status download(const zonal__device *device, void *host, const void *from,
                             size_t bytes) {
    zonal__cuda_on on(device->index);
    return zonal__cuda_read(host, from, bytes);
}

static zonal_status synchronise(const zonal__device *device) {
    zonal__cuda_on on(device->index);
    return wait_for_device();
}

static zonal_status memory(const zonal__device *device, size_t *free_bytes, size_t *all_bytes) {
    zonal__cuda_on on(device->index);
    return ZONAL_CUDA(cudaMemGetInfo(free_bytes, all_bytes));
}

static zonal_status pinned_alloc(const zonal__device *device, size_t bytes, void **out) {
    zonal__cuda_on on(device->index);
    *out = NULL;
    return ZONAL_CUDA(cudaMallocHost(out, bytes ? bytes : 1));
}

static void pinned_free(const zonal__device *device, void *memory) {
    zonal__cuda_on on(device->index);
    cudaFreeHost(memory);
}

zonal_status zonal__cuda_open_stream(void **stream) {
    *stream = NULL;
    return ZONAL_CUDA(cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
}

static zonal_status stream_create(const zonal__device *device, void **stream) {
    zonal__cuda_on on(device->index);
    return zonal__cuda_open_stream(stream);
}

static void stream_destroy(const zonal__device *device, void *stream) {
    zonal__cuda_on on(device->index);
    if (stream) cudaStreamDestroy((cudaStream_t)stream);
}

static zonal_status write_on(const zonal__device *device, void *stream, void *to, const void *host,
                             size_t bytes) {
    zonal__cuda_on on(device->index);
    return ZONAL_CUDA(
        cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, (cudaStream_t)stream));
}

static zonal_status copy_on(const zonal__device *device, void *stream, void *to, const void *from,
                            size_t bytes) {
    zonal__cuda_on on(device->index);
    return ZONAL_CUDA(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream));
}

static zonal_status graph_begin(const zonal__device *device, void *stream) {
    zonal__cuda_on on(device->index);
    return begin_capture((cudaStream_t)stream);
}

static zonal_status graph_end(const zonal__device *device, void *stream, void **graph) {
    zonal__cuda_on on(device->index);
    cudaGraph_t captured = NULL;
    cudaGraphExec_t replay = NULL;
    *graph = NULL;
    ZONAL_TRY(end_capture((cudaStream_t)stream, &captured));
    zonal_status status = ZONAL_CUDA(cudaGraphInstantiate(&replay, captured, 0));
    cudaGraphDestroy(captured);
    if (status == ZONAL_OK) *graph = replay;
    return status;
}

static zonal_status graph_launch(const zonal__device *device, void *graph, void *stream) {
    zonal__cuda_on on(device->index);
    return ZONAL_CUDA(cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream));
}

static void graph_destroy(const zonal__device *device, void *graph) {
    zonal__cuda_on on(device->index);
    if (graph) cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

static zonal_status event_create(const zonal__device *device, void **event) {
    zonal__cuda_on on(device->index);
    *event = NULL;
    return ZONAL_CUDA(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming));
}

static void event_destroy(const zonal__device *device, void *event) {
    zonal__cuda_on on(device->index);
    if (event) cudaEventDestroy((cudaEvent_t)event);
}

static zonal_status event_record(const zonal__device *device, void *event, void *stream) {
    zonal__cuda_on on(device->index);
    return ZONAL_CUDA(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}

static zonal_status event_hold(const zonal__device *device, void *event, void *stream) {
    zonal__cuda_on on(device->index);
    return ZONAL_CUDA(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
}

static zonal_status event_wait(const zonal__device *device, void *event) {
    zonal__cuda_on on(device->index);
    return ZONAL_CUDA(cudaEventSynchronize((cudaEvent_t)event));
}

static zonal_status event_done(const zonal__device *device, void *event, int *done) {
    zonal__cuda_on on(device->index);
    cudaError_t state = cudaEventQuery((cudaEvent_t)event);
    *done = state != cudaErrorNotReady;
    return *done ? ZONAL_CUDA(state) : ZONAL_OK;
}

static zonal_status enter(const zonal__device *device, int *before) {
    ZONAL_TRY(ZONAL_CUDA(cudaGetDevice(before)));
    return ZONAL_CUDA(cudaSetDevice(device->index));
}

static void leave(int before) {
    cudaSetDevice(before);
}

static zonal_status identify(const zonal__device *device, char *out, size_t size) {
    return ZONAL_CUDA(cudaDeviceGetPCIBusId(out, (int)size, device->index));
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
    ZONAL_TRY(begin_capture(t->stream));
    zonal_status status = enqueue(context, t->stream);
    zonal_status ended = end_capture(t->stream, &t->graph);
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

zonal_status zonal__cuda_time(zonal_status (*enqueue)(void *context, void *stream), void *context,
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

static zonal_status time_work(const zonal__device *device,
                              zonal_status (*enqueue)(void *context, void *stream), void *context,
                              int graph, int warm, int runs, double *microseconds) {
    zonal__cuda_on on(device->index);
    return zonal__cuda_time(enqueue, context, graph, warm, runs, microseconds);
}

/* In the order of zonal__runtime. */
extern "C" const zonal__runtime zonal__cuda_runtime = {
    alloc_memory, free_memory,   upload,        download,       memory,     synchronise,
    pinned_alloc, pinned_free,   stream_create, stream_destroy, write_on,   copy_on,
    event_create, event_destroy, event_record,  event_hold,     event_wait, graph_begin,
    graph_end,    graph_launch,  graph_destroy, time_work,      event_done, "nccl",
    enter,        leave,         identify};
