/*
 * The chunks of an HDF5 dataset: a B-tree whose leaves say of each chunk where it begins in the
 * dataset, where it lies in the file, and how many bytes it has there.
 */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "data/hdf5.h"

enum { NODE_HEAD = 24, CHILD = 8 };

typedef struct walk {
    zonal__hdf5_dataset *set;
    int64_t left; /* entries that nodes still to come may have */
} walk;

static zonal_status damaged(const zonal__hdf5_dataset *set, const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT, "\"%s\" in %s is damaged: %s; get the file again", set->name,
                      set->file->path, what);
}

/* Takes one key, the bytes and mask of a chunk and its place, and the address behind it. */
static zonal_status take_chunk(zonal__hdf5_dataset *set, zonal__hdf5_cursor *in) {
    zonal__hdf5_chunk chunk = {0};
    int64_t number = 0;
    chunk.size = (uint32_t)zonal__hdf5_number(in, 4);
    chunk.mask = (uint32_t)zonal__hdf5_number(in, 4);
    for (int i = 0; i < ZONAL__HDF5_RANK; i++) {
        uint64_t at = i < set->rank ? zonal__hdf5_number(in, 8) : 0;
        if (at >= (uint64_t)set->shape[i] || at % (uint64_t)set->chunk[i] != 0)
            return damaged(set, "a chunk lies outside of it");
        number = number * set->across[i] + (int64_t)(at / (uint64_t)set->chunk[i]);
    }
    zonal__hdf5_skip(in, 8); /* the place within an element: 0 */
    chunk.address = zonal__hdf5_number(in, 8);
    if (chunk.address == 0 || set->table[number].address != 0)
        return damaged(set, "a chunk is there twice or nowhere");
    set->table[number] = chunk;
    return ZONAL_OK;
}

static zonal_status read_node(walk *w, uint64_t address, int level);

static zonal_status use_node(walk *w, const uint8_t *node, size_t bytes, int level, int count) {
    size_t key = 8 + 8 * (size_t)(w->set->rank + 1);
    zonal__hdf5_cursor in = {node, bytes, 0};
    for (int i = 0; i < count; i++) {
        if (level == 0) {
            ZONAL_TRY(take_chunk(w->set, &in));
        } else {
            zonal__hdf5_skip(&in, key);
            ZONAL_TRY(read_node(w, zonal__hdf5_number(&in, CHILD), level - 1));
        }
    }
    return in.ended ? damaged(w->set, "its index is cut short") : ZONAL_OK;
}

/* Levels go down by one from node to node, so that no path is longer than 256. */
static zonal_status read_node(walk *w, uint64_t address, int level) {
    const zonal__hdf5_dataset *set = w->set;
    uint8_t head[NODE_HEAD], *node;
    size_t bytes;
    int count;
    zonal_status status;
    ZONAL_TRY(zonal__hdf5_bytes(set->file, address, sizeof head, head));
    if (memcmp(head, "TREE\1", 5) != 0 || (level >= 0 && head[5] != level))
        return damaged(set, "a node of its index is invalid");
    count = head[6] | head[7] << 8;
    if (count == 0) return damaged(set, "a node of its index is empty");
    /* All nodes of a path are in memory at once: what each claims is taken off before it is read.
     */
    if (count > w->left) return damaged(set, "its index has more chunks than it");
    w->left -= count;
    bytes = (size_t)count * (8 + 8 * (size_t)(set->rank + 1) + CHILD);
    ZONAL_TRY(ZONAL_NEW(&node, bytes, "the index of an HDF5 file"));
    status = zonal__hdf5_bytes(set->file, address + NODE_HEAD, bytes, node);
    if (status == ZONAL_OK) status = use_node(w, node, bytes, head[5], count);
    zonal__free(node);
    return status;
}

/* A tree whose nodes have one child each would need 256 entries a chunk; those that are written
 * have far fewer inner entries than leaves. */
zonal_status zonal__hdf5_read_tree(zonal__hdf5_dataset *set, uint64_t address) {
    walk w = {set, 2 * set->chunks + 256};
    return read_node(&w, address, -1);
}

static int by_address(const void *a, const void *b) {
    uint64_t first = ((const zonal__hdf5_chunk *)a)->address;
    uint64_t second = ((const zonal__hdf5_chunk *)b)->address;
    return first < second ? -1 : first > second;
}

zonal_status zonal__hdf5_check_chunks(const zonal__hdf5_dataset *set) {
    uint64_t size = (uint64_t)set->file->size, end = 0;
    zonal__hdf5_chunk *sorted;
    zonal_status status = ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&sorted, set->chunks, "the chunks of an HDF5 file"));
    memcpy(sorted, set->table, (size_t)set->chunks * sizeof *sorted);
    qsort(sorted, (size_t)set->chunks, sizeof *sorted, by_address);
    for (int64_t i = 0; status == ZONAL_OK && i < set->chunks; i++) {
        const zonal__hdf5_chunk *c = &sorted[i];
        if (c->address == 0) continue; /* said when it is read */
        if (c->address > size || c->size > size - c->address)
            status = damaged(set, "a chunk lies beyond the end of the file");
        else if (c->address < end)
            status = damaged(set, "two chunks lie in the same place");
        else if (c->size < 1 || c->size > set->room)
            status = damaged(set, "a chunk has an impossible size");
        end = c->address + c->size;
    }
    zonal__free(sorted);
    return status;
}
