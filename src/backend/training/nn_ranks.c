/*
 * What batch norms of several ranks exchange: for each channel two doubles forward and two
 * backward, each in one all-reduce.
 *
 * Statistics travel as the sums of x and of x^2. What cancels when the mean is taken out again
 * costs 1e-16 (mean/std)^2 of the variance, in double; that x was stored in fp32 has cost it about
 * 6e-8 mean/std already, which is more for every mean below 6e8 std.
 */
#include "backend/training/nn.h"

int64_t zonal__layer_norm_elements(const zonal__layer_spec *spec) {
    return (spec->communicator ? spec->all_n : spec->n) * spec->h * spec->w;
}

zonal_status zonal__layer_join_sums(const zonal__layer_spec *spec, double *sums) {
    const zonal_communicator *c = spec->communicator;
    if (!c) return ZONAL_OK;
    return c->all_reduce(c->context, sums, 2 * (int64_t)spec->channels, ZONAL_REDUCE_DOUBLE, NULL);
}

zonal_status zonal__layer_join_statistics(const zonal__layer_spec *spec, double *statistics) {
    double *mean = statistics, *squares = statistics + spec->channels;
    double own = (double)(spec->n * spec->h * spec->w);
    double all = (double)zonal__layer_norm_elements(spec);
    if (!spec->communicator) return ZONAL_OK;
    for (int c = 0; c < spec->channels; c++) {
        squares[c] += own * mean[c] * mean[c];
        mean[c] *= own;
    }
    ZONAL_TRY(zonal__layer_join_sums(spec, statistics));
    for (int c = 0; c < spec->channels; c++) {
        double sum = mean[c];
        mean[c] = sum / all;
        squares[c] -= sum * mean[c];
        if (squares[c] < 0) squares[c] = 0; /* a rounding; NaN stays */
    }
    return ZONAL_OK;
}
