/*
 * The online probe, src/train/online_probe.h: its steps are those of AdamW on softmax regression,
 * restated here in double; the network trains as without it, bit for bit; it goes on from a
 * checkpoint, and on ranks and devices it is the same probe.
 */
#include "backend/fake_device.h"
#include "core/bf16.h"
#include "core/memory.h"
#include "failing_alloc.h"
#include "folder.h"
#include "setting.h"
#include "thread_ranks.h"
#include "train/checkpoint.h"

enum { CLASSES = 3, IMAGES = 64 };

static int32_t labels[IMAGES];

/* Textures have no classes of their own. */
static void put_labels(zonal__source *source) {
    source->labels = labels;
    source->classes = CLASSES;
}

static void close_source(zonal__source *source) {
    if (source) source->labels = NULL;
    zonal__source_close(source);
}

static int prepare(setting *s, zonal_dtype dtype) {
    if (!setting_open(s, &setting_small, "mmd-heat", dtype)) return 0;
    s->options.threads = 1;
    s->options.loader.workers = 1;
    s->options.probe_classes = CLASSES;
    s->options.probe_rate = 1e-2;
    put_labels(s->source);
    return 1;
}

/* A copy of the probe, to be freed. */
static float *probe_of(zonal__trainer *t) {
    float *copy;
    if (!CHECK_OK(ZONAL_NEW(&copy, zonal__online_probe_size(t->probe), "a copy"))) return NULL;
    CHECK_OK(zonal__trainer_probe(t, copy));
    return copy;
}

static int same_probe(zonal__trainer *a, zonal__trainer *b) {
    size_t bytes = (size_t)zonal__online_probe_size(a->probe) * sizeof(float);
    float *x = probe_of(a), *y = probe_of(b);
    int same = x && y && memcmp(x, y, bytes) == 0;
    zonal__free(x);
    zonal__free(y);
    return same;
}

/* ---- AdamW on softmax regression, in double ---------------------------------------------------
 */

typedef struct restated {
    int64_t rows, dim;
    double *x;             /* [rows][dim] */
    double *p, *g, *m, *v; /* weight [classes][dim], bias [classes] */
} restated;

static double *zeros(int64_t count) {
    double *memory;
    return CHECK_OK(ZONAL_NEW(&memory, count, "numbers")) ? memory : NULL;
}

static void add_row(restated *r, int64_t i) {
    double score[CLASSES], sum = 0;
    const double *x = r->x + i * r->dim;
    for (int c = 0; c < CLASSES; c++) {
        score[c] = r->p[CLASSES * r->dim + c];
        for (int64_t j = 0; j < r->dim; j++) score[c] += r->p[c * r->dim + j] * x[j];
        sum += score[c] = exp(score[c]);
    }
    for (int c = 0; c < CLASSES; c++) {
        double share = (score[c] / sum - (c == i % CLASSES)) / (double)r->rows;
        for (int64_t j = 0; j < r->dim; j++) r->g[c * r->dim + j] += share * x[j];
        r->g[CLASSES * r->dim + c] += share;
    }
}

static void step_restated(restated *r, int step, double rate) {
    int64_t count = CLASSES * (r->dim + 1);
    memset(r->g, 0, (size_t)count * sizeof *r->g);
    for (int64_t i = 0; i < r->rows; i++) add_row(r, i);
    for (int64_t k = 0; k < count; k++) {
        r->m[k] = .9 * r->m[k] + .1 * r->g[k];
        r->v[k] = .999 * r->v[k] + .001 * r->g[k] * r->g[k];
        r->p[k] -=
            rate * (r->m[k] / (1 - pow(.9, step))) / (sqrt(r->v[k] / (1 - pow(.999, step))) + 1e-8);
    }
}

static void take_features(restated *r, zonal__trainer *t) {
    zonal__run_outputs outputs;
    if (!CHECK_OK(zonal__run_forward(t->groups[0].run, t->groups[0].views, 1, NULL, &outputs)))
        return;
    for (int64_t i = 0; i < r->rows * r->dim; i++)
        r->x[i] = t->options.network.dtype == ZONAL_DTYPE_BF16
                      ? (double)zonal__bf16_to_float(((const uint16_t *)outputs.features)[i])
                      : (double)((const float *)outputs.features)[i];
}

/* The network stays as it is (rate 0) and sees the same views, so that its features do not change;
 * labels are those of benchmarks, row i has i mod classes. Ten steps of AdamW in fp32, each of
 * about the rate: the rounding of numbers around 0.1, where a gradient is near 0 more. */
static void check_steps(zonal_dtype dtype) {
    enum { STEPS = 10 };
    setting s = {0};
    restated r = {0};
    zonal__trainer *t = NULL;
    float *probe = NULL;
    setting_fill(&s, &setting_small, "mmd-heat", dtype);
    s.options.fixed_views = 1;
    s.options.threads = 1;
    s.options.schedule = (zonal__schedule){.kind = ZONAL__SCHEDULE_CONSTANT, .total = 100};
    s.options.probe_classes = CLASSES;
    s.options.probe_rate = 1e-2;
    if (!CHECK_OK(zonal__trainer_create(&s.options, &t))) return;
    r.rows = t->rows, r.dim = t->model->graph.feature_dim;
    r.x = zeros(r.rows * r.dim);
    r.p = zeros(CLASSES * (r.dim + 1)), r.g = zeros(CLASSES * (r.dim + 1));
    r.m = zeros(CLASSES * (r.dim + 1)), r.v = zeros(CLASSES * (r.dim + 1));
    if (make_steps(t, STEPS) && (probe = probe_of(t))) {
        take_features(&r, t);
        for (int step = 1; step <= STEPS; step++) step_restated(&r, step, 1e-2);
        for (int64_t k = 0; k < CLASSES * (r.dim + 1); k++) CHECK_CLOSE(probe[k], r.p[k], 2e-5);
        CHECK(fabsf(probe[0]) > 1e-3f); /* it has moved */
    }
    zonal__free(probe);
    zonal__free(r.x), zonal__free(r.p), zonal__free(r.g), zonal__free(r.m), zonal__free(r.v);
    zonal__trainer_destroy(t);
}

static void test_steps(void) {
    check_steps(ZONAL_DTYPE_FP32);
    check_steps(ZONAL_DTYPE_BF16);
}

/* ---- the network does not notice --------------------------------------------------------------
 */

static void check_unnoticed(zonal_dtype dtype, int64_t micro) {
    setting s;
    zonal__trainer *with = NULL, *without = NULL;
    if (!prepare(&s, dtype)) return;
    s.options.micro_batch = micro;
    CHECK_OK(zonal__trainer_create(&s.options, &with));
    s.options.probe_classes = 0;
    CHECK_OK(zonal__trainer_create(&s.options, &without));
    if (with && without && make_steps(with, 3) && make_steps(without, 3))
        CHECK_MSG(same_weights(with, without), "dtype %d, micro-batch %d: other weights",
                  (int)dtype, (int)micro);
    zonal__trainer_destroy(with);
    zonal__trainer_destroy(without);
    close_source(s.source);
}

static void test_unnoticed(void) {
    check_unnoticed(ZONAL_DTYPE_FP32, 0);
    check_unnoticed(ZONAL_DTYPE_BF16, 0);
    check_unnoticed(ZONAL_DTYPE_FP32, 4);
}

/* ---- checkpoints, devices, ranks ------------------------------------------------------------- */

static void test_resumes(void) {
    test_folder folder;
    char path[800];
    setting s;
    zonal__trainer *whole = NULL, *begun = NULL, *resumed = NULL;
    if (!CHECK(test_folder_make(&folder)) || !prepare(&s, ZONAL_DTYPE_FP32)) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    CHECK_OK(zonal__trainer_create(&s.options, &whole));
    CHECK_OK(zonal__trainer_create(&s.options, &begun));
    CHECK_OK(zonal__trainer_create(&s.options, &resumed));
    if (whole && begun && resumed && make_steps(whole, 4) && make_steps(begun, 2) &&
        CHECK_OK(zonal__checkpoint_save(begun, path)) &&
        CHECK_OK(zonal__checkpoint_load(resumed, path)) && CHECK(same_probe(begun, resumed)) &&
        make_steps(resumed, 4)) {
        CHECK_MSG(same_weights(whole, resumed), "other weights");
        CHECK_MSG(same_probe(whole, resumed), "another probe");
        CHECK_MSG(!same_probe(whole, begun), "two steps have not changed the probe");
    }
    zonal__trainer_destroy(whole);
    zonal__trainer_destroy(begun);
    zonal__trainer_destroy(resumed);
    close_source(s.source);
    test_folder_remove(&folder);
}

/* A file without a probe is no checkpoint of a training with one, and says what is missing. */
static void test_missing(void) {
    test_folder folder;
    char path[800];
    setting s;
    zonal__trainer *without = NULL, *with = NULL;
    if (!CHECK(test_folder_make(&folder)) || !prepare(&s, ZONAL_DTYPE_FP32)) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    CHECK_OK(zonal__trainer_create(&s.options, &with));
    s.options.probe_classes = 0;
    CHECK_OK(zonal__trainer_create(&s.options, &without));
    if (with && without && CHECK_OK(zonal__checkpoint_save(without, path))) {
        CHECK(zonal__checkpoint_load(with, path) == ZONAL_FORMAT);
        CHECK(strstr(zonal_last_error()->message, "probe.weight"));
    }
    zonal__trainer_destroy(with);
    zonal__trainer_destroy(without);
    close_source(s.source);
    test_folder_remove(&folder);
}

/* By way of a feed, a stream and pinned labels: the CPU's bits. */
static void check_device(zonal__data_location location, int64_t micro) {
    setting s;
    zonal__trainer *here = NULL, *there = NULL;
    if (!fake_register() || !prepare(&s, ZONAL_DTYPE_FP32)) return;
    s.options.data_location = location;
    s.options.micro_batch = micro;
    CHECK_OK(zonal__trainer_create(&s.options, &here));
    if (CHECK_OK(zonal__device_open("fake:1", &s.options.device)))
        CHECK_OK(zonal__trainer_create(&s.options, &there));
    if (here && there && make_steps(here, 3) && make_steps(there, 3))
        CHECK_MSG(same_probe(here, there), "location %d, micro-batch %d: another probe",
                  (int)location, (int)micro);
    zonal__trainer_destroy(here);
    zonal__trainer_destroy(there);
    close_source(s.source);
    CHECK(fake_count(1).blocks == 0 && fake_count(1).pinned == 0);
}

static void test_device(void) {
    check_device(ZONAL__DATA_ON_HOST, 0);
    check_device(ZONAL__DATA_ON_DEVICE, 0);
    check_device(ZONAL__DATA_ON_HOST, 4);
}

typedef struct shared {
    zonal_status status[THREAD_RANKS];
    float *probe[THREAD_RANKS];
    int64_t size;
} shared;

static zonal_status train(const zonal_communicator *c, float **probe, int64_t *size) {
    const zonal__source_options source = {.path = "textures:disk",
                                          .split = ZONAL__SPLIT_TRAIN,
                                          .texture_count = IMAGES,
                                          .texture_size = setting_small.texture};
    setting s = {0};
    zonal__trainer *t = NULL;
    zonal_status status;
    ZONAL_TRY(zonal__source_open(&source, &s.source));
    setting_fill(&s, &setting_small, "mmd-heat", ZONAL_DTYPE_FP32);
    s.options.schedule = (zonal__schedule){.kind = ZONAL__SCHEDULE_CONSTANT, .total = 100};
    s.options.threads = s.options.loader.workers = 1;
    s.options.communicator = c;
    s.options.probe_classes = CLASSES;
    s.options.probe_rate = 1e-2;
    put_labels(s.source);
    status = zonal__trainer_create(&s.options, &t);
    while (status == ZONAL_OK && zonal__trainer_steps_done(t) < 3) status = zonal__trainer_step(t);
    if (status == ZONAL_OK) {
        *size = zonal__online_probe_size(t->probe);
        status = ZONAL_NEW(probe, *size, "the probe");
    }
    if (status == ZONAL_OK) status = zonal__trainer_probe(t, *probe);
    zonal__trainer_destroy(t);
    close_source(s.source);
    return status;
}

static void body(const zonal_communicator *c, void *context) {
    shared *w = context;
    int64_t size = 0;
    w->status[c->rank] = train(c, &w->probe[c->rank], &size);
    if (c->rank == 0) w->size = size;
}

/* Ranks round sums of features in another order, and AdamW's first steps have the gradient's signs:
 * the network stays as it is (rate 0), and what is left is the rounding of three steps of 1e-2. */
static void test_ranks(void) {
    shared w = {0};
    float *alone = NULL;
    int64_t size = 0;
    if (CHECK_OK(thread_ranks_run(3, body, &w)) && CHECK_OK(w.status[0]) && CHECK_OK(w.status[1]) &&
        CHECK_OK(w.status[2]) && CHECK_OK(train(NULL, &alone, &size)) && CHECK(size == w.size)) {
        for (int r = 1; r < 3; r++)
            CHECK(memcmp(w.probe[r], w.probe[0], (size_t)size * sizeof *alone) == 0);
        for (int64_t k = 0; k < size; k++) CHECK_CLOSE(w.probe[0][k], alone[k], 1e-4);
    }
    for (int r = 0; r < 3; r++) zonal__free(w.probe[r]);
    zonal__free(alone);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_refuses(void) {
    setting s;
    zonal__trainer *t = NULL;
    if (!prepare(&s, ZONAL_DTYPE_FP32)) return;
    labels[7] = CLASSES;
    CHECK(zonal__trainer_create(&s.options, &t) == ZONAL_ARGUMENT && !t);
    CHECK(strstr(zonal_last_error()->message, "image 7"));
    labels[7] = 0;
    s.source->labels = NULL;
    CHECK(zonal__trainer_create(&s.options, &t) == ZONAL_ARGUMENT && !t);
    CHECK(strstr(zonal_last_error()->message, "no classes"));
    close_source(s.source);
}

static zonal_status make_and_drop(void *context) {
    zonal__online_probe_spec spec = {.classifier = {.rows = 4,
                                                    .all_rows = 4,
                                                    .dim = 3,
                                                    .classes = 2,
                                                    .dtype = ZONAL_DTYPE_FP32,
                                                    .threads = 1,
                                                    .device = context},
                                     .micro = 2};
    zonal__online_probe *probe;
    ZONAL_TRY(zonal__online_probe_create(&spec, &probe));
    zonal__online_probe_destroy(probe);
    return ZONAL_OK;
}

static void test_memory(void) {
    const zonal__device *fake;
    test_every_allocation("on the host", make_and_drop, NULL);
    if (fake_register() && CHECK_OK(zonal__device_open("fake:0", &fake)))
        test_every_allocation("on a device", make_and_drop, (void *)fake);
}

static const test_case tests[] = {
    {"steps", test_steps},     {"unnoticed", test_unnoticed}, {"resumes", test_resumes},
    {"missing", test_missing}, {"device", test_device},       {"ranks", test_ranks},
    {"refuses", test_refuses}, {"memory", test_memory},       {0}};

int main(int argc, char **argv) {
    for (int i = 0; i < IMAGES; i++) labels[i] = i * i / 3 % CLASSES;
    return test_main(argc, argv, tests);
}
