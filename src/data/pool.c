/* A ring of images, two for each worker. Image i lies in place i % places. */
#include "data/pool.h"

#include <pthread.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/thread.h"

enum { MOST_WORKERS = 256 };

typedef struct place {
    zonal__image image;
    zonal_status made;
    int ready;
    char sentence[sizeof((zonal_error *)0)->message];
} place;

typedef struct pool {
    const zonal__pool_task *task;
    pthread_mutex_t lock;
    pthread_cond_t room, ready; /* a place became free; an image was made */
    int64_t count, next, used;  /* next to be made; used so far */
    int n_places, stopping;
    place *places;
} pool;

typedef struct member {
    pool *pool;
    int number;
    pthread_t thread;
} member;

int zonal__pool_workers(int workers) {
    workers = zonal__thread_count(workers);
    return workers < MOST_WORKERS ? workers : MOST_WORKERS;
}

static void *work(void *context) {
    member *m = context;
    pool *p = m->pool;
    pthread_mutex_lock(&p->lock);
    while (!p->stopping && p->next < p->count) {
        if (p->next >= p->used + p->n_places) {
            pthread_cond_wait(&p->room, &p->lock);
            continue;
        }
        int64_t i = p->next++;
        place *at = &p->places[i % p->n_places];
        pthread_mutex_unlock(&p->lock);
        at->made = p->task->make(p->task->context, m->number, i, &at->image);
        if (at->made != ZONAL_OK)
            snprintf(at->sentence, sizeof at->sentence, "%s", zonal_last_error()->message);
        pthread_mutex_lock(&p->lock);
        at->ready = 1;
        pthread_cond_signal(&p->ready);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static zonal_status use_all(pool *p) {
    zonal_status status = ZONAL_OK;
    while (p->used < p->count && status == ZONAL_OK) {
        place *at = &p->places[p->used % p->n_places];
        pthread_mutex_lock(&p->lock);
        while (!at->ready) pthread_cond_wait(&p->ready, &p->lock);
        at->ready = 0;
        pthread_mutex_unlock(&p->lock);
        if (at->made != ZONAL_OK) (void)ZONAL_FAIL(at->made, "%s", at->sentence);
        status = p->task->use(p->task->context, p->used, at->made, &at->image);
        pthread_mutex_lock(&p->lock);
        /* Half of the ring at a time: to wake all workers for each small image costs more than
         * making it. Those that wait have left the other half to be used meanwhile. */
        if (++p->used % (p->n_places / 2) == 0) pthread_cond_broadcast(&p->room);
        pthread_mutex_unlock(&p->lock);
    }
    return status;
}

static zonal_status run(pool *p, member *members, int workers) {
    zonal_status status;
    int started = 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->room, NULL);
    pthread_cond_init(&p->ready, NULL);
    for (; started < workers; started++) {
        members[started] = (member){.pool = p, .number = started};
        if (zonal__thread_start(&members[started].thread, work, &members[started]) != 0) break;
    }
    if (started > 0)
        status = use_all(p);
    else
        status = ZONAL_FAIL(ZONAL_MEMORY,
                            "no worker thread can be started; allow more threads (ulimit -u)");
    pthread_mutex_lock(&p->lock);
    p->stopping = 1;
    pthread_cond_broadcast(&p->room);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < started; i++) pthread_join(members[i].thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->room);
    pthread_cond_destroy(&p->ready);
    return status;
}

zonal_status zonal__pool_run(const zonal__pool_task *task, int64_t count, int workers) {
    pool p = {.task = task, .count = count};
    member *members = NULL;
    zonal_status status;
    workers = zonal__pool_workers(workers);
    p.n_places = 2 * workers;
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&p.places, p.n_places, "the images in flight"));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&members, workers, "the workers"));
    status = run(&p, members, workers);
done:
    for (int i = 0; p.places && i < p.n_places; i++) zonal__image_fini(&p.places[i].image);
    zonal__free(p.places);
    zonal__free(members);
    return status;
}
