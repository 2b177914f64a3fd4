#include "math/distributions.h"

#include <math.h>

#define PI           3.14159265358979323846
#define HALF_LOG_2PI 0.91893853320467274178

/* ---- Quadrature ------------------------------------------------------------------------------ */

typedef double (*integrand_function)(double at, const void *context);

/* int_a^b f by the tanh-sinh rule with step halving; f is analytic on [a, b] and of one sign. The
 * number of right digits doubles with each halving, so 1e-9 between two values is full accuracy in
 * the last one. */
static double integrate(integrand_function f, const void *context, double a, double b) {
    const double reach = 3.25; /* weights beyond are below 1e-17 */
    double middle = (a + b) / 2, half = (b - a) / 2;
    double sum = f(middle, context), last = INFINITY, value = 0;
    double step = reach / 6;
    for (int level = 0; level < 9; level++, step /= 2) {
        for (int k = 1; k * step<reach * 1.0001; k += level> 0 ? 2 : 1) {
            double t = k * step, u = PI / 2 * sinh(t), c = cosh(u);
            double weight = cosh(t) / (c * c), offset = half * tanh(u);
            sum += weight * (f(middle + offset, context) + f(middle - offset, context));
        }
        value = sum * step * half * (PI / 2);
        if (fabs(value - last) <= 1e-10 * fabs(value)) break;
        last = value;
    }
    return value;
}

/* ---- Gamma ----------------------------------------------------------------------------------- */

/* log Gamma(a) - [(a - 1/2) log a - a + log(2 pi)/2]. tgamma for small a, since lgamma writes to a
 * global sign. */
static double stirling_rest(double a) {
    if (a < 16) return log(tgamma(a)) - ((a - 0.5) * log(a) - a + HALF_LOG_2PI);
    static const double coefficient[] = {1.0 / 12,   -1.0 / 360,        1.0 / 1260, -1.0 / 1680,
                                         1.0 / 1188, -691.0 / 360360.0, 1.0 / 156};
    double square = 1 / a / a, sum = 0;
    for (int i = 6; i >= 0; i--) sum = sum * square + coefficient[i];
    return sum / a;
}

/* (e - log(1 + e))/e for e > -1. */
static double log_defect_over(double e) {
    if (fabs(e) > 0.125) {
        long double wide = e; /* the difference costs up to four bits */
        return (double)((wide - log1pl(wide)) / wide);
    }
    double sum = 0, power = e;
    for (int j = 2; j < 24; j++) {
        sum += power / j;
        power *= -e;
    }
    return sum;
}

/* (exp(t) - 1 - t)/t^2 */
static double exp_remainder(double t) {
    if (fabs(t) > 0.5) return (expm1(t) - t) / t / t;
    double sum = 0;
    for (int j = 16; j >= 2; j--) sum = sum * t / (j + 1) + 1;
    return sum / 2;
}

/* The integrals of the header in the variable omega = tau * rate, with a rate that makes them of
 * order one at any a: exp(-linear omega - quadratic omega^2 e2(sign omega/rate)). */
typedef struct gamma_integrand {
    double linear, quadratic, scale;
} gamma_integrand;

static double gamma_exponent(const gamma_integrand *g, double omega) {
    return omega * (g->linear + g->quadratic * omega * exp_remainder(g->scale * omega));
}

static double gamma_value(double omega, const void *context) {
    return exp(-gamma_exponent(context, omega));
}

/* log Q(a, a (1 + e)) for e >= 0, log P(a, a (1 + e)) for -1 < e < 0. */
static double gamma_log_tail(double a, double e) {
    double rate = fmax(sqrt(a), a * fabs(e));
    double sign = e < 0 ? -1 : 1;
    gamma_integrand g = {a * fabs(e) / rate, a / rate * (1 + e) / rate, sign / rate};
    double end = 1;
    while (gamma_exponent(&g, end) < 45) end *= 1.5;
    double integral = integrate(gamma_value, &g, 0, end);
    return -(a * e) * log_defect_over(e) + (0.5 * log(a) - HALF_LOG_2PI - stirling_rest(a)) +
           log(integral / rate);
}

zonal__tail zonal__chi2_tail(double freedom, double excess) {
    zonal__tail tail = {NAN, NAN, NAN};
    if (!(freedom > 0) || isinf(freedom) || isnan(excess)) return tail;
    double log_p = -INFINITY;
    if (excess > -1 && !isinf(excess)) log_p = gamma_log_tail(freedom / 2, excess);
    double p = exp(log_p);
    int above = excess >= 0;
    tail.upper = above ? p : 1 - p;
    tail.log_upper = above ? log_p : log1p(-p) + 0.0; /* 0, not -0, where p is 0 */
    tail.lower = above ? 1 - p : p;
    return tail;
}

zonal__tail zonal__gamma_tail(double a, double x) {
    if (!(a > 0 && x >= 0)) return (zonal__tail){NAN, NAN, NAN};
    return zonal__chi2_tail(2 * a, (x - a) / a);
}

/* ---- Caps ------------------------------------------------------------------------------------ */

/* log of 1/(a Beta(a, b)) for a >= b: Gamma(a+b)/Gamma(a) by Stirling's formula with its logarithms
 * taken together, so that the large parts cancel before they are rounded. */
static double log_beta_factor(double a, double b) {
    double ratio = (a - 0.5) * log1p(b / a) + b * log(a + b) - b;
    ratio += stirling_rest(a + b) - stirling_rest(a);
    double log_gamma_b = (b - 0.5) * log(b) - b + HALF_LOG_2PI + stirling_rest(b);
    return ratio - log_gamma_b - log(a);
}

/* The continued fraction of I(x; a, b), DLMF 8.17.22, evaluated forwards (Lentz and Thompson);
 * quick for x < (a+1)/(a+b+2). */
static double beta_fraction(double a, double b, double x) {
    double value = 1, numerator = 1, denominator = 0;
    for (int j = 1; j < 100000; j++) {
        int half = j / 2;
        double m = half;
        double d = j % 2 ? -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
                         : m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        numerator = 1 + d / numerator;
        denominator = 1 / (1 + d * denominator);
        double factor = numerator * denominator;
        value *= factor;
        if (fabs(factor - 1) < 1e-16) break;
    }
    return 1 / value;
}

/* The share of the cap, or its logarithm, for d >= 3 and 0 < angle <= pi/2. */
static double half_cap(int64_t d, double angle, int want_log) {
    double a = (double)(d - 1) / 2, sine = sin(angle), cosine = cos(angle);
    double log_sine = sine < 0.7 ? log(sine) : 0.5 * log1p(-cosine * cosine);
    double factor = log_beta_factor(a, 0.5) + 2 * a * log_sine;
    if (sine * sine < (a + 1) / (a + 2.5)) {
        double log_share = factor + log(0.5 * cosine * beta_fraction(a, 0.5, sine * sine));
        return want_log ? log_share : exp(log_share);
    }
    /* 1 - I(cos^2; 1/2, a): 1/(b Beta) = a/b times the factor of 1/(a Beta) */
    double rest = exp(factor) * 2 * a * cosine * beta_fraction(0.5, a, cosine * cosine);
    return want_log ? log(0.5 - 0.5 * rest) : 0.5 - 0.5 * rest;
}

double zonal__cap_fraction(int64_t d, double angle) {
    if (d < 2 || isnan(angle)) return NAN;
    if (angle <= 0) return 0;
    if (angle >= PI) return 1;
    if (d == 2) return angle / PI;
    if (d == 3) return sin(angle / 2) * sin(angle / 2);
    return angle <= PI / 2 ? half_cap(d, angle, 0) : 1 - half_cap(d, PI - angle, 0);
}

double zonal__cap_log_fraction(int64_t d, double angle) {
    if (d < 2 || isnan(angle)) return NAN;
    if (angle <= 0) return -INFINITY;
    if (angle >= PI) return 0;
    if (angle > PI / 2) return log1p(-zonal__cap_fraction(d, PI - angle)) + 0.0;
    if (d == 2) return log(angle / PI);
    return half_cap(d, angle, 1);
}

/* ---- The nearest of n points ----------------------------------------------------------------- */

typedef struct empty_cap {
    double others; /* n - 1 */
    int64_t d;
} empty_cap;

/* log of the probability that the cap holds none of the others. */
static double log_empty(const empty_cap *cap, double angle) {
    double log_outside = angle > PI / 2 ? zonal__cap_log_fraction(cap->d, PI - angle)
                                        : log1p(-zonal__cap_fraction(cap->d, angle));
    return cap->others * log_outside;
}

static double empty_value(double angle, const void *context) {
    return exp(log_empty(context, angle));
}

/* An angle where log_empty crosses "level", from below (side 0) or above (side 1). */
static double find_angle(const empty_cap *cap, double level, int side) {
    double bound[2] = {0, PI};
    for (int i = 0; i < 40; i++) {
        double middle = (bound[0] + bound[1]) / 2;
        bound[log_empty(cap, middle) > level ? 0 : 1] = middle;
    }
    return bound[side];
}

double zonal__expected_nearest_angle(int64_t n, int64_t d) {
    if (n < 2 || d < 2) return NAN;
    if (d == 2) return PI / (double)n;
    empty_cap cap = {(double)(n - 1), d};
    double start = find_angle(&cap, -1e-17, 0), end = find_angle(&cap, -45, 1);
    return start + integrate(empty_value, &cap, start, end);
}
