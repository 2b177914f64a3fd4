/*
 * Tests of uniformity on an array as numpy would hold it, [rows][dimension] in C order: one set of
 * directions drawn at random, and one that has collapsed to 3 of 32 dimensions.
 *
 *     cc 04_uniformity.c $(pkg-config --cflags --libs zonal) -lm -o 04_uniformity
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <zonal/zonal.h>

enum { N = 500, D = 32 };

static double x[N * D];

/* Two uniform numbers make a normal one (Box and Muller). */
static double normal(void) {
    double u = (rand() + 1.0) / (RAND_MAX + 2.0), v = rand() / (RAND_MAX + 1.0);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static int test(const char *name, int rank) {
    zonal_uniformity_options options = ZONAL_UNIFORMITY_OPTIONS_INIT;
    zonal_uniformity_report report = ZONAL_UNIFORMITY_REPORT_INIT;
    for (int i = 0; i < N * D; i++) x[i] = i % D < rank ? normal() : 0;
    options.precision = ZONAL_PRECISION_DOUBLE; /* of x */
    if (zonal_uniformity_run(&options, N, D, x, &report) != ZONAL_OK) {
        fprintf(stderr, "04_uniformity: %s\n", zonal_last_error()->message);
        exit(1);
    }
    printf("%s: %s\n", name, report.verdict);
    for (int k = 0; k < report.tests; k++)
        printf("  %-10s T = %9.3f  log10 p = %8.2f\n", report.test[k].name,
               report.test[k].statistic, report.test[k].log10_p);
    printf("  effective rank %.1f, %.1f expected of uniform points\n", report.effective_rank,
           report.effective_rank_expected);
    return report.collapse != ZONAL_COLLAPSE_NONE;
}

int main(void) {
    srand(1);
    int uniform = test("all directions", D);
    int collapsed = test("3 directions", 3);
    return !uniform && collapsed ? 0 : 1;
}
