/*
 * The gradient of a classifier that is trained along, src/backend/training/classifier.h: against
 * central differences of the loss, which this file computes by itself in double.
 */
#include "backend/training/classifier.h"

#include "core/bf16.h"
#include "core/memory.h"
#include "core/random.h"
#include "failing_alloc.h"
#include "test.h"

enum { ROWS = 37, DIM = 19, CLASSES = 7, ALL = CLASSES * (DIM + 1) };

static float x[ROWS * DIM], parameters[ALL];
static uint16_t narrow[ROWS * DIM];
static int32_t labels[ROWS];

/* Features that bf16 holds exactly, so that both dtypes have one loss. */
static void fill(void) {
    const zonal__random random = {test_seed, ZONAL__STREAM_TEST, 0};
    double normal[ROWS * DIM];
    zonal__random_normal(&random, 0, ROWS * DIM, normal);
    for (int i = 0; i < ROWS * DIM; i++) {
        narrow[i] = zonal__bf16_from_float((float)normal[i]);
        x[i] = zonal__bf16_to_float(narrow[i]);
    }
    zonal__random_normal(&random, 1, ALL, normal);
    for (int i = 0; i < ALL; i++) parameters[i] = (float)normal[i] / 2;
    for (int i = 0; i < ROWS; i++) labels[i] = i * i % CLASSES;
}

/* Cross-entropy, summed over the rows and divided by all_rows. */
static double loss_at(int parameter, double change, double all_rows) {
    double sum = 0;
    for (int i = 0; i < ROWS; i++) {
        double score[CLASSES], total = 0;
        for (int c = 0; c < CLASSES; c++) {
            int bias = CLASSES * DIM + c;
            score[c] = (double)parameters[bias] + (bias == parameter ? change : 0);
            for (int j = 0; j < DIM; j++)
                score[c] += (double)x[i * DIM + j] * ((double)parameters[c * DIM + j] +
                                                      (c * DIM + j == parameter ? change : 0));
            total += exp(score[c]);
        }
        sum += (log(total) - score[labels[i]]) / all_rows;
    }
    return sum;
}

static int run(const zonal__classifier_table *table, zonal_dtype dtype, int64_t all_rows,
               float *gradients) {
    const zonal__classifier_spec spec = {.rows = ROWS,
                                         .all_rows = all_rows,
                                         .dim = DIM,
                                         .classes = CLASSES,
                                         .dtype = dtype,
                                         .threads = 2};
    zonal__classifier *classifier;
    int good;
    if (!CHECK_OK(table->create(&spec, &classifier))) return 0;
    good =
        CHECK_OK(table->gradient(classifier, dtype == ZONAL_DTYPE_BF16 ? (const void *)narrow : x,
                                 labels, parameters, gradients));
    table->destroy(classifier);
    return good;
}

/* Differences of step 1e-5 are off by 1e-10 and, for rounding, 1e-10; a float of at most 1 by
 * 6e-8. */
static void check_differences(const zonal__classifier_table *table, zonal_dtype dtype,
                              int64_t all_rows) {
    float gradients[ALL];
    fill();
    if (!run(table, dtype, all_rows, gradients)) return;
    for (int p = 0; p < ALL; p++) {
        double h = 1e-5, rows = (double)all_rows;
        double want = (loss_at(p, h, rows) - loss_at(p, -h, rows)) / (2 * h);
        CHECK_CLOSE(gradients[p], want, 1e-7);
    }
}

static void test_differences(void) {
    const zonal__classifier_table *const tables[] = {zonal__classifier_ref(),
                                                     zonal__classifier_cpu()};
    for (int t = 0; t < 2; t++) {
        check_differences(tables[t], ZONAL_DTYPE_FP32, ROWS);
        check_differences(tables[t], ZONAL_DTYPE_BF16, ROWS);
        check_differences(tables[t], ZONAL_DTYPE_FP32, 3 * ROWS);
    }
}

/* A NaN must not become a gradient that an optimiser takes. */
static void test_nan(void) {
    float gradients[ALL];
    fill();
    x[5 * DIM + 3] = NAN;
    if (run(zonal__classifier_cpu(), ZONAL_DTYPE_FP32, ROWS, gradients))
        CHECK(isnan(gradients[0]) && isnan(gradients[ALL - 1]));
}

static void test_refuses(void) {
    const zonal__classifier_spec good = {
        .rows = 4, .all_rows = 4, .dim = 3, .classes = 2, .dtype = ZONAL_DTYPE_FP32};
    zonal__classifier_spec bad = good;
    zonal__classifier *classifier;
    bad.classes = 1;
    CHECK(zonal__classifier_cpu()->create(&bad, &classifier) == ZONAL_ARGUMENT && !classifier);
    bad = good, bad.all_rows = 3;
    CHECK(zonal__classifier_cpu()->create(&bad, &classifier) == ZONAL_SHAPE && !classifier);
    bad = good, bad.dtype = ZONAL_DTYPE_AUTO;
    CHECK(zonal__classifier_cpu()->create(&bad, &classifier) == ZONAL_DTYPE && !classifier);
}

static zonal_status make_and_drop(void *context) {
    const zonal__classifier_spec spec = {
        .rows = 4, .all_rows = 4, .dim = 3, .classes = 2, .dtype = ZONAL_DTYPE_BF16, .threads = 1};
    const zonal__classifier_table *table = context;
    zonal__classifier *classifier;
    ZONAL_TRY(table->create(&spec, &classifier));
    table->destroy(classifier);
    return ZONAL_OK;
}

static void test_memory(void) {
    test_every_allocation("ref", make_and_drop, (void *)zonal__classifier_ref());
    test_every_allocation("cpu", make_and_drop, (void *)zonal__classifier_cpu());
}

static const test_case tests[] = {{"differences", test_differences},
                                  {"nan", test_nan},
                                  {"refuses", test_refuses},
                                  {"memory", test_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
