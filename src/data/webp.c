/*
 * WebP by libwebp. Of an animation the first frame is read, which must fill the whole image;
 * alpha is dropped.
 */
#include <string.h>

#include "data/formats.h"

#ifdef ZONAL_HAVE_WEBP

#include <webp/decode.h>

enum { CHUNK_HEAD = 8, FRAME_HEAD = 16, FILE_HEAD = 12 };

static uint32_t little(const uint8_t *at, int bytes) {
    uint32_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

/* The first frame of an animation as an image of its own; the whole file where it has none. */
static zonal__encoded first_frame(const zonal__encoded *in) {
    zonal__encoded frame = *in;
    size_t at = FILE_HEAD;
    while (in->size - at >= CHUNK_HEAD + FRAME_HEAD) {
        const uint8_t *chunk = in->bytes + at;
        size_t bytes = little(chunk + 4, 4), left = in->size - at - CHUNK_HEAD;
        if (memcmp(chunk, "ANMF", 4) == 0 && bytes > FRAME_HEAD && bytes <= left) {
            frame.bytes = chunk + CHUNK_HEAD + FRAME_HEAD;
            frame.size = bytes - FRAME_HEAD;
            return frame;
        }
        if (bytes + bytes % 2 > left) return frame;
        at += CHUNK_HEAD + bytes + bytes % 2;
    }
    return frame;
}

static zonal_status failure(const zonal__encoded *in, VP8StatusCode code) {
    if (code == VP8_STATUS_OUT_OF_MEMORY)
        return ZONAL_FAIL(ZONAL_MEMORY, "out of memory: libwebp decodes %s", in->name);
    return ZONAL_FAIL(
        ZONAL_FORMAT, "%s is a damaged WebP: %s; remove it or save it again", in->name,
        code == VP8_STATUS_NOT_ENOUGH_DATA ? "it ends early" : "it cannot be decoded");
}

zonal_status zonal__webp_decode(const zonal__encoded *in, zonal__image *image) {
    zonal__encoded frame = first_frame(in);
    WebPDecoderConfig config;
    VP8StatusCode code;
    if (!WebPInitDecoderConfig(&config)) return failure(in, VP8_STATUS_OUT_OF_MEMORY);
    code = WebPGetFeatures(frame.bytes, frame.size, &config.input);
    if (code != VP8_STATUS_OK) return failure(in, code);
    if (config.input.width != in->info.width || config.input.height != in->info.height)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a WebP of %d x %d pixels whose first frame has %d x %d; save it "
                          "again as one image",
                          in->name, in->info.width, in->info.height, config.input.width,
                          config.input.height);
    ZONAL_TRY(zonal__image_shape(image, in->info.width, in->info.height, 3));
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = image->pixels;
    config.output.u.RGBA.stride = 3 * image->width;
    config.output.u.RGBA.size = (size_t)image->width * (size_t)image->height * 3;
    code = WebPDecode(frame.bytes, frame.size, &config);
    WebPFreeDecBuffer(&config.output);
    return code == VP8_STATUS_OK ? ZONAL_OK : failure(in, code);
}

#else

zonal_status zonal__webp_decode(const zonal__encoded *in, zonal__image *image) {
    (void)image;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "%s is a WebP: %s", in->name,
                      zonal__image_unread(ZONAL__IMAGE_WEBP));
}

#endif
