#include "fake_device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "data/codec.h"
#include "test.h"

enum { MOST_BLOCKS = 4096, MOST_LATE = 64 };
#define MOVED ((uintptr_t)1 << 62)

typedef struct block {
    uintptr_t begin; /* in the host's memory; 0: free */
    size_t bytes;
    int index;
} block;

struct zonal__layer {
    zonal__layer_spec spec;
    int index;
    zonal__layer *inner;
    void *stream, *chain; /* chain: where it last went forward */
};

struct zonal__views {
    int index;
    zonal__views *inner;
    void *stream;
};

/* Put on a stream and not run yet: the way back of a layer, or views. */
typedef struct late_work {
    zonal__layer *layer; /* NULL: views */
    zonal__layer_arrays arrays;
    zonal__views *views;
    const uint8_t *base;
    const zonal__image_place *images;
    const zonal__view *view;
    int64_t count;
    void *out;
} late_work;

/* A stream or an event. An event is as far as its stream was when it was recorded. */
typedef struct mark {
    int index;
    late_work late[MOST_LATE]; /* by number */
    int64_t put, done;         /* numbers: all that were put there, those that have run */
    struct mark *stream;       /* of an event; NULL: not recorded, or its stream is gone */
    struct mark *next;         /* of all streams and events that are alive */
    int number; /* a stream's; of an event: the stream's where it was recorded last; 0: NULL's */
    int waited; /* of an event: the host has waited for it since */
} mark;

/* Whether a stream, by its number, holds an event that the host has not waited for; beyond so many
 * streams numbers are used again. */
enum { MOST_STREAMS = 1 << 12 };
static char behind[MOST_STREAMS];

static block blocks[MOST_BLOCKS];
static fake_counts counts[FAKE_DEVICES];
static mark *marks; /* and what is late on them: with the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

fake_counts fake_count(int index) {
    return counts[index];
}

static void *reach(int index, const void *pointer, size_t bytes);

const void *fake_see(int index, const void *pointer, size_t bytes) {
    return reach(index, pointer, bytes);
}

/* ---- pointers -------------------------------------------------------------------------------- */

static void *moved(const void *host) {
    return host ? (void *)((uintptr_t)host + MOVED) : NULL;
}

static void enter(const void *host, size_t bytes, int index) {
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (!blocks[i].begin) {
            blocks[i] = (block){(uintptr_t)host, bytes, index};
            return;
        }
    abort();
}

static void leave(const void *host) {
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (blocks[i].begin == (uintptr_t)host) blocks[i].begin = 0;
}

/* The host's address of "bytes" bytes of the device; NULL of NULL. */
static void *reach(int index, const void *pointer, size_t bytes) {
    uintptr_t at = (uintptr_t)pointer - MOVED;
    if (!pointer) return NULL;
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (blocks[i].begin && at >= blocks[i].begin &&
            at - blocks[i].begin + bytes <= blocks[i].bytes) {
            CHECK_MSG(blocks[i].index == index, "memory of fake:%d used on fake:%d",
                      blocks[i].index, index);
            return (void *)at;
        }
    CHECK_MSG(0, "%p (%zu bytes) is no memory of fake:%d", (const void *)pointer, bytes, index);
    abort(); /* whoever follows it ends here as well */
}

static void own(int index, const void *stream_or_event) {
    const mark *m = stream_or_event;
    if (m) CHECK_MSG(m->index == index, "a stream of fake:%d used on fake:%d", m->index, index);
}

static int index_of(const zonal__device *device) {
    CHECK(device && strncmp(device->name, "fake:", 5) == 0);
    return device ? device->index : 0;
}

/* ---- work that comes late -------------------------------------------------------------------- */

static zonal_status run_late(const late_work *w) {
    if (w->layer) return zonal__nn_cpu()->backward(w->layer->inner, &w->arrays);
    return zonal__views_cpu()->run(w->views->inner, w->base, w->images, w->view, w->count, w->out);
}

/* The caller holds the lock. */
static zonal_status run_up_to(mark *stream, int64_t number) {
    zonal_status status = ZONAL_OK;
    while (stream->done < number) {
        zonal_status one = run_late(&stream->late[stream->done++ % MOST_LATE]);
        if (status == ZONAL_OK) status = one;
    }
    return status;
}

/* Runs what is late on a stream, up to a number. */
static zonal_status catch_up(mark *stream, int64_t number) {
    zonal_status status;
    pthread_mutex_lock(&lock);
    status = run_up_to(stream, number);
    pthread_mutex_unlock(&lock);
    return status;
}

static zonal_status catch_all_up(int index) {
    zonal_status status = ZONAL_OK;
    pthread_mutex_lock(&lock);
    for (mark *m = marks; m && status == ZONAL_OK; m = m->next)
        if (m->index == index) status = run_up_to(m, m->put);
    pthread_mutex_unlock(&lock);
    return status;
}

static zonal_status put_late(mark *stream, const late_work *work) {
    zonal_status status = ZONAL_OK;
    pthread_mutex_lock(&lock);
    if (stream->put - stream->done == MOST_LATE) status = run_up_to(stream, stream->done + 1);
    stream->late[stream->put++ % MOST_LATE] = *work;
    pthread_mutex_unlock(&lock);
    return status;
}

/* Scratch is one layer's at a time, wherever that is. */
static void check_scratch(const void *scratch) {
    pthread_mutex_lock(&lock);
    for (const mark *m = marks; m && scratch; m = m->next)
        for (int64_t i = m->done; i < m->put; i++)
            CHECK_MSG(!m->late[i % MOST_LATE].layer ||
                          m->late[i % MOST_LATE].arrays.scratch != scratch,
                      "the scratch of work that is late is used");
    pthread_mutex_unlock(&lock);
}

/* What runs at once on a stream comes behind what is late there. */
static void begin_on(int index, void *stream) {
    own(index, stream);
    if (stream) CHECK_OK(catch_up(stream, ((mark *)stream)->put));
}

/* ---- the runtime ----------------------------------------------------------------------------- */

static zonal_status alloc_memory(const zonal__device *d, size_t bytes, const char *what,
                                 void **out) {
    void *host;
    *out = NULL;
    ZONAL_TRY(zonal__alloc((int64_t)(bytes ? bytes : 1), 1, what, &host));
    enter(host, bytes ? bytes : 1, d->index);
    counts[d->index].blocks++;
    *out = moved(host);
    return ZONAL_OK;
}

static void free_memory(const zonal__device *d, void *memory) {
    void *host = reach(d->index, memory, 1);
    if (!host) return;
    CHECK_OK(catch_all_up(d->index));
    leave(host);
    counts[d->index].blocks--;
    zonal__free(host);
}

static zonal_status send(const zonal__device *d, void *to, const void *host, size_t bytes) {
    ZONAL_TRY(catch_all_up(d->index));
    if (bytes) memcpy(reach(d->index, to, bytes), host, bytes);
    return ZONAL_OK;
}

static zonal_status fetch(const zonal__device *d, void *host, const void *from, size_t bytes) {
    ZONAL_TRY(catch_all_up(d->index));
    if (bytes) memcpy(host, reach(d->index, from, bytes), bytes);
    return ZONAL_OK;
}

static zonal_status room(const zonal__device *d, size_t *free_bytes, size_t *all_bytes) {
    (void)d;
    *free_bytes = *all_bytes = (size_t)1 << 30;
    return ZONAL_OK;
}

static zonal_status wait_all(const zonal__device *d) {
    return catch_all_up(d->index);
}

static zonal_status alloc_pinned(const zonal__device *d, size_t bytes, void **out) {
    counts[d->index].pinned++;
    return zonal__alloc((int64_t)(bytes ? bytes : 1), 1, "pinned memory", out);
}

static void free_pinned(const zonal__device *d, void *memory) {
    if (memory) counts[d->index].pinned--;
    zonal__free(memory);
}

static zonal_status make_mark(const zonal__device *d, void **out) {
    mark *m;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&m, 1, "a mark"));
    m->index = d->index;
    pthread_mutex_lock(&lock);
    m->next = marks;
    marks = m;
    pthread_mutex_unlock(&lock);
    *out = m;
    return ZONAL_OK;
}

static void drop_mark(mark *gone) {
    mark **at = &marks;
    if (!gone) return;
    CHECK_OK(catch_up(gone, gone->put));
    pthread_mutex_lock(&lock);
    while (*at != gone) at = &(*at)->next;
    *at = gone->next;
    for (mark *m = marks; m; m = m->next)
        if (m->stream == gone) m->stream = NULL;
    pthread_mutex_unlock(&lock);
    zonal__free(gone);
}

static zonal_status make_stream(const zonal__device *d, void **out) {
    static atomic_int made;
    ZONAL_TRY(make_mark(d, out));
    ((mark *)*out)->number = 1 + made++ % (MOST_STREAMS - 1);
    behind[((mark *)*out)->number] = 0;
    counts[d->index].streams++;
    return ZONAL_OK;
}

static void drop_stream(const zonal__device *d, void *stream) {
    own(d->index, stream);
    if (stream) counts[d->index].streams--;
    drop_mark(stream);
}

static zonal_status make_event(const zonal__device *d, void **out) {
    ZONAL_TRY(make_mark(d, out));
    counts[d->index].events++;
    return ZONAL_OK;
}

static void drop_event(const zonal__device *d, void *event) {
    own(d->index, event);
    if (event) counts[d->index].events--;
    drop_mark(event);
}

static zonal_status send_on(const zonal__device *d, void *stream, void *to, const void *host,
                            size_t bytes) {
    begin_on(d->index, stream);
    counts[d->index].copies++;
    memcpy(reach(d->index, to, bytes), host, bytes);
    return ZONAL_OK;
}

static zonal_status copy_on(const zonal__device *d, void *stream, void *to, const void *from,
                            size_t bytes) {
    begin_on(d->index, stream);
    counts[d->index].copies++;
    memcpy(reach(d->index, to, bytes), reach(d->index, from, bytes), bytes);
    return ZONAL_OK;
}

static zonal_status catch_up_with(const mark *event) {
    return event->stream ? catch_up(event->stream, event->put) : ZONAL_OK;
}

static zonal_status wait_event(const zonal__device *d, void *event) {
    mark *e = event;
    own(d->index, event);
    e->waited = 1;
    if (e->number) behind[e->number] = 0;
    return catch_up_with(e);
}

static zonal_status record(const zonal__device *d, void *event, void *stream) {
    mark *e = event;
    own(d->index, event);
    own(d->index, stream);
    e->stream = stream;
    e->done = e->put = e->stream ? e->stream->put : 0;
    e->number = e->stream ? e->stream->number : 0;
    e->waited = 0;
    return ZONAL_OK;
}

static zonal_status hold(const zonal__device *d, void *event, void *stream) {
    own(d->index, event);
    own(d->index, stream);
    if (stream && !((mark *)event)->waited) behind[((mark *)stream)->number] = 1;
    return catch_up_with(event);
}

static zonal_status time_once(const zonal__device *d,
                              zonal_status (*enqueue)(void *context, void *stream), void *context,
                              int graph, int warm, int runs, double *microseconds) {
    mark stream = {.index = d->index};
    (void)graph, (void)warm, (void)runs;
    *microseconds = 1;
    return enqueue(context, &stream);
}

/* No graphs: the layers above must do without. */
static zonal_status is_done(const zonal__device *d, void *event, int *done) {
    *done = 1;
    return wait_event(d, event);
}

static const zonal__runtime runtime = {.alloc = alloc_memory,
                                       .free = free_memory,
                                       .write = send,
                                       .read = fetch,
                                       .memory = room,
                                       .synchronise = wait_all,
                                       .pinned_alloc = alloc_pinned,
                                       .pinned_free = free_pinned,
                                       .stream_create = make_stream,
                                       .stream_destroy = drop_stream,
                                       .write_on = send_on,
                                       .copy_on = copy_on,
                                       .event_create = make_event,
                                       .event_destroy = drop_event,
                                       .event_record = record,
                                       .event_hold = hold,
                                       .event_wait = wait_event,
                                       .time = time_once,
                                       .event_done = is_done};

/* ---- losses ---------------------------------------------------------------------------------- */

struct zonal__work {
    zonal__problem problem;
    int index;
    const zonal__operation_table *cpu, *align; /* align: of an objective */
    zonal__work *inner, *inner_align;
    void *stream;
    zonal_status bad; /* of the runs since the last check; its sentence */
    char sentence[768];
};

static void drop(zonal__work *w) {
    if (!w) return;
    if (w->inner) w->cpu->destroy(w->inner);
    if (w->inner_align) w->align->destroy(w->inner_align);
    counts[w->index].blocks--;
    zonal__free(w);
}

static zonal_status make(const zonal__problem *problem, zonal__operation operation,
                         zonal__work **out) {
    zonal__work *w;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&w, 1, "the fake work"));
    w->problem = *problem;
    w->index = index_of(problem->device);
    counts[w->index].blocks++;
    w->cpu = zonal__backend_cpu()->operations[operation];
    status = w->cpu->create(problem, &w->inner);
    if (status == ZONAL_OK)
        *out = w;
    else
        drop(w);
    return status;
}

static zonal_status make_pairs(const zonal__problem *p, zonal__work **out) {
    return make(p, ZONAL__PAIRS, out);
}
static zonal_status make_kl(const zonal__problem *p, zonal__work **out) {
    return make(p, ZONAL__KL, out);
}
static zonal_status make_moments(const zonal__problem *p, zonal__work **out) {
    return make(p, ZONAL__MOMENTS, out);
}
static zonal_status make_sliced(const zonal__problem *p, zonal__work **out) {
    return make(p, ZONAL__SLICED, out);
}

static zonal_status make_objective(const zonal__problem *p, zonal__work **out) {
    zonal__problem one = *p, all = *p;
    one.views = one.global_views = 1;
    all.offset = 0, all.factor = 1;
    ZONAL_TRY(make(&one,
                   p->psi       ? ZONAL__PAIRS
                   : p->log_phi ? ZONAL__KL
                   : p->sliced  ? ZONAL__SLICED
                                : ZONAL__MOMENTS,
                   out));
    (*out)->problem = *p;
    (*out)->align = zonal__backend_cpu()->operations[ZONAL__INVARIANCE];
    return (*out)->align->create(&all, &(*out)->inner_align);
}

/* A device does not refuse a row at once; it tells when it is asked. */
static zonal_status note(zonal__work *w, zonal_status status) {
    if (status != ZONAL_OK && w->bad == ZONAL_OK) {
        w->bad = status;
        snprintf(w->sentence, sizeof w->sentence, "%s", zonal_last_error()->message);
    }
    return ZONAL_OK;
}

static uint32_t step_of(const zonal__work *w, uint32_t step) {
    const uint32_t *word = w->problem.device_step ? *w->problem.device_step : NULL;
    return word ? *(const uint32_t *)reach(w->index, word, sizeof *word) : step;
}

static zonal_status run(zonal__work *w, const void *x, uint32_t step, double *value, void *gradient,
                        double scale) {
    size_t bytes = (size_t)(w->problem.rows * w->problem.dim) * sizeof(float);
    begin_on(w->index, w->stream);
    counts[w->index].runs++;
    return note(w, w->cpu->run(w->inner, reach(w->index, x, bytes), step_of(w, step),
                               reach(w->index, value, sizeof *value),
                               reach(w->index, gradient, bytes), scale));
}

/* In the CPU's order of roundings. */
static zonal_status run_objective(zonal__work *w, const void *z, uint32_t step, double *value,
                                  void *gradient, double scale) {
    const zonal__problem *p = &w->problem;
    int64_t count = p->rows * p->dim;
    size_t bytes = (size_t)(p->views * count) * sizeof(float);
    const float *x = reach(w->index, z, bytes);
    float *g = reach(w->index, gradient, bytes);
    zonal_objective_parts *parts = reach(w->index, value, sizeof *parts);
    double sum = 0, one, inverse = 1 / (double)p->views;
    CHECK(scale == 1);
    begin_on(w->index, w->stream);
    counts[w->index].runs++;
    for (int64_t v = 0; v < p->views; v++) {
        float *to = g ? g + v * count : NULL;
        note(w, w->cpu->run(w->inner, x + v * count, step_of(w, step), &one, to, 1));
        for (int64_t i = 0; to && i < count; i++) to[i] *= (float)(p->lambda * p->gain * inverse);
        sum += one;
    }
    note(w, w->align->run(w->inner_align, x, 0, &parts->invariance, g, 1 - p->lambda));
    parts->discrepancy = sum * inverse;
    parts->total = (1 - p->lambda) * parts->invariance + p->lambda * p->gain * parts->discrepancy;
    parts->gain = p->gain;
    parts->threshold = p->threshold;
    return ZONAL_OK;
}

static size_t scratch(const zonal__work *w) {
    return w->cpu->scratch_bytes(w->inner);
}

static void set_stream(zonal__work *w, void *stream) {
    own(w->index, stream);
    w->stream = stream;
}

static zonal_status check(zonal__work *w) {
    zonal_status status = w->bad;
    w->bad = ZONAL_OK;
    return status == ZONAL_OK ? status : ZONAL_FAIL(status, "%s", w->sentence);
}

#define OPERATION(make_, run_)                                                                     \
    {                                                                                              \
        .create = make_, .run = run_, .destroy = drop, .scratch_bytes = scratch,                   \
        .set_stream = set_stream, .check = check                                                   \
    }
static const zonal__operation_table pairs = OPERATION(make_pairs, run),
                                    kl = OPERATION(make_kl, run),
                                    moments = OPERATION(make_moments, run),
                                    sliced = OPERATION(make_sliced, run),
                                    objective = OPERATION(make_objective, run_objective);

static zonal_status count_devices(int *count) {
    *count = FAKE_DEVICES;
    return ZONAL_OK;
}

static zonal_status describe(int index, zonal_device_info *info) {
    snprintf(info->model, sizeof info->model, "Fake %d", index);
    info->compute_major = 4;
    info->compute_minor = 2;
    info->total_memory = info->free_memory = (uint64_t)1 << 30;
    return ZONAL_OK;
}

/* ---- layers, views, optimisers --------------------------------------------------------------- */

static zonal_status make_layer(const zonal__layer_spec *spec, zonal__layer **out) {
    zonal__layer *l;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&l, 1, "a fake layer"));
    l->spec = *spec;
    l->index = index_of(spec->device);
    status = zonal__nn_cpu()->create(spec, &l->inner);
    if (status == ZONAL_OK)
        *out = l;
    else
        zonal__free(l);
    return status;
}

static void drop_layer(zonal__layer *l) {
    if (!l) return;
    CHECK_OK(catch_all_up(l->index));
    zonal__nn_cpu()->destroy(l->inner);
    zonal__free(l);
}

static size_t saved_bytes(const zonal__layer *l) {
    return zonal__nn_cpu()->saved_bytes(l->inner);
}

static size_t scratch_bytes(const zonal__layer *l) {
    return zonal__nn_cpu()->scratch_bytes(l->inner);
}

/* How long each array is the network's matter; that it begins inside a block is checked. */
static zonal__layer_arrays reach_arrays(zonal__layer *l, const zonal__layer_arrays *a) {
    zonal__layer_arrays r = *a;
    own(l->index, l->stream);
    counts[l->index].runs++;
#define REACH(field) r.field = reach(l->index, a->field, 1)
    REACH(x), REACH(residual), REACH(y), REACH(weight), REACH(bias), REACH(scale);
    REACH(running_mean), REACH(running_variance), REACH(saved), REACH(scratch);
    REACH(dy), REACH(dy_more), REACH(dx), REACH(dresidual), REACH(dweight), REACH(dbias);
    REACH(dscale);
#undef REACH
    return r;
}

static zonal_status forward(zonal__layer *l, const zonal__layer_arrays *a, int training) {
    const zonal__layer_arrays r = reach_arrays(l, a);
    l->chain = l->stream;
    begin_on(l->index, l->stream);
    check_scratch(r.scratch);
    return zonal__nn_cpu()->forward(l->inner, &r, training);
}

static zonal_status backward(zonal__layer *l, const zonal__layer_arrays *a) {
    const zonal__layer_arrays r = reach_arrays(l, a);
    if (l->stream && l->stream != l->chain)
        return put_late(l->stream, &(late_work){.layer = l, .arrays = r});
    begin_on(l->index, l->stream);
    check_scratch(r.scratch);
    return zonal__nn_cpu()->backward(l->inner, &r);
}

static void layer_stream(zonal__layer *l, void *stream) {
    own(l->index, stream);
    l->stream = stream;
}

static const zonal__nn_table layers = {.name = "fake",
                                       .create = make_layer,
                                       .destroy = drop_layer,
                                       .saved_bytes = saved_bytes,
                                       .scratch_bytes = scratch_bytes,
                                       .forward = forward,
                                       .backward = backward,
                                       .set_stream = layer_stream};

static zonal_status make_views(const zonal__views_spec *spec, zonal__views **out) {
    zonal__views *v;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&v, 1, "fake views"));
    v->index = index_of(spec->device);
    status = zonal__views_cpu()->create(spec, &v->inner);
    if (status == ZONAL_OK)
        *out = v;
    else
        zonal__free(v);
    return status;
}

static zonal_status run_views(zonal__views *v, const uint8_t *base,
                              const zonal__image_place *images, const zonal__view *view,
                              int64_t count, void *out) {
    const late_work work = {.views = v,
                            .base = reach(v->index, base, 1),
                            .images = reach(v->index, images, 1),
                            .view = reach(v->index, view, (size_t)count * sizeof *view),
                            .count = count,
                            .out = reach(v->index, out, 1)};
    counts[v->index].runs++;
    return v->stream ? put_late(v->stream, &work) : run_late(&work);
}

static void views_stream(zonal__views *v, void *stream) {
    own(v->index, stream);
    v->stream = stream;
}

static void drop_views(zonal__views *v) {
    if (!v) return;
    CHECK_OK(catch_all_up(v->index));
    zonal__views_cpu()->destroy(v->inner);
    zonal__free(v);
}

static const zonal__views_table views = {.name = "fake",
                                         .create = make_views,
                                         .run = run_views,
                                         .destroy = drop_views,
                                         .set_stream = views_stream};

struct zonal__optimiser {
    zonal__optimiser_spec spec;
    int index;
    zonal__optimiser *inner;
    float *state[2]; /* the host's address of those that were asked for */
};

static zonal_status make_optimiser(const zonal__optimiser_spec *spec,
                                   const zonal__optimiser_segment *segments, int64_t segment_count,
                                   zonal__optimiser **out) {
    zonal__optimiser *o;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&o, 1, "a fake optimiser"));
    o->spec = *spec;
    o->index = index_of(spec->device);
    status = zonal__optimiser_cpu()->create(spec, segments, segment_count, &o->inner);
    if (status == ZONAL_OK)
        *out = o;
    else
        zonal__free(o);
    return status;
}

static void drop_optimiser(zonal__optimiser *o) {
    if (!o) return;
    for (int i = 0; i < 2; i++)
        if (o->state[i]) leave(o->state[i]);
    zonal__optimiser_cpu()->destroy(o->inner);
    zonal__free(o);
}

static zonal_status state(zonal__optimiser *o, const char *name, float **memory) {
    int i;
    ZONAL_TRY(zonal__optimiser_state_index(o->spec.kind, name, &i));
    ZONAL_TRY(zonal__optimiser_cpu()->state(o->inner, name, memory));
    if (!o->state[i]) enter(*memory, (size_t)o->spec.count * sizeof **memory, o->index);
    o->state[i] = *memory;
    *memory = moved(*memory);
    return ZONAL_OK;
}

static zonal__optimiser_arrays reach_parameters(zonal__optimiser *o,
                                                const zonal__optimiser_arrays *a) {
    zonal__optimiser_arrays r = *a;
    size_t bytes = (size_t)o->spec.count * sizeof(float);
    r.parameters = reach(o->index, a->parameters, bytes);
    r.gradients = reach(o->index, a->gradients, bytes);
    r.copy = reach(o->index, a->copy, bytes / 2);
    counts[o->index].runs++;
    return r;
}

static zonal_status step(zonal__optimiser *o, const zonal__optimiser_arrays *arrays,
                         const zonal__optimiser_numbers *numbers, double *norm) {
    const zonal__optimiser_arrays r = reach_parameters(o, arrays);
    return zonal__optimiser_cpu()->step(o->inner, &r, reach(o->index, numbers, sizeof *numbers),
                                        reach(o->index, norm, sizeof *norm));
}

static zonal_status status_of(zonal__optimiser *o) {
    (void)o;
    return ZONAL_OK;
}

static zonal_status copy(zonal__optimiser *o, const zonal__optimiser_arrays *arrays) {
    const zonal__optimiser_arrays r = reach_parameters(o, arrays);
    return zonal__optimiser_cpu()->copy(o->inner, &r);
}

static const zonal__optimiser_table optimisers = {.name = "fake",
                                                  .create = make_optimiser,
                                                  .destroy = drop_optimiser,
                                                  .state = state,
                                                  .step = step,
                                                  .status = status_of,
                                                  .copy = copy};

struct zonal__classifier {
    zonal__classifier_spec spec;
    int index;
    zonal__classifier *inner;
    void *stream;
};

static zonal_status make_classifier(const zonal__classifier_spec *spec, zonal__classifier **out) {
    zonal__classifier *c;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&c, 1, "a fake classifier"));
    c->spec = *spec;
    c->index = index_of(spec->device);
    status = zonal__classifier_cpu()->create(spec, &c->inner);
    if (status == ZONAL_OK)
        *out = c;
    else
        zonal__free(c);
    return status;
}

static void drop_classifier(zonal__classifier *c) {
    if (!c) return;
    zonal__classifier_cpu()->destroy(c->inner);
    zonal__free(c);
}

static zonal_status classify(zonal__classifier *c, const void *x, const int32_t *labels,
                             const float *parameters, float *gradients) {
    size_t rows = (size_t)c->spec.rows;
    size_t bytes = (size_t)zonal__classifier_parameters(&c->spec) * sizeof(float);
    begin_on(c->index, c->stream);
    CHECK(c->stream);
    counts[c->index].runs++;
    return zonal__classifier_cpu()->gradient(
        c->inner, reach(c->index, x, rows * (size_t)c->spec.dim * sizeof(float)),
        reach(c->index, labels, rows * sizeof *labels), reach(c->index, parameters, bytes),
        reach(c->index, gradients, bytes));
}

static void classifier_stream(zonal__classifier *c, void *stream) {
    own(c->index, stream);
    c->stream = stream;
}

static const zonal__classifier_table classifier = {.name = "fake",
                                                   .create = make_classifier,
                                                   .destroy = drop_classifier,
                                                   .gradient = classify,
                                                   .set_stream = classifier_stream};

/* ---- JPEG ------------------------------------------------------------------------------------ */

fake_jpegs fake_jpeg;

struct zonal__jpeg_engine {
    int index;
    zonal__decoder *decoder;
    zonal__image image;
};

static void drop_jpeg(zonal__jpeg_engine *e) {
    if (!e) return;
    zonal__decoder_destroy(e->decoder);
    zonal__image_fini(&e->image);
    zonal__free(e);
}

static zonal_status make_jpeg(const zonal__device *device, zonal__jpeg_engine **out) {
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(out, 1, "a fake JPEG decoder"));
    (*out)->index = index_of(device);
    status = zonal__decoder_create(&(*out)->decoder);
    if (status == ZONAL_OK) return ZONAL_OK;
    drop_jpeg(*out);
    *out = NULL;
    return status;
}

static zonal_status decode_jpegs(zonal__jpeg_engine *e, void *stream, int64_t count,
                                 const zonal__jpeg_file *files) {
    begin_on(e->index, stream);
    CHECK_MSG(!stream || !behind[((const mark *)stream)->number],
              "decoding does not wait for its stream");
    if (fake_jpeg.refuses && count > 0) return ZONAL_FAIL(ZONAL_FORMAT, "refused");
    for (int64_t i = 0; i < count; i++) {
        size_t bytes = (size_t)files[i].width * (size_t)files[i].height * 3;
        ZONAL_TRY(zonal__image_decode(e->decoder, files[i].bytes, files[i].size, "fake", NULL,
                                      &e->image));
        CHECK(e->image.width == files[i].width && e->image.height == files[i].height &&
              e->image.channels == 3);
        memcpy(reach(e->index, files[i].pixels, bytes), e->image.pixels, bytes);
        fake_jpeg.decoded++;
    }
    return ZONAL_OK;
}

static const zonal__jpeg_table jpegs = {
    .create = make_jpeg, .decode = decode_jpegs, .destroy = drop_jpeg};

static int never(void) {
    return 0;
}

int fake_register(void) {
    static zonal__backend backend;
    static zonal__training_tables tables;
    if (backend.name) return 1;
    backend = (zonal__backend){.name = "fake",
                               .count = count_devices,
                               .describe = describe,
                               .runtime = &runtime,
                               .precisions = 1u << ZONAL_PRECISION_FP32,
                               .dtypes = 1u << ZONAL_DTYPE_FP32,
                               .pairs_pay_up_to = 100,
                               .operations = {[ZONAL__PAIRS] = &pairs,
                                              [ZONAL__KL] = &kl,
                                              [ZONAL__MOMENTS] = &moments,
                                              [ZONAL__SLICED] = &sliced,
                                              [ZONAL__OBJECTIVE] = &objective}};
    tables = (zonal__training_tables){.backend = "fake",
                                      .layers = &layers,
                                      .views = &views,
                                      .optimisers = &optimisers,
                                      .classifier = &classifier,
                                      .neighbours = zonal__neighbours_cpu(), /* of host memory */
                                      .jpeg = &jpegs,
                                      .bf16_pays = never};
    return CHECK_OK(zonal__device_register(&backend)) &&
           CHECK_OK(zonal__training_register(&tables));
}
