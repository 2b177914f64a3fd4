/*
 * The layers of networks: src/backend/training/nn.h. The reference against PyTorch's numbers,
 * against differences of its own forward, and against identities. The rest of the contract is
 * tested in test_nn_contract.c.
 */
#include "nn_trial.h"
#include "test.h"

static double inner(int64_t n, const float *a, const float *b) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

typedef struct golden_layer {
    const char *name;
    int grid, training;
    int64_t at[ARRAYS]; /* of the first element among golden_values; 0: not there */
    zonal__layer_spec spec;
} golden_layer;

#include "golden/nn.h"

static const int64_t golden_count = sizeof golden_layers / sizeof golden_layers[0];

enum { NORM_STEPS = 3 }; /* as in make_nn.py */

/* Inputs are exact and sums are in double, so what is left is the rounding of the result: half a
 * unit of its last place, and for running averages one in each step. The 1e-12 is for the double
 * sums, where they cancel to nearly nothing. */
static void check_golden_array(const trial *t, const golden_layer *golden, int array) {
    int bf16 = t->spec.dtype == ZONAL_DTYPE_BF16;
    double unit = bf16 && trial_is_narrow(array) ? 0x1p-8 : 0x1p-24;
    if (array == RUNNING_MEAN || array == RUNNING_VARIANCE) unit *= NORM_STEPS;
    for (int64_t i = 0; i < t->count[array]; i++) {
        double got = (double)t->wide[array][i], want = golden_values[golden->at[array] + i];
        CHECK_MSG(fabs(got - want) <= unit * fabs(want) + 1e-12,
                  "%s, %s: %s[%lld] is %.9g, PyTorch has %.9g", golden->name,
                  bf16 ? "bf16" : "fp32", trial_array_names[array], (long long)i, got, want);
    }
}

static void check_golden(const golden_layer *golden, zonal_dtype dtype) {
    zonal__layer_spec spec = golden->spec;
    trial t;
    int steps = trial_is_norm(&spec) && golden->training ? NORM_STEPS : 1;
    spec.dtype = dtype;
    if (!trial_make(&t, zonal__nn_ref(), spec)) return;
    trial_fill_all(&t, 0);
    for (int step = 0; step < steps; step++) {
        trial_fill(&t, X, step, golden->grid);
        trial_fill(&t, RESIDUAL, step, 257);
        CHECK_OK(trial_forward(&t, golden->training));
    }
    if (golden->training) CHECK_OK(trial_backward(&t));
    for (int a = 0; a < ARRAYS; a++)
        if (golden->at[a]) check_golden_array(&t, golden, a);
    trial_drop(&t);
}

static void test_pytorch_fp32(void) {
    for (int64_t g = 0; g < golden_count; g++) check_golden(&golden_layers[g], ZONAL_DTYPE_FP32);
}

static void test_pytorch_bf16(void) {
    for (int64_t g = 0; g < golden_count; g++) check_golden(&golden_layers[g], ZONAL_DTYPE_BF16);
}

/* ---- differences of the forward -------------------------------------------------------------- */

static double loss(trial *t) {
    CHECK_OK(trial_forward(t, 1));
    return inner(t->count[Y], t->wide[Y], t->wide[DY]);
}

/* d loss / d array[i] by five points: exact for polynomials of degree 4, else off by step^4/30
 * times the fifth derivative. Steps are multiples of 1/64, so that moved inputs are exact. */
static double difference(trial *t, int array, int64_t i, float step) {
    float *at = &t->wide[array][i], here = *at;
    double value[5];
    for (int k = -2; k <= 2; k++) {
        *at = here + (float)k * step;
        value[k + 2] = loss(t);
    }
    *at = here;
    return (8 * (value[3] - value[1]) - (value[4] - value[0])) / (12 * (double)step);
}

/* The tolerance is relative to the largest gradient of the array. */
static void check_differences(trial *t, const char *name, float step, double tolerance) {
    static const int pairs[][2] = {
        {X, DX}, {RESIDUAL, DRESIDUAL}, {WEIGHT, DWEIGHT}, {BIAS, DBIAS}, {SCALE, DSCALE}};
    CHECK_OK(trial_forward(t, 1));
    CHECK_OK(trial_backward(t));
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        const float *gradient = t->wide[pairs[p][1]];
        double largest = 0, worst = 0;
        for (int64_t i = 0; i < t->count[pairs[p][0]]; i++) {
            double error = fabs(difference(t, pairs[p][0], i, step) - (double)gradient[i]);
            if (!(error <= worst)) worst = error; /* NaN stays */
            largest = fmax(largest, fabs((double)gradient[i]));
        }
        CHECK_MSG(!t->count[pairs[p][0]] || largest > 0.01, "%s: no gradient of %s", name,
                  trial_array_names[pairs[p][0]]);
        CHECK_MSG(worst <= tolerance * largest,
                  "%s: d%s is %g away from the differences, the largest is %g", name,
                  trial_array_names[pairs[p][0]], worst, largest);
    }
}

/* Linear in every argument, and all numbers are multiples of 2^-12 well below 2^12: the y are exact
 * and so is the difference, whatever the step. Leaves the sums in double. */
static void test_differences_linear(void) {
    static const struct {
        const char *name;
        zonal__layer_spec spec;
    } cases[] = {
        {"kernel 1", LAYER(CONVOLUTION, .n = 2, .h = 3, .w = 2, .channels = 3, .out_channels = 2,
                           .kernel = 1, .stride = 1)},
        {"kernel 3", LAYER(CONVOLUTION, .n = 2, .h = 4, .w = 3, .channels = 2, .out_channels = 3,
                           .kernel = 3, .stride = 1, .pad = 1)},
        {"kernel 3 by 2", LAYER(CONVOLUTION, .n = 1, .h = 5, .w = 6, .channels = 2,
                                .out_channels = 2, .kernel = 3, .stride = 2, .pad = 1)},
        {"kernel 7 by 2", LAYER(CONVOLUTION, .n = 1, .h = 7, .w = 6, .channels = 1,
                                .out_channels = 2, .kernel = 7, .stride = 2, .pad = 3)},
        {"linear", LAYER(LINEAR, .n = 3, .h = 1, .w = 1, .channels = 4, .out_channels = 5)},
        {"linear with bias",
         LAYER(LINEAR, .n = 3, .h = 1, .w = 1, .channels = 4, .out_channels = 2, .bias = 1)},
        {"mean pool", LAYER(MEAN_POOL, .n = 2, .h = 2, .w = 4, .channels = 3)},
        {"no activation", LAYER(ACTIVATION, .n = 3, .h = 1, .w = 1, .channels = 4)},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        trial t;
        if (!trial_make(&t, zonal__nn_ref(), cases[k].spec)) continue;
        trial_fill_all(&t, 0);
        check_differences(&t, cases[k].name, 1, 1e-13);
        trial_drop(&t);
    }
}

/* Ones that no step of 1/32 reorders: each element is its own multiple of 1/4. */
static void fill_apart(trial *t) {
    for (int64_t i = 0; i < t->count[X]; i++)
        t->wide[X][i] = (float)(i * 7919 % t->count[X]) / 4; /* a prime: each value once */
}

static void test_differences_max_pool(void) {
    static const zonal__layer_spec specs[] = {
        LAYER(MAX_POOL, .n = 1, .h = 5, .w = 4, .channels = 2, .kernel = 3, .stride = 2, .pad = 1),
        LAYER(MAX_POOL, .n = 2, .h = 3, .w = 4, .channels = 1, .kernel = 2, .stride = 1),
    };
    for (size_t k = 0; k < sizeof specs / sizeof specs[0]; k++) {
        trial t;
        if (!trial_make(&t, zonal__nn_ref(), specs[k])) continue;
        trial_fill_all(&t, 0);
        fill_apart(&t);
        check_differences(&t, "max pool", 1.0f / 32, 1e-13);
        trial_drop(&t);
    }
}

/* Draws inputs until nothing that the activation sees lies within 0.1 of the corner of relu, which
 * no difference may cross, nor any scale, which would turn the order in a pool about. */
static int fill_off_corner(trial *t) {
    zonal__layer_spec plain_spec = t->spec;
    trial plain;
    int step = 0, found = 0;
    plain_spec.activation = ZONAL__ACTIVATION_NONE;
    if (!trial_make(&plain, zonal__nn_ref(), plain_spec)) return 0;
    for (; !found && step < 256; step++) {
        trial_fill_all(&plain, step);
        trial_fill_all(t, step);
        if (t->spec.kind == ZONAL__LAYER_NORM_POOL) {
            fill_apart(&plain);
            fill_apart(t);
        }
        CHECK_OK(trial_forward(&plain, 1));
        found = 1;
        for (int64_t i = 0; i < plain.count[Y]; i++) found &= fabs((double)plain.wide[Y][i]) > 0.1;
        for (int64_t c = 0; c < t->count[SCALE]; c++)
            found &= fabs((double)t->wide[SCALE][c]) > 0.1;
    }
    trial_drop(&plain);
    return CHECK_MSG(found, "no draw keeps away from the corner of relu");
}

/* Rounding each y to fp32 leaves about 3e-8 |y| |dy| sqrt(24)/step = 1e-5 in a difference; the
 * formula's own error at step 1/64 is below that for deviations near 1. Gradients reach 1 to 10. */
static void test_differences_norm(void) {
    static const zonal__activation activations[] = {ZONAL__ACTIVATION_NONE, ZONAL__ACTIVATION_RELU,
                                                    ZONAL__ACTIVATION_GELU};
    for (int a = 0; a < 3; a++)
        for (int residual = 0; residual < 2; residual++) {
            char name[64];
            trial t;
            if (!trial_make(&t, zonal__nn_ref(),
                            LAYER_SPEC(NORM, .n = 3, .h = 2, .w = 2, .channels = 2,
                                       .activation = activations[a], .residual = residual)))
                continue;
            snprintf(name, sizeof name, "norm, activation %d, residual %d", a, residual);
            if (fill_off_corner(&t)) check_differences(&t, name, 1.0f / 64, 2e-5);
            trial_drop(&t);
        }
}

/* As above, but x has a standard deviation of 10 to 20, so gradients are some tenths: the same
 * roundings are a larger part of them. A wrong winner shows at 1. */
static void test_differences_norm_pool(void) {
    for (int a = ZONAL__ACTIVATION_NONE; a <= ZONAL__ACTIVATION_RELU; a++) {
        trial t;
        if (!trial_make(&t, zonal__nn_ref(),
                        LAYER_SPEC(NORM_POOL, .n = 2, .h = 5, .w = 4, .channels = 2, .kernel = 3,
                                   .stride = 2, .pad = 1, .activation = (zonal__activation)a)))
            continue;
        if (fill_off_corner(&t)) check_differences(&t, "norm and pool", 1.0f / 32, 1e-4);
        trial_drop(&t);
    }
}

static void test_differences_activation(void) {
    for (int a = ZONAL__ACTIVATION_RELU; a <= ZONAL__ACTIVATION_GELU; a++) {
        trial t;
        if (!trial_make(&t, zonal__nn_ref(),
                        LAYER_SPEC(ACTIVATION, .n = 5, .h = 1, .w = 1, .channels = 3,
                                   .activation = (zonal__activation)a)))
            continue;
        if (fill_off_corner(&t)) check_differences(&t, "activation", 1.0f / 64, 2e-5);
        trial_drop(&t);
    }
}

/* ---- identities ------------------------------------------------------------------------------ */

/* A 1 x 1 convolution is the linear layer of every pixel, to the bit. */
static void test_convolution_of_pixels(void) {
    trial pixels, rows;
    if (!trial_make(&pixels, zonal__nn_ref(),
                    LAYER_SPEC(CONVOLUTION, .n = 2, .h = 3, .w = 4, .channels = 5,
                               .out_channels = 3, .kernel = 1, .stride = 1)))
        return;
    if (trial_make(&rows, zonal__nn_ref(),
                   LAYER_SPEC(LINEAR, .n = 24, .h = 1, .w = 1, .channels = 5, .out_channels = 3))) {
        trial_fill_all(&pixels, 0);
        trial_fill_all(&rows, 0);
        CHECK_OK(trial_forward(&pixels, 1));
        CHECK_OK(trial_forward(&rows, 1));
        CHECK_OK(trial_backward(&pixels));
        CHECK_OK(trial_backward(&rows));
        for (int a = Y; a <= DWEIGHT; a++) {
            CHECK(pixels.count[a] == rows.count[a]);
            CHECK(trial_differing(rows.count[a], pixels.wide[a], rows.wide[a]) == 0);
        }
        trial_drop(&rows);
    }
    trial_drop(&pixels);
}

/* y(x1 + x2) = y(x1) + y(x2), in x and in the weight; multiples of 2^-12 below 2^11, so exactly. */
static void test_convolution_is_linear(void) {
    trial t, other, sum;
    zonal__layer_spec spec = LAYER(CONVOLUTION, .n = 2, .h = 5, .w = 4, .channels = 3,
                                   .out_channels = 2, .kernel = 3, .stride = 2, .pad = 1);
    if (!trial_make(&t, zonal__nn_ref(), spec) || !trial_make(&other, zonal__nn_ref(), spec) ||
        !trial_make(&sum, zonal__nn_ref(), spec))
        return;
    for (int moved = X; moved <= WEIGHT; moved += WEIGHT - X) {
        trial_fill_all(&t, 0);
        trial_fill_all(&other, 0);
        trial_fill_all(&sum, 0);
        trial_fill(&other, moved, 1, 257);
        for (int64_t i = 0; i < t.count[moved]; i++)
            sum.wide[moved][i] = t.wide[moved][i] + other.wide[moved][i];
        CHECK_OK(trial_forward(&t, 1));
        CHECK_OK(trial_forward(&other, 1));
        CHECK_OK(trial_forward(&sum, 1));
        for (int64_t i = 0; i < t.count[Y]; i++)
            CHECK_CLOSE((double)sum.wide[Y][i], (double)t.wide[Y][i] + (double)other.wide[Y][i], 0);
    }
    trial_drop(&t);
    trial_drop(&other);
    trial_drop(&sum);
}

/* <y, dy> = <x, dx> = <weight, dweight>: backward is the transpose of forward, over all windows
 * that fit. All products are exact but for the sums in double. */
static void test_convolution_transposed(void) {
    for (int kernel = 1; kernel <= 4; kernel++)
        for (int stride = 1; stride <= 3; stride++)
            for (int pad = 0; pad < kernel; pad++)
                for (int side = 1; side <= 6; side++) {
                    trial t;
                    if (kernel > side + 2 * pad) continue;
                    if (!trial_make(&t, zonal__nn_ref(),
                                    LAYER_SPEC(CONVOLUTION, .n = 2, .h = side, .w = 7,
                                               .channels = 2, .out_channels = 3, .kernel = kernel,
                                               .stride = stride, .pad = pad)))
                        continue;
                    trial_fill_all(&t, 0);
                    CHECK_OK(trial_forward(&t, 1));
                    CHECK_OK(trial_backward(&t));
                    double want = inner(t.count[Y], t.wide[Y], t.wide[DY]);
                    CHECK_CLOSE(inner(t.count[X], t.wide[X], t.wide[DX]), want, 1e-11);
                    CHECK_CLOSE(inner(t.count[WEIGHT], t.wide[WEIGHT], t.wide[DWEIGHT]), want,
                                1e-11);
                    trial_drop(&t);
                }
}

static void test_norm_pool_is_two_layers(void) {
    for (int i = 0; i < 4; i++) {
        zonal__layer_spec spec = LAYER_SPEC(
            NORM_POOL, .n = 3, .h = 7, .w = 6, .channels = 5, .kernel = 3, .stride = 2, .pad = 1,
            .activation = (zonal__activation)(i / 2), .epsilon = 1e-3f, .momentum = 0.3f);
        spec.dtype = i % 2 ? ZONAL_DTYPE_BF16 : ZONAL_DTYPE_FP32;
        trial_check_norm_pool(zonal__nn_ref(), spec);
        spec.kernel = spec.stride = 2;
        trial_check_norm_pool(zonal__nn_ref(), spec);
    }
}

static void test_mean_pool_of_constant(void) {
    trial t;
    if (!trial_make(&t, zonal__nn_ref(),
                    LAYER_SPEC(MEAN_POOL, .n = 2, .h = 3, .w = 7, .channels = 3)))
        return;
    for (int64_t i = 0; i < t.count[X]; i++) t.wide[X][i] = 0.1f * (float)(1 + i % 3);
    for (int64_t i = 0; i < t.count[DY]; i++) t.wide[DY][i] = 21;
    CHECK_OK(trial_forward(&t, 1));
    CHECK_OK(trial_backward(&t));
    for (int64_t i = 0; i < t.count[Y]; i++) CHECK(t.wide[Y][i] == t.wide[X][i % 3]);
    for (int64_t i = 0; i < t.count[DX]; i++) CHECK(t.wide[DX][i] == 1);
    trial_drop(&t);
}

/* Inference is the map x -> a x + b of its running statistics: known at 0 and 1, known everywhere.
 * Every y has been rounded once. */
static void test_norm_inference_is_affine(void) {
    trial t;
    float at_zero[3], at_one[3];
    if (!trial_make(&t, zonal__nn_ref(), LAYER_SPEC(NORM, .n = 4, .h = 1, .w = 2, .channels = 3)))
        return;
    trial_fill_all(&t, 0);
    for (int64_t c = 0; c < 3; c++) t.wide[RUNNING_VARIANCE][c] = (float)(1 + c);
    for (int64_t i = 0; i < 6; i++) t.wide[X][i] = i < 3 ? 0 : 1;
    CHECK_OK(trial_forward(&t, 0));
    memcpy(at_zero, t.wide[Y], sizeof at_zero);
    memcpy(at_one, t.wide[Y] + 3, sizeof at_one);
    for (int64_t i = 6; i < t.count[X]; i++) {
        double x = (double)t.wide[X][i], zero = (double)at_zero[i % 3], one = (double)at_one[i % 3];
        CHECK_CLOSE((double)t.wide[Y][i], zero + x * (one - zero), 1e-6);
    }
    for (int64_t c = 0; c < 3; c++) {
        double std = sqrt((double)t.wide[RUNNING_VARIANCE][c] + 1e-5);
        double want = (double)t.wide[BIAS][c] - 0.5 * (double)t.wide[SCALE][c] / std;
        CHECK_CLOSE((double)at_zero[c], want, 1e-6);
        CHECK(t.wide[RUNNING_MEAN][c] == 0.5f && t.wide[RUNNING_VARIANCE][c] == (float)(1 + c));
    }
    trial_drop(&t);
}

/* In training, y has mean "bias" and standard deviation |scale| (epsilon takes 5e-6 of a variance
 * near 1), and does not see a shift of x, not even one a thousand deviations long. */
static void test_norm_normalises(void) {
    trial t, moved;
    zonal__layer_spec spec = LAYER(NORM, .n = 8, .h = 3, .w = 5, .channels = 3);
    if (!trial_make(&t, zonal__nn_ref(), spec) || !trial_make(&moved, zonal__nn_ref(), spec))
        return;
    trial_fill_all(&t, 0);
    trial_fill_all(&moved, 0);
    for (int64_t i = 0; i < t.count[X]; i++) moved.wide[X][i] += 1024;
    CHECK_OK(trial_forward(&t, 1));
    CHECK_OK(trial_forward(&moved, 1));
    for (int c = 0; c < 3; c++) {
        double sum = 0, squares = 0, bias = (double)t.wide[BIAS][c];
        for (int64_t i = c; i < t.count[Y]; i += 3) {
            sum += (double)t.wide[Y][i];
            squares += ((double)t.wide[Y][i] - bias) * ((double)t.wide[Y][i] - bias);
        }
        CHECK_CLOSE(sum / 120, bias, 1e-6);
        CHECK_CLOSE(sqrt(squares / 120), fabs((double)t.wide[SCALE][c]), 2e-5);
    }
    for (int64_t i = 0; i < t.count[Y]; i++)
        CHECK_CLOSE((double)moved.wide[Y][i], (double)t.wide[Y][i], 5e-7);
    trial_drop(&t);
    trial_drop(&moved);
}

/* gelu against values of x Phi(x) to ten digits (tables of the normal distribution); far out it is
 * x, or nothing. */
static void test_gelu_values(void) {
    static const double table[][2] = {
        {0, 0},   {1, 0.8413447461}, {-1, -0.1586552539}, {2, 1.9544997361}, {-3, -0.0040496941},
        {40, 40}, {-40, 0}};
    trial t;
    if (!trial_make(&t, zonal__nn_ref(),
                    LAYER_SPEC(ACTIVATION, .n = 1, .h = 1, .w = 1, .channels = 7,
                               .activation = ZONAL__ACTIVATION_GELU)))
        return;
    for (int i = 0; i < 7; i++) t.wide[X][i] = (float)table[i][0];
    CHECK_OK(trial_forward(&t, 0));
    for (int i = 0; i < 7; i++)
        CHECK_CLOSE((double)t.wide[Y][i], table[i][1], 1e-9 + 0x1p-24 * fabs(table[i][1]));
    trial_drop(&t);
}

static const test_case tests[] = {{"pytorch_fp32", test_pytorch_fp32},
                                  {"pytorch_bf16", test_pytorch_bf16},
                                  {"differences_linear", test_differences_linear},
                                  {"differences_max_pool", test_differences_max_pool},
                                  {"differences_norm", test_differences_norm},
                                  {"differences_norm_pool", test_differences_norm_pool},
                                  {"differences_activation", test_differences_activation},
                                  {"convolution_of_pixels", test_convolution_of_pixels},
                                  {"convolution_is_linear", test_convolution_is_linear},
                                  {"convolution_transposed", test_convolution_transposed},
                                  {"norm_pool_is_two_layers", test_norm_pool_is_two_layers},
                                  {"mean_pool_of_constant", test_mean_pool_of_constant},
                                  {"norm_inference_is_affine", test_norm_inference_is_affine},
                                  {"norm_normalises", test_norm_normalises},
                                  {"gelu_values", test_gelu_values},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
