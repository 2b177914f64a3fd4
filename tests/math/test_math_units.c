/*
 * The parts below the losses: Gauss rules, harmonics, 1024-bit numbers, Chebyshev fits, random
 * numbers.
 * Numbers with more digits than a double come from make_math_units.py, the rest are closed forms.
 */
#include <math.h>
#include <stdlib.h>

#include "core/random_scalar.h"
#include "failing_alloc.h"
#include "math/bigfixed.h"
#include "math/chebyshev.h"
#include "math/harmonics.h"
#include "math/quadrature.h"
#include "measure.h"
#include "test.h"

typedef struct golden_multiplicity {
    int l, dim;
    long double log;
} golden_multiplicity;

typedef struct golden_area {
    int dim;
    long double log_area, log_gamma; /* of d/2 */
} golden_area;

typedef struct golden_polynomial {
    int l, dim;
    long double c, value[4], top[4]; /* derivatives of order 0 to 3, there and at c = 1 */
} golden_polynomial;

typedef struct golden_exponential {
    long double x;
    const char *digits; /* hexadecimal, the point 256 digits from the end */
} golden_exponential;

typedef struct golden_normals {
    zonal__random random;
    uint64_t sample;
    int64_t pairs;
    uint64_t hash; /* FNV-1a of their bytes, the lowest first */
} golden_normals;
#include "golden/math_units.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const long double PI = 3.14159265358979323846264338327950288L;

/* ---- Gauss rules ---- */

/* The mean of v^(2m) over the marginal of the sphere: product of (2j+1)/(d+2j). */
static long double moment(int m, long double d) {
    long double product = 1;
    for (int j = 0; j < m; j++) product *= (2 * j + 1) / (d + 2 * j);
    return product;
}

static void test_gauss(void) {
    static measure moments = {.name = "moments of Gauss rules"};
    const int counts[] = {1, 2, 3, 5, 16, 33, 64}, dims[] = {2, 3, 4, 256, 4096};
    long double node[64], weight[64];
    for (size_t i = 0; i < COUNT(counts); i++)
        for (size_t j = 0; j < COUNT(dims); j++) {
            int n = counts[i], d = dims[j];
            if (!CHECK_OK(zonal__gauss_sphere(n, d, node, weight))) continue;
            for (int k = 0; k < n; k++) {
                CHECK(fabsl(node[k]) < 1 && weight[k] > 0);
                CHECK(k == 0 || node[k] > node[k - 1]);
                CHECK(node[k] == -node[n - 1 - k] && weight[k] == weight[n - 1 - k]);
            }
            for (int m = 0; m <= n; m++) {
                long double sum = 0;
                for (int k = 0; k < n; k++) sum += weight[k] * powl(node[k], 2 * m);
                double ratio = (double)(sum / moment(m, d) - 1);
                if (m < n) /* degree 2m <= 2n - 1 */
                    MEASURE(&moments, ratio, 0, 1e-16 * (1 + n), "n=%d d=%d degree %d", n, d,
                            2 * m);
                else /* the first that cannot be exact: too small, by the square of p_n */
                    CHECK_MSG(ratio < -1e-40 || n > 20, "n=%d d=%d: exact beyond its degree", n, d);
            }
        }
    measure_print(&moments);
}

/* On the circle the nodes are Chebyshev's with equal weights; n = 2 are the roots of P_2 = 0. */
static void test_gauss_closed_forms(void) {
    enum { N = 40 };
    long double node[N], weight[N];
    CHECK_OK(zonal__gauss_sphere(N, 2, node, weight));
    for (int k = 0; k < N; k++) {
        CHECK_CLOSE((double)(node[k] + cosl(PI * (2 * k + 1) / (2 * N))), 0, 1e-18);
        CHECK_CLOSE((double)(weight[k] * N), 1, 1e-17);
    }
    for (int d = 2; d <= 4096; d *= 2) {
        CHECK_OK(zonal__gauss_sphere(2, d, node, weight));
        CHECK_CLOSE((double)(node[1] * sqrtl(d)), 1, 1e-18);
        CHECK_OK(zonal__gauss_sphere(1, d, node, weight));
        CHECK(node[0] == 0 && weight[0] == 1);
    }
}

/* ---- Harmonics ---- */

static void test_multiplicities(void) {
    static measure logs = {.name = "log N_l"};
    for (size_t i = 0; i < COUNT(golden_multiplicities); i++) {
        const golden_multiplicity *golden = &golden_multiplicities[i];
        long double got = zonal__log_multiplicity(golden->l, golden->dim);
        MEASURE(&logs, (double)((got - golden->log) / golden->log), 0, 1e-17, "l=%d d=%d",
                golden->l, golden->dim);
    }
    measure_print(&logs);
    for (int l = 0; l < 50; l++) { /* exact integers: 2, 2l+1, (l+1)^2 */
        CHECK_CLOSE((double)expl(zonal__log_multiplicity(l, 2)), l ? 2 : 1, 1e-15);
        CHECK_CLOSE((double)expl(zonal__log_multiplicity(l, 3)), 2 * l + 1, 1e-13);
        CHECK_CLOSE((double)expl(zonal__log_multiplicity(l, 4)), (l + 1) * (l + 1), 1e-12);
    }
    CHECK(zonal__eigenvalue(0, 7) == 0 && zonal__eigenvalue(3, 7) == 24);
    /* N_0 + ... + N_l counts the polynomials of degree l and l - 1: C(l+d-1, l) + C(l+d-2, l-1). */
    long double sum = 0;
    for (int l = 0; l <= 6; l++) sum += expl(zonal__log_multiplicity(l, 9));
    CHECK_CLOSE((double)sum, 3003 + 1287, 1e-12);
}

static void test_areas(void) {
    static measure areas = {.name = "log area, log Gamma"};
    for (size_t i = 0; i < COUNT(golden_areas); i++) {
        const golden_area *golden = &golden_areas[i];
        /* The area is a difference of numbers as large as log Gamma. */
        long double size = fmaxl(1, fabsl(golden->log_gamma));
        MEASURE(&areas, (double)((zonal__log_sphere_area(golden->dim) - golden->log_area) / size),
                0, 1e-17, "area, d=%d", golden->dim);
        MEASURE(&areas, (double)((zonal__log_gamma_half(golden->dim) - golden->log_gamma) / size),
                0, 1e-17, "Gamma, d=%d", golden->dim);
    }
    measure_print(&areas);
}

/* P_l alone, as a series with one coefficient; errors relative to the value at c = 1, the largest.
 */
static void test_polynomials(void) {
    static measure values = {.name = "P_l and derivatives"};
    static long double a[501];
    for (size_t i = 0; i < COUNT(golden_polynomials); i++) {
        const golden_polynomial *golden = &golden_polynomials[i];
        int l = golden->l;
        a[l] = 1;
        for (int order = 0; order < 4; order++) {
            long double got =
                order == 0 ? zonal__series(0, l + 1, a, golden->dim, golden->c)
                           : zonal__series_derivative(l + 1, a, golden->dim, order, golden->c);
            long double top = golden->top[order] > 0 ? golden->top[order] : 1;
            MEASURE(&values, (double)((got - golden->value[order]) / top), 0, 1e-16,
                    "l=%d d=%d c=%g order %d", l, golden->dim, (double)golden->c, order);
        }
        CHECK(zonal__series(l + 1, l + 1, a, golden->dim, golden->c) == 0);
        a[l] = 0;
    }
    measure_print(&values);
}

/* ---- Numbers of 1024 bits ---- */

static void big_parse(const char *digits, zonal__big *out) {
    memset(out, 0, sizeof *out);
    int n = (int)strlen(digits);
    for (int i = 0; i < n; i++) {
        char c = digits[n - 1 - i];
        uint64_t value = (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
        out->limb[i / 16] |= value << (4 * (i % 16));
    }
}

/* |x - y| in units of 2^-1024, as a double (it is only small or large). */
static double big_distance(const zonal__big *x, const zonal__big *y) {
    zonal__big difference;
    int exponent;
    zonal__big_subtract(&difference, x, y);
    long double value = zonal__big_to(&difference, &exponent);
    return (double)fabsl(ldexpl(value, exponent + 1024));
}

static int big_equal(const zonal__big *x, const char *digits) {
    zonal__big want;
    big_parse(digits, &want);
    return memcmp(x->limb, want.limb, sizeof want.limb) == 0 && !x->negative;
}

static void test_big_arithmetic(void) {
    zonal__big third, seventh, one, x;
    int exponent;
    zonal__big_from(&one, 1);
    zonal__big_divide_small(&third, &one, 3);
    zonal__big_divide_small(&seventh, &one, 7);
    CHECK(big_equal(&third, golden_third));
    zonal__big_multiply(&x, &third, &seventh);
    CHECK(big_equal(&x, golden_third_of_seventh));
    zonal__big_multiply_small(&x, &third, 12345);
    CHECK(big_equal(&x, golden_third_by_12345));
    zonal__big_divide_small(&x, &third, 98765);
    CHECK(big_equal(&x, golden_third_over_98765));
    zonal__big_subtract(&x, &third, &seventh);
    CHECK(big_equal(&x, golden_third_less_seventh));
    zonal__big_subtract(&x, &seventh, &third);
    CHECK(x.negative);
    zonal__big_add(&x, &x, &third);
    CHECK(big_distance(&x, &seventh) == 0 && !x.negative);
    zonal__big_add(&x, &third, &third);
    zonal__big_add(&x, &x, &third); /* 1 less a unit */
    CHECK(big_distance(&x, &one) == 1);
    zonal__big_shift_right(&x, &one, 63);
    CHECK(zonal__big_to(&x, &exponent) == 0.5L && exponent == -62);
    zonal__big_shift_right(&x, &third, 0);
    CHECK(big_distance(&x, &third) == 0);
    /* Signs of a product, and out as an operand. */
    zonal__big_from(&x, -2.5L);
    CHECK(zonal__big_to(&x, &exponent) == -0.625L && exponent == 2);
    zonal__big_multiply(&x, &x, &x);
    CHECK(zonal__big_to(&x, &exponent) == 0.78125L && exponent == 3 && !x.negative);
    zonal__big_from(&x, 0);
    CHECK(zonal__big_to(&x, &exponent) == 0);
    /* There and back, over the whole range. */
    for (int e = -1020; e <= 62; e += 41) {
        long double value = ldexpl(PI / 4, e);
        zonal__big_from(&x, value);
        long double back = zonal__big_to(&x, &exponent);
        if (e >= -950) CHECK(ldexpl(back, exponent) == value);
        CHECK(ldexpl(back, exponent) <= value);
    }
}

static void test_big_exponential(void) {
    static measure errors = {.name = "exp, units of 2^-1024"};
    for (size_t i = 0; i < COUNT(golden_exponentials); i++) {
        const golden_exponential *golden = &golden_exponentials[i];
        zonal__big x, want;
        zonal__big_from(&x, golden->x);
        zonal__big_exp(&x, &x);
        big_parse(golden->digits, &want);
        /* Twenty squarings double the error each, and multiply it by the number while it is large:
         * 2^30 units leave 299 digits of the 308. */
        double size = fmax(1, exp((double)golden->x));
        MEASURE(&errors, big_distance(&x, &want), 0, 0x1p30 * size, "x = %g", (double)golden->x);
    }
    measure_print(&errors);
    /* exp(x) exp(-x) = 1 */
    for (double at = 0.0625; at <= 40; at *= 1.7) {
        zonal__big x, up, down, one;
        zonal__big_from(&one, 1);
        zonal__big_from(&x, at);
        zonal__big_exp(&up, &x);
        x.negative = 1;
        zonal__big_exp(&down, &x);
        zonal__big_multiply(&x, &up, &down);
        CHECK_CLOSE(big_distance(&x, &one), 0, 0x1p30 * exp(at));
    }
}

/* ---- Chebyshev fits ---- */

typedef struct known {
    int which, calls, fail_at;
} known;

static zonal_status known_function(const void *context, long double c, long double *out) {
    known *k = (known *)context;
    if (k->calls++ == k->fail_at) return ZONAL_FAIL(ZONAL_ARGUMENT, "no value at c = %.3Lf", c);
    switch (k->which) {
    case 0:
        *out = expl(c);
        break;
    case 1:
        *out = 1 / (1 + 25 * c * c);
        break;
    case 2:
        *out = 7;
        break;
    case 3:
        *out = c * c * c - c / 2;
        break;
    case 4:
        *out = cosl(32 * acosl(c));
        break; /* T_32: a constant on coarse grids */
    case 5:
        *out = fabsl(c - 0.1L);
        break; /* a corner: no fit of 200 terms */
    default:
        *out = logl(c + 1.5L);
        break;
    }
    return ZONAL_OK;
}

static long double known_derivative(int which, long double c) {
    switch (which) {
    case 0:
        return expl(c);
    case 1:
        return -50 * c / powl(1 + 25 * c * c, 2);
    case 2:
        return 0;
    case 3:
        return 3 * c * c - 0.5L;
    case 4:
        return fabsl(c) < 1 ? 32 * sinl(32 * acosl(c)) / sqrtl(1 - c * c) : c * 1024;
    default:
        return 1 / (c + 1.5L);
    }
}

static double horner(int n, const double *a, double u) {
    double sum = 0;
    for (int k = n - 1; k >= 0; k--) sum = sum * u + a[k];
    return sum;
}

static void test_fits(void) {
    static measure values = {.name = "fits"}, derivatives = {.name = "derivatives of fits"};
    const int terms[] = {20, 260, 1, 4, 33, 0, 40};
    for (int which = 0; which < 7; which++) {
        if (which == 5) continue;
        for (int part = 0; part < 2; part++) {
            known k = {which, 0, -1};
            double low = part ? -0.25 : -1, steepest = 1;
            zonal__fit *fit;
            if (!CHECK_OK(zonal__fit_create(known_function, &k, low, 1e-17, 1e-13, 1000, &fit)))
                continue;
            CHECK(fit->n_value <= terms[which] &&
                  fit->n_derivative == (which == 2 ? 1 : fit->n_value - 1));
            CHECK(fit->error < 1e-13);
            for (double c = low; c <= 1; c += 0.01)
                steepest = fmax(steepest, (double)fabsl(known_derivative(which, c)));
            /* A coefficient dropped at 1e-17 counts n^2 times in the derivative; an ulp of c counts
             * derivative times in the value. */
            double blur = 1e-14 + 2e-17 * fit->n_value * fit->n_value;
            for (double c = low; c <= 1; c += 0.0173) {
                long double exact;
                CHECK_OK(known_function(&k, c, &exact));
                double derivative = (double)known_derivative(which, c),
                       size = fmax(1, (double)fabsl(exact));
                MEASURE(&values, zonal__fit_value(fit, c), (double)exact,
                        2e-15 * size + 1e-15 * fabs(derivative), "function %d, c = %g", which, c);
                MEASURE(&derivatives, zonal__fit_derivative(fit, c), derivative, blur * steepest,
                        "function %d, c = %g", which, c);
                if (!fit->n_monomial) continue;
                double u = (c - fit->middle) / fit->half;
                CHECK_CLOSE(horner(fit->n_value, fit->monomial, u), (double)exact, 1e-12);
                CHECK_CLOSE(horner(fit->n_derivative, fit->monomial_derivative, u),
                            (double)known_derivative(which, c), 1e-12 * steepest);
            }
            if (part) { /* the tangent below low */
                double at = zonal__fit_value(fit, low),
                       derivative = zonal__fit_derivative(fit, low);
                CHECK_CLOSE(zonal__fit_value(fit, low - 0.5), at - 0.5 * derivative,
                            1e-13 * (1 + fabs(derivative)));
                CHECK_CLOSE(zonal__fit_derivative(fit, -0.9), derivative,
                            1e-13 * (1 + fabs(derivative)));
            }
            /* T_32 in powers has coefficients of 1e11 and more: Horner would lose what is asked. */
            CHECK((which == 4 && !part) ? fit->n_monomial == 0 : 1);
            CHECK(which == 0 ? fit->n_monomial == fit->n_value : 1);
            zonal__fit_destroy(fit);
        }
    }
    measure_print(&values);
    measure_print(&derivatives);
    zonal__fit_destroy(NULL);
}

static void test_fits_refused(void) {
    known k = {5, 0, -1};
    zonal__fit *fit = (zonal__fit *)&k;
    CHECK_FAILS(zonal__fit_create(known_function, &k, -1, 1e-15, 1e-15, 200, &fit), ZONAL_NUMERIC,
                "too narrow to fit with 200 terms");
    CHECK(fit == NULL);
    for (int fail_at = 0; fail_at < 40; fail_at += 6) { /* in samples, probes and checks */
        k = (known){0, 0, fail_at};
        fit = (zonal__fit *)&k;
        CHECK_FAILS(zonal__fit_create(known_function, &k, -1, 1e-16, 1e-13, 200, &fit),
                    ZONAL_ARGUMENT, "no value at");
        CHECK(fit == NULL);
    }
}

static zonal_status fit_and_drop(void *context) {
    known k = {*(int *)context, 0, -1};
    zonal__fit *fit = NULL;
    zonal_status status = zonal__fit_create(known_function, &k, -1, 1e-16, 1e-13, 400, &fit);
    CHECK((status == ZONAL_OK) == (fit != NULL));
    zonal__fit_destroy(fit);
    return status;
}

static void test_fit_memory(void) {
    for (int which = 0; which < 4; which++) test_every_allocation("a fit", fit_and_drop, &which);
}

/* ---- Philox ---- */

/* The known answers of the paper's reference implementation, unpacked from counter and key. */
static void test_philox(void) {
    const struct {
        uint32_t counter[4], key[2], out[4];
    } known_answers[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < COUNT(known_answers); i++) {
        const uint32_t *c = known_answers[i].counter, *key = known_answers[i].key;
        zonal__random random = {(uint64_t)key[1] << 32 | key[0], (uint8_t)(c[3] >> 24), c[2]};
        uint32_t out[4];
        zonal__random_words(&random, (uint64_t)(c[3] & 0xffffff) << 32 | c[1], c[0], out);
        CHECK(memcmp(out, known_answers[i].out, sizeof out) == 0);
    }
}

/* Uniform numbers stay inside (0, 1); normal ones have mean 0, variance 1 and fourth moment 3; odd
 * lengths are prefixes of even ones; directions have unit length. All within 5 standard errors. */
static void test_draws(void) {
    enum { N = 200000 };
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, 3};
    double *x = malloc(N * sizeof *x), sum = 0, square = 0, fourth = 0, uniform = 0, u[2];
    zonal__random_normal(&random, 9, N, x);
    for (int i = 0; i < N; i++) {
        sum += x[i];
        square += x[i] * x[i];
        fourth += x[i] * x[i] * x[i] * x[i];
    }
    CHECK_CLOSE(sum / N, 0, 5 * sqrt(1.0 / N));
    CHECK_CLOSE(square / N, 1, 5 * sqrt(2.0 / N));
    CHECK_CLOSE(fourth / N, 3, 5 * sqrt(96.0 / N));
    for (uint32_t i = 0; i < N / 2; i++) {
        zonal__random_uniform(&random, 10, i, u);
        CHECK(u[0] > 0 && u[0] < 1 && u[1] > 0 && u[1] < 1);
        uniform += u[0] + u[1];
    }
    CHECK_CLOSE(uniform / N, 0.5, 5 * sqrt(1 / 12.0 / N));
    CHECK(zonal__to_unit_interval(0, 0) == 0x1p-54);
    CHECK(zonal__to_unit_interval(UINT32_MAX, UINT32_MAX) == 1 - 0x1p-53);
    double even[8], odd[7], length = 0;
    zonal__random_normal(&random, 11, 8, even);
    zonal__random_normal(&random, 11, 7, odd);
    CHECK(memcmp(even, odd, sizeof odd) == 0);
    zonal__random_direction(&random, 11, 7, odd);
    for (int i = 0; i < 7; i++) length += odd[i] * odd[i];
    CHECK_CLOSE(length, 1, 1e-15);
    zonal__random_four_directions(&random, 8, 7, x);
    CHECK(memcmp(odd, x + 3 * 7, sizeof odd) == 0);
    free(x);
}

static uint64_t hash_of(int64_t n, const double *x) {
    uint64_t hash = 0xcbf29ce484222325, bits;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        for (int shift = 0; shift < 64; shift += 8)
            hash = (hash ^ (bits >> shift & 0xff)) * 0x100000001b3;
    }
    return hash;
}

/* Results depend on them, so they are the same bits everywhere: Python's, pair by pair, and however
 * many are drawn at a time. */
static void test_normal_bits(void) {
    enum { MOST = 600 };
    for (size_t i = 0; i < COUNT(golden_normal_bits); i++) {
        const golden_normals *g = &golden_normal_bits[i];
        double *x = malloc((size_t)g->pairs * 2 * sizeof *x);
        zonal__random_normal(&g->random, g->sample, 2 * g->pairs, x);
        CHECK(hash_of(2 * g->pairs, x) == g->hash);
        for (int64_t k = 0; k < g->pairs; k++)
            zonal__normal_pair(&g->random, g->sample, (uint32_t)k, x + 2 * k);
        CHECK(hash_of(2 * g->pairs, x) == g->hash);
        for (int64_t n = 0; n <= MOST; n++) {
            double few[MOST + 1];
            few[n] = 7;
            zonal__random_normal(&g->random, g->sample, n, few);
            CHECK_MSG(memcmp(few, x, (size_t)n * sizeof *x) == 0 && few[n] == 7, "%d numbers",
                      (int)n);
        }
        free(x);
    }
}

/* x/n by two multiplications is the quotient, for every n that the series of the sine divide by:
 * quotients next to a midpoint between two doubles, where a small error would show, and others. */
static void test_over(void) {
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, 4};
    for (int k = 2; k <= 19; k++)
        for (uint32_t i = 0; i < 40000; i++) {
            uint32_t words[4];
            int n = k * (k - 1);
            zonal__random_words(&random, (uint64_t)k, i, words);
            double q = 1 + (((uint64_t)words[0] << 20) + (words[1] >> 12)) * 0x1p-52;
            double x = fma(q, n, (0.5 * n + (int)(words[2] % 3) - 1) * 0x1p-52);
            x = ldexp(x, -(int)(words[3] % 120));
            CHECK_MSG(zonal__over(x, n, 1) == x / n, "%a/%d", x, n);
        }
}

static const test_case tests[] = {
    {"Gauss rules", test_gauss},
    {"Gauss rules in closed form", test_gauss_closed_forms},
    {"multiplicities", test_multiplicities},
    {"areas", test_areas},
    {"polynomials", test_polynomials},
    {"1024 bits: arithmetic", test_big_arithmetic},
    {"1024 bits: exponential", test_big_exponential},
    {"fits", test_fits},
    {"fits refused", test_fits_refused},
    {"fits without memory", test_fit_memory},
    {"Philox", test_philox},
    {"draws", test_draws},
    {"normal numbers, bit for bit", test_normal_bits},
    {"quotients by multiplication", test_over},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
