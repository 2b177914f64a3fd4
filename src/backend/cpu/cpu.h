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

/* The create of an operation: takes the work, "size" bytes and zeroed, and lets fill do the rest.
 * What fill leaves behind when it fails is destroyed. "what" is for the sentence. */
typedef zonal_status zonal__cpu_filler(const zonal__problem *problem, zonal__work *work);
zonal_status zonal__cpu_create(const zonal__problem *problem, size_t size, const char *what,
                               zonal__cpu_filler *fill, void (*destroy)(zonal__work *work),
                               zonal__work **out);

#endif
