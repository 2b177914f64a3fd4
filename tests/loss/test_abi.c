/*
 * The public ABI: structs that begin with their size, options by name and text, what is known by
 * name. The oracles are struct members and plans made the other way.
 */
#include <math.h>
#include <stdlib.h>

#include "failing_alloc.h"
#include "test.h"
#include "zonal/zonal.h"

enum { ROWS = 6, DIM = 4 };
static const float rows[ROWS][DIM] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0},
                                      {1, 1, 1, 0}, {0, 1, 0, 1}, {-1, 2, 0, 3}};

static double value_of(zonal_plan *plan) {
    double value = NAN;
    CHECK_OK(zonal_plan_execute(plan, rows, &value, NULL));
    zonal_plan_destroy(plan);
    return value;
}

/* ---- a program built with fewer members ------------------------------------------------------ */

/* The first members, as an older header would have them, and a canary behind each. */
typedef struct older_loss_options {
    size_t size;
    zonal_discrepancy discrepancy;
    zonal_kernel_spec kernel;
    zonal_estimator estimator;
    zonal_kl_norm kl_norm;
} older_loss_options;
typedef struct older_plan_info {
    size_t size;
    double bias, norm;
} older_plan_info;
typedef struct older_report {
    size_t size;
    int64_t n, d;
} older_report;

static const unsigned char CANARY = 0xa5;

#define GUARDED(type)                                                                              \
    struct {                                                                                       \
        type it;                                                                                   \
        unsigned char canary[sizeof(zonal_uniformity_report)];                                     \
    }
#define GUARD(g)      (memset(&(g), CANARY, sizeof(g)), (g).it.size = sizeof(g).it)
#define IS_GUARDED(g) is_guarded((g).canary, sizeof(g).canary)

static int is_guarded(const unsigned char *canary, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (canary[i] != CANARY) return 0;
    return 1;
}

/* Members past the caller's are at their defaults, also those of sliced losses, which are not 0. */
static void test_older_options(void) {
    static const char *const methods[] = {"mmd-heat", "kl-heat", "susreg", "sigreg"};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        GUARDED(older_loss_options) old;
        zonal_plan *plan, *full;
        double value;
        GUARD(old);
        CHECK_OK(zonal_loss_defaults(methods[i], (zonal_loss_options *)(void *)&old.it));
        CHECK(IS_GUARDED(old) && old.it.size == sizeof old.it);
        if (!CHECK_OK(zonal_plan_create((zonal_loss_options *)(void *)&old.it, ROWS, DIM, &plan)))
            continue;
        CHECK(IS_GUARDED(old));
        if (!CHECK_OK(zonal_plan_make(methods[i], NULL, ROWS, DIM, &full))) {
            zonal_plan_destroy(plan);
            continue;
        }
        value = value_of(plan);
        CHECK_MSG(value == value_of(full), "%s: %g", methods[i], value);
    }
}

static void test_older_setters(void) {
    GUARDED(older_loss_options) old;
    zonal_loss_options *options = (zonal_loss_options *)(void *)&old.it;
    GUARD(old);
    CHECK_OK(zonal_loss_defaults("mmd-heat", options));
    CHECK_OK(zonal_loss_set(options, "t", "3/d"));
    CHECK(old.it.kernel.parameter.factor == 3 && old.it.kernel.parameter.power == -1);
    CHECK_OK(zonal_loss_set(options, "estimator", "u"));
    CHECK(old.it.estimator == ZONAL_ESTIMATOR_U);
    CHECK_FAILS(zonal_loss_set(options, "threads", "2"), ZONAL_ARGUMENT,
                "threads is newer than the headers");
    CHECK(IS_GUARDED(old));
}

static void test_older_infos(void) {
    GUARDED(older_plan_info) info;
    GUARDED(older_report) report;
    zonal_uniformity_options how = {.size = sizeof how, .precision = ZONAL_PRECISION_FP32};
    zonal_plan *plan;
    double norm;
    if (!CHECK_OK(zonal_plan_make("mmd-heat", "", ROWS, DIM, &plan))) return;
    GUARD(info);
    CHECK_OK(zonal_plan_info_get(plan, (zonal_plan_info *)(void *)&info.it));
    CHECK_OK(zonal_plan_get(plan, "norm", &norm));
    CHECK(info.it.norm == norm && norm > 0 && IS_GUARDED(info) && info.it.size == sizeof info.it);
    GUARD(report);
    CHECK_OK(
        zonal_uniformity_run(&how, ROWS, DIM, rows, (zonal_uniformity_report *)(void *)&report.it));
    CHECK(report.it.n == ROWS && report.it.d == DIM && IS_GUARDED(report));
    zonal_plan_destroy(plan);
}

static void test_older_objective(void) {
    typedef struct older_objective_options {
        size_t size;
        double lambda;
        zonal_gain gain;
        double gain_value;
        uint64_t reserved[8];
        older_loss_options loss;
    } older_objective_options;
    GUARDED(older_objective_options) old;
    zonal_objective_options *options = (zonal_objective_options *)(void *)&old.it;
    zonal_objective_info info = ZONAL_OBJECTIVE_INFO_INIT, other = ZONAL_OBJECTIVE_INFO_INIT;
    zonal_objective_options full = ZONAL_OBJECTIVE_OPTIONS_INIT;
    GUARD(old);
    CHECK_OK(zonal_objective_defaults("susreg", options));
    CHECK(old.it.loss.size == sizeof old.it.loss && IS_GUARDED(old));
    CHECK_OK(zonal_objective_describe(options, 2, 2, ROWS, DIM, &info));
    CHECK_OK(zonal_objective_defaults("susreg", &full));
    CHECK_OK(zonal_objective_describe(&full, 2, 2, ROWS, DIM, &other));
    CHECK(info.threshold == other.threshold && info.gain == other.gain && info.threshold > 0);
    CHECK_OK(zonal_objective_set(options, "margin", "1.5"));
    CHECK(old.it.gain == ZONAL_GAIN_MARGIN && old.it.gain_value == 1.5 && IS_GUARDED(old));
    old.it.loss.size += 64;
    CHECK_FAILS(zonal_objective_describe(options, 2, 2, ROWS, DIM, &info), ZONAL_ARGUMENT,
                "cannot hold loss options");
}

/* ---- a program built with more, and nonsense ------------------------------------------------- */

static void test_newer(void) {
    struct {
        zonal_loss_options it;
        uint64_t more[4];
    } new = {.it = {.size = sizeof new}};
    struct {
        zonal_plan_info it;
        uint64_t more[4];
    } info = {.it = {.size = sizeof info}, .more = {7, 7, 7, 7}};
    zonal_plan *plan;
    CHECK_OK(zonal_loss_defaults("mmd-heat", &new.it));
    if (!CHECK_OK(zonal_plan_create(&new.it, ROWS, DIM, &plan))) return;
    CHECK_OK(zonal_plan_info_get(plan, &info.it));
    CHECK(info.more[0] == 0 && info.more[3] == 0 && info.it.size == sizeof info);
    zonal_plan_destroy(plan);
    new.more[2] = 1;
    CHECK_FAILS(zonal_plan_create(&new.it, ROWS, DIM, &plan), ZONAL_ARGUMENT,
                "members that zonal 0.1.0 does not know");
    CHECK(plan == NULL);
}

static void test_sizes(void) {
    static const size_t bad[] = {0, 1, 8, 12, 0xa5a5a5a5a5a5a5a5u, (size_t)1 << 20};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        zonal_loss_options options = {.size = bad[i]};
        zonal_objective_options objective = {.size = bad[i]};
        zonal_plan_info info = {.size = bad[i]};
        zonal_objective_info weight = {.size = bad[i]};
        zonal_uniformity_options how = {.size = bad[i]};
        zonal_uniformity_options good = {.size = sizeof good, .precision = ZONAL_PRECISION_FP32};
        zonal_uniformity_report report = {.size = bad[i]};
        zonal_uniformity_report room = ZONAL_UNIFORMITY_REPORT_INIT;
        zonal_kernel_constants constants = {.size = bad[i]};
        zonal_plan *plan;
        zonal_objective *made;
        const zonal_status refused = ZONAL_ARGUMENT;
        CHECK_FAILS(zonal_loss_defaults("mmd-heat", &options), refused, "ZONAL_LOSS_OPTIONS_INIT");
        CHECK_FAILS(zonal_plan_create(&options, ROWS, DIM, &plan), refused, "which no version");
        CHECK_FAILS(zonal_loss_set(&options, "t", "1"), refused, "which no version");
        CHECK_FAILS(zonal_objective_defaults("mmd-heat", &objective), refused, "OBJECTIVE_OPTIONS");
        CHECK_FAILS(zonal_objective_create(&objective, 2, 2, ROWS, DIM, &made), refused, "size");
        CHECK_FAILS(zonal_uniformity_run(&how, ROWS, DIM, rows, &room), refused, "size");
        CHECK_FAILS(zonal_uniformity_run(&good, ROWS, DIM, rows, &report), refused, "size");
        if (!CHECK_OK(zonal_plan_make("mmd-heat", NULL, ROWS, DIM, &plan))) return;
        CHECK_FAILS(zonal_plan_info_get(plan, &info), refused, "ZONAL_PLAN_INFO_INIT");
        CHECK(info.size == bad[i]);
        zonal_plan_destroy(plan);
        CHECK_FAILS(zonal_objective_info_get(NULL, &weight), refused, "OBJECTIVE_INFO_INIT");
        CHECK_FAILS(zonal_kernel_constants_get(NULL, &constants), refused, "CONSTANTS_INIT");
    }
}

static void test_reserved(void) {
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective *objective;
    CHECK_OK(zonal_objective_defaults("susreg", &options));
    options.reserved[7] = 1;
    CHECK_FAILS(zonal_objective_create(&options, 2, 2, ROWS, DIM, &objective), ZONAL_ARGUMENT,
                "reserved room of a zonal_objective_options");
    options.reserved[7] = 0;
    options.loss.sliced.reserved[0] = 1;
    CHECK_FAILS(zonal_objective_create(&options, 2, 2, ROWS, DIM, &objective), ZONAL_ARGUMENT,
                "reserved room of a zonal_sliced_options");
    CHECK_OK(zonal_objective_defaults("mmd-heat", &options));
    options.loss.kernel.reserved[3] = 1;
    CHECK_FAILS(zonal_objective_create(&options, 2, 2, ROWS, DIM, &objective), ZONAL_ARGUMENT,
                "reserved room of a zonal_kernel_spec");
}

/* ---- by name --------------------------------------------------------------------------------- */

static void test_loss_by_name(void) {
    zonal_loss_options o = ZONAL_LOSS_OPTIONS_INIT;
    CHECK_OK(zonal_loss_defaults("susreg", &o));
    CHECK_OK(zonal_loss_set(&o, "scale", "d"));
    CHECK_OK(zonal_loss_set(&o, "slices", "77"));
    CHECK_OK(zonal_loss_set(&o, "knots", "9"));
    CHECK_OK(zonal_loss_set(&o, "range", "-2,3"));
    CHECK_OK(zonal_loss_set(&o, "times-n", "yes"));
    CHECK_OK(zonal_loss_set(&o, "collapse-norm", "no"));
    CHECK_OK(zonal_loss_set(&o, "seed", "5"));
    CHECK_OK(zonal_loss_set(&o, "raw", "yes"));
    CHECK_OK(zonal_loss_set(&o, "unit", "yes"));
    CHECK_OK(zonal_loss_set(&o, "threads", "3"));
    CHECK_OK(zonal_loss_set(&o, "precision", "tf32"));
    CHECK_OK(zonal_loss_set(&o, "dtype", "fp16"));
    CHECK_OK(zonal_loss_set(&o, "device", "cuda:1"));
    CHECK_OK(zonal_loss_set(&o, "implementation", "slices"));
    CHECK(o.kernel.parameter.factor == 1 && o.kernel.parameter.power == 1);
    CHECK(o.sliced.slices == 77 && o.sliced.knots == 9 && o.sliced.low == -2 && o.sliced.high == 3);
    CHECK(o.sliced.times_n == 1 && o.sliced.collapse_normalised == 0 && o.sliced.seed == 5);
    CHECK(o.raw_value == 1 && o.unit_rows == 1 && o.threads == 3);
    CHECK(o.precision == ZONAL_PRECISION_TF32 && o.dtype == ZONAL_DTYPE_FP16);
    CHECK(strcmp(o.device, "cuda:1") == 0 && o.implementation == ZONAL_IMPLEMENTATION_SLICES);
    CHECK_OK(zonal_loss_defaults("kl-heat", &o));
    CHECK_OK(zonal_loss_set(&o, "kl-norm", "paper"));
    CHECK_OK(zonal_loss_set(&o, "estimator", "v"));
    CHECK_OK(zonal_loss_set(&o, "without-multiplicity", "yes"));
    CHECK(o.kl_norm == ZONAL_KL_NORM_PAPER && o.estimator == ZONAL_ESTIMATOR_V &&
          o.kernel.without_multiplicity == 1);
}

/* SUSReg takes a larger s^2 than its limit, whose quadrature would not serve it. */
static void test_scales(void) {
    zonal_plan *plan;
    CHECK_OK(zonal_plan_make("susreg", "scale=20000,range=-1,1", ROWS, DIM, &plan));
    zonal_plan_destroy(plan);
    CHECK_FAILS(zonal_plan_make("mmd-induced", "scale=20000", ROWS, DIM, &plan), ZONAL_ARGUMENT,
                "scale must be above 0 and at most 10000, got 20000");
    CHECK_FAILS(zonal_plan_make("susreg", "scale=1e9", ROWS, DIM, &plan), ZONAL_ARGUMENT,
                "at most 100000000");
}

static void test_loss_refusals(void) {
    zonal_loss_options o = ZONAL_LOSS_OPTIONS_INIT, before;
    CHECK_OK(zonal_loss_defaults("mmd-heat", &o));
    before = o;
    CHECK_FAILS(zonal_loss_set(&o, "presicion", "fp32"), ZONAL_ARGUMENT,
                "no option \"presicion\"; did you mean \"precision\"?");
    CHECK_FAILS(zonal_loss_set(&o, "t", "-1"), ZONAL_ARGUMENT, "t must be above 0, got -1");
    CHECK_FAILS(zonal_loss_set(&o, "t", "nan"), ZONAL_ARGUMENT, "t must be a number");
    CHECK_FAILS(zonal_loss_set(&o, "precision", "fp33"), ZONAL_ARGUMENT, "did you mean fp32");
    CHECK_FAILS(zonal_loss_set(&o, "band", "2"), ZONAL_ARGUMENT,
                "mmd-heat has no use for band; leave it out: the parameter of its kernel is t");
    CHECK_FAILS(zonal_loss_set(&o, "slices", "2"), ZONAL_ARGUMENT,
                "mmd-heat has no use for slices");
    CHECK(!strstr(zonal_last_error()->message, "parameter"));
    CHECK_FAILS(zonal_loss_set(&o, "threads", "-1"), ZONAL_ARGUMENT, "threads must be between");
    CHECK_FAILS(zonal_loss_set(&o, "unit", "1"), ZONAL_ARGUMENT, "unit must be yes or no");
    CHECK_FAILS(zonal_loss_set(&o, "device", "a-name-that-is-longer-than-any-device"),
                ZONAL_ARGUMENT, "device is a device such as");
    CHECK_FAILS(zonal_loss_set(NULL, "t", "1"), ZONAL_ARGUMENT, "options must not be NULL");
    CHECK_FAILS(zonal_loss_set(&o, NULL, "1"), ZONAL_ARGUMENT, "name must not be NULL");
    CHECK_FAILS(zonal_loss_set(&o, "t", NULL), ZONAL_ARGUMENT, "text must not be NULL");
    CHECK(memcmp(&o, &before, sizeof o) == 0);
}

static void test_objective_by_name(void) {
    static const struct {
        const char *name, *text;
        zonal_gain gain;
        double value;
    } cases[] = {{"gain", "batch", ZONAL_GAIN_BATCH, 0},
                 {"gain", "unit", ZONAL_GAIN_UNIT, 0},
                 {"gain", "1.5", ZONAL_GAIN_VALUE, 1.5},
                 {"gain", "margin:1.15", ZONAL_GAIN_MARGIN, 1.15},
                 {"gain", "selectivity:7", ZONAL_GAIN_SELECTIVITY, 7},
                 {"margin", "2", ZONAL_GAIN_MARGIN, 2},
                 {"selectivity", "10", ZONAL_GAIN_SELECTIVITY, 10},
                 {"gain", "auto", ZONAL_GAIN_AUTO, 0}};
    zonal_objective_options o = ZONAL_OBJECTIVE_OPTIONS_INIT;
    CHECK_OK(zonal_objective_defaults("kl-heat", &o));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_OK(zonal_objective_set(&o, cases[i].name, cases[i].text));
        CHECK_MSG(o.gain == cases[i].gain && o.gain_value == cases[i].value, "%s", cases[i].text);
    }
    CHECK_OK(zonal_objective_set(&o, "lambda", "0.25"));
    CHECK_OK(zonal_objective_set(&o, "t", "2/d"));
    CHECK(o.lambda == 0.25 && o.loss.kernel.parameter.factor == 2);
    CHECK_FAILS(zonal_objective_set(&o, "lambda", "1.5"), ZONAL_ARGUMENT, "lambda must be between");
    CHECK_FAILS(zonal_objective_set(&o, "gain", "-1"), ZONAL_ARGUMENT, "gain must be above 0");
    CHECK_FAILS(zonal_objective_set(&o, "gain", "bach"), ZONAL_ARGUMENT, "gain, if not auto");
    CHECK_FAILS(zonal_objective_set(&o, "lamda", "1"), ZONAL_ARGUMENT, "did you mean \"lambda\"?");
    CHECK(o.gain == ZONAL_GAIN_AUTO && o.lambda == 0.25);
}

/* Each name is listed once, with help, and every one can be set on some method. */
static void test_lists(void) {
    int losses = 0, objectives = 0;
    for (; zonal_loss_option_name(losses); losses++) {
        CHECK(zonal_loss_option_help(losses) && zonal_loss_option_help(losses)[0]);
        for (int k = 0; k < losses; k++)
            CHECK(strcmp(zonal_loss_option_name(k), zonal_loss_option_name(losses)) != 0);
    }
    while (zonal_objective_option_name(objectives)) {
        CHECK(zonal_objective_option_help(objectives) != NULL);
        objectives++;
    }
    CHECK_MSG(losses > 20 && objectives == losses + 4, "%d and %d", losses, objectives);
    CHECK(!zonal_loss_option_name(-1) && !zonal_loss_option_help(losses) &&
          !zonal_objective_option_name(-1) && !zonal_objective_option_help(objectives));
}

/* ---- as one text ----------------------------------------------------------------------------- */

static void test_plans_from_text(void) {
    static const double weights[] = {1, 0.5, 0.25};
    zonal_loss_options o = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan *plan, *other;
    CHECK_OK(zonal_loss_defaults("mmd-spectrum", &o));
    o.kernel.weights = weights;
    o.kernel.n_weights = 3;
    o.threads = 2;
    o.estimator = ZONAL_ESTIMATOR_U;
    if (!CHECK_OK(zonal_plan_make("mmd-spectrum", "estimator=u,spectrum=1,0.5,0.25, threads = 2",
                                  ROWS, DIM, &plan)))
        return;
    if (!CHECK_OK(zonal_plan_create(&o, ROWS, DIM, &other))) return;
    CHECK(value_of(plan) == value_of(other));
#define MAKE(method, text) zonal_plan_make(method, text, ROWS, DIM, &plan)
    CHECK_FAILS(MAKE("mmd-heat", "fast"), ZONAL_ARGUMENT, "name=value, with commas between them");
    CHECK_FAILS(MAKE("mmd-heat", "t=5/d,t=4/d"), ZONAL_ARGUMENT, "t is given twice");
    CHECK_FAILS(MAKE("mmd-heat", "t=5/d,precision=fp32,"), ZONAL_ARGUMENT, "fp32,");
    CHECK_FAILS(MAKE("mmd-heat", "=5"), ZONAL_ARGUMENT, "no option \"\"");
    CHECK_FAILS(MAKE("mmd-heat", ",t=5"), ZONAL_ARGUMENT, "no option \",t\"");
    CHECK_FAILS(MAKE("mmd-spectrum", "spectrum=1,x"), ZONAL_ARGUMENT, "spectrum must be a finite");
    CHECK_FAILS(MAKE("mmd-haet", NULL), ZONAL_ARGUMENT, "'mmd-heat'");
    CHECK_FAILS(MAKE(NULL, NULL), ZONAL_ARGUMENT, "method must not be NULL");
    CHECK(plan == NULL);
#undef MAKE
    CHECK_FAILS(zonal_plan_make("mmd-heat", NULL, ROWS, DIM, NULL), ZONAL_ARGUMENT, "plan must");
}

static void test_objectives_from_text(void) {
    zonal_objective_info info = ZONAL_OBJECTIVE_INFO_INIT;
    zonal_objective *objective;
    double margin, t;
    const char *text;
    if (!CHECK_OK(zonal_objective_make("mmd-heat", "t=3/d,lambda=0.1,margin=1.25", 2, 2, ROWS, DIM,
                                       &objective)))
        return;
    CHECK_OK(zonal_objective_info_get(objective, &info));
    CHECK_OK(zonal_objective_get(objective, "margin", &margin));
    CHECK_OK(zonal_objective_get(objective, "parameter", &t));
    CHECK(fabs(margin - 1.25) < 1e-15 && margin == info.margin && t == 0.75);
    CHECK(info.plan.parameter == 0.75 && info.plan.size == sizeof info.plan);
    CHECK_OK(zonal_objective_get_text(objective, "kernel", &text));
    CHECK_MSG(strcmp(text, "heat, t = 3/d = 0.75") == 0, "%s", text);
    CHECK_FAILS(zonal_objective_get(objective, "kernel", &t), ZONAL_ARGUMENT, "is a text");
    CHECK_FAILS(zonal_objective_get(objective, "treshold", &t), ZONAL_ARGUMENT, "\"threshold\"");
    zonal_objective_destroy(objective);
    CHECK_FAILS(zonal_objective_make("mmd-heat", "gain=2,margin=1", 2, 2, ROWS, DIM, &objective),
                ZONAL_ARGUMENT, "give one of them");
    CHECK_FAILS(zonal_objective_make("mmd-heat", NULL, 2, 2, ROWS, DIM, NULL), ZONAL_ARGUMENT,
                "objective must not be NULL");
}

static void test_infos_by_name(void) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan_info info = ZONAL_PLAN_INFO_INIT, described = ZONAL_PLAN_INFO_INIT;
    zonal_plan *plan;
    const char *text;
    double number;
    int count = 0;
    if (!CHECK_OK(zonal_plan_make("mmd-band", "precision=double", ROWS, DIM, &plan))) return;
    CHECK_OK(zonal_plan_info_get(plan, &info));
    CHECK(info.batch == ROWS && info.dim == DIM && info.family == ZONAL_FAMILY_BAND);
    CHECK(info.parameter == 2 && info.dtype == ZONAL_DTYPE_DOUBLE);
    CHECK(strcmp(info.kernel, "band, L = 2") == 0 && strcmp(info.device, "cpu") == 0);
    for (; zonal_plan_info_name(count); count++)
        CHECK((zonal_plan_get(plan, zonal_plan_info_name(count), &number) == ZONAL_OK) !=
              (zonal_plan_get_text(plan, zonal_plan_info_name(count), &text) == ZONAL_OK));
    CHECK(count == 18 && !zonal_plan_info_name(-1) && !zonal_objective_info_name(-1));
    CHECK(zonal_objective_info_name(22) && !zonal_objective_info_name(23)); /* 18 + 6 - 1 shared */
    CHECK(info.rows == ROWS && info.first_row == 0);
    CHECK_OK(zonal_plan_get(plan, "rows", &number));
    CHECK(number == ROWS);
    CHECK_OK(zonal_plan_get_text(plan, "implementation", &text));
    CHECK(strcmp(text, "moments") == 0);
    CHECK_OK(zonal_plan_get_text(plan, "precision", &text));
    CHECK(strcmp(text, "double") == 0);
    CHECK_OK(zonal_plan_get_text(plan, "family", &text));
    CHECK(strcmp(text, "band") == 0);
    CHECK_OK(zonal_plan_get(plan, "scratch-bytes", &number));
    CHECK(number == (double)info.scratch_bytes && number > 0);
    CHECK_FAILS(zonal_plan_get(plan, "nrom", &number), ZONAL_ARGUMENT, "\"norm\"");
    CHECK_FAILS(zonal_plan_get(NULL, "norm", &number), ZONAL_ARGUMENT, "plan");
    CHECK_FAILS(zonal_plan_get(plan, NULL, &number), ZONAL_ARGUMENT, "name");
    CHECK_FAILS(zonal_plan_get(plan, "norm", NULL), ZONAL_ARGUMENT, "number");
    CHECK_FAILS(zonal_plan_get_text(plan, "kernel", NULL), ZONAL_ARGUMENT, "text");
    zonal_plan_destroy(plan);
    CHECK_OK(zonal_loss_defaults("mmd-band", &options));
    options.precision = ZONAL_PRECISION_DOUBLE;
    CHECK_OK(zonal_plan_describe(&options, ROWS, DIM, &described));
    CHECK(described.norm == info.norm && described.scratch_bytes == 0);
    CHECK(strcmp(described.kernel, info.kernel) == 0);
    CHECK_OK(zonal_loss_defaults("sigreg", &options));
    CHECK_OK(zonal_plan_describe(&options, ROWS, DIM, &described));
    CHECK(strcmp(described.kernel, "none") == 0 &&
          described.implementation == ZONAL_IMPLEMENTATION_SLICES);
}

/* ---- combinations that cannot be ------------------------------------------------------------- */

static void test_unsupported(void) {
    zonal_loss_options o = ZONAL_LOSS_OPTIONS_INIT, changed;
    zonal_plan *plan;
#define REFUSED(method, field, setting, status, sentence)                                          \
    (CHECK_OK(zonal_loss_defaults(method, &o)), changed = o, changed.field = (setting),            \
     CHECK_FAILS(zonal_plan_create(&changed, ROWS, DIM, &plan), status, sentence))
    REFUSED("mmd-heat", dtype, ZONAL_DTYPE_BF16, ZONAL_UNSUPPORTED,
            "leave dtype at auto, got bf16");
    REFUSED("mmd-heat", dtype, ZONAL_DTYPE_DOUBLE, ZONAL_UNSUPPORTED, "leave dtype at auto");
    REFUSED("mmd-heat", dtype, (zonal_dtype)77, ZONAL_ARGUMENT, "there is no dtype 77");
    REFUSED("mmd-heat", precision, ZONAL_PRECISION_TF32, ZONAL_UNSUPPORTED, "tf32");
    REFUSED("mmd-heat", precision, (zonal_precision)9, ZONAL_ARGUMENT, "there is no precision 9");
    REFUSED("mmd-heat", estimator, (zonal_estimator)3, ZONAL_ARGUMENT, "there is no estimator 3");
    REFUSED("mmd-heat", kl_norm, (zonal_kl_norm)2, ZONAL_ARGUMENT, "there is no KL norm 2");
    REFUSED("mmd-heat", kl_norm, ZONAL_KL_NORM_PAPER, ZONAL_ARGUMENT, "no use for kl-norm");
    REFUSED("susreg", estimator, ZONAL_ESTIMATOR_U, ZONAL_ARGUMENT, "no use for estimator");
    REFUSED("sigreg", unit_rows, 1, ZONAL_ARGUMENT, "sigreg has no use for unit");
    REFUSED("mmd-heat", unit_rows, 7, ZONAL_ARGUMENT, "unit_rows must be 0 or 1, got 7");
    REFUSED("mmd-heat", raw_value, -1, ZONAL_ARGUMENT, "raw_value must be 0 or 1, got -1");
    REFUSED("mmd-heat", threads, -2, ZONAL_ARGUMENT, "threads must not be negative, got -2");
    REFUSED("mmd-heat", implementation, (zonal_implementation)5, ZONAL_ARGUMENT,
            "there is no implementation 5");
    REFUSED("mmd-heat", implementation, ZONAL_IMPLEMENTATION_SLICES, ZONAL_ARGUMENT,
            "slices serve susreg and sigreg alone");
    REFUSED("susreg", implementation, ZONAL_IMPLEMENTATION_PAIRS, ZONAL_ARGUMENT, "has no pairs");
    REFUSED("mmd-heat", discrepancy, (zonal_discrepancy)5, ZONAL_ARGUMENT, "no discrepancy 5");
    REFUSED("mmd-heat", kernel.family, (zonal_family)77, ZONAL_ARGUMENT, "no kernel family 77");
    REFUSED("mmd-heat", kernel.parameter.power, 2, ZONAL_ARGUMENT, "to the power -1, 0 or 1");
#undef REFUSED
    CHECK_OK(zonal_loss_defaults("mmd-heat", &o));
    o.dtype = ZONAL_DTYPE_FP32; /* what fp32 rows are */
    if (CHECK_OK(zonal_plan_create(&o, ROWS, DIM, &plan))) zonal_plan_destroy(plan);
}

/* ---- memory, and texts of chance ------------------------------------------------------------- */

static zonal_status make_plan(void *context) {
    zonal_plan *plan;
    zonal_status status = zonal_plan_make("mmd-spectrum", "spectrum=1,2,3", ROWS, DIM, &plan);
    (void)context;
    zonal_plan_destroy(plan);
    return status;
}

static zonal_status make_objective(void *context) {
    zonal_objective *objective;
    zonal_status status =
        zonal_objective_make("susreg", "slices=4,margin=2", 2, 2, ROWS, DIM, &objective);
    (void)context;
    zonal_objective_destroy(objective);
    return status;
}

static void test_memory(void) {
    test_every_allocation("a plan from text", make_plan, NULL);
    test_every_allocation("an objective from text", make_objective, NULL);
}

/* Random bytes, and random pieces of good texts, are made into a plan or refused by a sentence. */
static void test_random_texts(void) {
    static const char *const pieces[] = {"t",      "=",   ",",  "5/d",   "precision", "fp32",
                                         "1",      "d",   "-",  "range", ":",         "spectrum",
                                         "e9",     " ",   "=,", "gain",  "knots",     "yes",
                                         "device", "cpu", "\n", "slices"};
    static const char *const methods[] = {"mmd-heat", "susreg", "mmd-spectrum"};
    char text[256];
    srand(20260615);
    for (int trial = 0; trial < 20000; trial++) {
        size_t length = 0;
        zonal_plan *plan;
        zonal_objective_options o = ZONAL_OBJECTIVE_OPTIONS_INIT;
        zonal_status status;
        while (length < 200 && rand() % 12) {
            const char *piece = pieces[(size_t)rand() % (sizeof pieces / sizeof pieces[0])];
            if (trial % 2)
                length += (size_t)snprintf(text + length, sizeof text - length, "%s", piece);
            else
                text[length++] = (char)(rand() % 255 + 1);
        }
        text[length] = '\0';
        status = zonal_plan_make(methods[trial % 3], text, ROWS, DIM, &plan);
        CHECK((status == ZONAL_OK) == (plan != NULL));
        if (status != ZONAL_OK) CHECK(zonal_last_error()->message[0]);
        zonal_plan_destroy(plan);
        CHECK_OK(zonal_objective_defaults("kl-heat", &o));
        if (zonal_objective_set(&o, trial % 3 ? "gain" : text, text) != ZONAL_OK)
            CHECK(zonal_last_error()->status == ZONAL_ARGUMENT);
    }
}

static const test_case tests[] = {{"older options", test_older_options},
                                  {"older setters", test_older_setters},
                                  {"older infos", test_older_infos},
                                  {"older objectives", test_older_objective},
                                  {"newer structs", test_newer},
                                  {"sizes", test_sizes},
                                  {"reserved", test_reserved},
                                  {"a loss by name", test_loss_by_name},
                                  {"scales", test_scales},
                                  {"refused by name", test_loss_refusals},
                                  {"an objective by name", test_objective_by_name},
                                  {"lists", test_lists},
                                  {"plans from text", test_plans_from_text},
                                  {"objectives from text", test_objectives_from_text},
                                  {"infos by name", test_infos_by_name},
                                  {"unsupported", test_unsupported},
                                  {"memory", test_memory},
                                  {"random texts", test_random_texts},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
