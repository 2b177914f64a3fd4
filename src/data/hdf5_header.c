/*
 * Object headers of HDF5 files: a list of messages in a block, which may say that more of them lie
 * in further blocks. Version 1 has no checksums; in version 2 each block ends with one.
 */
#include <string.h>

#include "core/memory.h"
#include "data/hdf5.h"

enum {
    MESSAGE_CONTINUATION = 0x10,
    MOST_BLOCKS = 64,
    LARGEST_BLOCK = 1 << 20, /* bytes; messages have at most 2^16 */
    FLAG_SHARED = 2,
    FLAG_ORDER = 4,  /* of the header: messages have a number */
    FLAG_PHASE = 16, /* of the header: it has two limits of attributes */
    FLAG_TIMES = 32  /* of the header: it has four times */
};

typedef struct header {
    const zonal__hdf5 *file;
    int version, flags;
    struct {
        uint64_t address, bytes;
    } block[MOST_BLOCKS]; /* what lies between signature and checksum */
    int blocks;
} header;

static zonal_status add_block(header *h, uint64_t address, uint64_t bytes) {
    if (h->blocks == MOST_BLOCKS || bytes > LARGEST_BLOCK)
        return zonal__hdf5_damaged(h->file, "the header of an object is too large");
    h->block[h->blocks].address = address;
    h->block[h->blocks++].bytes = bytes;
    return ZONAL_OK;
}

/* In version 2 a continuation has a signature and a checksum of its own. */
static zonal_status add_continuation(header *h, zonal__hdf5_cursor body) {
    uint64_t address = zonal__hdf5_number(&body, 8), bytes = zonal__hdf5_number(&body, 8);
    if (body.ended) return zonal__hdf5_damaged(h->file, "the header of an object is cut short");
    return add_block(h, address, bytes);
}

static zonal_status use_messages(header *h, const uint8_t *block, uint64_t address,
                                 zonal__hdf5_cursor in, zonal__hdf5_on_message *use,
                                 void *context) {
    size_t head = h->version == 1 ? 8 : h->flags & FLAG_ORDER ? 6 : 4;
    while (in.left >= head) { /* less is a gap */
        zonal__hdf5_message message;
        size_t bytes;
        int flags;
        message.type = (int)zonal__hdf5_number(&in, h->version == 1 ? 2 : 1);
        bytes = (size_t)zonal__hdf5_number(&in, 2);
        flags = (int)zonal__hdf5_number(&in, 1);
        zonal__hdf5_skip(&in, h->version == 1 ? 3 : h->flags & FLAG_ORDER ? 2 : 0);
        message.shared = (flags & FLAG_SHARED) != 0;
        message.body = (zonal__hdf5_cursor){in.at, bytes, 0};
        message.address = address + (uint64_t)(in.at - block);
        zonal__hdf5_skip(&in, bytes);
        if (in.ended) return zonal__hdf5_damaged(h->file, "the header of an object is cut short");
        if (message.type == MESSAGE_CONTINUATION)
            ZONAL_TRY(add_continuation(h, message.body));
        else
            ZONAL_TRY(use(context, &message));
    }
    return ZONAL_OK;
}

/* Messages of the first block of version 2 begin at "skipped". */
static zonal_status use_block(header *h, int number, const uint8_t *block, size_t skipped,
                              zonal__hdf5_on_message *use, void *context) {
    uint64_t address = h->block[number].address;
    size_t bytes = (size_t)h->block[number].bytes;
    zonal__hdf5_cursor in = {block, bytes, 0};
    if (h->version == 2) {
        uint32_t stored;
        if (bytes < 8 || skipped > bytes - 4 || (number > 0 && memcmp(block, "OCHK", 4) != 0))
            return zonal__hdf5_damaged(h->file, "the header of an object is cut short");
        memcpy(&stored, block + bytes - 4, 4);
        if (stored != zonal__hdf5_checksum(block, bytes - 4))
            return zonal__hdf5_damaged(h->file, "the checksum of an object's header is wrong");
        in.left -= 4;
        zonal__hdf5_skip(&in, number > 0 ? 4 : skipped);
    }
    return use_messages(h, block, address, in, use, context);
}

/* Finds the first block of messages; *skipped: what lies before them in it. */
static zonal_status begin(header *h, uint64_t address, size_t *skipped) {
    uint8_t first[40] = {0};
    uint64_t left = address <= (uint64_t)h->file->size ? (uint64_t)h->file->size - address : 0;
    zonal__hdf5_cursor in = {first, left < sizeof first ? (size_t)left : sizeof first, 0};
    uint64_t bytes;
    ZONAL_TRY(zonal__hdf5_bytes(h->file, address, in.left, first));
    *skipped = 0;
    if (memcmp(first, "OHDR", 4) != 0) {
        h->version = (int)zonal__hdf5_number(&in, 1);
        zonal__hdf5_skip(&in, 7);
        bytes = zonal__hdf5_number(&in, 4);
        if (h->version != 1 || in.ended)
            return zonal__hdf5_damaged(h->file, "an object has no header");
        return add_block(h, address + 16, bytes);
    }
    zonal__hdf5_skip(&in, 4);
    h->version = (int)zonal__hdf5_number(&in, 1);
    h->flags = (int)zonal__hdf5_number(&in, 1);
    zonal__hdf5_skip(&in, (h->flags & FLAG_TIMES ? 16 : 0) + (h->flags & FLAG_PHASE ? 4 : 0));
    bytes = zonal__hdf5_number(&in, 1 << (h->flags & 3));
    *skipped = (size_t)(in.at - first);
    if (h->version != 2 || in.ended || bytes > LARGEST_BLOCK)
        return zonal__hdf5_damaged(h->file, "an object has no header");
    return add_block(h, address, *skipped + bytes + 4);
}

zonal_status zonal__hdf5_messages(const zonal__hdf5 *file, uint64_t address,
                                  zonal__hdf5_on_message *use, void *context) {
    header h = {.file = file};
    size_t skipped;
    zonal_status status = begin(&h, address, &skipped);
    for (int i = 0; status == ZONAL_OK && i < h.blocks; i++) {
        uint8_t *block = NULL;
        status = ZONAL_NEW(&block, h.block[i].bytes + 1, "a header of an HDF5 file");
        if (status == ZONAL_OK)
            status = zonal__hdf5_bytes(file, h.block[i].address, h.block[i].bytes, block);
        if (status == ZONAL_OK) status = use_block(&h, i, block, skipped, use, context);
        zonal__free(block);
    }
    return status;
}
