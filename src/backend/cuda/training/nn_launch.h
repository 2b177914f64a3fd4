/*
 * How the batch norms, pools and optimisers on CUDA are cut into blocks: arithmetic alone, plain C,
 * so that it is tested without a GPU (test_cuda_nn_launch.c). The kernels read the shapes.
 *
 * An array of rows of channels is cut into columns of at most ZONAL__NN_TILE channels, and each
 * column is shared by blocks that take "down" rows at a time. A thread keeps to its channels, so it
 * reads what belongs to them once; it moves 8 of them at a time, 16 bytes in bf16, where the number
 * of channels allows it, else 1.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_LAUNCH_H
#define ZONAL_BACKEND_CUDA_TRAINING_NN_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ZONAL__NN_LAUNCH __host__ __device__ static inline
#else
#define ZONAL__NN_LAUNCH static inline
#endif

enum {
    ZONAL__NN_THREADS = 384, /* of a block; two on a multiprocessor leave 80 registers each */
    ZONAL__NN_VECTOR = 8,    /* channels that a thread moves at a time */
    ZONAL__NN_TILE = 64,     /* channels of a column, at most: 128 bytes; the fewer, the sooner its
                                blocks' sums are added */
    ZONAL__RESIDENT_THREADS = 256,
    ZONAL__RESIDENT_ACROSS = 4,       /* groups of a column: 32 channels, one for each lane */
    ZONAL__RESIDENT_ROWS = 4,         /* of a thread, before a multiprocessor gets a second block */
    ZONAL__RESIDENT_BYTES = 32 << 20, /* of the array; what is read twice is still in the cache */
    ZONAL__POOL_THREADS = 256         /* of a block, at most */
};

typedef struct zonal__columns {
    int64_t rows;
    int channels;
    int vector;       /* ZONAL__NN_VECTOR or 1 */
    int groups;       /* of "vector" channels each */
    int across, down; /* groups and rows of a block at a time */
    int columns;      /* each of across * vector channels; the last one may be narrower */
} zonal__columns;

static inline int zonal__nn_ceil(int64_t a, int64_t b) {
    return (int)((a + b - 1) / b);
}

static inline void zonal__columns_make(int64_t rows, int channels, zonal__columns *c) {
    c->rows = rows;
    c->channels = channels;
    c->vector = channels % ZONAL__NN_VECTOR == 0 ? ZONAL__NN_VECTOR : 1;
    c->groups = channels / c->vector;
    c->columns = zonal__nn_ceil(channels, ZONAL__NN_TILE);
    c->across = zonal__nn_ceil(c->groups, c->columns);
    c->columns = zonal__nn_ceil(c->groups, c->across); /* even shares may need fewer */
    c->down = ZONAL__NN_THREADS / c->across;
}

/* Blocks of each column: as many as there is work for when each thread takes "at_once" rows, but
 * all columns together no more than "most". */
static inline int zonal__columns_blocks(const zonal__columns *c, int at_once, int most) {
    int64_t work = (c->rows + (int64_t)c->down * at_once - 1) / ((int64_t)c->down * at_once);
    int64_t room = most / c->columns > 1 ? most / c->columns : 1;
    return (int)(work < room ? work : room);
}

/* Arrays that are not large are done by blocks that all run at once, "most" of them at most, which
 * wait for each other between summing up and using the sums (nn_norm_resident.cuh). Few blocks make
 * few sums to add, many keep more loads under way. */
typedef struct zonal__resident {
    zonal__columns shape;
    int blocks; /* of a column; 0: the array is too large, or its channels come one by one */
    int each;   /* rows of a thread; some have one less */
} zonal__resident;

static inline void zonal__resident_make(int64_t rows, int channels, int element_bytes,
                                        int processors, int most, zonal__resident *r) {
    zonal__columns *c = &r->shape;
    int64_t steps, room, few;
    r->blocks = r->each = 0;
    zonal__columns_make(rows, channels, c);
    c->across = ZONAL__RESIDENT_ACROSS;
    c->columns = zonal__nn_ceil(c->groups, c->across);
    c->down = ZONAL__RESIDENT_THREADS / c->across;
    if (c->vector == 1 || c->columns > most) return;
    if (rows > ZONAL__RESIDENT_BYTES / ((int64_t)channels * element_bytes)) return;
    steps = zonal__nn_ceil(rows, c->down);
    few = zonal__nn_ceil(steps, ZONAL__RESIDENT_ROWS);
    room = processors / c->columns > few ? processors / c->columns : few;
    if (room > most / c->columns) room = most / c->columns;
    r->blocks = zonal__nn_ceil(steps, zonal__nn_ceil(steps, room)); /* as few as even shares need */
    r->each = zonal__nn_ceil(steps, r->blocks);
}

/* Where thread "thread" of block "block" stands. Elements are those of the array, [rows][channels].
 * The rows of a thread begin with "first" and lie "step" elements apart. */
typedef struct zonal__column_place {
    int column, slot; /* the block's column, and its number there */
    int channel;      /* the first of the thread's */
    int64_t first;    /* element of its first row and channel; at least "end": it has none */
    int64_t step, end;
} zonal__column_place;

ZONAL__NN_LAUNCH zonal__column_place zonal__column_find(const zonal__columns *c, int blocks,
                                                        int block, int thread) {
    zonal__column_place at;
    int group, down = thread / c->across;
    at.column = block % c->columns; /* side by side, so that blocks read whole rows together */
    at.slot = block / c->columns;
    group = at.column * c->across + thread % c->across;
    at.channel = group * c->vector;
    at.end = c->rows * c->channels;
    at.step = (int64_t)(blocks / c->columns) * c->down * c->channels;
    at.first = ((int64_t)at.slot * c->down + down) * c->channels + at.channel;
    if (down >= c->down || group >= c->groups) at.first = at.end;
    return at;
}

/* The same from the last row to the first: the thread's first element, and "step" to subtract until
 * it is negative. */
ZONAL__NN_LAUNCH int64_t zonal__column_last(const zonal__columns *c,
                                            const zonal__column_place *at) {
    return at->end - c->channels - at->first + 2 * (int64_t)at->channel;
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* Blocks that have one row of pixels at a time: "across" groups of channels times "down" pixels. */
typedef struct zonal__pool_shape {
    int vector, groups; /* as above */
    int across, down;
    int blocks; /* fewer than rows where those are very many */
} zonal__pool_shape;

static inline void zonal__pool_shape_make(int64_t rows, int pixels, int channels,
                                          zonal__pool_shape *shape) {
    int most, turns;
    shape->vector = channels % ZONAL__NN_VECTOR == 0 ? ZONAL__NN_VECTOR : 1;
    shape->groups = channels / shape->vector;
    shape->across = shape->groups < ZONAL__POOL_THREADS ? shape->groups : (int)ZONAL__POOL_THREADS;
    most = ZONAL__POOL_THREADS / shape->across;
    turns = zonal__nn_ceil(pixels, most);
    shape->down = zonal__nn_ceil(pixels, turns); /* even shares of the row */
    shape->blocks = rows < (1 << 20) ? (int)rows : 1 << 20;
}

/* The windows first, ..., last of a side of "windows" that have pixel p of it; none where last is
 * below first. */
typedef struct zonal__pool_windows {
    int first, last;
} zonal__pool_windows;

ZONAL__NN_LAUNCH zonal__pool_windows zonal__pool_windows_over(int p, int kernel, int stride,
                                                              int pad, int windows) {
    zonal__pool_windows over;
    int beyond = p + pad - kernel; /* a window that begins here ends before p */
    over.first = beyond < 0 ? 0 : beyond / stride + 1;
    over.last = (p + pad) / stride;
    if (over.last > windows - 1) over.last = windows - 1;
    return over;
}

#endif
