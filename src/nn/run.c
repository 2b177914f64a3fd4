/*
 * Runs: run.h. With N nodes, node i is computed at time i and goes back at time 2N - 1 - i; the
 * lifetimes below are in these times.
 *
 * A convolution and the norm that reads it become one layer where the device folds them
 * (backend/training/nn.h, PRODUCT_NORM): the norm's step then has the convolution's input and
 * weights, and the convolution's own step is left out. Where such a norm with a residual is read by
 * a convolution that goes back last of its readers, that one may be masked: it makes the norm's
 * dresidual at once, of both gradients.
 *
 * On a device the gradients of filters, which nobody on the way back waits for, are made on a
 * stream of their own beside it: they compute while norms move bytes. What they read stays LAG
 * nodes longer, and there the way back waits for them; so no more than a few of them are under way,
 * and few arrays are kept for them.
 */
#include "nn/run.h"

#include "core/memory.h"
#include "nn/arena.h"

/* The arrays of a node that lie in the arena. Its output has one gradient for each reader, that of
 * the last reader first. */
enum { Y, SAVED, DY, DY_MORE, NODE_ARRAYS };

/* The gradient of node i's filter is there before node i - LAG goes back. */
enum { LAG = 4 };

typedef struct step {
    zonal__layer_spec spec;
    int out_h, out_w, out_channels;
    int left_out;               /* a convolution: the norm behind it does its work */
    int masked_by_reader;       /* a norm: a masked convolution has made its dresidual */
    zonal__layer *layer;        /* NULL where it is left out */
    zonal__layer_arrays arrays; /* all but x of the first, dy of the last, and accumulate */
    int dx, dresidual;          /* which gradient of its source it writes: DY or DY_MORE */
    int64_t complete;           /* once it has gone back: where complete gradients begin */
    void *filtered;             /* event: the gradient of its filter is there; NULL: in line */
    double work;                /* of its forward */
} step;

struct zonal__run {
    zonal__model *model;
    zonal__run_spec spec;
    int count;   /* of steps: the graph's nodes */
    step *steps; /* [count] */
    char *arena; /* as the scratch, memory of the device */
    size_t arena_bytes;
    void *stream;          /* of all layers; NULL for the host */
    void *scratch;         /* of whichever layer runs */
    void *side;            /* a stream beside it, for the filters' gradients; NULL: in line */
    void *side_scratch;    /* of whichever layer runs there */
    void *ready;           /* event: what the next one there reads is there */
    void *own_projections; /* in the arena: where they go unless the caller has a place */
    int may_go_back;       /* a training forward has been, and no backward since */
    zonal__run_watcher *watcher;
    void *watcher_context;
    zonal__run_listener *listener;
    void *listener_context;
};

/* ---- layers ---------------------------------------------------------------------------------- */

static int normalises(const zonal__node *node) {
    return node->layer.kind == ZONAL__LAYER_NORM || node->layer.kind == ZONAL__LAYER_NORM_POOL;
}

static int has_weight(const zonal__node *node) {
    return node->layer.kind == ZONAL__LAYER_CONVOLUTION || node->layer.kind == ZONAL__LAYER_LINEAR;
}

/* Going over an element costs as much as so many multiplications of a product do, about. */
static const double element_work = 50;

static double work_of(const step *s) {
    const zonal__layer_spec *spec = &s->spec;
    double outputs = (double)spec->n * s->out_h * s->out_w * s->out_channels;
    if (s->left_out) return 0;
    if (spec->kind == ZONAL__LAYER_CONVOLUTION)
        return outputs * spec->channels * spec->kernel * spec->kernel;
    if (spec->kind == ZONAL__LAYER_PRODUCT_NORM) return outputs * (spec->channels + element_work);
    if (spec->kind == ZONAL__LAYER_LINEAR) return outputs * spec->channels;
    return element_work * (double)spec->n * spec->h * spec->w * spec->channels;
}

/* The node whose output the step of node i reads. */
static int source_of(const zonal__run *run, int i) {
    const zonal__node *nodes = run->model->graph.nodes;
    int x = nodes[i].x;
    return x >= 0 && run->steps[x].left_out ? nodes[x].x : x;
}

/* The convolution whose work the step of node i does, or NULL. */
static const zonal__node *folded_into(const zonal__run *run, int i) {
    const zonal__node *nodes = run->model->graph.nodes;
    return source_of(run, i) == nodes[i].x ? NULL : &nodes[nodes[i].x];
}

/* What the norm "reader" becomes with the convolution before it. */
static void fold(const zonal__layer_spec *convolution, zonal__layer_spec *reader) {
    reader->kind = ZONAL__LAYER_PRODUCT_NORM;
    reader->channels = convolution->channels;
    reader->out_channels = convolution->out_channels;
    reader->kernel = convolution->kernel;
    reader->stride = convolution->stride;
    reader->pad = convolution->pad;
}

static void describe(const zonal__run *run, int i, zonal__layer_spec *spec) {
    const zonal__node *node = &run->model->graph.nodes[i], *convolution = folded_into(run, i);
    int x = source_of(run, i);
    const step *source = x == ZONAL__NODE_IMAGES ? NULL : &run->steps[x];
    *spec = node->layer;
    if (convolution) fold(&convolution->layer, spec);
    spec->n = run->spec.n;
    spec->h = source ? source->out_h : run->spec.h;
    spec->w = source ? source->out_w : run->spec.w;
    spec->dtype = run->model->spec.dtype;
    spec->forward_only = run->spec.forward_only;
    spec->threads = run->spec.threads;
    spec->device = run->model->device;
    if (!normalises(node)) return;
    spec->communicator = run->spec.communicator;
    spec->all_n = run->spec.all_n;
}

/* The one node that reads the output of a convolution; "count": there is none. */
static int reader_of(const zonal__run *run, int convolution) {
    int i = convolution + 1;
    while (i < run->count && run->model->graph.nodes[i].x != convolution) i++;
    return i;
}

/* Whether the convolution of node i is left to the norm behind it. */
static int is_left_out(zonal__run *run, int i) {
    const zonal__graph *graph = &run->model->graph;
    const zonal__nn_table *table = run->model->table;
    int reader = reader_of(run, i);
    zonal__layer_spec spec;
    if (!run->spec.fold || !table->folds ||
        graph->nodes[i].layer.kind != ZONAL__LAYER_CONVOLUTION || reader == run->count ||
        graph->nodes[reader].layer.kind != ZONAL__LAYER_NORM)
        return 0;
    run->steps[i].left_out = 1; /* so that the reader is described without it */
    describe(run, reader, &spec);
    return table->folds(&spec);
}

static int reads(const zonal__node *node, int x) {
    return node->x == x || node->residual == x;
}

/* Whether the convolution of node i, which is described, can be masked: another node goes back
 * before it to the same norm. */
static int is_masked(const zonal__run *run, int i) {
    const zonal__graph *graph = &run->model->graph;
    int x = graph->nodes[i].x, others = 0;
    zonal__layer_spec spec = run->steps[i].spec;
    if (x < 0 || run->steps[x].spec.kind != ZONAL__LAYER_PRODUCT_NORM ||
        graph->nodes[x].residual < 0 || spec.kind != ZONAL__LAYER_CONVOLUTION)
        return 0;
    for (int k = x + 1; k < run->count; k++)
        if (k != i && reads(&graph->nodes[k], x)) {
            if (k < i) return 0;
            others++;
        }
    spec.masked = 1;
    return others == 1 && run->model->table->folds(&spec);
}

/* Whether the gradient of the node's filter is made beside the way back. */
static int goes_beside(const zonal__run *run, int i) {
    return run->side && !run->steps[i].left_out && has_weight(&run->model->graph.nodes[i]);
}

static zonal_status make_step(zonal__run *run, int i) {
    step *s = &run->steps[i];
    s->left_out = is_left_out(run, i);
    describe(run, i, &s->spec);
    s->spec.masked = !s->left_out && is_masked(run, i);
    ZONAL_TRY(zonal__layer_shape(&s->spec, &s->out_h, &s->out_w, &s->out_channels));
    s->work = work_of(s);
    if (s->left_out) return ZONAL_OK;
    ZONAL_TRY(zonal__layer_check_forward(&s->spec, !run->spec.forward_only));
    if (goes_beside(run, i))
        ZONAL_TRY(zonal__device_event_create(run->model->device, &s->filtered));
    return run->model->table->create(&s->spec, &s->layer);
}

/* ---- lifetimes ------------------------------------------------------------------------------- */

static int time_back(const zonal__run *run, int i) {
    return 2 * run->count - 1 - i;
}

static size_t output_bytes(const zonal__run *run, int i) {
    const step *s = &run->steps[i];
    size_t element = s->spec.dtype == ZONAL_DTYPE_BF16 ? sizeof(uint16_t) : sizeof(float);
    return (size_t)(s->spec.n * s->out_h * s->out_w * s->out_channels) * element;
}

static void extend(zonal__lifetime *array, int time) {
    if (time > array->last) array->last = time;
}

/* Node i reads the output of "source" forward, and with "again" backward too. */
static void note_reader(const zonal__run *run, zonal__lifetime (*life)[NODE_ARRAYS], int i,
                        int source, int again) {
    if (source >= 0)
        extend(&life[source][Y], again && !run->spec.forward_only ? time_back(run, i) : i);
}

static void plan_outputs(const zonal__run *run, zonal__lifetime (*life)[NODE_ARRAYS]) {
    const zonal__graph *graph = &run->model->graph;
    for (int i = 0; i < run->count; i++) {
        const zonal__node *node = &graph->nodes[i];
        if (run->steps[i].left_out) continue;
        life[i][Y] = (zonal__lifetime){.bytes = output_bytes(run, i), .first = i, .last = i};
        zonal__activation activation = node->layer.activation;
        note_reader(run, life, i, source_of(run, i), 1);
        note_reader(run, life, i, node->residual, activation == ZONAL__ACTIVATION_GELU);
        note_reader(run, life, i, i, activation != ZONAL__ACTIVATION_NONE);
    }
    extend(&life[graph->features][Y], 2 * run->count); /* the caller reads these */
    extend(&life[graph->projections][Y], 2 * run->count);
}

/* Node i writes a gradient of the output of "source". Returns which. */
static int note_gradient(const zonal__run *run, zonal__lifetime (*life)[NODE_ARRAYS], int i,
                         int source) {
    int which;
    if (source < 0) return DY;
    which = life[source][DY].bytes ? DY_MORE : DY;
    life[source][which] = (zonal__lifetime){.bytes = output_bytes(run, source),
                                            .first = time_back(run, i),
                                            .last = time_back(run, source)};
    return which;
}

/* What the gradient of a filter beside the way back reads stays until that must be done. */
static void note_beside(const zonal__run *run, zonal__lifetime (*life)[NODE_ARRAYS], int i) {
    int x = source_of(run, i), last = time_back(run, i) + LAG - 1;
    if (!run->steps[i].filtered) return;
    extend(&life[i][DY], last);
    extend(&life[i][SAVED], last);
    if (x >= 0) extend(&life[x][Y], last);
}

static void plan_backward(zonal__run *run, zonal__lifetime (*life)[NODE_ARRAYS]) {
    const zonal__node *nodes = run->model->graph.nodes;
    for (int i = run->count - 1; i >= 0; i--) {
        const zonal__node *node = &nodes[i];
        step *s = &run->steps[i];
        if (s->left_out) continue;
        life[i][SAVED] = (zonal__lifetime){.bytes = run->model->table->saved_bytes(s->layer),
                                           .first = i,
                                           .last = time_back(run, i)};
        note_beside(run, life, i);
        if (s->spec.masked) { /* writes what the norm before it would */
            run->steps[node->x].masked_by_reader = 1;
            run->steps[node->x].dresidual = note_gradient(run, life, i, nodes[node->x].residual);
            continue;
        }
        if (!s->masked_by_reader) s->dresidual = note_gradient(run, life, i, node->residual);
        s->dx = note_gradient(run, life, i, source_of(run, i));
    }
}

/* ---- pointers -------------------------------------------------------------------------------- */

static void *array_of(const zonal__run *run, zonal__lifetime (*life)[NODE_ARRAYS], int node,
                      int which) {
    if (node < 0 || life[node][which].bytes == 0) return NULL;
    return run->arena + life[node][which].offset;
}

static void point_to_weight(const zonal__model *model, const zonal__node *node,
                            zonal__layer_arrays *arrays) {
    const zonal__entry *entry = &model->graph.entries[node->entry];
    arrays->weight = model->bf16 ? (const void *)(model->bf16 + entry->offset)
                                 : (const void *)(model->parameters + entry->offset);
    arrays->dweight = model->gradients + entry->offset;
}

static void point_to_parameters(const zonal__model *model, const zonal__node *node,
                                zonal__layer_arrays *arrays) {
    const zonal__entry *entry = &model->graph.entries[node->entry];
    if (has_weight(node)) point_to_weight(model, node, arrays);
    if (normalises(node)) {
        arrays->scale = model->parameters + entry->offset;
        arrays->dscale = model->gradients + entry->offset;
        arrays->running_mean = model->statistics + entry[2].offset;
        arrays->running_variance = model->statistics + entry[3].offset;
    }
    if (normalises(node) || node->layer.bias) {
        arrays->bias = model->parameters + entry[1].offset;
        arrays->dbias = model->gradients + entry[1].offset;
    }
}

/* A masked convolution writes the dresidual of the norm that it reads. */
static void point_to_mask(zonal__run *run, zonal__lifetime (*life)[NODE_ARRAYS], int i) {
    int norm = run->model->graph.nodes[i].x;
    const step *n = &run->steps[norm];
    zonal__layer_arrays *arrays = &run->steps[i].arrays;
    arrays->dx = array_of(run, life, run->model->graph.nodes[norm].residual, n->dresidual);
    arrays->dx_more = array_of(run, life, norm, DY);
    arrays->mask = run->model->table->mask(n->layer, array_of(run, life, norm, SAVED));
}

static void point(zonal__run *run, zonal__lifetime (*life)[NODE_ARRAYS], int i) {
    const zonal__node *node = &run->model->graph.nodes[i];
    step *s = &run->steps[i];
    s->arrays.x = array_of(run, life, source_of(run, i), Y);
    s->arrays.residual = array_of(run, life, node->residual, Y);
    s->arrays.y = array_of(run, life, i, Y);
    s->arrays.saved = array_of(run, life, i, SAVED);
    s->arrays.scratch = run->scratch;
    s->arrays.dy = array_of(run, life, i, DY);
    s->arrays.dy_more = array_of(run, life, i, DY_MORE);
    s->arrays.dx = array_of(run, life, source_of(run, i), s->dx);
    s->arrays.dresidual = array_of(run, life, node->residual, s->dresidual);
    if (s->spec.masked) point_to_mask(run, life, i);
    if (s->masked_by_reader) s->arrays.dy = s->arrays.dy_more = NULL;
    point_to_parameters(run->model, node, &s->arrays);
    if (folded_into(run, i)) point_to_weight(run->model, folded_into(run, i), &s->arrays);
}

/* Where the parameters of a node end in their block; 0: it has none. */
static int64_t end_of_parameters(const zonal__model *model, const zonal__node *node) {
    const zonal__entry *last = &model->graph.entries[node->entry];
    if (!normalises(node) && !has_weight(node)) return 0;
    if (normalises(node) || node->layer.bias) last++;
    return last->offset + last->count;
}

/* Entries do not stand in the order of the nodes: what lies behind all that earlier nodes have is
 * complete. */
static void find_complete(zonal__run *run) {
    int64_t end = 0;
    for (int i = 0; i < run->count; i++) {
        int64_t own = end_of_parameters(run->model, &run->model->graph.nodes[i]);
        run->steps[i].complete = end;
        if (own > end) end = own;
    }
}

/* ---- a run's life ---------------------------------------------------------------------------- */

/* For all layers, or for those with something beside the way back. */
static zonal_status alloc_scratch(zonal__run *run, int beside, void **scratch) {
    const zonal__nn_table *table = run->model->table;
    size_t most = 0;
    for (int i = 0; i < run->count; i++) {
        const step *s = &run->steps[i];
        if (s->left_out || (beside && !s->filtered)) continue;
        size_t bytes = table->scratch_bytes(s->layer);
        if (bytes > most) most = bytes;
    }
    if (most == 0) return ZONAL_OK;
    return zonal__device_alloc(run->model->device, most,
                               "the layers' scratch (fewer or smaller images take less)", scratch);
}

static zonal_status take_arena(zonal__run *run) {
    zonal__lifetime(*life)[NODE_ARRAYS];
    void *arena;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&life, run->count, "the plan of the activations"));
    plan_outputs(run, life);
    if (!run->spec.forward_only) plan_backward(run, life);
    ZONAL_TRY_GOTO(status, done,
                   zonal__arena_plan(life[0], run->count * NODE_ARRAYS, &run->arena_bytes));
    ZONAL_TRY_GOTO(status, done,
                   zonal__device_alloc(run->model->device, run->arena_bytes,
                                       "the activations (fewer or smaller images take less)",
                                       &arena));
    run->arena = arena;
    for (int i = 0; i < run->count; i++) point(run, life, i);
    run->own_projections = run->steps[run->model->graph.projections].arrays.y;
done:
    zonal__free(life);
    return status;
}

/* The host's streams do everything at once: nothing would be gained there. */
static zonal_status make_side(zonal__run *run) {
    const zonal__device *device = run->model->device;
    if (run->spec.forward_only || zonal__device_is_host(device) || !run->model->table->set_stream)
        return ZONAL_OK;
    ZONAL_TRY(zonal__device_stream_create(device, &run->side));
    return zonal__device_event_create(device, &run->ready);
}

static zonal_status fill(zonal__run *run) {
    ZONAL_TRY(make_side(run));
    ZONAL_TRY(ZONAL_NEW(&run->steps, run->model->graph.node_count, "the layers"));
    run->count = run->model->graph.node_count;
    for (int i = 0; i < run->count; i++) ZONAL_TRY(make_step(run, i));
    find_complete(run);
    ZONAL_TRY(alloc_scratch(run, 0, &run->scratch));
    ZONAL_TRY(alloc_scratch(run, 1, &run->side_scratch));
    return take_arena(run);
}

zonal_status zonal__run_create(zonal__model *model, const zonal__run_spec *spec, zonal__run **out) {
    zonal__run *run;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&run, 1, "a run"));
    run->model = model;
    run->spec = *spec;
    status = fill(run);
    if (status != ZONAL_OK) {
        zonal__run_destroy(run);
        return status;
    }
    *out = run;
    return ZONAL_OK;
}

void zonal__run_destroy(zonal__run *run) {
    const zonal__device *device;
    if (!run) return;
    device = run->model->device;
    for (int i = 0; i < run->count; i++) {
        run->model->table->destroy(run->steps[i].layer);
        zonal__device_event_destroy(device, run->steps[i].filtered);
    }
    zonal__free(run->steps);
    zonal__device_free(device, run->arena);
    zonal__device_free(device, run->scratch);
    zonal__device_free(device, run->side_scratch);
    zonal__device_event_destroy(device, run->ready);
    zonal__device_stream_destroy(device, run->side);
    zonal__free(run);
}

size_t zonal__run_bytes(const zonal__run *run) {
    return run->arena_bytes;
}

double zonal__run_work(const zonal__run *run) {
    double work = 0;
    for (int i = 0; i < run->count; i++) work += run->steps[i].work;
    return work;
}

void zonal__run_listen(zonal__run *run, zonal__run_listener *listener, void *context) {
    run->listener = listener;
    run->listener_context = context;
}

void zonal__run_set_stream(zonal__run *run, void *stream) {
    if (!run->model->table->set_stream) return;
    run->stream = stream;
    for (int i = 0; i < run->count; i++)
        if (run->steps[i].layer) run->model->table->set_stream(run->steps[i].layer, stream);
}

/* ---- forward and backward -------------------------------------------------------------------- */

zonal_status zonal__run_forward(zonal__run *run, const void *x, int training, void *projections,
                                zonal__run_outputs *outputs) {
    const zonal__graph *graph = &run->model->graph;
    if (training && run->spec.forward_only)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a run for inference cannot train; make it with forward_only 0");
    run->may_go_back = 0;
    run->steps[0].arrays.x = x;
    run->steps[graph->projections].arrays.y = projections ? projections : run->own_projections;
    for (int i = 0; i < run->count; i++) {
        step *s = &run->steps[i];
        if (s->left_out) continue;
        ZONAL_TRY(run->model->table->forward(s->layer, &s->arrays, training));
        if (run->listener) run->listener(run->listener_context, s->work);
    }
    if (training) run->model->batches++;
    run->may_go_back = training;
    outputs->features = run->steps[graph->features].arrays.y;
    outputs->projections = run->steps[graph->projections].arrays.y;
    return ZONAL_OK;
}

/* The side stream waits for what the run's has so far, and makes the gradient of the filter. That
 * comes behind dx, so that it meets the norm that goes back next and not another product: each of
 * the two fills a whole GPU with one kind of work. */
static zonal_status fork_off(zonal__run *run, step *s) {
    const zonal__device *device = run->model->device;
    const zonal__nn_table *table = run->model->table;
    zonal__layer_arrays arrays = s->arrays;
    zonal_status status;
    arrays.dx = NULL;
    arrays.scratch = run->side_scratch;
    ZONAL_TRY(zonal__device_event_record(device, run->ready, run->stream));
    ZONAL_TRY(zonal__device_event_hold(device, run->ready, run->side));
    table->set_stream(s->layer, run->side);
    status = table->backward(s->layer, &arrays);
    table->set_stream(s->layer, run->stream);
    if (status != ZONAL_OK) return status;
    return zonal__device_event_record(device, s->filtered, run->side);
}

static zonal_status go_back(zonal__run *run, step *s) {
    zonal__layer_arrays arrays = s->arrays;
    if (!s->filtered) return run->model->table->backward(s->layer, &s->arrays);
    arrays.dweight = NULL;
    ZONAL_TRY(run->model->table->backward(s->layer, &arrays));
    return fork_off(run, s);
}

/* Before node i goes back: the run's stream waits for the filters of nodes from i + LAG on. */
static zonal_status wait_for_side(zonal__run *run, int i) {
    int far = i + LAG;
    if (far >= run->count || !run->steps[far].filtered) return ZONAL_OK;
    return zonal__device_event_hold(run->model->device, run->steps[far].filtered, run->stream);
}

/* Tells what is complete once node i has gone back. */
static zonal_status tell_watcher(const zonal__run *run, int i) {
    int far = run->side ? i + LAG : i;
    if (!run->watcher || far >= run->count) return ZONAL_OK;
    return run->watcher(run->watcher_context, run->steps[far].complete);
}

/* All filters are there; what was too near to be told is complete. */
static zonal_status join(zonal__run *run) {
    if (!run->side) return ZONAL_OK;
    ZONAL_TRY(zonal__device_event_record(run->model->device, run->ready, run->side));
    ZONAL_TRY(zonal__device_event_hold(run->model->device, run->ready, run->stream));
    return run->watcher ? run->watcher(run->watcher_context, run->steps[0].complete) : ZONAL_OK;
}

zonal_status zonal__run_backward(zonal__run *run, const void *dprojections, int accumulate) {
    if (!run->may_go_back)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "there is no training forward to go back over; each serves one backward");
    run->may_go_back = 0;
    run->steps[run->count - 1].arrays.dy = dprojections;
    for (int i = run->count - 1; i >= 0; i--) {
        step *s = &run->steps[i];
        ZONAL_TRY(wait_for_side(run, i));
        if (s->left_out) continue;
        s->arrays.accumulate = accumulate;
        ZONAL_TRY(go_back(run, s));
        ZONAL_TRY(tell_watcher(run, i));
        if (run->listener) run->listener(run->listener_context, 2 * s->work);
    }
    return join(run);
}

void zonal__run_watch(zonal__run *run, zonal__run_watcher *watcher, void *context) {
    run->watcher = watcher;
    run->watcher_context = context;
}
