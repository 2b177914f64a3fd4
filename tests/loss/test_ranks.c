/*
 * Losses of a batch that several ranks hold together. The oracle is the same loss on one rank,
 * which is compared with 50-digit arithmetic elsewhere (test_loss.c); ranks are threads.
 */
#include "failing_alloc.h"
#include "ranks_case.h"

typedef struct parts {
    int ranks;
    int64_t rows[THREAD_RANKS];
} parts;

/* Rows of each rank: with none, with one, and with more than a tile. */
static const parts all_parts[] = {{1, {37}},
                                  {2, {20, 17}},
                                  {2, {37, 0}},
                                  {3, {13, 0, 24}},
                                  {3, {1, 35, 1}},
                                  {4, {10, 9, 9, 9}},
                                  {4, {0, 36, 0, 1}},
                                  {7, {6, 5, 5, 5, 5, 5, 6}},
                                  {7, {1, 1, 0, 1, 1, 32, 1}},
                                  {0}};
static const parts few_parts[] = {{2, {20, 17}}, {4, {0, 35, 1, 1}}, {0}};
static const parts large_parts[] = {{2, {130, 170}}, {3, {300, 0, 0}}, {4, {64, 65, 1, 170}}, {0}};

static void set_parts(ranks_case *c, const parts *p) {
    c->ranks = p->ranks;
    memcpy(c->rows, p->rows, sizeof c->rows);
}

/* Between the ranks' sums and one rank's there is rounding alone, of sums of 37 or 300 terms. */
static double tolerance(const ranks_case *c) {
    return c->options.loss.precision == ZONAL_PRECISION_FP32 ? 1e-6 : 1e-12;
}

static void compare(ranks_case *c, const char *what, const ranks_case *alone, const double *want) {
    int64_t n = batch_of(c) * c->dim * (c->views ? c->views : 1), first = 0;
    double size = c->views ? 1 + fabs(alone->value[0]) : size_of(what, alone->value[0]);
    if (!run_ranks(c)) return;
    CHECK_MSG(fabs(c->value[0] - alone->value[0]) <= tolerance(c) * size,
              "%s on %d ranks: %.17g, on one %.17g", what, c->ranks, c->value[0], alone->value[0]);
    for (int r = 0; r < c->ranks; first += c->rows[r++]) {
        CHECK_MSG(memcmp(&c->value[r], &c->value[0], sizeof(double)) == 0,
                  "%s: rank %d has another value", what, r);
        if (!c->views)
            CHECK(c->info[r].batch == batch_of(c) && c->info[r].rows == c->rows[r] &&
                  c->info[r].first_row == first);
    }
    if (!c->gradient) return;
    if (!CHECK_NORM(n, c->gradient, want, (c->near ? 10 : 1) * tolerance(c)))
        test_fail(__FILE__, __LINE__, "that was %s on %d ranks: %lld, %lld ...", what, c->ranks,
                  (long long)c->rows[0], (long long)c->rows[1]);
}

/* One method with its options set, over a list of parts of the same batch. */
static void over_parts(ranks_case *c, const char *what, const parts *p) {
    set_parts(c, p);
    size_t n = (size_t)(batch_of(c) * c->dim * (c->views ? c->views : 1));
    double *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    c->gradient = is_chordal(what) ? NULL : got;
    ranks_case alone = run_alone(c, c->gradient ? want : NULL);
    if (CHECK_MSG(alone.status[0] == ZONAL_OK, "%s: %s", what, zonal_last_error()->message))
        for (; p->ranks; p++) {
            set_parts(c, p);
            memset(got, 0xff, n * sizeof *got);
            compare(c, what, &alone, want);
        }
    free(want);
    free(got);
}

static ranks_case case_of(const char *method, int64_t dim, const double *x) {
    ranks_case c = {.dim = dim, .x = x, .bad = -1};
    c.options.size = sizeof c.options;
    CHECK_OK(zonal_objective_defaults(method, &c.options));
    c.options.loss = defaults(method, dim);
    c.options.loss.threads = 1;
    return c;
}

static int sets(ranks_case *c, const char *name, const char *text) {
    return CHECK_OK(zonal_objective_set(&c->options, name, text));
}

/* ---- equal to one rank ----------------------------------------------------------------------- */

static void test_methods(void) {
    double *x = draw_leaning_rows(37, 24, 1);
    FOR_EACH_METHOD(method, implementation) {
        for (int p = ZONAL_PRECISION_DOUBLE; p <= ZONAL_PRECISION_FP32; p++) {
            ranks_case c = case_of(method, 24, x);
            c.options.loss.implementation = (zonal_implementation)implementation;
            c.options.loss.precision = (zonal_precision)p;
            over_parts(&c, method, p == ZONAL_PRECISION_DOUBLE ? all_parts : few_parts);
        }
    }
    free(x);
}

/* The options that change what is summed, or what the sum is divided by. */
static void test_options(void) {
    static const char *const list[][5] = {{"mmd-heat", "estimator", "u"},
                                          {"mmd-heat", "raw", "yes"},
                                          {"ksd-poisson", "estimator", "u", "raw", "yes"},
                                          {"mmd-band", "implementation", "pairs"},
                                          {"mmd-band", "band", "1"},
                                          {"ksd-band", "implementation", "moments"},
                                          {"mmd-band", "estimator", "u", "raw", "yes"},
                                          {"kl-heat", "estimator", "v"},
                                          {"kl-heat", "kl-norm", "paper"},
                                          {"kl-heat", "raw", "yes"},
                                          {"kl-heat", "t", "1"},     /* broad */
                                          {"kl-heat", "t", "0.002"}, /* narrow */
                                          {"kl-heat", "t", "0.002", "estimator", "v"},
                                          {"susreg", "times-n", "yes"},
                                          {"susreg", "range", "0,4"},
                                          {"susreg", "range", "1,4"},
                                          {"sigreg", "times-n", "no"}};
    double *x = draw_leaning_rows(37, 24, 2);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        ranks_case c = case_of(list[i][0], 24, x);
        for (int k = 1; k < 5 && list[i][k]; k += 2) sets(&c, list[i][k], list[i][k + 1]);
        over_parts(&c, list[i][0], few_parts);
        c.options.loss.precision = ZONAL_PRECISION_FP32;
        over_parts(&c, list[i][0], few_parts);
    }
    free(x);
}

static void test_unit_rows(void) {
    static const char *const methods[] = {"mmd-heat", "kl-heat", "mmd-band", "susreg"};
    double *x = draw_leaning_rows(37, 24, 3);
    for (int64_t i = 0; i < 37; i++) {
        double norm = norm_of(24, x + i * 24);
        for (int k = 0; k < 24; k++) x[i * 24 + k] /= norm;
    }
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        ranks_case c = case_of(methods[i], 24, x);
        c.options.loss.unit_rows = 1;
        over_parts(&c, methods[i], all_parts);
    }
    free(x);
}

/* More rows than a tile has, more slices than a block has, and several threads. */
static void test_tiles(void) {
    static const char *const methods[] = {"mmd-heat", "kl-heat", "mmd-band", "mmd-chordal",
                                          "susreg",   "sigreg",  "ksd-heat"};
    double *x = draw_leaning_rows(300, 33, 4);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        for (int threads = 1; threads <= 2; threads++) {
            ranks_case c = case_of(methods[i], 33, x);
            c.options.loss.threads = threads;
            if (c.options.loss.sliced.slices) c.options.loss.sliced.slices = 40;
            over_parts(&c, methods[i], large_parts);
            c.options.loss.precision = ZONAL_PRECISION_FP32;
            over_parts(&c, methods[i], large_parts);
        }
    free(x);
}

/* Rows within 1e-4 of one point: values are 1 less what is left, and gradients the small rest of
 * what cancels: of their terms in double 1e-16, of themselves 1e-11, as for one rank. */
static void test_near_collapse(void) {
    static const char *const methods[] = {"mmd-heat", "ksd-heat", "kl-heat", "mmd-band"};
    double *x = draw_rows(37, 24, 5);
    for (int64_t i = 0; i < 37; i++)
        for (int64_t k = 0; k < 24; k++) x[i * 24 + k] = 1 + 1e-4 * x[i * 24 + k];
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        ranks_case c = case_of(methods[i], 24, x);
        c.near = 1;
        over_parts(&c, methods[i], all_parts);
        c.options.loss.precision = ZONAL_PRECISION_FP32;
        over_parts(&c, methods[i], all_parts);
    }
    /* Closer still the moments show whether their rows are centred on the whole batch's mean. */
    for (int64_t i = 0; i < 37 * 24; i++) x[i] = 1 + 1e-3 * (x[i] - 1);
    ranks_case c = case_of("mmd-band", 24, x);
    c.options.loss.implementation = ZONAL_IMPLEMENTATION_MOMENTS;
    c.near = 1;
    over_parts(&c, "mmd-band", all_parts);
    free(x);
}

static void test_objectives(void) {
    static const char *const methods[] = {"mmd-heat", "kl-heat", "mmd-band", "susreg", "sigreg"};
    double *x = draw_leaning_rows(3 * 37, 24, 6);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_REF; k++) {
            ranks_case c = case_of(methods[i], 24, x);
            c.options.loss.implementation = (zonal_implementation)k;
            c.views = 3;
            c.globals = 2;
            over_parts(&c, methods[i], all_parts);
        }
    free(x);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void test_bits(void) {
    static const char *const methods[] = {"mmd-heat", "kl-heat", "mmd-band", "susreg"};
    static double first[300 * 33], again[300 * 33];
    double *x = draw_leaning_rows(300, 33, 7);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        ranks_case c = case_of(methods[i], 33, x);
        c.options.loss.precision = ZONAL_PRECISION_FP32;
        set_parts(&c, &large_parts[2]);
        c.gradient = first;
        run_ranks(&c);
        double value = c.value[0];
        c.gradient = again;
        for (int threads = 1; threads <= 3; threads++) {
            c.options.loss.threads = threads;
            run_ranks(&c);
            CHECK_MSG(value == c.value[0] && memcmp(first, again, sizeof first) == 0,
                      "%s on %d threads", methods[i], threads);
        }
    }
    free(x);
}

/* A gradient is a rank's own affair: the others get theirs, and the same bits. */
static void test_some_gradients(void) {
    static const char *const methods[] = {"mmd-heat", "kl-heat", "mmd-band", "susreg", "sigreg"};
    static double all[37 * 24], some[37 * 24];
    double *x = draw_leaning_rows(37, 24, 8);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_REF; k++) {
            ranks_case c = case_of(methods[i], 24, x);
            c.options.loss.implementation = (zonal_implementation)k;
            set_parts(&c, &(parts){3, {13, 0, 24}});
            c.gradient = all;
            run_ranks(&c);
            c.gradient = some;
            memset(some, 0, sizeof some);
            c.without[0] = 1;
            run_ranks(&c);
            CHECK_MSG(memcmp(all + 13 * 24, some + 13 * 24, 24 * 24 * sizeof(double)) == 0 &&
                          norm_of(13 * 24, some) == 0,
                      "%s", methods[i]);
        }
    free(x);
}

static const test_case tests[] = {
    {"all methods", test_methods},
    {"options", test_options},
    {"unit rows", test_unit_rows},
    {"tiles and threads", test_tiles},
    {"near collapse", test_near_collapse},
    {"objectives", test_objectives},
    {"bits", test_bits},
    {"some gradients", test_some_gradients},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
