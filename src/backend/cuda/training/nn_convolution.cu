/*
 * Convolutions on CUDA: three plans (nn_plan.cuh), and for the first layer of a network in bf16
 * either own kernels (nn_stem_window.h: 7 x 7), where they do the shape, or plans on images and
 * weights whose channels are filled up (nn_stem.h: 3 x 3). To a masked x an own product goes back
 * (nn_fold.cuh) instead of a plan.
 *
 * A filled layer keeps the filled images in "saved", from where the filter's gradient reads them,
 * or in scratch when it is made forward_only. For these two the input gradient, which training
 * never asks of a first layer, is computed by plain loops, so that no plan and workspace are kept
 * for it.
 *
 * Scratch, each part aligned to ZONAL__PLAN_ALIGNMENT: the workspace of the plans or of the own
 * kernels, the filled weights or their gradient, the filled images when they are not saved.
 */
#include "backend/cuda/training/nn.cuh"
#include "backend/cuda/training/nn_direct.cuh"
#include "backend/cuda/training/nn_fold.cuh"
#include "backend/cuda/training/nn_plan.cuh"
#include "backend/cuda/training/nn_stem.cuh"
#include "backend/cuda/training/nn_stem_tile.cuh"

typedef struct convolution {
    zonal__layer layer;
    int own; /* by own kernels: no plans */
    zonal__stem_window window;
    int filled;           /* the plans' x and weight have ZONAL__STEM_FILLED channels */
    zonal__plan *plan[3]; /* by direction; NULL: not wanted */
    size_t workspace;     /* of the plans or own kernels, rounded up */
} convolution;

static zonal__plan_shape shape_of(const convolution *c, zonal__direction direction, int channels) {
    const zonal__layer_spec *spec = &c->layer.spec;
    zonal__plan_shape shape = {direction,
                               spec->dtype,
                               direction == ZONAL__FILTER ? ZONAL_DTYPE_FP32 : spec->dtype,
                               spec->n,
                               spec->h,
                               spec->w,
                               channels,
                               c->layer.out_h,
                               c->layer.out_w,
                               c->layer.out_channels,
                               spec->kernel,
                               spec->stride,
                               spec->pad};
    return shape;
}

static int wants(const convolution *c, zonal__direction direction) {
    if (direction == ZONAL__FORWARD) return 1;
    if (c->layer.spec.forward_only) return 0;
    return direction == ZONAL__FILTER || !(c->filled || c->layer.spec.masked);
}

static zonal_status create_own(convolution *c) {
    size_t bytes = 0;
    if (!c->layer.spec.forward_only) ZONAL_TRY(zonal__stem_filter_workspace(&c->window, &bytes));
    c->workspace = zonal__plan_round_up(bytes);
    return ZONAL_OK;
}

static zonal_status create_masked(convolution *c) {
    const zonal__layer_spec *spec = &c->layer.spec;
    if (!zonal__cuda_folds(spec))
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "this GPU has no masked convolution for %d to %d channels; use one that "
                          "is not masked",
                          spec->channels, spec->out_channels);
    c->workspace = zonal__plan_round_up(zonal__fold_masked_workspace(spec));
    return zonal__fold_masked_load();
}

static zonal_status create(zonal__layer *layer) {
    convolution *c = (convolution *)layer;
    const zonal__layer_spec *spec = &layer->spec;
    int narrow = spec->dtype == ZONAL_DTYPE_BF16;
    c->own = narrow &&
             zonal__stem_window_make(spec->n, spec->h, spec->w, spec->channels, spec->out_channels,
                                     spec->kernel, spec->stride, spec->pad, &c->window);
    if (c->own) return create_own(c);
    c->filled =
        narrow && zonal__stem_is_filled(spec->channels, spec->kernel, spec->stride, spec->pad);
    if (spec->masked) ZONAL_TRY(create_masked(c));
    for (int i = 0; i < 3; i++) {
        zonal__direction direction = (zonal__direction)i;
        if (!wants(c, direction)) continue;
        zonal__plan_shape shape =
            shape_of(c, direction, c->filled ? ZONAL__STEM_FILLED : spec->channels);
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

/* Rows of channels: a pixel's, a tap's. */
static int64_t image_rows(const convolution *c) {
    return c->layer.spec.n * c->layer.spec.h * c->layer.spec.w;
}

static int64_t weight_rows(const convolution *c) {
    return (int64_t)c->layer.out_channels * c->layer.spec.kernel * c->layer.spec.kernel;
}

static size_t filled_image_bytes(const convolution *c) {
    return c->filled ? (size_t)image_rows(c) * ZONAL__STEM_FILLED * 2 : 0;
}

/* The gradient's, which is fp32; the weights themselves take half of it. */
static size_t filled_weight_bytes(const convolution *c) {
    if (!c->filled) return 0;
    return zonal__plan_round_up((size_t)weight_rows(c) * ZONAL__STEM_FILLED * sizeof(float));
}

static size_t saved_bytes(const zonal__layer *layer) {
    return filled_image_bytes((const convolution *)layer);
}

static size_t scratch_bytes(const zonal__layer *layer) {
    const convolution *c = (const convolution *)layer;
    size_t bytes = c->workspace + filled_weight_bytes(c);
    if (layer->spec.forward_only) bytes += filled_image_bytes(c);
    return bytes ? bytes + ZONAL__PLAN_ALIGNMENT : 0; /* scratch is aligned to 64 only */
}

static char *workspace_in(const zonal__layer_arrays *arrays) {
    return (char *)zonal__plan_round_up((size_t)arrays->scratch);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static zonal_status forward_filled(convolution *c, const zonal__layer_arrays *arrays) {
    const zonal__layer_spec *spec = &c->layer.spec;
    cudaStream_t stream = c->layer.stream;
    char *workspace = workspace_in(arrays), *weights = workspace + c->workspace;
    void *images = spec->forward_only ? (void *)(weights + filled_weight_bytes(c)) : arrays->saved;
    ZONAL_TRY(stem_fill(image_rows(c), spec->channels, stream, arrays->x, images));
    ZONAL_TRY(stem_fill(weight_rows(c), spec->channels, stream, arrays->weight, weights));
    zonal__plan_arrays filled = {images, weights, arrays->y, workspace, 0};
    return zonal__plan_run(c->plan[ZONAL__FORWARD], stream, &filled);
}

static zonal_status forward(zonal__layer *layer, const zonal__layer_arrays *arrays, int training) {
    convolution *c = (convolution *)layer;
    (void)training;
    if (c->own)
        return zonal__stem_forward(&c->window, layer->stream, arrays->x, arrays->weight, arrays->y);
    if (c->filled) return forward_filled(c, arrays);
    zonal__plan_arrays plain = {arrays->x, arrays->weight, arrays->y, workspace_in(arrays), 0};
    return zonal__plan_run(c->plan[ZONAL__FORWARD], layer->stream, &plain);
}

/* dx of an own or filled layer. */
static zonal_status backward_to_images(convolution *c, const zonal__layer_arrays *arrays) {
    zonal__plan_shape shape = shape_of(c, ZONAL__DATA, c->layer.spec.channels);
    zonal__plan_arrays plain = {arrays->dx, arrays->weight, arrays->dy, NULL, 0};
    return zonal__direct_run(&shape, c->layer.stream, &plain);
}

static zonal_status filter_of_filled(convolution *c, const zonal__layer_arrays *arrays) {
    zonal__layer *layer = &c->layer;
    char *workspace = workspace_in(arrays), *gradient = workspace + c->workspace;
    zonal__plan_arrays filled = {arrays->saved, gradient, arrays->dy, workspace, 0};
    ZONAL_TRY(zonal__plan_run(c->plan[ZONAL__FILTER], layer->stream, &filled));
    return stem_take_gradient(weight_rows(c), layer->spec.channels, layer->stream, gradient,
                              arrays->accumulate, arrays->dweight);
}

static zonal_status backward_to_filter(convolution *c, const zonal__layer_arrays *arrays) {
    char *workspace = workspace_in(arrays);
    if (c->own)
        return zonal__stem_filter(&c->window, c->layer.stream, arrays->x, arrays->dy, workspace,
                                  arrays->accumulate, arrays->dweight);
    if (c->filled) return filter_of_filled(c, arrays);
    zonal__plan_arrays filter = {arrays->x, arrays->dweight, arrays->dy, workspace,
                                 arrays->accumulate};
    return zonal__plan_run(c->plan[ZONAL__FILTER], c->layer.stream, &filter);
}

static zonal_status backward(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    convolution *c = (convolution *)layer;
    char *workspace = workspace_in(arrays);
    if (arrays->dweight) ZONAL_TRY(backward_to_filter(c, arrays));
    if (!arrays->dx) return ZONAL_OK;
    if (c->own || c->filled) return backward_to_images(c, arrays);
    if (layer->spec.masked)
        return zonal__fold_masked_run(&layer->spec, layer->stream, arrays, workspace);
    zonal__plan_arrays data = {arrays->dx, arrays->weight, arrays->dy, workspace, 0};
    return zonal__plan_run(c->plan[ZONAL__DATA], layer->stream, &data);
}

const zonal__cuda_layer_kind zonal__cuda_convolution = {
    sizeof(convolution), create, destroy, saved_bytes, scratch_bytes, forward, backward};
