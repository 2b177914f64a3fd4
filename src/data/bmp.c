/*
 * BMP by hand: palettes of 1, 4 and 8 bits, 16, 24 and 32 bits, plain or by masks, rows from below
 * or from above; the head of OS/2 or one of Windows' of 40 bytes and more. Run-length compression
 * and images of other formats inside a BMP are refused. Alpha is dropped.
 */
#include <stdlib.h>
#include <string.h>

#include "data/formats.h"

enum {
    FILE_HEAD = 14,
    OLD_HEAD = 12,    /* of OS/2 */
    COMMON_HEAD = 40, /* the part that all others have */
    PLAIN = 0,
    BY_MASKS = 3
};

typedef struct head {
    int width, height, from_above, bits;
    uint32_t mask[3];       /* 16 and 32 bits: of red, green, blue */
    const uint8_t *palette; /* blue, green, red, and one more byte but in OS/2 */
    size_t colours, colour_bytes;
    const uint8_t *rows;
    size_t row; /* bytes, a multiple of 4 */
} head;

static uint32_t little(const uint8_t *at, int bytes) {
    uint32_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static zonal_status damaged(const char *name, const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT, "%s is a damaged BMP: %s; remove it or save it again", name,
                      what);
}

static zonal_status find_masks(const zonal__encoded *in, uint32_t packing, head *h) {
    static const uint32_t usual[2][3] = {{0x7c00, 0x3e0, 0x1f}, {0xff0000, 0xff00, 0xff}};
    size_t at = FILE_HEAD + COMMON_HEAD;
    memcpy(h->mask, usual[h->bits == 32], sizeof h->mask);
    if (packing == PLAIN) return ZONAL_OK;
    if (in->size < at + 12) return damaged(in->name, "it ends early");
    for (int c = 0; c < 3; c++) h->mask[c] = little(in->bytes + at + 4 * (size_t)c, 4);
    for (int c = 0; c < 3; c++)
        if (h->mask[c] == 0 || (h->bits == 16 && h->mask[c] >> 16))
            return damaged(in->name, "a colour has no bits");
    return ZONAL_OK;
}

static zonal_status find_palette(const zonal__encoded *in, size_t at, uint32_t colours, head *h) {
    size_t most = (size_t)1 << h->bits;
    h->colours = colours == 0 || colours > most ? most : colours;
    if (at > in->size || in->size - at < h->colours * h->colour_bytes)
        return damaged(in->name, "it ends early");
    h->palette = in->bytes + at;
    return ZONAL_OK;
}

static zonal_status find_rows(const zonal__encoded *in, head *h) {
    size_t at = little(in->bytes + 10, 4);
    h->row = ((size_t)h->width * (size_t)h->bits + 31) / 32 * 4;
    if (at > in->size || (in->size - at) / h->row < (size_t)h->height)
        return damaged(in->name, "it ends early");
    h->rows = in->bytes + at;
    return ZONAL_OK;
}

/* The sizes only: these are within the limits before anything else is believed. */
static zonal_status parse_sizes(const zonal__encoded *in, uint32_t size, head *h) {
    const uint8_t *at = in->bytes + FILE_HEAD + 4;
    int64_t width, height;
    if (size == OLD_HEAD) {
        width = little(at, 2);
        height = little(at + 2, 2);
        h->bits = (int)little(at + 6, 2);
    } else {
        width = (int32_t)little(at, 4);
        height = (int32_t)little(at + 4, 4);
        h->bits = (int)little(at + 10, 2);
    }
    h->from_above = height < 0;
    if (height < 0) height = -height;
    ZONAL_TRY(zonal__check_size(in->name, width, height));
    h->width = (int)width;
    h->height = (int)height;
    return ZONAL_OK;
}

static zonal_status parse(const zonal__encoded *in, head *h) {
    uint32_t size, packing = PLAIN, colours = 0;
    if (in->size < FILE_HEAD + OLD_HEAD) return damaged(in->name, "it ends early");
    size = little(in->bytes + FILE_HEAD, 4);
    if ((size != OLD_HEAD && size < COMMON_HEAD) || size > in->size - FILE_HEAD)
        return damaged(in->name, "its head has no known form");
    ZONAL_TRY(parse_sizes(in, size, h));
    h->colour_bytes = size == OLD_HEAD ? 3 : 4;
    if (size != OLD_HEAD) {
        packing = little(in->bytes + FILE_HEAD + 16, 4);
        colours = little(in->bytes + FILE_HEAD + 32, 4);
    }
    if (packing != PLAIN && !(packing == BY_MASKS && (h->bits == 16 || h->bits == 32)))
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a compressed BMP, which is not supported; save it as PNG",
                          in->name);
    if (h->bits == 16 || h->bits == 32)
        ZONAL_TRY(find_masks(in, packing, h));
    else if (h->bits == 1 || h->bits == 4 || h->bits == 8)
        ZONAL_TRY(find_palette(in, FILE_HEAD + size, colours, h));
    else if (h->bits != 24)
        return damaged(in->name, "its pixels have no known form");
    return find_rows(in, h);
}

static int is_grey(const head *h) {
    for (size_t i = 0; i < h->colours; i++) {
        const uint8_t *colour = h->palette + i * h->colour_bytes;
        if (colour[0] != colour[1] || colour[1] != colour[2]) return 0;
    }
    return h->palette != NULL;
}

zonal_status zonal__bmp_probe(const zonal__encoded *in, zonal__image_info *info) {
    head h = {0};
    ZONAL_TRY(parse(in, &h));
    *info = (zonal__image_info){.kind = ZONAL__IMAGE_BMP,
                                .width = h.width,
                                .height = h.height,
                                .channels = is_grey(&h) ? 1 : 3,
                                .orientation = 1};
    return ZONAL_OK;
}

/* ---- pixels ---------------------------------------------------------------------------------- */

static int read_palette_row(const head *h, const uint8_t *row, int channels, uint8_t *out) {
    unsigned bits = (unsigned)h->bits;
    for (unsigned x = 0; x < (unsigned)h->width; x++, out += channels) {
        unsigned at = x * bits, shift = 8 - bits - at % 8;
        size_t index = row[at / 8] >> shift & ((1u << bits) - 1);
        const uint8_t *colour = h->palette + index * h->colour_bytes;
        if (index >= h->colours) return 0;
        for (int c = 0; c < channels; c++) out[c] = colour[2 - c];
    }
    return 1;
}

/* The bits of a mask as a number from 0 to 255. */
static uint8_t masked(uint32_t value, uint32_t mask) {
    uint32_t lowest = mask & -mask;
    uint64_t most = mask / lowest;
    return (uint8_t)(((value & mask) / lowest * (uint64_t)255 + most / 2) / most);
}

static void read_masked_row(const head *h, const uint8_t *row, uint8_t *out) {
    int bytes = h->bits / 8;
    for (int x = 0; x < h->width; x++, row += bytes, out += 3) {
        uint32_t value = little(row, bytes);
        for (int c = 0; c < 3; c++) out[c] = masked(value, h->mask[c]);
    }
}

static void read_plain_row(const head *h, const uint8_t *row, uint8_t *out) {
    for (int x = 0; x < h->width; x++, row += 3, out += 3)
        for (int c = 0; c < 3; c++) out[c] = row[2 - c];
}

zonal_status zonal__bmp_decode(const zonal__encoded *in, zonal__image *image) {
    head h = {0};
    ZONAL_TRY(parse(in, &h));
    ZONAL_TRY(zonal__image_shape(image, h.width, h.height, in->info.channels));
    for (int y = 0; y < h.height; y++) {
        const uint8_t *row = h.rows + (size_t)(h.from_above ? y : h.height - 1 - y) * h.row;
        uint8_t *out = image->pixels + (size_t)y * (size_t)h.width * (size_t)image->channels;
        if (h.bits == 24)
            read_plain_row(&h, row, out);
        else if (h.bits > 8)
            read_masked_row(&h, row, out);
        else if (!read_palette_row(&h, row, image->channels, out))
            return damaged(in->name, "a pixel has a colour outside the palette");
    }
    return ZONAL_OK;
}
