/*
 * Where arrays lie: the host's memory or a device's, behind one table, for the layers that hold
 * arrays without touching their elements (networks, optimisers, the trainer).
 */
#ifndef ZONAL_BACKEND_MEMORY_H
#define ZONAL_BACKEND_MEMORY_H

#include <stddef.h>

#include "core/error.h"

typedef struct zonal__memory {
    const char *name;
    int is_host; /* 1: what it gives may be read and written directly */
    /* Zeroed, aligned to 64 bytes. ZONAL_MEMORY names "what", how much it needs and, on a device,
     * how much is free. */
    zonal_status (*take)(size_t bytes, const char *what, void **out);
    void (*give_back)(void *memory); /* accepts NULL */
    /* From and to the host; they wait until it is done, and for the device's work before. */
    zonal_status (*write)(void *to, const void *host, size_t bytes);
    zonal_status (*read)(void *host, const void *from, size_t bytes);
    /* Within it; on a device only put on the stream, and it can be captured in a graph. */
    zonal_status (*copy)(void *stream, void *to, const void *from, size_t bytes);
} zonal__memory;

extern const zonal__memory zonal__memory_host;
extern const zonal__memory zonal__memory_device; /* CUDA; every call fails in a build without it */

#endif
