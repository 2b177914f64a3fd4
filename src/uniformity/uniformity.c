#include <math.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/sized.h"
#include "core/thread.h"
#include "math/distributions.h"
#include "uniformity/battery.h"
#include "uniformity/diagnostics.h"
#include "uniformity/verdict.h"

static const int64_t PAIR_LIMIT = 20000;
static const double DEGREES_PER_RADIAN = 57.29577951308232;

typedef struct session {
    const zonal_uniformity_options *options;
    zonal__battery battery;
    void *simulated;                         /* [n][d] */
    double *row;                             /* [d] */
    int64_t larger[ZONAL_UNIFORMITY_TESTS];  /* replicates with T at least the data's */
    int64_t smaller[ZONAL_UNIFORMITY_TESTS]; /* at most the data's */
} session;

static zonal_status simulate(session *s, const double *data) {
    const zonal__problem *problem = &s->battery.problem;
    int64_t replicates = s->options->monte_carlo;
    size_t size = problem->precision == ZONAL_PRECISION_FP32 ? sizeof(float) : sizeof(double);
    double t[ZONAL_UNIFORMITY_TESTS];
    if (replicates == 0) return ZONAL_OK;
    ZONAL_TRY(zonal__alloc(problem->rows * problem->dim, size, "a simulated batch", &s->simulated));
    ZONAL_TRY(ZONAL_NEW(&s->row, problem->dim, "a row"));
    for (int64_t r = 0; r < replicates; r++) {
        zonal__survey_simulate(problem, s->options->seed, (uint32_t)r, s->row, s->simulated);
        ZONAL_TRY(zonal__battery_run(&s->battery, s->simulated, t));
        for (int k = 0; k < s->battery.tests; k++) {
            s->larger[k] += t[k] >= data[k];
            s->smaller[k] += t[k] <= data[k];
        }
        if (s->options->progress && s->options->progress(s->options->progress_context,
                                                         (double)(r + 1) / (double)replicates))
            return ZONAL_FAIL(ZONAL_CANCELLED, "stopped after %lld of %lld simulated batches",
                              (long long)(r + 1), (long long)replicates);
    }
    return ZONAL_OK;
}

static zonal_status fill_test(const session *s, int k, double statistic,
                              zonal_uniformity_test *test) {
    const zonal__battery_test *source = &s->battery.test[k];
    int64_t replicates = s->options->monte_carlo;
    double log_upper;
    test->name = source->name;
    test->statistic = statistic;
    test->sd = zonal__null_sd(&source->null);
    test->p_asymptotic = test->p_asymptotic_lower = test->log10_p = NAN;
    test->p_monte_carlo = test->p_monte_carlo_lower = NAN;
    if (source->narrow) {
        snprintf(test->note, sizeof test->note, "%s",
                 replicates ? "t below .7 log(d)/d: Monte Carlo only"
                            : "t below .7 log(d)/d: no p-value without Monte Carlo");
    } else {
        ZONAL_TRY(zonal__null_tails(&source->null, statistic, &test->p_asymptotic, &log_upper,
                                    &test->p_asymptotic_lower));
        test->log10_p = log_upper / log(10);
        if (s->battery.problem.rows < ZONAL__FEW_POINTS)
            snprintf(test->note, sizeof test->note,
                     "below %d rows the limit distribution is a rough guide; Monte Carlo is exact",
                     ZONAL__FEW_POINTS);
    }
    if (replicates > 0) {
        double all = (double)(1 + replicates);
        test->p_monte_carlo = (double)(1 + s->larger[k]) / all;
        test->p_monte_carlo_lower = (double)(1 + s->smaller[k]) / all;
    }
    test->p = replicates ? test->p_monte_carlo : test->p_asymptotic;
    test->p_lower = replicates ? test->p_monte_carlo_lower : test->p_asymptotic_lower;
    return ZONAL_OK;
}

static zonal_status fill_diagnostics(const session *s, zonal_uniformity_report *report) {
    int64_t n = s->battery.problem.rows, d = s->battery.problem.dim;
    const double *moments = s->battery.survey.moments;
    const zonal__operation_table *operation =
        s->battery.survey.backend->operations[ZONAL__EIGENVALUES];
    zonal__problem square = {.rows = d,
                             .dim = d,
                             .precision = ZONAL_PRECISION_DOUBLE,
                             .threads = s->battery.problem.threads};
    zonal__work *work = NULL;
    double *eigenvalues = NULL, mean = 0;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&eigenvalues, d, "the eigenvalues"));
    ZONAL_TRY_GOTO(status, done, operation->create(&square, &work));
    ZONAL_TRY_GOTO(status, done, operation->run(work, moments + d, 0, eigenvalues, NULL, 0));
    for (int64_t k = 0; k < d; k++) mean += moments[k] * moments[k];
    report->mean_resultant = sqrt(mean);
    report->mean_resultant_expected = 1 / sqrt((double)n);
    /* |sum x|^2 = n + n (n - 1) times the mean cosine. */
    report->mean_cosine = ((double)n * mean - 1) / (double)(n - 1);
    report->effective_rank = zonal__effective_rank(d, eigenvalues);
    report->effective_rank_expected = zonal__effective_rank_expected(n, d);
    report->collapse = zonal__collapse(report->mean_cosine, report->effective_rank,
                                       report->effective_rank_expected, ZONAL_COLLAPSE_COSINE,
                                       ZONAL_COLLAPSE_RANK);
    report->directions = zonal__participation(d, eigenvalues);
    report->directions_expected = zonal__participation_expected(n, d);
    report->nearest_angle = report->nearest_angle_expected = NAN;
    if (s->battery.survey.pairs) {
        const double *nearest = s->battery.survey.sums + s->battery.survey.n_psi;
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += acos(nearest[i] > 1 ? 1 : nearest[i]);
        report->nearest_angle = sum / (double)n * DEGREES_PER_RADIAN;
        report->nearest_angle_expected = zonal__expected_nearest_angle(n, d) * DEGREES_PER_RADIAN;
    }
done:
    if (work) operation->destroy(work);
    zonal__free(eigenvalues);
    return status;
}

static zonal_status fill_degrees(const session *s, const double *t,
                                 zonal_uniformity_report *report) {
    report->degrees = s->battery.survey.pairs ? ZONAL_UNIFORMITY_DEGREES : 2;
    for (int l = 1; l <= report->degrees; l++) {
        zonal_uniformity_degree *degree = &report->degree[l - 1];
        zonal__null_distribution null;
        ZONAL_TRY(zonal__null_of_degree(l, s->battery.problem.dim, s->battery.problem.rows, &null));
        degree->sd = zonal__null_sd(&null);
        zonal__null_fini(&null);
        degree->excess = l <= 2 ? t[l - 1] : zonal__battery_degree(&s->battery, l);
    }
    return ZONAL_OK;
}

static zonal_status check(const zonal_uniformity_options *options, int64_t n, int64_t d) {
    if (n < 2)
        return ZONAL_FAIL(ZONAL_SHAPE, "a test of uniformity needs at least 2 rows, got %lld",
                          (long long)n);
    if (d < 2 || d > 4096)
        return ZONAL_FAIL(ZONAL_SHAPE, "the dimension must be from 2 to 4096, got %lld",
                          (long long)d);
    if (options->precision != ZONAL_PRECISION_DOUBLE && options->precision != ZONAL_PRECISION_FP32)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED, "tests of uniformity take double or fp32 rows");
    if (options->monte_carlo < 0 || options->monte_carlo > UINT32_MAX)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the number of simulated batches is out of range: %lld",
                          (long long)options->monte_carlo);
    if (!(options->t >= 0 && options->t < INFINITY))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "t must be positive and finite, got %g", options->t);
    if (options->pair_limit < 0 || options->threads < 0 || options->seed > INT64_MAX ||
        !(options->level >= 0 && options->level < 1))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "pair_limit, threads and seed must not be negative, and level must be "
                          "from 0 to 1");
    return ZONAL_OK;
}

static void say_skipped(int64_t n, int64_t limit, zonal_uniformity_report *report) {
    snprintf(report->skipped, sizeof report->skipped,
             "the tests by pairs (gine, poisson, heat, ksd, induced), degrees above 2 and the "
             "nearest neighbours: %lld rows are %.2g pairs, above the limit of %lld rows",
             (long long)n, (double)n * (double)n / 2, (long long)limit);
}

static zonal_status run(session *s, const zonal__problem *problem, const void *x,
                        zonal_uniformity_report *report) {
    double t[ZONAL_UNIFORMITY_TESTS];
    int64_t limit = s->options->pair_limit ? s->options->pair_limit : PAIR_LIMIT;
    int pairs = problem->rows <= limit;
    ZONAL_TRY(zonal__battery_init(problem, pairs, s->options->t, &s->battery));
    ZONAL_TRY(zonal__battery_run(&s->battery, x, t));
    report->tests = s->battery.tests;
    ZONAL_TRY(fill_degrees(s, t, report));
    ZONAL_TRY(fill_diagnostics(s, report)); /* before the survey is used for simulated batches */
    ZONAL_TRY(simulate(s, t));
    for (int k = 0; k < report->tests; k++) ZONAL_TRY(fill_test(s, k, t[k], &report->test[k]));
    report->monte_carlo = s->options->monte_carlo;
    if (!pairs) say_skipped(problem->rows, limit, report);
    zonal__verdict(s->options->level > 0 ? s->options->level : 0.01, report);
    return ZONAL_OK;
}

static zonal_status run_on_rows(const zonal_uniformity_options *options, int64_t n, int64_t d,
                                const void *x, zonal_uniformity_report *report) {
    zonal__problem problem = {.rows = n, .dim = d};
    session s = {.options = options};
    ZONAL_TRY(check(options, n, d));
    problem.precision = options->precision;
    problem.unit_rows = options->unit_rows;
    problem.threads = zonal__thread_count(options->threads);
    zonal_status status = run(&s, &problem, x, report);
    zonal__battery_fini(&s.battery);
    zonal__free(s.simulated);
    zonal__free(s.row);
    return status;
}

zonal_status zonal_uniformity_run(const zonal_uniformity_options *given, int64_t n, int64_t d,
                                  const void *x, zonal_uniformity_report *report) {
    const zonal__sized report_type = ZONAL__SIZED(zonal_uniformity_report, d);
    zonal_uniformity_options options = ZONAL_UNIFORMITY_OPTIONS_INIT;
    zonal_uniformity_report found = ZONAL_UNIFORMITY_REPORT_INIT;
    ZONAL_NEED(report, "report");
    ZONAL_TRY(zonal__sized_write(report_type, &found, report));
    ZONAL_NEED(given, "options");
    ZONAL_NEED(x, "x");
    ZONAL_TRY(zonal__sized_read(ZONAL__SIZED(zonal_uniformity_options, seed), given, &options));
    found.n = n;
    found.d = d;
    ZONAL_TRY(run_on_rows(&options, n, d, x, &found));
    return zonal__sized_write(report_type, &found, report);
}
