/*
 * SLICED: the Epps-Pulley statistic averaged over random directions a, with u_ai = s a.x_i:
 *
 *     EP(a) = sum_k w_k ((C_k - target_k)^2 + S_k^2),   C_k + i S_k = mean_i e^(i t_k u_ai)
 *     dEP/du_i = (2/B) sum_k w_k t_k (S_k cos(t_k u_i) - (C_k - target_k) sin(t_k u_i))
 *
 * A block of slices at a time: draw the directions, project all rows on them (a product), find the
 * sums and put the derivatives in the place of the projections (each slice is one turn of a loop),
 * and carry them back to the rows (a product). Several ranks add up the block's sums in between,
 * and compute e^(i t u) once more for the derivatives: a block's are too many to keep, and to come
 * back to all projections after one exchange would cost more than an exchange for each block.
 *
 * Knots that lie symmetrically about 0 are folded: t and -t give the same term.
 */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/product.h"
#include "backend/cpu/rows.h"
#include "core/memory.h"
#include "core/random.h"

enum {
    MOST_SLICES = 128, /* of a block of many rows */
    CHUNK = 64,        /* rows per product */
    LINE = 16,         /* numbers of a cache line */
    FEW = 4            /* directions drawn at a time */
};

struct zonal__work {
    zonal__cpu_rows rows;
    int64_t slices, block; /* of them in a block */
    int64_t padded;        /* rows, rounded up to ZONAL__SLICE_BLOCK */
    int64_t stride;        /* from slice to slice of u */
    int raw;
    double row_scale;
    uint64_t seed;
    int knots;
    double knot0, step;
    double *weight, *target; /* [knots] */
    void *directions;        /* REAL [block][dim] */
    double *shift;           /* [block]: a.m */
    void *u;                 /* REAL [block][stride], of which [rows] are used */
    double *statistic;       /* [slices] */
    double *units;           /* [threads][2 or 4][padded]: see zonal__cpu_slice */
    double *sums;            /* [threads][knots][ZONAL__SLICE_WORK]: whole cache lines */
    double *factors;         /* [threads][2][knots]: of cos and sin in the derivatives */
    double *block_sums;      /* [block][2][knots]: sums over the rows of cos and sin */
    double *draw;            /* [threads][FEW][dim] */
    int64_t first, count;    /* the block being worked on */
    zonal__random random;
    const void *y; /* what is projected: centred rows, or raw ones */
    char *gradient;
};

static void destroy(zonal__work *work) {
    if (!work) return;
    zonal__cpu_rows_fini(&work->rows);
    zonal__free(work->weight);
    zonal__free(work->target);
    zonal__free(work->directions);
    zonal__free(work->shift);
    zonal__free(work->u);
    zonal__free(work->statistic);
    zonal__free(work->units);
    zonal__free(work->sums);
    zonal__free(work->factors);
    zonal__free(work->block_sums);
    zonal__free(work->draw);
    zonal__free(work);
}

/* Whether t_k = -t_{K-1-k} with equal weights and targets; up to rounding in t alone. */
static int symmetric(const zonal__sliced *s) {
    if (s->knots < 2 || !(fabs(2 * s->knot0 + (s->knots - 1) * s->step) <= 1e-14 * fabs(s->knot0)))
        return 0;
    for (int k = 0; k < s->knots / 2; k++)
        if (s->weight[k] != s->weight[s->knots - 1 - k] ||
            s->target[k] != s->target[s->knots - 1 - k])
            return 0;
    return 1;
}

static zonal_status fill_knots(const zonal__sliced *s, zonal__work *work) {
    int fold = symmetric(s), skip = fold ? s->knots / 2 : 0, odd = s->knots % 2;
    work->knots = s->knots - skip;
    work->step = s->step;
    work->knot0 = fold ? (odd ? 0 : s->step / 2) : s->knot0;
    ZONAL_TRY(ZONAL_NEW(&work->weight, work->knots, "the knots"));
    ZONAL_TRY(ZONAL_NEW(&work->target, work->knots, "the knots"));
    for (int k = 0; k < work->knots; k++) {
        work->weight[k] = s->weight[skip + k] * (fold && !(odd && k == 0) ? 2 : 1);
        work->target[k] = s->target[skip + k];
    }
    return ZONAL_OK;
}

static int unit_arrays(const zonal__work *work) {
    return work->knot0 == 0 ? 2 : 4;
}

/* Half as many slices as dimensions: their projections then take half the rows' memory. For few
 * rows twice as many, which halves the number of times that threads wait for each other. */
static int64_t choose_block(int64_t rows, int64_t d) {
    int64_t block = rows <= 512 ? d : d / 2, most = rows <= 512 ? 2 * MOST_SLICES : MOST_SLICES;
    return block < 16 ? 16 : block > most ? most : block;
}

static zonal_status fill(const zonal__problem *problem, zonal__work *work) {
    const zonal__sliced *s = problem->sliced;
    int64_t d = problem->dim, threads = problem->threads;
    work->slices = s->slices;
    work->raw = s->raw_rows;
    work->row_scale = s->row_scale;
    work->seed = s->seed;
    work->block = choose_block(problem->rows, d);
    if (work->block > s->slices) work->block = s->slices;
    work->padded =
        (problem->rows + ZONAL__SLICE_BLOCK - 1) / ZONAL__SLICE_BLOCK * ZONAL__SLICE_BLOCK;
    /* an odd number of cache lines: a power of two would put all slices into a few cache sets */
    work->stride = work->padded + LINE;
    ZONAL_TRY(fill_knots(s, work));
    ZONAL_TRY(zonal__cpu_rows_init(problem, s->raw_rows, &work->rows));
    size_t size = work->rows.kernels->size;
    ZONAL_TRY(zonal__alloc(work->block, (size_t)d * size, "the directions", &work->directions));
    ZONAL_TRY(ZONAL_NEW(&work->shift, work->block, "the directions"));
    ZONAL_TRY(zonal__alloc(work->block, (size_t)work->stride * size, "the projections", &work->u));
    ZONAL_TRY(ZONAL_NEW(&work->statistic, s->slices, "the statistics"));
    ZONAL_TRY(ZONAL_NEW(&work->units, threads * unit_arrays(work) * work->padded, "the units"));
    ZONAL_TRY(ZONAL_NEW(&work->sums, threads * work->knots * ZONAL__SLICE_WORK, "the sums"));
    ZONAL_TRY(ZONAL_NEW(&work->factors, threads * 2 * work->knots, "the sums"));
    ZONAL_TRY(ZONAL_NEW(&work->block_sums, work->block * 2 * work->knots, "the sums"));
    return ZONAL_NEW(&work->draw, threads * FEW * d, "the directions");
}

static zonal_status create(const zonal__problem *problem, zonal__work **out) {
    return zonal__cpu_create(problem, sizeof **out, "the slices", fill, destroy, out);
}

static size_t scratch_bytes(const zonal__work *work) {
    size_t d = (size_t)work->rows.dim, block = (size_t)work->block;
    size_t threads = (size_t)work->rows.threads, knots = (size_t)work->knots;
    size_t doubles = 2 * knots + block + (size_t)work->slices + 2 * block * knots +
                     threads * ((size_t)unit_arrays(work) * (size_t)work->padded +
                                (2 + ZONAL__SLICE_WORK) * knots + FEW * d);
    return sizeof *work + zonal__cpu_rows_bytes(&work->rows) +
           block * (d + (size_t)work->stride) * work->rows.kernels->size + doubles * sizeof(double);
}

/* Slices FEW i ... FEW i + 3 of the block, or as many as it has. */
static void draw_directions(void *context, int64_t i, int thread) {
    zonal__work *work = context;
    const zonal__cpu_rows *rows = &work->rows;
    int64_t d = rows->dim, first = FEW * i, end = first + FEW;
    double *a = work->draw + thread * FEW * d;
    zonal__random_four_directions(&work->random, (uint64_t)(work->first + first), d, a);
    for (int64_t k = first; k < end && k < work->count; k++, a += d) {
        work->shift[k] = work->raw ? 0 : rows->kernels->dot(d, a, rows->mean);
        rows->kernels->narrow(d, a,
                              (char *)work->directions + (size_t)(k * d) * rows->kernels->size);
    }
}

/* u[slice][row] = a.y for a chunk of rows. */
static void project_chunk(void *context, int64_t chunk, int thread) {
    zonal__work *work = context;
    const zonal__cpu_rows *rows = &work->rows;
    int64_t d = rows->dim, i = chunk * CHUNK;
    size_t size = rows->kernels->size;
    (void)thread;
    zonal__cpu_multiply(rows->kernels,
                        &(zonal__cpu_product){.transpose_b = 1,
                                              .m = work->count,
                                              .n = rows->rows - i < CHUNK ? rows->rows - i : CHUNK,
                                              .k = d,
                                              .a = work->directions,
                                              .lda = d,
                                              .b = (const char *)work->y + (size_t)(i * d) * size,
                                              .ldb = d,
                                              .c = (char *)work->u + (size_t)i * size,
                                              .ldc = work->stride});
}

/* gradient[row] += sum over the block's slices of u[slice][row] a */
static void spread_chunk(void *context, int64_t chunk, int thread) {
    zonal__work *work = context;
    const zonal__cpu_rows *rows = &work->rows;
    int64_t d = rows->dim, i = chunk * CHUNK;
    size_t size = rows->kernels->size;
    (void)thread;
    zonal__cpu_multiply(rows->kernels,
                        &(zonal__cpu_product){.transpose_a = 1,
                                              .m = rows->rows - i < CHUNK ? rows->rows - i : CHUNK,
                                              .n = d,
                                              .k = work->count,
                                              .a = (char *)work->u + (size_t)i * size,
                                              .lda = work->stride,
                                              .b = work->directions,
                                              .ldb = d,
                                              .beta = work->first > 0,
                                              .c = work->gradient + (size_t)(i * d) * size,
                                              .ldc = d});
}

static zonal__cpu_slice slice_of(const zonal__work *work, int64_t i, int thread) {
    const zonal__cpu_rows *rows = &work->rows;
    double *units = work->units + thread * unit_arrays(work) * work->padded;
    zonal__cpu_slice slice = {
        .n = rows->rows,
        .s = (char *)work->u + (size_t)(i * work->stride) * rows->kernels->size,
        .scale = work->row_scale,
        .shift = work->shift[i],
        .knots = work->knots,
        .knot0 = work->knot0,
        .step = work->step,
        .z_re = units,
        .z_im = units + work->padded,
        .work = work->sums + (int64_t)thread * work->knots * ZONAL__SLICE_WORK};
    if (work->knot0 != 0) {
        slice.w_re = units + 2 * work->padded;
        slice.w_im = units + 3 * work->padded;
    }
    return slice;
}

/* The sums of slice i over the own rows. */
static void sum_slice(const zonal__work *work, int64_t i, const zonal__cpu_slice *slice) {
    double *re = work->block_sums + i * 2 * work->knots;
    work->rows.kernels->slice_units(slice);
    work->rows.kernels->slice_sums(slice, re, re + work->knots);
}

/* EP from the sums over all rows, and the derivatives in the place of the projections. */
static void finish_slice(const zonal__work *work, int64_t i, int thread,
                         const zonal__cpu_slice *slice) {
    int knots = work->knots;
    double n = (double)work->rows.batch, statistic = 0;
    const double *re = work->block_sums + i * 2 * knots, *im = re + knots;
    double *gradient_re = work->factors + (int64_t)thread * 2 * knots;
    double *gradient_im = gradient_re + knots;
    for (int k = 0; k < knots; k++) {
        double t = work->knot0 + k * work->step;
        double cosine = re[k] / n - work->target[k], sine = im[k] / n;
        statistic += work->weight[k] * (cosine * cosine + sine * sine);
        gradient_re[k] = work->weight[k] * t * sine;
        gradient_im[k] = work->weight[k] * t * cosine;
    }
    work->statistic[work->first + i] = statistic;
    if (work->gradient) work->rows.kernels->slice_gradients(slice, gradient_re, gradient_im);
}

static void work_slice(void *context, int64_t i, int thread) {
    const zonal__work *work = context;
    zonal__cpu_slice slice = slice_of(work, i, thread);
    sum_slice(work, i, &slice);
    finish_slice(work, i, thread, &slice);
}

static void first_half(void *context, int64_t i, int thread) {
    const zonal__work *work = context;
    zonal__cpu_slice slice = slice_of(work, i, thread);
    sum_slice(work, i, &slice);
}

static void second_half(void *context, int64_t i, int thread) {
    const zonal__work *work = context;
    zonal__cpu_slice slice = slice_of(work, i, thread);
    if (work->gradient) work->rows.kernels->slice_units(&slice);
    finish_slice(work, i, thread, &slice);
}

/* The block's slices, whose projections are there. */
static zonal_status work_block(zonal__work *work) {
    if (!work->rows.ranks) {
        zonal__cpu_parallel(work->count, work_slice, work);
        return ZONAL_OK;
    }
    zonal__cpu_parallel(work->count, first_half, work);
    ZONAL_TRY(zonal__cpu_rows_sum(&work->rows, work->block_sums, work->count * 2 * work->knots));
    zonal__cpu_parallel(work->count, second_half, work);
    return ZONAL_OK;
}

static void finish_gradient(zonal__work *work, double factor) {
    zonal__cpu_rows *rows = &work->rows;
    double scale = 2 * factor * work->row_scale / (double)rows->batch / (double)work->slices;
    if (!work->raw) {
        zonal__cpu_rows_project(rows, work->gradient, NULL, scale,
                                &(zonal__cpu_projection){.scale = 1});
        return;
    }
    for (int64_t i = 0; i < rows->rows; i++)
        rows->kernels->scale(rows->dim, scale,
                             work->gradient + (size_t)(i * rows->dim) * rows->kernels->size);
}

static zonal_status compute(zonal__work *work, const void *x, double *value, void *gradient,
                            double factor) {
    zonal__cpu_rows *rows = &work->rows;
    int64_t chunks = (rows->rows + CHUNK - 1) / CHUNK;
    double sum = 0;
    ZONAL_TRY(work->raw ? zonal__cpu_rows_check(rows, x, gradient)
                        : zonal__cpu_rows_prepare(rows, x, gradient));
    work->y = work->raw ? x : rows->centred;
    work->gradient = gradient;
    for (work->first = 0; work->first < work->slices; work->first += work->block) {
        int64_t left = work->slices - work->first;
        work->count = left < work->block ? left : work->block;
        zonal__cpu_parallel((work->count + FEW - 1) / FEW, draw_directions, work);
        zonal__cpu_parallel(chunks, project_chunk, work);
        ZONAL_TRY(work_block(work));
        if (gradient) zonal__cpu_parallel(chunks, spread_chunk, work);
    }
    for (int64_t i = 0; i < work->slices; i++) sum += work->statistic[i];
    *value = sum / (double)work->slices;
    if (!isfinite(*value))
        return ZONAL_FAIL(ZONAL_NUMERIC,
                          "the rows are too large: their projections are not finite");
    if (gradient) finish_gradient(work, factor);
    return ZONAL_OK;
}

static zonal_status run(zonal__work *work, const void *x, uint32_t step, double *value,
                        void *gradient, double scale) {
    work->random = (zonal__random){work->seed, ZONAL__STREAM_SLICES, step};
    return zonal__cpu_rows_run(&work->rows, compute, work, x, value, gradient, scale);
}

const zonal__operation_table zonal__cpu_sliced = {
    .create = create, .run = run, .destroy = destroy, .scratch_bytes = scratch_bytes};
