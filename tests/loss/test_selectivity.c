/*
 * Selectivity and the other weights of an objective: the coefficient q of D near uniform points by
 * other ways than the spectrum (a batch's own second moment, an integral over the profile, the
 * limit of many knots), and the gains that follow from it.
 */
#include "core/random.h"
#include "test.h"
#include "zonal/loss.h"

static zonal_status describe(const char *method, double lambda, zonal_gain gain, double value,
                             int64_t views, int64_t global_views, int64_t dim,
                             zonal_objective_info *info) {
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_status status = zonal_objective_defaults(method, &options);
    if (status != ZONAL_OK) return status;
    if (lambda >= 0) options.lambda = lambda;
    options.gain = gain;
    options.gain_value = value;
    return zonal_objective_describe(&options, views, global_views, 256, dim, info);
}

static double anisotropy(const char *method, int64_t dim) {
    zonal_objective_info info = {.size = sizeof info, .anisotropy = NAN};
    CHECK_OK(describe(method, -1, ZONAL_GAIN_AUTO, 0, 2, 2, dim, &info));
    return info.anisotropy;
}

/* ---- q ----------------------------------------------------------------------------------------
 */

/* |M - I/d|_F^2 of rows whose mean is 0. */
static double spread_of(int n, int d, const double *x) {
    double sum = 0;
    for (int a = 0; a < d; a++)
        for (int b = 0; b < d; b++) {
            double m = 0;
            for (int i = 0; i < n; i++) m += x[i * d + a] * x[i * d + b] / n;
            m -= a == b ? 1. / d : 0;
            sum += m * m;
        }
    return sum;
}

/* Degree 2 alone is left when the mean is 0, and then D = q |M - I/d|^2 exactly. */
static void test_moments(void) {
    enum { PAIRS = 40, DIM = 5 };
    static const char *const methods[] = {"mmd-band", "ksd-band"};
    double x[2 * PAIRS * DIM];
    for (int i = 0; i < PAIRS; i++) {
        double *row = &x[2 * i * DIM], square = 0;
        for (int k = 0; k < DIM; k++) {
            row[k] = sin(12.9898 * (i * DIM + k + 1)) * (k + 1);
            square += row[k] * row[k];
        }
        for (int k = 0; k < DIM; k++) row[k + DIM] = -(row[k] /= sqrt(square));
    }
    for (int m = 0; m < 2; m++) {
        zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
        zonal_plan *plan = NULL;
        double value = NAN;
        if (!CHECK_OK(zonal_loss_defaults(methods[m], &options))) continue;
        options.precision = ZONAL_PRECISION_DOUBLE;
        if (CHECK_OK(zonal_plan_create(&options, 2 * PAIRS, DIM, &plan)) &&
            CHECK_OK(zonal_plan_execute(plan, x, &value, NULL)))
            CHECK_CLOSE(value / spread_of(2 * PAIRS, DIM, x), anisotropy(methods[m], DIM), 1e-11);
        zonal_plan_destroy(plan);
    }
}

/* The mean over uniform pairs of f(c) P_2(c), times N_2: a_2 of f, by the trapezoid rule in the
 * angle, where it converges geometrically. */
static double project(const zonal_kernel *kernel, int d) {
    enum { POINTS = 4000 };
    double sum = 0, mass = 0;
    for (int i = 1; i < POINTS; i++) {
        double theta = 3.14159265358979323846 * i / POINTS, c = cos(theta), value = NAN;
        double weight = pow(sin(theta), d - 2);
        if (!CHECK_OK(zonal_kernel_eval(kernel, 0, 1, &c, &value))) return NAN;
        sum += weight * value * (d * c * c - 1) / (d - 1);
        mass += weight;
    }
    return sum / mass * (d - 1) * (d + 2) / 2;
}

/* The growth of the mean log of (mean of phi)/a_0 under the density 1 + e P_2(x.n), by e^2/N_2^2,
 * which is what d/(d-1) |M - I/d|^2 is then; ratio is a_2/a_0. Both signs of e, so that what is odd
 * in it falls out. */
static double log_growth(double ratio, int d) {
    enum { POINTS = 4000 };
    double e = 1e-4, sum = 0, mass = 0, harmonics = (d - 1) * (d + 2) / 2.;
    for (int i = 1; i < POINTS; i++) {
        double theta = 3.14159265358979323846 * i / POINTS, c = cos(theta);
        double weight = pow(sin(theta), d - 2), p2 = (d * c * c - 1) / (d - 1);
        for (int sign = -1; sign <= 1; sign += 2)
            sum += weight * (1 + sign * e * p2) * log1p(sign * e * ratio / harmonics * p2) / 2;
        mass += weight;
    }
    return sum / mass / (e * e) * harmonics * harmonics;
}

static void test_integrals(void) {
    enum { DIM = 12 };
    static const struct {
        const char *mmd, *ksd, *kl;
        zonal_kernel_spec spec;
    } cases[] = {
        {"mmd-heat", "ksd-heat", NULL, {.family = ZONAL_FAMILY_HEAT, .parameter = {5. / DIM, 0}}},
        {NULL, NULL, "kl-heat", {.family = ZONAL_FAMILY_HEAT, .parameter = {2. / DIM, 0}}},
        {"mmd-induced", "ksd-induced", "kl-induced", {.family = ZONAL_FAMILY_INDUCED}},
        {"mmd-poisson", "ksd-poisson", "kl-poisson", {.family = ZONAL_FAMILY_POISSON}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        zonal_kernel *kernel;
        zonal_kernel_constants constants = ZONAL_KERNEL_CONSTANTS_INIT;
        if (!CHECK_OK(zonal_kernel_create(&cases[i].spec, DIM, &kernel))) continue;
        zonal_kernel_constants_get(kernel, &constants);
        double a2 = project(kernel, DIM), scale = DIM / (DIM - 1.);
        if (cases[i].mmd)
            CHECK_CLOSE(anisotropy(cases[i].mmd, DIM), a2 / constants.mmd_norm * scale, 1e-10);
        /* -1/2 of the Laplacian of P_2 is d P_2, and C_norm = (d-1) phi'(1)/2 */
        if (cases[i].ksd)
            CHECK_CLOSE(anisotropy(cases[i].ksd, DIM), DIM * a2 / constants.ksd_norm * scale,
                        1e-10);
        if (cases[i].kl)
            CHECK_CLOSE(anisotropy(cases[i].kl, DIM),
                        log_growth(a2 / constants.bias, DIM) / constants.kl_norm * scale, 1e-8);
        zonal_kernel_destroy(kernel);
    }
}

/* SUSReg with many knots is MMD under the induced kernel. */
static void test_sliced(void) {
    static const int64_t dims[] = {8, 64, 256};
    for (int i = 0; i < 3; i++) {
        zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
        zonal_objective_info info = {.size = sizeof info, .anisotropy = NAN};
        if (!CHECK_OK(zonal_objective_defaults("susreg", &options))) continue;
        options.loss.sliced.knots = 65;
        options.loss.sliced.low = -8;
        options.loss.sliced.high = 8;
        CHECK_OK(zonal_objective_describe(&options, 2, 2, 256, dims[i], &info));
        CHECK_CLOSE(info.anisotropy, anisotropy("mmd-induced", dims[i]), 1e-9);
    }
}

/* SIGReg of normal rows in 4 dimensions whose variance is 1 + e along two axes and 1 - e along the
 * others: along a direction it is 1 + e (2 u - 1), and u, the square of two of its coordinates, is
 * uniform on [0, 1]. Their M has four eigenvalues (1 +- e)/4, so |M - I/4|^2 = e^2/4. */
static void test_normal(void) {
    enum { KNOTS = 17, POINTS = 1000, DIM = 4, BATCH = 256 };
    double e = 1e-3, step = 3. / (KNOTS - 1), sum = 0;
    for (int k = 0; k < KNOTS; k++)
        for (int i = 0; i < POINTS; i++) {
            double t = k * step, v = e * (2 * (i + 0.5) / POINTS - 1);
            double off = exp(-t * t / 2 * (1 + v)) - exp(-t * t / 2);
            sum += (k == 0 || k == KNOTS - 1 ? 1 : 2) * step * exp(-t * t / 2) * off * off / POINTS;
        }
    /* within 1e-5: e^2 and the mid-point rule's error */
    CHECK_CLOSE(anisotropy("sigreg", DIM) / (BATCH * sum / (e * e / DIM)), 1, 1e-5);
}

/* Rows +-e sqrt(d) along every axis have the variance e^2 along any direction, and |z|^2/d = e^2:
 * SIGReg falls from its value at the origin by e^2 times what the threshold is made of. */
static void test_origin(void) {
    enum { DIM = 6, BATCH = 2 * DIM };
    double e = 1e-3, value[2] = {NAN, NAN}, x[BATCH * DIM] = {0};
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective_info info = ZONAL_OBJECTIVE_INFO_INIT;
    zonal_plan *plan = NULL;
    if (!CHECK_OK(zonal_objective_defaults("sigreg", &options))) return;
    options.loss.precision = ZONAL_PRECISION_DOUBLE;
    CHECK_OK(zonal_objective_describe(&options, 2, 2, BATCH, DIM, &info));
    if (!CHECK_OK(zonal_plan_create(&options.loss, BATCH, DIM, &plan))) return;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < BATCH; k++)
            x[k * DIM + k / 2] = i * (k % 2 ? -1 : 1) * e * sqrt((double)DIM);
        CHECK_OK(zonal_plan_execute(plan, x, &value[i], NULL));
    }
    /* f* = (1-lambda) K/(lambda slope), with lambda = .05 and K = 1/2; within 1e-5: e^2 */
    CHECK_CLOSE((value[0] - value[1]) / (e * e) * info.threshold / (0.95 * 0.5 / 0.05), 1, 1e-5);
    zonal_plan_destroy(plan);
}

/* ---- what follows ------------------------------------------------------------------------------
 */

/* At d = 256, batch 256, two views, computed apart from this library (with mpmath, from the
 * multiplicities and exp(-t L_l) alone; SUSReg and SIGReg by hand, for whose q an integral gives
 * .992/2 * 256 * 3/4 sqrt(pi) 1.5^-2.5); gain = batch, KL at a margin of 1.15. */
static void test_known(void) {
    static const struct {
        const char *method;
        double selectivity, within;
    } known[] = {{"mmd-heat", 14.3, 0.05},     {"ksd-heat", 14.6, 0.05},
                 {"mmd-band", 4.8, 0.05},      {"ksd-band", 4.7497842, 1e-6},
                 {"kl-heat", 5.2553453, 1e-6}, {"susreg", 21, 0.5},
                 {"sigreg", 0.0775, 0.0005}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        zonal_objective_info info = {.size = sizeof info, .selectivity = NAN};
        zonal_gain gain = strcmp(known[i].method, "kl-heat") ? ZONAL_GAIN_BATCH : ZONAL_GAIN_MARGIN;
        CHECK_OK(describe(known[i].method, -1, gain, 1.15, 2, 2, 256, &info));
        CHECK_MSG(fabs(info.selectivity - known[i].selectivity) <= known[i].within,
                  "%s: S = %g, not %g", known[i].method, info.selectivity, known[i].selectivity);
    }
}

/* The gain that is chosen where none is asked for. */
static void test_usual(void) {
    static const struct {
        const char *method;
        double per_dimension, fixed;
    } usual[] = {{"mmd-heat", 0, 10},        {"ksd-heat", 0, 10}, {"mmd-band", 10. / 256, 0},
                 {"ksd-band", 10. / 256, 0}, {"susreg", 0, 20},   {"mmd-induced", 0, 10},
                 {"mmd-poisson", 0, 10}};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        for (int dim = 16; dim <= 1024; dim *= 4)
            for (int views = 2; views <= 4; views += 2) {
                zonal_objective_info info = {.size = sizeof info, .selectivity = NAN};
                CHECK_OK(describe(usual[i].method, -1, ZONAL_GAIN_AUTO, 0, views, 2, dim, &info));
                const double want = usual[i].per_dimension * dim + usual[i].fixed;
                CHECK_MSG(fabs(info.selectivity - want) <= 1e-12 && info.margin > 1,
                          "%s, d = %d, %d views: S = %.15g, margin %g", usual[i].method, dim, views,
                          info.selectivity, info.margin);
            }
}

/* Another lambda shifts the weight; a gain near collapse is raised; SIGReg's is LeJEPA's. */
static void test_usual_bounds(void) {
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective_info info = {.size = sizeof info, .selectivity = NAN};
    CHECK_OK(describe("mmd-heat", 0.2, ZONAL_GAIN_AUTO, 0, 2, 2, 256, &info));
    CHECK_CLOSE(info.selectivity, 10 * (0.8 / 0.2) / (0.95 / 0.05), 1e-12);
    CHECK_OK(describe("mmd-heat", 0.0001, ZONAL_GAIN_AUTO, 0, 2, 2, 256, &info));
    CHECK_CLOSE(info.margin, 1.15, 1e-14);
    CHECK_OK(describe("mmd-heat", 0, ZONAL_GAIN_AUTO, 0, 2, 2, 256, &info));
    CHECK(info.gain > 0 && isfinite(info.gain));
    CHECK_OK(describe("mmd-heat", -1, ZONAL_GAIN_AUTO, 0, 1, 1, 256, &info)); /* K = 0 */
    CHECK(info.gain == 256);
    CHECK_OK(describe("sigreg", -1, ZONAL_GAIN_AUTO, 0, 2, 2, 256, &info));
    CHECK(info.gain == 1 && info.margin > 1);
    CHECK_OK(zonal_objective_defaults("kl-heat", &options));
    CHECK_OK(zonal_objective_describe(&options, 2, 2, 256, 256, &info));
    CHECK_CLOSE(info.margin, 1.15, 1e-14);
    CHECK_OK(zonal_objective_describe(&options, 2, 2, 64, 64, &info));
    CHECK_CLOSE(info.margin, 1.15, 1e-14);
    CHECK_OK(zonal_objective_set(&options, "t", "3/d"));
    for (int dim = 64; dim <= 256; dim *= 4) {
        CHECK_OK(zonal_objective_describe(&options, 2, 2, dim, dim, &info));
        CHECK_CLOSE(info.selectivity, 10, 1e-12);
    }
}

static void test_gains(void) {
    static const char *const methods[] = {"mmd-heat", "ksd-band", "kl-heat", "susreg", "sigreg"};
    for (int m = 0; m < 5; m++) {
        zonal_objective_info info = ZONAL_OBJECTIVE_INFO_INIT, again = ZONAL_OBJECTIVE_INFO_INIT;
        if (!CHECK_OK(describe(methods[m], 0.1, ZONAL_GAIN_SELECTIVITY, 7, 4, 2, 64, &info)))
            continue;
        CHECK_CLOSE(info.selectivity, 7, 1e-13);
        CHECK_CLOSE(info.k, 1, 1e-15); /* 1 + 1/2 - 2/4 */
        CHECK_CLOSE(info.gain, 0.9 * info.k * 64 / (2 * 0.1 * 7 * info.anisotropy),
                    1e-12 * info.gain);
        CHECK_CLOSE(info.margin, info.gain / info.threshold, 1e-12 * info.margin);
        CHECK_OK(describe(methods[m], 0.1, ZONAL_GAIN_MARGIN, info.margin, 4, 2, 64, &again));
        CHECK_CLOSE(again.gain, info.gain, 1e-12 * info.gain);
        CHECK_OK(describe(methods[m], 0.1, ZONAL_GAIN_VALUE, info.gain, 4, 2, 64, &again));
        CHECK_CLOSE(again.selectivity, 7, 1e-12);
    }
}

/* The numbers of a description are those of the objective that is made. */
static void test_objective(void) {
    enum { VIEWS = 2, BATCH = 6, DIM = 4 };
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective *objective = NULL;
    zonal_objective_info info = ZONAL_OBJECTIVE_INFO_INIT;
    zonal_objective_parts parts;
    double z[VIEWS * BATCH * DIM];
    for (int i = 0; i < VIEWS * BATCH * DIM; i++) z[i] = sin(7.1 * i + 1);
    if (!CHECK_OK(zonal_objective_defaults("mmd-heat", &options))) return;
    options.gain = ZONAL_GAIN_SELECTIVITY;
    options.gain_value = 3;
    if (CHECK_OK(zonal_objective_create(&options, VIEWS, VIEWS, BATCH, DIM, &objective)) &&
        CHECK_OK(zonal_objective_execute(objective, z, &parts, NULL))) {
        zonal_objective_info_get(objective, &info);
        CHECK_CLOSE(info.selectivity, 3, 1e-13);
        CHECK(parts.gain == info.gain && parts.threshold == info.threshold);
        CHECK_CLOSE(parts.total, .95 * parts.invariance + .05 * info.gain * parts.discrepancy,
                    1e-13);
    }
    zonal_objective_destroy(objective);
}

static void test_refusals(void) {
    zonal_objective_info info = {.size = sizeof info, .gain = 1};
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective_info_get(NULL, &info);
    CHECK(info.gain == 0);
    zonal_objective_info_get(NULL, NULL);
    CHECK_OK(zonal_objective_defaults("mmd-heat", &options));
    CHECK_FAILS(zonal_objective_describe(NULL, 2, 2, 8, 8, &info), ZONAL_ARGUMENT, "options");
    CHECK_FAILS(zonal_objective_describe(&options, 2, 2, 8, 8, NULL), ZONAL_ARGUMENT, "info");
    CHECK_FAILS(describe("mmd-chordal", -1, ZONAL_GAIN_MARGIN, 5, 2, 2, 64, &info), ZONAL_ARGUMENT,
                "collapse threshold");
    CHECK_FAILS(describe("mmd-heat", 0, ZONAL_GAIN_SELECTIVITY, 5, 2, 2, 64, &info), ZONAL_ARGUMENT,
                "lambda = 0");
    CHECK_FAILS(describe("mmd-heat", -1, ZONAL_GAIN_SELECTIVITY, 0, 2, 2, 64, &info),
                ZONAL_ARGUMENT, "selectivity must be positive");
    CHECK_FAILS(describe("mmd-heat", -1, ZONAL_GAIN_MARGIN, NAN, 2, 2, 64, &info), ZONAL_ARGUMENT,
                "margin must be positive");
    CHECK_FAILS(describe("mmd-heat", -1, (zonal_gain)6, 1, 2, 2, 64, &info), ZONAL_ARGUMENT,
                "no gain 6");
}

static const test_case tests[] = {{"moments", test_moments},   {"integrals", test_integrals},
                                  {"sliced", test_sliced},     {"normal", test_normal},
                                  {"origin", test_origin},     {"known", test_known},
                                  {"usual", test_usual},       {"usual bounds", test_usual_bounds},
                                  {"gains", test_gains},       {"objective", test_objective},
                                  {"refusals", test_refusals}, {0}};
int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
