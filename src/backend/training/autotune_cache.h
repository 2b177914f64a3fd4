/*
 * Which of several ways to compute something was measured to be the fastest on this machine, as
 * text: a key (the operation and its shapes) and an entry (how to build that way again). A table
 * can be kept in a file, so that a later process computes the same bits without measuring anew.
 *
 *     zonal autotune 1
 *     NVIDIA H200, cuDNN 91400, cuBLASLt 130100        the machine: where an entry holds
 *     KEY<tab>ENTRY                                    one line each
 */
#ifndef ZONAL_BACKEND_TRAINING_AUTOTUNE_CACHE_H
#define ZONAL_BACKEND_TRAINING_AUTOTUNE_CACHE_H

#include "core/error.h"

enum {
    ZONAL__AUTOTUNE_ENTRIES = 1024, /* a ResNet-50 with its views of two sizes makes some 250 */
    ZONAL__AUTOTUNE_KEY = 112,      /* bytes, with the ending zero */
    ZONAL__AUTOTUNE_TEXT = 208
};

/* Of a fixed size: it lives as long as the process, and looking up must not fail. */
typedef struct zonal__autotune_cache {
    int count;
    struct {
        char key[ZONAL__AUTOTUNE_KEY], text[ZONAL__AUTOTUNE_TEXT];
    } entry[ZONAL__AUTOTUNE_ENTRIES];
} zonal__autotune_cache;

/* The entry for a key, or NULL. */
const char *zonal__autotune_cache_find(const zonal__autotune_cache *cache, const char *key);

/* Adds an entry, or replaces that of the same key. Returns 0, and changes nothing, when the table
 * is full, or when a text is empty, too long or has a character below the blank. */
int zonal__autotune_cache_put(zonal__autotune_cache *cache, const char *key, const char *text);

/* Both take "machine", a line of text. A file that does not exist, or is of another machine, reads
 * as one without entries, the latter with a line in the log. What is read replaces entries of the
 * same keys. ZONAL_FORMAT for a file that is not an autotuning cache: nothing of it is taken. */
zonal_status zonal__autotune_cache_write(const zonal__autotune_cache *cache, const char *machine,
                                         const char *path);
zonal_status zonal__autotune_cache_read(zonal__autotune_cache *cache, const char *machine,
                                        const char *path);

#endif
