/*
 * The layers of a network as a device computes them, forward and backward. What a network is made
 * of is not the backend's concern (src/nn knows); it asks for one layer after the other, each
 * created once for its shapes and run in every step.
 *
 * Activations are [n][h][w][c] (channels last), rows of features are h = w = 1. Elements are dtype:
 * fp32, or bf16 with sums, statistics, parameters' gradients and everything per channel in fp32.
 *
 *   CONVOLUTION
 *     y[n][i][j][k] = sum over r, s, c of
 *                         x[n][i stride + r - pad][j stride + s - pad][c] weight[k][r][s][c]
 *     zero outside; no bias; k < out_channels. Side of y: (side + 2 pad - kernel)/stride + 1,
 *     rounded down. pad < kernel.
 *   LINEAR
 *     y[n][k] = sum over c of x[n][c] weight[k][c] (+ bias[k]); h = w = 1
 *   NORM
 *     batch normalisation with what follows it. For each channel, over the m = n h w elements,
 *     mean and variance (biased) of x, then
 *         xhat = (x - mean)/sqrt(variance + epsilon)
 *         y = activation(scale xhat + bias (+ residual))
 *     training: running = (1 - momentum) running + momentum batch's, where the variance is the
 *     unbiased one (times m/(m - 1)), as PyTorch does; m = 1 is refused.
 *     inference: mean and variance are the running ones.
 *     Synchronised (with a communicator), in training: m, mean and variance are those of all ranks'
 *     elements, and so are the sums in dx; dbias and dscale stay this rank's part of them, to be
 *     added up with all other gradients.
 *     Activations: none, relu, gelu (the exact one: x Phi(x), Phi the normal distribution).
 *   ACTIVATION
 *     y = activation(x): for projectors without NORM
 *   MAX_POOL
 *     the largest of kernel x kernel elements, stride, pad and sides as for CONVOLUTION. Padding
 *     never wins; ties go to the first in the order of rows and columns.
 *   MEAN_POOL
 *     y[n][c] = mean over h, w of x
 *   NORM_POOL
 *     y = MAX_POOL(NORM(x)), without a residual and with relu or no activation: what begins a
 *     network for large images, where the array between the two would be its largest. Winners are
 *     chosen among values rounded to dtype, as if that array were there.
 *   PRODUCT_NORM
 *     y = NORM(CONVOLUTION(x)) for a kernel of 1 and a stride of 1, with a residual and relu or
 * with neither: where y is wider than x, and the array between the two would cost more than what is
 *     left without it. That array is not rounded to dtype. Only for specs that the table folds;
 *     everyone else makes the two layers. dresidual is always wanted, and dy_more comes only with a
 *     residual.
 *     Where a convolution that reads y is masked (also only where the table folds it), it does the
 *     first step on the way back: with the mask of this layer it gives, in place of its dx,
 *     relu'(y) (dx + dx_more), dx_more being the other gradient of y. That is this layer's
 *     dresidual; its backward then gets dy NULL.
 *
 * A NaN is passed on to every y that it reaches: relu and MAX_POOL do not swallow it, so that a
 * step gone wrong shows in the loss. The derivative of relu at 0 is 0.
 *
 * Backward takes dy, the gradient with respect to y, and gives those with respect to x (dx), to the
 * residual (dresidual: dy times the activation's derivative) and to the parameters. It follows a
 * training forward of the same arrays, of which x, y and "saved" are unchanged; NORM reads its
 * residual again for gelu alone, and y for relu alone. dx or dresidual NULL: not wanted; so with
 * the dweight of CONVOLUTION and LINEAR, and the dbias with it. Wanted one after the other, on two
 * streams and with a scratch for each, dx and dweight are the same as together. Parameter gradients
 * are added to what is there when "accumulate" is not 0, else they replace it. Where y went two
 * ways (into a branch and past it), NORM, MAX_POOL and NORM_POOL take the two gradients as dy and
 * dy_more and use their sum, so that nobody else has to add them.
 *
 * No output overlaps an input or another output. Results are the same bit for bit in every run, for
 * any number of threads. Execution allocates nothing. What a layer needs only while it runs is
 * "scratch", which the layers of a stream share, since they run one after the other. One layer is
 * not run by two threads at once.
 *
 * All arrays are memory of the spec's device; on a GPU forward and backward only put work on the
 * stream and can be captured in a graph.
 */
#ifndef ZONAL_BACKEND_TRAINING_NN_H
#define ZONAL_BACKEND_TRAINING_NN_H

#include "backend/backend.h"
#include "core/error.h"
#include "zonal/communicator.h"
#include "zonal/loss.h"

typedef enum zonal__layer_kind {
    ZONAL__LAYER_CONVOLUTION = 0,
    ZONAL__LAYER_LINEAR = 1,
    ZONAL__LAYER_NORM = 2,
    ZONAL__LAYER_ACTIVATION = 3,
    ZONAL__LAYER_MAX_POOL = 4,
    ZONAL__LAYER_MEAN_POOL = 5,
    ZONAL__LAYER_NORM_POOL = 6,
    ZONAL__LAYER_PRODUCT_NORM = 7
} zonal__layer_kind;

typedef enum zonal__activation {
    ZONAL__ACTIVATION_NONE = 0,
    ZONAL__ACTIVATION_RELU = 1,
    ZONAL__ACTIVATION_GELU = 2
} zonal__activation;

typedef struct zonal__layer_spec {
    zonal__layer_kind kind;
    int64_t n;
    int h, w, channels;           /* of x */
    int out_channels;             /* convolution, linear */
    int kernel, stride, pad;      /* convolution, max pool, norm pool */
    int bias;                     /* linear: 1 with a bias */
    zonal__activation activation; /* norm, activation, norm pool */
    int residual;                 /* norm: 1 with a residual */
    int masked;                   /* convolution: 1 where x is masked (PRODUCT_NORM) */
    float epsilon, momentum;      /* norm; 0: 1e-5, 0.1 */
    zonal_dtype dtype;            /* of activations and weights: fp32 or bf16 */
    int forward_only;             /* 1: backward is never called, nothing is saved for it */
    int threads;                  /* host; 0: all there are */
    const zonal__device *device;  /* NULL: the backend's first */
    /* Norm, norm pool: the batch is that of all ranks, all_n images. Forward in training and
     * backward are then collective. NULL: it is this rank's, n. */
    const zonal_communicator *communicator;
    int64_t all_n;
} zonal__layer_spec;

/* What a PRODUCT_NORM and the masked convolution that reads its y share, in the former's "saved": a
 * table knows its own. */
typedef struct zonal__layer_mask {
    void *signs, *sums;
} zonal__layer_mask;

/* The arrays of one run; those a layer or direction does not name are not looked at. What a batch
 * norm has, a batch norm pool has as well, but for the residual. */
typedef struct zonal__layer_arrays {
    const void *x;        /* dtype */
    const void *residual; /* dtype, shape of y */
    void *y;            /* dtype; forward writes it, backward of norm and activation may read it */
    const void *weight; /* dtype: convolution [k][kernel][kernel][c], linear [k][c] */
    const float *bias;  /* linear [k], norm [c] */
    const float *scale; /* norm [c] */
    float *running_mean, *running_variance; /* norm [c] */
    void *saved;   /* zonal__nn_table.saved_bytes, aligned to 64: what forward leaves to backward */
    void *scratch; /* zonal__nn_table.scratch_bytes, aligned to 64 */
    /* backward */
    const void *dy;       /* dtype */
    const void *dy_more;  /* dtype; norm, the max pools: NULL, or a second gradient of y */
    void *dx, *dresidual; /* dtype */
    const void *dx_more;  /* dtype; masked convolutions, with the mask of x */
    zonal__layer_mask mask;
    float *dweight;        /* shape of weight, fp32; convolution, linear: NULL, not wanted */
    float *dbias, *dscale; /* [k] or [c] */
    int accumulate;
} zonal__layer_arrays;

typedef struct zonal__layer zonal__layer; /* each device has its own */

typedef struct zonal__nn_table {
    const char *name;
    /* What zonal__layer_shape refuses, and ZONAL_UNSUPPORTED for a dtype that the device does not
     * support. *layer is NULL on failure. */
    zonal_status (*create)(const zonal__layer_spec *spec, zonal__layer **layer);
    void (*destroy)(zonal__layer *layer); /* accepts NULL */
    size_t (*saved_bytes)(const zonal__layer *layer);
    size_t (*scratch_bytes)(const zonal__layer *layer);
    /* training 0: inference; nothing is saved and running statistics are read, not written. */
    zonal_status (*forward)(zonal__layer *layer, const zonal__layer_arrays *arrays, int training);
    zonal_status (*backward)(zonal__layer *layer, const zonal__layer_arrays *arrays);
    void (*set_stream)(zonal__layer *layer, void *stream); /* NULL for the host */
    /* Whether the table makes this PRODUCT_NORM, or this masked convolution; NULL: none. */
    int (*folds)(const zonal__layer_spec *spec);
    /* The mask of a PRODUCT_NORM with a residual, in its "saved". */
    zonal__layer_mask (*mask)(const zonal__layer *layer, void *saved);
} zonal__nn_table;

/* The sides and channels of y, and what every device's create checks first: ZONAL_SHAPE for sizes
 * that cannot be, ZONAL_ARGUMENT for other numbers, ZONAL_DTYPE for a type other than fp32 and
 * bf16. On failure the outputs are left alone. */
zonal_status zonal__layer_shape(const zonal__layer_spec *spec, int *out_h, int *out_w,
                                int *out_channels);

/* For the host's create: a PRODUCT_NORM is refused (ZONAL_UNSUPPORTED). */
zonal_status zonal__layer_check_host(const zonal__layer_spec *spec);

/* For the host's: fills in the defaults (epsilon 1e-5, momentum 0.1), and takes away options of one
 * kind that the loops shared by two must not see in the other. */
void zonal__layer_complete(zonal__layer_spec *spec);

/* What every device's forward and backward check first: a training norm of one element per channel,
 * which has no variance (ZONAL_SHAPE); backward of a layer made forward_only (ZONAL_ARGUMENT). */
zonal_status zonal__layer_check_forward(const zonal__layer_spec *spec, int training);
zonal_status zonal__layer_check_backward(const zonal__layer_spec *spec);

/* ---- synchronised norms (nn_ranks.c) ----------------------------------------------------------
 */

/* m: the elements of a channel that a training norm takes together. */
int64_t zonal__layer_norm_elements(const zonal__layer_spec *spec);

/* For the host's, both in place and nothing without a communicator. Statistics [2][channels]: the
 * means of this rank's elements and the sums of squares about them become those of all ranks'.
 * Sums [2][channels] become the sums over the ranks. */
zonal_status zonal__layer_join_statistics(const zonal__layer_spec *spec, double *statistics);
zonal_status zonal__layer_join_sums(const zonal__layer_spec *spec, double *sums);

const zonal__nn_table *zonal__nn_ref(void); /* plain loops, sums in double: the oracle */
const zonal__nn_table *zonal__nn_cpu(void); /* AMX in bf16, else own loops */

#endif
