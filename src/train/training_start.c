/* From settings to the first step: the run folder, what a resumed run finds in it, the weights. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/memory.h"
#include "nn/weights.h"
#include "train/algorithms.h"
#include "train/checkpoint.h"
#include "train/training_work.h"

double zonal__training_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- algorithms ------------------------------------------------------------------------------ */

static zonal_status take_algorithms(zonal__training_work *w) {
    const zonal__training *t = w->training;
    char own[ZONAL__RUN_FOLDER_PATH];
    int resumed = t->settings.resume && zonal__training_leads(t);
    if (resumed) ZONAL_TRY(zonal__run_folder_file(&w->folder, "autotune.txt", own));
    return zonal__algorithms_take(t->device, resumed ? own : NULL, t->settings.autotune_cache);
}

/* What a resumed run has is not this user's choice for new ones. */
static zonal_status keep_algorithms(zonal__training_work *w) {
    const zonal__train_settings *s = &w->training->settings;
    char own[ZONAL__RUN_FOLDER_PATH];
    ZONAL_TRY(zonal__run_folder_file(&w->folder, "autotune.txt", own));
    return zonal__algorithms_keep(w->training->device, own,
                                  s->resume ? s->resume : s->autotune_cache);
}

/* ---- the first weights ----------------------------------------------------------------------- */

/* The options of a network that the file's backbone fits, where they are not those of this run. */
static void name_options(const zonal__safetensors *file, const zonal__network_spec *ours,
                         char out[160]) {
    zonal__network_spec theirs;
    int used = 0;
    out[0] = '\0';
    if (zonal__weights_network(file, &theirs) != ZONAL_OK) return;
    if (theirs.depth != ours->depth)
        used += snprintf(out + used, (size_t)(160 - used), " --network resnet%d", theirs.depth);
    if (theirs.stem != ours->stem)
        used += snprintf(out + used, (size_t)(160 - used), " --stem %s",
                         theirs.stem == ZONAL__STEM_SMALL ? "small" : "imagenet");
    if (theirs.channels != ours->channels)
        used += snprintf(out + used, (size_t)(160 - used), " --channels %d", theirs.channels);
    /* Widths are rounded to whole channels: only another rounding is another width. */
    if (round(64 * theirs.width / 8) != round(64 * ours->width / 8))
        snprintf(out + used, (size_t)(160 - used), " --width %.3g", theirs.width);
}

static zonal_status refuse(const zonal__safetensors *file, const zonal__network_spec *ours) {
    zonal_error inner = *zonal_last_error(); /* a copy: the sentence is about to change */
    char options[160];
    name_options(file, ours, options);
    if (!options[0]) return ZONAL_FAIL(inner.status, "%.700s", inner.message);
    return ZONAL_FAIL(ZONAL_SHAPE, "%.560s; it fits%s", inner.message, options);
}

/* A new run may begin with the weights of a file, torchvision's or zonal's: the option "init". A
 * file of another network is refused by a sentence that lists what does not fit and names the
 * options that the file asks for. */
static zonal_status load_first(const char *path, zonal__trainer *trainer,
                               zonal__weights_begun *begun) {
    zonal__model *model = zonal__trainer_model(trainer);
    zonal__safetensors *file;
    zonal_status status;
    ZONAL_TRY(zonal__safetensors_open(path, ZONAL__SAFETENSORS_ANY, &file));
    status = zonal__weights_begin(file, model, begun);
    if (status == ZONAL_SHAPE) status = refuse(file, &model->spec);
    zonal__safetensors_close(file);
    return status;
}

/* ---- the trainer ----------------------------------------------------------------------------- */

static zonal_status open_folder(zonal__training_work *w) {
    const zonal__train_settings *s = &w->training->settings;
    if (!zonal__training_leads(w->training))
        return s->resume ? zonal__resume_check_settings(w->training) : ZONAL_OK;
    if (!s->resume) return s->out ? zonal__run_folder_check(s->out) : ZONAL_OK;
    ZONAL_TRY(zonal__resume_check_settings(w->training));
    ZONAL_TRY(zonal__run_folder_open(s->resume, s->keep, &w->folder));
    ZONAL_TRY(zonal__resume_check(&w->resume));
    return s->retries > 0 ? zonal__run_folder_count_retry(&w->folder, s->retries) : ZONAL_OK;
}

/* What comes before the trainer, of which each rank can fail alone. */
static zonal_status open_all(zonal__training_work *w) {
    zonal__training *t = w->training;
    ZONAL_TRY(open_folder(w));
    ZONAL_TRY(zonal__training_open(t));
    ZONAL_TRY(zonal__training_open_online(t));
    ZONAL_TRY(take_algorithms(w));
    ZONAL_TRY(zonal__config_values(&t->options, zonal__train_option_may_change, &w->configuration));
    t->trainer.configuration = w->configuration;
    return ZONAL_OK;
}

static int64_t probe_size(const zonal__training_work *w) {
    int64_t dim = zonal__trainer_model(w->trainer)->graph.feature_dim;
    return w->training->trainer.probe_classes * (dim + 1);
}

static int is_at_start(const zonal__training_work *w) {
    return !w->training->settings.resume || w->resume.from_start;
}

/* And what comes after it. */
static zonal_status finish_trainer(zonal__training_work *w) {
    const zonal__training *t = w->training;
    const zonal__train_settings *s = &t->settings;
    int64_t dim = zonal__trainer_model(w->trainer)->graph.projection_dim;
    int64_t rows = zonal__trainer_views(w->trainer) * zonal__trainer_rows(w->trainer);
    w->projection_dim = dim;
    if (s->init && is_at_start(w) && zonal__training_leads(t))
        ZONAL_TRY(load_first(s->init, w->trainer, &w->begun));
    ZONAL_TRY(ZONAL_NEW(&w->projections, rows * dim, "the projections for the monitor"));
    if (s->probe) ZONAL_TRY(ZONAL_NEW(&w->probe, probe_size(w), "a copy of the probe"));
    ZONAL_TRY(zonal__online_prepare(&t->online, zonal__trainer_model(w->trainer), &w->online));
    if (zonal__job_count(t->job) == 1) return ZONAL_OK;
    return ZONAL_NEW(&w->first_view, s->batch * dim, "the projections for the monitor");
}

zonal_status zonal__training_prepare(zonal__training_work *w) {
    zonal__training *t = w->training;
    ZONAL_TRY(zonal__job_all(t->job, open_all(w)));
    ZONAL_TRY(zonal__training_agree(t));
    ZONAL_TRY(zonal__job_on(t->job, t->device, &t->trainer.communicator));
    ZONAL_TRY(zonal__trainer_create(&t->trainer, &w->trainer));
    return zonal__job_all(t->job, finish_trainer(w));
}

void zonal__training_work_fini(zonal__training_work *w) {
    if (w->log.has_thread) pthread_join(w->log.thread, NULL); /* a run that failed meanwhile */
    zonal__run_folder_close(&w->folder);
    zonal__online_fini(&w->online);
    zonal__trainer_destroy(w->trainer);
    zonal__free(w->projections);
    zonal__free(w->first_view);
    zonal__free(w->probe);
    zonal__free(w->run);
    zonal__free(w->configuration);
    zonal__resume_close(&w->resume);
    w->training->trainer.configuration = NULL;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* "photos" of /data/photos/, "textures-disk" of textures:disk, "demo" of recipes/demo.toml. */
static void name_run(const zonal__train_settings *s, char name[64]) {
    const char *from = s->config ? s->config : s->data, *end = from + strlen(from), *start;
    int length = 0;
    while (end > from && end[-1] == '/') end--;
    for (start = end; start > from && start[-1] != '/'; start--) continue;
    if (s->config && end - start > 5 && strcmp(end - 5, ".toml") == 0) end -= 5;
    for (; start < end && length < 60; start++)
        name[length++] = strchr(":,=", *start) ? '-' : *start;
    name[length] = '\0';
    if (length == 0) snprintf(name, 64, "run");
}

static zonal_status make_folder(zonal__training_work *w) {
    const zonal__train_settings *s = &w->training->settings;
    char *config, name[64];
    zonal_status status;
    ZONAL_TRY(zonal__config_dump(&w->training->options, &config));
    name_run(s, name);
    status = s->out ? zonal__run_folder_create(s->out, config, s->keep, &w->folder)
                    : zonal__run_folder_create_next("runs", name, config, s->keep, &w->folder);
    zonal__free(config);
    return status;
}

/* What it will be trained on goes into the folder before the first checkpoint. */
static zonal_status make_run(zonal__training_work *w) {
    zonal__data_record *record;
    zonal_status status;
    ZONAL_TRY(zonal__training_record(w->training, &record));
    status = make_folder(w);
    if (status == ZONAL_OK) status = zonal__run_folder_write_data(&w->folder, record);
    zonal__data_record_destroy(record);
    return status;
}

/* Curves are a copy of what metrics.jsonl has: no reason to end a run. */
static void open_curves(zonal__training_work *w) {
    char sentence[sizeof(zonal_error) + 128];
    if (!w->training->settings.tensorboard) return;
    if (zonal__event_log_open(w->folder.path, zonal__trainer_steps_done(w->trainer),
                              &w->folder.events) == ZONAL_OK)
        return;
    snprintf(sentence, sizeof sentence,
             "no curves for TensorBoard: %s; the run continues without them, and --no-tensorboard "
             "leaves them out",
             zonal_last_error()->message);
    ZONAL__TELL(w, warned, sentence);
}

static void tell_begun(zonal__training_work *w) {
    const zonal__train_settings *s = &w->training->settings;
    const zonal__training_start start = {
        .trainer = w->trainer,
        .init = s->init && is_at_start(w) ? &w->begun : NULL,
        .resumed = s->resume != NULL,
        .step = zonal__trainer_steps_done(w->trainer),
        .changed_data = w->resume.changes.changed ? w->resume.changes.text : "",
        .other_length = w->resume.old_total != 0};
    ZONAL__TELL(w, begun, &start);
}

/* The checkpoint of step 0 makes a run resumable from the first instant, and shows a place that
 * cannot hold one before hours have gone into the run. */
static zonal_status save_first(zonal__training_work *w) {
    double start = zonal__training_now();
    ZONAL_TRY(zonal__run_folder_save(&w->folder, w->trainer, NAN));
    w->estimate.save_seconds = zonal__training_now() - start;
    ZONAL__TELL(w, saved, 0);
    return ZONAL_OK;
}

static zonal_status begin_folder(zonal__training_work *w) {
    int resumed = w->training->settings.resume != NULL;
    ZONAL_TRY(resumed ? zonal__resume_load(&w->resume, w->trainer) : make_run(w));
    return keep_algorithms(w);
}

/* All ranks begin where rank 0 does, and know where its checkpoints are. */
static zonal_status begin_ranks(zonal__training_work *w) {
    zonal__job *job = w->training->job;
    ZONAL_TRY(zonal__checkpoint_spread(w->trainer, zonal__job_host(job)));
    return zonal__job_count(job) == 1 ? ZONAL_OK : zonal__job_text(job, w->folder.path, &w->run);
}

static zonal_status tell_and_save(zonal__training_work *w) {
    ZONAL__TELL(w, opened, &w->folder);
    open_curves(w);
    tell_begun(w);
    if (is_at_start(w)) ZONAL_TRY(save_first(w));
    return zonal__run_folder_write_aside(&w->folder, w->trainer,
                                         w->training->settings.checkpoint_every > 0);
}

zonal_status zonal__training_begin(zonal__training_work *w) {
    zonal__job *job = w->training->job;
    int leads = zonal__training_leads(w->training);
    ZONAL_TRY(zonal__job_all(job, leads ? begin_folder(w) : ZONAL_OK));
    ZONAL_TRY(begin_ranks(w));
    return zonal__job_all(job, leads ? tell_and_save(w) : ZONAL_OK);
}
