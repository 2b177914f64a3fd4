/*
 * zonal/zonal.h - all of libzonal. Start with zonal/loss.h (losses) or zonal/uniformity.h (tests);
 * errors, memory and logging are in zonal/status.h, kernels in zonal/kernel.h, what can compute in
 * zonal/device.h.
 */
#ifndef ZONAL_ZONAL_H
#define ZONAL_ZONAL_H

#include "zonal/device.h"
#include "zonal/kernel.h"
#include "zonal/loss.h"
#include "zonal/status.h"
#include "zonal/uniformity.h"

#endif
