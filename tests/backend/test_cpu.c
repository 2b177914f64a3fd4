/*
 * The fast CPU backend against sums in long double (cpu_oracle.h): values, gradients, shapes that
 * fill no tile, near collapse, every instruction set. What holds beyond numbers - threads, errors,
 * memory - is in test_cpu_contract.c.
 */
#include <math.h>
#include <stdlib.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/vector_math.h"
#include "cpu_case.h"
#include "cpu_oracle.h"
#include "test.h"

/* ---- the mathematics underneath ---- */

static void test_exp(void) {
    double worst = 0, worst_small = 0;
    for (int i = -7000; i <= 7000; i++) {
        double x = i * 0.1 + i * 1.7e-5;
        long double want = expl(x);
        double error = (double)(fabsl(zonal__exp(x) - want) / want) / 0x1p-53;
        if (error > worst) worst = error;
        double y = i / 7000.0;
        if (i == 0) continue;
        error = (double)fabsl((zonal__expm1_small(y) - expm1l(y)) / expm1l(y)) / 0x1p-53;
        if (error > worst_small) worst_small = error;
    }
    CHECK_MSG(worst < 2.5, "exp is off by %g half units of the last place", worst);
    CHECK_MSG(worst_small < 3, "expm1 is off by %g half units of the last place", worst_small);
    CHECK(zonal__exp(0) == 1);
    CHECK(zonal__expm1_small(0) == 0);
    CHECK(zonal__exp(-746) == 0 && zonal__exp(-1e300) == 0 && zonal__exp(-HUGE_VAL) == 0);
    CHECK(zonal__exp(-745) > 0);
    CHECK_CLOSE(zonal__exp(-740) / exp(-740), 1, 1e-2); /* subnormal: two digits are left */
    CHECK(isinf(zonal__exp(710)) && isinf(zonal__exp(HUGE_VAL)));
    CHECK(isnan(zonal__exp(NAN)) && isnan(zonal__expm1_small(NAN)));
}

static void test_sincos(void) {
    double worst = 0;
    for (int i = -40000; i <= 40000; i++) {
        double x = i * (i % 5 ? 0.0123456789 : 26.2), s, c;
        zonal__sincos(x, &s, &c);
        worst = fmax(worst, fmax((double)fabsl(s - sinl(x)), (double)fabsl(c - cosl(x))));
    }
    CHECK_MSG(worst < 2e-16, "sincos is off by %g", worst);
    double s, c;
    zonal__sincos(NAN, &s, &c);
    CHECK(isnan(s) && isnan(c));
}

static void test_sincos_turns(void) {
    double worst = 0, s, c;
    for (int i = -40000; i <= 40000; i++) {
        double x = i * (i % 5 ? 0.00123456789 : 6.5);
        long double angle = 2 * acosl(-1) * ((long double)x - rintl(x));
        zonal__sincos_turns(x, &s, &c);
        worst = fmax(worst, fmax((double)fabsl(s - sinl(angle)), (double)fabsl(c - cosl(angle))));
    }
    CHECK_MSG(worst < 2e-13, "sincos_turns is off by %g", worst);
    zonal__sincos_turns(NAN, &s, &c);
    CHECK(isnan(s) && isnan(c));
    zonal__sincos_turns(HUGE_VAL, &s, &c);
    CHECK(isnan(s) && isnan(c));
}

/* The second factor packed first, panel by panel. */
static void multiply_in_panels(const zonal__cpu_kernels *kernels, int ta, int tb, int64_t m,
                               int64_t n, int64_t k, const void *a, const void *b, void *c) {
    int64_t cols = kernels->gemm_cols, size = (int64_t)kernels->size;
    char *panels = case_take((n + cols) * k, (size_t)size);
    for (int64_t j = 0; j < n; j += cols)
        kernels->gemm_pack(k, n - j < cols ? n - j : cols,
                           (const char *)b + j * (tb ? k : 1) * size, tb ? 1 : n, tb ? k : 1,
                           panels + j * k * size);
    kernels->gemm_panels(m, n, k, a, ta ? 1 : k, ta ? m : 1, panels, 1, c, n);
    free(panels);
}

/* Our own matrix product, in every form, against the definition. */
static void check_gemm(zonal_precision precision, int ta, int tb, int64_t m, int64_t n, int64_t k) {
    const zonal__cpu_kernels *kernels = zonal__cpu_kernels_get(precision);
    double *a = case_rows(m, k, HUGE_VAL, 1), *b = case_rows(k, n, HUGE_VAL, 500);
    double *c = case_rows(m, n, HUGE_VAL, 900), *want = case_take(m * n, sizeof *want);
    void *ra = case_round(precision, m * k, a), *rb = case_round(precision, k * n, b);
    void *rc = case_round(precision, m * n, c), *panelled = case_round(precision, m * n, c);
    /* element (i, p) of op(A) is a[i][p], or a[p][i] of the array read with the other stride */
    for (int64_t i = 0; i < m * n; i++) want[i] = c[i];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t p = 0; p < k; p++)
                want[i * n + j] += a[ta ? p * m + i : i * k + p] * b[tb ? j * k + p : p * n + j];
    kernels->gemm(ta, tb, m, n, k, ra, ta ? m : k, rb, tb ? k : n, 1, rc, n);
    for (int64_t i = 0; i < m * n; i++) c[i] = case_element(precision, rc, i);
    CHECK_ARRAY(m * n, c, want, (precision == ZONAL_PRECISION_FP32 ? 1e-5 : 1e-13) * 50);
    multiply_in_panels(kernels, ta, tb, m, n, k, ra, rb, panelled);
    CHECK(memcmp(rc, panelled, (size_t)(m * n) * kernels->size) == 0);
    free(a), free(b), free(c), free(want), free(ra), free(rb), free(rc), free(panelled);
}

/* Without beta nothing of what C held may remain, be it NaN, and a product of no terms is 0. */
static void check_gemm_overwrites(int64_t k) {
    enum { M = 7, N = 35, MOST = 300 };
    const zonal__cpu_kernels *kernels = zonal__cpu_kernels_get(ZONAL_PRECISION_FP32);
    static float a[M * MOST], b[MOST * N], c[M * N];
    for (int64_t i = 0; i < M * k; i++) a[i] = 1;
    for (int64_t i = 0; i < k * N; i++) b[i] = 1;
    for (int64_t i = 0; i < M * N; i++) c[i] = NAN;
    kernels->gemm(0, 0, M, N, k, a, k, b, N, 0, c, N);
    for (int64_t i = 0; i < M * N; i++)
        if (!CHECK_MSG(c[i] == (float)k, "k = %lld: %g", (long long)k, (double)c[i])) return;
}

static void test_gemm(void) {
    for (int level = 0; level <= 2; level++) {
        zonal__cpu_kernels_limit(level);
        for (int form = 0; form < 8; form++) {
            check_gemm(case_precisions[form & 1], form >> 1 & 1, form >> 2, 5, 37, 300);
            check_gemm(case_precisions[form & 1], form >> 1 & 1, form >> 2, 1, 1, 1);
            check_gemm(case_precisions[form & 1], form >> 1 & 1, form >> 2, 64, 64, 7);
            check_gemm(case_precisions[form & 1], form >> 1 & 1, form >> 2, 13, 33, 513);
        }
        check_gemm_overwrites(0);
        check_gemm_overwrites(300);
    }
    zonal__cpu_kernels_limit(2);
}

/* ---- pairs ---- */

static const double cubic[4] = {-0.05, 0.4, 0.5, 0.15}; /* 1 at c = 1 */
static const double narrowness = 9;

static void check_pairs(zonal__problem p, const oracle_function *f, zonal__fit *fit,
                        double spread) {
    zonal__pair_function psi = {.fit = fit};
    double *x = case_rows(p.rows, p.dim, spread, 3), value, want, alone;
    double *gradient = case_take(case_count(&p), sizeof *gradient);
    double *want_gradient = case_take(case_count(&p), sizeof *gradient);
    p.psi = &psi;
    p.n_psi = 1;
    free(case_round(p.precision, case_count(&p), x));
    if (CHECK_OK(case_run(ZONAL__PAIRS, &p, x, 0, 3, &value, gradient))) {
        oracle_pairs(&p, f, x, &want, want_gradient);
        for (int64_t i = 0; i < case_count(&p); i++) want_gradient[i] *= 3;
        case_compare(&p, "pairs", value, want, fabs(want) + 1 / (double)p.rows, gradient,
                     want_gradient);
        CHECK_OK(case_run(ZONAL__PAIRS, &p, x, 0, 1, &alone, NULL));
        CHECK_MSG(alone == value, "value alone %.17g, with gradient %.17g", alone, value);
    }
    free(x), free(gradient), free(want_gradient);
}

static void test_pairs(void) {
    oracle_function f = oracle_with(oracle_cubic, cubic);
    oracle_function g = oracle_with(oracle_exponential, &narrowness);
    zonal__fit *powers = oracle_fit(&f, 4, -1, 1), *series = oracle_fit(&g, 40, -1, 0);
    for (int i = 0; i < CASE_SHAPES; i++)
        for (int k = 0; k < 2; k++) {
            check_pairs(case_shape(i, case_precisions[k]), &f, powers, HUGE_VAL);
            check_pairs(case_shape(i, case_precisions[k]), &g, series, 1);
        }
    oracle_fit_free(powers);
    oracle_fit_free(series);
}

/* Where rows nearly agree only the small tangent part of the gradient is left. */
static void test_near_collapse(void) {
    oracle_function g = oracle_with(oracle_exponential, &narrowness);
    zonal__fit *series = oracle_fit(&g, 40, -1, 0);
    zonal__problem p = {.rows = 150, .dim = 40, .threads = 2};
    const double spreads[] = {1e-1, 1e-2, 1e-3};
    for (int s = 0; s < 3; s++)
        for (int k = 0; k < 2; k++) {
            p.precision = case_precisions[k];
            check_pairs(p, &g, series, spreads[s]);
        }
    oracle_fit_free(series);
}

/* All instruction sets must agree with the oracle, not only the best one here. */
static void test_levels(void) {
    oracle_function f = oracle_with(oracle_cubic, cubic);
    oracle_function g = oracle_with(oracle_exponential, &narrowness);
    zonal__fit *powers = oracle_fit(&f, 4, -1, 1), *series = oracle_fit(&g, 40, -1, 0);
    for (int level = 0; level < 2; level++) {
        zonal__cpu_kernels_limit(level);
        for (int k = 0; k < 2; k++) {
            check_pairs(case_shape(6, case_precisions[k]), &f, powers, HUGE_VAL);
            check_pairs(case_shape(7, case_precisions[k]), &g, series, 1);
        }
    }
    zonal__cpu_kernels_limit(2);
    oracle_fit_free(powers);
    oracle_fit_free(series);
}

static long double chordal_value(const void *context, long double c) {
    return 1 - *(const double *)context * sqrtl((1 - c) / 2);
}

static void test_survey(void) {
    double chord = 1.25;
    oracle_function f[2] = {oracle_with(oracle_cubic, cubic), {chordal_value, NULL, &chord}};
    zonal__fit *powers = oracle_fit(&f[0], 4, -1, 1);
    zonal__pair_function psi[2] = {{.fit = powers}, {.chord = chord}};
    for (int i = 0; i < CASE_SHAPES; i++)
        for (int k = 0; k < 2; k++) {
            zonal__problem p = case_shape(i, case_precisions[k]);
            double *x = case_rows(p.rows, p.dim, HUGE_VAL, 3), scale = 1 / (double)p.rows;
            double *value = case_take(p.rows + 2, sizeof *value),
                   *want = case_take(p.rows + 2, sizeof *want);
            double *gradient = case_take(case_count(&p), sizeof *gradient);
            p.psi = psi, p.n_psi = 2;
            free(case_round(p.precision, case_count(&p), x));
            CHECK_OK(case_run(ZONAL__SURVEY, &p, x, 0, 1, value, NULL));
            oracle_survey(&p, f, x, want);
            case_compare(&p, "survey", value[0], want[0], fabs(want[0]) + scale, NULL, NULL);
            case_compare(&p, "survey", value[1], want[1], fabs(want[1]) + scale, NULL, NULL);
            CHECK_ARRAY(p.rows, value + 2, want + 2, k ? 5e-7 : 1e-15 * 4);
            p.psi = psi + 1, p.n_psi = 1;
            CHECK_FAILS(case_run(ZONAL__PAIRS, &p, x, 0, 1, value, gradient), ZONAL_ARGUMENT,
                        "chordal");
            free(x), free(value), free(want), free(gradient);
        }
    oracle_fit_free(powers);
}

/* Equal rows: rounding takes their cosine past 1, where the chordal root would be NaN. */
static void test_equal_rows(void) {
    const double chord = 1.25;
    zonal__pair_function psi = {.chord = chord};
    zonal__problem p = {.rows = 90, .dim = 37, .threads = 2, .psi = &psi, .n_psi = 1};
    double *x = case_rows(p.rows, p.dim, HUGE_VAL, 3), value[91];
    for (int k = 0; k < 2; k++)
        for (int64_t kind = 0; kind < 30; kind++) {
            p.precision = case_precisions[k];
            for (int64_t i = 0; i < p.rows * p.dim; i++) /* all alike, and three kinds in turn */
                x[i] = x[kind % 2 ? i % p.dim : i % (3 * p.dim)] * (1 + (double)(i == 0) * 0.01);
            CHECK_OK(case_run(ZONAL__SURVEY, &p, x, 0, 1, value, NULL));
            for (int i = 0; i <= 90; i++) CHECK(value[i] <= 1);
            CHECK_CLOSE(value[1 + kind], 1, 1e-6);
        }
    free(x);
}

/* ---- KL ---- */

static void check_kl(zonal__problem p, const oracle_function *f, zonal__fit *fit, double range,
                     double spread) {
    double *x = case_rows(p.rows, p.dim, spread, 3), value, want, alone;
    double *gradient = case_take(case_count(&p), sizeof *gradient);
    double *want_gradient = case_take(case_count(&p), sizeof *gradient);
    p.log_phi = fit;
    free(case_round(p.precision, case_count(&p), x));
    for (p.keep_diagonal = 0; p.keep_diagonal < 2; p.keep_diagonal++)
        if (CHECK_OK(case_run(ZONAL__KL, &p, x, 0, 1, &value, gradient))) {
            oracle_kl(&p, f, x, &want, want_gradient);
            case_compare(&p, "kl", value, want, range, gradient, want_gradient);
            CHECK_OK(case_run(ZONAL__KL, &p, x, 0, 1, &alone, NULL));
            CHECK_MSG(alone == value, "value alone %.17g, with gradient %.17g", alone, value);
        }
    free(x), free(gradient), free(want_gradient);
}

/* log phi: plain, broad (error relative to a range of 1e-4), narrow (to -2000 and below). */
static void test_kl(void) {
    static const double logs[3][4] = {
        {-31, 30, 1.2, -0.2}, {-1.1e-4, 1e-4, 1e-5, 0}, {-1000, 900, 100, 0}};
    const double range[3] = {30, 1e-4, 1000};
    for (int i = 0; i < CASE_SHAPES; i++)
        for (int m = 0; m < 3; m++) {
            oracle_function f = oracle_with(oracle_cubic, logs[m]);
            zonal__fit *fit = oracle_fit(&f, 4, -1, m != 0);
            for (int k = 0; k < 2; k++) {
                /* in fp32 the derivative times the rounding of a cosine bounds the gradient as well
                 */
                if (m == 2 && k == 1) continue;
                check_kl(case_shape(i, case_precisions[k]), &f, fit, range[m],
                         m == 2 ? 0.3 : HUGE_VAL);
            }
            oracle_fit_free(fit);
        }
}

/* Below the fit's end log phi goes on as a straight line. */
static long double bent_value(const void *context, long double c) {
    long double end = -0.05L, over = c < end ? c - end : 0;
    return oracle_cubic.value(context, c - over) + over * oracle_cubic.derivative(context, end);
}

static long double bent_derivative(const void *context, long double c) {
    return oracle_cubic.derivative(context, c < -0.05L ? -0.05L : c);
}

static void test_kl_tangent(void) {
    static const double log_phi[4] = {-31, 30, 1.2, -0.2};
    oracle_function whole = oracle_with(oracle_cubic, log_phi);
    oracle_function bent = {bent_value, bent_derivative, log_phi};
    zonal__fit *fit = oracle_fit(&whole, 4, -0.05, 1);
    for (int k = 0; k < 2; k++) {
        check_kl(case_shape(6, case_precisions[k]), &bent, fit, 30, HUGE_VAL);
        fit->n_monomial = 0;
    }
    oracle_fit_free(fit);
}

/* ---- moments ---- */

/* b_1 P_1 + b_2 P_2 with P_1 = c and P_2 = (d c^2 - 1)/(d - 1), as a cubic. */
static void degree_two(const zonal__problem *p, double out[4]) {
    double d = (double)p->dim;
    out[0] = -p->degree2 / (d - 1);
    out[1] = p->degree1;
    out[2] = p->degree2 * d / (d - 1);
    out[3] = 0;
}

static void check_moments(zonal__problem p, double spread) {
    double *x = case_rows(p.rows, p.dim, spread, 3), value, want, alone, coefficients[4];
    double *gradient = case_take(case_count(&p), sizeof *gradient);
    double *want_gradient = case_take(case_count(&p), sizeof *gradient);
    degree_two(&p, coefficients);
    oracle_function f = oracle_with(oracle_cubic, coefficients);
    free(case_round(p.precision, case_count(&p), x));
    if (CHECK_OK(case_run(ZONAL__MOMENTS, &p, x, 0, 1, &value, gradient))) {
        oracle_pairs(&p, &f, x, &want, want_gradient);
        case_compare(&p, "moments", value, want,
                     fabs(want) + (p.degree1 + p.degree2) / (double)p.rows, gradient,
                     want_gradient);
        CHECK_OK(case_run(ZONAL__MOMENTS, &p, x, 0, 1, &alone, NULL));
        CHECK_MSG(alone == value, "value alone %.17g, with gradient %.17g", alone, value);
    }
    free(x), free(gradient), free(want_gradient);
}

static void test_moments(void) {
    const double degrees[3][2] = {{0.3, 0.7}, {1, 0}, {0, 1}};
    for (int i = 0; i < CASE_SHAPES; i++)
        for (int k = 0; k < 2; k++)
            for (int m = 0; m < 3; m++) {
                zonal__problem p = case_shape(i, case_precisions[k]);
                p.degree1 = degrees[m][0], p.degree2 = degrees[m][1];
                check_moments(p, m == 0 ? 1 : HUGE_VAL);
            }
    zonal__problem p = {.rows = 150, .dim = 40, .threads = 2, .degree1 = 0.3, .degree2 = 0.7};
    for (int k = 0; k < 2; k++) {
        p.precision = case_precisions[k];
        check_moments(p, 1e-3);
    }
}

/* Rows of doubles closer and closer to one point. Their differences are known to 1e-16 of them
 * only with fused multiply-add, which rounds z/|z| - m once; without it to 1e-16 in all. The
 * oracle's long doubles leave 5e-20 of 1e-7. */
static void test_moments_collapse(void) {
    zonal__problem p = {.dim = 19, .threads = 2};
    int level = zonal__cpu_kernels_limit(2);
    for (int m = 0; m < 3; m++)
        for (p.rows = 16; p.rows < 400; p.rows += 250) {
            p.degree1 = (double[]){0.3, 0, 0.7}[m], p.degree2 = (double[]){0.7, 1, 0.3}[m];
            for (double spread = 1e-3; spread > (level > 0 ? 0.5e-7 : 1e-4); spread /= 10)
                check_moments(p, spread);
        }
}

/* Two routes to one quantity, at a size where tiles are largest and moments come in groups. */
static void test_two_routes(void) {
    zonal__problem p = {.rows = 8200, .dim = 20, .threads = 2, .degree1 = 0.4, .degree2 = 0.6};
    double *x = case_rows(p.rows, p.dim, HUGE_VAL, 3), coefficients[4], by_pairs, by_moments;
    double *first = case_take(case_count(&p), sizeof *first);
    double *second = case_take(case_count(&p), sizeof *second);
    degree_two(&p, coefficients);
    oracle_function f = oracle_with(oracle_cubic, coefficients);
    zonal__fit *fit = oracle_fit(&f, 3, -1, 1);
    zonal__pair_function psi = {.fit = fit};
    p.psi = &psi;
    for (int k = 0; k < 2; k++) {
        p.precision = case_precisions[k];
        CHECK_OK(case_run(ZONAL__PAIRS, &p, x, 0, 1, &by_pairs, first));
        CHECK_OK(case_run(ZONAL__MOMENTS, &p, x, 0, 1, &by_moments, second));
        case_compare(&p, "pairs, moments", by_pairs, by_moments, 1 / (double)p.rows, first, second);
    }
    oracle_fit_free(fit);
    free(x), free(first), free(second);
}

/* Many rows: several groups, and sums of floats that must not drift. */
static void test_covariance(void) {
    const int64_t sizes[][2] = {{2, 2}, {129, 70}, {9001, 33}};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            zonal__problem p = {.rows = sizes[i][0],
                                .dim = sizes[i][1],
                                .precision = case_precisions[k],
                                .threads = 2};
            int64_t numbers = p.dim * (p.dim + 1);
            double *x = case_rows(p.rows, p.dim, 1.5, 3), *value, *want;
            value = case_take(numbers, sizeof *value), want = case_take(numbers, sizeof *want);
            free(case_round(p.precision, case_count(&p), x));
            CHECK_OK(case_run(ZONAL__COVARIANCE, &p, x, 0, 1, value, NULL));
            oracle_covariance(&p, x, want);
            CHECK_NORM(p.dim, value, want, k ? 1e-8 : 1e-15);
            CHECK_NORM(numbers - p.dim, value + p.dim, want + p.dim, k ? 2e-7 : 1e-14);
            free(x), free(value), free(want);
        }
}

/* Q D Q^T with Q a product of reflections; also a matrix of rank 1, and one that is diagonal. */
static void test_eigenvalues(void) {
    const int64_t sizes[] = {1, 2, 3, 17, 64, 150};
    for (int s = 0; s < 6; s++)
        for (int reference = 0; reference < 2; reference++)
            for (int kind = 0; kind < 3; kind++) {
                int64_t n = sizes[s];
                const zonal__backend *backend =
                    reference ? zonal__backend_ref() : zonal__backend_cpu();
                const zonal__operation_table *table = backend->operations[ZONAL__EIGENVALUES];
                double *a = case_take(n * n, sizeof *a), *v = case_rows(1, n, HUGE_VAL, 77);
                double *value = case_take(n, sizeof *value), *want = case_take(n, sizeof *want);
                for (int64_t i = 0; i < n; i++)
                    want[i] = kind == 1 ? (i == n - 1) : (double)i - 0.3 * (double)n;
                for (int64_t i = 0; i < n; i++)
                    for (int64_t j = 0; j < n; j++) {
                        /* (I - 2vv^T) D (I - 2vv^T), or D as it is */
                        for (int64_t k = 0; k < n; k++)
                            a[i * n + j] += want[k] * ((i == k) - (kind < 2) * 2 * v[i] * v[k]) *
                                            ((j == k) - (kind < 2) * 2 * v[j] * v[k]);
                    }
                for (int64_t i = 0; i < n * n; i++)
                    if (i / n > i % n) a[i] = a[i % n * n + i / n];
                zonal__problem p = {.rows = n, .dim = n, .threads = 1};
                zonal__work *work;
                CHECK_OK(table->create(&p, &work));
                CHECK_OK(table->run(work, a, 0, value, NULL, 0));
                CHECK_ARRAY(n, value, want, 1e-14 * (double)(n + 10));
                a[n * n / 2] = NAN;
                CHECK_FAILS(table->run(work, a, 0, value, NULL, 0), ZONAL_NUMERIC, "nan");
                table->destroy(work);
                free(a), free(v), free(value), free(want);
            }
}

/* ---- slices ---- */

/* The sums of powers and a series of them, at every angle, for few and for many knots: within
 * knots^2 times 1e-15 (1e-13 times knots in float, whose units are off by as much). */
static void check_slice(const zonal__cpu_kernels *kernels, int knots, double knot0) {
    enum { N = 71, ROOM = 96, MOST = 400 };
    static double z[4][ROOM], work[MOST * ZONAL__SLICE_WORK], re[MOST], im[MOST];
    float s[N];
    double wide[N], step = 3.0 / knots, worst = 0;
    int single = kernels->size == sizeof *s;
    for (int i = 0; i < N; i++) wide[i] = s[i] = (float)((i - 35) * 0.13 * (i % 3 ? 1 : knots));
    zonal__cpu_slice slice = {.n = N,
                              .s = single ? (void *)s : wide,
                              .scale = 1,
                              .knots = knots,
                              .knot0 = knot0,
                              .step = step,
                              .z_re = z[0],
                              .z_im = z[1],
                              .w_re = z[2],
                              .w_im = z[3],
                              .work = work};
    double factor = single ? 1e-13 * knots + 1e-15 * knots * knots : 1e-15 * knots;
    kernels->slice_units(&slice);
    kernels->slice_sums(&slice, re, im);
    for (int k = 0; k < knots; k++) {
        long double cosine = 0, sine = 0, t = (long double)knot0 + k * (long double)step;
        for (int i = 0; i < N; i++) cosine += cosl(t * wide[i]), sine += sinl(t * wide[i]);
        worst = fmax(worst, fabs((double)(re[k] - cosine)) + fabs((double)(im[k] - sine)));
    }
    CHECK_MSG(worst <= N * factor, "%s, %d knots: sums off by %g", kernels->name, knots, worst);
}

static void test_slice_sums(void) {
    const int knots[] = {1, 2, 9, 16, 33, 400};
    for (int level = 0; level <= 2; level++) {
        zonal__cpu_kernels_limit(level);
        for (int i = 0; i < 6; i++)
            for (int k = 0; k < 4; k++)
                check_slice(zonal__cpu_kernels_get(case_precisions[k % 2]), knots[i],
                            k / 2 ? 0 : 0.7);
    }
    zonal__cpu_kernels_limit(2);
}

static void check_sliced(zonal__problem p, const zonal__sliced *sliced, double size,
                         double spread) {
    double *x = case_rows(p.rows, p.dim, spread, 3), value, want, alone;
    double *gradient = case_take(case_count(&p), sizeof *gradient);
    double *want_gradient = case_take(case_count(&p), sizeof *gradient);
    p.sliced = sliced;
    for (int64_t i = 0; i < case_count(&p); i++) x[i] *= size;
    free(case_round(p.precision, case_count(&p), x));
    if (CHECK_OK(case_run(ZONAL__SLICED, &p, x, 5, 1, &value, gradient))) {
        oracle_sliced(&p, 5, x, &want, want_gradient);
        case_compare(&p, "sliced", value, want, fabs(want) + 1 / (double)p.rows, gradient,
                     want_gradient);
        CHECK_OK(case_run(ZONAL__SLICED, &p, x, 5, 1, &alone, NULL));
        CHECK_MSG(alone == value, "value alone %.17g, with gradient %.17g", alone, value);
    }
    free(x), free(gradient), free(want_gradient);
}

/* Knots that fold (odd and even in number), that do not, and that start at 0. */
static void test_sliced(void) {
    const double ends[4][3] = {{-5, 5, 17}, {-4, 4, 12}, {-1, 3, 9}, {0, 3, 17}};
    for (int i = 0; i < CASE_SHAPES; i++)
        for (int e = 0; e < 4; e++) {
            double weight[17], target[17];
            zonal__sliced s = {.slices = e == 0 ? 40 : 9,
                               .knots = (int)ends[e][2],
                               .knot0 = ends[e][0],
                               .step = (ends[e][1] - ends[e][0]) / (ends[e][2] - 1),
                               .weight = weight,
                               .target = target,
                               .row_scale = sqrt((double)case_shape(i, ZONAL_PRECISION_FP32).dim),
                               .seed = 42};
            if (case_shape(i, ZONAL_PRECISION_FP32).rows > 200) s.slices = 5;
            for (int k = 0; k < s.knots; k++) {
                double t = s.knot0 + k * s.step;
                weight[k] = s.step * exp(-t * t / 2) * 0.4;
                target[k] = exp(-t * t / 2);
            }
            for (int k = 0; k < s.knots / 2; k++) { /* to the last bit, as the loss makes them */
                if (ends[e][0] != -ends[e][1]) break;
                weight[s.knots - 1 - k] = weight[k];
                target[s.knots - 1 - k] = target[k];
            }
            for (int k = 0; k < 2; k++) {
                zonal__problem p = case_shape(i, case_precisions[k]);
                check_sliced(p, &s, 1, e % 2 ? 1 : HUGE_VAL);
                s.raw_rows = 1;
                s.row_scale = 1;
                check_sliced(p, &s, 0.5, HUGE_VAL);
                s.raw_rows = 0;
            }
        }
}

/* Raw rows may be far out: sines of a million radians, by the C library. */
static void test_sliced_far(void) {
    double weight[3] = {0.3, 0.5, 0.2}, target[3] = {1, 0.5, 0.1};
    zonal__sliced s = {.slices = 5,
                       .knots = 3,
                       .step = 1,
                       .weight = weight,
                       .target = target,
                       .row_scale = 1,
                       .raw_rows = 1,
                       .seed = 1};
    zonal__problem p = {.rows = 40, .dim = 5, .precision = ZONAL_PRECISION_DOUBLE, .threads = 2};
    double *x = case_rows(p.rows, p.dim, HUGE_VAL, 3), value, want;
    p.sliced = &s;
    for (int64_t i = 0; i < 200; i++) x[i] *= 3e6;
    CHECK_OK(case_run(ZONAL__SLICED, &p, x, 0, 1, &value, NULL));
    oracle_sliced(&p, 0, x, &want, NULL);
    CHECK_CLOSE(value, want, 1e-8); /* the projections themselves are right to 1e-9 */
    free(x);
}

/* ---- views ---- */

static void test_invariance(void) {
    const int64_t views[3][2] = {{2, 2}, {5, 2}, {3, 1}};
    for (int i = 0; i < CASE_SHAPES; i++)
        for (int v = 0; v < 3; v++)
            for (int form = 0; form < 4; form++) {
                zonal__problem p = case_shape(i, case_precisions[form & 1]);
                p.views = views[v][0], p.global_views = views[v][1], p.raw_rows = form >> 1;
                double *x = case_rows(p.views * p.rows, p.dim, 0.5, 3), value, want;
                double *gradient = case_take(case_count(&p), sizeof *gradient);
                double *want_gradient = case_take(case_count(&p), sizeof *gradient);
                free(case_round(p.precision, case_count(&p), x));
                CHECK_OK(case_run(ZONAL__INVARIANCE, &p, x, 0, 1, &value, gradient));
                oracle_invariance(&p, x, &want, want_gradient);
                case_compare(&p, "invariance", value, want, want, gradient, want_gradient);
                free(x), free(gradient), free(want_gradient);
            }
}

static const test_case tests[] = {{"exp", test_exp},
                                  {"sincos", test_sincos},
                                  {"sincos_turns", test_sincos_turns},
                                  {"gemm", test_gemm},
                                  {"pairs", test_pairs},
                                  {"near_collapse", test_near_collapse},
                                  {"levels", test_levels},
                                  {"survey", test_survey},
                                  {"equal_rows", test_equal_rows},
                                  {"kl", test_kl},
                                  {"kl_tangent", test_kl_tangent},
                                  {"moments", test_moments},
                                  {"moments near collapse", test_moments_collapse},
                                  {"two_routes", test_two_routes},
                                  {"covariance", test_covariance},
                                  {"eigenvalues", test_eigenvalues},
                                  {"slice_sums", test_slice_sums},
                                  {"sliced", test_sliced},
                                  {"sliced_far", test_sliced_far},
                                  {"invariance", test_invariance},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
