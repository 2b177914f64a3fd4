/*
 * zonal eval: how good the features of a network are.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "cli/common/show_log.h"
#include "cli/eval/protocols.h"
#include "cli/eval/store.h"
#include "core/file.h"

enum {
    PROTOCOL_ALL,
    PROTOCOL_KNN,
    PROTOCOL_LINEAR,
    PROTOCOL_RETRIEVAL,
    PROTOCOL_DIAGNOSTICS,
    PROTOCOL_LIGHTLY_KNN,
    PROTOCOL_SOLO_LINEAR
};
enum { FEATURES_BOTH, FEATURES_BACKBONE, FEATURES_PROJECTOR };
enum { TEST_ON_TEST, TEST_ON_VAL };

static const char *const protocols[] = {"all",         "knn",         "linear",      "retrieval",
                                        "diagnostics", "lightly-knn", "solo-linear", NULL};
static const char *const features[] = {"both", "backbone", "projector", NULL};
static const char *const parts[] = {"test", "val", NULL};

typedef struct settings {
    zonal__subject_settings subject;
    const char *weights, *k, *temperature, *l2, *out;
    int protocol, features, test, standardise, all_candidates, detail, json, quiet;
    int64_t sgd, views, retrieval_batch, seed, seeds;
    double rate;
    int rate_given, k_given;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "protocol",
     .type = ZONAL__OPTION_WORD,
     AT(protocol),
     .words = protocols,
     .initial = "all",
     .help = "what to measure; all: whatever the images allow"},
    {.name = "features",
     .type = ZONAL__OPTION_WORD,
     AT(features),
     .words = features,
     .initial = "both",
     .help = "features of the backbone, or the projector's output"},
    {.name = "weights",
     .type = ZONAL__OPTION_STRING,
     AT(weights),
     .metavar = "FILE",
     .help = "evaluate a safetensors file with torchvision's names instead of a run"},
    {.name = "split",
     .type = ZONAL__OPTION_WORD,
     AT(test),
     .words = parts,
     .initial = "test",
     .help = "the split to evaluate on"},
    {.name = "k",
     .type = ZONAL__OPTION_STRING,
     AT(k),
     .initial = "20",
     .metavar = "K,...",
     .help = "knn: how many neighbours vote; a row for each number; unless given, all where there "
             "are fewer"},
    {.name = "temperature",
     .type = ZONAL__OPTION_STRING,
     AT(temperature),
     .initial = "0.07",
     .metavar = "T,...",
     .help = "knn: votes weigh exp(cosine/T)"},
    {.name = "l2",
     .type = ZONAL__OPTION_STRING,
     AT(l2),
     .metavar = "L,...",
     .help =
         "linear: penalties to choose from, on a held-out tenth; 1e-6, 1e-5 ... 0.1 unless given"},
    {.name = "standardise",
     .type = ZONAL__OPTION_FLAG,
     AT(standardise),
     .initial = "yes",
     .help = "linear: scale every feature to mean 0 and variance 1 first"},
    {.name = "sgd",
     .type = ZONAL__OPTION_INT,
     AT(sgd),
     .initial = "0",
     .least = 0,
     .most = 10000,
     .metavar = "EPOCHS",
     .help = "linear: train by SGD on augmented images instead, for this many epochs"},
    {.name = "lr",
     .type = ZONAL__OPTION_DOUBLE,
     AT(rate),
     .initial = "0.1",
     .least = 0,
     .most = INFINITY,
     .rules = ZONAL__OPTION_OVER | ZONAL__OPTION_UNDER,
     .help = "linear: the learning rate of --sgd; solo-linear: 0.3 unless given"},
    {.name = "views",
     .type = ZONAL__OPTION_INT,
     AT(views),
     .initial = "2",
     .least = 2,
     .most = ZONAL__SUBJECT_VIEWS,
     .help = "retrieval, diagnostics: of each image, drawn as in training"},
    {.name = "gallery",
     .type = ZONAL__OPTION_INT,
     AT(retrieval_batch),
     .initial = "100",
     .least = 2,
     .most = 1e9,
     .help = "retrieval: images in a gallery, within which a view searches; at most all of them"},
    {.name = "global",
     .type = ZONAL__OPTION_FLAG,
     AT(all_candidates),
     .help = "retrieval: search among all images"},
    {.name = "seed",
     .type = ZONAL__OPTION_INT,
     AT(seed),
     .initial = "0",
     .least = 0,
     .most = INFINITY,
     .help = "seed of views and of the held-out tenth"},
    {.name = "seeds",
     .type = ZONAL__OPTION_INT,
     AT(seeds),
     .initial = "1",
     .least = 1,
     .most = 1000,
     .help = "repeat with this many seeds, from --seed on"},
    {.name = "detail",
     .type = ZONAL__OPTION_FLAG,
     AT(detail),
     .help = "also print accuracy by class and the confusion matrix"},
    ZONAL__SUBJECT_OPTIONS(settings, subject),
    {.name = "out",
     .type = ZONAL__OPTION_STRING,
     AT(out),
     .metavar = "FILE",
     .help = "also write the results here, as JSON with all details"},
    {.name = "json", .type = ZONAL__OPTION_FLAG, AT(json), .help = "print JSON"},
    {.name = "quiet",
     .type = ZONAL__OPTION_FLAG,
     AT(quiet),
     .help = "no progress bar and no hints"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis =
        "zonal eval RUN... [options]\n       zonal eval --weights FILE --data PATH [options]",
    .description =
        "Measures how good the features of a network are:\n\n"
        "  knn          weighted votes of the nearest training images\n"
        "  linear       logistic regression on frozen features, to convergence\n"
        "  retrieval    does a view find the other views of its image? R@1, 3, 5 and mAP\n"
        "  diagnostics  alignment, uniformity (Wang and Isola), effective rank (RankMe),\n"
        "               p-value of uniformity (Bingham's test); --json: energy by degree\n"
        "  lightly-knn  knn as in lightly's benchmarks: k 200, T 0.1, of the backbone\n"
        "  solo-linear  linear as in solo-learn: SGD on random crops of the training\n"
        "               images, 100 epochs of batches of 256, rate 0.3 (or --lr), a tenth\n"
        "               of it after 60 and after 80 epochs; of the backbone\n\n"
        "All but retrieval and diagnostics need labels. Each run, and each of --seeds,\ngives a "
        "row. Runs that differ only in their training seed also get a mean and a\nsample standard "
        "deviation. Results are stored in RUN/eval, those of --limit in\nRUN/eval/partial.\n",
    .argument = "RUN",
    .least = 0,
    .most = ZONAL__EVAL_RUNS - 1}; /* and --weights */

/* ---- the settings ---------------------------------------------------------------------------- */

static zonal_status read_lists(const settings *s, zonal__protocol_options *o) {
    int64_t k[ZONAL__PROTOCOL_LIST];
    const int lightly = s->protocol == PROTOCOL_LIGHTLY_KNN;
    ZONAL_TRY(
        zonal__list_int64(lightly ? "200" : s->k, "--k", 1, 256, ZONAL__PROTOCOL_LIST, k, &o->ks));
    for (int i = 0; i < o->ks; i++) o->k[i] = (int)k[i];
    o->usual_k = !lightly && !s->k_given;
    ZONAL_TRY(zonal__list_double(lightly ? "0.1" : s->temperature, "--temperature",
                                 ZONAL__PROTOCOL_LIST, o->temperature, &o->temperatures));
    for (int i = 0; i < o->temperatures; i++)
        if (!(o->temperature[i] > 0))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--temperature must be above 0, got %g",
                              o->temperature[i]);
    if (s->l2)
        ZONAL_TRY(zonal__list_double(s->l2, "--l2", ZONAL__PROTOCOL_LIST, o->l2, &o->l2_count));
    return ZONAL_OK;
}

/* The protocols of other projects, so that results can stand beside theirs: lightly's
 * benchmarks (knn_k 200, knn_t 0.1), solo-learn's scripts/linear/imagenet-100. */
static void adopt(const settings *s, zonal__protocol_options *o) {
    o->knn_name = "knn";
    o->linear_name = "linear";
    if (s->protocol == PROTOCOL_LIGHTLY_KNN) {
        o->knn = 1;
        o->knn_name = "lightly-knn";
    } else if (s->protocol == PROTOCOL_SOLO_LINEAR) {
        o->linear = o->solo = 1;
        o->linear_name = "solo-linear";
        o->sgd = 100;
        if (!s->rate_given) o->rate = .3;
    }
    if (s->protocol >= PROTOCOL_LIGHTLY_KNN) o->projector = 0;
}

static zonal_status read_settings(const settings *s, zonal__protocol_options *o) {
    const int all = s->protocol == PROTOCOL_ALL;
    *o = (zonal__protocol_options){.knn = all || s->protocol == PROTOCOL_KNN,
                                   .linear = all || s->protocol == PROTOCOL_LINEAR,
                                   .retrieval = all || s->protocol == PROTOCOL_RETRIEVAL,
                                   .diagnostics = all || s->protocol == PROTOCOL_DIAGNOSTICS,
                                   .backbone = s->features != FEATURES_PROJECTOR,
                                   .projector = s->features != FEATURES_BACKBONE,
                                   .standardise = s->standardise,
                                   .sgd = s->sgd,
                                   .rate = s->rate,
                                   .test = s->test == TEST_ON_VAL ? ZONAL__SPLIT_VAL
                                                                  : ZONAL__SPLIT_TEST,
                                   .views = (int)s->views,
                                   .retrieval_batch = s->all_candidates ? 0 : s->retrieval_batch,
                                   .seed = s->seed,
                                   .seeds = s->seeds,
                                   .quiet = s->quiet};
    adopt(s, o);
    if (s->seed > INT64_MAX - (s->seeds - 1))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--seed %" PRId64 " and the %" PRId64 " seeds after it go beyond the "
                          "largest, %" PRId64 "; begin with a smaller one",
                          s->seed, s->seeds - 1, INT64_MAX);
    return read_lists(s, o);
}

/* What this subject allows of what was asked for. */
static zonal_status adapt(const settings *s, const zonal__subject *subject,
                          zonal__protocol_options *o) {
    if (subject->model->spec.projector_layers == 0) {
        if (s->features == FEATURES_PROJECTOR)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has no projector; use --features backbone",
                              subject->weights);
        o->projector = 0;
    }
    if (s->protocol == PROTOCOL_ALL && subject->training.source->classes < 2) {
        zonal__log("%s has no classes: knn and linear are left out",
                   subject->training.source->path);
        o->knn = o->linear = 0;
    }
    return ZONAL_OK;
}

/* ---- one after the other --------------------------------------------------------------------- */

/* What was found is stored at once, so that what comes later cannot lose it. That it could not be
 * stored is no failure: it is printed all the same, and the reason after it. */
static void keep(zonal__eval_results *results) {
    zonal__eval_run *run = &results->runs[results->run_count - 1];
    run->not_kept[0] = '\0'; /* all that was found before is tried again */
    if (!run->is_run || zonal__eval_store(results, results->run_count - 1) == ZONAL_OK) return;
    snprintf(run->not_kept, sizeof run->not_kept, "%s", zonal_last_error()->message);
}

static zonal_status evaluate(const settings *s, const char *name, zonal__protocol_options o,
                             zonal__eval_results *results) {
    zonal__subject subject;
    zonal_status status;
    ZONAL_TRY(zonal__subject_open(name, &s->subject, &subject));
    status = adapt(s, &subject, &o);
    if (status == ZONAL_OK)
        status = zonal__eval_results_add_run(results, &subject, s->subject.checkpoint, o.test);
    if (status == ZONAL_OK) status = zonal__protocols_run(&subject, &o, results);
    zonal__subject_close(&subject);
    return status;
}

/* What a protocol had found when it failed is kept too. */
static zonal_status evaluate_run(const settings *s, const char *name, zonal__protocol_options o,
                                 zonal__eval_results *results) {
    const int before = results->run_count;
    o.found = keep;
    const zonal_status status = evaluate(s, name, o, results);
    if (status == ZONAL_OK || results->run_count == before) return status;
    const zonal_error error = *zonal_last_error(); /* a copy: storing may fail as well */
    keep(results);
    return ZONAL_FAIL(error.status, "%s", error.message);
}

/* Up to the first that fails; what was found until then is there. */
static zonal_status evaluate_all(const settings *s, int count, char **names,
                                 zonal__eval_results *results) {
    zonal__protocol_options o;
    ZONAL_TRY(read_settings(s, &o));
    if (s->weights) ZONAL_TRY(evaluate(s, s->weights, o, results));
    for (int i = 0; i < count; i++) ZONAL_TRY(evaluate_run(s, names[i], o, results));
    return ZONAL_OK;
}

/* ---- what comes out -------------------------------------------------------------------------- */

static zonal_status print_json(const zonal__eval_results *results, int detail) {
    zonal__json json;
    zonal_status status;
    zonal__json_init(&json, stdout);
    zonal__json_begin_object(&json);
    zonal__eval_results_json(&json, results, detail);
    zonal__json_end_object(&json);
    status = zonal__json_finish(&json, NULL);
    zonal__json_fini(&json);
    return status;
}

static zonal_status write_json(const zonal__eval_results *results, zonal__file *file) {
    zonal__json json;
    const char *text;
    zonal_status status;
    zonal__json_init(&json, NULL);
    zonal__json_begin_object(&json);
    zonal__eval_results_json(&json, results, 1);
    zonal__json_end_object(&json);
    status = zonal__json_finish(&json, &text);
    if (status == ZONAL_OK) zonal__file_write(file, text, strlen(text));
    zonal__json_fini(&json);
    return status;
}

static zonal_status show(const settings *s, zonal__eval_results *results) {
    zonal_status status = ZONAL_OK;
    zonal__eval_results_group(results);
    if (s->json)
        status = print_json(results, s->detail);
    else
        zonal__eval_results_print(results, s->detail);
    fflush(stdout); /* before the warnings */
    for (int i = 0; i < results->run_count; i++)
        if (results->runs[i].not_kept[0])
            zonal__cli_say("warning: the results of %s are not stored: %s", results->runs[i].name,
                           results->runs[i].not_kept);
    return status;
}

static zonal_status keep_inputs(const settings *s, int count, char **names) {
    ZONAL_TRY(zonal__subject_keep_inputs("--out", s->out, s->weights, &s->subject));
    for (int i = 0; i < count; i++)
        ZONAL_TRY(zonal__subject_keep_inputs("--out", s->out, names[i], &s->subject));
    return ZONAL_OK;
}

/* The file is opened first: an hour later is too late to learn that it cannot be. */
static int run(const settings *s, int count, char **names) {
    zonal__eval_results results = {0};
    zonal__file *out = NULL;
    zonal_error first = {0};
    if (keep_inputs(s, count, names) != ZONAL_OK) return zonal__cli_failed();
    if (s->out && zonal__file_create(s->out, &out) != ZONAL_OK) return zonal__cli_failed();
    zonal_status status = evaluate_all(s, count, names, &results);
    if (status != ZONAL_OK) first = *zonal_last_error();
    if (results.count > 0) {
        if (show(s, &results) != ZONAL_OK && status == ZONAL_OK) first = *zonal_last_error();
        if (out && write_json(&results, out) != ZONAL_OK && first.status == ZONAL_OK)
            first = *zonal_last_error();
    }
    if (results.count == 0 || first.status != ZONAL_OK)
        zonal__file_abandon(out);
    else if (out && zonal__file_commit(out) != ZONAL_OK)
        first = *zonal_last_error();
    zonal__eval_results_fini(&results);
    if (first.status == ZONAL_OK) return ZONAL__EXIT_OK;
    zonal__cli_say("%s", first.message);
    return first.status == ZONAL_ARGUMENT ? ZONAL__EXIT_USAGE : ZONAL__EXIT_FAILED;
}

static int is_given(const zonal__options *options, const char *name) {
    return zonal__options_source(options, name) > ZONAL__SOURCE_DEFAULT;
}

/* The first given option that a protocol of another project settles; NULL: there is none. */
static const char *find_fixed(const zonal__options *options) {
    static const char *const names[] = {"k", "temperature", "l2", "standardise", "sgd", "features"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (is_given(options, names[i])) return names[i];
    return NULL;
}

int zonal__cli_eval(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (!s.weights && options.argument_count == 0)
        return zonal__cli_misused("nothing to evaluate: give a run folder, or --weights FILE");
    s.rate_given = is_given(&options, "lr");
    s.k_given = is_given(&options, "k");
    if (s.protocol >= PROTOCOL_LIGHTLY_KNN && find_fixed(&options))
        return zonal__cli_misused(
            "--%s cannot be combined with --protocol %s, which says what it is",
            find_fixed(&options), protocols[s.protocol]);
    zonal__cli_show_log(s.quiet);
    return run(&s, options.argument_count, options.arguments);
}
