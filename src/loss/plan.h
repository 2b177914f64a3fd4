/*
 * Plans from the inside, for the objective.
 */
#ifndef ZONAL_LOSS_PLAN_H
#define ZONAL_LOSS_PLAN_H

#include "backend/device.h"
#include "backend/ranks.h"
#include "loss/profile.h"
#include "loss/sliced.h"
#include "zonal/loss.h"

/* As zonal_plan_create, with how this rank has fared in making the options: where it failed, all
 * ranks of their communicator must hear of it. */
zonal_status zonal__plan_create_from(const zonal_loss_options *options, zonal_status status,
                                     int64_t rows, int64_t dim, zonal_plan **plan);

/* Collective, where the options have a communicator: finds the ranks, which must agree on the
 * options and the values beside them. NULL where they have none. */
zonal_status zonal__plan_join(const zonal_loss_options *options, zonal_status status, int64_t rows,
                              int64_t dim, const zonal__agreed *values, int count,
                              zonal__ranks **ranks);
/* A plan that has everything but its work space: it describes the problem and cannot be executed.
 * The options have all members of this version; their communicator is not looked at. The ranks, or
 * NULL, must outlive the plan. */
zonal_status zonal__plan_prepare(const zonal_loss_options *options, const zonal__ranks *ranks,
                                 int64_t rows, int64_t dim, zonal_plan **plan);
/* Takes the work space: it can be executed afterwards. */
zonal_status zonal__plan_finish(zonal_plan *plan);
const zonal__problem *zonal__plan_problem(const zonal_plan *plan);
const zonal__device *zonal__plan_device(const zonal_plan *plan);
const zonal_plan_info *zonal__plan_info(const zonal_plan *plan);

#endif
