/* The Fourier transform, src/math/fft.h: against the sum that defines it, and by identities. */
#include <stdlib.h>

#include "core/memory.h"
#include "core/random.h"
#include "failing_alloc.h"
#include "math/fft.h"
#include "test.h"

enum { MOST = 400 * 400 };
static float re[MOST], im[MOST], scratch[2 * MOST];
static double given_re[MOST], given_im[MOST];

/* Normal numbers that float holds exactly. */
static void fill(int64_t count) {
    zonal__random random = {.seed = test_seed, .stream = ZONAL__STREAM_TEST};
    zonal__random_normal(&random, 0, count, given_re);
    zonal__random_normal(&random, 1, count, given_im);
    for (int64_t i = 0; i < count; i++) {
        re[i] = (float)given_re[i];
        im[i] = (float)given_im[i];
        given_re[i] = (double)re[i];
        given_im[i] = (double)im[i];
    }
}

/* The largest distance to the defining sum, over the root mean square of the result, sqrt(2 n). */
static double column_error(int n, int width) {
    double worst = 0;
    for (int column = 0; column < width; column++)
        for (int k = 0; k < n; k++) {
            double real = 0, imaginary = 0, error;
            for (int j = 0; j < n; j++) {
                double angle = -2 * M_PI * (double)((int64_t)j * k % n) / n;
                double a = given_re[j * width + column], b = given_im[j * width + column];
                real += a * cos(angle) - b * sin(angle);
                imaginary += a * sin(angle) + b * cos(angle);
            }
            error = hypot((double)re[k * width + column] - real,
                          (double)im[k * width + column] - imaginary);
            if (!(error <= worst)) worst = error;
        }
    return worst / sqrt(2.0 * n);
}

/* Every possible length to 100 and some larger ones; widths with and without a rest to the vector
 * units. A float's rounding unit is 6e-8; ten passes of additions and products, and the largest of
 * some hundred errors, stay below 30 of them. */
static void test_against_the_sum(void) {
    static const int larger[] = {125, 128, 135, 160, 200, 243, 256, 300, 320, 375, 400};
    static const int widths[] = {1, 3, 8};
    int lengths[128], count = 0;
    double worst = 0;
    for (int n = 1; n <= 100; n++)
        if (zonal__fft_length(n) == n) lengths[count++] = n;
    CHECK(count == 34); /* the 5-smooth numbers to 100: OEIS A051037 */
    for (size_t i = 0; i < sizeof larger / sizeof larger[0]; i++) lengths[count++] = larger[i];
    for (int i = 0; i < count; i++) {
        zonal__fft *fft;
        if (!CHECK_OK(zonal__fft_create(lengths[i], &fft))) continue;
        for (int w = 0; w < 3; w++) {
            double error;
            fill(lengths[i] * widths[w]);
            zonal__fft_columns(fft, widths[w], re, im, scratch);
            error = column_error(lengths[i], widths[w]);
            CHECK_MSG(error < 2e-6, "%d points, width %d: error %g", lengths[i], widths[w], error);
            if (!(error <= worst)) worst = error;
        }
        zonal__fft_destroy(fft);
    }
    printf("# worst error over the root mean square: %.2g\n", worst);
}

static void check_square(int n) {
    zonal__fft *fft;
    double worst = 0;
    if (!CHECK_OK(zonal__fft_create(n, &fft))) return;
    fill((int64_t)n * n);
    zonal__fft_square(fft, re, im, scratch);
    for (int k = 0; k < n; k++)
        for (int l = 0; l < n; l++) {
            double real = 0, imaginary = 0, error;
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) {
                    double angle = -2 * M_PI * ((i * k + j * l) % n) / n;
                    double a = given_re[i * n + j], b = given_im[i * n + j];
                    real += a * cos(angle) - b * sin(angle);
                    imaginary += a * sin(angle) + b * cos(angle);
                }
            error = hypot((double)re[k * n + l] - real, (double)im[k * n + l] - imaginary);
            if (!(error <= worst)) worst = error;
        }
    CHECK_MSG(worst < 2e-6 * n * sqrt(2), "%d x %d: error %g", n, n, worst);
    zonal__fft_destroy(fft);
}

static void test_square_against_the_sum(void) {
    check_square(1);
    check_square(2);
    check_square(15);
    check_square(20);
    check_square(32);
    check_square(36); /* more than one tile of the transposition */
}

/* The energy is kept up to the factor n n. */
static void test_parseval(void) {
    static const int sides[] = {45, 100, 256, 320, 400};
    for (int i = 0; i < 5; i++) {
        int64_t area = (int64_t)sides[i] * sides[i];
        double before = 0, after = 0;
        zonal__fft *fft;
        if (!CHECK_OK(zonal__fft_create(sides[i], &fft))) continue;
        fill(area);
        zonal__fft_square(fft, re, im, scratch);
        for (int64_t k = 0; k < area; k++) {
            before += given_re[k] * given_re[k] + given_im[k] * given_im[k];
            after += (double)re[k] * (double)re[k] + (double)im[k] * (double)im[k];
        }
        CHECK_CLOSE(after / before / (double)area, 1, 1e-6); /* errors of either sign average out */
        zonal__fft_destroy(fft);
    }
}

/* The transform with exchanged parts undoes it. */
static void test_inverse(void) {
    static const int sides[] = {8, 30, 135, 256, 320};
    for (int i = 0; i < 5; i++) {
        int64_t area = (int64_t)sides[i] * sides[i];
        double worst = 0;
        zonal__fft *fft;
        if (!CHECK_OK(zonal__fft_create(sides[i], &fft))) continue;
        fill(area);
        zonal__fft_square(fft, re, im, scratch);
        zonal__fft_square(fft, im, re, scratch);
        for (int64_t k = 0; k < area; k++) {
            double error = hypot((double)re[k] / (double)area - given_re[k],
                                 (double)im[k] / (double)area - given_im[k]);
            if (!(error <= worst)) worst = error;
        }
        CHECK_MSG(worst < 4e-6, "%d x %d does not come back: %g", sides[i], sides[i], worst);
        zonal__fft_destroy(fft);
    }
}

static void test_lengths(void) {
    CHECK(zonal__fft_length(1) == 1);
    CHECK(zonal__fft_length(7) == 8);
    CHECK(zonal__fft_length(257) == 270);
    CHECK(zonal__fft_length(320) == 320);
    CHECK(zonal__fft_length(321) == 324);
    CHECK(zonal__fft_length(ZONAL__FFT_MOST) == ZONAL__FFT_MOST);
}

static void test_refused(void) {
    static const int lengths[] = {0, -4, 7, 322, ZONAL__FFT_MOST + 1, 1 << 20};
    for (int i = 0; i < 6; i++) {
        zonal__fft *fft = (zonal__fft *)re;
        CHECK_FAILS(zonal__fft_create(lengths[i], &fft), ZONAL_ARGUMENT, "prime factors beyond 5");
        CHECK(fft == NULL);
    }
    zonal__fft_destroy(NULL);
}

static zonal_status make_and_drop(void *context) {
    zonal__fft *fft;
    ZONAL_TRY(zonal__fft_create(*(const int *)context, &fft));
    zonal__fft_destroy(fft);
    return ZONAL_OK;
}

static void test_memory(void) {
    int n = 60;
    test_every_allocation("a Fourier transform", make_and_drop, &n);
}

static const test_case tests[] = {{"against_the_sum", test_against_the_sum},
                                  {"square_against_the_sum", test_square_against_the_sum},
                                  {"parseval", test_parseval},
                                  {"inverse", test_inverse},
                                  {"lengths", test_lengths},
                                  {"refused", test_refused},
                                  {"memory", test_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
