/*
 * A batch norm and a max pool as one layer on the host's threads: the two one after the other.
 *
 * The array between them is kept for the norm's backward, which reads relu's derivative off it;
 * where nothing is kept it lies in scratch, and so does its gradient on the way back.
 *
 * Saved: what the norm saves, what the max pool saves, and the array between them, each in whole
 * lines of 64 bytes.
 */
#include "backend/cpu/training/nn_layer.h"
#include "core/memory.h"

typedef struct norm_pool_layer {
    zonal__layer base;
    zonal__layer *norm, *pool;
} norm_pool_layer;

static zonal_status make_part(const zonal__layer *whole, zonal__layer_kind kind,
                              const zonal__cpu_family *family, zonal__layer **part) {
    ZONAL_TRY(zonal__alloc(1, family->bytes, "a part of a layer", (void **)part));
    **part = *whole;
    (*part)->family = family;
    (*part)->spec.kind = kind;
    return family->prepare(*part);
}

static void drop_part(zonal__layer *part) {
    if (part && part->family->release) part->family->release(part);
    zonal__free(part);
}

static void release(zonal__layer *layer) {
    norm_pool_layer *own = (norm_pool_layer *)layer;
    drop_part(own->norm);
    drop_part(own->pool);
}

static zonal_status prepare(zonal__layer *layer) {
    norm_pool_layer *own = (norm_pool_layer *)layer;
    ZONAL_TRY(make_part(layer, ZONAL__LAYER_NORM, &zonal__layers_norm, &own->norm));
    own->norm->out_h = layer->spec.h;
    own->norm->out_w = layer->spec.w;
    /* The team that runs both is as large as the norm has scratch for. */
    layer->threads = own->norm->threads;
    return make_part(layer, ZONAL__LAYER_MAX_POOL, &zonal__layers_max_pool, &own->pool);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t lines(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static size_t saved_part(const zonal__layer *part) {
    return lines(part->family->saved(part));
}

/* Of the array between the two. */
static size_t between_bytes(const zonal__layer *layer) {
    const zonal__layer_spec *spec = &layer->spec;
    size_t element = zonal__is_bf16(layer) ? sizeof(uint16_t) : sizeof(float);
    return (size_t)(spec->n * spec->h * spec->w * spec->channels) * element;
}

static size_t saved(const zonal__layer *layer) {
    const norm_pool_layer *own = (const norm_pool_layer *)layer;
    return saved_part(own->norm) + saved_part(own->pool) + between_bytes(layer);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* The arrays of the two; "keeps": the array between them is saved. */
static void share_out(const norm_pool_layer *own, const zonal__layer_arrays *arrays, int keeps,
                      zonal__layer_arrays *norm, zonal__layer_arrays *pool) {
    *norm = *pool = *arrays;
    norm->y = arrays->scratch;
    if (keeps) {
        pool->saved = (char *)arrays->saved + saved_part(own->norm);
        norm->y = (char *)pool->saved + saved_part(own->pool);
    }
    pool->x = norm->y;
}

static zonal_status forward(zonal__layer *layer, const zonal__layer_arrays *arrays, int training) {
    norm_pool_layer *own = (norm_pool_layer *)layer;
    zonal__layer_arrays norm, pool;
    share_out(own, arrays, training && !layer->spec.forward_only, &norm, &pool);
    ZONAL_TRY(own->norm->family->forward(own->norm, &norm, training));
    return own->pool->family->forward(own->pool, &pool, training);
}

static zonal_status backward(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    norm_pool_layer *own = (norm_pool_layer *)layer;
    zonal__layer_arrays norm, pool;
    share_out(own, arrays, 1, &norm, &pool);
    pool.dx = arrays->scratch;
    norm.dy = arrays->scratch;
    norm.dy_more = NULL;
    ZONAL_TRY(own->pool->family->backward(own->pool, &pool));
    return own->norm->family->backward(own->norm, &norm);
}

const zonal__cpu_family zonal__layers_norm_pool = {.bytes = sizeof(norm_pool_layer),
                                                   .prepare = prepare,
                                                   .release = release,
                                                   .saved = saved,
                                                   .scratch = between_bytes,
                                                   .forward = forward,
                                                   .backward = backward};
