/*
 * Which JPEG files can be left to a decoder in hardware: those of the one common kind, whose parts
 * are all where they belong (ITU-T T.81, annex B). Any doubt is a no, and the file goes to libjpeg,
 * which decodes it or says what is wrong with it.
 *
 * A decoder in hardware makes pixels up for codes that cannot be, where libjpeg refuses the file.
 * That much damage shows without decoding: tables that cannot be or are missing, a file that was
 * cut off and has no end marker, restarts out of their order or number, and other bytes in place of
 * a scan's, which soon have a marker among them that does not belong there.
 */
#include <string.h>

#include "data/formats.h"

enum {
    BASELINE = 0xc0,
    TABLES_HUFFMAN = 0xc4,
    RESTART_0 = 0xd0,
    RESTART_7 = 0xd7,
    START = 0xd8,
    END = 0xd9,
    SCAN = 0xda,
    TABLES_QUANTISATION = 0xdb,
    RESTART_INTERVAL = 0xdd,
    APP_0 = 0xe0,
    APP_14 = 0xee,
    APP_15 = 0xef,
    COMMENT = 0xfe
};

enum { COMPONENTS = 3, QUANTISATIONS = 4, HUFFMANS = 2, UNIT = 8 };

typedef struct span {
    const uint8_t *at;
    size_t size;
} span;

/* What comes before the codes. */
typedef struct head {
    int frames, width, height;
    int across, down;             /* samples of the first component for one of the others */
    int steps[COMPONENTS];        /* the quantisation table of each component */
    int has_steps[QUANTISATIONS]; /* which there are */
    int has_codes[2][HUFFMANS];   /* likewise of the Huffman tables, of DC and AC */
    int restart;                  /* units between two restarts; 0: none */
} head;

/* Three components 1, 2, 3 of 8 bits: the first sampled once or twice in each direction, the
 * others once. */
static int take_frame(span s, head *h) {
    if (s.size != 15 || s.at[0] != 8 || s.at[5] != COMPONENTS) return 0;
    for (int c = 0; c < COMPONENTS; c++) {
        const uint8_t *component = s.at + 6 + 3 * c;
        int across = component[1] >> 4, down = component[1] & 15, most = c == 0 ? 2 : 1;
        if (component[0] != c + 1 || across < 1 || across > most || down < 1 || down > most ||
            component[2] >= QUANTISATIONS)
            return 0;
        h->steps[c] = component[2];
        if (c > 0) continue;
        h->across = across;
        h->down = down;
    }
    h->height = s.at[1] << 8 | s.at[2];
    h->width = s.at[3] << 8 | s.at[4];
    return h->frames++ == 0 && h->width > 0 && h->height > 0;
}

/* Tables of 64 steps of 8 bits, none of them 0. */
static int take_steps(span s, head *h) {
    enum { STEPS = 64 };
    for (; s.size > 0; s.at += 1 + STEPS, s.size -= 1 + STEPS) {
        if (s.size < 1 + STEPS || s.at[0] >= QUANTISATIONS || memchr(s.at + 1, 0, STEPS)) return 0;
        h->has_steps[s.at[0]] = 1;
    }
    return 1;
}

/* A DC code stands for the bits of a difference, of which there are 11 at most. */
static int are_differences(const uint8_t *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (values[i] > 11) return 0;
    return 1;
}

/* Tables of codes: how many there are of each length, no more than there can be beside shorter
 * ones and the one of all ones, and what they stand for. */
static int take_codes(span s, head *h) {
    enum { LENGTHS = 16, HEAD = 1 + LENGTHS };
    while (s.size > 0) {
        int kind = s.at[0] >> 4, number = s.at[0] & 15, left = 1;
        size_t count = 0;
        if (s.size < HEAD || kind > 1 || number >= HUFFMANS) return 0;
        for (int i = 1; i <= LENGTHS; i++) {
            left = 2 * left - s.at[i];
            count += s.at[i];
            if (left < 1) return 0;
        }
        if (count < 1 || count > 256 || s.size < HEAD + count) return 0;
        if (kind == 0 && !are_differences(s.at + HEAD, count)) return 0;
        h->has_codes[kind][number] = 1;
        s = (span){s.at + HEAD + count, s.size - HEAD - count};
    }
    return 1;
}

static int take_restart(span s, head *h) {
    if (s.size != 2) return 0;
    h->restart = s.at[0] << 8 | s.at[1];
    return 1;
}

/* All components at once, with all their coefficients, by tables that are there. */
static int is_whole_scan(span s, const head *h) {
    if (h->frames != 1 || s.size != 10 || s.at[0] != COMPONENTS) return 0;
    for (int c = 0; c < COMPONENTS; c++) {
        int dc = s.at[2 + 2 * c] >> 4, ac = s.at[2 + 2 * c] & 15;
        if (s.at[1 + 2 * c] != c + 1 || dc >= HUFFMANS || ac >= HUFFMANS || !h->has_codes[0][dc] ||
            !h->has_codes[1][ac] || !h->has_steps[h->steps[c]])
            return 0;
    }
    return s.at[7] == 0 && s.at[8] == 63 && s.at[9] == 0;
}

/* Adobe's segment says by its last byte how colours are coded: 1 is YCbCr. */
static int is_coded_otherwise(int marker, span s) {
    return marker == APP_14 && s.size >= 12 && memcmp(s.at, "Adobe", 5) == 0 && s.at[11] != 1;
}

/* What is said before the scan; 0 for what should not be there. */
static int take_segment(int marker, span s, head *h) {
    switch (marker) {
    case BASELINE:
        return take_frame(s, h);
    case TABLES_QUANTISATION:
        return take_steps(s, h);
    case TABLES_HUFFMAN:
        return take_codes(s, h);
    case RESTART_INTERVAL:
        return take_restart(s, h);
    default:
        return marker == COMMENT ||
               (marker >= APP_0 && marker <= APP_15 && !is_coded_otherwise(marker, s));
    }
}

static int64_t restarts(const head *h) {
    int wide = UNIT * h->across, high = UNIT * h->down;
    int64_t units = (int64_t)((h->width + wide - 1) / wide) * ((h->height + high - 1) / high);
    return h->restart > 0 ? (units - 1) / h->restart : 0;
}

/* From the first byte of the codes on: nothing but codes and restarts in their order, all of them,
 * then the end. */
static int ends_well(span codes, const head *h) {
    const uint8_t *at = codes.at, *end = codes.at + codes.size;
    int64_t seen = 0, all = restarts(h);
    while ((at = memchr(at, 0xff, (size_t)(end - at))) != NULL && end - at >= 2) {
        int marker = at[1];
        if (marker == END) return seen == all;
        if (marker >= RESTART_0 && marker <= RESTART_7) {
            if (marker != RESTART_0 + seen % 8) return 0;
            seen++;
        } else if (marker != 0) {
            return 0;
        }
        at += 2;
    }
    return 0;
}

int zonal__jpeg_is_plain(const zonal__encoded *in) {
    const uint8_t *p = in->bytes;
    head h = {0};
    size_t at = 2;
    if (in->size < 4 || p[0] != 0xff || p[1] != START) return 0;
    while (in->size - at >= 4 && p[at] == 0xff) {
        int marker = p[at + 1];
        size_t length = (size_t)p[at + 2] << 8 | p[at + 3];
        span segment = {p + at + 4, length - 2};
        if (length < 2 || length > in->size - at - 2) return 0;
        at += 2 + length;
        if (marker == SCAN)
            return is_whole_scan(segment, &h) && ends_well((span){p + at, in->size - at}, &h);
        if (!take_segment(marker, segment, &h)) return 0;
    }
    return 0;
}
