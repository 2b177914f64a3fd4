/*
 * For tests that need a GPU: skipped where it is missing, failed there if ZONAL_REQUIRE_GPU is set
 * (make gpu-check sets it).
 */
#ifndef ZONAL_TESTS_GPU_H
#define ZONAL_TESTS_GPU_H

#include <stdlib.h>

#include "backend/training/tables.h"
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

/* The first GPU, or NULL with an error recorded. */
static inline const zonal__device *gpu_device(void) {
    const zonal__device *device;
    return zonal__device_open("cuda", &device) == ZONAL_OK ? device : NULL;
}

static inline const zonal__training_tables *gpu_training(void) {
    const zonal__device *device = gpu_device();
    const zonal__training_tables *tables;
    return device && zonal__device_training(device, &tables) == ZONAL_OK ? tables : NULL;
}

/* Its tables; NULL, with an error recorded, where there is none. */
static inline const zonal__nn_table *gpu_layers(void) {
    const zonal__device *device = gpu_device();
    const zonal__nn_table *table;
    return device && zonal__device_layers(device, &table) == ZONAL_OK ? table : NULL;
}

static inline const zonal__views_table *gpu_views(void) {
    const zonal__device *device = gpu_device();
    const zonal__views_table *table;
    return device && zonal__device_views(device, &table) == ZONAL_OK ? table : NULL;
}

static inline const zonal__optimiser_table *gpu_optimisers(void) {
    const zonal__device *device = gpu_device();
    const zonal__optimiser_table *table;
    return device && zonal__device_optimisers(device, &table) == ZONAL_OK ? table : NULL;
}

static inline const zonal__neighbours_table *gpu_neighbours(void) {
    const zonal__device *device = gpu_device();
    const zonal__neighbours_table *table;
    return device && zonal__device_neighbours(device, &table) == ZONAL_OK ? table : NULL;
}

#endif
