/*
 * Which pictures of a source are for training, which for validation and which for the test.
 * zonal__split_choose, declared in source.h, does the choosing; this is what readers call.
 */
#ifndef ZONAL_DATA_SPLIT_H
#define ZONAL_DATA_SPLIT_H

#include "data/source.h"

/* Keeps the pictures of options->split and forgets the others. With own_test the source's test
 * pictures lie elsewhere: nothing is set aside for a test, and the split must not be TEST. Fails
 * with ZONAL_ARGUMENT when no picture is left. */
zonal_status zonal__split_keep(zonal__source *source, const zonal__source_options *options,
                               int own_test);

/* "all", "train", "val", "test" */
const char *zonal__split_name(zonal__split split);

#endif
