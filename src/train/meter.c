#include "train/meter.h"

#include <math.h>

#include "uniformity/meters.h"
#include "zonal/uniformity.h"

zonal_status zonal__meter_read(int64_t n, int64_t d, const float *z, int threads,
                               zonal__meter *meter) {
    const zonal_uniformity_options options = {.size = sizeof options,
                                              .pair_limit = 1,
                                              .precision = ZONAL_PRECISION_FP32,
                                              .threads = threads};
    zonal_uniformity_report report = ZONAL_UNIFORMITY_REPORT_INIT;
    double least = 0;
    *meter = (zonal__meter){0};
    ZONAL_TRY(zonal_uniformity_run(&options, n, d, z, &report));
    for (int i = 0; i < report.tests; i++) least = fmin(least, report.test[i].log10_p);
    meter->log10_p = fmin(0, least + log10(report.tests)); /* Bonferroni */
    meter->rho = NAN;
    meter->mean_cosine = report.mean_cosine;
    meter->effective_rank = report.effective_rank;
    meter->expected_rank = report.effective_rank_expected;
    return ZONAL_OK;
}

const char *zonal__meter_collapsed(const zonal__meter *meter,
                                   const zonal__collapse_limits *limits) {
    static const char *const names[] = {NULL, "mean cosine", "effective rank"};
    return names[zonal__collapse(meter->mean_cosine, meter->effective_rank, meter->expected_rank,
                                 limits->cosine, limits->rank)];
}

void zonal__meter_read_alignment(double invariance, double k, zonal__meter *meter) {
    double cosine = 1 - invariance / k;
    meter->rho = k > 0 ? (cosine - meter->mean_cosine) / (1 - meter->mean_cosine) : NAN;
}

int zonal__meter_dispersed(const zonal__meter *meter) {
    return meter->mean_cosine < 0.1 && meter->rho < 0.1;
}
