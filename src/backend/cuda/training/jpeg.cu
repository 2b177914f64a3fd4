/*
 * JPEG by the decoders in hardware that data-centre GPUs have, through nvJPEG:
 * backend/training/jpeg.h. The library is opened when the first engine is made; what is used of its
 * interface, which has been the same since version 11, is declared here, so that its header is not
 * needed.
 */
#include <pthread.h>

#include "backend/cuda/common.cuh"

extern "C" {
#include "backend/training/jpeg.h"
#include "core/shared_library.h"
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

/* ---- an engine ------------------------------------------------------------------------------- */

struct zonal__jpeg_engine {
    int device;
    void *handle, *state;
    int64_t count, room; /* files that the state is made for; of the arrays */
    const unsigned char **files;
    size_t *sizes;
    nv_image *images;
};

static void destroy(zonal__jpeg_engine *e) {
    if (!e) return;
    zonal__cuda_on on(e->device);
    if (e->state) nvjpeg.state_destroy(e->state);
    if (e->handle) nvjpeg.destroy(e->handle);
    zonal__free(e->files);
    zonal__free(e->sizes);
    zonal__free(e->images);
    zonal__free(e);
}

static zonal_status fill(zonal__jpeg_engine *e) {
    ZONAL_TRY(as_status(nvjpeg.create(BACKEND_HARDWARE, NULL, NULL, 0, &e->handle), "create"));
    return as_status(nvjpeg.state_create(e->handle, &e->state), "state");
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

static zonal_status make_room(zonal__jpeg_engine *e, int64_t count) {
    if (count <= e->room) return ZONAL_OK;
    zonal__free(e->files);
    zonal__free(e->sizes);
    zonal__free(e->images);
    e->files = NULL;
    e->sizes = NULL;
    e->images = NULL;
    e->room = 0;
    ZONAL_TRY(ZONAL_NEW(&e->files, count, "the files of a batch"));
    ZONAL_TRY(ZONAL_NEW(&e->sizes, count, "the files of a batch"));
    ZONAL_TRY(ZONAL_NEW(&e->images, count, "the images of a batch"));
    e->room = count;
    return ZONAL_OK;
}

/* The state knows how many files a batch has. */
static zonal_status set_count(zonal__jpeg_engine *e, int64_t count) {
    if (count == e->count) return ZONAL_OK;
    e->count = 0;
    ZONAL_TRY(make_room(e, count));
    ZONAL_TRY(as_status(
        nvjpeg.initialise(e->handle, e->state, (int)count, 1, OUTPUT_RGB_INTERLEAVED), "batch"));
    e->count = count;
    return ZONAL_OK;
}

static zonal_status decode(zonal__jpeg_engine *e, void *stream, int64_t count,
                           const zonal__jpeg_file *files) {
    zonal__cuda_on on(e->device);
    if (count == 0) return ZONAL_OK;
    ZONAL_TRY(set_count(e, count));
    for (int64_t i = 0; i < count; i++) {
        e->files[i] = files[i].bytes;
        e->sizes[i] = files[i].size;
        e->images[i] = nv_image{};
        e->images[i].channel[0] = files[i].pixels;
        e->images[i].pitch[0] = 3 * (size_t)files[i].width;
    }
    return as_status(nvjpeg.decode(e->handle, e->state, e->files, e->sizes, e->images,
                                   static_cast<cudaStream_t>(stream)),
                     "decode");
}

extern "C" const zonal__jpeg_table *zonal__jpeg_cuda(void) {
    static const zonal__jpeg_table table = {create, decode, destroy};
    return &table;
}
