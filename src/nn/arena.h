/*
 * Many arrays in one piece of memory: those that are not alive at the same time may share a place.
 */
#ifndef ZONAL_NN_ARENA_H
#define ZONAL_NN_ARENA_H

#include <stddef.h>

#include "core/error.h"

/* An array that is alive from time "first" to time "last", both included. */
typedef struct zonal__lifetime {
    size_t bytes; /* 0: takes no place */
    int first, last;
    size_t offset; /* where it goes: a multiple of 64 */
} zonal__lifetime;

/* Sets the offsets so that no two arrays alive at a common time overlap, and *bytes to the size of
 * the whole. Larger arrays are placed first, each as low as it can go: for networks this comes
 * close to the most that is alive at any time, which no plan can beat. */
zonal_status zonal__arena_plan(zonal__lifetime *lifetimes, int count, size_t *bytes);

#endif
