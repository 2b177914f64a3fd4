/*
 * Textures as a source: "textures:FAMILY[,SETTING=VALUE]...", made when they are read.
 *
 * A maker belongs to one thread at a time, so the source keeps those that are idle on a list. A
 * reader takes one, or makes another when all are at work; there are never more than readers at the
 * same time, and after the first few images nothing is allocated.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "data/fingerprint.h"
#include "data/texture.h"

static const char PREFIX[] = "textures:";

enum { MOST_TEXTURES = 1 << 24 }; /* the order of an epoch takes 8 bytes each, and must be drawn */

typedef struct worker {
    zonal__texture_maker *maker;
    zonal__image grey; /* where colour is asked for */
    struct worker *next;
} worker;

typedef struct textures {
    zonal__source source;
    zonal__texture_spec spec;
    zonal__split split;
    pthread_mutex_t lock; /* of idle */
    worker *idle;
} textures;

static void worker_destroy(worker *w) {
    zonal__texture_maker_destroy(w->maker);
    zonal__image_fini(&w->grey);
    zonal__free(w);
}

static zonal_status worker_create(const zonal__texture_spec *spec, worker **out) {
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(out, 1, "a maker of textures"));
    status = zonal__texture_maker_create(spec, &(*out)->maker);
    if (status != ZONAL_OK) {
        worker_destroy(*out);
        *out = NULL;
    }
    return status;
}

static void release(textures *t, worker *w) {
    pthread_mutex_lock(&t->lock);
    w->next = t->idle;
    t->idle = w;
    pthread_mutex_unlock(&t->lock);
}

static zonal_status acquire(textures *t, worker **out) {
    pthread_mutex_lock(&t->lock);
    *out = t->idle;
    if (*out) t->idle = (*out)->next;
    pthread_mutex_unlock(&t->lock);
    return *out ? ZONAL_OK : worker_create(&t->spec, out);
}

static zonal_status textures_read(zonal__source *source, int64_t index, zonal__image *out) {
    textures *t = (textures *)source;
    int64_t number = zonal__texture_number(t->split, index);
    worker *w;
    zonal_status status;
    ZONAL_TRY(acquire(t, &w));
    if (source->channels == 1) {
        status = zonal__texture_make(w->maker, number, out);
    } else {
        status = zonal__texture_make(w->maker, number, &w->grey);
        if (status == ZONAL_OK) status = zonal__image_convert(&w->grey, source->channels, out);
    }
    release(t, w);
    return status;
}

static void textures_close(zonal__source *source) {
    textures *t = (textures *)source;
    while (t->idle) {
        worker *w = t->idle;
        t->idle = w->next;
        worker_destroy(w);
    }
    pthread_mutex_destroy(&t->lock);
}

static void textures_name(const zonal__source *source, int64_t index, char name[ZONAL__NAME_ROOM]) {
    int64_t number = zonal__texture_number(((const textures *)source)->split, index);
    snprintf(name, ZONAL__NAME_ROOM, "index %lld", (long long)number);
}

static zonal_status textures_fingerprint(zonal__source *source, int64_t index,
                                         uint64_t *fingerprint) {
    const textures *t = (const textures *)source;
    *fingerprint = zonal__fingerprint_element(zonal__texture_fingerprint(&t->spec),
                                              zonal__texture_number(t->split, index));
    return ZONAL_OK;
}

static const zonal__source_table textures_table = {.kind = "textures",
                                                   .read = textures_read,
                                                   .close = textures_close,
                                                   .name = textures_name,
                                                   .fingerprint = textures_fingerprint};

static int64_t usual_count(zonal__split split) {
    switch (split) {
    case ZONAL__SPLIT_TRAIN:
        return ZONAL__TEXTURE_TRAIN_COUNT;
    case ZONAL__SPLIT_VAL:
        return ZONAL__TEXTURE_VAL_COUNT;
    case ZONAL__SPLIT_TEST:
        return ZONAL__TEXTURE_TEST_COUNT;
    default:
        return ZONAL__TEXTURE_TRAIN_COUNT + ZONAL__TEXTURE_VAL_COUNT + ZONAL__TEXTURE_TEST_COUNT;
    }
}

static zonal_status read_options(const zonal__source_options *options, zonal__texture_spec *spec) {
    if (strncmp(options->path, PREFIX, sizeof PREFIX - 1) != 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "\"%s\" is not a texture: write %sFAMILY", options->path,
                          PREFIX);
    ZONAL_TRY(zonal__texture_parse(options->path + sizeof PREFIX - 1, spec));
    spec->seed = options->seed;
    if (options->texture_size) spec->size = options->texture_size;
    if (options->texture_count < 0 || options->texture_count > MOST_TEXTURES)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%lld textures are not possible: ask for 1 to %d",
                          (long long)options->texture_count, MOST_TEXTURES);
    return ZONAL_OK;
}

zonal_status zonal__source_textures(const zonal__source_options *options, zonal__source **source) {
    zonal__texture_spec spec;
    textures *t;
    worker *first;
    zonal_status status;
    *source = NULL;
    ZONAL_TRY(read_options(options, &spec));
    ZONAL_TRY(ZONAL_NEW(&t, 1, "a source of textures"));
    t->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    t->spec = spec;
    t->split = options->split;
    ZONAL_TRY_GOTO(status, failed, zonal__source_init(&t->source, &textures_table, options));
    ZONAL_TRY_GOTO(status, failed, worker_create(&spec, &first));
    release(t, first);
    t->source.count = options->texture_count ? options->texture_count : usual_count(t->split);
    t->source.width = t->source.height = spec.size;
    t->source.channels = options->channels == 3 ? 3 : 1;
    *source = &t->source;
    return ZONAL_OK;
failed:
    zonal__source_close(&t->source);
    return status;
}
