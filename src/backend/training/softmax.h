/*
 * Linear classification: scores, their cross-entropy and its gradient, over the rows of features x
 * [rows][dim] with labels y [rows]. The parameters are doubles [classes][dim + 1]: for each class c
 * its weights and, last, its bias.
 *
 *     score[i][c] = sum over j of parameters[c][j] x[i][j] + parameters[c][dim]
 *     loss        = mean over i of log(sum over c of exp(score[i][c])) - score[i][y_i]
 *     gradient    = d loss / d parameters
 *                 = mean over i of (softmax(score[i])[c] - [c == y_i]) (x_i, 1)
 *
 * Features are fp32, everything else is double: a minimiser that goes on to a small gradient needs
 * the digits. Results are the same bit for bit every time, for any number of threads. The calls
 * allocate nothing. Labels must lie in 0 ... classes - 1; they are not looked at here.
 */
#ifndef ZONAL_BACKEND_TRAINING_SOFTMAX_H
#define ZONAL_BACKEND_TRAINING_SOFTMAX_H

#include <stdint.h>

#include "core/error.h"

typedef struct zonal__softmax_spec {
    int64_t dim;
    int classes;
    int threads; /* 0: all there are */
} zonal__softmax_spec;

typedef struct zonal__softmax zonal__softmax; /* ref and cpu have their own */

typedef struct zonal__softmax_table {
    const char *name;
    /* *out is NULL on failure. */
    zonal_status (*create)(const zonal__softmax_spec *spec, zonal__softmax **out);
    void (*destroy)(zonal__softmax *softmax); /* accepts NULL */
    void (*loss)(zonal__softmax *softmax, int64_t rows, const float *x, const int32_t *labels,
                 const double *parameters, double *loss, double *gradient);
    void (*scores)(zonal__softmax *softmax, int64_t rows, const float *x, const double *parameters,
                   double *scores); /* [rows][classes] */
} zonal__softmax_table;

const zonal__softmax_table *zonal__softmax_ref(void); /* plain loops: the oracle */
const zonal__softmax_table *zonal__softmax_cpu(void);

/* What every create refuses. */
zonal_status zonal__softmax_check(const zonal__softmax_spec *spec);

#endif
