/*
 * Two threads that use the library at once, each with plans of its own, as zonal/loss.h allows:
 * every value and every gradient has the bits that one thread alone computes, and each thread reads
 * its own errors. Under the thread sanitizer (preset "thread") this is also a search for races in
 * what all plans share.
 */
#include <pthread.h>
#include <stdlib.h>

#include "core/random.h"
#include "test.h"
#include "zonal/zonal.h"

enum { BATCH = 70, DIM = 9, METHODS = 64, THREADS = 2, TURNS = 3 };

typedef struct answer {
    double value;
    double gradient[BATCH * DIM];
} answer;

static double rows[BATCH * DIM];
static answer alone[METHODS];
static int methods;
static pthread_barrier_t start;

/* Whether "method" can be made from its defaults alone: a spectrum has no default. */
static int has_defaults(const char *method) {
    return !strstr(method, "spectrum");
}

/* Makes a plan, runs it and takes it apart. The chordal kernel has no gradient. */
static zonal_status compute(const char *method, answer *out) {
    zonal_loss_options options;
    zonal_plan *plan = NULL;
    zonal_status status;
    memset(out, 0, sizeof *out);
    status = zonal_loss_defaults(method, &options);
    if (status) return status;
    options.precision = ZONAL_PRECISION_DOUBLE;
    options.threads = 2;
    status = zonal_plan_create(&options, BATCH, DIM, &plan);
    if (!status)
        status = zonal_plan_execute(plan, rows, &out->value,
                                    strstr(method, "chordal") ? NULL : out->gradient);
    zonal_plan_destroy(plan);
    return status;
}

static void compute_alone(void) {
    const zonal__random random = {.seed = test_seed, .stream = ZONAL__STREAM_TEST};
    zonal__random_normal(&random, 0, BATCH * DIM, rows);
    for (methods = 0; zonal_method_name(methods); methods++) {
        if (!CHECK(methods < METHODS)) return;
        if (has_defaults(zonal_method_name(methods)))
            CHECK_OK(compute(zonal_method_name(methods), &alone[methods]));
    }
}

/* ---- plans ------------------------------------------------------------------------------------
 */

typedef struct worker {
    int number;
    int failures, others_bits, others_errors; /* what the main thread reports */
} worker;

/* Thread 0 goes up through the methods and thread 1 down: unlike plans meet, and like ones too. */
static void *run_plans(void *context) {
    worker *w = context;
    answer got;
    pthread_barrier_wait(&start);
    for (int turn = 0; turn < TURNS; turn++)
        for (int k = 0; k < methods; k++) {
            int i = w->number ? methods - 1 - k : k;
            if (!has_defaults(zonal_method_name(i))) continue;
            w->failures += compute(zonal_method_name(i), &got) != ZONAL_OK;
            w->others_bits += memcmp(&got, &alone[i], sizeof got) != 0;
        }
    return NULL;
}

static void run_workers(void *(*body)(void *), worker *workers) {
    pthread_t threads[THREADS];
    int started = 0;
    CHECK(pthread_barrier_init(&start, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.number = i};
        started += CHECK(pthread_create(&threads[i], NULL, body, &workers[i]) == 0);
    }
    if (started < THREADS) exit(1); /* the others wait at the barrier for ever */
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    for (int i = 0; i < THREADS; i++) {
        CHECK_MSG(!workers[i].failures, "thread %d: %d failures", i, workers[i].failures);
        CHECK_MSG(!workers[i].others_bits, "thread %d: %d results have other bits than alone", i,
                  workers[i].others_bits);
        CHECK_MSG(!workers[i].others_errors, "thread %d: %d errors were another's", i,
                  workers[i].others_errors);
    }
}

static void test_plans(void) {
    worker workers[THREADS];
    compute_alone();
    run_workers(run_plans, workers);
}

/* ---- errors -----------------------------------------------------------------------------------
 */

static void *run_errors(void *context) {
    worker *w = context;
    zonal_loss_options options;
    char name[32];
    pthread_barrier_wait(&start);
    for (int turn = 0; turn < 500; turn++) {
        snprintf(name, sizeof name, "no-method-%d-%d", w->number, turn);
        w->failures += zonal_loss_defaults(name, &options) != ZONAL_ARGUMENT;
        w->others_errors += !strstr(zonal_last_error()->message, name);
    }
    return NULL;
}

static void test_errors(void) {
    worker workers[THREADS];
    run_workers(run_errors, workers);
}

/* ---- everything that is made once -------------------------------------------------------------
 */

/* The first calls of a program, from two threads: tables that are filled on first use, the log, the
 * questions that ask for no plan. Runs first, in a program that has not used the library yet. */
static void *run_first_calls(void *context) {
    worker *w = context;
    answer got;
    pthread_barrier_wait(&start);
    w->failures += compute("mmd-heat", &got) != ZONAL_OK;
    w->failures += compute("kl-heat", &got) != ZONAL_OK;
    w->failures += compute("susreg", &got) != ZONAL_OK;
    w->failures += zonal_version() == NULL;
    return NULL;
}

static void test_first_calls(void) {
    worker workers[THREADS];
    for (int i = 0; i < BATCH * DIM; i++) rows[i] = 1 + (i * 7) % 11;
    run_workers(run_first_calls, workers);
}

static const test_case tests[] = {
    {"first_calls", test_first_calls}, {"plans", test_plans}, {"errors", test_errors}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
