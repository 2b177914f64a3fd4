/*
 * Small batches, at most 1024 rows: pairs (MMD, KSD) in one launch, KL in two, also as the whole
 * objective. See small_kernel.cuh for the method.
 */
#ifndef ZONAL_BACKEND_CUDA_SMALL_CUH
#define ZONAL_BACKEND_CUDA_SMALL_CUH

#include "backend/cuda/common.cuh"

extern "C" {
/* 1 where this path serves: psi or log_phi is given, and the batch is small. On several ranks it
 * serves through gathered.cuh. */
int zonal__cuda_small_serves(const zonal__problem *problem);
/* "operation" is ZONAL__PAIRS, ZONAL__KL or ZONAL__OBJECTIVE. The value is
 *     PAIRS, KL    one double: problem->offset + problem->factor * the operation's value
 *     OBJECTIVE    a zonal_objective_parts; D of each view = offset + factor * (PAIRS or KL)
 * and the gradient is factor (of the run) times that of the operation's value (PAIRS, KL, without
 * the problem's factor) or of the objective's total. */
zonal_status zonal__cuda_small_create(const zonal__problem *problem, zonal__operation operation,
                                      zonal__work **work);
zonal_status zonal__cuda_small_run(zonal__work *work, const void *x, uint32_t step, double *value,
                                   void *gradient, double factor);
void zonal__cuda_small_destroy(zonal__work *work);
}

#endif
