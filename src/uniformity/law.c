#include "uniformity/law.h"

#include <math.h>

#include "core/memory.h"
#include "loss/profile.h"
#include "math/harmonics.h"
#include "math/weighted_chi2.h"

/* N_l as a double; beyond 1e300 a degree has no variance left and only its size class matters. */
static double freedom_of(int l, int64_t d) {
    long double log_n = zonal__log_multiplicity(l, d);
    return log_n > 690 ? 1e300 : roundl(expl(log_n));
}

static zonal_status take(zonal__law *law, int degrees) {
    *law = (zonal__law){0};
    ZONAL_TRY(ZONAL_NEW(&law->share, degrees, "the law's shares"));
    zonal_status status = ZONAL_NEW(&law->freedom, degrees, "the law's degrees of freedom");
    if (status != ZONAL_OK) zonal__law_fini(law);
    return status;
}

zonal_status zonal__law_of_kernel(const zonal_kernel *kernel, zonal_discrepancy discrepancy,
                                  zonal__law *law) {
    zonal_kernel_constants constants = ZONAL_KERNEL_CONSTANTS_INIT;
    long double log_n = 0;
    ZONAL_TRY(zonal_kernel_constants_get(kernel, &constants));
    ZONAL_TRY(take(law, constants.degrees));
    for (int l = 1; l < constants.degrees; l++) {
        double b = zonal__profile_share(kernel, discrepancy, l);
        log_n += logl(zonal__multiplicity_ratio(l - 1, kernel->dim));
        double n = log_n > 690 ? 1e300 : (double)expl(log_n);
        double variance = 2 * b * b / n;
        law->variance += variance;
        /* A degree whose variance does not show in the sum acts as a normal of that variance. */
        if (variance <= 1e-18 * law->variance) {
            law->extra_variance += variance;
        } else {
            law->share[law->terms] = b;
            law->freedom[law->terms++] = n;
        }
    }
    return ZONAL_OK;
}

zonal_status zonal__law_of_degree(int l, int64_t d, zonal__law *law) {
    ZONAL_TRY(take(law, 1));
    law->terms = 1;
    law->share[0] = 1;
    law->freedom[0] = freedom_of(l, d);
    law->variance = 2 / law->freedom[0];
    return ZONAL_OK;
}

void zonal__law_fini(zonal__law *law) {
    zonal__free(law->share);
    zonal__free(law->freedom);
    *law = (zonal__law){0};
}

double zonal__law_sd(const zonal__law *law, int64_t n) {
    return sqrt(law->variance * (1 - 1 / (double)n));
}

zonal_status zonal__law_tails(const zonal__law *law, int64_t n, double t, double *upper,
                              double *log_upper, double *lower) {
    /* E[T^2] = (1 - 1/n) times the limit's variance, exactly: scaling by its root makes the second
     * moment right at every n, and the limit is the same. */
    double x = t / sqrt(1 - 1 / (double)n);
    return zonal__weighted_chi2_tail(law->terms, law->share, law->freedom, law->extra_variance, x,
                                     upper, log_upper, lower);
}
