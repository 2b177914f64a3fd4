#include "loss/kernel.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/sized.h"
#include "core/text.h"
#include "loss/family.h"
#include "loss/log_profile.h"
#include "math/harmonics.h"

enum { MAX_DIM = 4096 };

/* ---- the spectrum ---------------------------------------------------------------------------- */

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

/* ---- kernels --------------------------------------------------------------------------------- */

static zonal_status check_parameter(const zonal__family *family, double value) {
    int low = family->above ? value > family->least : value >= family->least;
    int high = family->below ? value < family->most : value <= family->most;
    if (!family->option || (low && high && (!family->whole || value == floor(value))))
        return ZONAL_OK;
    if (isinf(family->most))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be positive and finite, got %g", family->option,
                          value);
    if (family->above && family->below)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be between %g and %g, got %g", family->option,
                          family->least, family->most, value);
    if (family->above)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be above %g and at most %g, got %g",
                          family->option, family->least, family->most, value);
    return ZONAL_FAIL(ZONAL_ARGUMENT, "the %s must be %sfrom %g to %g, got %g", family->option,
                      family->whole ? "a whole number " : "", family->least, family->most, value);
}

/* Refuses what is out of range and fills in the record and the parameter. */
static zonal_status check_spec(const zonal_kernel_spec *spec, int64_t dim, zonal_kernel *kernel) {
    const zonal__family *family = zonal__family_of(spec->family);
    if (dim < 2 || dim > MAX_DIM)
        return ZONAL_FAIL(ZONAL_SHAPE, "the dimension must be from 2 to %d, got %lld", MAX_DIM,
                          (long long)dim);
    if (!family) return zonal_last_error()->status;
    if (!zonal__is_zero(spec->reserved, sizeof spec->reserved))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the reserved room of a zonal_kernel_spec is not zero; zero-initialise "
                          "it, or use the libzonal that the program was built with");
    if (spec->parameter.power < -1 || spec->parameter.power > 1)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a kernel's parameter goes with d to the power -1, 0 or 1, got %d",
                          spec->parameter.power);
    if (spec->without_multiplicity && !family->weighted)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the %s kernel is not given by weights, so there is "
                          "nothing to leave multiplicities out of",
                          family->name);
    *kernel =
        (zonal_kernel){.spec = *spec,
                       .family = family,
                       .dim = dim,
                       .parameter = zonal__family_parameter(spec, dim, ZONAL_DISCREPANCY_MMD)};
    ZONAL_TRY(check_parameter(family, kernel->parameter));
    return family->check ? family->check(spec) : ZONAL_OK;
}

static zonal_status build(zonal_kernel *kernel) {
    zonal_kernel_spec *spec = &kernel->spec;
    if (kernel->family->given) {
        const double *given = spec->weights;
        double *copy;
        spec->weights = NULL; /* not ours to free if the next line fails */
        ZONAL_TRY(ZONAL_NEW(&copy, spec->n_weights, "the spectrum's weights"));
        memcpy(copy, given, (size_t)spec->n_weights * sizeof *copy);
        spec->weights = copy;
    }
    ZONAL_TRY(kernel->family->build(kernel));
    /* The losses divide by 1 - a_0, as a double. */
    if (!(kernel->one_minus_a0 >= DBL_MIN)) return zonal__spectrum_is_constant(kernel->dim);
    if (spec->log_profile) ZONAL_TRY(zonal__kernel_fit_log(kernel, &kernel->log_phi));
    return ZONAL_OK;
}

static zonal_status create(const zonal_kernel_spec *spec, int64_t dim, zonal_kernel **out) {
    zonal_kernel checked, *kernel;
    ZONAL_TRY(check_spec(spec, dim, &checked));
    ZONAL_TRY(ZONAL_NEW(&kernel, 1, "a kernel"));
    *kernel = checked;
    zonal_status status = build(kernel);
    if (status == ZONAL_OK)
        *out = kernel;
    else
        zonal_kernel_destroy(kernel);
    return status;
}

zonal_status zonal_kernel_create(const zonal_kernel_spec *spec, int64_t dim, zonal_kernel **out) {
    zonal_kernel_spec read;
    double *weights;
    zonal_status status;
    ZONAL_NEED(out, "kernel");
    *out = NULL;
    ZONAL_NEED(spec, "spec");
    if (spec->weights || !spec->spectrum ||
        (unsigned)spec->family >= (unsigned)zonal__family_count ||
        !zonal__families[spec->family].given)
        return create(spec, dim, out);
    read = *spec;
    ZONAL_TRY(ZONAL_NEW(&weights, ZONAL__MOST_WEIGHTS, "the spectrum's weights"));
    status = zonal__list_double(spec->spectrum, "spectrum", ZONAL__MOST_WEIGHTS, weights,
                                &read.n_weights);
    read.weights = weights;
    if (status == ZONAL_OK) status = create(&read, dim, out);
    zonal__free(weights);
    return status;
}

void zonal_kernel_destroy(zonal_kernel *kernel) {
    if (!kernel) return;
    if (kernel->family->given) zonal__free((void *)kernel->spec.weights);
    zonal__free(kernel->a);
    zonal__free(kernel->kappa);
    zonal__free(kernel->node_weight);
    zonal__fit_destroy(kernel->log_phi);
    zonal__free(kernel);
}

/* The record's functions stand for the kernel with multiplicities. */
static int is_closed(const zonal_kernel *kernel) {
    return kernel->family->derivative && !kernel->spec.without_multiplicity;
}

long double zonal__kernel_derivative(const zonal_kernel *kernel, int order, long double c) {
    if (is_closed(kernel)) return kernel->family->derivative(kernel, order, c);
    if (order == 0) return zonal__series(0, kernel->degrees, kernel->a, kernel->dim, c);
    return zonal__series_derivative(kernel->degrees, kernel->a, kernel->dim, order, c);
}

long double zonal__kernel_centred(const zonal_kernel *kernel, long double c) {
    long double norm = kernel->one_minus_a0;
    if (is_closed(kernel)) return 1 - kernel->family->deficit(kernel, c) / norm;
    /* The series without its first term: l = 0 is left out, never subtracted. */
    return zonal__series(1, kernel->degrees, kernel->a, kernel->dim, c) / norm;
}

#define CONSTANTS_SIZED ZONAL__SIZED(zonal_kernel_constants, bias)

zonal_status zonal_kernel_constants_get(const zonal_kernel *kernel, zonal_kernel_constants *out) {
    zonal_kernel_constants full = ZONAL_KERNEL_CONSTANTS_INIT;
    long double area, derivative;
    ZONAL_NEED(out, "constants");
    ZONAL_TRY(zonal__sized_write(CONSTANTS_SIZED, &full, out));
    ZONAL_NEED(kernel, "kernel");
    area = zonal__log_sphere_area(kernel->dim);
    derivative = zonal__kernel_derivative(kernel, 1, 1);
    full = (zonal_kernel_constants){
        .bias = (double)expl(kernel->log_a0),
        .log_bias = (double)kernel->log_a0,
        .mmd_norm = (double)kernel->one_minus_a0,
        .ksd_norm = (double)((long double)(kernel->dim - 1) / 2 * derivative),
        .kl_norm = (double)fmaxl(-area, -kernel->log_a0),
        .kl_norm_paper = (double)-area,
        .log_area = (double)area,
        .derivative = (double)derivative,
        .curvature = (double)zonal__kernel_derivative(kernel, 2, 1),
        .degrees = kernel->degrees,
        .nodes = kernel->nodes,
    };
    return zonal__sized_write(CONSTANTS_SIZED, &full, out);
}

static zonal_status check_cosines(int64_t n, const double *c, const double *out) {
    if (n > 0 && (!c || !out))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must not be NULL for %lld cosines", c ? "out" : "c",
                          (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (!(c[i] >= -1 && c[i] <= 1))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "c[%lld] = %g is not a cosine: it must be in [-1, 1]",
                              (long long)i, c[i]);
    return ZONAL_OK;
}

zonal_status zonal_kernel_eval(const zonal_kernel *kernel, int order, int64_t n, const double *c,
                               double *out) {
    ZONAL_NEED(kernel, "kernel");
    if (order < 0 || order > 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the order of a derivative must be 0, 1 or 2, got %d",
                          order);
    ZONAL_TRY(check_cosines(n, c, out));
    for (int64_t i = 0; i < n; i++) out[i] = (double)zonal__kernel_derivative(kernel, order, c[i]);
    return ZONAL_OK;
}

zonal_status zonal_kernel_log_eval(const zonal_kernel *kernel, int64_t n, const double *c,
                                   double *out) {
    ZONAL_NEED(kernel, "kernel");
    if (!kernel->log_phi)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "this kernel was made without its logarithm; set log_profile = 1");
    ZONAL_TRY(check_cosines(n, c, out));
    for (int64_t i = 0; i < n; i++) out[i] = zonal__fit_value(kernel->log_phi, c[i]);
    return ZONAL_OK;
}

double zonal_kernel_weight(const zonal_kernel *kernel, int l) {
    return kernel && l >= 0 && l < kernel->degrees ? (double)kernel->a[l] : 0;
}

double zonal_kernel_log_multiplicity(const zonal_kernel *kernel, int l) {
    if (!kernel || l < 0 || l >= kernel->degrees) return -INFINITY;
    return (double)zonal__log_multiplicity(l, kernel->dim);
}
