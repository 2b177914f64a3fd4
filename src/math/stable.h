/*
 * Symmetric stable distributions, whose sums are of their own kind: the distribution with
 * characteristic function exp(-|t|^alpha). alpha = 2 is the normal distribution of variance 2,
 * alpha = 1 Cauchy's; below 2 the tails fall like |x|^(-1-alpha), so that a few draws outweigh all
 * others.
 *
 * Method: Chambers, Mallows and Stuck, "A method for simulating stable random variables", JASA
 * 1976. With V uniform on (-pi/2, pi/2) and W exponential,
 *
 *     X = sin(alpha V) / cos(V)^(1/alpha) * (cos((1 - alpha) V) / W)^((1 - alpha)/alpha),
 *
 * which is tan V for alpha = 1. Each uniform number has 32 bits: tails end where the distribution
 * has probability 1e-10.
 */
#ifndef ZONAL_MATH_STABLE_H
#define ZONAL_MATH_STABLE_H

#include "core/random.h"

/* n draws, 0.5 <= alpha <= 2. For alpha = 1, which takes no function of the C library, out[k] is
 * from block k / 4, otherwise from block k / 2. */
void zonal__stable_draw(const zonal__random *random, uint64_t sample, double alpha, int64_t n,
                        float *out);

#endif
