/* A convolution in plain loops, for shapes of any kind: nn_direct.cu. */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_DIRECT_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_DIRECT_CUH

#include "backend/cuda/training/nn_plan.cuh"

extern "C" {
zonal_status zonal__direct_run(const zonal__plan_shape *shape, cudaStream_t stream,
                               const zonal__plan_arrays *arrays);
}

#endif
