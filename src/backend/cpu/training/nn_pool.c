/*
 * Pooling on the host's threads, one image per turn. Backward gathers: every pixel of dx looks at
 * the windows it lies in, so nobody adds to what another wrote. Sums in fp32.
 *
 * Saved by MAX_POOL: for each element of y, the number r * kernel + s of the winner in its window.
 */
#include "backend/cpu/clones.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/training/nn_layer.h"
#include "core/memory.h"

enum { MOST_TAPS = UINT16_MAX + 1, CHANNELS = 256 }; /* channels worked on at a time */

typedef struct pool_run {
    const zonal__layer *layer;
    const zonal__layer_arrays *arrays;
    uint16_t *saved; /* NULL: not wanted */
} pool_run;

static int64_t x_at(const zonal__layer *layer, int64_t n, int i, int j) {
    return ((n * layer->spec.h + i) * layer->spec.w + j) * layer->spec.channels;
}

static int64_t y_at(const zonal__layer *layer, int64_t n, int i, int j) {
    return ((n * layer->out_h + i) * layer->out_w + j) * layer->out_channels;
}

/* ---- the largest ----------------------------------------------------------------------------- */

/* best, winner = the larger of them and x, tap; a NaN wins once. */
ZONAL__INLINE void take_larger_of(int count, const void *x, int bf16, uint16_t tap,
                                  float *restrict best, uint16_t *restrict winner) {
    for (int c = 0; c < count; c++) {
        float value = zonal__load(x, c, bf16), old = best[c];
        int wins = (value > old) | ((value != value) & (old == old));
        best[c] = wins ? value : old;
        winner[c] = wins ? tap : winner[c];
    }
}

ZONAL__CLONES static void take_larger(int count, const void *x, int bf16, uint16_t tap, float *best,
                                      uint16_t *winner) {
    if (bf16)
        take_larger_of(count, x, 1, tap, best, winner);
    else
        take_larger_of(count, x, 0, tap, best, winner);
}

/* Channels c0 ... c0 + count - 1 of output (i, j). */
static void pool_pixel(const pool_run *run, int64_t n, int i, int j, int c0, int count) {
    const zonal__layer *layer = run->layer;
    const zonal__layer_spec *spec = &layer->spec;
    int bf16 = zonal__is_bf16(layer), begun = 0;
    int top = i * spec->stride - spec->pad, left = j * spec->stride - spec->pad;
    int64_t at = y_at(layer, n, i, j) + c0;
    float best[CHANNELS];
    uint16_t winner[CHANNELS];
    for (int r = top < 0 ? -top : 0; r < spec->kernel && top + r < spec->h; r++)
        for (int s = left < 0 ? -left : 0; s < spec->kernel && left + s < spec->w; s++) {
            const void *x =
                zonal__at(layer, run->arrays->x, x_at(layer, n, top + r, left + s) + c0);
            uint16_t tap = (uint16_t)(r * spec->kernel + s);
            if (begun) {
                take_larger(count, x, bf16, tap, best, winner);
                continue;
            }
            for (int c = 0; c < count; c++) best[c] = zonal__load(x, c, bf16), winner[c] = tap;
            begun = 1;
        }
    for (int c = 0; c < count; c++) zonal__store(run->arrays->y, at + c, bf16, best[c]);
    if (run->saved) memcpy(run->saved + at, winner, (size_t)count * sizeof *winner);
}

static void pool_image(void *context, int64_t n, int thread) {
    const pool_run *run = context;
    const zonal__layer *layer = run->layer;
    (void)thread;
    for (int i = 0; i < layer->out_h; i++)
        for (int j = 0; j < layer->out_w; j++)
            for (int c = 0; c < layer->out_channels; c += CHANNELS) {
                int rest = layer->out_channels - c;
                pool_pixel(run, n, i, j, c, rest < CHANNELS ? rest : CHANNELS);
            }
}

static zonal_status prepare_max(zonal__layer *layer) {
    if ((int64_t)layer->spec.kernel * layer->spec.kernel > MOST_TAPS)
        return ZONAL_FAIL(ZONAL_SHAPE, "a pooling kernel of %d is larger than 256",
                          layer->spec.kernel);
    return ZONAL_OK;
}

static size_t saved_max(const zonal__layer *layer) {
    return (size_t)y_at(layer, layer->spec.n, 0, 0) * sizeof(uint16_t);
}

static zonal_status forward_max(zonal__layer *layer, const zonal__layer_arrays *arrays,
                                int training) {
    uint16_t *saved = training && !layer->spec.forward_only ? arrays->saved : NULL;
    pool_run run = {layer, arrays, saved};
    zonal__cpu_parallel(layer->spec.n, pool_image, &run);
    return ZONAL_OK;
}

/* sum += dy (+ more) where this tap won */
ZONAL__INLINE void add_where_won_of(int count, const void *dy, const void *more, int bf16,
                                    const uint16_t *restrict winner, uint16_t tap,
                                    float *restrict sum) {
    for (int c = 0; c < count; c++) {
        float value = zonal__load(dy, c, bf16) + (more ? zonal__load(more, c, bf16) : 0);
        sum[c] += winner[c] == tap ? value : 0;
    }
}

ZONAL__CLONES static void add_where_won(int count, const void *dy, const void *more, int bf16,
                                        const uint16_t *winner, uint16_t tap, float *sum) {
    if (bf16 && more)
        add_where_won_of(count, dy, more, 1, winner, tap, sum);
    else if (bf16)
        add_where_won_of(count, dy, NULL, 1, winner, tap, sum);
    else if (more)
        add_where_won_of(count, dy, more, 0, winner, tap, sum);
    else
        add_where_won_of(count, dy, NULL, 0, winner, tap, sum);
}

/* The first output whose window reaches input p: i stride - pad + kernel - 1 >= p. */
static int first_output(const zonal__layer_spec *spec, int p) {
    int beyond = p + spec->pad - spec->kernel + 1;
    return beyond <= 0 ? 0 : (beyond + spec->stride - 1) / spec->stride;
}

static void pool_back_pixel(const pool_run *run, int64_t n, int p, int q, int c0, int count) {
    const zonal__layer *layer = run->layer;
    const zonal__layer_spec *spec = &layer->spec;
    int bf16 = zonal__is_bf16(layer);
    float sum[CHANNELS] = {0};
    int64_t out = x_at(layer, n, p, q) + c0;
    for (int i = first_output(spec, p); i < layer->out_h && i * spec->stride - spec->pad <= p; i++)
        for (int j = first_output(spec, q); j < layer->out_w && j * spec->stride - spec->pad <= q;
             j++) {
            int64_t at = y_at(layer, n, i, j) + c0;
            int r = p - (i * spec->stride - spec->pad), s = q - (j * spec->stride - spec->pad);
            const void *more = run->arrays->dy_more;
            add_where_won(count, zonal__at(layer, run->arrays->dy, at),
                          more ? zonal__at(layer, more, at) : NULL, bf16, run->saved + at,
                          (uint16_t)(r * spec->kernel + s), sum);
        }
    for (int c = 0; c < count; c++) zonal__store(run->arrays->dx, out + c, bf16, sum[c]);
}

static void pool_back_image(void *context, int64_t n, int thread) {
    const pool_run *run = context;
    const zonal__layer_spec *spec = &run->layer->spec;
    (void)thread;
    for (int p = 0; p < spec->h; p++)
        for (int q = 0; q < spec->w; q++)
            for (int c = 0; c < spec->channels; c += CHANNELS) {
                int rest = spec->channels - c;
                pool_back_pixel(run, n, p, q, c, rest < CHANNELS ? rest : CHANNELS);
            }
}

static zonal_status backward_max(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    pool_run run = {layer, arrays, arrays->saved};
    if (arrays->dx) zonal__cpu_parallel(layer->spec.n, pool_back_image, &run);
    return ZONAL_OK;
}

const zonal__cpu_family zonal__layers_max_pool = {.bytes = sizeof(zonal__layer),
                                                  .prepare = prepare_max,
                                                  .saved = saved_max,
                                                  .forward = forward_max,
                                                  .backward = backward_max};

/* ---- the mean -------------------------------------------------------------------------------- */

static void mean_image(void *context, int64_t n, int thread) {
    const pool_run *run = context;
    const zonal__layer *layer = run->layer;
    int64_t pixels = (int64_t)layer->spec.h * layer->spec.w, channels = layer->spec.channels;
    int bf16 = zonal__is_bf16(layer);
    (void)thread;
    for (int64_t c0 = 0; c0 < channels; c0 += CHANNELS) {
        int64_t count = channels - c0 < CHANNELS ? channels - c0 : CHANNELS;
        double sum[CHANNELS] = {0};
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = 0; c < count; c++)
                sum[c] +=
                    (double)zonal__load(run->arrays->x, (n * pixels + p) * channels + c0 + c, bf16);
        for (int64_t c = 0; c < count; c++)
            zonal__store(run->arrays->y, n * channels + c0 + c, bf16,
                         (float)(sum[c] / (double)pixels));
    }
}

static void mean_back_image(void *context, int64_t n, int thread) {
    const pool_run *run = context;
    const zonal__layer *layer = run->layer;
    int64_t pixels = (int64_t)layer->spec.h * layer->spec.w, channels = layer->spec.channels;
    int bf16 = zonal__is_bf16(layer);
    float part = (float)(1 / (double)pixels);
    (void)thread;
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t c = 0; c < channels; c++)
            zonal__store(run->arrays->dx, (n * pixels + p) * channels + c, bf16,
                         zonal__load(run->arrays->dy, n * channels + c, bf16) * part);
}

static zonal_status forward_mean(zonal__layer *layer, const zonal__layer_arrays *arrays,
                                 int training) {
    pool_run run = {layer, arrays, NULL};
    (void)training;
    zonal__cpu_parallel(layer->spec.n, mean_image, &run);
    return ZONAL_OK;
}

static zonal_status backward_mean(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    pool_run run = {layer, arrays, NULL};
    if (arrays->dx) zonal__cpu_parallel(layer->spec.n, mean_back_image, &run);
    return ZONAL_OK;
}

const zonal__cpu_family zonal__layers_mean_pool = {
    .bytes = sizeof(zonal__layer), .forward = forward_mean, .backward = backward_mean};
