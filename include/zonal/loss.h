/*
 * zonal/loss.h - exact uniformity losses on the sphere, the sliced baselines, and the objective.
 *
 * Levels of use:
 *   1. a plan:       zonal_loss_defaults, zonal_plan_create, zonal_plan_execute: D and its gradient
 *                    for one batch [B, d];
 *   2. an objective: zonal_objective_create, zonal_objective_execute: alignment plus regulariser
 *                    over views [V, B, d], the paper's equation (2).
 *
 * Plan, then execute: creating a plan builds the kernel, fits its profile, chooses the
 * implementation and takes all memory; executing only runs. Two plans may run at the same time; one
 * plan must not be run by two threads at once. Results are the same bit for bit every time, for any
 * number of threads.
 *
 * The discrepancies, for unit rows x_i, c_ij = x_i.x_j, each scaled to 1 at total collapse:
 *
 *     MMD   D = mean over i, j of psi(c_ij),  psi = (phi - a_0)/(1 - a_0)
 *     KSD   D = mean over i, j of psi(c_ij),
 *           psi = ((c^2-1) phi'' + (d-1) c phi') / ((d-1) phi'(1))
 *     KL    D = 1 + (1/C_norm) mean over i of log( 1/(B-1) sum over j != i of phi(c_ij) )
 *
 * Gradients are with respect to the rows as given: D is a function of z through x = z/|z|, so each
 * row of the gradient is (g - (g.x) x)/|z|, tangent to the sphere. For rows declared unit, |z| = 1.
 * On the CPU a row so short that 1/|z| is out of the range of its type (|z| < 3e-39 in fp32, 6e-309
 * in double) fails as a zero row does when its gradient is wanted.
 *
 * Accuracy (tested against 50-digit arithmetic): double: D within 1e-12 of its value (KL: within
 * 1e-12 (1 + |mean log p|/C_norm)), gradients within 1e-11 of their norm; fp32: D within
 * 2e-6 D + 2e-11 (KL: 2e-6 (1 + |mean log p|/C_norm)), gradients within 1e-5 of their norm. The
 * bounds are the same on several ranks. What they do not cover:
 *
 *   - D where terms cancel, which is small for U and for a V in which the pairs take away the
 *     diagonal's 1/B: the bounds are then of the larger of |D| and 1/B.
 *   - Gradients that vanish by symmetry: the bounds are of what their norm would be if nothing
 *     cancelled.
 *   - Faint gradients of MMD and KSD, between distant rows under a narrow kernel: they are off by
 *     1e-16 (fp32: 1e-15) of G = 2/B psi'(1) (sum of 1/|z_i|^2)^(1/2), where that is more.
 *   - Steep kernels in fp32: a float cosine is off by 6e-8 and psi by psi'(1) times that, so from
 *     psi'(1) = 100 on (degree 64 on the circle) the bounds grow by psi'(1)/100, and that of D is
 *     of the larger of |D| and 1/B.
 *   - Several tight clusters in fp32: rows are centred on one mean, and gradients of clusters of
 *     spread s that do not feel each other are off by up to 1e-7/s of their norm. (One cluster,
 *     which is collapse, is as accurate as any other batch.)
 */
#ifndef ZONAL_LOSS_H
#define ZONAL_LOSS_H

#include <stddef.h>
#include <stdint.h>

#include "zonal/communicator.h"
#include "zonal/device.h"
#include "zonal/kernel.h"
#include "zonal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum zonal_discrepancy {
    ZONAL_DISCREPANCY_MMD = 0,
    ZONAL_DISCREPANCY_KSD = 1,
    ZONAL_DISCREPANCY_KL = 2,
    ZONAL_DISCREPANCY_SUSREG = 3,
    ZONAL_DISCREPANCY_SIGREG = 4
} zonal_discrepancy;

/* The element type of rows and gradient and the arithmetic of the products. On the CPU, fp32 plans
 * multiply in single precision and evaluate kernels and sums in double; tf32 and bf16 are CUDA's.
 */
typedef enum zonal_precision {
    ZONAL_PRECISION_DOUBLE = 0,
    ZONAL_PRECISION_FP32 = 1,
    ZONAL_PRECISION_TF32 = 2,
    ZONAL_PRECISION_BF16 = 3
} zonal_precision;

/* The element type of rows and gradients on CUDA; accumulation is in fp32 or better for all. */
typedef enum zonal_dtype {
    ZONAL_DTYPE_AUTO = 0, /* float; on the CPU, what the precision says */
    ZONAL_DTYPE_FP32 = 1,
    ZONAL_DTYPE_BF16 = 2,
    ZONAL_DTYPE_FP16 = 3,
    ZONAL_DTYPE_DOUBLE = 4 /* on the CPU, in double precision */
} zonal_dtype;

/* V keeps the pairs i = j, U leaves them out. Auto: V for MMD and KSD, U (leave one out) for KL. */
typedef enum zonal_estimator {
    ZONAL_ESTIMATOR_AUTO = 0,
    ZONAL_ESTIMATOR_V = 1,
    ZONAL_ESTIMATOR_U = 2
} zonal_estimator;

/* Auto: max(-log|S^{d-1}|, -log a_0). Paper: -log|S^{d-1}|, negative (so collapse is rewarded) for
 * d <= 18. */
typedef enum zonal_kl_norm { ZONAL_KL_NORM_AUTO = 0, ZONAL_KL_NORM_PAPER = 1 } zonal_kl_norm;

/* Which code computes it. Auto: slices for sliced losses, moments where the kernel has no degree
 * above 2 and they cost less, pairs otherwise. */
typedef enum zonal_implementation {
    ZONAL_IMPLEMENTATION_AUTO = 0,
    ZONAL_IMPLEMENTATION_REF = 1,   /* double, one thread, B x B array: the formula as printed */
    ZONAL_IMPLEMENTATION_PAIRS = 2, /* tiles of pairs, O(B^2 d) time, O(B d) memory */
    ZONAL_IMPLEMENTATION_MOMENTS =
        3,                          /* mean and second moment, O(B d^2) time, O(B d + d^2) memory */
    ZONAL_IMPLEMENTATION_SLICES = 4 /* random directions: SUSReg and SIGReg */
} zonal_implementation;

/* Options of SUSReg and SIGReg. The statistic of one direction a is
 *     EP(a) = sum_k weight_k |mean_i exp(i t_k a.u_i) - target(t_k)|^2
 * and the loss is its mean over the directions, which are redrawn for every (seed, step). */
typedef struct zonal_sliced_options {
    int64_t slices; /* default 1024: SPHERE-JEPA and LeJEPA, all runs */
    int64_t knots;  /* default 17, evenly spaced over [low, high]: LeJEPA */
    double low;     /* default -5 (SUSReg; LeJEPA's paper), 0 (SIGReg; LeJEPA's code) */
    double high;    /* default 5 (SUSReg), 3 (SIGReg) */
    uint64_t seed;  /* default 0 */
    int times_n;    /* multiply by B: default 0 (SUSReg: the paper's Lemma 1), 1 (SIGReg: LeJEPA) */
    /* divide by the expected value at collapse: default 1 (SUSReg, so that it is comparable with
     * D), 0 (SIGReg: LeJEPA). SIGReg's collapse is to the origin. */
    int collapse_normalised;
    uint64_t reserved[8]; /* zeros */
} zonal_sliced_options;

typedef struct zonal_loss_options {
    size_t size; /* ZONAL_LOSS_OPTIONS_INIT sets it */
    zonal_discrepancy discrepancy;
    zonal_kernel_spec kernel; /* MMD, KSD, KL; its scale is also SUSReg's */
    zonal_estimator estimator;
    zonal_kl_norm kl_norm;
    zonal_sliced_options sliced;
    int raw_value; /* 1: C_norm * D instead of D (MMD^2, KSD^2 and KL before normalisation) */
    int unit_rows; /* 1: rows are unit vectors already (checked to 1e-3), 0: normalise them */
    char device[ZONAL_DEVICE_NAME]; /* "cpu" (or ""), "cuda", "cuda:1" ...: zonal/device.h */
    zonal_precision precision;
    zonal_dtype dtype; /* CUDA */
    zonal_implementation implementation;
    int64_t threads; /* 0: one for each processor; more than 4 for each are not taken */
    /* NULL, or the ranks that hold a batch together: x and gradient are then this rank's rows, D is
     * that of all ranks' rows, and calls are collective (zonal/communicator.h). */
    const zonal_communicator *communicator;
} zonal_loss_options;
#define ZONAL_LOSS_OPTIONS_INIT ZONAL_SIZED_INIT(zonal_loss_options)

/* Fills *options with the defaults of a method by name: "mmd-heat", "kl-heat", "susreg", ... (see
 * zonal_method_name). An unknown name is ZONAL_ARGUMENT, and the sentence offers the nearest. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_loss_defaults(const char *method,
                                                          zonal_loss_options *options);
/* The i-th method's name, NULL past the last. */
ZONAL_API const char *zonal_method_name(int i);

/* Sets one option by its name and a text, as on the command line:
 *
 *     zonal_loss_set(&options, "t", "5/d");
 *     zonal_loss_set(&options, "precision", "tf32");
 *
 * The names, with what they set; zonal_loss_option_name and _help list them, NULL past the last:
 *   t, band, scale, r       the parameter of the method's kernel: a number, NUMBER/d or d
 *   spectrum                kernel.spectrum, "1,0.5,0.25"; the text is kept, not copied, and must
 *                           last until the plan is made
 *   without-multiplicity    yes or no, as all that is 0 or 1 in the struct
 *   kl-norm, estimator, implementation, device, precision, dtype
 *                           a word: "auto", "u", "cuda"
 *   slices, knots, range, times-n, collapse-norm, seed
 *                           of sliced losses; range: -5,5
 *   raw, unit, threads      raw_value, unit_rows, threads
 *
 * Refused are an unknown name (the sentence offers the nearest), a text that is no such value, and
 * an option that the method has no use for: ZONAL_ARGUMENT, and *options stays as it is. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_loss_set(zonal_loss_options *options, const char *name,
                                                     const char *text);
ZONAL_API const char *zonal_loss_option_name(int i);
ZONAL_API const char *zonal_loss_option_help(int i);

typedef struct zonal_plan zonal_plan;

/* Makes a plan for batches of "rows" rows in "dim" dimensions: 2 <= dim <= 4096, rows >= 2 (>= 3
 * for KL). *plan is NULL on failure.
 *
 * With a communicator "rows" is this rank's part of the batch, from 0 on, and the batch, whose
 * number of rows is bounded as above, is the ranks' parts one after another. Ranks that ask for
 * different plans are told which option differs: ZONAL_ARGUMENT on all of them. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_plan_create(const zonal_loss_options *options,
                                                        int64_t rows, int64_t dim,
                                                        zonal_plan **plan);
ZONAL_API void zonal_plan_destroy(zonal_plan *plan);

/* The same from texts alone: a method and its options, name=value with commas between them (NULL or
 * "": all at their defaults). What has no = belongs to the list before it:
 *
 *     zonal_plan_make("mmd-heat", "t=5/d,precision=double", 256, 128, &plan)
 *     zonal_plan_make("mmd-spectrum", "spectrum=1,0.5,0.25,threads=2", 256, 128, &plan)
 */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_plan_make(const char *method, const char *options,
                                                      int64_t rows, int64_t dim, zonal_plan **plan);
/* The same on several ranks; NULL: on one. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_plan_make_with(const zonal_communicator *communicator,
                                                           const char *method, const char *options,
                                                           int64_t rows, int64_t dim,
                                                           zonal_plan **plan);

/* Computes *value and, unless gradient is NULL, the gradient of *value with respect to x.
 *   x, gradient   [rows][dim], rows contiguous; float for ZONAL_PRECISION_FP32, double for
 *                 ZONAL_PRECISION_DOUBLE; must not overlap
 *
 * A row that is zero or not finite is ZONAL_NUMERIC, and the sentence names it; *value is then NaN
 * and the gradient unspecified. Chordal has no gradient: ZONAL_ARGUMENT. Several ranks all get the
 * same value or, with a bad row, the same sentence: it names the rank, and the row by its number in
 * the whole batch. On a device all of them ask for a gradient or none does; on the CPU each
 * rank decides for itself. A rank without rows may give NULL for x and, on the CPU, for the
 * gradient. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_plan_execute(zonal_plan *plan, const void *x,
                                                         double *value, void *gradient);

/* On CUDA (options.device "cuda", "cuda:1") x, value and gradient of zonal_plan_execute are device
 * memory, x and gradient of the options' dtype. Execution only enqueues work on the stream (a
 * cudaStream_t as void *; NULL, the default stream, at first): it allocates nothing, does not wait,
 * and can be captured in a CUDA graph. A bad row is noted on the device; zonal_plan_status waits
 * for the stream and reports it (the first such row since the last call). On the CPU status is
 * always ZONAL_OK. */
ZONAL_API void zonal_plan_set_stream(zonal_plan *plan, void *stream);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_plan_status(zonal_plan *plan);

/* Sets the step whose directions the next execution of a sliced loss draws (0 at first). */
ZONAL_API void zonal_plan_set_step(zonal_plan *plan, uint32_t step);
/* On a device: from now on a sliced loss reads its step from this word of the device's memory while
 * it is computed, instead of taking that of zonal_plan_set_step; NULL goes back to the latter. For
 * CUDA graphs, whose replays would otherwise draw the directions of the capture each time. The word
 * must stay as long as executions use it. Without effect on the CPU. */
ZONAL_API void zonal_plan_set_device_step(zonal_plan *plan, const uint32_t *step);

typedef struct zonal_plan_info {
    size_t size; /* ZONAL_PLAN_INFO_INIT sets it */
    double bias; /* a_0 (MMD), 0 (KSD), -norm (KL), 0 (sliced) */
    double norm; /* 1 - a_0 (MMD), (d-1) phi'(1)/2 (KSD), C_norm (KL); sliced: the divisor in use */
    /* psi'(1); phi'(1)/C_norm for KL; SIGReg, which collapses to the origin: how fast it falls as
     * |z|^2/d grows from 0. What the collapse threshold needs. Of sliced losses without times_n. */
    double derivative;
    /* q: near uniform points D grows by q |M - I/d|_F^2 with their second moment M = mean x x^T:
     * b_2 d/(d-1), with b_2 = u (1 - u/2) N_2/C_norm, u = a_2/(a_0 N_2), for KL; for SIGReg near
     * N(0, I), with x = z/sqrt(d). What selectivity needs. Of sliced losses without times_n. */
    double anisotropy;
    double fit_error;     /* checked bound on the profile's fit, 0 where none is used */
    size_t scratch_bytes; /* memory held beyond input and gradient; 0 of a plan that is only
                             described */
    int64_t batch, dim;   /* the batch is that of all ranks */
    /* The effective kernel, defaults and all: "heat, t = 5/d = 0.01953125"; for SUSReg its limit's,
     * for SIGReg, which is a test in R^d, "none". */
    char kernel[96];
    zonal_family family;                 /* zonal_family_name has its name */
    double parameter;                    /* in this dimension; 0: the family has none */
    zonal_implementation implementation; /* the one chosen */
    zonal_precision precision;
    zonal_dtype dtype;              /* of rows and gradient, never auto */
    const char *backend;            /* "ref", "cpu", "cuda": whose code it is */
    char device[ZONAL_DEVICE_NAME]; /* "cpu", "cuda:0" */
    int64_t rows, first_row;        /* this rank's part of the batch; the batch and 0 on one rank */
} zonal_plan_info;
#define ZONAL_PLAN_INFO_INIT ZONAL_SIZED_INIT(zonal_plan_info)

/* Fails only for NULL and a wrong size: ZONAL_ARGUMENT. */
ZONAL_API zonal_status zonal_plan_info_get(const zonal_plan *plan, zonal_plan_info *info);
/* What zonal_plan_create would make of these arguments, without making it. "batch" is that of all
 * ranks together: the options' communicator is not called, and info->rows is the batch. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_plan_describe(const zonal_loss_options *options,
                                                          int64_t batch, int64_t dim,
                                                          zonal_plan_info *info);

/* The same by name, for bindings: zonal_plan_info_name(i) is the i-th name, NULL past the last.
 *   numbers   bias, norm, derivative, anisotropy, fit-error, scratch-bytes, batch, dim,
 *             parameter, rows, first-row
 *   texts     kernel, family, implementation, precision, dtype, backend, device
 * A text lasts as long as the plan. An unknown name, or one of the other kind, is ZONAL_ARGUMENT.
 */
ZONAL_API const char *zonal_plan_info_name(int i);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_plan_get(const zonal_plan *plan, const char *name,
                                                     double *number);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_plan_get_text(const zonal_plan *plan, const char *name,
                                                          const char **text);

/* ------------------------------------------------------------------------------------------------
 * The training objective over views z [views][rows][dim], the first "global_views" of them global:
 *
 *     L = (1 - lambda) L_inv + lambda * mean over views v of gain * D(z_v)
 *     L_inv = mean over n, v of |x_nv - mu_n|^2,   mu_n = mean over the global views of x_nv
 *
 * with x = z/|z|, and the gradient flowing through mu_n as well. For SIGReg, as in LeJEPA's code, x
 * is z as it is, and the mean is over the elements of rows too: |x_nv - mu_n|^2/d.
 */
typedef enum zonal_gain {
    /* The gain whose selectivity S is 10 (band kernels: 10 d/256, SUSReg: 20) at the default
     * lambda, and at least 1.15 f*; 1 for SIGReg; the batch where S is not known. */
    ZONAL_GAIN_AUTO = 0,
    ZONAL_GAIN_UNIT = 1,       /* 1: the printed equation */
    ZONAL_GAIN_BATCH = 2,      /* B: the test statistic B * D */
    ZONAL_GAIN_VALUE = 3,      /* gain_value */
    ZONAL_GAIN_MARGIN = 4,     /* gain_value times the threshold f* */
    ZONAL_GAIN_SELECTIVITY = 5 /* the gain whose selectivity S is gain_value */
} zonal_gain;

typedef struct zonal_objective_options {
    size_t size;   /* ZONAL_OBJECTIVE_OPTIONS_INIT sets it */
    double lambda; /* in [0, 1]; defaults .05, KL .5 */
    zonal_gain gain;
    double gain_value;
    uint64_t reserved[8];    /* zeros */
    zonal_loss_options loss; /* last, so that it can grow; zonal_objective_defaults sets its size */
} zonal_objective_options;
#define ZONAL_OBJECTIVE_OPTIONS_INIT ZONAL_SIZED_INIT(zonal_objective_options)

/* What an execution finds: five doubles in this order and never more, since on a device they are
 * device memory. What is known without executing is zonal_objective_info. */
typedef struct zonal_objective_parts {
    double total;       /* L */
    double invariance;  /* L_inv */
    double discrepancy; /* mean over views of D */
    double gain;        /* the factor used */
    double threshold;   /* the collapse threshold f* of zonal_objective_info */
} zonal_objective_parts;

typedef struct zonal_objective zonal_objective;

ZONAL_API ZONAL_MUST_USE zonal_status zonal_objective_defaults(const char *method,
                                                               zonal_objective_options *options);
/* With options->loss.communicator "rows" are this rank's, as of a plan: it has all views of its
 * samples, and the gain goes by the whole batch. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_objective_create(const zonal_objective_options *options,
                                                             int64_t views, int64_t global_views,
                                                             int64_t rows, int64_t dim,
                                                             zonal_objective **objective);
ZONAL_API void zonal_objective_destroy(zonal_objective *objective);

/* By name and text, as of a loss; beside its options there are
 *   lambda                 a number from 0 to 1
 *   gain                   auto, batch, unit, a number, margin:NUMBER or selectivity:NUMBER
 *   margin, selectivity    the same as gain by these
 * and zonal_objective_make takes one of gain, margin and selectivity. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_objective_set(zonal_objective_options *options,
                                                          const char *name, const char *text);
ZONAL_API const char *zonal_objective_option_name(int i);
ZONAL_API const char *zonal_objective_option_help(int i);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_objective_make(const char *method, const char *options,
                                                           int64_t views, int64_t global_views,
                                                           int64_t rows, int64_t dim,
                                                           zonal_objective **objective);
/* The same on several ranks; NULL: on one. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_objective_make_with(
    const zonal_communicator *communicator, const char *method, const char *options, int64_t views,
    int64_t global_views, int64_t rows, int64_t dim, zonal_objective **objective);

/* The weights an objective works with, known when it is made.
 *
 *   Collapse. Near one point, a direction in which all views of all samples vary by chance grows
 *   only if the gain exceeds f* = (1-lambda) K/(lambda psi'(1)).
 *
 *   Selectivity. Near uniform points, with p_j the share of variance along direction j and rho_j
 *   the part of it that the views of a sample have in common,
 *       L ~ (1-lambda) K sum_j p_j (1 - rho_j) + lambda gain q sum_j (p_j - 1/d)^2,
 *   least at p_j = (1 + S (rho_j - mean rho))/d with S = (1-lambda) K d/(2 lambda gain q): how
 *   strongly directions follow what views share. Small S: dispersed for long; large S: low rank. */
typedef struct zonal_objective_info {
    size_t size;        /* ZONAL_OBJECTIVE_INFO_INIT sets it */
    double gain;        /* the factor in use */
    double k;           /* K = 1 + 1/V_global - 2/V, 1 - 1/V when all V views are global */
    double threshold;   /* f* = (1-lambda) K/(lambda psi'(1)): with a gain below it training
                         * collapses; 0: not known for this method */
    double margin;      /* gain/f*; 0: not known */
    double anisotropy;  /* q, see zonal_plan_info */
    double selectivity; /* S; 0: not known */
    uint64_t reserved[8];
    zonal_plan_info plan; /* of one view's discrepancy; last, so that it can grow */
} zonal_objective_info;
#define ZONAL_OBJECTIVE_INFO_INIT ZONAL_SIZED_INIT(zonal_objective_info)

/* What zonal_objective_create would make of these arguments, without making it; "batch" as for
 * zonal_plan_describe. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_objective_describe(
    const zonal_objective_options *options, int64_t views, int64_t global_views, int64_t batch,
    int64_t dim, zonal_objective_info *info);
/* The same of one that is made. Fails only for NULL and a wrong size: ZONAL_ARGUMENT. */
ZONAL_API zonal_status zonal_objective_info_get(const zonal_objective *objective,
                                                zonal_objective_info *info);

/* The same by name, for bindings: the numbers gain, k, threshold, margin, anisotropy, selectivity,
 * and all names of a plan but its anisotropy. */
ZONAL_API const char *zonal_objective_info_name(int i);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_objective_get(const zonal_objective *objective,
                                                          const char *name, double *number);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_objective_get_text(const zonal_objective *objective,
                                                               const char *name, const char **text);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_objective_execute(zonal_objective *objective,
                                                              const void *z,
                                                              zonal_objective_parts *parts,
                                                              void *gradient);
ZONAL_API void zonal_objective_set_step(zonal_objective *objective, uint32_t step);
/* As zonal_plan_set_device_step. */
ZONAL_API void zonal_objective_set_device_step(zonal_objective *objective, const uint32_t *step);
/* As for a plan: on CUDA z, parts and gradient of zonal_objective_execute are device memory. */
ZONAL_API void zonal_objective_set_stream(zonal_objective *objective, void *stream);
ZONAL_API ZONAL_MUST_USE zonal_status zonal_objective_status(zonal_objective *objective);

#ifdef __cplusplus
}
#endif
#endif
