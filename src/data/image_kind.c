/* The formats of image files by name (codec.h), and which of them this build reads. */
#include <string.h>
#include <strings.h>

#include "data/codec.h"

#define CONVERT "convert them to JPEG, PNG, WebP, BMP, GIF or TIFF"

static const struct {
    const char *format, *unread;
} kinds[ZONAL__IMAGE_KINDS] = {
    [ZONAL__IMAGE_NONE] = {"no image", "they are no images"},
    [ZONAL__IMAGE_JPEG] = {"JPEG", NULL},
    [ZONAL__IMAGE_PNG] = {"PNG", NULL},
    [ZONAL__IMAGE_BMP] = {"BMP", NULL},
#ifdef ZONAL_HAVE_WEBP
    [ZONAL__IMAGE_WEBP] = {"WebP", NULL},
#else
    [ZONAL__IMAGE_WEBP] = {"WebP",
                           "this build has no libwebp; install libwebp-dev and build again"},
#endif
#ifdef ZONAL_HAVE_GIF
    [ZONAL__IMAGE_GIF] = {"GIF", NULL},
#else
    [ZONAL__IMAGE_GIF] = {"GIF", "this build has no giflib; install libgif-dev and build again"},
#endif
#ifdef ZONAL_HAVE_TIFF
    [ZONAL__IMAGE_TIFF] = {"TIFF", NULL},
#else
    [ZONAL__IMAGE_TIFF] = {"TIFF",
                           "this build has no libtiff; install libtiff-dev and build again"},
#endif
    [ZONAL__IMAGE_HEIC] = {"HEIC", "zonal does not read it; " CONVERT},
    [ZONAL__IMAGE_AVIF] = {"AVIF", "zonal does not read it; " CONVERT},
    [ZONAL__IMAGE_JPEG_XL] = {"JPEG XL", "zonal does not read it; " CONVERT},
    [ZONAL__IMAGE_JPEG_2000] = {"JPEG 2000", "zonal does not read it; " CONVERT},
};

zonal__image_kind zonal__image_named(const char *name) {
    static const struct {
        const char *ending;
        zonal__image_kind kind;
    } known[] = {
        {".jpg", ZONAL__IMAGE_JPEG},      {".jpeg", ZONAL__IMAGE_JPEG},
        {".png", ZONAL__IMAGE_PNG},       {".webp", ZONAL__IMAGE_WEBP},
        {".bmp", ZONAL__IMAGE_BMP},       {".gif", ZONAL__IMAGE_GIF},
        {".tif", ZONAL__IMAGE_TIFF},      {".tiff", ZONAL__IMAGE_TIFF},
        {".heic", ZONAL__IMAGE_HEIC},     {".heif", ZONAL__IMAGE_HEIC},
        {".avif", ZONAL__IMAGE_AVIF},     {".jxl", ZONAL__IMAGE_JPEG_XL},
        {".jp2", ZONAL__IMAGE_JPEG_2000},
    };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof known / sizeof known[0]; i++)
        if (strcasecmp(dot, known[i].ending) == 0) return known[i].kind;
    return ZONAL__IMAGE_NONE;
}

const char *zonal__image_format(zonal__image_kind kind) {
    return kinds[kind].format;
}

const char *zonal__image_unread(zonal__image_kind kind) {
    return kinds[kind].unread;
}
