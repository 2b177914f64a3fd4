/*
 * How a network begins, as in torchvision and PyTorch:
 *
 *     convolution   normal, variance 2/(out kernel^2)      (kaiming, fan out, relu)
 *     linear        weight and bias uniform on +-1/sqrt(in)
 *     norm          scale 1, bias 0, running mean 0, running variance 1
 *
 * The numbers of an entry depend on the seed and on its name alone (ZONAL__STREAM_INIT, the sample
 * being a hash of the name): other layers, or another projector, do not move them.
 */
#ifndef ZONAL_NN_INIT_H
#define ZONAL_NN_INIT_H

#include "nn/network.h"

/* Sets all parameters and statistics, batches to 0, and refreshes the bf16 copy. With
 * zero_init_residual the last batch norm of every block begins with scale 0, so that the block
 * begins as its shortcut (torchvision's zero_init_residual). They are computed on the host, for
 * every device. */
zonal_status zonal__model_initialise(zonal__model *model, uint64_t seed, int zero_init_residual);

#endif
