/* The paper's figure of its data sets. */
#ifndef ZONAL_CLI_REPORT_FIGURE_SAMPLES_H
#define ZONAL_CLI_REPORT_FIGURE_SAMPLES_H

#include <stdint.h>

#include "core/error.h"

/* Writes FOLDER/samples.png: a row of eight training images, their middle square, for each data set
 * of a list as --data has it ("imagenet100=DIR:class-list=FILE,galaxy10=FILE"). The images are
 * drawn by the seed, one each of as many classes as there are, up to eight. */
zonal_status zonal__figure_samples(const char *folder, const char *data, uint64_t seed);

#endif
