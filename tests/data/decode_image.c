/*
 * A window on the image codecs for codec_test.py:
 *
 *     decode_image CHANNELS LEAST_SIDE FILE...      for each file either a line
 *                                                     ok KIND WIDTH HEIGHT CHANNELS ORIENTATION
 *                                                     WIDTH HEIGHT CHANNELS
 *                                                   (of the probe, then of the image) and the
 *                                                   pixels, or a line: failed STATUS SENTENCE
 *     decode_image --png FILE NEW                   writes an image again, as PNG
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/codec.h"

static zonal_status probe_file(const char *path, zonal__image_info *info) {
    static unsigned char bytes[1 << 20];
    FILE *stream = fopen(path, "rb");
    size_t size = stream ? fread(bytes, 1, sizeof bytes, stream) : 0;
    if (stream) fclose(stream);
    return zonal__image_probe(bytes, size, path, info);
}

static void report(zonal__decoder *decoder, const char *path, const zonal__decode_options *options,
                   zonal__image *image) {
    zonal__image_info info = {0};
    zonal_status status = zonal__image_read(decoder, path, options, image);
    if (status == ZONAL_OK) status = probe_file(path, &info);
    if (status != ZONAL_OK) {
        printf("failed %s %s\n", zonal_status_name(status), zonal_last_error()->message);
        return;
    }
    printf("ok %s %d %d %d %d %d %d %d\n", zonal__image_format(info.kind), info.width, info.height,
           info.channels, info.orientation, image->width, image->height, image->channels);
    fwrite(image->pixels, 1, (size_t)image->width * (size_t)image->height * (size_t)image->channels,
           stdout);
}

int main(int argc, char **argv) {
    zonal__decoder *decoder;
    zonal__image image = {0};
    int failed = 0;
    if (argc < 4 || zonal__decoder_create(&decoder) != ZONAL_OK) return 2;
    if (strcmp(argv[1], "--png") == 0) {
        failed = zonal__image_read(decoder, argv[2], NULL, &image) != ZONAL_OK ||
                 zonal__image_write_png(argv[3], &image) != ZONAL_OK;
        if (failed) fprintf(stderr, "%s\n", zonal_last_error()->message);
    } else {
        zonal__decode_options options = {.channels = atoi(argv[1]), .min_side = atoi(argv[2])};
        for (int i = 3; i < argc; i++) report(decoder, argv[i], &options, &image);
    }
    zonal__image_fini(&image);
    zonal__decoder_destroy(decoder);
    return failed;
}
