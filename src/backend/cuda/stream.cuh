/*
 * Pairs and KL in tiles, for batches of any size: see stream.cu. "operation" is ZONAL__PAIRS or
 * ZONAL__KL; the rest is as in the table of operations.
 */
#ifndef ZONAL_BACKEND_CUDA_STREAM_CUH
#define ZONAL_BACKEND_CUDA_STREAM_CUH

#include "backend/cuda/common.cuh"

extern "C" {
zonal_status zonal__cuda_stream_create(const zonal__problem *problem, zonal__operation operation,
                                       zonal__work **work);
zonal_status zonal__cuda_stream_run(zonal__work *work, const void *x, uint32_t step, double *value,
                                    void *gradient, double factor);
void zonal__cuda_stream_destroy(zonal__work *work);
}

#endif
