#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

static void *default_alloc(void *context, size_t bytes) {
    (void)context;
    return aligned_alloc(64, bytes);
}

static void default_release(void *context, void *memory) {
    (void)context;
    free(memory);
}

static const zonal_allocator default_allocator = {default_alloc, default_release, NULL};
static zonal_allocator allocator = {default_alloc, default_release, NULL};

void zonal_set_allocator(const zonal_allocator *replacement) {
    allocator = replacement ? *replacement : default_allocator;
}

zonal_status zonal__alloc(int64_t count, size_t size, const char *what, void **out) {
    size_t bytes;
    *out = NULL;
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes) ||
        bytes > PTRDIFF_MAX - 64)
        return ZONAL_FAIL(ZONAL_MEMORY,
                          "%s would need %lld x %zu bytes: more than can be addressed", what,
                          (long long)count, size);
    bytes = (bytes + 63) / 64 * 64; /* aligned_alloc wants a multiple of the alignment */
    if (bytes == 0) bytes = 64;
    *out = allocator.alloc(allocator.context, bytes);
    if (!*out)
        return ZONAL_FAIL(ZONAL_MEMORY, "out of memory: %s needs %.1f MiB", what,
                          (double)bytes / (1024.0 * 1024.0));
    memset(*out, 0, bytes);
    return ZONAL_OK;
}

void zonal__free(void *memory) {
    if (memory) allocator.release(allocator.context, memory);
}
