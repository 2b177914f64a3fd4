/*
 * Run folders: what is in them, what is kept, and how they are wound back after a process was
 * killed; the collapse monitor on points whose numbers are known.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "core/file_read.h"
#include "core/json_read.h"
#include "core/memory.h"
#include "core/random.h"
#include "failing_alloc.h"
#include "folder.h"
#include "small_trainer.h"
#include "test.h"
#include "train/checkpoint.h"
#include "train/run_folder.h"
#include "zonal/uniformity.h"

enum { KEEP = 2 };

/* ---- what reaches the disk ------------------------------------------------------------------- */

/* The calls that make a name lasting, in their order: these stand in for the C library's. */
typedef struct disk_call {
    int is_rename;
    dev_t device;
    ino_t folder; /* of an fsync: which folder; 0: it was a file */
} disk_call;
static disk_call disk_calls[256];
static int disk_call_count;

static void note_call(disk_call call) {
    if (disk_call_count < 256) disk_calls[disk_call_count++] = call;
}

int fsync(int descriptor) {
    struct stat state;
    if (fstat(descriptor, &state) == 0 && S_ISDIR(state.st_mode))
        note_call((disk_call){.device = state.st_dev, .folder = state.st_ino});
    return (int)syscall(SYS_fsync, descriptor);
}

int rename(const char *from, const char *to) {
    note_call((disk_call){.is_rename = 1});
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

/* Whether the folder was flushed after everything was renamed that was. */
static int is_flushed(const char *path) {
    struct stat state;
    int flushed = 0;
    if (stat(path, &state) != 0) return 0;
    for (int i = 0; i < disk_call_count; i++)
        if (disk_calls[i].is_rename)
            flushed = 0;
        else if (disk_calls[i].folder == state.st_ino && disk_calls[i].device == state.st_dev)
            flushed = 1;
    return flushed;
}

/* ---- helpers --------------------------------------------------------------------------------- */

static void remove_tree(const char *path) {
    DIR *dir = opendir(path);
    struct dirent *entry;
    char inside[ZONAL__RUN_FOLDER_PATH];
    while (dir && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        if (remove(inside) != 0) remove_tree(inside);
    }
    if (dir) closedir(dir);
    CHECK(rmdir(path) == 0);
}

static int make_steps(zonal__trainer *trainer, int count) {
    for (int i = 0; i < count; i++)
        if (!CHECK_OK(zonal__trainer_step(trainer))) return 0;
    return 1;
}

static int exists(const zonal__run_folder *run, const char *name) {
    char path[ZONAL__RUN_FOLDER_PATH];
    return CHECK_OK(zonal__run_folder_file(run, name, path)) && access(path, F_OK) == 0;
}

static void write_text(const zonal__run_folder *run, const char *name, const char *text) {
    char path[ZONAL__RUN_FOLDER_PATH];
    FILE *file;
    if (!CHECK_OK(zonal__run_folder_file(run, name, path))) return;
    file = fopen(path, "w");
    if (CHECK(file != NULL)) {
        fputs(text, file);
        fclose(file);
    }
}

/* metrics.jsonl as text; release it. */
static char *metrics_of(const zonal__run_folder *run) {
    char path[ZONAL__RUN_FOLDER_PATH], *text = NULL;
    size_t length;
    if (CHECK_OK(zonal__run_folder_file(run, "metrics.jsonl", path)))
        CHECK_OK(zonal__file_read(path, 1 << 20, &text, &length));
    return text;
}

/* ---- making and opening ---------------------------------------------------------------------- */

static void test_create(void) {
    test_folder folder;
    zonal__run_folder run, other;
    char path[800];
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "run"));
    if (CHECK_OK(zonal__run_folder_create(path, "a = 1\n", KEEP, &run))) {
        CHECK(exists(&run, "config.toml") && exists(&run, "checkpoints"));
        CHECK(exists(&run, "metrics.jsonl"));
        CHECK_FAILS(zonal__run_folder_create(path, "", KEEP, &other), ZONAL_IO,
                    "never overwritten");
        CHECK_FAILS(zonal__run_folder_open(path, KEEP, &other), ZONAL_IO, "another process");
        zonal__run_folder_close(&run);
    }
    if (CHECK_OK(zonal__run_folder_open(path, KEEP, &run))) zonal__run_folder_close(&run);
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "no/run"));
    CHECK_FAILS(zonal__run_folder_create(path, "", KEEP, &run), ZONAL_IO, "lies in");
    CHECK_FAILS(zonal__run_folder_open(path, KEEP, &run), ZONAL_IO, "no/run");
    remove_tree(folder.path);
}

static void test_create_next(void) {
    test_folder folder;
    zonal__run_folder run;
    char parent[800], want[900];
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(parent, sizeof parent, "%s", test_folder_file(&folder, "runs"));
    for (int n = 1; n <= 3; n++) {
        if (!CHECK_OK(zonal__run_folder_create_next(parent, "disk", "", KEEP, &run))) break;
        snprintf(want, sizeof want, "%s/disk-%d", parent, n);
        CHECK_MSG(strcmp(run.path, want) == 0, "%s, not %s", run.path, want);
        zonal__run_folder_close(&run);
    }
    remove_tree(folder.path);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static void check_saves(zonal__run_folder *run, zonal__trainer *trainer) {
    char path[ZONAL__RUN_FOLDER_PATH];
    CHECK_FAILS(zonal__run_folder_latest(run, path), ZONAL_IO, "no checkpoint");
    CHECK_OK(zonal__run_folder_save(run, trainer, NAN)); /* step 0 */
    CHECK(!exists(run, "checkpoints/best.safetensors"));
    if (!make_steps(trainer, 3)) return;
    CHECK_OK(zonal__run_folder_save(run, trainer, .5));
    CHECK(exists(run, "checkpoints/best.safetensors") && run->best == .5);
    if (!make_steps(trainer, 1)) return;
    CHECK_OK(zonal__run_folder_save(run, trainer, .4));
    CHECK(run->best == .5);
    CHECK(!exists(run, "checkpoints/step-00000000.safetensors"));
    CHECK(exists(run, "checkpoints/step-00000003.safetensors"));
    /* What only looks like a checkpoint is neither taken for the latest nor removed. */
    write_text(run, "checkpoints/step-99.safetensors", "");
    write_text(run, "checkpoints/step-00000099.safetensors.tmp.12-3", "");
    CHECK_OK(zonal__run_folder_latest(run, path));
    CHECK_MSG(strstr(path, "/checkpoints/step-00000004.safetensors") != NULL, "%s", path);
}

/* A process that was killed after step 5 leaves lines of it, half a line and a temporary. */
static void check_rewinds(zonal__run_folder *run, zonal__trainer *trainer) {
    const zonal__step_line line = {.step = 5, .seconds = 50, .metrics = {.loss = {.total = 1.25}}};
    const zonal__monitor monitor = {.mean_cosine = NAN};
    char *text, *again;
    CHECK_OK(zonal__run_folder_rewind(run, 4, 0));
    text = metrics_of(run);
    CHECK(!exists(run, "checkpoints/step-00000099.safetensors.tmp.12-3"));
    CHECK(exists(run, "checkpoints/step-99.safetensors"));
    CHECK(run->best == .5 && run->seconds == 0);
    CHECK_OK(zonal__run_folder_add_step(run, &line));
    CHECK_OK(zonal__run_folder_add_monitor(run, 5, &monitor));
    CHECK_OK(make_steps(trainer, 1) ? ZONAL_OK : ZONAL_IO);
    CHECK_OK(zonal__run_folder_save(run, trainer, .9));
    CHECK_OK(zonal__run_folder_rewind(run, 5, 4)); /* nothing to cut */
    CHECK(run->best == .9 && run->seconds == 50 && run->losses == 1 && run->loss_sum == 1.25);
    CHECK_OK(zonal__run_folder_rewind(run, 5, 5)); /* the loss was judged */
    CHECK(run->losses == 0 && run->loss_sum == 0);
    CHECK_OK(zonal__run_folder_rewind(run, 4, 0));
    CHECK(run->best == .5 && run->seconds == 0);
    again = metrics_of(run);
    if (text && again) CHECK_MSG(strcmp(text, again) == 0, "%s\nbecame\n%s", text, again);
    zonal__free(text);
    zonal__free(again);
}

static void test_checkpoints(void) {
    test_folder folder;
    zonal__run_folder run;
    zonal__trainer *trainer;
    if (!CHECK(test_folder_make(&folder))) return;
    if (CHECK_OK(make_trainer(&trainer))) {
        if (CHECK_OK(zonal__run_folder_create_next(folder.path, "run", "", KEEP, &run))) {
            check_saves(&run, trainer);
            check_rewinds(&run, trainer);
            zonal__run_folder_close(&run);
        }
        zonal__trainer_destroy(trainer);
    }
    remove_tree(folder.path);
}

/* A loss of power after the call must not take the names back. */
static void test_names_last(void) {
    test_folder folder;
    zonal__run_folder run;
    zonal__trainer *trainer;
    char runs[800], path[ZONAL__RUN_FOLDER_PATH];
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(runs, sizeof runs, "%s", test_folder_file(&folder, "runs"));
    if (CHECK_OK(make_trainer(&trainer))) {
        disk_call_count = 0;
        if (CHECK_OK(zonal__run_folder_create_next(runs, "run", "", KEEP, &run))) {
            CHECK(is_flushed(run.path) && is_flushed(runs));
            disk_call_count = 0;
            CHECK_OK(zonal__run_folder_save(&run, trainer, .5));
            CHECK_OK(zonal__run_folder_file(&run, "checkpoints", path));
            CHECK(disk_call_count >= 4 && is_flushed(path)); /* best, and that of the step */
            zonal__run_folder_close(&run);
        }
        zonal__trainer_destroy(trainer);
    }
    remove_tree(folder.path);
}

/* Every line is one JSON object, with its numbers; what is not finite is null. */
static void test_lines(void) {
    test_folder folder;
    zonal__run_folder run;
    const zonal__step_line line = {.step = 7, .epoch = .25, .metrics = {.loss = {.total = 1.5}}};
    const zonal__monitor monitor = {
        .mean_cosine = NAN, .effective_rank = 3, .expected_rank = 8, .scale = NAN};
    const zonal__online_result knn = {.protocol = ZONAL__ONLINE_KNN, .accuracy = .75};
    const zonal__online_result retrieval = {.protocol = ZONAL__ONLINE_RETRIEVAL, .r1 = .5};
    static const char *const wanted[] = {
        "\"loss\": 1.5,", "\"mean_cosine\": null,\"effective_rank\": 3,\"expected_rank\": 8,",
        "\"accuracy\": 0.75}", "\"r1\": 0.5,"};
    if (!CHECK(test_folder_make(&folder))) return;
    if (CHECK_OK(zonal__run_folder_create_next(folder.path, "run", "", KEEP, &run))) {
        CHECK_OK(zonal__run_folder_add_step(&run, &line));
        CHECK_OK(zonal__run_folder_add_monitor(&run, 7, &monitor));
        CHECK_OK(zonal__run_folder_add_eval(&run, 7, &knn));
        CHECK_OK(zonal__run_folder_add_eval(&run, 7, &retrieval));
        char *text = metrics_of(&run), *at = text;
        for (int i = 0; text && i < 4; i++) {
            char *newline = strchr(at, '\n');
            zonal__json_reader reader;
            if (!CHECK(newline != NULL)) break;
            *newline = '\0';
            CHECK_MSG(strstr(at, wanted[i]) != NULL, "line %d is %s", i, at);
            zonal__json_reader_init(&reader, at, (size_t)(newline - at), "a line");
            CHECK_OK(zonal__json_read_skip(&reader));
            CHECK_OK(zonal__json_read_end(&reader));
            at = newline + 1;
        }
        zonal__free(text);
        zonal__run_folder_close(&run);
    }
    remove_tree(folder.path);
}

/* What rewinding reads scores with: any JSON number, and null for what is not finite. */
static void test_numbers(void) {
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0}, {"-1.5e-3", -1.5e-3}, {" 17 ", 17}, {"0.1", .1}, {"null", NAN}};
    static const char *const bad[] = {"", "nul", "-", "1.", "1e", "\"1\"", "true", "nan", "+1"};
    char text[32];
    double value;
    zonal__json_reader reader;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(text, sizeof text, "%s", good[i].text);
        zonal__json_reader_init(&reader, text, strlen(text), "a number");
        if (!CHECK_OK(zonal__json_read_double(&reader, &value))) continue;
        CHECK_OK(zonal__json_read_end(&reader));
        CHECK_MSG(value == good[i].value || (isnan(value) && isnan(good[i].value)), "%s is %g",
                  good[i].text, value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text, "%s", bad[i]);
        zonal__json_reader_init(&reader, text, strlen(text), "a number");
        CHECK_MSG(zonal__json_read_double(&reader, &value) == ZONAL_FORMAT, "\"%s\" was read",
                  bad[i]);
    }
}

static zonal_status make_and_rewind(void *context) {
    zonal__run_folder run;
    const zonal__step_line line = {.step = 1, .seconds = 2};
    zonal_status status;
    ZONAL_TRY(zonal__run_folder_create_next(context, "run", "a = 1\n", KEEP, &run));
    status = zonal__run_folder_add_step(&run, &line);
    if (status == ZONAL_OK) status = zonal__run_folder_rewind(&run, 1, 0);
    zonal__run_folder_close(&run);
    return status;
}

static void test_allocations(void) {
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    test_every_allocation("a run folder", make_and_rewind, folder.path);
    remove_tree(folder.path);
}

/* ---- the monitor ----------------------------------------------------------------------------- */

enum { DIM = 8 };
static const zonal__collapse_limits limits = {.cosine = .95, .rank = .3};

static void test_monitor(void) {
    float z[2 * DIM][DIM] = {{0}};
    zonal__monitor monitor;
    /* An orthonormal basis of any lengths: no two have anything in common, all directions alike. */
    for (int i = 0; i < DIM; i++) z[i][i] = (float)(i + 1);
    if (CHECK_OK(zonal__monitor_read(DIM, DIM, z[0], 1, &monitor))) {
        CHECK_CLOSE(monitor.mean_cosine, 0, 1e-6);      /* rounding of fp32 */
        CHECK_CLOSE(monitor.effective_rank, DIM, 1e-4); /* likewise, through a square root */
        CHECK(monitor.log10_p > -1.3 && monitor.log10_p <= 0);
        CHECK(zonal__monitor_collapsed(&monitor, &limits) == NULL);
        /* The squares of 1 ... 8 in 64 elements: sqrt(204 / 64). */
        CHECK(isnan(monitor.scale));
        zonal__monitor_read_scale(DIM, DIM, z[0], &monitor);
        CHECK_CLOSE(monitor.scale, 1.7853571071357126, 1e-12);
        CHECK(zonal__monitor_collapsed(&monitor, &limits) == NULL);
        for (int i = 0; i < DIM; i++) z[i][i] *= .05f;
        zonal__monitor_read_scale(DIM, DIM, z[0], &monitor);
        CHECK(strcmp(zonal__monitor_collapsed(&monitor, &limits), "scale") == 0);
    }
    /* All in one place. */
    for (int i = 0; i < 2 * DIM; i++)
        for (int k = 0; k < DIM; k++) z[i][k] = (float)(k + 1);
    if (CHECK_OK(zonal__monitor_read(2 * DIM, DIM, z[0], 1, &monitor))) {
        CHECK_CLOSE(monitor.mean_cosine, 1, 1e-6);
        CHECK_CLOSE(monitor.effective_rank, 1, 1e-2); /* the roots of rounding errors count */
        CHECK(monitor.log10_p < -10);
        CHECK(strcmp(zonal__monitor_collapsed(&monitor, &limits), "mean cosine") == 0);
    }
    /* On one axis, half each way: n = 16 points have the mean cosine -1/15. */
    for (int i = 0; i < 2 * DIM; i++)
        for (int k = 0; k < DIM; k++) z[i][k] = (i % 2 ? -1.f : 1.f) * (k == 3);
    if (CHECK_OK(zonal__monitor_read(2 * DIM, DIM, z[0], 1, &monitor))) {
        CHECK_CLOSE(monitor.mean_cosine, -1. / 15, 1e-6);
        CHECK_CLOSE(monitor.effective_rank, 1, 1e-2);
        CHECK(strcmp(zonal__monitor_collapsed(&monitor, &limits), "effective rank") == 0);
    }
    /* Views of one sample at cosine .6, of two at .2: half of what is left above .2. */
    monitor.mean_cosine = .2;
    zonal__monitor_read_alignment(.5 * (1 - .6), .5, &monitor);
    CHECK_CLOSE(monitor.rho, .5, 1e-12);
    CHECK(!zonal__monitor_dispersed(&monitor));
    monitor.mean_cosine = .001;
    zonal__monitor_read_alignment(.493, .5, &monitor);
    CHECK_CLOSE(monitor.rho, .013 / .999, 1e-12);
    CHECK(zonal__monitor_dispersed(&monitor));
    monitor.rho = NAN;
    CHECK(!zonal__monitor_dispersed(&monitor));
    monitor.mean_cosine = NAN;
    CHECK(strcmp(zonal__monitor_collapsed(&monitor, &limits), "mean cosine") == 0);
    memset(z, 0, sizeof z);
    CHECK(zonal__monitor_read(DIM, DIM, z[0], 1, &monitor) == ZONAL_NUMERIC);
}

/* The monitor of training and zonal test look at the same points: axes k = 0, 1, ... scaled by
 * falling^k, and a push along the first. One rank, one cosine, one verdict; by the definitions,
 * half of the directions is no collapse, and neither is a cone. */
static void test_one_verdict(void) {
    enum { ROWS = 256, WIDE = 64 };
    static const struct {
        double falling, push;
        const char *collapsed;
    } shapes[] = {{1, 0, NULL},   {.96, 0, NULL},         {.9, 0, NULL}, {.3, 0, "effective rank"},
                  {1, .17, NULL}, {1, 1.2, "mean cosine"}};
    const zonal__collapse_limits usual = {ZONAL_COLLAPSE_COSINE, ZONAL_COLLAPSE_RANK};
    const zonal_uniformity_options options = {.size = sizeof options,
                                              .precision = ZONAL_PRECISION_FP32};
    static float z[ROWS][WIDE];
    static double row[WIDE];
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        zonal_uniformity_report report = ZONAL_UNIFORMITY_REPORT_INIT;
        zonal__monitor monitor;
        const char *said;
        for (int i = 0; i < ROWS; i++) {
            zonal__random random = {test_seed, ZONAL__STREAM_UNIFORM, 0};
            zonal__random_direction(&random, (uint64_t)i, WIDE, row);
            for (int k = 0; k < WIDE; k++) z[i][k] = (float)(row[k] * pow(shapes[s].falling, k));
            z[i][0] += (float)(8 * shapes[s].push);
        }
        if (!CHECK_OK(zonal__monitor_read(ROWS, WIDE, z[0], 1, &monitor)) ||
            !CHECK_OK(zonal_uniformity_run(&options, ROWS, WIDE, z, &report)))
            return;
        said = zonal__monitor_collapsed(&monitor, &usual);
        CHECK_CLOSE(monitor.effective_rank, report.effective_rank, 1e-9);
        CHECK_CLOSE(monitor.mean_cosine, report.mean_cosine, 1e-12);
        CHECK_MSG(!said == !strstr(report.verdict, "Collapsed"), "%s; %s", said ? said : "sound",
                  report.verdict);
        CHECK_MSG(said ? shapes[s].collapsed && strcmp(said, shapes[s].collapsed) == 0
                       : !shapes[s].collapsed,
                  "shape %d: %s, rank %g of %g, mean cosine %g", (int)s, said ? said : "sound",
                  monitor.effective_rank, monitor.expected_rank, monitor.mean_cosine);
    }
}

static const test_case tests[] = {{"create", test_create},
                                  {"create_next", test_create_next},
                                  {"checkpoints", test_checkpoints},
                                  {"names_last", test_names_last},
                                  {"lines", test_lines},
                                  {"numbers", test_numbers},
                                  {"allocations", test_allocations},
                                  {"monitor", test_monitor},
                                  {"one_verdict", test_one_verdict},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
