/* Functions, handles, errors and the autotuning cache of the process: nn_libraries.cuh. */
#include "backend/cuda/training/nn_libraries.cuh"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

extern "C" {
#include "backend/device.h"
#include "core/shared_library.h"
}

enum { MOST_DEVICES = 64 };

static struct {
    pthread_mutex_t cudnn_lock; /* for calls with a cuDNN handle */
    pthread_mutex_t lock;       /* for all that follows, and for filling the tables */
    int opened;                 /* 1: both tables are filled */
    cudnnHandle_t cudnn[MOST_DEVICES];
    cublasLtHandle_t lt[MOST_DEVICES];
    zonal__autotune_cache *cache[MOST_DEVICES]; /* NULL: none yet */
} process = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, 0, {}, {}, {}};

/* ---- functions ------------------------------------------------------------------------------- */

zonal__cudnn_functions zonal__cudnn;
zonal__lt_functions zonal__lt;

static const char remedy[] =
    "install it with the CUDA toolkit, or name its folder in LD_LIBRARY_PATH; losses, k-NN and all "
    "of the device cpu do without it";

static zonal_status open_cudnn(void) {
    static const char *const names[] = {"libcudnn.so.9", NULL};
    static const zonal__shared_library library = {"cuDNN 9, which networks on CUDA use,", names,
                                                  ZONAL_CUDNN_FOLDER, remedy};
    void *handle;
    ZONAL_TRY(zonal__shared_library_open(&library, &handle));
#define FIND(name)                                                                                 \
    ZONAL_TRY(zonal__shared_library_function(&library, handle, #name, &zonal__cudnn.name));
    ZONAL_CUDNN_FUNCTIONS(FIND)
#undef FIND
    return ZONAL_OK;
}

/* Of the toolkit's version alone: its structs are opaque, and their sizes are the headers'. */
static zonal_status open_lt(void) {
#define TEXT(name) #name
#define NAME(name) TEXT(name)
    static const char *const names[] = {"libcublasLt.so." NAME(CUBLAS_VER_MAJOR), NULL};
    static const zonal__shared_library library = {"cuBLASLt, which networks on CUDA use,", names,
                                                  ZONAL_CUDA_FOLDER, remedy};
    void *handle;
    ZONAL_TRY(zonal__shared_library_open(&library, &handle));
#define FIND(name)                                                                                 \
    ZONAL_TRY(zonal__shared_library_function(&library, handle, #name, &zonal__lt.name));
    ZONAL_LT_FUNCTIONS(FIND)
#undef FIND
    return ZONAL_OK;
}

zonal_status zonal__libraries_open(void) {
    zonal_status status = ZONAL_OK;
    pthread_mutex_lock(&process.lock);
    if (!process.opened) {
        status = open_cudnn();
        if (status == ZONAL_OK) status = open_lt();
        process.opened = status == ZONAL_OK;
    }
    pthread_mutex_unlock(&process.lock);
    return status;
}

/* ---- errors ---------------------------------------------------------------------------------- */

zonal_status zonal__cudnn_status(cudnnStatus_t status, const char *call, const char *file,
                                 int line) {
    if (status == CUDNN_STATUS_SUCCESS) return ZONAL_OK;
    zonal_status ours = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED
                            ? ZONAL_UNSUPPORTED
                            : ZONAL_DEVICE;
    if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        ours = ZONAL_MEMORY;
    return zonal__fail(ours, file, line, "cuDNN failed: %s (in %s)",
                       zonal__cudnn.cudnnGetErrorString(status), call);
}

zonal_status zonal__lt_status(cublasStatus_t status, const char *call, const char *file, int line) {
    if (status == CUBLAS_STATUS_SUCCESS) return ZONAL_OK;
    zonal_status ours = status == CUBLAS_STATUS_NOT_SUPPORTED  ? ZONAL_UNSUPPORTED
                        : status == CUBLAS_STATUS_ALLOC_FAILED ? ZONAL_MEMORY
                                                               : ZONAL_DEVICE;
    return zonal__fail(ours, file, line, "cuBLASLt failed: %s (in %s)",
                       zonal__lt.cublasLtGetStatusString(status), call);
}

/* ---- handles --------------------------------------------------------------------------------- */

static zonal_status current_device(int *device) {
    ZONAL_TRY(ZONAL_CUDA(cudaGetDevice(device)));
    if (*device < 0 || *device >= MOST_DEVICES)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED, "networks run on the first %d GPUs, not on number %d",
                          MOST_DEVICES, *device);
    return ZONAL_OK;
}

zonal_status zonal__libraries_cudnn(cudnnHandle_t *out) {
    int device;
    zonal_status status = ZONAL_OK;
    *out = NULL;
    ZONAL_TRY(zonal__libraries_open());
    ZONAL_TRY(current_device(&device));
    pthread_mutex_lock(&process.lock);
    if (!process.cudnn[device]) {
        status = ZONAL_CUDNN(cudnnCreate(&process.cudnn[device]));
        if (status != ZONAL_OK) process.cudnn[device] = NULL;
    }
    *out = process.cudnn[device];
    pthread_mutex_unlock(&process.lock);
    return status;
}

zonal_status zonal__libraries_lt(cublasLtHandle_t *out) {
    int device;
    zonal_status status = ZONAL_OK;
    *out = NULL;
    ZONAL_TRY(zonal__libraries_open());
    ZONAL_TRY(current_device(&device));
    pthread_mutex_lock(&process.lock);
    if (!process.lt[device]) {
        status = ZONAL_LT(cublasLtCreate(&process.lt[device]));
        if (status != ZONAL_OK) process.lt[device] = NULL;
    }
    *out = process.lt[device];
    pthread_mutex_unlock(&process.lock);
    return status;
}

void zonal__libraries_lock(void) {
    pthread_mutex_lock(&process.cudnn_lock);
}

void zonal__libraries_unlock(void) {
    pthread_mutex_unlock(&process.cudnn_lock);
}

/* ---- the autotuning cache -------------------------------------------------------------------- */

/* That of the current device, with "lock" held. GPUs of one machine may differ. */
static zonal_status cache_here(zonal__autotune_cache **out) {
    int device;
    void *memory;
    *out = NULL;
    ZONAL_TRY(current_device(&device));
    if (!process.cache[device]) {
        ZONAL_TRY(zonal__alloc(1, sizeof(zonal__autotune_cache), "the autotuning cache", &memory));
        process.cache[device] = (zonal__autotune_cache *)memory;
    }
    *out = process.cache[device];
    return ZONAL_OK;
}

int zonal__libraries_find(const char *key, char text[ZONAL__AUTOTUNE_TEXT]) {
    zonal__autotune_cache *cache;
    pthread_mutex_lock(&process.lock);
    const char *found =
        cache_here(&cache) == ZONAL_OK ? zonal__autotune_cache_find(cache, key) : NULL;
    if (found) memcpy(text, found, strlen(found) + 1);
    pthread_mutex_unlock(&process.lock);
    return found != NULL;
}

void zonal__libraries_put(const char *key, const char *text) {
    zonal__autotune_cache *cache;
    pthread_mutex_lock(&process.lock);
    int kept = cache_here(&cache) == ZONAL_OK && zonal__autotune_cache_put(cache, key, text);
    pthread_mutex_unlock(&process.lock);
    if (!kept)
        zonal__log("the measured algorithm for %s is not kept: there is no room for it", key);
}

/* Where an entry holds: another GPU or library may number its algorithms differently. */
static zonal_status describe_machine(const zonal__device *device, char *out, size_t size) {
    zonal_device_info info;
    ZONAL_TRY(zonal__libraries_open());
    ZONAL_TRY(zonal__device_describe(device, &info));
    snprintf(out, size, "%s, cuDNN %zu, cuBLASLt %zu", info.model, zonal__cudnn.cudnnGetVersion(),
             zonal__lt.cublasLtGetVersion());
    return ZONAL_OK;
}

extern "C" zonal_status zonal__cuda_autotune_read(const zonal__device *device, const char *path) {
    char machine[256];
    zonal__autotune_cache *cache;
    zonal__cuda_on on(device);
    ZONAL_TRY(describe_machine(device, machine, sizeof machine));
    pthread_mutex_lock(&process.lock);
    zonal_status status = cache_here(&cache);
    if (status == ZONAL_OK) status = zonal__autotune_cache_read(cache, machine, path);
    pthread_mutex_unlock(&process.lock);
    return status;
}

extern "C" zonal_status zonal__cuda_autotune_write(const zonal__device *device, const char *path) {
    char machine[256];
    zonal__autotune_cache *cache;
    zonal__cuda_on on(device);
    ZONAL_TRY(describe_machine(device, machine, sizeof machine));
    pthread_mutex_lock(&process.lock);
    zonal_status status = cache_here(&cache);
    if (status == ZONAL_OK) status = zonal__autotune_cache_write(cache, machine, path);
    pthread_mutex_unlock(&process.lock);
    return status;
}
