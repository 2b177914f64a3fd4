/*
 * The CPU's table, which is the reference's with what this folder does better put over it, and the
 * threads that its operations share.
 */
#include "backend/cpu/cpu.h"

#include <pthread.h>
#include <sched.h>

#include "core/memory.h"
#include "core/thread.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* ---- operations ------------------------------------------------------------------------------ */

zonal_status zonal__cpu_create(const zonal__problem *problem, size_t size, const char *what,
                               zonal__cpu_filler *fill, void (*destroy)(zonal__work *work),
                               zonal__work **out) {
    void *memory;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__alloc(1, size, what, &memory));
    status = fill(problem, memory);
    if (status == ZONAL_OK)
        *out = memory;
    else
        destroy(memory);
    return status;
}

static zonal__backend table;

static void fill(void) {
    table = *zonal__backend_ref();
    table.name = "cpu";
    table.is_oracle = 0;
    table.operations[ZONAL__PAIRS] = &zonal__cpu_pairs;
    table.operations[ZONAL__KL] = &zonal__cpu_kl;
    table.operations[ZONAL__MOMENTS] = &zonal__cpu_moments;
    table.operations[ZONAL__SLICED] = &zonal__cpu_sliced;
    table.operations[ZONAL__INVARIANCE] = &zonal__cpu_invariance;
    table.operations[ZONAL__SURVEY] = &zonal__cpu_survey;
    table.operations[ZONAL__COVARIANCE] = &zonal__cpu_covariance;
#ifdef ZONAL_HAVE_LAPACKE
    table.operations[ZONAL__EIGENVALUES] = &zonal__cpu_eigenvalues;
#endif
}

const zonal__backend *zonal__backend_cpu(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
    return &table;
}

/* ---- threads --------------------------------------------------------------------------------- */

/* The loop in progress. "ticket" is its number, times 2^40, plus the next turn: a helper that comes
 * late cannot mistake a turn of this loop for one of the last. */
typedef struct team {
    _Atomic(zonal__cpu_turn) turn;
    _Atomic(void *) context;
    _Atomic int64_t turns;
    _Atomic int64_t ticket, done;
    _Atomic int64_t finished; /* 1: the run is over */
} team;

enum { TICKET_BITS = 40 };
static const int64_t last_turn = ((int64_t)1 << TICKET_BITS) - 1; /* never taken: a closed loop */

static _Thread_local team *own_team;

/* A few microseconds of patience; then others may need the processor more. */
static void pause_or_yield(int *tries) {
    enum { TRIES = 500 };
    if (++*tries > TRIES) sched_yield();
#if defined(__x86_64__) && defined(__GNUC__)
    else
        __builtin_ia32_pause();
#endif
}

void zonal__cpu_wait(const _Atomic int64_t *number, int64_t wanted) {
    int tries = 0;
    while (atomic_load_explicit(number, memory_order_acquire) < wanted) pause_or_yield(&tries);
}

/* Runs one turn of the loop in progress; returns 0 when none was left. */
static int take_turn(team *t, int thread) {
    int64_t ticket = atomic_load_explicit(&t->ticket, memory_order_acquire), turns, i;
    zonal__cpu_turn turn;
    void *context;
    do {
        turn = atomic_load_explicit(&t->turn, memory_order_acquire);
        context = atomic_load_explicit(&t->context, memory_order_acquire);
        turns = atomic_load_explicit(&t->turns, memory_order_acquire);
        i = ticket & last_turn;
        if (i >= turns) return 0;
        /* where the exchange succeeds the loop is still open, and what was read belongs to it:
         * these fields only change between the closing of one loop and the opening of the next */
    } while (!atomic_compare_exchange_weak_explicit(&t->ticket, &ticket, ticket + 1,
                                                    memory_order_acq_rel, memory_order_acquire));
    turn(context, i, thread);
    atomic_fetch_add_explicit(&t->done, 1, memory_order_release);
    return 1;
}

void zonal__cpu_parallel(int64_t turns, zonal__cpu_turn turn, void *context) {
    team *t = own_team;
    if (!t) {
        for (int64_t i = 0; i < turns; i++) turn(context, i, 0);
        return;
    }
    int64_t loop = atomic_load_explicit(&t->ticket, memory_order_relaxed) >> TICKET_BITS;
    atomic_store_explicit(&t->ticket, loop << TICKET_BITS | last_turn, memory_order_release);
    atomic_store_explicit(&t->turn, turn, memory_order_release);
    atomic_store_explicit(&t->context, context, memory_order_release);
    atomic_store_explicit(&t->turns, turns, memory_order_release);
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    atomic_store_explicit(&t->ticket, (loop + 1) << TICKET_BITS, memory_order_release);
    while (take_turn(t, 0)) continue;
    zonal__cpu_wait(&t->done, turns);
}

#ifdef _OPENMP
static void help(team *t, int thread) {
    int tries = 0;
    while (!atomic_load_explicit(&t->finished, memory_order_acquire)) {
        if (take_turn(t, thread))
            tries = 0;
        else
            pause_or_yield(&tries);
    }
}
#endif

zonal_status zonal__cpu_run(int threads, zonal__cpu_body body, zonal__work *work, const void *x,
                            double *value, void *gradient, double factor) {
    zonal_status status = ZONAL_OK;
#ifdef _OPENMP
    if (threads > 1) {
        team t = {.turns = 0};
        sigset_t signals;
        zonal__thread_block_signals(&signals);
#pragma omp parallel num_threads(threads)
        {
            int thread = omp_get_thread_num();
            if (thread == 0) { /* the calling thread: failures are recorded for it */
                zonal__thread_restore_signals(&signals);
                own_team = &t;
                status = body(work, x, value, gradient, factor);
                own_team = NULL;
                atomic_store_explicit(&t.finished, 1, memory_order_release);
            } else {
                help(&t, thread);
            }
        }
        return status;
    }
#endif
    (void)threads;
    status = body(work, x, value, gradient, factor);
    return status;
}
