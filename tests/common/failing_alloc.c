#include "failing_alloc.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "test.h"

enum { MOST_ALLOCATIONS = 100000 }; /* an operation with more is not a unit test's */

static int64_t failing_call;
static int failing_sticky;
static _Atomic int64_t calls, failed, live;

static void *counting_alloc(void *context, size_t bytes) {
    int64_t call = atomic_fetch_add(&calls, 1);
    void *memory;
    (void)context;
    if (failing_call >= 0 && (call == failing_call || (failing_sticky && call > failing_call))) {
        atomic_fetch_add(&failed, 1);
        return NULL;
    }
    memory = aligned_alloc(64, bytes);
    if (memory) atomic_fetch_add(&live, 1);
    return memory;
}

static void counting_release(void *context, void *memory) {
    (void)context;
    if (memory) atomic_fetch_sub(&live, 1);
    free(memory);
}

void failing_alloc_install(int64_t fail_at, int sticky) {
    const zonal_allocator counting = {counting_alloc, counting_release, NULL};
    failing_call = fail_at;
    failing_sticky = sticky;
    atomic_store(&calls, 0);
    atomic_store(&failed, 0);
    atomic_store(&live, 0);
    zonal_set_allocator(&counting);
}

int64_t failing_alloc_remove(void) {
    zonal_set_allocator(NULL);
    return atomic_load(&live);
}

int64_t failing_alloc_calls(void) {
    return atomic_load(&calls);
}

int64_t failing_alloc_failed(void) {
    return atomic_load(&failed);
}

/* Returns 1 when the operation went through without meeting a failed allocation. */
static int run_once(const char *what, zonal_status (*operation)(void *), void *context, int64_t n,
                    int sticky) {
    const char *mode = sticky ? "from there on" : "once";
    zonal_status status;
    int64_t left, hit;
    failing_alloc_install(n, sticky);
    status = operation(context);
    left = failing_alloc_remove();
    hit = failing_alloc_failed();
    CHECK_MSG(left == 0, "%s: allocation %lld failing %s: %lld blocks not given back", what,
              (long long)n, mode, (long long)left);
    if (hit == 0) {
        CHECK_MSG(status == ZONAL_OK, "%s fails with all its memory: %s", what,
                  zonal_last_error()->message);
        return 1;
    }
    CHECK_MSG(status == ZONAL_MEMORY, "%s: allocation %lld failing %s returned %s, want MEMORY",
              what, (long long)n, mode, zonal_status_name(status));
    CHECK_MSG(zonal_last_error()->status == status && zonal_last_error()->message[0],
              "%s: allocation %lld failing %s left no sentence", what, (long long)n, mode);
    return 0;
}

void test_every_allocation(const char *what, zonal_status (*operation)(void *), void *context) {
    for (int64_t n = 0; n < MOST_ALLOCATIONS; n++) {
        int sticky_through = run_once(what, operation, context, n, 1);
        int through = run_once(what, operation, context, n, 0);
        if (through && sticky_through) return;
    }
    test_fail(__FILE__, __LINE__, "%s still allocates after %d calls", what, MOST_ALLOCATIONS);
}
