/*
 * The induced kernel, phi(c) = integral exp(-(1-c) s^2 u^2) rho_d(u) du, as a sum over the nodes of
 * a Gauss rule for rho_d: a mixture of exponentials exp(-(1-c) kappa_k), kappa_k = s^2 u_k^2.
 */
#include "loss/induced.h"

#include <float.h>
#include <math.h>

#include "core/memory.h"
#include "loss/kernel.h"
#include "math/harmonics.h"
#include "math/quadrature.h"

enum { MAX_NODES = 4096 };

/* phi and its first three derivatives at c = -1, where the rule is worst, and the third at c = 1,
 * each relative to its value at c = 1. */
static void probe_nodes(int n, const long double *kappa, const long double *weight,
                        long double out[5]) {
    long double at_one[4] = {0};
    for (int i = 0; i < 5; i++) out[i] = 0;
    for (int k = 0; k < n; k++)
        for (int order = 0; order < 4; order++) {
            long double term = weight[k] * powl(kappa[k], order);
            out[order] += term * expl(-2 * kappa[k]);
            at_one[order] += term;
        }
    for (int order = 0; order < 4; order++) out[order] /= at_one[order];
    out[4] = logl(at_one[3]);
}

/* A rule of n nodes, by symmetry kept as its n/2 positive ones. */
static zonal_status make_nodes(zonal_kernel *kernel, int n) {
    ZONAL_TRY(ZONAL_NEW(&kernel->kappa, n, "the quadrature's nodes"));
    ZONAL_TRY(ZONAL_NEW(&kernel->node_weight, n, "the quadrature's weights"));
    ZONAL_TRY(zonal__gauss_sphere(n, kernel->dim, kernel->kappa, kernel->node_weight));
    kernel->nodes = 0;
    for (int k = 0; k < n / 2; k++) {
        long double kappa = kernel->kappa[k] * kernel->kappa[k] * (long double)kernel->parameter;
        long double weight = 2 * kernel->node_weight[k];
        if (weight * fmaxl(1, kappa * kappa * kappa) < 1e-24L) continue; /* counts for nothing */
        kernel->kappa[kernel->nodes] = kappa;
        kernel->node_weight[kernel->nodes++] = weight;
    }
    return ZONAL_OK;
}

/* Doubles the number of nodes until the probes stop changing. The first rule must see the Gaussian
 * in the integrand at all (its width is 1/(2s)), or two blind rules would agree on nothing. */
static zonal_status build_nodes(zonal_kernel *kernel) {
    long double before[5] = {0}, now[5];
    int first = 16;
    while (first < 2 * sqrt(kernel->parameter)) first *= 2;
    for (int n = first; n <= MAX_NODES; n *= 2) {
        ZONAL_TRY(make_nodes(kernel, n));
        probe_nodes(kernel->nodes, kernel->kappa, kernel->node_weight, now);
        int settled = n > first;
        for (int i = 0; i < 5; i++) {
            /* a rule of n nodes is only good to n ulp */
            if (!(fabsl(now[i] - before[i]) <= 1e-17L + n * LDBL_EPSILON)) settled = 0;
            before[i] = now[i];
        }
        if (settled) return ZONAL_OK;
        zonal__free(kernel->kappa);
        zonal__free(kernel->node_weight);
        kernel->kappa = kernel->node_weight = NULL;
    }
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "the induced kernel with scale %g is too narrow in dimension %lld for %d "
                      "quadrature nodes; choose a smaller scale",
                      kernel->parameter, (long long)kernel->dim, MAX_NODES);
}

/* 0F1(; b; z) for z >= 0: positive terms, so nothing cancels. */
static long double confluent_limit(long double b, long double z) {
    long double term = 1, sum = 1;
    for (int m = 0; term > 1e-22L * sum; m++) {
        term *= z / ((long double)(m + 1) * (b + m));
        sum += term;
    }
    return sum;
}

/* exp(-kappa) exp(kappa c) expands with positive coefficients
 *     N_l Gamma(d/2)/Gamma(d/2+l) (kappa/2)^l exp(-kappa) F_l,   F_l = 0F1(; d/2+l; kappa^2/4),
 * and the induced kernel is a mixture of these over the nodes. This adds node k's first n to a; the
 * F_l come from F_l = F_{l+1} + z F_{l+2}/(b (b+1)), b = d/2+l, z = kappa^2/4, run downwards, where
 * every term is positive. f has n + 2. */
static void add_node(zonal_kernel *kernel, int k, int n, long double *f) {
    long double half = (long double)kernel->dim / 2, kappa = kernel->kappa[k];
    long double z = kappa * kappa / 4, chain = kernel->node_weight[k] * expl(-kappa);
    f[n + 1] = confluent_limit(half + n + 1, z);
    f[n] = confluent_limit(half + n, z);
    for (int l = n - 1; l >= 0; l--) f[l] = f[l + 1] + z / ((half + l) * (half + l + 1)) * f[l + 2];
    for (int l = 0; l < n && chain > 0; l++) {
        kernel->a[l] += chain * f[l];
        chain *= zonal__multiplicity_ratio(l, kernel->dim) * kappa / (2 * (half + l));
    }
}

/* The first n degrees; returns 1 when the last of them no longer count, and cuts them off. */
static int induced_degrees(zonal_kernel *kernel, int n, long double *f) {
    long double rest = 0;
    for (int l = 0; l < n; l++) kernel->a[l] = 0;
    for (int k = 0; k < kernel->nodes; k++) add_node(kernel, k, n, f);
    for (int l = n - 1; l >= 1; l--) rest += kernel->a[l];
    kernel->one_minus_a0 = rest;
    kernel->log_a0 = rest < 0.5L ? log1pl(-rest) : logl(kernel->a[0]);
    kernel->degrees = n;
    while (kernel->degrees > 3 && kernel->a[kernel->degrees - 2] < 1e-24L * rest) kernel->degrees--;
    return kernel->degrees < n;
}

zonal_status zonal__induced_build(zonal_kernel *kernel) {
    enum { MOST = ZONAL__SPECTRUM_DEGREES / 4 };
    long double *f = NULL;
    ZONAL_TRY(build_nodes(kernel));
    ZONAL_TRY(ZONAL_NEW(&kernel->a, MOST, "the spectrum"));
    ZONAL_TRY(ZONAL_NEW(&f, MOST + 2, "the spectrum's work space"));
    for (int n = 64; n < MOST; n *= 2)
        if (induced_degrees(kernel, n, f)) break;
    zonal__free(f);
    return ZONAL_OK;
}

long double zonal__induced_derivative(const zonal_kernel *kernel, int order, long double c) {
    long double sum = 0;
    for (int k = 0; k < kernel->nodes; k++) {
        long double term = kernel->node_weight[k] * expl(-(1 - c) * kernel->kappa[k]);
        for (int i = 0; i < order; i++) term *= kernel->kappa[k];
        sum += term;
    }
    return sum;
}

/* 1 - phi(c) of the induced kernel: positive terms. */
long double zonal__induced_deficit(const zonal_kernel *kernel, long double c) {
    long double sum = 0;
    for (int k = 0; k < kernel->nodes; k++)
        sum -= kernel->node_weight[k] * expm1l(-(1 - c) * kernel->kappa[k]);
    return sum;
}

long double zonal__induced_log(const zonal_kernel *kernel, long double c) {
    long double deficit = zonal__induced_deficit(kernel, c);
    return deficit < 0.5L ? log1pl(-deficit) : logl(zonal__induced_derivative(kernel, 0, c));
}
