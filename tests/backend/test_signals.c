/*
 * Signals that arrive while the library computes, as in a program with a timer or a profiler: the
 * stack pointer is on the stack whenever one does, so that the handler's frame destroys nothing,
 * the results keep their bits, and the library's own threads leave signals to those of the program.
 */
#define _GNU_SOURCE /* the registers at a signal, a thread's stack */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#include "backend/cpu/cpu.h"
#include "core/memory.h"
#include "data/pool.h"
#include "nn_trial.h"
#include "test.h"
#include "zonal/zonal.h"

#if defined(__linux__) && defined(__x86_64__)
#include <ucontext.h>
#define STACK_POINTER(context) ((char *)(context)->uc_mcontext.gregs[REG_RSP])
#endif

/* ---- where the stack pointer is -------------------------------------------------------------- */

#ifdef STACK_POINTER

static pthread_t main_thread;
static char *stack_begin, *stack_end;
static volatile sig_atomic_t on_stack, elsewhere;

/* On a stack of its own, so that what it looks for does not destroy the test. */
static void look(int number, siginfo_t *info, void *context) {
    const char *at = STACK_POINTER((ucontext_t *)context);
    (void)number, (void)info;
    if (!pthread_equal(pthread_self(), main_thread)) return;
    if (at >= stack_begin && at < stack_end)
        on_stack++;
    else
        elsewhere++;
}

static void set_timer(int microseconds) {
    struct itimerval timer = {.it_interval = {.tv_usec = microseconds},
                              .it_value = {.tv_usec = microseconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void watch(void) {
    static char own[1 << 16];
    stack_t stack = {.ss_sp = own, .ss_size = sizeof own};
    struct sigaction action = {.sa_sigaction = look,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    pthread_attr_t attributes;
    void *begin;
    size_t bytes;
    main_thread = pthread_self();
    pthread_getattr_np(main_thread, &attributes);
    pthread_attr_getstack(&attributes, &begin, &bytes);
    pthread_attr_destroy(&attributes);
    stack_begin = begin;
    stack_end = stack_begin + bytes;
    on_stack = elsewhere = 0;
    sigaltstack(&stack, NULL);
    sigaction(SIGALRM, &action, NULL);
    set_timer(500);
}

static void unwatch(const char *what) {
    set_timer(0);
    signal(SIGALRM, SIG_DFL);
    CHECK_MSG(on_stack > 0, "%s: no signal arrived", what);
    CHECK_MSG(elsewhere == 0, "%s: %d of %d signals found the stack pointer outside the stack",
              what, (int)elsewhere, (int)(on_stack + elsewhere));
}

static void run_layer(trial *t) {
    CHECK_OK(trial_forward(t, 1));
    CHECK_OK(trial_backward(t));
}

static void test_layers(void) {
    enum { OUTPUTS = 3, RUNS = 12 };
    static const int outputs[OUTPUTS] = {Y, DX, DWEIGHT};
    float *want[OUTPUTS];
    trial t;
    if (!trial_make(&t, zonal__nn_cpu(),
                    LAYER_SPEC(CONVOLUTION, .n = 8, .h = 16, .w = 16, .channels = 64,
                               .out_channels = 64, .kernel = 3, .stride = 1, .pad = 1,
                               .threads = 2)))
        return;
    trial_fill_all(&t, 0);
    run_layer(&t);
    for (int i = 0; i < OUTPUTS; i++) {
        size_t bytes = (size_t)t.count[outputs[i]] * sizeof(float);
        want[i] = malloc(bytes);
        memcpy(want[i], t.wide[outputs[i]], bytes);
    }
    watch();
    for (int run = 0; run < RUNS; run++) run_layer(&t);
    unwatch("a convolution");
    for (int i = 0; i < OUTPUTS; i++) {
        CHECK(memcmp(want[i], t.wide[outputs[i]], (size_t)t.count[outputs[i]] * sizeof(float)) ==
              0);
        free(want[i]);
    }
    trial_drop(&t);
}

static void test_losses(void) {
    enum { ROWS = 512, DIM = 128, RUNS = 20 };
    static float rows[ROWS * DIM], gradient[ROWS * DIM], want[ROWS * DIM];
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan *plan;
    double value, first;
    for (int i = 0; i < ROWS * DIM; i++) rows[i] = (float)((i * 7919) % 1000 - 500);
    CHECK_OK(zonal_loss_defaults("mmd-heat", &options));
    options.threads = 2;
    if (!CHECK_OK(zonal_plan_create(&options, ROWS, DIM, &plan))) return;
    CHECK_OK(zonal_plan_execute(plan, rows, &first, want));
    watch();
    for (int run = 0; run < RUNS; run++) CHECK_OK(zonal_plan_execute(plan, rows, &value, gradient));
    unwatch("a loss");
    CHECK(value == first && memcmp(gradient, want, sizeof want) == 0);
    zonal_plan_destroy(plan);
}

#else

static void test_layers(void) {
    SKIP("how to read the stack pointer is known for x86-64 Linux only");
}
static void test_losses(void) {
    SKIP("how to read the stack pointer is known for x86-64 Linux only");
}

#endif

/* ---- our own threads ------------------------------------------------------------------------- */

static _Atomic int helpers, helpers_open;

static int signals_blocked(void) {
    static const int asynchronous[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGPROF, SIGCHLD, SIGUSR1};
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    for (size_t i = 0; i < sizeof asynchronous / sizeof asynchronous[0]; i++)
        if (!sigismember(&blocked, asynchronous[i])) return 0;
    return !sigismember(&blocked, SIGSEGV);
}

/* The calling thread's turn lasts so long that a helper comes for the other one. */
static void meet(void *context, int64_t turn, int thread) {
    const struct timespec a_while = {.tv_nsec = 20000000};
    (void)context, (void)turn;
    if (thread == 0) {
        nanosleep(&a_while, NULL);
        return;
    }
    atomic_fetch_add(&helpers, 1);
    if (!signals_blocked()) atomic_fetch_add(&helpers_open, 1);
}

static zonal_status meet_once(zonal__work *work, const void *x, double *value, void *gradient,
                              double factor) {
    (void)work, (void)x, (void)value, (void)gradient, (void)factor;
    CHECK(!signals_blocked());
    zonal__cpu_parallel(2, meet, NULL);
    return ZONAL_OK;
}

static void test_team(void) {
    helpers = helpers_open = 0;
    for (int run = 0; run < 20 && helpers == 0; run++)
        CHECK_OK(zonal__cpu_run(2, meet_once, NULL, NULL, NULL, NULL, 0));
    CHECK(!signals_blocked());
    if (helpers == 0) SKIP("no helper came: built without OpenMP, or a busy machine");
    CHECK(helpers_open == 0);
}

static zonal_status make_nothing(void *context, int worker, int64_t i, zonal__image *image) {
    (void)context, (void)worker, (void)i, (void)image;
    atomic_fetch_add(&helpers, 1);
    if (!signals_blocked()) atomic_fetch_add(&helpers_open, 1);
    return ZONAL_OK;
}

static zonal_status use_nothing(void *context, int64_t i, zonal_status made,
                                const zonal__image *image) {
    (void)context, (void)i, (void)image;
    return made;
}

static void test_pool(void) {
    zonal__pool_task task = {.make = make_nothing, .use = use_nothing};
    helpers = helpers_open = 0;
    CHECK_OK(zonal__pool_run(&task, 10, 2));
    CHECK(helpers == 10 && helpers_open == 0);
    CHECK(!signals_blocked());
}

static const test_case tests[] = {{"layers", test_layers},
                                  {"losses", test_losses},
                                  {"the team's threads", test_team},
                                  {"the pool's threads", test_pool},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
