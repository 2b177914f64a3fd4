/* Linear probes by logistic regression: probe.h. */
#include "eval/probe.h"

#include <math.h>
#include <string.h>

#include "backend/training/tables.h"
#include "core/memory.h"
#include "data/source.h"
#include "eval/lbfgs.h"

/* Rows that a probe classifies at a time. */
enum { BLOCK = 4096 };

static const double usual_l2[] = {1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6};

typedef struct session {
    const zonal__probe_options *options;
    const zonal__softmax_table *table;
    zonal__softmax *softmax;
    int64_t parameter_count;
    int l2_count;
    const double *l2;
    /* The training set as the fits see it: standardised, and the held-out rows first. */
    int64_t rows, held_out;
    float *x;             /* [rows][dim] */
    int32_t *labels;      /* [rows] */
    double *mean, *scale; /* [dim]: x = (feature - mean) scale */
    double *parameters;   /* of the fit in progress, and the start of the next */
    double *best;         /* of the l2 chosen so far */
    /* the fit in progress */
    int64_t first; /* row that it begins with */
    double now_l2, tolerance;
    int fit, fits; /* for the progress */
    double first_gradient;
} session;

/* ---- the training set ------------------------------------------------------------------------ */

static zonal_status check(const zonal__probe_options *options, const zonal__labelled *train) {
    int64_t *members;
    int empty = -1;
    ZONAL_TRY(zonal__labelled_check(train, options->dim, options->classes, "the training set"));
    ZONAL_TRY(ZONAL_NEW(&members, options->classes, "the classes"));
    for (int64_t i = 0; i < train->count; i++) members[train->labels[i]]++;
    for (int c = options->classes - 1; c >= 0; c--)
        if (!members[c]) empty = c;
    zonal__free(members);
    if (empty >= 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "class %d has no training samples; leave it out, or give "
                          "it some",
                          empty);
    for (int i = 0; i < options->l2_count; i++)
        if (!(options->l2[i] >= 0 && options->l2[i] < INFINITY))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "l2 must be finite and not negative, got %g",
                              options->l2[i]);
    if (!(options->held_out >= 0 && options->held_out < .5))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the held-out share must be below one half, got %g",
                          options->held_out);
    if (!(options->tolerance >= 0 && options->iterations >= 0))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "tolerance and iterations must not be negative");
    return ZONAL_OK;
}

/* order [count]: the held-out rows, then the others. */
static zonal_status choose_order(session *s, const zonal__labelled *train, int64_t *order) {
    const zonal__probe_options *options = s->options;
    double share = options->held_out > 0 ? options->held_out : .1;
    int64_t rest;
    if (s->l2_count == 1) {
        for (int64_t i = 0; i < train->count; i++) order[i] = i;
        return ZONAL_OK;
    }
    ZONAL_TRY(zonal__split_choose(train->count, train->labels, options->classes, ZONAL__SPLIT_VAL,
                                  share, 0, options->seed, order, &s->held_out));
    if (s->held_out == 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "%lld training samples are too few to hold some out for "
                          "the choice of l2; give a single l2",
                          (long long)train->count);
    return zonal__split_choose(train->count, train->labels, options->classes, ZONAL__SPLIT_TRAIN,
                               share, 0, options->seed, order + s->held_out, &rest);
}

static void set_scale(session *s, const zonal__labelled *train) {
    int64_t dim = s->options->dim;
    double n = (double)train->count;
    for (int64_t j = 0; j < dim; j++) s->scale[j] = 1;
    if (!s->options->standardise) return;
    for (int64_t i = 0; i < train->count; i++)
        for (int64_t j = 0; j < dim; j++) s->mean[j] += (double)train->x[i * dim + j] / n;
    for (int64_t j = 0; j < dim; j++) s->scale[j] = 0;
    for (int64_t i = 0; i < train->count; i++)
        for (int64_t j = 0; j < dim; j++) {
            double from_mean = (double)train->x[i * dim + j] - s->mean[j];
            s->scale[j] += from_mean * from_mean / n;
        }
    /* Less than the last bit of a float is rounding of the mean: a constant. */
    for (int64_t j = 0; j < dim; j++)
        s->scale[j] = s->scale[j] > 1e-18 * s->mean[j] * s->mean[j] ? 1 / sqrt(s->scale[j]) : 0;
}

static void gather(session *s, const zonal__labelled *train, const int64_t *order) {
    int64_t dim = s->options->dim;
    for (int64_t i = 0; i < s->rows; i++) {
        const float *from = train->x + order[i] * dim;
        float *to = s->x + i * dim;
        s->labels[i] = train->labels[order[i]];
        for (int64_t j = 0; j < dim; j++)
            to[j] = (float)(((double)from[j] - s->mean[j]) * s->scale[j]);
    }
}

static zonal_status allocate(session *s) {
    int64_t dim = s->options->dim;
    ZONAL_TRY(ZONAL_NEW(&s->x, s->rows * dim, "the training set"));
    ZONAL_TRY(ZONAL_NEW(&s->labels, s->rows, "the training set"));
    ZONAL_TRY(ZONAL_NEW(&s->mean, dim, "the means"));
    ZONAL_TRY(ZONAL_NEW(&s->scale, dim, "the scales"));
    ZONAL_TRY(ZONAL_NEW(&s->parameters, s->parameter_count, "the classifier"));
    return ZONAL_NEW(&s->best, s->parameter_count, "the classifier");
}

static zonal_status init(const zonal__probe_options *options, const zonal__labelled *train,
                         session *s) {
    zonal__softmax_spec spec = {
        .dim = options->dim, .classes = options->classes, .threads = options->threads};
    int64_t *order;
    zonal_status status;
    memset(s, 0, sizeof *s);
    ZONAL_TRY(check(options, train));
    s->options = options;
    s->table = zonal__training_host()->softmax;
    s->rows = train->count;
    s->parameter_count = options->classes * (options->dim + 1);
    s->l2 = options->l2_count ? options->l2 : usual_l2;
    s->l2_count = options->l2_count ? options->l2_count : (int)(sizeof usual_l2 / sizeof *usual_l2);
    s->fits = s->l2_count == 1 ? 1 : s->l2_count + 1;
    ZONAL_TRY(s->table->create(&spec, &s->softmax));
    ZONAL_TRY(allocate(s));
    ZONAL_TRY(ZONAL_NEW(&order, train->count, "the training set"));
    status = choose_order(s, train, order);
    if (status == ZONAL_OK) {
        set_scale(s, train);
        gather(s, train, order);
    }
    zonal__free(order);
    return status;
}

static void fini(session *s) {
    if (s->table) s->table->destroy(s->softmax);
    zonal__free(s->x);
    zonal__free(s->labels);
    zonal__free(s->mean);
    zonal__free(s->scale);
    zonal__free(s->parameters);
    zonal__free(s->best);
}

/* ---- one fit --------------------------------------------------------------------------------- */

static void evaluate(void *context, const double *parameters, double *value, double *gradient) {
    const session *s = context;
    int64_t dim = s->options->dim;
    double squares = 0;
    s->table->loss(s->softmax, s->rows - s->first, s->x + s->first * dim, s->labels + s->first,
                   parameters, value, gradient);
    for (int c = 0; c < s->options->classes; c++)
        for (int64_t j = 0; j < dim; j++) {
            double weight = parameters[c * (dim + 1) + j];
            squares += weight * weight;
            gradient[c * (dim + 1) + j] += s->now_l2 * weight;
        }
    *value += s->now_l2 / 2 * squares;
}

/* A fit is as far as the logarithm of its gradient has come on its way to the tolerance's. */
static zonal_status report(void *context, int iteration, double gradient) {
    session *s = context;
    double share = 1;
    if (iteration == 1) s->first_gradient = gradient;
    if (gradient > s->tolerance && s->first_gradient > s->tolerance)
        share = log(s->first_gradient / gradient) / log(s->first_gradient / s->tolerance);
    return zonal__eval_report(&s->options->progress,
                              (s->fit + (share > 0 ? share : 0)) / (double)s->fits);
}

/* Fits s->parameters, from where they are, to the rows from "first" on; the tolerance is
 * "looseness" times what was asked for. */
static zonal_status fit(session *s, int64_t first, double l2, double looseness,
                        zonal__lbfgs_end *end) {
    double tolerance = s->options->tolerance > 0 ? s->options->tolerance : 1e-6;
    zonal__lbfgs_problem problem = {.n = s->parameter_count,
                                    .evaluate = evaluate,
                                    .report = report,
                                    .context = s,
                                    .tolerance = looseness * tolerance,
                                    .iterations =
                                        s->options->iterations ? s->options->iterations : 1000};
    s->first = first;
    s->now_l2 = l2;
    s->tolerance = problem.tolerance;
    ZONAL_TRY(zonal__lbfgs(&problem, s->parameters, end));
    if (!end->converged)
        zonal__log(
            "the probe with l2 = %g stopped after %d iterations at a gradient of %.2g, above "
            "the tolerance %g, and is used as it is; %s converges sooner",
            l2, end->iterations, end->gradient, s->tolerance,
            s->options->standardise ? "a larger l2" : "a probe of standardised features");
    s->fit++;
    return ZONAL_OK;
}

/* ---- the choice of l2 ------------------------------------------------------------------------ */

static zonal_status classify(const zonal__softmax_table *table, zonal__softmax *softmax,
                             const double *parameters, int64_t dim, const zonal__labelled *set,
                             zonal__scores *scores) {
    double *score;
    zonal_status status = ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&score, BLOCK * scores->classes, "the scores"));
    for (int64_t first = 0; first < set->count && status == ZONAL_OK; first += BLOCK) {
        int64_t count = set->count - first < BLOCK ? set->count - first : BLOCK;
        table->scores(softmax, count, set->x + first * dim, parameters, score);
        for (int64_t i = 0; i < count && status == ZONAL_OK; i++)
            status = zonal__scores_add(scores, set->labels[first + i], score + i * scores->classes);
    }
    zonal__free(score);
    return status;
}

static zonal_status held_out_accuracy(const session *s, double *accuracy) {
    zonal__labelled set = {s->held_out, s->x, s->held_out, s->labels};
    zonal__scores scores;
    ZONAL_TRY(zonal__scores_init(s->options->classes, &scores));
    zonal_status status =
        classify(s->table, s->softmax, s->parameters, s->options->dim, &set, &scores);
    *accuracy = zonal__scores_accuracy(&scores);
    zonal__scores_fini(&scores);
    return status;
}

/* Leaves the parameters of the best l2 where the next fit begins. */
static zonal_status choose_l2(session *s, zonal__probe *probe) {
    size_t bytes = (size_t)s->parameter_count * sizeof *s->best;
    probe->held_out_accuracy = NAN;
    probe->l2 = s->l2[0];
    if (s->l2_count == 1) return ZONAL_OK;
    for (int i = 0; i < s->l2_count; i++) {
        zonal__lbfgs_end end;
        double accuracy;
        ZONAL_TRY(fit(s, s->held_out, s->l2[i], 100, &end));
        ZONAL_TRY(held_out_accuracy(s, &accuracy));
        if (!(accuracy <= probe->held_out_accuracy) ||
            (accuracy == probe->held_out_accuracy && s->l2[i] > probe->l2)) {
            probe->held_out_accuracy = accuracy;
            probe->l2 = s->l2[i];
            memcpy(s->best, s->parameters, bytes);
        }
    }
    memcpy(s->parameters, s->best, bytes);
    return ZONAL_OK;
}

/* From parameters for (feature - mean) scale to those for the features themselves. */
static void unscale(const session *s, double *parameters) {
    int64_t dim = s->options->dim;
    for (int c = 0; c < s->options->classes; c++) {
        double *weight = parameters + c * (dim + 1);
        for (int64_t j = 0; j < dim; j++) {
            weight[j] *= s->scale[j];
            weight[dim] -= weight[j] * s->mean[j];
        }
    }
}

/* ---- the probe ------------------------------------------------------------------------------- */

static zonal_status fit_all(session *s, zonal__probe *probe) {
    zonal__lbfgs_end end;
    ZONAL_TRY(choose_l2(s, probe));
    ZONAL_TRY(fit(s, 0, probe->l2, 1, &end));
    unscale(s, s->parameters);
    probe->dim = s->options->dim;
    probe->classes = s->options->classes;
    probe->threads = s->options->threads;
    probe->loss = end.value;
    probe->gradient = end.gradient;
    probe->iterations = end.iterations;
    probe->converged = end.converged;
    probe->parameters = s->parameters;
    s->parameters = NULL;
    return ZONAL_OK;
}

zonal_status zonal__probe_fit(const zonal__probe_options *options, const zonal__labelled *train,
                              zonal__probe *probe) {
    session s;
    memset(probe, 0, sizeof *probe);
    zonal_status status = init(options, train, &s);
    if (status == ZONAL_OK) status = fit_all(&s, probe);
    if (status != ZONAL_OK) memset(probe, 0, sizeof *probe);
    fini(&s);
    return status;
}

void zonal__probe_fini(zonal__probe *probe) {
    zonal__free(probe->parameters);
    memset(probe, 0, sizeof *probe);
}

zonal_status zonal__probe_test(const zonal__probe *probe, const zonal__labelled *test,
                               zonal__scores *scores) {
    zonal__softmax_spec spec = {
        .dim = probe->dim, .classes = probe->classes, .threads = probe->threads};
    const zonal__softmax_table *table = zonal__training_host()->softmax;
    zonal__softmax *softmax;
    memset(scores, 0, sizeof *scores);
    ZONAL_TRY(zonal__labelled_check(test, probe->dim, probe->classes, "the test set"));
    ZONAL_TRY(table->create(&spec, &softmax));
    zonal_status status = zonal__scores_init(probe->classes, scores);
    if (status == ZONAL_OK)
        status = classify(table, softmax, probe->parameters, probe->dim, test, scores);
    if (status != ZONAL_OK) zonal__scores_fini(scores);
    table->destroy(softmax);
    return status;
}
