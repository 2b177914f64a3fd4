/* What stands for nn_libraries.cu in a build with CUDA and without cuDNN. */
#include "backend/cuda/common.cuh"

extern "C" {
#include "backend/device.h"
}

static zonal_status no_cudnn(void) {
    return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                      "this build of zonal has CUDA without cuDNN, which networks need there; "
                      "install cuDNN and build again, or use the device cpu");
}

zonal_status zonal__device_choices_read(const char *path) {
    (void)path;
    return no_cudnn();
}

zonal_status zonal__device_choices_write(const char *path) {
    (void)path;
    return no_cudnn();
}
