/*
 * The filters of HDF5 chunks, undone from the last to the first: gzip (a zlib stream), shuffle (all
 * first bytes of the elements, then all second bytes, ...), Fletcher's checksum at the end.
 */
#include <string.h>

#include "core/memory.h"
#include "data/hdf5.h"

#ifdef ZONAL_HAVE_ZLIB
#include <zlib.h>
#endif

enum { SUM_BYTES = 4 };

static zonal_status damaged(const zonal__hdf5_dataset *set, const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT, "a chunk of \"%s\" in %s is damaged: %s; get the file again",
                      set->name, set->file->path, what);
}

#ifdef ZONAL_HAVE_ZLIB
static void *on_alloc(void *context, unsigned count, unsigned bytes) {
    void *memory;
    (void)context;
    return zonal__alloc((int64_t)count, bytes, "zlib", &memory) == ZONAL_OK ? memory : NULL;
}

static void on_free(void *context, void *memory) {
    (void)context;
    zonal__free(memory);
}

/* *out: what is unpacked must fit in it, and is what it becomes. */
static zonal_status gunzip(const zonal__hdf5_dataset *set, const uint8_t *from, size_t size,
                           uint8_t *to, size_t *out) {
    z_stream stream = {.next_in = (uint8_t *)from, /* only read from */
                       .avail_in = (unsigned)size,
                       .next_out = to,
                       .avail_out = (unsigned)*out,
                       .zalloc = on_alloc,
                       .zfree = on_free};
    int result = inflateInit(&stream);
    if (result != Z_OK) return ZONAL_FAIL(ZONAL_MEMORY, "out of memory: zlib");
    result = inflate(&stream, Z_FINISH);
    *out -= stream.avail_out;
    inflateEnd(&stream);
    if (result == Z_MEM_ERROR) return ZONAL_MEMORY;
    if (result != Z_STREAM_END || stream.avail_in > 0)
        return damaged(set, "it cannot be unpacked to its size");
    return ZONAL_OK;
}
#else
static zonal_status gunzip(const zonal__hdf5_dataset *set, const uint8_t *from, size_t size,
                           uint8_t *to, size_t *out) {
    (void)from, (void)size, (void)to, (void)out;
    return damaged(set, "it cannot be unpacked"); /* such datasets are not opened */
}
#endif

static void unshuffle(const uint8_t *from, size_t size, size_t element, uint8_t *to) {
    size_t count = size / element;
    for (size_t k = 0; k < element; k++)
        for (size_t i = 0; i < count; i++) to[i * element + k] = from[k * count + i];
    memcpy(to + count * element, from + count * element, size - count * element);
}

/* Of 16-bit words, the first byte being the higher; a last single byte counts as a high one. */
static uint32_t fletcher(const uint8_t *at, size_t size) {
    uint64_t first = 0, second = 0;
    for (size_t i = 0; i < size; i += 2) {
        first += (uint64_t)at[i] << 8 | (i + 1 < size ? at[i + 1] : 0);
        first = (first & 0xffff) + (first >> 16);
        second += first;
        second = (second & 0xffff) + (second >> 16);
    }
    first = (first & 0xffff) + (first >> 16);
    second = (second & 0xffff) + (second >> 16);
    return (uint32_t)(second << 16 | first);
}

static zonal_status check_sum(const zonal__hdf5_dataset *set, const uint8_t *at, size_t *size) {
    uint32_t stored;
    if (*size < SUM_BYTES) return damaged(set, "it has no checksum");
    *size -= SUM_BYTES;
    memcpy(&stored, at + *size, SUM_BYTES);
    return stored == fletcher(at, *size) ? ZONAL_OK : damaged(set, "its checksum is wrong");
}

zonal_status zonal__hdf5_unpack(const zonal__hdf5_dataset *set, const zonal__hdf5_chunk *chunk,
                                const uint8_t **plain) {
    uint8_t *from = set->buffer[0], *to = set->buffer[1], *swap;
    size_t size = chunk->size, made;
    for (int k = set->filters - 1; k >= 0; k--) {
        if (chunk->mask >> k & 1) continue;
        made = set->room;
        if (set->filter[k].kind == ZONAL__HDF5_FLETCHER) {
            ZONAL_TRY(check_sum(set, from, &size));
            continue;
        }
        if (set->filter[k].kind == ZONAL__HDF5_GZIP) {
            ZONAL_TRY(gunzip(set, from, size, to, &made));
        } else {
            unshuffle(from, size, (size_t)set->bytes, to);
            made = size;
        }
        size = made;
        swap = from;
        from = to;
        to = swap;
    }
    if (size != (size_t)set->chunk_bytes) return damaged(set, "it has another size than it claims");
    *plain = from;
    return ZONAL_OK;
}
