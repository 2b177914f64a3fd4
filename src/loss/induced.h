/*
 * The induced kernel: functions of its record in families.c.
 */
#ifndef ZONAL_LOSS_INDUCED_H
#define ZONAL_LOSS_INDUCED_H

#include "loss/kernel.h"

zonal_status zonal__induced_build(zonal_kernel *kernel);
long double zonal__induced_derivative(const zonal_kernel *kernel, int order, long double c);
long double zonal__induced_deficit(const zonal_kernel *kernel, long double c);
long double zonal__induced_log(const zonal_kernel *kernel, long double c);

#endif
