/*
 * All memory of the library comes from here, so that a test can make any allocation fail.
 */
#ifndef ZONAL_CORE_MEMORY_H
#define ZONAL_CORE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* Sets *out to count * size zeroed bytes aligned to 64, or fails with ZONAL_MEMORY (also when the
 * product overflows, or is more than the machine has left, which Linux would promise and then end
 * the process for) and sets *out to NULL. count = 0 gives a valid pointer. "what" goes into the
 * sentence: "the gradient", "12 nodes". Release with zonal__free, which accepts NULL. */
zonal_status zonal__alloc(int64_t count, size_t size, const char *what, void **out);
void zonal__free(void *memory);

/* ZONAL_NEW(&array, n, "the nodes"): typed zonal__alloc. */
#define ZONAL_NEW(out, count, what)                                                                \
    zonal__alloc((int64_t)(count), sizeof **(out), what, (void **)(out))

/* An array that grows. "array" is the address of a pointer to *room elements of "size" bytes (NULL
 * and 0 to begin with), of which the first "count" are in use: makes room for element number
 * "count", moving the others where need be, to an array of twice the room. On failure all is as it
 * was. ZONAL_GROW(&list, count, &room, "the list"). */
zonal_status zonal__grow(int64_t count, size_t size, const char *what, int64_t *room, void *array);
#define ZONAL_GROW(array, count, room, what)                                                       \
    zonal__grow((int64_t)(count), sizeof **(array), what, room, array)

/* A buffer that is written anew each time: room for "count" elements, which are not kept. *room is
 * in bytes; 0, and the pointer NULL, after failure. ZONAL_RENEW(&line, length, &room, "a line"). */
zonal_status zonal__renew(int64_t count, size_t size, const char *what, size_t *room, void *array);
#define ZONAL_RENEW(array, count, room, what)                                                      \
    zonal__renew((int64_t)(count), sizeof **(array), what, room, array)

#endif
