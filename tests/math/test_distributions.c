/*
 * The chi-square mixture, the chi-square and the caps: against the golden values of
 * golden/make_distributions.py, and by what must hold between them.
 */
#include <stdlib.h>

#include "core/random.h"
#include "failing_alloc.h"
#include "golden/distributions.h"
#include "math/distributions.h"
#include "math/weighted_chi2.h"
#include "test.h"

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])
#define PI           3.14159265358979323846

enum { MANY = 4000 };
static double many_weight[MANY], many_freedom[MANY];

/* The spectrum of the chordal kernel on the circle, up to a factor: 0.6/l^2, sum 0.987. */
static void fill_squares(int n) {
    for (int l = 1; l <= n; l++) {
        many_weight[l - 1] = 0.6 / ((double)l * l);
        many_freedom[l - 1] = 2;
    }
}

static zonal__tail tail_of(int n, const double *weight, const double *freedom, double extra,
                           double x) {
    zonal__tail tail = {NAN, NAN, NAN};
    CHECK_OK(zonal__weighted_chi2_tail(n, weight, freedom, extra, x, &tail.upper, &tail.log_upper,
                                       &tail.lower));
    return tail;
}

static zonal__tail tail_of_distribution(const golden_distribution *distribution, double x) {
    if (distribution->weight)
        return tail_of(distribution->n, distribution->weight, distribution->freedom,
                       distribution->extra, x);
    fill_squares(distribution->n);
    return tail_of(distribution->n, many_weight, many_freedom, 0, x);
}

/* Relative error, with NaN the largest of all. */
static double relative(double got, double want) {
    if (got == want) return 0;
    double error = fabs(got - want) / fabs(want);
    return isnan(error) ? INFINITY : error;
}

/* ---- Golden values --------------------------------------------------------------------------- */

/* The smaller tail to 1e-12 relative at p = 1 .. 1e-298: the header's figure with a margin. The
 * error of log p is bounded where p has no digits to show. */
static double tail_error(zonal__tail got, const golden_point *want) {
    double small_got = want->upper < want->lower ? got.upper : got.lower;
    double small_want = want->upper < want->lower ? want->upper : want->lower;
    double error = relative(got.log_upper, want->log_upper);
    if (small_want > 0) error = fmax(error, relative(small_got, small_want));
    /* the larger tail is one minus the smaller */
    return fmax(error, fabs(got.upper - want->upper) + fabs(got.lower - want->lower));
}

static void test_weighted_golden(void) {
    double worst = 0;
    for (int i = 0; i < COUNT(golden_points); i++) {
        const golden_point *point = &golden_points[i];
        const golden_distribution *distribution = &golden_distributions[point->distribution];
        double error = tail_error(tail_of_distribution(distribution, point->x), point);
        CHECK_MSG(error <= 1e-12, "%s at x = %.17g: off by %.3g at p = %g", distribution->name,
                  point->x, error, point->upper);
        worst = fmax(worst, error);
    }
    printf("# worst relative error of %d tails: %.2g\n", COUNT(golden_points), worst);
}

static void test_chi2_golden(void) {
    double worst = 0;
    int n = 0;
    for (int i = 0; i < COUNT(golden_points); i++) {
        const golden_point *point = &golden_points[i];
        const golden_distribution *distribution = &golden_distributions[point->distribution];
        if (distribution->n != 1 || distribution->extra > 0) continue;
        double error = tail_error(zonal__chi2_tail(distribution->freedom[0], point->x), point);
        CHECK_MSG(error <= 1e-12, "chi2(%g) at %.17g: off by %.3g at p = %g",
                  distribution->freedom[0], point->x, error, point->upper);
        worst = fmax(worst, error);
        n++;
    }
    CHECK(n > 50);
    printf("# worst relative error of %d chi-square tails: %.2g\n", n, worst);
}

static void test_cap_golden(void) {
    double worst = 0, worst_log = 0;
    for (int i = 0; i < COUNT(golden_caps); i++) {
        const golden_cap *cap = &golden_caps[i];
        double log_share = zonal__cap_log_fraction(cap->d, cap->angle);
        double log_error = relative(log_share, cap->log_share);
        CHECK_MSG(log_error <= 1e-13, "log cap(%d, %g) = %.17g, want %.17g", cap->d, cap->angle,
                  log_share, cap->log_share);
        worst_log = fmax(worst_log, log_error);
        double share = zonal__cap_fraction(cap->d, cap->angle);
        if (cap->share == 0) {
            CHECK(share < 1e-300);
            continue;
        }
        double error = relative(share, cap->share);
        CHECK_MSG(error <= 1e-12, "cap(%d, %g) = %.17g, want %.17g", cap->d, cap->angle, share,
                  cap->share);
        worst = fmax(worst, error);
    }
    printf("# worst relative error of %d caps: %.2g, of their logarithms: %.2g\n",
           COUNT(golden_caps), worst, worst_log);
}

static void test_nearest_golden(void) {
    double worst = 0;
    for (int i = 0; i < COUNT(golden_nearests); i++) {
        const golden_nearest *want = &golden_nearests[i];
        double error = relative(zonal__expected_nearest_angle(want->n, want->d), want->angle);
        CHECK_MSG(error <= 1e-12, "nearest of %d at d = %d: off by %.3g", want->n, want->d, error);
        worst = fmax(worst, error);
    }
    printf("# worst relative error of %d nearest angles: %.2g\n", COUNT(golden_nearests), worst);
}

/* ---- The mathematics ------------------------------------------------------------------------- */

/* chi2(N) = chi2(N1) + chi2(N2), so a term may be cut into terms with the same b/N without changing
 * the distribution; and neither may the order of the terms nor the unit of T. */
static void test_split_order_unit(void) {
    const double weight[] = {0.6, 0.3, 0.1}, freedom[] = {4, 9, 1e5};
    const double split_weight[] = {0.025, 0.1, 0.15, 0.2, 0.45, 0.075};
    const double split_freedom[] = {25000, 3, 1, 6, 3, 75000};
    const double unit = 1048576.0 * 3;
    for (double x = -0.85; x < 90; x += x < 2 ? 0.11 : 7) {
        zonal__tail whole = tail_of(3, weight, freedom, 1e-4, x);
        zonal__tail split = tail_of(6, split_weight, split_freedom, 1e-4, x);
        double big_weight[3];
        for (int l = 0; l < 3; l++) big_weight[l] = weight[l] * unit;
        zonal__tail big = tail_of(3, big_weight, freedom, 1e-4 * unit * unit, x * unit);
        CHECK(relative(split.upper, whole.upper) < 1e-12);
        CHECK(relative(split.lower, whole.lower) < 1e-12);
        CHECK(relative(big.upper, whole.upper) < 1e-12);
        CHECK(relative(big.lower, whole.lower) < 1e-12);
    }
}

static void test_complement_and_monotone(void) {
    for (int i = 0; i < COUNT(golden_distributions); i++) {
        const golden_distribution *distribution = &golden_distributions[i];
        double sigma = distribution->extra, last_upper = 1, last_log = 0, last_lower = 0;
        if (!distribution->weight) fill_squares(distribution->n);
        for (int l = 0; l < distribution->n; l++) {
            double b = distribution->weight ? distribution->weight[l] : many_weight[l];
            sigma += 2 * b * b / (distribution->weight ? distribution->freedom[l] : 2);
        }
        sigma = sqrt(sigma);
        for (double z = -45; z < 1500; z += z < 6 ? 0.25 : z / 16) {
            zonal__tail tail = tail_of_distribution(distribution, z * sigma);
            CHECK_CLOSE(tail.upper + tail.lower, 1, 2.3e-16);
            CHECK(tail.upper >= 0 && tail.lower >= 0 && tail.log_upper <= 0);
            int order =
                tail.upper <= last_upper && tail.log_upper <= last_log && tail.lower >= last_lower;
            CHECK_MSG(order, "%s is not monotone at %g sigma", distribution->name, z);
            if (tail.upper > 0) CHECK(relative(exp(tail.log_upper), tail.upper) < 1e-12);
            last_upper = tail.upper;
            last_log = tail.log_upper;
            last_lower = tail.lower;
        }
    }
}

/* Without chi-squares the distribution is normal; with a freedom of 1e300 it is normal too. */
static void test_normal_limits(void) {
    const double one = 1, huge = 1e300;
    for (double z = -37; z <= 37; z += 0.5) {
        double want = 0.5 * erfc(z / sqrt(2.0));
        CHECK(relative(tail_of(0, NULL, NULL, 4, 2 * z).upper, want) < 1e-12);
        CHECK(relative(tail_of(1, &one, &huge, 0, z * sqrt(2e-300)).upper, want) < 1e-12);
        CHECK(relative(zonal__chi2_tail(huge, z * sqrt(2e-300)).upper, want) < 1e-12);
    }
}

/* Beyond the range of double: log p against closed forms, N = 2 exactly, the normal by its series.
 */
static void test_log_far(void) {
    const double one = 1, two = 2;
    for (double x = 1; x < 1e300; x *= 37) {
        CHECK(relative(tail_of(1, &one, &two, 0, x).log_upper, -1 - x) < 1e-14);
        CHECK(relative(zonal__chi2_tail(2, x).log_upper, -1 - x) < 1e-14);
    }
    for (double z = 40; z < 1e9; z *= 3) {
        double series = 1 - 1 / (z * z) + 3 / (z * z * z * z);
        double want = -z * z / 2 - log(z * sqrt(2 * PI)) + log(series);
        CHECK(relative(tail_of(0, NULL, NULL, 1, z).log_upper, want) < 1e-11);
    }
    CHECK(tail_of(0, NULL, NULL, 1, 1e200).log_upper == -INFINITY);
}

static void test_ends(void) {
    const double weight[] = {0.7, 0.2, 0.1}, freedom[] = {2, 3, 1};
    double end = -(0.7 + 0.2 + 0.1);
    const double outside[] = {end - 1e-15, -1.5, -1e300, -INFINITY};
    for (int i = 0; i < COUNT(outside); i++) {
        zonal__tail tail = tail_of(3, weight, freedom, 0, outside[i]);
        CHECK(tail.upper == 1 && tail.log_upper == 0 && tail.lower == 0);
    }
    zonal__tail above = tail_of(3, weight, freedom, 0, INFINITY);
    CHECK(above.upper == 0 && above.log_upper == -INFINITY && above.lower == 1);
    const double one = 1;
    CHECK(tail_of(1, &one, &one, 0, -1).lower == 0);
    CHECK(tail_of(1, &one, &one, 0, -1 + 1e-16).lower > 0);
    /* with a normal part there is no end */
    CHECK(tail_of(3, weight, freedom, 0.01, -1.5).lower > 0);
    /* a weight of zero is no term */
    const double holes[] = {0.7, 0, 0.2, 0.1, 0}, hole_freedom[] = {2, 7, 3, 1, 1};
    CHECK(tail_of(5, holes, hole_freedom, 0, 1).upper == tail_of(3, weight, freedom, 0, 1).upper);

    CHECK(zonal__chi2_tail(3, -1).lower == 0 && zonal__chi2_tail(3, -2).upper == 1);
    CHECK(zonal__chi2_tail(3, INFINITY).upper == 0 && zonal__chi2_tail(3, -INFINITY).upper == 1);
    CHECK(isnan(zonal__chi2_tail(0, 1).upper) && isnan(zonal__chi2_tail(3, NAN).lower));
    CHECK(isnan(zonal__gamma_tail(1, -1).upper) && isnan(zonal__gamma_tail(NAN, 1).upper));
    CHECK_CLOSE(zonal__gamma_tail(1, 3).upper, exp(-3.0), 1e-16);
    CHECK(zonal__gamma_tail(2.5, 0).lower == 0);
}

static void test_arguments(void) {
    const double good[] = {1, 1}, bad_weight[] = {1, -1}, bad_freedom[] = {1, 0.5};
    const double nan_weight[] = {NAN, 1}, nothing[] = {0, 0}, endless[] = {INFINITY, 1};
    double p, q, r;
#define TAIL(n, b, m, v, x) zonal__weighted_chi2_tail(n, b, m, v, x, &p, &q, &r)
    CHECK_FAILS(TAIL(2, good, good, 0, NAN), ZONAL_ARGUMENT, "NaN");
    CHECK(isnan(p) && isnan(q) && isnan(r));
    CHECK_FAILS(TAIL(2, bad_weight, good, 0, 1), ZONAL_ARGUMENT, "weight 1");
    CHECK_FAILS(TAIL(2, nan_weight, good, 0, 1), ZONAL_ARGUMENT, "weight 0");
    CHECK_FAILS(TAIL(2, endless, good, 0, 1), ZONAL_ARGUMENT, "weight 0");
    CHECK_FAILS(TAIL(2, good, bad_freedom, 0, 1), ZONAL_ARGUMENT, "freedom 1");
    CHECK_FAILS(TAIL(2, good, nan_weight, 0, 1), ZONAL_ARGUMENT, "freedom 0");
    CHECK_FAILS(TAIL(2, good, good, -1, 1), ZONAL_ARGUMENT, "variance");
    CHECK_FAILS(TAIL(2, good, good, NAN, 1), ZONAL_ARGUMENT, "variance");
    CHECK_FAILS(TAIL(2, nothing, good, 0, 1), ZONAL_ARGUMENT, "positive");
    CHECK_FAILS(TAIL(0, NULL, NULL, 0, 1), ZONAL_ARGUMENT, "positive");
    CHECK_FAILS(TAIL(-1, good, good, 0, 1), ZONAL_ARGUMENT, "-1");
#undef TAIL
}

static zonal_status one_tail(void *context) {
    double p, q, r;
    (void)context;
    return zonal__weighted_chi2_tail(MANY, many_weight, many_freedom, 0, 1, &p, &q, &r);
}

static void test_memory(void) {
    fill_squares(MANY);
    test_every_allocation("a tail", one_tail, NULL);
}

/* Mixtures drawn at random over all scales: always an answer, never NaN, and the tail at x + a
 * little never larger than the tail at x. */
static void test_random_mixtures(void) {
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, 1};
    for (uint32_t i = 0; i < 3000; i++) {
        double u[2], weight[24], freedom[24], sum = 0, variance = 0;
        uint32_t block = 0;
        zonal__random_uniform(&random, i, block++, u);
        int n = u[0] < 0.3 ? 1 : (int)(24 * u[1]) + 1;
        zonal__random_uniform(&random, i, block++, u);
        double spread = 20 * u[0], digits = u[1] < 0.5 ? 3 : 100 * u[1];
        for (int l = 0; l < n; l++) {
            zonal__random_uniform(&random, i, block++, u);
            weight[l] = exp(-spread * u[0]);
            freedom[l] = floor(pow(10, digits * u[1]));
            sum += weight[l];
        }
        for (int l = 0; l < n; l++) {
            weight[l] /= sum;
            variance += 2 * weight[l] * weight[l] / freedom[l];
        }
        zonal__random_uniform(&random, i, block++, u);
        double extra = u[0] < 0.5 ? 0 : variance * pow(10, 24 * u[1] - 16);
        double sigma = sqrt(variance + extra);
        zonal__random_uniform(&random, i, block++, u);
        double x = u[0] < 0.4   ? sigma * (10 * u[1] - 5)
                   : u[0] < 0.6 ? sigma * pow(10, 6 * u[1])
                   : u[0] < 0.8 ? -sigma * pow(10, 6 * u[1])
                                : -1 + pow(10, -16 * u[1]);
        zonal__tail tail = tail_of(n, weight, freedom, extra, x);
        zonal__tail after = tail_of(n, weight, freedom, extra, x + 1e-3 * sigma);
        int fine = tail.upper >= 0 && tail.lower >= 0 && tail.upper <= 1 && tail.lower <= 1 &&
                   tail.log_upper <= 0 && after.log_upper <= tail.log_upper + 1e-12 &&
                   after.lower >= tail.lower * (1 - 1e-12);
        CHECK_MSG(fine, "mixture %u of %d terms at %g sigma: p = %g, %g", i, n, x / sigma,
                  tail.upper, tail.lower);
    }
}

/* The share of simulated sums above x, for N = (1, 2, 3) and a normal part, within 5 standard
 * errors. */
static void test_simulation(void) {
    const double weight[] = {0.5, 0.3, 0.2}, freedom[] = {1, 2, 3}, extra = 0.04;
    const double at[] = {-0.8, -0.4, 0, 0.5, 2};
    enum { DRAWS = 100000 };
    int above[COUNT(at)] = {0};
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, 0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        double z[7], sum = 0;
        zonal__random_normal(&random, i, 7, z);
        sum += weight[0] * (z[0] * z[0] - 1);
        sum += weight[1] * ((z[1] * z[1] + z[2] * z[2]) / 2 - 1);
        sum += weight[2] * ((z[3] * z[3] + z[4] * z[4] + z[5] * z[5]) / 3 - 1);
        sum += sqrt(extra) * z[6];
        for (int k = 0; k < COUNT(at); k++) above[k] += sum > at[k];
    }
    for (int k = 0; k < COUNT(at); k++) {
        double p = tail_of(3, weight, freedom, extra, at[k]).upper;
        CHECK_CLOSE((double)above[k] / DRAWS, p, 5 * sqrt(p * (1 - p) / DRAWS));
    }
}

static void test_cap_properties(void) {
    for (int64_t d = 2; d <= 4096; d = d * 5 / 3 + 1) {
        double last = 0, last_log = -INFINITY;
        CHECK_CLOSE(zonal__cap_fraction(d, PI / 2), 0.5, 4e-15); /* PI is short by 1e-16 */
        CHECK(zonal__cap_fraction(d, 0) == 0 && zonal__cap_fraction(d, -1) == 0);
        CHECK(zonal__cap_fraction(d, PI) == 1 && zonal__cap_fraction(d, 4) == 1);
        CHECK(zonal__cap_log_fraction(d, 0) == -INFINITY && zonal__cap_log_fraction(d, 4) == 0);
        for (double angle = 0.01; angle < PI; angle += 0.01) {
            double share = zonal__cap_fraction(d, angle);
            double log_share = zonal__cap_log_fraction(d, angle);
            CHECK_CLOSE(share + zonal__cap_fraction(d, PI - angle), 1, 1e-13);
            CHECK_CLOSE(exp(log_share), share, 1e-12 * share);
            CHECK(share >= last && log_share >= last_log);
            last = share;
            last_log = log_share;
        }
    }
    CHECK(isnan(zonal__cap_fraction(1, 1)) && isnan(zonal__cap_log_fraction(3, NAN)));
    /* tiny caps: the area of a flat disc of dimension d - 1, in logarithms */
    double tiny = 1e-100, at_d = 4096;
    double want = (at_d - 1) * log(tiny) - log(at_d - 1) + lgamma(at_d / 2) -
                  lgamma((at_d - 1) / 2) - 0.5 * log(PI);
    CHECK_CLOSE(zonal__cap_log_fraction(4096, tiny), want, 1e-12 * fabs(want));
}

static void test_nearest_properties(void) {
    for (int64_t d = 2; d <= 4096; d = d * 3 + 1) {
        CHECK_CLOSE(zonal__expected_nearest_angle(2, d), PI / 2, 1e-13);
        double last = 2;
        for (int64_t n = 2; n <= 10000000; n *= 7) {
            double angle = zonal__expected_nearest_angle(n, d);
            CHECK(angle > 0 && angle < last);
            last = angle;
        }
    }
    CHECK(isnan(zonal__expected_nearest_angle(1, 3)));
    CHECK(isnan(zonal__expected_nearest_angle(10, 1)));
}

static const test_case tests[] = {{"weighted_golden", test_weighted_golden},
                                  {"chi2_golden", test_chi2_golden},
                                  {"cap_golden", test_cap_golden},
                                  {"nearest_golden", test_nearest_golden},
                                  {"split_order_unit", test_split_order_unit},
                                  {"complement_and_monotone", test_complement_and_monotone},
                                  {"normal_limits", test_normal_limits},
                                  {"log_far", test_log_far},
                                  {"ends", test_ends},
                                  {"arguments", test_arguments},
                                  {"memory", test_memory},
                                  {"random_mixtures", test_random_mixtures},
                                  {"simulation", test_simulation},
                                  {"cap_properties", test_cap_properties},
                                  {"nearest_properties", test_nearest_properties},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
