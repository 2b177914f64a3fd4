/*
 * Pooling: the largest element of each window, and the mean of an image. Backward of the first
 * gives the gradient of a window to its winner, of the second an equal part to every pixel.
 *
 * Saved by MAX_POOL: for each element of y, which element of x won (int64_t).
 */
#include <math.h>

#include "backend/ref/training/nn.h"

/* ---- the largest ----------------------------------------------------------------------------- */

/* The first of the largest elements that output (i, j) sees in channel c; the first NaN wins. */
static int64_t winner_of(const zonal__layer *layer, const void *x, int64_t n, int i, int j, int c) {
    const zonal__layer_spec *spec = &layer->spec;
    int top = i * spec->stride - spec->pad, left = j * spec->stride - spec->pad;
    int64_t winner = -1;
    double largest = 0;
    for (int p = top < 0 ? 0 : top; p < top + spec->kernel && p < spec->h; p++)
        for (int q = left < 0 ? 0 : left; q < left + spec->kernel && q < spec->w; q++) {
            int64_t at = zonal__ref_x_at(layer, n, p, q) + c;
            double value = zonal__ref_element(layer, x, at);
            if (winner < 0 || value > largest || (isnan(value) && !isnan(largest))) {
                winner = at;
                largest = value;
            }
        }
    return winner; /* there is one: the padding is narrower than the window */
}

static int64_t elements_of_y(const zonal__layer *layer) {
    return zonal__ref_y_at(layer, layer->spec.n, 0, 0);
}

size_t zonal__ref_max_pool_saved(const zonal__layer *layer) {
    return (size_t)elements_of_y(layer) * sizeof(int64_t);
}

zonal_status zonal__ref_max_pool(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                 int training) {
    int64_t *saved = training && !layer->spec.forward_only ? arrays->saved : NULL, at = 0;
    for (int64_t n = 0; n < layer->spec.n; n++)
        for (int i = 0; i < layer->out_h; i++)
            for (int j = 0; j < layer->out_w; j++)
                for (int c = 0; c < layer->out_channels; c++, at++) {
                    int64_t winner = winner_of(layer, arrays->x, n, i, j, c);
                    double value = zonal__ref_element(layer, arrays->x, winner);
                    zonal__ref_store(layer, arrays->y, at, value);
                    if (saved) saved[at] = winner;
                }
    return ZONAL_OK;
}

/* Windows overlap, so one pixel may have won several of them. */
static double gradient_of_pixel(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                int64_t n, int p, int q, int c) {
    const zonal__layer_spec *spec = &layer->spec;
    const int64_t *saved = arrays->saved;
    double sum = 0;
    for (int r = 0; r < spec->kernel; r++)
        for (int s = 0; s < spec->kernel; s++) {
            int i = zonal__ref_output_of(spec, layer->out_h, p, r);
            int j = zonal__ref_output_of(spec, layer->out_w, q, s);
            if (i < 0 || j < 0) continue;
            int64_t at = zonal__ref_y_at(layer, n, i, j) + c;
            if (saved[at] == zonal__ref_x_at(layer, n, p, q) + c)
                sum += zonal__ref_dy(layer, arrays, at);
        }
    return sum;
}

zonal_status zonal__ref_max_pool_back(const zonal__layer *layer,
                                      const zonal__layer_arrays *arrays) {
    const zonal__layer_spec *spec = &layer->spec;
    for (int64_t n = 0; arrays->dx && n < spec->n; n++)
        for (int p = 0; p < spec->h; p++)
            for (int q = 0; q < spec->w; q++)
                for (int c = 0; c < spec->channels; c++)
                    zonal__ref_store(layer, arrays->dx, zonal__ref_x_at(layer, n, p, q) + c,
                                     gradient_of_pixel(layer, arrays, n, p, q, c));
    return ZONAL_OK;
}

/* ---- the mean -------------------------------------------------------------------------------- */

zonal_status zonal__ref_mean_pool(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                  int training) {
    const zonal__layer_spec *spec = &layer->spec;
    int64_t pixels = (int64_t)spec->h * spec->w;
    (void)training;
    for (int64_t n = 0; n < spec->n; n++)
        for (int c = 0; c < spec->channels; c++) {
            double sum = 0;
            for (int64_t p = 0; p < pixels; p++)
                sum += zonal__ref_element(layer, arrays->x, (n * pixels + p) * spec->channels + c);
            zonal__ref_store(layer, arrays->y, n * spec->channels + c, sum / (double)pixels);
        }
    return ZONAL_OK;
}

zonal_status zonal__ref_mean_pool_back(const zonal__layer *layer,
                                       const zonal__layer_arrays *arrays) {
    const zonal__layer_spec *spec = &layer->spec;
    int64_t pixels = (int64_t)spec->h * spec->w;
    for (int64_t n = 0; arrays->dx && n < spec->n; n++)
        for (int64_t p = 0; p < pixels; p++)
            for (int c = 0; c < spec->channels; c++)
                zonal__ref_store(layer, arrays->dx, (n * pixels + p) * spec->channels + c,
                                 zonal__ref_element(layer, arrays->dy, n * spec->channels + c) /
                                     (double)pixels);
    return ZONAL_OK;
}
