/*
 * PRODUCT_NORM on the GPU (src/backend/cuda/training/nn_fold*.cu) against a convolution and a batch
 * norm of the host in fp32, which have their own tests; the same bits from run to run and from a
 * graph; what is refused. Skipped where there is no GPU, unless ZONAL_REQUIRE_GPU is set.
 */
#include <math.h>

#include "backend/device.h"
#include "gpu.h"
#include "nn_trial.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* n, h, w, channels in and out, residual: rows that fill no tile, one of every kind of kernel, and
 * the layers of ResNet-50. */
static const int shapes[][6] = {
    {3, 7, 5, 64, 128, 1},     {1, 1, 2, 64, 128, 1},    {5, 29, 31, 64, 256, 1},
    {5, 29, 31, 64, 256, 0},   {3, 29, 23, 128, 512, 1}, {3, 29, 23, 128, 512, 0},
    {3, 14, 13, 256, 1024, 1}, {3, 14, 13, 256, 512, 0}, {3, 7, 7, 512, 2048, 1},
    {3, 9, 9, 512, 2048, 0},   {6, 56, 56, 64, 256, 1},
};

static zonal__layer_spec spec_of(const int *s) {
    return LAYER_SPEC(PRODUCT_NORM, .n = s[0], .h = s[1], .w = s[2], .channels = s[3],
                      .out_channels = s[4], .kernel = 1, .stride = 1, .residual = s[5],
                      .activation = s[5] ? ZONAL__ACTIVATION_RELU : ZONAL__ACTIVATION_NONE,
                      .dtype = ZONAL_DTYPE_BF16);
}

/* 1: there is no GPU, or none that folds. */
static int skipped(void) {
    zonal__layer_spec spec = spec_of(shapes[0]);
    if (gpu_is_missing(gpu_layers() != NULL)) return 1;
    return !gpu_layers()->folds(&spec);
}

/* ---- the oracle ------------------------------------------------------------------------------ */

/* A convolution, a norm, and as a trial of its own the layer that both make together. */
typedef struct pair {
    trial convolution, norm;
} pair;

static int pair_make(pair *p, const zonal__layer_spec *spec) {
    zonal__layer_spec convolution = *spec, norm = *spec;
    convolution.kind = ZONAL__LAYER_CONVOLUTION;
    convolution.dtype = norm.dtype = ZONAL_DTYPE_FP32;
    norm.kind = ZONAL__LAYER_NORM;
    norm.channels = spec->out_channels;
    if (!trial_make(&p->convolution, zonal__nn_cpu(), convolution)) return 0;
    if (trial_make(&p->norm, zonal__nn_cpu(), norm)) return 1;
    trial_drop(&p->convolution);
    return 0;
}

static void pair_drop(pair *p) {
    trial_drop(&p->convolution);
    trial_drop(&p->norm);
}

static void copy(const trial *from, int source, trial *to, int array) {
    for (int64_t i = 0; i < to->count[array]; i++) to->wide[array][i] = from->wide[source][i];
}

static void pair_take(pair *p, const trial *t) {
    static const int of_norm[] = {RESIDUAL, BIAS,         SCALE,           DY,
                                  DY_MORE,  RUNNING_MEAN, RUNNING_VARIANCE};
    copy(t, X, &p->convolution, X);
    copy(t, WEIGHT, &p->convolution, WEIGHT);
    for (size_t i = 0; i < COUNT(of_norm); i++) copy(t, of_norm[i], &p->norm, of_norm[i]);
}

static void pair_forward(pair *p, int training) {
    CHECK_OK(trial_forward(&p->convolution, training));
    copy(&p->convolution, Y, &p->norm, X);
    CHECK_OK(trial_forward(&p->norm, training));
}

static void pair_backward(pair *p, const trial *like) {
    p->norm.accumulate = p->convolution.accumulate = like->accumulate;
    p->norm.with_more = like->with_more;
    CHECK_OK(trial_backward(&p->norm));
    copy(&p->norm, DX, &p->convolution, DY);
    CHECK_OK(trial_backward(&p->convolution));
}

/* ---- against it ------------------------------------------------------------------------------ */

/* A rounding to bf16 is 1.7e-3 in the mean square. y and dx have one; so have the gradients that go
 * through g, where that is a sum of two, and through engines that round a weight's gradient. Of
 * millions of z a few lie so close to 0 that they have another sign in the oracle: 1e-3 of a sum.
 */
static void check_array(const trial *got, const trial *want, int array, double tolerance,
                        const char *when) {
    double off = 0, norm = 0;
    char what[256];
    trial_describe(&got->spec, what, sizeof what);
    for (int64_t i = 0; i < got->count[array]; i++) {
        double a = (double)got->wide[array][i], b = (double)want->wide[array][i];
        off += (a - b) * (a - b);
        norm += b * b;
    }
    off = sqrt(off / (norm + 1e-12));
    CHECK_MSG(off <= tolerance, "%s, %s: %s is off by %.2g, allowed are %.2g", what, when,
              trial_array_names[array], off, tolerance);
}

static void check_step(trial *got, pair *want, const char *when) {
    CHECK_OK(trial_forward(got, 1));
    pair_forward(want, 1);
    CHECK_OK(trial_backward(got));
    pair_backward(want, got);
    check_array(got, &want->norm, Y, 3e-3, when);
    check_array(got, &want->norm, RUNNING_MEAN, 1e-5, when);
    check_array(got, &want->norm, RUNNING_VARIANCE, 1e-5, when);
    check_array(got, &want->norm, DRESIDUAL, 4e-3, when);
    check_array(got, &want->norm, DBIAS, 4e-3, when);
    check_array(got, &want->norm, DSCALE, 4e-3, when);
    check_array(got, &want->convolution, DWEIGHT, 4e-3, when);
    check_array(got, &want->convolution, DX, 4e-3, when);
}

static void check_shape(const int *shape) {
    zonal__layer_spec spec = spec_of(shape);
    trial got;
    pair want;
    if (!trial_make(&got, gpu_layers(), spec)) return;
    if (pair_make(&want, &spec)) {
        trial_fill_all(&got, 0);
        pair_take(&want, &got);
        if (spec.n * spec.h * spec.w > 2) { /* of two rows dx is but what epsilon leaves */
            check_step(&got, &want, "a step");
            got.accumulate = 1;
            got.with_more = spec.residual;
            check_step(&got, &want, "accumulated");
        }
        CHECK_OK(trial_forward(&got, 0));
        pair_forward(&want, 0);
        check_array(&got, &want.norm, Y, 3e-3, "inference");
        pair_drop(&want);
    }
    trial_drop(&got);
}

static void test_oracle(void) {
    if (skipped()) return;
    for (size_t i = 0; i < COUNT(shapes); i++) check_shape(shapes[i]);
}

/* ---- masked convolutions ----------------------------------------------------------------------
 */

/* A PRODUCT_NORM and the masked convolution that reads its y, which has as many channels as the
 * former's x. */
typedef struct masked {
    trial norm, convolution;
} masked;

static int masked_make(masked *m, const zonal__layer_spec *spec) {
    zonal__layer_spec convolution = *spec;
    convolution.kind = ZONAL__LAYER_CONVOLUTION;
    convolution.channels = spec->out_channels;
    convolution.out_channels = spec->channels;
    convolution.masked = 1;
    convolution.residual = 0;
    if (!trial_make(&m->norm, gpu_layers(), *spec)) return 0;
    if (trial_make(&m->convolution, gpu_layers(), convolution)) return 1;
    trial_drop(&m->norm);
    return 0;
}

static void masked_drop(masked *m) {
    trial_drop(&m->norm);
    trial_drop(&m->convolution);
}

/* The convolution's dx, and the norm's gradients from it; dx_more is the norm's dy. */
static zonal_status masked_backward(masked *m) {
    zonal__layer_arrays norm = trial_arrays(&m->norm), convolution = trial_arrays(&m->convolution);
    ZONAL_TRY(trial_send(&m->convolution));
    convolution.dx = norm.dresidual;
    convolution.dx_more = norm.dy;
    convolution.mask = gpu_layers()->mask(m->norm.layer, m->norm.saved);
    norm.dy = norm.dy_more = NULL;
    ZONAL_TRY(gpu_layers()->backward(m->convolution.layer, &convolution));
    ZONAL_TRY(gpu_layers()->backward(m->norm.layer, &norm));
    ZONAL_TRY(trial_fetch(&m->convolution));
    return trial_fetch(&m->norm);
}

/* The same by the host's convolution in fp32, and by the norm that gets both gradients. */
static void check_masked_against(masked *m, trial *plain, trial *norm) {
    static const int of_norm[] = {DRESIDUAL, DBIAS, DSCALE, DWEIGHT, DX};
    copy(&m->convolution, X, plain, X);
    copy(&m->convolution, WEIGHT, plain, WEIGHT);
    copy(&m->convolution, DY, plain, DY);
    CHECK_OK(trial_backward(plain));
    copy(plain, DX, norm, DY_MORE);
    norm->with_more = 1;
    CHECK_OK(trial_forward(norm, 1));
    CHECK_OK(trial_backward(norm));
    check_array(&m->convolution, plain, DWEIGHT, 4e-3, "masked");
    for (size_t i = 0; i < COUNT(of_norm); i++)
        check_array(&m->norm, norm, of_norm[i], 6e-3, "masked");
}

static void check_masked(const int *shape) {
    zonal__layer_spec spec = spec_of(shape), convolution;
    masked m;
    trial plain, norm;
    if (!masked_make(&m, &spec)) return;
    convolution = m.convolution.spec;
    convolution.masked = 0;
    convolution.dtype = ZONAL_DTYPE_FP32;
    if (trial_make(&plain, zonal__nn_cpu(), convolution)) {
        if (trial_make(&norm, gpu_layers(), spec)) {
            trial_fill_all(&m.norm, 0);
            trial_fill_all(&norm, 0);
            trial_fill_all(&m.convolution, 1);
            for (int64_t i = 0; i < m.convolution.count[WEIGHT]; i++)
                m.convolution.wide[WEIGHT][i] /= 16;
            CHECK_OK(trial_forward(&m.norm, 1));
            CHECK_OK(masked_backward(&m));
            check_masked_against(&m, &plain, &norm);
            trial_drop(&norm);
        }
        trial_drop(&plain);
    }
    masked_drop(&m);
}

static void test_masked(void) {
    if (skipped()) return;
    for (size_t i = 0; i < COUNT(shapes); i++)
        if (shapes[i][5] && shapes[i][0] > 1) check_masked(shapes[i]);
}

/* For compute-sanitizer. */
static void test_tiny(void) {
    if (skipped()) return;
    check_shape(shapes[0]);
    check_shape(shapes[5]);
    check_masked(shapes[0]);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static zonal_status enqueue(void *context, void *stream) {
    trial *t = context;
    zonal__layer_arrays arrays = trial_arrays(t);
    t->table->set_stream(t->layer, stream);
    ZONAL_TRY(t->table->forward(t->layer, &arrays, 1));
    return t->table->backward(t->layer, &arrays);
}

static void check_same(const trial *a, const trial *b, const char *when) {
    char what[256];
    trial_describe(&a->spec, what, sizeof what);
    for (int i = Y; i <= DSCALE; i++)
        CHECK_MSG(trial_differing(a->count[i], a->wide[i], b->wide[i]) == 0,
                  "%s: %s is not the same %s", what, trial_array_names[i], when);
}

static void check_bits(zonal__layer_spec spec) {
    trial one, other;
    double us;
    if (!trial_make(&one, gpu_layers(), spec)) return;
    if (trial_make(&other, gpu_layers(), spec)) {
        trial_fill_all(&one, 0);
        trial_fill_all(&other, 0);
        CHECK_OK(trial_forward(&one, 1));
        CHECK_OK(trial_backward(&one));
        for (int i = Y; i <= DSCALE; i++)
            for (int64_t k = 0; k < other.count[i]; k++) other.wide[i][k] = NAN;
        CHECK_OK(trial_forward(&other, 1));
        CHECK_OK(trial_backward(&other));
        check_same(&one, &other, "in another run");
        CHECK_OK(trial_send(&other));
        CHECK_OK(zonal__device_time(gpu_device(), enqueue, &other, 1, 1, 3, &us));
        CHECK_OK(trial_fetch(&other));
        check_same(&one, &other, "from a graph");
        trial_drop(&other);
    }
    trial_drop(&one);
}

static void test_same_bits(void) {
    if (skipped()) return;
    for (size_t i = 0; i < COUNT(shapes); i++)
        if (shapes[i][0] > 1) check_bits(spec_of(shapes[i]));
}

static void test_refused(void) {
    zonal__layer *layer;
    if (skipped()) return;
    for (int i = 0; i < 4; i++) {
        zonal__layer_spec spec = spec_of(shapes[0]);
        if (i == 0) spec.channels = 96;
        if (i == 1) spec.out_channels = 192;
        if (i == 2) spec.dtype = ZONAL_DTYPE_FP32;
        if (i == 3) spec.activation = ZONAL__ACTIVATION_GELU;
        CHECK_FAILS(gpu_layers()->create(&spec, &layer), ZONAL_UNSUPPORTED, "one after the other");
    }
}

static const test_case tests[] = {{"oracle", test_oracle},   {"masked", test_masked},
                                  {"tiny", test_tiny},       {"same_bits", test_same_bits},
                                  {"refused", test_refused}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
