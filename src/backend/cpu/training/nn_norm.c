/*
 * Batch normalisation with what follows it, and activations alone, on the host's threads. Rows are
 * pixels; the formulas stand in backend/ref/training/nn_norm.c.
 *
 * A turn is a block of rows that stays in the cache, worked on in slabs: a few rows, about 16 KiB,
 * on which one simple loop follows the other. Forward reads x twice, once for the statistics (mean
 * and, from the cache, squares about it) and once for y; backward reads x and dy twice, once for
 * the sums of dscale and dbias and once for dx. Sums are in fp32 over a slab, in double over slabs
 * and over blocks, in their order. Against the reference: about 1e-6 of the norm in fp32.
 *
 * relu's derivative is read off y. gelu's is computed from x and the residual again.
 *
 * Saved: mean and 1/sqrt(variance + epsilon) of each channel, as floats.
 */
#include <math.h>

#include "backend/backend.h"
#include "backend/cpu/clones.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/training/nn_activate.h"
#include "backend/cpu/training/nn_layer.h"
#include "core/memory.h"

enum { BLOCK = 32768, SLAB = 4096, SLAB_ROWS = 64 }; /* elements, elements, most rows of a slab */

/* ---- loops over a slab ----------------------------------------------------------------------- */

/* Each of them is compiled for both types of elements. */
#define BOTH_TYPES(name, bf16, ...)                                                                \
    do {                                                                                           \
        if (bf16)                                                                                  \
            name(1, __VA_ARGS__);                                                                  \
        else                                                                                       \
            name(0, __VA_ARGS__);                                                                  \
    } while (0)

ZONAL__INLINE void load_of(int bf16, int64_t n, const void *x, float *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] = zonal__load(x, i, bf16);
}
ZONAL__CLONES static void load(int bf16, int64_t n, const void *x, float *out) {
    BOTH_TYPES(load_of, bf16, n, x, out);
}

ZONAL__INLINE void load_added_of(int bf16, int64_t n, const void *x, float *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] += zonal__load(x, i, bf16);
}
ZONAL__CLONES static void load_added(int bf16, int64_t n, const void *x, float *out) {
    BOTH_TYPES(load_added_of, bf16, n, x, out);
}

ZONAL__INLINE void store_of(int bf16, int64_t n, const float *restrict x, void *out) {
    for (int64_t i = 0; i < n; i++) zonal__store(out, i, bf16, x[i]);
}
ZONAL__CLONES static void store(int bf16, int64_t n, const float *x, void *out) {
    BOTH_TYPES(store_of, bf16, n, x, out);
}

/* x = activation(x) */
ZONAL__CLONES static void activate(int64_t n, zonal__activation activation, float *restrict x) {
    if (activation == ZONAL__ACTIVATION_RELU)
        for (int64_t i = 0; i < n; i++) x[i] = zonal__activate(x[i], ZONAL__ACTIVATION_RELU);
    if (activation == ZONAL__ACTIVATION_GELU)
        for (int64_t i = 0; i < n; i++) x[i] = zonal__activate(x[i], ZONAL__ACTIVATION_GELU);
}

/* g *= activation'(z) */
ZONAL__CLONES static void times_derivative(int64_t n, zonal__activation activation,
                                           const float *restrict z, float *restrict g) {
    if (activation == ZONAL__ACTIVATION_RELU)
        for (int64_t i = 0; i < n; i++) g[i] = z[i] <= 0 ? 0 : g[i];
    if (activation == ZONAL__ACTIVATION_GELU)
        for (int64_t i = 0; i < n; i++)
            g[i] *= zonal__activation_derivative(z[i], ZONAL__ACTIVATION_GELU);
}

/* sum[c] += the column's elements */
ZONAL__INLINE void add_rows_of(int bf16, int64_t rows, int64_t channels, const void *x,
                               float *restrict sum) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++) sum[c] += zonal__load(x, r * channels + c, bf16);
}
ZONAL__CLONES static void add_rows(int bf16, int64_t rows, int64_t channels, const void *x,
                                   float *sum) {
    BOTH_TYPES(add_rows_of, bf16, rows, channels, x, sum);
}

ZONAL__INLINE void add_squares_of(int bf16, int64_t rows, int64_t channels, const void *x,
                                  const float *restrict centre, float *restrict sum) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++) {
            float difference = zonal__load(x, r * channels + c, bf16) - centre[c];
            sum[c] += difference * difference;
        }
}
ZONAL__CLONES static void add_squares(int bf16, int64_t rows, int64_t channels, const void *x,
                                      const float *centre, float *sum) {
    BOTH_TYPES(add_squares_of, bf16, rows, channels, x, centre, sum);
}

/* z = (x - mean) factor + bias */
ZONAL__INLINE void normalise_of(int bf16, int64_t rows, int64_t channels, const void *x,
                                const float *restrict mean, const float *restrict factor,
                                const float *restrict bias, float *restrict z) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++)
            z[r * channels + c] =
                (zonal__load(x, r * channels + c, bf16) - mean[c]) * factor[c] + bias[c];
}
ZONAL__CLONES static void normalise(int bf16, int64_t rows, int64_t channels, const void *x,
                                    const float *mean, const float *factor, const float *bias,
                                    float *z) {
    BOTH_TYPES(normalise_of, bf16, rows, channels, x, mean, factor, bias, z);
}

/* sum[c] += g, product[c] += g (x - mean) */
ZONAL__INLINE void add_products_of(int bf16, int64_t rows, int64_t channels, const void *x,
                                   const float *restrict mean, const float *restrict g,
                                   float *restrict sum, float *restrict product) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++) {
            float own = g[r * channels + c];
            sum[c] += own;
            product[c] += own * (zonal__load(x, r * channels + c, bf16) - mean[c]);
        }
}
ZONAL__CLONES static void add_products(int bf16, int64_t rows, int64_t channels, const void *x,
                                       const float *mean, const float *g, float *sum,
                                       float *product) {
    BOTH_TYPES(add_products_of, bf16, rows, channels, x, mean, g, sum, product);
}

/* dx = factor (g - along - (x - mean) tilt) */
ZONAL__INLINE void derivative_of(int bf16, int64_t rows, int64_t channels, const void *x,
                                 const float *restrict mean, const float *restrict factor,
                                 const float *restrict along, const float *restrict tilt,
                                 const float *restrict g, void *dx) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++) {
            int64_t at = r * channels + c;
            float centred = zonal__load(x, at, bf16) - mean[c];
            zonal__store(dx, at, bf16, factor[c] * (g[at] - along[c] - centred * tilt[c]));
        }
}
ZONAL__CLONES static void store_dx(int bf16, int64_t rows, int64_t channels, const void *x,
                                   const float *mean, const float *factor, const float *along,
                                   const float *tilt, const float *g, void *dx) {
    BOTH_TYPES(derivative_of, bf16, rows, channels, x, mean, factor, along, tilt, g, dx);
}

/* ---- the layer ------------------------------------------------------------------------------- */

typedef struct norm_layer {
    zonal__layer base;
    int64_t rows, block_rows, blocks, slab_rows;
    double *part;  /* [blocks][2][channels]: the sums of each block */
    float *factor; /* [channels]: scale / sqrt(variance + epsilon); so are the next */
    float *inference_mean, *along, *tilt;
    float *slab; /* [threads][2][slab_rows channels] */
    float *sum;  /* [threads][3][channels] */
} norm_layer;

typedef struct norm_run {
    norm_layer *layer;
    const zonal__layer_arrays *arrays;
    const float *mean;
    int second; /* backward: 1 for the pass that writes dx */
} norm_run;

static void release_norm(zonal__layer *layer) {
    norm_layer *norm = (norm_layer *)layer;
    zonal__free(norm->part);
    zonal__free(norm->factor);
    zonal__free(norm->slab);
    zonal__free(norm->sum);
}

static int64_t slab_rows_of(int64_t channels) {
    int64_t rows = SLAB / channels;
    return rows < 1 ? 1 : rows < SLAB_ROWS ? rows : SLAB_ROWS;
}

static zonal_status prepare_norm(zonal__layer *layer) {
    norm_layer *norm = (norm_layer *)layer;
    const zonal__layer_spec *spec = &layer->spec;
    int64_t channels = spec->channels;
    norm->rows = spec->n * spec->h * spec->w;
    norm->slab_rows = slab_rows_of(channels);
    norm->block_rows = BLOCK / channels < 1 ? 1 : BLOCK / channels;
    norm->blocks = (norm->rows + norm->block_rows - 1) / norm->block_rows;
    if (layer->threads > norm->blocks) layer->threads = (int)norm->blocks;
    ZONAL_TRY(ZONAL_NEW(&norm->part, norm->blocks * 2 * channels, "a batch norm's sums"));
    ZONAL_TRY(ZONAL_NEW(&norm->factor, 4 * channels, "a batch norm's factors"));
    norm->inference_mean = norm->factor + channels;
    norm->along = norm->factor + 2 * channels;
    norm->tilt = norm->factor + 3 * channels;
    ZONAL_TRY(ZONAL_NEW(&norm->slab, layer->threads * 2 * norm->slab_rows * channels,
                        "a batch norm's scratch"));
    return ZONAL_NEW(&norm->sum, layer->threads * 3 * channels, "a batch norm's scratch");
}

static size_t saved_norm(const zonal__layer *layer) {
    return 2 * (size_t)layer->spec.channels * sizeof(float);
}

/* The rows of a block, or of the slab from "row" on. */
static int64_t rows_of_block(const norm_layer *norm, int64_t block) {
    int64_t rest = norm->rows - block * norm->block_rows;
    return rest < norm->block_rows ? rest : norm->block_rows;
}
static int64_t rows_of_slab(const norm_layer *norm, int64_t block_rows, int64_t row) {
    int64_t rest = block_rows - row;
    return rest < norm->slab_rows ? rest : norm->slab_rows;
}

/* total += sum, sum = 0 */
static void move_sums(int64_t n, float *sum, double *total) {
    for (int64_t c = 0; c < n; c++) total[c] += (double)sum[c], sum[c] = 0;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* part[0] = the block's mean, part[1] = squares about it. They are taken about the mean as a float,
 * and corrected for what that left. */
static void block_statistics(void *context, int64_t block, int thread) {
    const norm_run *run = context;
    const norm_layer *norm = run->layer;
    int64_t channels = norm->base.spec.channels, rows = rows_of_block(norm, block);
    int bf16 = zonal__is_bf16(&norm->base);
    const void *x = zonal__at(&norm->base, run->arrays->x, block * norm->block_rows * channels);
    double *mean = norm->part + block * 2 * channels, *squares = mean + channels;
    float *sum = norm->sum + thread * 3 * channels, *centre = sum + channels;
    memset(sum, 0, (size_t)channels * sizeof *sum);
    memset(mean, 0, 2 * (size_t)channels * sizeof *mean);
    for (int64_t r = 0; r < rows; r += norm->slab_rows) {
        add_rows(bf16, rows_of_slab(norm, rows, r), channels,
                 zonal__at(&norm->base, x, r * channels), sum);
        move_sums(channels, sum, mean);
    }
    for (int64_t c = 0; c < channels; c++) centre[c] = (float)(mean[c] /= (double)rows);
    for (int64_t r = 0; r < rows; r += norm->slab_rows) {
        add_squares(bf16, rows_of_slab(norm, rows, r), channels,
                    zonal__at(&norm->base, x, r * channels), centre, sum);
        move_sums(channels, sum, squares);
    }
    for (int64_t c = 0; c < channels; c++) {
        double off = mean[c] - (double)centre[c];
        squares[c] -= (double)rows * off * off;
    }
}

/* Mean and squares of channel c over all blocks, in the place of the first block's. */
static void join_blocks(const norm_layer *norm, int64_t c) {
    int64_t channels = norm->base.spec.channels;
    double mean = 0, squares = 0;
    for (int64_t b = 0; b < norm->blocks; b++)
        mean += (double)rows_of_block(norm, b) * norm->part[b * 2 * channels + c];
    mean /= (double)norm->rows;
    for (int64_t b = 0; b < norm->blocks; b++) {
        const double *part = norm->part + b * 2 * channels;
        double off = part[c] - mean;
        squares += part[channels + c] + (double)rows_of_block(norm, b) * off * off;
    }
    norm->part[c] = mean;
    norm->part[channels + c] = squares;
}

static float mixed(float running, float momentum, double batch) {
    return (float)((1 - (double)momentum) * (double)running + (double)momentum * batch);
}

/* The batch's mean and factor, the running ones moved, and mean and inverse into "saved". */
static zonal_status finish_statistics(norm_layer *norm, const zonal__layer_arrays *arrays,
                                      float *mean, float *saved_inverse) {
    const zonal__layer_spec *spec = &norm->base.spec;
    double elements = (double)zonal__layer_norm_elements(spec);
    for (int64_t c = 0; c < spec->channels; c++) join_blocks(norm, c);
    ZONAL_TRY(zonal__layer_join_statistics(spec, norm->part));
    for (int64_t c = 0; c < spec->channels; c++) {
        double own = norm->part[c], squares = norm->part[spec->channels + c];
        double inverse = 1 / sqrt(squares / elements + (double)spec->epsilon);
        arrays->running_mean[c] = mixed(arrays->running_mean[c], spec->momentum, own);
        arrays->running_variance[c] =
            mixed(arrays->running_variance[c], spec->momentum, squares / (elements - 1));
        mean[c] = (float)own;
        norm->factor[c] = (float)((double)arrays->scale[c] * inverse);
        if (saved_inverse) saved_inverse[c] = (float)inverse;
    }
    return ZONAL_OK;
}

static void block_forward(void *context, int64_t block, int thread) {
    const norm_run *run = context;
    const norm_layer *norm = run->layer;
    const zonal__layer_arrays *arrays = run->arrays;
    const zonal__layer *layer = &norm->base;
    int64_t channels = layer->spec.channels, rows = rows_of_block(norm, block);
    int bf16 = zonal__is_bf16(layer);
    float *z = norm->slab + thread * 2 * norm->slab_rows * channels;
    for (int64_t r = 0; r < rows; r += norm->slab_rows) {
        int64_t count = rows_of_slab(norm, rows, r);
        int64_t at = (block * norm->block_rows + r) * channels, n = count * channels;
        normalise(bf16, count, channels, zonal__at(layer, arrays->x, at), run->mean, norm->factor,
                  arrays->bias, z);
        if (layer->spec.residual) load_added(bf16, n, zonal__at(layer, arrays->residual, at), z);
        activate(n, layer->spec.activation, z);
        store(bf16, n, z, zonal__at_mutable(layer, arrays->y, at));
    }
}

static zonal_status forward_norm(zonal__layer *layer, const zonal__layer_arrays *arrays,
                                 int training) {
    norm_layer *norm = (norm_layer *)layer;
    int64_t channels = layer->spec.channels;
    float *saved = training && !layer->spec.forward_only ? arrays->saved : NULL;
    float *mean = saved ? saved : norm->inference_mean;
    norm_run run = {norm, arrays, mean, 0};
    if (training) {
        zonal__cpu_parallel(norm->blocks, block_statistics, &run);
        ZONAL_TRY(finish_statistics(norm, arrays, mean, saved ? saved + channels : NULL));
    } else {
        for (int64_t c = 0; c < channels; c++) {
            double variance = (double)arrays->running_variance[c] + (double)layer->spec.epsilon;
            mean[c] = arrays->running_mean[c];
            norm->factor[c] = (float)((double)arrays->scale[c] / sqrt(variance));
        }
    }
    zonal__cpu_parallel(norm->blocks, block_forward, &run);
    return ZONAL_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* g = (dy + dy_more) activation'(z) for "count" rows from element "at" on; z is scratch. */
static void gradient_before_activation(const norm_run *run, int64_t count, int64_t at, float *z,
                                       float *g) {
    const norm_layer *norm = run->layer;
    const zonal__layer *layer = &norm->base;
    const zonal__layer_arrays *arrays = run->arrays;
    int64_t channels = layer->spec.channels, n = count * channels;
    int bf16 = zonal__is_bf16(layer);
    load(bf16, n, zonal__at(layer, arrays->dy, at), g);
    if (arrays->dy_more) load_added(bf16, n, zonal__at(layer, arrays->dy_more, at), g);
    if (layer->spec.activation == ZONAL__ACTIVATION_RELU) {
        load(bf16, n, zonal__at(layer, arrays->y, at), z);
    } else if (layer->spec.activation == ZONAL__ACTIVATION_GELU) {
        normalise(bf16, count, channels, zonal__at(layer, arrays->x, at), run->mean, norm->factor,
                  arrays->bias, z);
        if (layer->spec.residual) load_added(bf16, n, zonal__at(layer, arrays->residual, at), z);
    }
    times_derivative(n, layer->spec.activation, z, g);
}

static void block_backward(void *context, int64_t block, int thread) {
    const norm_run *run = context;
    const norm_layer *norm = run->layer;
    const zonal__layer *layer = &norm->base;
    const zonal__layer_arrays *arrays = run->arrays;
    int64_t channels = layer->spec.channels, rows = rows_of_block(norm, block);
    int bf16 = zonal__is_bf16(layer);
    float *g = norm->slab + thread * 2 * norm->slab_rows * channels;
    float *z = g + norm->slab_rows * channels, *sum = norm->sum + thread * 3 * channels;
    double *part = norm->part + block * 2 * channels;
    if (!run->second) {
        memset(part, 0, 2 * (size_t)channels * sizeof *part);
        memset(sum, 0, 2 * (size_t)channels * sizeof *sum);
    }
    for (int64_t r = 0; r < rows; r += norm->slab_rows) {
        int64_t count = rows_of_slab(norm, rows, r);
        int64_t at = (block * norm->block_rows + r) * channels;
        const void *x = zonal__at(layer, arrays->x, at);
        gradient_before_activation(run, count, at, z, g);
        if (!run->second) {
            add_products(bf16, count, channels, x, run->mean, g, sum, sum + channels);
            move_sums(2 * channels, sum, part);
            continue;
        }
        if (arrays->dx)
            store_dx(bf16, count, channels, x, run->mean, norm->factor, norm->along, norm->tilt, g,
                     zonal__at_mutable(layer, arrays->dx, at));
        if (layer->spec.residual && arrays->dresidual)
            store(bf16, count * channels, g, zonal__at_mutable(layer, arrays->dresidual, at));
    }
}

static void store_gradient(int accumulate, double value, float *out) {
    *out = (float)(accumulate ? (double)*out + value : value);
}

/* The sums over all blocks, in the place of the first block's, and the gradients that they are. */
static void join_block_sums(const norm_layer *norm, const zonal__layer_arrays *arrays,
                            const float *inverse) {
    int64_t channels = norm->base.spec.channels;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, product = 0;
        for (int64_t b = 0; b < norm->blocks; b++) {
            sum += norm->part[b * 2 * channels + c];
            product += norm->part[b * 2 * channels + channels + c];
        }
        norm->part[c] = sum;
        norm->part[channels + c] = product;
        store_gradient(arrays->accumulate, sum, &arrays->dbias[c]);
        store_gradient(arrays->accumulate, product * (double)inverse[c], &arrays->dscale[c]);
    }
}

static zonal_status finish_sums(norm_layer *norm, const zonal__layer_arrays *arrays,
                                const float *inverse) {
    int64_t channels = norm->base.spec.channels;
    double elements = (double)zonal__layer_norm_elements(&norm->base.spec);
    join_block_sums(norm, arrays, inverse);
    ZONAL_TRY(zonal__layer_join_sums(&norm->base.spec, norm->part));
    for (int64_t c = 0; c < channels; c++) {
        double dscale = norm->part[channels + c] * (double)inverse[c];
        norm->along[c] = (float)(norm->part[c] / elements);
        norm->tilt[c] = (float)(dscale * (double)inverse[c] / elements);
    }
    return ZONAL_OK;
}

static zonal_status backward_norm(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    norm_layer *norm = (norm_layer *)layer;
    const float *saved = arrays->saved, *inverse = saved + layer->spec.channels;
    norm_run run = {norm, arrays, saved, 0};
    for (int64_t c = 0; c < layer->spec.channels; c++)
        norm->factor[c] = arrays->scale[c] * inverse[c];
    zonal__cpu_parallel(norm->blocks, block_backward, &run);
    ZONAL_TRY(finish_sums(norm, arrays, inverse));
    run.second = 1;
    if (arrays->dx || (layer->spec.residual && arrays->dresidual))
        zonal__cpu_parallel(norm->blocks, block_backward, &run);
    return ZONAL_OK;
}

const zonal__cpu_family zonal__layers_norm = {.bytes = sizeof(norm_layer),
                                              .prepare = prepare_norm,
                                              .release = release_norm,
                                              .saved = saved_norm,
                                              .forward = forward_norm,
                                              .backward = backward_norm};

/* ---- activations alone ----------------------------------------------------------------------- */

typedef struct activation_run {
    const zonal__layer *layer;
    const zonal__layer_arrays *arrays;
    int64_t elements;
    int backward;
} activation_run;

static void activate_slab(void *context, int64_t turn, int thread) {
    const activation_run *run = context;
    const zonal__layer *layer = run->layer;
    const zonal__layer_arrays *arrays = run->arrays;
    int64_t at = turn * SLAB, n = run->elements - at < SLAB ? run->elements - at : SLAB;
    int bf16 = zonal__is_bf16(layer);
    float z[SLAB], g[SLAB];
    (void)thread;
    load(bf16, n, zonal__at(layer, arrays->x, at), z);
    if (!run->backward) {
        activate(n, layer->spec.activation, z);
        store(bf16, n, z, zonal__at_mutable(layer, arrays->y, at));
        return;
    }
    load(bf16, n, zonal__at(layer, arrays->dy, at), g);
    times_derivative(n, layer->spec.activation, z, g);
    store(bf16, n, g, zonal__at_mutable(layer, arrays->dx, at));
}

static zonal_status run_activation(zonal__layer *layer, const zonal__layer_arrays *arrays,
                                   int backward) {
    const zonal__layer_spec *spec = &layer->spec;
    activation_run run = {layer, arrays, spec->n * spec->h * spec->w * spec->channels, backward};
    if (!backward || arrays->dx)
        zonal__cpu_parallel((run.elements + SLAB - 1) / SLAB, activate_slab, &run);
    return ZONAL_OK;
}

static zonal_status forward_activation(zonal__layer *layer, const zonal__layer_arrays *arrays,
                                       int training) {
    (void)training;
    return run_activation(layer, arrays, 0);
}

static zonal_status backward_activation(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    return run_activation(layer, arrays, 1);
}

const zonal__cpu_family zonal__layers_activation = {
    .bytes = sizeof(zonal__layer), .forward = forward_activation, .backward = backward_activation};
