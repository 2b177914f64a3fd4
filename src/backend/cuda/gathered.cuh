/*
 * Small batches that several ranks hold together, at most 1024 rows in all: every rank gathers all
 * rows, computes the loss of all of them in one launch or two (small.cuh) and keeps the gradient of
 * its own. To exchange sums within the loss would cost more launches than this costs work, and the
 * results are those of one rank, bit for bit.
 */
#ifndef ZONAL_BACKEND_CUDA_GATHERED_CUH
#define ZONAL_BACKEND_CUDA_GATHERED_CUH

#include "backend/cuda/common.cuh"

extern "C" {
/* As of small.cuh, for a problem with ranks. */
zonal_status zonal__cuda_gathered_create(const zonal__problem *problem, zonal__operation operation,
                                         zonal__work **work);
zonal_status zonal__cuda_gathered_run(zonal__work *work, const void *x, uint32_t step,
                                      double *value, void *gradient, double factor);
zonal_status zonal__cuda_gathered_check(zonal__work *work);
void zonal__cuda_gathered_destroy(zonal__work *work);
}

#endif
