/*
 * What a loss over several ranks costs: a model, to be held against measurements (zonal bench dist)
 * and to look ahead with (--model).
 *
 * N ranks have b rows each, in d dimensions. A link moves n bytes in latency + n/bandwidth; a
 * measured one in what lies between the next smaller and the next larger block that were measured,
 * since over TCP large blocks that meet on their way are slower than their bytes.
 *
 *   pairs    a block of rows visits every rank: N steps, in each of which b x b pairs are looked at
 *            and a block of b (16 + 4 d) bytes is sent on. Beside the compute, where the transport
 *            does that, the longer of the two counts; otherwise their sum. KL goes round twice.
 *   moments  one sum of d^2 doubles, slices one of 2 knots slices doubles: 2 (N - 1)/N of the bytes
 *            and 2 log2 N latencies, as of the best algorithms; and one of d doubles for each.
 *
 *   All of them also have two sums of d + 2 doubles (who has failed, and the mean).
 *
 * Compute is that of one device for b rows, from measured times: between two of them a power of b
 * that passes through both, above the last in proportion to b^2 for pairs and to b for the others,
 * below the first no less than that, since launches do not get shorter.
 */
#ifndef ZONAL_CLI_BENCH_DIST_MODEL_H
#define ZONAL_CLI_BENCH_DIST_MODEL_H

#include <stdint.h>

typedef enum zonal__path {
    ZONAL__PATH_PAIRS = 0,
    ZONAL__PATH_MOMENTS,
    ZONAL__PATH_SLICES
} zonal__path;

enum { ZONAL__LINK_POINTS = 7, ZONAL__COST_POINTS = 16 };

typedef struct zonal__link {
    double latency;   /* seconds */
    double bandwidth; /* bytes a second, one way */
    int points;       /* measured, ascending in bytes; 0: stated, by the two numbers above */
    struct {
        double bytes, seconds;
    } point[ZONAL__LINK_POINTS];
} zonal__link;

typedef struct zonal__cost {
    zonal__path path;
    int rounds;     /* of the ring: 1, or 2 for KL */
    int64_t slices; /* of a sliced loss */
    int64_t knots;  /* with a sum each: those that are not mirrored */
    double foreign; /* how much longer a block of another rank's rows takes than the own one */
    int points;     /* measured, at least 1, ascending in rows */
    struct {
        int64_t rows;
        double seconds;
    } point[ZONAL__COST_POINTS];
} zonal__cost;

typedef struct zonal__prediction {
    double seconds, compute, exchange; /* the whole, and its parts by themselves */
    int hidden;                        /* pairs: the ring takes no time beside the compute */
} zonal__prediction;

double zonal__link_seconds(const zonal__link *link, double bytes);

/* One device with so many rows. A single point is taken in proportion below it too. */
double zonal__cost_seconds(const zonal__cost *cost, int64_t rows);

zonal__prediction zonal__predict(const zonal__cost *cost, int ranks, int64_t rows, int64_t dim,
                                 const zonal__link *link, int overlapped);

#endif
