/*
 * What must hold of the gradients of losses and objectives, and that the same bits come every time:
 * against differences of the value, for views that are identical, from any number of threads.
 */
#include "batches.h"
#include "measure.h"

/* ---- Gradients ---- */

/* Central differences: the error is h^2 |D'''|/6 and rounding over h. */
static void test_differences(void) {
    enum { N = 6, D = 5 };
    static measure values = {.name = "gradient by differences"};
    static measure tangents = {.name = "gradient along the row"};
    FOR_EACH_METHOD(method, k) {
        for (int variant = 0; variant < 3; variant++) {
            zonal_loss_options options = defaults(method, D);
            zonal_plan *plan;
            double *x = draw_leaning_rows(N, D, 11), g[N * D], want[N * D], up, down;
            const double h = 1e-5;
            options.implementation = (zonal_implementation)k;
            options.raw_value = variant == 1;
            int sliced = strstr(method, "reg") != NULL; /* they have no estimator to choose */
            options.estimator = variant == 2 && !sliced ? ZONAL_ESTIMATOR_U
                                : is_kl(method)         ? ZONAL_ESTIMATOR_V
                                                        : ZONAL_ESTIMATOR_AUTO;
            if (!is_chordal(method) && CHECK_OK(zonal_plan_create(&options, N, D, &plan))) {
                CHECK_OK(zonal_plan_execute(plan, x, &up, g));
                for (int i = 0; i < N * D; i++) {
                    double saved = x[i];
                    x[i] = saved + h;
                    CHECK_OK(zonal_plan_execute(plan, x, &up, NULL));
                    x[i] = saved - h;
                    CHECK_OK(zonal_plan_execute(plan, x, &down, NULL));
                    x[i] = saved;
                    want[i] = (up - down) / (2 * h);
                }
                MEASURE(&values, measure_distance(N * D, g, want), 0, 1e-7 * norm_of(N * D, want),
                        "%s, variant %d", method, variant);
                for (int i = 0; strcmp(method, "sigreg") && i < N; i++)
                    MEASURE(&tangents, dot(D, g + i * D, x + i * D), 0,
                            1e-14 * norm_of(N * D, g) * norm_of(D, x + i * D), "%s, row %d", method,
                            i);
                zonal_plan_destroy(plan);
            }
            free(x);
        }
    }
    measure_print(&values);
    measure_print(&tangents);
}

static void test_objective_differences(void) {
    enum { V = 3, N = 4, D = 5, COUNT = V * N * D };
    static measure values = {.name = "objective by differences"};
    FOR_EACH_METHOD(method, k) {
        for (int globals = 1; globals <= V; globals++) {
            zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
            zonal_objective *objective;
            zonal_objective_parts parts;
            double *z = draw_leaning_rows(V * N, D, 12), g[COUNT], want[COUNT];
            const double h = 1e-5;
            CHECK_OK(zonal_objective_defaults(method, &options));
            options.loss = defaults(method, D);
            options.loss.implementation = (zonal_implementation)k;
            if (!is_chordal(method) &&
                CHECK_OK(zonal_objective_create(&options, V, globals, N, D, &objective))) {
                CHECK_OK(zonal_objective_execute(objective, z, &parts, g));
                CHECK_CLOSE(parts.total,
                            (1 - options.lambda) * parts.invariance +
                                options.lambda * parts.gain * parts.discrepancy,
                            1e-14 * fabs(parts.total));
                for (int i = 0; i < COUNT; i++) {
                    double saved = z[i], up, down;
                    z[i] = saved + h;
                    CHECK_OK(zonal_objective_execute(objective, z, &parts, NULL));
                    up = parts.total;
                    z[i] = saved - h;
                    CHECK_OK(zonal_objective_execute(objective, z, &parts, NULL));
                    down = parts.total;
                    z[i] = saved;
                    want[i] = (up - down) / (2 * h);
                }
                MEASURE(&values, measure_distance(COUNT, g, want), 0, 1e-7 * norm_of(COUNT, want),
                        "%s, %d of %d views global", method, globals, V);
                zonal_objective_destroy(objective);
            }
            free(z);
        }
    }
    measure_print(&values);
}

/* Identical views: nothing to align, and D is that of one of them. */
static void test_identical_views(void) {
    enum { V = 3, N = 5, D = 4 };
    double *x = draw_rows(N, D, 13), z[V * N * D];
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective *objective;
    zonal_objective_parts parts;
    for (int i = 0; i < V * N * D; i++) z[i] = x[i % (N * D)];
    CHECK_OK(zonal_objective_defaults("mmd-heat", &options));
    options.loss = defaults("mmd-heat", D);
    options.gain = ZONAL_GAIN_BATCH;
    if (CHECK_OK(zonal_objective_create(&options, V, 2, N, D, &objective))) {
        CHECK_OK(zonal_objective_execute(objective, z, &parts, NULL));
        CHECK_CLOSE(parts.invariance, 0, 1e-30);
        CHECK_CLOSE(parts.discrepancy, run(&options.loss, N, D, x, NULL), 1e-15);
        CHECK(parts.gain == N);
        zonal_objective_destroy(objective);
    }
    free(x);
}

/* ---- The same bits ---- */

/* Executed again, by another plan, by any number of threads: the same bits. */
static void test_repetition(void) {
    enum { N = 300, D = 33 };
    double *x = draw_leaning_rows(N, D, 14);
    float *xf = malloc(sizeof(float) * N * D);
    void *first = malloc(sizeof(double) * N * D), *again = malloc(sizeof(double) * N * D);
    for (int i = 0; i < N * D; i++) xf[i] = (float)x[i];
    FOR_EACH_METHOD(method, k) {
        for (int precision = ZONAL_PRECISION_DOUBLE; precision <= ZONAL_PRECISION_FP32;
             precision++) {
            zonal_loss_options options = defaults(method, D);
            const void *rows = precision == ZONAL_PRECISION_FP32 ? (void *)xf : (void *)x;
            size_t bytes =
                (precision == ZONAL_PRECISION_FP32 ? sizeof(float) : sizeof(double)) * N * D;
            int has = !is_chordal(method);
            options.precision = (zonal_precision)precision;
            options.implementation = (zonal_implementation)k;
            if (k == ZONAL_IMPLEMENTATION_REF && precision == ZONAL_PRECISION_FP32)
                continue; /* one code */
            double value = 0;
            for (int threads = 1; threads <= 4; threads++) {
                zonal_plan *plan;
                double repeated = NAN;
                options.threads = threads;
                if (k == ZONAL_IMPLEMENTATION_REF && threads > 2) continue; /* one thread, slow */
                if (!CHECK_OK(zonal_plan_create(&options, N, D, &plan))) continue;
                for (int turn = 0; turn < 2; turn++) {
                    memset(again, 0xff, bytes);
                    CHECK_OK(zonal_plan_execute(plan, rows, &repeated, has ? again : NULL));
                    if (threads == 1 && turn == 0) {
                        value = repeated;
                        memcpy(first, again, bytes);
                    }
                    CHECK_MSG(memcmp(&value, &repeated, sizeof value) == 0 &&
                                  memcmp(first, again, bytes) == 0,
                              "%s, %d threads, turn %d: other bits", method, threads, turn);
                    if (k == ZONAL_IMPLEMENTATION_REF) break;
                }
                zonal_plan_destroy(plan);
            }
        }
    }
    free(x);
    free(xf);
    free(first);
    free(again);
}

/* Directions change with step and seed, and with nothing else. */
static void test_directions_change(void) {
    enum { N = 8, D = 6 };
    double *x = draw_rows(N, D, 15);
    for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_REF; k++) {
        zonal_loss_options options = defaults("susreg", D);
        zonal_plan *plan, *other;
        double at_0, at_1, back, seeded;
        options.implementation = (zonal_implementation)k;
        if (!CHECK_OK(zonal_plan_create(&options, N, D, &plan))) break;
        options.sliced.seed = 1;
        if (CHECK_OK(zonal_plan_create(&options, N, D, &other))) {
            CHECK_OK(zonal_plan_execute(plan, x, &at_0, NULL));
            zonal_plan_set_step(plan, 1);
            CHECK_OK(zonal_plan_execute(plan, x, &at_1, NULL));
            zonal_plan_set_step(plan, 0);
            CHECK_OK(zonal_plan_execute(plan, x, &back, NULL));
            CHECK_OK(zonal_plan_execute(other, x, &seeded, NULL));
            CHECK(at_0 != at_1 && at_0 == back && at_0 != seeded);
            zonal_plan_destroy(other);
        }
        zonal_plan_destroy(plan);
    }
    free(x);
}

static const test_case tests[] = {
    {"differences", test_differences},
    {"differences of the objective", test_objective_differences},
    {"identical views", test_identical_views},
    {"repetition", test_repetition},
    {"directions change", test_directions_change},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
