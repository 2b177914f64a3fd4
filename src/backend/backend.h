/*
 * The table of operations. The layers above hold a zonal__backend and call nothing else; each
 * device fills a table of its own. The CPU's starts from the reference table and overrides what it
 * does better, so a half-finished backend still works.
 *
 * An operation is made for one problem (create: takes all memory), run any number of times (takes
 * none), and destroyed. A problem is only read during create, but what it points to (fits, pair
 * functions, sliced tables) must outlive the work.
 *
 * Common to all operations on rows: x is [rows][dim] of the problem's precision (float for
 * ZONAL_PRECISION_FP32, double for ZONAL_PRECISION_DOUBLE). With unit_rows = 0 rows are normalised
 * first and gradients go back through that: (g - (g.x) x)/|z|. With unit_rows = 1 rows are taken as
 * they are (a norm off 1 by more than 1e-3 is an error) and gradients are still made tangent. A
 * zero or non-finite row is ZONAL_NUMERIC with a sentence that gives the row's number. Norms are
 * computed so that they neither overflow nor underflow.
 *
 * What run writes is finished: the value of PAIRS, KL, MOMENTS and SLICED is
 *     problem.offset + problem.factor * (what enum zonal__operation says),
 * and the gradient is "scale" times the gradient of that. gradient may be NULL (value only);
 * gradients are overwritten, but for INVARIANCE. On the host value[0] is NaN after a failure.
 *
 * With ranks (backend/ranks.h) x and gradient are this rank's rows, of which there may be none, and
 * B, the columns and the value are those of the whole batch: the value is the same bit for bit on
 * all ranks, and the gradient that of the value with respect to the own rows. Run is collective: a
 * bad row, of whichever rank, fails on all of them with one sentence, and so does a collective call
 * that fails. What is made locally, SURVEY and EIGENVALUES, takes no ranks.
 */
#ifndef ZONAL_BACKEND_BACKEND_H
#define ZONAL_BACKEND_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "math/chebyshev.h"
#include "zonal/device.h"
#include "zonal/loss.h"

/* psi of MMD or KSD, scaled to psi(1) = 1. The reference calls value and derivative; fast backends
 * use the fit, or for the chordal kernel (fit == NULL) the closed form psi(c) = 1 - chord *
 * sqrt((1-c)/2), which has no derivative. */
typedef struct zonal__pair_function {
    long double (*value)(const void *context, long double c);
    long double (*derivative)(const void *context, long double c);
    const void *context;
    const zonal__fit *fit;
    double chord;
} zonal__pair_function;

/* The statistic of one direction a, with u_i = row_scale * a.x_i and knots t_k = knot0 + k * step:
 *     EP(a) = sum_k weight[k] ((mean_i cos(t_k u_i) - target[k])^2 + (mean_i sin(t_k u_i))^2)
 * Directions are zonal__random_direction of (seed, ZONAL__STREAM_SLICES, step), sample = slice. */
typedef struct zonal__sliced {
    int64_t slices;
    int knots;
    double knot0, step;
    const double *weight, *target; /* [knots] */
    double row_scale;
    int raw_rows; /* 1: SIGReg: rows enter as they are, without normalisation or projection */
    uint64_t seed;
} zonal__sliced;

typedef struct zonal__device zonal__device; /* backend/device.h */
typedef struct zonal__ranks zonal__ranks;   /* backend/ranks.h */

typedef struct zonal__problem {
    const zonal__device *device; /* where; NULL: the backend's first device */
    int64_t rows, dim;
    const zonal__ranks *ranks; /* NULL: the rows are the whole batch */
    zonal_precision precision;
    int unit_rows;
    int threads;                     /* at least 1 */
    const zonal__pair_function *psi; /* PAIRS: one; SURVEY: n_psi of them */
    int n_psi;
    const zonal__fit *log_phi; /* KL */
    int keep_diagonal;         /* KL: S_i = 1 + sum, divided by B instead of B - 1 */
    double degree1, degree2;   /* MOMENTS, PAIRS: b_1, b_2, the shares of degrees 1 and 2 in psi */
    const zonal__sliced *sliced;
    int64_t views, global_views; /* INVARIANCE: x is [views][rows][dim] */
    /* INVARIANCE: 1: rows enter as they are, and the mean is over their elements too (SIGReg) */
    int raw_rows;
    double offset, factor; /* PAIRS, KL, MOMENTS, SLICED: of the value that is written */
    zonal_dtype dtype;     /* of x and gradient; devices alone: the host goes by the precision */
    double lambda, gain, threshold; /* OBJECTIVE */
    /* SLICED, OBJECTIVE: where run finds NULL, or a word of device memory that holds the step
     * whenever the work is done, instead of what run is given: a graph replays the latter as it
     * was. NULL: nowhere. */
    const uint32_t *const *device_step;
} zonal__problem;

typedef enum zonal__operation {
    /* value[0] = 1/B^2 sum over i != j of psi(c_ij); gradient of that. */
    ZONAL__PAIRS,
    /* value[0] = mean_i log( 1/(B-1) sum over j != i of phi(c_ij) ); gradient of that:
     * (1/B) sum over j != i of phi'(c_ij) (1/S_i + 1/S_j) x_j. Log-sum-exp throughout. */
    ZONAL__KL,
    /* value[0] = b_1 |m|^2 + b_2 d/(d-1) |M - I/d|_F^2 - (b_1 + b_2)/B, m = mean x, M = mean x x^T:
     * the same quantity as PAIRS for psi of degree 1 and 2. */
    ZONAL__MOMENTS,
    /* value[0] = mean over slices of EP(a); gradient of that. */
    ZONAL__SLICED,
    /* value[0] = mean over n, v of |x_nv - mu_n|^2, divided by d for raw rows; its gradient times
     * scale is ADDED to gradient. */
    ZONAL__INVARIANCE,
    /* value[k] = 1/B^2 sum over i != j of psi_k(c_ij) for k < n_psi, in one pass over the pairs;
     * value[n_psi + i] = max over j != i of c_ij, the nearest neighbour's cosine, for each row i.
     * No gradient. */
    ZONAL__SURVEY,
    /* value[0..d-1] = mean x, value[d .. d+d*d-1] = mean x x^T (full symmetric matrix), in double.
     * No gradient. */
    ZONAL__COVARIANCE,
    /* The eigenvalues, ascending, of the symmetric matrix x [dim][dim] of doubles (rows = dim):
     * value[0..dim-1]. No gradient, no rows. */
    ZONAL__EIGENVALUES,
    /* What devices need for training (the host composes it of the above): the whole objective of z
     * [views][rows][dim], whose regulariser is described by the rest of the problem (psi, log_phi,
     * degrees or sliced). "value" receives a zonal_objective_parts, gradient scale times the
     * gradient of its total. */
    ZONAL__OBJECTIVE,
    ZONAL__OPERATIONS
} zonal__operation;

/* What INVARIANCE divides its sum by; "batch" has the rows of all ranks. Raw rows are compared with
 * N(0, I), under which |z|^2 is d on average: divided by d they weigh as much as unit rows, and as
 * in LeJEPA's code. */
static inline double zonal__invariance_count(const zonal__problem *problem, int64_t batch) {
    return (double)batch * (double)problem->views * (problem->raw_rows ? (double)problem->dim : 1);
}

typedef struct zonal__work zonal__work; /* each operation defines its own */

typedef struct zonal__operation_table {
    zonal_status (*create)(const zonal__problem *problem, zonal__work **work);
    /* step: the step of the sliced directions; ignored by the rest. */
    zonal_status (*run)(zonal__work *work, const void *x, uint32_t step, double *value,
                        void *gradient, double scale);
    void (*destroy)(zonal__work *work);
    size_t (*scratch_bytes)(const zonal__work *work);
    /* Device backends alone (NULL elsewhere). There x, value and gradient of run are device memory,
     * run only enqueues on the stream (the backend's own kind; NULL: the default one). check waits
     * for the stream and reports a bad row of the runs since the last check. */
    void (*set_stream)(zonal__work *work, void *stream);
    zonal_status (*check)(zonal__work *work);
} zonal__operation_table;

/* What a backend's folder fills: a kind of device, and what all devices of this kind can do. */
typedef struct zonal__backend {
    const char *name; /* devices are named after it: "cuda" (the first), "cuda:1" */
    int is_host;      /* 1: one device, the processor; its arrays are host memory */
    int is_oracle;    /* 1: only there to be compared with: it is opened by name and not listed */
    /* The number of devices that can be used. Where there is none it fails with the reason. */
    zonal_status (*count)(int *count);
    /* Fills model, compute capability and memory of a device; the rest is filled already. */
    zonal_status (*describe)(int index, zonal_device_info *info);
    const struct zonal__runtime *runtime; /* memory, streams, graphs: backend/device.h */

    /* What its losses can do, as bits 1 << zonal_precision and 1 << zonal_dtype. A host takes the
     * rows as the precision says; dtypes are for devices. */
    unsigned precisions, dtypes;
    int takes_ranks; /* 1: its losses are computed over ranks, where a problem has them */
    /* Batches of up to so many rows are served by pairs in so few launches that moments, which
     * need more of them, do not pay. 0: arithmetic alone decides. */
    int64_t pairs_pay_up_to;
    /* An entry may be NULL: this backend cannot do it (zonal__device_operation). */
    const zonal__operation_table *operations[ZONAL__OPERATIONS];
} zonal__backend;

/* The reference backend; the CPU's, which is the reference one where nothing better was built. Both
 * are in every build. Layers above take a device (backend/device.h). */
const zonal__backend *zonal__backend_ref(void);
const zonal__backend *zonal__backend_cpu(void);

/* What an operation of this problem writes where the bare value is "raw". A function, and compiled
 * without contraction, so that all backends on the host round alike. */
double zonal__problem_value(const zonal__problem *problem, double raw);

/* The threads to use when so many are asked for: core/thread.h. */
int zonal__backend_threads(int asked);

#endif
