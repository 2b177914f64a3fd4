#include "loss/kernel.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "loss/spectrum.h"
#include "math/harmonics.h"

enum { MAX_DIM = 4096, MAX_BAND = 64, MAX_WEIGHTS = 4096 };
static const double MAX_SCALE = 1e4;

static const char *const family_names[] = {"heat",    "band",    "induced",
                                           "poisson", "chordal", "spectrum"};

const char *zonal_family_name(zonal_family family) {
    return (unsigned)family < 6 ? family_names[family] : "?";
}

zonal_status zonal_family_parse(const char *name, zonal_family *family) {
    ZONAL_NEED(name, "name");
    ZONAL_NEED(family, "family");
    for (int i = 0; i < 6; i++)
        if (strcmp(name, family_names[i]) == 0) {
            *family = (zonal_family)i;
            return ZONAL_OK;
        }
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "unknown kernel '%s'; there are heat, band, induced, poisson, chordal and "
                      "spectrum",
                      name);
}

static zonal_status check_weights(const zonal_kernel_spec *spec) {
    int beyond = 0;
    if (spec->n_weights < 2 || spec->n_weights > MAX_WEIGHTS || !spec->weights)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a spectrum needs 2 to %d weights, got %d", MAX_WEIGHTS,
                          spec->weights ? spec->n_weights : 0);
    for (int l = 0; l < spec->n_weights; l++) {
        if (!(spec->weights[l] >= 0 && spec->weights[l] < INFINITY))
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "weight %d of the spectrum is %g; weights must be finite and not "
                              "negative",
                              l, spec->weights[l]);
        beyond |= l > 0 && spec->weights[l] > 0;
    }
    if (!beyond)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the spectrum has no weight beyond degree 0, so every batch looks the "
                          "same to it; make one of the later weights positive");
    return ZONAL_OK;
}

/* Fills defaults in and refuses what is out of range. */
static zonal_status check_spec(zonal_kernel_spec *spec, int64_t dim) {
    double d = (double)dim;
    if (dim < 2 || dim > MAX_DIM)
        return ZONAL_FAIL(ZONAL_SHAPE, "the dimension must be from 2 to %d, got %lld", MAX_DIM,
                          (long long)dim);
    if (spec->without_multiplicity &&
        (spec->family == ZONAL_INDUCED || spec->family == ZONAL_CHORDAL))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the %s kernel is not given by weights, so there is "
                          "nothing to leave multiplicities out of",
                          zonal_family_name(spec->family));
    switch (spec->family) {
    case ZONAL_HEAT:
        if (spec->t == 0) spec->t = 5 / d;
        if (!(spec->t > 0 && spec->t < INFINITY))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "t must be positive and finite, got %g", spec->t);
        break;
    case ZONAL_BAND:
        if (spec->band == 0) spec->band = 2;
        if (spec->band < 1 || spec->band > MAX_BAND)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "the band must be from 1 to %d, got %d", MAX_BAND,
                              spec->band);
        break;
    case ZONAL_INDUCED:
        if (spec->scale == 0) spec->scale = d;
        if (!(spec->scale > 0 && spec->scale <= MAX_SCALE))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "scale must be above 0 and at most %g, got %g",
                              MAX_SCALE, spec->scale);
        break;
    case ZONAL_POISSON:
        if (spec->r == 0) spec->r = 0.3 * log(d) / d;
        if (!(spec->r > 0 && spec->r < 1))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "r must be between 0 and 1, got %g", spec->r);
        break;
    case ZONAL_CHORDAL:
        break;
    case ZONAL_SPECTRUM:
        return check_weights(spec);
    default:
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no kernel family %d", (int)spec->family);
    }
    return ZONAL_OK;
}

static zonal_status build(zonal_kernel *kernel) {
    zonal_kernel_spec *spec = &kernel->spec;
    if (spec->family == ZONAL_SPECTRUM) {
        const double *given = spec->weights;
        double *copy;
        spec->weights = NULL; /* not ours to free if the next line fails */
        ZONAL_TRY(ZONAL_NEW(&copy, spec->n_weights, "the spectrum's weights"));
        memcpy(copy, given, (size_t)spec->n_weights * sizeof *copy);
        spec->weights = copy;
    }
    ZONAL_TRY(zonal__spectrum_build(kernel));
    if (spec->log_profile) ZONAL_TRY(zonal__kernel_fit_log(kernel, &kernel->log_phi));
    return ZONAL_OK;
}

zonal_status zonal_kernel_create(const zonal_kernel_spec *spec, int64_t dim, zonal_kernel **out) {
    zonal_kernel_spec checked;
    zonal_kernel *kernel;
    ZONAL_NEED(out, "kernel");
    *out = NULL;
    ZONAL_NEED(spec, "spec");
    checked = *spec;
    ZONAL_TRY(check_spec(&checked, dim));
    ZONAL_TRY(ZONAL_NEW(&kernel, 1, "a kernel"));
    kernel->spec = checked;
    kernel->dim = dim;
    zonal_status status = build(kernel);
    if (status == ZONAL_OK)
        *out = kernel;
    else
        zonal_kernel_destroy(kernel);
    return status;
}

void zonal_kernel_destroy(zonal_kernel *kernel) {
    if (!kernel) return;
    if (kernel->spec.family == ZONAL_SPECTRUM) zonal__free((void *)kernel->spec.weights);
    zonal__free(kernel->a);
    zonal__free(kernel->kappa);
    zonal__free(kernel->node_weight);
    zonal__fit_destroy(kernel->log_phi);
    zonal__free(kernel);
}

/* phi = (1 + 2r(1-c)/(1-r)^2)^(-d/2), which is exact near c = 1 too. */
static long double poisson_log(const zonal_kernel *kernel, long double c) {
    long double r = kernel->spec.r;
    return -(long double)kernel->dim / 2 * log1pl(2 * r * (1 - c) / ((1 - r) * (1 - r)));
}

static long double poisson_derivative(const zonal_kernel *kernel, int order, long double c) {
    long double r = kernel->spec.r, q = (1 - r) * (1 - r) + 2 * r * (1 - c);
    long double value = expl(poisson_log(kernel, c));
    for (int k = 0; k < order; k++) value *= ((long double)kernel->dim / 2 + k) * 2 * r / q;
    return value;
}

static long double chordal_derivative(int order, long double c) {
    long double s = sqrtl((1 - c) / 2); /* half the chord; s' = -1/(4 s) */
    switch (order) {
    case 0:
        return 1 - s;
    case 1:
        return 1 / (4 * s);
    case 2:
        return 1 / (16 * s * s * s);
    default:
        return 3 / (64 * s * s * s * s * s);
    }
}

static long double induced_derivative(const zonal_kernel *kernel, int order, long double c) {
    long double sum = 0;
    for (int k = 0; k < kernel->nodes; k++) {
        long double term = kernel->node_weight[k] * expl(-(1 - c) * kernel->kappa[k]);
        for (int i = 0; i < order; i++) term *= kernel->kappa[k];
        sum += term;
    }
    return sum;
}

long double zonal__kernel_derivative(const zonal_kernel *kernel, int order, long double c) {
    if (!zonal__kernel_is_series(kernel)) {
        if (kernel->spec.family == ZONAL_INDUCED) return induced_derivative(kernel, order, c);
        if (kernel->spec.family == ZONAL_POISSON) return poisson_derivative(kernel, order, c);
        return chordal_derivative(order, c);
    }
    if (order == 0) return zonal__series(0, kernel->degrees, kernel->a, kernel->dim, c);
    return zonal__series_derivative(kernel->degrees, kernel->a, kernel->dim, order, c);
}

/* 1 - phi(c) of the induced kernel: positive terms. */
static long double induced_deficit(const zonal_kernel *kernel, long double c) {
    long double sum = 0;
    for (int k = 0; k < kernel->nodes; k++)
        sum -= kernel->node_weight[k] * expm1l(-(1 - c) * kernel->kappa[k]);
    return sum;
}

long double zonal__kernel_centred(const zonal_kernel *kernel, long double c) {
    long double norm = kernel->one_minus_a0;
    if (!zonal__kernel_is_series(kernel)) {
        if (kernel->spec.family == ZONAL_INDUCED) return 1 - induced_deficit(kernel, c) / norm;
        if (kernel->spec.family == ZONAL_POISSON) return 1 + expm1l(poisson_log(kernel, c)) / norm;
        return 1 - sqrtl((1 - c) / 2) / norm;
    }
    /* The series without its first term: l = 0 is left out, never subtracted. */
    return zonal__series(1, kernel->degrees, kernel->a, kernel->dim, c) / norm;
}

long double zonal__kernel_log_closed(const zonal_kernel *kernel, long double c) {
    if (kernel->spec.family == ZONAL_POISSON) return poisson_log(kernel, c);
    long double deficit = induced_deficit(kernel, c);
    return deficit < 0.5L ? log1pl(-deficit) : logl(induced_derivative(kernel, 0, c));
}

void zonal_kernel_constants_get(const zonal_kernel *kernel, zonal_kernel_constants *out) {
    long double area, slope;
    if (!out) return;
    *out = (zonal_kernel_constants){0};
    if (!kernel) return;
    area = zonal__log_sphere_area(kernel->dim);
    slope = zonal__kernel_derivative(kernel, 1, 1);
    *out = (zonal_kernel_constants){
        .bias = (double)expl(kernel->log_a0),
        .log_bias = (double)kernel->log_a0,
        .mmd_norm = (double)kernel->one_minus_a0,
        .ksd_norm = (double)((long double)(kernel->dim - 1) / 2 * slope),
        .kl_norm = (double)fmaxl(-area, -kernel->log_a0),
        .kl_norm_paper = (double)-area,
        .log_area = (double)area,
        .slope = (double)slope,
        .curvature = (double)zonal__kernel_derivative(kernel, 2, 1),
        .degrees = kernel->degrees,
        .nodes = kernel->nodes,
    };
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
