/*
 * Slots in a ring: step s is made in slot s % ahead. Workers take one sample after the other, in
 * order; the first sample of a step opens its slot, once the batch that was there before is done
 * with. One lock guards all of that; reading and making views happen outside of it.
 */
#include "data/loader.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/training/tables.h"
#include "core/memory.h"
#include "core/thread.h"
#include "data/pool.h"
#include "data/source.h"

typedef struct slot {
    zonal__batch batch; /* step < 0: free */
    int64_t *samples;   /* [batch] */
    int32_t *labels;
    int64_t taken, done; /* samples that workers have begun, and finished */
    zonal__image_place *places;
    zonal__view *parameters[ZONAL__LOADER_GROUPS];
    uint8_t *pixels; /* raw */
    size_t *encoded; /* raw: [batch] */
    size_t used;
} slot;

typedef struct worker {
    zonal__loader *loader;
    pthread_t thread;
    zonal__image image, spare;
    zonal__resampler resampler;
    zonal__views *engine[ZONAL__LOADER_GROUPS];
} worker;

struct zonal__loader {
    zonal__loader_options options;
    const zonal__views_table *table;
    size_t element, room; /* bytes: of an element of the views; raw: of an image at most */
    int longest;          /* side of an image that views are made of, at most */
    int64_t own;          /* samples of a batch, at most */

    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* a slot became free; a batch became whole */
    int locks;                  /* 1 once they are there */
    slot *slots;                /* [ahead] */
    zonal__steps steps;
    int64_t filling; /* the step whose samples are handed out */
    int64_t next;    /* the step the consumer asks for */
    int stopping;
    zonal_status failure;
    char sentence[sizeof((zonal_error *)0)->message];
    zonal__loader_listener *listener;
    void *listener_context;

    worker *workers;
    int running;
};

void zonal__view_group_draw(const zonal__view_group *group, uint64_t seed, int64_t epoch,
                            int64_t sample, int image_width, int image_height, int32_t image,
                            int64_t stride, zonal__view *view) {
    for (int v = 0; v < group->views; v++) {
        zonal__view_draw(&group->augmentations[v], seed, (uint32_t)epoch, sample, group->first + v,
                         image_width, image_height, group->width, group->height, &view[v * stride]);
        view[v * stride].image = image;
    }
}

/* Fills in the samples of a step; called in the order of steps, under the lock. */
static void open_slot(zonal__loader *l, slot *s, int64_t step) {
    s->batch.step = step;
    s->batch.count = zonal__steps_samples(&l->steps, step, &s->batch.epoch, s->samples);
    s->taken = s->done = 0;
    s->used = 0;
}

/* ---- one sample ------------------------------------------------------------------------------ */

/* Reads the image that views are made of; a corrupt one is replaced by another, which the batch
 * then names. */
static zonal_status read_image(worker *w, slot *s, int64_t i) {
    const zonal__loader_options *o = &w->loader->options;
    ZONAL_TRY(zonal__source_read_sound(o->source, &s->samples[i], &w->image));
    if (s->labels) s->labels[i] = o->source->labels[s->samples[i]];
    if (w->image.encoded) return ZONAL_OK; /* no larger than that */
    return zonal__image_limit(&w->resampler, o->max_side, &w->spare, &w->image);
}

static void *view_at(const zonal__loader *l, const slot *s, int g, int v, int64_t i) {
    const zonal__view_group *group = &l->options.group[g];
    size_t each = (size_t)group->width * (size_t)group->height * (size_t)l->options.channels;
    return (char *)s->batch.views[g] + ((size_t)(v * s->batch.count + i)) * each * l->element;
}

static zonal_status make_views(worker *w, slot *s, int64_t i, const zonal__image *image) {
    zonal__loader *l = w->loader;
    const zonal__image_place place = {
        .width = image->width, .height = image->height, .channels = image->channels};
    for (int g = 0; g < l->options.groups; g++) {
        const zonal__view_group *group = &l->options.group[g];
        for (int v = 0; v < group->views; v++) {
            zonal__view view;
            zonal__view_draw(&group->augmentations[v], l->options.seed, (uint32_t)s->batch.epoch,
                             s->samples[i], group->first + v, place.width, place.height,
                             group->width, group->height, &view);
            ZONAL_TRY(l->table->run(w->engine[g], image->pixels, &place, &view, 1,
                                    view_at(l, s, g, v, i)));
        }
    }
    return ZONAL_OK;
}

static zonal_status keep_raw(worker *w, slot *s, int64_t i, const zonal__image *stored) {
    zonal__loader *l = w->loader;
    size_t bytes, at;
    bytes = (size_t)stored->width * (size_t)stored->height * (size_t)stored->channels;
    if (stored->encoded) bytes = stored->encoded;
    pthread_mutex_lock(&l->lock);
    at = s->used;
    s->used += (bytes + 15) / 16 * 16;
    pthread_mutex_unlock(&l->lock);
    memcpy(s->pixels + at, stored->pixels, bytes);
    s->encoded[i] = stored->encoded;
    s->places[i] = (zonal__image_place){.offset = (int64_t)at,
                                        .width = stored->width,
                                        .height = stored->height,
                                        .channels = stored->channels};
    for (int g = 0; g < l->options.groups; g++)
        zonal__view_group_draw(&l->options.group[g], l->options.seed, s->batch.epoch, s->samples[i],
                               stored->width, stored->height, (int32_t)i, s->batch.count,
                               s->parameters[g] + i);
    return ZONAL_OK;
}

static zonal_status make_sample(worker *w, slot *s, int64_t i) {
    ZONAL_TRY(read_image(w, s, i));
    return w->loader->options.raw ? keep_raw(w, s, i, &w->image) : make_views(w, s, i, &w->image);
}

/* ---- the workers ----------------------------------------------------------------------------- */

static slot *slot_of(const zonal__loader *l, int64_t step) {
    return &l->slots[step % l->options.ahead];
}

/* The next sample to make; NULL when the loader stops. Called and returns under the lock. */
static slot *take_sample(zonal__loader *l, int64_t *i) {
    while (!l->stopping) {
        slot *s = slot_of(l, l->filling);
        if (s->batch.step < 0) open_slot(l, s, l->filling);
        if (s->batch.step == l->filling && s->batch.count == 0) { /* its share of a last batch */
            l->filling++;
            pthread_cond_broadcast(&l->ready);
            continue;
        }
        if (s->batch.step == l->filling && s->taken < s->batch.count) {
            *i = s->taken++;
            if (s->taken == s->batch.count) l->filling++;
            return s;
        }
        pthread_cond_wait(&l->work, &l->lock);
    }
    return NULL;
}

static void note_failure(zonal__loader *l, zonal_status status) {
    if (l->failure != ZONAL_OK) return;
    l->failure = status;
    snprintf(l->sentence, sizeof l->sentence, "%s", zonal_last_error()->message);
    l->stopping = 1;
    pthread_cond_broadcast(&l->work);
    pthread_cond_broadcast(&l->ready);
}

static void *run_worker(void *context) {
    worker *w = context;
    zonal__loader *l = w->loader;
    slot *s;
    int64_t i;
    pthread_mutex_lock(&l->lock);
    while ((s = take_sample(l, &i)) != NULL) {
        zonal_status status;
        pthread_mutex_unlock(&l->lock);
        status = make_sample(w, s, i);
        pthread_mutex_lock(&l->lock);
        if (status != ZONAL_OK) note_failure(l, status);
        if (++s->done == s->batch.count) pthread_cond_broadcast(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

void zonal__loader_listen(zonal__loader *l, zonal__loader_listener *listener, void *context) {
    l->listener = listener;
    l->listener_context = context;
}

/* Waits for a batch to become whole, at most a second where somebody wants to be told of it. Called
 * and returns under the lock. */
static void wait_for_batch(zonal__loader *l, const slot *s) {
    int64_t ready, count;
    struct timespec until;
    if (!l->listener) {
        pthread_cond_wait(&l->ready, &l->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&l->ready, &l->lock, &until);
    ready = s->batch.step == l->next ? s->done : 0;
    count = s->batch.step == l->next ? s->batch.count : l->own;
    pthread_mutex_unlock(&l->lock);
    l->listener(l->listener_context, ready, count);
    pthread_mutex_lock(&l->lock);
}

zonal_status zonal__loader_next(zonal__loader *l, const zonal__batch **batch) {
    slot *s = slot_of(l, l->next);
    zonal_status failure;
    *batch = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->next > l->options.first_step) { /* the batch before is done with */
        slot_of(l, l->next - 1)->batch.step = -1;
        pthread_cond_broadcast(&l->work);
    }
    while (l->failure == ZONAL_OK && !(s->batch.step == l->next && s->done == s->batch.count))
        wait_for_batch(l, s);
    failure = l->failure;
    s->batch.bytes = s->used;
    pthread_mutex_unlock(&l->lock);
    if (failure != ZONAL_OK) return ZONAL_FAIL(failure, "%s", l->sentence);
    l->next++;
    *batch = &s->batch;
    return ZONAL_OK;
}

/* ---- create and destroy ---------------------------------------------------------------------- */

static zonal_status check_share(const zonal__loader_options *o) {
    const zonal__share *share = &o->share;
    if (share->of == 0 && share->first == 0 && share->count == 0) return ZONAL_OK;
    if (share->of > 0 && o->batch % share->of == 0 && share->first >= 0 && share->count > 0 &&
        share->count <= share->of - share->first)
        return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "a loader's share, %lld images from %lld on of every %lld, must be a part of "
                      "a number that divides the batch of %lld",
                      (long long)share->count, (long long)share->first, (long long)share->of,
                      (long long)o->batch);
}

zonal_status zonal__loader_check(const zonal__loader_options *o) {
    if (o->batch < 1 || o->batch > o->source->count)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a batch must have from 1 to %lld images, all there are "
                          "in %s, got %lld",
                          (long long)o->source->count, o->source->path, (long long)o->batch);
    ZONAL_TRY(check_share(o));
    if (o->groups < 1 || o->groups > ZONAL__LOADER_GROUPS || o->first_step < 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a loader has 1 or %d groups of views and begins at a "
                          "step from 0 on",
                          ZONAL__LOADER_GROUPS);
    if (o->channels != 1 && o->channels != 3)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "views have 1 or 3 channels, not %d", o->channels);
    for (int g = 0; g < o->groups; g++) {
        if (o->group[g].views < 1 || !o->group[g].augmentations)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "a group of views needs at least one view, with its "
                                              "augmentation");
        for (int v = 0; v < o->group[g].views; v++) {
            ZONAL_TRY(zonal__augmentation_check(&o->group[g].augmentations[v]));
            if (o->group[g].augmentations[v].kind != o->group[g].augmentations[0].kind)
                return ZONAL_FAIL(ZONAL_ARGUMENT,
                                  "view %d of group %d is of another kind than the first; make a "
                                  "group for each kind",
                                  v, g);
        }
    }
    return ZONAL_OK;
}

int zonal__max_side(int view_side) {
    return view_side > 256 ? 2 * view_side : 512;
}

int zonal__loader_max_side(const zonal__loader_options *o) {
    int side = 0;
    for (int g = 0; g < o->groups; g++) {
        if (o->group[g].width > side) side = o->group[g].width;
        if (o->group[g].height > side) side = o->group[g].height;
    }
    return o->max_side > 0 ? o->max_side : zonal__max_side(side);
}

/* The largest size of an image that views are made of. */
static void find_sizes(zonal__loader *l) {
    const zonal__source *source = l->options.source;
    int limit = l->options.max_side, width = source->width, height = source->height;
    if (width > 0 && height > 0)
        zonal__image_limited_size(limit, &width, &height);
    else
        width = height = limit;
    l->longest = width > height ? width : height;
    l->room = ((size_t)width * (size_t)height * (source->channels == 1 ? 1 : 3) + 15) / 16 * 16;
}

static void set_defaults(zonal__loader *l) {
    zonal__loader_options *o = &l->options;
    o->workers = zonal__pool_workers(o->workers);
    if (o->ahead <= 0) o->ahead = 3;
    o->max_side = zonal__loader_max_side(o);
    l->element = o->dtype == ZONAL_DTYPE_BF16 ? 2 : 4;
    l->table = zonal__training_host()->views;
    l->filling = l->next = o->first_step;
    l->own = zonal__share_count(&o->share, o->batch);
    find_sizes(l);
}

/* Memory that a device may read from: where the options say, or ordinary. */
static zonal_status alloc_raw(const zonal__loader *l, size_t bytes, const char *what, void *out) {
    void *memory;
    zonal_status status = l->options.device
                              ? zonal__device_pinned_alloc(l->options.device, bytes, &memory)
                              : zonal__alloc((int64_t)bytes, 1, what, &memory);
    if (status != ZONAL_OK) memory = NULL;
    memcpy(out, &memory, sizeof memory);
    return status;
}

static void free_raw(const zonal__loader *l, void *memory) {
    if (l->options.device)
        zonal__device_pinned_free(l->options.device, memory);
    else
        zonal__free(memory);
}

static zonal_status make_slot(const zonal__loader *l, slot *s) {
    const zonal__loader_options *o = &l->options;
    s->batch.step = -1;
    ZONAL_TRY(ZONAL_NEW(&s->samples, l->own, "the samples of a batch"));
    s->batch.samples = s->samples;
    if (o->source->labels) {
        ZONAL_TRY(ZONAL_NEW(&s->labels, l->own, "the labels of a batch"));
        s->batch.labels = s->labels;
    }
    if (o->raw) {
        ZONAL_TRY(
            alloc_raw(l, (size_t)l->own * sizeof *s->places, "the images of a batch", &s->places));
        ZONAL_TRY(alloc_raw(l, zonal__loader_most_bytes(l), "the images of a batch", &s->pixels));
        ZONAL_TRY(ZONAL_NEW(&s->encoded, l->own, "the images of a batch"));
        s->batch.places = s->places;
        s->batch.pixels = s->pixels;
        s->batch.encoded = s->encoded;
    }
    for (int g = 0; g < o->groups; g++) {
        const zonal__view_group *group = &o->group[g];
        int64_t views = group->views * l->own;
        if (o->raw) {
            ZONAL_TRY(alloc_raw(l, (size_t)views * sizeof(zonal__view), "the parameters of views",
                                &s->parameters[g]));
            s->batch.parameters[g] = s->parameters[g];
        } else {
            ZONAL_TRY(zonal__alloc(views * group->width * group->height * o->channels, l->element,
                                   "a batch of views", &s->batch.views[g]));
        }
    }
    return ZONAL_OK;
}

static void drop_slot(const zonal__loader *l, slot *s) {
    zonal__free(s->samples);
    zonal__free(s->labels);
    zonal__free(s->encoded);
    free_raw(l, s->places);
    free_raw(l, s->pixels);
    for (int g = 0; g < ZONAL__LOADER_GROUPS; g++) {
        free_raw(l, s->parameters[g]);
        zonal__free(s->batch.views[g]);
    }
}

void zonal__loader_views_spec(const zonal__loader_options *o, int group_number, int longest,
                              int64_t count, zonal__views_spec *spec) {
    const zonal__view_group *group = &o->group[group_number];
    int shorter = group->width < group->height ? group->width : group->height;
    *spec = (zonal__views_spec){.kind = group->augmentations[0].kind,
                                .width = group->width,
                                .height = group->height,
                                .channels = o->channels,
                                .count = count,
                                .dtype = o->dtype == ZONAL_DTYPE_BF16 ? o->dtype : ZONAL_DTYPE_FP32,
                                .most_shrink = (float)longest / (float)shorter};
    for (int c = 0; c < 3; c++) {
        spec->mean[c] = o->mean[c];
        spec->std[c] = o->std[c] > 0 ? o->std[c] : 1;
    }
    for (int v = 0; v < group->views; v++)
        if (group->augmentations[v].blur > 0) spec->blur_taps = zonal__view_blur_taps(shorter);
}

static zonal_status make_worker(zonal__loader *l, worker *w) {
    const zonal__loader_options *o = &l->options;
    w->loader = l;
    for (int g = 0; g < o->groups && !o->raw; g++) {
        zonal__views_spec spec;
        zonal__loader_views_spec(o, g, l->longest, 1, &spec);
        spec.threads = 1;
        ZONAL_TRY(l->table->create(&spec, &w->engine[g]));
    }
    if (zonal__thread_start(&w->thread, run_worker, w) != 0)
        return ZONAL_FAIL(ZONAL_MEMORY,
                          "a worker thread cannot be started; ask for fewer workers "
                          "than %d",
                          o->workers);
    return ZONAL_OK;
}

/* A condition whose time limits are those of a clock that nobody sets. */
static void make_timed(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static zonal_status build(zonal__loader *l) {
    set_defaults(l);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    make_timed(&l->ready);
    l->locks = 1;
    ZONAL_TRY(zonal__steps_init(l->options.source->count, l->options.batch, l->options.seed,
                                l->options.in_order, &l->steps));
    l->steps.share = l->options.share;
    ZONAL_TRY(ZONAL_NEW(&l->slots, l->options.ahead, "the batches in flight"));
    for (int i = 0; i < l->options.ahead; i++) ZONAL_TRY(make_slot(l, &l->slots[i]));
    ZONAL_TRY(ZONAL_NEW(&l->workers, l->options.workers, "the workers"));
    for (; l->running < l->options.workers; l->running++)
        ZONAL_TRY(make_worker(l, &l->workers[l->running]));
    return ZONAL_OK;
}

zonal_status zonal__loader_create(const zonal__loader_options *options, zonal__loader **loader) {
    zonal_status status;
    *loader = NULL;
    ZONAL_TRY(zonal__loader_check(options));
    ZONAL_TRY(ZONAL_NEW(loader, 1, "the loader"));
    (*loader)->options = *options;
    status = build(*loader);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__loader_destroy(*loader);
    *loader = NULL;
    return status;
}

void zonal__loader_destroy(zonal__loader *l) {
    if (!l) return;
    if (l->locks) {
        pthread_mutex_lock(&l->lock);
        l->stopping = 1;
        pthread_cond_broadcast(&l->work);
        pthread_mutex_unlock(&l->lock);
    }
    for (int i = 0; i < l->running; i++) pthread_join(l->workers[i].thread, NULL);
    for (int i = 0; l->workers && i < l->options.workers; i++) {
        worker *w = &l->workers[i];
        zonal__image_fini(&w->image);
        zonal__image_fini(&w->spare);
        zonal__resampler_fini(&w->resampler);
        for (int g = 0; g < ZONAL__LOADER_GROUPS; g++) l->table->destroy(w->engine[g]);
    }
    for (int i = 0; l->slots && i < l->options.ahead; i++) drop_slot(l, &l->slots[i]);
    if (l->locks) {
        pthread_mutex_destroy(&l->lock);
        pthread_cond_destroy(&l->work);
        pthread_cond_destroy(&l->ready);
    }
    zonal__free(l->slots);
    zonal__free(l->workers);
    zonal__steps_fini(&l->steps);
    zonal__free(l);
}

int64_t zonal__loader_steps_per_epoch(const zonal__loader *l) {
    return l->steps.per_epoch;
}

int zonal__loader_longest(const zonal__loader *l) {
    return l->longest;
}

size_t zonal__loader_most_bytes(const zonal__loader *l) {
    return (size_t)l->own * l->room;
}
