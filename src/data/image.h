/*
 * Images in memory: 8-bit elements, row by row, channels interleaved.
 *
 * An image keeps its memory and grows it when a larger image comes, so that a worker that reads
 * images of one kind into the same image allocates nothing after the first few.
 */
#ifndef ZONAL_DATA_IMAGE_H
#define ZONAL_DATA_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* Sides and areas beyond these are refused: a file of a few bytes can claim any size. */
enum { ZONAL__IMAGE_SIDE = 32768 };
static const int64_t ZONAL__IMAGE_AREA = (int64_t)1 << 28;

typedef struct zonal__image {
    int width, height, channels; /* channels: 1 grey, 3 RGB */
    uint8_t *pixels;             /* [height][width][channels] */
    size_t room;                 /* bytes that pixels holds */
    size_t encoded;              /* not 0: pixels holds a JPEG file of so many bytes instead, to be
                                  * decoded elsewhere to that shape (zonal__decode_options) */
} zonal__image;

/* Makes room for an image of that shape; its pixels are not set. Zero-initialise before the first
 * call. On failure (ZONAL_SHAPE: too large; ZONAL_MEMORY) the image is empty. */
zonal_status zonal__image_shape(zonal__image *image, int width, int height, int channels);

/* Releases the memory; the image can be used again. */
void zonal__image_fini(zonal__image *image);

/* Grey to RGB by repetition, RGB to grey by 0.299 R + 0.587 G + 0.114 B, rounded; the same number
 * of channels copies. in and out differ. */
zonal_status zonal__image_convert(const zonal__image *in, int channels, zonal__image *out);

/* The same for n pixels; where "from" differs from "to", out may begin where in does (3 to 1), or
 * in may be the last n bytes of out (1 to 3). */
void zonal__pixels_convert(const uint8_t *in, int from, int to, size_t n, uint8_t *out);

/* What resampling needs besides the images; it grows as images do. Zero-initialise. */
typedef struct zonal__resampler {
    struct zonal__resampler_side {
        int taps;      /* of one result element, at most */
        int *first;    /* [side]: the first source element of each */
        float *weight; /* [side][taps] */
        size_t first_room, weight_room;
    } across, down;
    float *wide; /* [height of the source][width of the result][channels] */
    size_t wide_room;
} zonal__resampler;

void zonal__resampler_fini(zonal__resampler *resampler);

/* Resamples to width x height by the triangle filter, widened where it shrinks (what Pillow calls
 * BILINEAR): an average, free of aliases. in and out differ. */
zonal_status zonal__image_resample(zonal__resampler *resampler, const zonal__image *in, int width,
                                   int height, zonal__image *out);

/* The size that an image of this size is brought down to where its longer side exceeds "limit":
 * that side becomes the limit, the other is rounded, to at least 1. */
void zonal__image_limited_size(int limit, int *width, int *height);

/* Brings an image down to that size, by zonal__image_resample; a smaller one is left alone. "spare"
 * is scratch memory that changes places with the image. */
zonal_status zonal__image_limit(zonal__resampler *resampler, int limit, zonal__image *spare,
                                zonal__image *image);

#endif
