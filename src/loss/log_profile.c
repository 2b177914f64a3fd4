/*
 * log phi, fitted: what KL evaluates for every pair.
 *
 * Far from c = 1 a narrow kernel is the tiny sum of large alternating terms: at d = 2048, t = 2/d
 * the series cancels 240 digits. Its samples are therefore summed in fixed point of 1024 bits, once
 * per kernel; the fit of their logarithm has a few dozen coefficients and is as good as a double
 * holds. Spectra are cut where their tail is below 1e-280, since phi >= 1e-250 is what the fit must
 * show.
 */
#include <limits.h>
#include <math.h>

#include "core/memory.h"
#include "loss/family.h"
#include "loss/log_profile.h"
#include "math/bigfixed.h"
#include "math/harmonics.h"

enum { MAX_BIG_DEGREES = 20000, MAX_TERMS = 4096 };

static const long double LOG_SMALLEST = -575.646273248511421L; /* log 1e-250 */
static const long double LOG_TAIL = -645.0L;                   /* log 1e-280 */

/* u_l proportional to a_l, the largest near 1, so that truncation errors are absolute. */
typedef struct big_series {
    int n;
    int64_t d;
    zonal__big *u; /* [n] */
    zonal__big total;
} big_series;

/* N_{l+1}/N_l as a fraction of integers below 2^40. */
static void ratio_parts(int64_t l, int64_t d, uint64_t *numerator, uint64_t *denominator) {
    *numerator = l == 0 ? (uint64_t)d : (uint64_t)(2 * l + d) * (uint64_t)(l + d - 2);
    *denominator = l == 0 ? 1 : (uint64_t)(2 * l + d - 2) * (uint64_t)(l + 1);
}

/* exp(sign t (2l+d-1)), the heat kernel's part of a_{l+1}/a_l (sign -1) or its inverse (+1). */
static void heat_factor(double t, int64_t l, int64_t d, int sign, zonal__big *out) {
    zonal__big x;
    zonal__big_from(&x, t);
    zonal__big_multiply_small(&x, &x, (uint64_t)(2 * l + d - 1));
    x.negative = sign < 0;
    zonal__big_exp(out, &x);
}

/* Walks from u[peak] = 1 to both sides with the ratios of multiplicities and, for heat, the
 * exponential factors: away from the peak terms shrink, and their errors with them. */
static void fill_chain(big_series *series, int peak, int heat, double t) {
    zonal__big factor, turn, *u = series->u;
    uint64_t up, down;
    zonal__big_from(&u[peak], 1);
    if (heat) {
        zonal__big_from(&turn, t);
        zonal__big_multiply_small(&turn, &turn, 2);
        turn.negative = 1;
        zonal__big_exp(&turn, &turn); /* exp(-2t) takes both walks one degree on */
        heat_factor(t, peak, series->d, -1, &factor);
    }
    for (int l = peak; l + 1 < series->n; l++) {
        ratio_parts(l, series->d, &up, &down);
        zonal__big_multiply_small(&u[l + 1], &u[l], up);
        zonal__big_divide_small(&u[l + 1], &u[l + 1], down);
        if (!heat) continue;
        zonal__big_multiply(&u[l + 1], &u[l + 1], &factor);
        zonal__big_multiply(&factor, &factor, &turn);
    }
    if (heat && peak > 0) heat_factor(t, peak - 1, series->d, +1, &factor);
    for (int l = peak - 1; l >= 0; l--) {
        ratio_parts(l, series->d, &up, &down);
        zonal__big_multiply_small(&u[l], &u[l + 1], down);
        zonal__big_divide_small(&u[l], &u[l], up);
        if (!heat) continue;
        zonal__big_multiply(&u[l], &u[l], &factor);
        zonal__big_multiply(&factor, &factor, &turn);
    }
}

/* m = N_{l+1} 2^-shift for m = N_l 2^-shift, kept in [1/2, 1); returns what the shift grew by. */
static int next_multiplicity(zonal__big *m, int64_t l, int64_t d) {
    uint64_t up, down, whole;
    int shift = 0;
    ratio_parts(l, d, &up, &down);
    zonal__big_multiply_small(m, m, up);
    zonal__big_divide_small(m, m, down);
    for (whole = m->limb[ZONAL__BIG_FRACTION]; whole > 0; whole >>= 1) shift++;
    zonal__big_shift_right(m, m, shift);
    return shift;
}

/* u_l = w_l N_l over a power of two above the largest. Multiplicities span far more than the fixed
 * point's 308 digits, so each meets its weight before it is shifted into place. */
static void fill_given(big_series *series, const double *weights) {
    zonal__big m, weight;
    int shift, exponent, top = INT_MIN;
    for (int pass = 0; pass < 2; pass++) { /* first where the largest is */
        zonal__big_from(&m, 0.5L);
        shift = 1;
        for (int l = 0; l < series->n; l++) {
            if (pass == 0 && weights[l] > 0) {
                frexp(weights[l], &exponent);
                if (shift + exponent > top) top = shift + exponent;
            } else if (pass == 1) {
                zonal__big_from(&weight, ldexpl((long double)weights[l], shift - top));
                zonal__big_multiply(&series->u[l], &m, &weight);
            }
            shift += next_multiplicity(&m, l, series->d);
        }
    }
}

/* Degrees until the heat kernel's tail is below LOG_TAIL, and where its largest term is. */
static zonal_status count_heat(const zonal_kernel *kernel, int *n, int *peak) {
    long double log_u = 0, top = 0, t = kernel->parameter;
    *peak = 0;
    for (int l = 0; l < MAX_BIG_DEGREES; l++) {
        log_u += logl(zonal__multiplicity_ratio(l, kernel->dim)) -
                 t * (long double)(2 * l + kernel->dim - 1);
        if (log_u > top) {
            top = log_u;
            *peak = l + 1;
        }
        *n = l + 2;
        if (log_u < top + LOG_TAIL) return ZONAL_OK;
    }
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "KL cannot use t = %g in dimension %lld: the kernel is too narrow; choose a "
                      "larger t, such as 2/d",
                      kernel->parameter, (long long)kernel->dim);
}

/* Of heat: the degrees that count, from the largest term to both sides. */
static zonal_status build_heat(const zonal_kernel *kernel, big_series *series) {
    double t = kernel->parameter;
    int peak;
    if (t * (double)(kernel->dim + 1) > 40)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "KL cannot use t = %g in dimension %lld: the kernel is flat; choose "
                          "t at most %g",
                          t, (long long)kernel->dim, 40 / (double)(kernel->dim + 1));
    ZONAL_TRY(count_heat(kernel, &series->n, &peak));
    ZONAL_TRY(ZONAL_NEW(&series->u, series->n, "the spectrum in 1024 bits"));
    fill_chain(series, peak, 1, t);
    return ZONAL_OK;
}

static zonal_status build_band(const zonal_kernel *kernel, big_series *series) {
    series->n = kernel->degrees;
    ZONAL_TRY(ZONAL_NEW(&series->u, series->n, "the spectrum in 1024 bits"));
    fill_chain(series, series->n - 1, 0, 0); /* multiplicities grow with the degree */
    return ZONAL_OK;
}

/* 1024 bits end at 1e-308, so of a 1 - phi below 1e-290 the last digits are missing. */
static zonal_status build_given(const zonal_kernel *kernel, big_series *series) {
    if (kernel->log_a0 > -1e-280L)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "KL cannot use this spectrum in dimension %lld: the kernel is flat, with "
                          "1 - a_0 = %.3g; give the degrees above 0 more weight",
                          (long long)kernel->dim, (double)kernel->one_minus_a0);
    series->n = kernel->degrees;
    ZONAL_TRY(ZONAL_NEW(&series->u, series->n, "the spectrum in 1024 bits"));
    fill_given(series, kernel->spec.weights);
    return ZONAL_OK;
}

/* sum_l u_l P_l(c), c rounded to a multiple of 2^-63. */
static void sum_series(const big_series *series, long double c, zonal__big *sum) {
    zonal__big previous, current, next, back;
    uint64_t cosine = (uint64_t)roundl(ldexpl(fabsl(c), 63));
    int64_t d = series->d;
    zonal__big_from(&previous, 0);
    zonal__big_from(&current, 1);
    zonal__big_from(sum, 0);
    for (int l = 0; l < series->n; l++) {
        zonal__big_multiply(&next, &current, &series->u[l]);
        zonal__big_add(sum, sum, &next);
        zonal__big_multiply_small(&next, &current, cosine);
        zonal__big_shift_right(&next, &next, 63);
        next.negative ^= c < 0;
        if (l > 0) {
            zonal__big_multiply_small(&next, &next, (uint64_t)(2 * l + d - 2));
            zonal__big_multiply_small(&back, &previous, (uint64_t)l);
            zonal__big_subtract(&next, &next, &back);
            zonal__big_divide_small(&next, &next, (uint64_t)(l + d - 2));
        }
        previous = current;
        current = next;
    }
}

static zonal_status not_positive(long double c) {
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "KL needs a kernel that is positive everywhere, and this one is not at "
                      "c = %.3Lf; use heat, induced or poisson, or MMD or KSD with this one",
                      c);
}

static zonal_status log_of_series(const void *context, long double c, long double *out) {
    const big_series *series = context;
    zonal__big sum, deficit;
    int exponent, total_exponent;
    sum_series(series, c, &sum);
    long double mantissa = zonal__big_to(&sum, &exponent);
    if (mantissa == 0) exponent = INT_MIN / 2;
    long double total = zonal__big_to(&series->total, &total_exponent);
    if (exponent < total_exponent - 900) { /* the fit ends at 2^-830; below, only noise is left */
        *out = LOG_TAIL;
        return ZONAL_OK;
    }
    if (!(mantissa > 0)) return not_positive(c);
    *out = logl(mantissa / total) + (exponent - total_exponent) * logl(2.0L);
    if (*out > -0.5L) { /* near 1: through the exact difference, for the digits of 1 - phi */
        zonal__big_subtract(&deficit, &series->total, &sum);
        long double rest = zonal__big_to(&deficit, &exponent);
        *out = log1pl(-ldexpl(rest / total, exponent - total_exponent));
    }
    return ZONAL_OK;
}

static zonal_status log_closed(const void *context, long double c, long double *out) {
    const zonal_kernel *kernel = context;
    *out = kernel->family->log(kernel, c);
    return ZONAL_OK;
}

/* Without multiplicities the high degrees never dominate, nothing cancels, and long double does. */
static zonal_status log_without_multiplicity(const void *context, long double c, long double *out) {
    const zonal_kernel *kernel = context;
    long double deficit = kernel->one_minus_a0 * (1 - zonal__kernel_centred(kernel, c));
    long double phi = zonal__kernel_derivative(kernel, 0, c);
    if (!(phi > 1e-12L)) return not_positive(c);
    *out = deficit < 0.5L ? log1pl(-deficit) : logl(phi);
    return ZONAL_OK;
}

/* The lowest cosine with log phi >= log 1e-250, a little below it, as a short binary fraction. */
static zonal_status find_low(zonal__fit_function f, const void *context, double *low) {
    long double at_low = 0;
    double high = 1;
    *low = -1;
    ZONAL_TRY(f(context, *low, &at_low));
    if (at_low >= LOG_SMALLEST) return ZONAL_OK;
    while (high - *low > 0x1p-20) {
        double middle = (*low + high) / 2;
        ZONAL_TRY(f(context, middle, &at_low));
        if (at_low >= LOG_SMALLEST)
            high = middle;
        else
            *low = middle;
    }
    return ZONAL_OK;
}

static zonal_status fit_from(zonal__fit_function f, const void *context, long double log_a0,
                             zonal__fit **fit) {
    double low, tolerance = (double)(-1e-16L * log_a0);
    ZONAL_TRY(find_low(f, context, &low));
    return zonal__fit_create(f, context, low, tolerance, 10 * tolerance, MAX_TERMS, fit);
}

static zonal_status fit_series(const zonal_kernel *kernel,
                               zonal_status (*build)(const zonal_kernel *, big_series *),
                               zonal__fit **fit) {
    big_series series = {.d = kernel->dim};
    zonal_status status = build(kernel, &series);
    if (status == ZONAL_OK) {
        zonal__big_from(&series.total, 0);
        for (int l = 0; l < series.n; l++)
            zonal__big_add(&series.total, &series.total, &series.u[l]);
        status = fit_from(log_of_series, &series, kernel->log_a0, fit);
    }
    zonal__free(series.u);
    return status;
}

zonal_status zonal__fit_log_heat(const zonal_kernel *kernel, zonal__fit **fit) {
    return fit_series(kernel, build_heat, fit);
}

zonal_status zonal__fit_log_band(const zonal_kernel *kernel, zonal__fit **fit) {
    return fit_series(kernel, build_band, fit);
}

zonal_status zonal__fit_log_given(const zonal_kernel *kernel, zonal__fit **fit) {
    return fit_series(kernel, build_given, fit);
}

zonal_status zonal__kernel_fit_log(const zonal_kernel *kernel, zonal__fit **fit) {
    const zonal__family *family = kernel->family;
    *fit = NULL;
    if (!family->log && !family->fit_log)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "KL needs a kernel that is positive everywhere, and %s is %s; use heat, "
                          "induced or poisson",
                          family->name, family->not_positive);
    if (!(kernel->log_a0 > -INFINITY))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "KL needs a kernel that is positive everywhere, and without "
                          "weight at degree 0 the mean of this one is 0");
    if (kernel->spec.without_multiplicity)
        return fit_from(log_without_multiplicity, kernel, kernel->log_a0, fit);
    if (family->log) return fit_from(log_closed, kernel, kernel->log_a0, fit);
    return family->fit_log(kernel, fit);
}
