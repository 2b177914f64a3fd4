#include "core/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"

enum { FIRST_CAPACITY = 4096, FLUSH_AT = 65536 };

void zonal__json_init(zonal__json *json, FILE *stream) {
    memset(json, 0, sizeof *json);
    json->stream = stream;
}

void zonal__json_fini(zonal__json *json) {
    zonal__free(json->text);
    memset(json, 0, sizeof *json);
}

static void flush(zonal__json *json) {
    if (!json->stream || json->status != ZONAL_OK) return;
    if (fwrite(json->text, 1, json->length, json->stream) != json->length)
        json->status = ZONAL_FAIL(ZONAL_IO, "cannot write the JSON text: %s", strerror(errno));
    json->length = 0;
}

static zonal_status grow(zonal__json *json, size_t needed) {
    size_t capacity = json->capacity ? json->capacity : FIRST_CAPACITY;
    char *text;
    while (capacity < needed) capacity *= 2;
    ZONAL_TRY(ZONAL_NEW(&text, capacity, "the JSON text"));
    if (json->length) memcpy(text, json->text, json->length);
    zonal__free(json->text);
    json->text = text;
    json->capacity = capacity;
    return ZONAL_OK;
}

static void put(zonal__json *json, const char *bytes, size_t count) {
    if (json->status != ZONAL_OK) return;
    if (json->stream && json->length >= FLUSH_AT) flush(json);
    if (json->length + count + 1 > json->capacity)
        json->status = grow(json, json->length + count + 1);
    if (json->status != ZONAL_OK) return;
    memcpy(json->text + json->length, bytes, count);
    json->length += count;
}

static void put_text(zonal__json *json, const char *text) {
    put(json, text, strlen(text));
}

static void misuse(zonal__json *json, const char *what) {
    if (json->status == ZONAL_OK)
        json->status = ZONAL_FAIL(ZONAL_ARGUMENT, "JSON is being written out of order: %s", what);
}

static char level(const zonal__json *json) {
    return json->open[json->depth];
}

/* The comma and the blank before member number "members" of the open level. */
static void put_separator(zonal__json *json, int object_follows) {
    int own_line = json->depth == 1 || (json->depth == 2 && level(json) == '[' && object_follows);
    if (json->members[json->depth]++ > 0) put_text(json, own_line ? "," : ", ");
    if (own_line) put_text(json, json->depth == 1 ? "\n  " : "\n    ");
}

static void before_value(zonal__json *json, int object_follows) {
    if (json->depth == 0 && json->members[0]++ > 0) misuse(json, "a second outermost value");
    if (level(json) == '{' && !json->after_key) misuse(json, "a value in an object needs a key");
    if (level(json) == '[') put_separator(json, object_follows);
    json->after_key = 0;
}

static void begin(zonal__json *json, char bracket) {
    before_value(json, bracket == '{');
    if (json->depth == ZONAL__JSON_DEPTH) {
        misuse(json, "too deep");
        return;
    }
    json->depth++;
    json->open[json->depth] = bracket;
    json->members[json->depth] = 0;
    put(json, &bracket, 1);
}

static void end(zonal__json *json, char bracket, char closing) {
    if (json->depth == 0 || level(json) != bracket || json->after_key) {
        misuse(json, "an end without its beginning");
        return;
    }
    if (json->depth == 1 && json->members[1] > 0) put_text(json, "\n");
    json->depth--;
    put(json, &closing, 1);
}

void zonal__json_begin_object(zonal__json *json) {
    begin(json, '{');
}

void zonal__json_end_object(zonal__json *json) {
    end(json, '{', '}');
}

void zonal__json_begin_array(zonal__json *json) {
    begin(json, '[');
}

void zonal__json_end_array(zonal__json *json) {
    end(json, '[', ']');
}

static void put_quoted(zonal__json *json, const char *text) {
    put_text(json, "\"");
    while (*text) {
        unsigned char c = (unsigned char)*text;
        char escape[8];
        int bytes = zonal__text_utf8(text);
        if (bytes == 0) {
            put_text(json, "\xef\xbf\xbd");
            bytes = 1;
        } else if (c == '"' || c == '\\') {
            snprintf(escape, sizeof escape, "\\%c", c);
            put_text(json, escape);
        } else if (c == '\n') {
            put_text(json, "\\n");
        } else if (c < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
            put_text(json, escape);
        } else {
            put(json, text, (size_t)bytes);
        }
        text += bytes;
    }
    put_text(json, "\"");
}

void zonal__json_key(zonal__json *json, const char *key) {
    if (level(json) != '{' || json->after_key) {
        misuse(json, "a key belongs into an object and is followed by a value");
        return;
    }
    put_separator(json, 0);
    put_quoted(json, key);
    put_text(json, ": ");
    json->after_key = 1;
}

void zonal__json_double(zonal__json *json, double value) {
    char text[40];
    if (!isfinite(value)) {
        zonal__json_null(json);
        return;
    }
    snprintf(text, sizeof text, "%.17g", value);
    /* A program may have set a locale with a decimal comma; JSON knows only the point. */
    for (char *c = text; *c; c++)
        if (*c == ',') *c = '.';
    before_value(json, 0);
    put_text(json, text);
}

void zonal__json_int(zonal__json *json, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    before_value(json, 0);
    put_text(json, text);
}

void zonal__json_bool(zonal__json *json, int value) {
    before_value(json, 0);
    put_text(json, value ? "true" : "false");
}

void zonal__json_null(zonal__json *json) {
    before_value(json, 0);
    put_text(json, "null");
}

void zonal__json_raw(zonal__json *json, const char *value, size_t length) {
    before_value(json, length > 0 && value[0] == '{');
    put(json, value, length);
}

void zonal__json_text(zonal__json *json, const char *value) {
    if (!value) {
        zonal__json_null(json);
        return;
    }
    before_value(json, 0);
    put_quoted(json, value);
}

void zonal__json_key_double(zonal__json *json, const char *key, double value) {
    zonal__json_key(json, key);
    zonal__json_double(json, value);
}

void zonal__json_key_int(zonal__json *json, const char *key, int64_t value) {
    zonal__json_key(json, key);
    zonal__json_int(json, value);
}

void zonal__json_key_bool(zonal__json *json, const char *key, int value) {
    zonal__json_key(json, key);
    zonal__json_bool(json, value);
}

void zonal__json_key_text(zonal__json *json, const char *key, const char *value) {
    zonal__json_key(json, key);
    zonal__json_text(json, value);
}

zonal_status zonal__json_finish(zonal__json *json, const char **text) {
    if (text) *text = NULL;
    if (json->depth > 0 || json->members[0] != 1) misuse(json, "the text ends too early");
    put_text(json, "\n");
    if (json->status == ZONAL_OK) json->text[json->length] = '\0';
    flush(json);
    if (json->status == ZONAL_OK && text && !json->stream) *text = json->text;
    return json->status;
}
