#include "cli/eval/protocols.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/progress.h"
#include "core/memory.h"
#include "eval/neighbours.h"
#include "eval/probe.h"
#include "eval/retrieval.h"

/* ---- how far it is --------------------------------------------------------------------------- */

static int on_images(void *context, int64_t done) {
    zonal__progress_update(context, done);
    return 0;
}

enum { SHARES = 1000 };

static int on_share(void *context, double share) {
    zonal__progress_update(context, (int64_t)(share * SHARES));
    return 0;
}

/* ---- features -------------------------------------------------------------------------------- */

/* What the network makes of a part of the images. */
typedef struct part {
    zonal__source *source;
    int64_t limit; /* of its images, where it left some out; 0: these are all */
    int views;
    float *features, *projections; /* [views][count][dim]; NULL: not asked for */
} part;

static void drop_part(part *p) {
    zonal__source_close(p->source);
    zonal__free(p->features);
    zonal__free(p->projections);
    *p = (part){0};
}

static zonal_status open_part(const zonal__subject *s, zonal__split split, part *p) {
    ZONAL_TRY(zonal__training_source(&s->training, split, 0, &p->source));
    if (s->limit > 0 && p->source->count > s->limit) p->limit = s->limit;
    return zonal__training_thin(p->source, p->limit);
}

static zonal_status extract(const zonal__subject *s, const zonal__protocol_options *o,
                            zonal__features_options how, const char *label, part *p) {
    const zonal__graph *graph = &s->model->graph;
    const int64_t rows = how.views * how.source->count;
    zonal__progress progress;
    zonal_status status;
    if (o->backbone && !p->features)
        ZONAL_TRY(ZONAL_NEW(&p->features, rows * graph->feature_dim, "the features"));
    if (o->projector && !p->projections)
        ZONAL_TRY(ZONAL_NEW(&p->projections, rows * graph->projection_dim, "the projections"));
    p->views = how.views;
    how.progress = on_images;
    how.progress_context = &progress;
    zonal__progress_begin(&progress, label, how.source->count, o->quiet);
    status = zonal__features_extract(s->model, &how, p->features, p->projections);
    zonal__progress_end(&progress);
    return status;
}

/* The two kinds of features, of those that were asked for. */
typedef struct kind {
    const char *name;
    int64_t dim;
    int projector;
} kind;

static int list_kinds(const zonal__subject *s, const zonal__protocol_options *o, kind out[2]) {
    int count = 0;
    if (o->backbone) out[count++] = (kind){"backbone", s->model->graph.feature_dim, 0};
    if (o->projector) out[count++] = (kind){"projector", s->model->graph.projection_dim, 1};
    return count;
}

static const float *rows_of(const part *p, const kind *k) {
    return k->projector ? p->projections : p->features;
}

static zonal__labelled labelled(const part *p, const kind *k) {
    return (zonal__labelled){.count = p->source->count,
                             .x = rows_of(p, k),
                             .label_count = p->source->labels ? p->source->count : 0,
                             .labels = p->source->labels};
}

/* ---- results --------------------------------------------------------------------------------- */

static void tell(const zonal__protocol_options *o, zonal__eval_results *results) {
    if (o->found) o->found(results);
}

static zonal__eval_result begin_result(const char *protocol, const kind *k) {
    return (zonal__eval_result){.protocol = protocol, .features = k->name, .seed = -1};
}

static void add_parameter(zonal__eval_result *r, const char *name, const char *title,
                          double value) {
    r->parameter[r->parameters++] =
        (zonal__eval_number){.name = name, .title = title, .value = value};
}

static void add_number(zonal__eval_result *r, const char *name, const char *title, double value,
                       int percent) {
    r->number[r->numbers++] =
        (zonal__eval_number){.name = name, .title = title, .value = value, .percent = percent};
}

static zonal_status copy_class_names(const zonal__source *source, zonal__eval_result *r) {
    if (!source->class_names) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&r->class_names, source->classes, "the classes' names"));
    for (int c = 0; c < source->classes; c++)
        snprintf(r->class_names[c], sizeof r->class_names[c], "%s", source->class_names[c]);
    return ZONAL_OK;
}

/* Takes the scores over. */
static zonal_status add_scores(const part *train, const part *test, zonal__scores *scores,
                               zonal__eval_result *r, zonal__eval_results *results) {
    zonal_status status;
    r->train = train->source->count;
    r->test = test->source->count;
    r->limit = train->limit ? train->limit : test->limit;
    add_number(r, "accuracy", "top 1", zonal__scores_accuracy(scores), 1);
    add_number(r, "top5", "top 5", zonal__scores_top5(scores), 1);
    r->scores = *scores;
    *scores = (zonal__scores){0};
    status = copy_class_names(test->source, r);
    if (status != ZONAL_OK) {
        zonal__scores_fini(&r->scores);
        return status;
    }
    return zonal__eval_results_add(results, r);
}

/* ---- k-NN ------------------------------------------------------------------------------------ */

static zonal_status add_knn(const zonal__protocol_options *o, const kind *k, const part *train,
                            const part *test, zonal__scores *scores, zonal__eval_results *results) {
    for (int i = 0; i < o->ks; i++)
        for (int j = 0; j < o->temperatures; j++) {
            zonal__eval_result r = begin_result(o->knn_name, k);
            r.variant = i * o->temperatures + j;
            add_parameter(&r, "k", "k", o->k[i]);
            add_parameter(&r, "temperature", "T", o->temperature[j]);
            snprintf(r.how, sizeof r.how, "k %d, T %.6g", o->k[i], o->temperature[j]);
            ZONAL_TRY(add_scores(train, test, &scores[r.variant], &r, results));
        }
    return ZONAL_OK;
}

static zonal__protocol_options lower_k(const zonal__protocol_options *o, int64_t count) {
    zonal__protocol_options fitting = *o;
    for (int i = 0; o->usual_k && i < o->ks; i++)
        if (fitting.k[i] > count) fitting.k[i] = (int)count;
    return fitting;
}

static zonal_status run_knn(const zonal__subject *s, const zonal__protocol_options *asked,
                            const kind *k, const part *train, const part *test,
                            zonal__eval_results *results) {
    const zonal__protocol_options fitting = lower_k(asked, train->source->count), *o = &fitting;
    const zonal__labelled learn = labelled(train, k), see = labelled(test, k);
    zonal__progress progress;
    const zonal__knn_options options = {.dim = k->dim,
                                        .classes = train->source->classes,
                                        .ks = o->ks,
                                        .k = o->k,
                                        .temperatures = o->temperatures,
                                        .temperature = o->temperature,
                                        .device = s->device,
                                        .threads = s->threads,
                                        .progress = {on_share, &progress}};
    const int count = o->ks * o->temperatures;
    zonal__scores *scores;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&scores, count, "the scores"));
    zonal__progress_begin(&progress, "nearest neighbours", SHARES, o->quiet);
    status = zonal__knn_run(&options, &learn, &see, scores);
    zonal__progress_end(&progress);
    if (status == ZONAL_OK) status = add_knn(o, k, train, test, scores, results);
    for (int i = 0; i < count; i++) zonal__scores_fini(&scores[i]);
    zonal__free(scores);
    return status;
}

/* ---- linear probe ---------------------------------------------------------------------------- */

static zonal_status fit(const zonal__subject *s, const zonal__protocol_options *o, const kind *k,
                        const part *train, int64_t seed, zonal__probe *probe) {
    const zonal__labelled learn = labelled(train, k);
    zonal__progress progress;
    const zonal__probe_options options = {.dim = k->dim,
                                          .classes = train->source->classes,
                                          .standardise = o->standardise,
                                          .l2_count = o->l2_count,
                                          .l2 = o->l2,
                                          .seed = (uint64_t)seed,
                                          .threads = s->threads,
                                          .progress = {on_share, &progress}};
    zonal_status status;
    zonal__progress_begin(&progress, "linear probe", SHARES, o->quiet);
    status = zonal__probe_fit(&options, &learn, probe);
    zonal__progress_end(&progress);
    return status;
}

/* "l2 of 0.01, 0.1, standardised" */
static void describe_penalties(const zonal__protocol_options *o, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "l2 of ");
    for (int i = 0; i < o->l2_count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%.6g, ", o->l2[i]);
    if (o->l2_count == 0 && used < size)
        used += (size_t)snprintf(out + used, size - used, "the usual list, ");
    if (used < size)
        snprintf(out + used, size - used, "%s", o->standardise ? "standardised" : "as they are");
}

static zonal_status run_linear(const zonal__subject *s, const zonal__protocol_options *o,
                               const kind *k, const part *train, const part *test,
                               zonal__eval_results *results) {
    const zonal__labelled see = labelled(test, k);
    for (int64_t i = 0; i < o->seeds; i++) {
        zonal__eval_result r = begin_result(o->linear_name, k);
        zonal__probe probe;
        zonal__scores scores;
        zonal_status status;
        ZONAL_TRY(fit(s, o, k, train, o->seed + i, &probe));
        status = zonal__probe_test(&probe, &see, &scores);
        r.seed = o->seed + i;
        add_parameter(&r, "l2", "l2", probe.l2);
        describe_penalties(o, r.how, sizeof r.how);
        zonal__probe_fini(&probe);
        ZONAL_TRY(status);
        ZONAL_TRY(add_scores(train, test, &scores, &r, results));
        tell(o, results);
    }
    return ZONAL_OK;
}

/* ---- linear probe by SGD --------------------------------------------------------------------- */

/* One classifier for each kind of features, trained on the same views. */
typedef struct learners {
    int count;
    kind kinds[2];
    zonal__probe_sgd *sgd[2];
} learners;

static zonal_status learn(void *context, const zonal__features_batch *batch) {
    const learners *l = context;
    for (int i = 0; i < l->count; i++) {
        const zonal__labelled set = {.count = batch->count,
                                     .x = l->kinds[i].projector ? batch->projections
                                                                : batch->features,
                                     .label_count = batch->count,
                                     .labels = batch->labels};
        double loss;
        ZONAL_TRY(zonal__probe_sgd_step(l->sgd[i], &set, &loss));
    }
    return ZONAL_OK;
}

static zonal_status teach(zonal__subject *s, const zonal__protocol_options *o,
                          zonal__source *source, int64_t seed, learners *l) {
    zonal__features_options how =
        zonal__subject_augmented(s, source, o->solo, o->sgd, (uint64_t)seed);
    zonal__progress progress;
    zonal_status status;
    for (int i = 0; i < l->count; i++) {
        const zonal__probe_sgd_options options = {.dim = l->kinds[i].dim,
                                                  .classes = source->classes,
                                                  .steps = o->sgd * (source->count / how.batch),
                                                  .rate = o->rate,
                                                  .steps_down = o->solo,
                                                  .threads = s->threads};
        ZONAL_TRY(zonal__probe_sgd_create(&options, &l->sgd[i]));
    }
    how.progress = on_images;
    how.progress_context = &progress;
    zonal__progress_begin(&progress, "linear probe", o->sgd * source->count, o->quiet);
    status = zonal__features_stream(s->model, &how, learn, l);
    zonal__progress_end(&progress);
    return status;
}

static zonal_status test_learner(const zonal__protocol_options *o, const learners *l, int i,
                                 int64_t seed, const part *train, const part *test,
                                 zonal__eval_results *results) {
    const zonal__labelled see = labelled(test, &l->kinds[i]);
    zonal__eval_result r = begin_result(o->linear_name, &l->kinds[i]);
    zonal__probe probe;
    zonal__scores scores;
    zonal_status status;
    ZONAL_TRY(zonal__probe_sgd_probe(l->sgd[i], &probe));
    status = zonal__probe_test(&probe, &see, &scores);
    zonal__probe_fini(&probe);
    ZONAL_TRY(status);
    r.seed = seed;
    add_parameter(&r, "epochs", "epochs", (double)o->sgd);
    add_parameter(&r, "rate", NULL, o->rate);
    snprintf(r.how, sizeof r.how, "SGD, %" PRId64 " epochs, rate %.6g", o->sgd, o->rate);
    return add_scores(train, test, &scores, &r, results);
}

static zonal_status run_sgd(zonal__subject *s, const zonal__protocol_options *o, const part *train,
                            const part *test, zonal__eval_results *results) {
    for (int64_t n = 0; n < o->seeds; n++) {
        const int64_t seed = o->seed + n;
        learners l = {0};
        zonal_status status;
        l.count = list_kinds(s, o, l.kinds);
        status = teach(s, o, train->source, seed, &l);
        for (int i = 0; i < l.count && status == ZONAL_OK; i++)
            status = test_learner(o, &l, i, seed, train, test, results);
        for (int i = 0; i < l.count; i++) zonal__probe_sgd_destroy(l.sgd[i]);
        ZONAL_TRY(status);
        tell(o, results);
    }
    return ZONAL_OK;
}

/* ---- what needs labels ----------------------------------------------------------------------- */

static zonal_status check_labels(const part *train, const part *test) {
    if (!train->source->labels || !test->source->labels)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "%s has no labels, which k-NN and linear probes need; use --protocol "
                          "retrieval or diagnostics",
                          train->source->path);
    if (train->source->classes != test->source->classes)
        return ZONAL_FAIL(
            ZONAL_FORMAT,
            "the splits of %s have %d and %d classes; give both the same (--class-list, "
            "where classes have names)",
            train->source->path, train->source->classes, test->source->classes);
    return ZONAL_OK;
}

static zonal_status classify(zonal__subject *s, const zonal__protocol_options *o, part *train,
                             part *test, zonal__eval_results *results) {
    kind kinds[2];
    const int count = list_kinds(s, o, kinds);
    ZONAL_TRY(open_part(s, ZONAL__SPLIT_TRAIN, train));
    ZONAL_TRY(open_part(s, o->test, test));
    ZONAL_TRY(check_labels(train, test));
    if (o->knn || !o->sgd)
        ZONAL_TRY(
            extract(s, o, zonal__subject_still(s, train->source), "features to learn from", train));
    ZONAL_TRY(extract(s, o, zonal__subject_still(s, test->source), "features to test", test));
    for (int i = 0; i < count && o->knn; i++)
        ZONAL_TRY(run_knn(s, o, &kinds[i], train, test, results));
    if (o->knn) tell(o, results);
    if (o->linear && o->sgd) return run_sgd(s, o, train, test, results);
    for (int i = 0; i < count && o->linear; i++)
        ZONAL_TRY(run_linear(s, o, &kinds[i], train, test, results));
    return ZONAL_OK;
}

/* ---- what needs several views ---------------------------------------------------------------- */

static zonal_status run_retrieval(const zonal__subject *s, const zonal__protocol_options *o,
                                  const kind *k, const part *p, int64_t seed,
                                  zonal__eval_results *results) {
    zonal__eval_result r = begin_result("retrieval", k);
    const int64_t samples = p->source->count;
    zonal__progress progress;
    const zonal__retrieval_options options = {
        .views = p->views,
        .samples = samples,
        .dim = k->dim,
        .batch = o->retrieval_batch < samples ? o->retrieval_batch : 0,
        .device = s->device,
        .threads = s->threads,
        .progress = {on_share, &progress}};
    zonal__retrieval found;
    zonal_status status;
    zonal__progress_begin(&progress, "retrieval", SHARES, o->quiet);
    status = zonal__retrieval_run(&options, rows_of(p, k), &found);
    zonal__progress_end(&progress);
    ZONAL_TRY(status);
    r.seed = seed;
    r.test = found.queries / p->views;
    r.limit = p->limit;
    r.drawn = 1;
    add_parameter(&r, "views", NULL, p->views);
    add_parameter(&r, "candidates", NULL, (double)found.candidates);
    snprintf(r.common, sizeof r.common, "%d views, %" PRId64 " candidates", p->views,
             found.candidates);
    snprintf(r.how, sizeof r.how, "%s", r.common);
    add_number(&r, "r1", "R@1", found.r1, 1);
    add_number(&r, "r3", "R@3", found.r3, 1);
    add_number(&r, "r5", "R@5", found.r5, 1);
    add_number(&r, "map", "mAP", found.map, 1);
    return zonal__eval_results_add(results, &r);
}

static double p_of(const zonal_uniformity_report *report, const char *name) {
    for (int i = 0; i < report->tests; i++)
        if (strcmp(report->test[i].name, name) == 0) return report->test[i].p;
    return NAN;
}

static zonal_status run_diagnostics(const zonal__subject *s, const zonal__protocol_options *o,
                                    const kind *k, const part *p, int64_t seed,
                                    zonal__eval_results *results) {
    const int64_t n = p->source->count;
    const float *x = rows_of(p, k);
    zonal__eval_result r = begin_result("diagnostics", k);
    zonal__progress progress;
    const zonal_uniformity_options options = {.size = sizeof options,
                                              .threads = s->threads,
                                              .progress = on_share,
                                              .progress_context = &progress};
    zonal__diagnostics diagnostics;
    zonal_status status;
    zonal__progress_begin(&progress, "diagnostics", SHARES, o->quiet);
    status = zonal__diagnostics_run(&options, n, k->dim, x, p->views > 1 ? x + n * k->dim : NULL,
                                    &diagnostics);
    zonal__progress_end(&progress);
    ZONAL_TRY(status);
    r.seed = seed;
    r.test = n;
    r.limit = p->limit;
    r.drawn = 1;
    add_parameter(&r, "views", NULL, p->views);
    snprintf(r.common, sizeof r.common, "%d views", p->views);
    snprintf(r.how, sizeof r.how, "%s", r.common);
    add_number(&r, "alignment", "align", diagnostics.alignment, 0);
    add_number(&r, "uniformity", "uniform", diagnostics.uniformity, 0);
    add_number(&r, "effective_rank", "rank", diagnostics.report.effective_rank, 0);
    add_number(&r, "p_bingham", "p", p_of(&diagnostics.report, "bingham"), 0);
    r.number[r.numbers - 1].single = 1;
    add_number(&r, "effective_rank_expected", NULL, diagnostics.report.effective_rank_expected, 0);
    add_number(&r, "mean_cosine", NULL, diagnostics.report.mean_cosine, 0);
    add_number(&r, "collapsed", NULL, diagnostics.report.collapse != ZONAL_COLLAPSE_NONE, 0);
    /* No loss asks for uniform features of the backbone: they may lie in few directions. */
    if (k->projector && diagnostics.report.collapse != ZONAL_COLLAPSE_NONE)
        snprintf(r.verdict, sizeof r.verdict,
                 "the projections have collapsed: mean cosine %.3f, effective rank %.1f where "
                 "uniform points have %.1f",
                 diagnostics.report.mean_cosine, diagnostics.report.effective_rank,
                 diagnostics.report.effective_rank_expected);
    r.degrees = diagnostics.report.degrees;
    memcpy(r.degree, diagnostics.report.degree, sizeof r.degree);
    return zonal__eval_results_add(results, &r);
}

static zonal_status check_images(const zonal__protocol_options *o, const part *p) {
    if (!o->retrieval || p->source->count >= 2) return ZONAL_OK;
    return ZONAL_FAIL(
        ZONAL_ARGUMENT,
        "retrieval needs 2 images or more, among which a view is looked for, and there "
        "is 1 in the %s part of %s%s; take more of them, or another --protocol",
        zonal__split_words[o->test], p->source->path, p->limit ? " (--limit)" : "");
}

static zonal_status look_at_views(zonal__subject *s, const zonal__protocol_options *o, part *p,
                                  zonal__eval_results *results) {
    kind kinds[2];
    const int count = list_kinds(s, o, kinds);
    ZONAL_TRY(open_part(s, o->test, p));
    ZONAL_TRY(check_images(o, p));
    for (int64_t n = 0; n < o->seeds; n++) {
        const int64_t seed = o->seed + n;
        ZONAL_TRY(extract(s, o, zonal__subject_random(s, p->source, o->views, (uint64_t)seed),
                          "features of views", p));
        for (int i = 0; i < count && o->retrieval; i++)
            ZONAL_TRY(run_retrieval(s, o, &kinds[i], p, seed, results));
        for (int i = 0; i < count && o->diagnostics; i++)
            ZONAL_TRY(run_diagnostics(s, o, &kinds[i], p, seed, results));
        tell(o, results);
    }
    return ZONAL_OK;
}

zonal_status zonal__protocols_run(zonal__subject *s, const zonal__protocol_options *o,
                                  zonal__eval_results *results) {
    part train = {0}, test = {0}, views = {0};
    zonal_status status = ZONAL_OK;
    if (o->knn || o->linear) status = classify(s, o, &train, &test, results);
    drop_part(&train);
    drop_part(&test);
    if (status == ZONAL_OK && (o->retrieval || o->diagnostics))
        status = look_at_views(s, o, &views, results);
    drop_part(&views);
    return status;
}
