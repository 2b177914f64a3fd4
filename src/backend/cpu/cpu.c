/*
 * The CPU's table: the reference's, with what this folder does better put over it.
 */
#include "backend/cpu/cpu.h"

#include <pthread.h>

#include "core/memory.h"

zonal_status zonal__cpu_create(const zonal__problem *problem, size_t size, const char *what,
                               zonal__cpu_filler *fill, void (*destroy)(zonal__work *work),
                               zonal__work **out) {
    void *memory;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__alloc(1, size, what, &memory));
    status = fill(problem, memory);
    if (status == ZONAL_OK)
        *out = memory;
    else
        destroy(memory);
    return status;
}

static zonal__backend table;

static void fill(void) {
    table = *zonal__backend_ref();
    table.name = "cpu";
    table.is_oracle = 0;
    table.operations[ZONAL__PAIRS] = &zonal__cpu_pairs;
    table.operations[ZONAL__KL] = &zonal__cpu_kl;
    table.operations[ZONAL__MOMENTS] = &zonal__cpu_moments;
    table.operations[ZONAL__SLICED] = &zonal__cpu_sliced;
    table.operations[ZONAL__INVARIANCE] = &zonal__cpu_invariance;
    table.operations[ZONAL__SURVEY] = &zonal__cpu_survey;
    table.operations[ZONAL__COVARIANCE] = &zonal__cpu_covariance;
#ifdef ZONAL_HAVE_LAPACKE
    table.operations[ZONAL__EIGENVALUES] = &zonal__cpu_eigenvalues;
#endif
}

const zonal__backend *zonal__backend_cpu(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
    return &table;
}
