#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "nn/init.h"

static int views_in_all(const zonal__loader_options *loader) {
    int views = 0;
    for (int g = 0; g < loader->groups; g++) views += loader->group[g].views;
    return views;
}

/* ---- create ---------------------------------------------------------------------------------- */

static zonal_status make_model(zonal__trainer *t) {
    const zonal__trainer_options *o = &t->options;
    ZONAL_TRY(zonal__model_create(&o->network, zonal__nn_cpu(), &t->model));
    zonal__model_initialise(t->model, o->seed, o->zero_last_scale);
    for (int g = 0; g < o->loader.groups; g++) {
        const zonal__view_group *group = &o->loader.group[g];
        const zonal__run_spec spec = {.n = group->views * o->loader.batch,
                                      .h = group->height,
                                      .w = group->width,
                                      .threads = o->threads};
        ZONAL_TRY(zonal__run_create(t->model, &spec, &t->run[g]));
    }
    return ZONAL_OK;
}

static zonal_status make_loader(zonal__trainer *t, int64_t first_step) {
    zonal__loader_options loader = t->options.loader;
    loader.channels = t->options.network.channels;
    loader.dtype = t->options.network.dtype;
    loader.seed = t->options.seed;
    loader.first_step = first_step;
    zonal__loader_destroy(t->loader);
    return zonal__loader_create(&loader, &t->loader);
}

static zonal_status make_objective(zonal__trainer *t) {
    const zonal__loader_options *loader = &t->options.loader;
    zonal_objective_options options = t->options.objective;
    int views = views_in_all(loader);
    int64_t size = views * loader->batch * t->model->graph.projection_dim;
    options.loss.device = ZONAL_DEVICE_CPU;
    options.loss.precision = ZONAL_FP32;
    options.loss.threads = t->options.threads;
    options.loss.sliced.seed = t->options.seed;
    ZONAL_TRY(ZONAL_NEW(&t->projections, size, "the projections"));
    ZONAL_TRY(ZONAL_NEW(&t->slopes, size, "the projections' gradient"));
    return zonal_objective_create(&options, views, loader->group[0].views, loader->batch,
                                  t->model->graph.projection_dim, &t->objective);
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
    t->optimisers = zonal__optimiser_cpu();
    zonal_status status =
        t->optimisers->create(&t->options.optimiser, segments, count, &t->optimiser);
    zonal__free(segments);
    return status;
}

static zonal_status build(zonal__trainer *t) {
    ZONAL_TRY(zonal__schedule_check(&t->options.schedule));
    ZONAL_TRY(make_model(t));
    ZONAL_TRY(make_objective(t));
    ZONAL_TRY(make_optimiser(t));
    return make_loader(t, 0);
}

zonal_status zonal__trainer_create(const zonal__trainer_options *options,
                                   zonal__trainer **trainer) {
    zonal_status status;
    *trainer = NULL;
    if (options->loader.in_order)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "training goes through the pictures in a shuffled order: "
                                          "in_order is for evaluation");
    ZONAL_TRY(ZONAL_NEW(trainer, 1, "the trainer"));
    (*trainer)->options = *options;
    status = build(*trainer);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__trainer_destroy(*trainer);
    *trainer = NULL;
    return status;
}

void zonal__trainer_destroy(zonal__trainer *t) {
    if (!t) return;
    zonal__loader_destroy(t->loader);
    if (t->optimisers) t->optimisers->destroy(t->optimiser);
    zonal_objective_destroy(t->objective);
    for (int g = 0; g < ZONAL__LOADER_GROUPS; g++) zonal__run_destroy(t->run[g]);
    zonal__model_destroy(t->model);
    zonal__free(t->projections);
    zonal__free(t->slopes);
    zonal__free(t);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Elements of a group's projections. */
static int64_t group_size(const zonal__trainer *t, int g) {
    const zonal__loader_options *loader = &t->options.loader;
    return loader->group[g].views * loader->batch * t->model->graph.projection_dim;
}

static zonal_status embed(zonal__trainer *t, const zonal__batch *batch) {
    float *to = t->projections;
    for (int g = 0; g < t->options.loader.groups; g++) {
        zonal__run_outputs outputs;
        ZONAL_TRY(zonal__run_forward(t->run[g], batch->views[g], 1, &outputs));
        memcpy(to, outputs.projections_fp32, (size_t)group_size(t, g) * sizeof *to);
        to += group_size(t, g);
    }
    return ZONAL_OK;
}

static zonal_status go_back(zonal__trainer *t) {
    const float *from = t->slopes;
    for (int g = 0; g < t->options.loader.groups; g++) {
        ZONAL_TRY(zonal__run_backward(t->run[g], from, g > 0));
        from += group_size(t, g);
    }
    return ZONAL_OK;
}

static zonal_status update(zonal__trainer *t, zonal__trainer_metrics *metrics) {
    const zonal__optimiser_arrays arrays = {.parameters = t->model->parameters,
                                            .gradients = t->model->gradients,
                                            .copy = t->model->bf16};
    zonal__optimiser_numbers numbers;
    ZONAL_TRY(zonal__optimiser_numbers_make(&t->options.optimiser, metrics->rate, metrics->step + 1,
                                            &numbers));
    return t->optimisers->step(t->optimiser, &arrays, &numbers, &metrics->gradient_norm);
}

zonal_status zonal__trainer_step(zonal__trainer *t, zonal__trainer_metrics *metrics) {
    const zonal__batch *batch;
    *metrics = (zonal__trainer_metrics){
        .step = t->done, .rate = zonal__schedule_rate(&t->options.schedule, t->done)};
    ZONAL_TRY(zonal__loader_next(t->loader, &batch));
    metrics->epoch = batch->epoch;
    ZONAL_TRY(embed(t, batch));
    zonal_objective_set_step(t->objective, (uint32_t)t->done);
    ZONAL_TRY(zonal_objective_execute(t->objective, t->projections, &metrics->loss, t->slopes));
    if (!isfinite(metrics->loss.total))
        return ZONAL_FAIL(ZONAL_NUMERIC,
                          "the loss of step %lld is not finite; lower the learning rate or warm up "
                          "longer",
                          (long long)t->done);
    ZONAL_TRY(go_back(t));
    ZONAL_TRY(update(t, metrics));
    t->done++;
    return ZONAL_OK;
}

int64_t zonal__trainer_steps_done(const zonal__trainer *t) {
    return t->done;
}

zonal_status zonal__trainer_resume_at(zonal__trainer *t, int64_t step) {
    const zonal__optimiser_arrays arrays = {.parameters = t->model->parameters,
                                            .gradients = t->model->gradients,
                                            .copy = t->model->bf16};
    ZONAL_TRY(make_loader(t, step));
    t->done = step;
    return t->model->bf16 ? t->optimisers->copy(t->optimiser, &arrays) : ZONAL_OK;
}
