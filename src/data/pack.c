/*
 * Packs: pack.h has the format. The structs below are the file's, byte for byte.
 */
#include "data/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checksum.h"
#include "core/file.h"
#include "core/memory.h"
#include "data/split.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a pack is read as it lies in the file");

enum {
    ALIGNMENT = 64,
    VERSION = 2,
    MOST_CLASSES = 1 << 20,
    LARGEST_SQUARE = 1 << 14 /* its area is ZONAL__IMAGE_AREA */
};
static const char HEAD_MAGIC[8] = "ZONALPK2", FOOT_MAGIC[8] = "ZONALEND";
enum { MAGIC_NAME = 7 }; /* bytes of the first that are the same in every version */
static const uint32_t NO_LABEL = 0xffffffff;
static const uint64_t MOST_INDEX = (uint64_t)1 << 32; /* bytes: 2^27 images, or holes of a file */

typedef struct head {
    char magic[8];
    uint8_t zeros[56];
} head;

typedef struct entry {
    uint64_t offset, checksum;
    uint32_t width, height, label;
    uint16_t channels, split;
} entry;

typedef struct foot {
    uint64_t table, count, names;
    uint32_t classes, version;
    uint64_t index_checksum; /* of table and names */
    uint64_t zero;
    uint64_t checksum; /* of the members before */
    char magic[8];
} foot;

_Static_assert(sizeof(head) == 64 && sizeof(entry) == 32 && sizeof(foot) == 64, "no padding");

uint64_t zonal__pack_checksum(const void *bytes, size_t n) {
    return zonal__checksum_of(bytes, n);
}

/* ---- writing --------------------------------------------------------------------------------- */

struct zonal__pack_writer {
    zonal__file *file;
    zonal__pack_fitting fit;
    int side, classes;
    uint64_t written; /* bytes */
    entry *table;
    int64_t count, room; /* of the table */
    char *names;         /* as they go into the file; NULL: none */
    size_t names_bytes;  /* with their zero bytes */
    zonal__pack_scratch scratch;
    zonal__image fitted;
};

static zonal_status copy_names(zonal__pack_writer *writer, const zonal__pack_options *options) {
    size_t bytes = 0;
    char *at;
    if (!options->class_names) return ZONAL_OK;
    for (int c = 0; c < options->classes; c++) bytes += strlen(options->class_names[c]) + 1;
    ZONAL_TRY(ZONAL_NEW(&writer->names, bytes, "the names of the classes"));
    writer->names_bytes = bytes;
    at = writer->names;
    for (int c = 0; c < options->classes; c++) {
        size_t length = strlen(options->class_names[c]) + 1;
        memcpy(at, options->class_names[c], length);
        at += length;
    }
    return ZONAL_OK;
}

static zonal_status check_options(const zonal__pack_options *options) {
    if (options->fit != ZONAL__PACK_AS_IS && (options->side < 1 || options->side > LARGEST_SQUARE))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the side of packed images must be from 1 to %d, got %d",
                          LARGEST_SQUARE, options->side);
    if (options->classes < 0 || options->classes > MOST_CLASSES)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a pack can have from 0 to %d classes, got %d",
                          MOST_CLASSES, options->classes);
    return ZONAL_OK;
}

static void destroy_writer(zonal__pack_writer *writer) {
    zonal__free(writer->table);
    zonal__free(writer->names);
    zonal__pack_scratch_fini(&writer->scratch);
    zonal__image_fini(&writer->fitted);
    zonal__free(writer);
}

static zonal_status write_bytes(zonal__pack_writer *writer, const void *bytes, size_t n) {
    ZONAL_TRY(zonal__file_write(writer->file, bytes, n));
    writer->written += n;
    return ZONAL_OK;
}

static zonal_status align(zonal__pack_writer *writer) {
    static const uint8_t zeros[ALIGNMENT] = {0};
    return write_bytes(writer, zeros, (ALIGNMENT - writer->written % ALIGNMENT) % ALIGNMENT);
}

zonal_status zonal__pack_create(const char *path, const zonal__pack_options *options,
                                zonal__pack_writer **out) {
    zonal__pack_writer *writer;
    zonal_status status;
    head first = {{0}, {0}};
    *out = NULL;
    ZONAL_TRY(check_options(options));
    ZONAL_TRY(ZONAL_NEW(&writer, 1, "a pack"));
    writer->fit = options->fit;
    writer->side = options->side;
    writer->classes = options->classes;
    memcpy(first.magic, HEAD_MAGIC, sizeof first.magic);
    ZONAL_TRY_GOTO(status, fail, copy_names(writer, options));
    ZONAL_TRY_GOTO(status, fail, zonal__file_create(path, &writer->file));
    ZONAL_TRY_GOTO(status, fail, write_bytes(writer, &first, sizeof first));
    *out = writer;
    return ZONAL_OK;
fail:
    zonal__pack_abandon(writer);
    return status;
}

/* The largest square about the centre. */
static zonal_status crop_square(const zonal__image *in, zonal__image *out) {
    int side = in->width < in->height ? in->width : in->height;
    size_t left = (size_t)(in->width - side) / 2, top = (size_t)(in->height - side) / 2;
    size_t channels = (size_t)in->channels, line = (size_t)side * channels;
    ZONAL_TRY(zonal__image_shape(out, side, side, in->channels));
    for (size_t y = 0; y < (size_t)side; y++)
        memcpy(out->pixels + y * line,
               in->pixels + ((top + y) * (size_t)in->width + left) * channels, line);
    return ZONAL_OK;
}

void zonal__pack_scratch_fini(zonal__pack_scratch *scratch) {
    zonal__image_fini(&scratch->square);
    zonal__resampler_fini(&scratch->resampler);
}

zonal_status zonal__pack_fit(const zonal__image *in, zonal__pack_fitting fit, int side,
                             zonal__pack_scratch *scratch, zonal__image *out) {
    if (fit == ZONAL__PACK_AS_IS || (in->width == side && in->height == side))
        return zonal__image_convert(in, in->channels, out);
    if (fit == ZONAL__PACK_STRETCH)
        return zonal__image_resample(&scratch->resampler, in, side, side, out);
    ZONAL_TRY(crop_square(in, &scratch->square));
    return zonal__image_resample(&scratch->resampler, &scratch->square, side, side, out);
}

static zonal_status check_image(const zonal__pack_writer *writer, const zonal__image *image,
                                int32_t label, zonal__split split) {
    if (image->channels != 1 && image->channels != 3)
        return ZONAL_FAIL(ZONAL_SHAPE, "a packed image must have 1 or 3 channels, got %d",
                          image->channels);
    if (writer->classes > 0 && (label < 0 || label >= writer->classes))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "image %lld has label %d, but the pack has %d classes",
                          (long long)writer->count, (int)label, writer->classes);
    if (writer->count > 0 &&
        (split == ZONAL__SPLIT_ALL) != (writer->table[0].split == ZONAL__SPLIT_ALL))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "of the images of a pack either all or none belong to a split, but "
                          "image 0 and image %lld differ in this",
                          (long long)writer->count);
    return ZONAL_OK;
}

zonal_status zonal__pack_add(zonal__pack_writer *writer, const zonal__image *image, int32_t label,
                             zonal__split split) {
    size_t bytes;
    ZONAL_TRY(check_image(writer, image, label, split));
    ZONAL_TRY(ZONAL_GROW(&writer->table, writer->count, &writer->room, "the table of a pack"));
    if (writer->fit != ZONAL__PACK_AS_IS &&
        (image->width != writer->side || image->height != writer->side)) {
        ZONAL_TRY(
            zonal__pack_fit(image, writer->fit, writer->side, &writer->scratch, &writer->fitted));
        image = &writer->fitted;
    }
    bytes = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    ZONAL_TRY(align(writer));
    writer->table[writer->count] = (entry){
        .offset = writer->written,
        .checksum = zonal__pack_checksum(image->pixels, bytes),
        .width = (uint32_t)image->width,
        .height = (uint32_t)image->height,
        .label = writer->classes > 0 ? (uint32_t)label : NO_LABEL,
        .channels = (uint16_t)image->channels,
        .split = (uint16_t)split,
    };
    ZONAL_TRY(write_bytes(writer, image->pixels, bytes));
    writer->count++;
    return ZONAL_OK;
}

/* Table, names and foot. */
static zonal_status write_end(zonal__pack_writer *writer) {
    size_t table_bytes = (size_t)writer->count * sizeof *writer->table;
    foot last = {
        .count = (uint64_t)writer->count,
        .names = writer->names_bytes,
        .classes = (uint32_t)writer->classes,
        .version = VERSION,
    };
    uint8_t *index;
    zonal_status status;
    ZONAL_TRY(align(writer));
    ZONAL_TRY(ZONAL_NEW(&index, table_bytes + writer->names_bytes, "the table of a pack"));
    memcpy(index, writer->table, table_bytes);
    if (writer->names) memcpy(index + table_bytes, writer->names, writer->names_bytes);
    last.table = writer->written;
    last.index_checksum = zonal__pack_checksum(index, table_bytes + writer->names_bytes);
    last.checksum = zonal__pack_checksum(&last, offsetof(foot, checksum));
    memcpy(last.magic, FOOT_MAGIC, sizeof last.magic);
    status = write_bytes(writer, index, table_bytes + writer->names_bytes);
    if (status == ZONAL_OK) status = write_bytes(writer, &last, sizeof last);
    zonal__free(index);
    return status;
}

zonal_status zonal__pack_commit(zonal__pack_writer *writer) {
    zonal_status status =
        writer->count > 0
            ? write_end(writer)
            : ZONAL_FAIL(ZONAL_ARGUMENT, "a pack needs at least one image, but none was added");
    if (status == ZONAL_OK)
        status = zonal__file_commit(writer->file);
    else
        zonal__file_abandon(writer->file);
    destroy_writer(writer);
    return status;
}

void zonal__pack_abandon(zonal__pack_writer *writer) {
    if (!writer) return;
    zonal__file_abandon(writer->file);
    destroy_writer(writer);
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct pack {
    zonal__source source;
    int descriptor; /* of the file; -1: not open */
    size_t bytes;
    uint8_t *index;           /* table and names as they are in the file */
    const entry *table;       /* [count]: the beginning of the index */
    uint64_t count;           /* in the file; source.count is what the split keeps */
    _Atomic uint8_t *checked; /* [count]: 1 once the checksum was found right */
} pack;

int zonal__pack_is(const void *bytes, size_t n) {
    return n >= sizeof HEAD_MAGIC && memcmp(bytes, HEAD_MAGIC, MAGIC_NAME) == 0;
}

static zonal_status damaged(const pack *p, const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT, "%s is a damaged pack: %s; make it again with zonal data pack",
                      p->source.path, what);
}

/* Version 1 had another checksum, and cannot even be checked. */
static zonal_status other_version(const pack *p, int version) {
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s is a pack of version %d, but this zonal reads version %d; make it again "
                      "with zonal data pack of this version",
                      p->source.path, version, VERSION);
}

static zonal_status cannot_read(const char *path, int error) {
    return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s", path, strerror(error));
}

zonal_status zonal__pack_copy(const zonal__source *source, size_t offset, size_t bytes, void *out) {
    const pack *p = (const pack *)source;
    size_t done = 0;
    while (done < bytes) {
        ssize_t got =
            pread(p->descriptor, (uint8_t *)out + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cannot_read(source->path, errno);
        if (got == 0)
            return ZONAL_FAIL(ZONAL_IO,
                              "%s was truncated while it was read; make the pack again with "
                              "zonal data pack",
                              source->path);
        done += (size_t)got;
    }
    return ZONAL_OK;
}

static zonal_status open_file(pack *p) {
    struct stat state;
    /* Without O_NONBLOCK a named pipe would wait here for a writer; it means nothing for files. */
    p->descriptor = open(p->source.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (p->descriptor < 0 || fstat(p->descriptor, &state) != 0)
        return cannot_read(p->source.path, errno);
    if (!S_ISREG(state.st_mode))
        return ZONAL_FAIL(ZONAL_IO, "%s is not a file; give the name of a pack", p->source.path);
    if (state.st_size < (off_t)(sizeof(head) + sizeof(foot))) return damaged(p, "it is too short");
    p->bytes = (size_t)state.st_size;
    return ZONAL_OK;
}

/* Finds the table and the names, and makes sure that they are whole. */
static zonal_status check_foot(pack *p, foot *last) {
    uint64_t end = p->bytes - sizeof *last; /* of the names */
    head first;
    ZONAL_TRY(zonal__pack_copy(&p->source, 0, sizeof first, &first));
    ZONAL_TRY(zonal__pack_copy(&p->source, end, sizeof *last, last));
    if (!zonal__pack_is(&first, sizeof first))
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is not a pack: it does not begin with ZONALPK2; give a file that "
                          "zonal data pack wrote",
                          p->source.path);
    if (memcmp(first.magic, HEAD_MAGIC, sizeof first.magic) != 0)
        return first.magic[MAGIC_NAME] >= '1' && first.magic[MAGIC_NAME] <= '9'
                   ? other_version(p, first.magic[MAGIC_NAME] - '0')
                   : damaged(p, "its beginning is invalid");
    if (memcmp(last->magic, FOOT_MAGIC, sizeof last->magic) != 0)
        return damaged(p, "its end is missing");
    if (last->checksum != zonal__pack_checksum(last, offsetof(foot, checksum)))
        return damaged(p, "the checksum of its last 64 bytes is wrong");
    if (last->version != VERSION) return other_version(p, (int)last->version);
    if (last->table % ALIGNMENT != 0 || last->table < sizeof(head) || last->table > end ||
        last->count < 1 || last->count > (end - last->table) / sizeof(entry) ||
        last->names != end - last->table - last->count * sizeof(entry))
        return damaged(p, "its table does not fit into the file");
    if (end - last->table > MOST_INDEX) return damaged(p, "its table is too large");
    if (last->classes > MOST_CLASSES) return damaged(p, "it has too many classes");
    ZONAL_TRY(ZONAL_NEW(&p->index, end - last->table, "the table of a pack"));
    ZONAL_TRY(zonal__pack_copy(&p->source, last->table, end - last->table, p->index));
    if (last->index_checksum != zonal__pack_checksum(p->index, end - last->table))
        return damaged(p, "the checksum of its table is wrong");
    p->table = (const entry *)p->index;
    p->count = last->count;
    return ZONAL_OK;
}

static size_t pixel_bytes(const entry *e) {
    return (size_t)e->width * e->height * e->channels;
}

static zonal_status check_entries(const pack *p, const foot *last) {
    for (uint64_t i = 0; i < p->count; i++) {
        const entry *e = &p->table[i];
        int labelled = last->classes > 0;
        if (e->width < 1 || e->width > ZONAL__IMAGE_SIDE || e->height < 1 ||
            e->height > ZONAL__IMAGE_SIDE || (int64_t)e->width * e->height > ZONAL__IMAGE_AREA ||
            (e->channels != 1 && e->channels != 3))
            return damaged(p, "an image has an impossible shape");
        if (e->offset % ALIGNMENT != 0 || e->offset < sizeof(head) || e->offset > last->table ||
            pixel_bytes(e) > last->table - e->offset)
            return damaged(p, "an image lies outside the file");
        if (labelled ? e->label >= last->classes : e->label != NO_LABEL)
            return damaged(p, "a label is not one of its classes");
        if (e->split > ZONAL__SPLIT_TEST || (e->split == 0) != (p->table[0].split == 0))
            return damaged(p, "an image has an unknown split");
    }
    return ZONAL_OK;
}

static zonal_status read_names(pack *p, const foot *last) {
    const char *at = (const char *)(p->table + p->count), *end = at + last->names;
    if (last->names == 0) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&p->source.class_names, last->classes, "the names of the classes"));
    for (uint32_t c = 0; c < last->classes; c++) {
        const char *zero = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
        size_t length;
        if (!zero) return damaged(p, "names of classes are missing");
        length = (size_t)(zero - at) + 1;
        ZONAL_TRY(ZONAL_NEW(&p->source.class_names[c], length, "the name of a class"));
        memcpy(p->source.class_names[c], at, length);
        at += length;
    }
    return at == end ? ZONAL_OK : damaged(p, "there are more names than classes");
}

/* The source's own fields: labels, and the shape that all images share, or 0. */
static zonal_status describe_images(pack *p, const foot *last, int channels) {
    zonal__source *source = &p->source;
    source->count = (int64_t)p->count;
    source->classes = (int)last->classes;
    source->width = (int)p->table[0].width;
    source->height = (int)p->table[0].height;
    source->channels = p->table[0].channels;
    if (last->classes > 0) ZONAL_TRY(ZONAL_NEW(&source->labels, p->count, "the labels"));
    for (uint64_t i = 0; i < p->count; i++) {
        const entry *e = &p->table[i];
        if ((int)e->width != source->width || (int)e->height != source->height)
            source->width = source->height = 0;
        if (e->channels != source->channels) source->channels = 0;
        if (source->labels) source->labels[i] = (int32_t)e->label;
    }
    if (channels) source->channels = channels;
    return ZONAL_OK;
}

static int64_t find_split(const pack *p, zonal__split split, int64_t *keep) {
    int64_t kept = 0;
    for (uint64_t i = 0; i < p->count; i++)
        if (p->table[i].split == split) keep[kept++] = (int64_t)i;
    return kept;
}

/* As in a folder, val serves as test where there is none. */
static zonal_status keep_split(pack *p, const zonal__source_options *options) {
    int64_t *keep, kept;
    zonal_status status;
    if (p->table[0].split == 0 || options->split == ZONAL__SPLIT_ALL)
        return zonal__split_keep(&p->source, options, 0);
    ZONAL_TRY(ZONAL_NEW(&keep, p->count, "the split"));
    kept = find_split(p, options->split, keep);
    if (kept == 0 && options->split == ZONAL__SPLIT_TEST && !options->strict_split) {
        kept = find_split(p, ZONAL__SPLIT_VAL, keep);
        if (kept > 0) zonal__log("%s has no test split: val serves as test", p->source.path);
    }
    status = kept > 0 || options->strict_split
                 ? zonal__source_select(&p->source, kept, keep)
                 : ZONAL_FAIL(ZONAL_ARGUMENT,
                              "%s has no image of the %s split; choose another split, or pack "
                              "the set again with it",
                              p->source.path, zonal__split_name(options->split));
    zonal__free(keep);
    return status;
}

/* Reads the pixels of an image as they are stored. The first time they are compared with their
 * checksum, before that is marked: two threads may both do it, which is harmless. */
static zonal_status read_pixels(pack *p, int64_t index, uint8_t *out) {
    const entry *e = &p->table[index];
    ZONAL_TRY(zonal__pack_copy(&p->source, e->offset, pixel_bytes(e), out));
    if (atomic_load_explicit(&p->checked[index], memory_order_relaxed)) return ZONAL_OK;
    if (zonal__pack_checksum(out, pixel_bytes(e)) != e->checksum)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "image %lld of %s is damaged: its checksum is wrong; make the pack "
                          "again with zonal data pack",
                          (long long)index, p->source.path);
    atomic_store_explicit(&p->checked[index], 1, memory_order_relaxed);
    return ZONAL_OK;
}

/* Converted in place, in an image that has room for both. */
static zonal_status pack_read(zonal__source *source, int64_t index, zonal__image *out) {
    pack *p = (pack *)source;
    const entry *e = &p->table[index];
    int from = e->channels, to = source->channels ? source->channels : from;
    size_t n = (size_t)e->width * e->height;
    uint8_t *stored;
    ZONAL_TRY(zonal__image_shape(out, (int)e->width, (int)e->height, from > to ? from : to));
    stored = from < to ? out->pixels + 2 * n : out->pixels;
    ZONAL_TRY(read_pixels(p, index, stored));
    if (from != to) zonal__pixels_convert(stored, from, to, n, out->pixels);
    out->channels = to;
    return ZONAL_OK;
}

static void pack_close(zonal__source *source) {
    pack *p = (pack *)source;
    if (p->descriptor >= 0) close(p->descriptor);
    zonal__free(p->index);
    zonal__free((void *)p->checked);
}

/* The checksum of the pixels stands in the table already. */
static zonal_status pack_fingerprint(zonal__source *source, int64_t index, uint64_t *fingerprint) {
    const entry *e = &((const pack *)source)->table[index];
    const uint64_t all[] = {e->checksum, e->width, e->height, e->channels};
    *fingerprint = zonal__checksum_of(all, sizeof all);
    return ZONAL_OK;
}

static const zonal__source_table pack_table = {
    .kind = "pack", .read = pack_read, .close = pack_close, .fingerprint = pack_fingerprint};

static zonal_status open_pack(pack *p, const zonal__source_options *options) {
    foot last;
    ZONAL_TRY(open_file(p));
    ZONAL_TRY(check_foot(p, &last));
    ZONAL_TRY(check_entries(p, &last));
    ZONAL_TRY(ZONAL_NEW(&p->checked, p->count, "the checks of a pack"));
    ZONAL_TRY(describe_images(p, &last, options->channels));
    ZONAL_TRY(read_names(p, &last));
    return keep_split(p, options);
}

zonal_status zonal__source_pack(const zonal__source_options *options, zonal__source **source) {
    pack *p;
    zonal_status status;
    *source = NULL;
    ZONAL_TRY(ZONAL_NEW(&p, 1, "a pack"));
    p->descriptor = -1;
    status = zonal__source_init(&p->source, &pack_table, options);
    if (status == ZONAL_OK) status = open_pack(p, options);
    if (status != ZONAL_OK) {
        zonal__source_close(&p->source);
        return status;
    }
    *source = &p->source;
    return ZONAL_OK;
}

static int64_t own_number(const zonal__source *source, int64_t index) {
    return source->order ? source->order[index] : index;
}

zonal__image_place zonal__pack_image(const zonal__source *source, int64_t index) {
    const entry *e = &((const pack *)source)->table[own_number(source, index)];
    return (zonal__image_place){
        .offset = (int64_t)e->offset,
        .width = (int32_t)e->width,
        .height = (int32_t)e->height,
        .channels = e->channels,
    };
}

size_t zonal__pack_bytes(const zonal__source *source) {
    return ((const pack *)source)->bytes;
}

static zonal_status verify_one(pack *p, int64_t index, zonal__image *scratch) {
    const entry *e = &p->table[index];
    if (atomic_load_explicit(&p->checked[index], memory_order_relaxed)) return ZONAL_OK;
    ZONAL_TRY(zonal__image_shape(scratch, (int)e->width, (int)e->height, e->channels));
    return read_pixels(p, index, scratch->pixels);
}

zonal_status zonal__pack_verify(zonal__source *source) {
    zonal__image scratch = {0};
    zonal_status status = ZONAL_OK;
    for (int64_t i = 0; status == ZONAL_OK && i < source->count; i++)
        status = verify_one((pack *)source, own_number(source, i), &scratch);
    zonal__image_fini(&scratch);
    return status;
}
