/*
 * The heads of image files: size, channels and orientation without a library. A JPEG is walked
 * from marker to marker up to its first scan (ITU-T T.81, annex B), its EXIF segment is a TIFF
 * directory of which one entry matters (EXIF 2.3, 4.6), and the others begin with all there is to
 * know; a TIFF says where its directory lies.
 *
 * Every number in a file may be a lie: nothing is read without comparing with the bytes left.
 */
#include <string.h>

#include "data/formats.h"

enum {
    MARKER_RESTART_0 = 0xd0,
    MARKER_START = 0xd8,
    MARKER_END = 0xd9,
    MARKER_SCAN = 0xda,
    MARKER_APP_1 = 0xe1,
    MARKER_TEM = 0x01,
    TIFF_SHORT = 3, /* types of entries */
    TIFF_LONG = 4,
    TAG_WIDTH = 256,
    TAG_HEIGHT = 257,
    TAG_COLOURS = 262,
    TAG_ORIENTATION = 274,
    TAG_SAMPLES = 277
};

typedef struct span {
    const uint8_t *at;
    size_t size;
} span;

static unsigned big16(const uint8_t *p) {
    return (unsigned)p[0] << 8 | p[1];
}

static uint32_t big32(const uint8_t *p) {
    return (uint32_t)big16(p) << 16 | big16(p + 2);
}

zonal_status zonal__check_size(const char *name, int64_t width, int64_t height) {
    if (width < 1 || height < 1)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a damaged image: it claims %lld x %lld pixels; save it again",
                          name, (long long)width, (long long)height);
    if (width > ZONAL__IMAGE_SIDE || height > ZONAL__IMAGE_SIDE ||
        width * height > ZONAL__IMAGE_AREA)
        return ZONAL_FAIL(
            ZONAL_FORMAT,
            "%s claims %lld x %lld pixels: sides must be at most %d, and at most %lld "
            "pixels in all; make it smaller",
            name, (long long)width, (long long)height, ZONAL__IMAGE_SIDE,
            (long long)ZONAL__IMAGE_AREA);
    return ZONAL_OK;
}

/* ---- TIFF's directories, which EXIF has too -------------------------------------------------- */

static uint32_t tiff_number(const uint8_t *p, int bytes, int big) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | p[big ? i : bytes - 1 - i];
    return value;
}

static int is_tiff(span tiff) {
    return tiff.size >= 8 && (memcmp(tiff.at, "II*\0", 4) == 0 || memcmp(tiff.at, "MM\0*", 4) == 0);
}

/* The value of a tag of the first directory, where it is one number of 16 or 32 bits; otherwise
 * "none". */
static uint32_t tiff_value(span tiff, unsigned tag, uint32_t none) {
    int big = tiff.at[0] == 'M';
    uint32_t directory = tiff_number(tiff.at + 4, 4, big), entries;
    if (directory > tiff.size - 2) return none;
    entries = tiff_number(tiff.at + directory, 2, big);
    for (size_t at = directory + 2; entries > 0 && at + 12 <= tiff.size; at += 12, entries--) {
        const uint8_t *entry = tiff.at + at;
        uint32_t type = tiff_number(entry + 2, 2, big);
        if (tiff_number(entry, 2, big) != tag) continue;
        if (type == TIFF_SHORT) return tiff_number(entry + 8, 2, big);
        if (type == TIFF_LONG) return tiff_number(entry + 8, 4, big);
    }
    return none;
}

/* 1 to 8, or 0 when it tells none. */
static int tiff_orientation(span tiff) {
    uint32_t value = tiff_value(tiff, TAG_ORIENTATION, 0);
    return value <= 8 ? (int)value : 0;
}

/* The orientation that an APP1 segment tells, 1 to 8, or 0 when it tells none. */
static int exif_orientation(span segment) {
    span tiff;
    if (segment.size < 14 || memcmp(segment.at, "Exif\0\0", 6) != 0) return 0;
    tiff = (span){segment.at + 6, segment.size - 6};
    return is_tiff(tiff) ? tiff_orientation(tiff) : 0;
}

/* ---- JPEG ------------------------------------------------------------------------------------ */

/* Frames are C0 to CF, but for three of them: Huffman tables, a reserved one, arithmetic tables. */
static int is_frame(int marker) {
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static int stands_alone(int marker) {
    return marker == MARKER_TEM || (marker >= MARKER_RESTART_0 && marker <= MARKER_START);
}

/* The next marker after *at and what it holds; *at moves behind it. Returns 0 at the end of the
 * file. Bytes that belong to nothing are passed over, as libjpeg does. */
static int next_segment(span file, size_t *at, int *marker, span *segment) {
    size_t i = *at, length = 0;
    do {
        while (i < file.size && file.at[i] != 0xff) i++;
        while (i < file.size && file.at[i] == 0xff) i++;
        if (i >= file.size) return 0;
        *marker = file.at[i++];
    } while (*marker == 0);
    if (!stands_alone(*marker) && *marker != MARKER_END) {
        if (file.size - i < 2) return 0;
        length = big16(file.at + i);
        if (length < 2 || length > file.size - i) return 0;
        *segment = (span){file.at + i + 2, length - 2};
    }
    *at = i + length;
    return 1;
}

/* The sizes of the first frame, as they are stored: width 0 when there is none before the scan. */
static void walk_jpeg(span file, zonal__image_info *info) {
    size_t at = 2;
    int marker;
    span segment = {0};
    while (next_segment(file, &at, &marker, &segment) && marker != MARKER_SCAN &&
           marker != MARKER_END) {
        if (marker == MARKER_APP_1 && !info->orientation)
            info->orientation = exif_orientation(segment);
        if (!is_frame(marker) || info->width > 0 || segment.size < 6) continue;
        info->height = (int)big16(segment.at + 1);
        info->width = (int)big16(segment.at + 3);
        info->channels = segment.at[5] == 1 ? 1 : 3;
    }
    if (!info->orientation) info->orientation = 1;
}

/* Orientations 5 to 8 exchange width and height. */
static void stand_upright(zonal__image_info *info) {
    int width = info->width;
    if (info->orientation < 5) return;
    info->width = info->height;
    info->height = width;
}

static zonal_status probe_jpeg(span file, const char *name, zonal__image_info *info) {
    info->kind = ZONAL__IMAGE_JPEG;
    walk_jpeg(file, info);
    if (info->channels == 0)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a damaged JPEG: its header does not state a size; save it again",
                          name);
    ZONAL_TRY(zonal__check_size(name, info->width, info->height));
    stand_upright(info);
    return ZONAL_OK;
}

/* ---- PNG ------------------------------------------------------------------------------------- */

static zonal_status probe_png(span file, const char *name, zonal__image_info *info) {
    uint32_t width, height;
    if (file.size < 33 || memcmp(file.at + 8, "\0\0\0\15IHDR", 8) != 0)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a damaged PNG: its header does not state a size; save it again",
                          name);
    width = big32(file.at + 16);
    height = big32(file.at + 20);
    ZONAL_TRY(zonal__check_size(name, width, height));
    *info = (zonal__image_info){.kind = ZONAL__IMAGE_PNG,
                                .width = (int)width,
                                .height = (int)height,
                                .channels = file.at[25] & 2 ? 3 : 1, /* bit 1: colour is used */
                                .orientation = 1};
    return ZONAL_OK;
}

/* ---- WebP, GIF, TIFF ------------------------------------------------------------------------- */

static zonal_status no_size(const char *name, const char *format) {
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s is a damaged %s: its header does not state a size; save it again", name,
                      format);
}

static uint32_t little(const uint8_t *at, int bytes) {
    return tiff_number(at, bytes, 0);
}

/* The first chunk is a head of its own, VP8X, or the image, lossy or lossless (RFC 9649). */
static zonal_status probe_webp(span file, const char *name, zonal__image_info *info) {
    uint32_t width = 0, height = 0;
    if (file.size >= 30 && memcmp(file.at + 12, "VP8X", 4) == 0) {
        width = little(file.at + 24, 3) + 1;
        height = little(file.at + 27, 3) + 1;
    } else if (file.size >= 30 && memcmp(file.at + 12, "VP8 ", 4) == 0) {
        width = little(file.at + 26, 2) & 0x3fff;
        height = little(file.at + 28, 2) & 0x3fff;
    } else if (file.size >= 25 && memcmp(file.at + 12, "VP8L", 4) == 0) {
        uint32_t sizes = little(file.at + 21, 4);
        width = (sizes & 0x3fff) + 1;
        height = (sizes >> 14 & 0x3fff) + 1;
    } else {
        return no_size(name, "WebP");
    }
    ZONAL_TRY(zonal__check_size(name, width, height));
    *info = (zonal__image_info){ZONAL__IMAGE_WEBP, (int)width, (int)height, 3, 1};
    return ZONAL_OK;
}

static zonal_status probe_gif(span file, const char *name, zonal__image_info *info) {
    uint32_t width, height;
    if (file.size < 13) return no_size(name, "GIF");
    width = little(file.at + 6, 2);
    height = little(file.at + 8, 2);
    ZONAL_TRY(zonal__check_size(name, width, height));
    *info = (zonal__image_info){ZONAL__IMAGE_GIF, (int)width, (int)height, 3, 1};
    return ZONAL_OK;
}

/* Grey is what is white at 0 or at its largest number. */
static zonal_status probe_tiff(span file, const char *name, zonal__image_info *info) {
    uint32_t width = tiff_value(file, TAG_WIDTH, 0), height = tiff_value(file, TAG_HEIGHT, 0);
    uint32_t samples = tiff_value(file, TAG_SAMPLES, 1), colours = tiff_value(file, TAG_COLOURS, 2);
    int orientation = tiff_orientation(file);
    if (width == 0 || height == 0) return no_size(name, "TIFF");
    ZONAL_TRY(zonal__check_size(name, width, height));
    *info = (zonal__image_info){.kind = ZONAL__IMAGE_TIFF,
                                .width = (int)width,
                                .height = (int)height,
                                .channels = colours <= 1 && samples <= 2 ? 1 : 3,
                                .orientation = orientation ? orientation : 1};
    stand_upright(info);
    return ZONAL_OK;
}

static zonal_status probe_bmp(span file, const char *name, zonal__image_info *info) {
    return zonal__bmp_probe(&(zonal__encoded){.bytes = file.at, .size = file.size, .name = name},
                            info);
}

typedef zonal_status probe(span file, const char *name, zonal__image_info *info);

static int begins(span file, const char *magic, size_t bytes) {
    return file.size >= bytes && memcmp(file.at, magic, bytes) == 0;
}

/* By the first bytes; NULL for a format that is not known. */
static probe *probe_of(span file) {
    if (begins(file, "\xff\xd8\xff", 3)) return probe_jpeg;
    if (begins(file, "\x89PNG\r\n\x1a\n", 8)) return probe_png;
    if (begins(file, "RIFF", 4) && file.size >= 12 && memcmp(file.at + 8, "WEBP", 4) == 0)
        return probe_webp;
    if (begins(file, "BM", 2)) return probe_bmp;
    if (begins(file, "GIF87a", 6) || begins(file, "GIF89a", 6)) return probe_gif;
    return is_tiff(file) ? probe_tiff : NULL;
}

static zonal_status not_known(span file, const char *name) {
    if (file.size == 0)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s is empty: not an image; remove it or copy it again",
                          name);
    if (begins(file, "II+\0", 4) || begins(file, "MM\0+", 4))
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a BigTIFF, which is not read; save it as a plain TIFF or a PNG",
                          name);
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s is neither JPEG, PNG, WebP, BMP, GIF nor TIFF: convert it or remove it",
                      name);
}

zonal_status zonal__image_recognise(const void *bytes, size_t size, const char *name) {
    const span file = {bytes, size};
    return probe_of(file) ? ZONAL_OK : not_known(file, name);
}

zonal_status zonal__image_probe(const void *bytes, size_t size, const char *name,
                                zonal__image_info *info) {
    const span file = {bytes, size};
    probe *probe_it = probe_of(file);
    *info = (zonal__image_info){0};
    return probe_it ? probe_it(file, name, info) : not_known(file, name);
}
