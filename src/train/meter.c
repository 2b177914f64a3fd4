#include "train/meter.h"

#include "uniformity/meters.h"
#include "zonal/uniformity.h"

zonal_status zonal__meter_read(int64_t n, int64_t d, const float *z, int threads,
                               zonal__meter *meter) {
    const zonal_uniformity_options options = {
        .pair_limit = 1, .precision = ZONAL_FP32, .threads = threads};
    zonal_uniformity_report report;
    double p = 1;
    *meter = (zonal__meter){0};
    ZONAL_TRY(zonal_uniformity_run(&options, n, d, z, &report));
    for (int i = 0; i < report.tests; i++)
        if (report.test[i].p < p) p = report.test[i].p;
    meter->p_uniform = p * report.tests < 1 ? p * report.tests : 1; /* Bonferroni */
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
