/*
 * What a step needs on the device is the pixels, the shapes of the images and the parameters of
 * the views. Resident: pixels and shapes are there from the beginning, and parameters go through
 * two pinned buffers in turn. Streamed: all three come from the loader's pinned memory, into one of
 * two sets of device buffers, on a stream of copies of its own.
 *
 * Ahead, the views of a step are made on a stream of their own while the step before computes, into
 * one of two sets; else on the caller's stream, into the only one.
 *
 * Events keep them apart: "copied" tells the stream of the views that a set is there, and the
 * processor that the pinned memory may be overwritten; "made" tells the caller's stream that the
 * views are there, and the copies that their set may be overwritten; "used" tells the stream of the
 * views that the caller has done with them.
 */
#include "data/feed.h"

#include <string.h>

#include "backend/training/tables.h"
#include "core/memory.h"
#include "data/codec.h"
#include "data/resident.h"
#include "data/source.h"

/* One of the two sets. */
typedef struct turn {
    uint8_t *pixels;                          /* device; streamed */
    zonal__image_place *places;               /* device; streamed */
    zonal__view *views[ZONAL__LOADER_GROUPS]; /* device */
    zonal__view *drawn[ZONAL__LOADER_GROUPS]; /* pinned; resident */
    zonal__image_place *placed;               /* pinned; the device decodes */
    void *out[ZONAL__LOADER_GROUPS];          /* device: the views; not ahead: the first one's */
    void *copied, *made, *used;               /* events */
    int in_use;                               /* 1 once the events have been recorded */
} turn;

struct zonal__feed {
    zonal__feed_options options;
    const zonal__device *device;
    const zonal__views_table *table;
    zonal__views *engine[ZONAL__LOADER_GROUPS];
    void *copies, *making; /* streams; making: NULL unless ahead */
    turn turns[ZONAL__FEED_TURNS];
    int64_t next; /* the step that is prepared next, or has been and is not released */
    zonal__batch batch;
    int longest; /* side of an image */
    int64_t own; /* samples of a step */

    int resident;
    zonal__resident images;     /* which there are, on the host */
    uint8_t *pixels;            /* device: all of them */
    zonal__image_place *places; /* device: [count] */
    zonal__steps steps;
    int64_t *samples;
    int32_t *labels;

    zonal__loader *loader; /* streamed */

    const zonal__jpeg_table *jpeg; /* NULL: the host decodes */
    zonal__jpeg_engine *jpegs;     /* one for both sets: a step's files wait for those before */
    zonal__jpeg_file *files;       /* [own]: of the step that is prepared */
    zonal__decoder *decoder;       /* for those that the device refuses; NULL: none so far */
    zonal__image decoded;
};

/* ---- resident images ------------------------------------------------------------------------- */

static zonal_status write_pixels(void *context, size_t offset, const void *bytes, size_t n) {
    const zonal__feed *f = context;
    return zonal__device_write(f->device, f->pixels + offset, bytes, n);
}

static zonal_status upload_all(zonal__feed *f) {
    const zonal__feed_options *o = &f->options;
    const zonal__resident_sink sink = {.write = write_pixels,
                                       .context = f,
                                       .progress = o->progress,
                                       .progress_context = o->progress_context};
    size_t shapes = (size_t)o->loader.source->count * sizeof *f->places;
    void *memory;
    ZONAL_TRY(zonal__device_alloc(f->device, f->images.bytes, "the images", &memory));
    f->pixels = memory;
    ZONAL_TRY(zonal__resident_load(&f->images, o->loader.workers, &sink));
    ZONAL_TRY(zonal__device_alloc(f->device, shapes, "the images' shapes", &memory));
    f->places = memory;
    return zonal__device_write(f->device, f->places, f->images.places, shapes);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static zonal_status draw_step(zonal__feed *f, turn *t) {
    const zonal__loader_options *o = &f->options.loader;
    zonal__batch *b = &f->batch;
    b->step = f->next;
    b->count = zonal__steps_samples(&f->steps, f->next, &b->epoch, f->samples);
    for (int64_t i = 0; i < b->count; i++) {
        f->samples[i] = f->images.numbers[f->samples[i]];
        const zonal__image_place *image = &f->images.places[f->samples[i]];
        if (f->labels) f->labels[i] = o->source->labels[f->samples[i]];
        for (int g = 0; g < o->groups; g++)
            zonal__view_group_draw(&o->group[g], o->seed, b->epoch, f->samples[i], image->width,
                                   image->height, (int32_t)f->samples[i], b->count,
                                   t->drawn[g] + i);
    }
    for (int g = 0; g < o->groups; g++)
        ZONAL_TRY(
            zonal__device_write_on(f->device, f->copies, t->views[g], t->drawn[g],
                                   (size_t)(o->group[g].views * b->count) * sizeof(zonal__view)));
    return ZONAL_OK;
}

/* ---- JPEG files that the device decodes ------------------------------------------------------ */

static size_t pixel_bytes(const zonal__image_place *p) {
    return (size_t)p->width * (size_t)p->height * (size_t)p->channels;
}

/* What the device has refused. */
static zonal_status decode_here(zonal__feed *f, const zonal__batch *raw, const turn *t, int64_t i) {
    const zonal__decode_options options = {.channels = 3};
    char name[ZONAL__NAME_ROOM];
    zonal__source_name(f->options.loader.source, raw->samples[i], name);
    if (!f->decoder) ZONAL_TRY(zonal__decoder_create(&f->decoder));
    if (zonal__image_decode(f->decoder, raw->pixels + raw->places[i].offset, raw->encoded[i], name,
                            &options, &f->decoded) != ZONAL_OK)
        return ZONAL_FAIL(ZONAL_FORMAT, "%.600s; --decoder host passes over such files",
                          zonal_last_error()->message);
    return zonal__device_write(f->device, t->pixels + t->placed[i].offset, f->decoded.pixels,
                               pixel_bytes(&t->placed[i]));
}

static zonal_status decode_all_here(zonal__feed *f, const zonal__batch *raw, const turn *t) {
    zonal__log("the device cannot decode a JPEG file of step %lld; libjpeg decodes those of the "
               "whole step",
               (long long)raw->step);
    ZONAL_TRY(zonal__device_synchronise(f->device));
    for (int64_t i = 0; i < raw->count; i++)
        if (raw->encoded[i]) ZONAL_TRY(decode_here(f, raw, t, i));
    return ZONAL_OK;
}

/* Images lie on the device as if all had come as pixels, but in the order of their numbers. */
static zonal_status decode_step(zonal__feed *f, turn *t, const zonal__batch *raw) {
    size_t at = 0;
    int64_t files = 0;
    zonal_status status;
    for (int64_t i = 0; i < raw->count; i++) {
        const uint8_t *from = raw->pixels + raw->places[i].offset;
        t->placed[i] = raw->places[i];
        t->placed[i].offset = (int64_t)at;
        if (raw->encoded[i])
            f->files[files++] = (zonal__jpeg_file){.bytes = from,
                                                   .size = raw->encoded[i],
                                                   .pixels = t->pixels + at,
                                                   .width = raw->places[i].width,
                                                   .height = raw->places[i].height};
        else
            ZONAL_TRY(zonal__device_write_on(f->device, f->copies, t->pixels + at, from,
                                             pixel_bytes(&t->placed[i])));
        at += (pixel_bytes(&t->placed[i]) + 15) / 16 * 16;
    }
    status = f->jpeg->decode(f->jpegs, f->copies, files, f->files);
    return status == ZONAL_FORMAT ? decode_all_here(f, raw, t) : status;
}

static zonal_status copy_images(zonal__feed *f, turn *t, const zonal__batch *raw) {
    if (f->jpeg) return decode_step(f, t, raw);
    return zonal__device_write_on(f->device, f->copies, t->pixels, raw->pixels, raw->bytes);
}

static zonal_status copy_step(zonal__feed *f, turn *t) {
    const zonal__loader_options *o = &f->options.loader;
    const zonal__batch *raw;
    ZONAL_TRY(zonal__loader_next(f->loader, &raw));
    f->batch.step = raw->step;
    f->batch.epoch = raw->epoch;
    f->batch.count = raw->count;
    f->batch.samples = raw->samples;
    f->batch.labels = raw->labels;
    ZONAL_TRY(copy_images(f, t, raw));
    ZONAL_TRY(zonal__device_write_on(f->device, f->copies, t->places,
                                     f->jpeg ? t->placed : raw->places,
                                     (size_t)raw->count * sizeof *raw->places));
    for (int g = 0; g < o->groups; g++)
        ZONAL_TRY(
            zonal__device_write_on(f->device, f->copies, t->views[g], raw->parameters[g],
                                   (size_t)(o->group[g].views * raw->count) * sizeof(zonal__view)));
    return ZONAL_OK;
}

static turn *turn_of(zonal__feed *f, int64_t step) {
    return &f->turns[step % ZONAL__FEED_TURNS];
}

/* The views of the set have been made before anything is written there: what is put on the stream
 * of copies waits for that, but a decoder need not wait for its stream. */
static zonal_status wait_for_views(zonal__feed *f, const turn *t) {
    if (f->jpeg) return zonal__device_event_wait(f->device, t->made);
    return zonal__device_event_hold(f->device, t->made, f->copies);
}

static zonal_status copy_next(zonal__feed *f, turn *t) {
    const turn *before = turn_of(f, f->next + 1);
    /* The loader takes the last batch's memory back; this set's pinned memory is written anew. */
    if (f->loader && before->in_use) ZONAL_TRY(zonal__device_event_wait(f->device, before->copied));
    if (t->in_use) {
        ZONAL_TRY(zonal__device_event_wait(f->device, t->copied));
        ZONAL_TRY(wait_for_views(f, t));
    }
    ZONAL_TRY(f->resident ? draw_step(f, t) : copy_step(f, t));
    return zonal__device_event_record(f->device, t->copied, f->copies);
}

static zonal_status make_next(zonal__feed *f, turn *t, void *stream) {
    const zonal__loader_options *o = &f->options.loader;
    ZONAL_TRY(zonal__device_event_hold(f->device, t->copied, stream));
    for (int g = 0; g < o->groups; g++) {
        if (f->table->set_stream) f->table->set_stream(f->engine[g], stream);
        ZONAL_TRY(f->table->run(f->engine[g], f->resident ? f->pixels : t->pixels,
                                f->resident ? f->places : t->places, t->views[g],
                                o->group[g].views * f->batch.count, t->out[g]));
        f->batch.views[g] = t->out[g];
    }
    return zonal__device_event_record(f->device, t->made, stream);
}

zonal_status zonal__feed_prepare(zonal__feed *f, void *stream, const zonal__batch **batch,
                                 int *number) {
    turn *t = turn_of(f, f->next);
    *batch = NULL;
    *number = (int)(t - f->turns);
    ZONAL_TRY(copy_next(f, t));
    if (f->making && t->in_use) ZONAL_TRY(zonal__device_event_hold(f->device, t->used, f->making));
    ZONAL_TRY(make_next(f, t, f->making ? f->making : stream));
    if (f->making) ZONAL_TRY(zonal__device_event_hold(f->device, t->made, stream));
    *batch = &f->batch;
    return ZONAL_OK;
}

zonal_status zonal__feed_release(zonal__feed *f, void *stream) {
    turn *t = turn_of(f, f->next);
    ZONAL_TRY(zonal__device_event_record(f->device, t->used, stream));
    t->in_use = 1;
    f->next++;
    return ZONAL_OK;
}

zonal_status zonal__feed_next(zonal__feed *f, void *stream, const zonal__batch **batch) {
    int number;
    ZONAL_TRY(zonal__feed_prepare(f, stream, batch, &number));
    return zonal__feed_release(f, stream);
}

void zonal__feed_listen(zonal__feed *f, zonal__loader_listener *listener, void *context) {
    if (f->loader) zonal__loader_listen(f->loader, listener, context);
}

zonal_status zonal__feed_seek(zonal__feed *f, int64_t step) {
    zonal__loader_options loader = f->options.loader;
    zonal__loader *moved = NULL;
    loader.first_step = step;
    ZONAL_TRY(zonal__loader_check(&loader));
    ZONAL_TRY(zonal__device_synchronise(f->device)); /* copies from the loader's memory */
    if (!f->resident) ZONAL_TRY(zonal__loader_create(&loader, &moved));
    zonal__loader_destroy(f->loader);
    f->loader = moved;
    f->options.loader = loader;
    f->next = step;
    return ZONAL_OK;
}

/* ---- create and destroy ---------------------------------------------------------------------- */

static zonal_status alloc_device(zonal__feed *f, size_t bytes, const char *what, void *out) {
    void *memory;
    zonal_status status = zonal__device_alloc(f->device, bytes, what, &memory);
    memcpy(out, &memory, sizeof memory);
    return status;
}

static zonal_status make_placed(zonal__feed *f, turn *t) {
    void *memory;
    ZONAL_TRY(zonal__device_pinned_alloc(f->device, (size_t)f->own * sizeof *t->placed, &memory));
    t->placed = memory;
    return ZONAL_OK;
}

static zonal_status make_turn(zonal__feed *f, turn *t) {
    const zonal__loader_options *o = &f->options.loader;
    ZONAL_TRY(zonal__device_event_create(f->device, &t->copied));
    ZONAL_TRY(zonal__device_event_create(f->device, &t->made));
    ZONAL_TRY(zonal__device_event_create(f->device, &t->used));
    for (int g = 0; g < o->groups; g++) {
        size_t bytes = (size_t)(o->group[g].views * f->own) * sizeof(zonal__view);
        void *memory;
        ZONAL_TRY(alloc_device(f, bytes, "the parameters of views", &t->views[g]));
        if (!f->resident) continue;
        ZONAL_TRY(zonal__device_pinned_alloc(f->device, bytes, &memory));
        t->drawn[g] = memory;
    }
    if (f->resident) return ZONAL_OK;
    if (f->jpeg) ZONAL_TRY(make_placed(f, t));
    ZONAL_TRY(alloc_device(f, zonal__loader_most_bytes(f->loader), "images", &t->pixels));
    return alloc_device(f, (size_t)f->own * sizeof(zonal__image_place), "images", &t->places);
}

/* Where group g's views go. */
static zonal_status alloc_views(zonal__feed *f, int g, size_t bytes) {
    turn *t = f->turns;
    ZONAL_TRY(alloc_device(f, bytes, "the views", &t[0].out[g]));
    if (f->making) return alloc_device(f, bytes, "the views", &t[1].out[g]);
    t[1].out[g] = t[0].out[g];
    return ZONAL_OK;
}

static zonal_status make_engines(zonal__feed *f) {
    const zonal__loader_options *o = &f->options.loader;
    for (int g = 0; g < o->groups; g++) {
        const zonal__view_group *group = &o->group[g];
        zonal__views_spec spec;
        zonal__loader_views_spec(o, g, f->longest, group->views * f->own, &spec);
        spec.device = f->device;
        ZONAL_TRY(f->table->create(&spec, &f->engine[g]));
        size_t elements =
            (size_t)spec.count * (size_t)spec.width * (size_t)spec.height * (size_t)spec.channels;
        ZONAL_TRY(alloc_views(f, g, elements * (spec.dtype == ZONAL_DTYPE_BF16 ? 2 : 4)));
    }
    return ZONAL_OK;
}

static zonal_status make_resident(zonal__feed *f) {
    const zonal__loader_options *o = &f->options.loader;
    ZONAL_TRY(upload_all(f));
    ZONAL_TRY(zonal__steps_init(o->source->count, o->batch, o->seed, o->in_order, &f->steps));
    f->steps.share = o->share;
    ZONAL_TRY(ZONAL_NEW(&f->samples, f->own, "the samples of a batch"));
    f->batch.samples = f->samples;
    if (!o->source->labels) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&f->labels, f->own, "the labels of a batch"));
    f->batch.labels = f->labels;
    return ZONAL_OK;
}

static zonal_status choose_data_location(zonal__feed *f) {
    const zonal__source *source = f->options.loader.source;
    size_t bytes, free_bytes, all;
    ZONAL_TRY(zonal__resident_init(f->options.loader.source,
                                   zonal__loader_max_side(&f->options.loader), &f->images));
    bytes = f->images.bytes;
    if (f->options.data_location == ZONAL__DATA_ON_DEVICE && bytes == 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the images of %s have different sizes and cannot be resident; pack "
                          "them first (zonal data pack)",
                          source->path);
    f->resident = f->options.data_location == ZONAL__DATA_ON_DEVICE;
    if (f->options.data_location != ZONAL__DATA_AUTO || bytes == 0) return ZONAL_OK;
    ZONAL_TRY(zonal__device_memory(f->device, &free_bytes, &all));
    f->resident = bytes <= free_bytes / 2;
    return ZONAL_OK;
}

/* Before the workers read. */
static zonal_status let_device_decode(zonal__feed *f) {
    ZONAL_TRY(zonal__device_jpeg(f->device, &f->jpeg));
    ZONAL_TRY(f->jpeg->create(f->device, &f->jpegs));
    ZONAL_TRY(ZONAL_NEW(&f->files, f->own, "the files of a batch"));
    f->options.loader.source->encoded_side = zonal__loader_max_side(&f->options.loader);
    return ZONAL_OK;
}

static zonal_status build(zonal__feed *f) {
    zonal__loader_options *o = &f->options.loader;
    ZONAL_TRY(zonal__device_views(f->device, &f->table));
    ZONAL_TRY(zonal__loader_check(o));
    ZONAL_TRY(choose_data_location(f));
    ZONAL_TRY(zonal__device_stream_create(f->device, &f->copies));
    if (f->options.ahead) ZONAL_TRY(zonal__device_stream_create(f->device, &f->making));
    f->next = o->first_step;
    f->own = zonal__share_count(&o->share, o->batch);
    o->raw = 1;
    o->device = f->device;
    if (f->resident) {
        ZONAL_TRY(make_resident(f));
        f->longest = f->images.longest;
    } else {
        if (f->options.device_decodes) ZONAL_TRY(let_device_decode(f));
        ZONAL_TRY(zonal__loader_create(o, &f->loader));
        f->longest = zonal__loader_longest(f->loader);
    }
    ZONAL_TRY(make_engines(f));
    for (int i = 0; i < ZONAL__FEED_TURNS; i++) ZONAL_TRY(make_turn(f, &f->turns[i]));
    return ZONAL_OK;
}

zonal_status zonal__feed_create(const zonal__feed_options *options, zonal__feed **feed) {
    zonal_status status;
    *feed = NULL;
    ZONAL_TRY(ZONAL_NEW(feed, 1, "the feed"));
    (*feed)->options = *options;
    (*feed)->device = zonal__device_or_cpu(options->device);
    status = build(*feed);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__feed_destroy(*feed);
    *feed = NULL;
    return status;
}

static void drop_turn(zonal__feed *f, turn *t) {
    if (t->in_use) { /* errors are of no further interest */
        (void)zonal__device_event_wait(f->device, t->copied);
        (void)zonal__device_event_wait(f->device, t->used);
    }
    zonal__device_free(f->device, t->pixels);
    zonal__device_free(f->device, t->places);
    for (int g = 0; g < ZONAL__LOADER_GROUPS; g++) {
        zonal__device_free(f->device, t->views[g]);
        if (t->drawn[g]) zonal__device_pinned_free(f->device, t->drawn[g]);
    }
    if (t->placed) zonal__device_pinned_free(f->device, t->placed);
    zonal__device_event_destroy(f->device, t->copied);
    zonal__device_event_destroy(f->device, t->made);
    zonal__device_event_destroy(f->device, t->used);
}

void zonal__feed_destroy(zonal__feed *f) {
    if (!f) return;
    for (int i = 0; i < ZONAL__FEED_TURNS; i++) drop_turn(f, &f->turns[i]);
    zonal__loader_destroy(f->loader);
    if (f->jpeg) {
        f->options.loader.source->encoded_side = 0;
        f->jpeg->destroy(f->jpegs);
    }
    zonal__free(f->files);
    zonal__decoder_destroy(f->decoder);
    zonal__image_fini(&f->decoded);
    for (int g = 0; g < ZONAL__LOADER_GROUPS; g++) {
        if (f->table) f->table->destroy(f->engine[g]);
        zonal__device_free(f->device, f->turns[0].out[g]);
        if (f->making) zonal__device_free(f->device, f->turns[1].out[g]);
    }
    zonal__device_free(f->device, f->pixels);
    zonal__device_free(f->device, f->places);
    zonal__device_stream_destroy(f->device, f->copies);
    zonal__device_stream_destroy(f->device, f->making);
    zonal__steps_fini(&f->steps);
    zonal__resident_fini(&f->images);
    zonal__free(f->samples);
    zonal__free(f->labels);
    zonal__free(f);
}

int zonal__feed_is_resident(const zonal__feed *f) {
    return f->resident;
}

int64_t zonal__feed_steps_per_epoch(const zonal__feed *f) {
    return f->resident ? f->steps.per_epoch : zonal__loader_steps_per_epoch(f->loader);
}
