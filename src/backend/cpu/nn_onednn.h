/*
 * oneDNN, where it is built in: fp32 matrix products of one thread, which the layers' threads call
 * side by side.
 *
 * Not used, and why. Its convolutions: with one thread each, over the layers of a ResNet-18 at 64
 * pixels, they take longer than gathered patches and this product (0.98 s against 0.80 s for a
 * batch of 128 on one core of an Emerald Rapids). They win by a quarter on wide pictures and lose
 * threefold on those of 2 x 2 pixels. Its bf16: without tiles it is slower than its fp32 there, and
 * with them oneDNN 2.6 ends in an illegal instruction in virtual machines that hide the list of
 * tile shapes; nn_amx.h needs no list.
 *
 * A product takes memory of oneDNN's own while it lasts.
 */
#ifndef ZONAL_BACKEND_CPU_NN_ONEDNN_H
#define ZONAL_BACKEND_CPU_NN_ONEDNN_H

#include "backend/cpu/blas.h"

/* Without OpenMP there would be no way to keep oneDNN from starting threads. */
#if defined(ZONAL_HAVE_ONEDNN) && defined(_OPENMP)
enum { zonal__onednn_built = 1 };
#else
enum { zonal__onednn_built = 0 };
#endif

/* The product of blas.h, in fp32. Returns 0 where it was not made: not built in, or no memory. */
int zonal__onednn_multiply(const zonal__cpu_product *product);

#endif
