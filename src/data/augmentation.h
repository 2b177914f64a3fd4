/*
 * Augmentation: from which ranges and with which probabilities the parameters of views are
 * drawn, and the draw itself. What is then made of the parameters is backend/training/views.h.
 *
 *     zonal__augmentation augmentation;
 *     zonal__augmentation_byol(0, &augmentation);         the first of BYOL's two pipelines
 *     augmentation.grey = 0.1;                            any range may be changed
 *     ZONAL_TRY(zonal__augmentation_check(&augmentation));
 *     zonal__view_draw(&augmentation, seed, epoch, sample, 0, image_width, image_height,
 *                      view_width, view_height, &view);
 *
 * Every view number has an augmentation of its own: the first and the second global view differ in
 * BYOL, and local views take smaller parts.
 *
 * A draw is a pure function of (seed, epoch, sample, view number): Philox, stream
 * ZONAL__STREAM_VIEW, step = epoch, sample key = sample * 2^16 + view number, which is unique for
 * samples below 2^40 and view numbers below 2^16. Every decision has random numbers of its own,
 * whether or not it is asked for: to change one option does not change what the others draw.
 */
#ifndef ZONAL_DATA_AUGMENTATION_H
#define ZONAL_DATA_AUGMENTATION_H

#include "backend/training/views.h"

typedef struct zonal__range {
    double low, high; /* uniform between them, unless said otherwise */
} zonal__range;

typedef enum zonal__view_crop {
    ZONAL__CROP_RANDOM = 0, /* by area and aspect */
    ZONAL__CROP_CENTER = 1, /* the largest centred part of the view's shape, times centre_share */
    ZONAL__CROP_WHOLE = 2   /* the whole image, stretched */
} zonal__view_crop;

typedef struct zonal__augmentation {
    int kind; /* ZONAL__VIEW_PHOTOGRAPH or ZONAL__VIEW_TEXTURE */

    /* Photographs. A random crop is torchvision's RandomResizedCrop: area a share of the image's,
     * aspect (width over height) uniform in its logarithm, sides rounded to whole pixels, every
     * place inside the image equally likely. After ten tries that do not fit, the largest
     * centred crop whose aspect is in the range. */
    zonal__view_crop crop;
    zonal__range area, aspect;
    double centre_share; /* 0 < share <= 1, of both sides */
    double flip;         /* probability */
    /* 1: drawn for epoch 0 alone; from then on a view of an image is flipped in every other epoch.
     * So both sides of an image are seen equally often (Jordan, arXiv 2404.00498). */
    int flip_alternates;
    /* Jitter is applied as a whole with its probability; then each adjustment whose strength is
     * not 0, in random order. Factors lie within strength of 1 (not below 0), hue within hue turns
     * of 0, at most 1/2. */
    double jitter; /* probability */
    double brightness, contrast, saturation, hue;
    double grey;             /* probability */
    double blur;             /* probability */
    zonal__range blur_sigma; /* standard deviation in pixels of the view */
    double solarise;         /* probability */

    /* Textures. About the centre the source is sheared, turned, scaled and then shifted; at scale 1
     * without shift and turn it just fills the view. */
    double rotation;         /* within this many radians to either side; pi: any */
    double shift;            /* each way within this share of the view's side */
    zonal__range scale;      /* magnification, uniform in its logarithm: s is as likely as 1/s */
    double shear;            /* within this tangent of the angle by which columns lean */
    zonal__range added;      /* brightness: what is added to elements of [0, 1] */
    zonal__range times;      /* contrast: what they are multiplied by */
    double noise;            /* standard deviation */
    double erase;            /* probability */
    zonal__range erase_side; /* width and height, independent, as shares of the view's */
    double erase_value;
} zonal__augmentation;

/* BYOL (Grill et al. 2020, appendix B), for global views: even view numbers take the first
 * pipeline (always blurred, never solarised), odd ones the second (blurred with probability 0.1,
 * solarised with 0.2). Common to both: area 0.08 to 1, aspect 3/4 to 4/3, flip 0.5, jitter 0.8
 * with strengths 0.4, 0.4, 0.2, 0.1, grey 0.2, sigma 0.1 to 2. */
void zonal__augmentation_byol(int view_number, zonal__augmentation *augmentation);

/* A local view of a photograph, after DINO (Caron et al. 2021): like BYOL's but for area 0.05 to
 * 0.4, blur 0.5 and no solarising. */
void zonal__augmentation_local(zonal__augmentation *augmentation);

/* Any rotation, shift 0.2, scale 0.8 to 1.25, shear 0.2, brightness -0.2 to 0.2, contrast 0.7 to
 * 1.3, noise 0.05, and always one black rectangle with sides of 0.1 to 0.4. The paper names these
 * operations but of the ranges only rotation and shift; the others are ours. */
void zonal__augmentation_texture(zonal__augmentation *augmentation);

/* For evaluation: a photograph's centre, 7/8 of its shorter side (as 224 out of 256). */
void zonal__augmentation_center_crop(zonal__augmentation *augmentation);

/* The whole image, unchanged but for its size. */
void zonal__augmentation_identity(int kind, zonal__augmentation *augmentation);

/* ZONAL_ARGUMENT, with the field in the sentence, for a range that is upside down, a probability
 * outside [0, 1] and the like. */
zonal_status zonal__augmentation_check(const zonal__augmentation *augmentation);

/* The taps of the blur for views of this shorter side: about a tenth of it, made odd; 23 at 224
 * pixels. What zonal__views_spec.blur_taps should be. */
int zonal__view_blur_taps(int side);

/* Draws the parameters of one view of out_width x out_height pixels. All sides are at least 1, and
 * the augmentation passes zonal__augmentation_check. view->image is 0: the caller knows which. */
void zonal__view_draw(const zonal__augmentation *augmentation, uint64_t seed, uint32_t epoch,
                      int64_t sample, int view_number, int image_width, int image_height,
                      int out_width, int out_height, zonal__view *view);

/* What the view's corners (top left, top right, bottom right, bottom left) show of the source:
 * (x, y) in pixels from its upper left corner. */
void zonal__view_region(const zonal__view *view, int out_width, int out_height,
                        double corners[4][2]);

#endif
