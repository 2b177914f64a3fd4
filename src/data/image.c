#include "data/image.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"

zonal_status zonal__image_shape(zonal__image *image, int width, int height, int channels) {
    size_t bytes;
    void *memory;
    if (width < 1 || height < 1 || width > ZONAL__IMAGE_SIDE || height > ZONAL__IMAGE_SIDE ||
        (int64_t)width * height > ZONAL__IMAGE_AREA) {
        zonal__image_fini(image);
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "an image of %d x %d pixels is refused: sides must be from 1 to %d, and "
                          "at most %lld pixels in all",
                          width, height, ZONAL__IMAGE_SIDE, (long long)ZONAL__IMAGE_AREA);
    }
    bytes = (size_t)width * (size_t)height * (size_t)channels;
    if (bytes > image->room) {
        zonal__image_fini(image);
        ZONAL_TRY(zonal__alloc((int64_t)bytes, 1, "an image", &memory));
        image->pixels = memory;
        image->room = bytes;
    }
    image->encoded = 0;
    image->width = width;
    image->height = height;
    image->channels = channels;
    return ZONAL_OK;
}

void zonal__image_fini(zonal__image *image) {
    zonal__free(image->pixels);
    *image = (zonal__image){0};
}

void zonal__pixels_convert(const uint8_t *in, int from, int to, size_t n, uint8_t *out) {
    if (from == to) {
        memcpy(out, in, n * (size_t)to);
    } else if (to == 3) {
        for (size_t i = 0; i < n; i++) out[3 * i] = out[3 * i + 1] = out[3 * i + 2] = in[i];
    } else {
        for (size_t i = 0; i < n; i++)
            out[i] = (uint8_t)((299 * in[3 * i] + 587 * in[3 * i + 1] + 114 * in[3 * i + 2] + 500) /
                               1000);
    }
}

zonal_status zonal__image_convert(const zonal__image *in, int channels, zonal__image *out) {
    ZONAL_TRY(zonal__image_shape(out, in->width, in->height, channels));
    zonal__pixels_convert(in->pixels, in->channels, channels,
                          (size_t)in->width * (size_t)in->height, out->pixels);
    return ZONAL_OK;
}

/* ---- resampling ------------------------------------------------------------------------------ */

typedef struct zonal__resampler_side side;

static const char FILTER[] = "the filter of a resampled image";

void zonal__resampler_fini(zonal__resampler *r) {
    zonal__free(r->across.first);
    zonal__free(r->across.weight);
    zonal__free(r->down.first);
    zonal__free(r->down.weight);
    zonal__free(r->wide);
    *r = (zonal__resampler){0};
}

/* A triangle about the centre of each result pixel, as wide as the larger of one source pixel and
 * one result pixel to either side, cut off at the border and brought to sum 1. */
static zonal_status find_taps(int from, int to, side *t) {
    double scale = (double)from / to, reach = scale > 1 ? scale : 1;
    t->taps = (int)ceil(reach) * 2 + 1;
    ZONAL_TRY(ZONAL_RENEW(&t->first, to, &t->first_room, FILTER));
    ZONAL_TRY(ZONAL_RENEW(&t->weight, (int64_t)to * t->taps, &t->weight_room, FILTER));
    for (int o = 0; o < to; o++) {
        double centre = (o + 0.5) * scale, sum = 0;
        int low = (int)(centre - reach + 0.5), high = (int)(centre + reach + 0.5);
        float *weight = t->weight + (int64_t)o * t->taps;
        low = low < 0 ? 0 : low;
        high = high > from ? from : high;
        t->first[o] = low;
        for (int k = 0; k < t->taps; k++) {
            double w = k < high - low ? 1 - fabs((low + k + 0.5 - centre) / reach) : 0;
            weight[k] = (float)(w > 0 ? w : 0);
            sum += w > 0 ? w : 0;
        }
        for (int k = 0; k < t->taps; k++) weight[k] = (float)(weight[k] / sum);
    }
    return ZONAL_OK;
}

static int reach_of(const side *t, int o, int from) {
    int left = from - t->first[o];
    return left < t->taps ? left : t->taps;
}

static uint8_t to_byte(float x) {
    return (uint8_t)(x <= 0 ? 0 : x >= 255 ? 255 : x + 0.5f);
}

/* Rows first into "wide" [in->height][width][channels], then columns. */
static void resample(const zonal__image *in, const side *across, const side *down, float *wide,
                     zonal__image *out) {
    int channels = in->channels;
    size_t line = (size_t)out->width * (size_t)channels;
    for (int y = 0; y < in->height; y++)
        for (int x = 0; x < out->width; x++)
            for (int c = 0; c < channels; c++) {
                const uint8_t *from =
                    in->pixels +
                    ((size_t)y * (size_t)in->width + (size_t)across->first[x]) * (size_t)channels;
                const float *weight = across->weight + (int64_t)x * across->taps;
                float sum = 0;
                for (int k = 0, n = reach_of(across, x, in->width); k < n; k++)
                    sum += weight[k] * from[k * channels + c];
                wide[(size_t)y * line + (size_t)(x * channels + c)] = sum;
            }
    for (int y = 0; y < out->height; y++) {
        const float *weight = down->weight + (int64_t)y * down->taps;
        int n = reach_of(down, y, in->height);
        for (size_t i = 0; i < line; i++) {
            const float *from = wide + (size_t)down->first[y] * line + i;
            float sum = 0;
            for (int k = 0; k < n; k++) sum += weight[k] * from[(size_t)k * line];
            out->pixels[(size_t)y * line + i] = to_byte(sum);
        }
    }
}

zonal_status zonal__image_resample(zonal__resampler *r, const zonal__image *in, int width,
                                   int height, zonal__image *out) {
    ZONAL_TRY(zonal__image_shape(out, width, height, in->channels));
    ZONAL_TRY(find_taps(in->width, width, &r->across));
    ZONAL_TRY(find_taps(in->height, height, &r->down));
    ZONAL_TRY(
        ZONAL_RENEW(&r->wide, (int64_t)in->height * width * in->channels, &r->wide_room, FILTER));
    resample(in, &r->across, &r->down, r->wide, out);
    return ZONAL_OK;
}

void zonal__image_limited_size(int limit, int *width, int *height) {
    int longer = *width > *height ? *width : *height;
    double scale = (double)limit / longer;
    if (longer <= limit) return;
    *width = (int)lround(*width * scale);
    *height = (int)lround(*height * scale);
    if (*width < 1) *width = 1;
    if (*height < 1) *height = 1;
}

zonal_status zonal__image_limit(zonal__resampler *r, int limit, zonal__image *spare,
                                zonal__image *image) {
    int width = image->width, height = image->height;
    zonal__image large;
    zonal__image_limited_size(limit, &width, &height);
    if (width == image->width && height == image->height) return ZONAL_OK;
    ZONAL_TRY(zonal__image_resample(r, image, width, height, spare));
    large = *image;
    *image = *spare;
    *spare = large;
    return ZONAL_OK;
}
