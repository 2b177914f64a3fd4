/*
 * Losses and the objective beyond their numbers, which are in test_loss.c: what is refused and in
 * which words, rows at the ends of the range, and what happens when memory runs out.
 */
#include "failing_alloc.h"
#include "loss_case.h"

/* ---- What is refused ---- */

static zonal_loss_options defaults(const char *method) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    CHECK_OK(zonal_loss_defaults(method, &options));
    options.precision = ZONAL_PRECISION_DOUBLE;
    return options;
}

static zonal_status create(zonal_loss_options options, int64_t batch, int64_t dim) {
    zonal_plan *plan = (zonal_plan *)&options; /* must become NULL on failure */
    zonal_status status = zonal_plan_create(&options, batch, dim, &plan);
    CHECK((status == ZONAL_OK) == (plan != NULL));
    zonal_plan_destroy(plan);
    return status;
}

#define BUT(method, field, setting) (changed = defaults(method), changed.field = (setting), changed)

static void test_methods(void) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    int n = 0;
    while (zonal_method_name(n)) {
        CHECK_OK(zonal_loss_defaults(zonal_method_name(n), &options));
        CHECK(options.precision == ZONAL_PRECISION_FP32 && strcmp(options.device, "cpu") == 0);
        int tested = 0;
        for (int i = 0; i < GOLDEN_LOSSES; i++)
            tested += strcmp(golden_losses[i].method, zonal_method_name(n)) == 0;
        CHECK_MSG(tested >= 3, "%s is not among the stored cases", zonal_method_name(n));
        n++;
    }
    CHECK(n == 17);
    CHECK(zonal_method_name(-1) == NULL && zonal_method_name(n) == NULL);
    CHECK_FAILS(zonal_loss_defaults("mmd-haet", &options), ZONAL_ARGUMENT, "'mmd-heat'");
    CHECK_FAILS(zonal_loss_defaults("susregg", &options), ZONAL_ARGUMENT, "'susreg'");
    CHECK_FAILS(zonal_loss_defaults("wasserstein-gaussian", &options), ZONAL_ARGUMENT,
                "there are mmd-heat, mmd-band");
    CHECK_FAILS(zonal_loss_defaults("", &options), ZONAL_ARGUMENT, "unknown method ''");
    CHECK_FAILS(zonal_loss_defaults("kl-band", &options), ZONAL_ARGUMENT,
                "band is negative at some cosines; use one of kl-heat, kl-induced, kl-poisson, "
                "kl-spectrum, or mmd-band");
    CHECK_FAILS(zonal_loss_defaults("kl-chordal", &options), ZONAL_ARGUMENT,
                "chordal is 0 at c = -1; use one of kl-heat");
    CHECK_FAILS(zonal_loss_defaults("kl-bnad", &options), ZONAL_ARGUMENT, "unknown method");
}

static void test_bad_options(void) {
    const zonal_status bad = ZONAL_ARGUMENT;
    static const double unpositive[3] = {1, 1, 1};
    zonal_loss_options changed = ZONAL_LOSS_OPTIONS_INIT;
    CHECK_FAILS(create(defaults("mmd-heat"), 1, 8), ZONAL_SHAPE, "at least 2 rows, got 1");
    CHECK_FAILS(create(defaults("mmd-heat"), 0, 8), ZONAL_SHAPE, "got 0");
    CHECK_FAILS(create(defaults("mmd-heat"), -5, 8), ZONAL_SHAPE, "got -5");
    CHECK_FAILS(create(defaults("kl-heat"), 2, 8), ZONAL_SHAPE, "KL needs a batch of at least 3");
    CHECK_FAILS(create(defaults("susreg"), 1, 8), ZONAL_SHAPE, "at least 2 rows");
    CHECK_FAILS(create(defaults("mmd-heat"), 8, 1), ZONAL_SHAPE, "from 2 to 4096, got 1");
    CHECK_FAILS(create(defaults("sigreg"), 8, 4097), ZONAL_SHAPE, "got 4097");
    CHECK_FAILS(create(BUT("mmd-heat", kernel.parameter.factor, -1), 8, 8), bad,
                "t must be positive");
    CHECK_FAILS(create(BUT("kl-heat", kernel.parameter.factor, NAN), 8, 8), bad,
                "t must be positive");
    CHECK_FAILS(create(BUT("ksd-heat", kernel.parameter.factor, INFINITY), 8, 8), bad,
                "t must be positive");
    CHECK_FAILS(create(BUT("mmd-band", kernel.parameter.factor, 65), 8, 8), bad,
                "from 1 to 64, got 65");
    CHECK_FAILS(create(BUT("mmd-induced", kernel.parameter.factor, -1), 8, 8), bad,
                "scale must be above 0");
    CHECK_FAILS(create(BUT("mmd-poisson", kernel.parameter.factor, 1), 8, 8), bad,
                "between 0 and 1, got 1");
    CHECK_FAILS(create(BUT("mmd-poisson", kernel.parameter.factor, 1.5), 8, 8), bad, "got 1.5");
    CHECK_FAILS(create(BUT("mmd-chordal", discrepancy, ZONAL_DISCREPANCY_KSD), 8, 8), bad,
                "use mmd-chordal");
    CHECK_FAILS(create(BUT("mmd-chordal", discrepancy, ZONAL_DISCREPANCY_KL), 8, 8), bad,
                "chordal is 0");
    CHECK_FAILS(create(BUT("mmd-band", discrepancy, ZONAL_DISCREPANCY_KL), 8, 8), bad,
                "positive everywhere");
    CHECK_FAILS(create(defaults("mmd-spectrum"), 8, 8), bad, "2 to 4096 weights");
    changed = defaults("kl-spectrum");
    changed.kernel.weights = unpositive;
    changed.kernel.n_weights = 3;
    CHECK_FAILS(create(changed, 8, 8), bad, "positive everywhere");
    CHECK_FAILS(create(BUT("mmd-heat", discrepancy, (zonal_discrepancy)7), 8, 8), bad,
                "no discrepancy 7");
    CHECK_FAILS(create(BUT("mmd-heat", threads, -1), 8, 8), bad, "threads");
    CHECK_FAILS(create(BUT("mmd-heat", precision, ZONAL_PRECISION_TF32), 8, 8), ZONAL_UNSUPPORTED,
                "use double or fp32");
    CHECK_FAILS(create(BUT("mmd-heat", precision, ZONAL_PRECISION_BF16), 8, 8), ZONAL_UNSUPPORTED,
                "bf16");
    CHECK_FAILS(create(BUT("mmd-heat", precision, (zonal_precision)9), 8, 8), bad, "precision 9");
    CHECK_FAILS(create(BUT("mmd-heat", estimator, (zonal_estimator)3), 8, 8), bad, "estimator 3");
    CHECK_FAILS(create(BUT("kl-heat", kl_norm, (zonal_kl_norm)2), 8, 8), bad, "KL norm 2");
    changed = defaults("mmd-heat");
    snprintf(changed.device, sizeof changed.device, "gpu");
    CHECK_FAILS(create(changed, 8, 8), bad, "there is no device gpu");
    memset(changed.device, 'x', sizeof changed.device);
    CHECK_FAILS(create(changed, 8, 8), bad, "is not terminated");
    CHECK_FAILS(create(BUT("mmd-heat", implementation, (zonal_implementation)5), 8, 8), bad,
                "implementation 5");
    for (int i = 0; zonal_method_name(i); i++) {
        const char *method = zonal_method_name(i);
        if (strstr(method, "band") || strstr(method, "spectrum")) continue;
        CHECK_FAILS(create(BUT(method, implementation, ZONAL_IMPLEMENTATION_MOMENTS), 8, 8), bad,
                    "moments serve");
    }
    changed = BUT("mmd-band", implementation, ZONAL_IMPLEMENTATION_MOMENTS);
    changed.kernel.parameter.factor = 3;
    CHECK_FAILS(create(changed, 8, 8), bad, "moments serve");
    CHECK_FAILS(create(BUT("susreg", implementation, ZONAL_IMPLEMENTATION_PAIRS), 8, 8), bad,
                "has no pairs");
    CHECK_FAILS(create(BUT("susreg", sliced.slices, 0), 8, 8), bad, "slices must be at least 1");
    CHECK_FAILS(create(BUT("sigreg", sliced.knots, 1), 8, 8), bad, "knots must be from 2");
    CHECK_FAILS(create(BUT("sigreg", sliced.knots, 5000), 8, 8), bad, "got 5000");
    CHECK_FAILS(create(BUT("susreg", sliced.low, 5), 8, 8), bad, "low < high");
    CHECK_FAILS(create(BUT("susreg", sliced.low, NAN), 8, 8), bad, "low < high");
    CHECK_FAILS(create(BUT("susreg", sliced.high, INFINITY), 8, 8), bad, "within 1000");
    CHECK_FAILS(create(BUT("susreg", kernel.parameter.factor, NAN), 8, 8), bad, "scale");
    CHECK_FAILS(create(BUT("susreg", kernel.parameter.factor, 1e8), 8, 2), bad, "turn too fast");
}

/* Every kind of bad row, through every operation: the sentence gives its number. */
static void run_bad_rows(const char *method, zonal_implementation implementation,
                         zonal_precision precision) {
    enum { N = 9, D = 5 };
    const struct {
        double value;
        const char *text;
    } kinds[] = {{NAN, "row 6"}, {INFINITY, "row 6"}, {-INFINITY, "row 6"}};
    static const double weights[3] = {1, 0.05, 0.01};
    zonal_loss_options options = defaults(method);
    zonal_plan *plan;
    double value, again;
    void *x = make_rows(MIXED, N, D, precision), *gradient = guarded(N * D, precision);
    int sigreg = options.discrepancy == ZONAL_DISCREPANCY_SIGREG;
    int chordal = options.kernel.family == ZONAL_FAMILY_CHORDAL;
    options.precision = precision;
    options.implementation = implementation;
    options.sliced.slices = 4;
    options.kernel.weights = weights;
    options.kernel.n_weights = 3;
    void *out = chordal ? NULL : inside(gradient, precision);
    if (!CHECK_OK(zonal_plan_create(&options, N, D, &plan))) goto done;
    CHECK_OK(zonal_plan_execute(plan, x, &value, out));
    double saved = read_at(x, 6 * D + 3, precision);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        write_at(x, 6 * D + 3, precision, kinds[k].value);
        again = 0;
        CHECK_FAILS(zonal_plan_execute(plan, x, &again, out), ZONAL_NUMERIC, kinds[k].text);
        CHECK(isnan(again));
    }
    write_at(x, 6 * D + 3, precision, saved);
    double row[D];
    for (int k = 0; k < D; k++) {
        row[k] = read_at(x, 8 * D + k, precision);
        write_at(x, 8 * D + k, precision, 0);
    }
    if (sigreg)
        CHECK_OK(zonal_plan_execute(plan, x, &again, out));
    else
        CHECK_FAILS(zonal_plan_execute(plan, x, &again, out), ZONAL_NUMERIC, "row 8 is zero");
    for (int k = 0; k < D; k++) write_at(x, 8 * D + k, precision, row[k]);
    CHECK_OK(zonal_plan_execute(plan, x, &again, out)); /* the plan lives on */
    CHECK(value == again);
    zonal_plan_destroy(plan);
done:
    free(x);
    free(gradient);
}

static void test_bad_rows(void) {
    for (int i = 0; zonal_method_name(i); i++)
        for (int precision = ZONAL_PRECISION_DOUBLE; precision <= ZONAL_PRECISION_FP32; precision++)
            for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_REF; k++)
                run_bad_rows(zonal_method_name(i), (zonal_implementation)k,
                             (zonal_precision)precision);
}

static void test_chordal_gradient(void) {
    for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_PAIRS; k++) {
        zonal_loss_options options = defaults("mmd-chordal");
        zonal_plan *plan;
        double value = 0, gradient[15], *x = make_rows(MIXED, 5, 3, ZONAL_PRECISION_DOUBLE);
        options.implementation = (zonal_implementation)k;
        if (CHECK_OK(zonal_plan_create(&options, 5, 3, &plan))) {
            CHECK_FAILS(zonal_plan_execute(plan, x, &value, gradient), ZONAL_ARGUMENT,
                        "infinite derivative");
            CHECK(isnan(value));
            zonal_plan_destroy(plan);
        }
        free(x);
    }
}

/* Rows declared unit are checked to 1e-3. */
static void test_unit_rows(void) {
    for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_MOMENTS; k++) {
        zonal_loss_options options = defaults("mmd-band");
        zonal_plan *plan;
        double value, *x = make_rows(UNIT, 8, 8, ZONAL_PRECISION_DOUBLE);
        options.unit_rows = 1;
        options.implementation = (zonal_implementation)k;
        if (CHECK_OK(zonal_plan_create(&options, 8, 8, &plan))) {
            CHECK_OK(zonal_plan_execute(plan, x, &value, NULL));
            for (int i = 0; i < 8; i++) x[3 * 8 + i] *= 1.0009;
            CHECK_OK(zonal_plan_execute(plan, x, &value, NULL));
            for (int i = 0; i < 8; i++) x[3 * 8 + i] *= 1.0002;
            CHECK_FAILS(zonal_plan_execute(plan, x, &value, NULL), ZONAL_NUMERIC, "row 3 has norm");
            zonal_plan_destroy(plan);
        }
        free(x);
    }
}

/* Norms neither overflow nor underflow: the loss of c z is the loss of z, its gradient 1/c of it.
 */
static void test_extreme_norms(void) {
    enum { N = 6, D = 5 };
    for (int precision = ZONAL_PRECISION_DOUBLE; precision <= ZONAL_PRECISION_FP32; precision++)
        for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_REF; k++)
            for (int big = 0; big <= 1; big++) {
                zonal_precision type = (zonal_precision)precision;
                zonal_loss_options options = defaults("mmd-heat");
                int power = (big ? 1 : -1) * (precision == ZONAL_PRECISION_FP32 ? 118 : 1000);
                zonal_plan *plan;
                double value, scaled;
                void *x = make_rows(MIXED, N, D, type);
                options.precision = type;
                options.implementation = (zonal_implementation)k;
                if (CHECK_OK(zonal_plan_create(&options, N, D, &plan))) {
                    CHECK_OK(zonal_plan_execute(plan, x, &value, NULL));
                    for (int i = 0; i < N * D; i++)
                        write_at(x, i, type, ldexp(read_at(x, i, type), power));
                    CHECK_OK(zonal_plan_execute(plan, x, &scaled, NULL));
                    CHECK_CLOSE(scaled, value,
                                (precision == ZONAL_PRECISION_FP32 ? 2e-6 : 1e-14) * value);
                    zonal_plan_destroy(plan);
                }
                free(x);
            }
}

/* 1/|z| of a subnormal row overflows: it has a value, and no gradient. By the reference as well. */
static void test_short_rows(void) {
    enum { N = 6, D = 5 };
    static const char *const methods[] = {"mmd-heat", "mmd-band", "kl-heat", "susreg"};
    for (int precision = ZONAL_PRECISION_DOUBLE; precision <= ZONAL_PRECISION_FP32; precision++)
        for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_REF; k++)
            for (int m = 0; m < 4; m++) {
                zonal_precision type = (zonal_precision)precision;
                zonal_loss_options options = defaults(methods[m]);
                zonal_plan *plan;
                double value, gradient[N * D];
                void *x = make_rows(MIXED, N, D, type);
                options.precision = type;
                options.implementation = (zonal_implementation)k;
                for (int i = 3 * D; i < 4 * D; i++)
                    write_at(x, i, type, (i % 2 ? 1 : -1) * (precision ? 0x1p-140 : 0x1p-1040));
                if (CHECK_OK(zonal_plan_create(&options, N, D, &plan))) {
                    CHECK_OK(zonal_plan_execute(plan, x, &value, NULL));
                    CHECK_FAILS(zonal_plan_execute(plan, x, &value, gradient), ZONAL_NUMERIC,
                                "row 3 has norm");
                    zonal_plan_destroy(plan);
                }
                free(x);
            }
}

static zonal_status create_objective(zonal_objective_options options, int64_t views,
                                     int64_t global_views, int64_t batch, int64_t dim) {
    zonal_objective *objective = (zonal_objective *)&options;
    zonal_status status =
        zonal_objective_create(&options, views, global_views, batch, dim, &objective);
    CHECK((status == ZONAL_OK) == (objective != NULL));
    zonal_objective_destroy(objective);
    return status;
}

static void test_bad_objectives(void) {
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT, changed;
    CHECK_FAILS(zonal_objective_defaults("mmd-hat", &options), ZONAL_ARGUMENT, "'mmd-heat'");
    CHECK_OK(zonal_objective_defaults("kl-heat", &options));
    CHECK(options.lambda == 0.5);
    CHECK_OK(zonal_objective_defaults("mmd-heat", &options));
    CHECK(options.lambda == 0.05);
    CHECK_FAILS(create_objective(options, 0, 1, 8, 8), ZONAL_SHAPE, "at least 1 view, got 0");
    CHECK_FAILS(create_objective(options, 2, 0, 8, 8), ZONAL_SHAPE, "from 1 to all 2 views, got 0");
    CHECK_FAILS(create_objective(options, 2, 3, 8, 8), ZONAL_SHAPE, "got 3");
    CHECK_FAILS(create_objective(options, 2, 2, 1, 8), ZONAL_SHAPE, "at least 2 rows");
    CHECK_FAILS(create_objective(options, 2, 2, 8, 5000), ZONAL_SHAPE, "got 5000");
    const double lambdas[] = {-0.1, 1.1, NAN}, gains[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        changed = options;
        changed.lambda = lambdas[i];
        CHECK_FAILS(create_objective(changed, 2, 2, 8, 8), ZONAL_ARGUMENT, "lambda must be");
    }
    for (int i = 0; i < 4; i++) {
        changed = options;
        changed.gain = ZONAL_GAIN_VALUE;
        changed.gain_value = gains[i];
        CHECK_FAILS(create_objective(changed, 2, 2, 8, 8), ZONAL_ARGUMENT, "gain must be");
    }
    changed = options;
    changed.gain = (zonal_gain)9;
    CHECK_FAILS(create_objective(changed, 2, 2, 8, 8), ZONAL_ARGUMENT, "gain");
    zonal_objective *objective;
    zonal_objective_parts parts;
    float *z = make_rows(MIXED, 16, 8, ZONAL_PRECISION_FP32);
    if (CHECK_OK(zonal_objective_create(&options, 2, 2, 8, 8, &objective))) {
        z[8 * 8 + 3 * 8 + 1] = NAN;
        CHECK_FAILS(zonal_objective_execute(objective, z, &parts, NULL), ZONAL_NUMERIC,
                    "view 1: row 3");
        CHECK(isnan(parts.total) && isnan(parts.invariance) && isnan(parts.discrepancy));
        zonal_objective_destroy(objective);
    }
    free(z);
    zonal_objective_destroy(NULL);
    zonal_plan_destroy(NULL);
}

/* The paper's normaliser is negative at d <= 18: it is used as asked, and the log says so. */
static char log_text[1024];

static void keep_log(void *context, const char *line) {
    (void)context;
    snprintf(log_text, sizeof log_text, "%s", line);
}

static void test_log_of_paper_norm(void) {
    zonal_loss_options options = defaults("kl-heat");
    options.kl_norm = ZONAL_KL_NORM_PAPER;
    zonal_set_log(keep_log, NULL);
    log_text[0] = 0;
    CHECK_OK(create(options, 8, 18));
    CHECK(strstr(log_text, "collapse is rewarded"));
    log_text[0] = 0;
    CHECK_OK(create(options, 8, 19));
    CHECK(log_text[0] == 0);
    zonal_set_log(NULL, NULL);
}

/* ---- Memory ---- */

static zonal_status plan_and_drop(void *context) {
    zonal_plan *plan = NULL;
    zonal_status status = zonal_plan_create(context, 6, 5, &plan);
    CHECK((status == ZONAL_OK) == (plan != NULL));
    zonal_plan_destroy(plan);
    return status;
}

static zonal_status objective_and_drop(void *context) {
    zonal_objective *objective = NULL;
    zonal_status status = zonal_objective_create(context, 3, 2, 6, 5, &objective);
    CHECK((status == ZONAL_OK) == (objective != NULL));
    zonal_objective_destroy(objective);
    return status;
}

static void test_memory(void) {
    static const double weights[3] = {1, 0.05, 0.01};
    for (int i = 0; zonal_method_name(i); i++)
        for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_MOMENTS; k++) {
            zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
            const char *method = zonal_method_name(i);
            int moments = strncmp(method, "kl", 2) != 0 &&
                          (strstr(method, "band") || strstr(method, "spectrum"));
            CHECK_OK(zonal_objective_defaults(method, &options));
            if (k == ZONAL_IMPLEMENTATION_MOMENTS && !moments) continue;
            if (k == ZONAL_IMPLEMENTATION_PAIRS && options.loss.sliced.slices) continue;
            options.loss.implementation = (zonal_implementation)k;
            options.loss.sliced.slices = 3;
            options.loss.kernel.weights = weights;
            options.loss.kernel.n_weights = 3;
            if (options.loss.kernel.family == ZONAL_FAMILY_HEAT)
                options.loss.kernel.parameter.factor = 0.5;
            test_every_allocation(method, plan_and_drop, &options.loss);
            if (k <= ZONAL_IMPLEMENTATION_REF)
                test_every_allocation(method, objective_and_drop, &options);
        }
}

/* Executing allocates nothing: the allocator may be dead. */
static void test_execution_allocates_nothing(void) {
    static const double weights[3] = {1, 0.05, 0.01};
    for (int i = 0; zonal_method_name(i); i++) {
        zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
        zonal_objective *objective;
        zonal_objective_parts parts;
        void *z = make_rows(MIXED, 18, 5, ZONAL_PRECISION_FP32),
             *gradient = malloc(18 * 5 * sizeof(float));
        CHECK_OK(zonal_objective_defaults(zonal_method_name(i), &options));
        options.loss.sliced.slices = 3;
        options.loss.kernel.weights = weights;
        options.loss.kernel.n_weights = 3;
        failing_alloc_install(-1, 0);
        if (CHECK_OK(zonal_objective_create(&options, 3, 2, 6, 5, &objective))) {
            int64_t before = failing_alloc_calls();
            int chordal = options.loss.kernel.family == ZONAL_FAMILY_CHORDAL;
            CHECK_OK(zonal_objective_execute(objective, z, &parts, chordal ? NULL : gradient));
            CHECK(failing_alloc_calls() == before);
            zonal_objective_destroy(objective);
        }
        CHECK(failing_alloc_remove() == 0);
        free(z);
        free(gradient);
    }
}

static const test_case tests[] = {
    {"methods", test_methods},
    {"bad options", test_bad_options},
    {"bad rows", test_bad_rows},
    {"chordal has no gradient", test_chordal_gradient},
    {"unit rows", test_unit_rows},
    {"extreme norms", test_extreme_norms},
    {"short rows", test_short_rows},
    {"bad objectives", test_bad_objectives},
    {"paper's normaliser", test_log_of_paper_norm},
    {"memory", test_memory},
    {"execution allocates nothing", test_execution_allocates_nothing},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
