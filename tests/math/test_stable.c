/* Draws of symmetric stable distributions, src/math/stable.h: against closed forms. */
#include <stdlib.h>

#include "math/stable.h"
#include "test.h"

enum { COUNT = 400000 };
static float draws[COUNT];

static void draw(double alpha, uint64_t sample) {
    zonal__random random = {.seed = test_seed, .stream = ZONAL__STREAM_TEST, .step = 7};
    zonal__stable_draw(&random, sample, alpha, COUNT, draws);
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The share of draws at or below x against the distribution: five standard errors of a share are at
 * most 5 sqrt(.25 / COUNT). */
static void check_share(double x, double want) {
    int64_t below = 0;
    for (int i = 0; i < COUNT; i++) below += (double)draws[i] <= x;
    CHECK_CLOSE((double)below / COUNT, want, 5 * sqrt(0.25 / COUNT));
}

static void test_cauchy(void) {
    static const double points[] = {-100, -10, -1, -0.3, 0, 0.5, 1, 3, 30, 1000};
    draw(1, 0);
    for (int i = 0; i < 10; i++) check_share(points[i], 0.5 + atan(points[i]) / M_PI);
    qsort(draws, COUNT, sizeof draws[0], ascending);
    /* A quartile's standard error is sqrt(3/16 / COUNT) over the density 1/(2 pi) there: .0043. */
    CHECK_CLOSE((double)draws[COUNT / 4], -1, 0.022);
    CHECK_CLOSE((double)draws[3 * COUNT / 4], 1, 0.022);
    /* Far tails are there: of 400,000 the largest stays below 5000 for one seed in 1e11. */
    CHECK((double)draws[COUNT - 1] > 5e3 && (double)draws[0] < -5e3);
}

static void test_normal(void) {
    static const double points[] = {-3, -1, -0.2, 0, 0.7, 2, 4};
    double square = 0, fourth = 0;
    draw(2, 1);
    for (int i = 0; i < 7; i++) check_share(points[i], 0.5 * erfc(-points[i] / 2));
    for (int i = 0; i < COUNT; i++) {
        double x = (double)draws[i] * (double)draws[i];
        square += x;
        fourth += x * x;
    }
    /* variance 2: of x^2 8, of x^4 (105 - 9) 2^4; five standard errors */
    CHECK_CLOSE(square / COUNT, 2, 5 * sqrt(8.0 / COUNT));
    CHECK_CLOSE(fourth / COUNT, 12, 5 * sqrt(96 * 16.0 / COUNT));
}

/* The mean of cos(t X) is exp(-|t|^alpha), and of sin(t X) 0, for every index: five standard errors
 * of numbers between -1 and 1. */
static void test_characteristic_function(void) {
    static const double indices[] = {0.5, 0.7, 0.999, 1, 1.001, 1.3, 1.5, 1.9, 2};
    static const double points[] = {0.05, 0.3, 1, 2};
    for (int a = 0; a < 9; a++) {
        draw(indices[a], 2 + (uint64_t)a);
        for (int k = 0; k < 4; k++) {
            double even = 0, odd = 0, t = points[k];
            for (int i = 0; i < COUNT; i++) {
                even += cos(t * (double)draws[i]);
                odd += sin(t * (double)draws[i]);
            }
            CHECK_CLOSE(even / COUNT, exp(-pow(t, indices[a])), 5 / sqrt(COUNT));
            CHECK_CLOSE(odd / COUNT, 0, 5 / sqrt(COUNT));
        }
    }
}

/* Each draw of the fast route is the tangent of its word; a float is rounded to 6e-8. */
static void test_tangent(void) {
    zonal__random random = {.seed = test_seed, .stream = ZONAL__STREAM_TEST, .step = 7};
    double worst = 0;
    draw(1, 3);
    for (int i = 0; i < COUNT; i++) {
        uint32_t words[4];
        double want, error;
        zonal__random_words(&random, 3, (uint32_t)(i / 4), words);
        want = tan(M_PI * (((double)words[i % 4] + 0.5) * 0x1p-32 - 0.5));
        error = fabs((double)draws[i] / want - 1);
        if (!(error <= worst)) worst = error;
    }
    CHECK_MSG(worst < 6.1e-8, "worst relative error %g", worst);
}

/* A shorter list is the beginning of a longer one, for counts that do not fill the last block. */
static void test_prefix(void) {
    zonal__random random = {.seed = test_seed, .stream = ZONAL__STREAM_TEST};
    for (int a = 0; a < 2; a++)
        for (int n = 0; n <= 9; n++) {
            float longer[12], shorter[10] = {0};
            shorter[n] = -77;
            zonal__stable_draw(&random, 5, a ? 1.5 : 1, 12, longer);
            zonal__stable_draw(&random, 5, a ? 1.5 : 1, n, shorter);
            CHECK(memcmp(longer, shorter, (size_t)n * sizeof longer[0]) == 0);
            CHECK(shorter[n] == -77);
        }
}

static const test_case tests[] = {{"cauchy", test_cauchy},
                                  {"normal", test_normal},
                                  {"characteristic_function", test_characteristic_function},
                                  {"tangent", test_tangent},
                                  {"prefix", test_prefix},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
