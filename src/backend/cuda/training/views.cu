/*
 * Views on CUDA: backend/training/views.h. Photographs in up to three kernels
 * (views_photograph.cuh, views_blur.cuh), each of which passes over the views that do not need it;
 * textures in one (views_texture.cuh). Parameters lie in device memory and are taken as they are:
 * whoever wrote them there has checked them (zonal__views_check_run).
 */
#include "backend/cuda/training/views.cuh"
#include "backend/cuda/training/views_blur.cuh"
#include "backend/cuda/training/views_photograph.cuh"
#include "backend/cuda/training/views_texture.cuh"

extern "C" {
#include "backend/device.h"
}

typedef void (*views_kernel)(views_args);

struct zonal__views {
    views_args args; /* all but what a run is given */
    const zonal__device *device;
    int64_t count;
    size_t element_size;
    views_kernel make, adjust, blur; /* in this order; NULL where there is nothing to do */
    cudaStream_t stream;
};

/* ---- create ---------------------------------------------------------------------------------- */

template <typename Out, int C>
static void choose_kernels(const zonal__views_spec *spec, zonal__views *views) {
    views->element_size = sizeof(Out);
    if (spec->kind == ZONAL__VIEW_TEXTURE) {
        views->make = make_textures<Out, C>;
        return;
    }
    views->make = make_photographs<Out, C>;
    views->adjust = adjust_photographs<Out, C>;
    if (views->args.shape.radius > 0) views->blur = blur_photographs<Out, C>;
}

static void choose_element(const zonal__views_spec *spec, zonal__views *views) {
    int grey = spec->channels == 1;
    if (spec->dtype == ZONAL_DTYPE_BF16)
        (grey ? choose_kernels<__nv_bfloat16, 1> : choose_kernels<__nv_bfloat16, 3>)(spec, views);
    else
        (grey ? choose_kernels<float, 1> : choose_kernels<float, 3>)(spec, views);
}

static zonal_status allocate(zonal__views *views) {
    views_args *args = &views->args;
    size_t at_once = (size_t)args->shape.at_once;
    void *memory;
    ZONAL_TRY(zonal__cuda_malloc(at_once * (size_t)args->shape.elements * sizeof *args->kept,
                                 "views between two kernels", &memory));
    args->kept = (uint16_t *)memory;
    ZONAL_TRY(zonal__cuda_malloc(at_once * (size_t)args->shape.tiles * sizeof *args->grey_sums,
                                 "the sums of the views' tiles", &memory));
    args->grey_sums = (double *)memory;
    return ZONAL_OK;
}

/* Also loads the kernel, which its first launch would do too late for a graph's capture. */
static zonal_status prepare(views_kernel kernel, int shared) {
    return kernel ? zonal__allow_shared(kernel, (size_t)shared) : ZONAL_OK;
}

static zonal_status fill(const zonal__views_spec *spec, zonal__views *views) {
    views_args *args = &views->args;
    int photographs = spec->kind == ZONAL__VIEW_PHOTOGRAPH;
    views->count = spec->count;
    zonal__views_shape_make(spec->width, spec->height, spec->channels, spec->count,
                            photographs ? spec->blur_taps : 0, photographs, &args->shape);
    for (int c = 0; c < spec->channels; c++) {
        args->scale[c] = 1 / spec->std[c];
        args->shift[c] = -spec->mean[c] / spec->std[c];
    }
    choose_element(spec, views);
    ZONAL_TRY(prepare(views->make, 0));
    ZONAL_TRY(prepare(views->adjust, 0));
    ZONAL_TRY(prepare(views->blur, args->shape.blur_shared));
    if (!photographs) return ZONAL_OK;
    return allocate(views);
}

static void destroy(zonal__views *views) {
    if (!views) return;
    zonal__cuda_on on(views->device);
    cudaFree(views->args.kept);
    cudaFree(views->args.grey_sums);
    zonal__free(views);
}

static zonal_status create(const zonal__views_spec *spec, zonal__views **out) {
    zonal__cuda_on on(spec->device);
    zonal__views *views;
    *out = NULL;
    ZONAL_TRY(zonal__views_check_spec(spec));
    if (spec->kind == ZONAL__VIEW_PHOTOGRAPH && spec->blur_taps > ZONAL__VIEWS_MOST_TAPS)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "on CUDA the blur has at most %d taps, got %d; use fewer, or the device "
                          "cpu",
                          ZONAL__VIEWS_MOST_TAPS, spec->blur_taps);
    ZONAL_TRY(ZONAL_NEW(&views, 1, "the views"));
    views->device = spec->device;
    zonal_status status = fill(spec, views);
    if (status == ZONAL_OK)
        *out = views;
    else
        destroy(views);
    return status;
}

/* ---- run ------------------------------------------------------------------------------------- */

static zonal_status launch(const zonal__views *views, views_kernel kernel, const views_args &args,
                           int64_t blocks, int shared) {
    if (!kernel) return ZONAL_OK;
    return zonal__launch(views->stream, dim3((unsigned)blocks), ZONAL__VIEWS_THREADS,
                         (size_t)shared, 1, kernel, args);
}

/* At most shape.at_once views. */
static zonal_status run_some(const zonal__views *views, const views_args &args, int64_t count) {
    const zonal__views_shape &shape = args.shape;
    int64_t tiles = count * shape.tiles, blur_tiles = count * shape.blur_tiles * shape.channels;
    ZONAL_TRY(launch(views, views->make, args, tiles, 0));
    ZONAL_TRY(launch(views, views->adjust, args, tiles, 0));
    return launch(views, views->blur, args, blur_tiles, shape.blur_shared);
}

static zonal_status run(zonal__views *views, const uint8_t *base, const zonal__image_place *images,
                        const zonal__view *view, int64_t count, void *out) {
    zonal__cuda_on on(views->device);
    views_args args = views->args;
    size_t view_bytes = (size_t)args.shape.elements * views->element_size;
    if (count < 0 || count > views->count)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%lld views were asked for; they were created for %lld",
                          (long long)count, (long long)views->count);
    args.base = base;
    args.images = images;
    for (int64_t first = 0; first < count; first += args.shape.at_once) {
        int64_t left = count - first;
        args.views = view + first;
        args.out = (char *)out + (size_t)first * view_bytes;
        ZONAL_TRY(run_some(views, args, left < args.shape.at_once ? left : args.shape.at_once));
    }
    return ZONAL_OK;
}

static void set_stream(zonal__views *views, void *stream) {
    views->stream = (cudaStream_t)stream;
}

static const zonal__views_table table = {"cuda", create, run, destroy, set_stream};

extern "C" const zonal__views_table *zonal__views_cuda(void) {
    return &table;
}
