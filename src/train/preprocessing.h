/*
 * What an image goes through before a network sees it. It belongs to the weights as much as they
 * do to each other, so it travels in the metadata of exported files:
 *
 *     zonal.side         "32"                    width and height of what the network sees
 *     zonal.channels     "3"
 *     zonal.augmentation "byol", "texture"       how the image is resampled (below)
 *     zonal.crop         "center", "whole"
 *     zonal.mean         "0.485,0.456,0.406"     taken off, of elements in [0, 1]; or one for all
 *     zonal.std          "0.229,0.224,0.225"     what they are then divided by
 *
 * "center" is the square in the middle whose side is 7/8 of the image's shorter side, "whole" all
 * of it, stretched. byol resamples by the triangle filter, widened where it shrinks (antialiased
 * bilinear), texture bilinearly between pixels with zeros outside.
 */
#ifndef ZONAL_TRAIN_PREPROCESSING_H
#define ZONAL_TRAIN_PREPROCESSING_H

#include "core/safetensors.h"
#include "train/training.h"

/* The metadata of these: the names of zonal train's options, and their values as these take them.
 */
enum { ZONAL__PREPROCESSING_NOTES = 5, ZONAL__PREPROCESSING_TEXT = 64 };
extern const char *const zonal__preprocessing_names[ZONAL__PREPROCESSING_NOTES];

/* As texts; an empty one: not known. */
typedef struct zonal__preprocessing {
    char text[ZONAL__PREPROCESSING_NOTES][ZONAL__PREPROCESSING_TEXT];
} zonal__preprocessing;

/* Of a run whose configuration was read. The crop of runs from before it was recorded is not known
 * but for textures. */
void zonal__preprocessing_of_run(const zonal__training *training, zonal__preprocessing *out);
/* The same of random views as the run was trained on, which may be smaller (--eval-side). */
void zonal__preprocessing_of_views(const zonal__training *training, zonal__preprocessing *out);

/* Of a file of weights, as far as its metadata tell. ZONAL_FORMAT for texts that cannot be meant:
 * they come from anybody, and go on into option tables and Python. */
zonal_status zonal__preprocessing_of_file(const zonal__safetensors *file,
                                          zonal__preprocessing *out);

/* The value by the name of its option; "" where it is not known. */
const char *zonal__preprocessing_get(const zonal__preprocessing *preprocessing, const char *name);

/* "32 px, center, mean 0.5, std 0.25". */
enum { ZONAL__PREPROCESSING_SENTENCE = 4 * ZONAL__PREPROCESSING_TEXT + 32 };
void zonal__preprocessing_describe(const zonal__preprocessing *preprocessing,
                                   char out[ZONAL__PREPROCESSING_SENTENCE]);

#endif
