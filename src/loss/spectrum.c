#include "loss/spectrum.h"

#include <float.h>
#include <math.h>

#include "core/memory.h"
#include "math/harmonics.h"
#include "math/quadrature.h"

enum {
    MAX_DEGREES = 20000,    /* of a spectrum: narrower kernels are refused */
    CHORDAL_DEGREES = 4000, /* its spectrum falls like a power: cut here, the law adds the rest */
    MAX_NODES = 4096
};

/* a_{l+1}/a_l of the families given by their weights. */
static long double weight_ratio(const zonal_kernel *kernel, int64_t l) {
    const zonal_kernel_spec *spec = &kernel->spec;
    long double ratio = spec->without_multiplicity ? 1 : zonal__multiplicity_ratio(l, kernel->dim);
    if (spec->family == ZONAL_HEAT)
        return ratio * expl(-(long double)spec->t * (long double)(2 * l + kernel->dim - 1));
    if (spec->family == ZONAL_POISSON) return ratio * (long double)spec->r;
    return ratio; /* band */
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

static zonal_status fail_constant(int64_t d) {
    return ZONAL_FAIL(
        ZONAL_ARGUMENT,
        "the kernel is constant to the last digit in dimension %lld; choose a narrower "
        "one (smaller t, larger r or scale, weights less far apart)",
        (long long)d);
}

/* Heat, band and Poisson: a chain of ratios. The number of degrees follows from the tail: the third
 * derivative is the highest in use, so terms are kept until a_l L_l^3 no longer counts. */
static zonal_status build_chain(zonal_kernel *kernel) {
    int64_t d = kernel->dim;
    int band = kernel->spec.family == ZONAL_BAND ? kernel->spec.band : MAX_DEGREES;
    long double log_u = 0, peak = 0, log_sum = -INFINITY;
    int n = 1;
    for (int l = 0; l < band; l++) {
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
    if (n < 2) return fail_constant(d);
    if (n > MAX_DEGREES)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the kernel is too narrow: its spectrum has more than %d degrees in "
                          "dimension %lld; choose a wider one (larger t, smaller r)",
                          MAX_DEGREES, (long long)d);
    ZONAL_TRY(ZONAL_NEW(&kernel->a, n, "the spectrum"));
    kernel->degrees = n;
    kernel->a[0] = expl(-peak);
    for (int l = 0; l + 1 < n; l++) kernel->a[l + 1] = kernel->a[l] * weight_ratio(kernel, l);
    normalise(kernel);
    return ZONAL_OK;
}

static zonal_status build_given(zonal_kernel *kernel) {
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

/* phi(c) = 1 - sqrt((1-c)/2): a_0 = 1 - h_0 and a_l = -N_l h_l with h_l = h_0 (-1/2)_l/(d-1/2)_l,
 * the mean of sqrt((1-c)/2) P_l(c), and h_0 = E/2, half the mean chord. */
static zonal_status build_chordal(zonal_kernel *kernel) {
    int64_t d = kernel->dim;
    long double log_h0 = (long double)(d - 2) * logl(2) + 2 * zonal__log_gamma_half(d) -
                         zonal__log_gamma_half(1) - zonal__log_gamma_half(2 * d - 1);
    long double term = expl(log_h0), tail_start = term;
    int n = 1;
    ZONAL_TRY(ZONAL_NEW(&kernel->a, CHORDAL_DEGREES, "the spectrum"));
    kernel->one_minus_a0 = term;
    kernel->log_a0 = log1pl(-term);
    kernel->a[0] = 1 - term;
    for (int l = 0; l + 1 < CHORDAL_DEGREES; l++) {
        /* N_l h_l; the sign of (-1/2)_l makes a_l positive */
        term *= zonal__multiplicity_ratio(l, d) * fabsl(l - 0.5L) / ((long double)d - 0.5L + l);
        kernel->a[l + 1] = term;
        n = l + 2;
        if (term < 1e-25L * tail_start) break;
    }
    kernel->degrees = n;
    return ZONAL_OK;
}

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
        long double kappa = kernel->kappa[k] * kernel->kappa[k] * (long double)kernel->spec.scale;
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
    while (first < 2 * sqrt(kernel->spec.scale)) first *= 2;
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
                      kernel->spec.scale, (long long)kernel->dim, MAX_NODES);
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

static zonal_status build_induced(zonal_kernel *kernel) {
    enum { MOST = MAX_DEGREES / 4 };
    long double *f = NULL;
    ZONAL_TRY(build_nodes(kernel));
    ZONAL_TRY(ZONAL_NEW(&kernel->a, MOST, "the spectrum"));
    ZONAL_TRY(ZONAL_NEW(&f, MOST + 2, "the spectrum's work space"));
    for (int n = 64; n < MOST; n *= 2)
        if (induced_degrees(kernel, n, f)) break;
    zonal__free(f);
    return ZONAL_OK;
}

static zonal_status build(zonal_kernel *kernel) {
    switch (kernel->spec.family) {
    case ZONAL_INDUCED:
        return build_induced(kernel);
    case ZONAL_CHORDAL:
        return build_chordal(kernel);
    case ZONAL_SPECTRUM:
        return build_given(kernel);
    default:
        return build_chain(kernel);
    }
}

/* The losses divide by 1 - a_0, as a double. */
zonal_status zonal__spectrum_build(zonal_kernel *kernel) {
    ZONAL_TRY(build(kernel));
    return kernel->one_minus_a0 >= DBL_MIN ? ZONAL_OK : fail_constant(kernel->dim);
}
