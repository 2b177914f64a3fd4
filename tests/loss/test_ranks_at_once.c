/*
 * Ranks whose plans have several threads each: what travels must not be touched while others work
 * on it. A small part of test_ranks.c, for the thread sanitizer.
 */
#include "ranks_case.h"

enum { ROWS = 150, DIM = 8 };

static void test_at_once(void) {
    static const char *const methods[] = {"mmd-heat", "kl-heat", "mmd-band", "susreg", "sigreg"};
    static double gradient[2 * ROWS * DIM], again[2 * ROWS * DIM];
    double *x = draw_leaning_rows(2 * ROWS, DIM, 1);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        for (int views = 0; views <= 2; views += 2) {
            ranks_case c = {.dim = DIM, .x = x, .bad = -1, .ranks = 3, .rows = {70, 1, 79}};
            c.options.size = sizeof c.options;
            CHECK_OK(zonal_objective_defaults(methods[i], &c.options));
            c.options.loss = defaults(methods[i], DIM);
            c.options.loss.threads = 2;
            c.views = c.globals = views;
            c.gradient = gradient;
            if (!run_ranks(&c)) continue;
            double value = c.value[0];
            c.gradient = again;
            run_ranks(&c);
            CHECK_MSG(value == c.value[2] && memcmp(gradient, again, sizeof again) == 0, "%s",
                      methods[i]);
        }
    free(x);
}

static const test_case tests[] = {{"ranks at once", test_at_once}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
