/*
 * zonal/uniformity.h - is this set of directions uniform on the sphere? Has it collapsed?
 *
 * Every test is a kernel: with psi = sum over l >= 1 of b_l P_l, psi(1) = 1, the statistic is the
 * off-diagonal sum
 *
 *     T = 1/n sum over i != j of psi(x_i.x_j)  =  n D - 1,
 *
 * which has mean 0 for independent uniform points, grows when points attract each other, and falls
 * when they repel each other. Its null distribution tends to sum_l b_l (chi2(N_l)/N_l - 1);
 * here N_l n/(n-1) stands for N_l, which makes the variance exact at every n and leaves the lower
 * end, -1, where it is. p is the upper tail (too clustered), p_lower the lower one (too even: what
 * training for uniformity produces). In few dimensions and for few points p_lower is the rougher
 * one: on the circle uniform points fall below .01 with probability .015 at n = 10, .011 at 30 and
 * .010 at 100. Below 5 points both are rough, which a note says; Monte Carlo is exact at any n.
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
 * rayleigh and bingham are linear in n; the rest look at all pairs, and are skipped, with a note,
 * beyond pair_limit rows. For t below .7 log(d)/d the limit distribution's tail is wrong by an
 * order of magnitude: such a test gets a Monte Carlo p-value or none.
 *
 * The effective rank is that of the matrix of unit rows, mean included (Roy and Vetterli 2007;
 * RankMe, Garrido et al. 2023): with s_k its singular values, the exponential of the entropy of
 * s_k / sum of s. It is k for points spread evenly over k directions. Beside it stands what n
 * uniform points in d dimensions show, which is less than d. Another number of directions, the
 * participation ratio 1 / sum of (s_k^2 / sum of s^2)^2, is never larger; it is reported but
 * decides nothing.
 *
 * Points have collapsed, here, in `zonal train`, in `zonal eval` and in its reports, when
 *
 *     the mean cosine between them is above 0.95            to a point, or
 *     the effective rank is below 0.1 of the expected one   to few directions.
 *
 * These limits separate what was seen: of eleven recorded runs that spread out none had a mean
 * cosine above 0.03 or less than 0.14 of the expected rank after its first twentieth, and a
 * collapsed one of d = 256 shows 1 and 0.005. Between collapse and uniformity lies much that is
 * neither: a cone, or half of the directions. That is "not uniform".
 */
#ifndef ZONAL_UNIFORMITY_H
#define ZONAL_UNIFORMITY_H

#include <stddef.h>
#include <stdint.h>

#include "zonal/loss.h"
#include "zonal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Members that are zero have their defaults. */
typedef struct zonal_uniformity_options {
    size_t size;         /* ZONAL_UNIFORMITY_OPTIONS_INIT sets it */
    int64_t monte_carlo; /* simulated uniform batches for Monte Carlo p-values; 0: none */
    uint64_t seed;
    double t;           /* also test with heat at this t; 0: no */
    int64_t pair_limit; /* rows beyond which pairs are not looked at; 0: 20,000 */
    double level;       /* of the verdict's tests, shared among them; 0: .01 */
    int unit_rows;
    zonal_precision precision; /* of x: ZONAL_PRECISION_DOUBLE or ZONAL_PRECISION_FP32 */
    int64_t threads;           /* 0: one for each processor; more than 4 for each are not taken */
    /* Called from time to time with the share done; a non-zero return stops with ZONAL_CANCELLED.
     */
    int (*progress)(void *context, double share);
    void *progress_context;
} zonal_uniformity_options;
#define ZONAL_UNIFORMITY_OPTIONS_INIT ZONAL_SIZED_INIT(zonal_uniformity_options)

typedef struct zonal_uniformity_test {
    const char *name;
    double statistic;  /* T */
    double sd;         /* of T for n uniform points: exact */
    double p, p_lower; /* by Monte Carlo when it was asked for, else from the limit distribution */
    double p_asymptotic; /* from the limit distribution; NaN where it does not hold */
    double p_asymptotic_lower;
    double log10_p;       /* of p_asymptotic, also where that underflows */
    double p_monte_carlo; /* (1 + replicates at least as large)/(1 + replicates); NaN without */
    double p_monte_carlo_lower;
    char note[128]; /* empty, or what to know about this row */
    double reserved[8];
} zonal_uniformity_test;

/* The limits above. */
#define ZONAL_COLLAPSE_COSINE 0.95
#define ZONAL_COLLAPSE_RANK   0.1

typedef enum zonal_collapse {
    ZONAL_COLLAPSE_NONE = 0,
    ZONAL_COLLAPSE_TO_POINT = 1,     /* by the mean cosine */
    ZONAL_COLLAPSE_TO_DIRECTIONS = 2 /* by the effective rank */
} zonal_collapse;

/* The most that there are, and the room for them and for those to come. */
enum { ZONAL_UNIFORMITY_TESTS = 10, ZONAL_UNIFORMITY_DEGREES = 6 };
enum { ZONAL_UNIFORMITY_TEST_ROOM = 32, ZONAL_UNIFORMITY_DEGREE_ROOM = 16 };

typedef struct zonal_uniformity_degree {
    double excess; /* T with b_l = 1: 0 +- sd for uniform points, n - 1 at collapse */
    double sd;
} zonal_uniformity_degree;

typedef struct zonal_uniformity_report {
    size_t size; /* ZONAL_UNIFORMITY_REPORT_INIT sets it */
    int64_t n, d;
    int tests;
    zonal_uniformity_test test[ZONAL_UNIFORMITY_TEST_ROOM];
    int degrees;                                                  /* 2, or 6 with pairs */
    zonal_uniformity_degree degree[ZONAL_UNIFORMITY_DEGREE_ROOM]; /* degree[l-1] */
    double mean_resultant;                                        /* |mean x|: 1 at collapse */
    double mean_resultant_expected; /* its root mean square for uniform points: 1/sqrt(n) */
    double mean_cosine;    /* between different points: 0 for uniform ones, 1 at collapse */
    double effective_rank; /* as defined above */
    double effective_rank_expected; /* for uniform points (Marchenko-Pastur) */
    zonal_collapse collapse;        /* by the limits above */
    double directions;              /* the participation ratio */
    double directions_expected;     /* for uniform points */
    double nearest_angle; /* mean angle to the nearest neighbour, degrees; NaN if skipped */
    double nearest_angle_expected; /* for uniform points, degrees */
    int64_t monte_carlo;           /* replicates used */
    char verdict[512];             /* one or two sentences */
    char skipped[256];             /* what was left out and why; empty when nothing was */
} zonal_uniformity_report;
#define ZONAL_UNIFORMITY_REPORT_INIT ZONAL_SIZED_INIT(zonal_uniformity_report)

/* Tests x [n][d] (float or double by options->precision; rows are normalised unless unit_rows).
 * n >= 2, 2 <= d <= 4096. On failure the report is zeroed. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_uniformity_run(const zonal_uniformity_options *options,
                                                           int64_t n, int64_t d, const void *x,
                                                           zonal_uniformity_report *report);

/* ------------------------------------------------------------------------------------------------
 * The same without structs, for bindings: options as one text, and a report that is asked by name.
 *
 *     zonal_uniformity_make("mc=999,precision=double", 500, 64, x, NULL, NULL, &report)
 *     zonal_uniformity_get(report, "rayleigh.p", &p)
 *
 * The options are those of `zonal test`, and precision (double or fp32, the default):
 *   mc, seed, t (a number, NUMBER/d), pair-limit, level, threads, unit
 * "progress" may be NULL.
 */
typedef struct zonal_uniformity zonal_uniformity;
ZONAL_API ZONAL_MUST_USE zonal_status zonal_uniformity_make(
    const char *options, int64_t n, int64_t d, const void *x,
    int (*progress)(void *context, double share), void *context, zonal_uniformity **report);
ZONAL_API void zonal_uniformity_destroy(zonal_uniformity *report);

/* The i-th name of a report, NULL past the last; a text lasts as long as the report.
 *   numbers   the members of zonal_uniformity_report, with - for _: n, d, mean-cosine, ...; for the
 *             test NAME: NAME.statistic, NAME.sd, NAME.p, NAME.p-lower, NAME.p-asymptotic,
 *             NAME.p-asymptotic-lower, NAME.log10-p, NAME.p-monte-carlo, NAME.p-monte-carlo-lower;
 *             for each degree: degree-1.excess, degree-1.sd, ...
 *   texts     verdict, skipped, collapse (none, point or directions), NAME.note
 * An unknown name, or one of the other kind, is ZONAL_ARGUMENT. */
ZONAL_API const char *zonal_uniformity_name(const zonal_uniformity *report, int i);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_uniformity_get(const zonal_uniformity *report,
                                                           const char *name, double *number);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_uniformity_get_text(const zonal_uniformity *report,
                                                                const char *name,
                                                                const char **text);

#ifdef __cplusplus
}
#endif
#endif
