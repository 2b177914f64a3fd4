/*
 * The report in words.
 */
#ifndef ZONAL_UNIFORMITY_VERDICT_H
#define ZONAL_UNIFORMITY_VERDICT_H

#include "zonal/uniformity.h"

/* Writes report->verdict from everything else in the report. "level" is shared among the tests. */
void zonal__verdict(double level, zonal_uniformity_report *report);

#endif
