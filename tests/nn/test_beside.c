/*
 * Gradients of filters beside the way back (src/nn/run.c), without a GPU: on a device that makes
 * them as late as the run's events allow (tests/backend/fake_device.h) they are the CPU's to the
 * bit. An array that is overwritten before they have read it, or a wait that is missing, shows.
 */
#include "backend/fake_device.h"
#include "core/memory.h"
#include "core/random.h"
#include "failing_alloc.h"
#include "nn/run.h"
#include "test.h"

enum { IMAGES = 4, SIDE = 16 };

/* What was complete when the run said so, from the end of the block on. */
typedef struct watched {
    const zonal__model *model;
    float *complete; /* [parameter_size] */
    int64_t first;   /* filled from here on */
    int calls;
} watched;

static zonal_status watch(void *context, int64_t first) {
    watched *w = context;
    size_t bytes = (size_t)(w->first - first) * sizeof *w->complete;
    w->calls++;
    if (!CHECK(first >= 0 && first <= w->first) || bytes == 0) return ZONAL_OK;
    memcpy(w->complete + first,
           fake_see(w->model->device->index, w->model->gradients + first, bytes), bytes);
    w->first = first;
    return ZONAL_OK;
}

static zonal__network_spec network(int depth, zonal__stem stem) {
    zonal__network_spec spec = zonal__network_defaults();
    spec.depth = depth;
    spec.stem = stem;
    spec.width = 0.125;
    spec.projector_layers = 2;
    spec.projector_width[0] = 16;
    spec.projector_width[1] = 8;
    return spec;
}

/* Random numbers on the device; NULL after a failed check. */
static void *numbers(const zonal__device *device, uint64_t sample, int64_t count) {
    const zonal__random random = {.seed = test_seed, .stream = ZONAL__STREAM_TEST};
    double *drawn = NULL;
    float *values = NULL;
    void *memory = NULL;
    if (CHECK_OK(ZONAL_NEW(&drawn, count, "numbers")) &&
        CHECK_OK(ZONAL_NEW(&values, count, "numbers")) &&
        CHECK_OK(zonal__device_alloc(device, (size_t)count * sizeof *values, "numbers", &memory))) {
        zonal__random_normal(&random, sample, count, drawn);
        for (int64_t i = 0; i < count; i++) values[i] = (float)drawn[i];
        CHECK_OK(zonal__device_write(device, memory, values, (size_t)count * sizeof *values));
    }
    zonal__free(drawn);
    zonal__free(values);
    return memory;
}

/* Two batches forward and back, the gradients of both added up into "out". */
static zonal_status go(zonal__run *run, zonal__model *model, void *const images[2], void *dz,
                       watched *w, float *out) {
    zonal__run_outputs outputs;
    for (int pass = 0; pass < 2; pass++) {
        if (w && pass == 1) zonal__run_watch(run, watch, w);
        ZONAL_TRY(zonal__run_forward(run, images[pass], 1, NULL, &outputs));
        ZONAL_TRY(zonal__run_backward(run, dz, pass));
    }
    return zonal__device_read(model->device, out, model->gradients,
                              (size_t)model->graph.parameter_size * sizeof *out);
}

/* The gradients of a new model on the device, to be freed; NULL after a failed check. */
static float *gradients_on(const char *name, const zonal__network_spec *spec, int streams,
                           watched *w) {
    const zonal__device *device;
    zonal__model *model = NULL;
    zonal__run *run = NULL;
    void *images[2] = {NULL, NULL}, *dz = NULL, *stream = NULL;
    float *out = NULL;
    if (!CHECK_OK(zonal__device_open(name, &device)) ||
        !CHECK_OK(zonal__model_create(spec, device, &model)) ||
        !CHECK_OK(zonal__model_initialise(model, 1, 0)) ||
        !CHECK_OK(zonal__run_create(
            model, &(zonal__run_spec){.n = IMAGES, .h = SIDE, .w = SIDE, .threads = 1}, &run)) ||
        !CHECK_OK(ZONAL_NEW(&out, model->graph.parameter_size, "gradients")))
        goto done;
    if (streams && CHECK_OK(zonal__device_stream_create(device, &stream)))
        zonal__run_set_stream(run, stream);
    for (int i = 0; i < 2; i++)
        images[i] = numbers(device, (uint64_t)i, IMAGES * SIDE * SIDE * spec->channels);
    dz = numbers(device, 2, IMAGES * model->graph.projection_dim);
    if (w) {
        *w = (watched){.model = model, .first = model->graph.parameter_size};
        CHECK_OK(ZONAL_NEW(&w->complete, w->first, "gradients"));
    }
    CHECK_OK(go(run, model, images, dz, w, out));
done:
    zonal__run_destroy(run);
    for (int i = 0; i < 2; i++) zonal__device_free(device, images[i]);
    zonal__device_free(device, dz);
    zonal__device_stream_destroy(device, stream);
    zonal__model_destroy(model);
    return out;
}

static int64_t size_of(const zonal__network_spec *spec) {
    static zonal__graph graph;
    memset(&graph, 0, sizeof graph);
    return CHECK_OK(zonal__network_build(spec, &graph)) ? graph.parameter_size : 0;
}

static void nothing_left(void) {
    fake_counts c = fake_count(1);
    CHECK_MSG(c.blocks == 0 && c.streams == 0 && c.events == 0,
              "%d blocks, %d streams, %d events are left", c.blocks, c.streams, c.events);
}

static void check_network(const char *what, const zonal__network_spec *spec, int streams) {
    size_t bytes = (size_t)size_of(spec) * sizeof(float);
    watched w = {0};
    float *host = gradients_on("cpu", spec, 0, NULL);
    float *device = gradients_on("fake:1", spec, streams, &w);
    if (host && device && w.complete) {
        CHECK_MSG(memcmp(host, device, bytes) == 0, "%s: other gradients", what);
        CHECK_MSG(w.first == 0 && memcmp(host, w.complete, bytes) == 0,
                  "%s: called complete too early", what);
        CHECK_MSG(w.calls > 10, "%s: only %d calls", what, w.calls);
    }
    zonal__free(host);
    zonal__free(device);
    zonal__free(w.complete);
    nothing_left();
}

static void test_gradients(void) {
    const zonal__network_spec basic = network(18, ZONAL__STEM_SMALL);
    const zonal__network_spec large = network(18, ZONAL__STEM_IMAGENET);
    const zonal__network_spec bottlenecks = network(50, ZONAL__STEM_SMALL);
    if (!fake_register()) return;
    check_network("ResNet-18", &basic, 1);
    check_network("ResNet-18, ImageNet's stem", &large, 1);
    check_network("ResNet-50", &bottlenecks, 1);
    check_network("on the default stream", &basic, 0);
}

static zonal_status make_and_drop(void *context) {
    zonal__run *run;
    ZONAL_TRY(zonal__run_create(
        context, &(zonal__run_spec){.n = IMAGES, .h = SIDE, .w = SIDE, .threads = 1}, &run));
    zonal__run_destroy(run);
    return ZONAL_OK;
}

static void test_allocations(void) {
    const zonal__network_spec spec = network(18, ZONAL__STEM_SMALL);
    const zonal__device *device;
    zonal__model *model;
    if (!fake_register() || !CHECK_OK(zonal__device_open("fake:1", &device)) ||
        !CHECK_OK(zonal__model_create(&spec, device, &model)))
        return;
    test_every_allocation("a run with a stream beside it", make_and_drop, model);
    zonal__model_destroy(model);
    nothing_left();
}

static const test_case tests[] = {
    {"gradients", test_gradients}, {"allocations", test_allocations}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
