/*
 * Convolution and, as the 1 x 1 convolution of 1 x 1 images with a bias, the linear layer. With
 * (p, q) = (i stride + r - pad, j stride + s - pad), the input pixel that output pixel (i, j) sees
 * through tap (r, s), where it is inside:
 *
 *     y[n][i][j][k]       = sum over r, s, c of x[n][p][q][c] weight[k][r][s][c] (+ bias[k])
 *     dx[n][p][q][c]      = sum over r, s, k of dy[n][i][j][k] weight[k][r][s][c]
 *     dweight[k][r][s][c] = sum over n, i, j of dy[n][i][j][k] x[n][p][q][c]
 *     dbias[k]            = sum over n       of dy[n][k]
 *
 * The two sums of the backward run with c innermost, in the layer's row of sums.
 */
#include "backend/ref/training/nn.h"

static int64_t weight_at(const zonal__layer *layer, int k, int r, int s) {
    const zonal__layer_spec *spec = &layer->spec;
    return (((int64_t)k * spec->kernel + r) * spec->kernel + s) * spec->channels;
}

/* The row or column of the input that output i sees through tap r; negative when it is padding. */
static int input_of(const zonal__layer_spec *spec, int side, int i, int r) {
    int p = i * spec->stride + r - spec->pad;
    return p < side ? p : -1;
}

/* Sum of a product of "count" elements each, from x[a] and y[b] on. */
static double dot(const zonal__layer *layer, int count, const void *x, int64_t a, const void *y,
                  int64_t b) {
    double sum = 0;
    for (int c = 0; c < count; c++)
        sum += zonal__ref_element(layer, x, a + c) * zonal__ref_element(layer, y, b + c);
    return sum;
}

/* sum[c] += factor x[at + c] */
static void add(const zonal__layer *layer, double factor, const void *x, int64_t at) {
    for (int c = 0; c < layer->spec.channels; c++)
        layer->sum[c] += factor * zonal__ref_element(layer, x, at + c);
}

static double output(const zonal__layer *layer, const zonal__layer_arrays *arrays, int64_t n, int i,
                     int j, int k) {
    const zonal__layer_spec *spec = &layer->spec;
    double sum = 0;
    for (int r = 0; r < spec->kernel; r++)
        for (int s = 0; s < spec->kernel; s++) {
            int p = input_of(spec, spec->h, i, r), q = input_of(spec, spec->w, j, s);
            if (p < 0 || q < 0) continue;
            sum += dot(layer, spec->channels, arrays->x, zonal__ref_x_at(layer, n, p, q),
                       arrays->weight, weight_at(layer, k, r, s));
        }
    return sum;
}

zonal_status zonal__ref_convolution(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                    int training) {
    (void)training;
    for (int64_t n = 0; n < layer->spec.n; n++)
        for (int i = 0; i < layer->out_h; i++)
            for (int j = 0; j < layer->out_w; j++)
                for (int k = 0; k < layer->out_channels; k++) {
                    double bias = layer->spec.bias ? (double)arrays->bias[k] : 0;
                    zonal__ref_store(layer, arrays->y, zonal__ref_y_at(layer, n, i, j) + k,
                                     output(layer, arrays, n, i, j, k) + bias);
                }
    return ZONAL_OK;
}

/* sum[c] = dx[n][p][q][c] */
static void gradient_of_pixel(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                              int64_t n, int p, int q) {
    const zonal__layer_spec *spec = &layer->spec;
    for (int c = 0; c < spec->channels; c++) layer->sum[c] = 0;
    for (int r = 0; r < spec->kernel; r++)
        for (int s = 0; s < spec->kernel; s++) {
            int i = zonal__ref_output_of(spec, layer->out_h, p, r),
                j = zonal__ref_output_of(spec, layer->out_w, q, s);
            if (i < 0 || j < 0) continue;
            for (int k = 0; k < layer->out_channels; k++) {
                int64_t at = zonal__ref_y_at(layer, n, i, j) + k;
                add(layer, zonal__ref_element(layer, arrays->dy, at), arrays->weight,
                    weight_at(layer, k, r, s));
            }
        }
}

/* sum[c] = dweight[k][r][s][c] */
static void gradient_of_tap(const zonal__layer *layer, const zonal__layer_arrays *arrays, int k,
                            int r, int s) {
    const zonal__layer_spec *spec = &layer->spec;
    for (int c = 0; c < spec->channels; c++) layer->sum[c] = 0;
    for (int64_t n = 0; n < spec->n; n++)
        for (int i = 0; i < layer->out_h; i++)
            for (int j = 0; j < layer->out_w; j++) {
                int p = input_of(spec, spec->h, i, r), q = input_of(spec, spec->w, j, s);
                int64_t at = zonal__ref_y_at(layer, n, i, j) + k;
                if (p < 0 || q < 0) continue;
                add(layer, zonal__ref_element(layer, arrays->dy, at), arrays->x,
                    zonal__ref_x_at(layer, n, p, q));
            }
}

static void gradient_of_bias(const zonal__layer *layer, const zonal__layer_arrays *arrays) {
    for (int k = 0; k < layer->out_channels; k++) {
        double sum = 0;
        for (int64_t n = 0; n < layer->spec.n; n++)
            sum += zonal__ref_element(layer, arrays->dy, n * layer->out_channels + k);
        zonal__ref_store_gradient(arrays, arrays->dbias, k, sum);
    }
}

zonal_status zonal__ref_convolution_back(const zonal__layer *layer,
                                         const zonal__layer_arrays *arrays) {
    const zonal__layer_spec *spec = &layer->spec;
    for (int64_t n = 0; arrays->dx && n < spec->n; n++)
        for (int p = 0; p < spec->h; p++)
            for (int q = 0; q < spec->w; q++) {
                gradient_of_pixel(layer, arrays, n, p, q);
                for (int c = 0; c < spec->channels; c++)
                    zonal__ref_store(layer, arrays->dx, zonal__ref_x_at(layer, n, p, q) + c,
                                     layer->sum[c]);
            }
    if (!arrays->dweight) return ZONAL_OK;
    for (int k = 0; k < layer->out_channels; k++)
        for (int r = 0; r < spec->kernel; r++)
            for (int s = 0; s < spec->kernel; s++) {
                gradient_of_tap(layer, arrays, k, r, s);
                for (int c = 0; c < spec->channels; c++)
                    zonal__ref_store_gradient(arrays, arrays->dweight,
                                              weight_at(layer, k, r, s) + c, layer->sum[c]);
            }
    if (spec->bias) gradient_of_bias(layer, arrays);
    return ZONAL_OK;
}
