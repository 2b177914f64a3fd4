#include "data/sheet.h"

#include <string.h>

/* Puts an image of 1 or 3 channels at (left, top); grey is repeated where the sheet is RGB. */
static void paste(const zonal__image *image, int64_t left, int64_t top, zonal__image *sheet) {
    for (int y = 0; y < image->height; y++)
        for (int x = 0; x < image->width; x++) {
            const uint8_t *from = image->pixels + ((int64_t)y * image->width + x) * image->channels;
            uint8_t *to = sheet->pixels + ((top + y) * sheet->width + left + x) * sheet->channels;
            for (int c = 0; c < sheet->channels; c++) to[c] = from[image->channels == 1 ? 0 : c];
        }
}

/* Clipped to int: zonal__image_shape refuses such a side in words. */
static int side(int64_t cells, int64_t cell, int64_t margin) {
    int64_t pixels = cells * (cell + margin) + margin;
    return pixels > INT32_MAX ? INT32_MAX : (int)pixels;
}

static int columns_of(int count, const zonal__sheet_options *options) {
    int columns = options->columns;
    if (columns == 0)
        while ((int64_t)columns * columns < count) columns++;
    return columns;
}

zonal_status zonal__sheet_shape(int count, int width, int height, int channels,
                                const zonal__sheet_options *options, zonal__image *out) {
    int columns = columns_of(count, options);
    if (count < 1 || columns < 0 || options->margin < 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a contact sheet of %d images in %d columns with margin %d is not "
                          "possible: give at least one image, and no negative number",
                          count, columns, options->margin);
    return zonal__image_shape(out, side(columns, width, options->margin),
                              side((count - 1) / columns + 1, height, options->margin), channels);
}

zonal_status zonal__sheet_make(const zonal__image *images, int count,
                               const zonal__sheet_options *options, zonal__image *out) {
    int width = 0, height = 0, channels = 1, columns = columns_of(count, options);
    for (int i = 0; i < count; i++) {
        if (images[i].width > width) width = images[i].width;
        if (images[i].height > height) height = images[i].height;
        if (images[i].channels > channels) channels = images[i].channels;
    }
    ZONAL_TRY(zonal__sheet_shape(count, width, height, channels, options, out));
    memset(out->pixels, options->ground,
           (size_t)out->width * (size_t)out->height * (size_t)out->channels);
    for (int i = 0; i < count; i++) {
        int64_t left = side(i % columns, width, options->margin);
        int64_t top = side(i / columns, height, options->margin);
        paste(&images[i], left + (width - images[i].width) / 2,
              top + (height - images[i].height) / 2, out);
    }
    return ZONAL_OK;
}
