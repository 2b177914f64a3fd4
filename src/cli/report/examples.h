/* What the runs of a report show when their networks are asked: neighbours, views, energies. */
#ifndef ZONAL_CLI_REPORT_EXAMPLES_H
#define ZONAL_CLI_REPORT_EXAMPLES_H

#include "report/report.h"

/* Fills galleries and embeddings, and the energy by degree where it is not known yet, from the
 * runs' images and networks; at most "most" test images are embedded. What cannot be made is no
 * failure: the page says why. */
zonal_status zonal__report_make_examples(zonal__report *report, int64_t most, int quiet);

#endif
