/*
 * oneDNN, where it is built in: fp32 matrix products of one thread, which the layers' threads call
 * side by side. Its bf16 is not used: tiles are driven by nn_amx.h, and without tiles oneDNN's bf16
 * is no faster than its fp32 on the processors we could measure.
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
