/*
 * The discrete Fourier transform in single precision, for fields of a few hundred points a side:
 *
 *     X[k] = sum over j of x[j] exp(-2 pi i j k / n),      n = 2^a 3^b 5^c
 *
 * Method: Stockham's self-sorting passes of radix 4, 2, 3 and 5. Each pass runs over whole rows of
 * an [n][width] array, so that many transforms are done side by side and the inner loops are plain
 * additions and products of contiguous floats. Accuracy: the twiddle factors are rounded once from
 * double; the error is about 1e-7 sqrt(log2 n) of the result's root mean square.
 *
 * Real and imaginary parts lie in separate arrays. The inverse, without its factor 1/n, is the same
 * call with the two arrays exchanged: swapping the parts of x and of X turns exp(-...) into
 * exp(+...).
 */
#ifndef ZONAL_MATH_FFT_H
#define ZONAL_MATH_FFT_H

#include <stdint.h>

#include "core/error.h"

typedef struct zonal__fft zonal__fft; /* read-only once made: threads may share it */

enum { ZONAL__FFT_MOST = 1 << 15 };

/* The smallest n >= least (1 <= least <= ZONAL__FFT_MOST) that has no prime factor beyond 5. */
int zonal__fft_length(int least);

/* Fails with ZONAL_ARGUMENT where n is not such a number, and ZONAL_MEMORY; *out is NULL then. */
zonal_status zonal__fft_create(int n, zonal__fft **out);
void zonal__fft_destroy(zonal__fft *fft);

/* Transforms each of the "width" columns of re + i im, both [n][width]. scratch has room for
 * 2 n width floats and overlaps neither. */
void zonal__fft_columns(const zonal__fft *fft, int64_t width, float *re, float *im, float *scratch);

/* Transforms re + i im, both [n][n], along both sides. scratch: 2 n n floats. */
void zonal__fft_square(const zonal__fft *fft, float *re, float *im, float *scratch);

#endif
