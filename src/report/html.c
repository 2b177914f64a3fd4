#include "report/html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"

static const char *entity_of(char c) {
    switch (c) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* What would change the text around it instead of being read: controls, the marks by which text is
 * written from right to left, separators of lines, what has no width. */
static int is_harmful(const char *text, int bytes) {
    uint32_t code = (unsigned char)*text;
    static const uint32_t ranges[][2] = {{0x00, 0x08},     {0x0b, 0x1f},     {0x7f, 0x9f},
                                         {0xad, 0xad},     {0x61c, 0x61c},   {0x180e, 0x180e},
                                         {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
                                         {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};
    if (bytes > 1) code &= 0xffu >> (bytes + 1);
    for (int i = 1; i < bytes; i++) code = code << 6 | ((unsigned char)text[i] & 0x3f);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (code >= ranges[i][0] && code <= ranges[i][1]) return 1;
    return 0;
}

static int64_t count_characters(const char *text) {
    int64_t count = 0;
    for (int bytes; *text; text += bytes ? bytes : 1, count++) bytes = zonal__text_utf8(text);
    return count;
}

void zonal__html_short(zonal__file *file, const char *text, int64_t most) {
    int cut = count_characters(text) > most;
    for (int bytes; *text && most > cut; text += bytes ? bytes : 1, most--) {
        const char *entity = entity_of(*text);
        bytes = zonal__text_utf8(text);
        if (bytes == 0 || is_harmful(text, bytes))
            zonal__file_print(file, "\xef\xbf\xbd");
        else if (entity)
            zonal__file_print(file, "%s", entity);
        else
            zonal__file_write(file, text, (size_t)bytes);
    }
    if (cut) zonal__file_print(file, "\xe2\x80\xa6");
}

void zonal__html_text(zonal__file *file, const char *text) {
    zonal__html_short(file, text, INT64_MAX);
}

void zonal__html_number(zonal__file *file, double value, int decimals) {
    char digits[400];
    if (!isfinite(value)) {
        zonal__file_print(file, "\xe2\x80\x93");
        return;
    }
    snprintf(digits, sizeof digits, "%.*f", decimals, fabs(value));
    if (value < 0 && strspn(digits, "0.") < strlen(digits)) zonal__file_print(file, "\xe2\x88\x92");
    zonal__file_print(file, "%s", digits);
}

/* ---- PNG ------------------------------------------------------------------------------------- */

enum { STORED = 65535 }; /* the longest stored block of deflate */

typedef struct bytes {
    uint8_t *data;
    size_t length;
} bytes;

static void put_byte(bytes *out, unsigned value) {
    out->data[out->length++] = (uint8_t)value;
}

static void put_u32(bytes *out, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) put_byte(out, value >> shift & 255);
}

/* The checksum of PNG's chunks: CRC-32, bit by bit. */
static uint32_t crc32_of(const uint8_t *data, size_t length) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < length; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

/* A chunk's length and name; returns where the part begins that its checksum covers. */
static size_t begin_chunk(bytes *out, size_t length, const char *name) {
    size_t start = out->length + 4;
    put_u32(out, (uint32_t)length);
    for (int i = 0; i < 4; i++) put_byte(out, (unsigned char)name[i]);
    return start;
}

static void end_chunk(bytes *out, size_t start) {
    put_u32(out, crc32_of(out->data + start, out->length - start));
}

static void put_head(bytes *out, const zonal__image *image) {
    static const uint8_t signature[] = {137, 'P', 'N', 'G', 13, 10, 26, 10};
    size_t start;
    for (int i = 0; i < 8; i++) put_byte(out, signature[i]);
    start = begin_chunk(out, 13, "IHDR");
    put_u32(out, (uint32_t)image->width);
    put_u32(out, (uint32_t)image->height);
    put_byte(out, 8);
    put_byte(out, image->channels == 3 ? 2 : 0);
    for (int i = 0; i < 3; i++) put_byte(out, 0); /* deflate, the usual filters, not interlaced */
    end_chunk(out, start);
}

/* The rows, each behind a zero for "no filter", as stored blocks in a zlib stream. */
static void put_rows(bytes *out, const zonal__image *image) {
    size_t row = 1 + (size_t)image->width * (size_t)image->channels;
    size_t total = row * (size_t)image->height, blocks = (total + STORED - 1) / STORED;
    size_t start = begin_chunk(out, 2 + 5 * blocks + total + 4, "IDAT");
    uint32_t a = 1, b = 0; /* Adler-32 */
    put_byte(out, 0x78);
    put_byte(out, 0x01);
    for (size_t i = 0; i < total; i++) {
        unsigned value = i % row ? image->pixels[i / row * (row - 1) + i % row - 1] : 0;
        if (i % STORED == 0) {
            size_t length = total - i < STORED ? total - i : STORED;
            put_byte(out, i + length == total);
            put_byte(out, length & 255);
            put_byte(out, length >> 8 & 255);
            put_byte(out, ~length & 255);
            put_byte(out, ~length >> 8 & 255);
        }
        put_byte(out, value);
        a = (a + value) % 65521;
        b = (b + a) % 65521;
    }
    put_u32(out, b << 16 | a);
    end_chunk(out, start);
}

static zonal_status make_png(const zonal__image *image, bytes *out) {
    size_t total = ((size_t)image->width * (size_t)image->channels + 1) * (size_t)image->height;
    size_t room = 8 + 25 + 12 + 6 + 5 * (total / STORED + 1) + total + 12;
    *out = (bytes){0};
    ZONAL_TRY(ZONAL_NEW(&out->data, room, "an image of the page"));
    put_head(out, image);
    put_rows(out, image);
    end_chunk(out, begin_chunk(out, 0, "IEND"));
    return ZONAL_OK;
}

/* ---- base64 ---------------------------------------------------------------------------------- */

static void put_base64(zonal__file *file, const bytes *in) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < in->length; i += 3) {
        size_t left = in->length - i;
        uint32_t word = (uint32_t)in->data[i] << 16;
        char text[4];
        if (left > 1) word |= (uint32_t)in->data[i + 1] << 8;
        if (left > 2) word |= in->data[i + 2];
        text[0] = letters[word >> 18];
        text[1] = letters[word >> 12 & 63];
        text[2] = left > 1 ? letters[word >> 6 & 63] : '=';
        text[3] = left > 2 ? letters[word & 63] : '=';
        zonal__file_write(file, text, 4);
    }
}

zonal_status zonal__html_image(zonal__file *file, const zonal__image *image, const char *class_name,
                               const char *alt) {
    bytes png;
    ZONAL_TRY(make_png(image, &png));
    zonal__file_print(file, "<img class=\"%s\" width=\"%d\" height=\"%d\" alt=\"", class_name,
                      image->width, image->height);
    zonal__html_text(file, alt);
    zonal__file_print(file, "\" src=\"data:image/png;base64,");
    put_base64(file, &png);
    zonal__free(png.data);
    return zonal__file_print(file, "\">");
}
