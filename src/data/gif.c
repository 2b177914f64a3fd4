/*
 * GIF by giflib: the first frame. What it leaves free of the screen, and its transparent pixels,
 * have the colour that stands in the palette for transparent, or its first colour, as in Pillow.
 */
#include <string.h>

#include "data/formats.h"

#ifdef ZONAL_HAVE_GIF

#include <gif_lib.h>

typedef struct reader {
    const uint8_t *at;
    size_t left;
} reader;

static int on_read(GifFileType *gif, GifByteType *out, int bytes) {
    reader *r = gif->UserData;
    size_t n = bytes < 0 ? 0 : (size_t)bytes;
    if (n > r->left) n = r->left;
    if (n > 0) memcpy(out, r->at, n);
    r->at += n;
    r->left -= n;
    return (int)n;
}

static zonal_status failure(const zonal__encoded *in, int code) {
    const char *why = GifErrorString(code);
    if (code == D_GIF_ERR_NOT_ENOUGH_MEM)
        return ZONAL_FAIL(ZONAL_MEMORY, "out of memory: giflib decodes %s", in->name);
    return ZONAL_FAIL(ZONAL_FORMAT, "%s is a damaged GIF: %s; remove it or save it again", in->name,
                      why ? why : "it ends early");
}

/* Goes to the first frame; *transparent: its number, or -1. Returns 0 where there is none. */
static int find_frame(GifFileType *gif, int *transparent) {
    GifRecordType type;
    *transparent = -1;
    while (DGifGetRecordType(gif, &type) == GIF_OK && type != TERMINATE_RECORD_TYPE) {
        GifByteType *block;
        int code;
        if (type == IMAGE_DESC_RECORD_TYPE) return DGifGetImageDesc(gif) == GIF_OK;
        if (type != EXTENSION_RECORD_TYPE) return 0;
        if (DGifGetExtension(gif, &code, &block) != GIF_OK) return 0;
        while (block) {
            GraphicsControlBlock control;
            if (code == GRAPHICS_EXT_FUNC_CODE &&
                DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
                *transparent = control.TransparentColor;
            if (DGifGetExtensionNext(gif, &block) != GIF_OK) return 0;
        }
    }
    return 0;
}

static void put_colour(const ColorMapObject *map, int index, uint8_t *out) {
    const GifColorType black = {0, 0, 0};
    GifColorType colour = index < map->ColorCount ? map->Colors[index] : black;
    out[0] = colour.Red;
    out[1] = colour.Green;
    out[2] = colour.Blue;
}

/* Indices go where the last of the line's colours will be, and become colours from the left. */
static int read_line(GifFileType *gif, const ColorMapObject *map, uint8_t *out) {
    int width = gif->Image.Width;
    uint8_t *indices = out + 2 * (size_t)width;
    if (DGifGetLine(gif, indices, width) != GIF_OK) return 0;
    for (int x = 0; x < width; x++) put_colour(map, indices[x], out + 3 * (size_t)x);
    return 1;
}

static int read_lines(GifFileType *gif, const ColorMapObject *map, zonal__image *image) {
    static const int begin[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2}; /* of interlaced lines */
    const GifImageDesc *frame = &gif->Image;
    for (int pass = 0; pass < (frame->Interlace ? 4 : 1); pass++)
        for (int y = frame->Interlace ? begin[pass] : 0; y < frame->Height;
             y += frame->Interlace ? step[pass] : 1) {
            size_t at = (size_t)(frame->Top + y) * (size_t)image->width + (size_t)frame->Left;
            if (!read_line(gif, map, image->pixels + 3 * at)) return 0;
        }
    return 1;
}

static zonal_status decode(GifFileType *gif, const zonal__encoded *in, zonal__image *image) {
    const GifImageDesc *frame = &gif->Image;
    const ColorMapObject *map;
    int transparent;
    if (!find_frame(gif, &transparent)) return failure(in, gif->Error);
    map = frame->ColorMap ? frame->ColorMap : gif->SColorMap;
    if (!map || frame->Width < 1 || frame->Height < 1 || frame->Left < 0 || frame->Top < 0 ||
        frame->Left > in->info.width - frame->Width || frame->Top > in->info.height - frame->Height)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a damaged GIF: its first frame does not fit; remove it or save it "
                          "again",
                          in->name);
    ZONAL_TRY(zonal__image_shape(image, in->info.width, in->info.height, 3));
    if (frame->Width < image->width || frame->Height < image->height)
        for (size_t i = 0; i < (size_t)image->width * (size_t)image->height; i++)
            put_colour(map, transparent < 0 ? 0 : transparent, image->pixels + 3 * i);
    return read_lines(gif, map, image) ? ZONAL_OK : failure(in, gif->Error);
}

zonal_status zonal__gif_decode(const zonal__encoded *in, zonal__image *image) {
    reader r = {in->bytes, in->size};
    int code = 0;
    GifFileType *gif = DGifOpen(&r, on_read, &code);
    zonal_status status;
    if (!gif) return failure(in, code);
    status = decode(gif, in, image);
    DGifCloseFile(gif, &code);
    return status;
}

#else

zonal_status zonal__gif_decode(const zonal__encoded *in, zonal__image *image) {
    (void)image;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "%s is a GIF: %s", in->name,
                      zonal__image_unread(ZONAL__IMAGE_GIF));
}

#endif
