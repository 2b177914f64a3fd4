/*
 * Convolutions folded into the norms behind them (src/nn/run.c) without a GPU: layers of a table
 * that folds, but makes each PRODUCT_NORM of the reference's two layers, must give the bits of the
 * reference. The kernels of the device that folds are tested in tests/backend/test_cuda_fold.c.
 */
#include <math.h>

#include "core/memory.h"
#include "nn/run.h"
#include "test.h"

/* ---- a table that folds ---------------------------------------------------------------------- */

/* A layer of the reference, or a convolution and a norm with what lies between them. */
struct zonal__layer {
    zonal__layer_spec spec;
    zonal__layer *first, *second; /* second: NULL unless folded */
    float *between, *gradient;    /* folded; masked: gradient alone */
    const float *y;               /* of the last forward */
    size_t first_saved;
};

static int folded, masked; /* layers, so far */
static int masks;          /* whether convolutions may be masked */

static int folds(const zonal__layer_spec *spec) {
    if (spec->kind == ZONAL__LAYER_CONVOLUTION)
        return masks && spec->kernel == 1 && spec->stride == 1 && !spec->forward_only;
    return spec->kernel == 1 && spec->stride == 1 && spec->out_channels > spec->channels;
}

static void destroy(zonal__layer *layer) {
    if (!layer) return;
    zonal__nn_ref()->destroy(layer->first);
    zonal__nn_ref()->destroy(layer->second);
    zonal__free(layer->between);
    zonal__free(layer->gradient);
    zonal__free(layer);
}

static zonal_status fill(const zonal__layer_spec *spec, zonal__layer *layer) {
    zonal__layer_spec convolution = *spec, norm = *spec;
    int64_t pixels = spec->n * spec->h * spec->w, count = pixels * spec->out_channels;
    layer->spec = *spec;
    if (spec->masked) {
        masked++;
        ZONAL_TRY(ZONAL_NEW(&layer->gradient, pixels * spec->channels, "a gradient"));
    }
    if (spec->kind != ZONAL__LAYER_PRODUCT_NORM)
        return zonal__nn_ref()->create(spec, &layer->first);
    convolution.kind = ZONAL__LAYER_CONVOLUTION;
    norm.kind = ZONAL__LAYER_NORM;
    norm.channels = spec->out_channels;
    folded++;
    ZONAL_TRY(zonal__nn_ref()->create(&convolution, &layer->first));
    ZONAL_TRY(zonal__nn_ref()->create(&norm, &layer->second));
    ZONAL_TRY(ZONAL_NEW(&layer->between, count, "what lies between"));
    ZONAL_TRY(ZONAL_NEW(&layer->gradient, count, "its gradient"));
    layer->first_saved = (zonal__nn_ref()->saved_bytes(layer->first) + 63) / 64 * 64;
    return ZONAL_OK;
}

static zonal_status create(const zonal__layer_spec *spec, zonal__layer **out) {
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(out, 1, "a layer"));
    status = fill(spec, *out);
    if (status == ZONAL_OK) return ZONAL_OK;
    destroy(*out);
    *out = NULL;
    return status;
}

static size_t saved_bytes(const zonal__layer *layer) {
    if (!layer->second) return zonal__nn_ref()->saved_bytes(layer->first);
    return layer->first_saved + zonal__nn_ref()->saved_bytes(layer->second);
}

static size_t scratch_bytes(const zonal__layer *layer) {
    return zonal__nn_ref()->scratch_bytes(layer->first);
}

static zonal_status forward(zonal__layer *layer, const zonal__layer_arrays *arrays, int training) {
    zonal__layer_arrays convolution = *arrays, norm = *arrays;
    if (!layer->second) return zonal__nn_ref()->forward(layer->first, arrays, training);
    convolution.y = layer->between;
    norm.x = layer->between;
    layer->y = arrays->y;
    if (arrays->saved) norm.saved = (char *)arrays->saved + layer->first_saved;
    ZONAL_TRY(zonal__nn_ref()->forward(layer->first, &convolution, training));
    return zonal__nn_ref()->forward(layer->second, &norm, training);
}

/* The mask is the layer itself. */
static zonal__layer_mask mask_of(const zonal__layer *layer, void *saved) {
    return (zonal__layer_mask){(void *)layer, saved};
}

static zonal_status backward_masked(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    const float *y = ((const zonal__layer *)arrays->mask.signs)->y, *more = arrays->dx_more;
    zonal__layer_arrays plain = *arrays;
    float *g = arrays->dx;
    int64_t count = layer->spec.n * layer->spec.h * layer->spec.w * layer->spec.channels;
    plain.dx = layer->gradient;
    ZONAL_TRY(zonal__nn_ref()->backward(layer->first, &plain));
    for (int64_t i = 0; i < count; i++) g[i] = y[i] > 0 ? more[i] + layer->gradient[i] : 0;
    return ZONAL_OK;
}

static zonal_status backward(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    zonal__layer_arrays convolution = *arrays, norm = *arrays;
    if (layer->spec.masked) return backward_masked(layer, arrays);
    if (!layer->second) return zonal__nn_ref()->backward(layer->first, arrays);
    if (!arrays->dy) { /* a masked convolution has been here: what is masked again stays the same */
        norm.dy = arrays->dresidual;
        norm.dresidual = NULL;
    }
    norm.x = layer->between;
    norm.dx = layer->gradient;
    norm.saved = (char *)arrays->saved + layer->first_saved;
    convolution.dy = layer->gradient;
    ZONAL_TRY(zonal__nn_ref()->backward(layer->second, &norm));
    return zonal__nn_ref()->backward(layer->first, &convolution);
}

static const zonal__nn_table folding = {.name = "ref",
                                        .create = create,
                                        .destroy = destroy,
                                        .saved_bytes = saved_bytes,
                                        .scratch_bytes = scratch_bytes,
                                        .forward = forward,
                                        .backward = backward,
                                        .folds = folds,
                                        .mask = mask_of};

/* ---- networks -------------------------------------------------------------------------------- */

enum { N = 3, SIDE = 8 };

/* A model and one run of it, forward and, unless it is for inference, backward. */
typedef struct trained {
    zonal__model *model;
    zonal__run *run;
    zonal__run_outputs outputs;
} trained;

static void trained_drop(trained *t) {
    zonal__run_destroy(t->run);
    zonal__model_destroy(t->model);
}

static zonal_status train(const zonal__nn_table *table, int depth, int forward_only, trained *t) {
    zonal__network_spec spec = zonal__network_defaults();
    zonal__run_spec run = {.n = N, .h = SIDE, .w = SIDE, .forward_only = forward_only, .fold = 1};
    static float images[N * SIDE * SIDE * 3], gradient[N * 16];
    spec.depth = depth;
    spec.width = 0.125;
    spec.stem = ZONAL__STEM_SMALL;
    spec.projector_layers = 1;
    spec.projector_width[0] = 16;
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = (float)((int)(i * 2654435761u >> 20 & 255) - 128) / 64;
    for (size_t i = 0; i < sizeof gradient / sizeof *gradient; i++)
        gradient[i] = (float)((int)(i * 2246822519u >> 21 & 127) - 64) / 256;
    ZONAL_TRY(zonal__model_create(&spec, zonal__device_cpu(), &t->model));
    t->model->table = table;
    ZONAL_TRY(zonal__model_initialise(t->model, 7, 0));
    ZONAL_TRY(zonal__run_create(t->model, &run, &t->run));
    ZONAL_TRY(zonal__run_forward(t->run, images, !forward_only, NULL, &t->outputs));
    return forward_only ? ZONAL_OK : zonal__run_backward(t->run, gradient, 0);
}

static int64_t differing(int64_t count, const float *a, const float *b) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) found += !(a[i] == b[i]);
    return found;
}

/* The reference adds two gradients in double; a masked convolution stores their sum. Then only
 * roundings to float may differ. */
static void check_gradients(const trained *a, const trained *b) {
    const float *got = b->model->gradients, *want = a->model->gradients;
    double off = 0, norm = 0;
    for (int64_t i = 0; i < a->model->graph.parameter_size; i++) {
        off += pow((double)got[i] - (double)want[i], 2);
        norm += pow((double)want[i], 2);
    }
    CHECK_MSG(sqrt(off) <= (masks ? 1e-5 : 0) * sqrt(norm), "gradients are off by %.2g of %.2g",
              sqrt(off), sqrt(norm));
}

static void check_same(const trained *a, const trained *b) {
    const zonal__graph *graph = &a->model->graph;
    CHECK(differing(N * graph->feature_dim, a->outputs.features, b->outputs.features) == 0);
    CHECK(differing(N * graph->projection_dim, a->outputs.projections, b->outputs.projections) ==
          0);
    check_gradients(a, b);
    CHECK(differing(graph->statistic_size, a->model->statistics, b->model->statistics) == 0);
}

/* ResNet-50 has 16 bottlenecks, and one shortcut with a product of stride 1; 15 bottlenecks are
 * read by a next one, whose first convolution may be masked. ResNet-18 has none of these. */
static void check_depth(int depth, int forward_only, int expected) {
    trained plain = {0}, other = {0};
    folded = masked = 0;
    if (CHECK_OK(train(zonal__nn_ref(), depth, forward_only, &plain)) &&
        CHECK_OK(train(&folding, depth, forward_only, &other))) {
        CHECK_MSG(folded == expected, "ResNet-%d: %d layers were folded, not %d", depth, folded,
                  expected);
        CHECK(masked == (masks && expected && !forward_only ? 15 : 0));
        check_same(&plain, &other);
        if (expected && !forward_only)
            CHECK(zonal__run_bytes(other.run) < zonal__run_bytes(plain.run));
    }
    trained_drop(&plain);
    trained_drop(&other);
}

static void test_same_bits(void) {
    for (masks = 0; masks < 2; masks++) {
        check_depth(50, 0, 17);
        check_depth(18, 0, 0);
    }
}

static void test_inference(void) {
    check_depth(50, 1, 17);
}

static const test_case tests[] = {
    {"same_bits", test_same_bits}, {"inference", test_inference}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
