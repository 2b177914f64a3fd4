/*
 * Features: all images, in order, whatever the batch, and the same as a run by hand makes. What
 * torchvision makes of the same images is compared in eval_cli_test.py.
 */
#include "eval/features.h"

#include <stdlib.h>

#include "core/memory.h"
#include "failing_alloc.h"
#include "nn/network.h"
#include "nn/run.h"
#include "test.h"

enum { COUNT = 23, SIDE = 16, VIEWS = 2, DIM = 64, PROJECTED = 6 };

typedef struct setting {
    zonal__source *source;
    zonal__model *model;
    zonal__augmentation augmentations[VIEWS];
    zonal__features_options options;
} setting;

static zonal_status make_model(zonal_dtype dtype, zonal__model **model) {
    zonal__network_spec spec = zonal__network_defaults();
    zonal_status status;
    spec.stem = ZONAL__STEM_SMALL;
    spec.channels = 1;
    spec.width = 0.125;
    spec.projector_layers = 1;
    spec.projector_width[0] = PROJECTED;
    spec.dtype = dtype;
    ZONAL_TRY(zonal__model_create(&spec, zonal__device_cpu(), model));
    status = zonal__model_initialise(*model, test_seed, 0);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__model_destroy(*model);
    *model = NULL;
    return status;
}

/* On failure nothing is left to undo. */
static zonal_status prepare(setting *s, zonal_dtype dtype, int64_t count) {
    const zonal__source_options source = {.path = "textures:disk",
                                          .split = ZONAL__SPLIT_TRAIN,
                                          .texture_count = count,
                                          .texture_size = 24};
    zonal_status status;
    ZONAL_TRY(zonal__source_open(&source, &s->source));
    status = make_model(dtype, &s->model);
    if (status != ZONAL_OK) {
        zonal__source_close(s->source);
        return status;
    }
    for (int v = 0; v < VIEWS; v++) zonal__augmentation_texture(&s->augmentations[v]);
    s->options = (zonal__features_options){.source = s->source,
                                           .views = VIEWS,
                                           .augmentations = s->augmentations,
                                           .width = SIDE,
                                           .height = SIDE,
                                           .seed = test_seed,
                                           .batch = 8,
                                           .threads = 2};
    return ZONAL_OK;
}

static void finish(setting *s) {
    zonal__model_destroy(s->model);
    zonal__source_close(s->source);
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* View v of image i, alone through a run of its own. */
static int by_hand(setting *s, int v, int64_t i, float *features, float *projections) {
    zonal__image image = {0};
    zonal__views *engine = NULL;
    zonal__run *run = NULL;
    zonal__run_outputs outputs;
    zonal__view view;
    float pixels[SIDE * SIDE];
    const zonal__views_spec spec = {.kind = ZONAL__VIEW_TEXTURE,
                                    .width = SIDE,
                                    .height = SIDE,
                                    .channels = 1,
                                    .count = 1,
                                    .std = {1, 1, 1},
                                    .dtype = ZONAL_DTYPE_FP32,
                                    .most_shrink = 8};
    int good =
        CHECK_OK(zonal__source_read(s->source, i, &image)) &&
        CHECK_OK(zonal__views_cpu()->create(&spec, &engine)) &&
        CHECK_OK(zonal__run_create(
            s->model, &(zonal__run_spec){.n = 1, .h = SIDE, .w = SIDE, .forward_only = 1}, &run));
    if (good) {
        const zonal__image_place place = {
            .width = image.width, .height = image.height, .channels = image.channels};
        zonal__view_draw(&s->augmentations[v], test_seed, 0, i, v, image.width, image.height, SIDE,
                         SIDE, &view);
        good = CHECK_OK(zonal__views_cpu()->run(engine, image.pixels, &place, &view, 1, pixels)) &&
               CHECK_OK(zonal__run_forward(run, pixels, 0, NULL, &outputs));
    }
    if (good) {
        memcpy(features, outputs.features, DIM * sizeof *features);
        memcpy(projections, outputs.projections, PROJECTED * sizeof *projections);
    }
    zonal__run_destroy(run);
    zonal__views_cpu()->destroy(engine);
    zonal__image_fini(&image);
    return good;
}

static void check_row(const float *got, const float *want, int dim, const char *what) {
    double a[DIM], b[DIM];
    for (int k = 0; k < dim; k++) {
        a[k] = got[k];
        b[k] = want[k];
    }
    /* A batch of one may be summed in another order than a batch of many, in float. */
    test_norm_close(dim, a, b, 1e-5, what, __FILE__, __LINE__);
}

/* ---- the cases ------------------------------------------------------------------------------- */

static void test_rows(void) {
    static float features[VIEWS][COUNT][DIM], projections[VIEWS][COUNT][PROJECTED];
    static const int64_t batches[] = {1, 8, COUNT, 1000};
    setting s;
    if (!CHECK_OK(prepare(&s, ZONAL_DTYPE_FP32, COUNT))) return;
    for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
        s.options.batch = batches[b];
        memset(features, 0, sizeof features);
        if (!CHECK_OK(zonal__features_extract(s.model, &s.options, &features[0][0][0],
                                              &projections[0][0][0])))
            break;
        for (int v = 0; v < VIEWS; v++)
            for (int64_t i = 0; i < COUNT; i += 11) {
                float x[DIM], z[PROJECTED];
                if (!by_hand(&s, v, i, x, z)) break;
                check_row(features[v][i], x, DIM, "features");
                check_row(projections[v][i], z, PROJECTED, "projections");
            }
    }
    finish(&s);
}

/* Each part fills rows of its own, and all parts together fill those that one fills: also where a
 * last batch, or the whole, has fewer images than there are parts. */
static void test_parts(void) {
    static float whole[VIEWS][COUNT][DIM], own[VIEWS][COUNT][DIM];
    static const int64_t batches[] = {0, 7, 2};
    setting s;
    if (!CHECK_OK(prepare(&s, ZONAL_DTYPE_FP32, COUNT))) return;
    CHECK_OK(zonal__features_extract(s.model, &s.options, &whole[0][0][0], NULL));
    s.options.parts = 3;
    for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
        int filled[VIEWS][COUNT] = {{0}};
        for (s.options.part = 0; s.options.part < 3; s.options.part++) {
            s.options.batch = batches[b];
            memset(own, 0, sizeof own);
            CHECK_OK(zonal__features_extract(s.model, &s.options, &own[0][0][0], NULL));
            for (int v = 0; v < VIEWS; v++)
                for (int64_t i = 0; i < COUNT; i++) {
                    if (own[v][i][0] == 0) continue; /* another part's: features are not 0 */
                    filled[v][i]++;
                    check_row(own[v][i], whole[v][i], DIM, "a part's features");
                }
        }
        for (int v = 0; v < VIEWS; v++)
            for (int64_t i = 0; i < COUNT; i++)
                CHECK_MSG(filled[v][i] == 1, "batch %d: row %d of view %d is filled %d times",
                          (int)batches[b], (int)i, v, filled[v][i]);
    }
    finish(&s);
}

/* bf16 features are those of fp32 to 8 bits and 18 layers. */
static void test_bf16(void) {
    static float exact[VIEWS * COUNT * DIM], rough[VIEWS * COUNT * DIM];
    double difference = 0, size = 0;
    setting s;
    for (int pass = 0; pass < 2; pass++) {
        if (!CHECK_OK(prepare(&s, pass ? ZONAL_DTYPE_BF16 : ZONAL_DTYPE_FP32, COUNT))) return;
        CHECK_OK(zonal__features_extract(s.model, &s.options, pass ? rough : exact, NULL));
        finish(&s);
    }
    for (int i = 0; i < VIEWS * COUNT * DIM; i++) {
        difference += fabs((double)exact[i] - (double)rough[i]);
        size += fabs((double)exact[i]);
    }
    CHECK_MSG(difference > 0 && difference < 0.05 * size, "differ by %g of %g", difference, size);
}

typedef struct listener {
    int64_t next;
    int64_t stop_at; /* image at which to fail; -1: never */
} listener;

static zonal_status listen(void *context, const zonal__features_batch *batch) {
    listener *l = context;
    CHECK(batch->first == l->next && batch->count >= 1);
    l->next += batch->count;
    return l->stop_at >= 0 && l->next > l->stop_at ? ZONAL_IO : ZONAL_OK;
}

static int cancel_at_once(void *context, int64_t done) {
    *(int64_t *)context = done;
    return 1;
}

static void test_stream(void) {
    setting s;
    listener l = {.stop_at = -1};
    int64_t done = 0;
    if (!CHECK_OK(prepare(&s, ZONAL_DTYPE_FP32, COUNT))) return;
    CHECK_OK(zonal__features_stream(s.model, &s.options, listen, &l));
    CHECK(l.next == COUNT);
    s.options.epochs = 2; /* of two whole batches each */
    l = (listener){.stop_at = -1};
    CHECK_OK(zonal__features_stream(s.model, &s.options, listen, &l));
    CHECK(l.next == 32);
    CHECK_FAILS(zonal__features_extract(s.model, &s.options, NULL, NULL), ZONAL_ARGUMENT, "epochs");
    s.options.epochs = 0;
    l = (listener){.stop_at = 9};
    CHECK(zonal__features_stream(s.model, &s.options, listen, &l) == ZONAL_IO);
    CHECK(l.next == 16); /* two batches of 8 */
    l = (listener){.stop_at = -1};
    s.options.progress = cancel_at_once;
    s.options.progress_context = &done;
    CHECK_FAILS(zonal__features_stream(s.model, &s.options, listen, &l), ZONAL_CANCELLED, "");
    CHECK(done == 8 && l.next == 8);
    finish(&s);
}

static void test_not_finite(void) {
    setting s;
    listener l = {.stop_at = -1};
    const zonal__entry *entry;
    if (!CHECK_OK(prepare(&s, ZONAL_DTYPE_FP32, COUNT))) return;
    entry = zonal__model_find(s.model, "projector.0.bias");
    s.model->parameters[entry->offset] = NAN;
    CHECK_FAILS(zonal__features_stream(s.model, &s.options, listen, &l), ZONAL_NUMERIC,
                "projections");
    CHECK(l.next == 0);
    finish(&s);
}

static zonal_status ignore(void *context, const zonal__features_batch *batch) {
    (void)context;
    (void)batch;
    return ZONAL_OK;
}

/* Over and over: the views stay, the weights change. */
static void test_kept(void) {
    static float first[VIEWS][COUNT][DIM], got[VIEWS][COUNT][DIM], z[VIEWS][COUNT][PROJECTED];
    zonal__features *work = NULL;
    setting s;
    if (!CHECK_OK(prepare(&s, ZONAL_DTYPE_FP32, COUNT))) return;
    s.options.batch = 7; /* the last one is smaller */
    if (CHECK_OK(zonal__features_create(s.model, &s.options, &work)))
        for (int pass = 0; pass < 4; pass++) {
            if (pass == 2) /* every layer's weights, by a factor that norms do not undo alike */
                for (int64_t i = 0; i < s.model->graph.parameter_size; i += 2)
                    s.model->parameters[i] *= 1.25f;
            memset(got, 0, sizeof got);
            CHECK_OK(zonal__features_run(work, &got[0][0][0], pass == 1 ? &z[0][0][0] : NULL));
            if (pass % 2 == 0) {
                CHECK(pass == 0 || memcmp(first, got, sizeof got) != 0);
                CHECK_OK(zonal__features_extract(s.model, &s.options, &first[0][0][0], NULL));
            }
            CHECK_MSG(memcmp(first, got, sizeof got) == 0, "pass %d differs", pass);
        }
    zonal__features_destroy(work);
    s.options.epochs = 1;
    CHECK_FAILS(zonal__features_create(s.model, &s.options, &work), ZONAL_ARGUMENT, "epochs");
    finish(&s);
}

static zonal_status live_briefly(void *context) {
    zonal__features *kept = NULL;
    setting s;
    zonal_status status;
    (void)context;
    ZONAL_TRY(prepare(&s, ZONAL_DTYPE_FP32, 2)); /* it is run some hundred times */
    status = zonal__features_stream(s.model, &s.options, ignore, NULL);
    if (status == ZONAL_OK) status = zonal__features_create(s.model, &s.options, &kept);
    zonal__features_destroy(kept);
    finish(&s);
    return status;
}

/* Not by test_every_allocation: the loader's workers read ahead, and memory that fails for a batch
 * nobody asks for any more is no failure. Which allocation that is depends on their timing. */
static void test_memory(void) {
    int64_t refused = 0, n;
    for (n = 0; n < 10000; n++) {
        zonal_status status;
        int64_t left, hit;
        failing_alloc_install(n, 0);
        status = live_briefly(NULL);
        left = failing_alloc_remove();
        hit = failing_alloc_failed();
        CHECK_MSG(left == 0, "allocation %d failing: blocks not given back", (int)n);
        CHECK_MSG(status == ZONAL_OK || (hit && status == ZONAL_MEMORY),
                  "allocation %d failing returned %s", (int)n, zonal_status_name(status));
        if (!hit) break;
        refused += status == ZONAL_MEMORY;
    }
    CHECK_MSG(n < 10000 && refused > n * 9 / 10, "%d of %d failures were reported", (int)refused,
              (int)n);
}

static const test_case tests[] = {{"rows in order, for any batch", test_rows},
                                  {"the parts of several ranks", test_parts},
                                  {"bf16", test_bf16},
                                  {"batch by batch", test_stream},
                                  {"over and over", test_kept},
                                  {"what is not finite", test_not_finite},
                                  {"every allocation fails", test_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
