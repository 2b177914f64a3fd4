#include "train/meter.h"

#include "zonal/uniformity.h"

zonal_status zonal__meter_read(int64_t n, int64_t d, const float *z, int threads,
                               zonal__meter *meter) {
    const zonal_uniformity_options options = {
        .pair_limit = 1, .precision = ZONAL_FP32, .threads = threads};
    zonal_uniformity_report report;
    double rows = (double)n, p = 1;
    *meter = (zonal__meter){0};
    ZONAL_TRY(zonal_uniformity_run(&options, n, d, z, &report));
    for (int i = 0; i < report.tests; i++)
        if (report.test[i].p < p) p = report.test[i].p;
    meter->p_uniform = p * report.tests < 1 ? p * report.tests : 1; /* Bonferroni */
    /* |sum x|^2 = n + n (n - 1) times the mean cosine. */
    meter->mean_cosine = (rows * report.mean_resultant * report.mean_resultant - 1) / (rows - 1);
    meter->effective_rank = report.effective_rank;
    meter->expected_rank = report.effective_rank_expected;
    return ZONAL_OK;
}

const char *zonal__meter_collapsed(const zonal__meter *meter,
                                   const zonal__collapse_limits *limits) {
    if (!(meter->mean_cosine <= limits->cosine)) return "mean cosine";
    if (!(meter->effective_rank >= limits->rank * meter->expected_rank)) return "effective rank";
    return NULL;
}
