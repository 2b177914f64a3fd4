/*
 * Describing a source. The sums are whole numbers, so mean and std are those of the pixels to
 * the last digits of a double: with S = sum of x, Q = sum of x^2 over n elements x from 0 to 255,
 *
 *     mean = S / (255 n)          std = sqrt(n Q - S^2) / (255 n)
 *
 * Q stays below 2^64 up to n = 2.8e14: 17 million images of 4000 x 4000.
 */
#include "data/describe.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "data/pool.h"

typedef struct sums {
    uint64_t n, sum, squares;
} sums;

typedef struct survey {
    zonal__source *source;
    const zonal__describe_options *options;
    zonal__description *out;
    sums grey, colour[3];
    int64_t *widths, *heights; /* [ZONAL__IMAGE_SIDE + 1]: how many images have that side */
} survey;

/* Every "step"-th of the elements of an image. In 32 bits, sums of squares of a row hold 66,000
 * elements, and a row has 32,768 at most. */
static void add_elements(sums *to, const zonal__image *image, int channel) {
    size_t step = (size_t)image->channels, line = (size_t)image->width * step;
    for (size_t y = 0; y < (size_t)image->height; y++) {
        const uint8_t *row = image->pixels + y * line + channel;
        uint32_t sum = 0, squares = 0;
        for (size_t i = 0; i < line; i += step) {
            sum += row[i];
            squares += (uint32_t)row[i] * row[i];
        }
        to->sum += sum;
        to->squares += squares;
    }
    to->n += (uint64_t)image->width * (uint64_t)image->height;
}

static void add_size(survey *s, const zonal__image *image) {
    zonal__description *out = s->out;
    zonal__size size = {image->width, image->height};
    int64_t area = (int64_t)size.width * size.height;
    if (out->count == 0 || area < (int64_t)out->smallest.width * out->smallest.height)
        out->smallest = size;
    if (area > (int64_t)out->largest.width * out->largest.height) out->largest = size;
    s->widths[size.width]++;
    s->heights[size.height]++;
}

static void add_image(survey *s, int64_t index, const zonal__image *image) {
    zonal__description *out = s->out;
    add_size(s, image);
    if (image->channels == 1)
        add_elements(&s->grey, image, 0);
    else
        for (int c = 0; c < 3; c++) add_elements(&s->colour[c], image, c);
    out->grey += image->channels == 1;
    if (out->class_counts) out->class_counts[s->source->labels[index]]++;
    out->count++;
}

/* Keeps the sentence of the last error, which names the image. */
static zonal_status add_bad(zonal__description *out) {
    const char *why = zonal_last_error()->message;
    size_t bytes = strlen(why) + 1;
    if (out->bad < ZONAL__DESCRIPTION_BAD) {
        ZONAL_TRY(ZONAL_NEW(&out->bad_why[out->bad], bytes, "a list of corrupt images"));
        memcpy(out->bad_why[out->bad], why, bytes);
    }
    out->bad++;
    return ZONAL_OK;
}

/* Around zonal__source_read, which would count, log and at some time give up. */
static zonal_status read_image(void *context, int worker, int64_t i, zonal__image *image) {
    zonal__source *source = ((survey *)context)->source;
    (void)worker;
    return source->table->read(source, source->order ? source->order[i] : i, image);
}

static zonal_status use_image(void *context, int64_t i, zonal_status made,
                              const zonal__image *image) {
    survey *s = context;
    const zonal__describe_options *options = s->options;
    if (made == ZONAL_OK)
        add_image(s, i, image);
    else if (made == ZONAL_FORMAT || made == ZONAL_SHAPE || made == ZONAL_IO)
        ZONAL_TRY(add_bad(s->out));
    else
        return made;
    if (options->progress && options->progress(options->progress_context, i + 1) != 0)
        return ZONAL_FAIL(ZONAL_CANCELLED, "describing %s was stopped", s->source->path);
    return ZONAL_OK;
}

/* The smallest side that at least half of the images do not exceed. */
static int median(const int64_t *sides, int64_t count) {
    int64_t below = 0;
    for (int side = 1; side <= ZONAL__IMAGE_SIDE; side++) {
        below += sides[side];
        if (2 * below >= count && count > 0) return side;
    }
    return 0;
}

static void finish(survey *s) {
    zonal__description *out = s->out;
    out->channels = out->grey < out->count ? 3 : 1;
    out->typical.width = median(s->widths, out->count);
    out->typical.height = median(s->heights, out->count);
    for (int c = 0; out->count > 0 && c < out->channels; c++) {
        uint64_t n = s->grey.n + s->colour[c].n, sum = s->grey.sum + s->colour[c].sum;
        uint64_t squares = s->grey.squares + s->colour[c].squares;
        unsigned __int128 spread = (unsigned __int128)n * squares - (unsigned __int128)sum * sum;
        out->mean[c] = (double)sum / (255 * (double)n);
        out->std[c] = sqrt((double)spread) / (255 * (double)n);
    }
}

zonal_status zonal__describe(zonal__source *source, const zonal__describe_options *options,
                             zonal__description *out) {
    survey s = {.source = source, .options = options, .out = out};
    zonal__pool_task task = {.context = &s, .make = read_image, .use = use_image};
    zonal_status status;
    *out = (zonal__description){0};
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&s.widths, ZONAL__IMAGE_SIDE + 1, "a count of sizes"));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&s.heights, ZONAL__IMAGE_SIDE + 1, "a count of sizes"));
    if (source->labels)
        ZONAL_TRY_GOTO(status, done,
                       ZONAL_NEW(&out->class_counts, source->classes, "a count of classes"));
    ZONAL_TRY_GOTO(status, done, zonal__pool_run(&task, source->count, options->workers));
    finish(&s);
done:
    zonal__free(s.widths);
    zonal__free(s.heights);
    if (status != ZONAL_OK) zonal__description_fini(out);
    return status;
}

void zonal__description_fini(zonal__description *description) {
    zonal__free(description->class_counts);
    for (int i = 0; i < ZONAL__DESCRIPTION_BAD; i++) zonal__free(description->bad_why[i]);
    *description = (zonal__description){0};
}
