/*
 * The heads of picture files: size, channels and orientation without a library. A JPEG is walked
 * from marker to marker up to its first scan (ITU-T T.81, annex B), its EXIF segment is a TIFF
 * directory of which one entry matters (EXIF 2.3, 4.6), and a PNG begins with all there is to know.
 *
 * Every number in a file may be a lie: nothing is read without comparing with the bytes left.
 */
#include <string.h>
#include <strings.h>

#include "data/codec.h"

enum {
    MARKER_RESTART_0 = 0xd0,
    MARKER_START = 0xd8,
    MARKER_END = 0xd9,
    MARKER_SCAN = 0xda,
    MARKER_APP_1 = 0xe1,
    MARKER_TEM = 0x01,
    EXIF_ORIENTATION = 0x0112,
    EXIF_SHORT = 3
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

static zonal_status check_size(const char *name, uint32_t width, uint32_t height) {
    if (width < 1 || height < 1)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a damaged picture: it claims %u x %u pixels; save it again", name,
                          width, height);
    if (width > ZONAL__IMAGE_SIDE || height > ZONAL__IMAGE_SIDE ||
        (int64_t)width * height > ZONAL__IMAGE_AREA)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s claims %u x %u pixels: sides must be at most %d, and at most %lld "
                          "pixels in all; make it smaller",
                          name, width, height, ZONAL__IMAGE_SIDE, (long long)ZONAL__IMAGE_AREA);
    return ZONAL_OK;
}

/* ---- EXIF ------------------------------------------------------------------------------------ */

static uint32_t tiff_number(const uint8_t *p, int bytes, int big) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | p[big ? i : bytes - 1 - i];
    return value;
}

/* The orientation that an APP1 segment tells, 1 to 8, or 0 when it tells none. */
static int exif_orientation(span segment) {
    span tiff;
    int big;
    uint32_t directory, entries;
    if (segment.size < 14 || memcmp(segment.at, "Exif\0\0", 6) != 0) return 0;
    tiff = (span){segment.at + 6, segment.size - 6};
    if (memcmp(tiff.at, "II*\0", 4) != 0 && memcmp(tiff.at, "MM\0*", 4) != 0) return 0;
    big = tiff.at[0] == 'M';
    directory = tiff_number(tiff.at + 4, 4, big);
    if (directory > tiff.size - 2) return 0;
    entries = tiff_number(tiff.at + directory, 2, big);
    for (size_t at = directory + 2; entries > 0 && at + 12 <= tiff.size; at += 12, entries--) {
        const uint8_t *entry = tiff.at + at;
        uint32_t value = tiff_number(entry + 8, 2, big);
        if (tiff_number(entry, 2, big) == EXIF_ORIENTATION &&
            tiff_number(entry + 2, 2, big) == EXIF_SHORT && value >= 1 && value <= 8)
            return (int)value;
    }
    return 0;
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
static void walk_jpeg(span file, zonal__picture_info *info) {
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

static zonal_status probe_jpeg(span file, const char *name, zonal__picture_info *info) {
    info->kind = ZONAL__PICTURE_JPEG;
    walk_jpeg(file, info);
    if (info->channels == 0)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a damaged JPEG: its head does not tell a size; save it again",
                          name);
    ZONAL_TRY(check_size(name, (uint32_t)info->width, (uint32_t)info->height));
    if (info->orientation >= 5) {
        int width = info->width;
        info->width = info->height;
        info->height = width;
    }
    return ZONAL_OK;
}

/* ---- PNG ------------------------------------------------------------------------------------- */

static zonal_status probe_png(span file, const char *name, zonal__picture_info *info) {
    uint32_t width, height;
    if (file.size < 33 || memcmp(file.at + 8, "\0\0\0\15IHDR", 8) != 0)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a damaged PNG: its head does not tell a size; save it again",
                          name);
    width = big32(file.at + 16);
    height = big32(file.at + 20);
    ZONAL_TRY(check_size(name, width, height));
    *info = (zonal__picture_info){.kind = ZONAL__PICTURE_PNG,
                                  .width = (int)width,
                                  .height = (int)height,
                                  .channels = file.at[25] & 2 ? 3 : 1, /* bit 1: colour is used */
                                  .orientation = 1};
    return ZONAL_OK;
}

zonal_status zonal__image_probe(const void *bytes, size_t size, const char *name,
                                zonal__picture_info *info) {
    span file = {bytes, size};
    *info = (zonal__picture_info){0};
    if (size == 0)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s is empty: not a picture; remove it or copy it again",
                          name);
    if (size >= 3 && memcmp(file.at, "\xff\xd8\xff", 3) == 0) return probe_jpeg(file, name, info);
    if (size >= 8 && memcmp(file.at, "\x89PNG\r\n\x1a\n", 8) == 0)
        return probe_png(file, name, info);
    return ZONAL_FAIL(ZONAL_FORMAT, "%s is neither a JPEG nor a PNG: convert it or remove it",
                      name);
}
