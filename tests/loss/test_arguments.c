/*
 * NULL in each pointer argument of each public function: refused with a sentence that names it, or
 * allowed, as zonal/status.h says. What was to be filled is left in the state that is promised.
 */
#include <math.h>

#include "test.h"
#include "zonal/zonal.h"

enum { ROWS = 4, DIM = 3 };
static const float rows[ROWS][DIM] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}};
static void *const occupied = (void *)rows; /* a pointer that a failure must overwrite */

static void test_kernels(void) {
    const zonal_kernel_spec spec = {.family = ZONAL_FAMILY_HEAT, .log_profile = 1};
    zonal_kernel_constants constants = {.size = sizeof constants, .degrees = 7};
    zonal_family family = ZONAL_FAMILY_CHORDAL;
    zonal_kernel *kernel = occupied;
    double c = .5, out = 7;
    CHECK_FAILS(zonal_kernel_create(NULL, DIM, &kernel), ZONAL_ARGUMENT, "spec");
    CHECK(kernel == NULL);
    CHECK_FAILS(zonal_kernel_create(&spec, DIM, NULL), ZONAL_ARGUMENT, "kernel must not be NULL");
    if (!CHECK_OK(zonal_kernel_create(&spec, DIM, &kernel))) return;
    zonal_kernel_destroy(NULL);
    zonal_kernel_constants_get(kernel, NULL);
    zonal_kernel_constants_get(NULL, &constants);
    CHECK(constants.degrees == 0 && constants.derivative == 0);
    CHECK_FAILS(zonal_kernel_eval(NULL, 0, 1, &c, &out), ZONAL_ARGUMENT, "kernel");
    CHECK_FAILS(zonal_kernel_eval(kernel, 0, 1, NULL, &out), ZONAL_ARGUMENT, "c must not");
    CHECK_FAILS(zonal_kernel_eval(kernel, 0, 1, &c, NULL), ZONAL_ARGUMENT, "out must not");
    CHECK_OK(zonal_kernel_eval(kernel, 0, 0, NULL, NULL));
    CHECK_FAILS(zonal_kernel_log_eval(NULL, 1, &c, &out), ZONAL_ARGUMENT, "kernel");
    CHECK_FAILS(zonal_kernel_log_eval(kernel, 1, NULL, &out), ZONAL_ARGUMENT, "c must not");
    CHECK_FAILS(zonal_kernel_log_eval(kernel, 1, &c, NULL), ZONAL_ARGUMENT, "out must not");
    CHECK(out == 7);
    CHECK(zonal_kernel_weight(NULL, 1) == 0);
    CHECK(zonal_kernel_log_multiplicity(NULL, 1) == -INFINITY);
    CHECK_FAILS(zonal_family_parse(NULL, &family), ZONAL_ARGUMENT, "name");
    CHECK_FAILS(zonal_family_parse("heat", NULL), ZONAL_ARGUMENT, "family");
    CHECK(family == ZONAL_FAMILY_CHORDAL);
    zonal_kernel_destroy(kernel);
}

static void test_spectra(void) {
    const zonal_kernel_spec spec = {.family = ZONAL_FAMILY_SPECTRUM, .n_weights = 3};
    zonal_kernel *kernel = occupied;
    CHECK_FAILS(zonal_kernel_create(&spec, DIM, &kernel), ZONAL_ARGUMENT, "weights");
    CHECK(kernel == NULL);
}

static void test_plans(void) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan_info info = {.size = sizeof info, .norm = 7};
    zonal_plan *plan = occupied;
    double value = 7;
    float gradient[ROWS][DIM];
    CHECK_FAILS(zonal_loss_defaults(NULL, &options), ZONAL_ARGUMENT, "method");
    CHECK_FAILS(zonal_loss_defaults("mmd-heat", NULL), ZONAL_ARGUMENT, "options");
    CHECK_OK(zonal_loss_defaults("mmd-heat", &options));
    CHECK_FAILS(zonal_plan_create(NULL, ROWS, DIM, &plan), ZONAL_ARGUMENT, "options");
    CHECK(plan == NULL);
    CHECK_FAILS(zonal_plan_create(&options, ROWS, DIM, NULL), ZONAL_ARGUMENT, "plan");
    if (!CHECK_OK(zonal_plan_create(&options, ROWS, DIM, &plan))) return;
    CHECK_FAILS(zonal_plan_execute(NULL, rows, &value, gradient), ZONAL_ARGUMENT, "plan");
    CHECK_FAILS(zonal_plan_execute(plan, NULL, &value, gradient), ZONAL_ARGUMENT, "x must not");
    CHECK_FAILS(zonal_plan_execute(plan, rows, NULL, gradient), ZONAL_ARGUMENT, "value");
    CHECK(value == 7);
    CHECK_OK(zonal_plan_execute(plan, rows, &value, NULL));
    zonal_plan_set_stream(plan, NULL);
    zonal_plan_set_stream(NULL, NULL);
    zonal_plan_set_step(NULL, 1);
    zonal_plan_set_device_step(NULL, NULL);
    CHECK_OK(zonal_plan_status(plan));
    CHECK_FAILS(zonal_plan_status(NULL), ZONAL_ARGUMENT, "plan");
    zonal_plan_info_get(plan, NULL);
    zonal_plan_info_get(NULL, &info);
    CHECK(info.norm == 0);
    zonal_plan_destroy(plan);
    zonal_plan_destroy(NULL);
}

static void test_objectives(void) {
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective_parts parts = {.total = 7};
    zonal_objective *objective = occupied;
    float z[2][ROWS][DIM], gradient[2][ROWS][DIM];
    memcpy(z[0], rows, sizeof rows);
    memcpy(z[1], rows, sizeof rows);
    CHECK_FAILS(zonal_objective_defaults(NULL, &options), ZONAL_ARGUMENT, "method");
    CHECK_FAILS(zonal_objective_defaults("mmd-heat", NULL), ZONAL_ARGUMENT, "options");
    CHECK_OK(zonal_objective_defaults("mmd-heat", &options));
    CHECK_FAILS(zonal_objective_create(NULL, 2, 2, ROWS, DIM, &objective), ZONAL_ARGUMENT,
                "options");
    CHECK(objective == NULL);
    CHECK_FAILS(zonal_objective_create(&options, 2, 2, ROWS, DIM, NULL), ZONAL_ARGUMENT,
                "objective must");
    if (!CHECK_OK(zonal_objective_create(&options, 2, 2, ROWS, DIM, &objective))) return;
    CHECK_FAILS(zonal_objective_execute(NULL, z, &parts, gradient), ZONAL_ARGUMENT, "objective");
    CHECK_FAILS(zonal_objective_execute(objective, NULL, &parts, gradient), ZONAL_ARGUMENT,
                "z must not");
    CHECK_FAILS(zonal_objective_execute(objective, z, NULL, gradient), ZONAL_ARGUMENT, "parts");
    CHECK(parts.total == 7);
    CHECK_OK(zonal_objective_execute(objective, z, &parts, NULL));
    zonal_objective_set_step(NULL, 1);
    zonal_objective_set_device_step(NULL, NULL);
    zonal_objective_set_stream(objective, NULL);
    zonal_objective_set_stream(NULL, NULL);
    CHECK_OK(zonal_objective_status(objective));
    CHECK_FAILS(zonal_objective_status(NULL), ZONAL_ARGUMENT, "objective");
    zonal_objective_destroy(objective);
    zonal_objective_destroy(NULL);
}

static void test_uniformity(void) {
    const zonal_uniformity_options options = {.size = sizeof options,
                                              .precision = ZONAL_PRECISION_FP32};
    zonal_uniformity_report report = {.size = sizeof report, .n = 7};
    CHECK_FAILS(zonal_uniformity_run(NULL, ROWS, DIM, rows, &report), ZONAL_ARGUMENT, "options");
    CHECK(report.n == 0);
    report.n = 7;
    CHECK_FAILS(zonal_uniformity_run(&options, ROWS, DIM, NULL, &report), ZONAL_ARGUMENT,
                "x must not");
    CHECK(report.n == 0);
    CHECK_FAILS(zonal_uniformity_run(&options, ROWS, DIM, rows, NULL), ZONAL_ARGUMENT, "report");
    CHECK_OK(zonal_uniformity_run(&options, ROWS, DIM, rows, &report)); /* progress is NULL */
}

static void test_surroundings(void) {
    zonal_set_log(NULL, NULL);
    zonal_set_allocator(NULL);
    CHECK(zonal_last_error() != NULL);
}

static const test_case tests[] = {{"kernels", test_kernels},
                                  {"spectra", test_spectra},
                                  {"plans", test_plans},
                                  {"objectives", test_objectives},
                                  {"uniformity", test_uniformity},
                                  {"log and allocator", test_surroundings},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
