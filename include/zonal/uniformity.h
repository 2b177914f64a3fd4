/*
 * zonal/uniformity.h - is this set of directions uniform on the sphere? Has it collapsed?
 *
 * Every test is a kernel: with psi = sum over l >= 1 of b_l P_l, psi(1) = 1, the statistic is the
 * off-diagonal sum
 *
 *     T = 1/n sum over i != j of psi(x_i.x_j)  =  n D - 1,
 *
 * which has mean 0 for independent uniform points, grows when points attract each other, and falls
 * when they repel each other. Its law for uniform points tends to sum_l b_l (chi2(N_l)/N_l - 1);
 * here T is divided by sqrt(1 - 1/n), which makes its variance exact at every n. p is the upper
 * tail (too clustered), p_lower the lower one (too even: what training for uniformity produces).
 *
 *     rayleigh    degree 1 alone                 a preferred direction
 *     bingham     degree 2 alone                 preferred axes, missing dimensions
 *     gine        chordal kernel (Gine S_n, Bakshaev)  anything, mostly low degrees
 *     poisson     Poisson kernel, r = 0.3 log(d)/d
 *     heat-0.7, heat-1, heat-1.4   heat kernel at t = (.7, 1, 1.4) log(d)/d: fine to coarse
 *     ksd         KSD under heat, t = log(d)/d
 *     induced     the kernel behind SUSReg, s^2 = d
 *     heat-t      heat at a t of the caller's
 *
 * rayleigh and bingham are linear in n; the rest look at all pairs, and are skipped (and said to
 * be) beyond pair_limit rows. For t below .7 log(d)/d the limit law's tail is wrong by an order of
 * magnitude: such a test gets a Monte Carlo p-value or none.
 */
#ifndef ZONAL_UNIFORMITY_H
#define ZONAL_UNIFORMITY_H

#include <stdint.h>

#include "zonal/loss.h"
#include "zonal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise for the defaults. */
typedef struct zonal_uniformity_options {
    int64_t monte_carlo; /* simulated uniform batches for Monte Carlo p-values; 0: none */
    uint64_t seed;
    double t;           /* also test with heat at this t; 0: no */
    int64_t pair_limit; /* rows beyond which pairs are not looked at; 0: 20,000 */
    double level;       /* of the verdict's tests, shared among them; 0: .01 */
    int unit_rows;
    zonal_precision precision; /* of x: ZONAL_DOUBLE or ZONAL_FP32 */
    int threads;               /* 0: one for each processor; more than 4 for each are not taken */
    /* Called from time to time with the share done; a non-zero return stops with ZONAL_CANCELLED.
     */
    int (*progress)(void *context, double share);
    void *progress_context;
} zonal_uniformity_options;

typedef struct zonal_uniformity_test {
    const char *name;
    double statistic;    /* T */
    double sd;           /* of T for n uniform points: exact */
    double p, p_lower;   /* by Monte Carlo when it was asked for, else from the limit law */
    double p_asymptotic; /* from the limit law; NaN where it does not hold */
    double p_asymptotic_lower;
    double log10_p;       /* of p_asymptotic, also where that underflows */
    double p_monte_carlo; /* (1 + replicates at least as large)/(1 + replicates); NaN without */
    double p_monte_carlo_lower;
    char note[128]; /* empty, or what to know about this row */
} zonal_uniformity_test;

enum { ZONAL_UNIFORMITY_TESTS = 10, ZONAL_UNIFORMITY_DEGREES = 6 };

typedef struct zonal_uniformity_degree {
    double excess; /* T with b_l = 1: 0 +- sd for uniform points, n - 1 at collapse */
    double sd;
} zonal_uniformity_degree;

typedef struct zonal_uniformity_report {
    int64_t n, d;
    int tests;
    zonal_uniformity_test test[ZONAL_UNIFORMITY_TESTS];
    int degrees;                                              /* 2, or 6 with pairs */
    zonal_uniformity_degree degree[ZONAL_UNIFORMITY_DEGREES]; /* degree[l-1] */
    double mean_resultant;                                    /* |mean x|: 1 at collapse */
    double mean_resultant_expected; /* its root mean square for uniform points: 1/sqrt(n) */
    double effective_rank;          /* RankMe: exp of the entropy of the singular values' shares */
    double effective_rank_expected; /* for uniform points (Marchenko-Pastur) */
    double directions;              /* participation ratio 1/sum of squared variance shares */
    double directions_expected;     /* for uniform points */
    double nearest_angle; /* mean angle to the nearest neighbour, degrees; NaN if skipped */
    double nearest_angle_expected; /* for uniform points, degrees */
    int64_t monte_carlo;           /* replicates used */
    char verdict[512];             /* one or two sentences */
    char skipped[256];             /* what was left out and why; empty when nothing was */
} zonal_uniformity_report;

/* Tests x [n][d] (float or double by options->precision; rows are normalised unless unit_rows).
 * n >= 2, 2 <= d <= 4096. On failure the report is zeroed. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_uniformity_run(const zonal_uniformity_options *options,
                                                           int64_t n, int64_t d, const void *x,
                                                           zonal_uniformity_report *report);

#ifdef __cplusplus
}
#endif
#endif
