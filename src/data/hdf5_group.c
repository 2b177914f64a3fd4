/*
 * The root group of an HDF5 file: either a symbol table, whose B-tree leads to nodes of symbols,
 * their names lying in a local heap; or links, each a message of the group's header.
 */
#include <string.h>

#include "data/hdf5.h"

enum {
    MESSAGE_LINK_INFO = 2,
    MESSAGE_LINK = 6,
    MESSAGE_SYMBOL_TABLE = 0x11,
    MOST_VISITS = 1 << 16, /* of nodes and symbols: a loop of nodes must end */
    NODE_HEAD = 24,
    SYMBOL = 40,     /* bytes */
    SOFT_SYMBOL = 2, /* its cache type */
    LONGEST_NAME = 256
};

typedef struct search {
    zonal__hdf5 *file;
    const char *name;
    uint64_t found;            /* the address; NOWHERE: not yet */
    int elsewhere;             /* it is a link to something else */
    int dense;                 /* there are links in a heap of their own, which is not read */
    uint64_t heap, heap_bytes; /* where the names of symbols lie */
    int visits;                /* of nodes and symbols so far */
} search;

/* Remembers a name for the sentence that misses another. What is no plain letter becomes "?". */
static void list_name(zonal__hdf5 *file, const char *name) {
    size_t used = strlen(file->names), length = strlen(name);
    if (used + length + 3 > sizeof file->names) return;
    if (used > 0) {
        memcpy(file->names + used, ", ", 3);
        used += 2;
    }
    memcpy(file->names + used, name, length + 1);
    for (char *at = file->names + used; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?';
}

static void take_object(search *s, const char *name, uint64_t address, int elsewhere) {
    list_name(s->file, name);
    if (strcmp(name, s->name) != 0) return;
    s->found = address;
    s->elsewhere = elsewhere;
}

/* ---- symbol tables --------------------------------------------------------------------------- */

/* A longer name than any that is looked for is cut. */
static zonal_status read_name(const search *s, uint64_t offset, char name[LONGEST_NAME]) {
    uint64_t left = offset < s->heap_bytes ? s->heap_bytes - offset : 0;
    if (left == 0) return zonal__hdf5_damaged(s->file, "the name of an object lies nowhere");
    if (left > LONGEST_NAME - 1) left = LONGEST_NAME - 1;
    memset(name, 0, LONGEST_NAME);
    return zonal__hdf5_bytes(s->file, s->heap + offset, left, name);
}

static zonal_status count_visit(search *s) {
    if (s->visits++ < MOST_VISITS) return ZONAL_OK;
    return zonal__hdf5_refused(s->file, "/", "more objects than a data set needs");
}

static zonal_status read_symbols(search *s, uint64_t address) {
    uint8_t head[8], symbol[SYMBOL];
    int count;
    ZONAL_TRY(zonal__hdf5_bytes(s->file, address, sizeof head, head));
    if (memcmp(head, "SNOD\1", 5) != 0)
        return zonal__hdf5_damaged(s->file, "a node of symbols is invalid");
    count = head[6] | head[7] << 8;
    for (int i = 0; i < count; i++) {
        zonal__hdf5_cursor in = {symbol, sizeof symbol, 0};
        uint64_t offset, object;
        char name[LONGEST_NAME];
        ZONAL_TRY(count_visit(s));
        ZONAL_TRY(zonal__hdf5_bytes(s->file, address + 8 + (uint64_t)i * SYMBOL, SYMBOL, symbol));
        offset = zonal__hdf5_number(&in, 8);
        object = zonal__hdf5_number(&in, 8);
        ZONAL_TRY(read_name(s, offset, name));
        take_object(s, name, object, zonal__hdf5_number(&in, 4) == SOFT_SYMBOL);
    }
    return ZONAL_OK;
}

/* Levels go down by one from node to node, so that no path is longer than 256. */
static zonal_status read_node(search *s, uint64_t address, int level) {
    uint8_t head[NODE_HEAD];
    int count;
    ZONAL_TRY(count_visit(s));
    ZONAL_TRY(zonal__hdf5_bytes(s->file, address, sizeof head, head));
    if (memcmp(head, "TREE\0", 5) != 0 || (level >= 0 && head[5] != level))
        return zonal__hdf5_damaged(s->file, "a node of the tree of objects is invalid");
    count = head[6] | head[7] << 8;
    for (int i = 0; i < count; i++) {
        uint8_t pair[16]; /* a key and a child */
        zonal__hdf5_cursor in = {pair, sizeof pair, 0};
        uint64_t child;
        ZONAL_TRY(count_visit(s));
        ZONAL_TRY(zonal__hdf5_bytes(s->file, address + NODE_HEAD + (uint64_t)i * sizeof pair,
                                    sizeof pair, pair));
        zonal__hdf5_skip(&in, 8);
        child = zonal__hdf5_number(&in, 8);
        if (head[5] > 0)
            ZONAL_TRY(read_node(s, child, head[5] - 1));
        else
            ZONAL_TRY(read_symbols(s, child));
    }
    return ZONAL_OK;
}

static zonal_status read_heap(search *s, uint64_t address) {
    uint8_t head[32];
    zonal__hdf5_cursor in = {head, sizeof head, 0};
    ZONAL_TRY(zonal__hdf5_bytes(s->file, address, sizeof head, head));
    if (memcmp(head, "HEAP\0", 5) != 0)
        return zonal__hdf5_damaged(s->file, "the heap of names is invalid");
    zonal__hdf5_skip(&in, 8);
    s->heap_bytes = zonal__hdf5_number(&in, 8);
    zonal__hdf5_skip(&in, 8); /* the free list */
    s->heap = zonal__hdf5_number(&in, 8);
    if (s->heap > (uint64_t)s->file->size || s->heap_bytes > (uint64_t)s->file->size - s->heap)
        return zonal__hdf5_damaged(s->file, "the heap of names lies beyond its end");
    return ZONAL_OK;
}

/* ---- links ----------------------------------------------------------------------------------- */

static zonal_status take_link(search *s, zonal__hdf5_cursor in) {
    char name[LONGEST_NAME] = "";
    int version = (int)zonal__hdf5_number(&in, 1), flags = (int)zonal__hdf5_number(&in, 1), type;
    uint64_t length;
    type = flags & 8 ? (int)zonal__hdf5_number(&in, 1) : 0;
    zonal__hdf5_skip(&in, (flags & 4 ? 8 : 0) + (flags & 16 ? 1 : 0)); /* order, letters */
    length = zonal__hdf5_number(&in, 1 << (flags & 3));
    if (version != 1 || in.ended || length > in.left)
        return zonal__hdf5_damaged(s->file, "a link of the root group is cut short");
    memcpy(name, in.at, length < LONGEST_NAME ? (size_t)length : LONGEST_NAME - 1);
    zonal__hdf5_skip(&in, (size_t)length);
    take_object(s, name, zonal__hdf5_number(&in, 8), type != 0);
    return in.ended && type == 0
               ? zonal__hdf5_damaged(s->file, "a link of the root group is cut short")
               : ZONAL_OK;
}

static zonal_status on_message(void *context, const zonal__hdf5_message *message) {
    search *s = context;
    zonal__hdf5_cursor in = message->body;
    if (message->type == MESSAGE_LINK) return take_link(s, in);
    if (message->type == MESSAGE_LINK_INFO) {
        int flags;
        zonal__hdf5_skip(&in, 1);
        flags = (int)zonal__hdf5_number(&in, 1);
        zonal__hdf5_skip(&in, flags & 1 ? 8 : 0);
        s->dense = zonal__hdf5_number(&in, 8) != ZONAL__HDF5_NOWHERE;
    }
    if (message->type == MESSAGE_SYMBOL_TABLE) {
        uint64_t tree = zonal__hdf5_number(&in, 8), heap = zonal__hdf5_number(&in, 8);
        if (in.ended) return zonal__hdf5_damaged(s->file, "its root group is cut short");
        ZONAL_TRY(read_heap(s, heap));
        return read_node(s, tree, -1);
    }
    return ZONAL_OK;
}

zonal_status zonal__hdf5_lookup(zonal__hdf5 *file, const char *name, uint64_t *address) {
    search s = {.file = file, .name = name, .found = ZONAL__HDF5_NOWHERE};
    file->names[0] = '\0';
    ZONAL_TRY(zonal__hdf5_messages(file, file->root, on_message, &s));
    if (s.elsewhere) return zonal__hdf5_refused(file, name, "a link in its place");
    if (s.found == ZONAL__HDF5_NOWHERE && s.dense)
        return zonal__hdf5_refused(file, "/", "links in a heap of their own");
    if (s.found == ZONAL__HDF5_NOWHERE)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s has no dataset \"%s\"; it has: %s", file->path, name,
                          file->names[0] ? file->names : "nothing");
    *address = s.found;
    return ZONAL_OK;
}
