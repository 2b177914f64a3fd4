#include "cli/bench/layer_profile.h"

#include <math.h>
#include <string.h>

#include "backend/training/tables.h"
#include "cli/common/timing.h"
#include "core/bf16.h"
#include "core/memory.h"

/* ---- which layers there are ------------------------------------------------------------------ */

typedef struct shape {
    int h, w, channels;
} shape;

static int64_t elements(const zonal__layer_spec *spec, const shape *s) {
    return spec->n * s->h * s->w * s->channels;
}

static shape shape_of_x(const zonal__layer_spec *spec) {
    return (shape){spec->h, spec->w, spec->channels};
}

/* Of a layer that zonal__layer_shape has passed before. */
static shape shape_of_y(const zonal__layer_spec *spec) {
    shape y = {0};
    (void)zonal__layer_shape(spec, &y.h, &y.w, &y.channels);
    return y;
}

static int has_weights(const zonal__layer_spec *spec) {
    return spec->kind == ZONAL__LAYER_CONVOLUTION || spec->kind == ZONAL__LAYER_LINEAR;
}

static int64_t weights(const zonal__layer_spec *spec) {
    int64_t taps =
        spec->kind == ZONAL__LAYER_CONVOLUTION ? (int64_t)spec->kernel * spec->kernel : 1;
    return has_weights(spec) ? taps * spec->channels * spec->out_channels : 0;
}

static int count_readers(const zonal__graph *graph, int node) {
    int readers = 0;
    for (int i = 0; i < graph->node_count; i++)
        readers += (graph->nodes[i].x == node) + (graph->nodes[i].residual == node);
    return readers;
}

static int are_alike(const zonal__layer_profile *a, const zonal__layer_profile *b) {
    const zonal__layer_spec *s = &a->spec, *t = &b->spec;
    return s->kind == t->kind && s->h == t->h && s->w == t->w && s->channels == t->channels &&
           s->out_channels == t->out_channels && s->kernel == t->kernel && s->stride == t->stride &&
           s->bias == t->bias && s->activation == t->activation && s->residual == t->residual &&
           a->from_images == b->from_images && a->two_gradients == b->two_gradients;
}

static void add_layer(const zonal__layer_profile *layer, zonal__layer_profile *profile,
                      int *count) {
    for (int i = 0; i < *count; i++)
        if (are_alike(&profile[i], layer)) {
            profile[i].layers++;
            return;
        }
    profile[(*count)++] = *layer;
}

/* Gives every layer of the graph its size. */
static zonal_status list_layers(const zonal__profile_options *o, const zonal__graph *graph,
                                zonal__layer_profile *profile, int *count) {
    shape y[ZONAL__MOST_NODES];
    *count = 0;
    for (int i = 0; i < graph->node_count; i++) {
        const zonal__node *node = &graph->nodes[i];
        zonal__layer_profile layer = {.spec = node->layer, .layers = 1};
        shape x = node->x < 0 ? (shape){o->side, o->side, graph->channels} : y[node->x];
        layer.spec.n = o->n;
        layer.spec.h = x.h;
        layer.spec.w = x.w;
        layer.spec.dtype = o->network.dtype;
        layer.spec.threads = o->threads;
        layer.from_images = node->x < 0;
        layer.two_gradients = count_readers(graph, i) > 1;
        ZONAL_TRY(zonal__layer_shape(&layer.spec, &y[i].h, &y[i].w, &y[i].channels));
        add_layer(&layer, profile, count);
    }
    return ZONAL_OK;
}

/* ---- arrays, large enough for each of the layers --------------------------------------------- */

enum { ARRAYS = 16 };

typedef struct bench {
    const zonal__nn_table *table;
    const zonal__device *device;
    void *allocated[ARRAYS]; /* what "arrays" points to */
    int count;
    zonal__layer_arrays arrays;
} bench;

/* Multiples of 1/256 from -1/2 to 1/2: zeros would be computed faster, by saving power. */
static zonal_status fill(const bench *b, void *array, int64_t count, zonal_dtype dtype) {
    enum { PIECE = 1 << 20 };
    size_t size = dtype == ZONAL_DTYPE_BF16 ? 2 : 4;
    char *piece;
    zonal_status status = ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&piece, PIECE * 4, "numbers"));
    for (int64_t i = 0; i < PIECE; i++) {
        float value = (float)((uint32_t)i * 2654435761u >> 24) / 256 - .5f;
        uint16_t narrow = zonal__bf16_from_float(value);
        memcpy(piece + (size_t)i * size, dtype == ZONAL_DTYPE_BF16 ? (void *)&narrow : &value,
               size);
    }
    for (int64_t i = 0; i < count && status == ZONAL_OK; i += PIECE) {
        int64_t rest = count - i < PIECE ? count - i : PIECE;
        status = zonal__device_write(b->device, (char *)array + (size_t)i * size, piece,
                                     (size_t)rest * size);
    }
    zonal__free(piece);
    return status;
}

static zonal_status alloc(bench *b, int64_t count, zonal_dtype dtype, int filled, void **out) {
    size_t size = dtype == ZONAL_DTYPE_BF16 ? 2 : 4;
    ZONAL_TRY(zonal__device_alloc(b->device, (size_t)count * size, "the arrays of a layer", out));
    b->allocated[b->count++] = *out;
    return filled ? fill(b, *out, count, dtype) : ZONAL_OK;
}

typedef struct sizes {
    int64_t x, y, weights, channels; /* elements */
} sizes;

static sizes find_sizes(const zonal__layer_profile *profile, int count) {
    sizes most = {0};
    for (int i = 0; i < count; i++) {
        const zonal__layer_spec *spec = &profile[i].spec;
        const shape x = shape_of_x(spec), y = shape_of_y(spec);
        if (elements(spec, &x) > most.x) most.x = elements(spec, &x);
        if (elements(spec, &y) > most.y) most.y = elements(spec, &y);
        if (weights(spec) > most.weights) most.weights = weights(spec);
        if (y.channels > most.channels) most.channels = y.channels;
    }
    return most;
}

static zonal_status take_arrays(bench *b, const sizes *most, zonal_dtype dtype) {
    zonal__layer_arrays *a = &b->arrays;
    const zonal_dtype single = ZONAL_DTYPE_FP32;
    ZONAL_TRY(alloc(b, most->x, dtype, 1, (void **)&a->x));
    ZONAL_TRY(alloc(b, most->y, dtype, 1, (void **)&a->residual));
    ZONAL_TRY(alloc(b, most->y, dtype, 1, (void **)&a->dy));
    ZONAL_TRY(alloc(b, most->y, dtype, 1, (void **)&a->dy_more));
    ZONAL_TRY(alloc(b, most->weights, dtype, 1, (void **)&a->weight));
    ZONAL_TRY(alloc(b, most->channels, single, 1, (void **)&a->bias));
    ZONAL_TRY(alloc(b, most->channels, single, 1, (void **)&a->scale));
    ZONAL_TRY(alloc(b, most->y, dtype, 0, &a->y));
    ZONAL_TRY(alloc(b, most->x, dtype, 0, &a->dx));
    ZONAL_TRY(alloc(b, most->y, dtype, 0, &a->dresidual));
    ZONAL_TRY(alloc(b, most->weights, single, 0, (void **)&a->dweight));
    ZONAL_TRY(alloc(b, most->channels, single, 0, (void **)&a->dbias));
    ZONAL_TRY(alloc(b, most->channels, single, 0, (void **)&a->dscale));
    ZONAL_TRY(alloc(b, most->channels, single, 0, (void **)&a->running_mean));
    return alloc(b, most->channels, single, 0, (void **)&a->running_variance);
}

static void release_arrays(bench *b) {
    for (int i = 0; i < b->count; i++) zonal__device_free(b->device, b->allocated[i]);
}

/* ---- timing ---------------------------------------------------------------------------------- */

typedef struct task {
    const zonal__nn_table *table;
    zonal__layer *layer;
    zonal__layer_arrays arrays;
    int backward;
} task;

static zonal_status enqueue(void *context, void *stream) {
    task *t = context;
    if (t->table->set_stream) t->table->set_stream(t->layer, stream);
    return t->backward ? t->table->backward(t->layer, &t->arrays)
                       : t->table->forward(t->layer, &t->arrays, 1);
}

static zonal_status time_parts(const bench *b, zonal__layer_profile *profile, zonal__layer *layer) {
    task t = {.table = b->table, .layer = layer, .arrays = b->arrays};
    int split = has_weights(&profile->spec) && !profile->from_images;
    double both;
    if (!profile->spec.residual) t.arrays.residual = t.arrays.dresidual = NULL;
    if (!profile->two_gradients) t.arrays.dy_more = NULL;
    if (profile->from_images) t.arrays.dx = NULL;
    ZONAL_TRY(zonal__time_work(b->device, enqueue, &t, &profile->part[ZONAL__PART_FORWARD].ms));
    t.backward = 1;
    ZONAL_TRY(zonal__time_work(b->device, enqueue, &t, &both));
    if (!has_weights(&profile->spec)) {
        profile->part[ZONAL__PART_DATA].ms = both;
        return ZONAL_OK;
    }
    profile->part[ZONAL__PART_FILTER].ms = both;
    if (!split) return ZONAL_OK;
    t.arrays.dx = NULL;
    ZONAL_TRY(zonal__time_work(b->device, enqueue, &t, &profile->part[ZONAL__PART_FILTER].ms));
    /* Two times that vary: their difference may come out below 0 where it is small. */
    profile->part[ZONAL__PART_DATA].ms = fmax(0, both - profile->part[ZONAL__PART_FILTER].ms);
    return ZONAL_OK;
}

static zonal_status time_layer(bench *b, zonal__layer_profile *profile) {
    zonal__layer *layer = NULL;
    void *saved = NULL, *scratch = NULL;
    zonal_status status;
    profile->spec.device = b->device;
    ZONAL_TRY(b->table->create(&profile->spec, &layer));
    ZONAL_TRY_GOTO(
        status, done,
        zonal__device_alloc(b->device, b->table->saved_bytes(layer), "what a layer saves", &saved));
    ZONAL_TRY_GOTO(status, done,
                   zonal__device_alloc(b->device, b->table->scratch_bytes(layer),
                                       "a layer's scratch", &scratch));
    b->arrays.saved = saved;
    b->arrays.scratch = scratch;
    status = time_parts(b, profile, layer);
done:
    b->table->destroy(layer);
    zonal__device_free(b->device, saved);
    zonal__device_free(b->device, scratch);
    return status;
}

/* ---- the floor ------------------------------------------------------------------------------- */

static void count_work(zonal__layer_profile *profile) {
    const zonal__layer_spec *spec = &profile->spec;
    const shape in = shape_of_x(spec), out = shape_of_y(spec);
    zonal__work_cost *part = profile->part;
    double size = spec->dtype == ZONAL_DTYPE_BF16 ? 2 : 4;
    double x = size * (double)elements(spec, &in), y = size * (double)elements(spec, &out);
    double w = (double)weights(spec), dy = profile->two_gradients ? 2 * y : y;
    double residual = spec->residual ? y : 0;
    if (has_weights(spec)) {
        double flop = 2 * (double)spec->n * out.h * out.w * w;
        part[ZONAL__PART_FORWARD].flop = part[ZONAL__PART_FILTER].flop = flop;
        part[ZONAL__PART_FORWARD].bytes = x + size * w + y;
        part[ZONAL__PART_FILTER].bytes = x + y + 4 * w;
        if (profile->from_images) return;
        part[ZONAL__PART_DATA].flop = flop;
        part[ZONAL__PART_DATA].bytes = y + size * w + x;
        return;
    }
    part[ZONAL__PART_FORWARD].bytes = x + residual + y;
    /* Backward of the mean needs no x; that of a maximum needs to know where it was, in a form that
     * may be as small as a byte. */
    if (spec->kind == ZONAL__LAYER_MEAN_POOL)
        part[ZONAL__PART_DATA].bytes = dy + x;
    else if (spec->kind == ZONAL__LAYER_NORM_POOL)
        part[ZONAL__PART_DATA].bytes = dy + y / size + x + x;
    else
        part[ZONAL__PART_DATA].bytes = x + dy + x + residual;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static zonal_status measure(bench *b, zonal_dtype dtype, zonal__layer_profile *profile, int count) {
    const sizes most = find_sizes(profile, count);
    ZONAL_TRY(take_arrays(b, &most, dtype));
    for (int i = 0; i < count; i++) {
        ZONAL_TRY(time_layer(b, &profile[i]));
        count_work(&profile[i]);
    }
    return ZONAL_OK;
}

zonal_status zonal__profile_layers(const zonal__profile_options *o, zonal__layer_profile *profile,
                                   int *count) {
    bench b = {.device = zonal__device_or_cpu(o->device)};
    zonal__graph *graph;
    zonal_status status;
    ZONAL_TRY(zonal__device_layers(b.device, &b.table));
    ZONAL_TRY(ZONAL_NEW(&graph, 1, "the network"));
    status = zonal__network_build(&o->network, graph);
    if (status == ZONAL_OK) status = list_layers(o, graph, profile, count);
    zonal__free(graph);
    if (status == ZONAL_OK) status = measure(&b, o->network.dtype, profile, *count);
    release_arrays(&b);
    return status;
}
