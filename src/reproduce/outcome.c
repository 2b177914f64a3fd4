#include "reproduce/outcome.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/checksum.h"
#include "core/json.h"
#include "core/memory.h"
#include "report/run.h"
#include "train/training.h"

enum { MOST_POINTS = 400 };

/* "key=value" lines as an object of texts. */
static void put_lines(zonal__json *json, const char *name, const char *lines) {
    char key[ZONAL__ASSIGNMENT_KEY], value[ZONAL__ASSIGNMENT_VALUE];
    zonal__json_key(json, name);
    zonal__json_begin_object(json);
    while (*lines) {
        size_t whole = strcspn(lines, "\n"), length = strcspn(lines, "=\n");
        if (length < sizeof key && whole > length && whole - length - 1 < sizeof value) {
            snprintf(key, sizeof key, "%.*s", (int)length, lines);
            snprintf(value, sizeof value, "%.*s", (int)(whole - length - 1), lines + length + 1);
            zonal__json_key_text(json, key, value);
        }
        lines += whole + (lines[whole] == '\n');
    }
    zonal__json_end_object(json);
}

/* What an option came to: "auto", with the source "here 7.02 by default", was 7.02. */
static void put_value(zonal__json *json, const zonal__run_setting *s) {
    char value[64];
    const char *here = strncmp(s->source, "here ", 5) == 0 ? s->source + 5 : NULL;
    if (here) snprintf(value, sizeof value, "%.*s", (int)strcspn(here, " "), here);
    zonal__json_key_text(json, s->key, here ? value : s->value);
}

/* Options that were not given, but decided when the run began: config.toml says "auto by default"
 * or names what a number stands for. */
static void put_decided(zonal__json *json, const zonal__run_settings *settings) {
    zonal__json_key(json, "decided");
    zonal__json_begin_object(json);
    for (int64_t i = 0; i < settings->count; i++) {
        const zonal__run_setting *s = &settings->at[i];
        if (zonal__config_is_settled(s->source) && zonal__run_setting_counts(s->key) &&
            strcmp(s->key, "data") != 0 && strcmp(s->key, "class-list") != 0)
            put_value(json, s);
    }
    zonal__json_end_object(json);
}

static int is_wanted(const zonal__experiment *experiment, const char *name) {
    for (int i = 0; i < ZONAL__EXPERIMENT_PROTOCOLS && experiment->protocols[i]; i++) {
        size_t length = strlen(experiment->protocols[i]);
        if (strncmp(name, experiment->protocols[i], length) == 0 && name[length] == '.') return 1;
    }
    return 0;
}

/* What the protocols found, and the last of what the monitor saw. */
static void put_metrics(zonal__json *json, const zonal__experiment *experiment,
                        const zonal__report_run *run) {
    static const char *const monitors[] = {"loss", "mean_cosine", "effective_rank", "rho"};
    zonal__json_key(json, "metrics");
    zonal__json_begin_object(json);
    for (int64_t i = 0; i < run->results_count; i++)
        if (is_wanted(experiment, run->results[i].name))
            zonal__json_key_double(json, run->results[i].name, run->results[i].value);
    for (size_t i = 0; i < sizeof monitors / sizeof monitors[0]; i++)
        zonal__json_key_double(json, monitors[i], zonal__report_last(run, monitors[i]));
    zonal__json_key_bool(json, "collapsed", zonal__report_is_collapsed(run));
    zonal__json_end_object(json);
}

/* The online probe's accuracy, where the run has had one. */
static void put_curve(zonal__json *json, const zonal__report_run *run) {
    double step[MOST_POINTS], value[MOST_POINTS];
    const zonal__report_series *probe = zonal__report_series_of(run, "probe.backbone.accuracy");
    int64_t count = probe ? zonal__report_thin(probe, MOST_POINTS, step, value) : 0;
    if (count == 0) return;
    zonal__json_key(json, "curve");
    zonal__json_begin_array(json);
    for (int64_t i = 0; i < count; i++) {
        zonal__json_begin_object(json);
        zonal__json_key_double(json, "epoch", step[i] / run->steps_per_epoch);
        zonal__json_key_double(json, "accuracy", value[i]);
        zonal__json_end_object(json);
    }
    zonal__json_end_array(json);
}

static void put_record(zonal__json *json, const zonal__outcome *o, const zonal__report_run *run,
                       double selectivity) {
    const zonal__matrix *matrix = o->matrix;
    char images[20] = "";
    if (run->images)
        snprintf(images, sizeof images, "%016" PRIx64,
                 zonal__checksum_of(run->images, strlen(run->images)));
    zonal__json_begin_object(json);
    zonal__json_key_text(json, "experiment", matrix->experiment->name);
    zonal__json_key_text(json, "method", o->cell->method);
    zonal__json_key_text(json, "data", matrix->set[o->cell->set].set->name);
    zonal__json_key_int(json, "seed", o->cell->seed);
    zonal__json_key_text(json, "variant", matrix->variant);
    put_metrics(json, matrix->experiment, run);
    put_lines(json, "configuration", o->cell->configuration);
    put_decided(json, &run->config);
    zonal__json_key_double(json, "selectivity", selectivity);
    zonal__json_key_text(json, "images", images);
    zonal__json_key_double(json, "seconds", o->seconds);
    zonal__json_key_double(json, "at_once", o->at_once);
    zonal__json_key_double(json, "train_seconds", zonal__report_last(run, "seconds"));
    zonal__json_key_text(json, "device", o->device);
    zonal__json_key_text(json, "version", o->version);
    zonal__json_key_text(json, "commit", o->commit);
    zonal__json_key_text(json, "date", o->date);
    put_curve(json, run);
    zonal__json_end_object(json);
}

static zonal_status check_columns(const zonal__experiment *e, const zonal__report_run *run) {
    for (int i = 0; i < e->columns; i++)
        if (isnan(zonal__report_result_of(run, e->column[i].metric)))
            return ZONAL_FAIL(ZONAL_FORMAT, "%s has no result %s; run its evaluation again",
                              run->folder, e->column[i].metric);
    return ZONAL_OK;
}

/* S of the run's settings; NaN where it is not known. It follows from what was asked for and
 * decided, so two records cannot differ in it alone, and is not among that. */
static zonal_status find_selectivity(const zonal__report_run *run, double *selectivity) {
    char path[ZONAL__REPORT_PATH];
    zonal__training *training; /* too large for the stack */
    zonal_status status;
    *selectivity = NAN;
    ZONAL_TRY(zonal__report_path(run, "config.toml", path));
    ZONAL_TRY(ZONAL_NEW(&training, 1, "a run's settings"));
    status = zonal__training_read(path, training);
    if (status == ZONAL_OK) status = zonal__training_objective(training);
    if (status == ZONAL_OK && training->weight.selectivity > 0)
        *selectivity = training->weight.selectivity;
    zonal__training_close(training);
    zonal__free(training);
    return status == ZONAL_MEMORY ? status : ZONAL_OK; /* no reason to lose a record */
}

static zonal_status write_record(const zonal__outcome *o, const zonal__report_run *run,
                                 char **text) {
    zonal__json json;
    const char *written;
    double selectivity;
    zonal_status status;
    ZONAL_TRY(find_selectivity(run, &selectivity));
    zonal__json_init(&json, NULL);
    put_record(&json, o, run, selectivity);
    status = zonal__json_finish(&json, &written);
    if (status == ZONAL_OK) status = ZONAL_NEW(text, strlen(written) + 1, "a record");
    if (status == ZONAL_OK) memcpy(*text, written, strlen(written));
    zonal__json_fini(&json);
    return status;
}

zonal_status zonal__outcome_record(const zonal__outcome *outcome, char **text) {
    zonal__report_run run = {0};
    zonal_status status = zonal__report_run_read(&run, outcome->run);
    *text = NULL;
    if (status == ZONAL_OK) status = check_columns(outcome->matrix->experiment, &run);
    if (status == ZONAL_OK) status = write_record(outcome, &run, text);
    zonal__report_run_fini(&run);
    return status;
}
