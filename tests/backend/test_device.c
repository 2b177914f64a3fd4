/*
 * Devices: their names, what is refused, the list of them; and plans and objectives on a device
 * that is not the host, which compute what the CPU computes, on the device that was named and no
 * other.
 */
#include "backend/device.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "fake_device.h"
#include "test.h"

/* ---- names ----------------------------------------------------------------------------------- */

static const zonal__device *open_device(const char *name) {
    const zonal__device *device = NULL;
    CHECK_OK(zonal__device_open(name, &device));
    return device;
}

static void test_names(void) {
    if (!fake_register()) return;
    CHECK(open_device("cpu") == zonal__device_cpu() && open_device("") == zonal__device_cpu());
    CHECK(open_device("cpu:0") == zonal__device_cpu());
    CHECK(open_device("ref") == zonal__device_ref() && zonal__device_ref() != zonal__device_cpu());
    CHECK(open_device("fake") == open_device("fake:0"));
    CHECK(open_device("fake:1") != open_device("fake:0"));
    CHECK(strcmp(open_device("fake")->name, "fake:0") == 0);
    CHECK(strcmp(open_device("fake:1")->name, "fake:1") == 0 && open_device("fake:1")->index == 1);
    CHECK(strcmp(zonal__device_cpu()->name, "cpu") == 0 && zonal__device_is_host(open_device("")));
    CHECK(!zonal__device_is_host(open_device("fake:1")));
    CHECK(zonal__device_or_cpu(NULL) == zonal__device_cpu());
}

static void refused(const char *name, zonal_status status, const char *sentence) {
    const zonal__device *device = zonal__device_cpu();
    CHECK_FAILS(zonal__device_open(name, &device), status, sentence);
    CHECK_MSG(device == NULL, "%s: a device all the same", name);
}

static void test_refusals(void) {
    const char *wrong[] = {"gpu",
                           "CPU",
                           "fake:",
                           "fake:x",
                           "fake:1x",
                           "fake:-1",
                           "fake::1",
                           ":1",
                           ":",
                           " cpu",
                           "cpu ",
                           "fake:99999",
                           "a name that is far longer than any device's:0"};
    if (!fake_register()) return;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        refused(wrong[i], ZONAL_ARGUMENT, "there is no device ");
    refused("gpu", ZONAL_ARGUMENT, "use one of cpu, ");
    refused("fake:2", ZONAL_DEVICE,
            "there is no device fake:2; this machine has fake:0 and fake:1");
    refused("cpu:1", ZONAL_DEVICE, "this machine has cpu");
    CHECK_FAILS(zonal__device_register(zonal__backend_cpu()), ZONAL_ARGUMENT, "cpu");
}

/* "auto" is the first device that is not the host. */
static void test_auto(void) {
    const zonal__device *device;
    if (!fake_register()) return;
    CHECK_OK(zonal__device_choose("auto", &device));
    CHECK(device && !zonal__device_is_host(device) && device->index == 0);
    CHECK_OK(zonal__device_choose("fake:1", &device));
    CHECK(device == open_device("fake:1"));
    CHECK_FAILS(zonal__device_choose("automatic", &device), ZONAL_ARGUMENT, "automatic");
}

static void *open_often(void *context) {
    const zonal__device **found = context;
    for (int i = 0; i < 1000; i++)
        if (zonal__device_open(i % 2 ? "fake:1" : "cpu", &found[i % 2]) != ZONAL_OK) return NULL;
    return context;
}

static void test_threads(void) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    const zonal__device *found[THREADS][2];
    void *good;
    if (!fake_register()) return;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, open_often, found[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], &good) == 0 && good);
        CHECK(found[i][0] == zonal__device_cpu() && found[i][1] == open_device("fake:1"));
    }
}

/* ---- the list -------------------------------------------------------------------------------- */

static void test_list(void) {
    int count, fakes = 0;
    if (!fake_register()) return;
    count = zonal_device_count();
    CHECK(count >= 3);
    for (int i = 0; i < count; i++) {
        zonal_device_info info = ZONAL_DEVICE_INFO_INIT;
        if (!CHECK_OK(zonal_device_info_get(i, &info))) continue;
        CHECK(strlen(info.name) > 0 && strcmp(info.name, "ref") != 0);
        CHECK((i == 0) == (strcmp(info.name, "cpu") == 0));
        CHECK(info.size == sizeof info && info.total_memory >= info.free_memory);
        CHECK(open_device(info.name)->index == info.index);
        if (strncmp(info.name, "fake:", 5) != 0) continue;
        CHECK(info.index == fakes && info.compute_major == 4 && info.compute_minor == 2);
        CHECK(info.model[5] == '0' + fakes++ && info.total_memory == (uint64_t)1 << 30);
    }
    CHECK(fakes == FAKE_DEVICES);
    CHECK(zonal_device_missing("cpu") == NULL && zonal_device_missing("fake") == NULL);
    CHECK(strstr(zonal_device_missing("gpu"), "there is no device gpu") != NULL);
}

/* A caller that was compiled with fewer members, or with more. */
static void test_sizes(void) {
    struct {
        zonal_device_info info;
        char more[64];
    } newer;
    zonal_device_info older;
    memset(&older, 'x', sizeof older);
    older.size = offsetof(zonal_device_info, model);
    CHECK_OK(zonal_device_info_get(0, &older));
    CHECK(strcmp(older.name, "cpu") == 0 && older.model[0] == 'x');
    memset(&newer, 'x', sizeof newer);
    newer.info.size = sizeof newer;
    CHECK_OK(zonal_device_info_get(0, &newer.info));
    CHECK(newer.info.size == sizeof newer && newer.more[0] == 0 && newer.more[63] == 0);
    newer.info.size = 0;
    CHECK_FAILS(zonal_device_info_get(0, &newer.info), ZONAL_ARGUMENT, "ZONAL_DEVICE_INFO_INIT");
    newer.info.size = (size_t)1 << 40; /* memory that was never set */
    CHECK_FAILS(zonal_device_info_get(0, &newer.info), ZONAL_ARGUMENT, "no version");
    newer.info.size = sizeof newer.info;
    CHECK_FAILS(zonal_device_info_get(-1, &newer.info), ZONAL_ARGUMENT, "device number -1");
    CHECK_FAILS(zonal_device_info_get(1000, &newer.info), ZONAL_ARGUMENT, "device number 1000");
    CHECK_FAILS(zonal_device_info_get(0, NULL), ZONAL_ARGUMENT, "NULL");
}

/* ---- plans and objectives there -------------------------------------------------------------- */

enum { BATCH = 24, DIM = 10, VIEWS = 3 };

typedef struct batch {
    float x[VIEWS * BATCH * DIM], gradient[VIEWS * BATCH * DIM];
    void *there_x, *there_gradient, *there_value;
} batch;

static void fill(batch *b, const zonal__device *device) {
    const zonal__random random = {.seed = test_seed, .stream = ZONAL__STREAM_TEST};
    double drawn[VIEWS * BATCH * DIM];
    zonal__random_normal(&random, 0, VIEWS * BATCH * DIM, drawn);
    for (int i = 0; i < VIEWS * BATCH * DIM; i++) b->x[i] = (float)drawn[i];
    CHECK_OK(zonal__device_alloc(device, sizeof b->x, "rows", &b->there_x));
    CHECK_OK(zonal__device_alloc(device, sizeof b->gradient, "gradient", &b->there_gradient));
    CHECK_OK(zonal__device_alloc(device, sizeof(zonal_objective_parts), "value", &b->there_value));
    CHECK_OK(zonal__device_write(device, b->there_x, b->x, sizeof b->x));
}

static void release(batch *b, const zonal__device *device) {
    zonal__device_free(device, b->there_x);
    zonal__device_free(device, b->there_gradient);
    zonal__device_free(device, b->there_value);
}

static void nothing_left(void) {
    for (int i = 0; i < FAKE_DEVICES; i++) {
        fake_counts c = fake_count(i);
        CHECK_MSG(c.blocks == 0 && c.streams == 0 && c.events == 0 && c.pinned == 0,
                  "fake:%d keeps %d blocks, %d streams, %d events, %d pinned", i, c.blocks,
                  c.streams, c.events, c.pinned);
    }
}

static const char *const methods[] = {"mmd-heat", "mmd-band", "ksd-heat",
                                      "kl-heat",  "susreg",   "sigreg"};
enum { METHODS = sizeof methods / sizeof methods[0] };

/* Left to the plans, the devices go different ways where there are two. */
static zonal_implementation one_way(const char *method) {
    return strcmp(method, "mmd-band") == 0 ? ZONAL_IMPLEMENTATION_PAIRS : ZONAL_IMPLEMENTATION_AUTO;
}

/* The same bits as the CPU's, from memory that the processor cannot reach. */
static void check_plan(const char *method, const char *name, zonal_implementation implementation) {
    const zonal__device *device = open_device(name);
    fake_counts before = fake_count(1 - device->index);
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan *here = NULL, *there = NULL;
    zonal_plan_info info = ZONAL_PLAN_INFO_INIT;
    double want, got = NAN;
    float *want_gradient = NULL;
    void *stream;
    batch b;
    fill(&b, device);
    CHECK_OK(zonal__device_stream_create(device, &stream));
    CHECK_OK(zonal_loss_defaults(method, &options));
    options.implementation = implementation;
    if (CHECK_OK(ZONAL_NEW(&want_gradient, BATCH * DIM, "a gradient")) &&
        CHECK_OK(zonal_plan_create(&options, BATCH, DIM, &here))) {
        snprintf(options.device, sizeof options.device, "%s", name);
        CHECK_OK(zonal_plan_create(&options, BATCH, DIM, &there));
    }
    if (there && CHECK_OK(zonal_plan_execute(here, b.x, &want, want_gradient))) {
        zonal_plan_set_stream(there, stream);
        CHECK_OK(zonal_plan_execute(there, b.there_x, b.there_value, b.there_gradient));
        CHECK_OK(zonal_plan_status(there));
        CHECK_OK(zonal__device_read(device, &got, b.there_value, sizeof got));
        CHECK_OK(
            zonal__device_read(device, b.gradient, b.there_gradient, BATCH * DIM * sizeof(float)));
        CHECK_MSG(got == want, "%s on %s: %.17g, on the CPU %.17g", method, name, got, want);
        CHECK(memcmp(b.gradient, want_gradient, BATCH * DIM * sizeof(float)) == 0);
        zonal_plan_info_get(there, &info);
        CHECK(strcmp(info.backend, "fake") == 0);
    }
    CHECK(fake_count(1 - device->index).runs == before.runs);
    zonal_plan_destroy(here);
    zonal_plan_destroy(there);
    zonal__device_stream_destroy(device, stream);
    zonal__free(want_gradient);
    release(&b, device);
}

static void test_plans(void) {
    if (!fake_register()) return;
    for (int i = 0; i < METHODS; i++)
        for (int d = 0; d < FAKE_DEVICES; d++)
            check_plan(methods[i], d ? "fake:1" : "fake", one_way(methods[i]));
    check_plan("mmd-band", "fake:1", ZONAL_IMPLEMENTATION_MOMENTS);
    nothing_left();
}

/* The device says up to which batch its pairs pay: 100 rows. */
static void test_implementation(void) {
    const int64_t batches[] = {100, 101};
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan_info info = ZONAL_PLAN_INFO_INIT;
    zonal_plan *plan;
    if (!fake_register()) return;
    for (int i = 0; i < 4; i++) {
        CHECK_OK(zonal_loss_defaults("mmd-band", &options));
        snprintf(options.device, sizeof options.device, i / 2 ? "fake:1" : "cpu");
        if (!CHECK_OK(zonal_plan_create(&options, batches[i % 2], DIM, &plan))) return;
        zonal_plan_info_get(plan, &info);
        CHECK((info.implementation == ZONAL_IMPLEMENTATION_PAIRS) == (i == 2));
        zonal_plan_destroy(plan);
    }
}

static void check_objective(const char *method) {
    const zonal__device *device = open_device("fake:1");
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective *here = NULL, *there = NULL;
    zonal_objective_parts want, got;
    float want_gradient[VIEWS * BATCH * DIM];
    batch b;
    fill(&b, device);
    CHECK_OK(zonal_objective_defaults(method, &options));
    options.loss.implementation = one_way(method);
    CHECK_OK(zonal_objective_create(&options, VIEWS, 2, BATCH, DIM, &here));
    snprintf(options.loss.device, sizeof options.loss.device, "fake:1");
    CHECK_OK(zonal_objective_create(&options, VIEWS, 2, BATCH, DIM, &there));
    for (uint32_t step = 0; here && there && step < 2; step++) {
        zonal_objective_set_step(here, step);
        zonal_objective_set_step(there, step);
        CHECK_OK(zonal_objective_execute(here, b.x, &want, want_gradient));
        CHECK_OK(zonal_objective_execute(there, b.there_x, b.there_value, b.there_gradient));
        CHECK_OK(zonal_objective_status(there));
        CHECK_OK(zonal__device_read(device, &got, b.there_value, sizeof got));
        CHECK_OK(zonal__device_read(device, b.gradient, b.there_gradient, sizeof b.gradient));
        CHECK_MSG(memcmp(&got, &want, sizeof got) == 0, "%s: %.17g, on the CPU %.17g", method,
                  got.total, want.total);
        CHECK(memcmp(b.gradient, want_gradient, sizeof b.gradient) == 0);
    }
    zonal_objective_destroy(here);
    zonal_objective_destroy(there);
    release(&b, device);
}

static void test_objectives(void) {
    if (!fake_register()) return;
    for (int i = 0; i < METHODS; i++) check_objective(methods[i]);
    CHECK(fake_count(1).runs > 0);
    nothing_left();
}

/* The value that a plan or an objective of SUSReg has there. */
static double value_there(const zonal__device *device, batch *b, zonal_plan *plan,
                          zonal_objective *objective) {
    double value = NAN;
    CHECK_OK(plan ? zonal_plan_execute(plan, b->there_x, b->there_value, NULL)
                  : zonal_objective_execute(objective, b->there_x, b->there_value, NULL));
    CHECK_OK(zonal__device_read(device, &value, b->there_value, sizeof value));
    return value;
}

/* A step in the device's memory counts instead of the one that was set, until it is taken away. */
static void test_device_step(void) {
    const uint32_t step = 7;
    zonal_plan *plan = NULL;
    zonal_objective *objective = NULL;
    void *word = NULL;
    batch b;
    if (!fake_register()) return;
    const zonal__device *device = open_device("fake:1");
    fill(&b, device);
    CHECK_OK(zonal__device_alloc(device, sizeof step, "a step", &word));
    CHECK_OK(zonal__device_write(device, word, &step, sizeof step));
    CHECK_OK(zonal_plan_make("susreg", "device=fake:1", BATCH, DIM, &plan));
    CHECK_OK(zonal_objective_make("susreg", "device=fake:1", VIEWS, 2, BATCH, DIM, &objective));
    for (int i = 0; i < 2 && plan && objective; i++) {
        zonal_plan *p = i ? NULL : plan;
        double value[4];
        for (uint32_t k = 0; k < 4; k++) { /* step 0, the device's, the device's, step 7 */
            zonal_plan_set_step(plan, k < 3 ? 0 : step);
            zonal_objective_set_step(objective, k < 3 ? 0 : step);
            zonal_plan_set_device_step(plan, k == 1 || k == 2 ? word : NULL);
            zonal_objective_set_device_step(objective, k == 1 || k == 2 ? word : NULL);
            value[k] = value_there(device, &b, p, objective);
        }
        CHECK(value[0] != value[1] && value[1] == value[2] && value[2] == value[3]);
    }
    zonal_plan_destroy(plan);
    zonal_objective_destroy(objective);
    zonal__device_free(device, word);
    release(&b, device);
    nothing_left();
}

/* A bad row is told when the device is asked, and once. */
static void test_bad_rows(void) {
    const zonal__device *device;
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan *plan = NULL;
    batch b;
    if (!fake_register()) return;
    device = open_device("fake:1");
    fill(&b, device);
    memset(b.x + 3 * DIM, 0, DIM * sizeof(float));
    CHECK_OK(zonal__device_write(device, b.there_x, b.x, sizeof b.x));
    CHECK_OK(zonal_loss_defaults("mmd-heat", &options));
    snprintf(options.device, sizeof options.device, "fake:1");
    if (CHECK_OK(zonal_plan_create(&options, BATCH, DIM, &plan))) {
        CHECK_OK(zonal_plan_execute(plan, b.there_x, b.there_value, b.there_gradient));
        CHECK_FAILS(zonal_plan_status(plan), ZONAL_NUMERIC, "row 3 is zero");
        CHECK_OK(zonal_plan_status(plan));
    }
    zonal_plan_destroy(plan);
    release(&b, device);
    nothing_left();
}

/* ---- what a device cannot do ----------------------------------------------------------------- */

static zonal_status create_plan(const zonal_loss_options *options) {
    zonal_plan *plan;
    zonal_status status = zonal_plan_create(options, BATCH, DIM, &plan);
    CHECK(status == ZONAL_OK || plan == NULL);
    zonal_plan_destroy(plan);
    return status;
}

static void test_capabilities(void) {
    static zonal__backend poor;
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_objective_options objective = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective *made;
    const zonal__nn_table *layers;
    if (!fake_register()) return;
    CHECK_OK(zonal_loss_defaults("mmd-heat", &options));
    snprintf(options.device, sizeof options.device, "fake:1");
    options.precision = ZONAL_PRECISION_DOUBLE;
    CHECK_FAILS(create_plan(&options), ZONAL_UNSUPPORTED,
                "the device fake:1 does not compute in double; use fp32 there");
    options.precision = ZONAL_PRECISION_FP32;
    options.dtype = ZONAL_DTYPE_BF16;
    CHECK_FAILS(create_plan(&options), ZONAL_UNSUPPORTED,
                "the device fake:1 takes no rows of bf16; use fp32 there");
    options.dtype = ZONAL_DTYPE_FP32;
    options.implementation = ZONAL_IMPLEMENTATION_REF;
    CHECK_FAILS(create_plan(&options), ZONAL_ARGUMENT, "use the device cpu");
    poor = *open_device("fake:1")->backend;
    poor.name = "poor";
    poor.operations[ZONAL__KL] = poor.operations[ZONAL__OBJECTIVE] = NULL;
    CHECK_OK(zonal__device_register(&poor));
    CHECK_OK(zonal_loss_defaults("kl-heat", &options));
    snprintf(options.device, sizeof options.device, "poor:1");
    CHECK_FAILS(create_plan(&options), ZONAL_UNSUPPORTED, "poor:1 does not compute KL");
    CHECK_OK(zonal_objective_defaults("mmd-heat", &objective));
    snprintf(objective.loss.device, sizeof objective.loss.device, "poor");
    CHECK_FAILS(zonal_objective_create(&objective, VIEWS, 2, BATCH, DIM, &made), ZONAL_UNSUPPORTED,
                "poor:0 does not compute objective");
    CHECK_FAILS(zonal__device_layers(open_device("poor"), &layers), ZONAL_UNSUPPORTED,
                "poor:0 computes losses");
    CHECK(!zonal__device_autotunes(open_device("poor")));
    nothing_left();
}

static const test_case tests[] = {{"names", test_names},
                                  {"refusals", test_refusals},
                                  {"auto", test_auto},
                                  {"threads", test_threads},
                                  {"list", test_list},
                                  {"sizes", test_sizes},
                                  {"plans", test_plans},
                                  {"implementation", test_implementation},
                                  {"objectives", test_objectives},
                                  {"device_step", test_device_step},
                                  {"bad_rows", test_bad_rows},
                                  {"capabilities", test_capabilities},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
