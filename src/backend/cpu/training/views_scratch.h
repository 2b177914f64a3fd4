/*
 * What photographs and textures share: the memory one thread needs to make a view. Included by
 * views.c alone. A view on its way lies in planes, one per channel, so that every loop runs over
 * neighbouring floats and the compiler can vectorise it.
 */
#ifndef ZONAL_BACKEND_CPU_TRAINING_VIEWS_SCRATCH_H
#define ZONAL_BACKEND_CPU_TRAINING_VIEWS_SCRATCH_H

#include <stdint.h>

#include "backend/cpu/clones.h"

/* The filter along one side: pixel o of the view is the sum of weight[o][k] times source pixel
 * first[o] + k of the crop, k < count. Where the crop ends earlier the weight is 0. */
typedef struct taps {
    int count;
    int32_t *first; /* [to] */
    float *weight;  /* [to][count] */
} taps;

typedef struct scratch {
    float *plane[3]; /* [height][width] each */
    /* photographs */
    float *smooth; /* [height][width], the half-done blur */
    float *blur;   /* [blur_taps] */
    float *padded; /* [width + blur_taps], a row with its reflections */
    float *line;   /* [longest crop + taps][channels] + 4, the crop's rows added up */
    float *pixels; /* [width][4], a resampled row */
    float *rgb;    /* [3][width], the same in planes, where it is to become grey */
    taps across, down;
    /* textures */
    float *normal; /* [height][width][channels] and one for an odd number of them */
} scratch;

static inline float clamp(float x) {
    x = x > 0 ? x : 0;
    return x < 1 ? x : 1;
}

ZONAL__CLONES static void mix_grey(int64_t n, const float *r, const float *g, const float *b,
                                   float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = 0.2989f * r[i] + 0.587f * g[i] + 0.114f * b[i];
}

#endif
