/*
 * The layers of networks: what src/backend/training/nn.h promises and refuses beyond the formulas,
 * which test_nn.c checks.
 */
#include "core/bf16.h"
#include "failing_alloc.h"
#include "nn_trial.h"
#include "test.h"

/* One of each kind, small. */
static const zonal__layer_spec kinds[] = {
    LAYER(CONVOLUTION, .n = 2, .h = 4, .w = 3, .channels = 3, .out_channels = 2, .kernel = 3,
          .stride = 2, .pad = 1),
    LAYER(LINEAR, .n = 3, .h = 1, .w = 1, .channels = 4, .out_channels = 2, .bias = 1),
    LAYER(NORM, .n = 3, .h = 2, .w = 2, .channels = 3, .activation = ZONAL__ACTIVATION_GELU,
          .residual = 1),
    LAYER(ACTIVATION, .n = 3, .h = 1, .w = 1, .channels = 4, .activation = ZONAL__ACTIVATION_RELU),
    LAYER(MAX_POOL, .n = 2, .h = 5, .w = 4, .channels = 2, .kernel = 3, .stride = 2, .pad = 1),
    LAYER(MEAN_POOL, .n = 2, .h = 3, .w = 2, .channels = 3),
    LAYER(NORM_POOL, .n = 2, .h = 5, .w = 4, .channels = 2, .kernel = 3, .stride = 2, .pad = 1,
          .activation = ZONAL__ACTIVATION_RELU),
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* With accumulate, parameters' gradients are added to, dx is not; without, both are replaced. */
static void test_accumulate(void) {
    for (int k = 0; k < KINDS; k++) {
        trial once, twice;
        if (!trial_make(&once, zonal__nn_ref(), kinds[k])) continue;
        if (trial_make(&twice, zonal__nn_ref(), kinds[k])) {
            trial_fill_all(&once, 0);
            trial_fill_all(&twice, 0);
            for (int a = DX; a <= DSCALE; a++)
                trial_fill(&twice, a, 0, 257); /* must be overwritten */
            CHECK_OK(trial_forward(&once, 1));
            CHECK_OK(trial_forward(&twice, 1));
            CHECK_OK(trial_backward(&once));
            CHECK_OK(trial_backward(&twice));
            for (int a = DX; a <= DSCALE; a++)
                CHECK(trial_differing(once.count[a], once.wide[a], twice.wide[a]) == 0);
            twice.accumulate = 1;
            CHECK_OK(trial_backward(&twice));
            for (int a = DX; a <= DSCALE; a++)
                for (int64_t i = 0; i < once.count[a]; i++)
                    CHECK(twice.wide[a][i] == (a >= DWEIGHT ? 2 : 1) * once.wide[a][i]);
            trial_drop(&twice);
        }
        trial_drop(&once);
    }
}

/* Gradients that are not wanted are left alone, the others do not change. */
static void check_skipped(const zonal__nn_table *table, zonal__layer_spec spec, int skip) {
    trial all, some;
    if (!trial_make(&all, table, spec)) return;
    if (trial_make(&some, table, spec)) {
        trial_fill_all(&all, 0);
        trial_fill_all(&some, 0);
        some.skip_dx = skip & 1;
        some.skip_dresidual = skip >> 1 & 1;
        some.skip_dweight = skip >> 2;
        for (int a = DX; a <= DSCALE; a++) trial_fill(&some, a, 0, 257);
        CHECK_OK(trial_forward(&all, 1));
        CHECK_OK(trial_forward(&some, 1));
        CHECK_OK(trial_backward(&all));
        CHECK_OK(trial_backward(&some));
        for (int a = DX; a <= DSCALE; a++) {
            int left = (a == DX && some.skip_dx) || (a == DRESIDUAL && some.skip_dresidual) ||
                       (a == DWEIGHT && some.skip_dweight) ||
                       (a == DBIAS && some.skip_dweight && !trial_is_norm(&spec));
            int64_t differing = trial_differing(all.count[a], all.wide[a], some.wide[a]);
            CHECK_MSG(left ? differing == all.count[a] : differing == 0,
                      "%s, kind %d, skip %d: %d of %d differ in array %d", table->name,
                      (int)spec.kind, skip, (int)differing, (int)all.count[a], a);
        }
        trial_drop(&some);
    }
    trial_drop(&all);
}

static void test_skipped_gradients(void) {
    for (int k = 0; k < KINDS; k++)
        for (int skip = 1; skip < 8; skip++) {
            check_skipped(zonal__nn_ref(), kinds[k], skip);
            check_skipped(zonal__nn_cpu(), kinds[k], skip);
        }
}

/* Two gradients of y are used as their sum, which is exact here. */
static void test_two_gradients(void) {
    for (int k = 0; k < KINDS; k++) {
        trial apart, added;
        if (!trial_is_norm(&kinds[k]) && kinds[k].kind != ZONAL__LAYER_MAX_POOL) continue;
        if (!trial_make(&apart, zonal__nn_ref(), kinds[k])) continue;
        if (trial_make(&added, zonal__nn_ref(), kinds[k])) {
            trial_fill_all(&apart, 0);
            trial_fill_all(&added, 0);
            apart.with_more = 1;
            for (int64_t i = 0; i < added.count[DY]; i++)
                added.wide[DY][i] += added.wide[DY_MORE][i];
            CHECK_OK(trial_forward(&apart, 1));
            CHECK_OK(trial_forward(&added, 1));
            CHECK_OK(trial_backward(&apart));
            CHECK_OK(trial_backward(&added));
            for (int a = DX; a <= DSCALE; a++)
                CHECK(trial_differing(added.count[a], apart.wide[a], added.wide[a]) == 0);
            trial_drop(&added);
        }
        trial_drop(&apart);
    }
}

/* Nothing is saved, forward gives the same numbers, and backward is refused. */
static void test_forward_only(void) {
    for (int k = 0; k < KINDS; k++) {
        zonal__layer_spec spec = kinds[k];
        trial full, only;
        if (!trial_make(&full, zonal__nn_ref(), spec)) continue;
        spec.forward_only = 1;
        if (trial_make(&only, zonal__nn_ref(), spec)) {
            zonal__layer_arrays arrays;
            trial_fill_all(&full, 0);
            trial_fill_all(&only, 0);
            arrays = trial_arrays(&only);
            arrays.saved = NULL;
            CHECK(only.table->saved_bytes(only.layer) == 0);
            CHECK_OK(trial_forward(&full, 1));
            CHECK_OK(only.table->forward(only.layer, &arrays, 1));
            CHECK(trial_differing(full.count[Y], full.wide[Y], only.wide[Y]) == 0);
            CHECK_FAILS(trial_backward(&only), ZONAL_ARGUMENT, "forward only");
            trial_drop(&only);
        }
        trial_drop(&full);
    }
}

/* Inference writes y and nothing else. */
static void test_inference_leaves_the_rest(void) {
    for (int k = 0; k < KINDS; k++) {
        trial t;
        if (!trial_make(&t, zonal__nn_ref(), kinds[k])) continue;
        size_t bytes = t.table->saved_bytes(t.layer), changed = 0;
        trial_fill_all(&t, 0);
        if (bytes) memset(t.saved, 0xa5, bytes);
        CHECK_OK(trial_forward(&t, 0));
        for (size_t i = 0; i < bytes; i++) changed += ((unsigned char *)t.saved)[i] != 0xa5;
        CHECK(changed == 0);
        for (int64_t c = 0; c < t.count[RUNNING_MEAN]; c++)
            CHECK(t.wide[RUNNING_MEAN][c] == 0.5f && t.wide[RUNNING_VARIANCE][c] == 2);
        trial_drop(&t);
    }
}

/* A NaN reaches every y it has a part in, and no other. */
static void test_nan_is_passed_on(void) {
    trial relu, pool, norm;
    if (trial_make(&relu, zonal__nn_ref(), kinds[ZONAL__LAYER_ACTIVATION])) {
        relu.wide[X][5] = NAN;
        CHECK_OK(trial_forward(&relu, 1));
        for (int64_t i = 0; i < relu.count[Y]; i++) CHECK(isnan(relu.wide[Y][i]) == (i == 5));
        trial_drop(&relu);
    }
    /* Pixel (1, 1) of channel 1 in the first image lies in the first two windows each way. With a
     * norm this is so in inference. */
    for (int with_norm = 0; with_norm < 2; with_norm++) {
        zonal__layer_spec spec = kinds[with_norm ? ZONAL__LAYER_NORM_POOL : ZONAL__LAYER_MAX_POOL];
        if (!trial_make(&pool, zonal__nn_ref(), spec)) continue;
        trial_fill_all(&pool, 0);
        pool.wide[X][(1 * 4 + 1) * 2 + 1] = NAN;
        CHECK_OK(trial_forward(&pool, !with_norm));
        for (int64_t i = 0; i < pool.count[Y]; i++) {
            int64_t column = i / 2 % 2, row = i / 4 % 3, n = i / 12;
            CHECK(isnan(pool.wide[Y][i]) == (n == 0 && row < 2 && column < 2 && i % 2 == 1));
        }
        trial_drop(&pool);
    }
    if (trial_make(&norm, zonal__nn_ref(),
                   LAYER_SPEC(NORM, .n = 3, .h = 2, .w = 2, .channels = 3,
                              .activation = ZONAL__ACTIVATION_RELU))) {
        trial_fill_all(&norm, 0);
        norm.wide[X][3 * 5 + 2] = NAN;
        CHECK_OK(trial_forward(&norm, 1));
        for (int64_t i = 0; i < norm.count[Y]; i++) CHECK(isnan(norm.wide[Y][i]) == (i % 3 == 2));
        trial_drop(&norm);
    }
}

/* Every bf16 is itself; between neighbours the nearer one wins, at half way the even one. */
static void test_bf16_rounding(void) {
    int64_t wrong = 0;
    for (uint32_t bits = 0; bits < 0x7f80; bits++) { /* finite, the sign left out */
        uint16_t low = (uint16_t)bits, high = (uint16_t)(bits + 1);
        double a = (double)zonal__bf16_to_float(low);
        double b = high == 0x7f80 ? 0x1p128 : (double)zonal__bf16_to_float(high);
        float half = (float)((a + b) / 2), below = nextafterf(half, 0);
        float above = nextafterf(half, INFINITY);
        wrong += zonal__bf16_from_float((float)a) != low;
        wrong += zonal__bf16_from_float(below) != low || zonal__bf16_from_float(above) != high;
        wrong += zonal__bf16_from_float(half) != (bits % 2 ? high : low);
        wrong += zonal__bf16_from_float(-below) != (low | 0x8000);
    }
    CHECK_MSG(wrong == 0, "%lld roundings are wrong", (long long)wrong);
    CHECK(zonal__bf16_to_float(0x3f80) == 1 && zonal__bf16_to_float(0xc040) == -3);
    CHECK(isnan(zonal__bf16_to_float(zonal__bf16_from_float(NAN))));
    CHECK(isinf(zonal__bf16_to_float(zonal__bf16_from_float(-INFINITY))));
    /* The NaN whose bits are all ones: adding to them would give zero. */
    uint32_t ones = 0x7fffffff;
    float nan;
    memcpy(&nan, &ones, sizeof nan);
    CHECK(isnan(zonal__bf16_to_float(zonal__bf16_from_float(nan))));
}

/* ---- refusals and memory --------------------------------------------------------------------- */

static void check_refused(zonal__layer_spec spec, zonal_status status, const char *sentence) {
    zonal__layer *layer = (zonal__layer *)&spec; /* must become NULL */
    if (!spec.dtype) spec.dtype = ZONAL_DTYPE_FP32;
    CHECK_FAILS(zonal__nn_ref()->create(&spec, &layer), status, sentence);
    CHECK(layer == NULL);
    zonal__nn_ref()->destroy(layer);
}

#define REFUSED(status, sentence, base, ...)                                                       \
    do {                                                                                           \
        zonal__layer_spec spec = kinds[ZONAL__LAYER_##base];                                       \
        __VA_ARGS__;                                                                               \
        check_refused(spec, status, sentence);                                                     \
    } while (0)

static void test_bad_shapes(void) {
    REFUSED(ZONAL_SHAPE, "0 channels", CONVOLUTION, spec.channels = 0);
    REFUSED(ZONAL_SHAPE, "-1 x 4 x 3", CONVOLUTION, spec.n = -1);
    REFUSED(ZONAL_SHAPE, "is empty", MEAN_POOL, spec.h = 0);
    REFUSED(ZONAL_SHAPE, "is empty", NORM, spec.w = 0);
    REFUSED(ZONAL_SHAPE, "longer than", MEAN_POOL, spec.w = INT32_MAX);
    REFUSED(ZONAL_SHAPE, "1 output channel, got 0", CONVOLUTION, spec.out_channels = 0);
    REFUSED(ZONAL_SHAPE, "1 output channel, got -3", LINEAR, spec.out_channels = -3);
    REFUSED(ZONAL_SHAPE, "pool them first", LINEAR, spec.h = 2);
    REFUSED(ZONAL_SHAPE, "kernel 0", CONVOLUTION, spec.kernel = 0);
    REFUSED(ZONAL_SHAPE, "at most", CONVOLUTION, spec.kernel = INT32_MAX, spec.pad = INT32_MAX - 1);
    REFUSED(ZONAL_SHAPE, "stride 0", MAX_POOL, spec.stride = 0);
    REFUSED(ZONAL_SHAPE, "padding -1", CONVOLUTION, spec.pad = -1);
    REFUSED(ZONAL_SHAPE, "padding 3 must lie between 0 and 2", MAX_POOL, spec.pad = 3);
    REFUSED(ZONAL_SHAPE, "stride 0", NORM_POOL, spec.stride = 0);
    REFUSED(ZONAL_SHAPE, "a kernel of 6 is larger than its input of 4 x 3 padded by 1", CONVOLUTION,
            spec.kernel = 6);
    REFUSED(ZONAL_SHAPE, "a kernel of 7 is larger than its input of 5 x 4 padded by 1", MAX_POOL,
            spec.kernel = 7);
}

static void test_bad_sizes(void) {
    REFUSED(ZONAL_SHAPE, "input of 4611686018427387904 x 4 x 3 x 3", CONVOLUTION,
            spec.n = (int64_t)1 << 62);
    REFUSED(ZONAL_SHAPE, "input of", NORM, spec.n = (int64_t)1 << 40, spec.h = spec.w = 1 << 10);
    REFUSED(ZONAL_SHAPE, "output of", LINEAR, spec.n = (int64_t)1 << 40,
            spec.out_channels = 1 << 30);
    REFUSED(ZONAL_SHAPE, "weight of", CONVOLUTION, spec.channels = spec.out_channels = 1 << 29,
            spec.kernel = 3);
    /* What can be addressed is not refused, however large: memory will say. */
    zonal__layer_spec large = kinds[ZONAL__LAYER_NORM];
    int h, w, channels;
    large.dtype = ZONAL_DTYPE_BF16;
    large.n = (int64_t)1 << 40;
    CHECK_OK(zonal__layer_shape(&large, &h, &w, &channels));
    CHECK(h == 2 && w == 2 && channels == 3);
}

static void test_bad_options(void) {
    REFUSED(ZONAL_ARGUMENT, "no kind 8", NORM, spec.kind = (zonal__layer_kind)8);
    REFUSED(ZONAL_UNSUPPORTED, "a convolution and a batch norm one after the other", CONVOLUTION,
            spec.kind = ZONAL__LAYER_PRODUCT_NORM);
    REFUSED(ZONAL_ARGUMENT, "one after the other", NORM_POOL,
            spec.activation = ZONAL__ACTIVATION_GELU);
    REFUSED(ZONAL_ARGUMENT, "no residual", NORM_POOL, spec.residual = 1);
    REFUSED(ZONAL_ARGUMENT, "no activation 3", NORM, spec.activation = (zonal__activation)3);
    REFUSED(ZONAL_DTYPE, "fp32 or bf16", LINEAR, spec.dtype = ZONAL_DTYPE_FP16);
    REFUSED(ZONAL_ARGUMENT, "threads", LINEAR, spec.threads = -1);
    REFUSED(ZONAL_ARGUMENT, "epsilon", NORM, spec.epsilon = -1e-5f);
    REFUSED(ZONAL_ARGUMENT, "epsilon", NORM, spec.epsilon = NAN);
    REFUSED(ZONAL_ARGUMENT, "momentum", NORM, spec.momentum = 1.5f);
    REFUSED(ZONAL_ARGUMENT, "momentum", NORM, spec.momentum = NAN);
    zonal__layer_spec automatic = kinds[ZONAL__LAYER_LINEAR]; /* a layer has no type of its own */
    int h = -5, w = -5, channels = -5;
    CHECK_FAILS(zonal__layer_shape(&automatic, &h, &w, &channels), ZONAL_DTYPE, "fp32 or bf16");
    CHECK(h == -5 && w == -5 && channels == -5);
}

/* One value has no variance: training is refused and changes nothing, inference is not. */
static void check_one_value(zonal__layer_spec spec) {
    trial t;
    if (!trial_make(&t, zonal__nn_ref(), spec)) return;
    trial_fill_all(&t, 0);
    CHECK_FAILS(trial_forward(&t, 1), ZONAL_SHAPE, "use a batch of at least 2");
    for (int c = 0; c < 4; c++)
        CHECK(t.wide[RUNNING_MEAN][c] == 0.5f && t.wide[RUNNING_VARIANCE][c] == 2);
    CHECK_OK(trial_forward(&t, 0));
    trial_drop(&t);
}

static void test_norm_of_one_value(void) {
    check_one_value(LAYER_SPEC(NORM, .n = 1, .h = 1, .w = 1, .channels = 4));
    check_one_value(LAYER_SPEC(NORM_POOL, .n = 1, .h = 1, .w = 1, .channels = 4, .kernel = 3,
                               .stride = 2, .pad = 1));
}

static zonal_status make_and_drop(void *context) {
    zonal__layer *layer;
    ZONAL_TRY(zonal__nn_ref()->create(context, &layer));
    zonal__nn_ref()->destroy(layer);
    return ZONAL_OK;
}

static void test_allocations(void) {
    for (int k = 0; k < KINDS; k++) {
        zonal__layer_spec spec = kinds[k];
        spec.dtype = ZONAL_DTYPE_BF16;
        test_every_allocation("a layer", make_and_drop, &spec);
    }
}

static void test_run_allocates_nothing(void) {
    for (int k = 0; k < KINDS; k++) {
        trial t;
        if (!trial_make(&t, zonal__nn_ref(), kinds[k])) continue;
        trial_fill_all(&t, 0);
        failing_alloc_install(0, 1);
        CHECK_OK(trial_forward(&t, 1));
        CHECK_OK(trial_backward(&t));
        CHECK_OK(trial_forward(&t, 0));
        CHECK(failing_alloc_calls() == 0);
        CHECK(failing_alloc_remove() == 0);
        trial_drop(&t);
    }
}

static const test_case tests[] = {{"accumulate", test_accumulate},
                                  {"skipped_gradients", test_skipped_gradients},
                                  {"two_gradients", test_two_gradients},
                                  {"forward_only", test_forward_only},
                                  {"inference_leaves_the_rest", test_inference_leaves_the_rest},
                                  {"nan_is_passed_on", test_nan_is_passed_on},
                                  {"bf16_rounding", test_bf16_rounding},
                                  {"bad_shapes", test_bad_shapes},
                                  {"bad_sizes", test_bad_sizes},
                                  {"bad_options", test_bad_options},
                                  {"norm_of_one_value", test_norm_of_one_value},
                                  {"allocations", test_allocations},
                                  {"run_allocates_nothing", test_run_allocates_nothing},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
