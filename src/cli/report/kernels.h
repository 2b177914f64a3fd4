/* What the settings of the runs of a report say about their losses. */
#ifndef ZONAL_CLI_REPORT_KERNELS_H
#define ZONAL_CLI_REPORT_KERNELS_H

#include "report/report.h"

/* Fills report->kernels. A run whose settings describe no kernel is passed over. */
zonal_status zonal__report_make_kernels(zonal__report *report);

#endif
