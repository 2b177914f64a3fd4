/*
 * Training on a device that is not the host, without a GPU: tests/backend/fake_device.h. What goes
 * through the feed, the stream and the device's memory ends in the weights that the CPU trains, bit
 * for bit, since the same tables compute them; and a checkpoint brings them back.
 */
#include <string.h>

#include "backend/fake_device.h"
#include "core/memory.h"
#include "folder.h"
#include "nn/network.h"
#include "test.h"
#include "train/checkpoint.h"
#include "train/trainer_state.h"

typedef struct setting {
    zonal__source *source;
    zonal__augmentation augmentations[2];
    zonal__trainer_options options;
} setting;

static int prepare(setting *s, const char *method, zonal__data_location data_location,
                   int64_t micro) {
    const zonal__source_options source = {.path = "textures:disk",
                                          .split = ZONAL__SPLIT_TRAIN,
                                          .texture_count = 24,
                                          .texture_size = 32};
    zonal__trainer_options *o = &s->options;
    if (!CHECK_OK(zonal__source_open(&source, &s->source))) return 0;
    for (int v = 0; v < 2; v++) zonal__augmentation_texture(&s->augmentations[v]);
    *o = (zonal__trainer_options){.network = zonal__network_defaults(),
                                  .data_location = data_location,
                                  .micro_batch = micro,
                                  .threads = 1,
                                  .seed = test_seed};
    o->network.stem = ZONAL__STEM_SMALL;
    o->network.channels = 1;
    o->network.width = 0.0625;
    o->network.projector_layers = 2;
    o->network.projector_width[0] = o->network.projector_width[1] = 8;
    o->network.dtype = ZONAL_DTYPE_FP32;
    o->objective.size = sizeof o->objective;
    CHECK_OK(zonal_objective_defaults(method, &o->objective));
    o->loader = (zonal__loader_options){
        .source = s->source,
        .batch = 8,
        .groups = 1,
        .group = {{.views = 2, .width = 16, .height = 16, .augmentations = s->augmentations}},
        .workers = 1};
    o->optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW);
    o->schedule = (zonal__schedule){
        .kind = ZONAL__SCHEDULE_COSINE, .total = 10, .warmup = 1, .base = 3e-3, .floor = 0};
    return 1;
}

static zonal__trainer *make(setting *s, const char *device) {
    zonal__trainer *t = NULL;
    if (CHECK_OK(zonal__device_open(device, &s->options.device)))
        CHECK_OK(zonal__trainer_create(&s->options, &t));
    return t;
}

static int make_steps(zonal__trainer *t, int64_t until) {
    while (t && zonal__trainer_steps_done(t) < until)
        if (!CHECK_OK(zonal__trainer_step(t))) return 0;
    return t != NULL;
}

static void same_weights(zonal__trainer *a, zonal__trainer *b, const char *what) {
    zonal__model *models[2] = {zonal__trainer_model(a), zonal__trainer_model(b)};
    size_t bytes = (size_t)models[0]->graph.parameter_size * sizeof(float);
    float *parameters[2] = {NULL, NULL};
    zonal__metrics m[2];
    for (int i = 0; i < 2; i++)
        if (!CHECK_OK(ZONAL_NEW(&parameters[i], models[i]->graph.parameter_size, "weights")) ||
            !CHECK_OK(zonal__model_read(models[i], parameters[i], NULL)) ||
            !CHECK_OK(zonal__trainer_metrics(i ? b : a, &m[i])))
            goto done;
    CHECK_MSG(memcmp(parameters[0], parameters[1], bytes) == 0, "%s: other weights", what);
    CHECK_MSG(m[0].loss.total == m[1].loss.total, "%s: loss %.17g, not %.17g", what,
              m[1].loss.total, m[0].loss.total);
    CHECK(m[0].gradient_norm == m[1].gradient_norm && m[0].gradient_norm > 0);
done:
    zonal__free(parameters[0]);
    zonal__free(parameters[1]);
}

static void nothing_left(void) {
    for (int i = 0; i < FAKE_DEVICES; i++) {
        fake_counts c = fake_count(i);
        CHECK_MSG(c.blocks == 0 && c.streams == 0 && c.events == 0 && c.pinned == 0,
                  "fake:%d keeps %d blocks, %d streams, %d events, %d pinned", i, c.blocks,
                  c.streams, c.events, c.pinned);
    }
}

static void check_trains(const char *what, const char *method, zonal__data_location data_location,
                         int64_t micro) {
    setting s;
    zonal__trainer *here = NULL, *there = NULL;
    int unused, used;
    if (!fake_register() || !prepare(&s, method, data_location, micro)) return;
    unused = fake_count(0).runs;
    used = fake_count(1).runs;
    here = make(&s, "cpu");
    there = make(&s, "fake:1");
    if (make_steps(here, 3) && make_steps(there, 3)) same_weights(here, there, what);
    CHECK(fake_count(0).runs == unused && fake_count(0).blocks == 0);
    CHECK(fake_count(1).runs > used && fake_count(1).streams >= 1 && fake_count(1).copies > 0);
    zonal__trainer_destroy(here);
    zonal__trainer_destroy(there);
    zonal__source_close(s.source);
    nothing_left();
}

static void test_streamed(void) {
    check_trains("streamed", "mmd-heat", ZONAL__DATA_ON_HOST, 0);
}

static void test_resident(void) {
    check_trains("resident", "kl-heat", ZONAL__DATA_ON_DEVICE, 0);
}

/* A sliced loss reads its step from the device; a micro-batch is gathered and scattered there. */
static void test_micro_batches(void) {
    check_trains("micro-batches", "susreg", ZONAL__DATA_ON_HOST, 4);
}

/* Saved on one device, loaded on the other and on the CPU: the same end. */
static void test_checkpoints(void) {
    const char *const names[] = {"fake:0", "cpu"};
    test_folder folder;
    setting s;
    zonal__trainer *whole, *begun, *resumed;
    if (!fake_register() || !CHECK(test_folder_make(&folder))) return;
    if (!prepare(&s, "mmd-heat", ZONAL__DATA_ON_HOST, 0)) return;
    whole = make(&s, "cpu");
    begun = make(&s, "fake:1");
    if (make_steps(whole, 4) && make_steps(begun, 2) &&
        CHECK_OK(zonal__checkpoint_save(begun, test_folder_file(&folder, "step.safetensors"))))
        for (int i = 0; i < 2; i++) {
            resumed = make(&s, names[i]);
            if (resumed &&
                CHECK_OK(zonal__checkpoint_load(resumed,
                                                test_folder_file(&folder, "step.safetensors"))) &&
                make_steps(resumed, 4))
                same_weights(whole, resumed, names[i]);
            zonal__trainer_destroy(resumed);
        }
    zonal__trainer_destroy(whole);
    zonal__trainer_destroy(begun);
    zonal__source_close(s.source);
    test_folder_remove(&folder);
    nothing_left();
}

static const test_case tests[] = {{"streamed", test_streamed},
                                  {"resident", test_resident},
                                  {"micro_batches", test_micro_batches},
                                  {"checkpoints", test_checkpoints},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
