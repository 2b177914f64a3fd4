#include "train/checkpoint_writer.h"

#include <pthread.h>

#include "core/memory.h"
#include "core/thread.h"

/* One is being written, one waits as the best and one as the latest. */
enum { COPIES = 3 };

typedef struct copy {
    zonal__snapshot *snapshot; /* NULL: not needed so far */
    int best, latest;          /* what it waits to be written as; neither: it is free */
} copy;

struct zonal__checkpoint_writer {
    zonal__checkpoint_store *store;
    void *context;
    zonal__trainer *trainer;
    int all; /* 1: none is left out */
    pthread_t thread;
    int started;
    pthread_mutex_t lock; /* for all that follows */
    pthread_cond_t changed;
    copy copies[COPIES];
    int busy; /* the copy that is being written; -1: none */
    int closing;
    zonal_error failure; /* the first one; its status is ZONAL_OK as long as there is none */
};

/* ---- the thread ------------------------------------------------------------------------------ */

/* The copy to write next, -1: none. The best comes before the latest. */
static int next_copy(const zonal__checkpoint_writer *w) {
    int next = -1;
    for (int i = 0; i < COPIES; i++)
        if (i != w->busy && (w->copies[i].best || (w->copies[i].latest && next < 0))) next = i;
    return next;
}

static void write_copy(zonal__checkpoint_writer *w, int i) {
    const copy taken = w->copies[i];
    w->copies[i].best = w->copies[i].latest = 0;
    w->busy = i;
    pthread_cond_broadcast(&w->changed); /* its place among those that wait is free */
    pthread_mutex_unlock(&w->lock);
    zonal_status status = w->store(w->context, taken.snapshot, taken.best, taken.latest);
    pthread_mutex_lock(&w->lock);
    if (status != ZONAL_OK && w->failure.status == ZONAL_OK) w->failure = *zonal_last_error();
    w->busy = -1;
    pthread_cond_broadcast(&w->changed);
}

/* After a failure nothing more is written: a later checkpoint without an earlier best would break
 * the order. */
static int has_work(const zonal__checkpoint_writer *w) {
    return w->failure.status == ZONAL_OK && next_copy(w) >= 0;
}

static void *write_all(void *context) {
    zonal__checkpoint_writer *w = context;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        if (has_work(w))
            write_copy(w, next_copy(w));
        else if (w->closing)
            break;
        else
            pthread_cond_wait(&w->changed, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- handing over ---------------------------------------------------------------------------- */

static zonal_status tell_failure(const zonal__checkpoint_writer *w) {
    if (w->failure.status == ZONAL_OK) return ZONAL_OK;
    return ZONAL_FAIL(w->failure.status, "%s", w->failure.message);
}

/* What a new latest, or best, takes the place of. */
static void supersede(zonal__checkpoint_writer *w, int best) {
    for (int i = 0; i < COPIES; i++) {
        w->copies[i].latest = 0;
        if (best) w->copies[i].best = 0;
    }
}

/* There is one: at most one is busy, and at most one waits, as the best. */
static int free_copy(const zonal__checkpoint_writer *w) {
    int i = 0;
    while (i == w->busy || w->copies[i].best || w->copies[i].latest) i++;
    return i;
}

static zonal_status take(zonal__checkpoint_writer *w, copy *c) {
    if (!c->snapshot) ZONAL_TRY(zonal__snapshot_create(w->trainer, &c->snapshot));
    return zonal__snapshot_take(c->snapshot);
}

zonal_status zonal__checkpoint_writer_save(zonal__checkpoint_writer *w, int best) {
    pthread_mutex_lock(&w->lock);
    while (w->all && has_work(w)) pthread_cond_wait(&w->changed, &w->lock);
    zonal_status status = tell_failure(w);
    if (status == ZONAL_OK) {
        supersede(w, best);
        int i = free_copy(w);
        /* The copy is this thread's: the other one leaves alone what neither waits nor is busy. */
        pthread_mutex_unlock(&w->lock);
        status = take(w, &w->copies[i]);
        pthread_mutex_lock(&w->lock);
        if (status == ZONAL_OK) {
            w->copies[i].best = best;
            w->copies[i].latest = 1;
            pthread_cond_broadcast(&w->changed);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}

zonal_status zonal__checkpoint_writer_finish(zonal__checkpoint_writer *w) {
    pthread_mutex_lock(&w->lock);
    while (w->busy >= 0 || has_work(w)) pthread_cond_wait(&w->changed, &w->lock);
    zonal_status status = tell_failure(w);
    pthread_mutex_unlock(&w->lock);
    return status;
}

zonal_status zonal__checkpoint_writer_status(zonal__checkpoint_writer *w) {
    pthread_mutex_lock(&w->lock);
    zonal_status status = tell_failure(w);
    pthread_mutex_unlock(&w->lock);
    return status;
}

/* ---- making ---------------------------------------------------------------------------------- */

zonal_status zonal__checkpoint_writer_create(zonal__checkpoint_store *store, void *context,
                                             zonal__trainer *trainer, int all,
                                             zonal__checkpoint_writer **out) {
    zonal__checkpoint_writer *w;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&w, 1, "the writer of checkpoints"));
    w->store = store;
    w->context = context;
    w->trainer = trainer;
    w->all = all;
    w->busy = -1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->started = zonal__thread_start(&w->thread, write_all, w) == 0;
    if (w->started) {
        *out = w;
        return ZONAL_OK;
    }
    zonal__checkpoint_writer_destroy(w);
    return ZONAL_FAIL(ZONAL_MEMORY, "no thread could be made for writing checkpoints");
}

void zonal__checkpoint_writer_destroy(zonal__checkpoint_writer *w) {
    if (!w) return;
    if (w->started) {
        pthread_mutex_lock(&w->lock);
        w->closing = 1;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    for (int i = 0; i < COPIES; i++) zonal__snapshot_destroy(w->copies[i].snapshot);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    zonal__free(w);
}
