/*
 * The fast host backend's operations, as cpu.c puts them into the table. Their contract is that of
 * backend/backend.h; what they share is in rows.h (checks, norms, projection), tiles.h (all pairs),
 * second_moment.h, threads.h and kernels.h.
 */
#ifndef ZONAL_BACKEND_CPU_CPU_H
#define ZONAL_BACKEND_CPU_CPU_H

#include "backend/backend.h"

extern const zonal__operation_table zonal__cpu_pairs;
extern const zonal__operation_table zonal__cpu_survey;
extern const zonal__operation_table zonal__cpu_kl;
extern const zonal__operation_table zonal__cpu_moments;
extern const zonal__operation_table zonal__cpu_covariance;
extern const zonal__operation_table zonal__cpu_sliced;
extern const zonal__operation_table zonal__cpu_invariance;
#ifdef ZONAL_HAVE_LAPACKE
extern const zonal__operation_table zonal__cpu_eigenvalues;
#endif

#endif
