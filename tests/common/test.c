#include "test.h"

#include <stdarg.h>
#include <stdlib.h>

uint64_t test_seed = 20260615;

static int failures;            /* of the running test */
static const char *skip_reason; /* of the running test */

int test_fail(const char *file, int line, const char *format, ...) {
    va_list arguments;
    failures++;
    if (failures > 20) return 0; /* one broken loop must not bury the rest */
    printf("# %s:%d: ", file, line);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    return 0;
}

void test_skip(const char *reason) {
    skip_reason = reason;
}

/* The one comparison: NaN is infinitely far from everything, equal infinities are at distance 0. */
static double distance(double got, double want) {
    if (isnan(got) || isnan(want)) return INFINITY;
    if (got == want) return 0;
    return fabs(got - want);
}

int test_close(double got, double want, double tolerance, const char *what, const char *file,
               int line) {
    double error = distance(got, want);
    if (error < INFINITY && error <= tolerance) return 1;
    return test_fail(file, line, "%s = %.17g, want %.17g: off by %.3g, allowed %.3g", what, got,
                     want, error, tolerance);
}

int test_array_close(int64_t n, const double *got, const double *want, double tolerance,
                     const char *what, const char *file, int line) {
    double worst = -1;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        double error = distance(got[i], want[i]);
        if (error > worst) {
            worst = error;
            at = i;
        }
    }
    if (n > 0 && worst < INFINITY && worst <= tolerance) return 1;
    if (n <= 0) return test_fail(file, line, "%s is empty", what);
    return test_fail(file, line, "%s[%lld] = %.17g, want %.17g: off by %.3g, allowed %.3g", what,
                     (long long)at, got[at], want[at], worst, tolerance);
}

int test_norm_close(int64_t n, const double *got, const double *want, double tolerance,
                    const char *what, const char *file, int line) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double error = distance(got[i], want[i]);
        difference += error * error;
        size += want[i] * want[i];
    }
    if (n > 0 && isfinite(size) && sqrt(difference) <= tolerance * sqrt(size)) return 1;
    return test_fail(file, line, "%s: off by %.3g of its norm %.3g, allowed %.3g", what,
                     sqrt(difference / size), sqrt(size), tolerance);
}

int test_fails(zonal_status got, zonal_status want, const char *text, const char *what,
               const char *file, int line) {
    const char *message = zonal_last_error()->message;
    if (got != want)
        return test_fail(file, line, "%s returned %s, want %s", what, zonal_status_name(got),
                         zonal_status_name(want));
    if (!strstr(message, text))
        return test_fail(file, line, "%s said \"%s\", want \"%s\" in it", what, message, text);
    return 1;
}

int test_main(int argc, char **argv, const test_case *tests) {
    int passed = 0, failed = 0, skipped = 0, number = 0;
    const char *only = NULL, *seed = getenv("ZONAL_TEST_SEED");
    if (seed) test_seed = strtoull(seed, NULL, 10);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            for (const test_case *t = tests; t->name; t++) puts(t->name);
            return 0;
        }
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            test_seed = strtoull(argv[++i], NULL, 10);
        else
            only = argv[i];
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("# seed %llu\n", (unsigned long long)test_seed);
    for (const test_case *t = tests; t->name; t++) {
        if (only && !strstr(t->name, only)) continue;
        failures = 0;
        skip_reason = NULL;
        number++;
        t->run();
        if (failures) {
            failed++;
            printf("not ok %d - %s\n", number, t->name);
        } else if (skip_reason) {
            skipped++;
            printf("ok %d - %s # SKIP %s\n", number, t->name, skip_reason);
        } else {
            passed++;
            printf("ok %d - %s\n", number, t->name);
        }
    }
    printf("1..%d\n%d passed, %d failed, %d skipped\n", number, passed, failed, skipped);
    if (failed) return 1;
    return passed == 0 && skipped > 0 ? 77 : number == 0;
}
