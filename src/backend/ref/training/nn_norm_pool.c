/*
 * A batch norm and a max pool as one layer: the two one after the other. Both see x's sides in the
 * layer's spec, so they can be run on it as it is.
 *
 * The array between them lies in scratch on the way forward, its gradient on the way back. Saved:
 * what the max pool saves, then what the norm does.
 */
#include "backend/ref/training/nn.h"

static void *norm_saved(const zonal__layer *layer, const zonal__layer_arrays *arrays) {
    return arrays->saved ? (char *)arrays->saved + zonal__ref_max_pool_saved(layer) : NULL;
}

zonal_status zonal__ref_norm_pool(const zonal__layer *layer, const zonal__layer_arrays *arrays,
                                  int training) {
    zonal__layer_arrays norm = *arrays, pool = *arrays;
    norm.saved = norm_saved(layer, arrays);
    norm.y = arrays->scratch;
    pool.x = arrays->scratch;
    ZONAL_TRY(zonal__ref_norm(layer, &norm, training));
    return zonal__ref_max_pool(layer, &pool, training);
}

zonal_status zonal__ref_norm_pool_back(const zonal__layer *layer,
                                       const zonal__layer_arrays *arrays) {
    zonal__layer_arrays norm = *arrays, pool = *arrays;
    pool.dx = arrays->scratch;
    norm.saved = norm_saved(layer, arrays);
    norm.dy = arrays->scratch;
    norm.dy_more = NULL;
    ZONAL_TRY(zonal__ref_max_pool_back(layer, &pool));
    return zonal__ref_norm_back(layer, &norm);
}

size_t zonal__ref_norm_pool_saved(const zonal__layer *layer) {
    return zonal__ref_max_pool_saved(layer) + zonal__ref_norm_saved(layer);
}

size_t zonal__ref_norm_pool_scratch(const zonal__layer *layer) {
    size_t element = layer->spec.dtype == ZONAL_DTYPE_BF16 ? sizeof(uint16_t) : sizeof(float);
    return (size_t)zonal__ref_x_at(layer, layer->spec.n, 0, 0) * element;
}
