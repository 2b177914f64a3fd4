/*
 * zonal/kernel.h - rotation-invariant ("zonal") kernels on the unit sphere S^{d-1} of R^d.
 *
 * A kernel is a profile phi of the cosine c = x.y with phi(1) = 1 and a non-negative spectrum,
 *
 *     phi(c) = sum_l a_l P_l(c),   a_l >= 0,   sum_l a_l = 1,   a_l proportional to w_l N_l,
 *
 * where P_l is the Gegenbauer polynomial of degree l scaled to P_l(1) = 1, N_l is the number of
 * independent harmonics of degree l, and L_l = l(l+d-2) is their Laplacian eigenvalue.
 *
 *     family     w_l or phi                                        parameter, its default
 *     heat       w_l = exp(-t L_l)                                 t > 0: 5/d, for KL 2/d
 *     band       w_l = 1 for l <= L, 0 beyond                      L from 1 to 64: 2
 *     induced    phi(c) = integral exp(-(1-c) s^2 u^2) rho_d(u) du s^2 > 0: d
 *     poisson    w_l = r^l                                         0 < r < 1: 0.3 log(d)/d
 *     chordal    phi(c) = 1 - sqrt((1-c)/2)                        none
 *     spectrum   w_l given, w_l >= 0, not all zero beyond l = 0    the weights
 *
 * The weight N_l is the addition theorem's: it is what reproduces the paper's Figure 3 (the other
 * reading, a_l proportional to w_l, is the option without_multiplicity). The induced
 * kernel is the limit of SUSReg over infinitely many slices (the paper, section 3); s^2 = d stands
 * for embeddings scaled to unit variance per coordinate, s^2 = 1 for the formula as printed.
 *
 * Accuracy, in double, for d from 2 to 4096, t from 1/d to 20/d and L to 64, tested against
 * 50-digit arithmetic: phi, phi', phi'' within 1e-13 of their value at c = 1; log phi within 2e-13
 * max(|log phi(c)|, -log a_0) wherever phi(c) >= 1e-250, continued linearly below; constants within
 * 1e-12 of their value.
 *
 * A zonal_kernel does not change after it is created: any number of threads may use it at once.
 */
#ifndef ZONAL_KERNEL_H
#define ZONAL_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "zonal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum zonal_family {
    ZONAL_FAMILY_HEAT = 0,
    ZONAL_FAMILY_BAND = 1,
    ZONAL_FAMILY_INDUCED = 2,
    ZONAL_FAMILY_POISSON = 3,
    ZONAL_FAMILY_CHORDAL = 4,
    ZONAL_FAMILY_SPECTRUM = 5
} zonal_family;

/* A number that may go with the dimension: factor * d^power. {5, -1} is 5/d, {1, 1} is d. */
typedef struct zonal_number {
    double factor;
    int power; /* -1, 0 or 1 */
} zonal_number;

/* What kernel to make. Zero-initialise and set what the family needs. */
typedef struct zonal_kernel_spec {
    zonal_family family;
    zonal_number parameter; /* of the family; factor 0: its default */
    const double *weights;  /* [n_weights]: w_0, w_1, ...; copied */
    const char *spectrum;   /* the same as text, "1,0.5,0.25", read where weights is NULL; must
                             * last until the kernel or plan is made */
    int n_weights;
    /* 1: a_l proportional to w_l alone, the other reading of the paper's "normalised Gegenbauer
     * polynomials", for heat, band, poisson and spectrum. It cannot reproduce the paper's Figure 3.
     */
    int without_multiplicity;
    int log_profile; /* 1: prepare log phi too (what KL needs); fails unless phi > 0 on [-1, 1] */
    uint64_t reserved[8]; /* zeros */
} zonal_kernel_spec;

typedef struct zonal_kernel zonal_kernel;

/* Makes the kernel on S^{dim-1}, 2 <= dim <= 4096. *kernel is NULL on failure. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_kernel_create(const zonal_kernel_spec *spec,
                                                          int64_t dim, zonal_kernel **kernel);
ZONAL_API void zonal_kernel_destroy(zonal_kernel *kernel);

/* The same without structs, for bindings: a family by name, and as one text the options of it that
 * zonal_loss_set lists (NULL or "": its defaults), log phi wherever the kernel is positive:
 *
 *     zonal_kernel_make("heat", "t=5/d", 256, &kernel)
 *     zonal_kernel_make("spectrum", "spectrum=1,0.5,0.25", 256, &kernel)
 */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_kernel_make(const char *family, const char *options,
                                                        int64_t dim, zonal_kernel **kernel);

/* The constants of the paper's section 6, and a few more. */
typedef struct zonal_kernel_constants {
    size_t size;          /* ZONAL_KERNEL_CONSTANTS_INIT sets it */
    double bias;          /* a_0: the mean of phi over uniform pairs; C_bias of MMD */
    double log_bias;      /* log a_0, right also where a_0 underflows */
    double mmd_norm;      /* 1 - a_0, without cancellation: C_norm of MMD */
    double ksd_norm;      /* (d-1) phi'(1) / 2: C_norm of KSD; infinite for chordal */
    double kl_norm;       /* max(-log area, -log a_0): C_norm of KL, always positive */
    double kl_norm_paper; /* -log area: the paper's, negative for d <= 18 */
    double log_area;      /* log |S^{d-1}| */
    double derivative;    /* phi'(1); infinite for chordal */
    double curvature;     /* phi''(1); infinite for chordal */
    int degrees;          /* spectrum terms kept: l = 0 ... degrees - 1 */
    int nodes;            /* quadrature nodes in use (induced), 0 otherwise */
} zonal_kernel_constants;
#define ZONAL_KERNEL_CONSTANTS_INIT ZONAL_SIZED_INIT(zonal_kernel_constants)

/* Fails only for NULL and a wrong size: ZONAL_ARGUMENT. */
ZONAL_API zonal_status zonal_kernel_constants_get(const zonal_kernel *kernel,
                                                  zonal_kernel_constants *constants);

/* The same by name, for bindings: bias, log-bias, mmd-norm, ... as in the struct;
 * zonal_kernel_constant_name(i) is the i-th name, NULL past the last. An unknown one is
 * ZONAL_ARGUMENT. */
ZONAL_API const char *zonal_kernel_constant_name(int i);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_kernel_get(const zonal_kernel *kernel, const char *name,
                                                       double *number);

/* out[i] = the derivative of order 0, 1 or 2 of phi at c[i], for n cosines in [-1, 1]. Chordal has
 * no finite derivative at c = 1: infinity there. With n = 0 the arrays may be NULL. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_kernel_eval(const zonal_kernel *kernel, int order,
                                                        int64_t n, const double *c, double *out);

/* out[i] = log phi(c[i]); the kernel must have been created with log_profile = 1. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_kernel_log_eval(const zonal_kernel *kernel, int64_t n,
                                                            const double *c, double *out);

/* Degree l of the spectrum: a_l and log N_l; 0 and -inf beyond the last degree kept, or NULL. */
ZONAL_API double zonal_kernel_weight(const zonal_kernel *kernel, int l);
ZONAL_API double zonal_kernel_log_multiplicity(const zonal_kernel *kernel, int l);

/* "heat", "band", ... and back; *family is left alone when the name is not known. */
ZONAL_API const char *zonal_family_name(zonal_family family);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_family_parse(const char *name, zonal_family *family);

#ifdef __cplusplus
}
#endif
#endif
