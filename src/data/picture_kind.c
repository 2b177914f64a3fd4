/* The formats of image files by name (codec.h), and which of them this build reads. */
#include <string.h>
#include <strings.h>

#include "data/codec.h"

#define CONVERT "convert them to JPEG, PNG, WebP, BMP, GIF or TIFF"

static const struct {
    const char *format, *unread;
} kinds[ZONAL__PICTURE_KINDS] = {
    [ZONAL__PICTURE_NONE] = {"no image", "they are no images"},
    [ZONAL__PICTURE_JPEG] = {"JPEG", NULL},
    [ZONAL__PICTURE_PNG] = {"PNG", NULL},
    [ZONAL__PICTURE_BMP] = {"BMP", NULL},
#ifdef ZONAL_HAVE_WEBP
    [ZONAL__PICTURE_WEBP] = {"WebP", NULL},
#else
    [ZONAL__PICTURE_WEBP] = {"WebP",
                             "this build has no libwebp; install libwebp-dev and build again"},
#endif
#ifdef ZONAL_HAVE_GIF
    [ZONAL__PICTURE_GIF] = {"GIF", NULL},
#else
    [ZONAL__PICTURE_GIF] = {"GIF", "this build has no giflib; install libgif-dev and build again"},
#endif
#ifdef ZONAL_HAVE_TIFF
    [ZONAL__PICTURE_TIFF] = {"TIFF", NULL},
#else
    [ZONAL__PICTURE_TIFF] = {"TIFF",
                             "this build has no libtiff; install libtiff-dev and build again"},
#endif
    [ZONAL__PICTURE_HEIC] = {"HEIC", "zonal does not read it; " CONVERT},
    [ZONAL__PICTURE_AVIF] = {"AVIF", "zonal does not read it; " CONVERT},
    [ZONAL__PICTURE_JPEG_XL] = {"JPEG XL", "zonal does not read it; " CONVERT},
    [ZONAL__PICTURE_JPEG_2000] = {"JPEG 2000", "zonal does not read it; " CONVERT},
};

zonal__picture_kind zonal__picture_named(const char *name) {
    static const struct {
        const char *ending;
        zonal__picture_kind kind;
    } known[] = {
        {".jpg", ZONAL__PICTURE_JPEG},      {".jpeg", ZONAL__PICTURE_JPEG},
        {".png", ZONAL__PICTURE_PNG},       {".webp", ZONAL__PICTURE_WEBP},
        {".bmp", ZONAL__PICTURE_BMP},       {".gif", ZONAL__PICTURE_GIF},
        {".tif", ZONAL__PICTURE_TIFF},      {".tiff", ZONAL__PICTURE_TIFF},
        {".heic", ZONAL__PICTURE_HEIC},     {".heif", ZONAL__PICTURE_HEIC},
        {".avif", ZONAL__PICTURE_AVIF},     {".jxl", ZONAL__PICTURE_JPEG_XL},
        {".jp2", ZONAL__PICTURE_JPEG_2000},
    };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof known / sizeof known[0]; i++)
        if (strcasecmp(dot, known[i].ending) == 0) return known[i].kind;
    return ZONAL__PICTURE_NONE;
}

const char *zonal__picture_format(zonal__picture_kind kind) {
    return kinds[kind].format;
}

const char *zonal__picture_unread(zonal__picture_kind kind) {
    return kinds[kind].unread;
}
