/*
 * zonal/status.h - how zonal reports failure, takes memory and writes log lines.
 *
 * Every function that can fail returns a zonal_status. When it is not ZONAL_OK, a record kept for
 * the calling thread says what was wrong and what to do about it, in one sentence, and where in the
 * library it was noticed. The library never prints, never exits, and never leaves an output object
 * half-made: on failure the pointer it was to fill is set to NULL.
 *
 * NULL is refused where a pointer is needed: ZONAL_ARGUMENT, and the sentence names the argument.
 * Where it is allowed (a gradient that is not wanted, a stream, an allocator), it is said there.
 * Functions that return no status take NULL too: destroy and set functions do nothing then, and
 * functions that return a number give zero.
 */
#ifndef ZONAL_STATUS_H
#define ZONAL_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ZONAL_API      __attribute__((visibility("default")))
#define ZONAL_MUST_USE __attribute__((warn_unused_result))
#else
#define ZONAL_API
#define ZONAL_MUST_USE
#endif

/* The version of the headers; zonal_version() gives the library's. */
#define ZONAL_VERSION_MAJOR 0
#define ZONAL_VERSION_MINOR 1
#define ZONAL_VERSION_PATCH 0

/* Options and infos are structs that begin with their size, so that they can grow: zonal/zonal.h.
 */
#ifdef __cplusplus
#define ZONAL_SIZED_INIT(type)                                                                     \
    { sizeof(type) }
#else
#define ZONAL_SIZED_INIT(type)                                                                     \
    { .size = sizeof(type) }
#endif

/* One list of codes: name, number, meaning. Numbers are part of the ABI and leave room to grow. */
#define ZONAL_STATUS_LIST(X)                                                                       \
    X(OK, 0, "success")                                                                            \
    X(ARGUMENT, 10, "an argument or option is out of its range")                                   \
    X(SHAPE, 11, "an array has the wrong shape")                                                   \
    X(DTYPE, 12, "an array has an element type that is not accepted here")                         \
    X(MEMORY, 20, "memory could not be allocated")                                                 \
    X(IO, 30, "a file could not be read or written")                                               \
    X(FORMAT, 31, "a file is not in the format expected")                                          \
    X(DEVICE, 40, "the device is not there or failed")                                             \
    X(UNSUPPORTED, 41, "this build or device cannot do what was asked")                            \
    X(NUMERIC, 50, "the data or the result is not a finite number where one is needed")            \
    X(CANCELLED, 60, "the caller asked to stop")

typedef enum zonal_status {
#define ZONAL_STATUS_ENUM(name, number, text) ZONAL_##name = number,
    ZONAL_STATUS_LIST(ZONAL_STATUS_ENUM)
#undef ZONAL_STATUS_ENUM
} zonal_status;

/* The last failure of the calling thread. "message" is a whole sentence for the user; "file" and
 * "line" are for maintainers of the library. The record is overwritten by the next failure. */
typedef struct zonal_error {
    zonal_status status;
    const char *file;
    int line;
    char message[768];
} zonal_error;

/* Returns the calling thread's record; status is ZONAL_OK when nothing has failed yet. Never NULL.
 */
ZONAL_API const zonal_error *zonal_last_error(void);

/* Records a failure of the calling thread and returns its status: for functions of the caller's
 * that the library calls (zonal/communicator.h). NULL: no sentence. */
ZONAL_API zonal_status zonal_error_set(zonal_status status, const char *message);

/* "OK", "ARGUMENT", ...; "?" for a number that is not a status. */
ZONAL_API const char *zonal_status_name(zonal_status status);

/* "0.1.0" */
ZONAL_API const char *zonal_version(void);

/* Replaces the allocator of the whole library (NULL restores malloc and free). "alloc" returns
 * memory aligned to 64 bytes or NULL; "release" accepts NULL. Call it before any object exists:
 * memory is released by the allocator in force at that time. */
typedef struct zonal_allocator {
    void *(*alloc)(void *context, size_t bytes);
    void (*release)(void *context, void *memory);
    void *context;
} zonal_allocator;
ZONAL_API void zonal_set_allocator(const zonal_allocator *allocator);

/* Receives one line of text without its newline; NULL (the default) drops all lines. Set it before
 * threads are started. */
typedef void (*zonal_log_function)(void *context, const char *line);
ZONAL_API void zonal_set_log(zonal_log_function log, void *context);

#ifdef __cplusplus
}
#endif
#endif
