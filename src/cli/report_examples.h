/* What the runs of a report show when their networks are asked: neighbours, views, energies. */
#ifndef ZONAL_CLI_REPORT_EXAMPLES_H
#define ZONAL_CLI_REPORT_EXAMPLES_H

#include "report/report.h"

/* Fills the galleries, and the energy by degree where it is not known yet, from the runs' images
 * and networks. What cannot be made is no failure: its gallery says why. */
zonal_status zonal__report_make_examples(zonal__report *report, int quiet);

#endif
