/*
 * Optimisers on the host's threads: float, vector loops over blocks of a segment, sums in double.
 * Blocks are the same for any number of threads and their sums are added in their order, so the
 * bits are too. Memory sets the pace: one pass over the gradient for its norm, one over everything
 * for the update. Against the reference a step is off by at most 1e-6 of the terms it adds up.
 *
 * The formulas are arranged so that what is small is rounded while it is small: p - (rate wd p +
 * ...) where 1 - rate wd would keep one digit of the usual decay, and m + (1 - beta)(g - m) where
 * beta and 1 - beta as floats do not add up to 1.
 */
#include "backend/training/optimiser.h"

#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/clones.h"
#include "backend/cpu/cpu.h"
#include "core/bf16.h"
#include "core/memory.h"

enum { BLOCK = 8192, LANES = 32 };

typedef struct block {
    int64_t offset, count; /* elements, at most BLOCK */
    int64_t segment;
    double gradient_squares, parameter_squares; /* sums; the second for LARS alone */
} block;

struct zonal__optimiser {
    zonal__optimiser_host host;
    int threads;
    double *ratio; /* [segments], LARS */
    block *blocks; /* [block_count], in the order of the segments */
    int64_t block_count;
};

/* ---- making ---------------------------------------------------------------------------------- */

static void destroy(zonal__optimiser *optimiser) {
    if (!optimiser) return;
    zonal__optimiser_host_fini(&optimiser->host);
    zonal__free(optimiser->ratio);
    zonal__free(optimiser->blocks);
    zonal__free(optimiser);
}

static int64_t count_blocks(const zonal__optimiser_segment *segments, int64_t segment_count) {
    int64_t blocks = 0;
    for (int64_t s = 0; s < segment_count; s++) blocks += (segments[s].count + BLOCK - 1) / BLOCK;
    return blocks;
}

static void cut_blocks(zonal__optimiser *optimiser) {
    block *next = optimiser->blocks;
    for (int64_t s = 0; s < optimiser->host.segment_count; s++) {
        const zonal__optimiser_segment *segment = &optimiser->host.segments[s];
        for (int64_t at = 0; at < segment->count; at += BLOCK) {
            int64_t left = segment->count - at;
            *next++ = (block){
                .offset = segment->offset + at, .count = left < BLOCK ? left : BLOCK, .segment = s};
        }
    }
}

static zonal_status build(const zonal__optimiser_spec *spec,
                          const zonal__optimiser_segment *segments, int64_t segment_count,
                          zonal__optimiser *optimiser) {
    ZONAL_TRY(zonal__optimiser_host_init(spec, segments, segment_count, &optimiser->host));
    optimiser->threads = zonal__backend_threads(spec->threads);
    optimiser->block_count = count_blocks(segments, segment_count);
    ZONAL_TRY(ZONAL_NEW(&optimiser->ratio, segment_count, "the segments"));
    ZONAL_TRY(ZONAL_NEW(&optimiser->blocks, optimiser->block_count, "the blocks"));
    cut_blocks(optimiser);
    return ZONAL_OK;
}

static zonal_status create(const zonal__optimiser_spec *spec,
                           const zonal__optimiser_segment *segments, int64_t segment_count,
                           zonal__optimiser **out) {
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(out, 1, "the optimiser"));
    status = build(spec, segments, segment_count, *out);
    if (status == ZONAL_OK) return ZONAL_OK;
    destroy(*out);
    *out = NULL;
    return status;
}

static zonal_status state(zonal__optimiser *optimiser, const char *name, float **memory) {
    return zonal__optimiser_host_state(&optimiser->host, name, memory);
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* In lanes, which are added in their order: the compiler may not reorder a plain sum. */
ZONAL__CLONES static double sum_squares(int64_t n, const float *x) {
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++) sum += (double)x[i] * (double)x[i];
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

/* What a loop needs to know of the step and of the block's segment. */
typedef struct coefficients {
    float factor;               /* clips the gradient */
    float decay;                /* wd; AdamW: rate wd */
    float rate;                 /* AdamW: rate/correction1; LARS: rate ratio */
    float root;                 /* AdamW: 1/sqrt(correction2) */
    float new1, new2, epsilon;  /* AdamW: 1 - beta1, 1 - beta2 */
    float momentum, look_ahead; /* SGD with nesterov: look_ahead is the momentum, else 0 */
} coefficients;

ZONAL__CLONES static void adamw(int64_t n, coefficients c, const float *restrict gradient,
                                float *restrict p, float *restrict m, float *restrict v) {
    for (int64_t i = 0; i < n; i++) {
        float g = gradient[i] * c.factor;
        m[i] += c.new1 * (g - m[i]);
        v[i] += c.new2 * (g * g - v[i]);
        p[i] -= c.decay * p[i] + c.rate * m[i] / (sqrtf(v[i]) * c.root + c.epsilon);
    }
}

ZONAL__CLONES static void sgd(int64_t n, coefficients c, const float *restrict gradient,
                              float *restrict p, float *restrict b) {
    for (int64_t i = 0; i < n; i++) {
        float direction = gradient[i] * c.factor + c.decay * p[i];
        b[i] = c.momentum * b[i] + direction;
        p[i] -= c.rate * (c.look_ahead > 0 ? direction + c.look_ahead * b[i] : b[i]);
    }
}

ZONAL__CLONES static void lars(int64_t n, coefficients c, const float *restrict gradient,
                               float *restrict p, float *restrict b) {
    for (int64_t i = 0; i < n; i++) {
        b[i] = c.momentum * b[i] + c.rate * (gradient[i] * c.factor + c.decay * p[i]);
        p[i] -= b[i];
    }
}

ZONAL__CLONES static void round_to_bf16(int64_t n, const float *restrict x,
                                        uint16_t *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] = zonal__bf16_from_float(x[i]);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* One step, as the threads see it. */
struct zonal__work {
    zonal__optimiser *optimiser;
    const zonal__optimiser_arrays *arrays;
    const zonal__optimiser_numbers *numbers;
    double norm, factor;
};

static void sum_block(void *context, int64_t i, int thread) {
    const zonal__work *work = context;
    block *b = &work->optimiser->blocks[i];
    (void)thread;
    b->gradient_squares = sum_squares(b->count, work->arrays->gradients + b->offset);
    if (work->optimiser->host.spec.kind == ZONAL__OPTIMISER_LARS)
        b->parameter_squares = sum_squares(b->count, work->arrays->parameters + b->offset);
}

/* Adds the blocks up: the norm, the factor that clips it, the segments' ratios, and whether the
 * gradient can be used. */
static zonal_status examine(zonal__work *work) {
    zonal__optimiser *optimiser = work->optimiser;
    const block *next = optimiser->blocks;
    double sum = 0;
    for (int64_t i = 0; i < optimiser->block_count; i++) sum += next[i].gradient_squares;
    work->norm = sqrt(sum);
    work->factor = zonal__optimiser_clip(&optimiser->host.spec, work->norm);
    for (int64_t s = 0; s < optimiser->host.segment_count; s++) {
        double gradient_squares = 0, parameter_squares = 0;
        for (; next < optimiser->blocks + optimiser->block_count && next->segment == s; next++) {
            gradient_squares += next->gradient_squares;
            parameter_squares += next->parameter_squares;
        }
        gradient_squares *= work->factor * work->factor;
        if (!(gradient_squares <= ZONAL__OPTIMISER_LARGEST))
            return zonal__optimiser_refuse(&optimiser->host.segments[s]);
        optimiser->ratio[s] =
            zonal__optimiser_trust(&optimiser->host.spec, &optimiser->host.segments[s],
                                   sqrt(parameter_squares), sqrt(gradient_squares));
    }
    return ZONAL_OK;
}

static coefficients coefficients_of(const zonal__work *work, int64_t segment) {
    const zonal__optimiser *optimiser = work->optimiser;
    const zonal__optimiser_spec *spec = &optimiser->host.spec;
    const zonal__optimiser_numbers *numbers = work->numbers;
    double decay = optimiser->host.segments[segment].decay ? spec->weight_decay : 0;
    coefficients c = {.factor = (float)work->factor,
                      .decay = (float)decay,
                      .rate = (float)numbers->rate,
                      .momentum = (float)spec->momentum,
                      .look_ahead = spec->nesterov ? (float)spec->momentum : 0};
    if (spec->kind == ZONAL__OPTIMISER_ADAMW) {
        c.decay = (float)(numbers->rate * decay);
        c.rate = (float)(numbers->rate / numbers->correction1);
        c.root = (float)(1 / sqrt(numbers->correction2));
        c.new1 = (float)(1 - spec->beta1);
        c.new2 = (float)(1 - spec->beta2);
        c.epsilon = (float)spec->epsilon;
    } else if (spec->kind == ZONAL__OPTIMISER_LARS) {
        c.rate = (float)(numbers->rate * optimiser->ratio[segment]);
    }
    return c;
}

static void copy_block(void *context, int64_t i, int thread) {
    const zonal__work *work = context;
    const block *b = &work->optimiser->blocks[i];
    (void)thread;
    round_to_bf16(b->count, work->arrays->parameters + b->offset, work->arrays->copy + b->offset);
}

static void update_block(void *context, int64_t i, int thread) {
    const zonal__work *work = context;
    const zonal__optimiser *optimiser = work->optimiser;
    const block *b = &optimiser->blocks[i];
    coefficients c = coefficients_of(work, b->segment);
    const float *gradient = work->arrays->gradients + b->offset;
    float *p = work->arrays->parameters + b->offset, *first = optimiser->host.state[0] + b->offset;
    switch (optimiser->host.spec.kind) {
    case ZONAL__OPTIMISER_ADAMW:
        adamw(b->count, c, gradient, p, first, optimiser->host.state[1] + b->offset);
        break;
    case ZONAL__OPTIMISER_SGD:
        sgd(b->count, c, gradient, p, first);
        break;
    case ZONAL__OPTIMISER_LARS:
        lars(b->count, c, gradient, p, first);
        break;
    }
    if (work->arrays->copy) copy_block(context, i, thread); /* the block is still in the cache */
}

/* ---- the table ------------------------------------------------------------------------------- */

static zonal_status step_body(zonal__work *work, const void *x, double *value, void *gradient,
                              double factor) {
    (void)x, (void)value, (void)gradient, (void)factor;
    zonal__cpu_parallel(work->optimiser->block_count, sum_block, work);
    ZONAL_TRY(examine(work));
    zonal__cpu_parallel(work->optimiser->block_count, update_block, work);
    return ZONAL_OK;
}

static zonal_status step(zonal__optimiser *optimiser, const zonal__optimiser_arrays *arrays,
                         const zonal__optimiser_numbers *numbers, double *norm) {
    zonal__work work = {.optimiser = optimiser, .arrays = arrays, .numbers = numbers};
    zonal_status result = zonal__cpu_run(optimiser->threads, step_body, &work, NULL, NULL, NULL, 0);
    *norm = work.norm;
    return result;
}

static zonal_status status(zonal__optimiser *optimiser) {
    (void)optimiser;
    return ZONAL_OK;
}

static zonal_status copy_body(zonal__work *work, const void *x, double *value, void *gradient,
                              double factor) {
    (void)x, (void)value, (void)gradient, (void)factor;
    zonal__cpu_parallel(work->optimiser->block_count, copy_block, work);
    return ZONAL_OK;
}

static zonal_status copy(zonal__optimiser *optimiser, const zonal__optimiser_arrays *arrays) {
    zonal__work work = {.optimiser = optimiser, .arrays = arrays};
    if (!arrays->copy) return ZONAL_OK;
    return zonal__cpu_run(optimiser->threads, copy_body, &work, NULL, NULL, NULL, 0);
}

static const zonal__optimiser_table table = {.name = "cpu",
                                             .create = create,
                                             .destroy = destroy,
                                             .state = state,
                                             .step = step,
                                             .status = status,
                                             .copy = copy};

const zonal__optimiser_table *zonal__optimiser_cpu(void) {
    return &table;
}
