#include "core/json_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/text.h"

void zonal__json_reader_init(zonal__json_reader *reader, char *text, size_t length,
                             const char *name) {
    *reader = (zonal__json_reader){.text = text, .at = text, .end = text + length, .name = name};
}

static zonal_status broken(const zonal__json_reader *reader, const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT, "%s is damaged: its JSON text breaks at byte %lld: %s",
                      reader->name, (long long)(reader->at - reader->text), what);
}

/* The next character that is not blank, not yet taken; 0 at the end. */
static char peek(zonal__json_reader *reader) {
    while (*reader->at == ' ' || *reader->at == '\n' || *reader->at == '\t' || *reader->at == '\r')
        reader->at++;
    return *reader->at;
}

static int take(zonal__json_reader *reader, char wanted) {
    if (peek(reader) != wanted) return 0;
    reader->at++;
    return 1;
}

zonal_status zonal__json_read_begin(zonal__json_reader *reader, char bracket) {
    if (!take(reader, bracket))
        return broken(reader, bracket == '{' ? "an object is missing" : "an array is missing");
    if (reader->depth == ZONAL__JSON_DEPTH) return broken(reader, "it is nested too deeply");
    reader->depth++;
    reader->first = 1;
    return ZONAL_OK;
}

zonal_status zonal__json_read_more(zonal__json_reader *reader, char closing, int *more) {
    int first = reader->first;
    *more = 0;
    reader->first = 0;
    if (take(reader, closing)) {
        reader->depth--;
        return ZONAL_OK;
    }
    if (!first && !take(reader, ',')) return broken(reader, "a comma is missing");
    *more = 1;
    return ZONAL_OK;
}

/* ---- strings --------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The four digits after \u. The text ends with a zero byte, which is no digit. */
static zonal_status read_code(zonal__json_reader *reader, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(*reader->at);
        if (digit < 0) return broken(reader, "four hexadecimal digits must follow \\u");
        *code = *code << 4 | (uint32_t)digit;
        reader->at++;
    }
    return ZONAL_OK;
}

/* A character written as \uXXXX, or as a pair of surrogates. */
static zonal_status read_unicode(zonal__json_reader *reader, char **out) {
    uint32_t code, low;
    ZONAL_TRY(read_code(reader, &code));
    if (code == 0) return broken(reader, "\\u0000 cannot be part of a text here");
    if (code >= 0xdc00 && code < 0xe000) return broken(reader, "half of a surrogate pair");
    if (code >= 0xd800 && code < 0xdc00) {
        if (reader->at[0] != '\\' || reader->at[1] != 'u')
            return broken(reader, "half of a surrogate pair");
        reader->at += 2;
        ZONAL_TRY(read_code(reader, &low));
        if (low < 0xdc00 || low >= 0xe000) return broken(reader, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *out += zonal__text_put_utf8(code, *out);
    return ZONAL_OK;
}

static zonal_status read_escape(zonal__json_reader *reader, char **out) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char letter = *reader->at;
    const char *found = letter ? strchr(letters, letter) : NULL;
    if (found) {
        reader->at++;
        *(*out)++ = meanings[found - letters];
        return ZONAL_OK;
    }
    if (letter != 'u') return broken(reader, "an unknown escape in a text");
    reader->at++;
    return read_unicode(reader, out);
}

/* What an escape stands for is never longer than the escape, so "out" never passes "at". */
zonal_status zonal__json_read_text(zonal__json_reader *reader, const char **text) {
    char *out;
    *text = NULL;
    if (!take(reader, '"')) return broken(reader, "a text is missing");
    *text = out = reader->at;
    while (*reader->at != '"') {
        int bytes = zonal__text_utf8(reader->at);
        if (reader->at == reader->end) return broken(reader, "a text has no end");
        if ((unsigned char)*reader->at < ' ') return broken(reader, "a control character");
        if (bytes == 0) return broken(reader, "bytes that are not UTF-8");
        if (*reader->at == '\\') {
            reader->at++;
            ZONAL_TRY(read_escape(reader, &out));
            continue;
        }
        memmove(out, reader->at, (size_t)bytes);
        out += bytes;
        reader->at += bytes;
    }
    reader->at++;
    *out = '\0';
    return ZONAL_OK;
}

zonal_status zonal__json_read_key(zonal__json_reader *reader, const char **key) {
    ZONAL_TRY(zonal__json_read_text(reader, key));
    return take(reader, ':') ? ZONAL_OK : broken(reader, "a colon is missing");
}

/* ---- numbers and the rest -------------------------------------------------------------------- */

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The bytes of the whole number at "at", 0 when there is none: -?(0|[1-9][0-9]*) */
static size_t whole_length(const char *at) {
    const char *start = at;
    at += *at == '-';
    if (*at == '0') return (size_t)(at + 1 - start);
    if (!is_digit(*at)) return 0;
    while (is_digit(*at)) at++;
    return (size_t)(at - start);
}

zonal_status zonal__json_read_int(zonal__json_reader *reader, int64_t *value) {
    int negative = peek(reader) == '-';
    size_t length = whole_length(reader->at);
    int64_t result = 0;
    char after = reader->at[length];
    if (length == 0 || after == '.' || after == 'e' || after == 'E' || is_digit(after))
        return broken(reader, "a whole number is missing");
    for (size_t i = (size_t)negative; i < length; i++) {
        int digit = reader->at[i] - '0';
        if (__builtin_mul_overflow(result, 10, &result) ||
            __builtin_add_overflow(result, negative ? -digit : digit, &result))
            return broken(reader, "a number does not fit into 64 bits");
    }
    reader->at += length;
    *value = result;
    return ZONAL_OK;
}

static zonal_status skip_digits(zonal__json_reader *reader) {
    if (!is_digit(*reader->at)) return broken(reader, "a digit is missing");
    while (is_digit(*reader->at)) reader->at++;
    return ZONAL_OK;
}

static zonal_status skip_number(zonal__json_reader *reader) {
    size_t length = whole_length(reader->at);
    if (length == 0) return broken(reader, "a value is missing");
    reader->at += length;
    if (*reader->at == '.') {
        reader->at++;
        ZONAL_TRY(skip_digits(reader));
    }
    if (*reader->at == 'e' || *reader->at == 'E') {
        reader->at++;
        reader->at += *reader->at == '+' || *reader->at == '-';
        ZONAL_TRY(skip_digits(reader));
    }
    return ZONAL_OK;
}

zonal_status zonal__json_read_double(zonal__json_reader *reader, double *value) {
    const char *start;
    if (peek(reader) == 'n') {
        ZONAL_TRY(zonal__json_read_skip(reader));
        *value = NAN;
        return ZONAL_OK;
    }
    start = reader->at;
    ZONAL_TRY(skip_number(reader));
    *value = strtod(start, NULL);
    return ZONAL_OK;
}

/* The depth is bounded by zonal__json_read_begin, and the recursion with it. */
static zonal_status skip_members(zonal__json_reader *reader, char bracket, char closing) {
    const char *key;
    int more;
    ZONAL_TRY(zonal__json_read_begin(reader, bracket));
    for (;;) {
        ZONAL_TRY(zonal__json_read_more(reader, closing, &more));
        if (!more) return ZONAL_OK;
        if (bracket == '{') ZONAL_TRY(zonal__json_read_key(reader, &key));
        ZONAL_TRY(zonal__json_read_skip(reader));
    }
}

zonal_status zonal__json_read_skip(zonal__json_reader *reader) {
    static const char *const words[] = {"true", "false", "null"};
    const char *text;
    char next = peek(reader);
    if (next == '"') return zonal__json_read_text(reader, &text);
    if (next == '{') return skip_members(reader, '{', '}');
    if (next == '[') return skip_members(reader, '[', ']');
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(words[i]);
        if (strncmp(reader->at, words[i], length) != 0) continue;
        reader->at += length;
        return ZONAL_OK;
    }
    return skip_number(reader);
}

zonal_status zonal__json_read_end(zonal__json_reader *reader) {
    peek(reader);
    return reader->at == reader->end ? ZONAL_OK : broken(reader, "something follows its end");
}
