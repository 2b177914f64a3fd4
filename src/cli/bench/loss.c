/*
 * zonal bench loss: value and gradient of the losses, warm, and beside PyTorch on request.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/peer.h"
#include "cli/common/cli.h"
#include "cli/common/rows.h"
#include "cli/common/timing.h"
#include "core/json.h"
#include "core/memory.h"
#include "loss/family.h"
#include "loss/options.h"

enum { MOST_BATCHES = 16, MOST_METHODS = 20, MOST_ROWS = MOST_BATCHES * MOST_METHODS };

typedef struct settings {
    int64_t dim, threads;
    double limit, peak;
    const char *batches, *methods;
    const char *device_name;
    const zonal__device *device;
    int precision, growth, torch, json, quiet;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "dim",
     .type = ZONAL__OPTION_INT,
     AT(dim),
     .initial = "256",
     .least = 2,
     .most = 4096,
     .metavar = "D",
     .help = "dimension of the embeddings"},
    {.name = "batch",
     .type = ZONAL__OPTION_STRING,
     AT(batches),
     .metavar = "B,...",
     .help = "rows, one number or several; 256,1024 unless given"},
    {.name = "method",
     .type = ZONAL__OPTION_STRING,
     AT(methods),
     .metavar = "NAME,...",
     .help = "losses; mmd-heat,ksd-heat,mmd-band,mmd-induced,kl-heat,susreg unless given"},
    ZONAL__DEVICE_OPTION(settings, device_name, "cpu",
                         "where to run; on cuda the time of a CUDA graph's replay"),
    {.name = "precision",
     .type = ZONAL__OPTION_WORD,
     AT(precision),
     .words = zonal__precision_words,
     .initial = "fp32",
     .help = "of the arithmetic"},
    ZONAL__THREADS_OPTION(settings, "threads to use; 0: one for each processor"),
    {.name = "growth",
     .type = ZONAL__OPTION_FLAG,
     AT(growth),
     .help = "show how time grows with the batch: 256 to 65536 rows, mmd-band and mmd-heat"},
    {.name = "limit",
     .type = ZONAL__OPTION_DOUBLE,
     AT(limit),
     .initial = "20",
     .least = 0,
     .most = INFINITY,
     .rules = ZONAL__OPTION_OVER,
     .metavar = "SECONDS",
     .help = "skip what would take longer than this for one run"},
    {.name = "peak",
     .type = ZONAL__OPTION_DOUBLE,
     AT(peak),
     .least = 0.001,
     .most = 1e12,
     .metavar = "GFLOPS",
     .help = "the machine's rate in matrix products, to print each loss's share of it"},
    {.name = "torch",
     .type = ZONAL__OPTION_FLAG,
     AT(torch),
     .help = "run the same losses in PyTorch (bench/loss_torch.py) and print the ratio"},
    {.name = "json", .type = ZONAL__OPTION_FLAG, AT(json), .help = "print a JSON line for each"},
    {.name = "quiet", .type = ZONAL__OPTION_FLAG, AT(quiet), .help = "no remarks"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal bench loss [--batch B,...] [--method NAME,...] [options]",
    .description =
        "Times value and gradient of losses: the median over warm runs. GFLOP counts the\n"
        "products of the formula: 4 B^2 d for pairs (kl: 6), 3 B d^2 for moments, 4 B d\n"
        "times the slices for susreg and sigreg.\n",
    .argument = NULL,
    .least = 0,
    .most = 0};

/* One line of the table. */
typedef struct row {
    const char *method, *implementation;
    int64_t batch;
    double ms, least_ms; /* median and least of the runs */
    double gflop;
    double exponent; /* p where time grew as B^p from the batch before; NAN where there is none */
    int runs;
} row;

typedef struct session {
    const settings *settings;
    int batches, methods, rows;
    int64_t batch[MOST_BATCHES];
    char method_text[512]; /* cut into names */
    const char *method[MOST_METHODS];
    row row[MOST_ROWS];
} session;

/* ---- one measurement ------------------------------------------------------------------------- */

typedef struct task {
    zonal_plan *plan;
    const void *x;
    void *gradient;
} task;

static zonal_status execute(void *context, int run) {
    const task *t = context;
    double value;
    zonal_plan_set_step(t->plan, (uint32_t)run);
    return zonal_plan_execute(t->plan, t->x, &value, t->gradient);
}

static double count_gflop(const zonal_loss_options *loss, const zonal_plan_info *info, int64_t b,
                          int64_t d) {
    double pairs = (double)b * (double)b * (double)d;
    if (loss->discrepancy >= ZONAL_DISCREPANCY_SUSREG)
        return 4e-9 * (double)b * (double)d * (double)loss->sliced.slices;
    if (info->implementation == ZONAL_IMPLEMENTATION_MOMENTS)
        return 3e-9 * (double)b * (double)d * (double)d;
    return (loss->discrepancy == ZONAL_DISCREPANCY_KL ? 6e-9 : 4e-9) * pairs;
}

static zonal_status time_loss(const settings *s, const zonal_loss_options *loss, row *r) {
    int64_t n = r->batch, d = s->dim;
    size_t size = loss->precision == ZONAL_PRECISION_DOUBLE ? sizeof(double) : sizeof(float);
    void *x = NULL, *gradient = NULL;
    zonal_plan *plan = NULL;
    zonal_plan_info info = ZONAL_PLAN_INFO_INIT;
    zonal__timing timing = {0};
    zonal_status status;
    ZONAL_TRY_GOTO(status, done, zonal_plan_create(loss, n, d, &plan));
    ZONAL_TRY_GOTO(status, done, zonal_plan_info_get(plan, &info));
    r->gflop = count_gflop(loss, &info, n, d);
    r->implementation = loss->discrepancy >= ZONAL_DISCREPANCY_SUSREG
                            ? "slices"
                            : zonal__implementation_words[info.implementation];
    ZONAL_TRY_GOTO(status, done, zonal__cli_draw(0, n, d, loss->precision, &x));
    if (!zonal__device_is_host(s->device)) {
        zonal__cli_rows rows = {n, d, ZONAL_PRECISION_FP32, x, n};
        double us = 0;
        status = zonal__cli_time_on(plan, s->device, &rows, &us, &r->runs);
        r->ms = r->least_ms = us / 1e3;
        goto done;
    }
    ZONAL_TRY_GOTO(status, done, zonal__alloc(n * d, size, "the gradient", &gradient));
    status = zonal__time_host(execute, &(task){plan, x, gradient}, &timing);
    r->ms = timing.ms;
    r->least_ms = timing.least_ms;
    r->runs = timing.runs;
done:
    zonal_plan_destroy(plan);
    zonal__free(x);
    zonal__free(gradient);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void print_head(const settings *s) {
    if (s->json) return;
    printf("value and gradient, d = %lld, %s on %s\n\n%-12s %7s  %-8s %11s %9s %9s %7s%s\n",
           (long long)s->dim, zonal__precision_words[s->precision], s->device->name, "method", "B",
           "code", "ms", "GFLOP", "GFLOP/s", "growth", s->peak > 0 ? "  peak" : "");
}

static void print_row_json(const settings *s, const row *r) {
    zonal__json json;
    const char *text;
    zonal__json_init(&json, NULL);
    /* An array of one object keeps the object on one line; the brackets are left out below. */
    zonal__json_begin_array(&json);
    zonal__json_begin_object(&json);
    zonal__json_key_text(&json, "method", r->method);
    zonal__json_key_int(&json, "n", r->batch);
    zonal__json_key_int(&json, "d", s->dim);
    zonal__json_key_text(&json, "implementation", r->implementation);
    zonal__json_key_text(&json, "device", s->device->name);
    zonal__json_key_text(&json, "precision", zonal__precision_words[s->precision]);
    zonal__json_key_double(&json, "ms", r->ms);
    zonal__json_key_double(&json, "least_ms", r->least_ms);
    zonal__json_key_int(&json, "runs", r->runs);
    zonal__json_key_double(&json, "gflop", r->gflop);
    zonal__json_key_double(&json, "gflop_per_s", r->gflop / r->ms * 1e3);
    zonal__json_key_double(&json, "growth", r->exponent);
    zonal__json_end_object(&json);
    zonal__json_end_array(&json);
    if (zonal__json_finish(&json, &text) == ZONAL_OK) {
        const char *first = strchr(text, '{'), *last = strrchr(text, '}');
        printf("%.*s\n", (int)(last - first) + 1, first);
    }
    zonal__json_fini(&json);
}

static void print_row(const settings *s, const row *r) {
    double rate = r->gflop / r->ms * 1e3;
    char growth[16] = "";
    if (s->json) {
        print_row_json(s, r);
        return;
    }
    if (!isnan(r->exponent)) snprintf(growth, sizeof growth, "B^%.2f", r->exponent);
    printf("%-12s %7lld  %-8s %11.3f %9.3g %9.3g %7s", r->method, (long long)r->batch,
           r->implementation, r->ms, r->gflop, rate, growth);
    if (s->peak > 0) printf(" %3.0f %%", 100 * rate / s->peak);
    putchar('\n');
    fflush(stdout);
}

/* What the next batch would take, judged by the one before it; 0 when there is none. */
static double predict(const row *before, int64_t batch) {
    double factor;
    if (!before) return 0;
    factor = (double)batch / (double)before->batch;
    if (strcmp(before->implementation, "pairs") == 0 || strcmp(before->implementation, "ref") == 0)
        factor *= factor;
    return before->ms * 1e-3 * factor;
}

static zonal_status measure_method(session *e, const char *method) {
    const settings *s = e->settings;
    zonal_loss_options loss = ZONAL_LOSS_OPTIONS_INIT;
    const row *before = NULL;
    ZONAL_TRY(zonal_loss_defaults(method, &loss));
    loss.precision = (zonal_precision)s->precision;
    memcpy(loss.device, s->device->name, sizeof loss.device);
    loss.threads = s->threads;
    for (int i = 0; i < e->batches; i++) {
        row *r = &e->row[e->rows];
        double seconds = predict(before, e->batch[i]);
        if (seconds > s->limit) {
            if (!s->quiet && !s->json)
                printf("%-12s %7lld  left out: about %.0f s a run (--limit)\n", method,
                       (long long)e->batch[i], seconds);
            continue;
        }
        *r = (row){.method = method, .batch = e->batch[i], .exponent = NAN};
        ZONAL_TRY(time_loss(s, &loss, r));
        if (before && before->batch != r->batch)
            r->exponent = log(r->ms / before->ms) / log((double)r->batch / (double)before->batch);
        if (e->rows == 0) print_head(s); /* not before what cannot be timed is refused */
        print_row(s, r);
        before = r;
        e->rows++;
    }
    return ZONAL_OK;
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

static const row *find_row(const session *e, const char *method, int64_t batch) {
    for (int i = 0; i < e->rows; i++)
        if (e->row[i].batch == batch && strcmp(e->row[i].method, method) == 0) return &e->row[i];
    return NULL;
}

static void print_torch(double ms, double own) {
    if (isnan(ms))
        printf(" %12s %8s", "-", ""); /* did not fit, or was not asked for */
    else
        printf(" %12.3f %8.1f", ms, ms / own);
}

static void print_ratio(void *context, const char *line) {
    const session *e = context;
    char method[32];
    double ms = zonal__peer_number(line, "ms"), compiled = zonal__peer_number(line, "compile_ms");
    double rows = zonal__peer_number(line, "B");
    long long batch = rows >= 1 && rows < 1e15 ? (long long)rows : 0; /* NaN: no such member */
    const row *r;
    zonal__peer_text(line, "method", method, sizeof method);
    r = find_row(e, method, batch);
    if (!r) return;
    if (e->settings->json) {
        printf("{\"method\": \"%s\", \"n\": %lld, \"ms\": %.17g, \"torch\": %.*s}\n", method, batch,
               r->ms, (int)strcspn(line, "\n"), line);
    } else {
        printf("%-12s %7lld %12.4f", method, batch, r->ms);
        print_torch(ms, r->ms);
        if (!zonal__device_is_host(e->settings->device)) print_torch(compiled, r->ms);
        putchar('\n');
    }
    fflush(stdout);
}

static zonal_status compare_with_torch(session *e) {
    int gpu = !zonal__device_is_host(e->settings->device);
    char dim[32], threads[32], batches[512] = "", methods[512] = "", program[4096];
    zonal__peer_program(program, sizeof program);
    const char *arguments[] = {"--dim",
                               dim,
                               "--threads",
                               threads,
                               "--batch",
                               batches,
                               "--method",
                               methods,
                               gpu          ? "--device"
                               : program[0] ? "--zonal"
                                            : NULL,
                               gpu ? e->settings->device->name : program,
                               NULL};
    snprintf(dim, sizeof dim, "%lld", (long long)e->settings->dim);
    snprintf(threads, sizeof threads, "%lld", (long long)e->settings->threads);
    for (int i = 0; i < e->batches; i++)
        snprintf(batches + strlen(batches), sizeof batches - strlen(batches), "%s%lld",
                 i ? "," : "", (long long)e->batch[i]);
    for (int i = 0; i < e->methods; i++)
        snprintf(methods + strlen(methods), sizeof methods - strlen(methods), "%s%s", i ? "," : "",
                 e->method[i]);
    if (!e->settings->json)
        printf("\n%-12s %7s %12s %12s %8s%s\n", "method", "B", "zonal ms", "PyTorch ms", "ratio",
               gpu ? "  compiled ms    ratio" : "");
    return zonal__peer_run("loss_torch.py", arguments, gpu, print_ratio, e);
}

/* ---- the command ----------------------------------------------------------------------------- */

static zonal_status split_methods(session *e, const char *text) {
    zonal_loss_options loss = ZONAL_LOSS_OPTIONS_INIT;
    const zonal__family *family;
    char *rest = e->method_text;
    if (strlen(text) >= sizeof e->method_text)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--method has too many names");
    strcpy(rest, text);
    while (rest) {
        char *comma = strchr(rest, ',');
        if (e->methods == MOST_METHODS)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--method takes at most %d names", MOST_METHODS);
        if (comma) *comma = '\0';
        ZONAL_TRY(zonal_loss_defaults(rest, &loss)); /* an unknown name, before any work */
        family = &zonal__families[loss.kernel.family];
        if (family->given || family->infinite_derivative)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--method %s cannot be timed: %s", rest,
                              family->given ? "it needs a spectrum" : "it has no gradient");
        e->method[e->methods++] = rest;
        rest = comma ? comma + 1 : NULL;
    }
    return ZONAL_OK;
}

static zonal_status run(const settings *s) {
    const char *batches = s->growth ? "256,1024,4096,16384,65536" : "256,1024";
    const char *methods =
        s->growth ? "mmd-band,mmd-heat" : "mmd-heat,ksd-heat,mmd-band,mmd-induced,kl-heat,susreg";
    session e = {.settings = s};
    ZONAL_TRY(zonal__list_int64(s->batches ? s->batches : batches, "--batch", 2, 1 << 24,
                                MOST_BATCHES, e.batch, &e.batches));
    ZONAL_TRY(split_methods(&e, s->methods ? s->methods : methods));
    for (int i = 0; i < e.methods; i++) ZONAL_TRY(measure_method(&e, e.method[i]));
    return s->torch ? compare_with_torch(&e) : ZONAL_OK;
}

int zonal__cli_bench_loss(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (zonal__device_open(s.device_name, &s.device) != ZONAL_OK || run(&s) != ZONAL_OK)
        return zonal__cli_failed();
    return ZONAL__EXIT_OK;
}
