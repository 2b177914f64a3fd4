/*
 * Plans run on rows that lie in host memory, whatever device the plan is for.
 */
#ifndef ZONAL_CLI_ON_DEVICE_H
#define ZONAL_CLI_ON_DEVICE_H

#include "cli/rows.h"

/* Executes the plan: on CUDA the rows are copied there and the results back. gradient may be NULL.
 */
zonal_status zonal__cli_execute(zonal_plan *plan, zonal_device device, const zonal__cli_rows *rows,
                                double *value, void *gradient);

/* The median time of one execution on the GPU with gradient, in a CUDA graph, in microseconds;
 * *runs receives the number of replays. rows hold floats. */
zonal_status zonal__cli_time_on_gpu(zonal_plan *plan, const zonal__cli_rows *rows,
                                    double *microseconds, int *runs);

#endif
