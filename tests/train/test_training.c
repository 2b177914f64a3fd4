/*
 * Training beside PyTorch: ten steps of whole networks, from images to moved weights, follow the
 * losses and gradients that golden/make_training.py computed in float64.
 *
 * In float32 two runs of one training go apart, if their sums are taken in different orders. How
 * far four such runs of PyTorch stray from float64 is stored with every step, as its drift, and
 * SPREAD of them is what ours may stray in the FIRM first steps. Later an input of a relu may come
 * out on the other side of 0, and runs then differ by hundreds of drifts (seen between builds of
 * this test as between PyTorch's runs): BRANCHED allows for that. A step that is computed otherwise
 * is thousands away.
 */
#include "core/memory.h"
#include "nn/network.h"
#include "test.h"
#include "train/trainer_state.h"

enum { STEPS = 10, BATCH = 8, VIEWS = 2, SPREAD = 4, FIRM = 5, BRANCHED = 1000 };

typedef struct golden_step {
    double total, invariance, discrepancy, gradient_norm;
    double drift; /* relative, of any of these */
} golden_step;

typedef struct golden_training {
    const char *name;
    zonal__network_spec network;
    int h, w, seed;
    double weight_decay;
    golden_step steps[STEPS];
} golden_training;

#include "golden/training.h"

enum { GOLDEN_TRAININGS = sizeof golden_trainings / sizeof golden_trainings[0] };

/* ---- the numbers that make_training.py draws too --------------------------------------------- */

enum { PARAMETER = 0, COMMON = 4000, OWN = 5000 };

static uint32_t mix(uint32_t n) {
    n = n * 2654435761u + 974711u;
    n = (n ^ n >> 15) * 2246822519u;
    return n ^ n >> 13;
}

/* In [-1/2, 1/2). */
static double noise(int seed, int what, int64_t index) {
    uint32_t start = mix((uint32_t)(10000 * seed + what));
    return mix((uint32_t)index + start) * 0x1p-32 - 0.5;
}

static double first_value(const zonal__entry *entry, double draw) {
    if (entry->kind == ZONAL__ENTRY_WEIGHT) return draw * sqrt(24.0 / (double)entry->fan_in);
    return entry->kind == ZONAL__ENTRY_SCALE ? 1 + draw / 2 : draw / 2;
}

static int fill_parameters(const golden_training *golden, zonal__model *model) {
    for (int e = 0; e < model->graph.entry_count; e++) {
        const zonal__entry *entry = &model->graph.entries[e];
        float *values;
        if (!zonal__entry_is_trained(entry)) continue;
        if (!CHECK_OK(ZONAL_NEW(&values, entry->count, "values"))) return 0;
        for (int64_t i = 0; i < entry->count; i++)
            values[i] = (float)first_value(entry, noise(golden->seed, PARAMETER + e, i));
        zonal__entry_import(entry, values, model->parameters);
        zonal__free(values);
    }
    return 1;
}

static int64_t view_size(const golden_training *golden) {
    return (int64_t)BATCH * golden->h * golden->w * golden->network.channels;
}

/* [VIEWS][BATCH] images; the views of one have part of their numbers in common. */
static void draw_images(const golden_training *golden, int step, float *images) {
    int64_t size = view_size(golden);
    for (int v = 0; v < VIEWS; v++)
        for (int64_t i = 0; i < size; i++)
            images[v * size + i] = (float)(3 * noise(golden->seed, COMMON + step, i) +
                                           2 * noise(golden->seed, OWN + VIEWS * step + v, i));
}

/* ---- comparison ------------------------------------------------------------------------------ */

static double relative_error(double got, double want) {
    return isfinite(got) ? fabs(got / want - 1) : (double)INFINITY;
}

/* The largest error of a step's four numbers, in units of its drift. */
static double drifts_apart(const golden_step *want, const zonal_objective_parts *loss,
                           double gradient_norm) {
    const double errors[] = {relative_error(loss->total, want->total),
                             relative_error(loss->invariance, want->invariance),
                             relative_error(loss->discrepancy, want->discrepancy),
                             relative_error(gradient_norm, want->gradient_norm)};
    double largest = 0;
    for (int i = 0; i < 4; i++) largest = fmax(largest, errors[i]);
    return largest / want->drift;
}

/* ---- ten steps of the trainer ---------------------------------------------------------------- */

static zonal__trainer_options trainer_options(const golden_training *golden) {
    zonal__trainer_options options = {
        .network = golden->network,
        .loader = {.batch = BATCH,
                   .groups = 1,
                   .group = {{.views = VIEWS, .width = golden->w, .height = golden->h}}},
        .optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW),
        .schedule = {.kind = ZONAL__SCHEDULE_CONSTANT, .total = STEPS, .base = 1e-3},
        .fixed_views = 1, /* which are replaced before each step */
        .threads = 1,     /* so small a network has no work for two */
    };
    options.optimiser.weight_decay = golden->weight_decay;
    options.objective.size = sizeof options.objective;
    CHECK_OK(zonal_objective_defaults("mmd-heat", &options.objective));
    options.objective.gain = ZONAL_GAIN_BATCH;
    return options;
}

/* How far each step is from PyTorch's, in drifts. */
static int train(const golden_training *golden, const zonal__trainer_options *options,
                 double apart[STEPS]) {
    zonal__trainer *t;
    zonal__metrics m;
    int done = 0;
    if (!CHECK_OK(zonal__trainer_create(options, &t))) return 0;
    if (fill_parameters(golden, t->model))
        for (; done < STEPS; done++) {
            draw_images(golden, done, t->groups[0].fixed);
            if (!CHECK_OK(zonal__trainer_step(t)) || !CHECK_OK(zonal__trainer_metrics(t, &m)))
                break;
            apart[done] = drifts_apart(&golden->steps[done], &m.loss, m.gradient_norm);
        }
    zonal__trainer_destroy(t);
    return done == STEPS;
}

static void test_follows_pytorch(void) {
    for (int i = 0; i < GOLDEN_TRAININGS; i++) {
        const golden_training *golden = &golden_trainings[i];
        const zonal__trainer_options options = trainer_options(golden);
        double apart[STEPS];
        if (!train(golden, &options, apart)) continue;
        printf("# %s, in units of the drift:", golden->name);
        for (int s = 0; s < STEPS; s++) printf(" %.2g", apart[s]);
        printf("\n");
        for (int s = 0; s < STEPS; s++) {
            int most = s < FIRM ? SPREAD : BRANCHED;
            CHECK_MSG(apart[s] <= most, "%s: step %d is %.3g drifts apart, at most %d may be",
                      golden->name, s + 1, apart[s], most);
        }
    }
}

/* ---- what must not follow -------------------------------------------------------------------- */

static void check_departs(const char *what, const golden_training *golden,
                          const zonal__trainer_options *options) {
    double apart[STEPS];
    if (!train(golden, options, apart)) return;
    printf("# %s: %.2g drifts apart in the end\n", what, apart[STEPS - 1]);
    CHECK_MSG(apart[STEPS - 1] > BRANCHED, "%s shows too little: %.3g drifts", what,
              apart[STEPS - 1]);
}

/* Small changes of the optimiser, of which the first loss knows nothing, are seen in the last. */
static void test_departures_show(void) {
    const golden_training *golden = &golden_trainings[1]; /* the one with a large decay */
    const zonal__trainer_options right = trainer_options(golden);
    zonal__trainer_options wrong = right;
    wrong.schedule.base *= 1.01;
    check_departs("a rate 1 % too large", golden, &wrong);
    wrong = right;
    wrong.optimiser.weight_decay *= 0.9;
    check_departs("a decay 10 % too small", golden, &wrong);
    wrong = right;
    wrong.decay_all = 1;
    check_departs("decay of batch norms and biases", golden, &wrong);
    wrong = right;
    wrong.optimiser.beta2 = 0.9;
    check_departs("another beta2", golden, &wrong);
    wrong = right;
    wrong.micro_batch = BATCH / 2;
    check_departs("norms over half of the batch", golden, &wrong);
}

/* ---- the first step by the reference --------------------------------------------------------- */

typedef struct reference {
    zonal__model *model;
    zonal__run *run;
    zonal_objective *objective;
    float *images, *gradients;
} reference;

static zonal_status make_reference(const golden_training *golden, reference *r) {
    const zonal__run_spec run = {.n = VIEWS * BATCH, .h = golden->h, .w = golden->w, .threads = 1};
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    ZONAL_TRY(zonal__model_create(&golden->network, zonal__device_ref(), &r->model));
    ZONAL_TRY(zonal__model_initialise(r->model, 1, 0)); /* for the statistics */
    ZONAL_TRY(zonal__run_create(r->model, &run, &r->run));
    ZONAL_TRY(zonal_objective_defaults("mmd-heat", &options));
    options.gain = ZONAL_GAIN_BATCH;
    options.loss.implementation = ZONAL_IMPLEMENTATION_REF;
    options.loss.precision = ZONAL_PRECISION_FP32;
    int dim = r->model->graph.projection_dim;
    ZONAL_TRY(zonal_objective_create(&options, VIEWS, VIEWS, BATCH, dim, &r->objective));
    ZONAL_TRY(ZONAL_NEW(&r->images, VIEWS * view_size(golden), "images"));
    return ZONAL_NEW(&r->gradients, run.n * dim, "the projections' gradient");
}

static void drop_reference(reference *r) {
    zonal_objective_destroy(r->objective);
    zonal__run_destroy(r->run);
    zonal__model_destroy(r->model);
    zonal__free(r->images);
    zonal__free(r->gradients);
}

static double gradient_norm(const zonal__model *model) {
    double square = 0;
    for (int64_t i = 0; i < model->graph.parameter_size; i++)
        square += (double)model->gradients[i] * (double)model->gradients[i];
    return sqrt(square);
}

static void check_reference(const golden_training *golden) {
    reference r = {0};
    zonal__run_outputs outputs;
    zonal_objective_parts loss;
    if (CHECK_OK(make_reference(golden, &r)) && fill_parameters(golden, r.model)) {
        draw_images(golden, 0, r.images);
        if (CHECK_OK(zonal__run_forward(r.run, r.images, 1, NULL, &outputs)) &&
            CHECK_OK(
                zonal_objective_execute(r.objective, outputs.projections, &loss, r.gradients)) &&
            CHECK_OK(zonal__run_backward(r.run, r.gradients, 0))) {
            double apart = drifts_apart(&golden->steps[0], &loss, gradient_norm(r.model));
            printf("# %s: %.2g drifts apart\n", golden->name, apart);
            CHECK_MSG(apart <= SPREAD, "%s: the first step is %.3g drifts apart", golden->name,
                      apart);
        }
    }
    drop_reference(&r);
}

static void test_reference(void) {
    for (int i = 0; i < GOLDEN_TRAININGS; i++) check_reference(&golden_trainings[i]);
}

static const test_case tests[] = {{"follows_pytorch", test_follows_pytorch},
                                  {"departures_show", test_departures_show},
                                  {"reference", test_reference},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
