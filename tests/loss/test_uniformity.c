/*
 * Tests of uniformity: calibrated under the null, powerful against known alternatives, and honest
 * in words. The oracle of calibration is simulation: p-values of uniform batches must be uniform.
 */
#include <stdlib.h>

#include "core/random.h"
#include "failing_alloc.h"
#include "test.h"
#include "uniformity/battery.h"
#include "uniformity/diagnostics.h"
#include "zonal/uniformity.h"

/* ---- calibration ----------------------------------------------------------------------------- */

typedef struct tally {
    int low1, low5, middle, high5, high1; /* p <= .01, p <= .05, .4 < p <= .6, p > .95, p > .99 */
} tally;

/* |count - R q| within 4.5 standard deviations: 360 such checks raise a false alarm once in 400
 * seeds. */
static void check_count(int count, int replicates, double q, const char *what, const char *test,
                        int64_t n, int64_t d) {
    double mean = replicates * q, sd = sqrt(replicates * q * (1 - q));
    CHECK_MSG(fabs(count - mean) <= 4.5 * sd + 1,
              "%s at n = %lld, d = %lld: %d of %d p-values %s, want %.1f +- %.1f", test,
              (long long)n, (long long)d, count, replicates, what, mean, sd);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Kolmogorov's distance from uniform; 1.95/sqrt(R) is passed once in a thousand. */
static void check_uniform(double *p, int replicates, const char *test, int64_t n, int64_t d) {
    double worst = 0;
    qsort(p, (size_t)replicates, sizeof *p, compare_doubles);
    for (int i = 0; i < replicates; i++)
        worst = fmax(worst, fmax(p[i] - i / (double)replicates, (i + 1.0) / replicates - p[i]));
    CHECK_MSG(worst <= 2.2 / sqrt(replicates),
              "%s at n = %lld, d = %lld: p-values are %.3f from uniform, allowed %.3f", test,
              (long long)n, (long long)d, worst, 2.2 / sqrt(replicates));
}

static void calibrate(int64_t n, int64_t d, int replicates) {
    zonal__problem problem = {.rows = n,
                              .dim = d,
                              .precision = ZONAL_PRECISION_FP32,
                              .threads = zonal__backend_threads(0)};
    float *x = malloc((size_t)(n * d) * sizeof *x);
    double *row = malloc((size_t)d * sizeof *row), t[ZONAL_UNIFORMITY_TESTS];
    double *p = malloc((size_t)(ZONAL_UNIFORMITY_TESTS * replicates) * sizeof *p);
    tally count[ZONAL_UNIFORMITY_TESTS] = {{0}};
    zonal__battery battery;
    if (CHECK_OK(zonal__battery_init(&problem, 1, 0, &battery))) {
        for (int r = 0; r < replicates; r++) {
            zonal__survey_simulate(&problem, test_seed, (uint32_t)r, row, x);
            if (!CHECK_OK(zonal__battery_run(&battery, x, t))) break;
            for (int k = 0; k < battery.tests; k++) {
                double upper, log_upper, lower;
                if (!CHECK_OK(
                        zonal__null_tails(&battery.test[k].null, t[k], &upper, &log_upper, &lower)))
                    break;
                p[k * replicates + r] = upper;
                count[k].low1 += upper <= 0.01;
                count[k].low5 += upper <= 0.05;
                count[k].middle += upper > 0.4 && upper <= 0.6;
                count[k].high5 += lower <= 0.05;
                count[k].high1 += lower <= 0.01;
            }
        }
        for (int k = 0; k < battery.tests; k++) {
            const char *name = battery.test[k].name;
            printf(
                "# n %5lld d %5lld %-9s <1%% %5.2f%% <5%% %5.2f%% mid %5.2f%% >95%% %5.2f%% >99%% "
                "%5.2f%%\n",
                (long long)n, (long long)d, name, 100.0 * count[k].low1 / replicates,
                100.0 * count[k].low5 / replicates, 100.0 * count[k].middle / replicates,
                100.0 * count[k].high5 / replicates, 100.0 * count[k].high1 / replicates);
            check_count(count[k].low1, replicates, 0.01, "<= .01", name, n, d);
            check_count(count[k].low5, replicates, 0.05, "<= .05", name, n, d);
            check_count(count[k].middle, replicates, 0.2, "in the middle fifth", name, n, d);
            check_count(count[k].high5, replicates, 0.05, "> .95", name, n, d);
            check_count(count[k].high1, replicates, 0.01, "> .99", name, n, d);
            check_uniform(p + k * replicates, replicates, name, n, d);
        }
    }
    zonal__battery_fini(&battery);
    free(x);
    free(row);
    free(p);
}

static void test_null_100(void) {
    calibrate(100, 3, 2000);
    calibrate(100, 64, 2000);
    calibrate(100, 256, 1500);
    calibrate(100, 1024, 800);
}

static void test_null_1000(void) {
    calibrate(1000, 3, 300);
    calibrate(1000, 64, 300);
    calibrate(1000, 256, 250);
    calibrate(1000, 1024, 150);
}

/* Of n uniform points on the circle, P(n |mean|^2 <= w) in closed form: with r = sqrt(n w), r times
 * the integral of J_1(r t) J_0(t)^n (Kluyver 1905), by Simpson's rule. For n >= 10 what lies beyond
 * t = 200 is less than 1e-9. */
static double rayleigh_on_circle(int n, double w) {
    enum { STEPS = 200 << 10 };
    double r = sqrt(n * w), h = 200.0 / STEPS, sum = 0;
    for (int i = 1; i <= STEPS; i++) sum += (i % 2 ? 4 : 2) * j1(r * h * i) * pow(j0(h * i), n);
    return r * sum * h / 3;
}

/* The limit's smaller tail is off by a few times 1/n of itself. */
static void test_circle(void) {
    static const double w[] = {0.003, 0.01, 0.03, 0.1, 0.5, 1, 2, 3, 4};
    for (int n = 10; n <= 1000; n = n == 10 ? 30 : n == 30 ? 100 : 10 * n) {
        zonal__null_distribution null;
        if (!CHECK_OK(zonal__null_of_degree(1, 2, n, &null))) return;
        for (size_t i = 0; i < sizeof w / sizeof *w; i++) {
            double upper, log_upper, lower, exact = rayleigh_on_circle(n, w[i]);
            CHECK_OK(zonal__null_tails(&null, w[i] - 1, &upper, &log_upper, &lower));
            double ratio = exact < 0.5 ? lower / exact : upper / (1 - exact);
            printf("# n %4d, n |mean|^2 = %5.3f: exact %.5f, p_lower %.5f\n", n, w[i], exact,
                   lower);
            CHECK_MSG(fabs(ratio - 1) <= 5.0 / n, "n = %d, n |mean|^2 = %g: %.3f of the exact tail",
                      n, w[i], ratio);
        }
        zonal__null_fini(&null);
    }
}

/* T with P(T <= t) = p, or with P(T > t) = p. */
static double quantile(const zonal__null_distribution *null, double p, int of_upper) {
    double low = -1, high = 50;
    for (int i = 0; i < 45; i++) {
        double middle = (low + high) / 2, upper, log_upper, lower;
        CHECK_OK(zonal__null_tails(null, middle, &upper, &log_upper, &lower));
        if (of_upper ? upper > p : lower < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* Few points in few dimensions. The limit is not exact there: the shares may be off by what
 * simulation of 40,000 batches showed at (10, 2), the worst of these, by Rayleigh: .0019, .015 and
 * .060 in place of .001, .01 and .05; the upper ones are never more than they should be. */
static void calibrate_few(int64_t n, int64_t d) {
    enum { REPLICATES = 3000 };
    static const double share[] = {0.001, 0.01, 0.05}, most[] = {0.002, 0.016, 0.063};
    zonal__problem problem = {
        .rows = n, .dim = d, .precision = ZONAL_PRECISION_DOUBLE, .threads = 1};
    double *x = malloc((size_t)(n * d) * sizeof *x), *row = malloc((size_t)d * sizeof *row);
    double(*t)[ZONAL_UNIFORMITY_TESTS] = malloc(REPLICATES * sizeof *t);
    zonal__battery battery;
    int ready = CHECK_OK(zonal__battery_init(&problem, 1, 0, &battery));
    for (int r = 0; ready && r < REPLICATES; r++) {
        zonal__survey_simulate(&problem, test_seed, (uint32_t)r, row, x);
        ready = CHECK_OK(zonal__battery_run(&battery, x, t[r]));
    }
    for (int k = 0; ready && k < battery.tests; k++) {
        const zonal__null_distribution *null = &battery.test[k].null;
        double square = 0, smallest = INFINITY, upper, log_upper, lower;
        for (int i = 0; i < 3; i++) {
            double low = quantile(null, share[i], 0), high = quantile(null, share[i], 1);
            int below = 0, above = 0;
            for (int r = 0; r < REPLICATES; r++) below += t[r][k] <= low, above += t[r][k] >= high;
            printf("# n %3lld d %lld %-9s %.3f: lower %.4f, upper %.4f\n", (long long)n,
                   (long long)d, battery.test[k].name, share[i], below / (double)REPLICATES,
                   above / (double)REPLICATES);
            double allowed = most[i] * REPLICATES;
            CHECK_MSG(below <= allowed + 4.5 * sqrt(allowed),
                      "%s at n = %lld, d = %lld: %d of %d "
                      "lower tails <= %g",
                      battery.test[k].name, (long long)n, (long long)d, below, REPLICATES,
                      share[i]);
            allowed = share[i] * REPLICATES;
            CHECK_MSG(above <= allowed + 4.5 * sqrt(allowed),
                      "%s at n = %lld, d = %lld: %d of %d "
                      "upper tails <= %g",
                      battery.test[k].name, (long long)n, (long long)d, above, REPLICATES,
                      share[i]);
        }
        for (int r = 0; r < REPLICATES; r++) {
            square += t[r][k] * t[r][k] / REPLICATES;
            smallest = fmin(smallest, t[r][k]);
        }
        CHECK_OK(zonal__null_tails(null, smallest, &upper, &log_upper, &lower));
        CHECK_MSG(lower > 0, "%s at n = %lld, d = %lld: p_lower is 0 at T = %.9g",
                  battery.test[k].name, (long long)n, (long long)d, smallest);
        /* T^2 has a standard deviation of less than 3 times its mean for these. */
        CHECK_CLOSE(square / pow(zonal__null_sd(null), 2), 1, 4.5 * 3 / sqrt(REPLICATES));
    }
    zonal__battery_fini(&battery);
    free(x);
    free(row);
    free(t);
}

static void test_few_points(void) {
    calibrate_few(10, 2);
    calibrate_few(30, 2);
    calibrate_few(50, 3);
}

/* ---- alternatives ---------------------------------------------------------------------------- */

enum { N = 400, D = 32 };
static double points[N * D];

static void fill_uniform(uint32_t step) {
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, step};
    for (int i = 0; i < N; i++) zonal__random_direction(&random, (uint64_t)i, D, points + i * D);
}

static const zonal_uniformity_test *find(const zonal_uniformity_report *report, const char *name) {
    for (int k = 0; k < report->tests; k++)
        if (strcmp(report->test[k].name, name) == 0) return &report->test[k];
    test_fail(__FILE__, __LINE__, "the report has no test %s", name);
    return &report->test[0];
}

static zonal_uniformity_report report_of(zonal_uniformity_options options, int64_t n, int64_t d) {
    zonal_uniformity_report report = ZONAL_UNIFORMITY_REPORT_INIT;
    CHECK_OK(zonal_uniformity_run(&options, n, d, points, &report));
    return report;
}

static void test_uniform_points(void) {
    fill_uniform(1);
    zonal_uniformity_report report =
        report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, N, D);
    for (int k = 0; k < report.tests; k++) {
        CHECK_MSG(report.test[k].p > 1e-3 && report.test[k].p < 1 - 1e-3, "%s: p = %g",
                  report.test[k].name, report.test[k].p);
        CHECK_CLOSE(report.test[k].p + report.test[k].p_lower, 1, 1e-12);
    }
    CHECK_MSG(strcmp(report.verdict, "Uniform as far as 400 points can tell.") == 0, "%s",
              report.verdict);
    CHECK(report.skipped[0] == 0);
    /* The diagnostics' expectations hold for this batch within a few per cent. */
    CHECK_CLOSE(report.effective_rank / report.effective_rank_expected, 1, 0.02);
    CHECK_CLOSE(report.directions / report.directions_expected, 1, 0.05);
    CHECK_CLOSE(report.nearest_angle / report.nearest_angle_expected, 1, 0.03);
    for (int l = 0; l < report.degrees; l++)
        CHECK_MSG(fabs(report.degree[l].excess) < 5 * report.degree[l].sd,
                  "degree %d: excess %g, sd %g", l + 1, report.degree[l].excess,
                  report.degree[l].sd);
}

static void test_preferred_direction(void) {
    fill_uniform(2);
    for (int i = 0; i < N; i++) points[i * D] += 0.12; /* about .2 of resultant length is noise */
    zonal_uniformity_report report =
        report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, N, D);
    CHECK(find(&report, "rayleigh")->p < 1e-4);
    CHECK(find(&report, "gine")->p < 1e-4);
    CHECK(find(&report, "heat-1.4")->p < 1e-4);
    CHECK(find(&report, "bingham")->p > 1e-3); /* blind to it at this strength */
    CHECK_MSG(strstr(report.verdict, "Not uniform") && strstr(report.verdict, "lean to one side"),
              "%s", report.verdict);
}

static void test_preferred_axes(void) {
    fill_uniform(3);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 4; k++) points[i * D + k] *= 1.5;
    zonal_uniformity_report report =
        report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, N, D);
    CHECK(find(&report, "bingham")->p < 1e-4);
    CHECK(find(&report, "rayleigh")->p > 1e-3);
    CHECK_MSG(strstr(report.verdict, "some axes"), "%s", report.verdict);
}

static void test_collapses(void) {
    zonal_uniformity_report report = ZONAL_UNIFORMITY_REPORT_INIT;
    fill_uniform(4);
    for (int i = 0; i < N; i++)
        for (int k = 7; k < D; k++) points[i * D + k] *= 1e-3;
    report = report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, N, D);
    CHECK_MSG(strstr(report.verdict, "Not uniform: the points fill about 7 directions of 32"), "%s",
              report.verdict);
    fill_uniform(4);
    for (int i = 0; i < N; i++)
        for (int k = 2; k < D; k++) points[i * D + k] *= 1e-4;
    report = report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, N, D);
    CHECK_MSG(strstr(report.verdict, "Collapsed to about 2 directions of 32"), "%s",
              report.verdict);
    fill_uniform(5);
    for (int i = 0; i < N; i++) points[i * D] += 3;
    report = report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, N, D);
    CHECK_MSG(strstr(report.verdict, "Not uniform: a cone"), "%s", report.verdict);
    CHECK(find(&report, "rayleigh")->log10_p < -1000);
    fill_uniform(5);
    for (int i = 0; i < N; i++) points[i * D] += 6;
    report = report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, N, D);
    CHECK_MSG(strstr(report.verdict, "Collapsed almost to a point"), "%s", report.verdict);
    for (int i = 0; i < N * D; i++) points[i] = i % D == 0 ? 2 : 0;
    report = report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, N, D);
    CHECK_MSG(strstr(report.verdict, "Collapsed to a point"), "%s", report.verdict);
    CHECK_CLOSE(report.effective_rank, 1, 1e-6);
    CHECK_CLOSE(report.nearest_angle, 0, 1e-4);
    for (int k = 0; k < report.tests; k++) CHECK_CLOSE(report.test[k].statistic, N - 1, 1e-8 * N);
}

/* Points that repel each other: the signed axes, twice over, are a 3-design. */
static void test_too_even(void) {
    for (int i = 0; i < N * D; i++) points[i] = 0;
    for (int i = 0; i < 4 * D; i++) points[i * D + i % D] = i / D % 2 ? -1 : 1;
    zonal_uniformity_report report =
        report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, 4 * D, D);
    CHECK_CLOSE(find(&report, "rayleigh")->statistic, -1, 1e-12);
    CHECK_CLOSE(find(&report, "bingham")->statistic, -1, 1e-12);
    CHECK(find(&report, "rayleigh")->p_lower < 1e-10);
    CHECK_MSG(strstr(report.verdict, "More even"), "%s", report.verdict);
}

/* Clusters of antipodal pairs with every low moment right show only in the higher degrees. */
static void test_clusters(void) {
    fill_uniform(6);
    for (int i = N / 2; i < N; i++)
        for (int k = 0; k < D; k++) points[i * D + k] = points[(i - N / 2) * D + k];
    zonal_uniformity_report report =
        report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, N, D);
    CHECK(report.nearest_angle < 1e-4);
    CHECK(find(&report, "heat-0.7")->p < find(&report, "heat-1.4")->p);
}

/* Equally spaced points are the evenest there are; below 5 rows that is said of none. */
static void test_few_rows(void) {
    for (int n = 3; n <= 40; n = n < 6 ? n + 1 : 40) {
        for (int i = 0; i < n; i++) {
            points[2 * i] = cos(6.283185307179586 * i / n + 0.3);
            points[2 * i + 1] = sin(6.283185307179586 * i / n + 0.3);
        }
        zonal_uniformity_report report =
            report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, n, 2);
        CHECK((strstr(report.verdict, "More even") != NULL) == (n >= 5));
        for (int k = 0; k < report.tests; k++) {
            CHECK((strstr(report.test[k].note, "below 5 rows") != NULL) == (n < 5));
            CHECK(!isnan(report.test[k].p));
        }
        if (n == 40) break;
    }
}

/* ---- Monte Carlo, limits, errors ------------------------------------------------------------- */

static void test_monte_carlo(void) {
    zonal_uniformity_options options = {
        .size = sizeof options, .monte_carlo = 400, .t = 1.0 / D, .seed = 7};
    fill_uniform(8);
    zonal_uniformity_report first = report_of(options, N, D), again = report_of(options, N, D);
    for (int k = 0; k < first.tests; k++) {
        const zonal_uniformity_test *test = &first.test[k];
        CHECK(test->p == test->p_monte_carlo && test->p == again.test[k].p);
        if (strcmp(test->name, "heat-t") == 0) {
            CHECK(isnan(test->p_asymptotic) && !isnan(test->p_monte_carlo));
            CHECK(strstr(test->note, "Monte Carlo only") != NULL);
        } else {
            CHECK_CLOSE(test->p_monte_carlo, test->p_asymptotic, 0.12); /* 4.5 sd of 400 draws */
        }
    }
    options.monte_carlo = 0;
    first = report_of(options, N, D);
    CHECK(isnan(find(&first, "heat-t")->p));
    CHECK(strstr(find(&first, "heat-t")->note, "no p-value without Monte Carlo") != NULL);
}

static int stop_at_once(void *context, double share) {
    (void)share;
    return ++*(int *)context >= 3;
}

static void test_cancel(void) {
    int calls = 0;
    zonal_uniformity_options options = {.size = sizeof options,
                                        .monte_carlo = 1000,
                                        .progress = stop_at_once,
                                        .progress_context = &calls};
    zonal_uniformity_report report = ZONAL_UNIFORMITY_REPORT_INIT;
    fill_uniform(9);
    CHECK_FAILS(zonal_uniformity_run(&options, N, D, points, &report), ZONAL_CANCELLED,
                "stopped after 3 of 1000");
    CHECK(report.tests == 0);
}

static void test_pair_limit(void) {
    zonal_uniformity_options options = {.size = sizeof options, .pair_limit = N - 1};
    fill_uniform(10);
    zonal_uniformity_report all =
        report_of((zonal_uniformity_options)ZONAL_UNIFORMITY_OPTIONS_INIT, N, D);
    zonal_uniformity_report few = report_of(options, N, D);
    CHECK(few.tests == 2 && few.degrees == 2 && isnan(few.nearest_angle));
    CHECK(strstr(few.skipped, "tests by pairs") != NULL);
    for (int k = 0; k < 2; k++) CHECK(few.test[k].p == all.test[k].p);
}

static void test_bad_input(void) {
    zonal_uniformity_options options = ZONAL_UNIFORMITY_OPTIONS_INIT;
    zonal_uniformity_report report = ZONAL_UNIFORMITY_REPORT_INIT;
    fill_uniform(11);
    CHECK_FAILS(zonal_uniformity_run(&options, 1, D, points, &report), ZONAL_SHAPE, "at least 2");
    CHECK_FAILS(zonal_uniformity_run(&options, N, 1, points, &report), ZONAL_SHAPE, "2 to 4096");
    points[5 * D + 3] = NAN;
    CHECK_FAILS(zonal_uniformity_run(&options, N, D, points, &report), ZONAL_NUMERIC, "row 5");
    for (int k = 0; k < D; k++) points[5 * D + k] = 0;
    CHECK_FAILS(zonal_uniformity_run(&options, N, D, points, &report), ZONAL_NUMERIC, "row 5");
    options.t = NAN;
    CHECK_FAILS(zonal_uniformity_run(&options, N, D, points, &report), ZONAL_ARGUMENT, "t must");
    options = (zonal_uniformity_options){.size = sizeof(zonal_uniformity_options), .level = 2};
    CHECK_FAILS(zonal_uniformity_run(&options, N, D, points, &report), ZONAL_ARGUMENT, "level");
    options =
        (zonal_uniformity_options){.size = sizeof(zonal_uniformity_options), .monte_carlo = -1};
    CHECK_FAILS(zonal_uniformity_run(&options, N, D, points, &report), ZONAL_ARGUMENT, "simulated");
}

static zonal_status run_small(void *context) {
    zonal_uniformity_options options = {
        .size = sizeof options, .monte_carlo = 2, .t = 0.5, .threads = 2};
    zonal_uniformity_report *report = context;
    return zonal_uniformity_run(&options, 8, 3, points, report);
}

static void test_allocations(void) {
    zonal_uniformity_report report = ZONAL_UNIFORMITY_REPORT_INIT;
    fill_uniform(12);
    test_every_allocation("zonal_uniformity_run", run_small, &report);
}

/* ---- diagnostics ----------------------------------------------------------------------------- */

static void test_diagnostics(void) {
    double equal[5] = {0.2, 0.2, 0.2, 0.2, 0.2}, one[5] = {0, -1e-18, 0, 0, 1};
    double two[4] = {0.1, 0.4, 0.1, 0.4};
    CHECK_CLOSE(zonal__effective_rank(5, equal), 5, 1e-12);
    CHECK_CLOSE(zonal__participation(5, equal), 5, 1e-12);
    CHECK_CLOSE(zonal__effective_rank(5, one), 1, 1e-12);
    CHECK_CLOSE(zonal__participation(5, one), 1, 1e-12);
    /* shares of sqrt: 1/6, 1/3, 1/6, 1/3: entropy log 6/3 + 2 log 3/3 */
    CHECK_CLOSE(zonal__effective_rank(4, two), exp(log(6) / 3 + 2 * log(3) / 3), 1e-12);
    CHECK_CLOSE(zonal__participation(4, two), 1 / 0.34, 1e-12);
    CHECK_CLOSE(zonal__effective_rank_expected(100000000, 10), 10, 1e-3);
    CHECK_CLOSE(zonal__effective_rank_expected(10, 100000000), 10, 1e-3);
}

static const test_case tests[] = {{"uniform_points", test_uniform_points},
                                  {"preferred_direction", test_preferred_direction},
                                  {"preferred_axes", test_preferred_axes},
                                  {"collapses", test_collapses},
                                  {"too_even", test_too_even},
                                  {"clusters", test_clusters},
                                  {"few_rows", test_few_rows},
                                  {"monte_carlo", test_monte_carlo},
                                  {"cancel", test_cancel},
                                  {"pair_limit", test_pair_limit},
                                  {"bad_input", test_bad_input},
                                  {"allocations", test_allocations},
                                  {"diagnostics", test_diagnostics},
                                  {"circle", test_circle},
                                  {"few_points", test_few_points},
                                  {"null_100", test_null_100},
                                  {"null_1000", test_null_1000},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
