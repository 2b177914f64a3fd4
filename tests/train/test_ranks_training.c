/*
 * Training on several ranks: a small network on 1, 2, 3 and 4 of them makes the steps of one, with
 * the same bits on all; it goes on from a checkpoint on another number of ranks.
 */
#include <stdlib.h>
#include <time.h>

#include "core/checksum.h"
#include "core/memory.h"
#include "dist/nccl.h"
#include "failing_alloc.h"
#include "folder.h"
#include "gpu.h"
#include "setting.h"
#include "thread_ranks.h"
#include "train/checkpoint.h"

enum { STEPS = 20 };
/* Low: what rounding differs by is to stay what it is (check_same_way). */
static const double rate = 1e-6;

typedef struct training {
    /* what is asked for */
    const char *method;
    int64_t batch, micro, first; /* first: steps done before, in "from" */
    int64_t steps;               /* in all */
    int own_norms, alone;        /* alone: no communicator at all */
    size_t bucket_size;
    const zonal__device *device;
    zonal_dtype dtype;
    int odd_rank;                    /* above 0: this one has another batch */
    int fixed_views;                 /* 1: random numbers, and no images */
    const char *from, *to;           /* checkpoints, or NULL */
    const zonal_communicator *given; /* in the place of that of the threads; one rank */
    int timed;                       /* 1: measure "microseconds" of a step at the end */
    /* what came of it */
    double loss[STEPS], gradient_norm[STEPS];
    uint64_t sum[THREAD_RANKS][STEPS]; /* checksums of parameters and statistics after each step */
    float *begun, *parameters;         /* of rank 0, before and after */
    double microseconds;
    int64_t count;
    zonal_status status[THREAD_RANKS];
    char sentence[THREAD_RANKS][sizeof(zonal_error)];
} training;

/* Of what all ranks must have in common: running statistics of own norms are each rank's own. */
static zonal_status checksum(const zonal__trainer *t, uint64_t *out) {
    const zonal__graph *graph = &t->model->graph;
    int64_t statistics = t->options.own_norms ? 0 : graph->statistic_size;
    float *block;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&block, graph->parameter_size + graph->statistic_size, "a model"));
    status = zonal__model_read(t->model, block, block + graph->parameter_size);
    *out = zonal__checksum_of(block, (size_t)(graph->parameter_size + statistics) * sizeof *block);
    zonal__free(block);
    return status;
}

static void fill(const training *w, setting *s) {
    zonal__trainer_options *o = &s->options;
    setting_fill(s, &setting_small, w->method, w->dtype);
    o->device = w->device;
    o->loader.batch = w->batch;
    o->micro_batch = w->micro;
    o->own_norms = w->own_norms;
    o->bucket_size = w->bucket_size;
    o->fixed_views = w->fixed_views;
    o->threads = 1; /* the ranks are threads already */
    o->loader.workers = 1;
    for (int v = 0; v < SETTING_VIEWS; v++) s->augmentations[v].erase = 0;
    o->optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_SGD);
    o->schedule = (zonal__schedule){.kind = ZONAL__SCHEDULE_CONSTANT, .total = STEPS, .base = rate};
}

static zonal_status make_and_note(zonal__trainer *t, int rank, training *w) {
    while (zonal__trainer_steps_done(t) < w->steps) {
        int64_t step = zonal__trainer_steps_done(t);
        zonal__metrics m;
        ZONAL_TRY(zonal__ranks_agree(t->ranks, zonal__trainer_fetch(t)));
        ZONAL_TRY(zonal__trainer_step(t));
        ZONAL_TRY(zonal__trainer_metrics(t, &m));
        ZONAL_TRY(zonal__ranks_agree(t->ranks, checksum(t, &w->sum[rank][step])));
        if (rank > 0) continue;
        w->loss[step] = m.loss.total;
        w->gradient_norm[step] = m.gradient_norm;
    }
    return ZONAL_OK;
}

/* Of a step in a row of them, none of which is waited for. */
static zonal_status measure(zonal__trainer *t, training *w) {
    enum { RUNS = 200 };
    struct timespec begin, end;
    if (!w->timed) return ZONAL_OK;
    ZONAL_TRY(zonal__device_synchronise(w->device));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < RUNS; i++) ZONAL_TRY(zonal__trainer_step(t));
    ZONAL_TRY(zonal__device_synchronise(w->device));
    clock_gettime(CLOCK_MONOTONIC, &end);
    w->microseconds =
        (1e6 * (double)(end.tv_sec - begin.tv_sec) + 1e-3 * (double)(end.tv_nsec - begin.tv_nsec)) /
        RUNS;
    return ZONAL_OK;
}

/* Rank 0 loads, and the others hear of it. */
static zonal_status begin(zonal__trainer *t, const zonal_communicator *c, const training *w) {
    zonal_status status = ZONAL_OK;
    if (w->from && (!c || c->rank == 0)) status = zonal__checkpoint_load(t, w->from);
    ZONAL_TRY(zonal__ranks_agree(t->ranks, status));
    return zonal__checkpoint_spread(t, c);
}

static zonal_status copy_parameters(const zonal__trainer *t, training *w, float **out) {
    if (w->fixed_views) return ZONAL_OK; /* not compared */
    w->count = t->model->graph.parameter_size;
    ZONAL_TRY(ZONAL_NEW(out, w->count, "parameters"));
    return zonal__model_read(t->model, *out, NULL);
}

static zonal_status open_textures(zonal__source **out) {
    const zonal__source_options source = {.path = "textures:disk",
                                          .split = ZONAL__SPLIT_TRAIN,
                                          .texture_count = 64,
                                          .texture_size = setting_small.texture};
    return zonal__source_open(&source, out);
}

static zonal_status train(const zonal_communicator *c, int rank, training *w) {
    setting s = {0};
    zonal__trainer *t = NULL;
    zonal_status status = w->fixed_views ? ZONAL_OK : open_textures(&s.source);
    if (status == ZONAL_OK) {
        fill(w, &s);
        if (rank > 0 && rank == w->odd_rank) s.options.loader.batch++;
        s.options.communicator = c;
        status = zonal__trainer_create(&s.options, &t);
    }
    if (status == ZONAL_OK) status = begin(t, c, w);
    if (status == ZONAL_OK && rank == 0) status = copy_parameters(t, w, &w->begun);
    if (status == ZONAL_OK) status = make_and_note(t, rank, w);
    if (status == ZONAL_OK && rank == 0) status = copy_parameters(t, w, &w->parameters);
    if (status == ZONAL_OK && rank == 0 && w->to) status = zonal__checkpoint_save(t, w->to);
    if (status == ZONAL_OK) status = measure(t, w);
    zonal__trainer_destroy(t);
    zonal__source_close(s.source);
    return status;
}

static void body(const zonal_communicator *c, void *context) {
    training *w = context;
    w->status[c->rank] = train(w->given ? w->given : w->alone ? NULL : c, c->rank, w);
    snprintf(w->sentence[c->rank], sizeof w->sentence[0], "%s", zonal_last_error()->message);
}

/* Returns 1 when all ranks came to the end, with the same bits after every step. */
static int run(int ranks, training *w) {
    int good = CHECK_OK(thread_ranks_run(ranks, body, w));
    for (int r = 0; r < ranks && good; r++)
        good = CHECK_MSG(w->status[r] == ZONAL_OK, "rank %d of %d: %s", r, ranks, w->sentence[r]);
    for (int r = 1; r < ranks && good; r++)
        for (int64_t i = w->first; i < w->steps && good; i++)
            good = CHECK_MSG(w->sum[r][i] == w->sum[0][i], "%s, rank %d of %d: other bits at %d",
                             w->method, r, ranks, (int)i);
    return good;
}

/* The largest relative difference of the losses. */
static double losses_apart(const training *a, const training *b) {
    double most = 0;
    for (int64_t i = a->first > b->first ? a->first : b->first; i < a->steps; i++) {
        double off = fabs(a->loss[i] - b->loss[i]) / fabs(b->loss[i]);
        if (!(off <= most)) most = off; /* also of NaN */
    }
    return most;
}

/* The distance of the weights at the end, over the way that they have gone. */
static double ways_apart(const training *a, const training *b) {
    double square = 0, error = 0;
    for (int64_t i = 0; i < b->count; i++) {
        double off = (double)a->parameters[i] - (double)b->parameters[i];
        double way = (double)b->parameters[i] - (double)b->begun[i];
        error += off * off;
        square += way * way;
    }
    return sqrt(error / square);
}

static void drop(training *w) {
    zonal__free(w->begun);
    zonal__free(w->parameters);
    w->begun = w->parameters = NULL;
}

/* ---- as one rank ------------------------------------------------------------------------------
 */

static const training usual = {
    .method = "mmd-heat", .batch = 10, .steps = STEPS, .dtype = ZONAL_DTYPE_FP32};

/* Sums in another order differ by 1e-7; what 20 steps make of that is far below 1e-5, but where it
 * turns the sign of an activation near 0: relu's derivative jumps there, and one element of some
 * thousand moves the gradient by up to 1e-2. A rank left out, or counted twice, is a way of half or
 * double the length. */
static void check_same_way(const training *many, const training *one, int ranks) {
    double losses = losses_apart(many, one), ways = ways_apart(many, one);
    printf("# %-8s %d ranks: losses off by %.2g, the way of the weights by %.2g\n", many->method,
           ranks, losses, ways);
    CHECK_MSG(losses <= 1e-5, "%s, %d ranks: losses off by %.2g", many->method, ranks, losses);
    CHECK_MSG(ways <= 5e-2, "%s, %d ranks: ways off by %.2g", many->method, ranks, ways);
}

/* "what" on "ranks" ranks, against one without a communicator. */
static void check_ranks(const training *what, int least, int most) {
    training one = *what;
    one.alone = 1;
    if (run(1, &one)) {
        double change = fabs(one.loss[STEPS - 1] / one.loss[0] - 1);
        CHECK_MSG(change > 1e-3, "losses change by %.2g, too little to tell", change);
        for (int ranks = least; ranks <= most; ranks++) {
            training many = *what;
            if (run(ranks, &many)) check_same_way(&many, &one, ranks);
            drop(&many);
        }
    }
    drop(&one);
}

static void test_ranks(void) {
    check_ranks(&usual, 1, 4);
}

static void test_methods(void) {
    static const char *const methods[] = {"kl-heat", "mmd-band", "susreg", "sigreg"};
    for (int i = 0; i < 4; i++) {
        training what = usual;
        what.method = methods[i];
        check_ranks(&what, 3 + i % 2, 3 + i % 2);
    }
}

/* Each micro-batch is shared out, so that norms see the same images whatever the number of ranks.
 */
static void test_micro_batches(void) {
    training what = usual;
    what.batch = 12;
    what.micro = 6;
    check_ranks(&what, 4, 4);
}

/* ---- what else may be asked for ---------------------------------------------------------------
 */

/* Small buckets, many exchanges, the same sums. */
static void test_buckets(void) {
    training whole = usual, small = usual;
    whole.steps = small.steps = 3;
    small.bucket_size = 1000;
    if (run(2, &whole) && run(2, &small))
        for (int i = 0; i < 3; i++) CHECK(small.sum[0][i] == whole.sum[0][i]);
    drop(&whole);
    drop(&small);
}

/* Norms of each rank's own images are another network: its first loss differs already. */
static void test_own_norms(void) {
    training one = usual, own = usual;
    one.alone = own.own_norms = 1;
    one.steps = own.steps = 2;
    if (run(1, &one) && run(2, &own)) {
        double off = fabs(own.loss[0] / one.loss[0] - 1);
        CHECK_MSG(off > 1e-3 && off < 1, "norms of two ranks' own images: off by %g", off);
    }
    drop(&one);
    drop(&own);
}

/* In bf16 most roundings agree, and those that do not are 2^-9. */
static void test_bf16(void) {
    training one = usual, many = usual;
    one.dtype = many.dtype = ZONAL_DTYPE_BF16;
    one.alone = 1;
    one.steps = many.steps = 4;
    if (run(1, &one) && run(3, &many)) CHECK(losses_apart(&many, &one) < 1e-2);
    drop(&one);
    drop(&many);
}

/* The reference adds up in double and rounds once, so that ranks round as one does, but for
 * gradients, which each rank rounds before they are added up: the last bit of some weights differs.
 */
static void test_reference(void) {
    training one = usual, many = usual;
    one.device = many.device = zonal__device_ref();
    one.alone = 1;
    one.batch = many.batch = 4;
    one.steps = many.steps = 6;
    if (run(1, &one) && run(3, &many)) {
        printf("# reference: losses off by %.2g, ways by %.2g\n", losses_apart(&many, &one),
               ways_apart(&many, &one));
        CHECK(losses_apart(&many, &one) <= 1e-8 && ways_apart(&many, &one) <= 1e-3);
    }
    drop(&one);
    drop(&many);
}

/* Ranks share the GPU and exchange numbers through the host. Which of cuDNN's algorithms is taken
 * depends on the number of rows, and they differ by 1e-5 (test_cuda_nn.c): so do the losses, before
 * anything has been learned from them. */
static void test_cuda(void) {
    static const char *const methods[] = {"mmd-heat", "mmd-band", "kl-heat"};
    if (gpu_is_missing(gpu_device() != NULL && gpu_layers() && gpu_optimisers())) return;
    for (int i = 0; i < 3; i++) {
        training one = usual, many = usual;
        one.method = many.method = methods[i];
        one.device = many.device = gpu_device();
        one.alone = 1;
        if (run(1, &one) && run(2 + i, &many)) {
            double losses = losses_apart(&many, &one);
            printf("# cuda, %s, %d ranks: losses off by %.2g, ways by %.2g\n", methods[i], 2 + i,
                   losses, ways_apart(&many, &one));
            CHECK_MSG(losses <= 1e-4, "cuda, %s: losses off by %.2g", methods[i], losses);
        }
        drop(&one);
        drop(&many);
    }
}

/* One rank with NCCL, whose sums are in the graph of the step, and none; also without those of the
 * norms, for which a step has many more. */
static void check_nccl(const zonal_communicator *c, const char *method) {
    training one = usual, other = usual, own;
    one.method = other.method = method;
    one.device = other.device = gpu_device();
    one.timed = other.timed = 1;
    own = other;
    one.alone = own.own_norms = 1;
    other.given = own.given = c;
    if (run(1, &one) && run(1, &other) && run(1, &own)) {
        double losses = losses_apart(&other, &one);
        printf(
            "# nccl, %s, one rank: losses off by %.2g; a step takes %.1f us, with norms of its own "
            "%.1f, without nccl %.1f\n",
            method, losses, other.microseconds, own.microseconds, one.microseconds);
        CHECK_MSG(losses <= 1e-4, "nccl, %s: losses off by %.2g", method, losses);
        CHECK_MSG(losses_apart(&own, &one) <= 1e-4, "nccl, %s, own norms: losses off by %.2g",
                  method, losses_apart(&own, &one));
    }
    drop(&one);
    drop(&other);
    drop(&own);
}

static void test_nccl(void) {
    zonal__nccl *nccl = NULL;
    if (gpu_is_missing(gpu_device() != NULL && gpu_layers() && gpu_optimisers())) return;
    if (zonal__nccl_available(gpu_device()) != ZONAL_OK) {
        test_skip("no NCCL");
        return;
    }
    if (!CHECK_OK(zonal__nccl_create(NULL, gpu_device(), 60, &nccl))) return;
    check_nccl(zonal__nccl_communicator(nccl), "mmd-heat");
    check_nccl(zonal__nccl_communicator(nccl), "mmd-band");
    check_nccl(zonal__nccl_communicator(nccl), "kl-heat");
    CHECK_OK(zonal__nccl_check(nccl));
    zonal__nccl_destroy(nccl, 1);
}

/* ---- going on ---------------------------------------------------------------------------------
 */

/* From 4 ranks on 4 the bits are those of a run without a break; on 2 and on 1 it is the same
 * curve. */
static void test_resumes(void) {
    static const int ranks[] = {4, 2, 1};
    test_folder folder;
    char path[800];
    training whole = usual, half = usual;
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    half.steps = STEPS / 2;
    half.to = path;
    if (run(4, &whole) && run(4, &half))
        for (int i = 0; i < 3; i++) {
            training rest = usual;
            rest.first = STEPS / 2;
            rest.from = path;
            rest.alone = ranks[i] == 1;
            if (run(ranks[i], &rest)) check_same_way(&rest, &whole, ranks[i]);
            if (ranks[i] == 4) CHECK(rest.sum[0][STEPS - 1] == whole.sum[0][STEPS - 1]);
            drop(&rest);
        }
    drop(&whole);
    drop(&half);
    test_folder_remove(&folder);
}

/* ---- refusals ---------------------------------------------------------------------------------
 */

static void check_all_fail(int ranks, training *w, zonal_status status, const char *text) {
    CHECK_OK(thread_ranks_run(ranks, body, w));
    for (int r = 0; r < ranks; r++)
        CHECK_MSG(w->status[r] == status && strstr(w->sentence[r], text), "rank %d: %d, %s", r,
                  (int)w->status[r], w->sentence[r]);
    drop(w);
}

static void test_refusals(void) {
    training few = usual, odd = usual;
    few.batch = 3;
    check_all_fail(4, &few, ZONAL_ARGUMENT, "cannot share 3 images");
    odd.odd_rank = 1;
    check_all_fail(3, &odd, ZONAL_ARGUMENT, "the batch is 11 on rank 1 and 10 on rank 0");
}

/* Whichever rank has no memory, both end, and with its sentence. Every 17th allocation: all of them
 * take minutes. */
static void test_memory(void) {
    for (int64_t n = 0;; n += 17) {
        training w = usual;
        int64_t failed, left;
        w.batch = 2;
        w.steps = w.fixed_views = 1;
        failing_alloc_install(n, 0);
        CHECK_OK(thread_ranks_run(2, body, &w));
        drop(&w);
        failed = failing_alloc_failed();
        left = failing_alloc_remove();
        CHECK_MSG(left == 0, "allocation %d: %d blocks are left", (int)n, (int)left);
        if (failed == 0) break;
        for (int r = 0; r < 2; r++)
            CHECK_MSG(w.status[r] == ZONAL_MEMORY, "allocation %d, rank %d: %d, %s", (int)n, r,
                      (int)w.status[r], w.sentence[r]);
    }
}

static const test_case tests[] = {{"ranks", test_ranks},
                                  {"methods", test_methods},
                                  {"micro_batches", test_micro_batches},
                                  {"buckets", test_buckets},
                                  {"own_norms", test_own_norms},
                                  {"bf16", test_bf16},
                                  {"reference", test_reference},
                                  {"resumes", test_resumes},
                                  {"refusals", test_refusals},
                                  {"memory", test_memory},
                                  {"cuda", test_cuda},
                                  {"nccl", test_nccl},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
