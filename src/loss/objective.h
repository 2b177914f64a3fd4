/*
 * Objectives from the inside, for training in CUDA graphs.
 */
#ifndef ZONAL_LOSS_OBJECTIVE_H
#define ZONAL_LOSS_OBJECTIVE_H

#include "zonal/loss.h"

/* As zonal_objective_create. With device_step, on CUDA, a sliced loss takes its step from this word
 * of device memory at the time it is computed, and zonal_objective_set_step does nothing: the step
 * of a captured execution would be the same in every replay. NULL: as usual. The word must outlive
 * the objective. */
zonal_status zonal__objective_create_on(const zonal_objective_options *options, int64_t views,
                                        int64_t global_views, int64_t rows, int64_t dim,
                                        const uint32_t *device_step, zonal_objective **objective);

/* The same with how this rank has fared in making the options (zonal__plan_create_from). */
zonal_status zonal__objective_create_from(const zonal_objective_options *options,
                                          zonal_status status, int64_t views, int64_t global_views,
                                          int64_t rows, int64_t dim, const uint32_t *device_step,
                                          zonal_objective **objective);

const zonal_objective_info *zonal__objective_info(const zonal_objective *objective);

#endif
