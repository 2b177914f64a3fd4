/*
 * Training on the GPU: its gradient and its losses are the host's, a step in a graph is the step
 * launch by launch to the bit, the same weights come out every time, and a run that goes on from a
 * checkpoint ends as one that was never interrupted. Skipped where there is no GPU or no cuDNN,
 * unless ZONAL_REQUIRE_GPU is set.
 */
#include <stdlib.h>

#include "backend/device.h"
#include "backend/training/tables.h"
#include "core/file_read.h"
#include "core/memory.h"
#include "folder.h"
#include "gpu.h"
#include "setting.h"
#include "train/checkpoint.h"
#include "train/online.h"

static int no_gpu(void) {
    return gpu_is_missing(gpu_device() != NULL && gpu_layers() && gpu_optimisers());
}

/* ---- settings -------------------------------------------------------------------------------- */

/* A ResNet-18 of a quarter of the width, with 2 global and 3 local views of 16 images. */
static const setting_size quarter = {.width = 0.25,
                                     .projector = {64, 32},
                                     .side = 32,
                                     .texture = 48,
                                     .local_views = 3,
                                     .rate = 1e-3,
                                     .total = 60,
                                     .warm = 5};

/* On textures. */
static int prepare(setting *s, const char *method, zonal_dtype dtype) {
    if (!setting_open(s, &quarter, method, dtype)) return 0;
    s->options.device = gpu_device();
    return 1;
}

/* On random numbers, which are the same on every device: views of images are only to 1/255. */
static void fix_views(setting *s, const char *method, zonal_dtype dtype) {
    s->source = NULL;
    setting_fill(s, &quarter, method, dtype);
    s->options.device = gpu_device();
    s->options.fixed_views = 1;
    s->options.optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_SGD);
    s->options.schedule = (zonal__schedule){.kind = ZONAL__SCHEDULE_CONSTANT, .total = 100};
}

static zonal__trainer *made(const zonal__trainer_options *options) {
    zonal__trainer *t;
    return CHECK_OK(zonal__trainer_create(options, &t)) ? t : NULL;
}

/* A trainer that has made so many steps; NULL after a failure. */
static zonal__trainer *trained(const zonal__trainer_options *options, int64_t steps) {
    zonal__trainer *t = made(options);
    zonal__metrics m;
    if (!t || (make_steps(t, steps) && CHECK_OK(zonal__trainer_metrics(t, &m)))) return t;
    zonal__trainer_destroy(t);
    return NULL;
}

/* ---- comparisons ----------------------------------------------------------------------------- */

/* A copy of a block on the host, to be freed. */
static float *copy_of(const zonal__trainer *t, const float *block, int64_t count) {
    float *copy;
    if (!CHECK_OK(ZONAL_NEW(&copy, count, "a copy"))) return NULL;
    CHECK_OK(zonal__device_read(t->device, copy, block, (size_t)count * sizeof *copy));
    return copy;
}

static int same_block(const zonal__trainer *a, const float *of_a, const zonal__trainer *b,
                      const float *of_b, int64_t count) {
    float *x = copy_of(a, of_a, count), *y = copy_of(b, of_b, count);
    int same = x && y && memcmp(x, y, (size_t)count * sizeof *x) == 0;
    zonal__free(x);
    zonal__free(y);
    return same;
}

/* Parameters and statistics to the bit. */
static void check_same(const zonal__trainer *a, const zonal__trainer *b, const char *what) {
    const zonal__graph *graph = &a->model->graph;
    CHECK_MSG(
        same_block(a, a->model->parameters, b, b->model->parameters, graph->parameter_size) &&
            same_block(a, a->model->statistics, b, b->model->statistics, graph->statistic_size),
        "%s: other weights", what);
    CHECK(a->model->batches == b->model->batches);
}

/* The distance of two gradients, relative to the second. */
static double gradients_apart(const zonal__trainer *a, const zonal__trainer *b) {
    int64_t count = a->model->graph.parameter_size;
    float *x = copy_of(a, a->model->gradients, count), *y = copy_of(b, b->model->gradients, count);
    double error = 0, square = 0;
    for (int64_t i = 0; x && y && i < count; i++) {
        error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        square += (double)y[i] * (double)y[i];
    }
    zonal__free(x);
    zonal__free(y);
    return square > 0 ? sqrt(error / square) : INFINITY;
}

/* ---- against the host ------------------------------------------------------------------------ */

/* How far gradients in fp32 may be apart. Both sides round in other orders, and now and then an
 * input of relu changes its sign. On the host alone, weights moved by 1e-7, 1e-6 and 1e-4 of their
 * size at random move this gradient by up to 1e-3, 4e-3 and 5e-2: so 1e-2 leaves room for fp32's
 * rounding (2^-24, through some 20 layers forward and back), and TF32's (2^-11) does not pass. */
#define FP32_GRADIENT 1e-2

/* In bf16 (2^-9) the host is off by .3 of its own fp32 (test_network); what is wrong
 * in kind, a layer, a view or a factor, is off by 1 or more. */
static void compare_gradients(setting *s, const char *method, zonal_dtype dtype, double tolerance) {
    zonal__trainer *device, *host;
    zonal__metrics a, b;
    device = trained(&s->options, 1);
    s->options.device = zonal__device_cpu();
    s->options.network.dtype = ZONAL_DTYPE_FP32;
    host = trained(&s->options, 1);
    if (device && host && CHECK_OK(zonal__trainer_metrics(device, &a)) &&
        CHECK_OK(zonal__trainer_metrics(host, &b))) {
        double off = gradients_apart(device, host);
        printf("# %s, dtype %d: gradient off by %.2g, loss %.6f and %.6f\n", method, (int)dtype,
               off, a.loss.total, b.loss.total);
        CHECK_MSG(off <= tolerance, "%s, dtype %d: the gradient is off by %.3g", method, (int)dtype,
                  off);
        CHECK_CLOSE(a.loss.total, b.loss.total, tolerance * b.loss.total);
        CHECK_CLOSE(a.gradient_norm, b.gradient_norm, tolerance * b.gradient_norm);
        CHECK(a.loss.gain == b.loss.gain && a.rate == b.rate && a.step == b.step);
    }
    zonal__trainer_destroy(device);
    zonal__trainer_destroy(host);
}

static void check_gradient(const char *method, zonal_dtype dtype, double tolerance) {
    setting s;
    fix_views(&s, method, dtype);
    compare_gradients(&s, method, dtype, tolerance);
}

static void test_gradient(void) {
    if (no_gpu()) return;
    check_gradient("mmd-heat", ZONAL_DTYPE_FP32, FP32_GRADIENT);
    check_gradient("kl-heat", ZONAL_DTYPE_FP32, FP32_GRADIENT);
    check_gradient("mmd-band", ZONAL_DTYPE_FP32, FP32_GRADIENT);
    check_gradient("susreg", ZONAL_DTYPE_FP32, FP32_GRADIENT);
    check_gradient("mmd-heat", ZONAL_DTYPE_BF16, 0.45);
    check_gradient("susreg", ZONAL_DTYPE_BF16, 0.45);
}

/* Many global views, and none that are local. */
static void check_many_views(const char *method, int views) {
    setting s;
    fix_views(&s, method, ZONAL_DTYPE_FP32);
    s.options.loader.groups = 1;
    s.options.loader.group[0].views = views;
    compare_gradients(&s, method, ZONAL_DTYPE_FP32, FP32_GRADIENT);
}

static void test_many_views(void) {
    if (no_gpu()) return;
    check_many_views("mmd-band", 8);
    check_many_views("mmd-heat", 16);
    check_many_views("kl-heat", 4);
}

/* Ten steps on images: views differ by up to 1/255 of their range, and AdamW, whose first steps
 * have the gradient's signs, makes much of little. A step left out moves these losses by more. */
static void test_follows_the_host(void) {
    setting s;
    zonal__trainer *device, *host;
    zonal__metrics a, b;
    if (no_gpu() || !prepare(&s, "mmd-heat", ZONAL_DTYPE_FP32)) return;
    device = made(&s.options);
    s.options.device = zonal__device_cpu();
    host = made(&s.options);
    for (int i = 1; device && host && i <= 10; i++) {
        if (!make_steps(device, i) || !make_steps(host, i) ||
            !CHECK_OK(zonal__trainer_metrics(device, &a)) ||
            !CHECK_OK(zonal__trainer_metrics(host, &b)))
            break;
        printf("# step %d: loss %.6f, on the host %.6f\n", i - 1, a.loss.total, b.loss.total);
        CHECK_CLOSE(a.loss.total, b.loss.total, 0.02 * b.loss.total);
        CHECK(a.step == b.step && a.epoch == b.epoch && a.rate == b.rate);
    }
    zonal__trainer_destroy(device);
    zonal__trainer_destroy(host);
    zonal__source_close(s.source);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void check_graph(const char *method, zonal_dtype dtype, zonal__data_location data_location,
                        int64_t micro) {
    setting s;
    zonal__trainer *graph, *launches;
    char what[100];
    if (!prepare(&s, method, dtype)) return;
    s.options.data_location = data_location;
    s.options.micro_batch = micro;
    graph = trained(&s.options, 9);
    s.options.no_graph = 1;
    launches = trained(&s.options, 9);
    snprintf(what, sizeof what, "%s, dtype %d, data location %d, micro_batch %d", method,
             (int)dtype, (int)data_location, (int)micro);
    if (graph && launches) {
        CHECK(graph->launch.graphs[0] && graph->launch.graphs[1] && !launches->launch.graphs[0]);
        check_same(graph, launches, what);
    }
    zonal__trainer_destroy(graph);
    zonal__trainer_destroy(launches);
    zonal__source_close(s.source);
}

static void test_graph(void) {
    if (no_gpu()) return;
    check_graph("mmd-heat", ZONAL_DTYPE_FP32, ZONAL__DATA_ON_DEVICE, 0);
    check_graph("mmd-heat", ZONAL_DTYPE_BF16, ZONAL__DATA_ON_HOST, 0);
    check_graph("susreg", ZONAL_DTYPE_BF16, ZONAL__DATA_ON_DEVICE, 0);
    check_graph("kl-heat", ZONAL_DTYPE_BF16, ZONAL__DATA_AUTO, 4);
}

/* Nothing moves and the views stay, so only its directions change a sliced loss: in a graph they
 * must be those of the step, as on the host. */
static void test_new_directions(void) {
    setting s;
    zonal__trainer *device, *host;
    zonal__metrics a, b;
    double before = 0;
    if (no_gpu()) return;
    fix_views(&s, "susreg", ZONAL_DTYPE_FP32);
    device = made(&s.options);
    s.options.device = zonal__device_cpu();
    host = made(&s.options);
    for (int i = 1; device && host && i <= 5; i++) {
        if (!make_steps(device, i) || !make_steps(host, i) ||
            !CHECK_OK(zonal__trainer_metrics(device, &a)) ||
            !CHECK_OK(zonal__trainer_metrics(host, &b)))
            break;
        CHECK_CLOSE(a.loss.discrepancy, b.loss.discrepancy, 1e-4 * b.loss.discrepancy);
        CHECK_MSG(fabs(a.loss.discrepancy - before) > 1e-3 * b.loss.discrepancy,
                  "step %d: %.9g, as before", i, a.loss.discrepancy);
        before = a.loss.discrepancy;
    }
    zonal__trainer_destroy(device);
    zonal__trainer_destroy(host);
}

/* ---- several streams ------------------------------------------------------------------------- */

/* The GPU once more, as a device whose streams are one and the same: what goes on beside other
 * things elsewhere comes one by one there. */
static zonal_status only_stream(const zonal__device *device, void **stream) {
    static void *only;
    if (!only) ZONAL_TRY(gpu_device()->backend->runtime->stream_create(device, &only));
    *stream = only;
    return ZONAL_OK;
}

static void keep_stream(const zonal__device *device, void *stream) {
    (void)device, (void)stream;
}

/* NULL after a failed check. */
static const zonal__device *one_by_one(void) {
    static zonal__runtime runtime;
    static zonal__backend backend;
    static zonal__training_tables tables;
    const zonal__device *device;
    if (!backend.name) {
        runtime = *gpu_device()->backend->runtime;
        runtime.stream_create = only_stream;
        runtime.stream_destroy = keep_stream;
        backend = *gpu_device()->backend;
        backend.name = "onebyone";
        backend.runtime = &runtime;
        tables = *gpu_training();
        tables.backend = backend.name;
        if (!CHECK_OK(zonal__device_register(&backend)) ||
            !CHECK_OK(zonal__training_register(&tables)))
            return NULL;
    }
    return CHECK_OK(zonal__device_open("onebyone", &device)) ? device : NULL;
}

/* ResNet-50 with its norms folded, as it is trained. */
static void set_depth(setting *s, int depth) {
    s->options.network.depth = depth;
    s->options.fold_norms = depth == 50;
}

/* Filters' gradients and views beside the rest of a step, and in line: the same bits. */
static void check_streams(zonal_dtype dtype, zonal__data_location data_location, int64_t micro,
                          int depth) {
    char what[80];
    setting s;
    zonal__trainer *beside, *in_line;
    if (!prepare(&s, "mmd-heat", dtype)) return;
    s.options.data_location = data_location;
    s.options.micro_batch = micro;
    set_depth(&s, depth);
    beside = trained(&s.options, 9);
    s.options.device = one_by_one();
    in_line = s.options.device ? trained(&s.options, 9) : NULL;
    snprintf(what, sizeof what, "ResNet-%d, dtype %d, micro_batch %d", depth, (int)dtype,
             (int)micro);
    if (beside && in_line) {
        check_same(beside, in_line, what);
        CHECK_MSG(gradients_apart(beside, in_line) == 0, "%s: other gradients", what);
    }
    zonal__trainer_destroy(beside);
    zonal__trainer_destroy(in_line);
    zonal__source_close(s.source);
}

static void test_streams(void) {
    if (no_gpu()) return;
    check_streams(ZONAL_DTYPE_BF16, ZONAL__DATA_ON_DEVICE, 0, 18);
    check_streams(ZONAL_DTYPE_FP32, ZONAL__DATA_ON_HOST, 0, 18);
    check_streams(ZONAL_DTYPE_BF16, ZONAL__DATA_ON_HOST, 4, 18);
    check_streams(ZONAL_DTYPE_BF16, ZONAL__DATA_ON_DEVICE, 0, 50);
}

/* ---- the same again -------------------------------------------------------------------------- */

static void test_same_every_time(void) {
    if (no_gpu()) return;
    for (int dtype = ZONAL_DTYPE_FP32; dtype <= ZONAL_DTYPE_BF16; dtype++) {
        setting s;
        zonal__trainer *one, *other;
        if (!prepare(&s, "mmd-heat", (zonal_dtype)dtype)) return;
        one = trained(&s.options, 50);
        s.options.loader.workers = 1;
        s.options.data_location = ZONAL__DATA_ON_HOST;
        other = trained(&s.options, 50);
        if (one && other) check_same(one, other, "50 steps twice");
        zonal__trainer_destroy(one);
        zonal__trainer_destroy(other);
        zonal__source_close(s.source);
    }
}

static void check_resumes(zonal__optimiser_kind kind, zonal_dtype dtype,
                          zonal__data_location data_location, int depth) {
    test_folder folder;
    char path[800];
    setting s;
    zonal__trainer *whole, *begun, *resumed;
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    if (!prepare(&s, "susreg", dtype)) return;
    s.options.optimiser = zonal__optimiser_defaults(kind);
    s.options.data_location = data_location;
    set_depth(&s, depth);
    whole = trained(&s.options, 12);
    begun = trained(&s.options, 7);
    resumed = trained(&s.options, 2); /* elsewhere, and with graphs of its own already */
    if (whole && begun && resumed && CHECK_OK(zonal__checkpoint_save(begun, path)) &&
        CHECK_OK(zonal__checkpoint_load(resumed, path)) && make_steps(resumed, 12))
        check_same(whole, resumed, "resumed");
    zonal__trainer_destroy(whole);
    zonal__trainer_destroy(begun);
    zonal__trainer_destroy(resumed);
    zonal__source_close(s.source);
    test_folder_remove(&folder);
}

static void test_resumes(void) {
    if (no_gpu()) return;
    check_resumes(ZONAL__OPTIMISER_ADAMW, ZONAL_DTYPE_BF16, ZONAL__DATA_ON_DEVICE, 18);
    check_resumes(ZONAL__OPTIMISER_ADAMW, ZONAL_DTYPE_BF16, ZONAL__DATA_ON_DEVICE, 50);
    check_resumes(ZONAL__OPTIMISER_LARS, ZONAL_DTYPE_FP32, ZONAL__DATA_ON_HOST, 18);
}

/* A checkpoint of the device goes on, on the host. */
static void test_changes_device(void) {
    test_folder folder;
    char path[800];
    setting s;
    zonal__trainer *device, *host;
    if (no_gpu() || !CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    if (!prepare(&s, "mmd-heat", ZONAL_DTYPE_FP32)) return;
    device = trained(&s.options, 3);
    s.options.device = zonal__device_cpu();
    host = made(&s.options);
    if (device && host && CHECK_OK(zonal__checkpoint_save(device, path)) &&
        CHECK_OK(zonal__checkpoint_load(host, path)))
        check_same(device, host, "brought to the host");
    zonal__trainer_destroy(device);
    zonal__trainer_destroy(host);
    zonal__source_close(s.source);
    test_folder_remove(&folder);
}

/* ---- the online probe ------------------------------------------------------------------------ */

enum { CLASSES = 10, IMAGES = 64 };
static int32_t labels[IMAGES];

/* Textures have no classes of their own. */
static int prepare_probe(setting *s, zonal_dtype dtype) {
    if (!prepare(s, "mmd-heat", dtype)) return 0;
    for (int i = 0; i < IMAGES; i++) labels[i] = i * i % CLASSES;
    s->source->labels = labels;
    s->source->classes = s->options.probe_classes = CLASSES;
    s->options.probe_rate = 1e-2;
    return 1;
}

static void close_probe(setting *s) {
    s->source->labels = NULL;
    zonal__source_close(s->source);
}

static float *probe_of(zonal__trainer *t, int64_t *size) {
    float *copy;
    *size = zonal__online_probe_size(t->probe);
    if (!CHECK_OK(ZONAL_NEW(&copy, *size, "a copy"))) return NULL;
    CHECK_OK(zonal__trainer_probe(t, copy));
    return copy;
}

static int same_probe(zonal__trainer *a, zonal__trainer *b) {
    int64_t size;
    float *x = probe_of(a, &size), *y = probe_of(b, &size);
    int same = x && y && memcmp(x, y, (size_t)size * sizeof *x) == 0;
    zonal__free(x);
    zonal__free(y);
    return same;
}

/* The weights are those of a training without it; in a graph it is the probe of single launches. */
static void check_probe(zonal_dtype dtype, zonal__data_location location, int64_t micro) {
    setting s;
    zonal__trainer *with, *without, *launches;
    if (!prepare_probe(&s, dtype)) return;
    s.options.data_location = location;
    s.options.micro_batch = micro;
    with = trained(&s.options, 9);
    s.options.no_graph = 1;
    launches = trained(&s.options, 9);
    s.options.no_graph = s.options.probe_classes = 0;
    without = trained(&s.options, 9);
    if (with && without && launches) {
        CHECK(with->launch.graphs[0] && with->launch.graphs[1]);
        check_same(with, without, "with and without a probe");
        CHECK_MSG(same_probe(with, launches), "dtype %d: another probe", (int)dtype);
    }
    zonal__trainer_destroy(with);
    zonal__trainer_destroy(launches);
    zonal__trainer_destroy(without);
    close_probe(&s);
}

/* On the host's features, in fp32 and with a network that stays as it is: to the rounding of some
 * steps of AdamW, of which the first have the gradient's signs. */
static void check_probe_on_host(void) {
    setting s;
    zonal__trainer *device, *host;
    int64_t size = 0;
    double most = 0, sum = 0;
    float *x = NULL, *y = NULL;
    fix_views(&s, "mmd-heat", ZONAL_DTYPE_FP32);
    s.options.probe_classes = CLASSES;
    s.options.probe_rate = 1e-2;
    device = trained(&s.options, 8);
    s.options.device = zonal__device_cpu();
    host = trained(&s.options, 8);
    if (device && host && (x = probe_of(device, &size)) && (y = probe_of(host, &size)))
        for (int64_t i = 0; i < size; i++) {
            most = fmax(most, fabs((double)x[i] - (double)y[i]));
            sum += fabs((double)y[i]) / (double)size;
        }
    printf("# the probe's largest difference is %.2g, its mean size %.2g\n", most, sum);
    CHECK(most <= 1e-3 && sum > 1e-2);
    zonal__free(x);
    zonal__free(y);
    zonal__trainer_destroy(device);
    zonal__trainer_destroy(host);
}

static void check_probe_resumes(void) {
    test_folder folder;
    char path[800];
    setting s;
    zonal__trainer *whole, *begun, *resumed;
    if (!CHECK(test_folder_make(&folder)) || !prepare_probe(&s, ZONAL_DTYPE_BF16)) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    whole = trained(&s.options, 12);
    begun = trained(&s.options, 7);
    resumed = trained(&s.options, 2);
    if (whole && begun && resumed && CHECK_OK(zonal__checkpoint_save(begun, path)) &&
        CHECK_OK(zonal__checkpoint_load(resumed, path)) && make_steps(resumed, 12)) {
        check_same(whole, resumed, "resumed with a probe");
        CHECK_MSG(same_probe(whole, resumed), "another probe");
    }
    zonal__trainer_destroy(whole);
    zonal__trainer_destroy(begun);
    zonal__trainer_destroy(resumed);
    close_probe(&s);
    test_folder_remove(&folder);
}

static void test_probe(void) {
    if (no_gpu()) return;
    check_probe(ZONAL_DTYPE_BF16, ZONAL__DATA_ON_DEVICE, 0);
    check_probe(ZONAL_DTYPE_FP32, ZONAL__DATA_ON_HOST, 0);
    check_probe(ZONAL_DTYPE_BF16, ZONAL__DATA_ON_HOST, 4);
    check_probe_on_host();
    check_probe_resumes();
}

/* ---- two passes ------------------------------------------------------------------------------ */

/* The first "micro" images take the place of all others, view by view. */
static void repeat_images(zonal__trainer *t, int64_t micro) {
    int64_t batch = t->options.loader.batch;
    for (int g = 0; g < t->options.loader.groups; g++)
        for (int v = 0; v < t->options.loader.group[g].views; v++) {
            size_t bytes = t->groups[g].view_bytes;
            char *view = (char *)t->groups[g].fixed + (size_t)(v * batch) * bytes;
            for (int64_t i = micro; i < batch; i++)
                CHECK_OK(zonal__device_copy_on(t->device, t->launch.stream,
                                               view + (size_t)i * bytes,
                                               view + (size_t)(i % micro) * bytes, bytes));
        }
}

/* Where all micro-batches hold the same images, norms see the same statistics in each as in the
 * whole, so both ways have one gradient: to the order of sums, as above. */
static void check_micro_batches(zonal_dtype dtype, double tolerance) {
    setting s;
    zonal__trainer *whole, *parts;
    fix_views(&s, "mmd-heat", dtype);
    whole = made(&s.options);
    s.options.micro_batch = 4;
    parts = made(&s.options);
    if (whole && parts) {
        repeat_images(whole, 4);
        repeat_images(parts, 4);
        if (make_steps(whole, 3) && make_steps(parts, 3)) { /* the third is replayed */
            double off = gradients_apart(parts, whole);
            printf("# dtype %d: micro-batches' gradient is off by %.2g\n", (int)dtype, off);
            CHECK_MSG(off <= tolerance, "dtype %d: the gradient is off by %.3g", (int)dtype, off);
            CHECK(whole->model->batches == 6 && parts->model->batches == 24);
        }
    }
    zonal__trainer_destroy(whole);
    zonal__trainer_destroy(parts);
}

static void test_micro_batches(void) {
    if (no_gpu()) return;
    check_micro_batches(ZONAL_DTYPE_FP32, FP32_GRADIENT);
    check_micro_batches(ZONAL_DTYPE_BF16, 0.2);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* The algorithms that this process has measured so far; NULL after a failure. */
static char *measured(test_folder *folder, size_t *size) {
    const char *path = test_folder_file(folder, "algorithms.txt");
    const zonal__training_tables *tables;
    char *text = NULL;
    if (CHECK_OK(zonal__device_training(gpu_device(), &tables)) &&
        CHECK_OK(tables->autotune_write(gpu_device(), path)))
        CHECK_OK(zonal__file_read(path, (size_t)1 << 24, &text, size));
    return text;
}

/* A run writes down its algorithms before its first step, so those of its evaluations are to be
 * chosen by then, and an evaluation measures nothing. */
static void check_evaluation(test_folder *folder, zonal__trainer *t, const setting *s) {
    const zonal__online_options online = {.protocol = ZONAL__ONLINE_RETRIEVAL,
                                          .queries = s->source,
                                          .augmentations = s->augmentations,
                                          .side = 28, /* of no other test here */
                                          .std = {1, 1, 1},
                                          .device = gpu_device()};
    zonal__model *model = zonal__trainer_model(t);
    zonal__online_work work = {0};
    zonal__online_result first, second;
    char *texts[3] = {NULL, NULL, NULL};
    size_t sizes[3] = {0};
    texts[0] = measured(folder, &sizes[0]);
    if (CHECK_OK(zonal__online_prepare(&online, model, &work))) {
        texts[1] = measured(folder, &sizes[1]);
        if (CHECK_OK(zonal__online_run(&online, model, &work, &first)) &&
            CHECK_OK(zonal__online_run(&online, model, &work, &second)))
            CHECK(first.map > 0 && first.map == second.map);
        texts[2] = measured(folder, &sizes[2]);
    }
    if (texts[0] && texts[1] && texts[2]) {
        CHECK(sizes[1] > sizes[0]);
        CHECK(sizes[2] == sizes[1] && memcmp(texts[1], texts[2], sizes[1]) == 0);
    }
    for (int i = 0; i < 3; i++) zonal__free(texts[i]);
    zonal__online_fini(&work);
}

static void test_evaluation(void) {
    test_folder folder;
    setting s;
    zonal__trainer *t;
    if (no_gpu() || !prepare(&s, "mmd-band", ZONAL_DTYPE_BF16)) return;
    t = trained(&s.options, 2);
    if (CHECK(test_folder_make(&folder))) {
        if (t) check_evaluation(&folder, t, &s);
        test_folder_remove(&folder);
    }
    zonal__trainer_destroy(t);
    zonal__source_close(s.source);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* A weight that is NaN: heard of with the metrics, and nothing has moved. */
static void test_not_finite(void) {
    setting s;
    zonal__trainer *t;
    zonal__metrics m;
    if (no_gpu() || !prepare(&s, "mmd-heat", ZONAL_DTYPE_FP32)) return;
    t = trained(&s.options, 3);
    if (t) {
        int64_t count = t->model->graph.parameter_size;
        float *spoilt = copy_of(t, t->model->parameters, count), *after = NULL;
        if (spoilt) {
            spoilt[zonal__model_find(t->model, "layer2.0.conv1.weight")->offset] = NAN;
            CHECK_OK(zonal__model_write(t->model, spoilt, NULL));
            CHECK(make_steps(t, 5));
            CHECK_FAILS(zonal__trainer_metrics(t, &m), ZONAL_NUMERIC, "not finite");
            CHECK(m.step == 4 && !isfinite(m.loss.total));
            after = copy_of(t, t->model->parameters, count);
        }
        CHECK(after && memcmp(after, spoilt, (size_t)count * sizeof *after) == 0);
        zonal__free(spoilt);
        zonal__free(after);
    }
    zonal__trainer_destroy(t);
    zonal__source_close(s.source);
}

static void test_memory(void) {
    void *memory;
    if (no_gpu()) return;
    CHECK_FAILS(zonal__device_alloc(gpu_device(), (size_t)1 << 46, "a mountain", &memory),
                ZONAL_MEMORY, "a mountain would take 67108864.0 MiB");
    CHECK(memory == NULL && strstr(zonal_last_error()->message, "are free"));
}

static const test_case tests[] = {{"gradient", test_gradient},
                                  {"follows_the_host", test_follows_the_host},
                                  {"graph", test_graph},
                                  {"new_directions", test_new_directions},
                                  {"streams", test_streams},
                                  {"same_every_time", test_same_every_time},
                                  {"resumes", test_resumes},
                                  {"changes_device", test_changes_device},
                                  {"micro_batches", test_micro_batches},
                                  {"not_finite", test_not_finite},
                                  {"memory", test_memory},
                                  {"probe", test_probe},
                                  {"many_views", test_many_views},
                                  {"evaluation", test_evaluation},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
