#include "train/collapse.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void zonal__collapse_watch_init(zonal__collapse_watch *w, const zonal__collapse_policy *policy) {
    *w = (zonal__collapse_watch){.policy = *policy, .dispersed_from = -1};
}

static void describe(const zonal__collapse_watch *w, int64_t step, const char *what,
                     const zonal__monitor *monitor, char sentence[ZONAL__COLLAPSE_SENTENCE]) {
    const zonal_objective_info *weight = &w->policy.weight;
    char remedy[160] = "lower --lr, or raise --lambda or --gain", scale[40] = "";
    if (weight->gain < weight->threshold)
        snprintf(remedy, sizeof remedy, "raise --gain above the threshold f* = %.4g, it is %.4g",
                 weight->threshold, weight->gain);
    if (!isnan(monitor->scale)) snprintf(scale, sizeof scale, ", scale %.2g of 1", monitor->scale);
    snprintf(sentence, ZONAL__COLLAPSE_SENTENCE,
             "step %" PRId64 ": the projections have collapsed, says the %s (mean cosine %.3f, "
             "effective rank %.1f of %.1f%s); %s",
             step, what, monitor->mean_cosine, monitor->effective_rank, monitor->expected_rank,
             scale, remedy);
}

zonal_status zonal__collapse_check(zonal__collapse_watch *w, int64_t step,
                                   const zonal__monitor *monitor,
                                   char sentence[ZONAL__COLLAPSE_SENTENCE]) {
    const char *what = zonal__monitor_collapsed(monitor, &w->policy.limits);
    int known = w->collapsed;
    sentence[0] = '\0';
    w->collapsed = what && step > w->policy.warmup;
    if (!w->collapsed || known) return ZONAL_OK;
    describe(w, step, what, monitor, sentence);
    return w->policy.ends_run ? ZONAL_FAIL(ZONAL_NUMERIC, "%s", sentence) : ZONAL_OK;
}

/* Every run is dispersed and unaligned for a while after its warm-up; a tenth of it is long. */
void zonal__collapse_plateau(zonal__collapse_watch *w, int64_t step, const zonal__monitor *monitor,
                             char sentence[ZONAL__COLLAPSE_SENTENCE]) {
    const zonal__collapse_policy *p = &w->policy;
    char remedy[120] = "lower --gain";
    sentence[0] = '\0';
    if (step <= p->warmup || !zonal__monitor_dispersed(monitor)) {
        w->dispersed_from = -1;
        return;
    }
    if (w->dispersed_from < 0) w->dispersed_from = step;
    if (w->plateau_said || 10 * (step - w->dispersed_from) < p->total) return;
    w->plateau_said = 1;
    if (p->weight.selectivity > 0)
        snprintf(remedy, sizeof remedy, "a larger --selectivity (it is %.3g) leaves it sooner",
                 p->weight.selectivity);
    snprintf(sentence, ZONAL__COLLAPSE_SENTENCE,
             "step %" PRId64 ": dispersed, not aligned, for %" PRId64
             " steps: views of an image share %.1f %% of the variance; %s",
             step, step - w->dispersed_from, 100 * monitor->rho, remedy);
}
