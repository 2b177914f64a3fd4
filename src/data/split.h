/*
 * Which images of a source are for training, which for validation and which for the test, where the
 * source does not say so itself.
 *
 * Each image draws a lot from 0 to 1 by the seed and its own name (Philox of XXH64 of
 * zonal__source_name), and by nothing else: below val_share it is for validation, below val_share +
 * test_share for the test, above for training. So images that are added or removed move no other,
 * and a class has about its share of each.
 *
 * A class whose images all drew otherwise still has one image of each part whose share is not 0, as
 * far as it has enough: training first, then validation, then the test take one image from the part
 * that has most (for training the highest lot, otherwise the lowest, and only from a part that
 * keeps another). Only such an image can move when its class changes, and in classes of more than
 * 10 / share images there is hardly ever one.
 *
 * zonal__split_choose, declared in source.h, is for rows without names, where the shares are exact.
 */
#ifndef ZONAL_DATA_SPLIT_H
#define ZONAL_DATA_SPLIT_H

#include "data/source.h"

/* Keeps the images of options->split and forgets the others. With own_test the source's test
 * images lie elsewhere: nothing is set aside for a test, and the split must not be TEST. Fails
 * with ZONAL_ARGUMENT when no image is left, unless options->strict_split. */
zonal_status zonal__split_keep(zonal__source *source, const zonal__source_options *options,
                               int own_test);

/* "all", "train", "val", "test" */
const char *zonal__split_name(zonal__split split);

#endif
