/*
 * Writes JSON, value by value, into memory or to a stream.
 *
 *     zonal__json json;
 *     zonal__json_init(&json, NULL);
 *     zonal__json_begin_object(&json);
 *     zonal__json_key_text(&json, "method", "mmd-heat");
 *     zonal__json_key_double(&json, "value", value);
 *     zonal__json_key(&json, "degrees");
 *     zonal__json_begin_array(&json);
 *     for (...) zonal__json_double(&json, energy[l]);
 *     zonal__json_end_array(&json);
 *     zonal__json_end_object(&json);
 *     status = zonal__json_finish(&json, &text);
 *     ... use text ...
 *     zonal__json_fini(&json);
 *
 * The calls return nothing: the first failure (memory, the stream, a call out of place) is kept and
 * zonal__json_finish reports it. Commas, newlines and indentation are put in: each member of the
 * outermost value has its own line, and so has each object in an array just below.
 *
 * Doubles have 17 significant digits, so that reading them gives the same bits; what is not finite
 * becomes null. Text is UTF-8; bytes that are not become U+FFFD.
 */
#ifndef ZONAL_CORE_JSON_H
#define ZONAL_CORE_JSON_H

#include <stdint.h>
#include <stdio.h>

#include "core/error.h"

enum { ZONAL__JSON_DEPTH = 16 };

typedef struct zonal__json {
    FILE *stream;
    char *text;
    size_t length, capacity;
    int depth;
    char open[ZONAL__JSON_DEPTH + 1];       /* what each level is: '{' or '[' */
    int64_t members[ZONAL__JSON_DEPTH + 1]; /* written so far at each level */
    int after_key;
    zonal_status status;
} zonal__json;

/* With a stream the text is passed on as it grows and the caller closes the stream; with NULL all
 * of it is kept for zonal__json_finish. No failure, no allocation. */
void zonal__json_init(zonal__json *json, FILE *stream);

/* Ends the text with a newline and reports the first failure of any call. "text" may be NULL; *text
 * belongs to the writer and is NULL on failure or when there is a stream. */
zonal_status zonal__json_finish(zonal__json *json, const char **text);
void zonal__json_fini(zonal__json *json);

void zonal__json_begin_object(zonal__json *json);
void zonal__json_end_object(zonal__json *json);
void zonal__json_begin_array(zonal__json *json);
void zonal__json_end_array(zonal__json *json);
void zonal__json_key(zonal__json *json, const char *key);

void zonal__json_double(zonal__json *json, double value);
void zonal__json_int(zonal__json *json, int64_t value);
void zonal__json_bool(zonal__json *json, int value);
void zonal__json_text(zonal__json *json, const char *value); /* NULL is written as null */
void zonal__json_null(zonal__json *json);
/* A value that is JSON already, of so many bytes: put in as it stands. */
void zonal__json_raw(zonal__json *json, const char *value, size_t length);

/* A key with its value. */
void zonal__json_key_double(zonal__json *json, const char *key, double value);
void zonal__json_key_int(zonal__json *json, const char *key, int64_t value);
void zonal__json_key_bool(zonal__json *json, const char *key, int value);
void zonal__json_key_text(zonal__json *json, const char *key, const char *value);

#endif
