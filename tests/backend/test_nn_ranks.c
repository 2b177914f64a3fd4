/*
 * Synchronised batch norms (backend/training/nn.h): a batch that several ranks hold together gives
 * what the reference gives for the whole of it on one, forward and backward, for the reference, the
 * host's threads and, where there is one, the GPU.
 */
#include <stdlib.h>

#include "gpu.h"
#include "nn_trial.h"
#include "test.h"
#include "thread_ranks.h"

enum { MOST_CHANNELS = 80 };

typedef struct shared {
    const zonal__nn_table *table;
    const int64_t *n; /* [ranks]: images of each */
    trial *whole;     /* the oracle, with its inputs */
    trial *got;       /* of the same shape; the ranks put their parts here */
    float part[THREAD_RANKS][2][MOST_CHANNELS];  /* dbias and dscale of each rank */
    float moved[THREAD_RANKS][2][MOST_CHANNELS]; /* running mean and variance of each */
    int turn; /* 1: the second step, added to the gradients, with two gradients of y */
} shared;

/* The rows of a rank, from and to the whole batch's. */
static void copy_rows(trial *part, trial *whole, int array, int64_t first, int64_t all_n, int out) {
    int64_t each = whole->count[array] / all_n;
    size_t bytes = (size_t)part->count[array] * sizeof(float);
    if (!bytes) return;
    if (out)
        memcpy(whole->wide[array] + first * each, part->wide[array], bytes);
    else
        memcpy(part->wide[array], whole->wide[array] + first * each, bytes);
}

static void keep_channels(const trial *t, int rank, shared *s) {
    size_t bytes = (size_t)t->spec.channels * sizeof(float);
    memcpy(s->part[rank][0], t->wide[DBIAS], bytes);
    memcpy(s->part[rank][1], t->wide[DSCALE], bytes);
    memcpy(s->moved[rank][0], t->wide[RUNNING_MEAN], bytes);
    memcpy(s->moved[rank][1], t->wide[RUNNING_VARIANCE], bytes);
}

static void run_rank(const zonal_communicator *c, void *context) {
    static const int rows_in[] = {X, RESIDUAL, DY, DY_MORE}, rows_out[] = {Y, DX, DRESIDUAL};
    static const int channels[] = {BIAS, SCALE, RUNNING_MEAN, RUNNING_VARIANCE};
    shared *s = context;
    zonal__layer_spec spec = s->whole->spec;
    int64_t first = 0;
    trial t;
    for (int r = 0; r < c->ranks; r++) first += r < c->rank ? s->n[r] : 0;
    spec.all_n = spec.n;
    spec.n = s->n[c->rank];
    spec.communicator = c;
    if (!trial_make(&t, s->table, spec)) exit(1); /* the others would wait for ever */
    for (int i = 0; i < 4; i++) copy_rows(&t, s->whole, rows_in[i], first, spec.all_n, 0);
    for (int i = 0; i < 4; i++)
        memcpy(t.wide[channels[i]], s->whole->wide[channels[i]],
               (size_t)spec.channels * sizeof(float));
    CHECK_OK(trial_forward(&t, 1));
    CHECK_OK(trial_backward(&t));
    if (s->turn) { /* two ranks' halves of a gradient that is there stay halves */
        t.accumulate = t.with_more = 1;
        CHECK_OK(trial_forward(&t, 1));
        CHECK_OK(trial_backward(&t));
    }
    for (int i = 0; i < 3; i++) copy_rows(&t, s->got, rows_out[i], first, spec.all_n, 1);
    keep_channels(&t, c->rank, s);
    trial_drop(&t);
}

/* Gradients are sums over the ranks; running statistics are the same bits on all. */
static void join_ranks(int ranks, shared *s) {
    int channels = s->got->spec.channels;
    for (int c = 0; c < channels; c++) {
        double dbias = 0, dscale = 0;
        for (int r = 0; r < ranks; r++) {
            dbias += (double)s->part[r][0][c];
            dscale += (double)s->part[r][1][c];
        }
        s->got->wide[DBIAS][c] = (float)dbias;
        s->got->wide[DSCALE][c] = (float)dscale;
        s->got->wide[RUNNING_MEAN][c] = s->moved[0][0][c];
        s->got->wide[RUNNING_VARIANCE][c] = s->moved[0][1][c];
    }
    for (int r = 1; r < ranks; r++)
        CHECK_MSG(!memcmp(s->moved[r][0], s->moved[0][0], (size_t)channels * sizeof(float)) &&
                      !memcmp(s->moved[r][1], s->moved[0][1], (size_t)channels * sizeof(float)),
                  "rank %d has other running statistics than rank 0", r);
}

/* fp32: as far as a layer is from the reference on one rank. bf16: what is rounded differs by 2^-8
 * where it lay next to a tie, and on the GPU the gradients of a pool and of a residual have one
 * rounding more (test_cuda_nn.c). A rank left out, or taken twice, is off by a tenth or more. */
static double tolerance(const shared *s, int array) {
    int narrow = s->whole->spec.dtype == ZONAL_DTYPE_BF16;
    if (!narrow) return 1e-5;
    if (!zonal__device_is_host(s->whole->on) || s->table != zonal__nn_ref()) return 4e-3;
    return trial_is_narrow(array) ? 1e-3 : 1e-5;
}

static void check_ranks(const zonal__nn_table *table, zonal__layer_spec spec, int ranks,
                        const int64_t *n, int turn) {
    static const int outputs[] = {Y, DX, DRESIDUAL, DBIAS, DSCALE, RUNNING_MEAN, RUNNING_VARIANCE};
    static shared s;
    trial whole, got;
    memset(&s, 0, sizeof s);
    if (!trial_make(&whole, zonal__nn_ref(), spec)) return;
    if (trial_make(&got, zonal__nn_ref(), spec)) {
        trial_fill_all(&whole, turn);
        for (int64_t i = 0; i < whole.count[X]; i++) /* a mean that is not 0 */
            whole.wide[X][i] += (float)(i % spec.channels) / 16;
        s = (shared){.table = table, .n = n, .whole = &whole, .got = &got, .turn = turn};
        if (CHECK_OK(thread_ranks_run(ranks, run_rank, &s))) {
            join_ranks(ranks, &s);
            CHECK_OK(trial_forward(&whole, 1));
            CHECK_OK(trial_backward(&whole));
            whole.accumulate = whole.with_more = 1;
            if (turn) CHECK_OK(trial_forward(&whole, 1));
            if (turn) CHECK_OK(trial_backward(&whole));
            for (int i = 0; i < 7; i++)
                trial_check(&got, &whole, outputs[i], tolerance(&s, outputs[i]), table->name);
        }
        trial_drop(&got);
    }
    trial_drop(&whole);
}

static void check_table(const zonal__nn_table *table) {
    static const int64_t shares[][4] = {{11}, {5, 6}, {1, 7, 3}, {3, 3, 3, 2}};
    static const zonal_dtype types[] = {ZONAL_DTYPE_FP32, ZONAL_DTYPE_BF16};
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int type = 0; type < 2; type++)
            for (int activation = 0; activation < 3; activation++) {
                zonal__layer_spec norm = LAYER_SPEC(NORM, .n = 11, .h = 5, .w = 3, .channels = 72);
                norm.dtype = types[type];
                norm.activation = (zonal__activation)activation;
                norm.residual = activation != ZONAL__ACTIVATION_NONE;
                check_ranks(table, norm, ranks, shares[ranks - 1], activation == 1);
                norm.channels = 7; /* no vectors */
                check_ranks(table, norm, ranks, shares[ranks - 1], 0);
                norm = LAYER_SPEC(NORM_POOL, .n = 11, .h = 7, .w = 6, .channels = 16, .kernel = 3,
                                  .stride = 2, .pad = 1, .dtype = types[type]);
                if (activation != ZONAL__ACTIVATION_GELU) norm.activation = activation;
                check_ranks(table, norm, ranks, shares[ranks - 1], 0);
            }
}

static void test_ref(void) {
    check_table(zonal__nn_ref());
}

static void test_cpu(void) {
    check_table(zonal__nn_cpu());
}

/* Every rank has one row: none of them could train alone. */
static void test_single_rows(void) {
    static const int64_t one[] = {1, 1, 1};
    const zonal__layer_spec norm = LAYER_SPEC(NORM, .n = 3, .h = 1, .w = 1, .channels = 5);
    check_ranks(zonal__nn_ref(), norm, 3, one, 0);
    check_ranks(zonal__nn_cpu(), norm, 3, one, 0);
}

/* A mean of 4096 standard deviations: the ranks' sums lose none of the variance that fp32 kept. */
static void test_large_mean(void) {
    static const int64_t n[] = {20, 44};
    static shared s;
    zonal__layer_spec norm = LAYER_SPEC(NORM, .n = 64, .h = 1, .w = 1, .channels = 3);
    trial whole, got;
    if (!trial_make(&whole, zonal__nn_ref(), norm)) return;
    if (trial_make(&got, zonal__nn_ref(), norm)) {
        trial_fill_all(&whole, 0);
        for (int64_t i = 0; i < whole.count[X]; i++) whole.wide[X][i] += 4096;
        s = (shared){.table = zonal__nn_cpu(), .n = n, .whole = &whole, .got = &got};
        if (CHECK_OK(thread_ranks_run(2, run_rank, &s))) {
            join_ranks(2, &s);
            CHECK_OK(trial_forward(&whole, 1));
            trial_check(&got, &whole, Y, 2e-6, "a large mean");
            trial_check(&got, &whole, RUNNING_VARIANCE, 1e-6, "a large mean");
        }
        trial_drop(&got);
    }
    trial_drop(&whole);
}

static void test_refusals(void) {
    const zonal_communicator communicator = ZONAL_COMMUNICATOR_INIT;
    zonal__layer_spec norm =
        LAYER_SPEC(NORM, .n = 4, .h = 1, .w = 1, .channels = 5, .dtype = ZONAL_DTYPE_FP32,
                   .all_n = 3, .communicator = &communicator);
    zonal__layer *layer;
    CHECK_FAILS(zonal__nn_cpu()->create(&norm, &layer), ZONAL_ARGUMENT, "all ranks together");
    CHECK(layer == NULL);
    norm.n = norm.all_n = 1;
    CHECK_FAILS(zonal__layer_check_forward(&norm, 1), ZONAL_SHAPE, "one value per channel");
}

/* Several ranks share the GPU; what they exchange goes through the host. */
static void test_cuda(void) {
    if (gpu_is_missing(gpu_layers() != NULL)) return;
    check_table(gpu_layers());
}

static const test_case tests[] = {{"ref", test_ref},
                                  {"cpu", test_cpu},
                                  {"single_rows", test_single_rows},
                                  {"large_mean", test_large_mean},
                                  {"refusals", test_refusals},
                                  {"cuda", test_cuda},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
