/*
 * zonal train: pretrains a network on images, in a run folder that can be resumed.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/cli.h"
#include "cli/common/job.h"
#include "cli/common/stop.h"
#include "cli/train/print.h"
#include "core/memory.h"
#include "core/text.h"
#include "train/resume.h"

static const zonal__cli_usage usage = {
    .synopsis = "zonal train [DIR] [--config RECIPE] [--resume RUN] [options]",
    .description =
        "Pretrains a ResNet on images without labels: the views of an image are pulled\ntogether, "
        "and the loss of your choice keeps the embeddings uniform on the\nsphere. The run folder "
        "has everything: configuration, metrics, log and\ncheckpoints. Ctrl-C ends a run after the "
        "current step, with a checkpoint.\n--resume continues it, also after a kill, and ends with "
        "the same weights.\n\n"
        "examples:\n"
        "  zonal train photos\n"
        "  zonal train --config recipes/textures.toml --set lr=5e-4\n"
        "  zonal train --resume runs/photos-1\n",
    .argument = "DIR",
    .most = 1,
    .layout = &zonal__train_layout};

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t stop_asked, someone_watches;
/* Of mpirun's, and Slurm's before a time limit, SIGUSR1 is the one that leaves time for an end. */
static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
enum { STOP_SIGNALS = sizeof stop_signals / sizeof stop_signals[0] };
static struct sigaction usual[STOP_SIGNALS]; /* what the program does elsewhere */
static zonal__stop_request requests[STOP_SIGNALS];

/* A step may take a while, so whoever presses Ctrl-C is told that it was seen. */
static void acknowledge(void) {
    static const char words[] = "ending after this step; press Ctrl-C again to end at once\n";
    int error = errno;
    zonal__progress_interrupted();
    if (write(STDERR_FILENO, words, sizeof words - 1) < 0) someone_watches = 0;
    errno = error;
}

/* The first signal asks for an end, the second has its usual effect: an end at once. That signal is
 * blocked in here, so what is raised comes when this returns. */
static void ask_to_stop(int signal_number, siginfo_t *info, void *context) {
    int which = 0;
    (void)context;
    while (stop_signals[which] != signal_number) which++;
    const zonal__stop_meaning meaning = zonal__stop_asked(&requests[which], info);
    stop_asked = 1;
    if (meaning == ZONAL__STOP_FIRST && signal_number == SIGINT && someone_watches) acknowledge();
    if (meaning != ZONAL__STOP_AT_ONCE) return;
    sigaction(signal_number, &usual[which], NULL);
    raise(signal_number);
}

static void catch_signals(void) {
    struct sigaction action = {.sa_sigaction = ask_to_stop, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    someone_watches = isatty(STDERR_FILENO);
    for (int i = 0; i < STOP_SIGNALS; i++)
        if (sigaction(stop_signals[i], NULL, &usual[i]) == 0 && usual[i].sa_handler != SIG_IGN)
            sigaction(stop_signals[i], &action, NULL);
}

static void release_signals(void) {
    for (int i = 0; i < STOP_SIGNALS; i++) sigaction(stop_signals[i], &usual[i], NULL);
}

/* ---- what a run tells ------------------------------------------------------------------------ */

typedef struct job {
    zonal__training training;
    zonal__train_print print;
    const zonal__run_folder *folder; /* from "opened" on, until the run ends */
    int catching;                    /* signals */
    int stepping;                    /* the bar has begun */
} job;

/* Before this a signal ends the program at once: nothing has been written that could be kept. */
static void on_ready(void *context, const zonal__training *training) {
    job *j = context;
    (void)training;
    catch_signals();
    j->catching = 1;
}

static void on_opened(void *context, const zonal__run_folder *folder) {
    job *j = context;
    j->folder = folder;
    zonal__train_print_open_log(&j->print, folder);
}

static void on_begun(void *context, const zonal__training_start *start) {
    job *j = context;
    zonal__train_print_start(&j->print, &j->training, start, j->folder->path);
}

static void on_progressed(void *context, int64_t step) {
    job *j = context;
    if (!j->stepping)
        zonal__train_print_begin_steps(&j->print, j->training.trainer.schedule.total,
                                       j->folder->seconds);
    j->stepping = 1;
    zonal__progress_update(&j->print.bar, step);
}

static void on_estimated(void *context, const zonal__estimated *estimated, int64_t steps_left) {
    job *j = context;
    zonal__train_print_estimate(&j->print, &j->training, estimated, steps_left);
}

static void on_logged(void *context, const zonal__step_line *line, const zonal__monitor *monitor) {
    job *j = context;
    zonal__train_print_step(&j->print, &j->training, line, monitor);
}

static void on_evaluated(void *context, int64_t step, const zonal__online_result *result) {
    job *j = context;
    zonal__train_print_eval(&j->print, step, result);
}

static void on_warned(void *context, const char *sentence) {
    job *j = context;
    zonal__train_warn(&j->print, "%s", sentence);
}

static int is_stop_asked(void *context) {
    (void)context;
    return stop_asked != 0;
}

static void say_end(job *j, const zonal__training_result *result) {
    if (result->step < result->total)
        zonal__train_say(&j->print,
                         "stopped after step %" PRId64 " of %" PRId64 "; to continue: zonal train "
                         "--resume %s",
                         result->step, result->total, zonal__cli_quoted(result->folder).text);
    else
        zonal__train_say(&j->print, "done: %" PRId64 " step%s; next: zonal eval %s", result->total,
                         zonal__text_plural(result->total), zonal__cli_quoted(result->folder).text);
}

/* Of several ranks one speaks; all of them may be asked to stop. */
static zonal_status run(job *j, zonal__training_result *result) {
    const zonal__training_events all = {.context = j,
                                        .ready = on_ready,
                                        .opened = on_opened,
                                        .begun = on_begun,
                                        .progressed = on_progressed,
                                        .estimated = on_estimated,
                                        .logged = on_logged,
                                        .evaluated = on_evaluated,
                                        .warned = on_warned,
                                        .stop = is_stop_asked};
    const zonal__training_events few = {.context = j, .ready = on_ready, .stop = is_stop_asked};
    int leads = zonal__training_leads(&j->training);
    return zonal__job_all(j->training.job,
                          zonal__training_run(&j->training, leads ? &all : &few, result));
}

static int train(job *j) {
    zonal__job *ranks;
    zonal__training_result result;
    zonal_status status;
    if (zonal__job_open(&j->training.settings.job, &ranks) != ZONAL_OK) return zonal__cli_failed();
    j->training.job = ranks;
    zonal__train_print_begin(&j->print, j->training.settings.quiet);
    status = run(j, &result);
    if (status != ZONAL_OK)
        zonal__train_print_failure(&j->print);
    else if (zonal__training_leads(&j->training))
        say_end(j, &result);
    if (j->catching) release_signals();
    zonal__train_print_end(&j->print);
    return zonal__cli_end_job(ranks, status);
}

/* ---- the command line ------------------------------------------------------------------------ */

static int dump(const zonal__training *t) {
    char *text;
    if (zonal__config_dump(&t->options, &text) != ZONAL_OK) return zonal__cli_failed();
    fputs(text, stdout);
    zonal__free(text);
    return ZONAL__EXIT_OK;
}

/* What a launcher has started again goes on with the run that it has begun. */
static const char *find_retried(int argc, char **argv) {
    const char *out = zonal__options_peek(argc, argv, "out");
    const char *retries = zonal__options_peek(argc, argv, "retries");
    char path[ZONAL__TRAINING_PATH];
    if (!out || !retries || strcmp(retries, "0") == 0) return NULL;
    return zonal__resume_find_config(out, path) == ZONAL_OK ? out : NULL;
}

/* A resumed run has its configuration and its images. */
static int check_resumed(zonal__training *t) {
    if (t->options.argument_count > 0)
        return zonal__cli_misused("%s has its images already, leave out %s; if they have been "
                                  "moved there, give --data %s",
                                  t->settings.resume, t->options.arguments[0],
                                  t->options.arguments[0]);
    return zonal__resume_check_settings(t) == ZONAL_OK ? ZONAL__EXIT_CONTINUE : zonal__cli_failed();
}

static int parse(zonal__training *t, int argc, char **argv, char path[ZONAL__TRAINING_PATH]) {
    const char *resume = zonal__options_peek(argc, argv, "resume");
    const char *file = zonal__options_peek(argc, argv, "config");
    const char *retried = resume ? NULL : find_retried(argc, argv);
    int status;
    if (resume && file)
        return zonal__cli_misused("a resumed run has its own configuration; leave out --config");
    if (resume && zonal__resume_find_config(resume, path) != ZONAL_OK) return zonal__cli_failed();
    if (retried) (void)zonal__resume_find_config(retried, path); /* it is there */
    status = zonal__cli_parse_file(&usage, zonal__train_table, &t->settings, argc, argv,
                                   resume || retried ? path : file, &t->options, &t->config);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (resume) return check_resumed(t);
    if (retried && zonal__options_set(&t->options, "resume", "--resume", retried,
                                      ZONAL__SOURCE_FLAG) != ZONAL_OK)
        return zonal__cli_failed();
    if (t->options.argument_count > 0 &&
        zonal__options_set(&t->options, "data", "DIR, as data,", t->options.arguments[0],
                           ZONAL__SOURCE_FLAG) != ZONAL_OK)
        return zonal__cli_failed();
    return ZONAL__EXIT_CONTINUE;
}

int zonal__cli_train(int argc, char **argv) {
    char path[ZONAL__TRAINING_PATH];
    job j = {0};
    int status = parse(&j.training, argc, argv, path);
    if (status == ZONAL__EXIT_CONTINUE)
        status = j.training.settings.dump_config ? dump(&j.training) : train(&j);
    zonal__training_close(&j.training);
    return status;
}
