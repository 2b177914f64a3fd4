/* Resident images: resident.h. */
#include "data/resident.h"

#include <string.h>

#include "core/memory.h"
#include "data/pack.h"
#include "data/pool.h"

static int is_pack(const zonal__source *source) {
    return strcmp(source->table->kind, "pack") == 0;
}

/* The image as the source stores it; of width 0 where that is not known. */
static zonal__image_place stored(const zonal__source *source, int64_t i) {
    if (is_pack(source)) return zonal__pack_image(source, i);
    return (zonal__image_place){
        .width = source->width, .height = source->height, .channels = source->channels};
}

/* ---- the layout ------------------------------------------------------------------------------ */

static int fits_as_stored(const zonal__resident *r) {
    if (!is_pack(r->source)) return 0;
    for (int64_t i = 0; i < r->source->count; i++) {
        const zonal__image_place p = stored(r->source, i);
        if (p.width > r->max_side || p.height > r->max_side ||
            (r->source->channels && p.channels != r->source->channels))
            return 0;
    }
    return 1;
}

/* As it is read: converted, and brought down to the largest side. */
static zonal__image_place as_read(const zonal__resident *r, int64_t i) {
    zonal__image_place p = stored(r->source, i);
    zonal__image_limited_size(r->max_side, &p.width, &p.height);
    if (r->source->channels) p.channels = r->source->channels;
    return p;
}

static size_t bytes_of(const zonal__image_place *p) {
    return (size_t)p->width * (size_t)p->height * (size_t)p->channels;
}

zonal_status zonal__resident_init(zonal__source *source, int max_side, zonal__resident *r) {
    *r = (zonal__resident){.source = source, .max_side = max_side};
    if (!is_pack(source) && (source->width == 0 || source->height == 0 || source->channels == 0))
        return ZONAL_OK;
    r->whole_file = fits_as_stored(r);
    ZONAL_TRY(ZONAL_NEW(&r->places, source->count, "the images' shapes"));
    ZONAL_TRY(ZONAL_NEW(&r->numbers, source->count, "the images' numbers"));
    for (int64_t i = 0; i < source->count; i++) {
        zonal__image_place *p = &r->places[i];
        *p = r->whole_file ? stored(source, i) : as_read(r, i);
        if (!r->whole_file) p->offset = (int64_t)r->bytes;
        r->bytes += bytes_of(p);
        r->numbers[i] = i;
        if (p->width > r->longest) r->longest = p->width;
        if (p->height > r->longest) r->longest = p->height;
    }
    if (r->whole_file) r->bytes = zonal__pack_bytes(source);
    return ZONAL_OK;
}

void zonal__resident_fini(zonal__resident *r) {
    zonal__free(r->places);
    zonal__free(r->numbers);
    *r = (zonal__resident){0};
}

/* ---- the pixels ------------------------------------------------------------------------------ */

/* What a worker needs. */
typedef struct scratch {
    zonal__image image;
    zonal__resampler resampler;
} scratch;

/* Bytes go to the sink in pieces: a write to a device waits for it, and one for each small image
 * would take longer than reading them, many times so on a device that other programs keep busy. */
enum { PIECE = 1 << 24 };

typedef struct loading {
    zonal__resident *resident;
    scratch *scratch; /* [workers] */
    const zonal__resident_sink *sink;
    uint8_t *piece;  /* [PIECE, or the whole block where that is smaller] */
    size_t at, held; /* held bytes of it belong at "at" of the block */
} loading;

static size_t piece_size(const zonal__resident *r) {
    return r->bytes < PIECE ? r->bytes : PIECE;
}

static zonal_status write_held(loading *l) {
    const size_t held = l->held;
    l->held = 0;
    return held > 0 ? l->sink->write(l->sink->context, l->at, l->piece, held) : ZONAL_OK;
}

static zonal_status put_bytes(loading *l, size_t offset, const void *bytes, size_t n) {
    const size_t room = piece_size(l->resident);
    if (offset != l->at + l->held || n > room - l->held) ZONAL_TRY(write_held(l));
    if (n > room) return l->sink->write(l->sink->context, offset, bytes, n);
    if (l->held == 0) l->at = offset;
    memcpy(l->piece + l->held, bytes, n);
    l->held += n;
    return ZONAL_OK;
}

static zonal_status read_one(void *context, int worker, int64_t i, zonal__image *image) {
    const loading *l = context;
    const zonal__resident *r = l->resident;
    scratch *s = &l->scratch[worker];
    ZONAL_TRY(zonal__source_read_sound(r->source, &r->numbers[i], image));
    return zonal__image_limit(&s->resampler, r->max_side, &s->image, image);
}

static zonal_status put_one(void *context, int64_t i, zonal_status made,
                            const zonal__image *image) {
    loading *l = context;
    const zonal__resident *r = l->resident;
    zonal__image_place *p = &r->places[i];
    const size_t room = bytes_of(p);
    ZONAL_TRY(made);
    p->width = image->width;
    p->height = image->height;
    p->channels = image->channels;
    if (bytes_of(p) > room)
        return ZONAL_FAIL(ZONAL_SHAPE, "image %lld of %s is larger than the others", (long long)i,
                          r->source->path);
    ZONAL_TRY(put_bytes(l, (size_t)p->offset, image->pixels, bytes_of(p)));
    if (l->sink->progress && l->sink->progress(l->sink->progress_context, i + 1))
        return ZONAL_FAIL(ZONAL_CANCELLED, "stopped while images were sent to the device");
    return ZONAL_OK;
}

static zonal_status load_images(loading *l, int workers) {
    const zonal__pool_task task = {.context = l, .make = read_one, .use = put_one};
    const int count = zonal__pool_workers(workers);
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&l->scratch, count, "the workers that read images"));
    status = zonal__pool_run(&task, l->resident->source->count, workers);
    if (status == ZONAL_OK) status = write_held(l);
    for (int w = 0; w < count; w++) {
        zonal__image_fini(&l->scratch[w].image);
        zonal__resampler_fini(&l->scratch[w].resampler);
    }
    zonal__free(l->scratch);
    return status;
}

static zonal_status copy_file(const loading *l) {
    const zonal__resident *r = l->resident;
    for (size_t at = 0; at < r->bytes; at += PIECE) {
        size_t size = r->bytes - at < PIECE ? r->bytes - at : PIECE;
        ZONAL_TRY(zonal__pack_copy(r->source, at, size, l->piece));
        ZONAL_TRY(l->sink->write(l->sink->context, at, l->piece, size));
    }
    return ZONAL_OK;
}

zonal_status zonal__resident_load(zonal__resident *r, int workers,
                                  const zonal__resident_sink *sink) {
    loading l = {.resident = r, .sink = sink};
    zonal_status status;
    /* A damaged pack is made again; other sources have replacements for damaged images. */
    if (is_pack(r->source)) ZONAL_TRY(zonal__pack_verify(r->source));
    ZONAL_TRY(ZONAL_NEW(&l.piece, piece_size(r), "a piece of the images"));
    status = r->whole_file ? copy_file(&l) : load_images(&l, workers);
    zonal__free(l.piece);
    return status;
}
