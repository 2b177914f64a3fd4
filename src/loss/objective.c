#include "loss/objective.h"

#include <math.h>

#include "core/memory.h"
#include "core/sized.h"
#include "loss/options.h"
#include "loss/plan.h"

struct zonal_objective {
    zonal_objective_options options;
    int64_t views, global_views, rows, dim;
    zonal__ranks *ranks;                 /* NULL: the rows are the whole batch */
    zonal_plan *plan;                    /* one view's discrepancy, run view by view */
    const zonal__operation_table *table; /* the alignment's; fused, the whole objective's */
    zonal__work *work;
    int fused; /* 1: one operation computes everything */
    uint32_t step;
    const uint32_t *device_step;
    zonal_objective_info info;
};

static zonal_status check(const zonal_objective_options *options, int64_t views,
                          int64_t global_views) {
    if (views < 1)
        return ZONAL_FAIL(ZONAL_SHAPE, "there must be at least 1 view, got %lld", (long long)views);
    if (views == 1 && global_views > 1)
        return ZONAL_FAIL(ZONAL_SHAPE, "alignment compares two or more views of each image, got "
                                       "one; give another view");
    if (global_views < 1 || global_views > views)
        return ZONAL_FAIL(ZONAL_SHAPE, "global views must be from 1 to all %lld views, got %lld",
                          (long long)views, (long long)global_views);
    if (!(options->lambda >= 0 && options->lambda <= 1))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "lambda must be from 0 to 1, got %g", options->lambda);
    if (!zonal__is_zero(options->reserved, sizeof options->reserved))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the reserved room of a zonal_objective_options is not zero; begin with "
                          "ZONAL_OBJECTIVE_OPTIONS_INIT, or use the libzonal that the program was "
                          "built with");
    static const char *const valued[] = {"gain", "margin", "selectivity"};
    if ((unsigned)options->gain > ZONAL_GAIN_SELECTIVITY)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no gain %d", (int)options->gain);
    if (options->gain >= ZONAL_GAIN_VALUE &&
        !(options->gain_value > 0 && options->gain_value < INFINITY))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be positive and finite, got %g",
                          valued[options->gain - ZONAL_GAIN_VALUE], options->gain_value);
    return ZONAL_OK;
}

/* Near collapse L_inv = K t2 and D = 1 - psi'(1)(s2 + t2), with t2 the variance between the views
 * of a sample and s2 the one between samples; a direction grows when gain lambda psi'(1) exceeds
 * (1-lambda) K. */
static double collapse_threshold(double lambda, double derivative, double k) {
    if (!(derivative > 0) || !(lambda > 0) || !isfinite(derivative)) return 0;
    return (1 - lambda) * k / (lambda * derivative);
}

/* S times the gain: zonal/loss.h has the derivation. 0: not known. */
static double selectivity_of_unit_gain(double lambda, const zonal_objective_info *info,
                                       int64_t dim) {
    if (!(info->anisotropy > 0) || !(lambda > 0)) return 0;
    return (1 - lambda) * info->k * (double)dim / (2 * lambda * info->anisotropy);
}

/* At a selectivity of 10 KL under a narrow kernel would collapse, so the gain keeps a distance from
 * the threshold. Selectivity is that at the usual lambda: another lambda shifts the weight as it
 * should. A loss without a known selectivity has the test statistic, batch times D. */
static double usual_gain(const zonal_objective_options *options, int64_t batch, int64_t dim,
                         const zonal_objective_info *info) {
    const zonal_discrepancy kind = options->loss.discrepancy;
    const double selectivity = zonal__usual_selectivity(kind, info->plan.family, dim);
    const double least = 1.15 * info->threshold;
    double gain;
    if (kind == ZONAL_DISCREPANCY_SIGREG) return 1;
    gain = selectivity_of_unit_gain(zonal__usual_lambda(kind), info, dim) / selectivity;
    if (!(gain > 0)) gain = (double)batch;
    return gain < least ? least : gain;
}

static zonal_status choose_gain(const zonal_objective_options *options, int64_t batch, int64_t dim,
                                double unit_selectivity, zonal_objective_info *info) {
    double threshold = info->threshold;
    switch (options->gain) {
    case ZONAL_GAIN_UNIT:
        info->gain = 1;
        break;
    case ZONAL_GAIN_BATCH:
        info->gain = (double)batch;
        break;
    case ZONAL_GAIN_VALUE:
        info->gain = options->gain_value;
        break;
    case ZONAL_GAIN_MARGIN:
        info->gain = options->gain_value * threshold;
        break;
    case ZONAL_GAIN_SELECTIVITY:
        info->gain = unit_selectivity / options->gain_value;
        break;
    default:
        info->gain = usual_gain(options, batch, dim, info);
    }
    if (info->gain > 0 && isfinite(info->gain)) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "the %s of this loss is not known at lambda = %g, so it cannot set the gain; "
                      "give the gain as a number",
                      options->gain == ZONAL_GAIN_MARGIN ? "collapse threshold" : "selectivity",
                      options->lambda);
}

static zonal_status weigh(const zonal_objective_options *options, const zonal_plan *plan,
                          int64_t views, int64_t global_views, zonal_objective_info *info) {
    const zonal_plan_info loss = *zonal__plan_info(plan);
    double unit_selectivity, scale;
    /* the plan's numbers are those of the normalised discrepancy */
    scale = (options->loss.raw_value ? loss.norm : 1) *
            (zonal__plan_problem(plan)->sliced && options->loss.sliced.times_n ? (double)loss.batch
                                                                               : 1);
    double v = (double)views, g = (double)global_views;
    *info = (zonal_objective_info){.size = sizeof *info,
                                   .k = 1 + (v - 2 * g) / (g * v),
                                   .anisotropy = scale * loss.anisotropy,
                                   .plan = loss};
    info->threshold = collapse_threshold(options->lambda, scale * loss.derivative, info->k);
    unit_selectivity = selectivity_of_unit_gain(options->lambda, info, loss.dim);
    ZONAL_TRY(choose_gain(options, loss.batch, loss.dim, unit_selectivity, info));
    info->margin = info->threshold > 0 ? info->gain / info->threshold : 0;
    info->selectivity = unit_selectivity / info->gain;
    return ZONAL_OK;
}

#define INFO_SIZED ZONAL__SIZED(zonal_objective_info, gain)

/* The plan's info, the last member, has the size of what the caller has of it. */
static zonal_status write_info(const zonal_objective_info *given, zonal_objective_info *info) {
    const size_t before = offsetof(zonal_objective_info, plan);
    zonal_objective_info full = *given;
    ZONAL_TRY(zonal__sized_check(INFO_SIZED, info));
    full.plan.size = info->size > before ? info->size - before : 0;
    return zonal__sized_write(INFO_SIZED, &full, info);
}

static const zonal_objective_info nothing = ZONAL_OBJECTIVE_INFO_INIT;

zonal_status zonal_objective_describe(const zonal_objective_options *given, int64_t views,
                                      int64_t global_views, int64_t batch, int64_t dim,
                                      zonal_objective_info *info) {
    zonal_objective_options options;
    zonal_objective_info found;
    zonal_plan *plan;
    zonal_status status;
    ZONAL_NEED(info, "info");
    ZONAL_TRY(write_info(&nothing, info));
    ZONAL_NEED(given, "options");
    ZONAL_TRY(zonal__objective_read(given, &options));
    ZONAL_TRY(check(&options, views, global_views));
    ZONAL_TRY(zonal__plan_prepare(&options.loss, NULL, batch, dim, &plan));
    status = weigh(&options, plan, views, global_views, &found);
    zonal_plan_destroy(plan);
    return status == ZONAL_OK ? write_info(&found, info) : status;
}

zonal_status zonal_objective_info_get(const zonal_objective *objective,
                                      zonal_objective_info *info) {
    ZONAL_NEED(info, "info");
    ZONAL_TRY(write_info(objective ? &objective->info : &nothing, info));
    ZONAL_NEED(objective, "objective");
    return ZONAL_OK;
}

const zonal_objective_info *zonal__objective_info(const zonal_objective *objective) {
    return &objective->info;
}

static zonal_status build(zonal_objective *objective) {
    const zonal_loss_options *loss = &objective->options.loss;
    ZONAL_TRY(zonal__plan_prepare(loss, objective->ranks, objective->rows, objective->dim,
                                  &objective->plan));
    const zonal__device *device = zonal__plan_device(objective->plan);
    /* Composed of its parts where the processor can reach them. */
    objective->fused = !device->backend->is_host || device->backend->operations[ZONAL__OBJECTIVE];
    if (!objective->fused) ZONAL_TRY(zonal__plan_finish(objective->plan));
    ZONAL_TRY(weigh(&objective->options, objective->plan, objective->views, objective->global_views,
                    &objective->info));
    zonal__problem problem = *zonal__plan_problem(objective->plan);
    problem.raw_rows = loss->discrepancy == ZONAL_DISCREPANCY_SIGREG;
    problem.views = objective->views;
    problem.global_views = objective->global_views;
    problem.lambda = objective->options.lambda;
    problem.gain = objective->info.gain;
    problem.threshold = objective->info.threshold;
    problem.device_step = &objective->device_step;
    if (!objective->fused) problem.offset = 0, problem.factor = 1; /* the alignment has none */
    ZONAL_TRY(zonal__device_operation(
        device, objective->fused ? ZONAL__OBJECTIVE : ZONAL__INVARIANCE, &objective->table));
    return objective->table->create(&problem, &objective->work);
}

/* The ranks, which must agree on what an objective has beside its loss. */
static zonal_status join(const zonal_objective_options *options, zonal_status status, int64_t views,
                         int64_t global_views, int64_t rows, int64_t dim, zonal__ranks **ranks) {
    const zonal__agreed values[] = {{"the number of views", (double)views, NULL},
                                    {"the number of global views", (double)global_views, NULL},
                                    {"lambda", options->lambda, NULL},
                                    {"the number of the gain's kind", options->gain, NULL},
                                    {"the gain's value", options->gain_value, NULL}};
    return zonal__plan_join(&options->loss, status, rows, dim, values,
                            sizeof values / sizeof values[0], ranks);
}

/* With the ranks found: whoever fails from here on takes part in the agreement at the end. */
static zonal_status create_with(const zonal_objective_options *options, int64_t views,
                                int64_t global_views, int64_t rows, int64_t dim,
                                zonal__ranks *ranks, zonal_objective **out) {
    zonal_objective *objective;
    ZONAL_TRY(check(options, views, global_views));
    ZONAL_TRY(ZONAL_NEW(&objective, 1, "an objective"));
    objective->options = *options;
    objective->views = views;
    objective->global_views = global_views;
    objective->rows = rows;
    objective->dim = dim;
    objective->ranks = ranks;
    *out = objective;
    return build(objective);
}

zonal_status zonal__objective_create_from(const zonal_objective_options *options,
                                          zonal_status status, int64_t views, int64_t global_views,
                                          int64_t rows, int64_t dim, zonal_objective **out) {
    zonal_objective *objective = NULL;
    zonal__ranks *ranks;
    *out = NULL;
    ZONAL_TRY(join(options, status, views, global_views, rows, dim, &ranks));
    status = create_with(options, views, global_views, rows, dim, ranks, &objective);
    status = zonal__ranks_agree(ranks, status);
    if (status == ZONAL_OK) {
        *out = objective;
        return ZONAL_OK;
    }
    if (!objective) zonal__ranks_destroy(ranks);
    zonal_objective_destroy(objective);
    return status;
}

zonal_status zonal_objective_create(const zonal_objective_options *options, int64_t views,
                                    int64_t global_views, int64_t rows, int64_t dim,
                                    zonal_objective **out) {
    zonal_objective_options full;
    ZONAL_NEED(out, "objective");
    *out = NULL;
    ZONAL_NEED(options, "options");
    ZONAL_TRY(zonal__objective_read(options, &full));
    return zonal__objective_create_from(&full, ZONAL_OK, views, global_views, rows, dim, out);
}

void zonal_objective_destroy(zonal_objective *objective) {
    if (!objective) return;
    if (objective->work) objective->table->destroy(objective->work);
    zonal_plan_destroy(objective->plan);
    zonal__ranks_destroy(objective->ranks);
    zonal__free(objective);
}

static void scale_rows(zonal_precision precision, int64_t n, double factor, void *x) {
    if (precision == ZONAL_PRECISION_FP32)
        for (int64_t i = 0; i < n; i++) ((float *)x)[i] *= (float)factor;
    else
        for (int64_t i = 0; i < n; i++) ((double *)x)[i] *= factor;
}

static zonal_status execute_views(zonal_objective *objective, const void *z,
                                  zonal_objective_parts *parts, void *gradient) {
    int64_t count = objective->rows * objective->dim;
    zonal_precision precision = objective->options.loss.precision;
    size_t view_bytes =
        (size_t)count * (precision == ZONAL_PRECISION_FP32 ? sizeof(float) : sizeof(double));
    double lambda = objective->options.lambda, sum = 0, inverse = 1 / (double)objective->views;
    *parts = (zonal_objective_parts){.total = NAN,
                                     .invariance = NAN,
                                     .discrepancy = NAN,
                                     .gain = objective->info.gain,
                                     .threshold = objective->info.threshold};
    for (int64_t v = 0; v < objective->views; v++) {
        void *view_gradient = gradient ? (char *)gradient + (size_t)v * view_bytes : NULL;
        double value;
        zonal_status status = zonal_plan_execute(
            objective->plan, (const char *)z + (size_t)v * view_bytes, &value, view_gradient);
        if (status != ZONAL_OK) {
            zonal_error inner = *zonal_last_error(); /* a copy: the sentence is about to change */
            return ZONAL_FAIL(status, "view %lld: %s", (long long)v, inner.message);
        }
        if (gradient)
            scale_rows(precision, count, lambda * objective->info.gain * inverse, view_gradient);
        sum += value;
    }
    double invariance;
    ZONAL_TRY(objective->table->run(objective->work, z, 0, &invariance, gradient, 1 - lambda));
    parts->invariance = invariance;
    parts->discrepancy = sum * inverse;
    parts->total = (1 - lambda) * invariance + lambda * objective->info.gain * parts->discrepancy;
    return ZONAL_OK;
}

zonal_status zonal_objective_execute(zonal_objective *objective, const void *z,
                                     zonal_objective_parts *parts, void *gradient) {
    ZONAL_NEED(objective, "objective");
    if (objective->rows > 0) ZONAL_NEED(z, "z");
    ZONAL_NEED(parts, "parts");
    if (objective->fused)
        return objective->table->run(objective->work, z, objective->step, (double *)parts, gradient,
                                     1);
    return execute_views(objective, z, parts, gradient);
}

void zonal_objective_set_step(zonal_objective *objective, uint32_t step) {
    if (!objective) return;
    objective->step = step;
    zonal_plan_set_step(objective->plan, step);
}

void zonal_objective_set_device_step(zonal_objective *objective, const uint32_t *step) {
    if (objective) objective->device_step = step;
}

void zonal_objective_set_stream(zonal_objective *objective, void *stream) {
    if (objective && objective->table->set_stream)
        objective->table->set_stream(objective->work, stream);
}

zonal_status zonal_objective_status(zonal_objective *objective) {
    ZONAL_NEED(objective, "objective");
    return objective->table->check ? objective->table->check(objective->work) : ZONAL_OK;
}
