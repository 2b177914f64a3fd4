/*
 * What codec.c asks of the formats. jpeg.c and png.c keep a state that they use again for the next
 * image. In a build without a format's library, create or decode fails with ZONAL_UNSUPPORTED and
 * names the package to install.
 */
#ifndef ZONAL_DATA_FORMATS_H
#define ZONAL_DATA_FORMATS_H

#include "data/codec.h"

/* A file in memory. */
typedef struct zonal__encoded {
    const uint8_t *bytes;
    size_t size;
    const char *name;
    zonal__image_info info; /* of zonal__image_probe */
} zonal__encoded;

typedef struct zonal__jpeg zonal__jpeg;
zonal_status zonal__jpeg_create(zonal__jpeg **out);
void zonal__jpeg_destroy(zonal__jpeg *jpeg); /* accepts NULL */
/* Decodes as stored, the orientation not applied; obeys both options. */
zonal_status zonal__jpeg_decode(zonal__jpeg *jpeg, const zonal__encoded *in,
                                const zonal__decode_options *options, zonal__image *image);

/* Whether a decoder in hardware can be trusted with the file: baseline, 8 bits, one scan of
 * three components that are YCbCr, at most halved in each direction, and nothing but restart
 * markers from its scan to its end. What is damaged within the scan's codes is not seen. */
int zonal__jpeg_is_plain(const zonal__encoded *in);

typedef struct zonal__png zonal__png;
zonal_status zonal__png_create(zonal__png **out);
void zonal__png_destroy(zonal__png *png); /* accepts NULL */
/* Decodes with the channels of in->info. */
zonal_status zonal__png_decode(zonal__png *png, const zonal__encoded *in, zonal__image *image);

/* These decode with the channels of in->info, as stored, the orientation not applied. */
zonal_status zonal__webp_decode(const zonal__encoded *in, zonal__image *image);
zonal_status zonal__bmp_decode(const zonal__encoded *in, zonal__image *image);
zonal_status zonal__gif_decode(const zonal__encoded *in, zonal__image *image);
zonal_status zonal__tiff_decode(const zonal__encoded *in, zonal__image *image);

/* For zonal__image_probe: in->info is not looked at. */
zonal_status zonal__bmp_probe(const zonal__encoded *in, zonal__image_info *info);

/* Sizes that a file claims, against the limits of data/image.h. */
zonal_status zonal__check_size(const char *name, int64_t width, int64_t height);

#endif
