#include "core/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

/* Zeroed by calloc, which knows that new pages are: the gigabytes of a large network's activations
 * are then touched by the first step and its threads, instead of by one thread before it. What free
 * wants lies just before the block: calloc aligns to 16 bytes at least, so there is room. */
static void *default_alloc(void *context, size_t bytes) {
    char *whole = calloc(1, bytes + ALIGNMENT), *block;
    (void)context;
    if (!whole) return NULL;
    block = whole + ALIGNMENT - (uintptr_t)whole % ALIGNMENT;
    memcpy(block - sizeof whole, &whole, sizeof whole);
    return block;
}

static void default_release(void *context, void *memory) {
    void *whole;
    (void)context;
    memcpy(&whole, (char *)memory - sizeof whole, sizeof whole);
    free(whole);
}

static const zonal_allocator default_allocator = {default_alloc, default_release, NULL};
static zonal_allocator allocator = {default_alloc, default_release, NULL};

void zonal_set_allocator(const zonal_allocator *replacement) {
    allocator = replacement ? *replacement : default_allocator;
}

/* A number of kilobytes or bytes behind "key" in a small file of the system; 0: there is none. */
static double read_number(const char *path, const char *key) {
    char line[128];
    double found = 0;
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    while (found == 0 && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) found = strtod(line + strlen(key), NULL);
    fclose(file);
    return found;
}

/* Bytes that can still be had: free memory and swap, and at most what the container allows. */
static double bytes_left(void) {
    double left = 1024 * (read_number("/proc/meminfo", "MemAvailable:") +
                          read_number("/proc/meminfo", "SwapFree:"));
    double most = read_number("/sys/fs/cgroup/memory.max", ""); /* "max" reads as 0 */
    if (left == 0) return INFINITY;                             /* no Linux */
    return most > 0 && most < left ? most : left;
}

/* Small pieces are not asked about: the files cost more than they do. */
static zonal_status check_left(size_t bytes, const char *what) {
    const double gib = 1024.0 * 1024 * 1024;
    double left;
    if (bytes < (size_t)1 << 28 || allocator.alloc != default_alloc) return ZONAL_OK;
    left = bytes_left();
    if ((double)bytes <= left) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_MEMORY, "out of memory: %s needs %.1f GiB, and %.1f GiB are left", what,
                      (double)bytes / gib, left / gib);
}

zonal_status zonal__alloc(int64_t count, size_t size, const char *what, void **out) {
    size_t bytes;
    *out = NULL;
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes) ||
        bytes > PTRDIFF_MAX - 2 * ALIGNMENT)
        return ZONAL_FAIL(ZONAL_MEMORY, "%s needs %lld x %zu bytes, more than can be addressed",
                          what, (long long)count, size);
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes == 0) bytes = ALIGNMENT;
    ZONAL_TRY(check_left(bytes, what));
    *out = allocator.alloc(allocator.context, bytes);
    if (!*out)
        return ZONAL_FAIL(ZONAL_MEMORY, "out of memory: %s needs %.1f MiB", what,
                          (double)bytes / (1024.0 * 1024.0));
    if (allocator.alloc != default_alloc) memset(*out, 0, bytes);
    return ZONAL_OK;
}

void zonal__free(void *memory) {
    if (memory) allocator.release(allocator.context, memory);
}

/* The pointer at "array", which is one to any type, is read and written as bytes: it is no void *.
 */
zonal_status zonal__grow(int64_t count, size_t size, const char *what, int64_t *room, void *array) {
    enum { FIRST = 64 };
    int64_t wanted = *room ? 2 * *room : FIRST, kept = count < *room ? count : *room;
    void *old, *larger;
    if (count < *room) return ZONAL_OK;
    ZONAL_TRY(zonal__alloc(wanted, size, what, &larger));
    memcpy(&old, array, sizeof old);
    if (kept > 0) memcpy(larger, old, (size_t)kept * size);
    memcpy(array, &larger, sizeof larger);
    zonal__free(old);
    *room = wanted;
    return ZONAL_OK;
}

zonal_status zonal__renew(int64_t count, size_t size, const char *what, size_t *room, void *array) {
    void *held;
    zonal_status status;
    memcpy(&held, array, sizeof held);
    if (*room / size >= (size_t)count) return ZONAL_OK;
    zonal__free(held);
    *room = 0;
    status = zonal__alloc(count, size, what, &held);
    memcpy(array, &held, sizeof held);
    if (status == ZONAL_OK) *room = (size_t)count * size;
    return status;
}
