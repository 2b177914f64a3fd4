/*
 * Batches of views, made ahead of time by worker threads.
 *
 *     zonal__loader_options options = {.source = source, .batch = 256, .groups = 1,
 *                                      .group = {{.views = 2, .width = 128, .height = 128, ...}}};
 *     ZONAL_TRY(zonal__loader_create(&options, &loader));
 *     while (training) {
 *         ZONAL_TRY(zonal__loader_next(loader, &batch));     waits until it is ready
 *         ... batch->views[0], batch->samples ...            valid until the next call
 *     }
 *     zonal__loader_destroy(loader);
 *
 * What a batch holds is a function of (seed, step) alone (data/source.h): neither the number of
 * workers nor where a run began changes it. A loader may make a share of each batch, for one of
 * several ranks; all of them together make what one would.
 *
 * Two kinds of batches:
 *     views      (raw 0) float or bf16 arrays, made on the host by the workers
 *     images     (raw 1) the source images' bytes and the parameters of the views, for a device
 *                that makes the views itself
 *
 * All memory is allocated at creation and by the first few images; after that nothing is allocated
 * unless a larger image comes.
 */
#ifndef ZONAL_DATA_LOADER_H
#define ZONAL_DATA_LOADER_H

#include "backend/training/views.h"
#include "data/augmentation.h"
#include "data/source.h"

enum { ZONAL__LOADER_GROUPS = 2 }; /* global views and local ones */

/* Views of one size. */
typedef struct zonal__view_group {
    int views; /* per image */
    int width, height;
    const zonal__augmentation *augmentations; /* [views]; must outlive the loader */
    int first; /* the number of its first view, for the random draws */
} zonal__view_group;

/* Draws the parameters of the group's views of one image into view[0], view[stride],
 * view[2 stride], ...; "image" is its number for zonal__view.image. */
void zonal__view_group_draw(const zonal__view_group *group, uint64_t seed, int64_t epoch,
                            int64_t sample, int image_width, int image_height, int32_t image,
                            int64_t stride, zonal__view *view);

/* The limit for the sides of images unless one is given, for views of that side: 512, or twice the
 * side where that is more. 512 is about what photographs for learning have, and bounds what a
 * streamed batch takes. */
int zonal__max_side(int view_side);

typedef struct zonal__loader_options {
    zonal__source *source; /* not owned */
    int64_t batch;         /* images of a step, of all ranks */
    zonal__share share;    /* those that this loader makes; all 0: all of them */
    int groups;
    zonal__view_group group[ZONAL__LOADER_GROUPS];
    int channels;          /* of the views: 1 or 3 */
    float mean[3], std[3]; /* std 0: 1 */
    zonal_dtype dtype;     /* of the views: ZONAL_DTYPE_FP32 (also AUTO) or ZONAL_DTYPE_BF16 */
    uint64_t seed;
    int64_t first_step;
    int in_order; /* 1: no shuffling, the last batch of an epoch may be smaller */
    int raw;
    /* Images with a longer side are shrunk to it when they are read, wherever their views are then
     * made; 0: zonal__max_side of the largest view. */
    int max_side;
    int workers; /* 0: as many as there are processors */
    int ahead;   /* batches in flight; 0: 3 */
    /* raw: images and parameters go to memory that this device copies from; NULL: ordinary. */
    const zonal__device *device;
} zonal__loader_options;

typedef struct zonal__batch {
    int64_t step, epoch, count; /* count: samples, at most those of options.share */
    const int64_t *samples;     /* [count]: numbers in the source */
    const int32_t *labels;      /* [count]; NULL: unlabelled */
    /* raw 0: group g as [views][count][height][width][channels] */
    void *views[ZONAL__LOADER_GROUPS];
    /* raw 1 */
    const uint8_t *pixels; /* of all images */
    size_t bytes;
    const zonal__image_place *places; /* [count] */
    const size_t *encoded; /* [count]: bytes of an image that is a JPEG file; 0: it is pixels */
    const zonal__view *parameters[ZONAL__LOADER_GROUPS]; /* group g: [views][count] */
} zonal__batch;

typedef struct zonal__loader zonal__loader;

/* ZONAL_ARGUMENT for options that cannot be: what create asks first. */
zonal_status zonal__loader_check(const zonal__loader_options *options);

/* What an engine for group "group" has to be made for, with images of that longest side. */
void zonal__loader_views_spec(const zonal__loader_options *options, int group, int longest,
                              int64_t count, zonal__views_spec *spec);

zonal_status zonal__loader_create(const zonal__loader_options *options, zonal__loader **loader);
/* Stops the workers and releases everything. Accepts NULL. */
void zonal__loader_destroy(zonal__loader *loader);

int64_t zonal__loader_steps_per_epoch(const zonal__loader *loader);

/* options->max_side, or what 0 stands for. */
int zonal__loader_max_side(const zonal__loader_options *options);

/* The longest side of the images that views are made of: for zonal__views_spec.most_shrink. */
int zonal__loader_longest(const zonal__loader *loader);

/* raw: the most bytes that the images of a batch can have. */
size_t zonal__loader_most_bytes(const zonal__loader *loader);

/* Told about every second while zonal__loader_next waits, on its thread, how many of the batch's
 * images are there. NULL: nobody listens. */
typedef void zonal__loader_listener(void *context, int64_t ready, int64_t count);
void zonal__loader_listen(zonal__loader *loader, zonal__loader_listener *listener, void *context);

/* The batch of the next step. What it points to is the loader's and valid until the next call or
 * destroy. A failure of a worker is reported here, with its sentence; the loader is then of no
 * further use. */
zonal_status zonal__loader_next(zonal__loader *loader, const zonal__batch **batch);

#endif
