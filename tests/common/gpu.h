/*
 * For tests that need a GPU: skipped where it is missing, failed there if ZONAL_REQUIRE_GPU is set
 * (make gpu-check sets it).
 */
#ifndef ZONAL_TESTS_GPU_H
#define ZONAL_TESTS_GPU_H

#include <stdlib.h>

#include "test.h"

/* True unless what the test needs is "there"; why not is the last error. */
static inline int gpu_is_missing(int there) {
    if (there) return 0;
    if (getenv("ZONAL_REQUIRE_GPU"))
        test_fail(__FILE__, __LINE__, "a GPU is required: %s", zonal_last_error()->message);
    else
        test_skip("no CUDA device, or a build without what is needed");
    return 1;
}

#endif
