/*
 * zonal variance: how noisy the sliced loss is beside its exact limit (the paper's Figure 1).
 *
 * For uniform batches of B rows, SUSReg over k random directions is compared with the loss that it
 * tends to as k grows, mmd-induced:
 *
 *     total        variance of SUSReg, batch and directions drawn anew for each replicate
 *     projection   variance of SUSReg over the directions alone, one batch kept: the noise that is
 *                  added to every training step, and that the exact loss does not have
 *     exact        variance of mmd-induced over batches; in closed form, since the harmonics of
 *                  different degree or pair are uncorrelated,
 *                      2 (B-1)/B^3 sum over l >= 1 of b_l^2/N_l,   b_l = a_l/(1 - a_0)
 *
 * The counts k of one replicate are nested: directions 1 to 16 serve for k = 16, the same and 16
 * more for k = 32. Each variance is right by itself, at half the price.
 */
#include <math.h>
#include <stdio.h>

#include "cli/common/cli.h"
#include "cli/common/progress.h"
#include "core/file.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/random.h"
#include "report/svg.h"
#include "zonal/loss.h"

enum { MOST_BATCHES = 8, MOST_COUNTS = 24 };

typedef struct settings {
    int64_t dim, replicates, seed, knots, threads;
    const char *batches, *slices, *plot, *plot_batch;
    zonal__scale scale;
    int json, csv, quiet;
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
     .initial = "256",
     .metavar = "B,...",
     .help = "rows of a batch, one number or several"},
    {.name = "slices",
     .type = ZONAL__OPTION_STRING,
     AT(slices),
     .initial = "16,32,64,128,256,512,1024,2048,4096",
     .metavar = "K,...",
     .help = "numbers of random directions, ascending"},
    {.name = "replicates",
     .type = ZONAL__OPTION_INT,
     AT(replicates),
     .initial = "200",
     .least = 2,
     .most = 1000000,
     .help = "draws behind each variance"},
    {.name = "scale",
     .type = ZONAL__OPTION_SCALE,
     AT(scale),
     .initial = "d",
     .least = 0,
     .most = INFINITY,
     .rules = ZONAL__OPTION_OVER,
     .metavar = "NUMBER|d",
     .help = "s^2"},
    {.name = "knots",
     .type = ZONAL__OPTION_INT,
     AT(knots),
     .initial = "17",
     .least = 2,
     .most = 4096,
     .help = "points of SUSReg's quadrature"},
    ZONAL__SEED_OPTION(settings, "seed of batches and directions"),
    ZONAL__THREADS_OPTION(settings, "threads to use; 0: one for each processor"),
    {.name = "plot",
     .type = ZONAL__OPTION_STRING,
     AT(plot),
     .metavar = "FILE.svg",
     .help = "draw the variance against the number of directions"},
    {.name = "plot-batch",
     .type = ZONAL__OPTION_STRING,
     AT(plot_batch),
     .metavar = "FILE.svg",
     .help = "draw it against the batch; --batch must have several"},
    {.name = "csv", .type = ZONAL__OPTION_FLAG, AT(csv), .help = "print CSV"},
    {.name = "json", .type = ZONAL__OPTION_FLAG, AT(json), .help = "print JSON"},
    {.name = "quiet", .type = ZONAL__OPTION_FLAG, AT(quiet), .help = "no progress bar"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal variance [--dim D] [--batch B,...] [--plot FILE.svg] [options]",
    .description =
        "Measures the noise of the sliced loss SUSReg on uniform batches, against the\n"
        "number of its random directions and beside its exact limit, mmd-induced: the\n"
        "paper's Figure 1. \"total\" draws batch and directions anew each time,\n"
        "\"projection\" the directions alone, as a training step sees it; the exact loss\n"
        "has no projection noise at all.\n",
    .argument = "no argument",
    .least = 0,
    .most = 0};

/* ---- running mean and variance (Welford) ----------------------------------------------------- */

typedef struct moments {
    int64_t count;
    double mean, sum; /* sum of squared deviations from the mean */
} moments;

static void add(moments *m, double value) {
    double before = value - m->mean;
    m->count++;
    m->mean += before / (double)m->count;
    m->sum += before * (value - m->mean);
}

static double variance(const moments *m) {
    return m->sum / (double)(m->count - 1);
}

/* ---- the experiment -------------------------------------------------------------------------- */

typedef struct batch_result {
    int64_t rows;
    double closed_form;
    moments exact, total[MOST_COUNTS], projection[MOST_COUNTS];
} batch_result;

typedef struct experiment {
    const settings *settings;
    double scale;
    int batches, counts;
    int64_t slices[MOST_COUNTS]; /* ascending */
    batch_result batch[MOST_BATCHES];
    zonal__progress progress;
    int64_t done;
} experiment;

/* The plans for one batch size: the exact loss, and SUSReg over the directions that each count has
 * beyond the one before. */
typedef struct bench {
    int64_t rows, dim;
    zonal_plan *exact, *added[MOST_COUNTS];
    float *fresh, *kept; /* [rows][dim] */
    double *row;         /* [dim] */
} bench;

static void bench_fini(bench *b) {
    zonal_plan_destroy(b->exact);
    for (int k = 0; k < MOST_COUNTS; k++) zonal_plan_destroy(b->added[k]);
    zonal__free(b->fresh);
    zonal__free(b->kept);
    zonal__free(b->row);
}

/* To be undone by bench_fini, also after a failure. */
static zonal_status bench_init(bench *b, const experiment *e, int64_t rows) {
    const settings *s = e->settings;
    zonal_loss_options loss = ZONAL_LOSS_OPTIONS_INIT;
    *b = (bench){.rows = rows, .dim = s->dim};
    ZONAL_TRY(ZONAL_NEW(&b->fresh, rows * s->dim, "a batch"));
    ZONAL_TRY(ZONAL_NEW(&b->kept, rows * s->dim, "a batch"));
    ZONAL_TRY(ZONAL_NEW(&b->row, s->dim, "a row"));
    ZONAL_TRY(zonal_loss_defaults("mmd-induced", &loss));
    loss.kernel.parameter = (zonal_number){e->scale, 0};
    loss.threads = s->threads;
    ZONAL_TRY(zonal_plan_create(&loss, rows, s->dim, &b->exact));
    ZONAL_TRY(zonal_loss_defaults("susreg", &loss));
    loss.kernel.parameter = (zonal_number){e->scale, 0};
    loss.threads = s->threads;
    loss.sliced.knots = s->knots;
    loss.sliced.seed = (uint64_t)s->seed;
    for (int k = 0; k < e->counts; k++) {
        loss.sliced.slices = e->slices[k] - (k ? e->slices[k - 1] : 0);
        ZONAL_TRY(zonal_plan_create(&loss, rows, s->dim, &b->added[k]));
    }
    return ZONAL_OK;
}

/* Batch sizes draw from places of their own, so that they are independent. */
static void draw_batch(const bench *b, const experiment *e, int index, uint32_t replicate,
                       float *out) {
    const zonal__random random = {
        .seed = (uint64_t)e->settings->seed, .stream = ZONAL__STREAM_UNIFORM, .step = replicate};
    for (int64_t i = 0; i < b->rows; i++) {
        zonal__random_direction(&random, (uint64_t)index << 32 | (uint64_t)i, b->dim, b->row);
        for (int64_t k = 0; k < b->dim; k++) out[i * b->dim + k] = (float)b->row[k];
    }
}

/* Measures one batch with one set of directions, for all counts. */
static zonal_status measure(bench *b, experiment *e, const float *x, uint32_t draw, moments *out) {
    double sum = 0, value;
    for (int k = 0; k < e->counts; k++) {
        int64_t added = e->slices[k] - (k ? e->slices[k - 1] : 0);
        zonal_plan_set_step(b->added[k], draw * (uint32_t)e->counts + (uint32_t)k);
        ZONAL_TRY(zonal_plan_execute(b->added[k], x, &value, NULL));
        sum += value * (double)added;
        add(&out[k], sum / (double)e->slices[k]);
        e->done += added * b->rows;
        zonal__progress_update(&e->progress, e->done);
    }
    return ZONAL_OK;
}

static zonal_status replicate(bench *b, experiment *e, int index) {
    batch_result *result = &e->batch[index];
    int64_t replicates = e->settings->replicates;
    double value;
    draw_batch(b, e, index, (uint32_t)replicates, b->kept);
    for (int64_t i = 0; i < replicates; i++) {
        draw_batch(b, e, index, (uint32_t)i, b->fresh);
        ZONAL_TRY(zonal_plan_execute(b->exact, b->fresh, &value, NULL));
        add(&result->exact, value);
        /* The same directions serve both measurements, which are read one by one. */
        ZONAL_TRY(measure(b, e, b->fresh, (uint32_t)i, result->total));
        ZONAL_TRY(measure(b, e, b->kept, (uint32_t)i, result->projection));
    }
    return ZONAL_OK;
}

static zonal_status closed_form(const experiment *e, int64_t rows, double *out) {
    const zonal_kernel_spec spec = {.family = ZONAL_FAMILY_INDUCED, .parameter = {e->scale, 0}};
    zonal_kernel_constants constants = ZONAL_KERNEL_CONSTANTS_INIT;
    zonal_kernel *kernel;
    double b = (double)rows, sum = 0;
    ZONAL_TRY(zonal_kernel_create(&spec, e->settings->dim, &kernel));
    ZONAL_TRY(zonal_kernel_constants_get(kernel, &constants));
    for (int l = 1; l < constants.degrees; l++) {
        double share = zonal_kernel_weight(kernel, l) / constants.mmd_norm;
        sum += share * share * exp(-zonal_kernel_log_multiplicity(kernel, l));
    }
    zonal_kernel_destroy(kernel);
    *out = 2 * (b - 1) / (b * b * b) * sum;
    return ZONAL_OK;
}

static zonal_status run_batch(experiment *e, int index) {
    bench b;
    zonal_status status;
    ZONAL_TRY(closed_form(e, e->batch[index].rows, &e->batch[index].closed_form));
    status = bench_init(&b, e, e->batch[index].rows);
    if (status == ZONAL_OK) status = replicate(&b, e, index);
    bench_fini(&b);
    return status;
}

static zonal_status run_all(experiment *e) {
    zonal_status status = ZONAL_OK;
    double total = 0, most = 9e18; /* what 64 bits hold; the largest options would take ages */
    for (int i = 0; i < e->batches; i++)
        total += 2. * (double)e->settings->replicates * (double)e->slices[e->counts - 1] *
                 (double)e->batch[i].rows;
    zonal__progress_begin(&e->progress, "measuring", (int64_t)fmin(total, most),
                          e->settings->quiet);
    for (int i = 0; i < e->batches && status == ZONAL_OK; i++) status = run_batch(e, i);
    zonal__progress_end(&e->progress);
    return status;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_text(const experiment *e) {
    double scatter = sqrt(2. / (double)(e->settings->replicates - 1));
    printf("Variance of the loss over uniform batches, d = %lld, s^2 = %.8g; %lld replicates,\n"
           "so each measured variance is uncertain by %.0f %%\n",
           (long long)e->settings->dim, e->scale, (long long)e->settings->replicates,
           100 * scatter);
    for (int i = 0; i < e->batches; i++) {
        const batch_result *b = &e->batch[i];
        double exact = b->closed_form;
        printf("\nB = %lld\n"
               "  exact (mmd-induced)  %.3g measured, %.3g in closed form\n"
               "  susreg      slices         total   x exact    projection   x exact\n",
               (long long)b->rows, variance(&b->exact), exact);
        for (int k = 0; k < e->counts; k++)
            printf("%20lld %13.3g %9.3g %13.3g %9.3g\n", (long long)e->slices[k],
                   variance(&b->total[k]), variance(&b->total[k]) / exact,
                   variance(&b->projection[k]), variance(&b->projection[k]) / exact);
    }
}

static void print_csv(const experiment *e) {
    printf("batch,slices,total,projection,exact,exact_closed_form\n");
    for (int i = 0; i < e->batches; i++)
        for (int k = 0; k < e->counts; k++)
            printf("%lld,%lld,%.17g,%.17g,%.17g,%.17g\n", (long long)e->batch[i].rows,
                   (long long)e->slices[k], variance(&e->batch[i].total[k]),
                   variance(&e->batch[i].projection[k]), variance(&e->batch[i].exact),
                   e->batch[i].closed_form);
}

static void put_batch(zonal__json *json, const experiment *e, const batch_result *b) {
    zonal__json_begin_object(json);
    zonal__json_key_int(json, "batch", b->rows);
    zonal__json_key_double(json, "exact_mean", b->exact.mean);
    zonal__json_key_double(json, "exact_variance", variance(&b->exact));
    zonal__json_key_double(json, "exact_closed_form", b->closed_form);
    zonal__json_key(json, "susreg");
    zonal__json_begin_array(json);
    for (int k = 0; k < e->counts; k++) {
        zonal__json_begin_object(json);
        zonal__json_key_int(json, "slices", e->slices[k]);
        zonal__json_key_double(json, "mean", b->total[k].mean);
        zonal__json_key_double(json, "variance", variance(&b->total[k]));
        zonal__json_key_double(json, "projection_variance", variance(&b->projection[k]));
        zonal__json_end_object(json);
    }
    zonal__json_end_array(json);
    zonal__json_end_object(json);
}

static zonal_status print_json(const experiment *e) {
    zonal__json json;
    zonal_status status;
    const char *text;
    zonal__json_init(&json, NULL);
    zonal__json_begin_object(&json);
    zonal__json_key_int(&json, "d", e->settings->dim);
    zonal__json_key_double(&json, "scale", e->scale);
    zonal__json_key_int(&json, "replicates", e->settings->replicates);
    zonal__json_key_int(&json, "knots", e->settings->knots);
    zonal__json_key_int(&json, "seed", e->settings->seed);
    zonal__json_key(&json, "batches");
    zonal__json_begin_array(&json);
    for (int i = 0; i < e->batches; i++) put_batch(&json, e, &e->batch[i]);
    zonal__json_end_array(&json);
    zonal__json_end_object(&json);
    status = zonal__json_finish(&json, &text);
    if (status == ZONAL_OK) fputs(text, stdout);
    zonal__json_fini(&json);
    return status;
}

/* Dashed SUSReg and solid exact, a colour for each batch size, as in the paper. Both are drawn over
 * fresh batches (the column "total"): the exact loss has no projection variance to compare with. */
static zonal_status draw(const experiment *e) {
    zonal__svg_series series[2 * MOST_BATCHES];
    char names[2 * MOST_BATCHES][40], subtitle[120];
    double x[MOST_COUNTS], y[2 * MOST_BATCHES][MOST_COUNTS];
    const zonal__svg_chart chart = {.title = "Variance of the loss over uniform batches",
                                    .subtitle = subtitle,
                                    .x_label = "random directions",
                                    .y_label = "total variance",
                                    .x_log = 1,
                                    .y_log = 1,
                                    .series = series,
                                    .series_count = 2 * e->batches};
    snprintf(
        subtitle, sizeof subtitle,
        "SUSReg, batch and directions drawn anew (dashed), and its exact limit (solid), d = %lld",
        (long long)e->settings->dim);
    for (int k = 0; k < e->counts; k++) x[k] = (double)e->slices[k];
    for (int i = 0; i < e->batches; i++) {
        const batch_result *b = &e->batch[i];
        for (int k = 0; k < e->counts; k++) {
            y[2 * i][k] = variance(&b->total[k]);
            y[2 * i + 1][k] = variance(&b->exact);
        }
        snprintf(names[2 * i], sizeof names[0], "SUSReg, B = %lld", (long long)b->rows);
        snprintf(names[2 * i + 1], sizeof names[0], "exact, B = %lld", (long long)b->rows);
        for (int n = 2 * i; n < 2 * i + 2; n++)
            series[n] = (zonal__svg_series){.name = names[n],
                                            .count = e->counts,
                                            .x = x,
                                            .y = y[n],
                                            .dashed = n == 2 * i,
                                            .marks = n == 2 * i,
                                            .colour = 1 + i % 7};
    }
    return zonal__svg_write(e->settings->plot, &chart);
}

/* The same against the batch: solid the exact loss, in closed form; dashed SUSReg, a line for each
 * number of directions. */
static zonal_status draw_batches(const experiment *e) {
    zonal__svg_series series[MOST_COUNTS];
    char names[MOST_COUNTS][40], subtitle[120];
    double x[MOST_BATCHES], y[MOST_COUNTS][MOST_BATCHES];
    const int drawn = e->counts < MOST_COUNTS ? e->counts : MOST_COUNTS - 1;
    const zonal__svg_chart chart = {.title = "Variance of the loss over uniform batches",
                                    .subtitle = subtitle,
                                    .x_label = "rows of a batch",
                                    .y_label = "total variance",
                                    .x_log = 1,
                                    .y_log = 1,
                                    .series = series,
                                    .series_count = drawn + 1};
    snprintf(subtitle, sizeof subtitle,
             "SUSReg by its number of directions (dashed), and its exact limit (solid), d = %lld",
             (long long)e->settings->dim);
    for (int i = 0; i < e->batches; i++) {
        x[i] = (double)e->batch[i].rows;
        for (int k = 0; k < drawn; k++) y[k][i] = variance(&e->batch[i].total[k]);
        y[drawn][i] = e->batch[i].closed_form;
    }
    for (int k = 0; k <= drawn; k++) {
        if (k < drawn)
            snprintf(names[k], sizeof names[k], "%lld directions", (long long)e->slices[k]);
        series[k] = (zonal__svg_series){.name = k < drawn ? names[k] : "exact",
                                        .count = e->batches,
                                        .x = x,
                                        .y = y[k],
                                        .dashed = k < drawn,
                                        .marks = k < drawn,
                                        .colour = 1 + k % 7};
    }
    return zonal__svg_write(e->settings->plot_batch, &chart);
}

/* ---- the command ----------------------------------------------------------------------------- */

static zonal_status prepare(const settings *s, experiment *e) {
    int64_t rows[MOST_BATCHES];
    *e = (experiment){.settings = s, .scale = zonal__scale_value(s->scale, s->dim)};
    ZONAL_TRY(
        zonal__list_int64(s->batches, "--batch", 2, 1 << 20, MOST_BATCHES, rows, &e->batches));
    for (int i = 0; i < e->batches; i++) e->batch[i].rows = rows[i];
    if (s->plot_batch && e->batches < 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--plot-batch draws a curve over batches; give several, "
                                          "as in --batch 64,256,1024");
    ZONAL_TRY(
        zonal__list_int64(s->slices, "--slices", 1, 1 << 20, MOST_COUNTS, e->slices, &e->counts));
    for (int k = 1; k < e->counts; k++)
        if (e->slices[k] <= e->slices[k - 1])
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--slices must be ascending, got %lld after %lld",
                              (long long)e->slices[k], (long long)e->slices[k - 1]);
    return ZONAL_OK;
}

/* A place that cannot be written to is worth knowing before a minute of work. */
static zonal_status try_place(const char *path) {
    zonal__file *file;
    ZONAL_TRY(zonal__file_create(path, &file));
    zonal__file_abandon(file);
    return ZONAL_OK;
}

static zonal_status run(const settings *s) {
    experiment e;
    ZONAL_TRY(prepare(s, &e));
    if (s->plot) ZONAL_TRY(try_place(s->plot));
    if (s->plot_batch) ZONAL_TRY(try_place(s->plot_batch));
    ZONAL_TRY(run_all(&e));
    if (s->plot) ZONAL_TRY(draw(&e));
    if (s->plot_batch) ZONAL_TRY(draw_batches(&e));
    if (s->json) return print_json(&e);
    if (s->csv)
        print_csv(&e);
    else
        print_text(&e);
    return ZONAL_OK;
}

int zonal__cli_variance(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (s.json && s.csv) return zonal__cli_misused("--json and --csv cannot be combined");
    status = zonal__cli_check_ending("--plot", s.plot, ".svg");
    if (status == ZONAL__EXIT_CONTINUE)
        status = zonal__cli_check_ending("--plot-batch", s.plot_batch, ".svg");
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (run(&s) != ZONAL_OK) return zonal__cli_failed();
    return ZONAL__EXIT_OK;
}
