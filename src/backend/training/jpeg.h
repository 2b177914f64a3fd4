/*
 * JPEG files decoded by a device, many at a time, into its memory.
 *
 * The files are of the plain kind that data/formats.h describes, and their sizes are known. Pixels
 * come out as 8-bit RGB, row by row; they differ from libjpeg's by about half a unit of 255 on
 * average, because the colours' lower resolution is brought up in another way. The same file gives
 * the same bits each time.
 */
#ifndef ZONAL_BACKEND_TRAINING_JPEG_H
#define ZONAL_BACKEND_TRAINING_JPEG_H

#include "backend/device.h"

typedef struct zonal__jpeg_engine zonal__jpeg_engine;

typedef struct zonal__jpeg_file {
    const uint8_t *bytes; /* of the host */
    size_t size;
    uint8_t *pixels; /* of the device: [height][width][3] */
    int width, height;
} zonal__jpeg_file;

typedef struct zonal__jpeg_table {
    /* ZONAL_UNSUPPORTED, with the remedy, where the library or the hardware is missing. */
    zonal_status (*create)(const zonal__device *device, zonal__jpeg_engine **out);
    /* Later work of the stream waits for the pixels, but decoding may begin at once, whatever the
     * stream has to do before (nvJPEG's does on some GPUs): the caller waits until the pixels'
     * memory may be written. The call may last until the files are decoded. They must stay until
     * then, and the engine takes no others. ZONAL_FORMAT where one of them cannot be decoded. */
    zonal_status (*decode)(zonal__jpeg_engine *engine, void *stream, int64_t count,
                           const zonal__jpeg_file *files);
    void (*destroy)(zonal__jpeg_engine *engine); /* accepts NULL */
} zonal__jpeg_table;

#endif
