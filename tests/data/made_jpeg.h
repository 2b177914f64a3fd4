/*
 * JPEG files of any size and sampling, made here: baseline, every block of one brightness, the
 * colour the same all over, so that decoders agree however they bring the colours up to full
 * resolution.
 */
#ifndef ZONAL_TESTS_DATA_MADE_JPEG_H
#define ZONAL_TESTS_DATA_MADE_JPEG_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct made_jpeg {
    int width, height;
    int across, down; /* samples of brightness for one of colour: 2, 2 is 4:2:0; 4, 1 is 4:1:1 */
    unsigned seed;
    int restart; /* units between two restarts; 0: none */
} made_jpeg;

enum {
    MADE_JPEG_HEAD = 256,
    MADE_JPEG_BLOCK = 4
}; /* bytes at most: before the codes; a block,
    * a restart */

typedef struct made_jpeg_out {
    unsigned char *at;
    size_t count;
    unsigned bits, held; /* not written yet: how many, and they */
} made_jpeg_out;

static inline void made_jpeg_bytes(made_jpeg_out *o, const unsigned char *bytes, size_t count) {
    memcpy(o->at + o->count, bytes, count);
    o->count += count;
}

static inline void made_jpeg_bits(made_jpeg_out *o, unsigned value, unsigned bits) {
    for (unsigned i = bits; i-- > 0;) {
        o->held = o->held << 1 | (value >> i & 1);
        if (++o->bits < 8) continue;
        o->at[o->count++] = (unsigned char)o->held;
        if ((o->held & 0xff) == 0xff) o->at[o->count++] = 0;
        o->bits = o->held = 0;
    }
}

/* At the next whole byte; ones fill the one before. */
static inline void made_jpeg_marker(made_jpeg_out *o, int marker) {
    made_jpeg_bits(o, 0x7f, 7);
    o->bits = o->held = 0;
    o->at[o->count++] = 0xff;
    o->at[o->count++] = (unsigned char)marker;
}

/* Its mean as the difference from the last, and "no more": codes of 4 bits for the length of the
 * difference, and of one bit. */
static inline void made_jpeg_block(made_jpeg_out *o, int mean, int *last) {
    int difference = mean - *last;
    unsigned size = 0;
    while (abs(difference) >> size) size++;
    made_jpeg_bits(o, size, 4);
    made_jpeg_bits(o, (unsigned)(difference < 0 ? difference - 1 : difference) & ((1u << size) - 1),
                   size);
    made_jpeg_bits(o, 0, 1);
    *last = mean;
}

static inline void made_jpeg_head(const made_jpeg *j, made_jpeg_out *o) {
    const unsigned char frame[] = {0xff,
                                   0xd8,
                                   0xff,
                                   0xc0,
                                   0,
                                   17,
                                   8,
                                   (unsigned char)(j->height >> 8),
                                   (unsigned char)j->height,
                                   (unsigned char)(j->width >> 8),
                                   (unsigned char)j->width,
                                   3,
                                   1,
                                   (unsigned char)(j->across << 4 | j->down),
                                   0,
                                   2,
                                   0x11,
                                   0,
                                   3,
                                   0x11,
                                   0};
    const unsigned char restart[] = {
        0xff, 0xdd, 0, 4, (unsigned char)(j->restart >> 8), (unsigned char)j->restart};
    static const unsigned char steps[] = {0xff, 0xdb, 0, 67, 0};
    static const unsigned char means[] = {0xff, 0xc4, 0, 31, 0, 0, 0, 0, 12, 0, 0,
                                          0,    0,    0, 0,  0, 0, 0, 0, 0,  0};
    static const unsigned char lengths[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    static const unsigned char rest[] = {0xff, 0xc4, 0, 20, 0x10, 1, 0, 0, 0, 0, 0,
                                         0,    0,    0, 0,  0,    0, 0, 0, 0, 0, 0};
    static const unsigned char scan[] = {0xff, 0xda, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 63, 0};
    made_jpeg_bytes(o, frame, sizeof frame);
    made_jpeg_bytes(o, steps, sizeof steps);
    memset(o->at + o->count, 8, 64);
    o->count += 64;
    made_jpeg_bytes(o, means, sizeof means);
    made_jpeg_bytes(o, lengths, sizeof lengths);
    made_jpeg_bytes(o, rest, sizeof rest);
    if (j->restart > 0) made_jpeg_bytes(o, restart, sizeof restart);
    made_jpeg_bytes(o, scan, sizeof scan);
}

static inline int made_jpeg_units(const made_jpeg *j) {
    int wide = 8 * j->across, high = 8 * j->down;
    return (j->width + wide - 1) / wide * ((j->height + high - 1) / high);
}

/* The most bytes that it can have. */
static inline size_t made_jpeg_most(const made_jpeg *j) {
    return MADE_JPEG_HEAD +
           (size_t)made_jpeg_units(j) * (size_t)(j->across * j->down + 3) * MADE_JPEG_BLOCK;
}

/* Returns its bytes. */
static inline size_t made_jpeg_write(const made_jpeg *j, unsigned char *to) {
    made_jpeg_out o = {.at = to};
    uint32_t random = j->seed * 2654435761u + 1;
    int blue = (int)(j->seed % 7) * 8 - 24, red = (int)(j->seed % 5) * 8 - 16;
    int last[3] = {0, 0, 0};
    made_jpeg_head(j, &o);
    for (int unit = 0; unit < made_jpeg_units(j); unit++) {
        if (unit > 0 && j->restart > 0 && unit % j->restart == 0) {
            made_jpeg_marker(&o, 0xd0 + (unit / j->restart - 1) % 8);
            memset(last, 0, sizeof last);
        }
        for (int b = 0; b < j->across * j->down; b++) {
            random = random * 1664525u + 1013904223u;
            made_jpeg_block(&o, (int)(random >> 24) * 3 / 4 - 96, &last[0]);
        }
        made_jpeg_block(&o, blue, &last[1]);
        made_jpeg_block(&o, red, &last[2]);
    }
    made_jpeg_marker(&o, 0xd9);
    return o.count;
}

#endif
