/*
 * What a run does about its monitors (train/monitor.h): a collapse is a warning, once for as long
 * as it lasts, or the end of the run; a plateau, on which projections are dispersed and views not
 * aligned, is a warning once it has lasted for a tenth of the run.
 *
 *     zonal__collapse_watch watch;
 *     zonal__collapse_watch_init(&watch, &policy);
 *     ...
 *     zonal__collapse_plateau(&watch, step, &monitor, sentence);     "" where nothing is to be said
 *     ZONAL_TRY(zonal__collapse_check(&watch, step, &monitor, sentence));
 *
 * Neither speaks during the warm-up: a network begins near collapse, and the warm-up is there to
 * leave it. A sentence names the remedy by the options of a training.
 */
#ifndef ZONAL_TRAIN_COLLAPSE_H
#define ZONAL_TRAIN_COLLAPSE_H

#include "train/monitor.h"
#include "zonal/loss.h"

enum { ZONAL__COLLAPSE_SENTENCE = 500, ZONAL__COLLAPSE_REMEDY = 200 };

typedef struct zonal__collapse_policy {
    zonal__collapse_limits limits;
    int ends_run;          /* 1: a collapse is ZONAL_NUMERIC; 0: a warning */
    int64_t warmup, total; /* steps */
    /* Of uniformity; they decide which remedy is named. */
    zonal_discrepancy discrepancy;
    zonal_gain gain;
    zonal_objective_info weight;
} zonal__collapse_policy;

typedef struct zonal__collapse_watch {
    zonal__collapse_policy policy;
    int collapsed;          /* the last monitor said so */
    int64_t dispersed_from; /* the step from which on they have said "dispersed"; -1: it does not */
    int plateau_said;
} zonal__collapse_watch;

/* What to give in place of a gain that is below the collapse threshold: "give --margin 1.15 ...".
 */
void zonal__collapse_remedy(zonal_discrepancy discrepancy, zonal_gain gain,
                            const zonal_objective_info *weight,
                            char remedy[ZONAL__COLLAPSE_REMEDY]);

/* Where the heat kernel is so wide that it tells spread points hardly apart, and the gain that
 * makes up for it is many times the collapse threshold: "lower --t ..."; else NULL. */
const char *zonal__collapse_flat(zonal_discrepancy discrepancy, const zonal_objective_info *weight);

void zonal__collapse_watch_init(zonal__collapse_watch *watch, const zonal__collapse_policy *policy);

/* ZONAL_NUMERIC for a collapse that ends the run. */
zonal_status zonal__collapse_check(zonal__collapse_watch *watch, int64_t step,
                                   const zonal__monitor *monitor,
                                   char sentence[ZONAL__COLLAPSE_SENTENCE]);
void zonal__collapse_plateau(zonal__collapse_watch *watch, int64_t step,
                             const zonal__monitor *monitor,
                             char sentence[ZONAL__COLLAPSE_SENTENCE]);

#endif
