/* The loop: steps, and what comes after some of them. */
#include "train/training_run.h"

#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

#include "core/memory.h"
#include "core/thread.h"
#include "train/training_work.h"

static int is_due(const zonal__cadence *c, int64_t every, int64_t step) {
    return every > 0 && (step % every == 0 || step == c->total);
}

int zonal__cadence_due(const zonal__cadence *c, int64_t step) {
    return (is_due(c, c->log_every, step) ? ZONAL__DUE_LOG : 0) |
           (is_due(c, c->eval_every, step) ? ZONAL__DUE_EVAL : 0) |
           (is_due(c, c->checkpoint_every, step) || step == c->total ? ZONAL__DUE_CHECKPOINT : 0);
}

/* Evaluations and checkpoints do not count as time of steps. */
static void mark(zonal__training_work *w) {
    w->marked = zonal__training_now();
    w->marked_step = zonal__trainer_steps_done(w->trainer);
}

/* ---- after a step ---------------------------------------------------------------------------- */

/* Waits for the steps under way, no longer than ranks have to answer: a lost one would leave the
 * device waiting for it. */
static zonal_status wait_for_steps(zonal__training_work *w) {
    const zonal__training *t = w->training;
    if (!w->trainer || zonal__device_is_host(t->device)) return ZONAL_OK;
    return zonal__job_wait(t->job, t->device, zonal__trainer_stream(w->trainer));
}

/* The projections of the first view, of all ranks' images. */
static zonal_status read_first_view(zonal__training_work *w) {
    const zonal_communicator *c = zonal__job_host(w->training->job);
    const zonal__trainer_options *o = &w->training->trainer;
    int64_t of = o->micro_batch > 0 ? o->micro_batch : o->loader.batch, *bytes;
    int64_t row = w->projection_dim * (int64_t)sizeof(float);
    zonal_status status = zonal__trainer_projections(w->trainer, w->projections);
    if (!c) return status;
    if (status == ZONAL_OK) status = ZONAL_NEW(&bytes, c->ranks, "the ranks");
    ZONAL_TRY(zonal__job_all(w->training->job, status));
    for (int r = 0; r < c->ranks; r++) {
        int64_t first;
        zonal__job_share(of, c->ranks, r, &first, &bytes[r]);
        bytes[r] *= o->loader.batch / of * row;
    }
    status = c->all_gather(c->context, w->projections, w->first_view, bytes, NULL);
    zonal__free(bytes);
    return status;
}

static zonal_status read_monitor(const zonal__training_work *w, zonal__monitor *monitor) {
    const zonal__training *t = w->training;
    const float *z = w->first_view ? w->first_view : w->projections;
    int64_t n = t->settings.batch, d = w->projection_dim;
    ZONAL_TRY(zonal__monitor_read(n, d, z, t->trainer.threads, monitor));
    if (t->trainer.objective.loss.discrepancy == ZONAL_DISCREPANCY_SIGREG)
        zonal__monitor_read_scale(n, d, z, monitor); /* its rows have any length */
    else
        zonal__monitor_read_alignment(w->log.line.metrics.loss.invariance, t->weight.k, monitor);
    return ZONAL_OK;
}

static zonal_status watch_collapse(zonal__training_work *w, int64_t step,
                                   const zonal__monitor *monitor) {
    char sentence[ZONAL__COLLAPSE_SENTENCE];
    zonal__collapse_plateau(&w->watch, step, monitor, sentence);
    if (sentence[0]) ZONAL__TELL(w, warned, sentence);
    ZONAL_TRY(zonal__collapse_check(&w->watch, step, monitor, sentence));
    if (sentence[0]) ZONAL__TELL(w, warned, sentence);
    return ZONAL_OK;
}

static zonal_status write_step(zonal__training_work *w) {
    const zonal__step_line *line = &w->log.line;
    const zonal__monitor *monitor = &w->log.monitor;
    ZONAL_TRY(zonal__run_folder_add_step(&w->folder, line));
    ZONAL_TRY(zonal__run_folder_add_monitor(&w->folder, line->step, monitor));
    ZONAL__TELL(w, logged, line, monitor);
    return watch_collapse(w, line->step, monitor);
}

static void *think(void *context) {
    zonal__training_work *w = context;
    w->log.status = read_monitor(w, &w->log.monitor);
    if (w->log.status != ZONAL_OK) w->log.failure = *zonal_last_error();
    atomic_store(&w->log.thought, 1);
    return NULL;
}

/* The monitor takes the processor as long as some steps take a GPU, so it is read in a thread while
 * they go on. */
static void begin_thinking(zonal__training_work *w) {
    const zonal__training *t = w->training;
    atomic_store(&w->log.thought, 0);
    w->log.has_thread = zonal__training_leads(t) && !zonal__device_is_host(t->device) &&
                        zonal__thread_start(&w->log.thread, think, w) == 0;
    if (zonal__training_leads(t) && !w->log.has_thread) think(w);
}

static zonal_status finish_log(zonal__training_work *w) {
    zonal__training_log *log = &w->log;
    zonal_status status = ZONAL_OK;
    if (!log->pending) return ZONAL_OK;
    log->pending = 0;
    if (log->has_thread) pthread_join(log->thread, NULL);
    log->has_thread = 0;
    if (zonal__training_leads(w->training))
        status = log->status == ZONAL_OK ? write_step(w)
                                         : ZONAL_FAIL(log->status, "%s", log->failure.message);
    return zonal__job_all(w->training->job, status);
}

/* Reads what is to be said of a step, for finish_log to say. */
static zonal_status begin_log(zonal__training_work *w) {
    const zonal__training *t = w->training;
    zonal__step_line *line = &w->log.line;
    double now;
    ZONAL_TRY(finish_log(w));
    *line = (zonal__step_line){.step = zonal__trainer_steps_done(w->trainer)};
    line->epoch = (double)line->step / (double)t->steps_per_epoch;
    ZONAL_TRY(wait_for_steps(w));
    ZONAL_TRY(zonal__trainer_metrics(w->trainer, &line->metrics));
    ZONAL_TRY(read_first_view(w));
    now = zonal__training_now();
    line->seconds = now - w->began;
    line->images_per_second =
        (double)((line->step - w->marked_step) * t->settings.batch) / (now - w->marked);
    w->loss_sum += line->metrics.loss.total;
    w->losses++;
    w->log.pending = 1;
    mark(w);
    begin_thinking(w);
    return ZONAL_OK;
}

/* Ranks say it together, after the next step; one alone when it has thought. */
static zonal_status finish_log_in_time(zonal__training_work *w) {
    if (zonal__job_count(w->training->job) == 1 && !atomic_load(&w->log.thought)) return ZONAL_OK;
    return finish_log(w);
}

/* All ranks compute features; rank 0 makes a score of them. */
static zonal_status evaluate(zonal__training_work *w) {
    const zonal__training *t = w->training;
    int64_t step = zonal__trainer_steps_done(w->trainer);
    double start = zonal__training_now(), epoch = (double)step / (double)t->steps_per_epoch;
    zonal__online_options online = t->online;
    zonal__online_result result;
    ZONAL_TRY(wait_for_steps(w));
    if (w->probe) ZONAL_TRY(zonal__trainer_probe(w->trainer, w->probe));
    online.probe = w->probe;
    ZONAL_TRY(zonal__online_run(&online, zonal__trainer_model(w->trainer), &w->online, &result));
    if (!zonal__training_leads(t)) return ZONAL_OK;
    ZONAL_TRY(zonal__run_folder_add_eval(&w->folder, step, &result));
    if (w->probe)
        ZONAL_TRY(zonal__run_folder_add_probe(&w->folder, step, epoch, result.probe_accuracy));
    ZONAL__TELL(w, evaluated, step, &result);
    w->score = zonal__online_score(&result);
    zonal__estimate_evaluated(&w->estimate, zonal__training_now() - start);
    mark(w);
    return ZONAL_OK;
}

/* Without an evaluation the lowest mean of the losses logged between two of them is the best. */
static zonal_status judge(zonal__training_work *w) {
    if (w->training->online.protocol != ZONAL__ONLINE_NONE) return evaluate(w);
    w->score = -w->loss_sum / (double)w->losses;
    w->loss_sum = 0;
    w->losses = 0;
    return ZONAL_OK;
}

static zonal_status write_checkpoint(zonal__training_work *w) {
    double start = zonal__training_now();
    ZONAL_TRY(zonal__run_folder_save(&w->folder, w->trainer, w->score));
    w->saved = zonal__training_now();
    zonal__estimate_saved(&w->estimate, w->saved - start);
    ZONAL__TELL(w, saved, zonal__trainer_steps_done(w->trainer));
    mark(w);
    return ZONAL_OK;
}

static zonal_status save(zonal__training_work *w) {
    const zonal__training *t = w->training;
    zonal__metrics metrics;
    ZONAL_TRY(finish_log(w)); /* its line comes before the checkpoint */
    ZONAL_TRY(wait_for_steps(w));
    ZONAL_TRY(zonal__trainer_metrics(w->trainer, &metrics)); /* what is not finite is not kept */
    return zonal__job_all(t->job, zonal__training_leads(t) ? write_checkpoint(w) : ZONAL_OK);
}

static int is_time(const zonal__training_work *w) {
    return w->cadence.checkpoint_every == 0 &&
           zonal__training_now() - w->saved >= 60 * w->training->settings.checkpoint_minutes;
}

static int wants_checkpoint(const zonal__training_work *w) {
    return zonal__training_leads(w->training) && (w->score > w->folder.best || is_time(w));
}

/* Whether to stop is asked once, after all that takes long and before the checkpoint: an end never
 * goes without one. Any rank may have been asked to, and rank 0 knows score and clock. */
static zonal_status after_step(zonal__training_work *w, int *stopping) {
    const zonal__training *t = w->training;
    int due = zonal__cadence_due(&w->cadence, zonal__trainer_steps_done(w->trainer)), wanted = 0;
    w->score = NAN;
    if (due & ZONAL__DUE_LOG) ZONAL_TRY(begin_log(w));
    if (due & ZONAL__DUE_EVAL || zonal__device_is_host(t->device)) ZONAL_TRY(finish_log(w));
    if (due & ZONAL__DUE_EVAL) ZONAL_TRY(zonal__job_all(t->job, judge(w)));
    ZONAL_TRY(
        zonal__job_any(t->job, w->events.stop && w->events.stop(w->events.context), stopping));
    if (due & ZONAL__DUE_EVAL || w->cadence.checkpoint_every == 0)
        ZONAL_TRY(zonal__job_any(t->job, wants_checkpoint(w), &wanted));
    return due & ZONAL__DUE_CHECKPOINT || *stopping || wanted ? save(w) : ZONAL_OK;
}

/* ---- the steps ------------------------------------------------------------------------------- */

static void begin_watch(zonal__training_work *w) {
    const zonal__training *t = w->training;
    const zonal__collapse_policy policy = {
        .limits = {t->settings.collapse_cosine, t->settings.collapse_rank},
        .ends_run = t->settings.on_collapse == ZONAL__ON_COLLAPSE_STOP,
        .warmup = t->trainer.schedule.warmup,
        .total = t->trainer.schedule.total,
        .discrepancy = t->trainer.objective.loss.discrepancy,
        .gain = t->trainer.objective.gain,
        .weight = t->weight};
    zonal__collapse_watch_init(&w->watch, &policy);
}

static void begin_cadence(zonal__training_work *w) {
    const zonal__training *t = w->training;
    w->cadence = (zonal__cadence){.total = t->trainer.schedule.total,
                                  .log_every = t->settings.log_every,
                                  .eval_every = t->settings.eval_every,
                                  .checkpoint_every = t->settings.checkpoint_every};
}

/* Images of an evaluation over images of a step, by their pixels. */
static double eval_work(const zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    double ratio = (double)s->local_side / (double)s->side, images = 0;
    double step = (double)s->batch * ((double)s->views + (double)s->local_views * ratio * ratio);
    if (t->queries) images = (double)t->queries->count * (t->memory ? 1 : 2); /* views */
    if (t->memory) images += (double)t->memory->count;
    return images / step;
}

static void begin_estimate(zonal__training_work *w) {
    w->estimate.first = zonal__trainer_steps_done(w->trainer);
    w->estimate.total = w->cadence.total;
    w->estimate.eval_every =
        w->training->online.protocol == ZONAL__ONLINE_NONE ? 0 : w->cadence.eval_every;
    w->estimate.checkpoint_every = w->cadence.checkpoint_every;
    w->estimate.eval_work = eval_work(w->training);
    w->estimate.started = w->started;
    zonal__estimate_begin(&w->estimate, zonal__training_now());
}

static void tell(const zonal__training_work *w, const zonal__estimated *estimated) {
    ZONAL__TELL(w, estimated, estimated, w->estimate.total - w->estimate.first);
}

static void on_part_of_step(void *context, double loaded, double computed) {
    zonal__training_work *w = context;
    zonal__estimate_part part = {
        .loaded = loaded, .computed = computed, .now = zonal__training_now()};
    zonal__estimated estimated;
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        part.user = (double)used.ru_utime.tv_sec + 1e-6 * (double)used.ru_utime.tv_usec;
        part.system = (double)used.ru_stime.tv_sec + 1e-6 * (double)used.ru_stime.tv_usec;
    }
    if (zonal__estimate_within(&w->estimate, &part, &estimated)) tell(w, &estimated);
}

static void tell_estimate(zonal__training_work *w, int64_t step) {
    zonal__estimated estimated;
    if (zonal__estimate_step(&w->estimate, step, zonal__training_now(), &estimated))
        tell(w, &estimated);
}

/* What can fail before a step on one rank alone; a full disk is told at once. */
static zonal_status fetch(zonal__training_work *w) {
    double start = zonal__training_now();
    if (zonal__training_leads(w->training)) ZONAL_TRY(zonal__run_folder_status(&w->folder));
    ZONAL_TRY(zonal__trainer_fetch(w->trainer));
    if (zonal__device_is_host(
            w->training->device)) /* elsewhere it is the device that is waited for */
        zonal__estimate_waited(&w->estimate, zonal__training_now() - start);
    return ZONAL_OK;
}

static zonal_status finish_folder(zonal__training_work *w) {
    return zonal__training_leads(w->training) ? zonal__run_folder_finish(&w->folder) : ZONAL_OK;
}

static zonal_status make_steps(zonal__training_work *w) {
    zonal__job *job = w->training->job;
    int64_t step = zonal__trainer_steps_done(w->trainer);
    int stopping = 0;
    w->loss_sum = w->folder.loss_sum;
    w->losses = w->folder.losses;
    w->saved = zonal__training_now();
    w->began = w->saved - w->folder.seconds;
    mark(w);
    begin_cadence(w);
    begin_watch(w);
    begin_estimate(w);
    if (w->events.estimated) zonal__trainer_listen(w->trainer, on_part_of_step, w);
    ZONAL__TELL(w, progressed, step);
    while (step < w->cadence.total && !stopping) {
        ZONAL_TRY(zonal__job_all(job, fetch(w)));
        ZONAL_TRY(zonal__trainer_step(w->trainer));
        ZONAL_TRY(finish_log_in_time(w));
        step = zonal__trainer_steps_done(w->trainer);
        tell_estimate(w, step);
        ZONAL_TRY(after_step(w, &stopping));
        ZONAL__TELL(w, progressed, step);
    }
    return zonal__job_all(job, finish_folder(w));
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* What a failure has left. Of several ranks any may have to say it. */
static zonal_status name_checkpoint(zonal__training_work *w, zonal_status status) {
    zonal_error inner = *zonal_last_error(); /* a copy: the sentence is about to change */
    zonal__run_folder folder = {.lock = -1};
    char latest[ZONAL__RUN_FOLDER_PATH];
    if (w->run) {
        (void)finish_folder(w);
        snprintf(folder.path, sizeof folder.path, "%s", w->run);
        if (zonal__run_folder_latest(&folder, latest) != ZONAL_OK)
            return ZONAL_FAIL(status, "%.400s; the run is %.250s", inner.message, w->run);
        return ZONAL_FAIL(
            status,
            "%.300s; the last checkpoint is %.250s: zonal train --resume %.150s continues from it",
            inner.message, latest, w->run);
    }
    if (status != ZONAL_NUMERIC) return status;
    return ZONAL_FAIL(status, "%.400s; the last checkpoint of %.400s is intact", inner.message,
                      w->folder.path);
}

static zonal_status work(zonal__training_work *w) {
    zonal_status status;
    ZONAL_TRY(zonal__training_prepare(w));
    ZONAL__TELL(w, ready, w->training);
    status = zonal__training_begin(w);
    if (status == ZONAL_OK) status = make_steps(w);
    return status == ZONAL_OK ? status : name_checkpoint(w, status);
}

static void fill_result(const zonal__training_work *w, zonal__training_result *result) {
    int open = w->folder.lock >= 0;
    snprintf(result->folder, sizeof result->folder, "%s", open ? w->folder.path : "");
    result->step = w->trainer ? zonal__trainer_steps_done(w->trainer) : 0;
    result->total = w->training->trainer.schedule.total;
}

zonal_status zonal__training_run(zonal__training *t, const zonal__training_events *events,
                                 zonal__training_result *result) {
    zonal__training_work w = {
        .training = t, .folder = {.lock = -1}, .started = zonal__training_now()};
    zonal_error failure;
    zonal_status status;
    if (t->source)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a training runs once; make another from its settings");
    if (events) w.events = *events;
    w.resume = (zonal__resume){.training = t, .folder = &w.folder};
    status = work(&w);
    failure = *zonal_last_error();
    if (status != ZONAL_OK) (void)wait_for_steps(&w); /* before what they work on is released */
    if (result) fill_result(&w, result);
    zonal__training_work_fini(&w);
    /* What is released may record failures of its own, and this one is the reason. */
    return status == ZONAL_OK ? status : ZONAL_FAIL(status, "%s", failure.message);
}
