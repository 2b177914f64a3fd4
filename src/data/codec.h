/*
 * Image files: JPEG, PNG, WebP, BMP, GIF and TIFF in, PNG out.
 *
 *     zonal__decoder *decoder;                              one for each thread
 *     ZONAL_TRY(zonal__decoder_create(&decoder));
 *     zonal__image_read(decoder, "cat.jpg", &options, &image);
 *     zonal__decoder_destroy(decoder);
 *
 * A decoder keeps its memory between images, as an image does: reading images of one kind
 * allocates nothing here after the first few. (libjpeg takes some working memory of its own from
 * malloc for each image.)
 *
 * What a file says is brought to 8 bits, grey or RGB, upright:
 *
 *   JPEG    grey, YCbCr and RGB; CMYK and YCCK become RGB by R = (1 - C)(1 - K), and where there is
 *           an Adobe marker, as in Photoshop's files, the inks are taken to be stored inverted. The
 *           EXIF orientation is applied. Asked for grey, the luma of the file is taken as it is.
 *   PNG     palettes and 1, 2 and 4 bits are widened; of 16 bits the upper 8 are taken; alpha and
 *           transparent colours are dropped, as Pillow's convert("RGB") does, not blended.
 *   WebP    lossy and lossless; alpha is dropped; of an animation the first frame.
 *   BMP     1 to 32 bits, uncompressed; alpha is dropped.
 *   GIF     the first frame.
 *   TIFF    the first image, up to 2^26 pixels, by libtiff's conversion to 8 bits; alpha is
 *           dropped, the orientation is applied.
 *
 * Colour profiles and gamma are not applied.
 *
 * Damage that can be told is not passed on as an image: impossible data, and a file that ends
 * early, even by its last byte, are ZONAL_FORMAT with a sentence that names the file. (JPEG has no
 * checksums: a flipped bit may well be another valid image.) So are sizes beyond the limits of
 * data/image.h, which are checked before memory is allocated. A build without the library of a
 * format gives ZONAL_UNSUPPORTED for such files; BMP needs none.
 */
#ifndef ZONAL_DATA_CODEC_H
#define ZONAL_DATA_CODEC_H

#include "data/image.h"

typedef struct zonal__decoder zonal__decoder; /* used by one thread at a time */

typedef struct zonal__decode_options {
    int channels; /* 1 grey, 3 RGB; 0: as the file has it */
    int min_side; /* JPEG may be decoded at a half, a quarter or an eighth of its size as long as
                   * both sides stay at least this long; 0: full size */
    int encoded_side; /* JPEG files that a device can decode, of sides up to this, are given as they
                       * are (zonal__image.encoded); 0: none */
} zonal__decode_options;

/* The formats that a file's name can stand for. Those after TIFF are known by name only, so that
 * they can be counted. */
typedef enum zonal__image_kind {
    ZONAL__IMAGE_NONE = 0,
    ZONAL__IMAGE_JPEG = 1,
    ZONAL__IMAGE_PNG = 2,
    ZONAL__IMAGE_WEBP = 3,
    ZONAL__IMAGE_BMP = 4,
    ZONAL__IMAGE_GIF = 5,
    ZONAL__IMAGE_TIFF = 6,
    ZONAL__IMAGE_HEIC = 7,
    ZONAL__IMAGE_AVIF = 8,
    ZONAL__IMAGE_JPEG_XL = 9,
    ZONAL__IMAGE_JPEG_2000 = 10,
    ZONAL__IMAGE_KINDS = 11
} zonal__image_kind;

/* What the head of a file says, as decoding with options of 0 would give it. */
typedef struct zonal__image_info {
    zonal__image_kind kind;
    int width, height; /* upright */
    int channels;      /* 1 or 3 */
    int orientation;   /* EXIF, 1 to 8: how the stored image has to be turned; 1: not at all */
} zonal__image_info;

/* By how the name ends, in letters of any case: .jpg, .jpeg, .png, .webp, .bmp, .gif, .tif, .tiff,
 * ... NONE: not as an image's name does. */
zonal__image_kind zonal__image_named(const char *name);

/* "JPEG", ... */
const char *zonal__image_format(zonal__image_kind kind);

/* NULL where this build reads the format; otherwise why it does not, and the remedy, for the end of
 * a sentence. Files of a format whose library is missing are found by name but for JPEG and PNG,
 * whose sentence comes when one is read. */
const char *zonal__image_unread(zonal__image_kind kind);

/* Whether the first bytes are those of a format above: the sentence of zonal__image_probe where
 * they are not. 12 bytes are enough. */
zonal_status zonal__image_recognise(const void *bytes, size_t size, const char *name);

/* Reads the head only: needs no library, and allocates nothing. "name" is for the sentence.
 * ZONAL_FORMAT: none of the formats above, damaged, or too large. */
zonal_status zonal__image_probe(const void *bytes, size_t size, const char *name,
                                zonal__image_info *info);

zonal_status zonal__decoder_create(zonal__decoder **out);
void zonal__decoder_destroy(zonal__decoder *decoder); /* accepts NULL */

/* Decodes a file that lies in memory. options NULL: as the file has it. After a failure the image
 * may be given to the next call; its pixels mean nothing. */
zonal_status zonal__image_decode(zonal__decoder *decoder, const void *bytes, size_t size,
                                 const char *name, const zonal__decode_options *options,
                                 zonal__image *image);

/* Decodes a file. ZONAL_IO where it cannot be read. */
zonal_status zonal__image_read(zonal__decoder *decoder, const char *path,
                               const zonal__decode_options *options, zonal__image *image);

/* Writes a PNG of 8 bits, grey or RGB, that appears whole or not at all (core/file.h). */
zonal_status zonal__image_write_png(const char *path, const zonal__image *image);
/* ZONAL_UNSUPPORTED in a build that writes none, before anything is made to hold them. */
zonal_status zonal__image_can_write_png(void);

#endif
