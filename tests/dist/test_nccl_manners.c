/* What zonal asks of NCCL, and what it makes of its answers, with one that does nothing. */
#include <dlfcn.h>
#include <stdlib.h>

#include "dist/nccl.h"
#include "failing_alloc.h"
#include "nccl_device.h"
#include "test.h"
#include "thread_ranks.h"

static int count(char letter) {
    static int (*of)(char letter);
    if (!of) {
        void *address = dlsym(dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD), "fake_nccl_count");
        memcpy(&of, &address, sizeof of);
    }
    return of(letter);
}

/* First, before a good one is loaded. */
static void test_old(void) {
    setenv("FAKE_NCCL", "old", 1);
    CHECK_FAILS(zonal__nccl_available(nccl_device()), ZONAL_UNSUPPORTED,
                "NCCL has version 21003, but 2.18 or later is needed");
    unsetenv("FAKE_NCCL");
    CHECK_OK(zonal__nccl_available(nccl_device()));
    CHECK_FAILS(zonal__nccl_available(zonal__device_cpu()), ZONAL_UNSUPPORTED, "has no NCCL");
}

static void test_calls(void) {
    const zonal__device *device = nccl_device();
    double number[8] = {1, 2, 3};
    char all[8] = "", mine[8] = "abc";
    const int64_t bytes[] = {3};
    zonal__nccl *nccl;
    const zonal_communicator *c;
    if (!CHECK_OK(zonal__nccl_create(NULL, device, 5, &nccl))) return;
    c = zonal__nccl_communicator(nccl);
    CHECK(c->on_device == 1 && c->ranks == 1 && c->rank == 0 && c->size == sizeof *c);
    CHECK_OK(c->all_reduce(c->context, number, 8, ZONAL_REDUCE_DOUBLE, NULL));
    CHECK_OK(c->all_reduce(c->context, number, 8, ZONAL_REDUCE_FP32, NULL));
    CHECK_OK(c->all_reduce(c->context, number, 0, ZONAL_REDUCE_FP32, NULL));
    CHECK(count('r') == 2);
    CHECK_OK(c->broadcast(c->context, number, 64, 0, NULL));
    CHECK_OK(c->broadcast(c->context, number, 0, 0, NULL));
    CHECK_OK(c->all_gather(c->context, mine, all, bytes, NULL));
    CHECK(count('b') == 2 && !strcmp(all, "abc"));
    CHECK_OK(c->shift_begin(c->context, number, 8, number + 4, 8, NULL));
    CHECK_OK(c->shift_end(c->context, NULL));
    CHECK_OK(c->shift_begin(c->context, number, 0, number + 4, 8, NULL)); /* nothing to send */
    CHECK_OK(c->shift_end(c->context, NULL));
    CHECK(count('s') == 1 && count('v') == 2);
    CHECK_OK(zonal__nccl_check(nccl));
    CHECK_FAILS(c->broadcast(c->context, number, 8, 3, NULL), ZONAL_IO, "invalid argument");
    zonal__nccl_destroy(nccl, 1);
    CHECK(count('c') == 1 && count('f') == 1 && count('d') == 1 && count('a') == 0);
    CHECK(nccl_device_current == -1); /* left as it was found */
}

static void test_given_up(void) {
    zonal__nccl *nccl;
    int aborted = count('a');
    if (!CHECK_OK(zonal__nccl_create(NULL, nccl_device(), 5, &nccl))) return;
    zonal__nccl_destroy(nccl, 0);
    CHECK(count('a') == aborted + 1);
}

static void test_deadline(void) {
    zonal__nccl *nccl;
    int aborted = count('a');
    setenv("FAKE_NCCL", "stuck", 1);
    CHECK_FAILS(zonal__nccl_create(NULL, nccl_device(), 0.2, &nccl), ZONAL_IO,
                "NCCL has waited 0.2 s for other ranks");
    CHECK(nccl == NULL && count('a') == aborted + 1 && nccl_device_current == -1);
    unsetenv("FAKE_NCCL");
}

static void test_lost(void) {
    zonal__nccl *nccl;
    double number = 1;
    if (!CHECK_OK(zonal__nccl_create(NULL, nccl_device(), 5, &nccl))) return;
    setenv("FAKE_NCCL", "lost", 1);
    CHECK_FAILS(zonal__nccl_check(nccl), ZONAL_IO, "NCCL has lost a rank");
    CHECK_FAILS(
        zonal__nccl_communicator(nccl)->all_reduce(nccl, &number, 1, ZONAL_REDUCE_DOUBLE, NULL),
        ZONAL_IO, "NCCL_DEBUG=INFO");
    zonal__nccl_destroy(nccl, 1);
    unsetenv("FAKE_NCCL");
}

/* Of three ranks one cannot: none of them may wait for the others inside of NCCL. */
static zonal_status outcome[3];
static void body(const zonal_communicator *host, void *context) {
    zonal__nccl *nccl;
    (void)context;
    outcome[host->rank] = zonal__nccl_create(
        host, host->rank == 1 ? zonal__device_cpu() : (const zonal__device *)context, 5, &nccl);
    if (nccl) outcome[host->rank] = ZONAL_NUMERIC;
}

static void test_one_cannot(void) {
    int created = count('c');
    if (!CHECK_OK(thread_ranks_run(3, body, (void *)nccl_device()))) return;
    for (int r = 0; r < 3; r++) CHECK(outcome[r] == ZONAL_UNSUPPORTED);
    CHECK(count('c') == created);
}

static zonal_status make(void *context) {
    zonal__nccl *nccl;
    (void)context;
    ZONAL_TRY(zonal__nccl_create(NULL, nccl_device(), 5, &nccl));
    zonal__nccl_destroy(nccl, 1);
    return ZONAL_OK;
}

static void test_memory(void) {
    test_every_allocation("a communicator", make, NULL);
}

static const test_case tests[] = {{"old", test_old},           {"calls", test_calls},
                                  {"given_up", test_given_up}, {"deadline", test_deadline},
                                  {"lost", test_lost},         {"one_cannot", test_one_cannot},
                                  {"memory", test_memory},     {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
