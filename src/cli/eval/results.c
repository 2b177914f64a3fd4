#include "cli/eval/results.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/file_read.h"
#include "core/memory.h"
#include "core/text.h"

/* ---- the list -------------------------------------------------------------------------------- */

static void drop_result(zonal__eval_result *result) {
    zonal__scores_fini(&result->scores);
    zonal__free(result->class_names);
}

/* Both arrays have the same room; it is noted once both have it. */
static zonal_status grow(zonal__eval_results *results) {
    int64_t room = results->room;
    ZONAL_TRY(ZONAL_GROW(&results->values, results->count, &room, "the results"));
    return ZONAL_GROW(&results->at, results->count, &results->room, "the results");
}

zonal_status zonal__eval_results_add(zonal__eval_results *results, zonal__eval_result *result) {
    zonal_status status = grow(results);
    result->run = results->run_count - 1;
    if (status == ZONAL_OK)
        results->at[results->count++] = *result;
    else
        drop_result(result);
    return status;
}

static void describe_views(const zonal__training *training, zonal__eval_run *run) {
    zonal__preprocessing p;
    zonal__preprocessing_of_run(training, &p);
    zonal__preprocessing_describe(&p, run->view);
    zonal__preprocessing_of_views(training, &p);
    zonal__preprocessing_describe(&p, run->drawn);
}

zonal_status zonal__eval_results_add_run(zonal__eval_results *results,
                                         const zonal__subject *subject, const char *checkpoint,
                                         zonal__split part) {
    zonal__eval_run *run;
    char path[ZONAL__TRAINING_PATH + 16];
    if (!results->runs) ZONAL_TRY(ZONAL_NEW(&results->runs, ZONAL__EVAL_RUNS, "the runs"));
    if (results->run_count == ZONAL__EVAL_RUNS)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "at most %d runs are evaluated at once",
                          ZONAL__EVAL_RUNS);
    run = &results->runs[results->run_count];
    *run = (zonal__eval_run){.is_run = subject->is_run,
                             .step = subject->step,
                             .step_name = checkpoint,
                             .own_data = subject->own_data,
                             .part = zonal__split_words[part],
                             .precision = zonal__subject_precisions[subject->precision]};
    snprintf(run->name, sizeof run->name, "%s", subject->name);
    snprintf(run->weights, sizeof run->weights, "%s", subject->weights);
    snprintf(run->data, sizeof run->data, "%s", subject->training.settings.data);
    memcpy(run->changes, subject->changes, sizeof run->changes);
    describe_views(&subject->training, run);
    if (subject->is_run) {
        snprintf(path, sizeof path, "%s/config.toml", subject->name);
        ZONAL_TRY(zonal__run_settings_read(path, &run->settings));
        run->images = zonal__run_images_read(run->name);
        snprintf(run->method, sizeof run->method, "%s", subject->training.settings.method);
    }
    results->run_count++;
    return ZONAL_OK;
}

void zonal__eval_results_fini(zonal__eval_results *results) {
    for (int64_t i = 0; i < results->count; i++) drop_result(&results->at[i]);
    for (int i = 0; i < results->run_count; i++) {
        zonal__run_settings_fini(&results->runs[i].settings);
        zonal__free(results->runs[i].images);
    }
    zonal__free(results->runs);
    zonal__free(results->at);
    zonal__free(results->values);
    *results = (zonal__eval_results){0};
}

/* ---- several together ------------------------------------------------------------------------ */

/* The best checkpoints of one experiment are of different steps, the last ones must not be. A file
 * of weights says nothing about its training, so it is alike to nothing. */
zonal__run_sample zonal__eval_results_sample(const zonal__eval_results *results, int i) {
    const zonal__eval_run *run = &results->runs[i];
    const int best = strcmp(run->step_name, "best") == 0;
    return (zonal__run_sample){.settings = &run->settings,
                               .images = run->images,
                               .step = !run->is_run ? -1 - i
                                       : best       ? 0
                                                    : run->step};
}

void zonal__eval_results_group(zonal__eval_results *results) {
    zonal__run_sample samples[ZONAL__EVAL_RUNS];
    zonal__run_place places[ZONAL__EVAL_RUNS];
    for (int i = 0; i < results->run_count; i++)
        samples[i] = zonal__eval_results_sample(results, i);
    zonal__run_group(results->run_count, samples, places);
    for (int i = 0; i < results->run_count; i++) results->runs[i].place = places[i];
}

int zonal__eval_results_alike(const zonal__eval_results *results, const zonal__eval_result *a,
                              const zonal__eval_result *b) {
    return strcmp(a->protocol, b->protocol) == 0 && strcmp(a->features, b->features) == 0 &&
           a->variant == b->variant && a->train == b->train && a->test == b->test &&
           results->runs[a->run].place.group == results->runs[b->run].place.group;
}

/* The mean of a number over a run's own results, of which only those like "like" count. */
static double mean_of_run(const zonal__eval_results *results, const zonal__eval_result *like,
                          int run, int number) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < results->count; i++)
        if (results->at[i].run == run &&
            zonal__eval_results_alike(results, &results->at[i], like)) {
            sum += results->at[i].number[number].value;
            count++;
        }
    return sum / (double)count;
}

static int has_result(const zonal__eval_results *results, const zonal__eval_result *like, int run) {
    for (int64_t i = 0; i < results->count; i++)
        if (results->at[i].run == run && zonal__eval_results_alike(results, &results->at[i], like))
            return 1;
    return 0;
}

/* The values to be averaged, in results->values, and how many there are: of the runs, or where
 * there is but one sample of it, of its results. */
static int64_t gather(const zonal__eval_results *results, const zonal__eval_result *like,
                      int number, int *over_runs) {
    int64_t count = 0;
    for (int r = 0; r < results->run_count; r++)
        if (!results->runs[r].place.repeats && has_result(results, like, r))
            results->values[count++] = mean_of_run(results, like, r, number);
    *over_runs = count > 1;
    if (count > 1) return count;
    count = 0;
    for (int64_t i = 0; i < results->count; i++)
        if (!results->runs[results->at[i].run].place.repeats &&
            zonal__eval_results_alike(results, &results->at[i], like))
            results->values[count++] = results->at[i].number[number].value;
    return count;
}

int zonal__eval_results_mean(const zonal__eval_results *results, int64_t i,
                             zonal__eval_mean *mean) {
    const zonal__eval_result *like = &results->at[i];
    for (int64_t k = 0; k < i; k++)
        if (zonal__eval_results_alike(results, &results->at[k], like)) return 0;
    for (int k = 0; k < like->numbers; k++) {
        mean->count = gather(results, like, k, &mean->over_runs);
        if (mean->count < 2) return 0;
        zonal__scores_spread(mean->count, results->values, &mean->mean[k], &mean->std[k]);
        if (like->number[k].single) mean->mean[k] = mean->std[k] = NAN;
    }
    return 1;
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void write_detail(zonal__json *json, const zonal__eval_result *r) {
    const zonal__scores *scores = &r->scores;
    zonal__json_key(json, "class_names");
    zonal__json_begin_array(json);
    for (int c = 0; c < scores->classes && r->class_names; c++)
        zonal__json_text(json, r->class_names[c]);
    zonal__json_end_array(json);
    zonal__json_key(json, "class_accuracy");
    zonal__json_begin_array(json);
    for (int c = 0; c < scores->classes; c++)
        zonal__json_double(json, zonal__scores_class_accuracy(scores, c));
    zonal__json_end_array(json);
    zonal__json_key(json, "confusion");
    zonal__json_begin_array(json);
    for (int c = 0; c < scores->classes; c++) {
        zonal__json_begin_array(json);
        for (int p = 0; p < scores->classes; p++)
            zonal__json_int(json, scores->confusion[(int64_t)c * scores->classes + p]);
        zonal__json_end_array(json);
    }
    zonal__json_end_array(json);
}

static void write_energy(zonal__json *json, const zonal__eval_result *r) {
    zonal__json_key(json, "energy");
    zonal__json_begin_array(json);
    for (int l = 0; l < r->degrees; l++) {
        zonal__json_begin_object(json);
        zonal__json_key_int(json, "degree", l + 1);
        zonal__json_key_double(json, "excess", r->degree[l].excess);
        zonal__json_key_double(json, "sd", r->degree[l].sd);
        zonal__json_end_object(json);
    }
    zonal__json_end_array(json);
}

void zonal__eval_results_energy(zonal__json *json, const zonal__eval_results *results, int run) {
    const zonal__eval_result *chosen = NULL;
    for (int64_t i = 0; i < results->count; i++) {
        const zonal__eval_result *r = &results->at[i];
        if (r->degrees == 0 || r->run != run) continue;
        if (!chosen || strcmp(r->features, "projector") == 0) chosen = r;
    }
    if (chosen) write_energy(json, chosen);
}

void zonal__eval_result_conditions(const zonal__eval_results *results, const zonal__eval_result *r,
                                   char out[ZONAL__EVAL_CONDITIONS]) {
    const zonal__eval_run *run = &results->runs[r->run];
    char limit[40] = "", seed[32] = "";
    if (r->limit) snprintf(limit, sizeof limit, ", at most %" PRId64 " images", r->limit);
    if (r->seed >= 0) snprintf(seed, sizeof seed, ", seed %" PRId64, r->seed);
    snprintf(out, ZONAL__EVAL_CONDITIONS,
             "%s of the %s, %s%s; %s part%s of %s; checkpoint %s; %s; %s%s%s", r->protocol,
             r->features, r->how, seed, run->part, limit, run->data, run->step_name,
             r->drawn ? run->drawn : run->view, run->precision, run->changes[0] ? "; with " : "",
             run->changes);
    for (char *c = out; *c; c++) /* as it comes back from JSON, which is UTF-8 */
        if (zonal__text_utf8(c) == 0)
            *c = '?';
        else
            c += zonal__text_utf8(c) - 1;
}

void zonal__eval_result_json(zonal__json *json, const zonal__eval_results *results,
                             const zonal__eval_result *r, int detail) {
    const zonal__eval_run *run = &results->runs[r->run];
    char conditions[ZONAL__EVAL_CONDITIONS];
    zonal__eval_result_conditions(results, r, conditions);
    zonal__json_begin_object(json);
    zonal__json_key_text(json, "subject", run->name);
    if (run->method[0]) zonal__json_key_text(json, "method", run->method);
    zonal__json_key_text(json, "protocol", r->protocol);
    zonal__json_key_text(json, "features", r->features);
    if (r->seed >= 0) zonal__json_key_int(json, "seed", r->seed);
    if (r->train) zonal__json_key_int(json, "train", r->train);
    zonal__json_key_int(json, "test", r->test);
    if (r->limit) zonal__json_key_int(json, "limit", r->limit);
    for (int k = 0; k < r->parameters; k++)
        zonal__json_key_double(json, r->parameter[k].name, r->parameter[k].value);
    for (int k = 0; k < r->numbers; k++)
        zonal__json_key_double(json, r->number[k].name, r->number[k].value);
    zonal__json_key_text(json, "part", run->part);
    zonal__json_key_text(json, "data", run->data);
    zonal__json_key_text(json, "weights", run->weights);
    if (run->step >= 0) zonal__json_key_int(json, "step", run->step);
    zonal__json_key_text(json, "conditions", conditions);
    if (run->changes[0]) zonal__json_key_text(json, "overrides", run->changes);
    if (r->degrees) write_energy(json, r);
    if (detail && r->scores.classes) write_detail(json, r);
    zonal__json_end_object(json);
}

static void write_mean(zonal__json *json, const zonal__eval_results *results,
                       const zonal__eval_result *like, const zonal__eval_mean *mean) {
    zonal__json_begin_object(json);
    if (results->runs[like->run].method[0])
        zonal__json_key_text(json, "method", results->runs[like->run].method);
    zonal__json_key_text(json, "protocol", like->protocol);
    zonal__json_key_text(json, "features", like->features);
    zonal__json_key_text(json, "over", mean->over_runs ? "runs" : "seeds");
    zonal__json_key_int(json, "count", mean->count);
    zonal__json_key(json, "subjects");
    zonal__json_begin_array(json);
    for (int r = 0; r < results->run_count; r++)
        if (!results->runs[r].place.repeats && has_result(results, like, r))
            zonal__json_text(json, results->runs[r].name);
    zonal__json_end_array(json);
    for (int k = 0; k < like->numbers; k++) {
        zonal__json_key(json, like->number[k].name);
        zonal__json_begin_object(json);
        zonal__json_key_double(json, "mean", mean->mean[k]);
        zonal__json_key_double(json, "std", mean->std[k]);
        zonal__json_end_object(json);
    }
    zonal__json_end_object(json);
}

void zonal__eval_results_json(zonal__json *json, const zonal__eval_results *results, int detail) {
    zonal__json_key(json, "results");
    zonal__json_begin_array(json);
    for (int64_t i = 0; i < results->count; i++)
        zonal__eval_result_json(json, results, &results->at[i], detail);
    zonal__json_end_array(json);
    zonal__json_key(json, "means");
    zonal__json_begin_array(json);
    for (int64_t i = 0; i < results->count; i++) {
        zonal__eval_mean mean;
        if (zonal__eval_results_mean(results, i, &mean))
            write_mean(json, results, &results->at[i], &mean);
    }
    zonal__json_end_array(json);
}
