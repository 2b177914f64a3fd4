#include "cli/report/matrix_run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/common/cli.h"
#include "cli/common/progress.h"
#include "cli/common/show_log.h"
#include "cli/common/stop.h"
#include "cli/eval/model_card.h"
#include "cli/report/child.h"
#include "cli/report/matrix_folder.h"
#include "core/memory.h"
#include "reproduce/check.h"
#include "reproduce/outcome.h"
#include "zonal/device.h"
#include "zonal/zonal.h"

/* Seconds that a child has to save a checkpoint before it is killed. */
static const double GRACE = 60;

typedef enum state { WAITING, PACKING, TRAINING, EVALUATING, DONE, FAILED, CUT } state;

/* A cell and what becomes of it. */
typedef struct job {
    const zonal__cell *cell;
    state state;
    pid_t child;
    int protocol;        /* EVALUATING: which of the experiment's */
    int begun;           /* there is a run folder with a checkpoint */
    double before;       /* seconds that earlier sittings have trained for */
    double spent, since; /* seconds of the stages that have ended; when this one began */
    double shared;       /* seconds of this sitting, each times the cells that ran in it */
    int64_t logged;      /* bytes of metrics when it was started */
} job;

typedef struct runner {
    const zonal__matrix *matrix;
    const zonal__matrix_run_options *options;
    zonal__records *records;
    job *job; /* [matrix->count] */
    int lock;
    int64_t running;
    int warm[ZONAL__MATRIX_SETS]; /* its network's algorithms have been measured */
    double began, stopped_at;     /* stopped_at: when the children were asked to stop; NaN */
    zonal__matrix_run_result *result;
} runner;

static volatile sig_atomic_t stop_asked, stop_at_once, pause_asked;
static zonal__stop_request request;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const zonal__matrix_set *set_of(const runner *r, const job *j) {
    return &r->matrix->set[j->cell->set];
}

static int is_running(const job *j) {
    return j->state == PACKING || j->state == TRAINING || j->state == EVALUATING;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Seconds that the rest of a cell takes while so many run at once; NaN: not known. */
static double seconds_left(const runner *r, const job *j, int64_t at_once) {
    double whole = zonal__matrix_seconds(r->matrix, j->cell, r->records, (double)at_once);
    return isnan(whole) ? NAN : fmax(whole - j->before, 0);
}

/* A cell that no sitting of this length could finish is begun all the same, and cut. */
static int fits(const runner *r, const job *j) {
    const double limit = 60 * r->options->minutes;
    const double left = limit - (now() - r->began);
    if (limit == 0) return 1;
    if (left <= 0) return 0;
    if (seconds_left(r, j, 1) > limit) return 1;
    return !(seconds_left(r, j, r->running + 1) > left);
}

static int is_late(const runner *r) {
    return r->options->minutes > 0 && now() - r->began >= 60 * r->options->minutes;
}

/* ---- command lines --------------------------------------------------------------------------- */

static void add_machine(const runner *r, const job *j, zonal__arguments *a) {
    const zonal__matrix_run_options *o = r->options;
    if (o->device && !zonal__assigned(&j->cell->options, "device"))
        zonal__arguments_add(a, "--device=%s", o->device);
    if (o->threads > 0 && !zonal__assigned(&j->cell->options, "threads"))
        zonal__arguments_add(a, "--threads=%" PRId64, o->threads);
}

/* Unless the user has set it. */
static void add_usual(const job *j, zonal__arguments *a, const char *key, const char *value) {
    if (!zonal__assigned(&j->cell->options, key))
        zonal__arguments_add(a, "--set=%s=%s", key, value);
}

static void add_data(const runner *r, const job *j, zonal__arguments *a) {
    char pack[ZONAL__FOLDER_PATH];
    if (!r->matrix->experiment->textures) {
        zonal__arguments_add(a, "--data=%s", set_of(r, j)->path);
        return;
    }
    zonal__folder_pack(r->options->folder, set_of(r, j)->set->name, &j->cell->options, pack);
    zonal__arguments_add(a, "--data=%s", pack);
}

/* A run that goes on takes it from here, as the images: they may have moved since it was begun. */
static void add_class_list(const job *j, zonal__arguments *a) {
    const char *file = zonal__assigned(&j->cell->options, "class-list");
    if (file) zonal__arguments_add(a, "--class-list=%s", file);
}

static void train_line(const runner *r, const job *j, zonal__arguments *a) {
    char path[ZONAL__FOLDER_PATH];
    zonal__arguments_add(a, "train");
    zonal__arguments_add(a, "--quiet");
    zonal__folder_path(r->options->folder, "runs", j->cell->name, "", path);
    add_data(r, j, a);
    if (j->begun) {
        zonal__arguments_add(a, "--resume=%s", path);
        add_class_list(j, a);
        return;
    }
    zonal__arguments_add(a, "--out=%s", path);
    zonal__folder_path(r->options->folder, "recipes", set_of(r, j)->set->recipe, ".toml", path);
    zonal__arguments_add(a, "--config=%s", path);
    for (int i = 0; i < j->cell->options.count; i++)
        zonal__arguments_add(a, "--set=%s=%s", j->cell->options.at[i].key,
                             j->cell->options.at[i].value);
    add_usual(j, a, "keep", "1");
    add_usual(j, a, "checkpoint-minutes", "0.5");
    add_usual(j, a, "tensorboard", "no");
    add_machine(r, j, a);
}

static void eval_line(const runner *r, const job *j, zonal__arguments *a) {
    char path[ZONAL__FOLDER_PATH];
    zonal__folder_path(r->options->folder, "runs", j->cell->name, "", path);
    zonal__arguments_add(a, "eval");
    zonal__arguments_add(a, "--quiet");
    zonal__arguments_add(a, "--protocol=%s", r->matrix->experiment->protocols[j->protocol]);
    zonal__arguments_add(a, "--split=%s", set_of(r, j)->set->split);
    if (!r->matrix->experiment->textures) zonal__arguments_add(a, "--features=backbone");
    add_machine(r, j, a);
    zonal__arguments_add(a, "%s", path);
}

static void pack_line(const runner *r, const job *j, zonal__arguments *a) {
    static const char *const keys[][2] = {
        {"texture-size", "size"}, {"texture-count", "count"}, {"data-seed", "seed"}};
    char pack[ZONAL__FOLDER_PATH];
    zonal__folder_pack(r->options->folder, set_of(r, j)->set->name, &j->cell->options, pack);
    zonal__arguments_add(a, "data");
    zonal__arguments_add(a, "pack");
    zonal__arguments_add(a, "textures:%s", set_of(r, j)->set->name);
    zonal__arguments_add(a, "--quiet");
    zonal__arguments_add(a, "--out=%s", pack);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (zonal__assigned(&j->cell->options, keys[i][0]))
            zonal__arguments_add(a, "--%s=%s", keys[i][1],
                                 zonal__assigned(&j->cell->options, keys[i][0]));
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void say_failed(runner *r, job *j, const char *why) {
    char title[ZONAL__CELL_NAME];
    zonal__cell_title(r->matrix, j->cell, title, sizeof title);
    zonal__progress_interrupted();
    zonal__cli_say("%s failed: %s", title, why);
    j->state = FAILED;
    r->result->failed++;
}

static zonal_status start(runner *r, job *j, state stage) {
    zonal__arguments a = {0};
    char log[ZONAL__FOLDER_PATH];
    if (stage == PACKING) pack_line(r, j, &a);
    if (stage == TRAINING) train_line(r, j, &a);
    if (stage == EVALUATING) eval_line(r, j, &a);
    zonal__folder_path(r->options->folder, "logs", j->cell->name, ".txt", log);
    ZONAL_TRY(zonal__child_start(&a, log, &j->child));
    j->state = stage;
    j->since = now();
    r->running++;
    return ZONAL_OK;
}

/* The stage that a cell begins with. */
static zonal_status start_cell(runner *r, job *j) {
    char pack[ZONAL__FOLDER_PATH];
    j->begun = zonal__folder_begun(r->options->folder, j->cell->name, &j->logged, &j->before);
    if (!j->begun) ZONAL_TRY(zonal__folder_remove_run(r->options->folder, j->cell->name));
    zonal__folder_pack(r->options->folder, set_of(r, j)->set->name, &j->cell->options, pack);
    if (r->matrix->experiment->textures && access(pack, R_OK) != 0) return start(r, j, PACKING);
    return start(r, j, TRAINING);
}

static void device_model(const runner *r, const job *j, char model[128]) {
    const char *name = zonal__assigned(&j->cell->options, "device");
    zonal_device_info info = ZONAL_DEVICE_INFO_INIT;
    int count = zonal_device_count(), best = count > 1;
    if (!name) name = r->options->device;
    for (int i = 0; name && i < count; i++)
        if (zonal_device_info_get(i, &info) == ZONAL_OK &&
            strncmp(info.name, name, strlen(name)) == 0) {
            best = i;
            break;
        }
    model[0] = '\0';
    if (zonal_device_info_get(best, &info) == ZONAL_OK)
        snprintf(model, 128, "%s", info.model[0] ? info.model : info.name);
}

static void today(char out[32]) {
    time_t seconds = time(NULL);
    struct tm parts;
    out[0] = '\0';
    if (gmtime_r(&seconds, &parts)) strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static void say_done(const runner *r, const job *j) {
    const zonal__record *record = &r->records->at[r->records->count - 1];
    const zonal__column *column = &r->matrix->experiment->column[0];
    char title[ZONAL__CELL_NAME];
    if (r->options->quiet) return;
    zonal__cell_title(r->matrix, j->cell, title, sizeof title);
    fprintf(stderr, "[%" PRId64 "/%" PRId64 "] %s: %s %.1f, %.0f s\n", r->result->done,
            r->matrix->count, title, column->title,
            100 * zonal__record_metric(record, column->metric), j->before + j->spent);
}

/* Cells that ran beside a cell, with it, on the average; NaN where earlier sittings count. Seconds
 * are counted by rounds of the loop, so that of a cell of a moment is not exact. */
static double shared_by(const runner *r, const job *j) {
    if (j->before > 0) return NAN;
    return fmin(fmax(1, j->shared / j->spent), (double)r->options->parallel);
}

/* The record is on the disk before anything of the run is removed. */
static zonal_status finish(runner *r, job *j) {
    char run[ZONAL__FOLDER_PATH], model[128], date[32], *text = NULL;
    zonal_status status;
    zonal__folder_path(r->options->folder, "runs", j->cell->name, "", run);
    device_model(r, j, model);
    today(date);
    const zonal__outcome outcome = {.matrix = r->matrix,
                                    .cell = j->cell,
                                    .run = run,
                                    .seconds = j->before + j->spent,
                                    .at_once = shared_by(r, j),
                                    .device = model,
                                    .commit = zonal__commit,
                                    .version = zonal_version(),
                                    .date = date};
    status = zonal__outcome_record(&outcome, &text);
    if (status == ZONAL_FORMAT || status == ZONAL_IO) {
        say_failed(r, j, zonal_last_error()->message);
        return ZONAL_OK;
    }
    if (status == ZONAL_OK) status = zonal__records_append(r->options->records, text);
    if (status == ZONAL_OK)
        status = zonal__records_add(r->records, text, strlen(text), r->options->records);
    zonal__free(text);
    ZONAL_TRY(status);
    j->state = DONE;
    r->result->done++;
    say_done(r, j);
    if (!r->options->keep_checkpoints)
        zonal__folder_remove_checkpoints(r->options->folder, j->cell->name);
    return ZONAL_OK;
}

static zonal_status next_stage(runner *r, job *j) {
    const zonal__experiment *e = r->matrix->experiment;
    if (j->state == PACKING) return start(r, j, TRAINING);
    j->protocol = j->state == TRAINING ? 0 : j->protocol + 1;
    if (j->protocol < ZONAL__EXPERIMENT_PROTOCOLS && e->protocols[j->protocol])
        return start(r, j, EVALUATING);
    return finish(r, j);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static zonal_status reap(runner *r, job *j) {
    char why[512];
    int good;
    if (!is_running(j) || !zonal__child_ended(j->child, &good)) return ZONAL_OK;
    r->running--;
    j->spent += now() - j->since;
    if (j->state != PACKING) r->warm[j->cell->set] = 1;
    if (!isnan(r->stopped_at)) {
        j->state = CUT;
        return ZONAL_OK;
    }
    if (good) return next_stage(r, j);
    zonal__folder_last_line(r->options->folder, j->cell->name, why, sizeof why);
    say_failed(r, j, why);
    return ZONAL_OK;
}

/* Algorithms are measured when a network is made. Two measurements at once would disturb each
 * other and might choose differently, so the first run of a recipe begins alone. */
static int is_warm(runner *r, const job *j) {
    const char *recipe = set_of(r, j)->set->recipe;
    for (int64_t i = 0; i < r->matrix->count; i++) {
        job *other = &r->job[i];
        if (strcmp(set_of(r, other)->set->recipe, recipe) != 0) continue;
        if (other->state == TRAINING && !r->warm[other->cell->set])
            r->warm[other->cell->set] =
                zonal__folder_logged(r->options->folder, other->cell->name) > other->logged;
        if (r->warm[other->cell->set]) return 1;
    }
    return 0;
}

static int is_pack_being_made(const runner *r, const job *j) {
    for (int64_t i = 0; i < r->matrix->count; i++)
        if (r->job[i].state == PACKING && r->job[i].cell->set == j->cell->set) return 1;
    return 0;
}

/* The next cell to start: those that were cut off before the others. NULL: none now. */
static job *pick(runner *r) {
    for (int begun = 1; begun >= 0; begun--)
        for (int64_t i = 0; i < r->matrix->count; i++) {
            job *j = &r->job[i];
            if (j->state == WAITING && j->begun == begun && fits(r, j) &&
                !is_pack_being_made(r, j) && (r->running == 0 || is_warm(r, j)))
                return j;
        }
    return NULL;
}

static zonal_status start_some(runner *r) {
    job *j;
    while (isnan(r->stopped_at) && r->running < r->options->parallel && (j = pick(r)))
        ZONAL_TRY(start_cell(r, j));
    return ZONAL_OK;
}

static void tell_children(const runner *r, int signal_number) {
    for (int64_t i = 0; i < r->matrix->count; i++)
        if (is_running(&r->job[i])) kill(r->job[i].child, signal_number);
}

static void stop_if_asked(runner *r) {
    if (isnan(r->stopped_at) && (stop_asked || is_late(r))) {
        r->stopped_at = now();
        r->result->stopped = stop_asked;
        tell_children(r, SIGTERM);
    }
    if (stop_at_once || now() - r->stopped_at > GRACE) tell_children(r, SIGKILL);
}

/* Ctrl-Z stops the terminal's process group, and the children have others. The signal's usual
 * action stops this process: the kernel leaves it out where no shell could ever continue it. */
static void pause_if_asked(const runner *r) {
    struct sigaction ours, usual = {.sa_handler = SIG_DFL};
    if (!pause_asked) return;
    pause_asked = 0;
    sigemptyset(&usual.sa_mask);
    tell_children(r, SIGSTOP);
    sigaction(SIGTSTP, &usual, &ours);
    raise(SIGTSTP);
    sigaction(SIGTSTP, &ours, NULL);
    tell_children(r, SIGCONT);
}

static void count_seconds(runner *r, double seconds) {
    for (int64_t i = 0; i < r->matrix->count; i++)
        if (is_running(&r->job[i])) r->job[i].shared += seconds * (double)r->running;
}

static zonal_status loop(runner *r) {
    const struct timespec pause = {.tv_nsec = 20000000};
    for (double before = now(), after;; before = after) {
        after = now();
        count_seconds(r, after - before);
        for (int64_t i = 0; i < r->matrix->count; i++) ZONAL_TRY(reap(r, &r->job[i]));
        pause_if_asked(r);
        stop_if_asked(r);
        ZONAL_TRY(start_some(r));
        if (r->running == 0) return ZONAL_OK;
        nanosleep(&pause, NULL);
    }
}

/* What goes wrong here, not in a cell, ends the children too: nobody would record their results. */
static void end_children(runner *r) {
    int good;
    tell_children(r, SIGTERM);
    for (int64_t i = 0; i < r->matrix->count; i++)
        while (is_running(&r->job[i]) && !zonal__child_ended(r->job[i].child, &good))
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* ---- signals --------------------------------------------------------------------------------- */

static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP};
enum { CAUGHT = sizeof caught / sizeof caught[0] };

static void hear(int signal_number, siginfo_t *info, void *context) {
    (void)context;
    if (signal_number == SIGTSTP) {
        pause_asked = 1;
        return;
    }
    if (zonal__stop_asked(&request, info) == ZONAL__STOP_AT_ONCE) stop_at_once = 1;
    stop_asked = 1;
}

static void catch_signals(struct sigaction usual[CAUGHT]) {
    struct sigaction action = {.sa_sigaction = hear, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < CAUGHT; i++)
        if (sigaction(caught[i], NULL, &usual[i]) == 0 && usual[i].sa_handler != SIG_IGN)
            sigaction(caught[i], &action, NULL);
}

static void release_signals(const struct sigaction usual[CAUGHT]) {
    for (int i = 0; i < CAUGHT; i++) sigaction(caught[i], &usual[i], NULL);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* What the log has to say of the images is said in the logs of the cells. */
static zonal_status check(const runner *r) {
    zonal_status status;
    zonal__cli_show_log(1);
    status = zonal__matrix_check(r->matrix, r->records, r->options->device);
    zonal__cli_show_log(r->options->quiet);
    return status;
}

static zonal_status prepare(runner *r) {
    ZONAL_TRY(zonal__records_check(r->options->records));
    ZONAL_TRY(zonal__folder_make(r->options->folder, r->matrix));
    ZONAL_TRY(zonal__folder_lock(r->options->folder, &r->lock));
    zonal__records_fini(r->records); /* whoever had the lock may have added some */
    ZONAL_TRY(zonal__records_read(r->records, r->options->records));
    ZONAL_TRY(ZONAL_NEW(&r->job, r->matrix->count, "the cells"));
    for (int64_t i = 0; i < r->matrix->count; i++) {
        job *j = &r->job[i];
        j->cell = &r->matrix->cell[i];
        if (zonal__matrix_record(r->matrix, j->cell, r->records)) {
            j->state = DONE;
            r->result->done++;
        } else {
            j->begun =
                zonal__folder_begun(r->options->folder, j->cell->name, &j->logged, &j->before);
        }
    }
    return ZONAL_OK;
}

zonal_status zonal__matrix_run(const zonal__matrix *matrix,
                               const zonal__matrix_run_options *options, zonal__records *records,
                               zonal__matrix_run_result *result) {
    runner r = {.matrix = matrix,
                .options = options,
                .records = records,
                .lock = -1,
                .began = now(),
                .stopped_at = NAN,
                .result = result};
    struct sigaction usual[CAUGHT];
    zonal_status status;
    *result = (zonal__matrix_run_result){0};
    ZONAL_TRY(check(&r)); /* may take a while with many images; a signal ends it at once */
    stop_asked = stop_at_once = pause_asked = 0;
    atomic_store(&request.first, 0);
    catch_signals(usual);
    status = prepare(&r);
    if (status == ZONAL_OK) {
        status = loop(&r);
        if (status != ZONAL_OK) end_children(&r);
    }
    release_signals(usual);
    zonal__free(r.job);
    if (r.lock >= 0) close(r.lock);
    return status;
}

void zonal__matrix_list(const zonal__matrix *matrix, const zonal__matrix_run_options *options,
                        const zonal__records *records) {
    double total = 0;
    int64_t left = 0, unknown = 0;
    for (int64_t i = 0; i < matrix->count; i++)
        left += !zonal__matrix_record(matrix, &matrix->cell[i], records);
    const double together = (double)(left < options->parallel ? left : options->parallel);
    for (int64_t i = 0; i < matrix->count; i++) {
        const zonal__cell *cell = &matrix->cell[i];
        char title[ZONAL__CELL_NAME];
        double seconds = zonal__matrix_seconds(matrix, cell, records, together), before = 0;
        int64_t logged;
        zonal__cell_title(matrix, cell, title, sizeof title);
        if (zonal__matrix_record(matrix, cell, records)) {
            printf("%-44s has a record\n", title);
            continue;
        }
        int begun = zonal__folder_begun(options->folder, cell->name, &logged, &before);
        if (!isnan(seconds)) seconds = fmax(seconds - before, 0);
        unknown += isnan(seconds);
        if (!isnan(seconds)) total += seconds;
        if (isnan(seconds))
            printf("%-44s %s, time not known\n", title, begun ? "begun" : "to run");
        else
            printf("%-44s %s, %.0f s\n", title, begun ? "begun" : "to run", seconds);
    }
    printf("%" PRId64 " of %" PRId64 " cells to run", left, matrix->count);
    if (left > unknown)
        printf(", %.0f minutes with --parallel %" PRId64 "%s", total / 60 / together,
               options->parallel, unknown > 0 ? " and those whose time is not known" : "");
    putchar('\n');
}
