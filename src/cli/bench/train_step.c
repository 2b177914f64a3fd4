#include "cli/bench/train_step.h"

#include <math.h>
#include <string.h>

#include "backend/device.h"
#include "cli/common/timing.h"
#include "core/memory.h"
#include "core/random.h"
#include "train/trainer_state.h"

/* ---- images of noise ------------------------------------------------------------------------- */

typedef struct noise {
    zonal__source source;
    uint8_t *pixels; /* [count][height][width][channels] */
} noise;

static zonal_status noise_read(zonal__source *source, int64_t index, zonal__image *out) {
    const noise *n = (const noise *)source;
    size_t bytes = (size_t)source->width * (size_t)source->height * (size_t)source->channels;
    ZONAL_TRY(zonal__image_shape(out, source->width, source->height, source->channels));
    memcpy(out->pixels, n->pixels + (size_t)index * bytes, bytes);
    return ZONAL_OK;
}

static void noise_close(zonal__source *source) {
    zonal__free(((noise *)source)->pixels);
}

static const zonal__source_table noise_table = {
    .kind = "noise", .read = noise_read, .close = noise_close};

static zonal_status fill_noise(noise *n, const zonal__train_bench_options *o) {
    const zonal__source_options options = {.path = "noise", .channels = o->channels};
    const zonal__random random = {.stream = ZONAL__STREAM_TEST};
    ZONAL_TRY(zonal__source_init(&n->source, &noise_table, &options));
    /* Textures are a quarter larger than their views, photographs about as much as ImageNet's are
     * (448 x 336 at 224 pixels). */
    n->source.count = o->batch;
    n->source.width = o->channels == 1 ? o->side * 5 / 4 : o->side * 2;
    n->source.height = o->channels == 1 ? o->side * 5 / 4 : o->side * 3 / 2;
    int64_t bytes = o->batch * n->source.width * n->source.height * o->channels;
    int64_t words = (bytes + 15) / 16;
    ZONAL_TRY(ZONAL_NEW(&n->pixels, 16 * words, "the images"));
    for (int64_t i = 0; i < words; i++) {
        uint32_t word[4];
        zonal__random_words(&random, (uint64_t)i, 0, word);
        memcpy(n->pixels + 16 * i, word, sizeof word);
    }
    if (o->probe_classes == 0) return ZONAL_OK;
    n->source.classes = o->probe_classes;
    ZONAL_TRY(ZONAL_NEW(&n->source.labels, o->batch, "the labels"));
    for (int64_t i = 0; i < o->batch; i++) n->source.labels[i] = (int32_t)(i % o->probe_classes);
    return ZONAL_OK;
}

static zonal_status open_noise(const zonal__train_bench_options *o, zonal__source **out) {
    noise *n;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&n, 1, "the images"));
    status = fill_noise(n, o);
    if (status != ZONAL_OK)
        zonal__source_close(&n->source);
    else
        *out = &n->source;
    return status;
}

/* ---- the trainer ----------------------------------------------------------------------------- */

zonal__network_spec zonal__train_bench_network(const zonal__train_bench_options *o) {
    zonal__network_spec network = zonal__network_defaults();
    network.depth = o->depth;
    network.channels = o->channels;
    network.width = o->width;
    network.stem = o->small_stem ? ZONAL__STEM_SMALL : ZONAL__STEM_IMAGENET;
    network.dtype = o->dtype;
    return network;
}

static zonal_status fill_options(const zonal__train_bench_options *o, zonal__source *source,
                                 zonal__augmentation augmentations[ZONAL__TRAIN_BENCH_MOST_VIEWS],
                                 zonal__trainer_options *out) {
    *out = (zonal__trainer_options){.device = o->device,
                                    .network = zonal__train_bench_network(o),
                                    .threads = o->threads,
                                    .no_graph = o->no_graph,
                                    .probe_classes = o->probe_classes,
                                    .probe_rate = 1e-3,
                                    .fixed_views = !o->with_views};
    out->objective.size = sizeof out->objective;
    ZONAL_TRY(zonal_objective_defaults(o->method, &out->objective));
    for (int v = 0; v < o->views; v++)
        if (o->channels == 1)
            zonal__augmentation_texture(&augmentations[v]);
        else
            zonal__augmentation_byol(v, &augmentations[v]);
    out->loader = (zonal__loader_options){.source = source,
                                          .batch = o->batch,
                                          .groups = 1,
                                          .group = {{.views = o->views,
                                                     .width = o->side,
                                                     .height = o->side,
                                                     .augmentations = augmentations}},
                                          .mean = {.5f, .5f, .5f},
                                          .std = {.25f, .25f, .25f},
                                          .workers = o->threads};
    out->data_location = ZONAL__DATA_ON_DEVICE;
    out->optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW);
    out->optimiser.weight_decay = 5e-4;
    /* Noise cannot be learnt: a small rate keeps the weights where they are. */
    out->schedule = (zonal__schedule){.kind = ZONAL__SCHEDULE_CONSTANT, .total = 1, .base = 1e-5};
    return ZONAL_OK;
}

/* ---- timing ---------------------------------------------------------------------------------- */

enum {
    WARM_STEPS = 3, /* the first ones choose algorithms and record the graph */
    LONGEST = 1000  /* steps of a window */
};
static const double WINDOW_SECONDS = .2; /* at least 5 windows are timed: a second in all */

typedef struct window {
    zonal__trainer *trainer;
    int64_t steps;
    zonal__metrics metrics; /* of the last step */
} window;

/* So many steps, and the wait for the last. */
static zonal_status run_window(void *context, int run) {
    window *w = context;
    (void)run;
    for (int64_t i = 0; i < w->steps; i++) ZONAL_TRY(zonal__trainer_step(w->trainer));
    return zonal__trainer_metrics(w->trainer, &w->metrics);
}

static zonal_status time_steps(zonal__trainer *trainer, zonal__train_bench_result *result) {
    window w = {.trainer = trainer, .steps = WARM_STEPS};
    zonal__timing timing;
    ZONAL_TRY(run_window(&w, 0));
    double begin = zonal__now();
    ZONAL_TRY(run_window(&w, 0));
    double fitting = WINDOW_SECONDS * WARM_STEPS / (zonal__now() - begin);
    w.steps = fitting > LONGEST ? LONGEST : fitting > 1 ? (int64_t)ceil(fitting) : 1;
    ZONAL_TRY(zonal__time_host(run_window, &w, &timing));
    result->ms = timing.ms / (double)w.steps;
    result->least_ms = timing.least_ms / (double)w.steps;
    result->steps = timing.runs * w.steps;
    result->loss = w.metrics.loss.total;
    return ZONAL_OK;
}

/* ---- the parts of a step that are no layers -------------------------------------------------- */

static zonal_status enqueue_objective(void *context, void *stream) {
    zonal__trainer *t = context;
    void *z = t->wide_projections ? t->wide_projections : t->projections;
    void *gradients = t->wide_gradients ? t->wide_gradients : t->gradients;
    zonal_objective_set_stream(t->objective, stream);
    return zonal_objective_execute(t->objective, z, &t->output->loss, gradients);
}

static zonal_status enqueue_optimiser(void *context, void *stream) {
    zonal__trainer *t = context;
    const zonal__optimiser_arrays arrays = zonal__trainer_arrays(t);
    if (t->optimisers->set_stream) t->optimisers->set_stream(t->optimiser, stream);
    return t->optimisers->step(t->optimiser, &arrays, &t->input->numbers,
                               &t->output->gradient_norm);
}

/* With what the last step has left in the arrays. */
static zonal_status time_others(zonal__trainer *t, zonal__train_bench_result *result) {
    double count = (double)t->model->graph.parameter_size;
    zonal_status status;
    /* AdamW reads parameter, gradient and two moments, and writes all but the gradient. */
    result->optimiser.bytes = count * (7 * sizeof(float) + (t->model->bf16 ? 2 : 0));
    status = zonal__time_work(t->options.device, enqueue_objective, t, &result->objective.ms);
    if (status == ZONAL_OK)
        status = zonal__time_work(t->options.device, enqueue_optimiser, t, &result->optimiser.ms);
    /* The timer's stream is gone. */
    zonal_objective_set_stream(t->objective, t->launch.stream);
    if (t->optimisers->set_stream) t->optimisers->set_stream(t->optimiser, t->launch.stream);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int64_t count_parameters(const zonal__graph *graph) {
    int64_t count = 0;
    for (int i = 0; i < graph->entry_count; i++)
        if (zonal__entry_is_trained(&graph->entries[i])) count += graph->entries[i].count;
    return count;
}

static zonal_status free_bytes(const zonal__device *device, double *out) {
    size_t available, all;
    *out = NAN;
    if (zonal__device_is_host(device)) return ZONAL_OK;
    ZONAL_TRY(zonal__device_memory(device, &available, &all));
    *out = (double)available;
    return ZONAL_OK;
}

static zonal_status measure(const zonal__trainer_options *options,
                            zonal__train_bench_result *result) {
    zonal__trainer *trainer = NULL;
    double before, after;
    zonal_status status;
    ZONAL_TRY(free_bytes(options->device, &before));
    ZONAL_TRY(zonal__trainer_create(options, &trainer));
    ZONAL_TRY_GOTO(status, done, time_steps(trainer, result));
    ZONAL_TRY_GOTO(status, done, free_bytes(options->device, &after));
    result->device_bytes = before - after;
    result->parameters = count_parameters(&zonal__trainer_model(trainer)->graph);
    if (options->fixed_views) status = time_others(trainer, result);
done:
    zonal__trainer_destroy(trainer);
    return status;
}

zonal_status zonal__train_bench(const zonal__train_bench_options *options,
                                zonal__train_bench_result *result) {
    zonal__source *source = NULL;
    zonal__augmentation augmentations[ZONAL__TRAIN_BENCH_MOST_VIEWS];
    zonal__trainer_options trainer;
    zonal_status status;
    *result = (zonal__train_bench_result){0};
    if (options->with_views) ZONAL_TRY(open_noise(options, &source));
    status = fill_options(options, source, augmentations, &trainer);
    if (status == ZONAL_OK) status = measure(&trainer, result);
    zonal__source_close(source);
    return status;
}
