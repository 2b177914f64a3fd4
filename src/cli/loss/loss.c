/*
 * zonal loss: a uniformity loss of the rows of a file, and its gradient.
 */
#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "cli/common/inputs.h"
#include "cli/common/job.h"
#include "cli/common/rows.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/npy.h"
#include "loss/family.h"
#include "loss/options.h"

typedef struct settings {
    const char *method, *grad;
    zonal_loss_options loss; /* as given; the result has the effective ones */
    int64_t step;
    int precision, json, quiet;
    zonal__job_options job;
} settings;

/* What computes from a file's numbers does so in double, unless it is asked for less. */
static const char *const left_out[] = {"dtype", NULL};

static const zonal__option table[] = {
    {.name = "method",
     .type = ZONAL__OPTION_STRING,
     .target = offsetof(settings, method),
     .rules = ZONAL__OPTION_REQUIRED,
     .metavar = "NAME",
     .help = "the loss, such as mmd-heat; zonal loss --help lists them"},
    {.name = "grad",
     .type = ZONAL__OPTION_STRING,
     .target = offsetof(settings, grad),
     .metavar = "FILE",
     .help =
         "write the gradient with respect to the rows of X.npy here: float64, the shape of X.npy"},
    {.name = "json",
     .type = ZONAL__OPTION_FLAG,
     .target = offsetof(settings, json),
     .help = "print JSON"},
    {.name = "the loss",
     .type = ZONAL__OPTION_TABLE,
     .target = offsetof(settings, loss),
     .table = zonal__loss_option,
     .without = left_out},
    {.name = "step",
     .type = ZONAL__OPTION_INT,
     .target = offsetof(settings, step),
     .initial = "0",
     .least = 0,
     .most = 4294967295.,
     .help = "susreg, sigreg: another step has other directions"},
    {.name = "precision",
     .type = ZONAL__OPTION_WORD,
     .target = offsetof(settings, precision),
     .words = zonal__precision_words,
     .initial = "double",
     .help = "of the arithmetic; tf32 and bf16 are for cuda"},
    {.name = "the ranks",
     .type = ZONAL__OPTION_TABLE,
     .target = offsetof(settings, job),
     .table = zonal__job_option},
    {.name = "quiet",
     .type = ZONAL__OPTION_FLAG,
     .target = offsetof(settings, quiet),
     .help = "no hints and no progress bar"},
    {0}};

/* The methods of a discrepancy on a line of their own, and the sliced ones last. */
static void put_methods(FILE *out) {
    size_t column = 0, before = 0;
    for (int i = 0; zonal_method_name(i); i++) {
        const char *name = zonal_method_name(i), *dash = strchr(name, '-');
        size_t length = strlen(name), prefix = dash ? (size_t)(dash - name) : 0;
        int fresh = i == 0 || prefix != before || strncmp(name, zonal_method_name(i - 1), prefix);
        if (i > 0 && (fresh || column + 2 + length > 79)) column = 0, fputc('\n', out);
        fprintf(out, "  %s", name);
        column += 2 + length;
        before = prefix;
    }
    fputs("      the sliced losses, which draw random directions\n", out);
}

static void describe(char *text, size_t size) {
    FILE *out = fmemopen(text, size, "w");
    text[0] = '\0';
    if (!out) return;
    fputs("Computes how far the rows of a matrix are from uniform on the unit sphere: 1 at\n"
          "total collapse, 1/n on average for n uniform rows (mmd, ksd, susreg). Rows are\n"
          "scaled to unit length first. X.npy is float16, float32 or float64.\n"
          "\n"
          "methods:\n",
          out);
    put_methods(out);
    fputs("\n"
          "examples:\n"
          "  zonal loss X.npy --method mmd-heat --grad G.npy\n"
          "  zonal loss X.npy --method kl-heat --t 2/d --json\n"
          "  mpirun -n 4 zonal loss X.npy --method mmd-heat      each rank has a quarter\n",
          out);
    fclose(out);
}

typedef struct result {
    const char *path;
    zonal__job *job;
    int64_t rows, dim;
    double value;
    zonal_loss_options loss;
    zonal_plan_info info;
} result;

/* ---- printing -------------------------------------------------------------------------------- */

static int is_sliced(const result *r) {
    return r->loss.discrepancy >= ZONAL_DISCREPANCY_SUSREG;
}

static const char *estimator_name(const result *r) {
    zonal_estimator estimator = r->loss.estimator;
    if (estimator == ZONAL_ESTIMATOR_AUTO)
        estimator =
            r->loss.discrepancy == ZONAL_DISCREPANCY_KL ? ZONAL_ESTIMATOR_U : ZONAL_ESTIMATOR_V;
    return zonal__estimator_words[estimator];
}

static void put_parameter(zonal__json *json, const result *r) {
    if (r->loss.discrepancy == ZONAL_DISCREPANCY_SIGREG) return;
    zonal__json_key_text(json, "kernel", zonal_family_name(r->info.family));
    zonal__family_put_json(r->info.family, r->info.parameter, json);
}

static void put_sliced(zonal__json *json, const result *r, int64_t step) {
    const zonal_sliced_options *sliced = &r->loss.sliced;
    zonal__json_key_int(json, "slices", sliced->slices);
    zonal__json_key_int(json, "knots", sliced->knots);
    zonal__json_key_double(json, "low", sliced->low);
    zonal__json_key_double(json, "high", sliced->high);
    zonal__json_key_int(json, "seed", (int64_t)sliced->seed);
    zonal__json_key_int(json, "step", step);
    zonal__json_key_bool(json, "times_n", sliced->times_n);
    zonal__json_key_bool(json, "collapse_norm", sliced->collapse_normalised);
}

static zonal_status print_json(const settings *s, const result *r) {
    zonal__json json;
    zonal_status status;
    const char *text;
    zonal__json_init(&json, NULL);
    zonal__json_begin_object(&json);
    zonal__json_key_text(&json, "method", s->method);
    zonal__json_key_int(&json, "n", r->rows);
    zonal__json_key_int(&json, "d", r->dim);
    zonal__json_key_double(&json, "value", r->value);
    zonal__json_key_double(&json, "bias", r->info.bias);
    zonal__json_key_double(&json, "norm", r->info.norm);
    zonal__json_key_double(&json, "derivative", r->info.derivative);
    zonal__json_key_bool(&json, "raw", r->loss.raw_value);
    put_parameter(&json, r);
    if (is_sliced(r))
        put_sliced(&json, r, s->step);
    else
        zonal__json_key_text(&json, "estimator", estimator_name(r));
    if (r->loss.discrepancy == ZONAL_DISCREPANCY_KL)
        zonal__json_key_text(&json, "kl_norm", zonal__kl_norm_words[r->loss.kl_norm]);
    zonal__json_key_text(&json, "device", r->info.device);
    zonal__json_key_text(&json, "precision", zonal__precision_words[r->loss.precision]);
    zonal__json_key_text(&json, "backend", r->info.backend);
    zonal__json_key_text(&json, "implementation",
                         is_sliced(r) ? "slices"
                                      : zonal__implementation_words[r->info.implementation]);
    zonal__json_key_double(&json, "fit_error", r->info.fit_error);
    zonal__json_key_int(&json, "scratch_bytes", (int64_t)r->info.scratch_bytes);
    if (zonal__job_count(r->job) > 1) zonal__json_key_int(&json, "ranks", zonal__job_count(r->job));
    if (s->grad) zonal__json_key_text(&json, "grad", s->grad);
    zonal__json_end_object(&json);
    status = zonal__json_finish(&json, &text);
    if (status == ZONAL_OK) fputs(text, stdout);
    zonal__json_fini(&json);
    return status;
}

/* The mean of the value over uniform batches, where it is known: 1/n for V, 0 for U. */
static int expected_value(const result *r, double *out) {
    int factor = is_sliced(r) && r->loss.sliced.times_n;
    if (r->loss.discrepancy == ZONAL_DISCREPANCY_KL ||
        r->loss.discrepancy == ZONAL_DISCREPANCY_SIGREG ||
        (is_sliced(r) && !r->loss.sliced.collapse_normalised))
        return 0;
    *out = !is_sliced(r) && r->loss.estimator == ZONAL_ESTIMATOR_U ? 0
           : factor                                                ? 1
                                                                   : 1 / (double)r->rows;
    if (r->loss.raw_value) *out *= r->info.norm;
    return 1;
}

static void print_text(const settings *s, const result *r) {
    const char *parameter = strchr(r->info.kernel, ','); /* "heat, t = 5/d = 0.0195" */
    double expected;
    printf("%s: %lld rows in %lld dimensions\n", zonal__cli_plain(r->path).text, (long long)r->rows,
           (long long)r->dim);
    printf("  method     %s", s->method);
    if (parameter) printf("%s", parameter);
    if (is_sliced(r))
        printf(", %lld slice%s, %lld knots", (long long)r->loss.sliced.slices,
               zonal__text_plural(r->loss.sliced.slices), (long long)r->loss.sliced.knots);
    printf("\n  value      %.12g\n", r->value);
    if (expected_value(r, &expected))
        printf("  uniform    %.12g in the mean over uniform rows\n", expected);
    printf("  bias       %.12g\n  norm       %.12g\n", r->info.bias, r->info.norm);
    printf("  computed   %s, %s, %s\n",
           is_sliced(r) ? "slices" : zonal__implementation_words[r->info.implementation],
           zonal__precision_words[r->loss.precision], r->info.backend);
    if (zonal__job_count(r->job) > 1)
        printf("  ranks      %d, over %s\n", zonal__job_count(r->job),
               zonal__job_transport(r->job));
    if (s->grad) printf("  gradient   %s\n", zonal__cli_plain(s->grad).text);
}

/* ---- computing ------------------------------------------------------------------------------- */

/* The gradient of an fp32 plan is float; its file holds doubles all the same. */
static zonal_status write_numbers(zonal__file *file, zonal_precision precision, const void *number,
                                  int64_t count) {
    double chunk[512];
    if (precision == ZONAL_PRECISION_DOUBLE)
        return zonal__file_write(file, number, (size_t)count * sizeof(double));
    for (int64_t i = 0; i < count; i += 512) {
        int64_t n = count - i < 512 ? count - i : 512;
        for (int64_t k = 0; k < n; k++) chunk[k] = ((const float *)number)[i + k];
        ZONAL_TRY(zonal__file_write(file, chunk, (size_t)n * sizeof(double)));
    }
    return ZONAL_OK;
}

/* Rank 0 writes, and the others' rows come to it a piece at a time: no rank holds them all. What
 * goes wrong with the file is told when it is ended. */
static zonal_status gather_gradient(zonal__file *file, const zonal__job *job,
                                    const zonal_communicator *c, const zonal__cli_rows *rows,
                                    const void *gradient, char *piece, int64_t room) {
    int64_t size = rows->precision == ZONAL_PRECISION_DOUBLE ? sizeof(double) : sizeof(float);
    for (int r = 1; r < c->ranks; r++) {
        int64_t first, count;
        zonal__job_share(rows->all, c->ranks, r, &first, &count);
        for (int64_t at = 0; at < count * rows->d; at += room) {
            int64_t n = count * rows->d - at < room ? count * rows->d - at : room;
            if (r == zonal__job_rank(job))
                memcpy(piece, (const char *)gradient + at * size, (size_t)(n * size));
            ZONAL_TRY(c->broadcast(c->context, piece, n * size, r, NULL));
            if (file) (void)write_numbers(file, rows->precision, piece, n);
        }
    }
    return ZONAL_OK;
}

static zonal_status write_gradient(zonal__file *file, zonal__job *job, const zonal__cli_rows *rows,
                                   const void *gradient) {
    enum { ROOM = 1 << 18 }; /* elements of a piece: up to 2 MiB */
    const zonal_communicator *c = zonal__job_host(job);
    char *piece;
    zonal_status status;
    if (file) (void)write_numbers(file, rows->precision, gradient, rows->n * rows->d);
    if (!c) return ZONAL_OK;
    status = zonal__alloc(ROOM, sizeof(double), "a piece of the gradient", (void **)&piece);
    status = zonal__job_all(job, status);
    if (status == ZONAL_OK) status = gather_gradient(file, job, c, rows, gradient, piece, ROOM);
    zonal__free(piece);
    return status;
}

/* The gradient's file is begun before the work, so that a name that does not serve is known at
 * once. */
static zonal_status execute_with_gradient(zonal_plan *plan, const zonal__device *device,
                                          const zonal__cli_rows *rows, zonal__job *job,
                                          const char *path, double *value) {
    size_t size = rows->precision == ZONAL_PRECISION_DOUBLE ? sizeof(double) : sizeof(float);
    zonal__file *file = NULL;
    void *gradient;
    zonal_status status = zonal__alloc(rows->n * rows->d, size, "the gradient", &gradient);
    if (status == ZONAL_OK && zonal__job_rank(job) == 0)
        status = zonal__npy_create(path, ZONAL__NPY_F8, rows->all, rows->d, &file);
    status = zonal__job_all(job, status);
    if (status == ZONAL_OK) status = zonal__cli_execute(plan, device, rows, value, gradient);
    if (status == ZONAL_OK) status = write_gradient(file, job, rows, gradient);
    if (status != ZONAL_OK)
        zonal__file_abandon(file);
    else if (file)
        status = zonal__file_commit(file);
    zonal__free(gradient);
    return status;
}

static zonal_status run_plan(const settings *s, const zonal__cli_rows *rows, result *r) {
    const zonal__device *device;
    zonal_plan *plan;
    zonal_status status;
    ZONAL_TRY(zonal__device_open(r->loss.device, &device));
    ZONAL_TRY(zonal__job_on(r->job, device, &r->loss.communicator));
    ZONAL_TRY(zonal_plan_create(&r->loss, rows->n, rows->d, &plan));
    r->info = (zonal_plan_info)ZONAL_PLAN_INFO_INIT;
    status = zonal_plan_info_get(plan, &r->info);
    zonal_plan_set_step(plan, (uint32_t)s->step);
    if (status == ZONAL_OK)
        status = s->grad ? execute_with_gradient(plan, device, rows, r->job, s->grad, &r->value)
                         : zonal__cli_execute(plan, device, rows, &r->value, NULL);
    zonal_plan_destroy(plan);
    return status;
}

static zonal_status compute(const settings *s, const char *path, result *r) {
    int rank = zonal__job_rank(r->job);
    zonal__cli_rows rows;
    zonal_status status = zonal__cli_load_share(
        path, r->loss.precision == ZONAL_PRECISION_DOUBLE ? ZONAL__LOAD_DOUBLE : ZONAL__LOAD_FLOAT,
        s->quiet || s->json || rank > 0, rank, zonal__job_count(r->job), &rows);
    status = zonal__job_all(r->job, status);
    r->path = path;
    r->rows = rows.all;
    r->dim = rows.d;
    if (status == ZONAL_OK) status = zonal__cli_name_file(run_plan(s, &rows, r), path);
    zonal__free(rows.x);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* t = k/d was tuned at d = 256; what matters is its place beside log(d)/d. */
static void hint_at_scale(const result *r) {
    const zonal_number *t = &r->loss.kernel.parameter;
    int over_d = t->power < 0 || t->factor == 0; /* so written, or the default */
    double d = (double)r->dim;
    if (r->loss.kernel.family != ZONAL_FAMILY_HEAT || !over_d || (r->dim >= 128 && r->dim <= 512))
        return;
    zonal__cli_say("hint: t = %.3g/d at d = %lld; the heat kernel's critical scale is log(d)/d: "
                   "%.3g/d here, 5.55/d at d = 256, where %g/d was tuned",
                   r->info.parameter * d, (long long)r->dim, log(d),
                   zonal__families[ZONAL_FAMILY_HEAT].initial(256, r->loss.discrepancy).factor);
}

static void hint_at_unused(const settings *s, const zonal__options *options, const result *r) {
    char unused[256];
    zonal__loss_unused(&r->loss, options, unused, sizeof unused);
    if (!is_sliced(r) && zonal__options_source(options, "step") == ZONAL__SOURCE_FLAG)
        snprintf(unused + strlen(unused), sizeof unused - strlen(unused), "%s--step",
                 unused[0] ? ", " : "");
    if (unused[0]) zonal__cli_say("hint: %s does not use %s", s->method, unused);
}

/* Remarks of the library are kept until all has gone well: a failure is one line. */
typedef struct remark {
    char text[512];
} remark;

static void keep_remark(void *context, const char *line) {
    snprintf(((remark *)context)->text, sizeof(remark), "%s", line);
}

static zonal_status prepare(const settings *s, const zonal__options *options, result *r) {
    const zonal__device *device;
    char name[ZONAL_DEVICE_NAME];
    ZONAL_TRY(zonal__cli_keep_input("--grad", s->grad, options->arguments[0]));
    ZONAL_TRY(zonal_loss_defaults(s->method, &r->loss));
    ZONAL_TRY(zonal__loss_apply(options, offsetof(settings, loss), &r->loss));
    r->loss.precision = (zonal_precision)s->precision;
    ZONAL_TRY(zonal__job_device_name(r->job, r->loss.device, name));
    memcpy(r->loss.device, name, sizeof name);
    r->loss.threads = zonal__job_threads(r->job, r->loss.threads);
    ZONAL_TRY(zonal__device_open(r->loss.device, &device));
    if (!(device->backend->precisions & 1u << r->loss.precision) &&
        zonal__options_source(options, "precision") <= ZONAL__SOURCE_DEFAULT)
        r->loss.precision = ZONAL_PRECISION_FP32; /* the most it has */
    return ZONAL_OK;
}

static zonal_status print(const settings *s, const zonal__options *options, const result *r,
                          const remark *kept) {
    if (kept->text[0] && !s->quiet) zonal__cli_say("%s", kept->text);
    if (s->json) return print_json(s, r);
    if (!s->quiet) {
        hint_at_unused(s, options, r);
        hint_at_scale(r);
    }
    print_text(s, r);
    return ZONAL_OK;
}

static zonal_status run(const settings *s, const zonal__options *options, zonal__job *job) {
    result r = {.job = job, .loss = ZONAL_LOSS_OPTIONS_INIT};
    remark kept = {""};
    zonal_status status = zonal__job_all(job, prepare(s, options, &r));
    zonal_set_log(keep_remark, &kept);
    if (status == ZONAL_OK) status = zonal__job_all(job, compute(s, options->arguments[0], &r));
    zonal_set_log(NULL, NULL);
    if (status == ZONAL_OK && zonal__job_rank(job) == 0) status = print(s, options, &r, &kept);
    return status;
}

int zonal__cli_loss(int argc, char **argv) {
    settings s;
    zonal__options options;
    char description[2048];
    const zonal__cli_usage usage = {.synopsis = "zonal loss X.npy --method NAME [options]",
                                    .description = description,
                                    .argument = "X.npy",
                                    .least = 1,
                                    .most = 1};
    zonal__job *job;
    int status;
    describe(description, sizeof description);
    status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (zonal__job_open(&s.job, &job) != ZONAL_OK) return zonal__cli_failed();
    return zonal__cli_end_job(job, run(&s, &options, job));
}
