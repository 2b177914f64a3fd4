#include "loss/profile.h"

#include <math.h>

#include "loss/family.h"
#include "math/harmonics.h"

enum { MAX_TERMS = 4096 };

/* A fit for double plans is as good as its coefficients can be rounded. For other plans D may be
 * off by 2e-11, and every term saved is time saved; but where a narrow kernel's derivative at
 * typical cosines is far below the one at c = 1, the fit must be that much better for the
 * gradient's sake.
 */
static double fit_tolerance(zonal_precision precision, double typical_derivative,
                            double derivative) {
    const double best = 1e-19; /* the noise of long double samples; a few terms more cost nothing */
    if (precision == ZONAL_PRECISION_DOUBLE) return best;
    return fmax(best, 1e-12 * fmin(1, fabs(typical_derivative / derivative)));
}

static long double mmd_value(const void *context, long double c) {
    return zonal__kernel_centred(context, c);
}

static long double mmd_derivative(const void *context, long double c) {
    const zonal_kernel *kernel = context;
    return zonal__kernel_derivative(kernel, 1, c) / kernel->one_minus_a0;
}

/* The paper's formula, by derivatives: ((c^2-1) phi'' + (d-1) c phi') / ((d-1) phi'(1)). */
static long double ksd_value(const void *context, long double c) {
    const zonal_kernel *kernel = context;
    long double e = (long double)(kernel->dim - 1);
    return ((c * c - 1) * zonal__kernel_derivative(kernel, 2, c) +
            e * c * zonal__kernel_derivative(kernel, 1, c)) /
           (e * zonal__kernel_derivative(kernel, 1, 1));
}

static long double ksd_derivative(const void *context, long double c) {
    const zonal_kernel *kernel = context;
    long double e = (long double)(kernel->dim - 1);
    return ((c * c - 1) * zonal__kernel_derivative(kernel, 3, c) +
            (e + 2) * c * zonal__kernel_derivative(kernel, 2, c) +
            e * zonal__kernel_derivative(kernel, 1, c)) /
           (e * zonal__kernel_derivative(kernel, 1, 1));
}

static zonal_status sample_psi(const void *context, long double c, long double *out) {
    const zonal__pair_function *psi = context;
    *out = psi->value(psi->context, c);
    return ZONAL_OK;
}

zonal_status zonal__profile_init(const zonal_kernel *kernel, zonal_discrepancy discrepancy,
                                 zonal_precision precision, zonal__profile *profile) {
    zonal_kernel_constants constants = ZONAL_KERNEL_CONSTANTS_INIT;
    ZONAL_TRY(zonal_kernel_constants_get(kernel, &constants));
    *profile = (zonal__profile){0};
    profile->psi.context = kernel;
    profile->psi.value = discrepancy == ZONAL_DISCREPANCY_MMD ? mmd_value : ksd_value;
    profile->psi.derivative =
        discrepancy == ZONAL_DISCREPANCY_MMD ? mmd_derivative : ksd_derivative;
    profile->norm = discrepancy == ZONAL_DISCREPANCY_MMD ? constants.mmd_norm : constants.ksd_norm;
    if (kernel->family->infinite_derivative) {
        if (discrepancy != ZONAL_DISCREPANCY_MMD)
            return ZONAL_FAIL(
                ZONAL_ARGUMENT,
                "the %s kernel has no finite derivative at c = 1, so there is no KSD with "
                "it; use mmd-%s",
                kernel->family->name, kernel->family->name);
        profile->psi.chord = (double)(1 / kernel->one_minus_a0);
        profile->derivative = INFINITY;
        return ZONAL_OK;
    }
    profile->derivative = (double)profile->psi.derivative(kernel, 1);
    double tolerance =
        fit_tolerance(precision, (double)profile->psi.derivative(kernel, 0), profile->derivative);
    ZONAL_TRY(zonal__fit_create(sample_psi, &profile->psi, -1, tolerance, fmax(2e-15, tolerance),
                                MAX_TERMS, &profile->fit));
    profile->psi.fit = profile->fit;
    return ZONAL_OK;
}

void zonal__profile_fini(zonal__profile *profile) {
    zonal__fit_destroy(profile->fit);
    *profile = (zonal__profile){0};
}

double zonal__profile_share(const zonal_kernel *kernel, zonal_discrepancy discrepancy, int l) {
    if (l < 1 || l >= kernel->degrees) return 0;
    if (discrepancy == ZONAL_DISCREPANCY_MMD) return (double)(kernel->a[l] / kernel->one_minus_a0);
    /* sum over l of L_l a_l = (d-1) phi'(1) */
    return (double)(zonal__eigenvalue(l, kernel->dim) * kernel->a[l] /
                    ((long double)(kernel->dim - 1) * zonal__kernel_derivative(kernel, 1, 1)));
}

int zonal__profile_degree(const zonal_kernel *kernel) {
    if (!kernel->family->series) return 0;
    int l = kernel->degrees - 1;
    while (l > 0 && kernel->a[l] == 0) l--;
    return l;
}

static zonal_status sample_fit(const void *context, long double c, long double *out) {
    *out = zonal__fit_value(context, (double)c);
    return ZONAL_OK;
}

zonal_status zonal__profile_fit_log(const zonal_kernel *kernel, zonal__fit **fit) {
    const zonal__fit *full = kernel->log_phi;
    double tolerance = (double)(-1e-10L * kernel->log_a0); /* well below what a float can see */
    return zonal__fit_create(sample_fit, full, full->low, tolerance, 10 * tolerance, MAX_TERMS,
                             fit);
}
