/*
 * The largest error of one quantity over many cases, against what is allowed: a case that exceeds
 * its allowance fails the running test, and the worst one is printed, so that it can be quoted.
 *
 *     static measure values = {.name = "D, double"};
 *     MEASURE(&values, got, want, 1e-12 * fabs(want), "%s, d = %d", name, d);
 *     ...
 *     measure_print(&values);
 */
#ifndef ZONAL_TESTS_MEASURE_H
#define ZONAL_TESTS_MEASURE_H

#include <stdarg.h>

#include "test.h"

typedef struct measure {
    const char *name;
    long cases;
    double error, allowed, ratio; /* of the worst case */
    char where[160];
} measure;

#define MEASURE(m, got, want, allowed, ...)                                                        \
    measure_take(m, got, want, allowed, __FILE__, __LINE__, __VA_ARGS__)

__attribute__((format(printf, 7, 8), unused)) static int measure_take(measure *m, double got,
                                                                      double want, double allowed,
                                                                      const char *file, int line,
                                                                      const char *format, ...) {
    /* NaN is infinitely far from everything, equal infinities are at distance 0. */
    double error = isnan(got) || isnan(want) ? INFINITY : got == want ? 0 : fabs(got - want);
    double ratio = error == 0 ? 0 : allowed > 0 ? error / allowed : INFINITY;
    char where[sizeof m->where];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(where, sizeof where, format, arguments);
    va_end(arguments);
    if (m->cases++ == 0 || ratio > m->ratio) {
        m->error = error;
        m->allowed = allowed;
        m->ratio = ratio;
        memcpy(m->where, where, sizeof where);
    }
    if (ratio <= 1) return 1;
    return test_fail(file, line, "%s: %s = %.17g, want %.17g: off by %.3g, allowed %.3g", where,
                     m->name, got, want, error, allowed);
}

/* ||got - want|| against an allowance, in the Euclidean norm. */
__attribute__((unused)) static double measure_distance(int64_t n, const double *got,
                                                       const double *want) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double error = got[i] - want[i];
        if (isnan(error)) return INFINITY;
        sum += error * error;
    }
    return sqrt(sum);
}

__attribute__((unused)) static void measure_print(const measure *m) {
    CHECK_MSG(m->cases > 0, "%s: nothing was measured", m->name);
    printf("# %-32s worst %.2e of %.2e allowed (%.3f), %ld cases; %s\n", m->name, m->error,
           m->allowed, m->ratio, m->cases, m->where);
}

#endif
