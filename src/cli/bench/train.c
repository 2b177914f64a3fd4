/*
 * zonal bench train: how long a step of training takes, where the time goes, and beside PyTorch on
 * request.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "cli/bench/bench.h"
#include "cli/bench/peer.h"
#include "cli/bench/train_step.h"
#include "cli/common/cli.h"
#include "cli/common/json_line.h"
#include "cli/common/profile_table.h"
#include "core/memory.h"
#include "loss/options.h"

enum { MOST_ROWS = 16, LONGEST_NAME = 32 };
static const char *const dtypes[] = {"fp32", "bf16", NULL};

typedef struct settings {
    const char *rows, *method;
    const char *device_name;
    const zonal__device *device;
    int precision, bare, graph, fold_norms, profile, torch, json;
    int64_t batch, threads, probe;
    double width;
    zonal__rates rates;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "rows",
     .type = ZONAL__OPTION_STRING,
     AT(rows),
     .metavar = "NETWORK@SIDE,...",
     .help = "what to time: resnet18, resnet34 or resnet50, and the side of the views, with /1 for "
             "grey images, /small for CIFAR's stem and /v8 for 8 views of an image; unless given "
             "ten of them on cuda, resnet18@64 on the cpu"},
    ZONAL__DEVICE_OPTION(settings, device_name, "cpu", "where to run"),
    {.name = "batch",
     .type = ZONAL__OPTION_INT,
     AT(batch),
     .least = 2,
     .most = 65536,
     .help = "images, with two views each; unless given 256 on cuda and 64 on the cpu"},
    {.name = "precision",
     .type = ZONAL__OPTION_WORD,
     AT(precision),
     .words = dtypes,
     .initial = "bf16",
     .help = "of the activations"},
    {.name = "method",
     .type = ZONAL__OPTION_STRING,
     AT(method),
     .initial = "mmd-heat",
     .metavar = "NAME",
     .help = "the loss"},
    {.name = "width",
     .type = ZONAL__OPTION_DOUBLE,
     AT(width),
     .initial = "1",
     .least = 1. / 64,
     .most = 8,
     .help = "factor of the encoder's channels"},
    ZONAL__THREADS_OPTION(settings, "threads to use; 0: one for each processor"),
    {.name = "bare",
     .type = ZONAL__OPTION_FLAG,
     AT(bare),
     .help = "omit the second measurement, with the augmentation"},
    {.name = "graph",
     .type = ZONAL__OPTION_FLAG,
     AT(graph),
     .initial = "yes",
     .help = "cuda: replay the step as one CUDA graph, as training does"},
    {.name = "fold-norms",
     .type = ZONAL__OPTION_FLAG,
     AT(fold_norms),
     .initial = "yes",
     .help = "cuda: as in zonal train"},
    {.name = "probe",
     .type = ZONAL__OPTION_INT,
     AT(probe),
     .initial = "0",
     .least = 0,
     .most = 65536,
     .metavar = "CLASSES",
     .help = "with an online probe of so many classes, as zonal train --probe has; 0: none"},
    {.name = "profile",
     .type = ZONAL__OPTION_FLAG,
     AT(profile),
     .help = "also time every layer and print where the time goes"},
    {.name = "teraflops",
     .type = ZONAL__OPTION_DOUBLE,
     AT(rates.teraflops),
     .initial = "790",
     .least = 1e-6,
     .most = 1e6,
     .help = "cuda: rate in matrix products, for the profile's floors; an H200's in bf16"},
    {.name = "terabytes",
     .type = ZONAL__OPTION_DOUBLE,
     AT(rates.terabytes),
     .initial = "4.2",
     .least = 1e-6,
     .most = 1e6,
     .help = "cuda: rate of the memory per second, likewise"},
    {.name = "torch",
     .type = ZONAL__OPTION_FLAG,
     AT(torch),
     .help = "run the same steps in PyTorch (bench/train_torch.py) and print the ratio"},
    {.name = "json", .type = ZONAL__OPTION_FLAG, AT(json), .help = "print a JSON line for each"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal bench train [--rows NETWORK@SIDE,...] [--device NAME] [options]",
    .description = "Times one step of training: views through the network (ImageNet's stem unless\n"
                   "/small) and a projector 2048-2048-256, loss, backward, AdamW. First on views\n"
                   "that lie on the device, then with the augmentation, from images of noise in\n"
                   "memory: the median over warm windows of steps.\n",
    .argument = NULL,
    .least = 0,
    .most = 0};

/* One line of the table. */
typedef struct row {
    char name[LONGEST_NAME]; /* as given: "resnet18@32/small/v8" */
    int depth, side, channels, small_stem, views;
    zonal__train_bench_result bare, fed; /* fed: with the making of views; NAN: not measured */
} row;

typedef struct session {
    const settings *settings;
    int64_t batch;
    int count;
    row row[MOST_ROWS];
} session;

/* ---- the rows -------------------------------------------------------------------------------- */

/* What follows the side: "/1", "/small", "/v8", each once, in any order. Returns 0 for anything
 * else. */
static int parse_suffixes(const char *text, row *r) {
    while (*text) {
        size_t length = strcspn(text + 1, "/");
        int end = 0;
        if (*text++ != '/') return 0;
        if (r->channels == 3 && length == 1 && *text == '1')
            r->channels = 1;
        else if (!r->small_stem && length == 5 && strncmp(text, "small", length) == 0)
            r->small_stem = 1;
        else if (r->views || sscanf(text, "v%2d%n", &r->views, &end) != 1 ||
                 (size_t)end != length || r->views < 2 || r->views > ZONAL__TRAIN_BENCH_MOST_VIEWS)
            return 0;
        text += length;
    }
    if (!r->views) r->views = 2;
    return 1;
}

static zonal_status parse_row(const char *text, size_t length, row *r) {
    int end = 0;
    *r = (row){.channels = 3};
    if (length < sizeof r->name) {
        memcpy(r->name, text, length);
        if (sscanf(r->name, "resnet%2d@%5d%n", &r->depth, &r->side, &end) == 2 && end > 0 &&
            parse_suffixes(r->name + end, r) && r->side >= 8 && r->side <= 1024 &&
            (r->depth == 18 || r->depth == 34 || r->depth == 50))
            return ZONAL_OK;
    }
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "--rows: \"%.*s\" is not a network and side; write resnet18@64, with /1 "
                      "behind it for grey images, /small for CIFAR's stem, /v8 for 8 views "
                      "(resnet18, 34, 50; sides 8 to 1024; 2 to %d views)",
                      (int)(length < 64 ? length : 64), text, ZONAL__TRAIN_BENCH_MOST_VIEWS);
}

static zonal_status parse_rows(session *e, const char *text) {
    while (1) {
        size_t length = strcspn(text, ",");
        if (e->count == MOST_ROWS)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--rows takes at most %d", MOST_ROWS);
        ZONAL_TRY(parse_row(text, length, &e->row[e->count++]));
        if (text[length] == '\0') return ZONAL_OK;
        text += length + 1;
    }
}

static zonal__train_bench_options bench_options(const session *e, const row *r) {
    const settings *s = e->settings;
    return (zonal__train_bench_options){.depth = r->depth,
                                        .side = r->side,
                                        .channels = r->channels,
                                        .small_stem = r->small_stem,
                                        .views = r->views,
                                        .width = s->width,
                                        .batch = e->batch,
                                        .dtype = s->precision ? ZONAL_DTYPE_BF16 : ZONAL_DTYPE_FP32,
                                        .device = s->device,
                                        .threads = (int)s->threads,
                                        .method = s->method,
                                        .no_graph = !s->graph,
                                        .fold_norms = s->fold_norms,
                                        .probe_classes = (int)s->probe};
}

/* ---- printing -------------------------------------------------------------------------------- */

static double images_per_s(const session *e, double ms) {
    return 1e3 * (double)e->batch / ms;
}

static void print_head(const session *e) {
    const settings *s = e->settings;
    if (s->json) return;
    printf("one step: %lld images x 2 views unless said, %s, AdamW, %s on %s\n\n",
           (long long)e->batch, s->method, dtypes[s->precision], s->device->name);
    printf("%-21s %9s %10s %10s %6s%s\n", "", "ms", "images/s", "with views", "speed",
           zonal__device_is_host(s->device) ? "" : "   device MiB");
}

static void print_row_json(const session *e, const row *r) {
    const settings *s = e->settings;
    zonal__json json;
    zonal__json_line_begin(&json);
    zonal__json_key_text(&json, "row", r->name);
    zonal__json_key_text(&json, "device", s->device->name);
    zonal__json_key_text(&json, "precision", dtypes[s->precision]);
    zonal__json_key_text(&json, "method", s->method);
    zonal__json_key_int(&json, "batch", e->batch);
    zonal__json_key_int(&json, "views", r->views);
    zonal__json_key_double(&json, "width", s->width);
    zonal__json_key_int(&json, "parameters", r->bare.parameters);
    zonal__json_key_double(&json, "ms", r->bare.ms);
    zonal__json_key_double(&json, "least_ms", r->bare.least_ms);
    zonal__json_key_int(&json, "steps", r->bare.steps);
    zonal__json_key_double(&json, "images_per_s", images_per_s(e, r->bare.ms));
    zonal__json_key_double(&json, "with_views_ms", r->fed.ms);
    zonal__json_key_double(&json, "with_views_speed", r->bare.ms / r->fed.ms);
    zonal__json_key_double(&json, "device_mib", r->bare.device_bytes / 1048576);
    zonal__json_key_double(&json, "objective_ms", r->bare.objective.ms);
    zonal__json_key_double(&json, "optimiser_ms", r->bare.optimiser.ms);
    zonal__json_key_double(&json, "loss", r->bare.loss);
    zonal__json_line_end(&json);
}

static void print_row(const session *e, const row *r) {
    if (e->settings->json) {
        print_row_json(e, r);
        return;
    }
    printf("%-21s %9.3f %10.0f", r->name, r->bare.ms, images_per_s(e, r->bare.ms));
    if (isnan(r->fed.ms))
        printf(" %10s %6s", "-", "");
    else
        printf(" %10.3f %4.0f %%", r->fed.ms, 100 * r->bare.ms / r->fed.ms);
    if (!isnan(r->bare.device_bytes)) printf(" %12.0f", r->bare.device_bytes / 1048576);
    putchar('\n');
    fflush(stdout);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static zonal_status profile_row(const session *e, const row *r,
                                const zonal__train_bench_options *options) {
    const settings *s = e->settings;
    const zonal__profile_options o = {.network = zonal__train_bench_network(options),
                                      .device = options->device,
                                      .n = r->views * e->batch,
                                      .side = r->side,
                                      .threads = options->threads};
    /* The floors' rates are a GPU's. */
    const zonal__rates rates =
        zonal__device_is_host(options->device) ? (zonal__rates){0} : s->rates;
    zonal__layer_profile *profile;
    int count;
    ZONAL_TRY(ZONAL_NEW(&profile, ZONAL__MOST_NODES, "the profile"));
    zonal_status status = zonal__profile_layers(&o, profile, &count);
    if (status == ZONAL_OK && s->json)
        zonal__profile_print_json(r->name, profile, count, &rates);
    else if (status == ZONAL_OK)
        zonal__profile_print(&(zonal__step_profile){.title = r->name,
                                                    .ms = r->bare.ms,
                                                    .objective = r->bare.objective,
                                                    .optimiser = r->bare.optimiser},
                             profile, count, &rates);
    zonal__free(profile);
    return status;
}

static zonal_status measure_row(const session *e, row *r) {
    zonal__train_bench_options options = bench_options(e, r);
    r->fed.ms = NAN;
    ZONAL_TRY(zonal__train_bench(&options, &r->bare));
    if (!e->settings->bare) {
        options.with_views = 1;
        ZONAL_TRY(zonal__train_bench(&options, &r->fed));
    }
    print_row(e, r);
    return e->settings->profile ? profile_row(e, r, &options) : ZONAL_OK;
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

/* The row that a line of the script is about. */
static const row *find_row(const session *e, const char *line) {
    char name[LONGEST_NAME];
    zonal__peer_text(line, "row", name, sizeof name);
    for (int i = 0; i < e->count; i++)
        if (strcmp(e->row[i].name, name) == 0) return &e->row[i];
    return NULL;
}

static void print_ratio(void *context, const char *line) {
    const session *e = context;
    const row *r = find_row(e, line);
    double ms = zonal__peer_number(line, "ms"), peak = zonal__peer_number(line, "peak_mib");
    char mode[24];
    if (!r) return;
    zonal__peer_text(line, "mode", mode, sizeof mode);
    if (e->settings->json) {
        printf("{\"row\": \"%s\", \"ms\": %.17g, \"torch\": %.*s}\n", r->name, r->bare.ms,
               (int)strcspn(line, "\n"), line);
    } else if (isnan(ms)) {
        printf("%-21s %9.3f %10s\n", r->name, r->bare.ms, "failed");
    } else {
        printf("%-21s %9.3f %10.3f %6.2f", r->name, r->bare.ms, ms, ms / r->bare.ms);
        if (!isnan(peak)) printf(" %10.0f %10.0f", r->bare.device_bytes / 1048576, peak);
        printf("  %s\n", mode);
    }
    fflush(stdout);
}

static zonal_status compare_with_torch(session *e) {
    const settings *s = e->settings;
    int gpu = !zonal__device_is_host(s->device);
    char rows[MOST_ROWS * LONGEST_NAME] = "", batch[24], width[32], threads[24];
    const char *arguments[] = {
        "--device",  s->device->name, "--rows", rows,          "--batch",
        batch,       "--width",       width,    "--precision", dtypes[s->precision],
        "--threads", threads,         NULL};
    for (int i = 0; i < e->count; i++)
        snprintf(rows + strlen(rows), sizeof rows - strlen(rows), "%s%s", i ? "," : "",
                 e->row[i].name);
    snprintf(batch, sizeof batch, "%lld", (long long)e->batch);
    snprintf(width, sizeof width, "%.17g", s->width);
    snprintf(threads, sizeof threads, "%lld", (long long)s->threads);
    if (!s->json)
        printf("\n%-21s %9s %10s %6s%s\n", "", "zonal ms", "PyTorch ms", "ratio",
               gpu ? "  zonal MiB PyTorch MiB" : "");
    return zonal__peer_run("train_torch.py", arguments, gpu, print_ratio, e);
}

/* ---- the command ----------------------------------------------------------------------------- */

static zonal_status run(const settings *s) {
    int gpu = !zonal__device_is_host(s->device);
    const char *usual = gpu ? "resnet18@32,resnet18@64,resnet18@128/1,resnet18@224,resnet50@224,"
                              "resnet18@32/small,resnet18@64/small,resnet18@64/v8,"
                              "resnet18@64/v16,resnet18@32/small/v8"
                            : "resnet18@64";
    session e = {.settings = s, .batch = s->batch ? s->batch : gpu ? 256 : 64};
    zonal_objective_options objective = ZONAL_OBJECTIVE_OPTIONS_INIT;
    ZONAL_TRY(parse_rows(&e, s->rows ? s->rows : usual));
    ZONAL_TRY(
        zonal_objective_defaults(s->method, &objective)); /* an unknown name, before any work */
    print_head(&e);
    for (int i = 0; i < e.count; i++) ZONAL_TRY(measure_row(&e, &e.row[i]));
    return s->torch ? compare_with_torch(&e) : ZONAL_OK;
}

int zonal__cli_bench_train(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (s.torch && strcmp(s.method, "mmd-heat") != 0)
        return zonal__cli_misused("--torch compares mmd-heat; leave --method out");
    if (zonal__device_open(s.device_name, &s.device) != ZONAL_OK || run(&s) != ZONAL_OK)
        return zonal__cli_failed();
    return ZONAL__EXIT_OK;
}
