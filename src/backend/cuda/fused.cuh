/*
 * Pairs and KL of large batches on Hopper, fused: see fused.cu. "operation" is ZONAL__PAIRS or
 * ZONAL__KL; the rest is as in the table of operations.
 */
#ifndef ZONAL_BACKEND_CUDA_FUSED_CUH
#define ZONAL_BACKEND_CUDA_FUSED_CUH

#include "backend/cuda/common.cuh"

extern "C" {
/* 1 where these kernels can compute the problem on the current GPU. */
int zonal__cuda_fused_serves(const zonal__problem *problem, zonal__operation operation);
zonal_status zonal__cuda_fused_create(const zonal__problem *problem, zonal__operation operation,
                                      zonal__work **work);
zonal_status zonal__cuda_fused_run(zonal__work *work, const void *x, uint32_t step, double *value,
                                   void *gradient, double factor);
void zonal__cuda_fused_destroy(zonal__work *work);
}

#endif
