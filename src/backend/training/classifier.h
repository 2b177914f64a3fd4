/*
 * The gradient of a linear classifier that is trained along with a network: of the loss of
 * backend/training/softmax.h, for features as the network leaves them and parameters as an
 * optimiser takes them, weight [classes][dim] and then bias [classes], in fp32.
 *
 *     score[i][c]  = sum over j of weight[c][j] x[i][j] + bias[c]
 *     share[i][c]  = (softmax(score[i])[c] - [c == y_i])/all_rows
 *     gradients    = d weight[c][j] = sum over i of share[i][c] x[i][j]
 *                    d bias[c]      = sum over i of share[i][c]
 *
 * all_rows is "rows", or those of all ranks, whose gradients are then added up. Sums are in fp32 on
 * CUDA and in double on the host. A NaN among the features becomes NaN gradients, which an
 * optimiser refuses. Results are the same bit for bit in every run. Labels must lie in 0 ...
 * classes - 1; they are not looked at here.
 *
 * All arrays are memory of the spec's device; on a GPU the call only puts work on the stream.
 */
#ifndef ZONAL_BACKEND_TRAINING_CLASSIFIER_H
#define ZONAL_BACKEND_TRAINING_CLASSIFIER_H

#include "backend/backend.h"
#include "backend/training/softmax.h"

typedef struct zonal__classifier_spec {
    int64_t rows, all_rows, dim;
    int classes;
    zonal_dtype dtype;           /* of the features: fp32 or bf16 */
    int threads;                 /* host; 0: all there are */
    const zonal__device *device; /* NULL: the backend's first */
} zonal__classifier_spec;

typedef struct zonal__classifier zonal__classifier; /* each device has its own */

typedef struct zonal__classifier_table {
    const char *name;
    /* Takes all memory. *out is NULL on failure. */
    zonal_status (*create)(const zonal__classifier_spec *spec, zonal__classifier **out);
    void (*destroy)(zonal__classifier *classifier); /* accepts NULL */
    zonal_status (*gradient)(zonal__classifier *classifier, const void *x, const int32_t *labels,
                             const float *parameters, float *gradients);
    void (*set_stream)(zonal__classifier *classifier, void *stream); /* NULL for the host */
} zonal__classifier_table;

const zonal__classifier_table *zonal__classifier_ref(void);
const zonal__classifier_table *zonal__classifier_cpu(void);

/* Elements of parameters and of gradients. */
int64_t zonal__classifier_parameters(const zonal__classifier_spec *spec);

/* What every create refuses. */
zonal_status zonal__classifier_check(const zonal__classifier_spec *spec);

/* For the host's: with the arithmetic of a table of softmax.h. */
zonal_status zonal__classifier_host_create(const zonal__softmax_table *softmax,
                                           const zonal__classifier_spec *spec,
                                           zonal__classifier **out);
void zonal__classifier_host_destroy(zonal__classifier *classifier);
zonal_status zonal__classifier_host_gradient(zonal__classifier *classifier, const void *x,
                                             const int32_t *labels, const float *parameters,
                                             float *gradients);

#endif
