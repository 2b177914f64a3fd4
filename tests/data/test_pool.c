/*
 * Images made by many threads and used in order: every one once, whatever the number of workers;
 * failures reach the user with their sentence; a run can be ended early.
 */
#include "data/pool.h"
#include "failing_alloc.h"
#include "test.h"

typedef struct record {
    int64_t next, stop_at, fails_at; /* -1: never */
    int failures, wrong;
} record;

static zonal_status make(void *context, int worker, int64_t i, zonal__image *image) {
    const record *r = context;
    (void)worker;
    if (i == r->fails_at) return ZONAL_FAIL(ZONAL_FORMAT, "image %d is torn", (int)i);
    ZONAL_TRY(zonal__image_shape(image, 1 + (int)(i % 4), 3, 1));
    for (int k = 0; k < image->width * 3; k++) image->pixels[k] = (uint8_t)(i + k);
    return ZONAL_OK;
}

static zonal_status use(void *context, int64_t i, zonal_status made, const zonal__image *image) {
    record *r = context;
    r->wrong += i != r->next++;
    if (made == ZONAL_FORMAT) {
        r->failures += strcmp(zonal_last_error()->message, "image 17 is torn") == 0;
        return ZONAL_OK;
    }
    ZONAL_TRY(made);
    r->wrong += image->width != 1 + i % 4;
    for (int k = 0; k < image->width * 3; k++) r->wrong += image->pixels[k] != (uint8_t)(i + k);
    return i == r->stop_at ? ZONAL_FAIL(ZONAL_CANCELLED, "enough") : ZONAL_OK;
}

static void test_order(void) {
    for (int workers = 1; workers <= 9; workers += 2)
        for (int64_t count = 0; count <= 5000; count = count * 3 + 1) {
            record r = {.stop_at = -1, .fails_at = -1};
            const zonal__pool_task task = {&r, make, use};
            CHECK_OK(zonal__pool_run(&task, count, workers));
            CHECK(r.next == count && r.wrong == 0);
        }
}

static void test_failures(void) {
    record r = {.stop_at = -1, .fails_at = 17};
    const zonal__pool_task task = {&r, make, use};
    CHECK_OK(zonal__pool_run(&task, 60, 3));
    CHECK(r.next == 60 && r.failures == 1 && r.wrong == 0);
}

static void test_stop(void) {
    for (int64_t at = 0; at < 100; at += 9) {
        record r = {.stop_at = at, .fails_at = -1};
        const zonal__pool_task task = {&r, make, use};
        CHECK_FAILS(zonal__pool_run(&task, 100, 4), ZONAL_CANCELLED, "enough");
        CHECK(r.next == at + 1);
    }
}

static zonal_status run_one(void *context) {
    record r = {.stop_at = -1, .fails_at = -1};
    const zonal__pool_task task = {&r, make, use};
    (void)context;
    return zonal__pool_run(&task, 20, 1);
}

static void test_allocations(void) {
    test_every_allocation("a pool", run_one, NULL);
}

static const test_case tests[] = {{"order", test_order},
                                  {"failures", test_failures},
                                  {"stop", test_stop},
                                  {"allocations", test_allocations},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
