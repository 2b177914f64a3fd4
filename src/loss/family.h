/*
 * The kernel families, a record each: what it is called, its parameter, and how its spectrum and
 * its profile are made. Everything else about a family follows from its record: method names,
 * checks, the program's options and help, JSON, plots.
 *
 * A family given by weights w_l needs no more than their ratio; the profile, its derivatives and
 * log phi then come from the series. A family with a closed form brings the functions that are more
 * accurate than the series.
 */
#ifndef ZONAL_LOSS_FAMILY_H
#define ZONAL_LOSS_FAMILY_H

#include "core/json.h"
#include "loss/kernel.h"
#include "zonal/loss.h"

typedef struct zonal__family {
    const char *name;

    /* The parameter; option NULL: there is none. */
    const char *option;  /* its name in options and JSON: "band" */
    const char *symbol;  /* its name in formulas: "L" */
    const char *metavar; /* in the help */
    const char *help;
    int whole;          /* 1: a whole number */
    double least, most; /* bounds of the value */
    int above, below;   /* 1: the bound itself is excluded */
    double option_most; /* the option's bound, where a sliced loss takes more; 0: most */
    zonal_number (*initial)(int64_t dim, zonal_discrepancy discrepancy);

    const char *method[ZONAL_DISCREPANCY_KL + 1]; /* by zonal_discrepancy; NULL: there is none */
    int series;               /* 1: degrees end, so moments may serve where the last is 2 */
    int weighted;             /* 1: made of weights, which multiplicities may be left out of */
    int given;                /* 1: the weights are the caller's */
    const char *not_positive; /* what phi is somewhere, so that KL cannot use it; NULL: positive */
    int infinite_derivative;  /* 1: phi'(1) is infinite, so there is no gradient */

    /* What is wrong with a spec beyond its parameter's bounds. NULL: nothing can be. */
    zonal_status (*check)(const zonal_kernel_spec *spec);
    /* Fills degrees, a, log_a0 and one_minus_a0. What was allocated stays in the kernel on failure.
     */
    zonal_status (*build)(zonal_kernel *kernel);
    /* w_{l+1}/w_l, for zonal__spectrum_chain. */
    long double (*ratio)(const zonal_kernel *kernel, int64_t l);

    /* The profile without its series; all three or none. */
    long double (*derivative)(const zonal_kernel *kernel, int order, long double c);
    long double (*deficit)(const zonal_kernel *kernel, long double c); /* 1 - phi(c) */
    long double (*log)(const zonal_kernel *kernel, long double c);     /* NULL: phi has zeros */

    /* Fits log phi from its series, where there is no closed form. */
    zonal_status (*fit_log)(const zonal_kernel *kernel, zonal__fit **fit);
} zonal__family;

extern const zonal__family zonal__families[]; /* by zonal_family */
extern const int zonal__family_count;
extern const char *const zonal__family_words[]; /* their names; ends with NULL */

/* The record of a family; NULL, with an error, for a number that is none. */
const zonal__family *zonal__family_of(zonal_family family);

/* ZONAL_ARGUMENT where losses under the kernel have no gradient. */
zonal_status zonal__family_check_gradient(const zonal__family *family);

/* The parameter's value in dimension dim: the spec's, or the default for this discrepancy. */
double zonal__family_parameter(const zonal_kernel_spec *spec, int64_t dim,
                               zonal_discrepancy discrepancy);

/* The parameter as people write it: "t = 5/d = 0.01953125", "L = 2"; "" where there is none. */
void zonal__family_describe(const zonal_kernel_spec *spec, int64_t dim,
                            zonal_discrepancy discrepancy, char *out, size_t size);

/* The same as a member of a JSON object; nothing where there is none. */
void zonal__family_put_json(zonal_family family, double value, zonal__json *json);

#endif
