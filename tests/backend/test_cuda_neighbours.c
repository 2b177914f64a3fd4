/*
 * Nearest rows on CUDA against the reference and the CPU, and their time:
 * src/backend/training/neighbours.h. Without a device everything is skipped; ZONAL_REQUIRE_GPU=1
 * makes that a failure.
 */
#include <stdlib.h>
#include <time.h>

#include "backend/device.h"
#include "backend/training/neighbours.h"
#include "core/memory.h"
#include "core/random.h"
#include "gpu.h"

static int no_gpu(void) {
    return gpu_is_missing(gpu_device() != NULL);
}

/* Cheap random numbers in (-1/2, 1/2): a million rows take a second. */
static void fill(int64_t n, uint32_t step, float *x) {
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, step};
    for (int64_t i = 0; i < n; i += 4) {
        uint32_t words[4];
        zonal__random_words(&random, (uint64_t)i, 0, words);
        for (int64_t j = 0; j < 4 && i + j < n; j++) x[i + j] = (float)(words[j] * 0x1p-32 - .5);
    }
}

typedef struct trial {
    int64_t rows, queries, dim;
    int k;
    int64_t self;
    float *x, *q, *all;
    double *cosine;
    int32_t *row;
} trial;

static int trial_init(trial *t) {
    if (!CHECK_OK(ZONAL_NEW(&t->x, t->rows * t->dim, "rows")) ||
        !CHECK_OK(ZONAL_NEW(&t->q, t->queries * t->dim, "queries")) ||
        !CHECK_OK(ZONAL_NEW(&t->cosine, t->queries * t->k, "cosines")) ||
        !CHECK_OK(ZONAL_NEW(&t->row, t->queries * t->k, "found rows")) ||
        !CHECK_OK(ZONAL_NEW(&t->all, t->queries * t->rows, "all cosines")))
        return 0;
    fill(t->rows * t->dim, 1, t->x);
    fill(t->queries * t->dim, 2, t->q);
    if (t->self >= 0)
        memcpy(t->q, t->x + t->self * t->dim, (size_t)(t->queries * t->dim) * sizeof *t->q);
    return 1;
}

static void trial_fini(trial *t) {
    zonal__free(t->x);
    zonal__free(t->q);
    zonal__free(t->cosine);
    zonal__free(t->row);
    zonal__free(t->all);
}

static zonal_status run(const zonal__neighbours_table *table, trial *t, int64_t most_queries) {
    zonal__neighbours_spec spec = {
        .dim = t->dim, .rows = t->rows, .queries = most_queries, .k = t->k};
    zonal__neighbours *neighbours;
    zonal_status status;
    ZONAL_TRY(table->create(&spec, &neighbours));
    ZONAL_TRY_GOTO(status, done, table->set_bank(neighbours, t->rows, t->x));
    ZONAL_TRY_GOTO(status, done, table->cosines(neighbours, t->queries, t->q, t->all));
    ZONAL_TRY_GOTO(status, done,
                   table->nearest(neighbours, t->queries, t->q, t->self, t->cosine, t->row));
done:
    table->destroy(neighbours);
    return status;
}

/* As the CPU is compared with the reference: the same rows in the same order; cosines are sums of
 * doubles in another order, of unit rows whose rounding to fp32 may differ in the last bit here and
 * there (their norms are sums in another order too), which is 6e-8 of one element. */
static void check(int64_t rows, int64_t queries, int64_t dim, int k, int64_t self,
                  int64_t most_queries, const zonal__neighbours_table *oracle) {
    trial want = {.rows = rows, .queries = queries, .dim = dim, .k = k, .self = self}, got = want;
    int64_t wrong = 0;
    if (trial_init(&want) && trial_init(&got) && CHECK_OK(run(oracle, &want, queries)) &&
        CHECK_OK(run(gpu_neighbours(), &got, most_queries))) {
        for (int64_t i = 0; i < queries * k; i++) {
            CHECK_CLOSE(got.cosine[i], want.cosine[i], 1e-8);
            wrong += got.row[i] != want.row[i];
        }
        for (int64_t i = 0; i < queries * rows; i++)
            CHECK_CLOSE((double)got.all[i], (double)want.all[i], (double)ZONAL__COSINE_ROUNDING);
    }
    CHECK_MSG(wrong == 0, "%lld x %lld x %lld, k = %d: %lld neighbours differ", (long long)rows,
              (long long)queries, (long long)dim, k, (long long)wrong);
    trial_fini(&want);
    trial_fini(&got);
}

static void test_tiny(void) {
    const zonal__neighbours_table *ref = zonal__neighbours_ref();
    if (no_gpu()) return;
    check(1, 1, 1, 1, -1, 1, ref);
    check(2, 2, 4, 1, 0, 2, ref);
    check(300, 3, 7, 256, -1, 3, ref);
    check(1500, 9, 33, 20, 100, 9, ref);
}

static void test_shapes(void) {
    const zonal__neighbours_table *ref = zonal__neighbours_ref();
    if (no_gpu()) return;
    check(255, 5, 16, 20, -1, 5, ref);
    check(256, 5, 16, 20, -1, 64, ref);
    check(257, 33, 100, 7, -1, 33, ref);
    check(1024, 17, 3, 200, -1, 17, ref);
    check(5000, 257, 65, 50, 4000, 300, ref);
    check(20000, 64, 128, 256, -1, 64, zonal__neighbours_cpu());
    /* room for so many queries that the bank takes several panels */
    check(9000, 40, 24, 30, -1, 16384, zonal__neighbours_cpu());
}

/* Each row four times: copies tie to the last bit and come in the order of rows. */
static void test_copies(void) {
    enum { DIM = 37, K = 12 };
    trial t = {.rows = 4000, .queries = 50, .dim = DIM, .k = K, .self = -1};
    if (no_gpu()) return;
    if (trial_init(&t)) {
        for (int copy = 1; copy < 4; copy++)
            memcpy(t.x + copy * 1000 * DIM, t.x, (size_t)1000 * DIM * sizeof *t.x);
        CHECK_OK(run(gpu_neighbours(), &t, t.queries));
        for (int64_t i = 0; i < t.queries * K; i++)
            CHECK_MSG(i % 4 == 0 ||
                          (t.cosine[i] == t.cosine[i - 1] && t.row[i] == t.row[i - 1] + 1000),
                      "place %lld is not the next copy", (long long)i);
    }
    trial_fini(&t);
}

/* All rows alike: every cosine ties, and the pool of candidates never takes a newcomer. */
static void test_all_alike(void) {
    trial t = {.rows = 3000, .queries = 3, .dim = 8, .k = 40, .self = -1};
    if (no_gpu()) return;
    if (trial_init(&t)) {
        for (int64_t i = 8; i < t.rows * 8; i++) t.x[i] = t.x[i - 8];
        CHECK_OK(run(gpu_neighbours(), &t, t.queries));
        for (int64_t i = 0; i < t.queries * t.k; i++) CHECK(t.row[i] == i % t.k);
    }
    trial_fini(&t);
}

static void test_refused(void) {
    zonal__neighbours_spec spec = {.dim = 3, .rows = 4, .queries = 2, .k = 4};
    float x[12] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}, q[6] = {1, 2, 3, 0, 0, 0}, out[8];
    const zonal__neighbours_table *table;
    zonal__neighbours *n;
    double cosine[8];
    int32_t row[8];
    if (no_gpu()) return;
    table = gpu_neighbours();
    if (!CHECK_OK(table->create(&spec, &n))) return;
    CHECK_FAILS(table->cosines(n, 1, q, out), ZONAL_ARGUMENT, "the bank must be set");
    CHECK_OK(table->set_bank(n, 4, x));
    CHECK_FAILS(table->nearest(n, 1, q, 0, cosine, row), ZONAL_ARGUMENT, "not possible");
    CHECK_FAILS(table->nearest(n, 2, q, -1, cosine, row), ZONAL_NUMERIC, "query 1 is zero");
    x[7] = NAN;
    CHECK_FAILS(table->set_bank(n, 4, x), ZONAL_NUMERIC, "row 2 is not finite");
    table->destroy(n);
    table->destroy(NULL);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 10,000 queries against 50,000 rows of 512, from host memory to host memory, in calls of 2,048 as
 * the evaluation makes them. The limit is the project's own. */
static void test_time(void) {
    enum { ROWS = 50000, QUERIES = 10000, DIM = 512, K = 200, CALL = 2048 };
    zonal__neighbours_spec spec = {.dim = DIM, .rows = ROWS, .queries = CALL, .k = K};
    const zonal__neighbours_table *table;
    zonal__neighbours *n = NULL;
    float *x = NULL, *q = NULL;
    double *cosine = NULL, best = INFINITY, search = INFINITY;
    int32_t *row = NULL;
    if (no_gpu()) return;
    table = gpu_neighbours();
    if (CHECK_OK(ZONAL_NEW(&x, ROWS * DIM, "rows")) &&
        CHECK_OK(ZONAL_NEW(&q, QUERIES * DIM, "queries")) &&
        CHECK_OK(ZONAL_NEW(&cosine, CALL * K, "cosines")) &&
        CHECK_OK(ZONAL_NEW(&row, CALL * K, "found rows")) && CHECK_OK(table->create(&spec, &n))) {
        fill(ROWS * DIM, 1, x);
        fill(QUERIES * DIM, 2, q);
        for (int i = 0; i < 5; i++) {
            double start = now(), middle;
            CHECK_OK(table->set_bank(n, ROWS, x));
            middle = now();
            for (int64_t first = 0; first < QUERIES; first += CALL) {
                int64_t count = QUERIES - first < CALL ? QUERIES - first : CALL;
                CHECK_OK(table->nearest(n, count, q + first * DIM, -1, cosine, row));
            }
            best = fmin(best, now() - start);
            search = fmin(search, now() - middle);
        }
        printf("# 50,000 x 10,000 x 512, k = 200: %.1f ms, %.1f of them the search\n", 1e3 * best,
               1e3 * search);
        CHECK_MSG(best < .1, "%.1f ms", 1e3 * best);
    }
    table->destroy(n);
    zonal__free(x);
    zonal__free(q);
    zonal__free(cosine);
    zonal__free(row);
}

static const test_case tests[] = {{"tiny", test_tiny},
                                  {"shapes", test_shapes},
                                  {"copies", test_copies},
                                  {"all_alike", test_all_alike},
                                  {"refused", test_refused},
                                  {"time", test_time},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
