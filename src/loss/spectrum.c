#include "loss/spectrum.h"

#include <math.h>

#include "core/memory.h"
#include "loss/family.h"
#include "math/harmonics.h"

/* a_{l+1}/a_l */
static long double weight_ratio(const zonal_kernel *kernel, int64_t l) {
    long double ratio =
        kernel->spec.without_multiplicity ? 1 : zonal__multiplicity_ratio(l, kernel->dim);
    return ratio * kernel->family->ratio(kernel, l);
}

/* Sets a_l from the unnormalised u_l: a_l = u_l / sum, log a_0 without cancellation. */
static void normalise(zonal_kernel *kernel) {
    long double rest = 0, *a = kernel->a;
    for (int l = kernel->degrees - 1; l >= 1; l--) rest += a[l]; /* small terms first */
    long double total = a[0] + rest;
    kernel->log_a0 = a[0] > 0 ? -log1pl(rest / a[0]) : -INFINITY;
    kernel->one_minus_a0 = rest / total;
    for (int l = 0; l < kernel->degrees; l++) a[l] /= total;
}

zonal_status zonal__spectrum_is_constant(int64_t dim) {
    return ZONAL_FAIL(
        ZONAL_ARGUMENT,
        "the kernel is constant to the last digit in dimension %lld; choose a narrower "
        "one (smaller t, larger r or scale, weights less far apart)",
        (long long)dim);
}

/* The third
 * derivative is the highest in use, so terms are kept until a_l L_l^3 no longer counts. */
zonal_status zonal__spectrum_chain(zonal_kernel *kernel, int last) {
    int64_t d = kernel->dim;
    long double log_u = 0, peak = 0, log_sum = -INFINITY;
    int n = 1;
    for (int l = 0; l < last; l++) {
        log_u += logl(weight_ratio(kernel, l));
        if (!(log_u > -11000)) break; /* the end of long double's range: what is left is nothing */
        long double log_third = log_u + 3 * logl(zonal__eigenvalue(l + 1, d));
        n = l + 2;
        peak = fmaxl(peak, log_u);
        log_sum = fmaxl(log_sum, log_third);
        /* What follows is less than a geometric series of the ratio of a_l L_l^3. */
        long double growth = zonal__eigenvalue(l + 2, d) / zonal__eigenvalue(l + 1, d);
        long double ratio = weight_ratio(kernel, l + 1) * growth * growth * growth;
        if (ratio < 1 && log_third - log1pl(-ratio) < log_sum - 62) break;
    }
    if (n < 2) return zonal__spectrum_is_constant(d);
    if (n > ZONAL__SPECTRUM_DEGREES)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the kernel is too narrow: its spectrum has more than %d degrees in "
                          "dimension %lld; choose a wider one (larger t, smaller r)",
                          ZONAL__SPECTRUM_DEGREES, (long long)d);
    ZONAL_TRY(ZONAL_NEW(&kernel->a, n, "the spectrum"));
    kernel->degrees = n;
    kernel->a[0] = expl(-peak);
    for (int l = 0; l + 1 < n; l++) kernel->a[l + 1] = kernel->a[l] * weight_ratio(kernel, l);
    normalise(kernel);
    return ZONAL_OK;
}

zonal_status zonal__spectrum_given(zonal_kernel *kernel) {
    const zonal_kernel_spec *spec = &kernel->spec;
    ZONAL_TRY(ZONAL_NEW(&kernel->a, spec->n_weights, "the spectrum"));
    kernel->degrees = spec->n_weights;
    long double log_n = 0, top = -INFINITY;
    for (int pass = 0; pass < 2;
         pass++) { /* first the largest term, then the terms relative to it */
        log_n = 0;
        for (int l = 0; l < spec->n_weights; l++) {
            if (l > 0 && !spec->without_multiplicity)
                log_n = zonal__log_multiplicity(l, kernel->dim);
            if (spec->weights[l] <= 0) continue;
            long double log_u = log_n + logl((long double)spec->weights[l]);
            if (pass == 0)
                top = fmaxl(top, log_u);
            else
                kernel->a[l] = expl(log_u - top);
        }
    }
    normalise(kernel);
    return ZONAL_OK;
}
