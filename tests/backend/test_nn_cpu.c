/*
 * The layers on the host's threads (src/backend/cpu/training/nn*.c) against the reference, over odd
 * shapes, in both types, by every way of multiplying that this build and machine have, and the same
 * bits for any number of threads.
 */
#include "backend/cpu/training/nn_activate.h"
#include "backend/cpu/training/nn_product.h"
#include "core/memory.h"
#include "failing_alloc.h"
#include "nn_shapes.h"
#include "nn_trial.h"
#include "test.h"

static const zonal_dtype types[] = {ZONAL_DTYPE_FP32, ZONAL_DTYPE_BF16};
static const char *const way_names[] = {"plain", "AMX"};

/* Outputs of a training forward and of backward. */
static const int outputs[] = {Y,     DX,     DRESIDUAL,    DWEIGHT,
                              DBIAS, DSCALE, RUNNING_MEAN, RUNNING_VARIANCE};
enum { OUTPUTS = sizeof outputs / sizeof outputs[0] };

/* fp32: sums of at most some thousand products lose 1e-6 of their norm; an element left out or
 * taken twice shows at 1e-3. bf16: products of inputs are exact, so what is kept in fp32 is as good
 * as in fp32, and what is rounded to bf16 differs by 2^-8 where the sum lay next to a tie, in few
 * elements. */
static double tolerance(const trial *t, int array) {
    return t->spec.dtype == ZONAL_DTYPE_BF16 && trial_is_narrow(array) ? 1e-3 : 1e-5;
}

static void check_array(const trial *got, const trial *want, int array, const char *when) {
    trial_check(got, want, array, tolerance(got, array), when);
}

static void run_both(trial *got, trial *want, int training) {
    CHECK_OK(trial_forward(got, training));
    CHECK_OK(trial_forward(want, training));
    if (!training) return;
    CHECK_OK(trial_backward(got));
    CHECK_OK(trial_backward(want));
}

static void check_outputs(const trial *got, const trial *want, const char *when) {
    for (int i = 0; i < OUTPUTS; i++) check_array(got, want, outputs[i], when);
}

/* The layer against the reference: a step, a second one on top of its gradients, without dx, and
 * inference. */
static void check_layer(zonal__layer_spec spec, const char *way) {
    trial got, want;
    int single = trial_is_norm(&spec) && spec.n * spec.h * spec.w == 1;
    if (!trial_make(&got, zonal__nn_cpu(), spec)) return;
    if (trial_make(&want, zonal__nn_ref(), spec)) {
        trial_fill_all(&got, 0);
        trial_fill_all(&want, 0);
        if (!single) {
            run_both(&got, &want, 1);
            check_outputs(&got, &want, way);
            got.accumulate = want.accumulate = got.with_more = want.with_more = 1;
            run_both(&got, &want, 1);
            check_outputs(&got, &want, "accumulated, two gradients");
            got.skip_dx = want.skip_dx = got.skip_dresidual = want.skip_dresidual = 1;
            run_both(&got, &want, 1);
            check_outputs(&got, &want, "without dx");
        }
        run_both(&got, &want, 0);
        check_array(&got, &want, Y, "inference");
        trial_drop(&want);
    }
    trial_drop(&got);
}

static void check_inference(zonal__layer_spec spec) {
    trial got, want;
    if (!trial_make(&got, zonal__nn_cpu(), spec)) return;
    if (trial_make(&want, zonal__nn_ref(), spec)) {
        trial_fill_all(&got, 0);
        trial_fill_all(&want, 0);
        run_both(&got, &want, 0);
        check_array(&got, &want, Y, "inference");
        trial_drop(&want);
    }
    trial_drop(&got);
}

static void check_types(zonal__layer_spec spec, const char *way) {
    for (int i = 0; i < 2; i++) {
        spec.dtype = types[i];
        check_layer(spec, way);
    }
}

/* ---- convolution and linear ------------------------------------------------------------------ */

static void check_convolutions(zonal__product_way way) {
    for (size_t i = 0; i < sizeof convolutions / sizeof convolutions[0]; i++) {
        const int *c = convolutions[i];
        check_types(LAYER_SPEC(CONVOLUTION, .n = c[0], .h = c[1], .w = c[2], .channels = c[3],
                               .out_channels = c[4], .kernel = c[5], .stride = c[6], .pad = c[7]),
                    way_names[way]);
    }
}

static void check_linears(zonal__product_way way) {
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++)
        check_types(LAYER_SPEC(LINEAR, .n = linears[i][0], .h = 1, .w = 1,
                               .channels = linears[i][1], .out_channels = linears[i][2],
                               .bias = linears[i][3]),
                    way_names[way]);
}

/* A way that this build or machine has not is the one below it, which has its own test. */
static void check_way(zonal__product_way way) {
    zonal__product_way got = zonal__product_limit(way);
    if (got == way) {
        check_convolutions(way);
        check_linears(way);
    }
    zonal__product_limit(ZONAL__WAY_AMX);
    if (got != way) test_skip("no AMX here");
}

static void test_plain(void) {
    check_way(ZONAL__WAY_PLAIN);
}
static void test_amx(void) {
    check_way(ZONAL__WAY_AMX);
}

/* ---- the others ------------------------------------------------------------------------------ */

static const int64_t pixels[][4] = {/* n, h, w, channels */
                                    {1, 1, 1, 1},    {2, 1, 1, 1},   {2, 1, 1, 65},
                                    {5, 3, 2, 7},    {3, 1, 1, 64},  {1, 33, 33, 3},
                                    {4, 16, 16, 64}, {2, 9, 9, 300}, {3, 2, 2, 4100},
                                    {40, 33, 30, 1}};

static void test_norm(void) {
    for (size_t i = 0; i < sizeof pixels / sizeof pixels[0]; i++)
        for (int activation = 0; activation < 3; activation++)
            for (int residual = 0; residual < 2; residual++)
                check_types(LAYER_SPEC(NORM, .n = pixels[i][0], .h = (int)pixels[i][1],
                                       .w = (int)pixels[i][2], .channels = (int)pixels[i][3],
                                       .activation = (zonal__activation)activation,
                                       .residual = residual, .momentum = residual ? 0.3f : 0,
                                       .epsilon = residual ? 1e-3f : 0),
                            "norm");
}

/* A mean a thousand times the standard deviation: the variance comes from differences, not from
 * squares. */
static void test_norm_far_from_zero(void) {
    trial got, want;
    zonal__layer_spec spec = LAYER_SPEC(NORM, .n = 8, .h = 33, .w = 33, .channels = 16);
    if (!trial_make(&got, zonal__nn_cpu(), spec)) return;
    if (trial_make(&want, zonal__nn_ref(), spec)) {
        trial_fill_all(&got, 0);
        trial_fill_all(&want, 0);
        for (int64_t i = 0; i < got.count[X]; i++) want.wide[X][i] = got.wide[X][i] += 1000;
        run_both(&got, &want, 1);
        /* x - mean loses three digits of fp32's seven where the mean is rounded to a float */
        for (int64_t i = 0; i < got.count[Y]; i++)
            CHECK_CLOSE((double)got.wide[Y][i], (double)want.wide[Y][i], 3e-4);
        for (int c = 0; c < 16; c++)
            CHECK_CLOSE((double)got.wide[RUNNING_VARIANCE][c],
                        (double)want.wide[RUNNING_VARIANCE][c], 1e-6);
        trial_drop(&want);
    }
    trial_drop(&got);
}

static void test_activation(void) {
    for (size_t i = 0; i < sizeof pixels / sizeof pixels[0]; i++)
        for (int activation = 0; activation < 3; activation++)
            check_types(LAYER_SPEC(ACTIVATION, .n = pixels[i][0], .h = (int)pixels[i][1],
                                   .w = (int)pixels[i][2], .channels = (int)pixels[i][3],
                                   .activation = (zonal__activation)activation),
                        "activation");
}

/* gelu and its derivative over all that matters of the line, and at its ends. */
static void test_gelu(void) {
    for (double z = -40; z <= 40; z += 0.0078125) {
        double phi = erfc(-z / sqrt(2)) / 2;
        double derivative = phi + z * exp(-z * z / 2) / sqrt(2 * acos(-1));
        CHECK_CLOSE((double)zonal__activate((float)z, ZONAL__ACTIVATION_GELU), z * phi,
                    2e-7 * (1 + fabs(z)));
        CHECK_CLOSE((double)zonal__activation_derivative((float)z, ZONAL__ACTIVATION_GELU),
                    derivative, 2e-7 * (1 + fabs(z)));
    }
    CHECK(isnan(zonal__activate(NAN, ZONAL__ACTIVATION_GELU)));
    CHECK(isnan(zonal__activate(NAN, ZONAL__ACTIVATION_RELU)));
}

static void test_pools(void) {
    static const int windows[][3] = {{1, 1, 0}, {3, 2, 1}, {2, 2, 0},
                                     {3, 1, 1}, {5, 3, 2}, {2, 3, 1}};
    static const int64_t shapes[][4] = {{1, 1, 1, 1},   {2, 5, 4, 7},   {3, 16, 16, 64},
                                        {1, 33, 33, 3}, {2, 9, 8, 300}, {1, 4, 31, 65}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int h = (int)shapes[i][1], w = (int)shapes[i][2], channels = (int)shapes[i][3];
        check_types(LAYER_SPEC(MEAN_POOL, .n = shapes[i][0], .h = h, .w = w, .channels = channels),
                    "mean");
        for (size_t k = 0; k < sizeof windows / sizeof windows[0]; k++) {
            int kernel = windows[k][0], pad = windows[k][2];
            if (kernel > h + 2 * pad || kernel > w + 2 * pad) continue;
            check_types(LAYER_SPEC(MAX_POOL, .n = shapes[i][0], .h = h, .w = w,
                                   .channels = channels, .kernel = kernel, .stride = windows[k][1],
                                   .pad = pad),
                        "max");
        }
    }
}

/* To the bit what the two layers give, whose own tests are above. */
static void test_norm_pool(void) {
    static const int64_t shapes[][4] = {{2, 1, 1, 1},    {2, 5, 4, 7},   {3, 16, 16, 64},
                                        {1, 33, 33, 3},  {2, 9, 8, 300}, {1, 4, 31, 65},
                                        {2, 112, 112, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int activation = 0; activation < 2; activation++)
            for (int type = 0; type < 2; type++) {
                zonal__layer_spec spec = LAYER_SPEC(
                    NORM_POOL, .n = shapes[i][0], .h = (int)shapes[i][1], .w = (int)shapes[i][2],
                    .channels = (int)shapes[i][3], .kernel = 3, .stride = 2, .pad = 1,
                    .dtype = types[type], .activation = (zonal__activation)activation);
                trial_check_norm_pool(zonal__nn_cpu(), spec);
                check_inference(spec);
            }
}

/* Few values make many ties, and a NaN in one window must win there and nowhere else. */
static void test_pool_ties_and_nan(void) {
    for (int type = 0; type < 2; type++) {
        trial got, want;
        zonal__layer_spec spec =
            LAYER_SPEC(MAX_POOL, .n = 2, .h = 9, .w = 9, .channels = 20, .kernel = 3, .stride = 2,
                       .pad = 1, .dtype = types[type]);
        if (!trial_make(&got, zonal__nn_cpu(), spec)) return;
        if (trial_make(&want, zonal__nn_ref(), spec)) {
            trial_fill_all(&got, 0);
            trial_fill_all(&want, 0);
            trial_fill(&got, X, 0, 3);
            trial_fill(&want, X, 0, 3);
            run_both(&got, &want, 1);
            CHECK(trial_differing(got.count[Y], got.wide[Y], want.wide[Y]) == 0);
            check_array(&got, &want, DX, "ties");
            got.wide[X][20 * 40 + 3] = want.wide[X][20 * 40 + 3] = NAN;
            run_both(&got, &want, 1);
            for (int64_t i = 0; i < got.count[Y]; i++)
                CHECK(isnan(got.wide[Y][i]) == isnan(want.wide[Y][i]));
            check_array(&got, &want, DX, "NaN");
            trial_drop(&want);
        }
        trial_drop(&got);
    }
}

/* ---- determinism ----------------------------------------------------------------------------- */

static const zonal__layer_spec shapes_for_threads[] = {
    LAYER(CONVOLUTION, .n = 7, .h = 33, .w = 33, .channels = 3, .out_channels = 64, .kernel = 7,
          .stride = 2, .pad = 3),
    LAYER(CONVOLUTION, .n = 13, .h = 16, .w = 16, .channels = 64, .out_channels = 65, .kernel = 3,
          .stride = 1, .pad = 1),
    LAYER(CONVOLUTION, .n = 5, .h = 5, .w = 5, .channels = 256, .out_channels = 130, .kernel = 3,
          .stride = 2, .pad = 1),
    LAYER(LINEAR, .n = 70, .h = 1, .w = 1, .channels = 300, .out_channels = 500, .bias = 1),
    LAYER(NORM, .n = 9, .h = 33, .w = 33, .channels = 48, .activation = ZONAL__ACTIVATION_RELU,
          .residual = 1),
    LAYER(NORM, .n = 300, .h = 1, .w = 1, .channels = 500, .activation = ZONAL__ACTIVATION_GELU),
    LAYER(ACTIVATION, .n = 30, .h = 1, .w = 1, .channels = 500,
          .activation = ZONAL__ACTIVATION_GELU),
    LAYER(MAX_POOL, .n = 7, .h = 33, .w = 33, .channels = 16, .kernel = 3, .stride = 2, .pad = 1),
    LAYER(MEAN_POOL, .n = 7, .h = 5, .w = 5, .channels = 65),
    LAYER(NORM_POOL, .n = 7, .h = 33, .w = 33, .channels = 16, .kernel = 3, .stride = 2, .pad = 1,
          .activation = ZONAL__ACTIVATION_RELU),
};

static void run_all(trial *t, zonal__layer_spec spec, int threads) {
    spec.threads = threads;
    if (!trial_make(t, zonal__nn_cpu(), spec)) return;
    trial_fill_all(t, 0);
    /* sums of thirds round, where those of the grid's multiples of 1/64 might not */
    for (int64_t i = 0; i < t->count[X]; i++) t->wide[X][i] /= 3;
    for (int64_t i = 0; i < t->count[DY]; i++) t->wide[DY][i] /= 3;
    for (int64_t i = 0; i < t->count[WEIGHT]; i++) t->wide[WEIGHT][i] /= 3;
    CHECK_OK(trial_forward(t, 1));
    CHECK_OK(trial_backward(t));
}

static void check_threads(zonal__layer_spec spec) {
    trial one, other;
    char what[256];
    trial_describe(&spec, what, sizeof what);
    run_all(&one, spec, 1);
    /* the last are more than some shapes have work for */
    for (int threads = 1; threads <= 8; threads += threads < 4 ? 1 : 4) {
        run_all(&other, spec, threads);
        for (int i = 0; i < OUTPUTS; i++) {
            int a = outputs[i];
            int64_t differ = trial_differing(one.count[a], one.wide[a], other.wide[a]);
            CHECK_MSG(differ == 0, "%s: %lld elements of %s differ with %d threads", what,
                      (long long)differ, trial_array_names[a], threads);
        }
        trial_drop(&other);
    }
    trial_drop(&one);
}

static void test_threads(void) {
    for (int way = ZONAL__WAY_PLAIN; way <= ZONAL__WAY_AMX; way++) {
        zonal__product_limit((zonal__product_way)way);
        for (size_t i = 0; i < sizeof shapes_for_threads / sizeof shapes_for_threads[0]; i++)
            for (int type = 0; type < 2; type++) {
                zonal__layer_spec spec = shapes_for_threads[i];
                spec.dtype = types[type];
                check_threads(spec);
            }
    }
    zonal__product_limit(ZONAL__WAY_AMX);
}

/* ---- the rest of the contract ---------------------------------------------------------------- */

/* Scratch is filled up with zeros, and what a run has left there must not reach the next: 0 times
 * NaN is NaN. */
static void test_nan_leaves_no_trace(void) {
    static const zonal__layer_spec specs[] = {
        LAYER(CONVOLUTION, .n = 3, .h = 9, .w = 9, .channels = 7, .out_channels = 5, .kernel = 3,
              .stride = 2, .pad = 1),
        LAYER(CONVOLUTION, .n = 1, .h = 5, .w = 5, .channels = 3, .out_channels = 33, .kernel = 3,
              .stride = 1, .pad = 1),
        LAYER(LINEAR, .n = 5, .h = 1, .w = 1, .channels = 33, .out_channels = 7, .bias = 1),
        LAYER(LINEAR, .n = 1, .h = 1, .w = 1, .channels = 65, .out_channels = 7),
        LAYER(NORM, .n = 5, .h = 3, .w = 3, .channels = 7, .residual = 1,
              .activation = ZONAL__ACTIVATION_GELU),
    };
    for (int i = 0; i < 10; i++) {
        zonal__layer_spec spec = specs[i / 2];
        trial used, fresh;
        spec.dtype = types[i % 2];
        if (!trial_make(&used, zonal__nn_cpu(), spec)) continue;
        trial_fill_all(&used, 0);
        for (int64_t k = 0; k < used.count[X]; k++) used.wide[X][k] = NAN;
        for (int64_t k = 0; k < used.count[DY]; k++) used.wide[DY][k] = NAN;
        CHECK_OK(trial_forward(&used, 1));
        CHECK_OK(trial_backward(&used));
        CHECK(isnan(used.wide[Y][0]) && isnan(used.wide[DX][0]));
        if (trial_make(&fresh, zonal__nn_cpu(), spec)) {
            trial_fill_all(&used, 0);
            trial_fill_all(&fresh, 0);
            run_both(&used, &fresh, 1);
            for (int k = 0; k < OUTPUTS; k++)
                CHECK_MSG(trial_differing(used.count[outputs[k]], used.wide[outputs[k]],
                                          fresh.wide[outputs[k]]) == 0,
                          "spec %d: %s remembers a NaN", i, trial_array_names[outputs[k]]);
            trial_drop(&fresh);
        }
        trial_drop(&used);
    }
}

static zonal_status make_and_drop(void *context) {
    zonal__layer *layer = NULL;
    zonal_status status = zonal__nn_cpu()->create(context, &layer);
    CHECK((layer != NULL) == (status == ZONAL_OK));
    zonal__nn_cpu()->destroy(layer);
    return status;
}

static void test_allocations(void) {
    for (size_t i = 0; i < sizeof shapes_for_threads / sizeof shapes_for_threads[0]; i++)
        for (int type = 0; type < 2; type++) {
            zonal__layer_spec spec = shapes_for_threads[i];
            char what[256];
            spec.dtype = types[type];
            spec.threads = 2;
            trial_describe(&spec, what, sizeof what);
            test_every_allocation(what, make_and_drop, &spec);
        }
    zonal__nn_cpu()->destroy(NULL);
}

/* Runs take no memory of ours. */
static void test_runs_allocate_nothing(void) {
    for (size_t i = 0; i < sizeof shapes_for_threads / sizeof shapes_for_threads[0]; i++) {
        trial t;
        zonal__layer_spec spec = shapes_for_threads[i];
        spec.dtype = ZONAL_DTYPE_BF16;
        if (!trial_make(&t, zonal__nn_cpu(), spec)) continue;
        trial_fill_all(&t, 0);
        failing_alloc_install(0, 1);
        CHECK_OK(trial_forward(&t, 1));
        CHECK_OK(trial_backward(&t));
        CHECK(failing_alloc_calls() == 0);
        failing_alloc_remove();
        trial_drop(&t);
    }
}

static void test_forward_only(void) {
    for (size_t i = 0; i < sizeof shapes_for_threads / sizeof shapes_for_threads[0]; i++) {
        trial got, want;
        zonal__layer_spec spec = shapes_for_threads[i];
        spec.forward_only = 1;
        if (!trial_make(&got, zonal__nn_cpu(), spec)) continue;
        CHECK(zonal__nn_cpu()->saved_bytes(got.layer) == 0);
        spec.forward_only = 0;
        if (trial_make(&want, zonal__nn_cpu(), spec)) {
            for (int training = 0; training < 2; training++) {
                trial_fill_all(&got, 0);
                trial_fill_all(&want, 0);
                CHECK_OK(trial_forward(&got, training));
                CHECK_OK(trial_forward(&want, training));
                CHECK(trial_differing(got.count[Y], got.wide[Y], want.wide[Y]) == 0);
            }
            trial_drop(&want);
        }
        CHECK_FAILS(trial_backward(&got), ZONAL_ARGUMENT, "forward_only");
        trial_drop(&got);
    }
}

static void test_refused(void) {
    zonal__layer *layer;
    zonal__layer_spec wide = LAYER_SPEC(MAX_POOL, .n = 1, .h = 300, .w = 300, .channels = 1,
                                        .kernel = 257, .stride = 1, .dtype = ZONAL_DTYPE_FP32);
    zonal__layer_spec half = LAYER_SPEC(LINEAR, .n = 1, .h = 1, .w = 1, .channels = 1,
                                        .out_channels = 1, .dtype = ZONAL_DTYPE_FP16);
    CHECK_FAILS(zonal__nn_cpu()->create(&wide, &layer), ZONAL_SHAPE, "257");
    CHECK(layer == NULL);
    CHECK_FAILS(zonal__nn_cpu()->create(&half, &layer), ZONAL_DTYPE, "fp32 or bf16");
    CHECK(layer == NULL);
}

static const test_case tests[] = {
    {"convolution and linear, plain", test_plain},
    {"convolution and linear, AMX", test_amx},
    {"norm", test_norm},
    {"norm far from zero", test_norm_far_from_zero},
    {"activation", test_activation},
    {"gelu", test_gelu},
    {"pools", test_pools},
    {"norm and pool", test_norm_pool},
    {"pool: ties and NaN", test_pool_ties_and_nan},
    {"threads", test_threads},
    {"a NaN leaves no trace", test_nan_leaves_no_trace},
    {"allocations", test_allocations},
    {"runs allocate nothing", test_runs_allocate_nothing},
    {"forward only", test_forward_only},
    {"refused", test_refused},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
