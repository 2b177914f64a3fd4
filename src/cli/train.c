/*
 * zonal train: pretrains a network on pictures, in a run folder that can be resumed.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/device.h"
#include "cli/cli.h"
#include "cli/train_init.h"
#include "cli/train_print.h"
#include "cli/train_resume.h"
#include "cli/training.h"
#include "core/memory.h"
#include "core/text.h"
#include "train/checkpoint.h"

static const zonal__cli_usage usage = {
    .synopsis = "zonal train [DIR] [--config RECIPE] [--resume RUN] [options]",
    .description =
        "Pretrains a ResNet on pictures without labels: views of one picture are pulled\n"
        "together, and the embeddings are kept uniform on the sphere by the loss of your\n"
        "choice. Everything goes into a run folder: configuration, metrics, log and\n"
        "checkpoints. Ctrl-C ends a run after the step it is at, with a checkpoint;\n"
        "--resume goes on from there, or from wherever a run was killed, to the same\n"
        "weights.\n\n"
        "examples:\n"
        "  zonal train photos\n"
        "  zonal train --config recipes/textures.toml --set lr=5e-4\n"
        "  zonal train --resume runs/photos-1\n",
    .argument = "DIR",
    .most = 1,
    .layout = &zonal__train_layout};

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t stop_asked, someone_watches;
static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { STOP_SIGNALS = sizeof stop_signals / sizeof stop_signals[0] };
static struct sigaction usual[STOP_SIGNALS]; /* what the program does elsewhere */

/* A step may take a while, so whoever presses Ctrl-C is told that it was seen. */
static void acknowledge(void) {
    static const char words[] = "ending after this step; Ctrl-C once more ends at once\n";
    int error = errno;
    zonal__progress_interrupted();
    if (write(STDERR_FILENO, words, sizeof words - 1) < 0) someone_watches = 0;
    errno = error;
}

/* The first signal asks for an end, the second has its usual effect: an end at once. */
static void ask_to_stop(int signal_number) {
    stop_asked = 1;
    if (signal_number == SIGINT && someone_watches) acknowledge();
    for (int i = 0; i < STOP_SIGNALS; i++)
        if (stop_signals[i] == signal_number) sigaction(signal_number, &usual[i], NULL);
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    someone_watches = isatty(STDERR_FILENO);
    for (int i = 0; i < STOP_SIGNALS; i++)
        if (sigaction(stop_signals[i], NULL, &usual[i]) == 0 && usual[i].sa_handler != SIG_IGN)
            sigaction(stop_signals[i], &action, NULL);
}

static void release_signals(void) {
    for (int i = 0; i < STOP_SIGNALS; i++) sigaction(stop_signals[i], &usual[i], NULL);
}

/* ---- a run at work --------------------------------------------------------------------------- */

typedef struct job {
    zonal__training *training;
    zonal__trainer *trainer;
    zonal__run_folder folder;
    zonal__train_print print;
    zonal__resume resume;
    char init[512];      /* what was taken from --init; "": there is none */
    char *configuration; /* what decides the numbers, for the checkpoints */
    float *projections;  /* [views][batch][dim] */
    zonal__estimate estimate;
    double began;  /* seconds of the clock; those of earlier processes are taken off */
    double marked; /* when the present stretch of steps began */
    int64_t marked_step;
    int collapsed; /* the last meter said so */
    int64_t
        spread_since; /* the step since which the meters have said "dispersed"; -1: they do not */
    int spread_said;
    double score; /* of the step at hand; NaN: it has none */
    double loss_sum;
    int64_t losses; /* logged since the last checkpoint */
} job;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Evaluations and checkpoints do not count as time of steps. */
static void mark(job *j) {
    j->marked = now();
    j->marked_step = zonal__trainer_steps_done(j->trainer);
}

static zonal_status check_collapse(job *j, const zonal__meter *meter) {
    const zonal__training *t = j->training;
    const zonal__train_settings *s = &t->settings;
    const zonal__collapse_limits limits = {s->collapse_cosine, s->collapse_rank};
    const char *what = zonal__meter_collapsed(meter, &limits);
    int64_t step = zonal__trainer_steps_done(j->trainer);
    char text[400], remedy[160] = "lower --lr, or raise --lambda or --gain";
    /* A network begins near collapse; the warm-up is there to leave it. */
    if (!what || step <= t->trainer.schedule.warmup) {
        j->collapsed = 0;
        return ZONAL_OK;
    }
    if (t->weight.gain < t->weight.threshold)
        snprintf(remedy, sizeof remedy, "raise --gain above the threshold f* = %.4g, it is %.4g",
                 t->weight.threshold, t->weight.gain);
    snprintf(text, sizeof text,
             "step %" PRId64 ": the projections have collapsed, says the %s (mean cosine %.3f, "
             "effective rank %.1f of %.1f); %s",
             step, what, meter->mean_cosine, meter->effective_rank, meter->expected_rank, remedy);
    if (s->on_collapse == ZONAL__ON_COLLAPSE_STOP) return ZONAL_FAIL(ZONAL_NUMERIC, "%s", text);
    if (!j->collapsed) zonal__train_warn(&j->print, "%s", text);
    j->collapsed = 1;
    return ZONAL_OK;
}

/* Every run is dispersed and unaligned for a while after its warm-up; a tenth of it is long. */
static void check_plateau(job *j, const zonal__meter *meter) {
    const zonal__training *t = j->training;
    int64_t step = zonal__trainer_steps_done(j->trainer), total = t->trainer.schedule.total;
    char remedy[120] = "lower --gain";
    if (step <= t->trainer.schedule.warmup || !zonal__meter_dispersed(meter)) {
        j->spread_since = -1;
        return;
    }
    if (j->spread_since < 0) j->spread_since = step;
    if (j->spread_said || 10 * (step - j->spread_since) < total) return;
    j->spread_said = 1;
    if (t->weight.selectivity > 0)
        snprintf(remedy, sizeof remedy, "a larger --selectivity (it is %.3g) leaves it sooner",
                 t->weight.selectivity);
    zonal__train_warn(&j->print,
                      "step %" PRId64 ": dispersed, not aligned, for %" PRId64
                      " steps: views of an image share %.1f %% of the variance; %s",
                      step, step - j->spread_since, 100 * meter->rho, remedy);
}

static zonal_status log_step(job *j) {
    const zonal__training *t = j->training;
    int64_t step = zonal__trainer_steps_done(j->trainer);
    zonal__step_line line = {.step = step, .epoch = (double)step / (double)t->steps_per_epoch};
    zonal__meter meter;
    ZONAL_TRY(zonal__trainer_metrics(j->trainer, &line.metrics));
    line.seconds = now() - j->began;
    line.images_per_second =
        (double)((step - j->marked_step) * t->settings.batch) / (now() - j->marked);
    j->loss_sum += line.metrics.loss.total;
    j->losses++;
    ZONAL_TRY(zonal__trainer_projections(j->trainer, j->projections));
    ZONAL_TRY(zonal__meter_read(t->settings.batch,
                                zonal__trainer_model(j->trainer)->graph.projection_dim,
                                j->projections, (int)t->settings.threads, &meter));
    if (t->trainer.objective.loss.discrepancy !=
        ZONAL_DISCREPANCY_SIGREG) /* its rows have any length */
        zonal__meter_read_alignment(line.metrics.loss.invariance, t->weight.k, &meter);
    ZONAL_TRY(zonal__run_folder_add_step(&j->folder, &line));
    ZONAL_TRY(zonal__run_folder_add_meter(&j->folder, step, &meter));
    zonal__train_print_step(&j->print, t, &line, &meter);
    mark(j);
    check_plateau(j, &meter);
    return check_collapse(j, &meter);
}

static zonal_status evaluate(job *j) {
    int64_t step = zonal__trainer_steps_done(j->trainer);
    double start = now();
    zonal__online_result result;
    ZONAL_TRY(zonal__online_run(&j->training->online, zonal__trainer_model(j->trainer), &result));
    ZONAL_TRY(zonal__run_folder_add_eval(&j->folder, step, &result));
    zonal__train_print_eval(&j->print, step, &result);
    j->score = zonal__online_score(&result);
    zonal__estimate_evaluated(&j->estimate, now() - start);
    mark(j);
    return ZONAL_OK;
}

/* Without an evaluation the lowest mean of the logged losses is the best. */
static zonal_status save(job *j) {
    double start;
    zonal__metrics metrics;
    ZONAL_TRY(zonal__trainer_metrics(j->trainer, &metrics)); /* what is not finite is not kept */
    start = now();
    if (j->training->online.protocol == ZONAL__ONLINE_NONE)
        j->score = -j->loss_sum / (double)j->losses;
    ZONAL_TRY(zonal__run_folder_save(&j->folder, j->trainer, j->score));
    j->loss_sum = 0;
    j->losses = 0;
    zonal__estimate_saved(&j->estimate, now() - start);
    mark(j);
    return ZONAL_OK;
}

/* Whether to stop is asked once, after all that takes long and before the checkpoint: an end never
 * goes without one. */
static zonal_status after_step(job *j, int *stopping) {
    const zonal__train_settings *s = &j->training->settings;
    int64_t step = zonal__trainer_steps_done(j->trainer);
    int last = step == j->training->trainer.schedule.total;
    j->score = NAN;
    if (step % s->log_every == 0 || last) ZONAL_TRY(log_step(j));
    if (j->training->online.protocol != ZONAL__ONLINE_NONE && (step % s->eval_every == 0 || last))
        ZONAL_TRY(evaluate(j));
    *stopping = stop_asked != 0;
    if (step % s->checkpoint_every == 0 || last || *stopping || j->score > j->folder.best)
        return save(j);
    return ZONAL_OK;
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

static void begin_estimate(job *j) {
    const zonal__training *t = j->training;
    int evaluated = t->online.protocol != ZONAL__ONLINE_NONE;
    j->estimate.first = zonal__trainer_steps_done(j->trainer);
    j->estimate.total = t->trainer.schedule.total;
    j->estimate.eval_every = evaluated ? t->settings.eval_every : 0;
    j->estimate.checkpoint_every = t->settings.checkpoint_every;
    j->estimate.eval_work = eval_work(t);
    zonal__estimate_begin(&j->estimate, now());
}

static void tell_estimate(job *j, int64_t step) {
    zonal__estimated estimated;
    if (zonal__estimate_step(&j->estimate, step, now(), &estimated))
        zonal__train_print_estimate(&j->print, j->training, &estimated,
                                    j->estimate.total - j->estimate.first);
}

static zonal_status make_steps(job *j) {
    int64_t total = j->training->trainer.schedule.total, step;
    int stopping = 0;
    j->began = now() - j->folder.seconds;
    mark(j);
    begin_estimate(j);
    zonal__train_print_begin_steps(&j->print, total, j->folder.seconds);
    zonal__progress_update(&j->print.bar, zonal__trainer_steps_done(j->trainer));
    while ((step = zonal__trainer_steps_done(j->trainer)) < total && !stopping) {
        ZONAL_TRY(zonal__trainer_step(j->trainer));
        tell_estimate(j, step + 1);
        ZONAL_TRY(after_step(j, &stopping));
        zonal__progress_update(&j->print.bar, step + 1);
    }
    if (step < total)
        zonal__train_say(&j->print,
                         "stopped after step %" PRId64 " of %" PRId64 "; to go on: zonal train "
                         "--resume %s",
                         step, total, j->folder.path);
    else
        zonal__train_say(&j->print, "done: %" PRId64 " step%s; next: zonal eval %s", total,
                         zonal__text_plural(total), j->folder.path);
    return ZONAL_OK;
}

/* ---- beginning and going on ------------------------------------------------------------------ */

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

static zonal_status make_folder(job *j) {
    zonal__training *t = j->training;
    const zonal__train_settings *s = &t->settings;
    char *config, name[64];
    zonal_status status;
    ZONAL_TRY(zonal__config_dump(&t->options, &config));
    name_run(s, name);
    status = s->out ? zonal__run_folder_create(s->out, config, s->keep, &j->folder)
                    : zonal__run_folder_create_next("runs", name, config, s->keep, &j->folder);
    zonal__free(config);
    return status;
}

/* What it will be trained on goes into the folder before the first checkpoint. */
static zonal_status make_run(job *j) {
    zonal__data_record *record;
    zonal_status status;
    ZONAL_TRY(zonal__training_record(j->training, &record));
    status = make_folder(j);
    if (status == ZONAL_OK) status = zonal__run_folder_write_data(&j->folder, record);
    zonal__data_record_destroy(record);
    return status;
}

/* CUDA: the algorithms that the run was begun with, so that going on computes the same bits. */
static zonal_status use_choices(job *j, zonal_status (*read_or_write)(const char *path)) {
    char path[ZONAL__RUN_FOLDER_PATH];
    if (j->training->trainer.device != ZONAL_DEVICE_CUDA) return ZONAL_OK;
    ZONAL_TRY(zonal__run_folder_file(&j->folder, "choices.txt", path));
    return read_or_write(path);
}

/* Algorithms that a run is to have in common with another one. */
static zonal_status take_choices(const job *j) {
    const char *file = j->training->settings.choices;
    if (!file) return ZONAL_OK;
    if (j->training->trainer.device != ZONAL_DEVICE_CUDA)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--choices %s are CUDA's, and this run is on the "
                          "processor; leave it out, or use --device cuda",
                          file);
    if (access(file, R_OK) != 0)
        return ZONAL_FAIL(ZONAL_IO, "cannot read the choices %s: %s", file, strerror(errno));
    return zonal__device_choices_read(file);
}

/* Curves are a copy of what metrics.jsonl has: no reason to end a run. */
static void open_events(job *j) {
    if (!j->training->settings.tensorboard) return;
    if (zonal__event_log_open(j->folder.path, zonal__trainer_steps_done(j->trainer),
                              &j->folder.events) != ZONAL_OK)
        zonal__train_warn(&j->print,
                          "no curves for TensorBoard: %s; the run goes on without them, and "
                          "--no-tensorboard leaves them out",
                          zonal_last_error()->message);
}

/* The checkpoint of step 0 makes a run resumable from the first instant, and shows a place that
 * cannot hold one before hours have gone into the run. */
static zonal_status begin(job *j) {
    zonal__training *t = j->training;
    int resumed = t->settings.resume != NULL;
    if (resumed)
        ZONAL_TRY(zonal__resume_load(&j->resume, j->trainer));
    else
        ZONAL_TRY(make_run(j));
    ZONAL_TRY(use_choices(j, zonal__device_choices_write));
    zonal__train_print_open_log(&j->print, &j->folder);
    open_events(j);
    zonal__train_print_summary(&j->print, t, j->trainer, j->folder.path);
    if (j->init[0]) zonal__train_say(&j->print, "%s", j->init);
    if (resumed) {
        zonal__train_say(&j->print, "resumed   after step %" PRId64,
                         zonal__trainer_steps_done(j->trainer));
        zonal__resume_tell(&j->resume);
    } else {
        double start = now();
        ZONAL_TRY(zonal__run_folder_save(&j->folder, j->trainer, NAN));
        j->estimate.save_seconds = now() - start;
    }
    return ZONAL_OK;
}

static zonal_status train(job *j) {
    zonal__training *t = j->training;
    int64_t size = (t->settings.views + t->settings.local_views) * t->settings.batch;
    if (t->settings.out && !t->settings.resume) ZONAL_TRY(zonal__run_folder_check(t->settings.out));
    if (t->settings.resume) {
        ZONAL_TRY(zonal__run_folder_open(t->settings.resume, t->settings.keep, &j->folder));
        ZONAL_TRY(zonal__resume_check(&j->resume));
    }
    ZONAL_TRY(zonal__training_open(t));
    ZONAL_TRY(zonal__training_open_online(t));
    if (t->settings.resume) ZONAL_TRY(use_choices(j, zonal__device_choices_read));
    ZONAL_TRY(take_choices(j));
    ZONAL_TRY(zonal__config_values(&t->options, zonal__train_option_may_change, &j->configuration));
    t->trainer.configuration = j->configuration;
    ZONAL_TRY(zonal__trainer_create(&t->trainer, &j->trainer));
    if (!t->settings.resume) ZONAL_TRY(zonal__train_init(t, j->trainer, j->init));
    size *= zonal__trainer_model(j->trainer)->graph.projection_dim;
    ZONAL_TRY(ZONAL_NEW(&j->projections, size, "the projections for the meter"));
    catch_signals();
    zonal_status status = begin(j);
    if (status == ZONAL_OK) status = make_steps(j);
    release_signals();
    if (status == ZONAL_NUMERIC) {
        zonal_error inner = *zonal_last_error(); /* a copy: the sentence is about to change */
        return ZONAL_FAIL(status, "%.400s; the last checkpoint of %.400s is intact", inner.message,
                          j->folder.path);
    }
    return status;
}

static void clean_up(job *j) {
    zonal__train_print_end(&j->print);
    zonal__run_folder_close(&j->folder);
    zonal__trainer_destroy(j->trainer);
    zonal__free(j->projections);
    zonal__free(j->configuration);
    zonal__resume_close(&j->resume);
}

/* ---- the command line ------------------------------------------------------------------------ */

static int dump(const zonal__training *t) {
    char *text;
    if (zonal__config_dump(&t->options, &text) != ZONAL_OK) return zonal__cli_failed();
    fputs(text, stdout);
    zonal__free(text);
    return ZONAL__EXIT_OK;
}

static int parse(zonal__training *t, int argc, char **argv, char path[ZONAL__TRAINING_PATH]) {
    const char *resume = zonal__options_peek(argc, argv, "resume");
    const char *file = zonal__options_peek(argc, argv, "config");
    int status;
    if (resume && file)
        return zonal__cli_misused("a resumed run has its own configuration; leave out --config");
    if (resume) {
        snprintf(path, ZONAL__TRAINING_PATH, "%s/config.toml", resume);
        file = path;
    }
    if (resume && access(path, R_OK) != 0) {
        (void)ZONAL_FAIL(ZONAL_IO,
                         "cannot read %s: %s; --resume takes a folder that zonal train made", path,
                         strerror(errno));
        return zonal__cli_failed();
    }
    status = zonal__cli_parse_file(&usage, zonal__train_table, &t->settings, argc, argv, file,
                                   &t->options, &t->config);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (resume) return zonal__resume_check_flags(t);
    if (t->options.argument_count > 0 &&
        zonal__options_set(&t->options, "data", "DIR, as data,", t->options.arguments[0],
                           ZONAL__SOURCE_FLAG) != ZONAL_OK)
        return zonal__cli_failed();
    return ZONAL__EXIT_CONTINUE;
}

int zonal__cli_train(int argc, char **argv) {
    char path[ZONAL__TRAINING_PATH];
    zonal__training training = {0};
    job j = {.training = &training, .folder = {.lock = -1}, .spread_since = -1};
    int status = parse(&training, argc, argv, path);
    if (status == ZONAL__EXIT_CONTINUE && training.settings.dump_config) status = dump(&training);
    if (status == ZONAL__EXIT_CONTINUE) {
        zonal__train_print_begin(&j.print, training.settings.quiet);
        j.resume = (zonal__resume){.training = &training, .folder = &j.folder, .print = &j.print};
        status = ZONAL__EXIT_OK;
        if (train(&j) != ZONAL_OK) {
            zonal__train_print_failure(&j.print);
            status = zonal__cli_failed();
        }
        clean_up(&j);
    }
    zonal__training_close(&training);
    return status;
}
