#include "core/text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_WORD = 63, LONGEST_NUMBER = 63 };

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Edit distance with swaps of neighbours, by rows: "older" and "old" are the two rows before. */
int zonal__text_distance(const char *a, const char *b) {
    int older[LONGEST_WORD + 1], old[LONGEST_WORD + 1], now[LONGEST_WORD + 1];
    size_t m = strlen(a), n = strlen(b);
    if (m > LONGEST_WORD || n > LONGEST_WORD) return (int)(m > n ? m : n);
    for (size_t j = 0; j <= n; j++) older[j] = old[j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            now[j] = old[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = least(now[j], least(old[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], older[j - 2] + 1);
        }
        memcpy(older, old, sizeof old);
        memcpy(old, now, sizeof now);
    }
    return old[n];
}

static const char *only_completion(const char *word, const char *const *names) {
    const char *found = NULL;
    size_t length = strlen(word);
    if (length < 3) return NULL;
    for (; *names; names++) {
        if (strncmp(*names, word, length) != 0) continue;
        if (found) return NULL;
        found = *names;
    }
    return found;
}

const char *zonal__text_nearest(const char *word, const char *const *names) {
    const char *found = only_completion(word, names);
    int best = least(3, (int)least(100, (int)(strlen(word) + 1) / 3));
    if (found) return found;
    for (; *names; names++) {
        int distance = zonal__text_distance(word, *names);
        if (distance < best || (distance == best && !found)) {
            best = distance;
            found = *names;
        }
    }
    return found;
}

/* Whether the first "length" characters are a number, and none follows that could belong to it.
 * strtod takes blanks, hexadecimal and words as well; the characters are checked first. */
static int parse_double(const char *text, size_t length, double *out) {
    char *end;
    if (length == 0 || strspn(text, "+-.0123456789eE") != length) return 0;
    *out = strtod(text, &end);
    return end == text + length && isfinite(*out);
}

zonal_status zonal__text_double(const char *text, const char *option, double *out) {
    double value;
    if (!parse_double(text, strlen(text), &value))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be a finite number, got \"%s\"", option, text);
    *out = value;
    return ZONAL_OK;
}

zonal_status zonal__text_int64(const char *text, const char *option, int64_t *out) {
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    long long value;
    if (!digits[0] || digits[strspn(digits, "0123456789")])
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be a whole number, got \"%s\"", option, text);
    errno = 0;
    value = strtoll(text, NULL, 10);
    if (errno == ERANGE)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s is out of range: %s does not fit into 64 bits",
                          option, text);
    *out = value;
    return ZONAL_OK;
}

zonal_status zonal__text_scale(const char *text, const char *option, zonal__scale *out) {
    size_t length = strlen(text);
    zonal__scale scale = {1, 0};
    int over_d = length > 2 && strcmp(text + length - 2, "/d") == 0;
    if (strcmp(text, "d") == 0) {
        scale.power = 1;
        *out = scale;
        return ZONAL_OK;
    }
    if (over_d) {
        length -= 2;
        scale.power = -1;
    }
    if (parse_double(text, length, &scale.factor)) {
        *out = scale;
        return ZONAL_OK;
    }
    return ZONAL_FAIL(
        ZONAL_ARGUMENT,
        "%s must be a number, a number over the dimension such as 5/d, or d, got \"%s\"", option,
        text);
}

double zonal__scale_value(zonal__scale scale, int64_t d) {
    if (scale.power < 0) return scale.factor / (double)d;
    return scale.power > 0 ? scale.factor * (double)d : scale.factor;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Copies the entry at *text, which ends at a comma, and moves *text behind it; NULL after the
 * last. "number" is that of the entry, from 0. */
static zonal_status next_entry(const char **text, const char *shown, int number, int most,
                               char entry[LONGEST_NUMBER + 1]) {
    size_t length = strcspn(*text, ",");
    if (number == most)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s takes at most %d numbers, separated by commas", shown,
                          most);
    if (length > LONGEST_NUMBER)
        return ZONAL_FAIL(
            ZONAL_ARGUMENT,
            "%s takes numbers of at most %d characters, got %.20s...; write it shorter", shown,
            LONGEST_NUMBER, *text);
    memcpy(entry, *text, length);
    entry[length] = '\0';
    *text = (*text)[length] ? *text + length + 1 : NULL;
    return ZONAL_OK;
}

zonal_status zonal__list_int64(const char *text, const char *shown, int64_t low, int64_t high,
                               int most, int64_t *out, int *count) {
    char entry[LONGEST_NUMBER + 1];
    int n = 0;
    while (text) {
        ZONAL_TRY(next_entry(&text, shown, n, most, entry));
        ZONAL_TRY(zonal__text_int64(entry, shown, &out[n]));
        if (out[n] < low || out[n] > high)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be from %lld to %lld, got %s", shown,
                              (long long)low, (long long)high, entry);
        n++;
    }
    *count = n;
    return ZONAL_OK;
}

zonal_status zonal__list_double(const char *text, const char *shown, int most, double *out,
                                int *count) {
    char entry[LONGEST_NUMBER + 1];
    int n = 0;
    while (text) {
        ZONAL_TRY(next_entry(&text, shown, n, most, entry));
        ZONAL_TRY(zonal__text_double(entry, shown, &out[n++]));
    }
    *count = n;
    return ZONAL_OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

const char *zonal__text_plural(int64_t count) {
    return count == 1 ? "" : "s";
}

/* The bytes of the character at "text" and its number; 0 when they are not valid UTF-8. */
static int decode_utf8(const char *text, uint32_t *number) {
    static const struct {
        unsigned char mask, lead;
        int bytes;
        uint32_t first;
    } forms[] = {{0x80, 0x00, 1, 0},
                 {0xe0, 0xc0, 2, 0x80},
                 {0xf0, 0xe0, 3, 0x800},
                 {0xf8, 0xf0, 4, 0x10000}};
    const unsigned char *s = (const unsigned char *)text;
    for (int form = 0; form < 4; form++) {
        uint32_t code = s[0] & (unsigned char)~forms[form].mask;
        if ((s[0] & forms[form].mask) != forms[form].lead) continue;
        for (int i = 1; i < forms[form].bytes; i++) {
            if ((s[i] & 0xc0) != 0x80) return 0;
            code = code << 6 | (s[i] & 0x3f);
        }
        /* Overlong forms, surrogates and codes past the end of Unicode are not characters. */
        if (code < forms[form].first || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return 0;
        *number = code;
        return forms[form].bytes;
    }
    return 0;
}

char *zonal__text_behind_mark(char *text) {
    static const char mark[] = "\xef\xbb\xbf";
    return strncmp(text, mark, sizeof mark - 1) == 0 ? text + sizeof mark - 1 : text;
}

int zonal__text_utf8(const char *text) {
    uint32_t code;
    return decode_utf8(text, &code);
}

/* Control characters, and Unicode's marks of direction and separators of lines. */
static int is_hidden(uint32_t code) {
    static const uint32_t ranges[][2] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},
                                         {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (code >= ranges[i][0] && code <= ranges[i][1]) return 1;
    return 0;
}

int zonal__text_hidden(const char *text, int *bytes) {
    uint32_t code;
    *bytes = decode_utf8(text, &code);
    if (*bytes > 0) return is_hidden(code);
    *bytes = 1;
    return 1;
}

char *zonal__text_plain(const char *text, char *out, size_t size) {
    size_t used = 0, safe = 0; /* safe: where "..." still fits */
    while (*text) {
        char piece[8];
        uint32_t code;
        int bytes = decode_utf8(text, &code);
        size_t length;
        if (bytes > 0 && !is_hidden(code))
            snprintf(piece, sizeof piece, "%.*s", bytes, text);
        else if (bytes > 1)
            snprintf(piece, sizeof piece, "\\u%04x", (unsigned)code);
        else
            snprintf(piece, sizeof piece, "\\x%02x", (unsigned)(unsigned char)*text);
        length = strlen(piece);
        if (used + length >= size) {
            memcpy(out + safe, "...", 4);
            return out;
        }
        memcpy(out + used, piece, length);
        used += length;
        if (used + 4 <= size) safe = used;
        text += bytes > 0 ? bytes : 1;
    }
    out[used] = '\0';
    return out;
}

void zonal__text_shorten(const char *sentence, char *out, size_t size) {
    static const char gap[] = " ... ";
    size_t length = strlen(sentence), tail = size / 2, head = size - tail - sizeof gap;
    if (length < size) {
        memcpy(out, sentence, length + 1);
        return;
    }
    memcpy(out, sentence, head);
    memcpy(out + head, gap, sizeof gap - 1);
    memcpy(out + head + sizeof gap - 1, sentence + length - tail, tail + 1);
}

char *zonal__text_p(double log10_p, char out[ZONAL__P_TEXT]) {
    static const double LEAST_OF_DOUBLE = -300, LEAST_SHOWN = -99999;
    if (isnan(log10_p))
        snprintf(out, ZONAL__P_TEXT, "-");
    else if (log10_p < LEAST_SHOWN)
        snprintf(out, ZONAL__P_TEXT, "<1e%.0f", isinf(log10_p) ? LEAST_OF_DOUBLE : LEAST_SHOWN);
    else if (log10_p < LEAST_OF_DOUBLE)
        snprintf(out, ZONAL__P_TEXT, "1e%.0f", log10_p);
    else
        snprintf(out, ZONAL__P_TEXT, log10_p < -4 ? "%.1e" : "%.4f", pow(10, log10_p));
    return out;
}

int zonal__text_put_utf8(uint32_t code, char out[4]) {
    static const unsigned char leads[] = {0x00, 0xc0, 0xe0, 0xf0};
    int bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = bytes - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)(leads[bytes - 1] | code);
    return bytes;
}

void zonal__text_append(char *out, size_t size, const char *format, ...) {
    size_t used = strlen(out);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out + used, size - used, format, arguments);
    va_end(arguments);
}
