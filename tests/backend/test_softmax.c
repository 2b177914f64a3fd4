/*
 * Linear classification, src/backend/training/softmax.h: closed forms, differences of the loss
 * against the gradient, and the CPU's against the reference.
 */
#include "backend/training/softmax.h"
#include "core/memory.h"
#include "core/random.h"
#include "failing_alloc.h"
#include "test.h"

enum { MOST_ROWS = 5000, MOST_DIM = 70, MOST_CLASSES = 33 };
enum { MOST_PARAMETERS = MOST_CLASSES * (MOST_DIM + 1) };

static float x[MOST_ROWS * MOST_DIM];
static int32_t labels[MOST_ROWS];
static double parameters[MOST_PARAMETERS];

static void fill(int64_t rows, int64_t dim, int classes) {
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, 0};
    double normal[MOST_DIM + 1];
    for (int64_t i = 0; i < rows; i++) {
        uint32_t words[4];
        zonal__random_normal(&random, (uint64_t)i, dim, normal);
        zonal__random_words(&random, (uint64_t)i, 1000, words);
        labels[i] = (int32_t)(words[0] % (uint32_t)classes);
        for (int64_t j = 0; j < dim; j++) x[i * dim + j] = (float)normal[j];
    }
    random.step = 1;
    for (int c = 0; c < classes; c++)
        zonal__random_normal(&random, (uint64_t)c, dim + 1, parameters + c * (dim + 1));
}

static int run(const zonal__softmax_table *table, int64_t rows, int64_t dim, int classes,
               int threads, double *loss, double *gradient, double *scores) {
    zonal__softmax_spec spec = {.dim = dim, .classes = classes, .threads = threads};
    zonal__softmax *softmax;
    if (!CHECK_OK(table->create(&spec, &softmax))) return 0;
    table->loss(softmax, rows, x, labels, parameters, loss, gradient);
    if (scores) table->scores(softmax, rows, x, parameters, scores);
    table->destroy(softmax);
    return 1;
}

/* With parameters 0 all classes are equally likely: log(classes), and the gradient of the biases is
 * 1/classes less the share of the class. */
static void check_at_zero(const zonal__softmax_table *table) {
    enum { ROWS = 300, DIM = 3, CLASSES = 4 };
    double loss, gradient[CLASSES * (DIM + 1)], share[CLASSES] = {0};
    fill(ROWS, DIM, CLASSES);
    memset(parameters, 0, sizeof parameters);
    for (int i = 0; i < ROWS; i++) share[labels[i]] += 1.0 / ROWS;
    if (!run(table, ROWS, DIM, CLASSES, 2, &loss, gradient, NULL)) return;
    CHECK_CLOSE(loss, log(CLASSES), 1e-14); /* a mean of 300 doubles */
    for (int c = 0; c < CLASSES; c++)
        CHECK_CLOSE(gradient[c * (DIM + 1) + DIM], .25 - share[c], 1e-14);
}

static void test_at_zero(void) {
    check_at_zero(zonal__softmax_ref());
    check_at_zero(zonal__softmax_cpu());
}

/* Two classes and one row: loss log(1 + e^-u), u the difference of the scores. */
static void test_one_row(void) {
    double loss, gradient[6], scores[2];
    x[0] = .5f, x[1] = -2, labels[0] = 1;
    memcpy(parameters, (double[]){.25, .5, 1, -1, .75, 3}, 6 * sizeof(double));
    if (!run(zonal__softmax_ref(), 1, 2, 2, 1, &loss, gradient, scores)) return;
    CHECK_CLOSE(scores[0], .125, 0);
    CHECK_CLOSE(scores[1], 1, 0);
    CHECK_CLOSE(loss, log1p(exp(-.875)), 1e-15);
    double off = 1 / (1 + exp(.875)); /* the share of the wrong class */
    CHECK_ARRAY(6, gradient, ((double[]){off / 2, -2 * off, off, -off / 2, 2 * off, -off}), 1e-15);
}

/* Central differences of step h are off by h^2 and by the loss's rounding over h: 1e-9 for 1e-5. */
static void test_differences(void) {
    enum { ROWS = 40, DIM = 5, CLASSES = 3, ALL = CLASSES * (DIM + 1) };
    double loss, gradient[ALL], unused[ALL], low, high, h = 1e-5;
    fill(ROWS, DIM, CLASSES);
    if (!run(zonal__softmax_ref(), ROWS, DIM, CLASSES, 1, &loss, gradient, NULL)) return;
    for (int i = 0; i < ALL; i++) {
        double at = parameters[i];
        parameters[i] = at - h;
        run(zonal__softmax_ref(), ROWS, DIM, CLASSES, 1, &low, unused, NULL);
        parameters[i] = at + h;
        run(zonal__softmax_ref(), ROWS, DIM, CLASSES, 1, &high, unused, NULL);
        parameters[i] = at;
        CHECK_CLOSE(gradient[i], (high - low) / (2 * h), 1e-9);
    }
}

/* Sums of doubles in another order: a few hundred roundings of numbers around 10. */
static void check_cpu(int64_t rows, int64_t dim, int classes, int threads) {
    static double want[MOST_PARAMETERS], got[MOST_PARAMETERS];
    double want_loss, got_loss, *scores = NULL;
    fill(rows, dim, classes);
    if (CHECK_OK(ZONAL_NEW(&scores, 2 * rows * classes, "scores")) &&
        run(zonal__softmax_ref(), rows, dim, classes, 1, &want_loss, want, scores) &&
        run(zonal__softmax_cpu(), rows, dim, classes, threads, &got_loss, got,
            scores + rows * classes)) {
        CHECK_CLOSE(got_loss, want_loss, 1e-12);
        CHECK_ARRAY(classes * (dim + 1), got, want, 1e-13);
        CHECK_ARRAY(rows * classes, scores + rows * classes, scores, 1e-12);
    }
    zonal__free(scores);
}

static void test_cpu_shapes(void) {
    static const int64_t rows[] = {1, 2, 127, 128, 129, 300, MOST_ROWS}, dims[] = {1, 17, 64, 70};
    static const int classes[] = {2, 3, 10, 33};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (size_t d = 0; d < 4; d++) check_cpu(rows[r], dims[d], classes[(r + d) % 4], 1 + r % 2);
}

static void test_threads(void) {
    static double one[MOST_PARAMETERS], two[MOST_PARAMETERS];
    double first, second;
    fill(MOST_ROWS, 30, 7);
    run(zonal__softmax_cpu(), MOST_ROWS, 30, 7, 1, &first, one, NULL);
    run(zonal__softmax_cpu(), MOST_ROWS, 30, 7, 2, &second, two, NULL);
    CHECK(first == second && memcmp(one, two, 7 * 31 * sizeof *one) == 0);
}

/* Scores of thousands: the loss is finite and exact, without overflow. A NaN shows. */
static void check_extremes(const zonal__softmax_table *table) {
    double loss, gradient[4];
    x[0] = 1000, x[1] = -1000, labels[0] = 0, labels[1] = 0;
    memcpy(parameters, (double[]){2, 0, -2, 0}, 4 * sizeof(double));
    if (!run(table, 2, 1, 2, 1, &loss, gradient, NULL)) return;
    CHECK_CLOSE(loss, 2000, 1e-12);
    CHECK_ARRAY(4, gradient, ((double[]){500, -.5, -500, .5}), 1e-12);
    x[1] = NAN;
    if (run(table, 2, 1, 2, 1, &loss, gradient, NULL)) CHECK(isnan(loss) && isnan(gradient[0]));
}

static void test_extremes(void) {
    check_extremes(zonal__softmax_ref());
    check_extremes(zonal__softmax_cpu());
}

static zonal_status make_and_drop(void *context) {
    const zonal__softmax_table *table = context;
    zonal__softmax_spec spec = {.dim = 5, .classes = 3, .threads = 2};
    zonal__softmax *softmax;
    ZONAL_TRY(table->create(&spec, &softmax));
    table->destroy(softmax);
    return ZONAL_OK;
}

static void test_create(void) {
    zonal__softmax_spec spec = {.dim = 5, .classes = 1};
    zonal__softmax *softmax;
    CHECK_FAILS(zonal__softmax_cpu()->create(&spec, &softmax), ZONAL_ARGUMENT,
                "at least 2 classes, got 1");
    spec.dim = 0;
    CHECK_FAILS(zonal__softmax_ref()->create(&spec, &softmax), ZONAL_SHAPE, "got 0");
    zonal__softmax_cpu()->destroy(NULL);
    test_every_allocation("the reference's classifier", make_and_drop,
                          (void *)zonal__softmax_ref());
    test_every_allocation("the CPU's classifier", make_and_drop, (void *)zonal__softmax_cpu());
}

static const test_case tests[] = {
    {"at_zero", test_at_zero},         {"one_row", test_one_row},
    {"differences", test_differences}, {"cpu_shapes", test_cpu_shapes},
    {"threads", test_threads},         {"extremes", test_extremes},
    {"create", test_create},           {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
