/*
 * Plans from the inside, for the objective.
 */
#ifndef ZONAL_LOSS_PLAN_H
#define ZONAL_LOSS_PLAN_H

#include "backend/device.h"
#include "loss/profile.h"
#include "loss/sliced.h"
#include "zonal/loss.h"

/* A plan that has everything but its work space: it describes the problem and cannot be executed.
 */
zonal_status zonal__plan_prepare(const zonal_loss_options *options, int64_t batch, int64_t dim,
                                 zonal_plan **plan);
/* Takes the work space: it can be executed afterwards. */
zonal_status zonal__plan_finish(zonal_plan *plan);
const zonal__problem *zonal__plan_problem(const zonal_plan *plan);
const zonal__device *zonal__plan_device(const zonal_plan *plan);
const zonal_plan_info *zonal__plan_info(const zonal_plan *plan);

#endif
