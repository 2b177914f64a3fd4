/*
 * What zonal eval found of a run, kept in its folder:
 *
 *     RUN/eval/PROTOCOL.json            of whole parts of the images
 *     RUN/eval/partial/PROTOCOL.json    of some of them (--limit)
 *
 *     {"energy": [{"degree", "excess", "sd"}, ...],     diagnostics only, on the run's own data
 *      "results": [{"protocol", "features", "test", "conditions", ...}, ...]}
 *
 * as zonal eval --json --detail prints them. A new result takes the place of the one with the same
 * conditions; others stay, so that `eval --k 5` does not forget what was found with k = 20, and a
 * partial result never replaces a whole one. Results on the run's own data and by its own settings
 * come first, the newest foremost; those with "overrides" are not the run's, and no page or card
 * shows them as such.
 */
#ifndef ZONAL_CLI_EVAL_STORE_H
#define ZONAL_CLI_EVAL_STORE_H

#include "cli/eval/results.h"

/* Stores the results of the run that is evaluated now, as far as that has not been done: the order
 * of all that it has found is kept. Files appear whole or not at all, and processes that store at
 * the same time lose nothing of each other. A file that is damaged is put aside as
 * PROTOCOL.json.damaged, which is said in the log. */
zonal_status zonal__eval_store(zonal__eval_results *results, int run);

/* A stored result, as far as others ask for it. Texts that are not there are "", numbers NaN (step
 * and test: -1). */
typedef struct zonal__stored_result {
    const char *protocol, *features, *part, *data, *conditions, *overrides;
    int64_t step, test;
    double accuracy, top5, r1, r3, r5, map; /* shares */
    double k, temperature, l2, epochs, candidates, seed;
} zonal__stored_result;
typedef zonal_status zonal__stored_visit(void *context, const zonal__stored_result *result);

/* Visits the whole results of a protocol that a run's folder has; none are no failure. ZONAL_FORMAT
 * for a damaged file. */
zonal_status zonal__eval_stored_read(const char *run, const char *protocol,
                                     zonal__stored_visit *visit, void *context);

#endif
