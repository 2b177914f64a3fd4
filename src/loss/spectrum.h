/*
 * Ways to the spectrum a_l that families share.
 */
#ifndef ZONAL_LOSS_SPECTRUM_H
#define ZONAL_LOSS_SPECTRUM_H

#include "loss/kernel.h"

/* Of a spectrum: narrower kernels are refused. */
enum { ZONAL__SPECTRUM_DEGREES = 20000, ZONAL__MOST_WEIGHTS = 4096 };

/* From the family's ratios w_{l+1}/w_l, degrees 0 to "last" at most. The number of degrees follows
 * from the tail. */
zonal_status zonal__spectrum_chain(zonal_kernel *kernel, int last);
/* From the spec's weights. */
zonal_status zonal__spectrum_given(zonal_kernel *kernel);

/* The sentence for a kernel of which a double sees nothing but its mean. */
zonal_status zonal__spectrum_is_constant(int64_t dim);

#endif
