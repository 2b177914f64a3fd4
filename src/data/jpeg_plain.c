/*
 * Which JPEG files can be left to a decoder in hardware: those of the one common kind, whose parts
 * are all where they belong (ITU-T T.81, annex B). Any doubt is a no, and the file goes to libjpeg,
 * which decodes it or says what is wrong with it.
 *
 * A decoder in hardware makes pixels up for codes that cannot be, where libjpeg refuses the file.
 * That much damage shows without decoding: a file that was cut off has no end marker, and other
 * bytes in place of a scan's soon have a marker among them that does not belong there.
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

typedef struct span {
    const uint8_t *at;
    size_t size;
} span;

/* Three components 1, 2, 3 of 8 bits: the first sampled once or twice in each direction, the
 * others once. */
static int is_usual_frame(span s) {
    if (s.size != 15 || s.at[0] != 8 || s.at[5] != 3) return 0;
    for (int c = 0; c < 3; c++) {
        const uint8_t *component = s.at + 6 + 3 * c;
        int across = component[1] >> 4, down = component[1] & 15, most = c == 0 ? 2 : 1;
        if (component[0] != c + 1 || across < 1 || across > most || down < 1 || down > most)
            return 0;
    }
    return 1;
}

/* All components at once, with all their coefficients. */
static int is_whole_scan(span s) {
    if (s.size != 10 || s.at[0] != 3) return 0;
    for (int c = 0; c < 3; c++)
        if (s.at[1 + 2 * c] != c + 1) return 0;
    return s.at[7] == 0 && s.at[8] == 63 && s.at[9] == 0;
}

/* Adobe's segment says by its last byte how colours are coded: 1 is YCbCr. */
static int is_coded_otherwise(int marker, span s) {
    return marker == APP_14 && s.size >= 12 && memcmp(s.at, "Adobe", 5) == 0 && s.at[11] != 1;
}

static int may_precede_scan(int marker) {
    return marker == TABLES_HUFFMAN || marker == TABLES_QUANTISATION || marker == COMMENT ||
           marker == RESTART_INTERVAL || (marker >= APP_0 && marker <= APP_15);
}

/* From the first byte of the codes on: nothing but codes and restarts in their order, then the
 * end. */
static int ends_well(span codes) {
    const uint8_t *at = codes.at, *end = codes.at + codes.size;
    int restart = 0;
    while ((at = memchr(at, 0xff, (size_t)(end - at))) != NULL && end - at >= 2) {
        int marker = at[1];
        if (marker == END) return 1;
        if (marker >= RESTART_0 && marker <= RESTART_7) {
            if (marker != RESTART_0 + restart) return 0;
            restart = (restart + 1) % 8;
        } else if (marker != 0) {
            return 0;
        }
        at += 2;
    }
    return 0;
}

int zonal__jpeg_is_plain(const zonal__encoded *in) {
    const uint8_t *p = in->bytes;
    size_t at = 2;
    int frames = 0;
    if (in->size < 4 || p[0] != 0xff || p[1] != START) return 0;
    while (in->size - at >= 4 && p[at] == 0xff) {
        int marker = p[at + 1];
        size_t length = (size_t)p[at + 2] << 8 | p[at + 3];
        span segment = {p + at + 4, length - 2};
        if (length < 2 || length > in->size - at - 2 || is_coded_otherwise(marker, segment))
            return 0;
        at += 2 + length;
        if (marker == SCAN)
            return frames == 1 && is_whole_scan(segment) &&
                   ends_well((span){p + at, in->size - at});
        if (marker == BASELINE ? !is_usual_frame(segment) : !may_precede_scan(marker)) return 0;
        frames += marker == BASELINE;
    }
    return 0;
}
