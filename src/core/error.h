/*
 * Errors inside the library: a status is returned, a sentence is recorded.
 *
 *     if (t <= 0) return ZONAL_FAIL(ZONAL_ARGUMENT, "t must be positive, got %g", t);
 *     ZONAL_TRY(zonal__something(...));              returns its status when it fails
 *
 * A sentence names the thing and the remedy, starts in lower case and ends without a full stop: the
 * command line puts "zonal: " before it.
 */
#ifndef ZONAL_CORE_ERROR_H
#define ZONAL_CORE_ERROR_H

#include "zonal/status.h"

#define ZONAL_FAIL(status, ...) zonal__fail(status, __FILE__, __LINE__, __VA_ARGS__)

#define ZONAL_TRY(expression)                                                                      \
    do {                                                                                           \
        zonal_status try_status_ = (expression);                                                   \
        if (try_status_ != ZONAL_OK) return try_status_;                                           \
    } while (0)

/* What a public function does first with each pointer that must not be NULL. */
#define ZONAL_NEED(pointer, name)                                                                  \
    do {                                                                                           \
        if (!(pointer))                                                                            \
            return ZONAL_FAIL(ZONAL_ARGUMENT, "%s: %s must not be NULL", __func__, name);          \
    } while (0)

/* Like ZONAL_TRY, for functions that own something: jumps to a label with "status" set. */
#define ZONAL_TRY_GOTO(status, label, expression)                                                  \
    do {                                                                                           \
        (status) = (expression);                                                                   \
        if ((status) != ZONAL_OK) goto label;                                                      \
    } while (0)

__attribute__((format(printf, 4, 5))) zonal_status
zonal__fail(zonal_status status, const char *file, int line, const char *format, ...);

/* Sends one formatted line to the log callback, if there is one. */
__attribute__((format(printf, 1, 2))) void zonal__log(const char *format, ...);

#endif
