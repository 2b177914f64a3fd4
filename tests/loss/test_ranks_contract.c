/*
 * What ranks are promised when something is wrong: all of them fail, with the same sentence, none
 * waits for another, and nothing is left behind.
 */
#include "failing_alloc.h"
#include "ranks_case.h"

static const char *const methods[] = {"mmd-heat", "kl-heat", "mmd-band", "susreg", "sigreg"};
enum { METHODS = sizeof methods / sizeof methods[0], ROWS = 21, DIM = 6 };

static ranks_case case_of(const char *method, int implementation, const double *x) {
    ranks_case c = {.dim = DIM, .x = x, .bad = -1, .ranks = 3, .rows = {8, 0, 13}};
    c.options.size = sizeof c.options;
    CHECK_OK(zonal_objective_defaults(method, &c.options));
    c.options.loss = defaults(method, DIM);
    c.options.loss.implementation = (zonal_implementation)implementation;
    c.options.loss.threads = 1;
    return c;
}

#define FOR_EACH_CASE(c, x)                                                                        \
    for (int m_ = 0; m_ < METHODS; m_++)                                                           \
        for (int k_ = ZONAL_IMPLEMENTATION_AUTO; k_ <= ZONAL_IMPLEMENTATION_REF; k_++)             \
            for (int once_ = 1; once_; once_ = 0)                                                  \
                for (ranks_case c = case_of(methods[m_], k_, x); once_; once_ = 0)

/* All ranks have failed, and say the same. */
static int all_failed(const ranks_case *c, zonal_status status, const char *text) {
    int good = 1;
    for (int r = 0; r < c->ranks; r++) {
        good &= CHECK_MSG(c->status[r] == status, "rank %d has status %d: %s", r, c->status[r],
                          c->message[r]);
        good &= CHECK_MSG(strcmp(c->message[r], c->message[0]) == 0, "rank %d says %s, not %s", r,
                          c->message[r], c->message[0]);
        good &= CHECK(isnan(c->value[r]));
    }
    return good & CHECK_MSG(strstr(c->message[0], text) != NULL, "%s", c->message[0]);
}

/* ---- bad rows -------------------------------------------------------------------------------- */

static void test_bad_rows(void) {
    static const struct {
        int64_t row;
        const char *says;
    } list[] = {{0, "rank 0: row 0 of the whole batch holds"},
                {7, "rank 0: row 7 of the whole batch holds"},
                {8, "rank 2: row 8 of the whole batch holds"},
                {20, "rank 2: row 20 of the whole batch holds"}};
    static double gradient[ROWS * DIM];
    double *x = draw_leaning_rows(ROWS, DIM, 1);
    FOR_EACH_CASE(c, x) {
        for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
            c.bad = list[i].row;
            c.gradient = gradient;
            CHECK_OK(thread_ranks_run(c.ranks, run_rank, &c));
            all_failed(&c, ZONAL_NUMERIC, list[i].says);
        }
    }
    free(x);
}

static void test_bad_view(void) {
    double *x = draw_leaning_rows(2 * ROWS, DIM, 1);
    ranks_case c = case_of("mmd-heat", ZONAL_IMPLEMENTATION_AUTO, x);
    c.views = c.globals = 2;
    c.bad = 9;
    CHECK_OK(thread_ranks_run(c.ranks, run_rank, &c));
    all_failed(&c, ZONAL_NUMERIC, "view 0: rank 2: row 9 of the whole batch holds");
    free(x);
}

/* The first bad rank speaks; a plan that has failed so works on. */
static void body_again(const zonal_communicator *communicator, void *context) {
    ranks_case *c = context;
    int r = communicator->rank;
    double x[2][2] = {{1, 0}, {0, 1}}, good;
    zonal_plan *plan;
    c->status[r] = zonal_plan_make_with(communicator, "mmd-heat", "precision=double", 2, 2, &plan);
    if (c->status[r] != ZONAL_OK) return;
    x[1][1] = r > 0 ? INFINITY : 1;
    c->status[r] = zonal_plan_execute(plan, x, &c->value[r], NULL);
    snprintf(c->message[r], sizeof c->message[r], "%s", zonal_last_error()->message);
    x[1][1] = 1;
    if (zonal_plan_execute(plan, x, &good, NULL) != ZONAL_OK || !(good > 0)) c->value[r] = 0;
    zonal_plan_destroy(plan);
}

static void test_again(void) {
    ranks_case c = {.ranks = 3};
    CHECK_OK(thread_ranks_run(3, body_again, &c));
    all_failed(&c, ZONAL_NUMERIC, "rank 1: row 3 of the whole batch holds");
}

/* ---- collective calls that fail -------------------------------------------------------------- */

/* Fails at its own call number fail_at, as the other ranks' do, and says so. */
typedef struct failing {
    const zonal_communicator *inner;
    int64_t calls, fail_at;
} failing;

static int64_t fail_at, most_calls;

static zonal_status count_call(failing *f) {
    return f->calls++ == f->fail_at ? zonal_error_set(ZONAL_DEVICE, "the link is down") : ZONAL_OK;
}

static zonal_status all_reduce(void *context, void *number, int64_t count, zonal_reduce type,
                               void *stream) {
    failing *f = context;
    zonal_status status = count_call(f);
    return status ? status : f->inner->all_reduce(f->inner->context, number, count, type, stream);
}

static zonal_status all_gather(void *context, const void *mine, void *all, const int64_t *bytes,
                               void *stream) {
    failing *f = context;
    zonal_status status = count_call(f);
    return status ? status : f->inner->all_gather(f->inner->context, mine, all, bytes, stream);
}

static zonal_status shift_begin(void *context, const void *send, int64_t send_bytes, void *receive,
                                int64_t receive_bytes, void *stream) {
    failing *f = context;
    zonal_status status = count_call(f);
    return status ? status
                  : f->inner->shift_begin(f->inner->context, send, send_bytes, receive,
                                          receive_bytes, stream);
}

static zonal_status shift_end(void *context, void *stream) {
    failing *f = context;
    zonal_status status = count_call(f), inner = f->inner->shift_end(f->inner->context, stream);
    return status ? status : inner; /* it was begun, and the threads must all leave it */
}

static zonal_status broadcast(void *context, void *block, int64_t bytes, int root, void *stream) {
    failing *f = context;
    zonal_status status = count_call(f);
    return status ? status : f->inner->broadcast(f->inner->context, block, bytes, root, stream);
}

static void run_failing(const zonal_communicator *inner, void *context) {
    failing f = {.inner = inner, .fail_at = fail_at};
    zonal_communicator outer = *inner;
    outer.context = &f;
    outer.all_reduce = all_reduce;
    outer.all_gather = all_gather;
    outer.shift_begin = shift_begin;
    outer.shift_end = shift_end;
    outer.broadcast = broadcast;
    run_rank(&outer, context);
    if (inner->rank == 0) most_calls = f.calls;
}

static void fail_everywhere(ranks_case *c) {
    static double gradient[2 * ROWS * DIM];
    c->gradient = gradient;
    for (fail_at = 0;; fail_at++) {
        failing_alloc_install(-1, 0);
        CHECK_OK(thread_ranks_run(c->ranks, run_failing, c));
        CHECK(failing_alloc_remove() == 0);
        if (most_calls <= fail_at) break; /* it was not reached */
        if (!CHECK_MSG(c->status[0] == ZONAL_DEVICE, "call %lld", (long long)fail_at)) break;
        if (!all_failed(c, ZONAL_DEVICE, "the link is down")) break;
    }
    for (int r = 0; r < c->ranks; r++) CHECK(c->status[r] == ZONAL_OK);
}

static void test_failing_calls(void) {
    double *x = draw_leaning_rows(2 * ROWS, DIM, 2);
    FOR_EACH_CASE(c, x) {
        fail_everywhere(&c);
        c.views = 2;
        c.globals = 1;
        fail_everywhere(&c);
    }
    ranks_case bad = case_of("mmd-heat", ZONAL_IMPLEMENTATION_AUTO, x);
    bad.bad = 20; /* the calls by which it is told may fail too */
    for (fail_at = 4; fail_at < 8; fail_at++) {
        CHECK_OK(thread_ranks_run(bad.ranks, run_failing, &bad));
        all_failed(&bad, most_calls > fail_at ? ZONAL_DEVICE : ZONAL_NUMERIC, "");
    }
    free(x);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static zonal_status make_and_run(void *context) {
    ranks_case *c = context;
    ZONAL_TRY(thread_ranks_run(c->ranks, run_rank, c));
    for (int r = 0; r < c->ranks; r++)
        CHECK_MSG(c->status[r] == c->status[0], "rank %d: %s", r, c->message[r]);
    return c->status[0];
}

static void body_of_texts(const zonal_communicator *communicator, void *context) {
    ranks_case *c = context;
    zonal_plan *plan;
    int r = communicator->rank;
    c->status[r] = zonal_plan_make_with(communicator, "mmd-heat", "t=1", 4, 4, &plan);
    zonal_plan_destroy(plan);
}

static zonal_status make_of_texts(void *context) {
    ranks_case *c = context;
    ZONAL_TRY(thread_ranks_run(c->ranks, body_of_texts, c));
    for (int r = 0; r < c->ranks; r++) CHECK(c->status[r] == c->status[0]);
    return c->status[0];
}

static void test_memory(void) {
    double *x = draw_leaning_rows(2 * ROWS, DIM, 3);
    ranks_case texts = {.ranks = 2};
    FOR_EACH_CASE(c, x) {
        c.ranks = 2; /* 8 and none */
        test_every_allocation(methods[m_], make_and_run, &c);
        c.views = c.globals = 2;
        test_every_allocation(methods[m_], make_and_run, &c);
    }
    test_every_allocation("texts", make_of_texts, &texts);
    free(x);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static zonal_loss_options disagreeing[THREAD_RANKS];
static int64_t disagreeing_dim[THREAD_RANKS], disagreeing_rows[THREAD_RANKS];

static void body_disagreeing(const zonal_communicator *communicator, void *context) {
    ranks_case *c = context;
    int r = communicator->rank;
    zonal_plan *plan;
    disagreeing[r].communicator = communicator;
    c->value[r] = NAN;
    c->status[r] =
        zonal_plan_create(&disagreeing[r], disagreeing_rows[r], disagreeing_dim[r], &plan);
    snprintf(c->message[r], sizeof c->message[r], "%s", zonal_last_error()->message);
    if (plan) c->status[r] = ZONAL_OK;
    zonal_plan_destroy(plan);
}

static void agree_again(const char *method) {
    for (int r = 0; r < 3; r++) {
        disagreeing[r] = defaults(method, DIM);
        disagreeing_dim[r] = DIM;
        disagreeing_rows[r] = 4;
    }
}

static void expect(zonal_status status, const char *says) {
    ranks_case c = {.ranks = 3};
    CHECK_OK(thread_ranks_run(3, body_disagreeing, &c));
    all_failed(&c, status, says);
}

static void test_disagreement(void) {
    agree_again("susreg");
    disagreeing_dim[2] = DIM + 1;
    expect(ZONAL_ARGUMENT, "the dimension is 7 on rank 2 and 6 on rank 0");
    agree_again("susreg");
    disagreeing[1].sliced.slices = 17;
    expect(ZONAL_ARGUMENT, "slices is 17 on rank 1 and 16 on rank 0");
    agree_again("susreg");
    disagreeing[1].sliced.seed = 3;
    expect(ZONAL_ARGUMENT, "seed is 3 on rank 1");
    agree_again("mmd-heat");
    disagreeing[2].precision = ZONAL_PRECISION_FP32;
    expect(ZONAL_ARGUMENT, "the precision is fp32 on rank 2 and double on rank 0");
    agree_again("mmd-heat");
    disagreeing[1] = defaults("kl-heat", DIM);
    expect(ZONAL_ARGUMENT, "the method is kl-heat on rank 1 and mmd-heat on rank 0");
    static const double weights[] = {1, 0.4, 0.2, 0, 0.1};
    agree_again("mmd-spectrum");
    disagreeing[2].kernel.weights = weights;
    expect(ZONAL_ARGUMENT, "the spectrum's checksum is ");
    agree_again("mmd-heat");
    disagreeing[1].threads = -1; /* noticed by one */
    expect(ZONAL_ARGUMENT, "rank 1: threads must not be negative");
    agree_again("mmd-heat");
    snprintf(disagreeing[2].device, sizeof disagreeing[2].device, "toaster");
    expect(ZONAL_ARGUMENT, "rank 2: ");
    agree_again("mmd-heat");
    disagreeing_rows[1] = -1;
    expect(ZONAL_SHAPE, "rank 1 has -1 rows");
    agree_again("kl-heat");
    disagreeing_rows[0] = disagreeing_rows[1] = 1;
    disagreeing_rows[2] = 0;
    expect(ZONAL_SHAPE, "KL needs a batch of at least 3 rows, got 2");
}

/* What is wrong with one rank's texts is told to all. */
static void body_bad_text(const zonal_communicator *communicator, void *context) {
    static const char *const texts[] = {"t=1", "t=1,lambda=.1", "t=0"};
    ranks_case *c = context;
    zonal_objective *objective;
    zonal_plan *plan;
    int r = communicator->rank;
    c->value[r] = NAN;
    c->status[r] =
        zonal_plan_make_with(communicator, r == 2 ? "mmd-haet" : "mmd-heat", texts[0], 4, 4, &plan);
    if (strncmp(zonal_last_error()->message, "rank 2: ", 8) != 0 || plan) c->value[r] = 0;
    c->status[r] =
        zonal_objective_make_with(communicator, "mmd-heat", texts[r], 2, 2, 4, 4, &objective);
    snprintf(c->message[r], sizeof c->message[r], "%s", zonal_last_error()->message);
    zonal_plan_destroy(plan);
    zonal_objective_destroy(objective);
}

static void test_bad_texts(void) {
    ranks_case c = {.ranks = 3};
    CHECK_OK(thread_ranks_run(3, body_bad_text, &c));
    all_failed(&c, ZONAL_ARGUMENT, "rank 2: t must be above 0");
}

static void body_chordal(const zonal_communicator *communicator, void *context) {
    ranks_case *c = context;
    double x[2][2] = {{1, 0}, {0, 1}}, gradient[2][2];
    zonal_plan *plan;
    int r = communicator->rank;
    c->status[r] =
        zonal_plan_make_with(communicator, "mmd-chordal", "precision=double", 2, 2, &plan);
    if (c->status[r] == ZONAL_OK)
        c->status[r] = zonal_plan_execute(plan, x, &c->value[r], r == 1 ? gradient : NULL);
    snprintf(c->message[r], sizeof c->message[r], "%s", zonal_last_error()->message);
    zonal_plan_destroy(plan);
}

static void test_no_gradient(void) {
    ranks_case c = {.ranks = 3};
    CHECK_OK(thread_ranks_run(3, body_chordal, &c));
    all_failed(&c, ZONAL_ARGUMENT, "rank 1: the chordal kernel has an infinite derivative");
}

/* Of one rank alone: nobody is asked. */
static void body_bad_tables(const zonal_communicator *communicator, void *context) {
    zonal_communicator c = *communicator;
    zonal_plan *plan;
    (void)context;
#define MAKE() zonal_plan_make_with(&c, "mmd-heat", NULL, 4, 4, &plan)
    c.size = 8;
    CHECK_FAILS(MAKE(), ZONAL_ARGUMENT, "ZONAL_COMMUNICATOR_INIT");
    c = *communicator;
    c.rank = 1;
    CHECK_FAILS(MAKE(), ZONAL_ARGUMENT, "rank is 1 of 1");
    c.rank = -1;
    CHECK_FAILS(MAKE(), ZONAL_ARGUMENT, "rank is -1 of 1");
    c = *communicator;
    c.shift_end = NULL;
    CHECK_FAILS(MAKE(), ZONAL_ARGUMENT, "has no shift_end");
    c = *communicator;
    c.on_device = 2;
    CHECK_FAILS(MAKE(), ZONAL_ARGUMENT, "on_device of the communicator must be 0 or 1");
    c.on_device = 1;
    CHECK_FAILS(MAKE(), ZONAL_ARGUMENT, "takes device memory, but the plan is on cpu");
    CHECK(plan == NULL);
#undef MAKE
}

static void test_bad_tables(void) {
    CHECK_OK(thread_ranks_run(1, body_bad_tables, NULL));
}

/* A description is local, and of the whole batch. */
static void body_described(const zonal_communicator *communicator, void *context) {
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective_info described = ZONAL_OBJECTIVE_INFO_INIT, made = ZONAL_OBJECTIVE_INFO_INIT;
    zonal_objective *objective;
    int *good = context, r = communicator->rank;
    if (zonal_objective_defaults("mmd-heat", &options)) return;
    options.loss.communicator = communicator;
    options.gain = ZONAL_GAIN_BATCH;
    if (r == 0 && zonal_objective_describe(&options, 2, 2, 12, 5, &described)) return;
    if (zonal_objective_create(&options, 2, 2, r == 0 ? 3 : 9, 5, &objective)) return;
    if (zonal_objective_info_get(objective, &made)) return;
    good[r] = made.gain == 12 && made.plan.batch == 12 && made.plan.rows == (r ? 9 : 3) &&
              made.plan.first_row == (r ? 3 : 0);
    if (r == 0)
        good[r] &= described.gain == 12 && described.plan.rows == 12 &&
                   described.threshold == made.threshold;
    zonal_objective_destroy(objective);
}

static void test_described(void) {
    int good[2] = {0};
    CHECK_OK(thread_ranks_run(2, body_described, good));
    CHECK(good[0] && good[1]);
}

static const test_case tests[] = {
    {"bad rows", test_bad_rows},
    {"a bad view", test_bad_view},
    {"again after a bad row", test_again},
    {"failing calls", test_failing_calls},
    {"memory", test_memory},
    {"ranks that disagree", test_disagreement},
    {"bad texts", test_bad_texts},
    {"no gradient", test_no_gradient},
    {"bad tables", test_bad_tables},
    {"described", test_described},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
