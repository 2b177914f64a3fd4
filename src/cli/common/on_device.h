/*
 * Plans run on rows that lie in host memory, whatever device the plan is for.
 */
#ifndef ZONAL_CLI_COMMON_ON_DEVICE_H
#define ZONAL_CLI_COMMON_ON_DEVICE_H

#include "backend/device.h"
#include "cli/common/rows.h"

/* Executes the plan: the rows are copied to its device and the results back. gradient may be NULL.
 */
zonal_status zonal__cli_execute(zonal_plan *plan, const zonal__device *device,
                                const zonal__cli_rows *rows, double *value, void *gradient);

/* The median time of one execution on a device other than the host, with gradient, in a graph, in
 * microseconds; *runs receives the number of replays. rows hold floats. */
zonal_status zonal__cli_time_on(zonal_plan *plan, const zonal__device *device,
                                const zonal__cli_rows *rows, double *microseconds, int *runs);

#endif
