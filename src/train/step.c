/*
 * One step of a trainer: trainer.h. What is computed is written once, for the host and for a
 * device; "compute" only puts work on the stream there, so that it can be captured in a graph.
 */
#include <math.h>

#include "backend/device.h"
#include "core/bf16.h"
#include "core/memory.h"
#include "train/trainer_state.h"

size_t zonal__trainer_element(const zonal__trainer *t) {
    return t->options.network.dtype == ZONAL_DTYPE_BF16 ? sizeof(uint16_t) : sizeof(float);
}

zonal__optimiser_arrays zonal__trainer_arrays(const zonal__trainer *t) {
    return (zonal__optimiser_arrays){.parameters = t->model->parameters,
                                     .gradients = t->model->gradients,
                                     .copy = t->model->bf16};
}

size_t zonal__trainer_input_bytes(const zonal__trainer *t) {
    size_t labels = t->options.probe_classes > 0 ? (size_t)t->rows * sizeof(int32_t) : 0;
    return sizeof(zonal__step_input) + (labels + 7) / 8 * 8; /* which begin with doubles */
}

int zonal__trainer_views(const zonal__trainer *t) {
    int views = 0;
    for (int g = 0; g < t->options.loader.groups; g++) views += t->options.loader.group[g].views;
    return views;
}

int64_t zonal__trainer_rows(const zonal__trainer *t) {
    return t->rows;
}

static size_t row_bytes(const zonal__trainer *t) {
    return (size_t)t->model->graph.projection_dim * zonal__trainer_element(t);
}

static int64_t projection_count(const zonal__trainer *t) {
    return zonal__trainer_views(t) * t->rows * t->model->graph.projection_dim;
}

static void widen(int64_t count, const uint16_t *from, float *to) {
    for (int64_t i = 0; i < count; i++) to[i] = zonal__bf16_to_float(from[i]);
}

static void narrow(int64_t count, const float *from, uint16_t *to) {
    for (int64_t i = 0; i < count; i++) to[i] = zonal__bf16_from_float(from[i]);
}

/* ---- the loss -------------------------------------------------------------------------------- */

static zonal_status check_loss(const zonal_objective_parts *loss, int64_t step) {
    if (isfinite(loss->total)) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_NUMERIC,
                      "the loss of step %lld is not finite; lower the learning rate or warm up "
                      "longer",
                      (long long)step);
}

/* Of what an objective says of rows that cannot be used. */
static zonal_status explain_rows(zonal_status status, int64_t step) {
    zonal_error inner = *zonal_last_error(); /* a copy: the sentence is about to change */
    if (status != ZONAL_NUMERIC) return status;
    return ZONAL_FAIL(ZONAL_NUMERIC,
                      "training has diverged at step %lld, %.400s; lower the learning rate or warm "
                      "up longer",
                      (long long)step, inner.message);
}

/* Of t->projections, with its gradient in t->gradients. */
static zonal_status take_loss(zonal__trainer *t) {
    void *z = t->wide_projections ? t->wide_projections : t->projections;
    void *dz = t->wide_gradients ? t->wide_gradients : t->gradients;
    if (t->wide_projections) widen(projection_count(t), t->projections, t->wide_projections);
    ZONAL_TRY(
        explain_rows(zonal_objective_execute(t->objective, z, &t->output->loss, dz), t->done));
    if (!zonal__device_is_host(t->device)) return ZONAL_OK; /* zonal__trainer_metrics looks at it */
    ZONAL_TRY(check_loss(&t->output->loss, t->done));
    if (t->wide_gradients) narrow(projection_count(t), t->wide_gradients, t->gradients);
    return ZONAL_OK;
}

/* The way back of group g. In the last one of a step gradients become complete, and those of all
 * ranks are added up, layer by layer where that can go on beside it. */
static zonal_status go_back(zonal__trainer *t, int g, const void *gradients, int accumulate,
                            int last) {
    zonal__run *run = t->groups[g].run;
    const zonal__graph *graph = &t->model->graph;
    if (!last || !t->ranks) return zonal__run_backward(run, gradients, accumulate);
    zonal__exchange_begin(&t->exchange, t->model->gradients, graph->parameter_size);
    ZONAL_TRY(zonal__run_backward(run, gradients, accumulate));
    return zonal__exchange_end(&t->exchange);
}

/* ---- the online probe ------------------------------------------------------------------------ */

/* It sees the first view of each image: the first rows of group 0. */
static zonal_status show_probe(zonal__trainer *t, int g, const zonal__run_outputs *outputs,
                               int64_t row) {
    if (!t->probe || g > 0) return ZONAL_OK;
    return zonal__online_probe_take(t->probe, outputs->features, row);
}

static zonal_status step_probe(zonal__trainer *t) {
    return zonal__online_probe_step(t->probe, (const int32_t *)(t->input + 1),
                                    t->ranks ? &t->exchange : NULL, &t->input->probe,
                                    &t->output->probe_norm);
}

/* Once the features of all images are there. */
static zonal_status step_probe_beside(zonal__trainer *t) {
    if (!t->probe || !zonal__online_probe_is_beside(t->probe)) return ZONAL_OK;
    return step_probe(t);
}

/* At the end of a step. */
static zonal_status finish_probe(zonal__trainer *t) {
    if (!t->probe) return ZONAL_OK;
    return zonal__online_probe_is_beside(t->probe) ? zonal__online_probe_join(t->probe)
                                                   : step_probe(t);
}

/* ---- the whole batch at once ----------------------------------------------------------------- */

static void *rows_of(const zonal__trainer *t, int g, void *rows) {
    return (char *)rows + t->groups[g].first_row * row_bytes(t);
}

static zonal_status one_pass(zonal__trainer *t) {
    zonal__run_outputs outputs;
    for (int g = 0; g < t->options.loader.groups; g++) {
        ZONAL_TRY(zonal__run_forward(t->groups[g].run, t->groups[g].views, 1,
                                     rows_of(t, g, t->projections), &outputs));
        ZONAL_TRY(show_probe(t, g, &outputs, 0));
    }
    ZONAL_TRY(step_probe_beside(t));
    ZONAL_TRY(take_loss(t));
    for (int g = 0; g < t->options.loader.groups; g++)
        ZONAL_TRY(
            go_back(t, g, rows_of(t, g, t->gradients), g > 0, g + 1 == t->options.loader.groups));
    return ZONAL_OK;
}

/* ---- m images at a time, in two passes ------------------------------------------------------- */

/* The rows (views or projections, "bytes" each) of one micro-batch lie as m rows in each of a
 * group's [views][batch]; gathered they are [views][m]. */
static zonal_status gather(const zonal__trainer *t, int g, int64_t k, size_t bytes,
                           const void *whole, void *micro) {
    size_t piece = (size_t)t->micro * bytes;
    for (int v = 0; v < t->options.loader.group[g].views; v++) {
        size_t row = (size_t)(v * t->rows + k * t->micro);
        ZONAL_TRY(zonal__device_copy_on(t->device, t->launch.stream,
                                        (char *)micro + (size_t)v * piece,
                                        (const char *)whole + row * bytes, piece));
    }
    return ZONAL_OK;
}

static zonal_status scatter(const zonal__trainer *t, int g, int64_t k, size_t bytes,
                            const void *micro, void *whole) {
    size_t piece = (size_t)t->micro * bytes;
    for (int v = 0; v < t->options.loader.group[g].views; v++) {
        size_t row = (size_t)(v * t->rows + k * t->micro);
        ZONAL_TRY(zonal__device_copy_on(t->device, t->launch.stream, (char *)whole + row * bytes,
                                        (const char *)micro + (size_t)v * piece, piece));
    }
    return ZONAL_OK;
}

/* Micro-batch k of group g goes forward into t->micro_projections. */
static zonal_status embed_micro(zonal__trainer *t, int g, int64_t k, zonal__run_outputs *outputs) {
    zonal__trainer_group *group = &t->groups[g];
    ZONAL_TRY(gather(t, g, k, group->view_bytes, group->views, group->micro_views));
    return zonal__run_forward(group->run, group->micro_views, 1, t->micro_projections, outputs);
}

/* The running statistics are put back, so that the second pass alone moves them. */
static zonal_status embed_all(zonal__trainer *t) {
    zonal__run_outputs outputs;
    size_t statistics = (size_t)t->model->graph.statistic_size * sizeof(float);
    ZONAL_TRY(zonal__device_copy_on(t->device, t->launch.stream, t->kept_statistics,
                                    t->model->statistics, statistics));
    for (int64_t k = 0; k < t->rows / t->micro; k++)
        for (int g = 0; g < t->options.loader.groups; g++) {
            ZONAL_TRY(embed_micro(t, g, k, &outputs));
            ZONAL_TRY(show_probe(t, g, &outputs, k * t->micro));
            ZONAL_TRY(scatter(t, g, k, row_bytes(t), t->micro_projections,
                              rows_of(t, g, t->projections)));
        }
    return zonal__device_copy_on(t->device, t->launch.stream, t->model->statistics,
                                 t->kept_statistics, statistics);
}

static zonal_status two_passes(zonal__trainer *t) {
    int64_t passes = t->rows / t->micro;
    zonal__run_outputs outputs;
    ZONAL_TRY(embed_all(t));
    ZONAL_TRY(step_probe_beside(t));
    ZONAL_TRY(take_loss(t));
    for (int64_t k = 0; k < passes; k++)
        for (int g = 0; g < t->options.loader.groups; g++) {
            ZONAL_TRY(embed_micro(t, g, k, &outputs));
            ZONAL_TRY(
                gather(t, g, k, row_bytes(t), rows_of(t, g, t->gradients), t->micro_gradients));
            ZONAL_TRY(go_back(t, g, t->micro_gradients, k > 0 || g > 0,
                              k + 1 == passes && g + 1 == t->options.loader.groups));
        }
    return ZONAL_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Two passes go forward twice. */
static double step_work(const zonal__trainer *t) {
    double work = 0;
    for (int g = 0; g < t->options.loader.groups; g++) work += zonal__run_work(t->groups[g].run);
    return work * (t->micro < t->rows ? 4. * (double)(t->rows / t->micro) : 3);
}

static void tell_layer(void *context, double work) {
    zonal__trainer *t = context;
    t->worked += work;
    t->listener(t->listener_context, 1, t->worked < t->work ? t->worked / t->work : 1);
}

static void tell_images(void *context, int64_t ready, int64_t count) {
    zonal__trainer *t = context;
    t->listener(t->listener_context, (double)ready / (double)count, 0);
}

void zonal__trainer_listen(zonal__trainer *t, zonal__trainer_listener *listener, void *context) {
    int layers = listener && zonal__device_is_host(t->device);
    t->listener = listener;
    t->listener_context = context;
    t->work = step_work(t);
    for (int g = 0; g < t->options.loader.groups; g++)
        zonal__run_listen(t->groups[g].run, layers ? tell_layer : NULL, t);
    if (t->loader) zonal__loader_listen(t->loader, listener ? tell_images : NULL, t);
    if (t->feed) zonal__feed_listen(t->feed, listener ? tell_images : NULL, t);
}

static zonal_status compute(zonal__trainer *t) {
    const zonal__optimiser_arrays arrays = zonal__trainer_arrays(t);
    t->worked = 0;
    if (t->listener) t->listener(t->listener_context, 1, 0);
    ZONAL_TRY(t->micro < t->rows ? two_passes(t) : one_pass(t));
    ZONAL_TRY(
        t->optimisers->step(t->optimiser, &arrays, &t->input->numbers, &t->output->gradient_norm));
    return finish_probe(t);
}

static zonal_status capture(zonal__trainer *t, void **graph) {
    zonal_status status, ended;
    zonal_error first;
    ZONAL_TRY(zonal__device_graph_begin(t->device, t->launch.stream));
    status = compute(t);
    first = *zonal_last_error(); /* a copy: the end may fail as well, because of it */
    ended = zonal__device_graph_end(t->device, t->launch.stream, graph);
    if (status == ZONAL_OK) return ended;
    zonal__device_graph_destroy(t->device, *graph);
    *graph = NULL;
    return ZONAL_FAIL(status, "%s", first.message);
}

/* What goes through the host's memory on the way cannot be recorded. */
static int can_be_recorded(const zonal__trainer *t) {
    const zonal_communicator *c = t->options.communicator;
    return !t->options.no_graph && zonal__device_has_graphs(t->device) && (!c || c->on_device);
}

static zonal_status launch(zonal__trainer *t, int turn) {
    zonal__trainer_launch *l = &t->launch;
    if (!l->warm || !can_be_recorded(t)) {
        ZONAL_TRY(compute(t));
        l->warm = 1;
        return ZONAL_OK;
    }
    if (!l->graphs[turn]) ZONAL_TRY(capture(t, &l->graphs[turn]));
    return zonal__device_graph_launch(t->device, l->graphs[turn], l->stream);
}

/* Where the views of the step will be; on CUDA they are made while the step before computes. */
zonal_status zonal__trainer_fetch(zonal__trainer *t) {
    const zonal__batch *batch;
    if (t->fetched || t->options.fixed_views) return ZONAL_OK; /* they are there */
    if (t->feed)
        ZONAL_TRY(zonal__feed_prepare(t->feed, t->launch.stream, &batch, &t->turn));
    else
        ZONAL_TRY(zonal__loader_next(t->loader, &batch));
    for (int g = 0; g < t->options.loader.groups; g++) t->groups[g].views = batch->views[g];
    t->epoch = batch->epoch;
    t->labels = batch->labels;
    t->fetched = 1;
    return ZONAL_OK;
}

/* The input with its labels; views that are no images' have some too. */
static void fill_input(const zonal__trainer *t, const zonal__step_input *input,
                       zonal__step_input *to) {
    int32_t *labels = (int32_t *)(to + 1);
    *to = *input;
    for (int64_t i = 0; t->probe && i < t->rows; i++)
        labels[i] = t->labels ? t->labels[i] : (int32_t)(i % t->options.probe_classes);
}

/* On CUDA it is read from pinned memory some time later: steps take turns, and each waits until the
 * copy of the one before last is done (at once where there was none). */
static zonal_status send_input(zonal__trainer *t, const zonal__step_input *input) {
    zonal__trainer_launch *l = &t->launch;
    int turn = (int)(t->done % ZONAL__FEED_TURNS);
    size_t bytes = zonal__trainer_input_bytes(t);
    void *pinned;
    if (zonal__device_is_host(t->device)) {
        fill_input(t, input, t->input);
        return ZONAL_OK;
    }
    pinned = l->pinned + (size_t)turn * bytes;
    ZONAL_TRY(zonal__device_event_wait(t->device, l->pinned_read[turn]));
    fill_input(t, input, pinned);
    ZONAL_TRY(zonal__device_write_on(t->device, l->stream, t->input, pinned, bytes));
    return zonal__device_event_record(t->device, l->pinned_read[turn], l->stream);
}

zonal_status zonal__trainer_step(zonal__trainer *t) {
    zonal__step_input input = {.step = (uint32_t)t->done};
    ZONAL_TRY(zonal__trainer_fetch(t));
    t->fetched = 0;
    t->last = (zonal__metrics){.step = t->done,
                               .epoch = t->epoch,
                               .rate = zonal__schedule_rate(&t->options.schedule, t->done)};
    ZONAL_TRY(zonal__optimiser_numbers_make(&t->options.optimiser, t->last.rate, t->done + 1,
                                            &input.numbers));
    if (t->probe)
        ZONAL_TRY(zonal__online_probe_numbers(t->probe, t->options.probe_rate, t->done + 1,
                                              &input.probe));
    ZONAL_TRY(send_input(t, &input));
    zonal_objective_set_step(t->objective, input.step);
    ZONAL_TRY(zonal__device_is_host(t->device) ? compute(t) : launch(t, t->turn));
    if (t->feed) ZONAL_TRY(zonal__feed_release(t->feed, t->launch.stream));
    zonal__trainer_set_done(t, t->done + 1);
    return ZONAL_OK;
}

void zonal__trainer_set_done(zonal__trainer *t, int64_t steps) {
    int64_t forwards = t->options.loader.groups * (t->rows / t->micro);
    t->done = steps;
    t->model->batches = steps * forwards; /* the runs count their calls, and a graph makes none */
}

/* ---- what a step leaves ---------------------------------------------------------------------- */

zonal_status zonal__trainer_metrics(zonal__trainer *t, zonal__metrics *metrics) {
    zonal__step_output output;
    zonal_status rows, gradient;
    *metrics = t->last;
    ZONAL_TRY(zonal__device_read(t->device, &output, t->output, sizeof output));
    metrics->loss = output.loss;
    metrics->gradient_norm = output.gradient_norm;
    /* Both are asked, so that neither tells next time what belongs to these steps. */
    gradient = t->optimisers->status(t->optimiser);
    rows = zonal_objective_status(t->objective);
    if (rows != ZONAL_OK) return rows;
    if (gradient != ZONAL_OK) return gradient;
    return check_loss(&output.loss, t->last.step);
}

zonal_status zonal__trainer_probe(zonal__trainer *t, float *out) {
    const char *prefix;
    float *block;
    ZONAL_TRY(zonal__online_probe_block(t->probe, 0, &prefix, &block));
    return zonal__device_read(t->device, out, block,
                              (size_t)zonal__online_probe_size(t->probe) * sizeof *out);
}

zonal_status zonal__trainer_projections(zonal__trainer *t, float *out) {
    int64_t count = projection_count(t);
    uint16_t *elements;
    zonal_status status;
    if (t->options.network.dtype != ZONAL_DTYPE_BF16)
        return zonal__device_read(t->device, out, t->projections, (size_t)count * sizeof *out);
    ZONAL_TRY(ZONAL_NEW(&elements, count, "the projections"));
    status =
        zonal__device_read(t->device, elements, t->projections, (size_t)count * sizeof *elements);
    if (status == ZONAL_OK) widen(count, elements, out);
    zonal__free(elements);
    return status;
}
