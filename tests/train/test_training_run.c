/*
 * Training as a call (train/training_run.h): whole runs of a few steps on textures, in this
 * process, told by events. What the steps compute is the business of test_trainer and
 * test_training; here it is which steps are logged, evaluated and saved, that a run which was
 * stopped and resumed, or ran beside another, ends with the same bytes, and what is refused.
 */
#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../backend/fake_device.h"
#include "core/file_read.h"
#include "core/memory.h"
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"
#include "train/checkpoint.h"
#include "train/collapse.h"
#include "train/training_work.h"

enum { MOST = 64, LONGEST_FILE = 1 << 24 };

/* ---- a small run ----------------------------------------------------------------------------- */

typedef struct setting {
    const char *name, *text;
} setting;

/* Some milliseconds a step, on one thread. */
static const setting small[] = {{"data", "textures:disk"},
                                {"texture-count", "24"},
                                {"texture-size", "24"},
                                {"side", "16"},
                                {"width", "0.015625"},
                                {"projector", "16-8"},
                                {"batch", "8"},
                                {"threads", "1"},
                                {"workers", "1"},
                                {"precision", "fp32"},
                                {"device", "cpu"},
                                {"warmup", "0"},
                                {"eval", "none"},
                                {"tensorboard", "no"},
                                {0}};

static zonal_status set_all(zonal__training *t, const setting *settings) {
    for (; settings->name; settings++)
        ZONAL_TRY(zonal__training_set(t, settings->name, settings->text));
    return ZONAL_OK;
}

/* Everything that a run tells. */
typedef struct record {
    int64_t logged[MOST], evaluated[MOST], saved[MOST], progressed[MOST];
    int logs, evaluations, saves, progresses, warnings;
    double scores[MOST]; /* of the evaluations */
    char warning[1024];  /* the last */
    char order[16];      /* the first events, a letter each */
    int letters;
    int existed_when_ready; /* the folder */
    const char *out;
    int64_t stop_after; /* steps; 0: never */
    int resumed;
    int64_t began_at;
} record;

static void note_order(record *r, char letter) {
    if (r->letters < (int)sizeof r->order - 1) r->order[r->letters++] = letter;
}

static void on_ready(void *context, const zonal__training *t) {
    record *r = context;
    r->out = t->settings.out;
    r->existed_when_ready = r->out && access(r->out, F_OK) == 0;
    note_order(r, 'r');
}

static void on_opened(void *context, const zonal__run_folder *folder) {
    note_order(context, access(folder->path, F_OK) == 0 ? 'o' : '?');
}

static void on_begun(void *context, const zonal__training_start *start) {
    record *r = context;
    r->resumed = start->resumed;
    r->began_at = start->step;
    note_order(r, 'b');
}

static void on_progressed(void *context, int64_t step) {
    record *r = context;
    note_order(r, 'p');
    if (r->progresses < MOST) r->progressed[r->progresses++] = step;
}

static void on_logged(void *context, const zonal__step_line *line, const zonal__monitor *monitor) {
    record *r = context;
    (void)monitor;
    note_order(r, 'l');
    if (r->logs < MOST) r->logged[r->logs++] = line->step;
}

static void on_evaluated(void *context, int64_t step, const zonal__online_result *result) {
    record *r = context;
    note_order(r, 'e');
    if (r->evaluations == MOST) return;
    r->scores[r->evaluations] = result->r1;
    r->evaluated[r->evaluations++] = step;
}

static void on_saved(void *context, int64_t step) {
    record *r = context;
    note_order(r, 's');
    if (r->saves < MOST) r->saved[r->saves++] = step;
}

static void on_warned(void *context, const char *sentence) {
    record *r = context;
    r->warnings++;
    snprintf(r->warning, sizeof r->warning, "%s", sentence);
}

static int is_stop_asked(void *context) {
    const record *r = context;
    int64_t done = r->progressed[r->progresses - 1] + 1;
    return r->stop_after > 0 && done >= r->stop_after;
}

static zonal__training_events events_of(record *r) {
    return (zonal__training_events){.context = r,
                                    .ready = on_ready,
                                    .opened = on_opened,
                                    .begun = on_begun,
                                    .progressed = on_progressed,
                                    .logged = on_logged,
                                    .evaluated = on_evaluated,
                                    .saved = on_saved,
                                    .warned = on_warned,
                                    .stop = is_stop_asked};
}

static zonal_status run_opened(zonal__training *t, const setting *more, record *r,
                               zonal__training_result *result) {
    const zonal__training_events events = events_of(r);
    ZONAL_TRY(set_all(t, more));
    return zonal__training_run(t, &events, result);
}

/* The small run in this folder, with more settings. */
static zonal_status run_new(const char *out, const setting *more, record *r,
                            zonal__training_result *result) {
    zonal__training t;
    zonal_status status = zonal__training_init(&t);
    if (status == ZONAL_OK) status = set_all(&t, small);
    if (status == ZONAL_OK) status = zonal__training_set(&t, "out", out);
    if (status == ZONAL_OK) status = run_opened(&t, more, r, result);
    zonal__training_close(&t);
    return status;
}

static zonal_status run_on(const char *run, const setting *more, record *r,
                           zonal__training_result *result) {
    zonal__training t;
    zonal_status status = zonal__training_resume(run, &t);
    if (status == ZONAL_OK) status = run_opened(&t, more, r, result);
    zonal__training_close(&t);
    return status;
}

static void remove_tree(const char *path) {
    DIR *dir = opendir(path);
    struct dirent *entry;
    char inside[1024];
    while (dir && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        if (remove(inside) != 0) remove_tree(inside);
    }
    if (dir) closedir(dir);
    rmdir(path);
}

/* Paths of runs in a folder of the test's own. */
static void path_of(const test_folder *folder, const char *name, char out[300]) {
    snprintf(out, 300, "%.250s/%.40s", folder->path, name);
}

/* ---- which steps ----------------------------------------------------------------------------- */

static void check_steps(const char *what, int count, const int64_t *got, int wanted,
                        const int64_t *want) {
    CHECK_MSG(count == wanted, "%s: %d times, want %d", what, count, wanted);
    for (int i = 0; i < count && i < wanted; i++)
        CHECK_MSG(got[i] == want[i], "%s: number %d is step %lld, want %lld", what, i,
                  (long long)got[i], (long long)want[i]);
}

static void test_cadence(void) {
    const zonal__cadence c = {.total = 10, .log_every = 4, .eval_every = 0, .checkpoint_every = 5};
    static const int want[] = {[4] = ZONAL__DUE_LOG,
                               [5] = ZONAL__DUE_CHECKPOINT,
                               [8] = ZONAL__DUE_LOG,
                               [10] = ZONAL__DUE_LOG | ZONAL__DUE_CHECKPOINT};
    const zonal__cadence often = {
        .total = 3, .log_every = 7, .eval_every = 1, .checkpoint_every = 9};
    for (int step = 1; step <= 10; step++)
        CHECK_MSG(zonal__cadence_due(&c, step) == want[step], "step %d: %d is due, want %d", step,
                  zonal__cadence_due(&c, step), want[step]);
    CHECK(zonal__cadence_due(&often, 1) == ZONAL__DUE_EVAL);
    CHECK(zonal__cadence_due(&often, 3) ==
          (ZONAL__DUE_LOG | ZONAL__DUE_EVAL | ZONAL__DUE_CHECKPOINT));
}

static int file_exists(const char *run, const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%.300s/%s", run, name);
    return access(path, F_OK) == 0;
}

static void test_steps_of_a_run(void) {
    static const setting more[] = {
        {"steps", "7"}, {"log-every", "2"}, {"checkpoint-every", "3"}, {0}};
    static const int64_t logged[] = {2, 4, 6, 7}, saved[] = {0, 3, 6, 7};
    test_folder folder;
    zonal__training_result result;
    record r = {0};
    char out[300];
    if (!CHECK(test_folder_make(&folder))) return;
    path_of(&folder, "run", out);
    if (CHECK_OK(run_new(out, more, &r, &result))) {
        check_steps("logged", r.logs, r.logged, 4, logged);
        check_steps("saved", r.saves, r.saved, 4, saved);
        CHECK(r.evaluations == 0 && r.warnings == 0);
        CHECK(r.progresses == 8);
        for (int i = 0; i < r.progresses; i++) CHECK(r.progressed[i] == i);
        CHECK(!r.existed_when_ready && !r.resumed && r.began_at == 0);
        CHECK_MSG(strncmp(r.order, "robspplp", 8) == 0, "the order of events is %s", r.order);
        CHECK(result.step == 7 && result.total == 7 && strcmp(result.folder, out) == 0);
        CHECK(!file_exists(out, "checkpoints/step-00000003.safetensors")); /* keep = 2 */
        CHECK(file_exists(out, "checkpoints/step-00000006.safetensors"));
        CHECK(file_exists(out, "checkpoints/step-00000007.safetensors"));
        CHECK(file_exists(out, "checkpoints/best.safetensors"));
    }
    remove_tree(folder.path);
}

/* Without --checkpoint-every the clock decides: here after every step, and in five minutes. */
static void test_clock(void) {
    static const setting often[] = {{"steps", "5"}, {"checkpoint-minutes", "1e-9"}, {0}};
    static const setting seldom[] = {{"steps", "5"}, {0}};
    static const int64_t all[] = {0, 1, 2, 3, 4, 5}, ends[] = {0, 5};
    test_folder folder;
    record r = {0}, rare = {0};
    char out[300];
    if (!CHECK(test_folder_make(&folder))) return;
    path_of(&folder, "often", out);
    if (CHECK_OK(run_new(out, often, &r, NULL))) check_steps("saved", r.saves, r.saved, 6, all);
    CHECK(file_exists(out, "checkpoints/step-00000005.safetensors"));
    path_of(&folder, "seldom", out);
    if (CHECK_OK(run_new(out, seldom, &rare, NULL)))
        check_steps("saved", rare.saves, rare.saved, 2, ends);
    CHECK(file_exists(out, "checkpoints/step-00000005.safetensors"));
    remove_tree(folder.path);
}

/* An evaluation that is better than all before is saved, whatever the cadence. */
static void test_best_is_saved(void) {
    static const setting more[] = {{"steps", "8"},        {"log-every", "8"},
                                   {"eval-every", "3"},   {"checkpoint-every", "5"},
                                   {"eval", "retrieval"}, {0}};
    static const int64_t evaluated[] = {3, 6, 8};
    test_folder folder;
    record r = {0};
    int64_t saved[MOST] = {0};
    int saves = 1, at = 0;
    double best = -INFINITY;
    char out[300];
    if (!CHECK(test_folder_make(&folder))) return;
    path_of(&folder, "run", out);
    if (CHECK_OK(run_new(out, more, &r, NULL))) {
        check_steps("evaluated", r.evaluations, r.evaluated, 3, evaluated);
        for (int step = 1; step <= 8; step++) {
            int better = at < r.evaluations && r.evaluated[at] == step && r.scores[at] > best;
            if (at < r.evaluations && r.evaluated[at] == step) best = fmax(best, r.scores[at++]);
            if (better || step == 5 || step == 8) saved[saves++] = step;
        }
        CHECK(saved[1] == 3); /* the first is the best so far */
        check_steps("saved", r.saves, r.saved, saves, saved);
    }
    remove_tree(folder.path);
}

/* On a device, whose steps go on while lines are made: each is said once, in order and before the
 * checkpoint of its step, and evaluations find what they find on the processor, whose tables the
 * device computes by. */
static void test_on_a_device(void) {
    static const setting host[] = {
        {"steps", "8"}, {"log-every", "1"}, {"eval-every", "3"}, {"eval", "retrieval"}, {0}};
    static const setting device[] = {{"steps", "8"},       {"log-every", "1"},
                                     {"eval-every", "3"},  {"eval", "retrieval"},
                                     {"device", "fake:0"}, {0}};
    static const int64_t logged[] = {1, 2, 3, 4, 5, 6, 7, 8}, evaluated[] = {3, 6, 8};
    test_folder folder;
    record there = {0}, here = {0};
    char out[300], path[400], *lines = NULL;
    size_t count = 0;
    if (!fake_register() || !CHECK(test_folder_make(&folder))) return;
    path_of(&folder, "host", out);
    CHECK_OK(run_new(out, host, &here, NULL));
    path_of(&folder, "device", out);
    if (CHECK_OK(run_new(out, device, &there, NULL))) {
        check_steps("logged", there.logs, there.logged, 8, logged);
        check_steps("evaluated", there.evaluations, there.evaluated, 3, evaluated);
        check_steps("saved", there.saves, there.saved, here.saves, here.saved);
        for (int i = 0; i < 3; i++) CHECK(there.scores[i] == here.scores[i]);
        snprintf(path, sizeof path, "%s/metrics.jsonl", out);
        if (CHECK_OK(zonal__file_read(path, LONGEST_FILE, &lines, &count))) {
            const char *step = strstr(lines, "\"kind\": \"step\",\"step\": 3");
            const char *saved = strstr(lines, "\"kind\": \"checkpoint\",\"step\": 3");
            CHECK_MSG(step && saved && step < saved, "%s", lines); /* the first score is the best */
        }
        zonal__free(lines);
    }
    CHECK(fake_count(0).blocks == 0 && fake_count(0).pinned == 0 && fake_count(0).events == 0);
    remove_tree(folder.path);
}

/* ---- the same bytes -------------------------------------------------------------------------- */

static zonal_status read_checkpoint(const char *run, int step, char **bytes, size_t *count) {
    char path[600];
    snprintf(path, sizeof path, "%.300s/checkpoints/step-%08d.safetensors", run, step);
    return zonal__file_read(path, LONGEST_FILE, bytes, count);
}

/* 1: the checkpoints of a step are the same, 0: they differ; -1, and a failed check: one cannot be
 * read. */
static int same_checkpoint(const char *a, const char *b, int step) {
    char *first = NULL, *second = NULL;
    size_t bytes = 0, others = 0;
    int same = -1;
    if (CHECK_OK(read_checkpoint(a, step, &first, &bytes)) &&
        CHECK_OK(read_checkpoint(b, step, &second, &others)))
        same = bytes > 0 && bytes == others && memcmp(first, second, bytes) == 0;
    zonal__free(first);
    zonal__free(second);
    return same;
}

static void test_stop_and_resume(void) {
    static const setting more[] = {
        {"steps", "6"}, {"log-every", "2"}, {"checkpoint-every", "6"}, {0}};
    static const setting none[] = {{0}};
    static const int64_t logged[] = {2, 4, 6}, saved[] = {0, 3}, rest[] = {6};
    test_folder folder;
    zonal__training_result result;
    record whole = {0}, first = {.stop_after = 3}, second = {0};
    char a[300], b[300];
    if (!CHECK(test_folder_make(&folder))) return;
    path_of(&folder, "whole", a);
    path_of(&folder, "parts", b);
    if (CHECK_OK(run_new(a, more, &whole, &result)) &&
        CHECK_OK(run_new(b, more, &first, &result))) {
        CHECK(result.step == 3 && result.total == 6);
        check_steps("saved before", first.saves, first.saved, 2, saved);
        CHECK_OK(run_on(b, none, &second, &result));
        CHECK(result.step == 6 && second.resumed && second.began_at == 3);
        check_steps("saved after", second.saves, second.saved, 1, rest);
        check_steps("logged before", first.logs, first.logged, 1, logged);
        check_steps("logged after", second.logs, second.logged, 2, logged + 1);
        CHECK(same_checkpoint(a, b, 6) == 1);
    }
    remove_tree(folder.path);
}

typedef struct runner {
    char out[300];
    setting more[4];
    zonal_status status;
    char message[1024]; /* the last error is the thread's own */
} runner;

static void *run_in_thread(void *context) {
    runner *r = context;
    record told = {0};
    r->status = run_new(r->out, r->more, &told, NULL);
    snprintf(r->message, sizeof r->message, "%s", zonal_last_error()->message);
    return NULL;
}

static void prepare(runner *r, const test_folder *folder, const char *name, const char *seed) {
    *r = (runner){.more = {{"steps", "12"}, {"seed", seed}, {0}}};
    path_of(folder, name, r->out);
}

/* Two at once, with different seeds, compute what each computes alone. */
static void test_two_at_once(void) {
    static const char *const seeds[] = {"0", "1"}, *const alone[] = {"alone-0", "alone-1"},
                             *const beside[] = {"beside-0", "beside-1"};
    test_folder folder;
    runner one[2], two[2];
    pthread_t threads[2];
    int made = 0, good = 1;
    if (!CHECK(test_folder_make(&folder))) return;
    for (int i = 0; i < 2; i++) {
        prepare(&one[i], &folder, alone[i], seeds[i]);
        prepare(&two[i], &folder, beside[i], seeds[i]);
        run_in_thread(&one[i]);
    }
    for (; made < 2; made++)
        if (!CHECK(pthread_create(&threads[made], NULL, run_in_thread, &two[made]) == 0)) break;
    for (int i = 0; i < made; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < made; i++) {
        good &= CHECK_MSG(one[i].status == ZONAL_OK, "%s", one[i].message);
        good &= CHECK_MSG(two[i].status == ZONAL_OK, "%s", two[i].message);
    }
    for (int i = 0; i < made && good; i++) CHECK(same_checkpoint(one[i].out, two[i].out, 12) == 1);
    if (good) CHECK(same_checkpoint(one[0].out, one[1].out, 12) == 0); /* the comparison can fail */
    remove_tree(folder.path);
}

/* ---- collapse -------------------------------------------------------------------------------- */

static zonal__collapse_watch watch_of(int ends_run, double gain) {
    const zonal__collapse_policy policy = {
        .limits = {.cosine = .5, .rank = .1},
        .ends_run = ends_run,
        .warmup = 10,
        .total = 100,
        .weight = {.gain = gain, .threshold = 2, .plan = {.dim = 64}}};
    zonal__collapse_watch watch;
    zonal__collapse_watch_init(&watch, &policy);
    return watch;
}

static const zonal__monitor
    sound = {.mean_cosine = .1, .effective_rank = 5, .expected_rank = 8, .rho = .6, .scale = NAN},
    point = {.mean_cosine = .9, .effective_rank = 5, .expected_rank = 8, .rho = .6, .scale = NAN},
    shrunk = {.mean_cosine = .1, .effective_rank = 5, .expected_rank = 8, .rho = NAN, .scale = .05},
    normal = {.mean_cosine = .1, .effective_rank = 5, .expected_rank = 8, .rho = NAN, .scale = 1},
    broken = {.mean_cosine = NAN, .effective_rank = 5, .expected_rank = 8, .scale = NAN};

static void test_collapse_warns(void) {
    zonal__collapse_watch w = watch_of(0, 3);
    char said[ZONAL__COLLAPSE_SENTENCE];
    CHECK(zonal__collapse_check(&w, 10, &point, said) == ZONAL_OK && !said[0]); /* warm-up */
    CHECK(zonal__collapse_check(&w, 11, &sound, said) == ZONAL_OK && !said[0]);
    CHECK(zonal__collapse_check(&w, 12, &point, said) == ZONAL_OK);
    CHECK_MSG(strstr(said, "step 12") && strstr(said, "mean cosine") && strstr(said, "--lr"), "%s",
              said);
    CHECK(zonal__collapse_check(&w, 13, &point, said) == ZONAL_OK && !said[0]); /* said already */
    CHECK(zonal__collapse_check(&w, 14, &sound, said) == ZONAL_OK && !said[0]);
    CHECK(zonal__collapse_check(&w, 15, &point, said) == ZONAL_OK && said[0]); /* once more */
    w = watch_of(0, 1);
    CHECK(zonal__collapse_check(&w, 12, &broken, said) == ZONAL_OK);
    CHECK_MSG(strstr(said, "the gain 1 is below the threshold f* = 2; give --selectivity 10 "),
              "%s", said);
    w.policy.discrepancy = ZONAL_DISCREPANCY_KL;
    w.collapsed = 0;
    CHECK(zonal__collapse_check(&w, 12, &broken, said) == ZONAL_OK);
    CHECK_MSG(strstr(said, "give --margin 1.15 or more instead"), "%s", said);
    w.policy.gain = ZONAL_GAIN_SELECTIVITY;
    w.collapsed = 0;
    CHECK(zonal__collapse_check(&w, 12, &broken, said) == ZONAL_OK);
    CHECK_MSG(strstr(said, "instead of --selectivity, or a larger --t beside it"), "%s", said);
}

/* Directions say nothing of a collapse to the origin. */
static void test_collapse_of_lengths(void) {
    zonal__collapse_watch w = watch_of(0, 3);
    char said[ZONAL__COLLAPSE_SENTENCE];
    CHECK(zonal__collapse_check(&w, 11, &normal, said) == ZONAL_OK && !said[0]);
    CHECK(zonal__collapse_check(&w, 12, &shrunk, said) == ZONAL_OK);
    CHECK_MSG(strstr(said, "says the scale") && strstr(said, "scale 0.05 of 1"), "%s", said);
}

static void test_collapse_ends(void) {
    zonal__collapse_watch w = watch_of(1, 3);
    char said[ZONAL__COLLAPSE_SENTENCE];
    CHECK_OK(zonal__collapse_check(&w, 10, &point, said));
    CHECK_OK(zonal__collapse_check(&w, 11, &sound, said));
    CHECK_FAILS(zonal__collapse_check(&w, 12, &point, said), ZONAL_NUMERIC, "have collapsed");
}

static const zonal__monitor apart = {
    .mean_cosine = .001, .effective_rank = 8, .expected_rank = 8, .rho = .001};

static void test_plateau(void) {
    zonal__collapse_watch w = watch_of(0, 3);
    char said[ZONAL__COLLAPSE_SENTENCE];
    if (!CHECK(zonal__monitor_dispersed(&apart) && !zonal__monitor_dispersed(&sound))) return;
    zonal__collapse_plateau(&w, 20, &apart, said);
    CHECK(!said[0]);
    zonal__collapse_plateau(&w, 29, &apart, said); /* nine steps of a hundred */
    CHECK(!said[0]);
    zonal__collapse_plateau(&w, 30, &apart, said);
    CHECK_MSG(strstr(said, "dispersed, not aligned, for 10 steps: ") &&
                  strstr(said, "share 0.1 % of the variance; lower --gain"),
              "%s", said);
    zonal__collapse_plateau(&w, 40, &apart, said);
    CHECK(!said[0]);
    w = watch_of(0, 3);
    zonal__collapse_plateau(&w, 20, &apart, said);
    zonal__collapse_plateau(&w, 25, &sound, said);
    zonal__collapse_plateau(&w, 33, &apart, said); /* it begins anew */
    CHECK(!said[0]);
}

/* Margin and selectivity of a method at d = 256 and two views, with options by name and text. */
static zonal_objective_info weight_of(const char *method, const char *const options[][2]) {
    zonal_objective_options o = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective_info info = ZONAL_OBJECTIVE_INFO_INIT;
    if (!CHECK_OK(zonal_objective_defaults(method, &o))) return info;
    for (; options && (*options)[0]; options++)
        CHECK_OK(zonal_objective_set(&o, (*options)[0], (*options)[1]));
    CHECK_OK(zonal_objective_describe(&o, 2, 2, 256, 256, &info));
    return info;
}

/* The remedy leaves the plateau sooner, and must not end in a collapse: what it says is tried. */
static void test_plateau_remedy(void) {
    static const char *const wide[][2] = {{"t", "3/d"}, {"selectivity", "10"}, {NULL}},
                             *const wider[][2] = {{"t", "4/d"}, {"selectivity", "20"}, {NULL}},
                             *const widest[][2] = {{"t", "4/d"}, {"selectivity", "40"}, {NULL}},
                             *const between[][2] = {{"t", "2.89/d"}, {"margin", "1.15"}, {NULL}},
                             *const beyond[][2] = {{"t", "3.5/d"}, {"margin", "1.15"}, {NULL}},
                             *const fixed[][2] = {{"gain", "1"}, {NULL}},
                             *const near[][2] = {{"t", "3/d"}, {"selectivity", "14"}, {NULL}},
                             *const usual[][2] = {{"selectivity", "10"}, {NULL}},
                             *const most[][2] = {{"selectivity", "40"}, {NULL}};
    static const struct {
        const char *method, *const (*options)[2], *said;
    } cases[] = {
        {"mmd-heat", NULL, "a larger --selectivity leaves it sooner (it is 10; up to 40)"},
        {"susreg", NULL, "(it is 20; up to 40)"},
        {"mmd-heat", most, "a larger --batch or a weaker augmentation"},
        {"kl-heat", NULL, "--t 3/d --selectivity 10, for photographs 4/d and 20"},
        {"kl-heat", near, "unless --t is larger too: --t 4/d --selectivity 20"},
        {"kl-heat", wide, "(it is 10; up to 14."},
        {"kl-heat", between, "unless --t is larger too: --t 4/d --selectivity 20"}, /* S = 13 */
        {"kl-heat", beyond, "a larger --batch or a weaker augmentation"},           /* S = 25 */
        {"kl-heat", fixed, "a larger --batch or a weaker augmentation"},            /* S = 37 */
        {"kl-heat", widest, "a larger --batch or a weaker augmentation"},
    };
    char said[ZONAL__COLLAPSE_SENTENCE];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        zonal__collapse_watch w = watch_of(0, 3);
        w.policy.weight = weight_of(cases[i].method, cases[i].options);
        if (strncmp(cases[i].method, "kl", 2) == 0) w.policy.discrepancy = ZONAL_DISCREPANCY_KL;
        zonal__collapse_plateau(&w, 20, &apart, said);
        zonal__collapse_plateau(&w, 30, &apart, said);
        CHECK_MSG(strstr(said, cases[i].said), "%s: %s", cases[i].method, said);
        CHECK_MSG(strchr(said, '\0') - said < ZONAL__COLLAPSE_SENTENCE - 1, "%s is cut", said);
    }
    for (int band = 0; band < 2; band++) { /* their usual selectivity grows with d */
        zonal__collapse_watch w = watch_of(0, 3);
        w.policy.weight = (zonal_objective_info){
            .selectivity = 2.5,
            .margin = 60,
            .plan = {.dim = 64, .family = band ? ZONAL_FAMILY_BAND : ZONAL_FAMILY_HEAT}};
        zonal__collapse_plateau(&w, 20, &apart, said);
        zonal__collapse_plateau(&w, 30, &apart, said);
        CHECK_MSG(strstr(said, band ? "up to 10)" : "up to 40)"), "%s", said);
    }
    CHECK(weight_of("kl-heat", wide).margin >= 1.15 && weight_of("kl-heat", wider).margin >= 1.15);
    CHECK(weight_of("mmd-heat", most).margin >= 1.15 && weight_of("susreg", most).margin >= 1.15);
    CHECK(weight_of("kl-heat", usual).margin < 1); /* what the sentences warn of, and a remedy */
    CHECK(weight_of("kl-heat", wide).margin > 1);
}

/* No projections of a few steps have the rank of uniform points. */
static void test_collapse_of_a_run(void) {
    static const setting warn[] = {{"steps", "6"}, {"log-every", "1"}, {"collapse-rank", "1"}, {0}};
    static const setting stop[] = {
        {"steps", "6"}, {"log-every", "2"}, {"collapse-rank", "1"}, {"on-collapse", "stop"}, {0}};
    static const int64_t logged[] = {2};
    test_folder folder;
    zonal__training_result result;
    record r = {0}, ended = {0};
    char out[300];
    if (!CHECK(test_folder_make(&folder))) return;
    path_of(&folder, "warned", out);
    if (CHECK_OK(run_new(out, warn, &r, &result))) {
        CHECK_MSG(r.warnings == 1, "%d warnings", r.warnings);
        CHECK_MSG(strstr(r.warning, "have collapsed"), "%s", r.warning);
        CHECK(result.step == 6);
    }
    path_of(&folder, "ended", out);
    CHECK_FAILS(run_new(out, stop, &ended, &result), ZONAL_NUMERIC, "is intact");
    CHECK(strstr(zonal_last_error()->message, "have collapsed"));
    check_steps("logged", ended.logs, ended.logged, 1, logged);
    CHECK(result.step == 2 && strcmp(result.folder, out) == 0 && ended.warnings == 0);
    CHECK(file_exists(out, "checkpoints/step-00000000.safetensors"));
    CHECK(!file_exists(out, "checkpoints/step-00000002.safetensors"));
    remove_tree(folder.path);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void test_settings(void) {
    zonal__training t;
    char text[] = "textures:disk";
    if (CHECK_OK(zonal__training_init(&t))) {
        CHECK(t.settings.batch == 256 && !t.settings.data); /* the defaults */
        CHECK_OK(zonal__training_set(&t, "lr", "0.25"));
        CHECK_OK(zonal__training_set(&t, "lr", "0.5"));
        CHECK_OK(zonal__training_set(&t, "nesterov", "yes"));
        CHECK_OK(zonal__training_set(&t, "optimiser", "sgd"));
        CHECK_OK(zonal__training_set(&t, "data", text));
        memset(text, 'x', sizeof text - 1); /* texts are copied */
        CHECK(t.settings.lr == .5 && t.settings.nesterov && t.settings.optimiser == 1);
        CHECK(t.settings.data && strcmp(t.settings.data, "textures:disk") == 0);
        CHECK_FAILS(zonal__training_set(&t, "lr", "-1"), ZONAL_ARGUMENT, "lr must be above 0");
        CHECK_FAILS(zonal__training_set(&t, "lr", "fast"), ZONAL_ARGUMENT, "lr");
        CHECK_FAILS(zonal__training_set(&t, "optimiser", "adam"), ZONAL_ARGUMENT, "adamw");
        CHECK_FAILS(zonal__training_set(&t, "bacth", "8"), ZONAL_ARGUMENT, "batch");
        CHECK_FAILS(zonal__training_set(&t, "quiet", "yes"), ZONAL_ARGUMENT, "the program");
        CHECK_FAILS(zonal__training_set(&t, "resume", "runs/a"), ZONAL_ARGUMENT, "the program");
        CHECK(t.settings.lr == .5 && t.settings.optimiser == 1); /* as before */
    }
    zonal__training_close(&t);
}

static void test_refused(void) {
    static const setting no_data[] = {{0}}, one[] = {{"batch", "1"}, {0}},
                         many[] = {{"batch", "25"}, {0}},
                         both[] = {{"epochs", "1"}, {"steps", "1"}, {0}},
                         method[] = {{"method", "mmd-het"}, {0}},
                         unused[] = {{"view-hue", "0.1"}, {0}};
    test_folder folder;
    zonal__training_result result;
    zonal__training t;
    record r = {0};
    char out[300];
    if (!CHECK(test_folder_make(&folder))) return;
    path_of(&folder, "run", out);
    if (CHECK_OK(zonal__training_init(&t)))
        CHECK_FAILS(run_opened(&t, no_data, &r, &result), ZONAL_ARGUMENT, "no images");
    CHECK(result.folder[0] == '\0');
    zonal__training_close(&t);
    CHECK_FAILS(run_new(out, one, &r, NULL), ZONAL_ARGUMENT, "at least 2");
    CHECK_FAILS(run_new(out, many, &r, NULL), ZONAL_ARGUMENT, "more than the 24 images");
    CHECK_FAILS(run_new(out, both, &r, NULL), ZONAL_ARGUMENT, "give one of them");
    CHECK_FAILS(run_new(out, method, &r, NULL), ZONAL_ARGUMENT, "mmd-heat");
    CHECK_FAILS(run_new(out, unused, &r, NULL), ZONAL_ARGUMENT, "no effect");
    CHECK_FAILS(run_new(folder.path, one, &r, NULL), ZONAL_IO, "already exists");
    CHECK_FAILS(run_on(folder.path, one, &r, NULL), ZONAL_IO, "config.toml");
    CHECK(r.letters == 0 && test_folder_count(&folder) == 0); /* nothing was begun or written */
    remove_tree(folder.path);
}

static void test_refused_later(void) {
    static const setting more[] = {{"steps", "2"}, {0}}, rate[] = {{"lr", "0.5"}, {0}},
                         fewer[] = {{"steps", "1"}, {0}}, longer[] = {{"steps", "4"}, {0}};
    test_folder folder;
    zonal__training_result result;
    zonal__training t;
    record r = {0};
    char out[300];
    if (!CHECK(test_folder_make(&folder))) return;
    path_of(&folder, "run", out);
    if (CHECK_OK(zonal__training_init(&t)) && CHECK_OK(set_all(&t, small)) &&
        CHECK_OK(zonal__training_set(&t, "out", out))) {
        CHECK_OK(run_opened(&t, more, &r, &result));
        CHECK_FAILS(zonal__training_run(&t, NULL, NULL), ZONAL_ARGUMENT, "runs once");
    }
    zonal__training_close(&t);
    CHECK_FAILS(run_on(out, rate, &r, &result), ZONAL_ARGUMENT, "--lr cannot be changed");
    CHECK_FAILS(run_on(out, fewer, &r, &result), ZONAL_ARGUMENT, "2 steps already");
    CHECK_OK(run_on(out, longer, &r, &result));
    CHECK(result.step == 4 && result.total == 4);
    remove_tree(folder.path);
}

/* ---- silence and memory ---------------------------------------------------------------------- */

/* Runs with stdout and stderr in a file; its length is returned, -1 for a failure. */
static long long printed(const char *file, const char *out) {
    static const setting more[] = {
        {"steps", "3"}, {"log-every", "1"}, {"collapse-rank", "1"}, {"eval", "retrieval"}, {0}};
    int kept[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
    FILE *stream = fopen(file, "w");
    struct stat found = {.st_size = -1};
    record r = {0};
    fflush(stdout);
    fflush(stderr);
    if (stream && dup2(fileno(stream), STDOUT_FILENO) >= 0 &&
        dup2(fileno(stream), STDERR_FILENO) >= 0) {
        zonal_status status = run_new(out, more, &r, NULL);
        fflush(stdout);
        fflush(stderr);
        if (status == ZONAL_OK) stat(file, &found);
    }
    dup2(kept[0], STDOUT_FILENO);
    dup2(kept[1], STDERR_FILENO);
    close(kept[0]);
    close(kept[1]);
    if (stream) fclose(stream);
    return (long long)found.st_size;
}

static void test_prints_nothing(void) {
    test_folder folder;
    char out[300], file[300];
    if (!CHECK(test_folder_make(&folder))) return;
    path_of(&folder, "run", out);
    path_of(&folder, "printed", file);
    CHECK(printed(file, out) == 0);
    remove_tree(folder.path);
}

/* With curves and an evaluation, and all that one step needs. */
static zonal_status run_once(const char *out) {
    static const setting more[] = {{"steps", "1"}, {"tensorboard", "yes"}, {"eval", "auto"}, {0}};
    record r = {0};
    return run_new(out, more, &r, NULL);
}

/* An allocation that fails, wherever it is, ends the run in order; curves and what else is written
 * for convenience may be missing. */
static void test_memory(void) {
    enum { TRIALS = 150 };
    test_folder folder;
    int64_t calls, step;
    char out[300];
    if (!CHECK(test_folder_make(&folder))) return;
    path_of(&folder, "run", out);
    failing_alloc_install(-1, 0);
    CHECK_OK(run_once(out));
    CHECK(failing_alloc_remove() == 0);
    calls = failing_alloc_calls();
    step = calls / TRIALS + 1;
    printf("# %lld allocations, every %lldth is made to fail\n", (long long)calls, (long long)step);
    for (int64_t n = (int64_t)(test_seed % (uint64_t)step); n < calls; n += step) {
        zonal_status status;
        int64_t left;
        remove_tree(out);
        failing_alloc_install(n, 0);
        status = run_once(out);
        left = failing_alloc_remove();
        CHECK_MSG(left == 0, "allocation %lld: %lld blocks not given back", (long long)n,
                  (long long)left);
        CHECK_MSG(status == ZONAL_OK || status == ZONAL_MEMORY, "allocation %lld: %s: %s",
                  (long long)n, zonal_status_name(status), zonal_last_error()->message);
    }
    remove_tree(folder.path);
}

static const test_case tests[] = {{"cadence", test_cadence},
                                  {"steps_of_a_run", test_steps_of_a_run},
                                  {"clock", test_clock},
                                  {"best_is_saved", test_best_is_saved},
                                  {"on_a_device", test_on_a_device},
                                  {"stop_and_resume", test_stop_and_resume},
                                  {"two_at_once", test_two_at_once},
                                  {"collapse_warns", test_collapse_warns},
                                  {"collapse_of_lengths", test_collapse_of_lengths},
                                  {"collapse_ends", test_collapse_ends},
                                  {"plateau", test_plateau},
                                  {"plateau_remedy", test_plateau_remedy},
                                  {"collapse_of_a_run", test_collapse_of_a_run},
                                  {"settings", test_settings},
                                  {"refused", test_refused},
                                  {"refused_later", test_refused_later},
                                  {"prints_nothing", test_prints_nothing},
                                  {"memory", test_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
