/*
 * Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). A draw is a pure function of
 *
 *     (seed, stream, step, sample, block)
 *
 * so it is the same on any number of threads, ranks or devices, and after a resume. "stream" keeps
 * the users of one seed apart (see enum zonal__stream), "step" is the training step or replicate,
 * "sample" the row, slice or image, and "block" counts the draws within a sample, four words each.
 *
 * The normal variates use a logarithm and a sine written here, from + - * / and sqrt alone: with
 * contraction off they give the same bits with every compiler, C library and device.
 */
#ifndef ZONAL_CORE_RANDOM_H
#define ZONAL_CORE_RANDOM_H

#include <stdint.h>

/* One number for each user of randomness; never reuse or renumber: results depend on them. */
enum zonal__stream {
    ZONAL__STREAM_TEST = 0,    /* tests and examples */
    ZONAL__STREAM_SLICES = 1,  /* directions of SUSReg and SIGReg */
    ZONAL__STREAM_UNIFORM = 2, /* simulated uniform batches: Monte Carlo p-values, variance */
    ZONAL__STREAM_SAMPLE = 3,  /* zonal sample */
    ZONAL__STREAM_TEXTURE = 4, /* procedural textures */
    ZONAL__STREAM_SPLIT = 5,   /* train, val and test of sources that have none */
    ZONAL__STREAM_ORDER = 6,   /* the order of an epoch */
    ZONAL__STREAM_VIEW = 7,    /* parameters of views */
    ZONAL__STREAM_NOISE = 8,   /* noise added to views */
    ZONAL__STREAM_INIT = 9     /* first values of a network's parameters */
};

typedef struct zonal__random {
    uint64_t seed;
    uint8_t stream;
    uint32_t step;
} zonal__random;

/* Four random words. sample < 2^56. */
void zonal__random_words(const zonal__random *random, uint64_t sample, uint32_t block,
                         uint32_t out[4]);

/* Two uniform numbers in (0, 1), 53 bits each, never 0 or 1. */
void zonal__random_uniform(const zonal__random *random, uint64_t sample, uint32_t block,
                           double out[2]);

/* n standard normal numbers, out[k] from block k / 2. */
void zonal__random_normal(const zonal__random *random, uint64_t sample, int64_t n, double *out);

/* A point uniform on the unit sphere of R^n, as n doubles. */
void zonal__random_direction(const zonal__random *random, uint64_t sample, int64_t n, double *out);

/* Those of samples sample ... sample + 3, as [4][n]: faster, because the additions of one have to
 * wait for each other. */
void zonal__random_four_directions(const zonal__random *random, uint64_t sample, int64_t n,
                                   double *out);

#endif
