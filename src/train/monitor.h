/*
 * The monitor of collapse and of the plateau: what the projections of one view of a batch look
 * like, against what uniform points would show, and how much the views of a sample have in common.
 */
#ifndef ZONAL_TRAIN_MONITOR_H
#define ZONAL_TRAIN_MONITOR_H

#include <stdint.h>

#include "core/error.h"

typedef struct zonal__monitor {
    double mean_cosine;    /* between different samples: 0 for uniform points, 1 at collapse */
    double effective_rank; /* as zonal/uniformity.h defines it */
    double expected_rank;  /* its value for uniform points */
    double log10_p; /* of uniformity, by the tests of degree 1 and 2 together; low: clustered */
    /* (cos+ - cos-)/(1 - cos-), with cos+ the mean cosine between views of one sample and cos- the
     * one between samples: the share of variance that views have in common. NaN: not known. */
    double rho;
    /* The root mean square of the elements, 1 for points of N(0, I), which SIGReg wants. NaN under
     * the other losses, which see directions alone. */
    double scale;
} zonal__monitor;

/* z [n][d], rows of any length but 0; n >= 2. Linear in n, and cubic in d. ZONAL_NUMERIC for a row
 * that is zero or not finite. */
zonal_status zonal__monitor_read(int64_t n, int64_t d, const float *z, int threads,
                                 zonal__monitor *monitor);

/* Fills scale, from the rows that zonal__monitor_read has seen. */
void zonal__monitor_read_scale(int64_t n, int64_t d, const float *z, zonal__monitor *monitor);

/* Fills rho, from L_inv = K (1 - cos+) of the same step (zonal/loss.h defines K). */
void zonal__monitor_read_alignment(double invariance, double k, zonal__monitor *monitor);

typedef struct zonal__collapse_limits {
    double cosine; /* a mean cosine above it is collapse to a point */
    double rank;   /* an effective rank below this share of the expected: to few dimensions */
} zonal__collapse_limits;

/* Which number of the monitor says that the projections have collapsed: "mean cosine", "effective
 * rank", "scale" (below a tenth: to the origin), or NULL. A number that is NaN says so, but for a
 * scale. */
const char *zonal__monitor_collapsed(const zonal__monitor *monitor,
                                     const zonal__collapse_limits *limits);

/* 1 on the plateau where uniformity has won and alignment has not begun: samples are spread out,
 * and views of one sample are as far apart as those of two. */
int zonal__monitor_dispersed(const zonal__monitor *monitor);

#endif
