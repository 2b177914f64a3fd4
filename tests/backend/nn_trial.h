/*
 * One layer (backend/training/nn.h) with all its arrays, for tests: filled by formula, run in
 * either dtype and in whatever memory the device has, looked at as floats.
 *
 *     trial t;
 *     if (!trial_make(&t, zonal__nn_ref(), LAYER_SPEC(LINEAR, .n = 3, .h = 1, ...))) return;
 *     trial_fill_all(&t, 0);
 *     CHECK_OK(trial_forward(&t, 1));
 *     CHECK_OK(trial_backward(&t));
 *     ... t.wide[DX][i] ...
 *     trial_drop(&t);
 */
#ifndef ZONAL_TESTS_NN_TRIAL_H
#define ZONAL_TESTS_NN_TRIAL_H

#include "backend/training/tables.h"

/* The arrays by number. golden/make_nn.py numbers the first six alike. */
enum {
    X,
    RESIDUAL,
    WEIGHT,
    BIAS,
    SCALE,
    DY,
    DY_MORE,
    Y,
    DX,
    DRESIDUAL,
    DWEIGHT,
    DBIAS,
    DSCALE,
    RUNNING_MEAN,
    RUNNING_VARIANCE,
    ARRAYS
};
extern const char *const trial_array_names[ARRAYS];

/* Whether an array has the layer's dtype; the others are always float. */
int trial_is_narrow(int array);

typedef struct trial {
    const zonal__nn_table *table;
    const zonal__device *on; /* the first device of the table's backend */
    zonal__layer_spec spec;
    zonal__layer *layer;
    int64_t count[ARRAYS]; /* 0: the layer has no such array */
    float *wide[ARRAYS];
    uint16_t *narrow[ARRAYS]; /* what a layer in bf16 sees; copied from and to "wide" in each run */
    void *device[ARRAYS];  /* what a layer sees that does not read the host's memory; else NULL */
    void *saved, *scratch; /* of the table's memory */
    int accumulate, skip_dx, skip_dresidual, skip_dweight, with_more; /* for backward */
} trial;

/* Makes the layer (fp32 unless the spec says otherwise) and its arrays, filled with zeros. Returns
 * 0 after a failed check; then there is nothing to drop. */
int trial_make(trial *t, const zonal__nn_table *table, zonal__layer_spec spec);
void trial_drop(trial *t);

/* Multiples of 1/64, exact in fp32 and bf16: "grid" different ones about 0, at most 257; few of
 * them make ties. "step" (below 256) gives other ones. */
void trial_fill(trial *t, int array, int step, int grid);
/* All inputs; the running means are 1/2, the running variances 2. */
void trial_fill_all(trial *t, int step);

zonal__layer_arrays trial_arrays(trial *t);
/* Copies all arrays to where the layer sees them, and back; a run does both. */
zonal_status trial_send(trial *t);
zonal_status trial_fetch(trial *t);
zonal_status trial_forward(trial *t, int training);
zonal_status trial_backward(trial *t);

/* A layer in words. */
void trial_describe(const zonal__layer_spec *spec, char *out, size_t bytes);
/* Fails the running test unless the array of "got" differs from that of "want" by at most
 * "tolerance" of its norm; 1e-6 more is for arrays that are nearly or wholly zero: dx of a batch
 * norm of two rows, for one. */
void trial_check(const trial *got, const trial *want, int array, double tolerance,
                 const char *when);

/* Fails the running test unless a NORM_POOL of the table gives the bits of its NORM and MAX_POOL,
 * one after the other, forward and backward, with two gradients. */
void trial_check_norm_pool(const zonal__nn_table *table, zonal__layer_spec spec);

/* A batch norm, with a pool, with a product or alone. */
int trial_is_norm(const zonal__layer_spec *spec);

/* How many of n elements differ; a NaN does. */
int64_t trial_differing(int64_t n, const float *a, const float *b);

#define LAYER(which, ...)                                                                          \
    { .kind = ZONAL__LAYER_##which, __VA_ARGS__ }
#define LAYER_SPEC(which, ...) ((zonal__layer_spec)LAYER(which, __VA_ARGS__))

#endif
