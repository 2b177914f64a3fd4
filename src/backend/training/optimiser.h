/*
 * Optimisers: one step moves a block of parameters against its gradient. What the parameters are is
 * not the backend's concern (src/nn knows); it sees fp32 blocks of "count" elements, cut into
 * segments, one for each weight, scale or bias. What lies in no segment is neither read nor
 * written, so that segments may begin at aligned places.
 *
 * One step, for every element p of the parameters with gradient g, in this order:
 *
 *   norm      the Euclidean norm of the gradient over all segments, summed in double
 *   clipping  g <- g min(1, clip/norm); clip 0: none. (PyTorch has norm + 1e-6.)
 *   refusal   where the squares of a segment's clipped gradient add up to more than 1e36, or to
 *             NaN, nothing is changed: neither parameters nor state nor the copy. Smaller ones have
 *             squares that fit into fp32, so the state stays finite.
 *   update    wd is weight_decay where the segment has "decay", else 0; rate and the corrections
 *             are the step's numbers:
 *
 *   ADAMW     m <- beta1 m + (1 - beta1) g                     "exp_avg"
 *             v <- beta2 v + (1 - beta2) g^2                   "exp_avg_sq"
 *             p <- (1 - rate wd) p - rate (m/correction1)/(sqrt(v/correction2) + epsilon)
 *             where correction_i = 1 - beta_i^step: torch.optim.AdamW
 *   SGD       b <- momentum b + g + wd p                       "momentum"
 *             p <- p - rate b, or with nesterov p - rate (g + wd p + momentum b):
 *             torch.optim.SGD with dampening 0
 *   LARS      b <- momentum b + rate ratio (g + wd p)          "momentum"
 *             p <- p - b
 *             where ratio = trust |p|/(|g| + wd |p|), norms over the segment, if the segment has
 *             "adapt" and both norms are above 1e-30; else 1. (You, Gitman, Ginsburg, "Large batch
 *             training of convolutional networks", 2017: the rate lies inside of the momentum.)
 *   copy      the new p, rounded to bf16, for layers that compute in it
 *
 * "No decay on batch norms and biases" and "no trust ratio on batch norms and biases" are the
 * caller's choice of a segment's flags.
 *
 * Results are the same bit for bit in every run, for any number of threads. A step allocates
 * nothing. One optimiser is not run by two threads at once.
 */
#ifndef ZONAL_BACKEND_TRAINING_OPTIMISER_H
#define ZONAL_BACKEND_TRAINING_OPTIMISER_H

#include <stdint.h>

#include "backend/backend.h"
#include "core/error.h"

/* The largest sum of squares of a segment's clipped gradient. */
#define ZONAL__OPTIMISER_LARGEST 1e36
/* LARS: below, norms count as 0, whose quotient means nothing. */
#define ZONAL__OPTIMISER_SMALLEST 1e-30

typedef enum zonal__optimiser_kind {
    ZONAL__OPTIMISER_ADAMW = 0,
    ZONAL__OPTIMISER_SGD = 1,
    ZONAL__OPTIMISER_LARS = 2
} zonal__optimiser_kind;

typedef struct zonal__optimiser_spec {
    zonal__optimiser_kind kind;
    int64_t count; /* elements of the blocks */
    double weight_decay;
    double clip;                  /* the gradient is clipped to this norm; 0: not clipped */
    double beta1, beta2, epsilon; /* AdamW */
    double momentum;              /* SGD, LARS */
    int nesterov;                 /* SGD */
    double trust;                 /* LARS */
    int threads;                  /* host; 0: all there are */
    const zonal__device *device;  /* NULL: the backend's first */
} zonal__optimiser_spec;

/* Elements offset ... offset + count - 1 of the blocks. */
typedef struct zonal__optimiser_segment {
    const char *name; /* for sentences; must live as long as the optimiser */
    int64_t offset, count;
    int decay; /* 1: weight decay applies */
    int adapt; /* LARS: 1: the trust ratio applies */
} zonal__optimiser_segment;

/* What changes from step to step: plain data, the same bytes on the host and on a device. Made by
 * zonal__optimiser_numbers_make. */
typedef struct zonal__optimiser_numbers {
    double rate;
    double correction1, correction2; /* 1 for all but AdamW */
} zonal__optimiser_numbers;

typedef struct zonal__optimiser_arrays {
    float *parameters;      /* [count] */
    const float *gradients; /* [count] */
    uint16_t *copy;         /* [count], bf16; NULL: not wanted */
} zonal__optimiser_arrays;

typedef struct zonal__optimiser zonal__optimiser; /* each device has its own */

/* All arrays, "numbers" and "norm" of a step are memory of the device: host memory for ref and cpu.
 * On a device a step only puts work on the stream and reads its numbers there, so that a captured
 * graph is replayed with new ones written before it. */
typedef struct zonal__optimiser_table {
    const char *name;
    /* Takes all memory; the state begins as zeros. ZONAL_ARGUMENT with a sentence for what cannot
     * be. The segments are copied, but for their names. *out is NULL on failure. */
    zonal_status (*create)(const zonal__optimiser_spec *spec,
                           const zonal__optimiser_segment *segments, int64_t segment_count,
                           zonal__optimiser **out);
    void (*destroy)(zonal__optimiser *optimiser); /* accepts NULL */

    /* The memory of one part of the state (zonal__optimiser_state_names), spec.count floats laid
     * out as the parameters, for checkpoints to save and restore. ZONAL_ARGUMENT for a name that
     * the kind does not have. */
    zonal_status (*state)(zonal__optimiser *optimiser, const char *name, float **memory);

    /* One step. *norm is the gradient's before clipping, also where the step is refused, and then
     * possibly not finite. On the host a refusal is ZONAL_NUMERIC and the sentence names the first
     * segment at fault; on a device it is noted there, and "status" waits for the stream and
     * reports the first since its last call. On the host status is always ZONAL_OK. */
    zonal_status (*step)(zonal__optimiser *optimiser, const zonal__optimiser_arrays *arrays,
                         const zonal__optimiser_numbers *numbers, double *norm);
    zonal_status (*status)(zonal__optimiser *optimiser);

    /* Writes arrays->copy as a step would, without one: at the start, or after parameters were
     * loaded. */
    zonal_status (*copy)(zonal__optimiser *optimiser, const zonal__optimiser_arrays *arrays);

    void (*set_stream)(zonal__optimiser *optimiser, void *stream); /* NULL for the host */
} zonal__optimiser_table;

/* The usual numbers of a kind: no decay, no clipping; AdamW with betas .9 and .999 and epsilon
 * 1e-8, momentum .9, trust .001. The count is still to be set. */
zonal__optimiser_spec zonal__optimiser_defaults(zonal__optimiser_kind kind);

/* The numbers of step "step", counted from 1; one that is refused counts as well. ZONAL_ARGUMENT
 * for a rate that is negative or not finite, or a step below 1. */
zonal_status zonal__optimiser_numbers_make(const zonal__optimiser_spec *spec, double rate,
                                           int64_t step, zonal__optimiser_numbers *out);

/* The parts of a kind's state, NULL-terminated. */
const char *const *zonal__optimiser_state_names(zonal__optimiser_kind kind);

/* For the devices: what every create refuses; where "name" stands among the kind's state names; a
 * refusal as ZONAL_NUMERIC, with its sentence. */
zonal_status zonal__optimiser_check(const zonal__optimiser_spec *spec,
                                    const zonal__optimiser_segment *segments,
                                    int64_t segment_count);
zonal_status zonal__optimiser_state_index(zonal__optimiser_kind kind, const char *name, int *out);
zonal_status zonal__optimiser_refuse(const zonal__optimiser_segment *segment);

/* For those on the host, which begin with this: what they are made for, and their state. */
typedef struct zonal__optimiser_host {
    zonal__optimiser_spec spec;
    zonal__optimiser_segment *segments; /* [segment_count] */
    int64_t segment_count;
    float *state[2]; /* [count] each: m and v, or b */
} zonal__optimiser_host;

/* Checks the spec and takes the memory. fini accepts zeroed memory and what a failed init left. */
zonal_status zonal__optimiser_host_init(const zonal__optimiser_spec *spec,
                                        const zonal__optimiser_segment *segments,
                                        int64_t segment_count, zonal__optimiser_host *host);
void zonal__optimiser_host_fini(zonal__optimiser_host *host);
zonal_status zonal__optimiser_host_state(const zonal__optimiser_host *host, const char *name,
                                         float **memory);

/* What a gradient of that norm is multiplied by, so that it is clipped. */
double zonal__optimiser_clip(const zonal__optimiser_spec *spec, double norm);
/* LARS' ratio for a segment, from the norms of its parameters and of its clipped gradient. */
double zonal__optimiser_trust(const zonal__optimiser_spec *spec,
                              const zonal__optimiser_segment *segment, double parameter_norm,
                              double gradient_norm);

const zonal__optimiser_table *zonal__optimiser_ref(void); /* double, plain: the oracle */
const zonal__optimiser_table *zonal__optimiser_cpu(void);

#endif
