#include "train/collapse.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/text.h"
#include "loss/options.h"

void zonal__collapse_watch_init(zonal__collapse_watch *w, const zonal__collapse_policy *policy) {
    *w = (zonal__collapse_watch){.policy = *policy, .dispersed_from = -1};
}

/* MMD and KSD leave collapse by degrees, and at 1.15 f* they are still near it; KL at once. A
 * larger t raises f* too, but the gain of a given selectivity more. */
void zonal__collapse_remedy(zonal_discrepancy discrepancy, zonal_gain gain,
                            const zonal_objective_info *weight,
                            char remedy[ZONAL__COLLAPSE_REMEDY]) {
    if (discrepancy == ZONAL_DISCREPANCY_KL)
        snprintf(remedy, ZONAL__COLLAPSE_REMEDY, "%s",
                 weight->plan.family == ZONAL_FAMILY_HEAT && gain == ZONAL_GAIN_SELECTIVITY
                     ? "give --margin 1.15 instead of --selectivity, or a larger --t beside it"
                     : "give --margin 1.15 or more instead");
    else if (discrepancy == ZONAL_DISCREPANCY_SIGREG)
        snprintf(remedy, ZONAL__COLLAPSE_REMEDY,
                 "give --selectivity 20 instead, or a --gain above the threshold");
    else
        snprintf(remedy, ZONAL__COLLAPSE_REMEDY,
                 "give --selectivity %.3g instead, or a --gain of many times the threshold",
                 zonal__usual_selectivity(discrepancy, weight->plan.family, weight->plan.dim));
}

/* The gain is set by spread points, the threshold by collapsed ones, and they part as t grows. At
 * S = 10 KL's margin is 1.15 at t = 2/d, 5 at 4/d, 60 at 6.4/d and 40000 at 12.8/d, almost whatever
 * d is; that of MMD and KSD is 8 to 100 at 5/d and 180 to 650 at 8/d, and at t < 4/d it is large
 * too, for another reason. So t decides, and the margin only where it is said. zonal.callbacks has
 * the same limits. */
const char *zonal__collapse_flat(zonal_discrepancy discrepancy,
                                 const zonal_objective_info *weight) {
    const int kl = discrepancy == ZONAL_DISCREPANCY_KL;
    const double wide = weight->plan.parameter * (double)weight->plan.dim;
    if (weight->plan.family != ZONAL_FAMILY_HEAT) return NULL;
    if (!(wide > (kl ? 5.05 : 8.05) && weight->margin > (kl ? 50 : 1000))) return NULL;
    return kl ? "lower --t to 4/d or less" : "lower --t to 8/d or less";
}

static void describe(const zonal__collapse_watch *w, int64_t step, const char *what,
                     const zonal__monitor *monitor, char sentence[ZONAL__COLLAPSE_SENTENCE]) {
    const zonal_objective_info *weight = &w->policy.weight;
    char remedy[80 + ZONAL__COLLAPSE_REMEDY] = "lower --lr, or raise --lambda or --gain";
    char scale[40] = "", instead[ZONAL__COLLAPSE_REMEDY];
    if (weight->gain < weight->threshold) {
        zonal__collapse_remedy(w->policy.discrepancy, w->policy.gain, weight, instead);
        snprintf(remedy, sizeof remedy, "the gain %.4g is below the threshold f* = %.4g; %s",
                 weight->gain, weight->threshold, instead);
    }
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

/* Temperatures t d and selectivities at which KL under the heat kernel is above its threshold. */
static const struct {
    double t, selectivity;
    const char *name;
} offers[] = {{3, 10, "--t 3/d --selectivity 10, for photographs 4/d and 20"},
              {4, 20, "--t 4/d --selectivity 20"}};
enum { OFFERS = sizeof offers / sizeof offers[0] };

/* NULL: none has a larger selectivity. */
static const char *offer(const zonal__collapse_policy *p) {
    const zonal_objective_info *weight = &p->weight;
    if (p->discrepancy != ZONAL_DISCREPANCY_KL || weight->plan.family != ZONAL_FAMILY_HEAT)
        return NULL;
    for (int i = 0; i < OFFERS; i++)
        if (offers[i].t > 1.01 * weight->plan.parameter * (double)weight->plan.dim &&
            offers[i].selectivity > 1.2 * weight->selectivity)
            return offers[i].name;
    return NULL;
}

/* A larger selectivity is a smaller gain, which has to stay above the collapse threshold. */
static void describe_plateau(const zonal__collapse_policy *p, char remedy[ZONAL__COLLAPSE_REMEDY]) {
    static const double least_margin = 1.15;
    /* the most that has been tried */
    const double most =
        p->weight.plan.family == ZONAL_FAMILY_BAND ? 40 * (double)p->weight.plan.dim / 256 : 40;
    const double s = p->weight.selectivity, margin = p->weight.margin;
    const double limit = margin > 0 ? fmin(most, s * margin / least_margin) : most;
    if (!(s > 0))
        snprintf(remedy, ZONAL__COLLAPSE_REMEDY, "lower --gain");
    else if (limit >= 1.2 * s)
        snprintf(remedy, ZONAL__COLLAPSE_REMEDY,
                 "a larger --selectivity leaves it sooner (it is %.3g; up to %.3g)", s, limit);
    else if (offer(p))
        snprintf(
            remedy, ZONAL__COLLAPSE_REMEDY,
            "a larger --selectivity (it is %.3g) leaves it sooner, and collapses unless --t is "
            "larger too: %s",
            s, offer(p));
    else
        snprintf(remedy, ZONAL__COLLAPSE_REMEDY,
                 "a larger --batch or a weaker augmentation leaves it sooner");
}

/* Every run is dispersed and unaligned for a while after its warm-up; a tenth of it is long. */
void zonal__collapse_plateau(zonal__collapse_watch *w, int64_t step, const zonal__monitor *monitor,
                             char sentence[ZONAL__COLLAPSE_SENTENCE]) {
    const zonal__collapse_policy *p = &w->policy;
    char remedy[ZONAL__COLLAPSE_REMEDY];
    sentence[0] = '\0';
    if (step <= p->warmup || !zonal__monitor_dispersed(monitor)) {
        w->dispersed_from = -1;
        return;
    }
    if (w->dispersed_from < 0) w->dispersed_from = step;
    if (w->plateau_said || 10 * (step - w->dispersed_from) < p->total) return;
    w->plateau_said = 1;
    describe_plateau(p, remedy);
    snprintf(sentence, ZONAL__COLLAPSE_SENTENCE,
             "step %" PRId64 ": dispersed, not aligned, for %" PRId64
             " step%s: views of an image share %.1f %% of the variance; %s",
             step, step - w->dispersed_from, zonal__text_plural(step - w->dispersed_from),
             100 * monitor->rho, remedy);
}
