/*
 * Objectives from the inside.
 */
#ifndef ZONAL_LOSS_OBJECTIVE_H
#define ZONAL_LOSS_OBJECTIVE_H

#include "zonal/loss.h"

/* As zonal_objective_create, with how this rank has fared in making the options
 * (zonal__plan_create_from). */
zonal_status zonal__objective_create_from(const zonal_objective_options *options,
                                          zonal_status status, int64_t views, int64_t global_views,
                                          int64_t rows, int64_t dim, zonal_objective **objective);

const zonal_objective_info *zonal__objective_info(const zonal_objective *objective);

#endif
