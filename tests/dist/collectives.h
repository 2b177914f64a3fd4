/*
 * What every communicator for host memory must do: all of its calls, by numbers known in advance.
 */
#ifndef ZONAL_TESTS_COLLECTIVES_H
#define ZONAL_TESTS_COLLECTIVES_H

#include <string.h>

#include "core/memory.h"
#include "zonal/communicator.h"

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return ZONAL_FAIL(ZONAL_NUMERIC, "line %d: not so: %s", __LINE__, #condition);         \
    } while (0)

/* Whole numbers and eighths, whose sums are exact in any order. */
static double number_of(int rank, int64_t i) {
    return (double)(i % 1009) * (rank + 1) / 8;
}

static double sum_of(int ranks, int64_t i) {
    return (double)(i % 1009) * ranks * (ranks + 1) / 16;
}

static zonal_status check_sums(const zonal_communicator *c, int64_t count) {
    double *d;
    float *f = NULL;
    ZONAL_TRY(ZONAL_NEW(&d, count, "numbers"));
    ZONAL_TRY(ZONAL_NEW(&f, count, "numbers"));
    for (int64_t i = 0; i < count; i++) f[i] = (float)(d[i] = number_of(c->rank, i));
    ZONAL_TRY(c->all_reduce(c->context, d, count, ZONAL_REDUCE_DOUBLE, NULL));
    ZONAL_TRY(c->all_reduce(c->context, f, count, ZONAL_REDUCE_FP32, NULL));
    for (int64_t i = 0; i < count; i++) {
        EXPECT(d[i] == sum_of(c->ranks, i));
        EXPECT(f[i] == (float)sum_of(c->ranks, i));
    }
    zonal__free(d);
    zonal__free(f);
    return ZONAL_OK;
}

/* Sums that round: every rank must have the very bits of the others. */
static zonal_status check_bits(const zonal_communicator *c) {
    enum { COUNT = 3000 };
    static double d[COUNT], first[COUNT];
    static float f[COUNT], first_f[COUNT];
    for (int i = 0; i < COUNT; i++)
        f[i] = (float)(d[i] = 1.0 / (1 + i + 7 * c->rank) - 0.1 * c->rank);
    ZONAL_TRY(c->all_reduce(c->context, d, COUNT, ZONAL_REDUCE_DOUBLE, NULL));
    ZONAL_TRY(c->all_reduce(c->context, f, COUNT, ZONAL_REDUCE_FP32, NULL));
    memcpy(first, d, sizeof d);
    memcpy(first_f, f, sizeof f);
    ZONAL_TRY(c->broadcast(c->context, first, sizeof first, 0, NULL));
    ZONAL_TRY(c->broadcast(c->context, first_f, sizeof first_f, 0, NULL));
    EXPECT(memcmp(first, d, sizeof d) == 0);
    EXPECT(memcmp(first_f, f, sizeof f) == 0);
    return ZONAL_OK;
}

static unsigned char byte_of(int rank, int64_t i) {
    return (unsigned char)(rank * 31 + i * 7 + i / 251);
}

/* Rank r has r times "each" bytes: the first has none. */
static zonal_status check_gather(const zonal_communicator *c, int64_t each, int in_place) {
    int64_t *bytes, total = 0, before = 0;
    unsigned char *all, *mine;
    ZONAL_TRY(ZONAL_NEW(&bytes, c->ranks, "sizes"));
    for (int r = 0; r < c->ranks; total += bytes[r++]) {
        bytes[r] = r * each;
        if (r < c->rank) before += bytes[r];
    }
    ZONAL_TRY(ZONAL_NEW(&all, total, "blocks"));
    ZONAL_TRY(ZONAL_NEW(&mine, bytes[c->rank], "a block"));
    if (in_place) {
        zonal__free(mine);
        mine = all + before;
    }
    for (int64_t i = 0; i < bytes[c->rank]; i++) mine[i] = byte_of(c->rank, i);
    ZONAL_TRY(c->all_gather(c->context, mine, all, bytes, NULL));
    for (int64_t r = 0, at = 0; r < c->ranks; at += bytes[r++])
        for (int64_t i = 0; i < bytes[r]; i++) EXPECT(all[at + i] == byte_of((int)r, i));
    if (!in_place) zonal__free(mine);
    zonal__free(all);
    zonal__free(bytes);
    return ZONAL_OK;
}

static zonal_status check_shift(const zonal_communicator *c, int64_t each) {
    int from = (c->rank + c->ranks - 1) % c->ranks;
    int64_t out = c->rank * each, in = from * each;
    unsigned char *send, *receive;
    ZONAL_TRY(ZONAL_NEW(&send, out, "a block"));
    ZONAL_TRY(ZONAL_NEW(&receive, in, "a block"));
    for (int64_t i = 0; i < out; i++) send[i] = byte_of(c->rank, i);
    ZONAL_TRY(c->shift_begin(c->context, send, out, receive, in, NULL));
    ZONAL_TRY(c->shift_end(c->context, NULL));
    for (int64_t i = 0; i < in; i++) EXPECT(receive[i] == byte_of(from, i));
    zonal__free(send);
    zonal__free(receive);
    return ZONAL_OK;
}

static zonal_status check_broadcast(const zonal_communicator *c, int64_t bytes) {
    unsigned char *block;
    ZONAL_TRY(ZONAL_NEW(&block, bytes, "a block"));
    for (int root = 0; root < c->ranks; root++) {
        for (int64_t i = 0; i < bytes; i++) block[i] = byte_of(c->rank, i);
        ZONAL_TRY(c->broadcast(c->context, block, bytes, root, NULL));
        for (int64_t i = 0; i < bytes; i++) EXPECT(block[i] == byte_of(root, i));
    }
    zonal__free(block);
    return ZONAL_OK;
}

/* Sizes around nothing, one, and the pieces that transports cut messages into. */
static zonal_status check_collectives(const zonal_communicator *c) {
    static const int64_t sizes[] = {0, 1, 3, 1000, 4096, 131072, 131073, 1048577, 3000000};
    EXPECT(!c->on_device && c->size == sizeof *c);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ZONAL_TRY(check_sums(c, sizes[i]));
        ZONAL_TRY(check_gather(c, sizes[i], 0));
        ZONAL_TRY(check_gather(c, sizes[i], 1));
        ZONAL_TRY(check_shift(c, sizes[i]));
        ZONAL_TRY(check_broadcast(c, sizes[i]));
    }
    return check_bits(c);
}

#endif
