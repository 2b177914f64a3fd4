/* One layer with all its arrays: nn_trial.h. */
#include "nn_trial.h"

#include "core/bf16.h"
#include "core/memory.h"
#include "test.h"

const char *const trial_array_names[ARRAYS] = {
    "x",  "residual",  "weight",  "bias",  "scale",  "dy",           "dy_more",         "y",
    "dx", "dresidual", "dweight", "dbias", "dscale", "running_mean", "running_variance"};

int trial_is_narrow(int array) {
    return array == X || array == RESIDUAL || array == WEIGHT || array == DY || array == DY_MORE ||
           array == Y || array == DX || array == DRESIDUAL;
}

int trial_is_norm(const zonal__layer_spec *spec) {
    return spec->kind == ZONAL__LAYER_NORM || spec->kind == ZONAL__LAYER_NORM_POOL ||
           spec->kind == ZONAL__LAYER_PRODUCT_NORM;
}

static void count_arrays(trial *t) {
    const zonal__layer_spec *spec = &t->spec;
    int h = 0, w = 0, channels = 0;
    CHECK_OK(zonal__layer_shape(spec, &h, &w, &channels));
    int norm = trial_is_norm(spec), linear = spec->kind == ZONAL__LAYER_LINEAR;
    int64_t x = spec->n * spec->h * spec->w * spec->channels, y = spec->n * h * w * channels;
    int64_t taps = linear ? 1 : (int64_t)spec->kernel * spec->kernel;
    t->count[X] = t->count[DX] = x;
    t->count[Y] = t->count[DY] = t->count[DY_MORE] = y;
    if (linear || spec->kind == ZONAL__LAYER_CONVOLUTION || spec->kind == ZONAL__LAYER_PRODUCT_NORM)
        t->count[WEIGHT] = t->count[DWEIGHT] = channels * taps * spec->channels;
    if (norm || (linear && spec->bias)) t->count[BIAS] = t->count[DBIAS] = channels;
    if (norm) t->count[SCALE] = t->count[DSCALE] = channels;
    if (norm) t->count[RUNNING_MEAN] = t->count[RUNNING_VARIANCE] = channels;
    if (norm && spec->residual) t->count[RESIDUAL] = t->count[DRESIDUAL] = y;
}

void trial_drop(trial *t) {
    t->table->destroy(t->layer);
    for (int a = 0; a < ARRAYS; a++) {
        zonal__free(t->wide[a]);
        zonal__free(t->narrow[a]);
        if (t->device[a]) zonal__device_free(t->on, t->device[a]);
    }
    zonal__device_free(t->on, t->saved);
    zonal__device_free(t->on, t->scratch);
}

/* What the layer sees of an array on the host, and how much of it. */
static void *on_host(trial *t, int array) {
    return t->spec.dtype == ZONAL_DTYPE_BF16 && trial_is_narrow(array) ? (void *)t->narrow[array]
                                                                       : (void *)t->wide[array];
}

static size_t bytes_of(const trial *t, int array) {
    int narrow = t->spec.dtype == ZONAL_DTYPE_BF16 && trial_is_narrow(array);
    return (size_t)t->count[array] * (narrow ? sizeof(uint16_t) : sizeof(float));
}

static int allocate(trial *t) {
    size_t saved = t->table->saved_bytes(t->layer), scratch = t->table->scratch_bytes(t->layer);
    int good =
        CHECK_OK(zonal__device_alloc(t->on, saved ? saved : 1, "what is saved", &t->saved)) &&
        CHECK_OK(zonal__device_alloc(t->on, scratch ? scratch : 1, "scratch", &t->scratch));
    for (int a = 0; good && a < ARRAYS; a++)
        if (!zonal__device_is_host(t->on) && t->count[a])
            good = CHECK_OK(zonal__device_alloc(t->on, bytes_of(t, a), "an array", &t->device[a]));
    return good;
}

int trial_make(trial *t, const zonal__nn_table *table, zonal__layer_spec spec) {
    int good = 1;
    memset(t, 0, sizeof *t);
    if (!CHECK_OK(zonal__device_open(table->name, &t->on))) return 0;
    if (!spec.dtype) spec.dtype = ZONAL_DTYPE_FP32;
    t->table = table;
    t->spec = spec;
    count_arrays(t);
    if (!CHECK_OK(t->table->create(&spec, &t->layer))) return 0;
    for (int a = 0; a < ARRAYS; a++) {
        good &= CHECK_OK(ZONAL_NEW(&t->wide[a], t->count[a], "an array"));
        good &= CHECK_OK(ZONAL_NEW(&t->narrow[a], t->count[a], "an array"));
    }
    good = good && allocate(t);
    if (!good) trial_drop(t);
    return good;
}

static uint32_t mix(uint32_t n) {
    n = n * 2654435761u + 974711u;
    n = (n ^ n >> 15) * 2246822519u;
    return n ^ n >> 13;
}

void trial_fill(trial *t, int array, int step, int grid) {
    for (int64_t i = 0; i < t->count[array]; i++) {
        uint32_t hash = mix((uint32_t)i * 4096 + (uint32_t)array * 256 + (uint32_t)step);
        t->wide[array][i] = (float)((int)(hash % (uint32_t)grid) - grid / 2) / 64;
    }
}

void trial_fill_all(trial *t, int step) {
    for (int a = X; a <= DY_MORE; a++) trial_fill(t, a, step, 257);
    for (int64_t c = 0; c < t->count[RUNNING_MEAN]; c++) {
        t->wide[RUNNING_MEAN][c] = 0.5f;
        t->wide[RUNNING_VARIANCE][c] = 2;
    }
}

static void *of(trial *t, int array) {
    if (!t->count[array]) return NULL;
    return t->device[array] ? t->device[array] : on_host(t, array);
}

zonal__layer_arrays trial_arrays(trial *t) {
    return (zonal__layer_arrays){.x = of(t, X),
                                 .residual = of(t, RESIDUAL),
                                 .y = of(t, Y),
                                 .weight = of(t, WEIGHT),
                                 .bias = of(t, BIAS),
                                 .scale = of(t, SCALE),
                                 .running_mean = of(t, RUNNING_MEAN),
                                 .running_variance = of(t, RUNNING_VARIANCE),
                                 .saved = t->saved,
                                 .scratch = t->scratch,
                                 .dy = of(t, DY),
                                 .dy_more = t->with_more ? of(t, DY_MORE) : NULL,
                                 .dx = t->skip_dx ? NULL : of(t, DX),
                                 .dresidual = t->skip_dresidual ? NULL : of(t, DRESIDUAL),
                                 .dweight = t->skip_dweight ? NULL : of(t, DWEIGHT),
                                 .dbias = of(t, DBIAS),
                                 .dscale = of(t, DSCALE),
                                 .accumulate = t->accumulate};
}

static void to_narrow(trial *t) {
    for (int a = 0; a < ARRAYS; a++)
        for (int64_t i = 0; i < t->count[a]; i++)
            t->narrow[a][i] = zonal__bf16_from_float(t->wide[a][i]);
}

static void from_narrow(trial *t) {
    if (t->spec.dtype != ZONAL_DTYPE_BF16) return;
    for (int a = 0; a < ARRAYS; a++)
        for (int64_t i = 0; trial_is_narrow(a) && i < t->count[a]; i++)
            t->wide[a][i] = zonal__bf16_to_float(t->narrow[a][i]);
}

zonal_status trial_send(trial *t) {
    to_narrow(t);
    for (int a = 0; a < ARRAYS; a++)
        if (t->device[a])
            ZONAL_TRY(zonal__device_write(t->on, t->device[a], on_host(t, a), bytes_of(t, a)));
    return ZONAL_OK;
}

zonal_status trial_fetch(trial *t) {
    for (int a = 0; a < ARRAYS; a++)
        if (t->device[a])
            ZONAL_TRY(zonal__device_read(t->on, on_host(t, a), t->device[a], bytes_of(t, a)));
    from_narrow(t);
    return ZONAL_OK;
}

zonal_status trial_forward(trial *t, int training) {
    zonal__layer_arrays arrays = trial_arrays(t);
    ZONAL_TRY(trial_send(t));
    ZONAL_TRY(t->table->forward(t->layer, &arrays, training));
    return trial_fetch(t);
}

zonal_status trial_backward(trial *t) {
    zonal__layer_arrays arrays = trial_arrays(t);
    ZONAL_TRY(trial_send(t));
    ZONAL_TRY(t->table->backward(t->layer, &arrays));
    return trial_fetch(t);
}

void trial_describe(const zonal__layer_spec *spec, char *out, size_t bytes) {
    snprintf(out, bytes,
             "kind %d, %s, n %lld, %d x %d, channels %d to %d, kernel %d, stride %d, pad %d, "
             "activation %d",
             (int)spec->kind, spec->dtype == ZONAL_DTYPE_BF16 ? "bf16" : "fp32", (long long)spec->n,
             spec->h, spec->w, spec->channels, spec->out_channels, spec->kernel, spec->stride,
             spec->pad, (int)spec->activation);
}

static double norm_of_difference(int64_t n, const float *a, const float *b, double *norm) {
    double difference = 0;
    *norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        *norm += (double)b[i] * (double)b[i];
    }
    *norm = sqrt(*norm);
    return sqrt(difference);
}

void trial_check(const trial *got, const trial *want, int array, double tolerance,
                 const char *when) {
    double norm, difference;
    char what[256];
    if (!got->count[array]) return;
    difference = norm_of_difference(got->count[array], got->wide[array], want->wide[array], &norm);
    trial_describe(&got->spec, what, sizeof what);
    CHECK_MSG(difference <= tolerance * norm + 1e-6, "%s (%s): %s is off by %.3g of its norm %.3g",
              what, when, trial_array_names[array], difference / norm, norm);
}

int64_t trial_differing(int64_t n, const float *a, const float *b) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += !(a[i] == b[i]);
    return count;
}

static void copy_array(trial *to, int to_array, const trial *from, int from_array) {
    CHECK(to->count[to_array] == from->count[from_array]);
    for (int64_t i = 0; i < to->count[to_array]; i++)
        to->wide[to_array][i] = from->wide[from_array][i];
}

/* What the layer would do as two: forward, then backward. */
static void run_two(trial *norm, trial *pool) {
    CHECK_OK(trial_forward(norm, 1));
    copy_array(pool, X, norm, Y);
    CHECK_OK(trial_forward(pool, 1));
    pool->with_more = 1;
    CHECK_OK(trial_backward(pool));
    copy_array(norm, DY, pool, DX);
    CHECK_OK(trial_backward(norm));
}

static void check_same(const trial *got, const trial *want, int array) {
    int64_t differ = trial_differing(want->count[array], got->wide[array], want->wide[array]);
    char what[256];
    trial_describe(&got->spec, what, sizeof what);
    CHECK_MSG(differ == 0, "%s: %lld elements of %s differ from two layers'", what,
              (long long)differ, trial_array_names[array]);
}

void trial_check_norm_pool(const zonal__nn_table *table, zonal__layer_spec spec) {
    static const int inputs[] = {X, SCALE, BIAS, RUNNING_MEAN, RUNNING_VARIANCE};
    static const int outputs[] = {DX, DSCALE, DBIAS, RUNNING_MEAN, RUNNING_VARIANCE};
    zonal__layer_spec norm_spec = spec, pool_spec = spec;
    trial whole, norm, pool;
    norm_spec.kind = ZONAL__LAYER_NORM;
    pool_spec.kind = ZONAL__LAYER_MAX_POOL;
    if (!trial_make(&whole, table, spec)) return;
    if (trial_make(&norm, table, norm_spec)) {
        if (trial_make(&pool, table, pool_spec)) {
            trial_fill_all(&whole, 0);
            for (int i = 0; i < 5; i++) copy_array(&norm, inputs[i], &whole, inputs[i]);
            copy_array(&pool, DY, &whole, DY);
            copy_array(&pool, DY_MORE, &whole, DY_MORE);
            whole.with_more = 1;
            CHECK_OK(trial_forward(&whole, 1));
            CHECK_OK(trial_backward(&whole));
            run_two(&norm, &pool);
            check_same(&whole, &pool, Y);
            for (int i = 0; i < 5; i++) check_same(&whole, &norm, outputs[i]);
            trial_drop(&pool);
        }
        trial_drop(&norm);
    }
    trial_drop(&whole);
}
