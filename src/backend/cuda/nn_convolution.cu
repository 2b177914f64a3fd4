/*
 * Convolutions on CUDA: three plans (nn_plan.cuh), and for the first layer of a network in bf16 the
 * packed form of pictures and weights (nn_stem.h).
 *
 * A packed layer keeps the packed pictures in "saved", from where the filter's gradient reads them,
 * or in scratch when it is made forward_only. Its input's gradient, which training never asks for,
 * is computed by plain loops, so that no plan and workspace are kept for it.
 *
 * Scratch, each part aligned to ZONAL__PLAN_ALIGNMENT: the plans' workspace, the packed weights or
 * their gradient, the packed pictures when they are not saved.
 */
#include "backend/cuda/nn.cuh"
#include "backend/cuda/nn_direct.cuh"
#include "backend/cuda/nn_plan.cuh"
#include "backend/cuda/nn_stem.cuh"

typedef struct convolution {
    zonal__layer layer;
    int packed;
    zonal__stem stem;
    zonal__plan *plan[3]; /* by direction; NULL: not wanted */
    size_t workspace;     /* of the plans, rounded up */
} convolution;

static zonal__plan_shape shape_of(const convolution *c, zonal__direction direction, int packed) {
    const zonal__layer_spec *spec = &c->layer.spec;
    zonal__plan_shape shape = {direction,
                               spec->dtype,
                               direction == ZONAL__FILTER ? ZONAL_DTYPE_FP32 : spec->dtype,
                               spec->n,
                               spec->h,
                               spec->w,
                               spec->channels,
                               c->layer.out_h,
                               c->layer.out_w,
                               c->layer.out_channels,
                               spec->kernel,
                               spec->stride,
                               spec->pad};
    if (packed) {
        shape.h = c->stem.packed_h;
        shape.w = c->stem.packed_w;
        shape.c = c->stem.packed_channels;
        shape.kernel = c->stem.packed_kernel;
        shape.stride = 1;
        shape.pad = c->stem.packed_pad;
    }
    return shape;
}

static int wants(const convolution *c, zonal__direction direction) {
    if (direction == ZONAL__FORWARD) return 1;
    if (c->layer.spec.forward_only) return 0;
    return direction == ZONAL__FILTER || !c->packed;
}

static zonal_status create(zonal__layer *layer) {
    convolution *c = (convolution *)layer;
    const zonal__layer_spec *spec = &layer->spec;
    c->packed = spec->dtype == ZONAL_DTYPE_BF16 &&
                zonal__stem_make(spec->n, spec->h, spec->w, spec->channels, spec->kernel,
                                 spec->stride, spec->pad, &c->stem);
    for (int i = 0; i < 3; i++) {
        zonal__direction direction = (zonal__direction)i;
        if (!wants(c, direction)) continue;
        zonal__plan_shape shape = shape_of(c, direction, c->packed);
        ZONAL_TRY(zonal__plan_create(&shape, &c->plan[i]));
        size_t bytes = zonal__plan_round_up(zonal__plan_workspace(c->plan[i]));
        if (bytes > c->workspace) c->workspace = bytes;
    }
    return ZONAL_OK;
}

static void destroy(zonal__layer *layer) {
    for (zonal__plan *plan : ((convolution *)layer)->plan) zonal__plan_destroy(plan);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t packed_picture_bytes(const convolution *c) {
    return c->packed ? (size_t)zonal__stem_picture_elements(&c->stem) * 2 : 0;
}

/* The gradient's, which is fp32; the weights themselves take half of it. */
static size_t packed_weight_bytes(const convolution *c) {
    if (!c->packed) return 0;
    return zonal__plan_round_up((size_t)zonal__stem_weight_elements(&c->stem) *
                                (size_t)c->layer.out_channels * sizeof(float));
}

static size_t saved_bytes(const zonal__layer *layer) {
    return packed_picture_bytes((const convolution *)layer);
}

static size_t scratch_bytes(const zonal__layer *layer) {
    const convolution *c = (const convolution *)layer;
    size_t bytes = c->workspace + packed_weight_bytes(c);
    if (layer->spec.forward_only) bytes += packed_picture_bytes(c);
    return bytes ? bytes + ZONAL__PLAN_ALIGNMENT : 0; /* scratch is aligned to 64 only */
}

static char *workspace_in(const zonal__layer_arrays *arrays) {
    return (char *)zonal__plan_round_up((size_t)arrays->scratch);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static zonal_status forward(zonal__layer *layer, const zonal__layer_arrays *arrays, int training) {
    convolution *c = (convolution *)layer;
    char *workspace = workspace_in(arrays);
    (void)training;
    if (!c->packed) {
        zonal__plan_arrays plain = {arrays->x, arrays->weight, arrays->y, workspace, 0};
        return zonal__plan_run(c->plan[ZONAL__FORWARD], layer->stream, &plain);
    }
    char *weights = workspace + c->workspace;
    void *pictures =
        layer->spec.forward_only ? (void *)(weights + packed_weight_bytes(c)) : arrays->saved;
    ZONAL_TRY(stem_pack_pictures(&c->stem, layer->stream, arrays->x, pictures));
    ZONAL_TRY(
        stem_pack_weights(&c->stem, layer->stream, layer->out_channels, arrays->weight, weights));
    zonal__plan_arrays packed = {pictures, weights, arrays->y, workspace, 0};
    return zonal__plan_run(c->plan[ZONAL__FORWARD], layer->stream, &packed);
}

static zonal_status backward_packed(convolution *c, const zonal__layer_arrays *arrays) {
    zonal__layer *layer = &c->layer;
    char *workspace = workspace_in(arrays), *gradient = workspace + c->workspace;
    zonal__plan_arrays packed = {arrays->saved, gradient, arrays->dy, workspace, 0};
    ZONAL_TRY(zonal__plan_run(c->plan[ZONAL__FILTER], layer->stream, &packed));
    ZONAL_TRY(stem_unpack_gradient(&c->stem, layer->stream, layer->out_channels, gradient,
                                   arrays->accumulate, arrays->dweight));
    if (!arrays->dx) return ZONAL_OK;
    zonal__plan_shape shape = shape_of(c, ZONAL__DATA, 0);
    zonal__plan_arrays plain = {arrays->dx, arrays->weight, arrays->dy, NULL, 0};
    return zonal__direct_run(&shape, layer->stream, &plain);
}

static zonal_status backward(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    convolution *c = (convolution *)layer;
    if (c->packed) return backward_packed(c, arrays);
    char *workspace = workspace_in(arrays);
    zonal__plan_arrays filter = {arrays->x, arrays->dweight, arrays->dy, workspace,
                                 arrays->accumulate};
    ZONAL_TRY(zonal__plan_run(c->plan[ZONAL__FILTER], layer->stream, &filter));
    if (!arrays->dx) return ZONAL_OK;
    zonal__plan_arrays data = {arrays->dx, arrays->weight, arrays->dy, workspace, 0};
    return zonal__plan_run(c->plan[ZONAL__DATA], layer->stream, &data);
}

const zonal__cuda_layer_kind zonal__cuda_convolution = {
    sizeof(convolution), create, destroy, saved_bytes, scratch_bytes, forward, backward};
