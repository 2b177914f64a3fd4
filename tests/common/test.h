/*
 * The test harness: checks that print both values and lose on NaN, an explicit list of tests, and a
 * closing line "N passed, N failed, N skipped". One program per module:
 *
 *     static void test_one(void) { CHECK_CLOSE(f(1.0), 2.0, 1e-15); }
 *     static const test_case tests[] = {{"one", test_one}, {0}};
 *     int main(int argc, char **argv) { return test_main(argc, argv, tests); }
 *
 * Options: --list, a name (or part of one) to run only matching tests, --seed N (test_seed; also
 * ZONAL_TEST_SEED). Exit status 0 when nothing failed, 1 otherwise, 77 when everything was skipped.
 */
#ifndef ZONAL_TESTS_TEST_H
#define ZONAL_TESTS_TEST_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "zonal/status.h"

typedef struct test_case {
    const char *name;
    void (*run)(void);
} test_case;

extern uint64_t test_seed;

int test_main(int argc, char **argv, const test_case *tests);

/* Records a failure of the running test; returns 0 so that callers can use it as a condition. */
__attribute__((format(printf, 3, 4))) int test_fail(const char *file, int line, const char *format,
                                                    ...);
void test_skip(const char *reason);

/* |got - want| <= tolerance; NaN on either side, or infinities that differ, are a failure. */
int test_close(double got, double want, double tolerance, const char *what, const char *file,
               int line);
/* The largest |got[i] - want[i]| over n elements against the tolerance; reports the worst index. */
int test_array_close(int64_t n, const double *got, const double *want, double tolerance,
                     const char *what, const char *file, int line);
/* ||got - want||_2 <= tolerance * ||want||_2 */
int test_norm_close(int64_t n, const double *got, const double *want, double tolerance,
                    const char *what, const char *file, int line);

#define CHECK(condition)                                                                           \
    ((condition) ? 1 : test_fail(__FILE__, __LINE__, "%s is false", #condition))
#define CHECK_MSG(condition, ...)         ((condition) ? 1 : test_fail(__FILE__, __LINE__, __VA_ARGS__))
#define CHECK_CLOSE(got, want, tolerance) test_close(got, want, tolerance, #got, __FILE__, __LINE__)
#define CHECK_ARRAY(n, got, want, tolerance)                                                       \
    test_array_close(n, got, want, tolerance, #got, __FILE__, __LINE__)
#define CHECK_NORM(n, got, want, tolerance)                                                        \
    test_norm_close(n, got, want, tolerance, #got, __FILE__, __LINE__)
#define CHECK_OK(call)                                                                             \
    ((call) == ZONAL_OK                                                                            \
         ? 1                                                                                       \
         : test_fail(__FILE__, __LINE__, "%s: %s", #call, zonal_last_error()->message))
/* The call must fail with this status and a sentence that contains this text. */
#define CHECK_FAILS(call, wanted, text) test_fails((call), wanted, text, #call, __FILE__, __LINE__)
int test_fails(zonal_status got, zonal_status want, const char *text, const char *what,
               const char *file, int line);
#define SKIP(reason)                                                                               \
    do {                                                                                           \
        test_skip(reason);                                                                         \
        return;                                                                                    \
    } while (0)

#endif
