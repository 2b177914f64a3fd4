#include "train/monitor.h"

#include <math.h>

#include "uniformity/diagnostics.h"
#include "zonal/uniformity.h"

static const double LEAST_SCALE = 0.1;

zonal_status zonal__monitor_read(int64_t n, int64_t d, const float *z, int threads,
                                 zonal__monitor *monitor) {
    const zonal_uniformity_options options = {.size = sizeof options,
                                              .pair_limit = 1,
                                              .precision = ZONAL_PRECISION_FP32,
                                              .threads = threads};
    zonal_uniformity_report report = ZONAL_UNIFORMITY_REPORT_INIT;
    double least = 0;
    *monitor = (zonal__monitor){0};
    ZONAL_TRY(zonal_uniformity_run(&options, n, d, z, &report));
    for (int i = 0; i < report.tests; i++) least = fmin(least, report.test[i].log10_p);
    monitor->log10_p = fmin(0, least + log10(report.tests)); /* Bonferroni */
    monitor->rho = NAN;
    monitor->scale = NAN;
    monitor->mean_cosine = report.mean_cosine;
    monitor->effective_rank = report.effective_rank;
    monitor->expected_rank = report.effective_rank_expected;
    return ZONAL_OK;
}

const char *zonal__monitor_collapsed(const zonal__monitor *monitor,
                                     const zonal__collapse_limits *limits) {
    static const char *const names[] = {NULL, "mean cosine", "effective rank"};
    zonal_collapse collapse = zonal__collapse(monitor->mean_cosine, monitor->effective_rank,
                                              monitor->expected_rank, limits->cosine, limits->rank);
    if (collapse == ZONAL_COLLAPSE_NONE && monitor->scale < LEAST_SCALE) return "scale";
    return names[collapse];
}

void zonal__monitor_read_scale(int64_t n, int64_t d, const float *z, zonal__monitor *monitor) {
    double sum = 0;
    for (int64_t i = 0; i < n * d; i++) sum += (double)z[i] * z[i];
    monitor->scale = sqrt(sum / (double)(n * d));
}

void zonal__monitor_read_alignment(double invariance, double k, zonal__monitor *monitor) {
    double cosine = 1 - invariance / k;
    monitor->rho = k > 0 ? (cosine - monitor->mean_cosine) / (1 - monitor->mean_cosine) : NAN;
}

int zonal__monitor_dispersed(const zonal__monitor *monitor) {
    return monitor->mean_cosine < 0.1 && monitor->rho < 0.1;
}
