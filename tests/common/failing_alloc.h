/*
 * Executes every out-of-memory path of an operation.
 *
 *     static zonal_status make_and_drop(void *context) {
 *         zonal_plan *plan;
 *         ZONAL_TRY(zonal_plan_create(context, &plan));
 *         zonal_plan_destroy(plan);
 *         return ZONAL_OK;
 *     }
 *     ...
 *     test_every_allocation("a plan", make_and_drop, &options);
 *
 * The operation is repeated with the library's allocator replaced by one that fails at the n-th
 * call, n = 0, 1, 2 ..., until it succeeds with nothing having failed; each n is tried twice, with
 * that one call failing and with every call from there on failing. Every failed run must return
 * ZONAL_MEMORY and record a sentence, and every run, failed or not, must give back all blocks it
 * took. A broken rule is a failure of the running test (test.h) that names "what" and n.
 *
 * The operation must own all that it makes: objects made before the call would be released by the
 * wrong allocator. It may allocate from several threads. The default allocator is in force after.
 */
#ifndef ZONAL_TESTS_FAILING_ALLOC_H
#define ZONAL_TESTS_FAILING_ALLOC_H

#include <stdint.h>

#include "zonal/status.h"

void test_every_allocation(const char *what, zonal_status (*operation)(void *), void *context);

/* The parts, for a test that needs another loop. failing_alloc_install counts calls from 0 and
 * makes call number "fail_at" fail (a negative number: none), and every later one too when "sticky"
 * is not 0. failing_alloc_remove restores the default allocator and returns the live blocks. */
void failing_alloc_install(int64_t fail_at, int sticky);
int64_t failing_alloc_remove(void);
int64_t failing_alloc_calls(void);  /* made since the last install */
int64_t failing_alloc_failed(void); /* of them, made to fail */

#endif
