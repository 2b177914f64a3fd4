/* Learning rates over a run: nn/schedule.h. */
#include "nn/schedule.h"

#include <math.h>

zonal_status zonal__schedule_check(const zonal__schedule *schedule) {
    if (schedule->kind < ZONAL__SCHEDULE_CONSTANT || schedule->kind > ZONAL__SCHEDULE_COSINE)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no kind %d of schedules", (int)schedule->kind);
    if (schedule->total < 1)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a schedule needs at least 1 step, got %lld",
                          (long long)schedule->total);
    if (schedule->warmup < 0 || schedule->warmup > schedule->total)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a warm-up of %lld steps does not fit into %lld steps; shorten it, or "
                          "train longer",
                          (long long)schedule->warmup, (long long)schedule->total);
    if (!(schedule->base >= 0 && isfinite(schedule->base)))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the learning rate must be finite and not negative, got %g",
                          schedule->base);
    if (!(schedule->floor >= 0 && schedule->floor <= schedule->base))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the lowest learning rate must lie between 0 and the highest, %g, got %g",
                          schedule->base, schedule->floor);
    return ZONAL_OK;
}

double zonal__schedule_rate(const zonal__schedule *schedule, int64_t step) {
    const double pi = 3.14159265358979323846, base = schedule->base, floor_rate = schedule->floor;
    if (step < schedule->warmup) return base * (double)(step + 1) / (double)(schedule->warmup + 1);
    if (schedule->kind == ZONAL__SCHEDULE_CONSTANT) return base;
    if (step >= schedule->total) return floor_rate;
    double u = (double)(step - schedule->warmup) / (double)(schedule->total - schedule->warmup);
    if (schedule->kind == ZONAL__SCHEDULE_LINEAR) return base + (floor_rate - base) * u;
    return floor_rate + (base - floor_rate) * (1 + cos(pi * u)) / 2;
}
