/*
 * zonal bench dist: collectives and losses on the ranks there are, beside the model's answer.
 */
#include "cli/bench/dist.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/common/cli.h"
#include "cli/common/job.h"
#include "cli/common/json_line.h"
#include "cli/common/rows.h"
#include "cli/common/timing.h"
#include "core/memory.h"
#include "loss/options.h"

typedef zonal__dist_bench bench;
typedef zonal__dist_settings settings;

#define AT(field) .target = offsetof(settings, field)
#define POSITIVE  .least = 0, .most = INFINITY, .rules = ZONAL__OPTION_OVER
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
     .initial = "1024,4096",
     .metavar = "B,...",
     .help = "rows of all ranks together"},
    {.name = "method",
     .type = ZONAL__OPTION_STRING,
     AT(methods),
     .initial = "mmd-heat,kl-heat,mmd-band,susreg",
     .metavar = "NAME,...",
     .help = "losses"},
    ZONAL__DEVICE_OPTION(settings, device_name, "cpu", "where to run; cuda: a GPU for each rank"),
    {.name = "precision",
     .type = ZONAL__OPTION_WORD,
     AT(precision),
     .words = zonal__precision_words,
     .initial = "fp32",
     .help = "of the arithmetic"},
    ZONAL__THREADS_OPTION(settings, "threads of each rank; 0: its share of the processors"),
    {.name = "model",
     .type = ZONAL__OPTION_FLAG,
     AT(model),
     .help = "predict 8 to 4096 ranks instead, from times of one device and the speeds below"},
    {.name = "rows",
     .type = ZONAL__OPTION_STRING,
     AT(rows),
     .initial = "64,256,1024",
     .metavar = "B,...",
     .help = "model: rows of each rank"},
    {.name = "times",
     .type = ZONAL__OPTION_STRING,
     AT(times),
     .metavar = "NAME:B:MS,...",
     .help = "model: times of one device that were measured elsewhere (zonal bench loss)"},
    {.name = "node",
     .type = ZONAL__OPTION_INT,
     AT(node),
     .initial = "8",
     .least = 1,
     .most = 1 << 20,
     .metavar = "N",
     .help = "model: ranks of a machine"},
    {.name = "node-gb",
     .type = ZONAL__OPTION_DOUBLE,
     AT(node_gb),
     .initial = "450",
     POSITIVE,
     .metavar = "GB/S",
     .help = "model: a link inside a machine, one way; NVLink 4, by the H200's data sheet"},
    {.name = "net-gb",
     .type = ZONAL__OPTION_DOUBLE,
     AT(net_gb),
     .initial = "50",
     POSITIVE,
     .metavar = "GB/S",
     .help = "model: a link between machines, for each rank; NDR InfiniBand, 400 Gb/s"},
    {.name = "node-us",
     .type = ZONAL__OPTION_DOUBLE,
     AT(node_us),
     .initial = "5",
     POSITIVE,
     .metavar = "US",
     .help = "model: latency inside a machine; an assumption"},
    {.name = "net-us",
     .type = ZONAL__OPTION_DOUBLE,
     AT(net_us),
     .initial = "15",
     POSITIVE,
     .metavar = "US",
     .help = "model: latency between machines; an assumption"},
    {.name = "step-ms",
     .type = ZONAL__OPTION_DOUBLE,
     AT(step_ms),
     .initial = "44.42",
     POSITIVE,
     .metavar = "MS",
     .help = "model: a step of training on one device; ResNet-50 at 224 px on an H200"},
    {.name = "step-rows",
     .type = ZONAL__OPTION_INT,
     AT(step_rows),
     .initial = "256",
     .least = 1,
     .most = 1 << 24,
     .metavar = "B",
     .help = "model: images of that step"},
    {.name = "views",
     .type = ZONAL__OPTION_INT,
     AT(views),
     .initial = "2",
     .least = 1,
     .most = 64,
     .metavar = "V",
     .help = "model: views of an image, each of which has a loss of its own"},
    {.name = "the ranks",
     .type = ZONAL__OPTION_TABLE,
     .target = offsetof(settings, job),
     .table = zonal__job_option},
    {.name = "json", .type = ZONAL__OPTION_FLAG, AT(json), .help = "print a JSON line for each"},
    {.name = "quiet", .type = ZONAL__OPTION_FLAG, AT(quiet), .help = "no remarks"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "mpirun -n N zonal bench dist [--batch B,...] [--method M,...] [options]",
    .description =
        "Times the collective calls of the ranks it is started on, and losses over them:\n"
        "value and gradient, and how much of it is spent in exchange. Beside them stands\n"
        "what a simple model predicts from one rank's time and the link's speed. With\n"
        "--model, and without a launcher, it predicts 8 to 4096 ranks.\n",
    .argument = NULL,
    .least = 0,
    .most = 0};

/* ---- collectives ----------------------------------------------------------------------------- */

typedef enum operation { ALL_REDUCE = 0, ALL_GATHER, SHIFT, BROADCAST, OPERATIONS } operation;
static const char *const operation_name[OPERATIONS] = {"all_reduce", "all_gather", "shift",
                                                       "broadcast"};

enum { MOST_RUNS = 200 };

typedef struct exchange {
    const bench *bench;
    void *a, *b;
    int64_t *bytes; /* [ranks] */
} exchange;

static zonal_status call(const exchange *e, operation which, int64_t bytes) {
    const zonal_communicator *c = e->bench->c;
    switch (which) {
    case ALL_REDUCE:
        return c->all_reduce(c->context, e->a, bytes / 8, ZONAL_REDUCE_DOUBLE, NULL);
    case ALL_GATHER:
        for (int r = 0; r < c->ranks; r++) e->bytes[r] = bytes / c->ranks;
        return c->all_gather(c->context, e->a, e->b, e->bytes, NULL);
    case SHIFT:
        ZONAL_TRY(c->shift_begin(c->context, e->a, bytes, e->b, bytes, NULL));
        return c->shift_end(c->context, NULL);
    default:
        return c->broadcast(c->context, e->a, bytes, 0, NULL);
    }
}

/* Waits for the device where calls only put work on it. */
static zonal_status settle(const bench *b) {
    return b->c && b->c->on_device ? zonal__job_wait(b->job, b->device, NULL) : ZONAL_OK;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How often something is run that takes so long: for about so many seconds, as rank 0 finds. */
static zonal_status agree_runs(const bench *b, double seconds, double in_all, int least,
                               int *runs) {
    const zonal_communicator *host = zonal__job_host(b->job);
    double wanted = fmin(MOST_RUNS, fmax(least, in_all / seconds));
    if (host) ZONAL_TRY(host->broadcast(host->context, &wanted, sizeof wanted, 0, NULL));
    *runs = (int)wanted;
    return ZONAL_OK;
}

/* Ranks begin together, as where a loss has just computed: in a row of calls, over TCP, what is to
 * be sent next waits behind what is still under way. */
static zonal_status call_once(const exchange *e, operation which, int64_t bytes, double *seconds) {
    ZONAL_TRY(zonal__job_all(e->bench->job, ZONAL_OK));
    double begin = zonal__now();
    ZONAL_TRY(call(e, which, bytes));
    ZONAL_TRY(settle(e->bench));
    *seconds = zonal__now() - begin;
    return ZONAL_OK;
}

/* Microseconds of one call: the median of many. */
static zonal_status time_call(const exchange *e, operation which, int64_t bytes, double *us) {
    double times[MOST_RUNS];
    int runs;
    ZONAL_TRY(call_once(e, which, bytes, &times[0])); /* the first warms up */
    ZONAL_TRY(call_once(e, which, bytes, &times[0]));
    ZONAL_TRY(agree_runs(e->bench, times[0], 0.2, 3, &runs));
    for (int i = 0; i < runs; i++) ZONAL_TRY(call_once(e, which, bytes, &times[i]));
    qsort(times, (size_t)runs, sizeof *times, by_size);
    *us = 1e6 * times[runs / 2];
    return ZONAL_OK;
}

static void print_call(const bench *b, operation which, int64_t bytes, double us) {
    zonal__json json;
    double gb = (double)bytes / us * 1e-3;
    if (zonal__job_rank(b->job) > 0) return;
    if (!b->settings->json) {
        printf("%-12s %10lld %12.1f %9.3f\n", operation_name[which], (long long)bytes, us, gb);
        return;
    }
    zonal__json_line_begin(&json);
    zonal__json_key_text(&json, "collective", operation_name[which]);
    zonal__json_key_int(&json, "ranks", b->c->ranks);
    zonal__json_key_text(&json, "transport",
                         b->c->on_device ? "nccl" : zonal__job_transport(b->job));
    zonal__json_key_int(&json, "bytes", bytes);
    zonal__json_key_double(&json, "us", us);
    zonal__json_key_double(&json, "gb_per_s", gb);
    zonal__json_line_end(&json);
}

/* The link is what the ring sees of it: its shifts. */
static zonal_status measure_calls(const exchange *e, zonal__link *link) {
    static const int64_t sizes[ZONAL__LINK_POINTS] = {8,       4096,    1 << 16, 1 << 18,
                                                      1 << 19, 1 << 20, 1 << 22};
    double us = 0;
    for (int which = 0; which < OPERATIONS; which++)
        for (int i = 0; i < ZONAL__LINK_POINTS; i++) {
            ZONAL_TRY(time_call(e, (operation)which, sizes[i], &us));
            print_call(e->bench, (operation)which, sizes[i], us);
            if (which != SHIFT) continue;
            link->point[link->points].bytes = (double)sizes[i];
            link->point[link->points++].seconds = 1e-6 * us;
        }
    return ZONAL_OK;
}

static zonal_status measure_link(const bench *b, zonal__link *link) {
    const zonal__device *device = b->c->on_device ? b->device : zonal__device_cpu();
    exchange e = {.bench = b};
    zonal_status status = zonal__device_alloc(device, 1 << 22, "a block", &e.a);
    if (status == ZONAL_OK) status = zonal__device_alloc(device, 1 << 22, "a block", &e.b);
    if (status == ZONAL_OK) status = ZONAL_NEW(&e.bytes, b->c->ranks, "sizes");
    status = zonal__job_all(b->job, status);
    if (!b->settings->json && zonal__job_rank(b->job) == 0)
        printf("%-12s %10s %12s %9s\n", "call", "bytes", "us", "GB/s");
    if (status == ZONAL_OK) status = measure_calls(&e, link);
    zonal__device_free(device, e.a);
    zonal__device_free(device, e.b);
    zonal__free(e.bytes);
    return status;
}

/* ---- a communicator that counts its time ----------------------------------------------------- */

typedef struct timed {
    zonal_communicator outer;
    const zonal_communicator *inner;
    double seconds;
} timed;

static zonal_status count(timed *m, double begin, zonal_status status) {
    m->seconds += zonal__now() - begin;
    return status;
}

static zonal_status all_reduce(void *context, void *number, int64_t n, zonal_reduce type,
                               void *stream) {
    timed *m = context;
    double begin = zonal__now();
    return count(m, begin, m->inner->all_reduce(m->inner->context, number, n, type, stream));
}

static zonal_status all_gather(void *context, const void *mine, void *all, const int64_t *bytes,
                               void *stream) {
    timed *m = context;
    double begin = zonal__now();
    return count(m, begin, m->inner->all_gather(m->inner->context, mine, all, bytes, stream));
}

static zonal_status shift_begin(void *context, const void *send, int64_t send_bytes, void *receive,
                                int64_t receive_bytes, void *stream) {
    timed *m = context;
    double begin = zonal__now();
    return count(
        m, begin,
        m->inner->shift_begin(m->inner->context, send, send_bytes, receive, receive_bytes, stream));
}

static zonal_status shift_end(void *context, void *stream) {
    timed *m = context;
    double begin = zonal__now();
    return count(m, begin, m->inner->shift_end(m->inner->context, stream));
}

static zonal_status broadcast(void *context, void *block, int64_t bytes, int root, void *stream) {
    timed *m = context;
    double begin = zonal__now();
    return count(m, begin, m->inner->broadcast(m->inner->context, block, bytes, root, stream));
}

static void open_timed(const zonal_communicator *inner, timed *m) {
    *m = (timed){.outer = *inner, .inner = inner};
    m->outer.size = sizeof m->outer;
    m->outer.context = m;
    m->outer.all_reduce = all_reduce;
    m->outer.all_gather = all_gather;
    m->outer.shift_begin = shift_begin;
    m->outer.shift_end = shift_end;
    m->outer.broadcast = broadcast;
}

/* ---- losses ---------------------------------------------------------------------------------- */

zonal_status zonal__dist_loss(const bench *b, const char *method, zonal_loss_options *loss) {
    *loss = (zonal_loss_options)ZONAL_LOSS_OPTIONS_INIT;
    ZONAL_TRY(zonal_loss_defaults(method, loss));
    loss->precision = (zonal_precision)b->settings->precision;
    loss->threads = zonal__job_threads(b->job, b->settings->threads);
    memcpy(loss->device, b->device->name, sizeof loss->device);
    return ZONAL_OK;
}

zonal_status zonal__dist_cost(const bench *b, const zonal_loss_options *loss, int64_t rows,
                              zonal__cost *cost) {
    zonal_plan_info info = ZONAL_PLAN_INFO_INIT;
    int kl = loss->discrepancy == ZONAL_DISCREPANCY_KL;
    ZONAL_TRY(zonal_plan_describe(loss, rows, b->settings->dim, &info));
    *cost = (zonal__cost){.path = loss->discrepancy >= ZONAL_DISCREPANCY_SUSREG ? ZONAL__PATH_SLICES
                                  : info.implementation == ZONAL_IMPLEMENTATION_MOMENTS
                                      ? ZONAL__PATH_MOMENTS
                                      : ZONAL__PATH_PAIRS,
                          .rounds = kl ? 2 : 1,
                          .slices = loss->sliced.slices,
                          .knots = loss->sliced.knots,
                          .foreign = 1};
    if (loss->sliced.low == -loss->sliced.high)
        cost->knots = (cost->knots + 1) / 2; /* mirrored ones are one */
    /* The host looks at an own pair once for both of its rows, and at one of two ranks once for
     * each: 4 products instead of 3, of KL 6 instead of 4. */
    if (zonal__device_is_host(b->device)) cost->foreign = kl ? 1.5 : 4. / 3;
    return ZONAL_OK;
}

/* What a plan works on, where its device wants it. */
typedef struct task {
    const bench *bench;
    zonal_plan *plan;
    const zonal__device *device;
    void *x, *gradient, *value;
} task;

static zonal_status execute(const task *t, int step) {
    zonal_plan_set_step(t->plan, (uint32_t)step);
    ZONAL_TRY(zonal_plan_execute(t->plan, t->x, t->value, t->gradient));
    return zonal_plan_status(t->plan); /* waits for a device */
}

static zonal_status prepare(task *t, int64_t first, int64_t rows, zonal_precision precision) {
    size_t size = precision == ZONAL_PRECISION_DOUBLE ? sizeof(double) : sizeof(float);
    size_t bytes = (size_t)(rows * t->bench->settings->dim) * size;
    void *x = NULL;
    zonal_status status = zonal__device_alloc(t->device, bytes, "the rows", &t->x);
    if (status == ZONAL_OK)
        status = zonal__device_alloc(t->device, bytes, "the gradient", &t->gradient);
    if (status == ZONAL_OK)
        status = zonal__device_alloc(t->device, sizeof(double), "the value", &t->value);
    if (status == ZONAL_OK)
        status = zonal__cli_draw(first, rows, t->bench->settings->dim, precision, &x);
    if (status == ZONAL_OK) status = zonal__device_write(t->device, t->x, x, bytes);
    zonal__free(x);
    return status;
}

/* All ranks run as often as rank 0 finds right: about half a second, and at least three times. The
 * least time counts: among ranks that wait for each other, one that is held up holds up all. */
/* Medians, as of the calls: the best run over a slow link is one whose first bytes found it idle.
 */
static zonal_status repeat(const task *t, timed *m, double *seconds, double *exchanged) {
    double begin = zonal__now(), whole[MOST_RUNS], spent[MOST_RUNS];
    int runs;
    ZONAL_TRY(execute(t, 0));
    ZONAL_TRY(agree_runs(t->bench, zonal__now() - begin, 0.5, 3, &runs));
    for (int i = 0; i < runs; i++) {
        m->seconds = 0;
        begin = zonal__now();
        ZONAL_TRY(execute(t, i + 1));
        whole[i] = zonal__now() - begin;
        spent[i] = m->seconds;
    }
    qsort(whole, (size_t)runs, sizeof *whole, by_size);
    qsort(spent, (size_t)runs, sizeof *spent, by_size);
    *seconds = whole[runs / 2];
    *exchanged = spent[runs / 2];
    return ZONAL_OK;
}

zonal_status zonal__dist_time(const bench *b, const zonal_loss_options *loss, int64_t first,
                              int64_t rows, double *seconds, double *exchanged) {
    task t = {.bench = b, .device = b->device};
    zonal_loss_options metered = *loss;
    double spent = 0;
    timed m = {.seconds = 0};
    zonal_status status = prepare(&t, first, rows, loss->precision);
    if (b->c) status = zonal__job_all(b->job, status);
    if (loss->communicator && !loss->communicator->on_device) {
        open_timed(loss->communicator, &m);
        metered.communicator = &m.outer;
    }
    if (status == ZONAL_OK) status = zonal_plan_create(&metered, rows, b->settings->dim, &t.plan);
    if (status == ZONAL_OK) status = repeat(&t, &m, seconds, &spent);
    if (exchanged) *exchanged = m.inner || !loss->communicator ? spent : NAN;
    zonal_plan_destroy(t.plan);
    zonal__device_free(t.device, t.x);
    zonal__device_free(t.device, t.gradient);
    zonal__device_free(t.device, t.value);
    return status;
}

typedef struct row {
    const char *method;
    int64_t batch, rows;              /* of all, and of this rank */
    double seconds, exchanged, alone; /* alone: this rank's rows by themselves */
    double predicted;
} row;

static void print_row(const bench *b, const row *r) {
    zonal__json json;
    int ranks = zonal__job_count(b->job);
    if (zonal__job_rank(b->job) > 0) return;
    if (!b->settings->json) {
        printf("%-12s %8lld %11.3f %11.3f %6.1f %% %11.3f %11.3f %7.2f\n", r->method,
               (long long)r->batch, 1e3 * r->seconds, 1e3 * r->exchanged,
               100 * r->exchanged / r->seconds, 1e3 * r->alone, 1e3 * r->predicted,
               r->seconds / r->predicted);
        return;
    }
    zonal__json_line_begin(&json);
    zonal__json_key_text(&json, "method", r->method);
    zonal__json_key_int(&json, "n", r->batch);
    zonal__json_key_int(&json, "d", b->settings->dim);
    zonal__json_key_int(&json, "ranks", ranks);
    zonal__json_key_text(&json, "transport", zonal__job_transport(b->job));
    zonal__json_key_text(&json, "device", b->device->name);
    zonal__json_key_double(&json, "ms", 1e3 * r->seconds);
    zonal__json_key_double(&json, "exchange_ms", 1e3 * r->exchanged);
    zonal__json_key_double(&json, "alone_ms", 1e3 * r->alone);
    zonal__json_key_double(&json, "model_ms", 1e3 * r->predicted);
    zonal__json_line_end(&json);
}

/* Every rank times its own rows alone while the others do so, as they share processors when they
 * work together too. */
static zonal_status measure_loss(const bench *b, const char *method, int64_t batch,
                                 const zonal__link *link) {
    int ranks = zonal__job_count(b->job);
    zonal_loss_options loss;
    zonal__cost cost;
    row r = {.method = method, .batch = batch};
    int64_t first;
    zonal__job_share(batch, ranks, zonal__job_rank(b->job), &first, &r.rows);
    ZONAL_TRY(zonal__dist_loss(b, method, &loss));
    ZONAL_TRY(zonal__dist_cost(b, &loss, batch, &cost));
    if (cost.path == ZONAL__PATH_MOMENTS) loss.implementation = ZONAL_IMPLEMENTATION_MOMENTS;
    ZONAL_TRY(zonal__dist_time(b, &loss, first, r.rows, &r.alone, NULL));
    loss.communicator = b->c;
    ZONAL_TRY(zonal__dist_time(b, &loss, first, r.rows, &r.seconds, &r.exchanged));
    cost.points = 1;
    cost.point[0].rows = r.rows;
    cost.point[0].seconds = r.alone;
    r.predicted =
        zonal__predict(&cost, ranks, r.rows, b->settings->dim, link, b->c && b->c->on_device)
            .seconds;
    print_row(b, &r);
    return ZONAL_OK;
}

static zonal_status measure(const bench *b) {
    const settings *s = b->settings;
    int64_t batch[ZONAL__DIST_BATCHES];
    zonal__link link = {.bandwidth = INFINITY};
    int batches, speaks = zonal__job_rank(b->job) == 0 && !s->json;
    ZONAL_TRY(zonal__list_int64(s->batches, "--batch", 4 * (int64_t)zonal__job_count(b->job),
                                1 << 24, ZONAL__DIST_BATCHES, batch, &batches));
    if (speaks)
        printf("%d rank%s over %s, %s, d = %lld, %s\n\n", zonal__job_count(b->job),
               zonal__text_plural(zonal__job_count(b->job)), zonal__job_transport(b->job),
               b->device->name, (long long)s->dim, zonal__precision_words[s->precision]);
    if (b->c) ZONAL_TRY(measure_link(b, &link));
    if (speaks)
        printf("%s%-12s %8s %11s %11s %8s %11s %11s %7s\n", b->c ? "\n" : "", "loss", "B", "ms",
               "exchange ms", "share", "alone ms", "model ms", "ratio");
    for (int m = 0; m < b->methods; m++)
        for (int i = 0; i < batches; i++) ZONAL_TRY(measure_loss(b, b->method[m], batch[i], &link));
    return ZONAL_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static zonal_status split_methods(bench *b, const char *text) {
    zonal_loss_options loss = ZONAL_LOSS_OPTIONS_INIT;
    char *rest = b->method_text;
    if (strlen(text) >= sizeof b->method_text)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--method has too many names");
    strcpy(rest, text);
    while (rest) {
        char *comma = strchr(rest, ',');
        if (b->methods == ZONAL__DIST_METHODS)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--method takes at most %d names",
                              ZONAL__DIST_METHODS);
        if (comma) *comma = '\0';
        ZONAL_TRY(zonal_loss_defaults(rest, &loss)); /* an unknown name, before any work */
        b->method[b->methods++] = rest;
        rest = comma ? comma + 1 : NULL;
    }
    return ZONAL_OK;
}

static zonal_status begin(bench *b) {
    char name[ZONAL_DEVICE_NAME];
    ZONAL_TRY(split_methods(b, b->settings->methods));
    ZONAL_TRY(zonal__job_device_name(b->job, b->settings->device_name, name));
    ZONAL_TRY(zonal__device_open(name, &b->device));
    if (b->settings->model && zonal__job_count(b->job) > 1)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--model predicts from one process; start it without a "
                                          "launcher");
    return ZONAL_OK;
}

static zonal_status run(bench *b) {
    ZONAL_TRY(zonal__job_all(b->job, begin(b)));
    if (b->settings->model) return zonal__dist_look_ahead(b);
    ZONAL_TRY(zonal__job_on(b->job, b->device, &b->c));
    return zonal__job_all(b->job, measure(b));
}

int zonal__cli_bench_dist(int argc, char **argv) {
    settings s;
    bench b = {.settings = &s};
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (zonal__job_open(&s.job, &b.job) != ZONAL_OK) return zonal__cli_failed();
    return zonal__cli_end_job(b.job, run(&b));
}
