#include "math/chebyshev.h"

#include <float.h>
#include <math.h>

#include "core/memory.h"

static const long double PI_L = 3.14159265358979323846264338327950288L;

/* Samples of f at the n + 1 extreme points cos(pi k/n) of T_n on [low, 1]. When n doubles, the old
 * points are every other new one: only the new ones are computed (a sample of log phi can cost a
 * millisecond). */
static zonal_status sample(zonal__fit_function f, const void *context, double low, int n,
                           int have_half, long double *y) {
    long double middle = (1 + (long double)low) / 2, half = (1 - (long double)low) / 2;
    if (have_half)
        for (int k = n / 2; k > 0; k--) y[2 * k] = y[k];
    for (int k = 0; k <= n; k++) {
        if (have_half && k % 2 == 0) continue;
        ZONAL_TRY(f(context, middle + half * cosl(PI_L * k / n), &y[k]));
    }
    return ZONAL_OK;
}

/* The interpolant's coefficients: the type-I cosine transform, by its definition. */
static void transform(int n, const long double *y, const long double *cosine, long double *a) {
    for (int j = 0; j <= n; j++) {
        long double sum = (y[0] + (j % 2 ? -y[n] : y[n])) / 2;
        for (int k = 1; k < n; k++) sum += y[k] * cosine[(int64_t)j * k % (2 * n)];
        a[j] = sum * (j == 0 || j == n ? 1 : 2) / n;
    }
}

static long double clenshaw(int n, const long double *a, long double u) {
    long double b1 = 0, b2 = 0;
    for (int k = n - 1; k > 0; k--) {
        long double b = 2 * u * b1 - b2 + a[k];
        b2 = b1;
        b1 = b;
    }
    return u * b1 - b2 + a[0];
}

/* b = derivative of the series a with respect to u: b_{k-1} = b_{k+1} + 2 k a_k. */
static void differentiate(int n, const long double *a, long double *b) {
    for (int k = n - 1; k >= 0; k--) b[k] = 0;
    for (int k = n - 1; k >= 1; k--)
        b[k - 1] = (k + 1 < n ? b[k + 1] : 0) + 2 * (long double)k * a[k];
    b[0] /= 2;
}

/* The series in powers of u; returns the sum of the magnitudes of its coefficients. T_k is built up
 * by its recurrence in t0, t1 (scratch, n each); the coefficients of T_k reach 2^k, so this is only
 * meant for the degrees where the sum turns out small. */
static long double to_monomials(int n, const long double *a, long double *m, long double *t0,
                                long double *t1) {
    long double sum = 0;
    for (int k = 0; k < n; k++) m[k] = t0[k] = t1[k] = 0;
    t0[0] = 1;
    if (n > 1) t1[1] = 1;
    m[0] = a[0];
    for (int k = 1; k < n; k++) { /* t1 = T_k, t0 = T_{k-1} */
        for (int i = 0; i <= k; i++) m[i] += a[k] * t1[i];
        for (int i = k < n - 1 ? k + 1 : n - 1; i >= 0; i--) {
            long double next = (i > 0 ? 2 * t1[i - 1] : 0) - t0[i];
            t0[i] = t1[i];
            t1[i] = next;
            /* t1[i-1] is read at the next, lower i, and has not been overwritten yet */
        }
    }
    for (int k = 0; k < n; k++) sum += fabsl(m[k]);
    return sum;
}

/* Rounds the first n coefficients of a (and its derivative's) into a new fit. work has 4 n. */
static zonal_status fill(zonal__fit *fit, double low, int n, const long double *a,
                         double monomial_tolerance, long double *work) {
    long double *b = work, *m = work + n, *t0 = work + 2 * n, *t1 = work + 3 * n;
    int n_derivative = n > 1 ? n - 1 : 1;
    fit->low = low;
    fit->middle = (1 + low) / 2;
    fit->half = (1 - low) / 2;
    fit->n_value = n;
    fit->n_derivative = n_derivative;
    ZONAL_TRY(ZONAL_NEW(&fit->value, n, "a profile"));
    ZONAL_TRY(ZONAL_NEW(&fit->derivative, n, "a profile's derivative"));
    ZONAL_TRY(ZONAL_NEW(&fit->monomial, n, "a profile"));
    ZONAL_TRY(ZONAL_NEW(&fit->monomial_derivative, n, "a profile's derivative"));
    differentiate(n, a, b);
    for (int k = 0; k < n; k++) {
        b[k] /= (1 - (long double)low) / 2;
        fit->value[k] = (double)a[k];
        fit->derivative[k] = (double)b[k];
    }
    fit->low_value = (double)clenshaw(n, a, -1);
    fit->low_derivative = (double)clenshaw(n_derivative, b, -1);
    if (n <= 60) { /* beyond, 2^k leaves nothing of a long double either */
        long double size = to_monomials(n, a, m, t0, t1);
        for (int k = 0; k < n; k++) fit->monomial[k] = (double)m[k];
        long double derivative_size = to_monomials(n_derivative, b, m, t0, t1),
                    derivative_top = fabsl(b[0]);
        for (int k = 0; k < n_derivative; k++) fit->monomial_derivative[k] = (double)m[k];
        for (int k = 1; k < n_derivative; k++) derivative_top = fmaxl(derivative_top, fabsl(b[k]));
        /* Horner's rounding error is about this many times DBL_EPSILON; the derivative's is judged
         * against the derivative's own size. */
        if (size * DBL_EPSILON <= monomial_tolerance &&
            derivative_size * DBL_EPSILON <= monomial_tolerance * fmaxl(1, derivative_top))
            fit->n_monomial = n;
    }
    return ZONAL_OK;
}

/* Largest |fit - f| at points between the nodes, where an interpolant is worst. */
static zonal_status check(const zonal__fit *fit, zonal__fit_function f, const void *context,
                          int points, double *error) {
    *error = 0;
    for (int k = 0; k < points; k++) {
        long double u = cosl(PI_L * (k + 0.5L) / points), exact;
        double c = (double)(fit->middle + fit->half * u);
        ZONAL_TRY(f(context, c, &exact));
        double difference = (double)fabsl(zonal__fit_value(fit, c) - exact);
        if (!(difference <= *error)) *error = difference;
    }
    return ZONAL_OK;
}

/* Whether the series shows f where no grid has a point: on the 17 points of n = 16, T_32 looks like
 * the constant 1, and so does a spectrum of that degree alone. Such an error is gross, so rounding
 * can be forgiven. */
static zonal_status seen_elsewhere(zonal__fit_function f, const void *context, double low, int n,
                                   const long double *a, long double allowed, int *seen) {
    long double middle = (1 + (long double)low) / 2, half = (1 - (long double)low) / 2;
    *seen = 1;
    for (int k = 0; k < 7; k++) {
        long double u = cosl(k + 0.7L), exact;
        ZONAL_TRY(f(context, middle + half * u, &exact));
        if (!(fabsl(clenshaw(n, a, u) - exact) <= allowed)) *seen = 0;
    }
    return ZONAL_OK;
}

zonal_status zonal__fit_create(zonal__fit_function f, const void *context, double low,
                               double tolerance, double monomial_tolerance, int max_terms,
                               zonal__fit **out) {
    zonal_status status = ZONAL_OK;
    zonal__fit *fit = NULL;
    long double *y = NULL, *a = NULL, *cosine = NULL, *work = NULL;
    int n = 0, keep = 0;
    *out = NULL;
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&fit, 1, "a profile"));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&y, 2 * max_terms + 2, "a profile's samples"));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&a, 2 * max_terms + 2, "a profile's coefficients"));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&cosine, 4 * max_terms + 4, "a table of cosines"));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&work, 8 * max_terms + 8, "a profile's work space"));
    for (n = 16;; n *= 2) {
        ZONAL_TRY_GOTO(status, done, sample(f, context, low, n, n > 16, y));
        for (int k = 0; k < 2 * n; k++) cosine[k] = cosl(PI_L * k / n);
        transform(n, y, cosine, a);
        /* The coefficients left out may add up to half the tolerance and to the rounding noise of
         * the samples, some ulp each (their functions are sums of up to thousands of terms); a
         * quarter of the series must be there to show that they have died away. */
        long double tail = 0, largest = 0;
        for (int k = 0; k <= n; k++) largest = fmaxl(largest, fabsl(y[k]));
        long double noise = largest * LDBL_EPSILON * n * sqrtl(n) / 16;
        long double allowed = 0.5L * tolerance + noise;
        for (keep = n + 1; keep > 1; keep--) {
            if (!(tail + fabsl(a[keep - 1]) <= allowed)) break;
            tail += fabsl(a[keep - 1]);
        }
        int seen = keep <= n - n / 4;
        if (seen)
            ZONAL_TRY_GOTO(
                status, done,
                seen_elsewhere(f, context, low, keep, a, 8 * allowed + 1e-15L * largest, &seen));
        if (seen) break;
        if (2 * n > max_terms) {
            status = ZONAL_FAIL(ZONAL_NUMERIC,
                                "the kernel's profile is too narrow to fit with %d terms; "
                                "choose a wider kernel (larger t, smaller scale or r)",
                                max_terms);
            goto done;
        }
    }
    ZONAL_TRY_GOTO(status, done, fill(fit, low, keep, a, monomial_tolerance, work));
    ZONAL_TRY_GOTO(status, done, check(fit, f, context, keep + 7, &fit->error));
    *out = fit;
    fit = NULL;
done:
    zonal__fit_destroy(fit);
    zonal__free(y);
    zonal__free(a);
    zonal__free(cosine);
    zonal__free(work);
    return status;
}

void zonal__fit_destroy(zonal__fit *fit) {
    if (!fit) return;
    zonal__free(fit->value);
    zonal__free(fit->derivative);
    zonal__free(fit->monomial);
    zonal__free(fit->monomial_derivative);
    zonal__free(fit);
}

static double clenshaw_double(int n, const double *a, double u) {
    double b1 = 0, b2 = 0;
    for (int k = n - 1; k > 0; k--) {
        double b = 2 * u * b1 - b2 + a[k];
        b2 = b1;
        b1 = b;
    }
    return u * b1 - b2 + a[0];
}

double zonal__fit_value(const zonal__fit *fit, double c) {
    if (c < fit->low) return fit->low_value + fit->low_derivative * (c - fit->low);
    return clenshaw_double(fit->n_value, fit->value, (c - fit->middle) / fit->half);
}

double zonal__fit_derivative(const zonal__fit *fit, double c) {
    if (c < fit->low) return fit->low_derivative;
    return clenshaw_double(fit->n_derivative, fit->derivative, (c - fit->middle) / fit->half);
}

void zonal__fit_range(const zonal__fit *fit, double *least, double *most) {
    enum { PLACES = 512 };
    *least = *most = 0;
    for (int i = 0; i <= PLACES; i++) {
        double value = zonal__fit_value(fit, 2.0 * i / PLACES - 1);
        *least = value < *least ? value : *least;
        *most = value > *most ? value : *most;
    }
}
