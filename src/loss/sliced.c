#include "loss/sliced.h"

#include <math.h>

#include "core/memory.h"
#include "core/sized.h"
#include "math/quadrature.h"

enum { MAX_KNOTS = 4096, MAX_NODES = 4096 };

static const double PI = 3.141592653589793;

static zonal_status check(const zonal_sliced_options *options, double scale) {
    if (options->slices < 1 || options->slices > INT32_MAX)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "slices must be at least 1, got %lld",
                          (long long)options->slices);
    if (options->knots < 2 || options->knots > MAX_KNOTS)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "knots must be from 2 to %d, got %lld", MAX_KNOTS,
                          (long long)options->knots);
    if (!zonal__is_zero(options->reserved, sizeof options->reserved))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the reserved room of a zonal_sliced_options is not zero; begin with "
                          "zonal_loss_defaults, or use the libzonal that the program was built "
                          "with");
    if (!(options->low < options->high && options->low > -1e3 && options->high < 1e3))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the knots' range must have low < high, both within 1000, got [%g, %g]",
                          options->low, options->high);
    if (!(scale > 0 && scale <= ZONAL__SLICED_SCALE))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "scale must be above 0 and at most %g, got %g",
                          ZONAL__SLICED_SCALE, scale);
    return ZONAL_OK;
}

/* The characteristic function of the sphere's marginal times s at the knots: 0F1(; d/2; -(st)^2/4),
 * as a mean of cosines. The alternating series would lose every digit from s t = 60 on; the rule is
 * doubled until nothing changes. */
static zonal_status sphere_targets(const zonal__sliced *sliced, int64_t dim, double *target) {
    zonal_status status = ZONAL_OK;
    double change = 1;
    for (int n = 32; n <= MAX_NODES; n *= 2) {
        long double *node = NULL, *weight = NULL;
        ZONAL_TRY_GOTO(status, next, ZONAL_NEW(&node, n, "the quadrature's nodes"));
        ZONAL_TRY_GOTO(status, next, ZONAL_NEW(&weight, n, "the quadrature's weights"));
        ZONAL_TRY_GOTO(status, next, zonal__gauss_sphere(n, dim, node, weight));
        change = 0;
        for (int k = 0; k < sliced->knots; k++) {
            long double t = ((long double)sliced->knot0 + k * (long double)sliced->step) *
                            (long double)sliced->row_scale;
            long double sum = 0;
            for (int i = 0; i < n; i++) sum += weight[i] * cosl(t * node[i]);
            change = fmax(change, fabs((double)sum - target[k]));
            target[k] = (double)sum;
        }
    next:
        zonal__free(node);
        zonal__free(weight);
        if (status != ZONAL_OK) return status;
        if (n > 32 && change <= 1e-16) return ZONAL_OK;
    }
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "knots up to %g with scale %g turn too fast for the quadrature in dimension "
                      "%lld; choose a smaller range or scale",
                      sliced->knot0 + (sliced->knots - 1) * sliced->step,
                      sliced->row_scale * sliced->row_scale, (long long)dim);
}

/* The trapezoid rule on the knots as given. A range [-a, a] is folded onto [0, a], since the
 * statistic is even in t; a range that starts at 0 or above stands for both sides, as in LeJEPA. */
static void place_knots(const zonal_sliced_options *options, zonal__sliced *sliced,
                        double *weight) {
    int knots = (int)options->knots, folded = options->low == -options->high;
    double step = (options->high - options->low) / (knots - 1);
    int skip = folded ? knots / 2 : 0;
    sliced->step = step;
    sliced->knots = knots - skip;
    sliced->knot0 = folded ? (knots % 2 ? 0 : step / 2) : options->low;
    for (int k = 0; k < sliced->knots; k++) {
        int original = k + skip;
        int end = original == knots - 1 || (original == 0 && !folded);
        int both = folded ? !(knots % 2 && k == 0) : options->low >= 0;
        weight[k] = step * (end ? 0.5 : 1) * (both ? 2 : 1);
    }
}

/* exp(i tau a.u) = sum over l of i^l N_l j_l(tau) P_l(a.u), so the mean over directions of
 * exp(i tau a.(u - v)) has N_l j_l(tau)^2 at degree l; j_2 is (tau/2)^2/((d/2)(d/2+1)) times the
 * marginal's characteristic function in d + 4 dimensions. */
static zonal_status sphere_anisotropy(const zonal__sliced_tables *tables, int64_t dim, double *q) {
    const zonal__sliced *sliced = &tables->sliced;
    double d = (double)dim, multiplicity = (d - 1) * (d + 2) / 2;
    double *marginal;
    zonal_status status;
    *q = 0;
    ZONAL_TRY(ZONAL_NEW(&marginal, sliced->knots, "the knots"));
    status = sphere_targets(sliced, dim + 4, marginal);
    for (int k = 0; status == ZONAL_OK && k < sliced->knots; k++) {
        double tau = (sliced->knot0 + k * sliced->step) * sliced->row_scale;
        double j2 = tau * tau / (d * (d + 2)) * marginal[k];
        *q += tables->weight[k] * multiplicity * j2 * j2 / tables->divisor * d / (d - 1);
    }
    zonal__free(marginal);
    return status;
}

/* SIGReg of normal rows with the covariance d M, tr M = 1: along a their variance is 1 + v, where
 * v = a.(d M - I) a has the mean square 2 |d M - I|^2/(d (d + 2)), and the characteristic function
 * exp(-t^2 (1 + v)/2) is -v t^2/2 exp(-t^2/2) off its target. */
static double normal_anisotropy(const zonal__sliced_tables *tables, int64_t dim) {
    const zonal__sliced *sliced = &tables->sliced;
    double d = (double)dim, sum = 0;
    for (int k = 0; k < sliced->knots; k++) {
        double t = sliced->knot0 + k * sliced->step, off = t * t / 2 * tables->target[k];
        sum += tables->weight[k] * off * off / tables->divisor;
    }
    return 2 * d / (d + 2) * sum;
}

/* The value at collapse is a difference from 1: a share of the weights' sum below this has less
 * than six digits, and nothing should be divided by it. */
static const double LEAST_COLLAPSE = 1e-10;

static zonal_status check_divisor(const zonal__sliced *sliced, double collapse, double scale) {
    double sum = 0;
    for (int k = 0; k < sliced->knots; k++) sum += sliced->weight[k];
    if (collapse > LEAST_COLLAPSE * sum) return ZONAL_OK;
    return ZONAL_FAIL(
        ZONAL_ARGUMENT,
        "the sliced loss is divided by its value at collapse, which is too near 0 with "
        "knots up to %g and scale %g; choose a wider range or a larger scale",
        sliced->knot0 + (sliced->knots - 1) * sliced->step, scale);
}

zonal_status zonal__sliced_init(zonal_discrepancy discrepancy, const zonal_sliced_options *options,
                                double scale, int64_t dim, zonal__sliced_tables *tables) {
    int susreg = discrepancy == ZONAL_DISCREPANCY_SUSREG;
    zonal__sliced *sliced = &tables->sliced;
    *tables = (zonal__sliced_tables){0};
    if (scale == 0 || !susreg) scale = (double)dim;
    ZONAL_TRY(check(options, scale));
    ZONAL_TRY(ZONAL_NEW(&tables->weight, options->knots, "the knots"));
    ZONAL_TRY(ZONAL_NEW(&tables->target, options->knots, "the knots"));
    sliced->slices = options->slices;
    sliced->seed = options->seed;
    sliced->raw_rows = !susreg;
    sliced->row_scale = susreg ? sqrt(scale) : 1;
    sliced->weight = tables->weight;
    sliced->target = tables->target;
    place_knots(options, sliced, tables->weight);
    if (susreg) ZONAL_TRY(sphere_targets(sliced, dim, tables->target));
    double collapse = 0, bend = 0;
    for (int k = 0; k < sliced->knots; k++) {
        double t = sliced->knot0 + k * sliced->step, gauss = exp(-t * t / 2);
        double *target = &tables->target[k];
        /* The paper's Lemma 1 has the normal density as weight, LeJEPA's code has no 1/sqrt(2 pi).
         */
        tables->weight[k] *= susreg ? gauss / sqrt(2 * PI) : gauss;
        if (!susreg) *target = gauss;
        collapse +=
            tables->weight[k] * (susreg ? 1 - *target * *target : (1 - *target) * (1 - *target));
        /* of cos(t u) about u = 0: on the sphere its square's mean, else its distance from the
         * target */
        bend += tables->weight[k] * t * t * (susreg ? scale / (double)dim : 1 - *target);
    }
    if (options->collapse_normalised) ZONAL_TRY(check_divisor(sliced, collapse, scale));
    tables->divisor = options->collapse_normalised ? collapse : 1;
    tables->derivative = bend / tables->divisor;
    if (susreg) return sphere_anisotropy(tables, dim, &tables->anisotropy);
    tables->anisotropy = normal_anisotropy(tables, dim);
    return ZONAL_OK;
}

void zonal__sliced_fini(zonal__sliced_tables *tables) {
    zonal__free(tables->weight);
    zonal__free(tables->target);
    *tables = (zonal__sliced_tables){0};
}
