/*
 * The CUDA losses against the reference, on the GPU: every method, precision and element type, odd
 * shapes, small and large batches, graphs, bad rows. Skipped where there is no GPU, unless
 * ZONAL_REQUIRE_GPU is set.
 */
#include <stdlib.h>

#include "backend/device.h"
#include "core/npy.h"
#include "core/random.h"
#include "gpu.h"
#include "zonal/loss.h"

static int no_gpu(void) {
    return gpu_is_missing(gpu_device() != NULL);
}

/* ---- 16-bit elements on the host ------------------------------------------------------------- */

static float bits_to_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The nearest half by search among neighbours: slow and plain. */
static uint16_t to_half(float x) {
    uint16_t sign = x < 0 ? 0x8000 : 0, low = 0, high = 0x7bff;
    float size = fabsf(x);
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (zonal__npy_half(middle) <= size)
            low = middle;
        else
            high = middle;
    }
    return (uint16_t)(sign |
                      (size - zonal__npy_half(low) <= zonal__npy_half(high) - size ? low : high));
}

static float element(zonal_dtype dtype, const void *x, int64_t i) {
    if (dtype == ZONAL_DTYPE_BF16) return bits_to_float((uint32_t)((const uint16_t *)x)[i] << 16);
    if (dtype == ZONAL_DTYPE_FP16) return zonal__npy_half(((const uint16_t *)x)[i]);
    return ((const float *)x)[i];
}

static void set_element(zonal_dtype dtype, void *x, int64_t i, float value) {
    if (dtype == ZONAL_DTYPE_BF16)
        ((uint16_t *)x)[i] = to_bf16(value);
    else if (dtype == ZONAL_DTYPE_FP16)
        ((uint16_t *)x)[i] = to_half(value);
    else
        ((float *)x)[i] = value;
}

/* ---- one case -------------------------------------------------------------------------------- */

typedef struct gpu_case {
    const char *method;
    int64_t views, globals, rows, dim;
    zonal_precision precision;
    zonal_dtype dtype;
    double spread; /* 0: uniform rows of random length; more: that much of one common direction */
    int opposite;  /* every other row has that much of the opposite direction */
    int exponent;  /* rows are longer by this power of two */
    int unit_rows; /* rows of length 1, and declared so */
    zonal_implementation implementation;
    double gradient_tolerance; /* 0: the precision's */
    int once;                  /* not from a graph too */
} gpu_case;

static const char *const precision_names[] = {"double", "fp32", "tf32", "bf16"};

static double norm_of(int64_t dim, const double *row) {
    double square = 0;
    for (int64_t k = 0; k < dim; k++) square += row[k] * row[k];
    return sqrt(square);
}

/* Rows of random length about a common direction, as the dtype holds them. */
static void fill_rows(const gpu_case *c, void *x) {
    int64_t n = c->views * c->rows;
    double *row = malloc((size_t)c->dim * sizeof *row);
    for (int64_t i = 0; i < n; i++) {
        zonal__random random = {test_seed, ZONAL__STREAM_TEST, (uint32_t)c->dim};
        double length = ldexp(0.5 + (double)(i % 7), c->exponent);
        zonal__random_direction(&random, (uint64_t)i, c->dim, row);
        row[0] += c->opposite && i % 2 ? -c->spread : c->spread;
        if (c->unit_rows) length = 1 / norm_of(c->dim, row);
        for (int64_t k = 0; k < c->dim; k++)
            set_element(c->dtype, x, i * c->dim + k, (float)(length * row[k]));
    }
    free(row);
}

/* value and gradient by the CPU in double: the reference itself where it is affordable. */
static int host_result(const gpu_case *c, const double *x, double *value, double *gradient) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan *plan;
    if (!CHECK_OK(zonal_loss_defaults(c->method, &options))) return 0;
    options.precision = ZONAL_PRECISION_DOUBLE;
    options.unit_rows = c->unit_rows;
    options.sliced.slices = options.sliced.slices > 64 ? 64 : options.sliced.slices;
    if (c->rows * c->rows * c->dim < 1 << 22) options.implementation = ZONAL_IMPLEMENTATION_REF;
    if (!CHECK_OK(zonal_plan_create(&options, c->rows, c->dim, &plan))) return 0;
    int ok = CHECK_OK(zonal_plan_execute(plan, x, value, gradient));
    zonal_plan_destroy(plan);
    return ok;
}

typedef struct device_case {
    zonal_plan *plan;
    zonal_objective *objective;
    void *x, *value, *gradient; /* device */
} device_case;

static zonal_status enqueue(void *context, void *stream) {
    device_case *d = context;
    if (d->plan) {
        zonal_plan_set_stream(d->plan, stream);
        return zonal_plan_execute(d->plan, d->x, d->value, d->gradient);
    }
    zonal_objective_set_stream(d->objective, stream);
    return zonal_objective_execute(d->objective, d->x, d->value, d->gradient);
}

static void device_free(device_case *d) {
    zonal_plan_destroy(d->plan);
    zonal_objective_destroy(d->objective);
    zonal__device_free(gpu_device(), d->x);
    zonal__device_free(gpu_device(), d->value);
    zonal__device_free(gpu_device(), d->gradient);
}

static int device_make(const gpu_case *c, const void *x, size_t bytes, device_case *d) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    memset(d, 0, sizeof *d);
    if (!CHECK_OK(zonal_loss_defaults(c->method, &options))) return 0;
    strcpy(options.device, "cuda");
    options.precision = c->precision;
    options.dtype = c->dtype;
    options.unit_rows = c->unit_rows;
    options.implementation = c->implementation;
    options.sliced.slices = options.sliced.slices > 64 ? 64 : options.sliced.slices;
    if (c->views > 1) {
        zonal_objective_options whole = ZONAL_OBJECTIVE_OPTIONS_INIT;
        if (!CHECK_OK(zonal_objective_defaults(c->method, &whole))) return 0;
        whole.loss = options;
        if (!CHECK_OK(zonal_objective_create(&whole, c->views, c->globals, c->rows, c->dim,
                                             &d->objective)))
            return 0;
    } else if (!CHECK_OK(zonal_plan_create(&options, c->rows, c->dim, &d->plan))) {
        return 0;
    }
    return CHECK_OK(zonal__device_alloc(gpu_device(), bytes, "x", &d->x)) &&
           CHECK_OK(zonal__device_alloc(gpu_device(), bytes, "gradient", &d->gradient)) &&
           CHECK_OK(zonal__device_alloc(gpu_device(), sizeof(zonal_objective_parts), "value",
                                        &d->value)) &&
           CHECK_OK(zonal__device_write(gpu_device(), d->x, x, bytes));
}

static double relative_distance(const gpu_case *c, int64_t n, const void *got, const double *want) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = element(c->dtype, got, i) - want[i];
        if (isnan(e)) return INFINITY;
        difference += e * e;
        size += want[i] * want[i];
    }
    return sqrt(difference / size);
}

/* What writing the gradient as halves costs at least: below 2^-14 their spacing is 2^-24. */
static double half_floor(const gpu_case *c, int64_t n, const double *want) {
    double size = 0;
    for (int64_t i = 0; i < n; i++) size += want[i] * want[i];
    return c->dtype == ZONAL_DTYPE_FP16 ? 0x1p-25 * sqrt((double)n / size) : 0;
}

static double tolerance_of(const gpu_case *c) {
    double precision = c->precision == ZONAL_PRECISION_FP32   ? 1e-5
                       : c->precision == ZONAL_PRECISION_TF32 ? 2e-3
                                                              : 2e-2;
    double dtype = c->dtype == ZONAL_DTYPE_BF16 ? 4e-3 : c->dtype == ZONAL_DTYPE_FP16 ? 6e-4 : 0;
    return c->gradient_tolerance > 0 ? c->gradient_tolerance : fmax(precision, dtype);
}

static void check_value(const gpu_case *c, double got, double want, const char *what) {
    /* KL's D is 1 + mean log p / C_norm: its error is one of the second term. */
    double size = strncmp(c->method, "kl", 2) == 0 ? 1 + fabs(want - 1) : fabs(want);
    double allowed = c->precision == ZONAL_PRECISION_FP32   ? 2e-6 * size + 2e-11
                     : c->precision == ZONAL_PRECISION_TF32 ? 1e-3 * size + 1e-6
                                                            : 1e-2 * size + 1e-5;
    CHECK_MSG(fabs(got - want) <= allowed,
              "%s %s %lldx%lldx%lld %s = %.12g, want %.12g: off by %.3g, "
              "allowed %.3g",
              c->method, precision_names[c->precision], (long long)c->views, (long long)c->rows,
              (long long)c->dim, what, got, want, fabs(got - want), allowed);
}

/* What the host says of one batch, or of the objective over views, in double. */
static int host_objective(const gpu_case *c, const double *x, zonal_objective_parts *parts,
                          double *gradient) {
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective *objective;
    if (c->views == 1) return host_result(c, x, &parts->total, gradient);
    if (!CHECK_OK(zonal_objective_defaults(c->method, &options))) return 0;
    options.loss.precision = ZONAL_PRECISION_DOUBLE;
    options.loss.sliced.slices = options.loss.sliced.slices > 64 ? 64 : options.loss.sliced.slices;
    if (!CHECK_OK(
            zonal_objective_create(&options, c->views, c->globals, c->rows, c->dim, &objective)))
        return 0;
    int ok = CHECK_OK(zonal_objective_execute(objective, x, parts, gradient));
    zonal_objective_destroy(objective);
    return ok;
}

/* Without a gradient other kernels compute the value. */
static void check_value_alone(const gpu_case *c, device_case *d, double want) {
    double got = 0;
    if (d->plan && CHECK_OK(zonal_plan_execute(d->plan, d->x, d->value, NULL)) &&
        CHECK_OK(zonal_plan_status(d->plan)) &&
        CHECK_OK(zonal__device_read(gpu_device(), &got, d->value, sizeof got)))
        check_value(c, got, want, "value alone");
}

static void compare(const gpu_case *c, device_case *d, int64_t n, size_t bytes, const double *x,
                    void *host) {
    zonal_objective_parts want = {0}, got = {0}, again = {0};
    double *gradient = malloc((size_t)n * sizeof *gradient), us = 0;
    void *second = malloc(bytes);
    if (host_objective(c, x, &want, gradient) && CHECK_OK(enqueue(d, NULL)) &&
        CHECK_OK(d->plan ? zonal_plan_status(d->plan) : zonal_objective_status(d->objective)) &&
        CHECK_OK(zonal__device_read(gpu_device(), &got, d->value, sizeof got)) &&
        CHECK_OK(zonal__device_read(gpu_device(), host, d->gradient, bytes))) {
        double error = relative_distance(c, n, host, gradient);
        double allowed = tolerance_of(c) + half_floor(c, n, gradient);
        check_value(c, got.total, want.total, "value");
        if (c->views > 1) {
            check_value(c, got.invariance, want.invariance, "L_inv");
            check_value(c, got.discrepancy, want.discrepancy, "D");
            CHECK_CLOSE(got.gain, want.gain, 1e-12 * want.gain);
            CHECK_CLOSE(got.threshold, want.threshold, 1e-12 * want.threshold);
        }
        CHECK_MSG(error <= allowed,
                  "%s %s %lldx%lldx%lld dtype %d: gradient off by %.3g of "
                  "its norm, allowed %.3g",
                  c->method, precision_names[c->precision], (long long)c->views, (long long)c->rows,
                  (long long)c->dim, (int)c->dtype, error, allowed);
        printf("# %-12s %-4s dtype %d %lldx%lldx%-4lld value off %.2g  gradient off %.2g\n",
               c->method, precision_names[c->precision], (int)c->dtype, (long long)c->views,
               (long long)c->rows, (long long)c->dim,
               fabs(got.total - want.total) / fabs(want.total), error);
        check_value_alone(c, d, want.total);
        /* The same bits from a graph, replayed. */
        if (!c->once && CHECK_OK(zonal__device_time(gpu_device(), enqueue, d, 1, 2, 3, &us)) &&
            CHECK_OK(zonal__device_read(gpu_device(), &again, d->value, sizeof again)) &&
            CHECK_OK(zonal__device_read(gpu_device(), second, d->gradient, bytes))) {
            size_t used = d->plan ? sizeof(double) : sizeof again;
            CHECK_MSG(memcmp(&got, &again, used) == 0 && memcmp(host, second, bytes) == 0,
                      "%s %s %lldx%lldx%lld is not the same when replayed from a graph", c->method,
                      precision_names[c->precision], (long long)c->views, (long long)c->rows,
                      (long long)c->dim);
        }
    }
    free(gradient);
    free(second);
}

static void run_case(gpu_case c) {
    int64_t n = c.views * c.rows * c.dim;
    if (c.dtype == ZONAL_DTYPE_AUTO) c.dtype = ZONAL_DTYPE_FP32;
    size_t bytes = (size_t)n * (c.dtype == ZONAL_DTYPE_FP32 ? 4 : 2);
    void *host = malloc(bytes);
    double *x = malloc((size_t)n * sizeof *x);
    device_case d;
    fill_rows(&c, host);
    for (int64_t i = 0; i < n; i++) x[i] = element(c.dtype, host, i);
    if (device_make(&c, host, bytes, &d)) compare(&c, &d, n, bytes, x, host);
    device_free(&d);
    free(host);
    free(x);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static const char *const gradient_methods[] = {
    "mmd-heat",    "mmd-band", "mmd-induced", "mmd-poisson", "ksd-heat", "ksd-band", "ksd-induced",
    "ksd-poisson", "kl-heat",  "kl-induced",  "kl-poisson",  "susreg",   "sigreg"};
enum { METHODS = sizeof gradient_methods / sizeof gradient_methods[0] };

/* The least that runs every kernel: what compute-sanitizer is given. */
static void test_tiny(void) {
    if (no_gpu()) return;
    for (int m = 0; m < METHODS; m++) {
        run_case((gpu_case){.method = gradient_methods[m],
                            .views = 1,
                            .globals = 1,
                            .rows = 37,
                            .dim = 12,
                            .precision = ZONAL_PRECISION_FP32,
                            .spread = 0.3});
        run_case((gpu_case){.method = gradient_methods[m],
                            .views = 2,
                            .globals = 1,
                            .rows = 21,
                            .dim = 40,
                            .precision = ZONAL_PRECISION_FP32,
                            .spread = 0.3});
        run_case((gpu_case){.method = gradient_methods[m],
                            .views = 2,
                            .globals = 2,
                            .rows = 1030,
                            .dim = 12,
                            .precision = ZONAL_PRECISION_FP32,
                            .spread = 0.3});
        run_case((gpu_case){.method = gradient_methods[m],
                            .views = 1,
                            .globals = 1,
                            .rows = 1100,
                            .dim = 71,
                            .precision = m % 2 ? ZONAL_PRECISION_TF32 : ZONAL_PRECISION_BF16,
                            .spread = 0.3});
    }
    for (int p = ZONAL_PRECISION_FP32; p <= ZONAL_PRECISION_TF32; p++) /* Hopper's moments */
        run_case((gpu_case){.method = "mmd-band",
                            .views = 1,
                            .globals = 1,
                            .rows = 4100,
                            .dim = 256,
                            .precision = (zonal_precision)p,
                            .spread = 0.3});
}

/* One method of each kind, once: racecheck takes a hundred times as long as the kernels. */
static void test_races(void) {
    static const char *const methods[] = {"mmd-heat", "kl-heat", "mmd-band", "susreg"};
    static const int64_t shapes[][3] = {{1, 37, 12}, {2, 21, 40}, {1, 1030, 140}};
    if (no_gpu()) return;
    for (int p = ZONAL_PRECISION_FP32; p <= ZONAL_PRECISION_TF32; p++) /* Hopper's moments */
        run_case((gpu_case){.method = "mmd-band",
                            .views = 1,
                            .globals = 1,
                            .rows = 34000, /* tiles for every place in shared memory, twice */
                            .dim = 256,
                            .precision = (zonal_precision)p,
                            .spread = 0.3,
                            .once = 1});
    for (int m = 0; m < 4; m++)
        for (int s = 0; s < 3; s++)
            for (int p = ZONAL_PRECISION_FP32;
                 p <= (s == 2 ? ZONAL_PRECISION_TF32 : ZONAL_PRECISION_FP32); p++)
                run_case((gpu_case){.method = methods[m],
                                    .views = shapes[s][0],
                                    .globals = 1,
                                    .rows = shapes[s][1],
                                    .dim = shapes[s][2],
                                    .precision = (zonal_precision)p,
                                    .spread = 0.3,
                                    .once = 1});
}

static void test_small(void) {
    static const int64_t shapes[][2] = {{2, 5},   {3, 2},    {5, 3},     {16, 8},    {33, 17},
                                        {64, 64}, {100, 65}, {256, 256}, {257, 100}, {512, 128}};
    if (no_gpu()) return;
    for (int m = 0; m < METHODS; m++)
        for (unsigned s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            if (shapes[s][0] < 3 && strncmp(gradient_methods[m], "kl", 2) == 0) continue;
            run_case((gpu_case){.method = gradient_methods[m],
                                .views = 1,
                                .globals = 1,
                                .rows = shapes[s][0],
                                .dim = shapes[s][1],
                                .precision = ZONAL_PRECISION_FP32,
                                .spread = s % 2 ? 0.5 : 0});
        }
}

static void test_wide(void) {
    static const int64_t shapes[][2] = {{40, 1000}, {16, 4096}, {130, 513}, {1100, 4096}};
    if (no_gpu()) return;
    for (int m = 0; m < METHODS; m++)
        for (unsigned s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            run_case((gpu_case){.method = gradient_methods[m],
                                .views = 1,
                                .globals = 1,
                                .rows = shapes[s][0],
                                .dim = shapes[s][1],
                                .precision = ZONAL_PRECISION_FP32,
                                .spread = 0.3});
}

static void test_objective(void) {
    static const int64_t shapes[][4] = {
        {2, 2, 256, 256}, {2, 1, 33, 10}, {4, 2, 70, 64}, {2, 2, 1500, 64}};
    if (no_gpu()) return;
    for (int m = 0; m < METHODS; m++)
        for (unsigned s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            run_case((gpu_case){.method = gradient_methods[m],
                                .views = shapes[s][0],
                                .globals = shapes[s][1],
                                .rows = shapes[s][2],
                                .dim = shapes[s][3],
                                .precision = ZONAL_PRECISION_FP32,
                                .spread = 0.3});
}

static void test_large(void) {
    static const int64_t shapes[][2] = {{1025, 64}, {2500, 256}, {5000, 40}, {4100, 300}};
    if (no_gpu()) return;
    for (int m = 0; m < METHODS; m++)
        for (unsigned s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int p = ZONAL_PRECISION_FP32; p <= ZONAL_PRECISION_BF16; p++)
                run_case((gpu_case){.method = gradient_methods[m],
                                    .views = 1,
                                    .globals = 1,
                                    .rows = shapes[s][0],
                                    .dim = shapes[s][1],
                                    .precision = (zonal_precision)p,
                                    .spread = s == 1 ? 0 : 0.3});
}

/* Rows and columns that do not fill their tiles, one tile more or less, rows of odd length, one
 * direction nearly common to all; and a batch of many tiles, which several ranges of columns and
 * several rounds of blocks share, uniform, whose gradient is small beside what is summed. */
static void test_tiles(void) {
    static const int64_t shapes[][2] = {{1151, 256}, {1153, 255}, {1249, 63},  {1344, 65},
                                        {2000, 129}, {3333, 201}, {2305, 256}, {12289, 256}};
    static const char *const methods[] = {"mmd-heat",    "ksd-heat", "mmd-induced",
                                          "mmd-poisson", "kl-heat",  "kl-induced"};
    if (no_gpu()) return;
    for (unsigned m = 0; m < sizeof methods / sizeof methods[0]; m++)
        for (unsigned s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int p = ZONAL_PRECISION_FP32; p <= ZONAL_PRECISION_BF16; p++) {
                if (shapes[s][0] > 10000 && m % 4 != 0) continue; /* the host takes its time */
                run_case((gpu_case){.method = methods[m],
                                    .views = 1,
                                    .globals = 1,
                                    .rows = shapes[s][0],
                                    .dim = shapes[s][1],
                                    .precision = (zonal_precision)p,
                                    .dtype = s == 4   ? ZONAL_DTYPE_BF16
                                             : s == 5 ? ZONAL_DTYPE_FP16
                                                      : ZONAL_DTYPE_FP32,
                                    .spread = s % 3 == 2            ? 2
                                              : s % 3 == 1 && s < 7 ? 0.3
                                                                    : 0});
            }
}

/* Moments of rows of 256 elements: tiles that are not full, ranges of one and of many tiles, more
 * rows than single precision adds up; rows about one direction, about two opposite ones, where all
 * products of a column have one sign, and nearly the same; long, short and unit rows. */
static void test_moments(void) {
    static const struct {
        int64_t rows;
        double spread;
        int opposite, exponent, unit_rows;
    } shapes[] = {{4097, 0, 0, 0, 0},     {4096, 2, 0, 0, 0},  {4225, 0.3, 0, 0, 0},
                  {8513, 4, 1, 0, 0},     {8512, 0, 0, 0, 1},  {5000, 0.3, 0, 50, 0},
                  {5000, 0.3, 0, -50, 0}, {9000, 30, 0, 0, 0}, {300001, 0.3, 1, 0, 0}};
    if (no_gpu()) return;
    for (unsigned s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int p = ZONAL_PRECISION_FP32; p <= ZONAL_PRECISION_BF16; p++)
            for (int t = ZONAL_DTYPE_FP32; t <= ZONAL_DTYPE_FP16; t++) {
                if (t != ZONAL_DTYPE_FP32 && s != 2) continue;
                if (p != ZONAL_PRECISION_FP32 && shapes[s].rows > 100000) continue; /* the host */
                run_case((gpu_case){.method = "mmd-band",
                                    .views = 1,
                                    .globals = 1,
                                    .rows = shapes[s].rows,
                                    .dim = 256,
                                    .precision = (zonal_precision)p,
                                    .dtype = (zonal_dtype)t,
                                    .spread = shapes[s].spread,
                                    .opposite = shapes[s].opposite,
                                    .exponent = shapes[s].exponent,
                                    .unit_rows = shapes[s].unit_rows});
            }
}

/* Rows that begin at odd elements give what aligned ones give. */
static void test_unaligned(void) {
    gpu_case c = {.method = "mmd-band",
                  .views = 1,
                  .globals = 1,
                  .rows = 5000,
                  .dim = 256,
                  .precision = ZONAL_PRECISION_FP32,
                  .dtype = ZONAL_DTYPE_FP32,
                  .spread = 0.3};
    size_t bytes = (size_t)(c.rows * c.dim) * sizeof(float);
    double value[2] = {0, 0};
    device_case d;
    if (no_gpu()) return;
    float *x = malloc(bytes + sizeof *x); /* and one element before the first */
    fill_rows(&c, x + 1);
    x[0] = NAN;
    if (device_make(&c, x, bytes + sizeof *x, &d)) {
        float *odd = (float *)d.x + 1;
        CHECK_OK(zonal_plan_execute(d.plan, odd, d.value, (float *)d.gradient + 1));
        CHECK_OK(zonal_plan_status(d.plan));
        CHECK_OK(zonal__device_read(gpu_device(), &value[0], d.value, sizeof(double)));
        CHECK_OK(zonal__device_write(gpu_device(), d.x, x + 1, bytes));
        CHECK_OK(zonal_plan_execute(d.plan, d.x, d.value, d.gradient));
        CHECK_OK(zonal_plan_status(d.plan));
        CHECK_OK(zonal__device_read(gpu_device(), &value[1], d.value, sizeof(double)));
        check_value(&c, value[0], value[1], "value of unaligned rows");
    }
    device_free(&d);
    free(x);
}

/* The value alone is the value that comes with a gradient, as near as the precision has it. */
static void test_value_alone(void) {
    static const char *const methods[] = {"mmd-heat", "kl-heat", "mmd-band"};
    if (no_gpu()) return;
    for (int m = 0; m < 3; m++)
        for (int p = ZONAL_PRECISION_FP32; p <= ZONAL_PRECISION_BF16; p++) {
            gpu_case c = {.method = methods[m],
                          .views = 1,
                          .globals = 1,
                          .rows = m == 2 ? 5000 : 1500,
                          .dim = m == 2 ? 256 : 100,
                          .precision = (zonal_precision)p,
                          .dtype = ZONAL_DTYPE_FP32,
                          .spread = 0.3};
            size_t bytes = (size_t)(c.rows * c.dim) * sizeof(float);
            double with = 0, without = 0;
            float *x = malloc(bytes);
            device_case d;
            fill_rows(&c, x);
            if (device_make(&c, x, bytes, &d) && CHECK_OK(enqueue(&d, NULL)) &&
                CHECK_OK(zonal_plan_status(d.plan)) &&
                CHECK_OK(zonal__device_read(gpu_device(), &with, d.value, sizeof with)) &&
                CHECK_OK(zonal_plan_execute(d.plan, d.x, d.value, NULL)) &&
                CHECK_OK(zonal_plan_status(d.plan)) &&
                CHECK_OK(zonal__device_read(gpu_device(), &without, d.value, sizeof without)))
                check_value(&c, without, with, "value alone");
            device_free(&d);
            free(x);
        }
}

static void test_dtypes(void) {
    if (no_gpu()) return;
    for (int m = 0; m < METHODS; m++)
        for (int t = ZONAL_DTYPE_BF16; t <= ZONAL_DTYPE_FP16; t++) {
            run_case((gpu_case){.method = gradient_methods[m],
                                .views = 1,
                                .globals = 1,
                                .rows = 96,
                                .dim = 64,
                                .precision = ZONAL_PRECISION_FP32,
                                .dtype = (zonal_dtype)t,
                                .spread = 0.3});
            run_case((gpu_case){.method = gradient_methods[m],
                                .views = 2,
                                .globals = 2,
                                .rows = 96,
                                .dim = 64,
                                .precision = ZONAL_PRECISION_FP32,
                                .dtype = (zonal_dtype)t,
                                .spread = 0.3,
                                .gradient_tolerance = 1e-2});
            run_case((gpu_case){.method = gradient_methods[m],
                                .views = 1,
                                .globals = 1,
                                .rows = 1100,
                                .dim = 64,
                                .precision = ZONAL_PRECISION_FP32,
                                .dtype = (zonal_dtype)t,
                                .spread = 0.3});
        }
}

/* A broad KL kernel, a narrow one, and pairs and moments of the same loss. */
static void test_corners(void) {
    if (no_gpu()) return;
    run_case((gpu_case){.method = "kl-heat",
                        .views = 1,
                        .globals = 1,
                        .rows = 300,
                        .dim = 2,
                        .precision = ZONAL_PRECISION_FP32,
                        .spread = 0});
    run_case((gpu_case){.method = "kl-heat",
                        .views = 1,
                        .globals = 1,
                        .rows = 64,
                        .dim = 2048,
                        .precision = ZONAL_PRECISION_FP32,
                        .spread = 0});
    run_case((gpu_case){.method = "kl-heat",
                        .views = 1,
                        .globals = 1,
                        .rows = 1200,
                        .dim = 2048,
                        .precision = ZONAL_PRECISION_FP32,
                        .spread = 0});
    /* Moments over many rows: |E|^2 is 1e-3 of what each row adds. */
    for (int spread = 0; spread <= 1; spread++)
        run_case((gpu_case){.method = "mmd-band",
                            .views = 1,
                            .globals = 1,
                            .rows = 262144,
                            .dim = 256,
                            .precision = ZONAL_PRECISION_FP32,
                            .spread = 0.3 * spread});
    for (int i = ZONAL_IMPLEMENTATION_PAIRS; i <= ZONAL_IMPLEMENTATION_MOMENTS; i++)
        for (int64_t rows = 300; rows <= 3000; rows *= 10)
            run_case((gpu_case){.method = "mmd-band",
                                .views = 1,
                                .globals = 1,
                                .rows = rows,
                                .dim = 48,
                                .precision = ZONAL_PRECISION_FP32,
                                .implementation = (zonal_implementation)i,
                                .spread = 0.1});
}

static void check_bad_row(const char *method, zonal_precision precision, int64_t rows, int64_t dim,
                          float bad, const char *word) {
    gpu_case c = {.method = method,
                  .views = 1,
                  .globals = 1,
                  .rows = rows,
                  .dim = dim,
                  .precision = precision,
                  .dtype = ZONAL_DTYPE_FP32};
    size_t bytes = (size_t)(rows * dim) * sizeof(float);
    float *x = malloc(bytes);
    device_case d;
    fill_rows(&c, x);
    for (int64_t k = 0; k < dim; k++) x[7 * dim + k] = bad;
    x[9 * dim] = NAN;
    if (device_make(&c, x, bytes, &d)) {
        char text[64];
        CHECK_OK(enqueue(&d, NULL));
        snprintf(text, sizeof text, "row 7");
        CHECK_FAILS(zonal_plan_status(d.plan), ZONAL_NUMERIC, text);
        CHECK_MSG(strstr(zonal_last_error()->message, word) != NULL, "%s says: %s", method,
                  zonal_last_error()->message);
        CHECK_OK(zonal_plan_status(d.plan)); /* reported once */
    }
    device_free(&d);
    free(x);
}

static void test_bad_rows(void) {
    if (no_gpu()) return;
    for (int p = ZONAL_PRECISION_FP32; p <= ZONAL_PRECISION_BF16; p++) {
        zonal_precision precision = (zonal_precision)p;
        for (int64_t rows = 64; rows <= 2048; rows *= 32) {
            check_bad_row("mmd-heat", precision, rows, 16, 0, "zero");
            check_bad_row("mmd-heat", precision, rows, 16, INFINITY, "finite");
            check_bad_row("kl-heat", precision, rows, 16, 0, "zero");
            check_bad_row("susreg", precision, rows, 16, 0, "zero");
            check_bad_row("sigreg", precision, rows, 16, NAN, "finite");
        }
        for (int64_t dim = 16; dim <= 256; dim *= 16) {
            check_bad_row("mmd-band", precision, 4096, dim, NAN, "finite");
            check_bad_row("mmd-band", precision, 4096, dim, INFINITY, "finite");
            check_bad_row("mmd-band", precision, 4096, dim, 0, "zero");
        }
    }
}

/* Memory beyond input and gradient at B = 16384, d = 256, and no allocation in execute. */
static void test_memory(void) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan *plan;
    zonal_plan_info info = ZONAL_PLAN_INFO_INIT;
    if (no_gpu()) return;
    CHECK_OK(zonal_loss_defaults("mmd-heat", &options));
    strcpy(options.device, "cuda");
    if (CHECK_OK(zonal_plan_create(&options, 16384, 256, &plan))) {
        zonal_plan_info_get(plan, &info);
        printf("# scratch at 16384 x 256: %.1f MiB\n", (double)info.scratch_bytes / 1048576);
        CHECK(info.scratch_bytes <= (size_t)64 << 20);
        CHECK(strcmp(info.backend, "cuda") == 0);
    }
    zonal_plan_destroy(plan);
}

static void test_refusals(void) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan *plan;
    if (no_gpu()) return;
    CHECK_OK(zonal_loss_defaults("mmd-heat", &options));
    strcpy(options.device, "cuda");
    options.precision = ZONAL_PRECISION_DOUBLE;
    CHECK_FAILS(zonal_plan_create(&options, 64, 8, &plan), ZONAL_UNSUPPORTED, "fp32, tf32 or bf16");
    options.precision = ZONAL_PRECISION_FP32;
    options.implementation = ZONAL_IMPLEMENTATION_REF;
    CHECK_FAILS(zonal_plan_create(&options, 64, 8, &plan), ZONAL_ARGUMENT, "device cpu");
}

static const test_case tests[] = {{"tiny", test_tiny},           {"races", test_races},
                                  {"small", test_small},         {"wide", test_wide},
                                  {"objective", test_objective}, {"large", test_large},
                                  {"tiles", test_tiles},         {"moments", test_moments},
                                  {"unaligned", test_unaligned}, {"value_alone", test_value_alone},
                                  {"dtypes", test_dtypes},       {"corners", test_corners},
                                  {"bad_rows", test_bad_rows},   {"memory", test_memory},
                                  {"refusals", test_refusals},   {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
