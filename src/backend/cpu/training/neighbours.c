/*
 * Nearest neighbours on the host's threads. A turn takes a tile of queries through the whole bank:
 * a product of the tile with a block of the bank, whose cosines are in the cache when they are
 * looked through for what belongs to the best so far. At the end the candidates' cosines are summed
 * again in double.
 */
#include "backend/training/neighbours.h"

#include <stdlib.h>

#include "backend/cpu/clones.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/product.h"
#include "core/memory.h"

enum {
    TILE = 256,  /* queries of a turn: enough to pay for the packing of the bank's block */
    BLOCK = 512, /* rows of the bank at a time: cosines of 512 KiB, which the second cache holds */
    LANES = 16   /* partial sums of a cosine in double */
};

typedef struct candidate {
    double cosine;
    int32_t row;
} candidate;

/* The best candidates of one query so far, the worst of them on top. */
typedef struct heap {
    candidate *at; /* [most] */
    int count, most;
} heap;

/* The scratch of one thread. */
typedef struct scratch {
    float *cosines;        /* [TILE][BLOCK] */
    candidate *candidates; /* [TILE][keep] */
    heap heaps[TILE];
} scratch;

struct zonal__neighbours {
    zonal__neighbours_spec spec;
    const zonal__cpu_kernels *kernels;
    int threads;
    int64_t bank;     /* rows in it */
    float *rows;      /* [spec.rows][dim], of unit length */
    float *unit;      /* [spec.queries][dim]: the queries, of unit length */
    uint8_t *good;    /* [rows or queries, the more]: 0 for one without a direction */
    scratch *scratch; /* [threads] */
    /* the call in progress */
    int64_t count, self;
    const float *from; /* rows or queries as they come */
    float *to;         /* where they go, of unit length */
    double *cosine;
    int32_t *row;
    float *out;
};

/* ---- making ---------------------------------------------------------------------------------- */

static void destroy(zonal__neighbours *self) {
    if (!self) return;
    for (int t = 0; self->scratch && t < self->threads; t++) {
        zonal__free(self->scratch[t].cosines);
        zonal__free(self->scratch[t].candidates);
    }
    zonal__free(self->scratch);
    zonal__free(self->rows);
    zonal__free(self->unit);
    zonal__free(self->good);
    zonal__free(self);
}

static zonal_status allocate(zonal__neighbours *self) {
    const zonal__neighbours_spec *spec = &self->spec;
    int64_t more = spec->rows > spec->queries ? spec->rows : spec->queries;
    int keep = spec->k + ZONAL__NEIGHBOURS_SPARE;
    ZONAL_TRY(ZONAL_NEW(&self->rows, spec->rows * spec->dim, "the bank"));
    ZONAL_TRY(ZONAL_NEW(&self->unit, spec->queries * spec->dim, "the queries"));
    ZONAL_TRY(ZONAL_NEW(&self->good, more, "the queries"));
    ZONAL_TRY(ZONAL_NEW(&self->scratch, self->threads, "the panels"));
    for (int t = 0; spec->k > 0 && t < self->threads; t++) {
        ZONAL_TRY(ZONAL_NEW(&self->scratch[t].cosines, TILE * BLOCK, "the panels"));
        ZONAL_TRY(ZONAL_NEW(&self->scratch[t].candidates, TILE * keep, "the candidates"));
    }
    return ZONAL_OK;
}

static zonal_status create(const zonal__neighbours_spec *spec, zonal__neighbours **out) {
    zonal__neighbours *self;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__neighbours_check(spec));
    ZONAL_TRY(ZONAL_NEW(&self, 1, "nearest neighbours"));
    self->spec = *spec;
    self->kernels = zonal__cpu_kernels_get(ZONAL_PRECISION_FP32);
    self->threads = zonal__backend_threads(spec->threads);
    ZONAL_TRY_GOTO(status, failed, allocate(self));
    *out = self;
    return ZONAL_OK;
failed:
    destroy(self);
    return status;
}

/* ---- unit rows ------------------------------------------------------------------------------- */

static void unit_turn(void *context, int64_t turn, int thread) {
    zonal__neighbours *self = context;
    int64_t dim = self->spec.dim, end = (turn + 1) * TILE;
    (void)thread;
    for (int64_t i = turn * TILE; i < self->count && i < end; i++)
        self->good[i] =
            (uint8_t)zonal__neighbours_unit(dim, self->from + i * dim, self->to + i * dim);
}

static zonal_status make_unit(zonal__neighbours *self, const char *what) {
    int64_t dim = self->spec.dim;
    zonal__cpu_parallel((self->count + TILE - 1) / TILE, unit_turn, self);
    for (int64_t i = 0; i < self->count; i++)
        if (!self->good[i]) return zonal__neighbours_bad_row(dim, self->from + i * dim, what, i);
    return ZONAL_OK;
}

/* Runs "body" with a team; what it works on is in the object. */
static zonal_status run(zonal__neighbours *self, zonal__cpu_body body) {
    return zonal__cpu_run(self->threads, body, (zonal__work *)self, NULL, NULL, NULL, 0);
}

static zonal_status bank_body(zonal__work *work, const void *x, double *value, void *gradient,
                              double factor) {
    (void)x, (void)value, (void)gradient, (void)factor;
    return make_unit((zonal__neighbours *)work, "row");
}

static zonal_status set_bank(zonal__neighbours *self, int64_t count, const float *rows) {
    ZONAL_TRY(zonal__neighbours_check_bank(&self->spec, count));
    self->bank = 0;
    self->count = count;
    self->from = rows;
    self->to = self->rows;
    ZONAL_TRY(run(self, bank_body));
    self->bank = count;
    return ZONAL_OK;
}

/* ---- the best -------------------------------------------------------------------------------- */

/* 1 when a comes after b: it is farther, or as far and the higher row. */
static int worse(const candidate *a, const candidate *b) {
    return a->cosine < b->cosine || (a->cosine == b->cosine && a->row > b->row);
}

static int compare(const void *a, const void *b) {
    return worse(a, b) - worse(b, a);
}

/* Puts "item" at the top of a heap whose top is free, and lets it sink to its place. */
static void sink(heap *h, candidate item) {
    int at = 0;
    for (;;) {
        int child = 2 * at + 1;
        if (child >= h->count) break;
        if (child + 1 < h->count && worse(&h->at[child + 1], &h->at[child])) child++;
        if (!worse(&h->at[child], &item)) break;
        h->at[at] = h->at[child];
        at = child;
    }
    h->at[at] = item;
}

static void push(heap *h, candidate item) {
    if (h->count == h->most) {
        if (worse(&h->at[0], &item)) sink(h, item);
        return;
    }
    int at = h->count++;
    for (; at > 0 && worse(&item, &h->at[(at - 1) / 2]); at = (at - 1) / 2)
        h->at[at] = h->at[(at - 1) / 2];
    h->at[at] = item;
}

/* The number of leading cosines that do not come up to "least", in steps of LANES. */
ZONAL__CLONES static int64_t skip(int64_t n, const float *cosines, float least) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        int any = 0;
        for (int l = 0; l < LANES; l++) any |= cosines[i + l] >= least;
        if (any) break;
    }
    return i;
}

/* Offers the cosines of rows first ... first + n - 1 to a heap; "self" is not offered. */
static void offer(heap *h, int64_t n, const float *cosines, int64_t first, int64_t self) {
    int64_t i = 0;
    while (i < n) {
        if (h->count == h->most) i += skip(n - i, cosines + i, (float)h->at[0].cosine);
        for (int l = 0; l < LANES && i < n; l++, i++)
            if (first + i != self) push(h, (candidate){(double)cosines[i], (int32_t)(first + i)});
    }
}

/* The sum in double, in an order that does not depend on the instructions used. */
ZONAL__CLONES static double exact_cosine(int64_t dim, const float *a, const float *b) {
    double part[LANES] = {0}, sum = 0;
    int64_t j = 0;
    for (; j + LANES <= dim; j += LANES)
        for (int l = 0; l < LANES; l++) part[l] += (double)a[j + l] * (double)b[j + l];
    for (; j < dim; j++) sum += (double)a[j] * (double)b[j];
    for (int l = 0; l < LANES; l++) sum += part[l];
    return sum;
}

/* Orders the candidates of query q by their cosines in double, and keeps the first k. */
static void finish(const zonal__neighbours *self, heap *h, int64_t q) {
    int64_t dim = self->spec.dim;
    int k = self->spec.k;
    for (int i = 0; i < h->count; i++)
        h->at[i].cosine = exact_cosine(dim, self->unit + q * dim, self->rows + h->at[i].row * dim);
    qsort(h->at, (size_t)h->count, sizeof *h->at, compare);
    for (int i = 0; i < k; i++) {
        self->cosine[q * k + i] = h->at[i].cosine;
        self->row[q * k + i] = h->at[i].row;
    }
}

/* out [queries][rows] with "pitch" from query to query: their cosines with rows of the bank. */
static void multiply(const zonal__neighbours *self, int64_t query, int64_t queries, int64_t row,
                     int64_t rows, float *out, int64_t pitch) {
    int64_t dim = self->spec.dim;
    zonal__cpu_product product = {.transpose_b = 1,
                                  .m = queries,
                                  .n = rows,
                                  .k = dim,
                                  .a = self->unit + query * dim,
                                  .lda = dim,
                                  .b = self->rows + row * dim,
                                  .ldb = dim,
                                  .c = out,
                                  .ldc = pitch};
    zonal__cpu_multiply(self->kernels, &product);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void nearest_turn(void *context, int64_t turn, int thread) {
    zonal__neighbours *self = context;
    scratch *s = &self->scratch[thread];
    int64_t query = turn * TILE, queries = least(TILE, self->count - query);
    int keep = self->spec.k + ZONAL__NEIGHBOURS_SPARE;
    for (int64_t q = 0; q < queries; q++)
        s->heaps[q] = (heap){.at = s->candidates + q * keep, .most = keep};
    for (int64_t row = 0; row < self->bank; row += BLOCK) {
        int64_t rows = least(BLOCK, self->bank - row);
        multiply(self, query, queries, row, rows, s->cosines, BLOCK);
        for (int64_t q = 0; q < queries; q++)
            offer(&s->heaps[q], rows, s->cosines + q * BLOCK, row,
                  self->self < 0 ? -1 : self->self + query + q);
    }
    for (int64_t q = 0; q < queries; q++) finish(self, &s->heaps[q], query + q);
}

static zonal_status nearest_body(zonal__work *work, const void *x, double *value, void *gradient,
                                 double factor) {
    zonal__neighbours *self = (zonal__neighbours *)work;
    (void)x, (void)value, (void)gradient, (void)factor;
    ZONAL_TRY(make_unit(self, "query"));
    zonal__cpu_parallel((self->count + TILE - 1) / TILE, nearest_turn, self);
    return ZONAL_OK;
}

static void set_queries(zonal__neighbours *self, int64_t count, const float *queries) {
    self->count = count;
    self->from = queries;
    self->to = self->unit;
}

static zonal_status nearest(zonal__neighbours *self, int64_t count, const float *queries,
                            int64_t first, double *cosine, int32_t *row) {
    ZONAL_TRY(zonal__neighbours_check_nearest(&self->spec, self->bank, count, first));
    set_queries(self, count, queries);
    self->self = first;
    self->cosine = cosine;
    self->row = row;
    return run(self, nearest_body);
}

/* ---- all cosines ----------------------------------------------------------------------------- */

/* A turn is a block of the bank for all queries of a tile, so that few queries keep all threads
 * busy too. */
static void cosines_turn(void *context, int64_t turn, int thread) {
    zonal__neighbours *self = context;
    int64_t blocks = (self->bank + BLOCK - 1) / BLOCK;
    int64_t query = turn / blocks * TILE, row = turn % blocks * BLOCK;
    (void)thread;
    multiply(self, query, least(TILE, self->count - query), row, least(BLOCK, self->bank - row),
             self->out + query * self->bank + row, self->bank);
}

static zonal_status cosines_body(zonal__work *work, const void *x, double *value, void *gradient,
                                 double factor) {
    zonal__neighbours *self = (zonal__neighbours *)work;
    int64_t tiles = (self->count + TILE - 1) / TILE, blocks = (self->bank + BLOCK - 1) / BLOCK;
    (void)x, (void)value, (void)gradient, (void)factor;
    ZONAL_TRY(make_unit(self, "query"));
    zonal__cpu_parallel(tiles * blocks, cosines_turn, self);
    return ZONAL_OK;
}

static zonal_status cosines(zonal__neighbours *self, int64_t count, const float *queries,
                            float *out) {
    ZONAL_TRY(zonal__neighbours_check_queries(&self->spec, self->bank, count));
    set_queries(self, count, queries);
    self->out = out;
    return run(self, cosines_body);
}

const zonal__neighbours_table *zonal__neighbours_cpu(void) {
    static const zonal__neighbours_table table = {.name = "cpu",
                                                  .create = create,
                                                  .destroy = destroy,
                                                  .set_bank = set_bank,
                                                  .nearest = nearest,
                                                  .cosines = cosines};
    return &table;
}
