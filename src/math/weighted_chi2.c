/*
 * P(T > x) for T = sum_l b_l (chi2(N_l)/N_l - 1) + sqrt(v) N(0,1): see weighted_chi2.h.
 *
 * Notation. c_l = 2 b_l/N_l, w_l = b_l c_l = var of term l, so that with u = s c_l
 *
 *     K_l (s) = N_l/2 [-log(1 - u) - u]
 *     K_l'(s) = s w_l/(1 - u) = b_l/(1 - u) - b_l
 *     K_l''(s) = w_l/(1 - u)^2.
 *
 * The saddle s0 solves K'(s) - x = 1/s. K' grows and 1/s falls, so there is exactly one on each
 * side of the pole: between 0 and the first branch point 1/max c_l (the upper tail), and left of 0
 * (the lower one).
 *
 * Seen from s0 the distribution is again of the same kind. With s = s0 + R z,
 *
 *     K(s) - s x = K(s0) - s0 x + g R z + sum_l N_l/2 [-log(1 - C_l z) - C_l z] + v R^2 z^2/2,
 *     g = K'(s0) - x,   C_l = c_l R/(1 - s0 c_l),   N_l C_l^2/2 = V_l = w_l R^2/(1 - s0 c_l)^2,
 *
 * and the choice 1/R^2 = K''(s0) + 1/s0^2 makes sum V_l + v R^2 + (R/s0)^2 = 1: every number in the
 * integral is of order one, whatever the scale of x, b or N.
 *
 * Why the contour is right. On a ray z = r exp(i phi), the real part of N/2 [-log(1 - C z) - C z]
 * has derivative
 *
 *     -N C/2 * (C r) (-cos 2 phi + C r cos phi)/|1 - C z|^2,
 *
 * which is negative for 45 <= phi <= 90 degrees: all terms fall along such a ray, and so does
 * z^2/2. (In the upper tail the pole's own factor exp(z R/s0)/(1 + z R/s0) grows to the right, but
 * slower than the others fall.) The hyperbola z = cot(a) (cosh t - 1) + i sinh t leaves upwards and
 * bends to the angle a = 67.5 degrees, the middle of that sector, so the integrand falls from the
 * saddle on and ends like exp(-const cosh t). Its strip of analyticity in t does not shrink either:
 * the pole and the branch points lie at |z| = |s0|/R >= 1 and 1/C_l >= sqrt(N_l/2) >= 0.707, while
 * the hyperbolas of the family reach out to z = 0.668 on the right before they fold up.
 */
#include "math/weighted_chi2.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"

/* Below this exponent log p is the exponent itself: what the integral adds is of order one to log
 * p, less than the last digits of the exponent. */
#define EXPONENT_ALONE    (-1e15)
#define CONTOUR_COTANGENT 0.41421356237309505 /* cot(67.5 degrees) = sqrt(2) - 1 */
#define DECAY             (-42.0)             /* exp(-42) = 6e-19: where the contour ends */
#define SERIES_RADIUS     0.25                /* power series below, logarithm above */
#define SERIES_TERMS      28                  /* 0.25^28 = 1e-17 */

typedef struct chi2_term {
    double c; /* 2 b/N */
    double w; /* the variance 2 b^2/N */
    double b;
    double ratio, gap;           /* c/c_max, 1 - c/c_max */
    double before_hi, before_lo; /* sum of the b before this term, in twice the precision */
    double cz, vz;               /* C_l and V_l on the contour */
} chi2_term;

typedef struct chi2_sum {
    int n;
    chi2_term *term; /* n + 1 of them, by falling c; the last holds only the sum of all b */
    double c_max;
    double extra;
    double x;
} chi2_sum;

/* A point of the real axis left of the branch points. "margin" = 1 - s c_max is kept beside s since
 * in the far tail it is all that matters: 1 - s c_l = gap_l + ratio_l margin, a sum of positive
 * numbers, never a difference. */
typedef struct chi2_point {
    double s, margin;
    double derivative; /* K'(s) - x */
    double unit;       /* ds/dlog(t), see place_point: the distance to the nearer end of the axis */
    double
        curvature; /* (K''(s) + 1/s^2) unit^2, which cannot overflow where p does not underflow */
} chi2_point;

typedef struct complex_pair {
    double re, im;
} complex_pair;

static int compare_terms(const void *left, const void *right) {
    double a = ((const chi2_term *)left)->c;
    double b = ((const chi2_term *)right)->c;
    return (a < b) - (a > b);
}

/* hi + lo = a + b exactly. */
static double sum_exactly(double a, double b, double *lo) {
    double hi = a + b;
    double part = hi - a;
    *lo = (a - (hi - part)) + (b - part);
    return hi;
}

static double one_minus_u(const chi2_term *term, double margin) {
    return term->gap + term->ratio * margin;
}

/* Derivative and curvature at point->s. Where u < -1 the form b/(1-u) - b is used and the b are
 * added to x first: near the lower end of the support x + sum b is small and must keep its digits.
 * The derivative is a difference that enters log p times s, so its sum is kept in twice the
 * precision. */
static void measure_point(const chi2_sum *whole, chi2_point *point) {
    double s = point->s, sum = 0, rest = 0, lo;
    double pole = point->unit / s, curvature = pole * pole;
    int i = 0;
    for (; i < whole->n; i++) {
        const chi2_term *term = &whole->term[i];
        double m = one_minus_u(term, point->margin);
        if (m <= 2) break;
        sum = sum_exactly(sum, term->b / m, &lo);
        rest += lo;
        curvature += term->w * (point->unit / m) * (point->unit / m);
    }
    sum = sum_exactly(sum, -whole->term[i].before_hi, &lo);
    rest += lo - whole->term[i].before_lo;
    sum = sum_exactly(sum, -whole->x, &lo);
    rest += lo;
    for (; i < whole->n; i++) {
        const chi2_term *term = &whole->term[i];
        double m = one_minus_u(term, point->margin);
        sum = sum_exactly(sum, s * (term->w / m), &lo);
        rest += lo;
        curvature += term->w * (point->unit / m) * (point->unit / m);
    }
    sum = sum_exactly(sum, s * whole->extra, &lo);
    point->derivative = sum + (rest + lo);
    point->curvature = curvature + whole->extra * point->unit * point->unit;
}

/* The point at log distance "log_t" on the side of "sign": t from 0 to infinity covers the whole
 * half axis, up to the branch point on the right. */
static void place_point(const chi2_sum *sum, int sign, double log_t, chi2_point *point) {
    double t = exp(log_t);
    if (sign > 0) {
        point->margin = 1 / (1 + sum->c_max * t);
        point->s = t * point->margin;
        point->unit = point->s * point->margin;
    } else {
        point->margin = 1 + sum->c_max * t;
        point->s = -t;
        point->unit = t;
    }
    measure_point(sum, point);
}

/* Solves K'(s) - x = 1/s in log t: Newton's method while it shortens its steps, else bisection, or
 * growing strides as long as the root is not yet enclosed. The contour may miss the saddle by a
 * little; what counts is the remaining derivative in units of the saddle's width. */
static void find_saddle(const chi2_sum *sum, int sign, chi2_point *point) {
    const double limit = 700;
    double low = -limit, high = limit, at = 0, stride = 1, step = limit;
    for (int i = 0; i < 200; i++) {
        place_point(sum, sign, at, point);
        double excess = sign * (point->derivative - 1 / point->s) * point->unit; /* grows with t */
        double curvature = point->curvature;
        if (fabs(excess) <= 1e-4 * sqrt(curvature) && isfinite(curvature)) return;
        if (excess > 0) {
            high = at;
        } else {
            low = at;
        }
        double newton = -excess / curvature;
        if (fabs(newton) < step / 2 && at + newton > low && at + newton < high) {
            step = fabs(newton);
            at += newton;
            continue;
        }
        double next = (low + high) / 2;
        if (low == -limit || high == limit) {
            next = excess > 0 ? fmax(at - stride, -limit) : fmin(at + stride, limit);
            stride *= 2;
        }
        step = fabs(next - at);
        if (step <= 1e-15 * fabs(at)) return;
        at = next;
    }
}

/* k(u)/u for k(u) = log(1-u) + u/(1-u) = sum_{j>=2} (1 - 1/j) u^j, which is what a chi-square adds
 * to s K'(s) - K(s), divided by N/2. "m" is 1 - u. */
static double exponent_over_u(double u, double m) {
    if (fabs(u) > 0.5) return (log(m) + u / m) / u;
    double sum = 0, power = u;
    for (int j = 2; j < 64; j++) {
        sum += power * (1 - 1.0 / j);
        power *= u;
        if (fabs(power) < 1e-18 * fabs(sum)) break;
    }
    return sum;
}

/* K(s) - s K'(s) at the point: a sum of terms that are all <= 0. */
static double tilted_exponent(const chi2_sum *whole, const chi2_point *point) {
    double s = point->s, sum = 0, carry = 0;
    for (int i = 0; i < whole->n; i++) {
        const chi2_term *term = &whole->term[i];
        double value =
            term->b * (s * exponent_over_u(s * term->c, one_minus_u(term, point->margin)));
        double lo;
        sum = sum_exactly(sum, value, &lo);
        carry += lo;
    }
    return -(sum + whole->extra * s / 2 * s) - (isfinite(carry) ? carry : 0);
}

/* (-log(1-u) - u)/u^2 for complex u off the cut [1, infinity). */
static complex_pair log_remainder(double re, double im) {
    double square = re * re + im * im;
    complex_pair q;
    if (square < SERIES_RADIUS * SERIES_RADIUS) {
        double power_re = 1, power_im = 0, size = 1;
        double step = fabs(re) + fabs(im);
        q.re = 0.5;
        q.im = 0;
        for (int j = 3; j < SERIES_TERMS + 2; j++) {
            double next = power_re * re - power_im * im;
            power_im = power_re * im + power_im * re;
            power_re = next;
            q.re += power_re / j;
            q.im += power_im / j;
            size *= step;
            if (size < 1e-18) break;
        }
        return q;
    }
    double top_re = -0.5 * log((1 - re) * (1 - re) + im * im) - re;
    double top_im = atan2(im, 1 - re) - im;
    /* divided by u^2 = (a + ib), a^2 + b^2 = |u|^4 */
    double a = (re - im) * (re + im), b = 2 * re * im, scale = 1 / (square * square);
    q.re = (top_re * a + top_im * b) * scale;
    q.im = (top_im * a - top_re * b) * scale;
    return q;
}

/* The integrand on the contour, with all terms from "n_direct" on, whose C_l z is small everywhere
 * on it, gathered into one power series in "reach" z. */
typedef struct chi2_contour {
    const chi2_sum *sum;
    double normal; /* v R^2 */
    double linear; /* g R */
    double pole;   /* R/s0 */
    int n_direct;
    double reach;
    double moment[SERIES_TERMS]; /* sum V_l (C_l/reach)^j/(j + 2) */
} chi2_contour;

/* The imaginary part of exp(...)/(1 + z R/s0) dz/dt at parameter t; *size is log |exp(...)|. */
static double integrand(const chi2_contour *contour, double t, double *size) {
    double z_im = sinh(t), half = sinh(t / 2);
    double z_re = CONTOUR_COTANGENT * 2 * half * half;
    complex_pair sum = {0, 0};
    if (contour->n_direct < contour->sum->n) {
        double re = contour->reach * z_re, im = contour->reach * z_im;
        for (int j = SERIES_TERMS - 1; j >= 0; j--) {
            double next = sum.re * re - sum.im * im + contour->moment[j];
            sum.im = sum.re * im + sum.im * re;
            sum.re = next;
        }
    }
    for (int i = 0; i < contour->n_direct; i++) {
        const chi2_term *term = &contour->sum->term[i];
        complex_pair q = log_remainder(term->cz * z_re, term->cz * z_im);
        sum.re += term->vz * q.re;
        sum.im += term->vz * q.im;
    }
    sum.re += contour->normal / 2;
    double square_re = (z_re - z_im) * (z_re + z_im), square_im = 2 * z_re * z_im;
    double log_size = sum.re * square_re - sum.im * square_im + contour->linear * z_re;
    double angle = sum.re * square_im + sum.im * square_re + contour->linear * z_im;
    *size = log_size;

    double step_re = CONTOUR_COTANGENT * z_im, step_im = cosh(t);
    double pole_re = 1 + contour->pole * z_re, pole_im = contour->pole * z_im;
    double pole_square = pole_re * pole_re + pole_im * pole_im;
    double ratio_re = (step_re * pole_re + step_im * pole_im) / pole_square;
    double ratio_im = (step_im * pole_re - step_re * pole_im) / pole_square;
    return exp(log_size) * (ratio_im * cos(angle) + ratio_re * sin(angle));
}

/* Walks outwards until the integrand has died, then gathers the terms that are small up to there.
 */
static double end_contour(chi2_contour *contour) {
    const chi2_sum *sum = contour->sum;
    double end = 1, size;
    contour->n_direct = sum->n;
    for (; end < 40; end += 0.5) {
        integrand(contour, end, &size);
        if (size + end < DECAY) break; /* "end" for the growth of |dz/dt| */
    }
    double far = cosh(end); /* |z| <= cosh t, as cot < 1 */
    int first = sum->n;
    while (first > 0 && sum->term[first - 1].cz * far < SERIES_RADIUS) first--;
    contour->n_direct = first;
    if (first == sum->n) return end;
    contour->reach = 0;
    for (int i = first; i < sum->n; i++) {
        contour->reach = fmax(contour->reach, sum->term[i].cz);
    }
    for (int j = 0; j < SERIES_TERMS; j++) contour->moment[j] = 0;
    for (int i = first; i < sum->n; i++) {
        const chi2_term *term = &sum->term[i];
        double ratio = contour->reach > 0 ? term->cz / contour->reach : 0, power = term->vz;
        for (int j = 0; j < SERIES_TERMS && power > 0; j++) {
            contour->moment[j] += power / (j + 2);
            power *= ratio;
        }
    }
    return end;
}

/* 1/pi times the integral over the upper half of the contour, by the trapezoid rule; the step is
 * halved until two values agree. An analytic integrand gains digits twofold with each halving, so
 * the last value is far better than the agreement. */
static zonal_status integrate(chi2_contour *contour, double *value) {
    double end = end_contour(contour), size;
    int n = 16;
    double sum = integrand(contour, 0, &size) / 2;
    for (int k = 1; k <= n; k++) sum += integrand(contour, end * k / n, &size);
    double last = sum * end / n;
    for (; n <= 1 << 14; n *= 2) {
        for (int k = 0; k < n; k++) sum += integrand(contour, end * (2 * k + 1) / (2 * n), &size);
        *value = sum * end / (2 * n);
        if (fabs(*value - last) <= 1e-12 * fabs(*value)) {
            *value /= 3.14159265358979323846;
            return ZONAL_OK;
        }
        last = *value;
    }
    return ZONAL_FAIL(ZONAL_NUMERIC, "the tail integral of %d chi-squares did not converge",
                      contour->sum->n);
}

/* The tail on the side of "sign", as log p: P(T > x) for 1, P(T <= x) for -1. */
static zonal_status tail_of(const chi2_sum *sum, int sign, double *log_p) {
    chi2_point point = {0};
    find_saddle(sum, sign, &point);
    /* K(s0) - s0 x = [K(s0) - s0 K'(s0)] + s0 g; the second part is about 1 */
    double exponent = tilted_exponent(sum, &point);
    if (isfinite(exponent)) exponent += point.s * point.derivative;
    if (exponent < EXPONENT_ALONE) {
        *log_p = exponent;
        return ZONAL_OK;
    }
    double width = point.unit / sqrt(point.curvature);
    chi2_contour contour = {.sum = sum,
                            .normal = sum->extra * width * width,
                            .linear = point.derivative * width,
                            .pole = width / point.s};
    for (int i = 0; i < sum->n; i++) {
        chi2_term *term = &sum->term[i];
        double scale = width / one_minus_u(term, point.margin);
        term->cz = term->c * scale;
        term->vz = term->b * scale * term->cz;
    }
    double value = 0;
    ZONAL_TRY(integrate(&contour, &value));
    *log_p = exponent + log(fabs(contour.pole) * value);
    if (isnan(*log_p)) {
        return ZONAL_FAIL(ZONAL_NUMERIC, "the tail of %d chi-squares is not a number", sum->n);
    }
    return ZONAL_OK;
}

/* Checks the arguments and finds the power of two that brings T to a standard deviation in [1, 2):
 * scaling by it is exact, and then nothing that matters over- or underflows. */
static zonal_status choose_scale(int n_terms, const double *weight, const double *freedom,
                                 double extra_variance, double x, int *shift) {
    if (n_terms < 0 || (n_terms > 0 && (!weight || !freedom))) {
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a sum of %d chi-squares has no distribution", n_terms);
    }
    if (isnan(x))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the tail of the distribution at x = NaN was asked for");
    if (!(extra_variance >= 0 && isfinite(extra_variance))) {
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the extra variance must be finite and at least 0, got %g",
                          extra_variance);
    }
    double largest = sqrt(extra_variance);
    for (int l = 0; l < n_terms; l++) {
        if (!(weight[l] >= 0 && isfinite(weight[l]))) {
            return ZONAL_FAIL(ZONAL_ARGUMENT, "weight %d must be finite and at least 0, got %g", l,
                              weight[l]);
        }
        if (!(freedom[l] >= 1 && isfinite(freedom[l]))) {
            return ZONAL_FAIL(ZONAL_ARGUMENT, "freedom %d must be finite and at least 1, got %g", l,
                              freedom[l]);
        }
        largest = fmax(largest, weight[l] * sqrt(2 / freedom[l]));
    }
    if (!(largest > 0)) {
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the distribution needs one positive weight or extra variance");
    }
    double sum = 0;
    for (int l = 0; l < n_terms; l++) {
        double part = weight[l] * sqrt(2 / freedom[l]) / largest;
        sum += part * part;
    }
    double part = sqrt(extra_variance) / largest;
    *shift = -ilogb(largest * sqrt(sum + part * part));
    return ZONAL_OK;
}

/* sum->term has room for n_terms + 1. */
static void fill_sum(int n_terms, const double *weight, const double *freedom, int shift,
                     chi2_sum *sum) {
    for (int l = 0; l < n_terms; l++) {
        chi2_term *term = &sum->term[sum->n];
        term->b = scalbn(weight[l], shift);
        if (!(term->b > 0)) continue;
        term->c = 2 * (term->b / freedom[l]);
        term->w = term->b * term->c;
        sum->n++;
    }
    qsort(sum->term, (size_t)sum->n, sizeof *sum->term, compare_terms);
    sum->c_max = sum->n > 0 ? sum->term[0].c : 0;
    double hi = 0, lo = 0;
    for (int i = 0; i <= sum->n; i++) {
        chi2_term *term = &sum->term[i];
        term->before_hi = hi;
        term->before_lo = lo;
        if (i == sum->n) break;
        term->ratio = term->c / sum->c_max;
        term->gap = (sum->c_max - term->c) / sum->c_max;
        double rest;
        hi = sum_exactly(hi, term->b, &rest);
        lo += rest;
    }
}

zonal_status zonal__weighted_chi2_tail(int n_terms, const double *weight, const double *freedom,
                                       double extra_variance, double x, double *p_upper,
                                       double *log_p_upper, double *p_lower) {
    *p_upper = *log_p_upper = *p_lower = NAN;
    int shift = 0;
    ZONAL_TRY(choose_scale(n_terms, weight, freedom, extra_variance, x, &shift));
    chi2_sum sum = {.extra = scalbn(extra_variance, 2 * shift), .x = scalbn(x, shift)};
    ZONAL_TRY(ZONAL_NEW(&sum.term, (int64_t)n_terms + 1, "the terms of a sum of chi-squares"));
    fill_sum(n_terms, weight, freedom, shift, &sum);

    double lo;
    double above_end = sum_exactly(sum.x, sum.term[sum.n].before_hi, &lo);
    above_end += lo + sum.term[sum.n].before_lo;
    double log_p = -INFINITY; /* of the tail on the side of x: nothing lies beyond an infinite x */
    int sign = sum.x >= 0 ? 1 : -1;
    zonal_status status = ZONAL_OK;
    if (isfinite(sum.x) && (sum.extra > 0 || above_end > 0)) status = tail_of(&sum, sign, &log_p);
    zonal__free(sum.term);
    if (status != ZONAL_OK) return status;

    double p = exp(log_p);
    *p_upper = sign > 0 ? p : 1 - p;
    *p_lower = sign > 0 ? 1 - p : p;
    *log_p_upper = sign > 0 ? log_p : log1p(-p) + 0.0; /* 0, not -0, where p is 0 */
    return ZONAL_OK;
}
