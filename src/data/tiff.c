/*
 * TIFF by libtiff: the first image of a file, whatever its compression and colours, brought to 8
 * bits by libtiff's own conversion. Alpha is dropped. The orientation is applied by codec.c.
 */
#include <string.h>

#include "data/formats.h"

#ifdef ZONAL_HAVE_TIFF

#include <stdio.h>

#include <tiffio.h>

#include "core/memory.h"

enum {
    MOST_PIXELS = 1 << 26, /* libtiff converts in memory, 4 bytes a pixel */
    MOST_MEMORY = 1 << 29  /* bytes that it may take at once */
};

typedef struct reader {
    const uint8_t *bytes;
    size_t size, at;
    char message[160]; /* the first error */
} reader;

/* ---- the file as libtiff sees it ------------------------------------------------------------- */

static tmsize_t on_read(thandle_t handle, void *out, tmsize_t bytes) {
    reader *r = handle;
    size_t left = r->at < r->size ? r->size - r->at : 0, n = bytes < 0 ? 0 : (size_t)bytes;
    if (n > left) n = left;
    if (n > 0) memcpy(out, r->bytes + r->at, n);
    r->at += n;
    return (tmsize_t)n;
}

static tmsize_t on_write(thandle_t handle, void *data, tmsize_t bytes) {
    (void)handle, (void)data, (void)bytes;
    return 0;
}

static toff_t on_seek(thandle_t handle, toff_t offset, int whence) {
    reader *r = handle;
    if (whence == SEEK_CUR) offset += r->at;
    if (whence == SEEK_END) offset += r->size;
    r->at = (size_t)offset;
    return offset;
}

static int on_close(thandle_t handle) {
    (void)handle;
    return 0;
}

static toff_t on_size(thandle_t handle) {
    return ((const reader *)handle)->size;
}

#if TIFFLIB_VERSION >= 20221213 /* 4.5: handlers of one file, and a limit of its memory */
static int on_error(TIFF *tiff, void *context, const char *module, const char *format,
                    va_list arguments) {
    reader *r = context;
    (void)tiff, (void)module;
    if (!r->message[0]) vsnprintf(r->message, sizeof r->message, format, arguments);
    return 1;
}

static int on_warning(TIFF *tiff, void *context, const char *module, const char *format,
                      va_list arguments) {
    (void)tiff, (void)context, (void)module, (void)format, (void)arguments;
    return 1;
}

static TIFF *open_tiff(reader *r, const char *name) {
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    TIFF *tiff;
    if (!options) return NULL;
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, MOST_MEMORY);
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, r);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, NULL);
    tiff = TIFFClientOpenExt(name, "rm", r, on_read, on_write, on_seek, on_close, on_size, NULL,
                             NULL, options);
    TIFFOpenOptionsFree(options);
    return tiff;
}
#else
static TIFF *open_tiff(reader *r, const char *name) {
    TIFFSetErrorHandler(NULL); /* it would print */
    TIFFSetWarningHandler(NULL);
    return TIFFClientOpen(name, "rm", r, on_read, on_write, on_seek, on_close, on_size, NULL, NULL);
}
#endif

/* ---- decoding -------------------------------------------------------------------------------- */

static zonal_status failure(const zonal__encoded *in, const char *why) {
    return ZONAL_FAIL(ZONAL_FORMAT, "%s is a TIFF that cannot be decoded: %s; save it again as PNG",
                      in->name, why[0] ? why : "it is damaged");
}

/* Alpha that is not known as such is not multiplied into the colours. */
static void forget_alpha(TIFF *tiff) {
    uint16_t count = 0, *kinds = NULL, unknown[8] = {EXTRASAMPLE_UNSPECIFIED};
    if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) && count > 0 && count <= 8)
        TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, count, unknown);
}

static zonal_status get_raster(TIFF *tiff, const zonal__encoded *in, const reader *r,
                               uint32_t *raster) {
    TIFFRGBAImage conversion;
    char why[1024] = "";
    int good;
    forget_alpha(tiff);
    if (!TIFFRGBAImageOK(tiff, why) || !TIFFRGBAImageBegin(&conversion, tiff, 1, why))
        return failure(in, why);
    conversion.orientation = conversion.req_orientation = ORIENTATION_TOPLEFT; /* as stored */
    good = TIFFRGBAImageGet(&conversion, raster, conversion.width, conversion.height);
    TIFFRGBAImageEnd(&conversion);
    return good ? ZONAL_OK : failure(in, r->message);
}

static zonal_status decode(TIFF *tiff, const zonal__encoded *in, const reader *r,
                           zonal__image *image) {
    int turned = in->info.orientation >= 5, channels = in->info.channels;
    int width = turned ? in->info.height : in->info.width;
    int height = turned ? in->info.width : in->info.height;
    uint32_t stored_width = 0, stored_height = 0, *raster;
    zonal_status status;
    TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &stored_width);
    TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &stored_height);
    if (stored_width != (uint32_t)width || stored_height != (uint32_t)height)
        return failure(in, "it tells two sizes");
    if ((int64_t)width * height > MOST_PIXELS)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s is a TIFF of more than %d pixels; make it smaller",
                          in->name, MOST_PIXELS);
    ZONAL_TRY(zonal__image_shape(image, width, height, channels));
    ZONAL_TRY(ZONAL_NEW(&raster, (int64_t)width * height, "a TIFF image"));
    status = get_raster(tiff, in, r, raster);
    for (size_t i = 0; status == ZONAL_OK && i < (size_t)width * (size_t)height; i++)
        for (int c = 0; c < channels; c++)
            image->pixels[i * (size_t)channels + (size_t)c] = (uint8_t)(raster[i] >> 8 * c);
    zonal__free(raster);
    return status;
}

zonal_status zonal__tiff_decode(const zonal__encoded *in, zonal__image *image) {
    reader r = {.bytes = in->bytes, .size = in->size};
    TIFF *tiff = open_tiff(&r, in->name);
    zonal_status status;
    if (!tiff) return failure(in, r.message);
    status = decode(tiff, in, &r, image);
    TIFFClose(tiff);
    return status;
}

#else

zonal_status zonal__tiff_decode(const zonal__encoded *in, zonal__image *image) {
    (void)image;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "%s is a TIFF: %s", in->name,
                      zonal__image_unread(ZONAL__IMAGE_TIFF));
}

#endif
