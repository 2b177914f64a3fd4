/*
 * Nearest rows by cosine, src/backend/training/neighbours.h: the reference against hand-made rows
 * and a full sort of long double cosines made here, the CPU's against the reference.
 */
#include <stdlib.h>

#include "backend/training/neighbours.h"
#include "core/memory.h"
#include "core/random.h"
#include "failing_alloc.h"
#include "test.h"

/* Random rows, of lengths from 1e-3 to 1e3. */
static void fill(int64_t rows, int64_t dim, uint32_t step, float *x) {
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, step};
    for (int64_t i = 0; i < rows; i++) {
        double uniform[2], length;
        double normal[256];
        zonal__random_uniform(&random, (uint64_t)i, 1000, uniform);
        zonal__random_normal(&random, (uint64_t)i, dim, normal);
        length = pow(10, 6 * uniform[0] - 3);
        for (int64_t j = 0; j < dim; j++) x[i * dim + j] = (float)(length * normal[j]);
    }
}

typedef struct trial {
    int64_t rows, queries, dim;
    int k, threads;
    int64_t self; /* of nearest */
    float *x, *q;
    double *cosine;
    int32_t *row;
    float *all;
} trial;

static int trial_init(trial *t) {
    int64_t k = t->k > 0 ? t->k : 1;
    if (!CHECK_OK(ZONAL_NEW(&t->x, t->rows * t->dim, "rows")) ||
        !CHECK_OK(ZONAL_NEW(&t->q, t->queries * t->dim, "queries")) ||
        !CHECK_OK(ZONAL_NEW(&t->cosine, t->queries * k, "cosines")) ||
        !CHECK_OK(ZONAL_NEW(&t->row, t->queries * k, "found rows")) ||
        !CHECK_OK(ZONAL_NEW(&t->all, t->queries * t->rows, "all cosines")))
        return 0;
    fill(t->rows, t->dim, 1, t->x);
    fill(t->queries, t->dim, 2, t->q);
    if (t->self >= 0) memcpy(t->q, t->x + t->self * t->dim, (size_t)(t->queries * t->dim) * 4);
    return 1;
}

static void trial_fini(trial *t) {
    zonal__free(t->x);
    zonal__free(t->q);
    zonal__free(t->cosine);
    zonal__free(t->row);
    zonal__free(t->all);
}

/* Runs both operations; k = 0 leaves nearest out. */
static zonal_status run(const zonal__neighbours_table *table, trial *t) {
    zonal__neighbours_spec spec = {
        .dim = t->dim, .rows = t->rows, .queries = t->queries, .k = t->k, .threads = t->threads};
    zonal__neighbours *neighbours;
    zonal_status status;
    ZONAL_TRY(table->create(&spec, &neighbours));
    ZONAL_TRY_GOTO(status, done, table->set_bank(neighbours, t->rows, t->x));
    ZONAL_TRY_GOTO(status, done, table->cosines(neighbours, t->queries, t->q, t->all));
    if (t->k)
        ZONAL_TRY_GOTO(status, done,
                       table->nearest(neighbours, t->queries, t->q, t->self, t->cosine, t->row));
done:
    table->destroy(neighbours);
    return status;
}

/* ---- the reference --------------------------------------------------------------------------- */

typedef struct pair {
    long double cosine;
    int32_t row;
} pair;

static int compare(const void *a, const void *b) {
    const pair *x = a, *y = b;
    if (x->cosine != y->cosine) return x->cosine < y->cosine ? 1 : -1;
    return x->row < y->row ? -1 : 1;
}

static long double cosine_of(int64_t dim, const float *a, const float *b) {
    long double ab = 0, aa = 0, bb = 0;
    for (int64_t j = 0; j < dim; j++) {
        ab += (long double)a[j] * b[j];
        aa += (long double)a[j] * a[j];
        bb += (long double)b[j] * b[j];
    }
    return ab / sqrtl(aa * bb);
}

/* A full sort. Unit rows are rounded to fp32, so cosines agree to about 1e-7, and neighbours may
 * change places where theirs are closer than that; values do not show it. */
static void check_by_sorting(int64_t rows, int64_t queries, int64_t dim, int k, int64_t self) {
    trial t = {.rows = rows, .queries = queries, .dim = dim, .k = k, .self = self};
    pair *sorted = NULL;
    if (trial_init(&t) && CHECK_OK(ZONAL_NEW(&sorted, rows, "a sort")) &&
        CHECK_OK(run(zonal__neighbours_ref(), &t)))
        for (int64_t q = 0; q < queries; q++) {
            int64_t n = 0;
            for (int64_t i = 0; i < rows; i++) {
                long double c = cosine_of(dim, t.q + q * dim, t.x + i * dim);
                CHECK_CLOSE((double)t.all[q * rows + i], (double)c, 3e-7);
                if (self < 0 || i != self + q) sorted[n++] = (pair){c, (int32_t)i};
            }
            qsort(sorted, (size_t)n, sizeof *sorted, compare);
            for (int i = 0; i < k; i++) {
                int64_t row = t.row[q * k + i];
                CHECK_CLOSE(t.cosine[q * k + i], (double)sorted[i].cosine, 3e-7);
                CHECK_CLOSE((double)cosine_of(dim, t.q + q * dim, t.x + row * dim),
                            (double)sorted[i].cosine, 3e-7);
                CHECK(self < 0 || row != self + q);
            }
        }
    zonal__free(sorted);
    trial_fini(&t);
}

static void test_ref_sorted(void) {
    check_by_sorting(40, 7, 5, 9, -1);
    check_by_sorting(40, 7, 5, 40, -1);
    check_by_sorting(1, 3, 1, 1, -1);
    check_by_sorting(30, 10, 16, 29, 4);
}

/* Axes and their diagonals: cosines 1, 1/sqrt(2), 0, -1, each twice; ties by the lower row. */
static void check_ties(const zonal__neighbours_table *table) {
    static const float x[] = {0, 2, 1, 1, 3, 0, 0, 1, 5, 5, 7, 0, -1, 0, -2, 0};
    static const float q[] = {4, 0};
    static const int32_t rows[] = {2, 5, 1, 4, 0, 3, 6, 7};
    static const double cosines[] = {1, 1, M_SQRT1_2, M_SQRT1_2, 0, 0, -1, -1};
    zonal__neighbours_spec spec = {.dim = 2, .rows = 8, .queries = 1, .k = 8};
    zonal__neighbours *neighbours;
    double cosine[8];
    int32_t row[8];
    if (!CHECK_OK(table->create(&spec, &neighbours))) return;
    CHECK_OK(table->set_bank(neighbours, 8, x));
    CHECK_OK(table->nearest(neighbours, 1, q, -1, cosine, row));
    for (int i = 0; i < 8; i++) {
        CHECK_MSG(row[i] == rows[i], "place %d: row %d", i, (int)row[i]);
        CHECK_CLOSE(cosine[i], cosines[i], 1e-7); /* unit rows are fp32 */
    }
    table->destroy(neighbours);
}

static void test_ties(void) {
    check_ties(zonal__neighbours_ref());
    check_ties(zonal__neighbours_cpu());
}

/* ---- the CPU against the reference ----------------------------------------------------------- */

/* The same rows in the same order: where two cosines differ by less than double's rounding, which
 * the reference sums in another order, they would have to be copies, and copies tie exactly. */
static void check_cpu(int64_t rows, int64_t queries, int64_t dim, int k, int64_t self,
                      int threads) {
    trial ref = {.rows = rows, .queries = queries, .dim = dim, .k = k, .self = self};
    trial cpu = ref;
    int64_t wrong = 0;
    cpu.threads = threads;
    if (trial_init(&ref) && trial_init(&cpu) && CHECK_OK(run(zonal__neighbours_ref(), &ref)) &&
        CHECK_OK(run(zonal__neighbours_cpu(), &cpu))) {
        for (int64_t i = 0; i < queries * k; i++) {
            CHECK_CLOSE(cpu.cosine[i], ref.cosine[i], 1e-15 * (double)dim);
            wrong += cpu.row[i] != ref.row[i];
        }
        for (int64_t i = 0; i < queries * rows; i++)
            CHECK_CLOSE((double)cpu.all[i], (double)ref.all[i], (double)ZONAL__COSINE_ROUNDING);
    }
    CHECK_MSG(wrong == 0, "%lld x %lld x %lld: %lld neighbours differ", (long long)rows,
              (long long)queries, (long long)dim, (long long)wrong);
    trial_fini(&ref);
    trial_fini(&cpu);
}

static void test_cpu_shapes(void) {
    static const int64_t rows[] = {1, 2, 511, 512, 513, 1100}, queries[] = {1, 2, 256, 257};
    static const int64_t dims[] = {1, 3, 16, 33, 128};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (size_t q = 0; q < sizeof queries / sizeof queries[0]; q++)
            check_cpu(rows[r], queries[q], dims[(r + q) % 5], rows[r] < 20 ? (int)rows[r] : 20, -1,
                      (int)(r + q) % 3);
    check_cpu(600, 5, 17, 256, -1, 2);
    check_cpu(257, 5, 17, 256, 252, 2);
    check_cpu(900, 300, 8, 7, 600, 2);
    check_cpu(2, 2, 4, 1, 0, 1);
    check_cpu(700, 3, 12, 0, -1, 2);
}

/* Each row four times, in blocks far apart: copies tie to the last bit and come in order. */
static void test_cpu_copies(void) {
    enum { ROWS = 1200, DIM = 37, K = 12 };
    trial t = {.rows = ROWS, .queries = 50, .dim = DIM, .k = K, .self = -1, .threads = 2};
    if (trial_init(&t)) {
        for (int copy = 1; copy < 4; copy++)
            memcpy(t.x + copy * 300 * DIM, t.x, (size_t)300 * DIM * sizeof *t.x);
        CHECK_OK(run(zonal__neighbours_cpu(), &t));
        for (int64_t i = 0; i < t.queries * K; i++)
            CHECK_MSG(i % 4 == 0 ||
                          (t.cosine[i] == t.cosine[i - 1] && t.row[i] == t.row[i - 1] + 300),
                      "place %lld is not the next copy", (long long)i);
    }
    trial_fini(&t);
}

static void test_threads(void) {
    trial one = {.rows = 1500, .queries = 700, .dim = 20, .k = 10, .self = -1, .threads = 1};
    trial two = one;
    two.threads = 2;
    if (trial_init(&one) && trial_init(&two) && CHECK_OK(run(zonal__neighbours_cpu(), &one)) &&
        CHECK_OK(run(zonal__neighbours_cpu(), &two))) {
        CHECK(memcmp(one.cosine, two.cosine, 7000 * sizeof *one.cosine) == 0);
        CHECK(memcmp(one.row, two.row, 7000 * sizeof *one.row) == 0);
        CHECK(memcmp(one.all, two.all, 700 * 1500 * sizeof *one.all) == 0);
    }
    trial_fini(&one);
    trial_fini(&two);
}

/* Long rows without negative elements, as a network's features are, hardly differ in direction: no
 * sum of products of unit rows is larger, and none is rounded more. */
static void test_rounding(void) {
    enum { ROWS = 600, QUERIES = 9, DIM = 4096 };
    trial ref = {.rows = ROWS, .queries = QUERIES, .dim = 8, .self = -1}, cpu;
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, 3};
    float *x = NULL;
    if (!trial_init(&ref) || !CHECK_OK(ZONAL_NEW(&x, (ROWS + QUERIES) * DIM, "long rows"))) return;
    for (int64_t i = 0; i < (ROWS + QUERIES) * DIM; i++) {
        uint32_t words[4];
        zonal__random_words(&random, (uint64_t)i, 0, words);
        x[i] = 1 + (float)(words[0] * 0x1p-32) * (i % (2 * DIM) < DIM ? 1e-3f : 1);
    }
    zonal__free(ref.x);
    zonal__free(ref.q);
    ref.dim = DIM;
    ref.x = x;
    ref.q = x + ROWS * DIM;
    cpu = ref;
    if (CHECK_OK(ZONAL_NEW(&cpu.all, ROWS * QUERIES, "cosines")) &&
        CHECK_OK(run(zonal__neighbours_ref(), &ref)) &&
        CHECK_OK(run(zonal__neighbours_cpu(), &cpu)))
        for (int64_t i = 0; i < ROWS * QUERIES; i++)
            CHECK_CLOSE((double)cpu.all[i], (double)ref.all[i], (double)ZONAL__COSINE_ROUNDING);
    zonal__free(cpu.all);
    ref.q = NULL;
    trial_fini(&ref);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void check_refused(const zonal__neighbours_table *table) {
    zonal__neighbours_spec spec = {.dim = 3, .rows = 4, .queries = 2, .k = 4}, bad = spec;
    float x[12] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}, q[6] = {1, 2, 3, 0, 0, 0}, out[8];
    double cosine[8];
    int32_t row[8];
    zonal__neighbours *n;
    bad.k = 257;
    CHECK_FAILS(table->create(&bad, &n), ZONAL_ARGUMENT, "k must be from 1 to 256, got 257");
    CHECK(n == NULL);
    bad = spec, bad.dim = 0;
    CHECK_FAILS(table->create(&bad, &n), ZONAL_SHAPE, "nearest neighbours need");
    if (!CHECK_OK(table->create(&spec, &n))) return;
    CHECK_FAILS(table->cosines(n, 1, q, out), ZONAL_ARGUMENT, "the bank must be set");
    CHECK_FAILS(table->set_bank(n, 5, x), ZONAL_ARGUMENT, "from 1 to 4 rows, got 5");
    CHECK_OK(table->set_bank(n, 3, x));
    CHECK_FAILS(table->nearest(n, 1, q, -1, cosine, row), ZONAL_ARGUMENT,
                "k = 4 is not possible with 3 rows");
    CHECK_OK(table->set_bank(n, 4, x));
    CHECK_FAILS(table->nearest(n, 1, q, 0, cosine, row), ZONAL_ARGUMENT,
                "k = 4 is not possible with 3 rows");
    CHECK_FAILS(table->nearest(n, 3, q, -1, cosine, row), ZONAL_ARGUMENT, "1 to 2 queries, got 3");
    CHECK_FAILS(table->nearest(n, 2, q, -1, cosine, row), ZONAL_NUMERIC, "query 1 is zero");
    q[4] = NAN;
    CHECK_FAILS(table->cosines(n, 2, q, out), ZONAL_NUMERIC, "query 1 is not finite");
    x[7] = INFINITY;
    CHECK_FAILS(table->set_bank(n, 4, x), ZONAL_NUMERIC, "row 2 is not finite");
    CHECK_FAILS(table->cosines(n, 1, q, out), ZONAL_ARGUMENT, "the bank must be set");
    table->destroy(n);
    table->destroy(NULL);
}

static void test_refused(void) {
    check_refused(zonal__neighbours_ref());
    check_refused(zonal__neighbours_cpu());
}

/* Squares of these leave the range of float, not that of double. */
static void test_extreme_lengths(void) {
    static const float x[] = {3e38f, 3e38f, 1e-42f, 0}, q[] = {2e-40f, 0};
    zonal__neighbours_spec spec = {.dim = 2, .rows = 2, .queries = 1, .k = 2};
    zonal__neighbours *n;
    double cosine[2];
    int32_t row[2];
    if (!CHECK_OK(zonal__neighbours_cpu()->create(&spec, &n))) return;
    CHECK_OK(zonal__neighbours_cpu()->set_bank(n, 2, x));
    CHECK_OK(zonal__neighbours_cpu()->nearest(n, 1, q, -1, cosine, row));
    CHECK_CLOSE(cosine[0], 1, 1e-7);
    CHECK_CLOSE(cosine[1], M_SQRT1_2, 1e-7);
    CHECK(row[0] == 1 && row[1] == 0);
    zonal__neighbours_cpu()->destroy(n);
}

static zonal_status make_and_drop(void *context) {
    const zonal__neighbours_table *table = context;
    zonal__neighbours_spec spec = {.dim = 4, .rows = 10, .queries = 3, .k = 2, .threads = 2};
    zonal__neighbours *neighbours;
    ZONAL_TRY(table->create(&spec, &neighbours));
    table->destroy(neighbours);
    return ZONAL_OK;
}

static void test_out_of_memory(void) {
    test_every_allocation("the reference's neighbours", make_and_drop,
                          (void *)zonal__neighbours_ref());
    test_every_allocation("the CPU's neighbours", make_and_drop, (void *)zonal__neighbours_cpu());
}

static const test_case tests[] = {{"ref_sorted", test_ref_sorted},
                                  {"ties", test_ties},
                                  {"cpu_shapes", test_cpu_shapes},
                                  {"cpu_copies", test_cpu_copies},
                                  {"threads", test_threads},
                                  {"rounding", test_rounding},
                                  {"refused", test_refused},
                                  {"extreme_lengths", test_extreme_lengths},
                                  {"out_of_memory", test_out_of_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
