/*
 * The layers on the GPU (src/backend/cuda/training/nn*.cu) against the reference over odd shapes,
 * and against the host's fast ones, which have their own test, over the shapes of networks; in both
 * types, and the same bits from run to run and from a graph. "speed" prints times. Skipped where
 * there is no GPU, unless ZONAL_REQUIRE_GPU is set.
 */

#include "backend/device.h"
#include "failing_alloc.h"
#include "gpu.h"
#include "nn_shapes.h"
#include "nn_trial.h"

static const zonal_dtype types[] = {ZONAL_DTYPE_FP32, ZONAL_DTYPE_BF16};

static const int outputs[] = {Y,     DX,     DRESIDUAL,    DWEIGHT,
                              DBIAS, DSCALE, RUNNING_MEAN, RUNNING_VARIANCE};
enum { OUTPUTS = sizeof outputs / sizeof outputs[0] };

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int no_gpu(void) {
    return gpu_is_missing(gpu_layers() != NULL);
}

/* ---- one layer ------------------------------------------------------------------------------- */

/* fp32: sums of at most some thousand products lose 1e-6 of their norm; an element left out or
 * taken twice shows at 1e-3. bf16: what is kept in fp32 is as good as in fp32, but for a weight's
 * gradient, which some of cuDNN's engines round to bf16: 2^-9, or 1.1e-3 in the mean square. Of
 * what is rounded to bf16 anyhow few elements lay next to a tie and differ by 2^-8; where dx was
 * made of a rounded sum of two gradients, all of it has one rounding more, and so have all
 * gradients that the oracle takes back through a pool and a batch norm. Of two rows dx is but what
 * epsilon leaves, the part epsilon/(variance + epsilon) of its terms: 1e-5 of them where the
 * variance is 1, so that their roundings in fp32, 6e-8 each, are a hundredth of it, and those of a
 * stored gradient in bf16 more. */
static double tolerance(const trial *t, int array) {
    int narrow = t->spec.dtype == ZONAL_DTYPE_BF16;
    if (array == DX && t->spec.kind == ZONAL__LAYER_NORM && t->count[X] == 2 * t->spec.channels)
        return narrow ? 0.2 : 2e-2;
    if (!narrow) return 1e-5;
    if (array == DWEIGHT || (array == DX && t->spec.residual)) return 4e-3;
    if (t->spec.kind == ZONAL__LAYER_NORM_POOL && array >= DX && array <= DSCALE) return 4e-3;
    return trial_is_narrow(array) ? 1e-3 : 1e-5;
}

static void run_both(trial *got, trial *want, int training) {
    CHECK_OK(trial_forward(got, training));
    CHECK_OK(trial_forward(want, training));
    if (!training) return;
    CHECK_OK(trial_backward(got));
    CHECK_OK(trial_backward(want));
}

static void check_outputs(const trial *got, const trial *want, const char *when) {
    for (int i = 0; i < OUTPUTS; i++)
        trial_check(got, want, outputs[i], tolerance(got, outputs[i]), when);
}

/* A step, a second one on top of its gradients, without dx, without dweight, and inference. */
static void check_layer(const zonal__nn_table *oracle, zonal__layer_spec spec) {
    trial got, want;
    int single = trial_is_norm(&spec) && spec.n * spec.h * spec.w == 1;
    if (!trial_make(&got, gpu_layers(), spec)) return;
    if (trial_make(&want, oracle, spec)) {
        trial_fill_all(&got, 0);
        trial_fill_all(&want, 0);
        if (!single) {
            run_both(&got, &want, 1);
            check_outputs(&got, &want, "a step");
            got.accumulate = want.accumulate = got.with_more = want.with_more = 1;
            run_both(&got, &want, 1);
            check_outputs(&got, &want, "accumulated, two gradients");
            got.skip_dresidual = want.skip_dresidual = 1;
            run_both(&got, &want, 1);
            check_outputs(&got, &want, "without dresidual");
            got.skip_dx = want.skip_dx = 1;
            run_both(&got, &want, 1);
            check_outputs(&got, &want, "without dx");
            got.skip_dx = want.skip_dx = 0;
            got.skip_dweight = want.skip_dweight = 1;
            run_both(&got, &want, 1);
            check_outputs(&got, &want, "without dweight");
        }
        run_both(&got, &want, 0);
        trial_check(&got, &want, Y, tolerance(&got, Y), "inference");
        trial_drop(&want);
    }
    trial_drop(&got);
}

static void check_types(const zonal__nn_table *oracle, zonal__layer_spec spec) {
    for (int i = 0; i < 2; i++) {
        spec.dtype = types[i];
        check_layer(oracle, spec);
    }
}

/* ---- convolution and linear ------------------------------------------------------------------ */

static zonal__layer_spec convolution_of(const int *c) {
    return LAYER_SPEC(CONVOLUTION, .n = c[0], .h = c[1], .w = c[2], .channels = c[3],
                      .out_channels = c[4], .kernel = c[5], .stride = c[6], .pad = c[7]);
}

static void test_convolution(void) {
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(convolutions); i++)
        check_types(zonal__nn_ref(), convolution_of(convolutions[i]));
}

/* The layers of ResNet-18 and -50 at 224 pixels, and ResNet-18's stem for small images. */
static const int network_convolutions[][8] = {
    {2, 224, 224, 3, 64, 7, 2, 3},   {3, 224, 224, 1, 64, 7, 2, 3},
    {4, 32, 32, 3, 64, 3, 1, 1},     {4, 56, 56, 64, 64, 3, 1, 1},
    {4, 56, 56, 64, 128, 3, 2, 1},   {4, 56, 56, 64, 128, 1, 2, 0},
    {4, 28, 28, 128, 128, 3, 1, 1},  {4, 28, 28, 128, 256, 3, 2, 1},
    {4, 28, 28, 128, 256, 1, 2, 0},  {4, 14, 14, 256, 256, 3, 1, 1},
    {4, 14, 14, 256, 512, 3, 2, 1},  {4, 14, 14, 256, 512, 1, 2, 0},
    {4, 7, 7, 512, 512, 3, 1, 1},    {4, 56, 56, 64, 64, 1, 1, 0},
    {4, 56, 56, 64, 256, 1, 1, 0},   {4, 56, 56, 256, 64, 1, 1, 0},
    {4, 56, 56, 256, 128, 1, 1, 0},  {4, 56, 56, 128, 128, 3, 2, 1},
    {4, 28, 28, 128, 512, 1, 1, 0},  {2, 56, 56, 256, 512, 1, 2, 0},
    {4, 28, 28, 512, 128, 1, 1, 0},  {4, 28, 28, 512, 256, 1, 1, 0},
    {4, 28, 28, 256, 256, 3, 2, 1},  {4, 14, 14, 256, 1024, 1, 1, 0},
    {2, 28, 28, 512, 1024, 1, 2, 0}, {4, 14, 14, 1024, 256, 1, 1, 0},
    {4, 14, 14, 1024, 512, 1, 1, 0}, {4, 14, 14, 512, 512, 3, 2, 1},
    {4, 7, 7, 512, 2048, 1, 1, 0},   {2, 14, 14, 1024, 2048, 1, 2, 0},
    {4, 7, 7, 2048, 512, 1, 1, 0},
};

static void test_network_convolutions(void) {
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(network_convolutions); i++)
        check_types(zonal__nn_cpu(), convolution_of(network_convolutions[i]));
}

/* As in nn_shapes.h: n, channels in and out, bias. */
static const int network_linears[][4] = {
    {512, 512, 2048, 0}, {512, 2048, 2048, 0}, {512, 2048, 256, 1}, {2, 2048, 256, 0}};

static zonal__layer_spec linear_of(const int *c) {
    return LAYER_SPEC(LINEAR, .n = c[0], .h = 1, .w = 1, .channels = c[1], .out_channels = c[2],
                      .bias = c[3]);
}

static void test_linear(void) {
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(linears); i++) check_types(zonal__nn_ref(), linear_of(linears[i]));
    for (size_t i = 0; i < COUNT(network_linears); i++)
        check_types(zonal__nn_cpu(), linear_of(network_linears[i]));
}

/* ---- norm and activation --------------------------------------------------------------------- */

typedef struct pixels {
    int64_t n;
    int h, w, channels;
} pixels;

static const pixels odd_pixels[] = {
    {1, 1, 1, 1},   {2, 1, 1, 1},    {2, 1, 1, 65},   {5, 3, 2, 7},    {3, 1, 1, 64},
    {2, 1, 1, 8},   {1, 33, 33, 3},  {4, 16, 16, 64}, {2, 9, 9, 304},  {3, 2, 2, 4104},
    {3, 2, 2, 130}, {40, 33, 30, 1}, {7, 5, 5, 136},  {40, 30, 31, 8}, {600, 1, 1, 24}};
/* Those of ResNets and projectors with fewer images. The last two: more rows than the threads of
 * a GPU hold, with a narrow last column; and so many channels that not all blocks run at once,
 * which takes two kernels. */
static const pixels network_pixels[] = {
    {1, 112, 112, 64}, {2, 56, 56, 64},   {3, 28, 28, 128},  {4, 14, 14, 256},
    {8, 7, 7, 512},    {1, 56, 56, 256},  {1, 28, 28, 512},  {2, 14, 14, 1024},
    {3, 7, 7, 2048},   {512, 1, 1, 2048}, {512, 1, 1, 512},  {512, 2, 2, 256},
    {512, 4, 4, 128},  {1100, 3, 3, 136}, {333, 13, 17, 72}, {20, 5, 5, 9000}};

static zonal__layer_spec norm_of(pixels p, int activation, int residual) {
    return LAYER_SPEC(NORM, .n = p.n, .h = p.h, .w = p.w, .channels = p.channels,
                      .activation = (zonal__activation)activation, .residual = residual,
                      .momentum = residual ? 0.3f : 0, .epsilon = residual ? 1e-3f : 0);
}

static void test_norm(void) {
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(odd_pixels); i++)
        for (int activation = 0; activation < 3; activation++)
            for (int residual = 0; residual < 2; residual++)
                check_types(zonal__nn_ref(), norm_of(odd_pixels[i], activation, residual));
}

static void test_network_norms(void) {
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(network_pixels); i++) {
        check_types(zonal__nn_cpu(), norm_of(network_pixels[i], ZONAL__ACTIVATION_NONE, 0));
        check_types(zonal__nn_cpu(), norm_of(network_pixels[i], ZONAL__ACTIVATION_RELU, 0));
        check_types(zonal__nn_cpu(), norm_of(network_pixels[i], ZONAL__ACTIVATION_RELU, 1));
    }
    check_types(zonal__nn_cpu(), norm_of((pixels){512, 1, 1, 2048}, ZONAL__ACTIVATION_GELU, 0));
}

/* A mean a thousand times the standard deviation: the variance comes from differences, not from
 * squares. The first row is far out as well, and must not be what all are shifted by. */
static void test_norm_far_from_zero(void) {
    trial got, want;
    zonal__layer_spec spec = LAYER_SPEC(NORM, .n = 64, .h = 33, .w = 33, .channels = 16);
    if (no_gpu() || !trial_make(&got, gpu_layers(), spec)) return;
    if (trial_make(&want, zonal__nn_ref(), spec)) {
        trial_fill_all(&got, 0);
        trial_fill_all(&want, 0);
        for (int64_t i = 0; i < got.count[X]; i++)
            want.wide[X][i] = got.wide[X][i] += i < 16 ? 1100 : 1000;
        run_both(&got, &want, 1);
        /* x - mean loses three digits of fp32's seven where the mean is rounded to a float */
        for (int64_t i = 0; i < got.count[Y]; i++)
            CHECK_CLOSE((double)got.wide[Y][i], (double)want.wide[Y][i],
                        3e-4 * (1 + fabs((double)want.wide[Y][i])));
        for (int c = 0; c < 16; c++)
            CHECK_CLOSE((double)got.wide[RUNNING_VARIANCE][c],
                        (double)want.wide[RUNNING_VARIANCE][c], 2e-6);
        trial_drop(&want);
    }
    trial_drop(&got);
}

/* Channels that do not vary: variance 0, y = bias. */
static void test_norm_of_constants(void) {
    for (int channels = 5; channels < 30; channels += 19) { /* one by one, and by 8 */
        trial t;
        if (no_gpu() ||
            !trial_make(&t, gpu_layers(),
                        LAYER_SPEC(NORM, .n = 100, .h = 3, .w = 3, .channels = channels)))
            return;
        trial_fill_all(&t, 0);
        for (int64_t i = 0; i < t.count[X]; i++) t.wide[X][i] = 1e4f / (float)(1 + i % channels);
        CHECK_OK(trial_forward(&t, 1));
        for (int64_t i = 0; i < t.count[Y]; i++) CHECK(t.wide[Y][i] == t.wide[BIAS][i % channels]);
        for (int c = 0; c < channels; c++)
            CHECK_CLOSE((double)t.wide[RUNNING_VARIANCE][c], 0.9 * 2, 1e-7);
        trial_drop(&t);
    }
}

/* More elements than 32 bits count, all 0 but for the last row's, which are 1: y there and in the
 * first row, and where a gradient of the last row alone goes, in closed form. */
static void test_more_than_32_bits(void) {
    enum { CHANNELS = 64, PIXELS = 1 << 12 };
    const int64_t n = 8193, count = n * PIXELS * CHANNELS;
    const zonal__nn_table *table = gpu_layers();
    zonal__layer_spec spec = norm_of((pixels){n, 64, 64, CHANNELS}, ZONAL__ACTIVATION_RELU, 0);
    zonal__layer *layer = NULL;
    void *big[4] = {NULL}, *saved = NULL, *scratch = NULL, *small = NULL;
    uint16_t ones[CHANNELS], first[CHANNELS], last[CHANNELS];
    float host[6 * CHANNELS] = {0};
    if (no_gpu()) return;
    spec.dtype = ZONAL_DTYPE_BF16;
    int good = CHECK_OK(table->create(&spec, &layer));
    for (int i = 0; i < 4; i++)
        good = good &&
               CHECK_OK(zonal__device_alloc(gpu_device(), (size_t)count * 2, "an array", &big[i]));
    good =
        good &&
        CHECK_OK(zonal__device_alloc(gpu_device(), table->saved_bytes(layer), "saved", &saved)) &&
        CHECK_OK(
            zonal__device_alloc(gpu_device(), table->scratch_bytes(layer), "scratch", &scratch)) &&
        CHECK_OK(zonal__device_alloc(gpu_device(), sizeof host, "channels", &small));
    for (int c = 0; c < CHANNELS; c++) {
        ones[c] = 0x3f80;
        host[c] = 1;               /* scale */
        host[CHANNELS + c] = 0.5f; /* bias */
    }
    size_t at = (size_t)(count - CHANNELS) * 2;
    float *channels = small;
    zonal__layer_arrays arrays = {.x = big[0],
                                  .y = big[1],
                                  .dy = big[2],
                                  .dx = big[3],
                                  .saved = saved,
                                  .scratch = scratch,
                                  .scale = channels,
                                  .bias = channels + CHANNELS,
                                  .running_mean = channels + 2 * CHANNELS,
                                  .running_variance = channels + 3 * CHANNELS,
                                  .dscale = channels + 4 * CHANNELS,
                                  .dbias = channels + 5 * CHANNELS};
    if (good && CHECK_OK(zonal__device_write(gpu_device(), small, host, sizeof host)) &&
        CHECK_OK(zonal__device_write(gpu_device(), (char *)big[0] + at, ones, sizeof ones)) &&
        CHECK_OK(zonal__device_write(gpu_device(), (char *)big[2] + at, ones, sizeof ones)) &&
        CHECK_OK(table->forward(layer, &arrays, 1)) && CHECK_OK(table->backward(layer, &arrays)) &&
        CHECK_OK(zonal__device_read(gpu_device(), first, big[1], sizeof first)) &&
        CHECK_OK(zonal__device_read(gpu_device(), last, (char *)big[1] + at, sizeof last)) &&
        CHECK_OK(zonal__device_read(gpu_device(), host, small, sizeof host))) {
        double m = (double)(n * PIXELS), xhat = 1 / sqrt(1 / m + 1e-5); /* of the last row */
        for (int c = 0; c < CHANNELS; c++) {
            uint32_t bits = (uint32_t)last[c] << 16;
            float y;
            memcpy(&y, &bits, sizeof y);
            CHECK(first[c] == 0x3f00);             /* the bias, 1/2 */
            CHECK_CLOSE((double)y, xhat + 0.5, 2); /* bf16 of 316 */
            CHECK_CLOSE((double)host[5 * CHANNELS + c], 1, 0);
            CHECK_CLOSE((double)host[4 * CHANNELS + c], xhat, 1e-5 * xhat);
        }
        CHECK_OK(zonal__device_read(gpu_device(), first, big[3], sizeof first));
        CHECK_OK(zonal__device_read(gpu_device(), last, (char *)big[3] + at, sizeof last));
        CHECK(last[0] == last[CHANNELS - 1] && last[0] > 0x4300); /* dx of the last row: 316 */
        CHECK((first[0] & 0x7fff) < 0x3a00);                      /* of the first: about 1e-5 */
    }
    for (int i = 0; i < 4; i++) zonal__device_free(gpu_device(), big[i]);
    zonal__device_free(gpu_device(), saved);
    zonal__device_free(gpu_device(), scratch);
    zonal__device_free(gpu_device(), small);
    table->destroy(layer);
}

static void test_activation(void) {
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(odd_pixels); i++)
        for (int activation = 0; activation < 3; activation++) {
            pixels p = odd_pixels[i];
            check_types(zonal__nn_ref(),
                        LAYER_SPEC(ACTIVATION, .n = p.n, .h = p.h, .w = p.w, .channels = p.channels,
                                   .activation = (zonal__activation)activation));
        }
}

/* ---- pools ----------------------------------------------------------------------------------- */

static void test_pools(void) {
    static const int windows[][3] = {{1, 1, 0}, {3, 2, 1}, {2, 2, 0},
                                     {3, 1, 1}, {5, 3, 2}, {2, 3, 1}};
    static const pixels shapes[] = {{1, 1, 1, 1},    {2, 5, 4, 7},   {3, 16, 16, 64},
                                    {1, 33, 33, 3},  {2, 9, 8, 304}, {1, 4, 31, 65},
                                    {2, 3, 3, 2056}, {3, 7, 7, 512}, {2, 57, 57, 64}};
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(shapes); i++) {
        pixels p = shapes[i];
        check_types(zonal__nn_ref(),
                    LAYER_SPEC(MEAN_POOL, .n = p.n, .h = p.h, .w = p.w, .channels = p.channels));
        for (size_t k = 0; k < COUNT(windows); k++) {
            int kernel = windows[k][0], pad = windows[k][2];
            if (kernel > p.h + 2 * pad || kernel > p.w + 2 * pad) continue;
            check_types(zonal__nn_ref(),
                        LAYER_SPEC(MAX_POOL, .n = p.n, .h = p.h, .w = p.w, .channels = p.channels,
                                   .kernel = kernel, .stride = windows[k][1], .pad = pad));
        }
    }
}

static zonal__layer_spec norm_pool_of(pixels p, int activation) {
    return LAYER_SPEC(NORM_POOL, .n = p.n, .h = p.h, .w = p.w, .channels = p.channels, .kernel = 3,
                      .stride = 2, .pad = 1, .activation = (zonal__activation)activation);
}

static void test_norm_pool(void) {
    static const pixels shapes[] = {{3, 1, 1, 8},    {3, 2, 1, 1},    {2, 5, 4, 7},
                                    {2, 4, 5, 8},    {3, 16, 16, 64}, {1, 33, 33, 3},
                                    {2, 9, 8, 304},  {1, 4, 31, 65},  {2, 3, 3, 2056},
                                    {2, 57, 57, 64}, {40, 17, 18, 24}};
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int activation = 0; activation < 2; activation++)
            check_types(zonal__nn_ref(), norm_pool_of(shapes[i], activation));
    check_types(zonal__nn_cpu(), norm_pool_of((pixels){4, 112, 112, 64}, ZONAL__ACTIVATION_RELU));
}

/* Few values make many ties, the first of which wins; whole channels below 0 get no gradient by
 * relu; in inference a NaN reaches its own windows, in training the whole channel. */
static void test_norm_pool_ties_and_nan(void) {
    if (no_gpu()) return;
    for (int i = 0; i < 8; i++) {
        trial got, want;
        int channels = i / 2 % 2 ? 20 : 24;
        zonal__layer_spec spec = norm_pool_of((pixels){2, 9, 10, channels}, i / 4);
        spec.dtype = types[i % 2];
        if (!trial_make(&got, gpu_layers(), spec)) return;
        if (trial_make(&want, zonal__nn_ref(), spec)) {
            trial_fill_all(&got, 0);
            trial_fill_all(&want, 0);
            trial_fill(&got, X, 0, 3);
            trial_fill(&want, X, 0, 3);
            got.wide[BIAS][1] = want.wide[BIAS][1] = -100;
            run_both(&got, &want, 1);
            check_outputs(&got, &want, "ties");
            got.wide[X][channels * 40 + 3] = want.wide[X][channels * 40 + 3] = NAN;
            for (int training = 0; training < 2; training++) {
                run_both(&got, &want, training);
                for (int64_t k = 0; k < got.count[Y]; k++)
                    CHECK(isnan(got.wide[Y][k]) == isnan(want.wide[Y][k]));
            }
            for (int64_t k = 0; k < got.count[DX]; k++)
                CHECK(isnan(got.wide[DX][k]) == isnan(want.wide[DX][k]));
            trial_drop(&want);
        }
        trial_drop(&got);
    }
}

/* Few values make many ties; NaN and -infinity follow the rules. */
static void test_pool_ties_and_nan(void) {
    if (no_gpu()) return;
    for (int i = 0; i < 4; i++) {
        trial got, want;
        int channels = i / 2 ? 20 : 24;
        zonal__layer_spec spec =
            LAYER_SPEC(MAX_POOL, .n = 2, .h = 9, .w = 9, .channels = channels, .kernel = 3,
                       .stride = 2, .pad = 1, .dtype = types[i % 2]);
        if (!trial_make(&got, gpu_layers(), spec)) return;
        if (trial_make(&want, zonal__nn_ref(), spec)) {
            trial_fill_all(&got, 0);
            trial_fill(&got, X, 0, 3);
            for (int64_t k = 0; k < 3 * channels; k++) got.wide[X][k] = -INFINITY;
            for (int64_t k = 0; k < got.count[X]; k++) want.wide[X][k] = got.wide[X][k];
            for (int64_t k = 0; k < got.count[DY]; k++) want.wide[DY][k] = got.wide[DY][k];
            run_both(&got, &want, 1);
            CHECK(trial_differing(got.count[Y], got.wide[Y], want.wide[Y]) == 0);
            trial_check(&got, &want, DX, tolerance(&got, DX), "ties");
            got.wide[X][channels * 40 + 3] = want.wide[X][channels * 40 + 3] = NAN;
            run_both(&got, &want, 1);
            for (int64_t k = 0; k < got.count[Y]; k++)
                CHECK(isnan(got.wide[Y][k]) == isnan(want.wide[Y][k]));
            trial_check(&got, &want, DX, tolerance(&got, DX), "NaN");
            trial_drop(&want);
        }
        trial_drop(&got);
    }
}

/* ---- the rest of the contract ---------------------------------------------------------------- */

static const zonal__layer_spec mixed[] = {
    LAYER(CONVOLUTION, .n = 7, .h = 33, .w = 33, .channels = 3, .out_channels = 64, .kernel = 7,
          .stride = 2, .pad = 3),
    LAYER(CONVOLUTION, .n = 13, .h = 16, .w = 16, .channels = 64, .out_channels = 64, .kernel = 3,
          .stride = 1, .pad = 1),
    LAYER(CONVOLUTION, .n = 5, .h = 6, .w = 6, .channels = 256, .out_channels = 64, .kernel = 1,
          .stride = 1),
    LAYER(LINEAR, .n = 70, .h = 1, .w = 1, .channels = 300, .out_channels = 500, .bias = 1),
    LAYER(NORM, .n = 90, .h = 33, .w = 33, .channels = 48, .activation = ZONAL__ACTIVATION_RELU,
          .residual = 1),
    LAYER(NORM, .n = 300, .h = 1, .w = 1, .channels = 504, .activation = ZONAL__ACTIVATION_GELU),
    LAYER(NORM, .n = 30, .h = 5, .w = 5, .channels = 51, .activation = ZONAL__ACTIVATION_RELU),
    LAYER(ACTIVATION, .n = 30, .h = 1, .w = 1, .channels = 500,
          .activation = ZONAL__ACTIVATION_GELU),
    LAYER(MAX_POOL, .n = 7, .h = 33, .w = 33, .channels = 16, .kernel = 3, .stride = 2, .pad = 1),
    LAYER(MEAN_POOL, .n = 7, .h = 5, .w = 5, .channels = 65),
    LAYER(NORM_POOL, .n = 90, .h = 33, .w = 33, .channels = 16, .kernel = 3, .stride = 2, .pad = 1,
          .activation = ZONAL__ACTIVATION_RELU),
    LAYER(NORM_POOL, .n = 7, .h = 9, .w = 8, .channels = 51, .kernel = 3, .stride = 2, .pad = 1,
          .activation = ZONAL__ACTIVATION_RELU),
};

/* Sums of thirds round, where those of the grid's multiples of 1/64 might not. */
static void fill_thirds(trial *t) {
    trial_fill_all(t, 0);
    for (int64_t i = 0; i < t->count[X]; i++) t->wide[X][i] /= 3;
    for (int64_t i = 0; i < t->count[DY]; i++) t->wide[DY][i] /= 3;
    for (int64_t i = 0; i < t->count[WEIGHT]; i++) t->wide[WEIGHT][i] /= 3;
}

static zonal_status enqueue(void *context, void *stream) {
    trial *t = context;
    zonal__layer_arrays arrays = trial_arrays(t);
    t->table->set_stream(t->layer, stream);
    ZONAL_TRY(t->table->forward(t->layer, &arrays, 1));
    return t->table->backward(t->layer, &arrays);
}

/* The running statistics move with every run. */
static void check_same(const trial *a, const trial *b, const char *when) {
    char what[256];
    trial_describe(&a->spec, what, sizeof what);
    for (int i = 0; i < OUTPUTS; i++) {
        int k = outputs[i];
        if (k == RUNNING_MEAN || k == RUNNING_VARIANCE) continue;
        CHECK_MSG(trial_differing(a->count[k], a->wide[k], b->wide[k]) == 0,
                  "%s: %s is not the same %s", what, trial_array_names[k], when);
    }
}

static void check_same_bits(zonal__layer_spec spec) {
    trial one, other;
    double us;
    if (!trial_make(&one, gpu_layers(), spec)) return;
    if (trial_make(&other, gpu_layers(), spec)) {
        fill_thirds(&one);
        fill_thirds(&other);
        CHECK_OK(trial_forward(&one, 1));
        CHECK_OK(trial_backward(&one));
        for (int run = 0; run < 3; run++) {
            CHECK_OK(trial_forward(&other, 1));
            CHECK_OK(trial_backward(&other));
            check_same(&one, &other, "in another run");
        }
        for (int i = Y; i <= DSCALE; i++)
            for (int64_t k = 0; k < other.count[i]; k++) other.wide[i][k] = NAN;
        CHECK_OK(trial_send(&other));
        CHECK_OK(zonal__device_time(gpu_device(), enqueue, &other, 1, 1, 3, &us));
        CHECK_OK(trial_fetch(&other));
        check_same(&one, &other, "from a graph");
        trial_drop(&other);
    }
    trial_drop(&one);
}

static void test_same_bits(void) {
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(mixed); i++)
        for (int type = 0; type < 2; type++) {
            zonal__layer_spec spec = mixed[i];
            spec.dtype = types[type];
            check_same_bits(spec);
        }
}

/* What a run with NaN has left in scratch or counters must not reach the next. */
static void test_nan_leaves_no_trace(void) {
    if (no_gpu()) return;
    for (size_t i = 0; i < 2 * COUNT(mixed); i++) {
        zonal__layer_spec spec = mixed[i / 2];
        trial used, fresh;
        spec.dtype = types[i % 2];
        if (!trial_make(&used, gpu_layers(), spec)) continue;
        trial_fill_all(&used, 0);
        for (int64_t k = 0; k < used.count[X]; k++) used.wide[X][k] = NAN;
        for (int64_t k = 0; k < used.count[DY]; k++) used.wide[DY][k] = NAN;
        CHECK_OK(trial_forward(&used, 1));
        CHECK_OK(trial_backward(&used));
        CHECK(isnan(used.wide[Y][0]) && isnan(used.wide[DX][0]));
        if (trial_make(&fresh, gpu_layers(), spec)) {
            trial_fill_all(&used, 0);
            trial_fill_all(&fresh, 0);
            run_both(&used, &fresh, 1);
            check_same(&used, &fresh, "after a NaN");
            trial_drop(&fresh);
        }
        trial_drop(&used);
    }
}

/* A NaN of dy is passed on even where relu is flat, as the reference does. */
static void test_nan_of_gradient(void) {
    if (no_gpu()) return;
    for (int channels = 7; channels < 9; channels++)
        for (int which = 0; which < 3; which++) {
            trial got, want;
            pixels p = {5, 3, 3, channels};
            zonal__layer_spec spec = which < 2 ? norm_of(p, ZONAL__ACTIVATION_RELU, which)
                                               : norm_pool_of(p, ZONAL__ACTIVATION_RELU);
            if (!trial_make(&got, gpu_layers(), spec)) return;
            if (trial_make(&want, zonal__nn_ref(), spec)) {
                trial_fill_all(&got, 0);
                trial_fill_all(&want, 0);
                for (int k = 0; k < 6; k++)
                    got.wide[DY][k * channels] = want.wide[DY][k * channels] = NAN;
                run_both(&got, &want, 1);
                for (int a = DX; a <= DSCALE; a++)
                    for (int64_t k = 0; k < got.count[a]; k++)
                        CHECK(isnan(got.wide[a][k]) == isnan(want.wide[a][k]));
                trial_drop(&want);
            }
            trial_drop(&got);
        }
}

static void test_forward_only(void) {
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(mixed); i++) {
        trial got, want;
        zonal__layer_spec spec = mixed[i];
        spec.forward_only = 1;
        if (!trial_make(&got, gpu_layers(), spec)) continue;
        CHECK(gpu_layers()->saved_bytes(got.layer) == 0);
        spec.forward_only = 0;
        if (trial_make(&want, gpu_layers(), spec)) {
            for (int training = 0; training < 2; training++) {
                trial_fill_all(&got, 0);
                trial_fill_all(&want, 0);
                CHECK_OK(trial_forward(&got, training));
                CHECK_OK(trial_forward(&want, training));
                trial_check(&got, &want, Y, tolerance(&got, Y), "forward only");
            }
            trial_drop(&want);
        }
        CHECK_FAILS(trial_backward(&got), ZONAL_ARGUMENT, "forward only");
        trial_drop(&got);
    }
}

static zonal_status make_and_drop(void *context) {
    zonal__layer *layer = NULL;
    zonal_status status = gpu_layers()->create(context, &layer);
    CHECK((layer != NULL) == (status == ZONAL_OK));
    gpu_layers()->destroy(layer);
    return status;
}

static void test_allocations(void) {
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(mixed); i++) {
        zonal__layer_spec spec = mixed[i];
        spec.dtype = ZONAL_DTYPE_BF16;
        test_every_allocation("a layer", make_and_drop, &spec);
    }
    gpu_layers()->destroy(NULL);
}

static void test_refused(void) {
    zonal__layer *layer;
    zonal__layer_spec wide = LAYER_SPEC(MAX_POOL, .n = 1, .h = 300, .w = 300, .channels = 1,
                                        .kernel = 17, .stride = 1, .dtype = ZONAL_DTYPE_FP32);
    zonal__layer_spec half = LAYER_SPEC(LINEAR, .n = 1, .h = 1, .w = 1, .channels = 1,
                                        .out_channels = 1, .dtype = ZONAL_DTYPE_FP16);
    zonal__layer_spec apart = norm_pool_of((pixels){1, 9, 9, 8}, ZONAL__ACTIVATION_RELU);
    apart.stride = 3;
    apart.dtype = ZONAL_DTYPE_FP32;
    if (no_gpu()) return;
    CHECK_FAILS(gpu_layers()->create(&apart, &layer), ZONAL_UNSUPPORTED, "got 3, 3 and 1");
    CHECK(layer == NULL);
    CHECK_FAILS(gpu_layers()->create(&wide, &layer), ZONAL_UNSUPPORTED, "at most 16, got 17");
    CHECK(layer == NULL);
    CHECK_FAILS(gpu_layers()->create(&half, &layer), ZONAL_DTYPE, "fp32 or bf16");
    CHECK(layer == NULL);
}

/* Small ones of every way through our own kernels, for compute-sanitizer's search for races, under
 * which the libraries' take too long. */
static void test_races(void) {
    static const pixels small[] = {
        {2, 3, 3, 8}, {3, 2, 1, 5}, {1100, 2, 1, 5}, {1100, 3, 3, 24}, {60, 3, 3, 136}};
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(small); i++)
        for (int activation = 0; activation < 3; activation++) {
            pixels p = small[i];
            check_types(zonal__nn_ref(), norm_of(p, activation, activation % 2));
            check_types(zonal__nn_ref(),
                        LAYER_SPEC(ACTIVATION, .n = p.n, .h = p.h, .w = p.w, .channels = p.channels,
                                   .activation = (zonal__activation)activation));
        }
    check_types(zonal__nn_ref(), LAYER_SPEC(MAX_POOL, .n = 2, .h = 5, .w = 4, .channels = 8,
                                            .kernel = 3, .stride = 2, .pad = 1));
    check_types(zonal__nn_ref(), LAYER_SPEC(MAX_POOL, .n = 2, .h = 5, .w = 4, .channels = 3,
                                            .kernel = 2, .stride = 2));
    check_types(zonal__nn_ref(), norm_pool_of((pixels){2, 5, 4, 8}, ZONAL__ACTIVATION_RELU));
    check_types(zonal__nn_ref(), norm_pool_of((pixels){2, 4, 5, 3}, ZONAL__ACTIVATION_RELU));
    check_types(zonal__nn_ref(), norm_pool_of((pixels){60, 9, 9, 136}, ZONAL__ACTIVATION_RELU));
    check_types(zonal__nn_ref(), LAYER_SPEC(MEAN_POOL, .n = 2, .h = 3, .w = 3, .channels = 16));
    check_types(zonal__nn_ref(), LAYER_SPEC(MEAN_POOL, .n = 2, .h = 3, .w = 3, .channels = 5));
}

/* All of those, and small products. */
static void test_tiny(void) {
    static const int convolution[] = {2, 5, 5, 8, 16, 3, 2, 1}, stem[] = {1, 9, 9, 3, 8, 7, 2, 3};
    static const int linear[] = {5, 9, 7, 1};
    if (no_gpu()) return;
    test_races();
    check_types(zonal__nn_ref(), convolution_of(convolution));
    check_types(zonal__nn_ref(), convolution_of(stem));
    check_types(zonal__nn_ref(), linear_of(linear));
}

/* ---- speed ----------------------------------------------------------------------------------- */

/* A layer of zeros in bf16 with all its arrays on the device, to be timed. */
typedef struct timed {
    zonal__layer *layer;
    zonal__layer_arrays arrays;
    int backward, copies; /* copies: x to y instead of the layer */
    size_t bytes;         /* of x */
} timed;

static zonal_status enqueue_timed(void *context, void *stream) {
    timed *t = context;
    const zonal__nn_table *table = gpu_layers();
    if (t->copies)
        return zonal__device_copy_on(gpu_device(), stream, t->arrays.y, t->arrays.x, t->bytes);
    table->set_stream(t->layer, stream);
    return t->backward ? table->backward(t->layer, &t->arrays)
                       : table->forward(t->layer, &t->arrays, 1);
}

/* All arrays lie one after the other in one piece of memory, so nothing else is to be freed. */
static int timed_init(timed *t, const zonal__layer_spec *spec, void **memory) {
    const zonal__nn_table *table = gpu_layers();
    enum { BIG = 6, SMALL = 8 };
    size_t saved, scratch, small = ((size_t)spec->channels * sizeof(float) + 63) / 64 * 64;
    *t = (timed){.bytes = (size_t)(spec->n * spec->h * spec->w) * (size_t)spec->channels * 2};
    if (!CHECK_OK(table->create(spec, &t->layer))) return 0;
    size_t big = (t->bytes + 63) / 64 * 64;
    saved = (table->saved_bytes(t->layer) + 63) / 64 * 64;
    scratch = (table->scratch_bytes(t->layer) + 63) / 64 * 64;
    if (!CHECK_OK(zonal__device_alloc(gpu_device(), BIG * big + SMALL * small + saved + scratch,
                                      "the arrays", memory)))
        return 0;
    char *at = *memory;
    void *bigs[BIG];
    float *smalls[SMALL];
    for (int i = 0; i < BIG; i++, at += big) bigs[i] = at;
    for (int i = 0; i < SMALL; i++, at += small) smalls[i] = (float *)(void *)at;
    t->arrays = (zonal__layer_arrays){.x = bigs[0],
                                      .y = bigs[1],
                                      .dy = bigs[2],
                                      .dx = bigs[3],
                                      .scale = smalls[0],
                                      .bias = smalls[1],
                                      .running_mean = smalls[2],
                                      .running_variance = smalls[3],
                                      .dscale = smalls[4],
                                      .dbias = smalls[5],
                                      .saved = at,
                                      .scratch = at + saved};
    if (spec->residual) {
        t->arrays.residual = bigs[4];
        t->arrays.dresidual = bigs[5];
    }
    if (spec->kind == ZONAL__LAYER_NORM_POOL) t->arrays.dy_more = bigs[4];
    return 1;
}

/* Microseconds of the layer both ways, and of copying x. */
typedef struct times {
    double copy, forward, backward;
    double gb; /* of x */
} times;

static times time_layer(const zonal__layer_spec *spec) {
    timed t;
    times us = {0};
    void *memory = NULL;
    if (timed_init(&t, spec, &memory)) {
        us.gb = 1e-9 * (double)t.bytes;
        t.copies = 1;
        CHECK_OK(zonal__device_time(gpu_device(), enqueue_timed, &t, 1, 2, 9, &us.copy));
        t.copies = 0;
        CHECK_OK(zonal__device_time(gpu_device(), enqueue_timed, &t, 1, 2, 9, &us.forward));
        t.backward = 1;
        CHECK_OK(zonal__device_time(gpu_device(), enqueue_timed, &t, 1, 2, 9, &us.backward));
    }
    zonal__device_free(gpu_device(), memory);
    gpu_layers()->destroy(t.layer);
    return us;
}

/* "there" and "back" are what it must move, in units of x. */
static void print_speed(const char *name, const zonal__layer_spec *spec, double there,
                        double back) {
    times us = time_layer(spec);
    printf("# %s %lld x %3d x %3d x %4d%s: forward %7.1f us %5.2f TB/s, backward %7.1f us "
           "%5.2f TB/s, copy %5.2f TB/s\n",
           name, (long long)spec->n, spec->h, spec->w, spec->channels,
           spec->residual ? ", residual" : "          ", us.forward,
           us.gb * there / us.forward * 1e3, us.backward, us.gb * back / us.backward * 1e3,
           us.gb * 2 / us.copy * 1e3);
}

/* What a batch norm moves in two kernels, in units of x: forward x twice, y and the residual,
 * backward x twice, the gradient twice, dx and dresidual; signs, a bit for 16, once each way and
 * once more without a residual. In one kernel it is less, so that more than memory's pace may be
 * shown. */
static void check_speed(const zonal__layer_spec *spec) {
    double signs = 1.0 / 16;
    print_speed("norm", spec, 3 + spec->residual + signs,
                5 + spec->residual + (spec->residual ? 1 : 2) * signs);
}

/* With a pool, y is a quarter of x and a winner's number half of an element: forward x twice, y,
 * winners and their x; backward both gradients and winners twice, the winners' x, x and dx. */
static void check_pool_speed(const zonal__layer_spec *spec) {
    print_speed("norm and pool", spec, 2 + 2.5 / 4, 2 + (2 * 2.5 + 1) / 4);
}

/* The norms of ResNet-18 at 224, 64 and 32 pixels, 512 images, and of the projector. */
static void test_speed(void) {
    static const pixels shapes[] = {{512, 112, 112, 64}, {512, 56, 56, 64}, {512, 28, 28, 128},
                                    {512, 14, 14, 256},  {512, 7, 7, 512},  {512, 16, 16, 64},
                                    {512, 8, 8, 128},    {512, 4, 4, 256},  {512, 2, 2, 512},
                                    {512, 1, 1, 512},    {512, 1, 1, 2048}};
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int residual = 0; residual < 2; residual++) {
            zonal__layer_spec spec = norm_of(shapes[i], ZONAL__ACTIVATION_RELU, residual);
            spec.dtype = ZONAL_DTYPE_BF16;
            check_speed(&spec);
        }
    zonal__layer_spec stem = norm_pool_of(shapes[0], ZONAL__ACTIVATION_RELU);
    stem.dtype = ZONAL_DTYPE_BF16;
    check_pool_speed(&stem);
}

static const test_case tests[] = {
    {"races", test_races},
    {"tiny", test_tiny},
    {"convolution", test_convolution},
    {"network_convolutions", test_network_convolutions},
    {"linear", test_linear},
    {"odd_norms", test_norm},
    {"network_norms", test_network_norms},
    {"norm_far_from_zero", test_norm_far_from_zero},
    {"norm_of_constants", test_norm_of_constants},
    {"more_than_32_bits", test_more_than_32_bits},
    {"activation", test_activation},
    {"pools", test_pools},
    {"norm_pool", test_norm_pool},
    {"norm_pool_ties_and_nan", test_norm_pool_ties_and_nan},
    {"pool_ties_and_nan", test_pool_ties_and_nan},
    {"same_bits", test_same_bits},
    {"nan_leaves_no_trace", test_nan_leaves_no_trace},
    {"nan_of_gradient", test_nan_of_gradient},
    {"forward_only", test_forward_only},
    {"allocations", test_allocations},
    {"refused", test_refused},
    {"speed", test_speed},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
