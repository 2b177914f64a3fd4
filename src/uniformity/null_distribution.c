#include "uniformity/null_distribution.h"

#include <math.h>

#include "core/memory.h"
#include "loss/profile.h"
#include "math/harmonics.h"
#include "math/weighted_chi2.h"

/* N_l n/(n-1) as a double; beyond 1e300 a degree has no variance left and only its size class
 * matters. */
static double freedom_at(int64_t n, long double multiplicity_log) {
    double freedom = multiplicity_log > 690 ? 1e300 : (double)expl(multiplicity_log);
    return freedom / (1 - 1 / (double)n);
}

static zonal_status alloc(zonal__null_distribution *null, int degrees) {
    *null = (zonal__null_distribution){0};
    ZONAL_TRY(ZONAL_NEW(&null->share, degrees, "the null distribution's shares"));
    zonal_status status =
        ZONAL_NEW(&null->freedom, degrees, "the null distribution's degrees of freedom");
    if (status != ZONAL_OK) zonal__null_fini(null);
    return status;
}

zonal_status zonal__null_of_kernel(const zonal_kernel *kernel, zonal_discrepancy discrepancy,
                                   int64_t n, zonal__null_distribution *null) {
    zonal_kernel_constants constants = ZONAL_KERNEL_CONSTANTS_INIT;
    long double log_multiplicity = 0;
    ZONAL_TRY(zonal_kernel_constants_get(kernel, &constants));
    ZONAL_TRY(alloc(null, constants.degrees));
    for (int l = 1; l < constants.degrees; l++) {
        double b = zonal__profile_share(kernel, discrepancy, l);
        log_multiplicity += logl(zonal__multiplicity_ratio(l - 1, kernel->dim));
        double freedom = freedom_at(n, log_multiplicity), variance = 2 * b * b / freedom;
        null->variance += variance;
        /* A degree whose variance does not show in the sum acts as a normal of that variance. */
        if (variance <= 1e-18 * null->variance) {
            null->extra_variance += variance;
        } else {
            null->share[null->terms] = b;
            null->freedom[null->terms++] = freedom;
        }
    }
    return ZONAL_OK;
}

zonal_status zonal__null_of_degree(int l, int64_t d, int64_t n, zonal__null_distribution *null) {
    ZONAL_TRY(alloc(null, 1));
    null->terms = 1;
    null->share[0] = 1;
    null->freedom[0] = freedom_at(n, zonal__log_multiplicity(l, d));
    null->variance = 2 / null->freedom[0];
    return ZONAL_OK;
}

void zonal__null_fini(zonal__null_distribution *null) {
    zonal__free(null->share);
    zonal__free(null->freedom);
    *null = (zonal__null_distribution){0};
}

double zonal__null_sd(const zonal__null_distribution *null) {
    return sqrt(null->variance);
}

zonal_status zonal__null_tails(const zonal__null_distribution *null, double t, double *upper,
                               double *log_upper, double *lower) {
    return zonal__weighted_chi2_tail(null->terms, null->share, null->freedom, null->extra_variance,
                                     t, upper, log_upper, lower);
}
