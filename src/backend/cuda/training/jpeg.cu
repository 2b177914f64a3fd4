/*
 * JPEG by the decoders in hardware that data-centre GPUs have, through nvJPEG:
 * backend/training/jpeg.h. The library is opened when the first engine is made; what is used of its
 * interface, which has been the same since version 11, is declared here, so that its header is not
 * needed.
 */
#include <pthread.h>
#include <stdio.h>

#include "backend/cuda/common.cuh"

extern "C" {
#include "backend/training/jpeg.h"
#include "core/shared_library.h"
#include "core/thread.h"
}

/* ---- the library ----------------------------------------------------------------------------- */

enum { BACKEND_HARDWARE = 3, OUTPUT_RGB_INTERLEAVED = 5 };
enum {
    SUCCESS = 0,
    BAD_JPEG = 3,
    JPEG_NOT_SUPPORTED = 4,
    ALLOCATOR_FAILURE = 5,
    ARCH_MISMATCH = 7,
    NOT_IMPLEMENTED = 9,
    INCOMPLETE = 10
};

typedef struct nv_image {
    unsigned char *channel[4];
    size_t pitch[4];
} nv_image;

static struct {
    pthread_mutex_t lock;
    int opened;
    int (*create)(int backend, void *device_allocator, void *pinned_allocator, unsigned flags,
                  void **handle);
    int (*destroy)(void *handle);
    int (*state_create)(void *handle, void **state);
    int (*state_destroy)(void *state);
    int (*initialise)(void *handle, void *state, int count, int threads, int format);
    int (*decode)(void *handle, void *state, const unsigned char *const *files, const size_t *sizes,
                  nv_image *images, cudaStream_t stream);
} nvjpeg = {PTHREAD_MUTEX_INITIALIZER, 0, NULL, NULL, NULL, NULL, NULL, NULL};

static zonal_status find_functions(void) {
    static const char *const names[] = {"libnvjpeg.so.13", "libnvjpeg.so.12", NULL};
    static const zonal__shared_library library = {
        "nvJPEG, which --decoder device uses,", names, ZONAL_CUDA_FOLDER,
        "install it with the CUDA toolkit, or name its folder in LD_LIBRARY_PATH; --decoder host "
        "does without it"};
    const struct {
        const char *name;
        void *out;
    } functions[] = {{"nvjpegCreateEx", &nvjpeg.create},
                     {"nvjpegDestroy", &nvjpeg.destroy},
                     {"nvjpegJpegStateCreate", &nvjpeg.state_create},
                     {"nvjpegJpegStateDestroy", &nvjpeg.state_destroy},
                     {"nvjpegDecodeBatchedInitialize", &nvjpeg.initialise},
                     {"nvjpegDecodeBatched", &nvjpeg.decode}};
    void *handle;
    ZONAL_TRY(zonal__shared_library_open(&library, &handle));
    for (const auto &function : functions)
        ZONAL_TRY(zonal__shared_library_function(&library, handle, function.name, function.out));
    return ZONAL_OK;
}

static zonal_status open_library(void) {
    zonal_status status = ZONAL_OK;
    pthread_mutex_lock(&nvjpeg.lock);
    if (!nvjpeg.opened) status = find_functions();
    if (status == ZONAL_OK) nvjpeg.opened = 1;
    pthread_mutex_unlock(&nvjpeg.lock);
    return status;
}

static zonal_status as_status(int code, const char *what) {
    switch (code) {
    case SUCCESS:
        return ZONAL_OK;
    case BAD_JPEG:
    case JPEG_NOT_SUPPORTED:
    case INCOMPLETE:
        return ZONAL_FAIL(ZONAL_FORMAT, "nvJPEG cannot decode a file (%s: status %d)", what, code);
    case ALLOCATOR_FAILURE:
        return ZONAL_FAIL(ZONAL_MEMORY, "out of memory: nvJPEG (%s)", what);
    case ARCH_MISMATCH:
    case NOT_IMPLEMENTED:
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "this GPU has no JPEG decoder of its own (%s: status %d); use --decoder "
                          "host",
                          what, code);
    default:
        return ZONAL_FAIL(ZONAL_DEVICE, "nvJPEG failed (%s: status %d)", what, code);
    }
}

/* ---- a part of an engine: some files of a batch ------------------------------------------------
 */

/* One call keeps one of a GPU's decoders busy most of the time: calls in several threads keep all
 * of them busy. */
enum { PARTS = 4 };

typedef struct part {
    void *handle, *state;
    cudaStream_t stream;
    cudaEvent_t decoded;
    int64_t count, room; /* files that the state is made for; of the arrays */
    const unsigned char **files;
    size_t *sizes;
    nv_image *images;
    /* A call. */
    int device;
    int64_t first, wanted; /* of its files */
    const zonal__jpeg_file *all;
    zonal_status status;
    char sentence[256];
} part;

static void drop_arrays(part *p) {
    zonal__free(p->files);
    zonal__free(p->sizes);
    zonal__free(p->images);
    p->files = NULL;
    p->sizes = NULL;
    p->images = NULL;
    p->room = 0;
}

static void drop_part(part *p) {
    if (p->state) nvjpeg.state_destroy(p->state);
    if (p->handle) nvjpeg.destroy(p->handle);
    if (p->decoded) cudaEventDestroy(p->decoded);
    if (p->stream) cudaStreamDestroy(p->stream);
    drop_arrays(p);
}

/* What a decoder leaves to kernels is little, and must not wait for those of a training step. */
static zonal_status make_part(part *p) {
    int least, greatest;
    ZONAL_TRY(ZONAL_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
    ZONAL_TRY(
        ZONAL_CUDA(cudaStreamCreateWithPriority(&p->stream, cudaStreamNonBlocking, greatest)));
    ZONAL_TRY(ZONAL_CUDA(cudaEventCreateWithFlags(&p->decoded, cudaEventDisableTiming)));
    ZONAL_TRY(as_status(nvjpeg.create(BACKEND_HARDWARE, NULL, NULL, 0, &p->handle), "create"));
    return as_status(nvjpeg.state_create(p->handle, &p->state), "state");
}

static zonal_status make_room(part *p, int64_t count) {
    if (count <= p->room) return ZONAL_OK;
    drop_arrays(p);
    ZONAL_TRY(ZONAL_NEW(&p->files, count, "the files of a batch"));
    ZONAL_TRY(ZONAL_NEW(&p->sizes, count, "the files of a batch"));
    ZONAL_TRY(ZONAL_NEW(&p->images, count, "the images of a batch"));
    p->room = count;
    return ZONAL_OK;
}

/* The state knows how many files a batch has. */
static zonal_status set_count(part *p, int64_t count) {
    if (count == p->count) return ZONAL_OK;
    p->count = 0;
    ZONAL_TRY(make_room(p, count));
    ZONAL_TRY(as_status(
        nvjpeg.initialise(p->handle, p->state, (int)count, 1, OUTPUT_RGB_INTERLEAVED), "batch"));
    p->count = count;
    return ZONAL_OK;
}

static zonal_status decode_part(part *p) {
    ZONAL_TRY(set_count(p, p->wanted));
    for (int64_t i = 0; i < p->wanted; i++) {
        const zonal__jpeg_file *file = &p->all[p->first + i];
        p->files[i] = file->bytes;
        p->sizes[i] = file->size;
        p->images[i] = nv_image{};
        p->images[i].channel[0] = file->pixels;
        p->images[i].pitch[0] = 3 * (size_t)file->width;
    }
    ZONAL_TRY(as_status(
        nvjpeg.decode(p->handle, p->state, p->files, p->sizes, p->images, p->stream), "decode"));
    return ZONAL_CUDA(cudaEventRecord(p->decoded, p->stream));
}

static void *run_part(void *context) {
    part *p = static_cast<part *>(context);
    zonal__cuda_on on(p->device);
    p->status = decode_part(p);
    if (p->status != ZONAL_OK)
        snprintf(p->sentence, sizeof p->sentence, "%.255s", zonal_last_error()->message);
    return NULL;
}

/* ---- an engine ------------------------------------------------------------------------------- */

struct zonal__jpeg_engine {
    int device;
    cudaEvent_t begun;
    part parts[PARTS];
};

static void destroy(zonal__jpeg_engine *e) {
    if (!e) return;
    zonal__cuda_on on(e->device);
    for (part &p : e->parts) drop_part(&p);
    if (e->begun) cudaEventDestroy(e->begun);
    zonal__free(e);
}

static zonal_status fill(zonal__jpeg_engine *e) {
    ZONAL_TRY(ZONAL_CUDA(cudaEventCreateWithFlags(&e->begun, cudaEventDisableTiming)));
    for (part &p : e->parts) ZONAL_TRY(make_part(&p));
    return ZONAL_OK;
}

static zonal_status create(const zonal__device *device, zonal__jpeg_engine **out) {
    *out = NULL;
    ZONAL_TRY(open_library());
    ZONAL_TRY(ZONAL_NEW(out, 1, "a JPEG decoder"));
    (*out)->device = device ? device->index : 0;
    zonal__cuda_on on((*out)->device);
    zonal_status status = fill(*out);
    if (status == ZONAL_OK) return ZONAL_OK;
    destroy(*out);
    *out = NULL;
    return status;
}

/* Every part waits for what the stream has before, and the stream for every part. */
static zonal_status run_parts(zonal__jpeg_engine *e, cudaStream_t stream, int used) {
    pthread_t threads[PARTS];
    int started[PARTS] = {};
    zonal_status status = ZONAL_OK;
    for (int k = 0; k < used; k++)
        ZONAL_TRY(ZONAL_CUDA(cudaStreamWaitEvent(e->parts[k].stream, e->begun, 0)));
    for (int k = 1; k < used; k++)
        started[k] = zonal__thread_start(&threads[k], run_part, &e->parts[k]) == 0;
    for (int k = 0; k < used; k++)
        if (!started[k]) run_part(&e->parts[k]);
    for (int k = 0; k < used; k++) {
        part *p = &e->parts[k];
        if (started[k]) pthread_join(threads[k], NULL);
        if (p->status == ZONAL_OK)
            p->status = ZONAL_CUDA(cudaStreamWaitEvent(stream, p->decoded, 0));
        else
            (void)ZONAL_FAIL(p->status, "%s", p->sentence);
        if (status == ZONAL_OK) status = p->status;
    }
    return status;
}

static zonal_status decode(zonal__jpeg_engine *e, void *stream, int64_t count,
                           const zonal__jpeg_file *files) {
    zonal__cuda_on on(e->device);
    int used = count < PARTS ? (int)count : PARTS;
    if (count == 0) return ZONAL_OK;
    ZONAL_TRY(ZONAL_CUDA(cudaEventRecord(e->begun, static_cast<cudaStream_t>(stream))));
    for (int k = 0; k < used; k++) {
        part *p = &e->parts[k];
        p->device = e->device;
        p->all = files;
        p->first = count * k / used;
        p->wanted = count * (k + 1) / used - p->first;
        p->status = ZONAL_OK;
    }
    return run_parts(e, static_cast<cudaStream_t>(stream), used);
}

extern "C" const zonal__jpeg_table *zonal__jpeg_cuda(void) {
    static const zonal__jpeg_table table = {create, decode, destroy};
    return &table;
}
