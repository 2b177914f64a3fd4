/*
 * Operations over ranks that no loss asks for, and what ranks say to each other through the memory
 * of a device.
 */
#include <stdlib.h>

#include "backend/ranks.h"
#include "core/random.h"
#include "fake_device.h"
#include "test.h"
#include "thread_ranks.h"

/* ---- mean and second moment ------------------------------------------------------------------ */

enum { ROWS = 41, DIM = 5, COUNT = DIM + DIM * DIM };

typedef struct covariance_case {
    const zonal__backend *backend;
    int64_t rows[THREAD_RANKS];
    zonal_precision precision;
    double x[ROWS][DIM];
    double value[THREAD_RANKS][COUNT];
    zonal_status status[THREAD_RANKS], survey[THREAD_RANKS];
} covariance_case;

static zonal_status covariance(const covariance_case *c, const zonal__ranks *ranks, int64_t first,
                               int64_t rows, double *value) {
    const zonal__operation_table *table = c->backend->operations[ZONAL__COVARIANCE];
    zonal__problem problem = {
        .rows = rows, .dim = DIM, .ranks = ranks, .precision = c->precision, .threads = 1};
    zonal__work *work;
    float single[ROWS][DIM];
    for (int64_t i = 0; i < rows * DIM; i++) (&single[0][0])[i] = (float)(&c->x[first][0])[i];
    zonal_status status = zonal__ranks_agree(ranks, table->create(&problem, &work));
    if (status != ZONAL_OK) return status;
    status = table->run(work,
                        c->precision == ZONAL_PRECISION_FP32 ? (const void *)single
                                                             : (const void *)c->x[first],
                        0, value, NULL, 1);
    table->destroy(work);
    return status;
}

static void body(const zonal_communicator *communicator, void *context) {
    covariance_case *c = context;
    int r = communicator->rank;
    int64_t first = 0;
    zonal__ranks *ranks;
    zonal__work *work;
    for (int k = 0; k < r; k++) first += c->rows[k];
    c->status[r] = zonal__ranks_create(communicator, NULL, c->rows[r], NULL, 0, ZONAL_OK, &ranks);
    if (c->status[r] != ZONAL_OK) return;
    c->status[r] = covariance(c, ranks, first, c->rows[r], c->value[r]);
    zonal__problem problem = {.rows = c->rows[r], .dim = DIM, .ranks = ranks, .threads = 1};
    c->survey[r] = c->backend->operations[ZONAL__SURVEY]->create(&problem, &work);
    zonal__ranks_destroy(ranks);
}

static void check_covariance(covariance_case *c, int ranks, double tolerance) {
    double want[COUNT];
    if (!CHECK_OK(covariance(c, NULL, 0, ROWS, want))) return;
    CHECK_OK(thread_ranks_run(ranks, body, c));
    for (int r = 0; r < ranks; r++) {
        if (!CHECK(c->status[r] == ZONAL_OK)) continue;
        CHECK_ARRAY(COUNT, c->value[r], want, tolerance);
        CHECK(memcmp(c->value[r], c->value[0], sizeof c->value[0]) == 0);
        CHECK(c->survey[r] == ZONAL_UNSUPPORTED);
    }
}

static void test_covariance(void) {
    static const int64_t parts[][4] = {{41}, {20, 21}, {1, 0, 40}, {39, 0, 1, 1}};
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, 0};
    static covariance_case c;
    for (int i = 0; i < ROWS; i++) {
        zonal__random_normal(&random, (uint64_t)i, DIM, c.x[i]);
        c.x[i][0] += 1;
    }
    for (int k = 0; k < 8; k++) {
        c.backend = k % 2 ? zonal__backend_ref() : zonal__backend_cpu();
        memcpy(c.rows, parts[k / 2], sizeof parts[0]);
        c.precision = ZONAL_PRECISION_DOUBLE;
        check_covariance(&c, k / 2 + 1, 1e-14); /* of numbers below 1 */
        c.precision = ZONAL_PRECISION_FP32;
        check_covariance(&c, k / 2 + 1, 1e-7);
    }
}

/* ---- words through device memory ------------------------------------------------------------- */

static const zonal__device *fake_open(void) {
    const zonal__device *device = NULL;
    CHECK_OK(zonal__device_open("fake:1", &device));
    return device;
}

/* One rank that insists on memory of the device: it reads and writes all that it is given. */
static zonal_status touch(void *device, int64_t bytes) {
    char room[4096];
    if (bytes > (int64_t)sizeof room) return zonal_error_set(ZONAL_SHAPE, "more than expected");
    zonal_status status = zonal__device_read(fake_open(), room, device, (size_t)bytes);
    return status ? status : zonal__device_write(fake_open(), device, room, (size_t)bytes);
}

static zonal_status all_reduce(void *context, void *number, int64_t count, zonal_reduce type,
                               void *stream) {
    (void)context, (void)stream;
    return touch(number, count * (type == ZONAL_REDUCE_FP32 ? 4 : 8));
}

static zonal_status all_gather(void *context, const void *mine, void *all, const int64_t *bytes,
                               void *stream) {
    (void)context, (void)stream;
    if (mine != all) return zonal_error_set(ZONAL_SHAPE, "the own block is not in its place");
    return touch(all, bytes[0]);
}

static zonal_status shift_begin(void *context, const void *send, int64_t send_bytes, void *receive,
                                int64_t receive_bytes, void *stream) {
    (void)context, (void)send, (void)send_bytes, (void)receive, (void)receive_bytes, (void)stream;
    return zonal_error_set(ZONAL_SHAPE, "one rank shifts nothing");
}

static zonal_status shift_end(void *context, void *stream) {
    (void)context, (void)stream;
    return zonal_error_set(ZONAL_SHAPE, "one rank shifts nothing");
}

static zonal_status broadcast(void *context, void *block, int64_t bytes, int root, void *stream) {
    (void)context, (void)root, (void)stream;
    return touch(block, bytes);
}

static void test_words(void) {
    const zonal_communicator c = {.size = sizeof c,
                                  .ranks = 1,
                                  .on_device = 1,
                                  .all_reduce = all_reduce,
                                  .all_gather = all_gather,
                                  .shift_begin = shift_begin,
                                  .shift_end = shift_end,
                                  .broadcast = broadcast};
    const zonal__agreed value = {"lambda", 0.5, NULL};
    zonal__ranks *ranks;
    double number[3] = {1, 2, 0};
    if (!fake_register()) return;
    if (!CHECK_OK(zonal__ranks_create(&c, fake_open(), 7, &value, 1, ZONAL_OK, &ranks))) return;
    CHECK(ranks->batch == 7 && ranks->first == 0 && ranks->most == 7);
    CHECK_OK(zonal__ranks_agree(ranks, ZONAL_OK));
    CHECK_OK(zonal__ranks_sum_or_fail(ranks, ZONAL_OK, number, 2));
    CHECK(number[0] == 1 && number[1] == 2 && number[2] == 0);
    CHECK_FAILS(zonal__ranks_agree(ranks, zonal_error_set(ZONAL_NUMERIC, "row 3 is zero")),
                ZONAL_NUMERIC, "rank 0: row 3 is zero");
    zonal__ranks_destroy(ranks);
    CHECK_FAILS(zonal__ranks_create(&c, fake_open(), 7, &value, 1,
                                    zonal_error_set(ZONAL_MEMORY, "there is no memory"), &ranks),
                ZONAL_MEMORY, "rank 0: there is no memory");
    CHECK(ranks == NULL && fake_count(1).blocks == 0);
}

static const test_case tests[] = {
    {"mean and second moment", test_covariance}, {"words through a device", test_words}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
