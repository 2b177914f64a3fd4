#include "cli/bench/views.h"

#include "cli/common/timing.h"
#include "core/memory.h"
#include "core/random.h"
#include "data/augmentation.h"

enum { RUNS = 100 }; /* on a device */

/* All that a run needs, in host memory or in the device's. */
typedef struct batch {
    zonal__view_bench_options options;
    const zonal__views_table *table;
    zonal__views *views;
    uint8_t *base;
    zonal__image_place *images;
    zonal__view *view;
    void *out;
} batch;

static zonal__view_bench_options with_defaults(const zonal__view_bench_options *options) {
    zonal__view_bench_options o = *options;
    int texture = o.kind == ZONAL__VIEW_TEXTURE;
    o.device = zonal__device_or_cpu(o.device);
    if (!o.count) o.count = 512;
    if (!o.side) o.side = 224;
    if (!o.image_width) o.image_width = texture ? 256 : 500;
    if (!o.image_height) o.image_height = texture ? 256 : 375;
    if (!o.images) o.images = 64;
    if (!o.dtype) o.dtype = zonal__device_is_host(o.device) ? ZONAL_DTYPE_FP32 : ZONAL_DTYPE_BF16;
    return o;
}

static int channels_of(const zonal__view_bench_options *o) {
    return o->kind == ZONAL__VIEW_TEXTURE ? 1 : 3;
}

static int64_t image_bytes(const zonal__view_bench_options *o) {
    return (int64_t)o->image_width * o->image_height * channels_of(o);
}

static size_t out_bytes(const zonal__view_bench_options *o) {
    size_t element = o->dtype == ZONAL_DTYPE_BF16 ? 2 : 4;
    return (size_t)(o->count * o->side * o->side * channels_of(o)) * element;
}

/* ---- host ------------------------------------------------------------------------------------ */

static void host_release(batch *b) {
    zonal__free(b->base);
    zonal__free(b->images);
    zonal__free(b->view);
    zonal__free(b->out);
}

static void draw(batch *b) {
    const zonal__view_bench_options *o = &b->options;
    zonal__random random = {.seed = o->seed, .stream = ZONAL__STREAM_TEST};
    zonal__augmentation augmentation[2];
    for (int v = 0; v < 2; v++)
        if (o->kind == ZONAL__VIEW_TEXTURE)
            zonal__augmentation_texture(&augmentation[v]);
        else
            zonal__augmentation_byol(v, &augmentation[v]);
    for (int64_t i = 0; i < o->images * image_bytes(o); i++) {
        uint32_t words[4];
        if (i % 16 == 0) zonal__random_words(&random, 0, (uint32_t)(i / 16), words);
        b->base[i] = (uint8_t)(words[i / 4 % 4] >> 8 * (i % 4));
    }
    for (int64_t p = 0; p < o->images; p++)
        b->images[p] = (zonal__image_place){.offset = p * image_bytes(o),
                                            .width = o->image_width,
                                            .height = o->image_height,
                                            .channels = channels_of(o)};
    for (int64_t n = 0; n < o->count; n++) {
        zonal__view_draw(&augmentation[n % 2], o->seed, 0, n / 2, (int)(n % 2), o->image_width,
                         o->image_height, o->side, o->side, &b->view[n]);
        b->view[n].image = (int32_t)(n / 2 % o->images);
    }
}

static zonal_status host_batch(batch *b) {
    const zonal__view_bench_options *o = &b->options;
    zonal_status status;
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&b->base, o->images * image_bytes(o), "the images"));
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&b->images, o->images, "the images"));
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&b->view, o->count, "the views"));
    ZONAL_TRY_GOTO(status, failed, zonal__alloc((int64_t)out_bytes(o), 1, "the views", &b->out));
    draw(b);
    return ZONAL_OK;
failed:
    host_release(b);
    return status;
}

static zonal_status run(void *context, void *stream) {
    batch *b = context;
    if (b->table->set_stream) b->table->set_stream(b->views, stream);
    return b->table->run(b->views, b->base, b->images, b->view, b->options.count, b->out);
}

static zonal_status run_on_host(void *context, int number) {
    (void)number;
    return run(context, NULL);
}

static zonal_status host_time(batch *b, double *milliseconds) {
    zonal__timing timing;
    ZONAL_TRY(zonal__time_host(run_on_host, b, &timing));
    *milliseconds = timing.ms;
    return ZONAL_OK;
}

/* ---- a GPU ----------------------------------------------------------------------------------- */

static void device_release(batch *b) {
    zonal__device_free(b->options.device, b->base);
    zonal__device_free(b->options.device, b->images);
    zonal__device_free(b->options.device, b->view);
    zonal__device_free(b->options.device, b->out);
}

static zonal_status copy(const zonal__device *device, const void *host, size_t bytes,
                         const char *what, void **out) {
    ZONAL_TRY(zonal__device_alloc(device, bytes, what, out));
    return zonal__device_write(device, *out, host, bytes);
}

/* The same batch in the device's memory. */
static zonal_status device_batch(const batch *host, batch *b) {
    const zonal__view_bench_options *o = &host->options;
    void *base = NULL, *images = NULL, *view = NULL, *out = NULL;
    zonal_status status =
        copy(o->device, host->base, (size_t)(o->images * image_bytes(o)), "the images", &base);
    if (status == ZONAL_OK)
        status = copy(o->device, host->images, (size_t)o->images * sizeof *host->images,
                      "the images", &images);
    if (status == ZONAL_OK)
        status =
            copy(o->device, host->view, (size_t)o->count * sizeof *host->view, "the views", &view);
    if (status == ZONAL_OK)
        status = zonal__device_alloc(o->device, out_bytes(o), "the views", &out);
    *b = *host;
    b->base = base, b->images = images, b->view = view, b->out = out;
    if (status != ZONAL_OK) device_release(b);
    return status;
}

static zonal_status device_time(batch *b, double *milliseconds) {
    double microseconds = 0;
    ZONAL_TRY(zonal__device_time(b->options.device, run, b, 1, 3, RUNS, &microseconds));
    *milliseconds = microseconds / 1000;
    return ZONAL_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

static zonal_status time_batch(batch *host, const zonal__views_spec *spec, double *milliseconds) {
    batch device, *b = host;
    zonal_status status;
    if (!zonal__device_is_host(host->options.device)) {
        ZONAL_TRY(device_batch(host, &device));
        b = &device;
    }
    status = b->table->create(spec, &b->views);
    if (status == ZONAL_OK)
        status = b == host ? host_time(b, milliseconds) : device_time(b, milliseconds);
    b->table->destroy(b->views);
    if (b == &device) device_release(&device);
    return status;
}

zonal_status zonal__view_bench(const zonal__view_bench_options *options, double *milliseconds) {
    batch host = {.options = with_defaults(options)};
    const zonal__view_bench_options *o = &host.options;
    int longer = o->image_width > o->image_height ? o->image_width : o->image_height;
    zonal__views_spec spec = {.kind = o->kind,
                              .width = o->side,
                              .height = o->side,
                              .channels = channels_of(o),
                              .count = o->count,
                              .mean = {0.485f, 0.456f, 0.406f}, /* ImageNet's */
                              .std = {0.229f, 0.224f, 0.225f},
                              .blur_taps = zonal__view_blur_taps(o->side),
                              .dtype = o->dtype,
                              .threads = o->threads,
                              .device = o->device,
                              .most_shrink = (float)longer / (float)o->side};
    *milliseconds = 0;
    ZONAL_TRY(zonal__device_views(o->device, &host.table));
    ZONAL_TRY(zonal__views_check_spec(&spec));
    ZONAL_TRY(host_batch(&host));
    zonal_status status = time_batch(&host, &spec, milliseconds);
    host_release(&host);
    return status;
}
