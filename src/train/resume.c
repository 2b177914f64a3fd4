#include "train/resume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/text.h"
#include "train/checkpoint.h"

static int is_flag(const zonal__training *t, const char *name) {
    return zonal__options_source(&t->options, name) == ZONAL__SOURCE_FLAG;
}

static int is_length(const char *name) {
    return strcmp(name, "epochs") == 0 || strcmp(name, "steps") == 0;
}

static int is_given_length(const zonal__training *t) {
    return is_flag(t, "epochs") || is_flag(t, "steps");
}

/* ---- settings -------------------------------------------------------------------------------- */

zonal_status zonal__resume_find_config(const char *run, char path[ZONAL__TRAINING_PATH]) {
    if (snprintf(path, ZONAL__TRAINING_PATH, "%s/config.toml", run) >= ZONAL__TRAINING_PATH)
        return ZONAL_FAIL(ZONAL_IO, "the path of the run %.60s... is too long", run);
    if (access(path, R_OK) == 0) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s; --resume takes a folder that zonal train made",
                      path, strerror(errno));
}

static int is_not_device(const char *name) {
    return strcmp(name, "device") != 0;
}

/* What is not compared, or, as the device, by itself. */
static int is_set_aside(const char *name) {
    return zonal__train_option_may_change(name) || !is_not_device(name);
}

static int is_set_aside_or_length(const char *name) {
    return is_set_aside(name) || is_length(name);
}

/* "cuda" and "cuda:1". */
static int is_same_kind(const zonal__config_change *devices) {
    size_t length = strcspn(devices->before + 1, ":\""); /* behind the first quotation mark */
    return length == strcspn(devices->now + 1, ":\"") &&
           strncmp(devices->before, devices->now, length + 1) == 0;
}

/* The first option whose value differs from that in a text of values; "" where none does. Another
 * device of the same kind does not count: it gives the same numbers. */
static zonal_status find_change(const zonal__training *t, zonal__config_filter *set_aside,
                                const char *before, zonal__config_change *change) {
    int found;
    *change = (zonal__config_change){0};
    ZONAL_TRY(zonal__config_compare(&t->options, is_not_device, before, change, &found));
    if (found && !(change->before[0] && change->now[0] && is_same_kind(change))) return ZONAL_OK;
    ZONAL_TRY(zonal__config_compare(&t->options, set_aside, before, change, &found));
    if (!found) change->name[0] = '\0';
    return ZONAL_OK;
}

static zonal_status refuse_flag(const zonal__training *t, const char *name, const char *value) {
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "--%s cannot be changed when a run is resumed%s%s; leave it out, or start a "
                      "new run with --config %s/config.toml",
                      name, value[0] ? ": it is " : "", value, t->settings.resume);
}

/* Against the run's config.toml. */
static zonal_status find_changed_flag(const zonal__training *t, zonal__config_change *change) {
    char path[ZONAL__TRAINING_PATH], *before = NULL;
    zonal__training run;
    zonal_status status;
    ZONAL_TRY(zonal__resume_find_config(t->settings.resume, path));
    status = zonal__training_read(path, &run);
    if (status == ZONAL_OK)
        status = zonal__config_values(&run.options, zonal__train_option_may_change, &before);
    if (status == ZONAL_OK) status = find_change(t, is_set_aside_or_length, before, change);
    zonal__free(before);
    zonal__training_close(&run);
    return status;
}

static zonal_status refuse_changed_flag(const zonal__training *t) {
    zonal__config_change change;
    ZONAL_TRY(find_changed_flag(t, &change));
    return change.name[0] ? refuse_flag(t, change.name, change.before) : ZONAL_OK;
}

zonal_status zonal__resume_check_settings(zonal__training *t) {
    int given = 0;
    zonal__training_settle_paths(t); /* as in config.toml */
    /* The same command once more: all its options are compared with the run's
     * (zonal__resume_check). */
    if (t->settings.retries > 0) return ZONAL_OK;
    for (int i = 0; t->options.table[i].name; i++) {
        const zonal__option *option = &t->options.table[i];
        if (t->options.state[i].source != ZONAL__SOURCE_FLAG ||
            zonal__train_option_may_change(option->name) || is_length(option->name))
            continue;
        if (option->rules & ZONAL__OPTION_LINE) return refuse_flag(t, option->name, "");
        given = 1;
    }
    return given ? refuse_changed_flag(t) : ZONAL_OK;
}

/* ---- images ---------------------------------------------------------------------------------- */

static zonal_status check_data(zonal__resume *r) {
    const zonal__training *t = r->training;
    int allowed = t->settings.changed_data == ZONAL__CHANGED_ALLOW;
    ZONAL_TRY(zonal__training_check_data(t, r->folder->path, &r->changes));
    if (!r->changes.recorded && is_flag(t, "data") && !allowed && !r->from_start)
        return ZONAL_FAIL(ZONAL_IO,
                          "%s was made by a version that kept no record of its images, so they "
                          "cannot be compared with %s; --changed-data allow uses them as they are",
                          r->folder->path, t->settings.data);
    if (!r->changes.changed || allowed) return ZONAL_OK;
    return zonal__training_refuse_changed(r->folder->path, &r->changes);
}

/* ---- the configuration ----------------------------------------------------------------------- */

static zonal_status refuse_change(const zonal__resume *r, const zonal__config_change *change) {
    const char *run = r->folder->path;
    int flag = is_flag(r->training, change->name); /* of the same command once more */
    char remedy[256];
    if (is_length(change->name))
        snprintf(remedy, sizeof remedy,
                 "put it back, or give --%s %.40s with --resume to change "
                 "the length of the run",
                 change->name, change->now);
    else
        snprintf(remedy, sizeof remedy,
                 "put it back, or begin a new run with --config %.120s/config.toml", run);
    return ZONAL_FAIL(ZONAL_ARGUMENT, "%s%.200s%s: %s was %.120s and is %.120s now; %s",
                      flag ? "the options are not those of " : "", run,
                      flag ? "" : "/config.toml was changed after the run began", change->name,
                      change->before[0] ? change->before : "not given",
                      change->now[0] ? change->now : "not given", remedy);
}

/* A run goes on with the numbers it was begun with: what was changed in its config.toml since is
 * refused, as it would be on the command line. */
static zonal_status check_configuration(const zonal__resume *r) {
    const zonal__training *t = r->training;
    zonal__config_change change;
    if (!r->before) return ZONAL_OK;
    ZONAL_TRY(find_change(t, is_given_length(t) ? is_set_aside_or_length : is_set_aside, r->before,
                          &change));
    return change.name[0] ? refuse_change(r, &change) : ZONAL_OK;
}

/* ---- the length ------------------------------------------------------------------------------ */

static int is_not_epochs(const char *name) {
    return strcmp(name, "epochs") != 0;
}

static int is_not_steps(const char *name) {
    return strcmp(name, "steps") != 0;
}

static int is_not_data(const char *name) {
    return strcmp(name, "data") != 0;
}

static int is_not_class_list(const char *name) {
    return strcmp(name, "class-list") != 0;
}

/* The value that --epochs or --steps had in a configuration that was kept. */
static int64_t value_before(const zonal__training *t, zonal__config_filter *others,
                            const char *before, int64_t now) {
    zonal__config_change change;
    int changed;
    if (zonal__config_compare(&t->options, others, before, &change, &changed) != ZONAL_OK)
        return now;
    return changed ? strtoll(change.before, NULL, 10) : now;
}

static int64_t total_before(const zonal__training *t, const char *before) {
    int64_t steps = value_before(t, is_not_steps, before, t->settings.steps);
    return steps > 0
               ? steps
               : t->steps_per_epoch * value_before(t, is_not_epochs, before, t->settings.epochs);
}

static zonal_status put_length(const zonal__resume *r, const char *name, int64_t value,
                               const char *comment) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return zonal__run_folder_edit_config(r->folder, name, text, comment);
}

static zonal_status refuse_length(const zonal__resume *r, int64_t done) {
    const zonal__training *t = r->training;
    int steps = is_flag(t, "steps");
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "%s has made %" PRId64 " step%s already, and --%s %" PRId64
                      " would end it after %" PRId64 "; give more",
                      r->folder->path, done, zonal__text_plural(done), steps ? "steps" : "epochs",
                      steps ? t->settings.steps : t->settings.epochs, t->trainer.schedule.total);
}

/* Fills old_total where the length is another one now. */
static zonal_status check_length(zonal__resume *r, int64_t done) {
    const zonal__training *t = r->training;
    int64_t old = r->before ? total_before(t, r->before) : -1;
    if (!is_given_length(t) || t->trainer.schedule.total == old) return ZONAL_OK;
    if (t->trainer.schedule.total <= done) return refuse_length(r, done);
    r->old_total = old;
    return ZONAL_OK;
}

/* The checkpoint is made again, with the length that the run now has: without it the next resume
 * would find a configuration that differs from it. */
static zonal_status keep_length(const zonal__resume *r, zonal__trainer *trainer) {
    const zonal__train_settings *s = &r->training->settings;
    char comment[96], before[48] = "";
    if (r->old_total == 0) return ZONAL_OK;
    if (r->old_total > 0)
        snprintf(before, sizeof before, "; %" PRId64 " step%s before", r->old_total,
                 zonal__text_plural(r->old_total));
    snprintf(comment, sizeof comment, "--resume at step %" PRId64 "%s",
             zonal__trainer_steps_done(trainer), before);
    ZONAL_TRY(put_length(r, "epochs", s->epochs, comment));
    ZONAL_TRY(put_length(r, "steps", s->steps, comment));
    return r->from_start ? ZONAL_OK : zonal__checkpoint_save(trainer, r->checkpoint);
}

/* ---- the checkpoint -------------------------------------------------------------------------- */

/* Puts the value of a flag into config.toml, where the next resume finds it. */
static zonal_status keep_flag(const zonal__resume *r, const char *name,
                              zonal__config_filter *others) {
    const zonal__training *t = r->training;
    char *line, comment[32];
    zonal_status status;
    if (!is_flag(t, name)) return ZONAL_OK;
    ZONAL_TRY(zonal__config_values(&t->options, others, &line));
    line[strcspn(line, "\n")] = '\0';
    snprintf(comment, sizeof comment, "--%s", name);
    status = zonal__run_folder_edit_config(r->folder, name, line + strlen(name) + strlen(" = "),
                                           comment);
    zonal__free(line);
    return status;
}

/* Images in another place, or others: what was accepted is what the next resume expects. */
static zonal_status keep_data(const zonal__resume *r) {
    const zonal__training *t = r->training;
    zonal__data_record *record;
    zonal_status status;
    ZONAL_TRY(keep_flag(r, "data", is_not_data));
    ZONAL_TRY(keep_flag(r, "class-list", is_not_class_list));
    if (r->changes.recorded && !r->changes.changed) return ZONAL_OK;
    ZONAL_TRY(zonal__training_record(t, &record));
    status = zonal__run_folder_write_data(r->folder, record);
    zonal__data_record_destroy(record);
    return status;
}

/* A damaged checkpoint is not the end: there is one before it. */
static zonal_status offer_older(zonal_status status) {
    zonal_error inner = *zonal_last_error(); /* a copy: the sentence is about to change */
    if (status != ZONAL_FORMAT) return status;
    return ZONAL_FAIL(status, "%.300s; to resume from the checkpoint before it, remove this one",
                      inner.message);
}

zonal_status zonal__resume_check(zonal__resume *r) {
    ZONAL_TRY(zonal__run_folder_is_untouched(r->folder, &r->from_start));
    if (r->from_start) {
        /* There is no checkpoint whose options could be compared. */
        if (r->training->settings.retries > 0) ZONAL_TRY(refuse_changed_flag(r->training));
        return check_data(r);
    }
    ZONAL_TRY(zonal__run_folder_latest(r->folder, r->checkpoint));
    ZONAL_TRY(offer_older(zonal__checkpoint_configuration(r->checkpoint, &r->before)));
    ZONAL_TRY(check_configuration(r));
    return check_data(r);
}

zonal_status zonal__resume_load(zonal__resume *r, zonal__trainer *trainer) {
    if (!r->from_start) ZONAL_TRY(offer_older(zonal__checkpoint_load(trainer, r->checkpoint)));
    int64_t done = zonal__trainer_steps_done(trainer);
    ZONAL_TRY(check_length(r, done));
    ZONAL_TRY(zonal__run_folder_rewind(r->folder, r->from_start ? -1 : done,
                                       done - done % r->training->settings.eval_every));
    ZONAL_TRY(keep_length(r, trainer));
    ZONAL_TRY(keep_flag(r, "device", is_not_device));
    return keep_data(r);
}

void zonal__resume_close(zonal__resume *r) {
    zonal__free(r->before);
    r->before = NULL;
}
