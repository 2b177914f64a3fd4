/*
 * The nearest of many rows by cosine: what k-NN classification and retrieval are made of.
 *
 * A "bank" of rows is kept on the device; queries are compared with it, a panel at a time, so that
 * no array of queries x bank ever exists. Rows of both are brought to unit length first (in double,
 * rounded to fp32). The cosine of two unit rows is the sum of the products of their elements.
 *
 *   nearest   for each query the k rows of the bank with the largest cosines, in falling order; of
 *             equal ones the lower row comes first. Cosines are summed in double. The fast devices
 *             choose k + ZONAL__NEIGHBOURS_SPARE candidates by fp32 products and order those again
 *             by their sums in double, so a copy of a row has the very cosine of the row, and all
 *             devices give the same rows unless more than that many lie within rounding of the
 *             k-th.
 *   cosines   all cosines of a few queries, as fp32 products give them: off by less than
 *             ZONAL__COSINE_ROUNDING
 *
 * Rows and results are host memory on every device; the calls wait until the results are there. A
 * row that is zero or not finite is ZONAL_NUMERIC, with its number in the sentence. The calls
 * allocate nothing and give the same bits every time, for any number of threads.
 */
#ifndef ZONAL_BACKEND_TRAINING_NEIGHBOURS_H
#define ZONAL_BACKEND_TRAINING_NEIGHBOURS_H

#include <stdint.h>

#include "backend/backend.h"
#include "core/error.h"
#include "zonal/loss.h"

enum { ZONAL__NEIGHBOURS_MOST = 256, ZONAL__NEIGHBOURS_SPARE = 32 };

/* More than fp32 products of unit rows are off: 4e-7 was the worst up to dimension 4096, for rows
 * that all but coincide. */
#define ZONAL__COSINE_ROUNDING 1e-6f

typedef struct zonal__neighbours_spec {
    int64_t dim;
    int64_t rows;                /* the most rows of the bank, below 2^31 */
    int64_t queries;             /* the most queries of one call, below 2^31 */
    int k;                       /* of nearest: 0 (never called) to ZONAL__NEIGHBOURS_MOST */
    int threads;                 /* host; 0: all there are */
    const zonal__device *device; /* NULL: the backend's first */
} zonal__neighbours_spec;

typedef struct zonal__neighbours zonal__neighbours; /* each device has its own */

typedef struct zonal__neighbours_table {
    const char *name;
    /* *out is NULL on failure. */
    zonal_status (*create)(const zonal__neighbours_spec *spec, zonal__neighbours **out);
    void (*destroy)(zonal__neighbours *neighbours); /* accepts NULL */

    /* Replaces the bank by rows [count][dim], which are copied. */
    zonal_status (*set_bank)(zonal__neighbours *neighbours, int64_t count, const float *rows);

    /* cosine, row: [count][k]. With self >= 0 query i is row self + i of the bank and does not see
     * itself. ZONAL_ARGUMENT where the bank has fewer than k rows to offer. */
    zonal_status (*nearest)(zonal__neighbours *neighbours, int64_t count, const float *queries,
                            int64_t self, double *cosine, int32_t *row);

    /* out: [count][rows of the bank] */
    zonal_status (*cosines)(zonal__neighbours *neighbours, int64_t count, const float *queries,
                            float *out);
} zonal__neighbours_table;

const zonal__neighbours_table *zonal__neighbours_ref(void); /* double, plain: the oracle */
const zonal__neighbours_table *zonal__neighbours_cpu(void);

/* For the devices: what create, set_bank, nearest and cosines refuse. "bank" is the number of rows
 * in it. */
zonal_status zonal__neighbours_check(const zonal__neighbours_spec *spec);
zonal_status zonal__neighbours_check_bank(const zonal__neighbours_spec *spec, int64_t count);
zonal_status zonal__neighbours_check_queries(const zonal__neighbours_spec *spec, int64_t bank,
                                             int64_t count);
zonal_status zonal__neighbours_check_nearest(const zonal__neighbours_spec *spec, int64_t bank,
                                             int64_t count, int64_t self);

/* For the devices: out = row/|row|. Returns 0, and leaves "out" alone, when the row is zero or not
 * finite, and zonal__neighbours_bad_row makes the sentence of it. */
int zonal__neighbours_unit(int64_t dim, const float *row, float *out);
zonal_status zonal__neighbours_bad_row(int64_t dim, const float *row, const char *what,
                                       int64_t number);

#endif
