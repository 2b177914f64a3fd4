/* Retrieval, a group of samples and a panel of queries at a time: retrieval.h. */
#include "eval/retrieval.h"

#include <math.h>
#include <string.h>

#include "backend/training/tables.h"
#include "core/memory.h"

/* Cosines that are held at a time, about: 64 MiB. */
enum { PANEL = 16 * 1024 * 1024 };

/* A group of samples, as rows [views][batch] of the bank. */
typedef struct session {
    const zonal__retrieval_options *options;
    int64_t batch, groups, rows, queries; /* rows of a group; queries of a panel */
    const zonal__neighbours_table *table;
    zonal__neighbours *search;
    float *group;   /* [rows][dim] */
    float *cosines; /* [queries][rows] */
    float *right;   /* [views - 1] */
    int64_t *ahead; /* [views - 1] */
} session;

static zonal_status check(const zonal__retrieval_options *options) {
    if (options->views < 2 || options->dim < 1)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "retrieval needs at least 2 views of each sample and 1 "
                          "feature, got %lld and %lld",
                          (long long)options->views, (long long)options->dim);
    if (options->samples < 2 || options->batch < 0 || options->batch == 1)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "retrieval needs at least 2 samples in a group, got %lld in "
                          "groups of %lld",
                          (long long)options->samples, (long long)options->batch);
    if (options->batch > options->samples)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "%lld samples are less than one group of %lld; take smaller "
                          "groups or more samples",
                          (long long)options->samples, (long long)options->batch);
    return ZONAL_OK;
}

/* A row without a direction, named by its view and sample before the search, which would name it by
 * its place in the group. */
static zonal_status check_rows(const session *s, const float *x) {
    int64_t dim = s->options->dim, samples = s->options->samples;
    for (int64_t i = 0; i < s->options->views * samples; i++) {
        double sum = 0;
        for (int64_t j = 0; j < dim; j++) sum += (double)x[i * dim + j] * (double)x[i * dim + j];
        if (i % samples < s->groups * s->batch && !(sum > 0 && sum < INFINITY))
            return ZONAL_FAIL(ZONAL_NUMERIC,
                              "view %lld of sample %lld is %s and has no direction; "
                              "fix its source",
                              (long long)(i / samples), (long long)(i % samples),
                              sum == 0 ? "zero" : "not finite");
    }
    return ZONAL_OK;
}

static void fini(session *s) {
    if (s->table) s->table->destroy(s->search);
    zonal__free(s->group);
    zonal__free(s->cosines);
    zonal__free(s->right);
    zonal__free(s->ahead);
}

/* k is that of the search; 0: all cosines are looked at. Undo with fini, also after failure. */
static zonal_status init(const zonal__retrieval_options *options, const float *x, int k,
                         session *s) {
    memset(s, 0, sizeof *s);
    ZONAL_TRY(check(options));
    s->options = options;
    s->batch = options->batch ? options->batch : options->samples;
    s->groups = options->samples / s->batch;
    s->rows = options->views * s->batch;
    s->queries = PANEL / s->rows < 1 ? 1 : PANEL / s->rows < s->rows ? PANEL / s->rows : s->rows;
    ZONAL_TRY(check_rows(s, x));
    if (k > s->rows - 1)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%d hits cannot be found among %lld candidates", k,
                          (long long)(s->rows - 1));
    zonal__neighbours_spec spec = {.dim = options->dim,
                                   .rows = s->rows,
                                   .queries = s->queries,
                                   .k = k,
                                   .threads = options->threads,
                                   .device = zonal__device_or_cpu(options->device)};
    ZONAL_TRY(zonal__device_neighbours(spec.device, &s->table));
    ZONAL_TRY(s->table->create(&spec, &s->search));
    ZONAL_TRY(ZONAL_NEW(&s->group, s->rows * options->dim, "a group"));
    ZONAL_TRY(ZONAL_NEW(&s->right, options->views - 1, "the right ones"));
    ZONAL_TRY(ZONAL_NEW(&s->ahead, options->views - 1, "the right ones"));
    return k ? ZONAL_OK : ZONAL_NEW(&s->cosines, s->queries * s->rows, "the cosines");
}

static zonal_status set_group(session *s, const float *x, int64_t group) {
    int64_t dim = s->options->dim;
    for (int64_t v = 0; v < s->options->views; v++)
        memcpy(s->group + v * s->batch * dim,
               x + (v * s->options->samples + group * s->batch) * dim,
               (size_t)(s->batch * dim) * sizeof *s->group);
    return s->table->set_bank(s->search, s->rows, s->group);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* The cosines of the right ones, in falling order. */
static void gather_right(const session *s, const float *cosines, int64_t query) {
    int64_t found = 0;
    for (int64_t row = query % s->batch; row < s->rows; row += s->batch) {
        int64_t at = found;
        if (row == query) continue;
        for (; at > 0 && cosines[row] > s->right[at - 1]; at--) s->right[at] = s->right[at - 1];
        s->right[at] = cosines[row];
        found++;
    }
}

/* How many wrong candidates are ahead of each right one: those that come up to its cosine, less all
 * rows of the sample itself that do. */
static void count_ahead(const session *s, const float *cosines, int64_t query) {
    for (int64_t j = 0; j < s->options->views - 1; j++) {
        float bar = s->right[j] - ZONAL__COSINE_ROUNDING;
        int64_t ahead = 0;
        for (int64_t row = 0; row < s->rows; row++) ahead += cosines[row] >= bar;
        for (int64_t row = query % s->batch; row < s->rows; row += s->batch)
            ahead -= cosines[row] >= bar;
        s->ahead[j] = ahead;
    }
}

static void add_query(const session *s, const float *cosines, int64_t query,
                      zonal__retrieval *sums) {
    int64_t right = s->options->views - 1;
    double precision = 0;
    gather_right(s, cosines, query);
    count_ahead(s, cosines, query);
    for (int64_t j = 0; j < right; j++)
        precision += (double)(j + 1) / (double)(j + 1 + s->ahead[j]);
    sums->r1 += s->ahead[0] < 1;
    sums->r3 += s->ahead[0] < 3;
    sums->r5 += s->ahead[0] < 5;
    sums->map += precision / (double)right;
    sums->queries++;
}

static zonal_status add_group(const session *s, int64_t group, zonal__retrieval *sums) {
    for (int64_t query = 0; query < s->rows; query += s->queries) {
        int64_t count = s->rows - query < s->queries ? s->rows - query : s->queries;
        ZONAL_TRY(
            s->table->cosines(s->search, count, s->group + query * s->options->dim, s->cosines));
        for (int64_t q = 0; q < count; q++) add_query(s, s->cosines + q * s->rows, query + q, sums);
        double done = (double)group + (double)(query + count) / (double)s->rows;
        ZONAL_TRY(zonal__eval_report(&s->options->progress, done / (double)s->groups));
    }
    return ZONAL_OK;
}

static zonal_status rank_all(session *s, const float *x, zonal__retrieval *result) {
    zonal__retrieval sums = {.candidates = s->rows - 1};
    for (int64_t group = 0; group < s->groups; group++) {
        ZONAL_TRY(set_group(s, x, group));
        ZONAL_TRY(add_group(s, group, &sums));
    }
    double queries = (double)sums.queries;
    sums.r1 /= queries, sums.r3 /= queries, sums.r5 /= queries, sums.map /= queries;
    *result = sums;
    return ZONAL_OK;
}

zonal_status zonal__retrieval_run(const zonal__retrieval_options *options, const float *x,
                                  zonal__retrieval *result) {
    session s;
    memset(result, 0, sizeof *result);
    zonal_status status = init(options, x, 0, &s);
    if (status == ZONAL_OK) status = rank_all(&s, x, result);
    fini(&s);
    return status;
}

/* ---- examples -------------------------------------------------------------------------------- */

static zonal_status find_top(session *s, const float *x, int64_t view, int64_t sample, int count,
                             zonal__retrieval_hit *hits) {
    int64_t group = sample / s->batch, query = view * s->batch + sample % s->batch;
    double cosine[ZONAL__NEIGHBOURS_MOST];
    int32_t row[ZONAL__NEIGHBOURS_MOST];
    if (view < 0 || view >= s->options->views || sample < 0 || group >= s->groups)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "view %lld of sample %lld takes no part in the retrieval",
                          (long long)view, (long long)sample);
    ZONAL_TRY(set_group(s, x, group));
    ZONAL_TRY(
        s->table->nearest(s->search, 1, s->group + query * s->options->dim, query, cosine, row));
    for (int i = 0; i < count; i++)
        hits[i] = (zonal__retrieval_hit){.view = row[i] / s->batch,
                                         .sample = group * s->batch + row[i] % s->batch,
                                         .cosine = cosine[i]};
    return ZONAL_OK;
}

zonal_status zonal__retrieval_top(const zonal__retrieval_options *options, const float *x,
                                  int64_t view, int64_t sample, int count,
                                  zonal__retrieval_hit *hits) {
    session s;
    if (count < 1) return ZONAL_FAIL(ZONAL_ARGUMENT, "at least 1 hit must be asked for");
    zonal_status status = init(options, x, count, &s);
    if (status == ZONAL_OK) status = find_top(&s, x, view, sample, count, hits);
    fini(&s);
    return status;
}
