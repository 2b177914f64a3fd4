/*
 * Image files: which format, the bytes of a file, and what is done alike for all formats.
 */
#include "data/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "data/formats.h"

enum {
    LARGEST_FILE = 1 << 30, /* bytes; ZONAL__IMAGE_AREA pixels hardly need as many */
    LARGEST_KEPT = 1 << 26, /* room that a decoder keeps for the next file */
    HEAD = 1 << 16          /* what tells the format, and most images whole */
};

struct zonal__decoder {
    zonal__jpeg *jpeg; /* both are made when the first image of their kind comes */
    zonal__png *png;
    zonal__image scratch; /* an image before it is turned or loses its colours */
    uint8_t *bytes;       /* the file */
    size_t room;
};

zonal_status zonal__decoder_create(zonal__decoder **out) {
    return ZONAL_NEW(out, 1, "an image decoder");
}

void zonal__decoder_destroy(zonal__decoder *decoder) {
    if (!decoder) return;
    zonal__jpeg_destroy(decoder->jpeg);
    zonal__png_destroy(decoder->png);
    zonal__image_fini(&decoder->scratch);
    zonal__free(decoder->bytes);
    zonal__free(decoder);
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* Orientations 5 to 8 exchange rows and columns; before that, 2, 3, 7 and 8 mirror the stored
 * image left to right, and 3, 4, 6 and 7 mirror it top to bottom. */
static zonal_status turn(const zonal__image *in, int orientation, zonal__image *out) {
    int exchange = orientation >= 5, channels = in->channels;
    int mirror_x = orientation == 2 || orientation == 3 || orientation >= 7;
    int mirror_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    ptrdiff_t step_x = channels, step_y = (ptrdiff_t)in->width * channels;
    const uint8_t *corner = in->pixels;
    uint8_t *to;
    ZONAL_TRY(zonal__image_shape(out, exchange ? in->height : in->width,
                                 exchange ? in->width : in->height, channels));
    if (mirror_x) corner += step_x * (in->width - 1);
    if (mirror_y) corner += step_y * (in->height - 1);
    if (mirror_x) step_x = -step_x;
    if (mirror_y) step_y = -step_y;
    if (exchange) {
        ptrdiff_t old = step_x;
        step_x = step_y;
        step_y = old;
    }
    to = out->pixels;
    for (int y = 0; y < out->height; y++) {
        const uint8_t *from = corner + step_y * y;
        for (int x = 0; x < out->width; x++, from += step_x, to += channels)
            for (int c = 0; c < channels; c++) to[c] = from[c];
    }
    return ZONAL_OK;
}

/* Whether the file is to be left as it is: its pixels are what decoding it here would give, but
 * for the rounding, and it takes no more room. */
static int stays_encoded(const zonal__encoded *in, const zonal__decode_options *options) {
    int width = in->info.width, height = in->info.height, most = options->encoded_side;
    int shorter = width < height ? width : height;
    return most > 0 && width <= most && height <= most && in->info.orientation == 1 &&
           in->info.channels == 3 && options->channels != 1 &&
           (options->min_side == 0 || shorter < options->min_side) &&
           in->size <= (size_t)width * (size_t)height * 3 && zonal__jpeg_is_plain(in);
}

static zonal_status keep_encoded(const zonal__encoded *in, zonal__image *image) {
    ZONAL_TRY(zonal__image_shape(image, in->info.width, in->info.height, in->info.channels));
    memcpy(image->pixels, in->bytes, in->size);
    image->encoded = in->size;
    return ZONAL_OK;
}

static zonal_status decode_jpeg(zonal__decoder *decoder, const zonal__encoded *in,
                                const zonal__decode_options *options, zonal__image *image) {
    if (stays_encoded(in, options)) return keep_encoded(in, image);
    if (!decoder->jpeg) ZONAL_TRY(zonal__jpeg_create(&decoder->jpeg));
    if (in->info.orientation == 1) return zonal__jpeg_decode(decoder->jpeg, in, options, image);
    ZONAL_TRY(zonal__jpeg_decode(decoder->jpeg, in, options, &decoder->scratch));
    return turn(&decoder->scratch, in->info.orientation, image);
}

static zonal_status decode_png(zonal__decoder *decoder, const zonal__encoded *in,
                               const zonal__decode_options *options, zonal__image *image) {
    if (!decoder->png) ZONAL_TRY(zonal__png_create(&decoder->png));
    if (options->channels == 0 || options->channels == in->info.channels)
        return zonal__png_decode(decoder->png, in, image);
    ZONAL_TRY(zonal__png_decode(decoder->png, in, &decoder->scratch));
    return zonal__image_convert(&decoder->scratch, options->channels, image);
}

/* The formats that keep no state. */
static zonal_status decode_plain(const zonal__encoded *in, zonal__image *image) {
    switch (in->info.kind) {
    case ZONAL__IMAGE_WEBP:
        return zonal__webp_decode(in, image);
    case ZONAL__IMAGE_GIF:
        return zonal__gif_decode(in, image);
    case ZONAL__IMAGE_TIFF:
        return zonal__tiff_decode(in, image);
    default:
        return zonal__bmp_decode(in, image);
    }
}

static void exchange(zonal__image *a, zonal__image *b) {
    zonal__image held = *a;
    *a = *b;
    *b = held;
}

static zonal_status decode_other(zonal__decoder *decoder, const zonal__encoded *in,
                                 const zonal__decode_options *options, zonal__image *image) {
    ZONAL_TRY(decode_plain(in, image));
    if (in->info.orientation > 1) {
        ZONAL_TRY(turn(image, in->info.orientation, &decoder->scratch));
        exchange(image, &decoder->scratch);
    }
    if (options->channels == 0 || options->channels == image->channels) return ZONAL_OK;
    ZONAL_TRY(zonal__image_convert(image, options->channels, &decoder->scratch));
    exchange(image, &decoder->scratch);
    return ZONAL_OK;
}

zonal_status zonal__image_decode(zonal__decoder *decoder, const void *bytes, size_t size,
                                 const char *name, const zonal__decode_options *options,
                                 zonal__image *image) {
    static const zonal__decode_options as_it_is = {0};
    zonal__encoded in = {bytes, size, name, {0}};
    if (!options) options = &as_it_is;
    if (options->channels != 0 && options->channels != 1 && options->channels != 3)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "an image has 1 or 3 channels, not %d",
                          options->channels);
    if (options->min_side < 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the least side of an image cannot be %d",
                          options->min_side);
    ZONAL_TRY(zonal__image_probe(bytes, size, name, &in.info));
    if (in.info.kind == ZONAL__IMAGE_JPEG) return decode_jpeg(decoder, &in, options, image);
    if (in.info.kind == ZONAL__IMAGE_PNG) return decode_png(decoder, &in, options, image);
    return decode_other(decoder, &in, options, image);
}

/* ---- files ----------------------------------------------------------------------------------- */

static zonal_status cannot_read(const char *path, int error) {
    const char *remedy = "";
    if (error == EACCES) remedy = "; make it readable";
    if (error == ENOENT) remedy = "; was it moved?";
    return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s%s", path, strerror(error), remedy);
}

/* Reads on up to "size" bytes; fewer where the file was cut off meanwhile: the format will tell. */
static zonal_status read_up_to(zonal__decoder *decoder, const char *path, int descriptor,
                               size_t size, size_t *done) {
    while (*done < size) {
        ssize_t got = read(descriptor, decoder->bytes + *done, size - *done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cannot_read(path, errno);
        if (got == 0) break;
        *done += (size_t)got;
    }
    return ZONAL_OK;
}

/* Reads a whole file into decoder->bytes; one that begins like no image, no further than that. */
static zonal_status read_bytes(zonal__decoder *decoder, const char *path, int descriptor,
                               size_t *size) {
    struct stat about;
    size_t whole;
    *size = 0;
    if (fstat(descriptor, &about) != 0) return cannot_read(path, errno);
    if (!S_ISREG(about.st_mode))
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s: it is not a file; give the name of one", path);
    if (about.st_size > LARGEST_FILE)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s is larger than any image: %lld bytes; remove it", path,
                          (long long)about.st_size);
    whole = (size_t)about.st_size;
    ZONAL_TRY(ZONAL_RENEW(&decoder->bytes, whole, &decoder->room, "an image file"));
    ZONAL_TRY(read_up_to(decoder, path, descriptor, whole < HEAD ? whole : HEAD, size));
    ZONAL_TRY(zonal__image_recognise(decoder->bytes, *size, path));
    return read_up_to(decoder, path, descriptor, whole, size);
}

static void give_back_much(zonal__decoder *decoder) {
    if (decoder->room <= LARGEST_KEPT) return;
    zonal__free(decoder->bytes);
    decoder->bytes = NULL;
    decoder->room = 0;
}

zonal_status zonal__image_read(zonal__decoder *decoder, const char *path,
                               const zonal__decode_options *options, zonal__image *image) {
    /* O_NONBLOCK: opening a named pipe must not wait for a writer. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t size = 0;
    zonal_status status;
    if (descriptor < 0) return cannot_read(path, errno);
    status = read_bytes(decoder, path, descriptor, &size);
    close(descriptor);
    if (status == ZONAL_OK)
        status = zonal__image_decode(decoder, decoder->bytes, size, path, options, image);
    give_back_much(decoder);
    return status;
}
