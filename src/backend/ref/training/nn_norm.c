/*
 * Batch normalisation with what follows it, and activations alone. Per channel, over m elements:
 *
 *     xhat = (x - mean) inverse,  inverse = 1/sqrt(variance + epsilon)
 *     z    = scale xhat + bias (+ residual),  y = activation(z)
 *
 * and back, where the batch's own mean and variance depend on x:
 *
 *     dz = dy activation'(z) = dresidual
 *     dbias = sum of dz,  dscale = sum of dz xhat
 *     dx = scale inverse (dz - dbias/m - xhat dscale/m)
 *
 * z is computed again from x in the backward. Saved: mean and inverse of each channel, as doubles.
 */
#include <math.h>

#include "backend/ref/training/nn.h"

/* Phi(z), the normal distribution; erfc keeps its small values for negative z. */
static double normal_distribution(double z) {
    return erfc(-z / sqrt(2)) / 2;
}

/* NaN is not <= 0 and is passed on. */
static double activate(zonal__activation activation, double z) {
    switch (activation) {
    case ZONAL__ACTIVATION_RELU:
        return z <= 0 ? 0 : z;
    case ZONAL__ACTIVATION_GELU:
        return z * normal_distribution(z);
    default:
        return z;
    }
}

static double derivative(zonal__activation activation, double z) {
    switch (activation) {
    case ZONAL__ACTIVATION_RELU:
        return z <= 0 ? 0 : 1;
    case ZONAL__ACTIVATION_GELU:
        return normal_distribution(z) + z * exp(-z * z / 2) / sqrt(2 * M_PI);
    default:
        return 1;
    }
}

/* ---- norm ------------------------------------------------------------------------------------ */

typedef struct statistics {
    double mean, inverse;
} statistics;

static int64_t elements_of_channel(const zonal__layer_spec *spec) {
    return spec->n * spec->h * spec->w;
}

static double normalised(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                         const statistics *own, int64_t at) {
    return (zonal__ref_element(layer, arrays->x, at) - own->mean) * own->inverse;
}

/* z of the element at "at" */
static double before_activation(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                const statistics *own, int64_t at) {
    int c = (int)(at % layer->spec.channels);
    double z = (double)arrays->scale[c] * normalised(layer, arrays, own, at);
    z += (double)arrays->bias[c];
    return layer->spec.residual ? z + zonal__ref_element(layer, arrays->residual, at) : z;
}

static double mix(float running, float momentum, double batch) {
    return (1 - (double)momentum) * (double)running + (double)momentum * batch;
}

/* Mean and squares about it of channel c, of this rank's elements. Two passes: squares of
 * differences from the mean do not cancel. */
static void add_up(const zonal__layer *layer, const zonal__layer_arrays *arrays, int c) {
    const zonal__layer_spec *spec = &layer->spec;
    int64_t m = elements_of_channel(spec);
    double mean = 0, squares = 0;
    for (int64_t e = 0; e < m; e++)
        mean += zonal__ref_element(layer, arrays->x, e * spec->channels + c);
    mean /= (double)m;
    for (int64_t e = 0; e < m; e++) {
        double difference = zonal__ref_element(layer, arrays->x, e * spec->channels + c) - mean;
        squares += difference * difference;
    }
    layer->sum[c] = mean;
    layer->sum[spec->channels + c] = squares;
}

/* The batch's statistics of channel c, which also move the running ones. */
static statistics of_batch(const zonal__layer *layer, const zonal__layer_arrays *arrays, int c) {
    const zonal__layer_spec *spec = &layer->spec;
    int64_t m = zonal__layer_norm_elements(spec);
    double mean = layer->sum[c], squares = layer->sum[spec->channels + c];
    arrays->running_mean[c] = (float)mix(arrays->running_mean[c], spec->momentum, mean);
    arrays->running_variance[c] =
        (float)mix(arrays->running_variance[c], spec->momentum, squares / (double)(m - 1));
    return (statistics){mean, 1 / sqrt(squares / (double)m + (double)spec->epsilon)};
}

static statistics of_running(const zonal__layer *layer, const zonal__layer_arrays *arrays, int c) {
    double variance = (double)arrays->running_variance[c];
    return (statistics){(double)arrays->running_mean[c],
                        1 / sqrt(variance + (double)layer->spec.epsilon)};
}

size_t zonal__ref_norm_saved(const zonal__layer *layer) {
    return (size_t)layer->spec.channels * sizeof(statistics);
}

zonal_status zonal__ref_norm(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                             int training) {
    const zonal__layer_spec *spec = &layer->spec;
    statistics *saved = training && !spec->forward_only ? arrays->saved : NULL;
    for (int c = 0; training && c < spec->channels; c++) add_up(layer, arrays, c);
    if (training) ZONAL_TRY(zonal__layer_join_statistics(spec, layer->sum));
    for (int c = 0; c < spec->channels; c++) {
        statistics own = training ? of_batch(layer, arrays, c) : of_running(layer, arrays, c);
        if (saved) saved[c] = own;
        for (int64_t e = 0; e < elements_of_channel(spec); e++) {
            int64_t at = e * spec->channels + c;
            double z = before_activation(layer, arrays, &own, at);
            zonal__ref_store(layer, arrays->y, at, activate(spec->activation, z));
        }
    }
    return ZONAL_OK;
}

/* A residual is read for gelu alone: relu's derivative shows in y. */
static double gradient_before_activation(const zonal__layer *layer,
                                         const zonal__layer_arrays *arrays, const statistics *own,
                                         int64_t at) {
    zonal__activation activation = layer->spec.activation;
    double dy = zonal__ref_dy(layer, arrays, at);
    if (activation == ZONAL__ACTIVATION_NONE) return dy;
    if (activation == ZONAL__ACTIVATION_RELU && layer->spec.residual)
        return dy * derivative(activation, zonal__ref_element(layer, arrays->y, at));
    return dy * derivative(activation, before_activation(layer, arrays, own, at));
}

/* This rank's sums of dz and dz xhat. */
static void add_up_back(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                        const statistics *own, int c) {
    const zonal__layer_spec *spec = &layer->spec;
    double dbias = 0, dscale = 0;
    for (int64_t e = 0; e < elements_of_channel(spec); e++) {
        int64_t at = e * spec->channels + c;
        double dz = gradient_before_activation(layer, arrays, own, at);
        dbias += dz;
        dscale += dz * normalised(layer, arrays, own, at);
    }
    zonal__ref_store_gradient(arrays, arrays->dbias, c, dbias);
    zonal__ref_store_gradient(arrays, arrays->dscale, c, dscale);
    layer->sum[c] = dbias;
    layer->sum[spec->channels + c] = dscale;
}

static void norm_back_channel(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                              const statistics *own, int c) {
    const zonal__layer_spec *spec = &layer->spec;
    int64_t m = zonal__layer_norm_elements(spec);
    double dbias = layer->sum[c], dscale = layer->sum[spec->channels + c];
    double factor = (double)arrays->scale[c] * own->inverse;
    for (int64_t e = 0; e < elements_of_channel(spec); e++) {
        int64_t at = e * spec->channels + c;
        double dz = gradient_before_activation(layer, arrays, own, at);
        double along = dbias + normalised(layer, arrays, own, at) * dscale;
        if (arrays->dx) zonal__ref_store(layer, arrays->dx, at, factor * (dz - along / (double)m));
        if (spec->residual && arrays->dresidual) zonal__ref_store(layer, arrays->dresidual, at, dz);
    }
}

zonal_status zonal__ref_norm_back(const zonal__layer *layer, const zonal__layer_arrays *arrays) {
    const statistics *saved = arrays->saved;
    for (int c = 0; c < layer->spec.channels; c++) add_up_back(layer, arrays, &saved[c], c);
    ZONAL_TRY(zonal__layer_join_sums(&layer->spec, layer->sum));
    for (int c = 0; c < layer->spec.channels; c++) norm_back_channel(layer, arrays, &saved[c], c);
    return ZONAL_OK;
}

/* ---- activations alone ----------------------------------------------------------------------- */

zonal_status zonal__ref_activation(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                   int training) {
    const zonal__layer_spec *spec = &layer->spec;
    (void)training;
    for (int64_t at = 0; at < elements_of_channel(spec) * spec->channels; at++)
        zonal__ref_store(layer, arrays->y, at,
                         activate(spec->activation, zonal__ref_element(layer, arrays->x, at)));
    return ZONAL_OK;
}

zonal_status zonal__ref_activation_back(const zonal__layer *layer,
                                        const zonal__layer_arrays *arrays) {
    const zonal__layer_spec *spec = &layer->spec;
    for (int64_t at = 0; arrays->dx && at < elements_of_channel(spec) * spec->channels; at++)
        zonal__ref_store(
            layer, arrays->dx, at,
            zonal__ref_element(layer, arrays->dy, at) *
                derivative(spec->activation, zonal__ref_element(layer, arrays->x, at)));
    return ZONAL_OK;
}
