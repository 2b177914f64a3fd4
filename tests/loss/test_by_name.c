/*
 * Kernels and tests of uniformity without structs: made from texts, asked by name. The oracles are
 * the same made with structs.
 */
#include <math.h>
#include <string.h>

#include "failing_alloc.h"
#include "test.h"
#include "zonal/zonal.h"

enum { ROWS = 12, DIM = 4 };

/* Spread out, with a row that two others are close to. */
static const double *rows(void) {
    static double x[ROWS][DIM];
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < DIM; k++) x[i][k] = sin(1 + 7 * i + 3 * k * k) + (i < 3 && k == 0);
    return x[0];
}

static int same(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

/* ---- kernels --------------------------------------------------------------------------------- */

static double kernel_number(const zonal_kernel *kernel, const char *name) {
    double number = NAN;
    CHECK_OK(zonal_kernel_get(kernel, name, &number));
    return number;
}

static void test_kernel(void) {
    const zonal_kernel_spec spec = {.family = ZONAL_FAMILY_HEAT, .parameter = {3, -1}};
    zonal_kernel_constants c = ZONAL_KERNEL_CONSTANTS_INIT;
    zonal_kernel *made, *other;
    const double at[] = {-1, -.25, .5, 1};
    double phi[4], want[4], log_phi[4];
    int count = 0;
    if (!CHECK_OK(zonal_kernel_make("heat", "t=3/d", 16, &made))) return;
    if (!CHECK_OK(zonal_kernel_create(&spec, 16, &other))) return;
    CHECK_OK(zonal_kernel_constants_get(other, &c));
    CHECK(kernel_number(made, "bias") == c.bias);
    CHECK(kernel_number(made, "log-bias") == c.log_bias);
    CHECK(kernel_number(made, "mmd-norm") == c.mmd_norm);
    CHECK(kernel_number(made, "ksd-norm") == c.ksd_norm);
    CHECK(kernel_number(made, "kl-norm") == c.kl_norm);
    CHECK(kernel_number(made, "kl-norm-paper") == c.kl_norm_paper);
    CHECK(kernel_number(made, "log-area") == c.log_area);
    CHECK(kernel_number(made, "derivative") == c.derivative);
    CHECK(kernel_number(made, "curvature") == c.curvature);
    CHECK(kernel_number(made, "degrees") == c.degrees);
    CHECK(kernel_number(made, "nodes") == c.nodes);
    while (zonal_kernel_constant_name(count)) count++;
    CHECK(count == 11 && !zonal_kernel_constant_name(-1));
    CHECK_OK(zonal_kernel_eval(made, 0, 4, at, phi));
    CHECK_OK(zonal_kernel_eval(other, 0, 4, at, want));
    CHECK_OK(zonal_kernel_log_eval(made, 4, at, log_phi));
    for (int i = 0; i < 4; i++)
        CHECK_MSG(phi[i] == want[i] && fabs(exp(log_phi[i]) - phi[i]) < 1e-12, "%g", at[i]);
    zonal_kernel_destroy(made);
    zonal_kernel_destroy(other);
}

/* band(1) = (1 + d c)/(1 + d) is negative somewhere: it has no logarithm, and all else. */
static void test_kernel_without_log(void) {
    zonal_kernel *kernel;
    const double c = 0.5;
    double phi;
    if (!CHECK_OK(zonal_kernel_make("band", "band=1", 3, &kernel))) return;
    CHECK_OK(zonal_kernel_eval(kernel, 0, 1, &c, &phi));
    CHECK_MSG(fabs(phi - 2.5 / 4) < 1e-15, "%.17g", phi);
    CHECK(zonal_kernel_log_eval(kernel, 1, &c, &phi) == ZONAL_ARGUMENT);
    zonal_kernel_destroy(kernel);
    if (!CHECK_OK(zonal_kernel_make("spectrum", "spectrum=1,0,2", 3, &kernel))) return;
    CHECK(fabs(zonal_kernel_weight(kernel, 2) - 10. / 11) < 1e-15); /* 2 N_2 = 10 against 1 */
    zonal_kernel_destroy(kernel);
}

static void test_kernel_refusals(void) {
    zonal_kernel *kernel;
    double number;
#define MAKE(family, text) zonal_kernel_make(family, text, 16, &kernel)
    CHECK_FAILS(MAKE("haet", NULL), ZONAL_ARGUMENT, "haet");
    CHECK_FAILS(MAKE("heat", "band=2"), ZONAL_ARGUMENT, "the heat kernel has no use for band");
    CHECK_FAILS(MAKE("heat", "threads=2"), ZONAL_ARGUMENT, "no option \"threads\"");
    CHECK_FAILS(MAKE("heat", "t=-1"), ZONAL_ARGUMENT, "t must be above 0");
    CHECK_FAILS(MAKE("spectrum", "spectrum=1,x"), ZONAL_ARGUMENT, "spectrum must be a finite");
    CHECK_FAILS(MAKE(NULL, NULL), ZONAL_ARGUMENT, "family must not be NULL");
    CHECK(kernel == NULL);
#undef MAKE
    CHECK_FAILS(zonal_kernel_make("heat", NULL, 1, &kernel), ZONAL_SHAPE, "dim");
    CHECK_FAILS(zonal_kernel_make("heat", NULL, 16, NULL), ZONAL_ARGUMENT, "kernel must not");
    if (!CHECK_OK(zonal_kernel_make("heat", NULL, 16, &kernel))) return;
    CHECK_FAILS(zonal_kernel_get(kernel, "mmd-nrom", &number), ZONAL_ARGUMENT, "\"mmd-norm\"");
    CHECK_FAILS(zonal_kernel_get(NULL, "bias", &number), ZONAL_ARGUMENT, "kernel");
    CHECK_FAILS(zonal_kernel_get(kernel, NULL, &number), ZONAL_ARGUMENT, "name");
    CHECK_FAILS(zonal_kernel_get(kernel, "bias", NULL), ZONAL_ARGUMENT, "number");
    zonal_kernel_destroy(kernel);
}

/* ---- tests of uniformity --------------------------------------------------------------------- */

static int count_progress(void *context, double share) {
    (void)share;
    return ++*(int *)context < 0;
}

static int stop_at_third(void *context, double share) {
    (void)share;
    return ++*(int *)context == 3;
}

static double number_of(const zonal_uniformity *report, const char *of, const char *name) {
    char full[64];
    double number = -1;
    snprintf(full, sizeof full, "%s%s", of, name);
    CHECK_OK(zonal_uniformity_get(report, full, &number));
    return number;
}

static void compare_tests(const zonal_uniformity *made, const zonal_uniformity_report *want) {
    for (int k = 0; k < want->tests; k++) {
        const zonal_uniformity_test *t = &want->test[k];
        char note[64];
        const char *text = NULL;
        CHECK(same(number_of(made, t->name, ".statistic"), t->statistic));
        CHECK(same(number_of(made, t->name, ".sd"), t->sd));
        CHECK(same(number_of(made, t->name, ".p"), t->p));
        CHECK(same(number_of(made, t->name, ".p-lower"), t->p_lower));
        CHECK(same(number_of(made, t->name, ".p-asymptotic"), t->p_asymptotic));
        CHECK(same(number_of(made, t->name, ".p-asymptotic-lower"), t->p_asymptotic_lower));
        CHECK(same(number_of(made, t->name, ".log10-p"), t->log10_p));
        CHECK(same(number_of(made, t->name, ".p-monte-carlo"), t->p_monte_carlo));
        CHECK(same(number_of(made, t->name, ".p-monte-carlo-lower"), t->p_monte_carlo_lower));
        snprintf(note, sizeof note, "%s.note", t->name);
        CHECK_OK(zonal_uniformity_get_text(made, note, &text));
        CHECK(text && strcmp(text, t->note) == 0);
    }
}

static void compare_report(const zonal_uniformity *made, const zonal_uniformity_report *want) {
    const char *text = NULL;
    CHECK(number_of(made, "", "n") == ROWS && number_of(made, "", "d") == DIM);
    CHECK(number_of(made, "", "tests") == want->tests && want->tests == ZONAL_UNIFORMITY_TESTS);
    CHECK(number_of(made, "", "degrees") == want->degrees);
    CHECK(number_of(made, "", "monte-carlo") == 5);
    CHECK(number_of(made, "", "mean-resultant") == want->mean_resultant);
    CHECK(number_of(made, "", "mean-resultant-expected") == want->mean_resultant_expected);
    CHECK(number_of(made, "", "mean-cosine") == want->mean_cosine);
    CHECK(number_of(made, "", "effective-rank") == want->effective_rank);
    CHECK(number_of(made, "", "effective-rank-expected") == want->effective_rank_expected);
    CHECK(number_of(made, "", "directions") == want->directions);
    CHECK(number_of(made, "", "directions-expected") == want->directions_expected);
    CHECK(number_of(made, "", "nearest-angle") == want->nearest_angle);
    CHECK(number_of(made, "", "nearest-angle-expected") == want->nearest_angle_expected);
    CHECK(number_of(made, "", "degree-1.excess") == want->degree[0].excess);
    CHECK(number_of(made, "", "degree-6.sd") == want->degree[5].sd);
    CHECK_OK(zonal_uniformity_get_text(made, "verdict", &text));
    CHECK(text && strcmp(text, want->verdict) == 0 && text[0]);
    CHECK_OK(zonal_uniformity_get_text(made, "collapse", &text));
    CHECK(text && strcmp(text, "none") == 0 && want->collapse == ZONAL_COLLAPSE_NONE);
}

static void test_uniformity(void) {
    zonal_uniformity_options how = ZONAL_UNIFORMITY_OPTIONS_INIT;
    zonal_uniformity_report want = ZONAL_UNIFORMITY_REPORT_INIT;
    zonal_uniformity *made;
    const char *text;
    double number;
    int calls = 0, names = 0;
    how.monte_carlo = 5;
    how.seed = 3;
    how.t = 2. / DIM;
    how.precision = ZONAL_PRECISION_DOUBLE;
    CHECK_OK(zonal_uniformity_run(&how, ROWS, DIM, rows(), &want));
    if (!CHECK_OK(zonal_uniformity_make("mc=5,seed=3,t=2/d,precision=double", ROWS, DIM, rows(),
                                        count_progress, &calls, &made)))
        return;
    CHECK(calls == 5);
    compare_report(made, &want);
    compare_tests(made, &want);
    for (; zonal_uniformity_name(made, names); names++)
        CHECK((zonal_uniformity_get(made, zonal_uniformity_name(made, names), &number) ==
               ZONAL_OK) != (zonal_uniformity_get_text(made, zonal_uniformity_name(made, names),
                                                       &text) == ZONAL_OK));
    CHECK_MSG(names == 17 + 10 * want.tests + 2 * want.degrees, "%d names", names);
    CHECK(!zonal_uniformity_name(made, -1) && !zonal_uniformity_name(NULL, 0));
    zonal_uniformity_destroy(made);
}

/* Beyond the limit of pairs; float rows; a set that has collapsed. */
static void test_uniformity_otherwise(void) {
    static const float few[][DIM] = {{1, 0, 0, 0}, {1, 1e-3f, 0, 0}, {1, 0, 1e-3f, 0}};
    zonal_uniformity *made;
    const char *text = "";
    if (!CHECK_OK(zonal_uniformity_make("pair-limit=2", 3, DIM, few, NULL, NULL, &made))) return;
    CHECK(number_of(made, "", "tests") == 2 && number_of(made, "", "degrees") == 2);
    CHECK(isnan(number_of(made, "", "nearest-angle")));
    CHECK_OK(zonal_uniformity_get_text(made, "skipped", &text));
    CHECK(strstr(text, "above the limit of 2 rows") != NULL);
    CHECK_OK(zonal_uniformity_get_text(made, "collapse", &text));
    CHECK(strcmp(text, "point") == 0);
    zonal_uniformity_destroy(made);
    zonal_uniformity_destroy(NULL);
}

static void test_uniformity_refusals(void) {
    zonal_uniformity *made;
    const char *text;
    double number;
    int calls = 0;
#define MAKE(options, rows, out)                                                                   \
    zonal_uniformity_make(options, ROWS, DIM, rows, stop_at_third, &calls, out)
    CHECK_FAILS(MAKE("mcc=5", rows(), &made), ZONAL_ARGUMENT, "did you mean \"mc\"");
    CHECK_FAILS(MAKE("precision=bf16", rows(), &made), ZONAL_UNSUPPORTED, "double or fp32");
    CHECK_FAILS(MAKE("level=2", rows(), &made), ZONAL_ARGUMENT, "level must be");
    CHECK_FAILS(MAKE("mc=5,precision=double", rows(), &made), ZONAL_CANCELLED, "after 3 of 5");
    CHECK_FAILS(MAKE("", NULL, &made), ZONAL_ARGUMENT, "x must not be NULL");
    CHECK(made == NULL);
    CHECK_FAILS(MAKE("", rows(), NULL), ZONAL_ARGUMENT, "report must not be NULL");
#undef MAKE
    if (!CHECK_OK(zonal_uniformity_make("precision=double", ROWS, DIM, rows(), NULL, NULL, &made)))
        return;
    CHECK_FAILS(zonal_uniformity_get(made, "rayleigh.q", &number), ZONAL_ARGUMENT, "rayleigh.p");
    CHECK_FAILS(zonal_uniformity_get(made, "verdict", &number), ZONAL_ARGUMENT, "is a text");
    CHECK_FAILS(zonal_uniformity_get_text(made, "n", &text), ZONAL_ARGUMENT, "is a number");
    CHECK_FAILS(zonal_uniformity_get(NULL, "n", &number), ZONAL_ARGUMENT, "report");
    CHECK_FAILS(zonal_uniformity_get(made, NULL, &number), ZONAL_ARGUMENT, "name");
    CHECK_FAILS(zonal_uniformity_get(made, "n", NULL), ZONAL_ARGUMENT, "number");
    CHECK_FAILS(zonal_uniformity_get_text(made, "verdict", NULL), ZONAL_ARGUMENT, "text");
    zonal_uniformity_destroy(made);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static zonal_status make_kernel(void *context) {
    zonal_kernel *kernel;
    zonal_status status = zonal_kernel_make("heat", context, 16, &kernel);
    zonal_kernel_destroy(kernel);
    return status;
}

static zonal_status make_report(void *context) {
    zonal_uniformity *made;
    zonal_status status = zonal_uniformity_make(context, ROWS, DIM, rows(), NULL, NULL, &made);
    zonal_uniformity_destroy(made);
    return status;
}

static void test_memory(void) {
    test_every_allocation("zonal_kernel_make", make_kernel, "t=3/d");
    test_every_allocation("zonal_uniformity_make", make_report, "mc=1,precision=double");
}

static const test_case tests[] = {{"a kernel", test_kernel},
                                  {"a kernel that is not positive", test_kernel_without_log},
                                  {"kernels refused", test_kernel_refusals},
                                  {"a report", test_uniformity},
                                  {"a report of other rows", test_uniformity_otherwise},
                                  {"reports refused", test_uniformity_refusals},
                                  {"memory", test_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
