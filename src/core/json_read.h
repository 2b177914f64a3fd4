/*
 * Reads JSON, value by value: strict (RFC 8259), bounded in depth, without memory of its own.
 *
 *     zonal__json_reader reader;
 *     int more;
 *     zonal__json_reader_init(&reader, text, length, path);
 *     ZONAL_TRY(zonal__json_read_begin(&reader, '{'));
 *     for (;;) {
 *         ZONAL_TRY(zonal__json_read_more(&reader, '}', &more));
 *         if (!more) break;
 *         ZONAL_TRY(zonal__json_read_key(&reader, &key));
 *         if (strcmp(key, "step") == 0) ZONAL_TRY(zonal__json_read_int(&reader, &step));
 *         else ZONAL_TRY(zonal__json_read_skip(&reader));
 *     }
 *     return zonal__json_read_end(&reader);
 *
 * The text is the reader's to change: strings are unescaped where they stand and returned as
 * pointers into it. Refused besides what is no JSON: bytes that are not UTF-8, a \u0000 (strings
 * here end with a zero byte), nesting deeper than ZONAL__JSON_DEPTH. Whether a key is there twice
 * is the caller's to see. Every failure is ZONAL_FORMAT, with the name of the file and the byte.
 */
#ifndef ZONAL_CORE_JSON_READ_H
#define ZONAL_CORE_JSON_READ_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

typedef struct zonal__json_reader {
    char *text, *at, *end;
    const char *name; /* the caller's, for the sentences */
    int depth;
    int first; /* no member of the open object or array has been read yet */
} zonal__json_reader;

/* text[length] must be a zero byte. */
void zonal__json_reader_init(zonal__json_reader *reader, char *text, size_t length,
                             const char *name);

/* The beginning of an object or array: '{' or '['. */
zonal_status zonal__json_read_begin(zonal__json_reader *reader, char bracket);
/* Whether a member follows, with the comma before it taken; 0: the closing bracket was taken. */
zonal_status zonal__json_read_more(zonal__json_reader *reader, char closing, int *more);

zonal_status zonal__json_read_key(zonal__json_reader *reader, const char **key);
zonal_status zonal__json_read_text(zonal__json_reader *reader, const char **text);
/* A whole number of 64 bits, without fraction or exponent. */
zonal_status zonal__json_read_int(zonal__json_reader *reader, int64_t *value);
/* A number, or null, which is read as NaN: so zonal__json_double writes what is not finite. */
zonal_status zonal__json_read_double(zonal__json_reader *reader, double *value);
/* A value of any kind, checked and passed over. */
zonal_status zonal__json_read_skip(zonal__json_reader *reader);

/* Fails when anything but blanks is left. */
zonal_status zonal__json_read_end(zonal__json_reader *reader);

#endif
