#include "uniformity/battery.h"

#include <math.h>

#include "math/harmonics.h"

static const double NARROWEST =
    0.7; /* of log(d)/d: below, the limit distribution's tail is wrong */

enum { FIRST_PAIR_DEGREE = 3 };

static double critical_time(const zonal__battery *battery) {
    return log((double)battery->problem.dim) / (double)battery->problem.dim;
}

/* P_l(c) for one degree. */
static long double degree_value(const void *context, long double c) {
    const zonal__degree *degree = context;
    long double a[ZONAL_UNIFORMITY_DEGREES + 1] = {0};
    a[degree->l] = 1;
    return zonal__series(degree->l, degree->l + 1, a, degree->d, c);
}

static zonal_status degree_sample(const void *context, long double c, long double *out) {
    *out = degree_value(context, c);
    return ZONAL_OK;
}

static zonal_status add_moment_test(zonal__battery *battery, const char *name, int l) {
    zonal__battery_test *test = &battery->test[battery->tests++];
    test->name = name;
    return zonal__null_of_degree(l, battery->problem.dim, battery->problem.rows, &test->null);
}

static zonal_status add_kernel(zonal__battery *battery, const char *name,
                               zonal_discrepancy discrepancy, zonal_kernel_spec spec) {
    zonal__battery_test *test = &battery->test[battery->tests++];
    test->name = name;
    test->narrow = spec.family == ZONAL_FAMILY_HEAT &&
                   spec.parameter.factor < NARROWEST * critical_time(battery) * (1 - 1e-12);
    ZONAL_TRY(zonal_kernel_create(&spec, battery->problem.dim, &test->kernel));
    /* Always the double fit: T of a narrow kernel is a sum of tiny numbers. */
    ZONAL_TRY(
        zonal__profile_init(test->kernel, discrepancy, ZONAL_PRECISION_DOUBLE, &test->profile));
    ZONAL_TRY(zonal__null_of_kernel(test->kernel, discrepancy, battery->problem.rows, &test->null));
    battery->psi[battery->tests - 3] = test->profile.psi;
    return ZONAL_OK;
}

static zonal_status add_kernels(zonal__battery *battery, double t) {
    double critical = critical_time(battery);
    zonal_kernel_spec chordal = {.family = ZONAL_FAMILY_CHORDAL},
                      poisson = {.family = ZONAL_FAMILY_POISSON};
    zonal_kernel_spec induced = {.family = ZONAL_FAMILY_INDUCED},
                      heat = {.family = ZONAL_FAMILY_HEAT};
    ZONAL_TRY(add_kernel(battery, "gine", ZONAL_DISCREPANCY_MMD, chordal));
    ZONAL_TRY(add_kernel(battery, "poisson", ZONAL_DISCREPANCY_MMD, poisson));
    heat.parameter.factor = 0.7 * critical;
    ZONAL_TRY(add_kernel(battery, "heat-0.7", ZONAL_DISCREPANCY_MMD, heat));
    heat.parameter.factor = critical;
    ZONAL_TRY(add_kernel(battery, "heat-1", ZONAL_DISCREPANCY_MMD, heat));
    heat.parameter.factor = 1.4 * critical;
    ZONAL_TRY(add_kernel(battery, "heat-1.4", ZONAL_DISCREPANCY_MMD, heat));
    heat.parameter.factor = critical;
    ZONAL_TRY(add_kernel(battery, "ksd", ZONAL_DISCREPANCY_KSD, heat));
    ZONAL_TRY(add_kernel(battery, "induced", ZONAL_DISCREPANCY_MMD, induced));
    heat.parameter.factor = t;
    if (t > 0) ZONAL_TRY(add_kernel(battery, "heat-t", ZONAL_DISCREPANCY_MMD, heat));
    return ZONAL_OK;
}

static zonal_status add_degrees(zonal__battery *battery) {
    for (int i = 0; i < ZONAL__BATTERY_DEGREES; i++) {
        zonal__degree *degree = &battery->degree[i];
        degree->l = FIRST_PAIR_DEGREE + i;
        degree->d = battery->problem.dim;
        ZONAL_TRY(zonal__fit_create(degree_sample, degree, -1, 2e-17, 2e-15, 64, &degree->fit));
        battery->psi[battery->tests - 2 + i] =
            (zonal__pair_function){.value = degree_value, .context = degree, .fit = degree->fit};
    }
    return ZONAL_OK;
}

zonal_status zonal__battery_init(const zonal__problem *problem, int pairs, double t,
                                 zonal__battery *battery) {
    *battery = (zonal__battery){.problem = *problem};
    ZONAL_TRY(add_moment_test(battery, "rayleigh", 1));
    ZONAL_TRY(add_moment_test(battery, "bingham", 2));
    if (pairs) {
        ZONAL_TRY(add_kernels(battery, t));
        ZONAL_TRY(add_degrees(battery));
    }
    return zonal__survey_init(problem, battery->psi,
                              pairs ? battery->tests - 2 + ZONAL__BATTERY_DEGREES : 0,
                              &battery->survey);
}

void zonal__battery_fini(zonal__battery *battery) {
    zonal__survey_fini(&battery->survey);
    for (int i = 0; i < ZONAL_UNIFORMITY_TESTS; i++) {
        zonal__null_fini(&battery->test[i].null);
        zonal__profile_fini(&battery->test[i].profile);
        zonal_kernel_destroy(battery->test[i].kernel);
    }
    for (int i = 0; i < ZONAL__BATTERY_DEGREES; i++) zonal__fit_destroy(battery->degree[i].fit);
    *battery = (zonal__battery){0};
}

zonal_status zonal__battery_run(zonal__battery *battery, const void *x, double *statistic) {
    ZONAL_TRY(zonal__survey_run(&battery->survey, x));
    statistic[0] = zonal__survey_rayleigh(&battery->survey);
    statistic[1] = zonal__survey_bingham(&battery->survey);
    for (int k = 2; k < battery->tests; k++)
        statistic[k] = zonal__survey_pairs(&battery->survey, k - 2);
    return ZONAL_OK;
}

double zonal__battery_degree(const zonal__battery *battery, int l) {
    return zonal__survey_pairs(&battery->survey, battery->tests - 2 + l - FIRST_PAIR_DEGREE);
}
