/* A trainer's life: trainer.h. Its steps are in step.c. */
#include "train/trainer.h"

#include <string.h>

#include "backend/device.h"
#include "core/bf16.h"
#include "core/memory.h"
#include "core/random.h"
#include "dist/job.h"
#include "loss/objective.h"
#include "nn/network.h"
#include "train/trainer_state.h"

static int is_host(const zonal__trainer *t) {
    return zonal__device_is_host(t->options.device);
}

/* ---- create: the network --------------------------------------------------------------------- */

/* A class is an index into the probe's rows. */
static zonal_status check_labels(const zonal__trainer_options *o) {
    const zonal__source *source = o->loader.source;
    if (o->probe_classes == 0 || o->fixed_views) return ZONAL_OK;
    if (!source->labels)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the images of %s have no classes, which an online probe learns; train "
                          "without it",
                          source->path);
    for (int64_t i = 0; i < source->count; i++)
        if (source->labels[i] < 0 || source->labels[i] >= o->probe_classes)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "image %lld of %s has the class %d, and an online probe knows 0 to "
                              "%d; train without it, or only on images with classes",
                              (long long)i, source->path, (int)source->labels[i],
                              o->probe_classes - 1);
    return ZONAL_OK;
}

static zonal_status check(const zonal__trainer_options *o) {
    int64_t batch = o->loader.batch, micro = o->micro_batch;
    if (o->loader.in_order)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "training visits the images in a shuffled order: "
                                          "in_order is for evaluation");
    if (o->loader.groups < 1 || o->loader.groups > ZONAL__LOADER_GROUPS)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there are 1 or %d groups of views, not %d",
                          ZONAL__LOADER_GROUPS, o->loader.groups);
    if (micro < 0 || (micro > 0 && batch % micro != 0))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "micro_batch must divide the batch of %lld images, got %lld",
                          (long long)batch, (long long)micro);
    if (o->communicator && (micro > 0 ? micro : batch) < o->communicator->ranks)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "%d ranks cannot share %lld images: each must have one; use fewer ranks, "
                          "or a larger %s",
                          o->communicator->ranks, (long long)(micro > 0 ? micro : batch),
                          micro > 0 ? "micro_batch" : "batch");
    ZONAL_TRY(check_labels(o));
    return zonal__schedule_check(&o->schedule);
}

/* This rank's part of each micro-batch, and of the batch. */
static void take_share(zonal__trainer *t) {
    const zonal_communicator *c = t->options.communicator;
    zonal__loader_options *loader = &t->options.loader;
    int64_t of = t->options.micro_batch > 0 ? t->options.micro_batch : loader->batch;
    loader->share.of = of;
    zonal__job_share(of, c ? c->ranks : 1, c ? c->rank : 0, &loader->share.first,
                     &loader->share.count);
    t->micro = loader->share.count;
    t->rows = loader->batch / of * t->micro;
}

static zonal_status make_model(zonal__trainer *t) {
    const zonal__trainer_options *o = &t->options;
    ZONAL_TRY(zonal__device_optimisers(t->device, &t->optimisers));
    ZONAL_TRY(zonal__model_create(&o->network, t->device, &t->model));
    return zonal__model_initialise(t->model, o->seed, o->zero_init_residual);
}

static zonal_status make_group(zonal__trainer *t, int g) {
    const zonal__view_group *group = &t->options.loader.group[g];
    const zonal__run_spec spec = {.n = group->views * t->micro,
                                  .h = group->height,
                                  .w = group->width,
                                  .threads = t->options.threads,
                                  .fold = t->options.fold_norms,
                                  .communicator =
                                      t->options.own_norms ? NULL : t->options.communicator,
                                  .all_n = group->views * t->options.loader.share.of};
    zonal__trainer_group *to = &t->groups[g];
    ZONAL_TRY(zonal__run_create(t->model, &spec, &to->run));
    zonal__run_watch(to->run, zonal__exchange_complete, &t->exchange);
    if (!is_host(t)) zonal__run_set_stream(to->run, t->launch.stream);
    to->view_bytes = (size_t)group->height * (size_t)group->width *
                     (size_t)t->options.network.channels * zonal__trainer_element(t);
    to->first_row = g == 0 ? 0 : (size_t)(t->options.loader.group[0].views * t->rows);
    if (t->micro == t->rows) return ZONAL_OK;
    return zonal__device_alloc(t->device, (size_t)spec.n * to->view_bytes,
                               "the views of a micro-batch", &to->micro_views);
}

static zonal_status make_groups(zonal__trainer *t) {
    for (int g = 0; g < t->options.loader.groups; g++) ZONAL_TRY(make_group(t, g));
    return ZONAL_OK;
}

/* ---- create: arrays -------------------------------------------------------------------------- */

static zonal_status make_rows(zonal__trainer *t) {
    int64_t dim = t->model->graph.projection_dim, rows = zonal__trainer_views(t) * t->rows;
    size_t row = (size_t)dim * zonal__trainer_element(t);
    void *memory;
    ZONAL_TRY(
        zonal__device_alloc(t->device, (size_t)rows * row, "the projections", &t->projections));
    ZONAL_TRY(zonal__device_alloc(t->device, (size_t)rows * row, "the projections' gradient",
                                  &t->gradients));
    ZONAL_TRY(
        zonal__device_alloc(t->device, zonal__trainer_input_bytes(t), "a step's numbers", &memory));
    t->input = memory;
    ZONAL_TRY(zonal__device_alloc(t->device, sizeof *t->output, "a step's results", &memory));
    t->output = memory;
    if (zonal__device_is_host(t->device) && t->options.network.dtype == ZONAL_DTYPE_BF16) {
        ZONAL_TRY(ZONAL_NEW(&t->wide_projections, rows * dim, "the projections"));
        ZONAL_TRY(ZONAL_NEW(&t->wide_gradients, rows * dim, "the projections' gradient"));
    }
    if (t->micro == t->rows) return ZONAL_OK;
    row *= (size_t)(zonal__trainer_views(t) * t->micro); /* room for all views; a group has fewer */
    ZONAL_TRY(
        zonal__device_alloc(t->device, row, "a micro-batch's projections", &t->micro_projections));
    ZONAL_TRY(zonal__device_alloc(t->device, row, "a micro-batch's gradient", &t->micro_gradients));
    ZONAL_TRY(zonal__device_alloc(t->device, (size_t)t->model->graph.statistic_size * sizeof(float),
                                  "a copy of the running statistics", &memory));
    t->kept_statistics = memory;
    return ZONAL_OK;
}

static zonal_status make_stream(zonal__trainer *t) {
    zonal__trainer_launch *l = &t->launch;
    void *memory;
    if (is_host(t)) return ZONAL_OK;
    ZONAL_TRY(zonal__device_stream_create(t->device, &l->stream));
    ZONAL_TRY(zonal__device_pinned_alloc(
        t->device, ZONAL__FEED_TURNS * zonal__trainer_input_bytes(t), &memory));
    l->pinned = memory;
    for (int i = 0; i < ZONAL__FEED_TURNS; i++)
        ZONAL_TRY(zonal__device_event_create(t->device, &l->pinned_read[i]));
    return ZONAL_OK;
}

/* ---- create: the rest ------------------------------------------------------------------------ */

static zonal_status make_objective(zonal__trainer *t) {
    zonal_objective_options options = t->options.objective;
    memcpy(options.loss.device, t->device->name, sizeof options.loss.device);
    options.loss.precision = ZONAL_PRECISION_FP32;
    options.loss.dtype = !is_host(t) ? t->options.network.dtype : ZONAL_DTYPE_AUTO;
    options.loss.threads = t->options.threads;
    options.loss.sliced.seed = t->options.seed;
    options.loss.communicator = t->options.communicator;
    ZONAL_TRY(zonal_objective_create(&options, zonal__trainer_views(t),
                                     t->options.loader.group[0].views, t->rows,
                                     t->model->graph.projection_dim, &t->objective));
    if (!is_host(t)) zonal_objective_set_device_step(t->objective, &t->input->step);
    zonal_objective_set_stream(t->objective, t->launch.stream);
    return ZONAL_OK;
}

static zonal_status make_optimiser(zonal__trainer *t) {
    const zonal__graph *graph = &t->model->graph;
    zonal__optimiser_segment *segments;
    int64_t count = 0;
    ZONAL_TRY(ZONAL_NEW(&segments, graph->entry_count, "the optimiser's segments"));
    for (int i = 0; i < graph->entry_count; i++) {
        const zonal__entry *entry = &graph->entries[i];
        int weight = entry->kind == ZONAL__ENTRY_WEIGHT;
        if (!zonal__entry_is_trained(entry)) continue;
        segments[count++] = (zonal__optimiser_segment){.name = entry->name,
                                                       .offset = entry->offset,
                                                       .count = entry->count,
                                                       .decay = weight || t->options.decay_all,
                                                       .adapt = weight};
    }
    t->options.optimiser.count = graph->parameter_size;
    t->options.optimiser.threads = t->options.threads;
    t->options.optimiser.device = t->device;
    zonal_status status =
        t->optimisers->create(&t->options.optimiser, segments, count, &t->optimiser);
    zonal__free(segments);
    if (status == ZONAL_OK && t->optimisers->set_stream)
        t->optimisers->set_stream(t->optimiser, t->launch.stream);
    return status;
}

static zonal_status make_probe(zonal__trainer *t) {
    const zonal__online_probe_spec spec = {.classifier = {.rows = t->rows,
                                                          .all_rows = t->options.loader.batch,
                                                          .dim = t->model->graph.feature_dim,
                                                          .classes = t->options.probe_classes,
                                                          .dtype = t->options.network.dtype,
                                                          .threads = t->options.threads,
                                                          .device = t->device},
                                           .micro = t->micro,
                                           .stream = t->launch.stream,
                                           .in_line = t->ranks != NULL};
    return t->options.probe_classes > 0 ? zonal__online_probe_create(&spec, &t->probe) : ZONAL_OK;
}

/* ---- create: images -------------------------------------------------------------------------- */

static zonal_status make_loader(zonal__trainer *t, int64_t first_step) {
    zonal__loader_options loader = t->options.loader;
    loader.channels = t->options.network.channels;
    loader.dtype = t->options.network.dtype;
    loader.seed = t->options.seed;
    loader.first_step = first_step;
    if (!is_host(t))
        return zonal__feed_create(
            &(zonal__feed_options){.device = t->device,
                                   .loader = loader,
                                   .data_location = t->options.data_location,
                                   .ahead = 1,
                                   .device_decodes = t->options.device_decodes},
            &t->feed);
    zonal__loader_destroy(t->loader);
    return zonal__loader_create(&loader, &t->loader);
}

/* The number that row i of view v has among the views of all ranks, [views][batch]. */
static uint64_t number_of_view(const zonal__trainer *t, int64_t v, int64_t i) {
    const zonal__share *share = &t->options.loader.share;
    int64_t image = i / t->micro * share->of + share->first + i % t->micro;
    return (uint64_t)(v * t->options.loader.batch + image);
}

/* Normal numbers, view by view: a pure function of the seed, the group and the view. */
static zonal_status draw_views(zonal__trainer *t, int g, int64_t count, double *drawn,
                               void *elements) {
    const zonal__random random = {
        .seed = t->options.seed, .stream = ZONAL__STREAM_TEST, .step = (uint32_t)g};
    zonal__trainer_group *group = &t->groups[g];
    int64_t views = t->options.loader.group[g].views * t->rows;
    for (int64_t v = 0; v < views; v++) {
        zonal__random_normal(&random, number_of_view(t, v / t->rows, v % t->rows), count, drawn);
        for (int64_t i = 0; i < count; i++)
            if (t->options.network.dtype == ZONAL_DTYPE_BF16)
                ((uint16_t *)elements)[i] = zonal__bf16_from_float((float)drawn[i]);
            else
                ((float *)elements)[i] = (float)drawn[i];
        ZONAL_TRY(zonal__device_write(t->device,
                                      (char *)group->fixed + (size_t)v * group->view_bytes,
                                      elements, group->view_bytes));
    }
    return ZONAL_OK;
}

static zonal_status make_fixed_views(zonal__trainer *t, int g) {
    zonal__trainer_group *group = &t->groups[g];
    int64_t count = (int64_t)(group->view_bytes / zonal__trainer_element(t));
    size_t views = (size_t)(t->options.loader.group[g].views * t->rows);
    double *drawn = NULL;
    void *elements = NULL;
    zonal_status status;
    ZONAL_TRY(
        zonal__device_alloc(t->device, views * group->view_bytes, "the views", &group->fixed));
    group->views = group->fixed;
    status = ZONAL_NEW(&drawn, count, "a view");
    if (status == ZONAL_OK) status = zonal__alloc(count, sizeof(float), "a view", &elements);
    if (status == ZONAL_OK) status = draw_views(t, g, count, drawn, elements);
    zonal__free(drawn);
    zonal__free(elements);
    return status;
}

static zonal_status make_images(zonal__trainer *t) {
    if (!t->options.fixed_views) return make_loader(t, 0);
    for (int g = 0; g < t->options.loader.groups; g++) ZONAL_TRY(make_fixed_views(t, g));
    return ZONAL_OK;
}

/* ---- a trainer's life ------------------------------------------------------------------------ */

static zonal_status make_exchange(zonal__trainer *t) {
    const zonal__exchange_options options = {.communicator = t->options.communicator,
                                             .device = t->device,
                                             .stream = t->launch.stream,
                                             .bucket_size = t->options.bucket_size};
    return zonal__exchange_init(&t->exchange, &options);
}

/* Where the batch was too large. */
static zonal_status explain_memory(const zonal__trainer *t, zonal_status status) {
    zonal_error inner = *zonal_last_error(); /* a copy: the sentence is about to change */
    if (status != ZONAL_MEMORY) return status;
    return ZONAL_FAIL(ZONAL_MEMORY,
                      "%.700s; a smaller batch, or a micro_batch below %lld, takes less",
                      inner.message, (long long)t->options.loader.share.of);
}

/* What comes before the objective, which ranks make together. */
static zonal_status build_network(zonal__trainer *t) {
    ZONAL_TRY(make_stream(t));
    ZONAL_TRY(make_model(t));
    ZONAL_TRY(make_exchange(t));
    ZONAL_TRY(explain_memory(t, make_groups(t)));
    return explain_memory(t, make_rows(t));
}

static zonal_status build_rest(zonal__trainer *t) {
    ZONAL_TRY(make_optimiser(t));
    ZONAL_TRY(make_probe(t));
    ZONAL_TRY(make_images(t)); /* last: resident images take what the rest has left */
    /* Memory was zeroed on the default stream, for which the trainer's does not wait. */
    return is_host(t) ? ZONAL_OK : zonal__device_synchronise(t->device);
}

/* Ranks whose networks or batches differ would add up what does not belong together. */
static zonal_status meet(zonal__trainer *t, zonal_status status) {
    const zonal__agreed values[] = {
        {"the batch", (double)t->options.loader.batch, NULL},
        {"the micro-batch", (double)t->options.loader.share.of, NULL},
        {"the number of parameters", t->model ? (double)t->model->graph.parameter_size : 0, NULL},
        {"own_norms", t->options.own_norms, NULL},
        {"the classes of the online probe", t->options.probe_classes, NULL}};
    return zonal__ranks_create(t->options.communicator, t->device, t->rows, values,
                               sizeof values / sizeof values[0], status, &t->ranks);
}

static zonal_status build(zonal__trainer *t) {
    ZONAL_TRY(meet(t, build_network(t)));
    ZONAL_TRY(explain_memory(t, make_objective(t)));
    return zonal__ranks_agree(t->ranks, explain_memory(t, build_rest(t)));
}

zonal_status zonal__trainer_create(const zonal__trainer_options *options, zonal__trainer **out) {
    const zonal__device *device = zonal__device_or_cpu(options->device);
    zonal__trainer *t = NULL;
    zonal__ranks *none;
    zonal_status status = check(options);
    *out = NULL;
    if (status == ZONAL_OK) status = ZONAL_NEW(&t, 1, "the trainer");
    if (status != ZONAL_OK) /* the other ranks are on their way to meet this one */
        return zonal__ranks_create(options->communicator, device, 0, NULL, 0, status, &none);
    t->options = *options;
    t->device = t->options.device = device;
    take_share(t);
    status = build(t);
    if (status == ZONAL_OK)
        *out = t;
    else
        zonal__trainer_destroy(t);
    return status;
}

static void drop_launch(zonal__trainer *t) {
    zonal__trainer_launch *l = &t->launch;
    for (int i = 0; i < ZONAL__FEED_TURNS; i++) {
        zonal__device_graph_destroy(t->device, l->graphs[i]);
        zonal__device_event_destroy(t->device, l->pinned_read[i]);
    }
    zonal__device_pinned_free(t->device, l->pinned);
    zonal__device_stream_destroy(t->device, l->stream);
}

static void drop_arrays(zonal__trainer *t) {
    void *const arrays[] = {t->projections,     t->gradients,         t->input,          t->output,
                            t->micro_gradients, t->micro_projections, t->kept_statistics};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        zonal__device_free(t->device, arrays[i]);
    for (int g = 0; g < ZONAL__LOADER_GROUPS; g++) {
        zonal__device_free(t->device, t->groups[g].fixed);
        zonal__device_free(t->device, t->groups[g].micro_views);
        zonal__run_destroy(t->groups[g].run);
    }
}

void zonal__trainer_destroy(zonal__trainer *t) {
    if (!t) return;
    if (t->launch.stream) (void)zonal__device_synchronise(t->device);
    zonal__loader_destroy(t->loader);
    zonal__feed_destroy(t->feed);
    if (t->optimisers) t->optimisers->destroy(t->optimiser);
    zonal__online_probe_destroy(t->probe);
    zonal_objective_destroy(t->objective);
    zonal__exchange_fini(&t->exchange);
    zonal__ranks_destroy(t->ranks);
    drop_arrays(t);
    zonal__model_destroy(t->model);
    zonal__free(t->wide_projections);
    zonal__free(t->wide_gradients);
    if (!is_host(t)) drop_launch(t);
    zonal__free(t);
}

void *zonal__trainer_stream(const zonal__trainer *t) {
    return t->launch.stream;
}

int64_t zonal__trainer_steps_done(const zonal__trainer *t) {
    return t->done;
}

int64_t zonal__trainer_steps_per_epoch(const zonal__trainer *t) {
    if (t->feed) return zonal__feed_steps_per_epoch(t->feed);
    return t->loader ? zonal__loader_steps_per_epoch(t->loader) : 1;
}

zonal__model *zonal__trainer_model(zonal__trainer *t) {
    if (!is_host(t))
        (void)zonal__device_synchronise(t->device); /* a failure shows in whatever comes next */
    return t->model;
}

zonal_status zonal__trainer_resume_at(zonal__trainer *t, int64_t step) {
    const zonal__optimiser_arrays arrays = zonal__trainer_arrays(t);
    if (t->feed)
        ZONAL_TRY(zonal__feed_seek(t->feed, step));
    else if (!t->options.fixed_views)
        ZONAL_TRY(make_loader(t, step));
    t->fetched = 0;
    zonal__trainer_set_done(t, step);
    return t->model->bf16 ? t->optimisers->copy(t->optimiser, &arrays) : ZONAL_OK;
}
