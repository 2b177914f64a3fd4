/*
 * JPEG by libjpeg-turbo (or any libjpeg of its interface, version 6b with memory sources).
 *
 * libjpeg reports errors by a call that may not return; here it jumps back to the function that
 * called libjpeg. Between that setjmp and the jump no local variable is changed: what has to
 * outlive a jump is kept in the state.
 */
#include "data/formats.h"

#include "core/memory.h"

#ifdef ZONAL_HAVE_JPEG

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

/* A progressive file may go over the image as often as it likes, a few bytes each time; the
 * common encoders go over it ten times. */
enum { MOST_SCANS = 100 };

struct zonal__jpeg {
    struct jpeg_decompress_struct codec;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char message[JMSG_LENGTH_MAX];
    uint8_t *inks; /* one line of cyan, magenta, yellow, black */
    size_t inks_room;
};

/* ---- errors ---------------------------------------------------------------------------------- */

static void on_error(j_common_ptr codec) {
    zonal__jpeg *jpeg = codec->client_data;
    codec->err->format_message(codec, jpeg->message);
    longjmp(jpeg->failed, 1);
}

/* Negative levels are warnings: libjpeg would go on and make pixels up. Three of them are no loss:
 * stray bytes between segments, an unknown JFIF version, an unknown Adobe transform. */
static void on_message(j_common_ptr codec, int level) {
    int code = codec->err->msg_code;
    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_JFIF_MAJOR &&
        code != JWRN_ADOBE_XFORM)
        on_error(codec);
}

/* libjpeg's own would print. */
static void on_output(j_common_ptr codec) {
    (void)codec;
}

static void on_progress(j_common_ptr codec) {
    zonal__jpeg *jpeg = codec->client_data;
    if (jpeg->codec.input_scan_number <= MOST_SCANS) return;
    snprintf(jpeg->message, sizeof jpeg->message, "more than %d scans", MOST_SCANS);
    longjmp(jpeg->failed, 1);
}

static zonal_status failure(const zonal__jpeg *jpeg, const char *name) {
    if (jpeg->errors.msg_code == JERR_OUT_OF_MEMORY)
        return ZONAL_FAIL(ZONAL_MEMORY, "out of memory: libjpeg decodes %s", name);
    return ZONAL_FAIL(ZONAL_FORMAT, "%s is a damaged JPEG: %s; remove it or save it again", name,
                      jpeg->message);
}

/* ---- the state ------------------------------------------------------------------------------- */

static zonal_status start(zonal__jpeg *jpeg) {
    jpeg->codec.err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = on_error;
    jpeg->errors.emit_message = on_message;
    jpeg->errors.output_message = on_output;
    jpeg->codec.client_data = jpeg;
    if (setjmp(jpeg->failed)) return ZONAL_FAIL(ZONAL_MEMORY, "libjpeg: %s", jpeg->message);
    jpeg_create_decompress(&jpeg->codec);
    jpeg->progress.progress_monitor = on_progress;
    jpeg->codec.progress = &jpeg->progress;
    return ZONAL_OK;
}

zonal_status zonal__jpeg_create(zonal__jpeg **out) {
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(out, 1, "the JPEG decoder"));
    status = start(*out);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__jpeg_destroy(*out);
    *out = NULL;
    return status;
}

void zonal__jpeg_destroy(zonal__jpeg *jpeg) {
    if (!jpeg) return;
    jpeg_destroy_decompress(&jpeg->codec);
    zonal__free(jpeg->inks);
    zonal__free(jpeg);
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* The largest of 1, 2, 4, 8 by which both sides can be divided, rounding up, without going below
 * "least". */
static unsigned divisor(unsigned width, unsigned height, unsigned least) {
    unsigned shorter = width < height ? width : height, by = 1;
    if (least == 0) return 1;
    while (by < 8 && (shorter + 2 * by - 1) / (2 * by) >= least) by *= 2;
    return by;
}

static int has_inks(const zonal__jpeg *jpeg) {
    return jpeg->codec.jpeg_color_space == JCS_CMYK || jpeg->codec.jpeg_color_space == JCS_YCCK;
}

/* What is left of the light where "ink" and "black" stand for what they let through, 0 to 255. */
static unsigned light(unsigned ink, unsigned black) {
    return (ink * black + 127) / 255;
}

static void inks_to_colours(const uint8_t *inks, int inverted, int width, int channels,
                            uint8_t *row) {
    unsigned flip = inverted ? 0 : 255; /* inverted inks are what they let through already */
    for (int x = 0; x < width; x++, inks += 4, row += channels) {
        unsigned black = inks[3] ^ flip, colour[3];
        for (int c = 0; c < 3; c++) colour[c] = light(inks[c] ^ flip, black);
        if (channels == 1)
            row[0] = (uint8_t)((299 * colour[0] + 587 * colour[1] + 114 * colour[2] + 500) / 1000);
        else
            for (int c = 0; c < 3; c++) row[c] = (uint8_t)colour[c];
    }
}

static zonal_status make_room_for_inks(zonal__jpeg *jpeg) {
    return ZONAL_RENEW(&jpeg->inks, (int64_t)jpeg->codec.output_width * 4, &jpeg->inks_room,
                       "a line of a CMYK image");
}

static void read_lines(zonal__jpeg *jpeg, zonal__image *image) {
    size_t line = (size_t)image->width * (size_t)image->channels;
    for (int y = 0; y < image->height; y++) {
        JSAMPROW row = image->pixels + (size_t)y * line, target = has_inks(jpeg) ? jpeg->inks : row;
        jpeg_read_scanlines(&jpeg->codec, &target, 1);
        if (has_inks(jpeg))
            inks_to_colours(jpeg->inks, jpeg->codec.saw_Adobe_marker, image->width, image->channels,
                            row);
    }
}

static zonal_status decode(zonal__jpeg *jpeg, const zonal__encoded *in,
                           const zonal__decode_options *options, zonal__image *image) {
    struct jpeg_decompress_struct *codec = &jpeg->codec;
    int turned = in->info.orientation >= 5;
    int channels = options->channels ? options->channels : in->info.channels;
    jpeg_mem_src(codec, in->bytes, in->size);
    jpeg_read_header(codec, TRUE);
    /* The limits were held against what the probe found. */
    if ((int)codec->image_width != (turned ? in->info.height : in->info.width) ||
        (int)codec->image_height != (turned ? in->info.width : in->info.height))
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a damaged JPEG: it states two sizes; remove it or save it again",
                          in->name);
    codec->scale_num = 1;
    codec->scale_denom =
        divisor(codec->image_width, codec->image_height, (unsigned)options->min_side);
    codec->out_color_space = has_inks(jpeg) ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_calc_output_dimensions(codec);
    ZONAL_TRY(
        zonal__image_shape(image, (int)codec->output_width, (int)codec->output_height, channels));
    if (has_inks(jpeg)) ZONAL_TRY(make_room_for_inks(jpeg));
    jpeg_start_decompress(codec);
    read_lines(jpeg, image);
    jpeg_finish_decompress(codec); /* sees whether the end is there */
    return ZONAL_OK;
}

/* libjpeg begins anew, since it keeps tables: a file that lacks some would be decoded by those of
 * whichever file came before it in this thread. That takes half a microsecond. */
zonal_status zonal__jpeg_decode(zonal__jpeg *jpeg, const zonal__encoded *in,
                                const zonal__decode_options *options, zonal__image *image) {
    zonal_status status;
    jpeg_destroy_decompress(&jpeg->codec);
    ZONAL_TRY(start(jpeg));
    if (setjmp(jpeg->failed)) {
        jpeg_abort_decompress(&jpeg->codec);
        return failure(jpeg, in->name);
    }
    status = decode(jpeg, in, options, image);
    jpeg_abort_decompress(&jpeg->codec);
    return status;
}

#else

zonal_status zonal__jpeg_create(zonal__jpeg **out) {
    *out = NULL;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "this build cannot read JPEG: install libjpeg62-turbo-dev "
                                         "and build again");
}

void zonal__jpeg_destroy(zonal__jpeg *jpeg) {
    (void)jpeg;
}

zonal_status zonal__jpeg_decode(zonal__jpeg *jpeg, const zonal__encoded *in,
                                const zonal__decode_options *options, zonal__image *image) {
    (void)jpeg, (void)options, (void)image;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "%s is a JPEG: this build cannot read it", in->name);
}

#endif
