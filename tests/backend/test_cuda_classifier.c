/*
 * The classifier that is trained along, on the GPU (src/backend/cuda/training/classifier.cu),
 * against the reference; the same bits every time. Skipped where there is no GPU, unless
 * ZONAL_REQUIRE_GPU is set.
 */
#include "core/bf16.h"
#include "core/memory.h"
#include "core/random.h"
#include "failing_alloc.h"
#include "gpu.h"

static const zonal__classifier_table *gpu_classifier(void) {
    const zonal__device *device = gpu_device();
    const zonal__classifier_table *table;
    return device && zonal__device_classifier(device, &table) == ZONAL_OK ? table : NULL;
}

static int no_gpu(void) {
    return gpu_is_missing(gpu_classifier() != NULL);
}

/* The arrays of a problem, on the host. */
typedef struct problem {
    zonal__classifier_spec spec;
    void *x; /* of the spec's dtype */
    int32_t *labels;
    float *parameters;
} problem;

static void problem_fini(problem *p) {
    zonal__free(p->x);
    zonal__free(p->labels);
    zonal__free(p->parameters);
}

static size_t x_bytes(const zonal__classifier_spec *s) {
    return (size_t)(s->rows * s->dim) * (s->dtype == ZONAL_DTYPE_BF16 ? 2 : 4);
}

static int problem_init(problem *p, const zonal__classifier_spec *spec) {
    const zonal__random random = {test_seed, ZONAL__STREAM_TEST, 0};
    int64_t elements = spec->rows * spec->dim, count = zonal__classifier_parameters(spec);
    int64_t most = elements > count ? elements : count;
    double *normal;
    *p = (problem){.spec = *spec};
    if (!CHECK_OK(ZONAL_NEW(&normal, most, "numbers")) ||
        !CHECK_OK(zonal__alloc(elements, sizeof(float), "features", &p->x)) ||
        !CHECK_OK(ZONAL_NEW(&p->labels, spec->rows, "labels")) ||
        !CHECK_OK(ZONAL_NEW(&p->parameters, count, "parameters")))
        return 0;
    zonal__random_normal(&random, 0, elements, normal);
    for (int64_t i = 0; i < elements; i++)
        if (spec->dtype == ZONAL_DTYPE_BF16)
            ((uint16_t *)p->x)[i] = zonal__bf16_from_float((float)normal[i]);
        else
            ((float *)p->x)[i] = (float)normal[i];
    zonal__random_normal(&random, 1, count, normal);
    for (int64_t i = 0; i < count; i++)
        p->parameters[i] = (float)(normal[i] / sqrt((double)spec->dim));
    for (int64_t i = 0; i < spec->rows; i++) p->labels[i] = (int32_t)(i * i % spec->classes);
    zonal__free(normal);
    return 1;
}

/* The gradient that a table computes on a device, to be freed. */
static float *gradient_of(const problem *p, const zonal__classifier_table *table,
                          const zonal__device *device) {
    int64_t count = zonal__classifier_parameters(&p->spec);
    size_t bytes[] = {x_bytes(&p->spec), (size_t)p->spec.rows * sizeof *p->labels,
                      (size_t)count * sizeof(float), (size_t)count * sizeof(float)};
    const void *from[] = {p->x, p->labels, p->parameters, p->parameters};
    zonal__classifier_spec spec = p->spec;
    zonal__classifier *classifier = NULL;
    void *to[4] = {NULL};
    float *out = NULL;
    spec.device = device;
    for (int i = 0; i < 4; i++)
        if (!CHECK_OK(zonal__device_alloc(device, bytes[i], "an array", &to[i])) ||
            !CHECK_OK(zonal__device_write(device, to[i], from[i], bytes[i])))
            goto done;
    if (CHECK_OK(table->create(&spec, &classifier)) &&
        CHECK_OK(table->gradient(classifier, to[0], to[1], to[2], to[3])) &&
        CHECK_OK(ZONAL_NEW(&out, count, "a gradient")))
        CHECK_OK(zonal__device_read(device, out, to[3], bytes[3]));
done:
    table->destroy(classifier);
    for (int i = 0; i < 4; i++) zonal__device_free(device, to[i]);
    return out;
}

static double distance(int64_t n, const float *a, const float *b) {
    double square = 0, error = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        square += (double)b[i] * (double)b[i];
    }
    return sqrt(error / square);
}

/* Scores of about 1 summed in fp32, exp to 2 units and sums over the rows: some 1e-6 in all. */
static void check_shape(int64_t rows, int64_t dim, int classes, zonal_dtype dtype) {
    const zonal__classifier_spec spec = {.rows = rows,
                                         .all_rows = rows + rows / 2,
                                         .dim = dim,
                                         .classes = classes,
                                         .dtype = dtype,
                                         .threads = 1};
    int64_t count = zonal__classifier_parameters(&spec);
    problem p;
    float *want = NULL, *got = NULL, *again = NULL;
    if (problem_init(&p, &spec)) {
        want = gradient_of(&p, zonal__classifier_ref(), zonal__device_cpu());
        got = gradient_of(&p, gpu_classifier(), gpu_device());
        again = gradient_of(&p, gpu_classifier(), gpu_device());
    }
    if (want && got && again) {
        double off = distance(count, got, want);
        CHECK_MSG(off <= 5e-6, "%d rows, dim %d, %d classes, dtype %d: off by %.3g", (int)rows,
                  (int)dim, classes, (int)dtype, off);
        CHECK(memcmp(got, again, (size_t)count * sizeof *got) == 0);
    }
    zonal__free(want);
    zonal__free(got);
    zonal__free(again);
    problem_fini(&p);
}

static void test_shapes(void) {
    static const int64_t rows[] = {1, 2, 15, 16, 17, 256}, dims[] = {1, 31, 32, 33, 512, 2048};
    static const int classes[] = {2, 7, 8, 9, 10, 100};
    if (no_gpu()) return;
    for (int r = 0; r < 6; r++)
        for (int d = 0; d < 6; d++)
            check_shape(rows[r], dims[d], classes[(r + d) % 6],
                        (r + d) % 2 ? ZONAL_DTYPE_BF16 : ZONAL_DTYPE_FP32);
    check_shape(256, 2048, 1000, ZONAL_DTYPE_BF16);
}

static void test_nan(void) {
    const zonal__classifier_spec spec = {
        .rows = 20, .all_rows = 20, .dim = 40, .classes = 33, .dtype = ZONAL_DTYPE_FP32};
    problem p;
    float *got;
    if (no_gpu() || !problem_init(&p, &spec)) return;
    ((float *)p.x)[3 * 40 + 5] = NAN;
    got = gradient_of(&p, gpu_classifier(), gpu_device());
    if (got) CHECK(isnan(got[0]) && isnan(got[33 * 41 - 1]));
    zonal__free(got);
    problem_fini(&p);
}

static zonal_status make_and_drop(void *context) {
    const zonal__classifier_spec spec = {
        .rows = 4, .all_rows = 4, .dim = 3, .classes = 2, .dtype = ZONAL_DTYPE_BF16};
    zonal__classifier *classifier;
    (void)context;
    ZONAL_TRY(gpu_classifier()->create(&spec, &classifier));
    gpu_classifier()->destroy(classifier);
    return ZONAL_OK;
}

static void test_memory(void) {
    if (!no_gpu()) test_every_allocation("a classifier", make_and_drop, NULL);
}

static const test_case tests[] = {
    {"shapes", test_shapes}, {"nan", test_nan}, {"memory", test_memory}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
