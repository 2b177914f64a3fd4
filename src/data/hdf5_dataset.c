/* Datasets of HDF5 files: what the messages of their headers say, and reading rows of them. */
#include <string.h>

#include "core/memory.h"
#include "data/hdf5.h"

enum {
    MESSAGE_DATASPACE = 1,
    MESSAGE_DATATYPE = 3,
    MESSAGE_EXTERNAL_FILES = 7,
    MESSAGE_LAYOUT = 8,
    MESSAGE_FILTERS = 11,
    LAYOUT_COMPACT = 0,
    LAYOUT_CONTIGUOUS = 1,
    LAYOUT_CHUNKED = 2,
    LAYOUT_VIRTUAL = 3,
    INDEX_TREE = 0, /* ours, for layouts of version 3 */
    INDEX_SINGLE = 1,
    INDEX_IMPLICIT = 2,
    CLASS_FIXED_POINT = 0,
    LEAST_ENTRY = 32 /* bytes of the index for a chunk */
};
static const int64_t MOST_ELEMENTS = (int64_t)1 << 48; /* their bytes fit in any sum here */

/* What the messages say, before it is checked as a whole. */
typedef struct description {
    zonal__hdf5_dataset *set;
    int has_space, has_type, has_layout; /* the messages there were */
    uint64_t most[ZONAL__HDF5_RANK];     /* to what each dimension may grow; all ones: any */
    int layout, index;
    uint64_t address, bytes;  /* of the elements or of the index */
    zonal__hdf5_chunk single; /* INDEX_SINGLE with filters: its size and mask */
    uint64_t chunk_element;   /* bytes of an element, as the layout says */
} description;

static zonal_status damaged(const description *d, const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT, "\"%s\" in %s is damaged: %s; get the file again", d->set->name,
                      d->set->file->path, what);
}

static zonal_status refused(const description *d, const char *what) {
    return zonal__hdf5_refused(d->set->file, d->set->name, what);
}

/* ---- messages -------------------------------------------------------------------------------- */

static zonal_status take_space(description *d, zonal__hdf5_cursor in) {
    zonal__hdf5_dataset *set = d->set;
    int version = (int)zonal__hdf5_number(&in, 1), flags;
    set->rank = (int)zonal__hdf5_number(&in, 1);
    flags = (int)zonal__hdf5_number(&in, 1);
    if (version != 1 && version != 2) return damaged(d, "its shape has no known form");
    zonal__hdf5_skip(&in, version == 1 ? 5 : 1);
    if (set->rank > ZONAL__HDF5_RANK) return refused(d, "more than 4 dimensions");
    for (int i = 0; i < ZONAL__HDF5_RANK; i++) {
        uint64_t side = i < set->rank ? zonal__hdf5_number(&in, 8) : 1;
        set->shape[i] = side < INT64_MAX ? (int64_t)side : INT64_MAX;
        d->most[i] = side;
    }
    for (int i = 0; (flags & 1) && i < set->rank; i++) d->most[i] = zonal__hdf5_number(&in, 8);
    d->has_space = 1;
    return in.ended ? damaged(d, "its shape is cut short") : ZONAL_OK;
}

/* Elements of another class are left with 0 bytes: the caller says what it wants. */
static zonal_status take_type(description *d, zonal__hdf5_cursor in) {
    zonal__hdf5_dataset *set = d->set;
    int kind = (int)zonal__hdf5_number(&in, 1) & 15, bits = (int)zonal__hdf5_number(&in, 1);
    uint64_t bytes;
    zonal__hdf5_skip(&in, 2);
    bytes = zonal__hdf5_number(&in, 4);
    d->has_type = 1;
    if (in.ended) return damaged(d, "its type is cut short");
    if (kind != CLASS_FIXED_POINT || bytes < 1 || bytes > 8) return ZONAL_OK;
    if (zonal__hdf5_number(&in, 2) != 0 || zonal__hdf5_number(&in, 2) != 8 * bytes)
        return refused(d, "numbers of odd width");
    set->bytes = (int)bytes;
    set->big_endian = bits & 1;
    set->is_signed = (bits & 8) != 0;
    return ZONAL_OK;
}

static zonal_status take_chunk_sides(description *d, zonal__hdf5_cursor *in, int sides, int bytes) {
    zonal__hdf5_dataset *set = d->set;
    if (sides < 2 || sides > ZONAL__HDF5_RANK + 1 || bytes < 1 || bytes > 8)
        return damaged(d, "its chunks have no known form");
    for (int i = 0; i < ZONAL__HDF5_RANK; i++) {
        uint64_t side = i < sides - 1 ? zonal__hdf5_number(in, bytes) : 1;
        set->chunk[i] = side <= UINT32_MAX ? (int64_t)side : -1;
    }
    d->chunk_element = zonal__hdf5_number(in, bytes);
    return ZONAL_OK;
}

static zonal_status take_new_chunks(description *d, zonal__hdf5_cursor *in) {
    int flags = (int)zonal__hdf5_number(in, 1), sides = (int)zonal__hdf5_number(in, 1);
    ZONAL_TRY(take_chunk_sides(d, in, sides, (int)zonal__hdf5_number(in, 1)));
    d->index = (int)zonal__hdf5_number(in, 1);
    if (d->index != INDEX_SINGLE && d->index != INDEX_IMPLICIT)
        return refused(d, "chunks with an index of the latest kind");
    if (d->index == INDEX_SINGLE && (flags & 2)) {
        uint64_t size = zonal__hdf5_number(in, 8);
        if (size > UINT32_MAX) return damaged(d, "its chunk is too large");
        d->single.size = (uint32_t)size;
        d->single.mask = (uint32_t)zonal__hdf5_number(in, 4);
    }
    d->address = zonal__hdf5_number(in, 8);
    return ZONAL_OK;
}

static zonal_status take_layout(description *d, const zonal__hdf5_message *message) {
    zonal__hdf5_cursor in = message->body;
    int version = (int)zonal__hdf5_number(&in, 1);
    d->layout = (int)zonal__hdf5_number(&in, 1);
    d->has_layout = 1;
    if (version != 3 && version != 4) return refused(d, "a layout of another version");
    if (d->layout == LAYOUT_COMPACT) {
        d->bytes = zonal__hdf5_number(&in, 2);
        d->address = message->address + 4;
        if (d->bytes > in.left) in.ended = 1;
    } else if (d->layout == LAYOUT_CONTIGUOUS) {
        d->address = zonal__hdf5_number(&in, 8);
        d->bytes = zonal__hdf5_number(&in, 8);
    } else if (d->layout == LAYOUT_VIRTUAL) {
        return refused(d, "its elements in other datasets (a virtual dataset)");
    } else if (d->layout != LAYOUT_CHUNKED) {
        return damaged(d, "its layout has no known form");
    } else if (version == 4) {
        ZONAL_TRY(take_new_chunks(d, &in));
    } else {
        int sides = (int)zonal__hdf5_number(&in, 1);
        d->index = INDEX_TREE;
        d->address = zonal__hdf5_number(&in, 8);
        ZONAL_TRY(take_chunk_sides(d, &in, sides, 4));
    }
    return in.ended ? damaged(d, "its layout is cut short") : ZONAL_OK;
}

static zonal_status take_filter(description *d, zonal__hdf5_cursor *in, int version) {
    zonal__hdf5_dataset *set = d->set;
    int kind = (int)zonal__hdf5_number(in, 2);
    size_t name = version == 1 || kind >= 256 ? (size_t)zonal__hdf5_number(in, 2) : 0, values;
    uint64_t first = 0;
    zonal__hdf5_skip(in, 2); /* whether it may be left out: each chunk says so itself */
    values = (size_t)zonal__hdf5_number(in, 2);
    if (version == 1) name = (name + 7) / 8 * 8;
    zonal__hdf5_skip(in, name);
    for (size_t i = 0; i < values && !in->ended; i++) {
        uint64_t value = zonal__hdf5_number(in, 4);
        if (i == 0) first = value;
    }
    if (version == 1 && values % 2) zonal__hdf5_skip(in, 4);
    if (kind != ZONAL__HDF5_GZIP && kind != ZONAL__HDF5_SHUFFLE && kind != ZONAL__HDF5_FLETCHER)
        return refused(d, "a filter other than gzip, shuffle and fletcher32");
    /* Elements that are no whole numbers have 0 bytes here, and are left to the caller. */
    if (kind == ZONAL__HDF5_SHUFFLE && set->bytes > 0 && first != (uint64_t)set->bytes)
        return damaged(d, "its bytes are shuffled for other elements");
#ifndef ZONAL_HAVE_ZLIB
    if (kind == ZONAL__HDF5_GZIP)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "\"%s\" in %s is packed by gzip: this build cannot unpack it; install "
                          "zlib1g-dev and build again",
                          set->name, set->file->path);
#endif
    set->filter[set->filters++].kind = kind;
    return ZONAL_OK;
}

static zonal_status take_filters(description *d, zonal__hdf5_cursor in) {
    int version = (int)zonal__hdf5_number(&in, 1), count = (int)zonal__hdf5_number(&in, 1);
    if ((version != 1 && version != 2) || count > ZONAL__HDF5_FILTERS || d->set->filters > 0)
        return damaged(d, "its filters have no known form");
    if (version == 1) zonal__hdf5_skip(&in, 6);
    for (int i = 0; i < count; i++) ZONAL_TRY(take_filter(d, &in, version));
    return in.ended ? damaged(d, "its filters are cut short") : ZONAL_OK;
}

/* The type stands before the filters in every file that libhdf5 writes; first come the shape and
 * the type, then the rest. */
static zonal_status on_shape(void *context, const zonal__hdf5_message *message) {
    description *d = context;
    if (message->type != MESSAGE_DATASPACE && message->type != MESSAGE_DATATYPE) return ZONAL_OK;
    if (message->shared) return refused(d, "a type or shape that it shares with others");
    return message->type == MESSAGE_DATASPACE ? take_space(d, message->body)
                                              : take_type(d, message->body);
}

static zonal_status on_storage(void *context, const zonal__hdf5_message *message) {
    description *d = context;
    if (message->type == MESSAGE_EXTERNAL_FILES)
        return refused(d, "its elements in other files (external storage)");
    if (message->type != MESSAGE_LAYOUT && message->type != MESSAGE_FILTERS) return ZONAL_OK;
    if (message->shared) return refused(d, "filters that it shares with others");
    return message->type == MESSAGE_LAYOUT ? take_layout(d, message)
                                           : take_filters(d, message->body);
}

/* ---- what they say together ------------------------------------------------------------------ */

static zonal_status check_plain(description *d, int64_t elements) {
    zonal__hdf5_dataset *set = d->set;
    uint64_t size = (uint64_t)set->file->size, bytes = (uint64_t)(elements * set->bytes);
    if (set->filters > 0) return damaged(d, "it has filters but no chunks");
    if (bytes > 0 && d->address == ZONAL__HDF5_NOWHERE)
        return damaged(d, "its elements were never written");
    if (d->bytes != bytes) return damaged(d, "its size is not that of its shape");
    if (bytes > 0 && (d->address > size || bytes > size - d->address))
        return damaged(d, "its elements lie beyond the end of the file");
    set->address = (int64_t)d->address;
    memset(set->chunk, 0, sizeof set->chunk);
    return ZONAL_OK;
}

static zonal_status measure_chunks(description *d) {
    zonal__hdf5_dataset *set = d->set;
    set->chunk_bytes = set->bytes;
    set->chunks = 1;
    if (d->chunk_element != (uint64_t)set->bytes)
        return damaged(d, "its chunks are of other elements");
    for (int i = 0; i < ZONAL__HDF5_RANK; i++) {
        int64_t side = set->chunk[i];
        if (side < 1 || ((uint64_t)side > d->most[i] && d->most[i] != UINT64_MAX))
            return damaged(d, "its chunks are larger than all of it");
        if (side > ZONAL__HDF5_CHUNK || set->chunk_bytes * side > ZONAL__HDF5_CHUNK)
            return refused(d, "chunks of more than 64 MiB");
        set->chunk_bytes *= side;
        set->across[i] = (set->shape[i] + side - 1) / side;
        set->chunks *= set->across[i]; /* at most the number of elements */
    }
    return ZONAL_OK;
}

/* A chunk that is not packed has the chunk's size. One that is may be somewhat larger: deflate adds
 * 5 bytes to 16 KiB that it cannot pack, and a checksum 4. */
static zonal_status make_table(description *d) {
    zonal__hdf5_dataset *set = d->set;
    /* An entry of the index, or else the chunk itself, takes space in the file. */
    int64_t least = d->index == INDEX_TREE ? LEAST_ENTRY : set->filters > 0 ? 1 : set->chunk_bytes;
    if (set->chunks > set->file->size / least) return damaged(d, "its chunks are not all there");
    set->room = (size_t)(set->chunk_bytes + set->chunk_bytes / 1024 + 1024);
    ZONAL_TRY(ZONAL_NEW(&set->table, set->chunks, "the chunks of an HDF5 file"));
    for (int i = 0; i < 2; i++)
        ZONAL_TRY(ZONAL_NEW(&set->buffer[i], set->room, "a chunk of an HDF5 file"));
    return ZONAL_OK;
}

/* libhdf5 numbers chunks without an index as if the dataset had grown to its largest shape, which
 * is our order where only the first dimension may grow. */
static zonal_status check_order(description *d) {
    for (int i = 1; i < ZONAL__HDF5_RANK; i++)
        if (d->most[i] != (uint64_t)d->set->shape[i])
            return refused(d, "chunks without an index that may still grow");
    return ZONAL_OK;
}

static zonal_status find_chunks(description *d) {
    zonal__hdf5_dataset *set = d->set;
    ZONAL_TRY(measure_chunks(d));
    if (set->chunks == 0) return ZONAL_OK;
    ZONAL_TRY(make_table(d));
    if (d->address == ZONAL__HDF5_NOWHERE) return damaged(d, "its elements were never written");
    if (d->index == INDEX_TREE) {
        ZONAL_TRY(zonal__hdf5_read_tree(set, d->address));
    } else {
        if (d->index == INDEX_SINGLE ? set->chunks != 1 : set->filters > 0)
            return damaged(d, "its chunks have no known form");
        if (d->index == INDEX_IMPLICIT) ZONAL_TRY(check_order(d));
        for (int64_t i = 0; i < set->chunks; i++)
            set->table[i] = (zonal__hdf5_chunk){
                .address = d->address + (uint64_t)(i * set->chunk_bytes),
                .size = d->single.size ? d->single.size : (uint32_t)set->chunk_bytes,
                .mask = d->single.mask};
    }
    return zonal__hdf5_check_chunks(set);
}

static zonal_status find_elements(description *d) {
    zonal__hdf5_dataset *set = d->set;
    int64_t elements = 1;
    if (!d->has_space || !d->has_type || !d->has_layout)
        return ZONAL_FAIL(ZONAL_FORMAT, "\"%s\" in %s is damaged or no dataset; get the file again",
                          set->name, set->file->path);
    if (set->bytes == 0) return ZONAL_OK; /* no whole numbers: described, but not to be read */
    for (int i = 0; i < ZONAL__HDF5_RANK; i++) {
        /* Each by itself too: a dimension of 0 would let any other one pass. */
        if (set->shape[i] > MOST_ELEMENTS ||
            (set->shape[i] > 0 && elements > MOST_ELEMENTS / set->shape[i]))
            elements = MOST_ELEMENTS + 1;
        else
            elements *= set->shape[i];
        if (elements > MOST_ELEMENTS) return damaged(d, "its shape is too large");
    }
    return d->layout == LAYOUT_CHUNKED ? find_chunks(d) : check_plain(d, elements);
}

zonal_status zonal__hdf5_find(zonal__hdf5 *file, const char *name, zonal__hdf5_dataset *set) {
    description d = {.set = set};
    uint64_t address;
    *set = (zonal__hdf5_dataset){.file = file, .name = name};
    ZONAL_TRY(zonal__hdf5_lookup(file, name, &address));
    ZONAL_TRY(zonal__hdf5_messages(file, address, on_shape, &d));
    ZONAL_TRY(zonal__hdf5_messages(file, address, on_storage, &d));
    return find_elements(&d);
}

void zonal__hdf5_fini(zonal__hdf5_dataset *set) {
    zonal__free(set->table);
    for (int i = 0; i < 2; i++) zonal__free(set->buffer[i]);
    *set = (zonal__hdf5_dataset){0};
}

/* ---- reading --------------------------------------------------------------------------------- */

int64_t zonal__hdf5_step(const zonal__hdf5_dataset *set) {
    int64_t rows = set->chunk[0] > 0 ? set->chunk[0] : 1;
    return rows < set->shape[0] ? rows : set->shape[0];
}

/* The part of a dimension that chunk number "at" and rows first to end have in common. */
typedef struct overlap {
    int64_t from, to; /* in the dataset */
    int64_t in_chunk; /* where "from" lies in the chunk */
} overlap;

static overlap overlap_of(const zonal__hdf5_dataset *set, int dimension, int64_t at, int64_t first,
                          int64_t end) {
    int64_t begin = at * set->chunk[dimension], stop = begin + set->chunk[dimension];
    overlap o = {begin > first ? begin : first, stop < end ? stop : end, 0};
    o.in_chunk = o.from - begin;
    return o;
}

static void copy_run(uint8_t *to, const uint8_t *from, size_t bytes) {
    if (bytes > 8)
        memcpy(to, from, bytes);
    else
        for (size_t i = 0; i < bytes; i++) to[i] = from[i];
}

/* Puts what a chunk has of rows first to first + rows - 1 in its place. */
static void place(const zonal__hdf5_dataset *set, const int64_t at[ZONAL__HDF5_RANK],
                  const uint8_t *plain, int64_t first, int64_t rows, uint8_t *out) {
    const int64_t *shape = set->shape, *side = set->chunk;
    overlap o[ZONAL__HDF5_RANK];
    size_t run;
    for (int i = 0; i < ZONAL__HDF5_RANK; i++)
        o[i] = overlap_of(set, i, at[i], i == 0 ? first : 0, i == 0 ? first + rows : shape[i]);
    run = (size_t)((o[3].to - o[3].from) * set->bytes);
    for (int64_t a = o[0].from; a < o[0].to; a++)
        for (int64_t b = o[1].from; b < o[1].to; b++) {
            int64_t row = ((a - o[0].from + o[0].in_chunk) * side[1] + b - o[1].from) * side[2];
            int64_t to = (((a - first) * shape[1] + b) * shape[2] + o[2].from) * shape[3];
            const uint8_t *from = plain + row * side[3] * set->bytes;
            uint8_t *target = out + (to + o[3].from) * set->bytes;
            for (int64_t c = o[2].from; c < o[2].to; c++) {
                copy_run(target, from, run);
                target += shape[3] * set->bytes;
                from += side[3] * set->bytes;
            }
        }
}

static zonal_status read_chunk(zonal__hdf5_dataset *set, int64_t number, int64_t first,
                               int64_t rows, uint8_t *out) {
    const zonal__hdf5_chunk *chunk = &set->table[number];
    int64_t at[ZONAL__HDF5_RANK], rest = number;
    const uint8_t *plain;
    if (chunk->address == 0)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "chunk %lld of \"%s\" in %s was never written; get the file again",
                          (long long)number, set->name, set->file->path);
    for (int i = ZONAL__HDF5_RANK - 1; i >= 0; i--) {
        at[i] = rest % set->across[i];
        rest /= set->across[i];
    }
    ZONAL_TRY(zonal__hdf5_bytes(set->file, chunk->address, chunk->size, set->buffer[0]));
    ZONAL_TRY(zonal__hdf5_unpack(set, chunk, &plain));
    place(set, at, plain, first, rows, out);
    return ZONAL_OK;
}

zonal_status zonal__hdf5_read(zonal__hdf5_dataset *set, int64_t first, int64_t rows, uint8_t *out) {
    int64_t row = set->bytes * set->shape[1] * set->shape[2] * set->shape[3];
    int64_t layer, begin, end;
    if (set->chunk[0] == 0)
        return zonal__hdf5_bytes(set->file, (uint64_t)(set->address + first * row),
                                 (uint64_t)(rows * row), out);
    layer = set->across[1] * set->across[2] * set->across[3];
    begin = first / set->chunk[0] * layer;
    end = ((first + rows - 1) / set->chunk[0] + 1) * layer;
    for (int64_t i = begin; i < end; i++) ZONAL_TRY(read_chunk(set, i, first, rows, out));
    return ZONAL_OK;
}
