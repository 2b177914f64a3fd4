/* What stands for CUDA's tables for training in a build without it: every call says so. */
#ifndef ZONAL_HAVE_CUDA

#include "backend/device.h"
#include "backend/training/neighbours.h"
#include "backend/training/nn.h"
#include "backend/training/optimiser.h"
#include "backend/training/views.h"

static zonal_status no_cuda(void) {
    return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                      "this build of zonal has no CUDA; build it with nvcc, or use the device "
                      "cpu");
}

const zonal__views_table *zonal__views_cuda(void) {
    (void)no_cuda();
    return NULL;
}

const zonal__nn_table *zonal__nn_cuda(void) {
    (void)no_cuda();
    return NULL;
}

const zonal__neighbours_table *zonal__neighbours_cuda(void) {
    (void)no_cuda();
    return NULL;
}

const zonal__optimiser_table *zonal__optimiser_cuda(void) {
    (void)no_cuda();
    return NULL;
}

zonal_status zonal__device_choices_read(const char *path) {
    (void)path;
    return no_cuda();
}

zonal_status zonal__device_choices_write(const char *path) {
    (void)path;
    return no_cuda();
}

#else
typedef int zonal__no_cuda_training_is_empty; /* a C file must declare something */
#endif
