/*
 * Views: images made of source images by drawn parameters, as a network takes them. Who draws
 * the parameters is not the backend's concern (src/data draws them); given the same ones, every
 * device makes the same image to 1/255 per element.
 *
 * A view is computed in float on [0, 1] (source elements over 255), in this order:
 *
 *   PHOTOGRAPH
 *     crop and resample  the rectangle (left, top, width, height) of the source to the view's size
 *                        by the triangle filter, widened where it shrinks: torchvision's
 *                        resized_crop(antialias=True). Then flipped left to right.
 *     adjustments        the first "adjustments" of "order": brightness, contrast, saturation, hue,
 *                        as torchvision's functional adjust_*, each clamped to [0, 1]. On grey
 *                        views saturation and hue do nothing.
 *     grey               rgb_to_grayscale: .2989 R + .587 G + .114 B in all channels
 *     blur               Gaussian of standard deviation "blur" with spec.blur_taps taps, mirrored
 *                        at the border without repeating it: gaussian_blur
 *     solarise           x >= 1/2 becomes 1 - x
 *   TEXTURE
 *     affine             view pixel (i, j), at its centre, is taken from the source at
 *                            x = affine[0] (j + 1/2) + affine[1] (i + 1/2) + affine[2]
 *                            y = affine[3] (j + 1/2) + affine[4] (i + 1/2) + affine[5]
 *                        bilinearly between the centres (k + 1/2) of source pixels, zero outside:
 *                        grid_sample(padding zeros, align_corners false)
 *     brightness         clamp(x + brightness), as kornia's
 *     contrast           clamp(x * contrast)
 *     noise              clamp(x + noise * N(0, 1)), one draw per pixel and channel, the same on
 *                        every device: normal number c + channels (j + width i) of zonal__random
 *                        (seed, ZONAL__STREAM_NOISE, epoch), sample "draw"
 *     erase              the rectangle erase_* of the view becomes erase_value
 *
 * and last (x - mean)/std by channel, rounded to the nearest element of the output's type.
 * The source is brought to the view's channels first: grey repeats, RGB to grey by
 * rgb_to_grayscale.
 */
#ifndef ZONAL_BACKEND_TRAINING_VIEWS_H
#define ZONAL_BACKEND_TRAINING_VIEWS_H

#include "backend/backend.h"
#include "core/error.h"
#include "zonal/loss.h"

enum { ZONAL__VIEW_PHOTOGRAPH = 0, ZONAL__VIEW_TEXTURE = 1 };
enum {
    ZONAL__ADJUST_BRIGHTNESS,
    ZONAL__ADJUST_CONTRAST,
    ZONAL__ADJUST_SATURATION,
    ZONAL__ADJUST_HUE
};

/* Where a source image lies: uint8 [height][width][channels] at base + offset. */
typedef struct zonal__image_place {
    int64_t offset;
    int32_t width, height, channels, unused;
} zonal__image_place;

/* The parameters of one view: plain data, the same bytes on the host and on a device. */
typedef struct zonal__view {
    int32_t image; /* its number among the images */
    int32_t kind;
    /* photograph */
    int32_t left, top, width, height;
    int32_t flip;
    int32_t adjustments; /* 0 to 4 */
    int32_t order[4];    /* each at most once */
    float factor[4];     /* by adjustment, not by place in the order; hue: -.5 to .5 of a turn */
    int32_t grey, solarise;
    float blur; /* in pixels of the view; 0: none */
    /* texture */
    float affine[6];
    float brightness, contrast, noise, erase_value;
    int32_t erase_left, erase_top, erase_width, erase_height; /* width 0: nothing */
    uint64_t seed, draw;
    uint32_t epoch, unused;
} zonal__view;

typedef struct zonal__views_spec {
    int kind;
    int width, height, channels; /* of the views; channels 1 or 3 */
    int64_t count;               /* the most views of one run */
    float mean[3], std[3];
    int blur_taps;     /* odd; photographs; 0: no view is blurred */
    zonal_dtype dtype; /* of the output: ZONAL_DTYPE_FP32 or ZONAL_DTYPE_BF16 */
    int threads;       /* host; 0: all there are */
    float most_shrink; /* photographs: the longest side of a crop over the view's; sizes buffers */
    const zonal__device *device; /* NULL: the backend's first */
} zonal__views_spec;

typedef struct zonal__views zonal__views; /* each device has its own */

typedef struct zonal__views_table {
    const char *name;
    zonal_status (*create)(const zonal__views_spec *spec, zonal__views **out);
    /* Makes "count" views: out [count][height][width][channels]. All pointers are of the device:
     * host memory for ref and cpu, device memory for cuda, where the call only puts work on the
     * stream. Allocates nothing. */
    zonal_status (*run)(zonal__views *views, const uint8_t *base, const zonal__image_place *images,
                        const zonal__view *view, int64_t count, void *out);
    void (*destroy)(zonal__views *views);                  /* accepts NULL */
    void (*set_stream)(zonal__views *views, void *stream); /* NULL for the host */
} zonal__views_table;

/* What every device refuses at create: ZONAL_ARGUMENT, or ZONAL_DTYPE for the output's type. */
zonal_status zonal__views_check_spec(const zonal__views_spec *spec);

/* What the host refuses at run, before the first view is made: too many views, one of another kind,
 * a crop outside its image or beyond zonal__views_longest, numbers out of range. ZONAL_ARGUMENT,
 * with the view's number in the sentence. A device does not look: what reaches it has been drawn by
 * an augmentation, or checked like this. */
zonal_status zonal__views_check_run(const zonal__views_spec *spec, const zonal__image_place *images,
                                    const zonal__view *view, int64_t count);

/* The longest side of a crop that spec.most_shrink allows for a view's side, with some room for the
 * quotient's rounding. */
int64_t zonal__views_longest(const zonal__views_spec *spec, int side);

const zonal__views_table *zonal__views_ref(void); /* double, plain: the oracle */
const zonal__views_table *zonal__views_cpu(void);

#endif
