/* The reference table: plain C, double, one thread; every operation reads like its formula. */
#include "backend/device.h"
#include "backend/ref/rows.h"

static const zonal__backend table = {
    .name = "ref",
    .is_host = 1,
    .is_oracle = 1,
    .count = zonal__host_count,
    .describe = zonal__host_describe,
    .runtime = &zonal__host_runtime,
    .precisions = 1u << ZONAL_PRECISION_DOUBLE | 1u << ZONAL_PRECISION_FP32,
    .takes_ranks = 1,
    .operations =
        {
            [ZONAL__PAIRS] = &zonal__ref_pairs,
            [ZONAL__KL] = &zonal__ref_kl,
            [ZONAL__MOMENTS] = &zonal__ref_moments,
            [ZONAL__SLICED] = &zonal__ref_sliced,
            [ZONAL__INVARIANCE] = &zonal__ref_invariance,
            [ZONAL__SURVEY] = &zonal__ref_survey,
            [ZONAL__COVARIANCE] = &zonal__ref_covariance,
            [ZONAL__EIGENVALUES] = &zonal__ref_eigenvalues,
        },
};

const zonal__backend *zonal__backend_ref(void) {
    return &table;
}
