/*
 * Features: a model's output for the images of a source, as rows of floats in the source's
 * order. Batch norms use their running statistics, so an image's row does not depend on the others.
 *
 *     zonal__features_options options = {.source = source, .views = 1, .augmentations = &crop,
 *                                        .width = 224, .height = 224};
 *     ZONAL_TRY(zonal__features_extract(model, &options, features, NULL));        all of them
 *     ZONAL_TRY(zonal__features_stream(model, &options, take, context));          batch by batch
 *
 * The images are read and made into views by worker threads while the network computes, on the
 * device on which the model lies. A corrupt image is replaced as in training (data/source.h).
 */
#ifndef ZONAL_EVAL_FEATURES_H
#define ZONAL_EVAL_FEATURES_H

#include "data/loader.h"
#include "nn/network.h"

typedef struct zonal__features_options {
    zonal__source *source; /* not owned */
    int views;             /* of each image */
    /* [views]: a crop of the centre, or the augmentation of training. */
    const zonal__augmentation *augmentations;
    int width, height;     /* of the views */
    int max_side;          /* of the images, as in zonal__loader_options */
    float mean[3], std[3]; /* as in zonal__loader_options */
    uint64_t seed;         /* of the views' draws and, in epochs, of the order */
    /* 0: every image once, in the source's order. Else the source is gone through so many times
     * as in training: shuffled, with other views each time, without what is left over at the end
     * of an epoch. For zonal__features_stream alone. */
    int64_t epochs;
    int64_t batch; /* images at a time; 0: 128; never more than there are */
    /* Of several ranks: this one's number and how many they are; each takes its part of every
     * batch, which is then of all ranks together. 0 parts: all is taken here. */
    int part, parts;
    int threads; /* host; 0: all there are */
    /* Called after each batch with how many images are done; a non-zero return stops with
     * ZONAL_CANCELLED. NULL: not called. */
    int (*progress)(void *context, int64_t done);
    void *progress_context;
} zonal__features_options;

/* The arrays are valid during the call. */
typedef struct zonal__features_batch {
    int64_t first, count;     /* how many images come before it, and how many it has */
    const int64_t *samples;   /* [count]: which images of the source they are, replacements too */
    const int32_t *labels;    /* [count]; NULL: unlabelled */
    const float *features;    /* [views][count][feature_dim] */
    const float *projections; /* [views][count][projection_dim]: the projector's output,
                                 not normalised; without a projector the features */
} zonal__features_batch;

/* Hands all images to "take", batch by batch; its failure ends the work and is returned.
 * ZONAL_NUMERIC for an image whose features are not finite. */
zonal_status zonal__features_stream(zonal__model *model, const zonal__features_options *options,
                                    zonal_status (*take)(void *context,
                                                         const zonal__features_batch *batch),
                                    void *context);

/* The same into arrays [views][source's count][dimension]; NULL: not wanted. Rows of other parts
 * are left alone. */
zonal_status zonal__features_extract(zonal__model *model, const zonal__features_options *options,
                                     float *features, float *projections);

/* The same over and over, while the model's weights change: what it takes is made once and kept, on
 * a device the images too where they can stay there (data/feed.h), and every run sees the same
 * views. What is not wanted is not looked at either. */
typedef struct zonal__features zonal__features;
zonal_status zonal__features_create(zonal__model *model, const zonal__features_options *options,
                                    zonal__features **out);
void zonal__features_destroy(zonal__features *features); /* accepts NULL */
zonal_status zonal__features_run(zonal__features *work, float *features, float *projections);

#endif
