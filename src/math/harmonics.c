#include "math/harmonics.h"

#include <math.h>

static const long double PI_L = 3.14159265358979323846264338327950288L;

long double zonal__log_multiplicity(int64_t l, int64_t d) {
    long double log_sum = 0, product = 1;
    for (int64_t k = 0; k < l; k++) {
        product *= zonal__multiplicity_ratio(k, d);
        if (product > 1e300L) { /* well inside every long double, also where it is a double */
            log_sum += logl(product);
            product = 1;
        }
    }
    return log_sum + logl(product);
}

long double zonal__series(int first, int n, const long double *a, int64_t d, long double c) {
    long double previous = 0, current = 1, sum = 0;
    for (int l = 0; l < n; l++) {
        if (l >= first) sum += a[l] * current;
        long double next =
            l == 0 ? c
                   : ((long double)(2 * l + d - 2) * c * current - (long double)l * previous) /
                         (long double)(l + d - 2);
        previous = current;
        current = next;
    }
    return sum;
}

long double zonal__series_derivative(int n, const long double *a, int64_t d, int order,
                                     long double c) {
    /* The derivative of P_l of that order is chain_l * P_{l-order} in dimension d + 2 order, with
     * chain_l = product over k < order of L_{l-k}(d+2k) / (d+2k-1). */
    long double previous = 0, current = 1, sum = 0;
    int64_t e = d + 2 * order;
    for (int l = order; l < n; l++) {
        int m = l - order;
        long double chain = 1;
        for (int k = 0; k < order; k++)
            chain *= zonal__eigenvalue(l - k, d + 2 * k) / (long double)(d + 2 * k - 1);
        sum += a[l] * chain * current;
        long double next =
            m == 0 ? c
                   : ((long double)(2 * m + e - 2) * c * current - (long double)m * previous) /
                         (long double)(m + e - 2);
        previous = current;
        current = next;
    }
    return sum;
}

long double zonal__log_gamma_half(int64_t n) {
    /* Gamma(x+1) = x Gamma(x) down to Gamma(1) = 1 or Gamma(1/2) = sqrt(pi). */
    long double log_sum = 0, product = 1;
    for (int64_t k = n - 2; k > 0; k -= 2) {
        product *= (long double)k / 2;
        if (product > 1e300L) {
            log_sum += logl(product);
            product = 1;
        }
    }
    log_sum += logl(product);
    return n % 2 ? log_sum + 0.5L * logl(PI_L) : log_sum;
}

long double zonal__log_sphere_area(int64_t d) {
    return logl(2.0L) + (long double)d / 2 * logl(PI_L) - zonal__log_gamma_half(d);
}
