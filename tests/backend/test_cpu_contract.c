/*
 * What the CPU backend promises beyond right numbers: the same bits for any number of threads and
 * every time, gradients that are derivatives and tangent, bad rows named, extreme magnitudes, and
 * memory: all taken in create, none in run, every failure survived.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "backend/cpu/kernels.h"
#include "cpu_case.h"
#include "cpu_oracle.h"
#include "failing_alloc.h"
#include "test.h"

/* ---- one problem for each operation on rows ---- */

static const double cubic[4] = {-0.05, 0.4, 0.5, 0.15};
static const double plain_log[4] = {-16, 15, 1.2, -0.2}, narrow_log[4] = {-800, 800, 0, 0};
static double weight[9], target[9];

typedef struct operation_case {
    const char *name;
    zonal__operation operation;
    zonal__problem problem;
    int64_t values; /* of the result */
    int gradient;   /* whether there is one */
} operation_case;

enum { CASES = 9 };

typedef struct case_set {
    zonal__fit *psi_fit, *plain, *narrow;
    zonal__pair_function psi[2];
    zonal__sliced sliced, raw;
    operation_case cases[CASES];
} case_set;

static void make_sliced(case_set *set, int64_t d) {
    for (int k = 0; k < 9; k++) {
        double t = -4 + k;
        weight[k] = exp(-t * t / 2) / 2;
        target[k] = exp(-t * t / 2);
    }
    set->sliced = (zonal__sliced){.slices = 70,
                                  .knots = 9,
                                  .knot0 = -4,
                                  .step = 1,
                                  .weight = weight,
                                  .target = target,
                                  .row_scale = sqrt((double)d),
                                  .seed = 3};
    set->raw = set->sliced;
    set->raw.raw_rows = 1;
    set->raw.row_scale = 1;
    set->raw.knot0 = -2.5;
}

static case_set make_cases(int64_t n, int64_t d, zonal_precision precision, int threads) {
    case_set set = {0};
    oracle_function f = oracle_with(oracle_cubic, cubic);
    oracle_function plain = oracle_with(oracle_cubic, plain_log);
    oracle_function narrow = oracle_with(oracle_cubic, narrow_log);
    zonal__problem p = {
        .rows = n, .dim = d, .precision = precision, .threads = threads, .factor = 1};
    set.psi_fit = oracle_fit(&f, 4, -1, 1);
    set.plain = oracle_fit(&plain, 4, -1, 0);
    set.narrow = oracle_fit(&narrow, 4, -1, 0);
    make_sliced(&set, d);
    p.degree1 = 0.4, p.degree2 = 0.6, p.n_psi = 2;
    set.cases[0] = (operation_case){"pairs", ZONAL__PAIRS, p, 1, 1};
    set.cases[1] = (operation_case){"survey", ZONAL__SURVEY, p, n + 2, 0};
    set.cases[2] = (operation_case){"kl", ZONAL__KL, p, 1, 1};
    set.cases[3] = (operation_case){"narrow kl", ZONAL__KL, p, 1, 1};
    set.cases[4] = (operation_case){"moments", ZONAL__MOMENTS, p, 1, 1};
    set.cases[5] = (operation_case){"covariance", ZONAL__COVARIANCE, p, d + d * d, 0};
    set.cases[6] = (operation_case){"sliced", ZONAL__SLICED, p, 1, 1};
    set.cases[7] = (operation_case){"raw slices", ZONAL__SLICED, p, 1, 1};
    p.views = 3, p.global_views = 2;
    set.cases[8] = (operation_case){"invariance", ZONAL__INVARIANCE, p, 1, 1};
    return set;
}

/* Pointers into the set, once it stands where it will stay. */
static void bind_cases(case_set *set) {
    set->psi[0] = set->psi[1] = (zonal__pair_function){.fit = set->psi_fit};
    for (int i = 0; i < CASES; i++) {
        set->cases[i].problem.psi = set->psi;
        set->cases[i].problem.log_phi = i == 3 ? set->narrow : set->plain;
        set->cases[i].problem.sliced = i == 7 ? &set->raw : &set->sliced;
    }
}

static void free_cases(case_set *set) {
    oracle_fit_free(set->psi_fit);
    oracle_fit_free(set->plain);
    oracle_fit_free(set->narrow);
}

/* ---- the same bits ---- */

/* Runs a case twice in one work: the results must not even differ then. */
static void run_twice(const operation_case *c, const void *rows, double *value, void *gradient) {
    const zonal__operation_table *table = zonal__backend_cpu()->operations[c->operation];
    size_t bytes = (size_t)case_count(&c->problem) * sizeof(double);
    double *second = case_take(c->values, sizeof *second);
    void *other = case_take(case_count(&c->problem), sizeof(double));
    zonal__work *work;
    if (CHECK_OK(table->create(&c->problem, &work))) {
        CHECK_OK(table->run(work, rows, 1, value, c->gradient ? gradient : NULL, 2));
        CHECK_OK(table->run(work, rows, 1, second, c->gradient ? other : NULL, 2));
        CHECK_MSG(memcmp(value, second, (size_t)c->values * sizeof *value) == 0 &&
                      memcmp(gradient, other, bytes) == 0,
                  "%s: a second run differs", c->name);
        table->destroy(work);
    }
    free(second), free(other);
}

static void check_threads(int64_t n, int64_t d, zonal_precision precision) {
    case_set set = make_cases(n, d, precision, 1);
    double *x = case_rows(3 * n, d, HUGE_VAL, 11);
    void *rows = case_round(precision, 3 * n * d, x);
    bind_cases(&set);
    for (int i = 0; i < CASES; i++) {
        operation_case *c = &set.cases[i];
        size_t bytes = (size_t)case_count(&c->problem) * sizeof(double);
        double *one = case_take(c->values, sizeof *one), *many = case_take(c->values, sizeof *many);
        void *first = case_take(3 * n * d, sizeof(double)), *other = case_take(3 * n * d, 8);
        run_twice(c, rows, one, first);
        for (c->problem.threads = 2; c->problem.threads <= 5; c->problem.threads++) {
            memset(other, 0, bytes);
            run_twice(c, rows, many, other);
            CHECK_MSG(memcmp(one, many, (size_t)c->values * sizeof *one) == 0,
                      "%s: %d threads give another value", c->name, c->problem.threads);
            CHECK_MSG(memcmp(first, other, bytes) == 0, "%s: %d threads give another gradient",
                      c->name, c->problem.threads);
        }
        free(one), free(many), free(first), free(other);
    }
    free(x), free(rows);
    free_cases(&set);
}

static void test_threads(void) {
    check_threads(700, 33, ZONAL_PRECISION_FP32);
    check_threads(331, 70, ZONAL_PRECISION_DOUBLE);
    check_threads(2, 2, ZONAL_PRECISION_FP32);
}

/* Several works at once, each with a team of its own. */
typedef struct runner {
    const operation_case *c;
    const void *rows;
    double value, want;
} runner;

static void *run_many(void *context) {
    runner *r = context;
    const zonal__operation_table *table = zonal__backend_cpu()->operations[r->c->operation];
    zonal__work *work;
    r->value = NAN;
    if (table->create(&r->c->problem, &work) != ZONAL_OK) return NULL;
    for (int i = 0; i < 20; i++) {
        zonal_status status = table->run(work, r->rows, 0, &r->value, NULL, 1);
        if (status != ZONAL_OK || r->value != r->want) r->value = NAN;
        if (isnan(r->value)) break;
    }
    table->destroy(work);
    return NULL;
}

static void test_side_by_side(void) {
    case_set set = make_cases(200, 20, ZONAL_PRECISION_FP32, 2);
    double *x = case_rows(200, 20, HUGE_VAL, 11);
    const int which[4] = {0, 2, 4, 6};
    runner runners[4];
    pthread_t threads[4];
    bind_cases(&set);
    void *rows = case_round(ZONAL_PRECISION_FP32, 4000, x);
    for (int i = 0; i < 4; i++) {
        runners[i] = (runner){.c = &set.cases[which[i]], .rows = rows};
        CHECK_OK(case_run(runners[i].c->operation, &runners[i].c->problem, x, 0, 1,
                          &runners[i].want, NULL));
    }
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, run_many, &runners[i]) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_MSG(runners[i].value == runners[i].want, "%s differs beside others",
                  runners[i].c->name);
    }
    free(x), free(rows);
    free_cases(&set);
}

/* ---- gradients ---- */

/* Central differences of the value in double along a random direction, and tangency. */
static void test_differences(void) {
    int64_t n = 70, d = 6;
    case_set set = make_cases(n, d, ZONAL_PRECISION_DOUBLE, 2);
    bind_cases(&set);
    for (int i = 0; i < CASES; i++) {
        operation_case *c = &set.cases[i];
        int64_t count = case_count(&c->problem), rows = count / d;
        double *x = case_rows(rows, d, 1, 11), *way = case_rows(rows, d, HUGE_VAL, 400);
        double *gradient = case_take(count, sizeof *gradient), *moved = case_take(count, 8);
        double value[2], step = 1e-5, along = 0, radial = 0, length = 0;
        if (!c->gradient) goto next;
        CHECK_OK(case_run(c->operation, &c->problem, x, 2, 1, value, gradient));
        for (int side = 0; side < 2; side++) {
            for (int64_t k = 0; k < count; k++) moved[k] = x[k] + (side ? step : -step) * way[k];
            CHECK_OK(case_run(c->operation, &c->problem, moved, 2, 1, &value[side], NULL));
        }
        for (int64_t k = 0; k < count; k++) along += gradient[k] * way[k];
        for (int64_t r = 0; r < rows; r++) {
            double dot = 0;
            for (int64_t k = r * d; k < (r + 1) * d; k++) {
                dot += gradient[k] * x[k];
                length += gradient[k] * gradient[k];
            }
            radial += dot * dot;
        }
        CHECK_MSG(fabs((value[1] - value[0]) / (2 * step) - along) <= 1e-6 * sqrt(length),
                  "%s: the difference quotient is %.12g, the gradient says %.12g", c->name,
                  (value[1] - value[0]) / (2 * step), along);
        if (i != 7)
            CHECK_MSG(radial <= 1e-26 * length, "%s: the gradient is not tangent: %g of %g",
                      c->name, radial, length);
    next:
        free(x), free(way), free(gradient), free(moved);
    }
    free_cases(&set);
}

/* |z| of 1e-30 in float and 1e-200 in double, or large: the value must not notice, the gradient is
 * that of unit rows over |z|. The rows at 1e-310 and 1e-40 are subnormal, and 1/|z| is out of
 * range: they have a value, and a gradient is refused. */
static void test_magnitudes(void) {
    const double sizes[2][4] = {{1e-200, 1e200, 1e-310, 1e306}, {1e-30, 1e30, 1e-40, 1e37}};
    int64_t n = 40, d = 8;
    for (int k = 0; k < 2; k++)
        for (int s = 0; s < 4; s++) {
            case_set set = make_cases(n, d, case_precisions[k], 2);
            double *x = case_rows(3 * n, d, HUGE_VAL, 11), value, want;
            double *gradient = case_take(3 * n * d, 8), *expected = case_take(3 * n * d, 8);
            double *scaled = case_take(3 * n * d, 8), coarse = s == 2 ? 1e-3 : 0;
            bind_cases(&set);
            for (int i = 0; i < 3 * n * d; i++) {
                x[i] = (float)x[i];
                scaled[i] = x[i] * sizes[k][s];
            }
            for (int i = 0; i < CASES; i++) {
                operation_case *c = &set.cases[i];
                if (!c->gradient || i == 7) continue;
                int64_t count = case_count(&c->problem);
                CHECK_OK(case_run(c->operation, &c->problem, x, 0, 1, &want, expected));
                CHECK_OK(case_run(c->operation, &c->problem, scaled, 0, sizes[k][s], &value,
                                  s == 2 ? NULL : gradient));
                CHECK_MSG(fabs(value - want) <= (k ? 1e-5 : 1e-13) * (1 + fabs(want)) + coarse,
                          "%s at %g: %.17g, want %.17g", c->name, sizes[k][s], value, want);
                if (s != 2) {
                    CHECK_NORM(count, gradient, expected, k ? 2e-5 : 1e-12);
                    continue;
                }
                for (int64_t j = 0; j < 3 * n * d; j++) /* one short row among others */
                    scaled[j] = j / d == (c->problem.views ? n + 13 : 13) ? scaled[j] : x[j];
                CHECK_FAILS(case_run(c->operation, &c->problem, scaled, 0, 1, &value, gradient),
                            ZONAL_NUMERIC,
                            c->problem.views ? "view 1, row 13 has norm" : "row 13 has norm");
                CHECK_OK(case_run(c->operation, &c->problem, scaled, 0, 1, &value, NULL));
                for (int64_t j = 0; j < 3 * n * d; j++) scaled[j] = x[j] * sizes[k][s];
            }
            free(x), free(gradient), free(expected), free(scaled);
            free_cases(&set);
        }
}

/* ---- bad rows ---- */

static void expect_bad(operation_case *c, double *x, int64_t row, double put, const char *text) {
    int64_t d = c->problem.dim;
    double *value = case_take(c->values, sizeof *value), kept[64];
    memcpy(kept, x + row * d, (size_t)d * sizeof *kept);
    if (isfinite(put)) {
        for (int64_t k = 0; k < d; k++) x[row * d + k] *= put;
    } else {
        x[row * d + d - 1] = put;
    }
    zonal_status status = case_run(c->operation, &c->problem, x, 0, 1, value, NULL);
    CHECK_MSG(status == ZONAL_NUMERIC && strstr(zonal_last_error()->message, text),
              "%s, row %lld: status %s, \"%s\"; want \"%s\" in it", c->name, (long long)row,
              zonal_status_name(status), zonal_last_error()->message, text);
    memcpy(x + row * d, kept, (size_t)d * sizeof *kept);
    free(value);
}

static void test_bad_rows(void) {
    int64_t n = 150, d = 9;
    for (int k = 0; k < 2; k++) {
        case_set set = make_cases(n, d, case_precisions[k], 3);
        double *x = case_rows(3 * n, d, HUGE_VAL, 11);
        bind_cases(&set);
        for (int i = 0; i < CASES; i++) {
            operation_case *c = &set.cases[i];
            int64_t row = c->problem.views ? n + 131 : 131;
            const char *where = c->problem.views ? "view 1, row 131 " : "row 131 ";
            expect_bad(c, x, row, NAN, where);
            expect_bad(c, x, row, HUGE_VAL, where);
            expect_bad(c, x, row, -HUGE_VAL, "not finite");
            if (i == 7) continue; /* raw rows may be zero */
            expect_bad(c, x, row, 0, where);
            expect_bad(c, x, row, 0, "zero");
            x[140 * d] = NAN; /* a later one does not hide the first */
            expect_bad(c, x, c->problem.views ? 131 : row, NAN, "row 131 ");
            x[140 * d] = 1;
        }
        free(x);
        free_cases(&set);
    }
}

static void test_unit_rows(void) {
    int64_t n = 150, d = 9;
    case_set set = make_cases(n, d, ZONAL_PRECISION_FP32, 2);
    double *x = case_rows(3 * n, d, HUGE_VAL, 11), value[200], plain[200];
    bind_cases(&set);
    for (int64_t i = 0; i < 3 * n; i++)
        for (int64_t k = 0; k < d; k++) x[i * d + k] /= 1 + (double)(i % 7);
    for (int i = 0; i < CASES; i++) {
        operation_case *c = &set.cases[i];
        if (i == 7) continue;
        CHECK_OK(case_run(c->operation, &c->problem, x, 0, 1, plain, NULL));
        c->problem.unit_rows = 1;
        CHECK_OK(case_run(c->operation, &c->problem, x, 0, 1, value, NULL));
        CHECK_MSG(fabs(value[0] - plain[0]) <= 1e-4 * fabs(plain[0]) + 1e-6,
                  "%s: declared unit %g, normalised %g", c->name, value[0], plain[0]);
        expect_bad(c, x, 77, 1.002, "norm 1.002");
        expect_bad(c, x, 77, 1.002, "unit_rows");
        expect_bad(c, x, 77, 0.5, "row 77 has norm 0.5");
    }
    free(x);
    free_cases(&set);
}

/* Rows declared unit and a little off are taken as they are, and the gradient is tangent still. */
static void test_nearly_unit(void) {
    int64_t n = 60, d = 9;
    case_set set = make_cases(n, d, ZONAL_PRECISION_DOUBLE, 2);
    double *x = case_rows(n, d, HUGE_VAL, 11), *gradient = case_take(n * d, 8), value;
    bind_cases(&set);
    for (int64_t i = 0; i < n * d; i++) x[i] *= 1.0009 / (1 + (double)(i / d % 7));
    for (int i = 0; i < CASES; i++) {
        operation_case *c = &set.cases[i];
        double dot = 0, length = 0;
        if (!c->gradient || i >= 7) continue;
        c->problem.unit_rows = 1;
        CHECK_OK(case_run(c->operation, &c->problem, x, 0, 1, &value, gradient));
        for (int64_t k = 0; k < d; k++) {
            dot += gradient[k] * x[k];
            length += gradient[k] * gradient[k];
        }
        CHECK_MSG(fabs(dot) <= 1e-13 * sqrt(length), "%s: %g along a row, %g across", c->name, dot,
                  sqrt(length));
    }
    free(x), free(gradient);
    free_cases(&set);
}

/* ---- memory ---- */

static zonal_status make_run_drop(void *context) {
    operation_case *c = context;
    const zonal__operation_table *table = zonal__backend_cpu()->operations[c->operation];
    zonal__work *work = (zonal__work *)context; /* must be set to NULL on failure */
    zonal_status status = table->create(&c->problem, &work);
    if (status != ZONAL_OK) {
        CHECK_MSG(work == NULL, "%s: work is not NULL after a failure", c->name);
        return status;
    }
    table->destroy(work);
    return ZONAL_OK;
}

static void test_allocation(void) {
    case_set set = make_cases(40, 8, ZONAL_PRECISION_FP32, 2);
    double *x = case_rows(120, 8, HUGE_VAL, 11), value[200];
    void *rows = case_round(ZONAL_PRECISION_FP32, 960, x), *gradient = case_take(960, 4);
    operation_case eigenvalues = {"eigenvalues", ZONAL__EIGENVALUES, {.rows = 8, .dim = 8}, 8, 0};
    bind_cases(&set);
    eigenvalues.problem.threads = 1;
    test_every_allocation("eigenvalues", make_run_drop, &eigenvalues);
    for (int i = 0; i < CASES; i++) {
        operation_case *c = &set.cases[i];
        const zonal__operation_table *table = zonal__backend_cpu()->operations[c->operation];
        zonal__work *work;
        test_every_allocation(c->name, make_run_drop, c);
        failing_alloc_install(-1, 0);
        if (CHECK_OK(table->create(&c->problem, &work))) {
            int64_t calls = failing_alloc_calls();
            CHECK_OK(table->run(work, rows, 0, value, c->gradient ? gradient : NULL, 1));
            CHECK_MSG(failing_alloc_calls() == calls, "%s: run takes memory", c->name);
            table->destroy(work);
        }
        CHECK(failing_alloc_remove() == 0);
        zonal__backend_cpu()->operations[c->operation]->destroy(NULL);
    }
    free(x), free(rows), free(gradient);
    free_cases(&set);
}

/* Twice the input at most, for a batch that fills the machine; and the number is the true one. */
static size_t bytes_taken;

static void *measuring_alloc(void *context, size_t bytes) {
    (void)context;
    bytes_taken += bytes;
    return aligned_alloc(64, bytes);
}

static void measuring_release(void *context, void *memory) {
    (void)context;
    free(memory);
}

static void test_scratch(void) {
    const zonal_allocator measuring = {measuring_alloc, measuring_release, NULL};
    int64_t n = 65536, d = 256;
    case_set set = make_cases(n, d, ZONAL_PRECISION_FP32, 2);
    bind_cases(&set);
    set.sliced.slices = set.raw.slices = 1024;
    for (int i = 0; i < CASES; i++) {
        operation_case *c = &set.cases[i];
        const zonal__operation_table *table = zonal__backend_cpu()->operations[c->operation];
        zonal__work *work;
        bytes_taken = 0;
        zonal_set_allocator(&measuring);
        if (CHECK_OK(table->create(&c->problem, &work))) {
            size_t said = table->scratch_bytes(work);
            CHECK_MSG(said <= 2 * (size_t)(n * d) * sizeof(float), "%s: %zu bytes", c->name, said);
            CHECK_MSG(said <= bytes_taken && bytes_taken <= said + 4096,
                      "%s: says %zu bytes and takes %zu", c->name, said, bytes_taken);
            table->destroy(work);
        }
        zonal_set_allocator(NULL);
    }
    free_cases(&set);
}

static void test_precision(void) {
    case_set set = make_cases(10, 4, ZONAL_PRECISION_BF16, 1);
    bind_cases(&set);
    for (int i = 0; i < CASES; i++) {
        zonal__work *work;
        CHECK_FAILS(zonal__backend_cpu()->operations[set.cases[i].operation]->create(
                        &set.cases[i].problem, &work),
                    ZONAL_UNSUPPORTED, "fp32");
    }
    free_cases(&set);
}

static const test_case tests[] = {{"threads", test_threads},
                                  {"side_by_side", test_side_by_side},
                                  {"differences", test_differences},
                                  {"magnitudes", test_magnitudes},
                                  {"bad_rows", test_bad_rows},
                                  {"unit_rows", test_unit_rows},
                                  {"nearly_unit", test_nearly_unit},
                                  {"allocation", test_allocation},
                                  {"scratch", test_scratch},
                                  {"precision", test_precision},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
