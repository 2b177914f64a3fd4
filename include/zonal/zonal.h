/*
 * zonal/zonal.h - all of libzonal. Start with zonal/loss.h (losses) or zonal/uniformity.h (tests);
 * errors, memory and logging are in zonal/status.h, kernels in zonal/kernel.h, what can compute in
 * zonal/device.h, several ranks in zonal/communicator.h.
 *
 * Structs and versions. A struct of options, and one that is filled with what is known (an info,
 * the constants of a kernel, a report), begins with its size, which the caller sets before the
 * first call:
 *
 *     zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
 *     zonal_plan_info info = ZONAL_PLAN_INFO_INIT;
 *
 * or options.size = sizeof options. The library reads and writes no more than that many bytes, so a
 * program works with a later library that knows more members: those have their defaults. A library
 * that knows fewer refuses members that are not zero. A size that no version can have (0, or memory
 * that was never set) is ZONAL_ARGUMENT. Structs that are members of others (zonal_kernel_spec,
 * zonal_sliced_options) have no size but reserved room, which must be zero.
 *
 * Without structs. A binding in another language needs none of these layouts: options are set by
 * name and text (zonal_loss_set, zonal_objective_set), whole objects are made from one text
 * (zonal_plan_make, zonal_objective_make, zonal_kernel_make, zonal_uniformity_make), and what is
 * known of them is asked for by name (zonal_plan_get, zonal_plan_get_text and their like).
 */
#ifndef ZONAL_ZONAL_H
#define ZONAL_ZONAL_H

#include "zonal/communicator.h"
#include "zonal/device.h"
#include "zonal/kernel.h"
#include "zonal/loss.h"
#include "zonal/status.h"
#include "zonal/uniformity.h"

#endif
