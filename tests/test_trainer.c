/*
 * Training: a small network learns on textures, the same weights come out every time, and a run
 * that goes on from a checkpoint ends as one that was never interrupted.
 */
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"
#include "train/checkpoint.h"

typedef struct setting {
    zonal__source *source;
    zonal__view_law laws[4];
    zonal__trainer_options options;
} setting;

/* A network of a few thousand weights, on 16 pictures at a time. The source is there already. */
static void fill_options(setting *s, const char *method, zonal_dtype dtype) {
    zonal__trainer_options *o = &s->options;
    for (int v = 0; v < 4; v++) zonal__view_law_texture(&s->laws[v]);
    *o = (zonal__trainer_options){.network = zonal__network_defaults(), .seed = test_seed};
    o->network.stem = ZONAL__STEM_SMALL;
    o->network.channels = 1;
    o->network.width = 0.125;
    o->network.projector_layers = 2;
    o->network.projector_width[0] = 32;
    o->network.projector_width[1] = 16;
    o->network.dtype = dtype;
    CHECK_OK(zonal_objective_defaults(method, &o->objective));
    o->loader = (zonal__loader_options){
        .source = s->source,
        .batch = 16,
        .groups = 2,
        .group = {{.views = 2, .width = 24, .height = 24, .laws = s->laws},
                  {.views = 2, .width = 16, .height = 16, .laws = s->laws + 2, .first = 2}},
        .workers = 2};
    o->optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW);
    o->optimiser.weight_decay = 1e-2;
    o->schedule = (zonal__schedule){
        .kind = ZONAL__SCHEDULE_COSINE, .total = 30, .warmup = 3, .base = 3e-3, .floor = 0};
}

static int prepare(setting *s, const char *method, zonal_dtype dtype) {
    const zonal__source_options source = {.path = "textures:disk",
                                          .split = ZONAL__SPLIT_TRAIN,
                                          .texture_count = 64,
                                          .texture_size = 40};
    if (!CHECK_OK(zonal__source_open(&source, &s->source))) return 0;
    fill_options(s, method, dtype);
    return 1;
}

static int make_steps(zonal__trainer *t, int64_t until, zonal__trainer_metrics *last) {
    while (zonal__trainer_steps_done(t) < until)
        if (!CHECK_OK(zonal__trainer_step(t, last))) return 0;
    return 1;
}

static int same_weights(const zonal__trainer *a, const zonal__trainer *b) {
    const zonal__graph *graph = &a->model->graph;
    return memcmp(a->model->parameters, b->model->parameters,
                  (size_t)graph->parameter_size * sizeof(float)) == 0 &&
           memcmp(a->model->statistics, b->model->statistics,
                  (size_t)graph->statistic_size * sizeof(float)) == 0;
}

/* The loss falls: by how much differs between seeds, that it does not. KL's falls least, because it
 * is far from 0 for uniform points too. */
static void check_learns(const char *method) {
    setting s;
    zonal__trainer *t;
    zonal__trainer_metrics m;
    double first = 0, last = 0;
    if (!prepare(&s, method, ZONAL_DTYPE_FP32)) return;
    if (CHECK_OK(zonal__trainer_create(&s.options, &t))) {
        for (int i = 0; i < 30; i++) {
            if (!CHECK_OK(zonal__trainer_step(t, &m))) break;
            CHECK(m.step == i && m.epoch == i / 4 && m.gradient_norm > 0);
            if (i < 5) first += m.loss.total / 5;
            if (i >= 25) last += m.loss.total / 5;
        }
        printf("# %-9s loss %.4f at the beginning, %.4f at the end\n", method, first, last);
        CHECK_MSG(last < 0.98 * first, "%s: %.4f, then %.4f", method, first, last);
    }
    zonal__trainer_destroy(t);
    zonal__source_close(s.source);
}

static void test_learns(void) {
    check_learns("mmd-heat");
    check_learns("kl-heat");
    check_learns("susreg");
}

static void test_same_every_time(void) {
    setting s;
    zonal__trainer *one = NULL, *other = NULL;
    zonal__trainer_metrics m;
    for (int dtype = 0; dtype < 2; dtype++) {
        if (!prepare(&s, "mmd-heat", dtype ? ZONAL_DTYPE_BF16 : ZONAL_DTYPE_FP32)) return;
        s.options.threads = 1;
        CHECK_OK(zonal__trainer_create(&s.options, &one));
        s.options.threads = 2;
        s.options.loader.workers = 1;
        CHECK_OK(zonal__trainer_create(&s.options, &other));
        if (one && other && make_steps(one, 4, &m) && make_steps(other, 4, &m))
            CHECK_MSG(same_weights(one, other), "dtype %d differs by the number of threads", dtype);
        zonal__trainer_destroy(one);
        zonal__trainer_destroy(other);
        zonal__source_close(s.source);
    }
}

static void check_resumes(zonal__optimiser_kind kind, zonal_dtype dtype) {
    test_folder folder;
    char path[800];
    setting s;
    zonal__trainer *whole = NULL, *begun = NULL, *resumed = NULL;
    zonal__trainer_metrics m;
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    if (!prepare(&s, "mmd-heat", dtype)) return;
    s.options.optimiser = zonal__optimiser_defaults(kind);
    CHECK_OK(zonal__trainer_create(&s.options, &whole));
    CHECK_OK(zonal__trainer_create(&s.options, &begun));
    CHECK_OK(zonal__trainer_create(&s.options, &resumed));
    if (whole && begun && resumed && make_steps(whole, 5, &m) && make_steps(begun, 2, &m) &&
        CHECK_OK(zonal__checkpoint_save(begun, path)) &&
        CHECK_OK(zonal__checkpoint_load(resumed, path)) && make_steps(resumed, 5, &m)) {
        CHECK_MSG(same_weights(whole, resumed), "optimiser %d, dtype %d: another end", (int)kind,
                  (int)dtype);
        CHECK(whole->model->batches == resumed->model->batches);
    }
    zonal__trainer_destroy(whole);
    zonal__trainer_destroy(begun);
    zonal__trainer_destroy(resumed);
    zonal__source_close(s.source);
    test_folder_remove(&folder);
}

static void test_resumes(void) {
    check_resumes(ZONAL__OPTIMISER_ADAMW, ZONAL_DTYPE_FP32);
    check_resumes(ZONAL__OPTIMISER_ADAMW, ZONAL_DTYPE_BF16);
    check_resumes(ZONAL__OPTIMISER_SGD, ZONAL_DTYPE_FP32);
    check_resumes(ZONAL__OPTIMISER_LARS, ZONAL_DTYPE_FP32);
}

/* A checkpoint of another network or optimiser, one cut short, one with a flipped bit. */
static void test_wrong_checkpoints(void) {
    test_folder folder;
    char path[800];
    setting s;
    zonal__trainer *t = NULL, *other = NULL;
    zonal__trainer_metrics m;
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    if (!prepare(&s, "mmd-heat", ZONAL_DTYPE_FP32)) return;
    CHECK_OK(zonal__trainer_create(&s.options, &t));
    if (t && make_steps(t, 1, &m) && CHECK_OK(zonal__checkpoint_save(t, path))) {
        s.options.network.width = 0.25;
        if (CHECK_OK(zonal__trainer_create(&s.options, &other)))
            CHECK_FAILS(zonal__checkpoint_load(other, path), ZONAL_FORMAT, "width 0.25");
        zonal__trainer_destroy(other);
        s.options.network.width = 0.125;
        s.options.optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_SGD);
        if (CHECK_OK(zonal__trainer_create(&s.options, &other)))
            CHECK_FAILS(zonal__checkpoint_load(other, path), ZONAL_FORMAT, "another optimiser");
        zonal__trainer_destroy(other);
        FILE *stream = fopen(path, "r+b");
        fseek(stream, -100, SEEK_END);
        fputc(fgetc(stream) ^ 1, (fseek(stream, -100, SEEK_END), stream));
        fclose(stream);
        CHECK_FAILS(zonal__checkpoint_load(t, path), ZONAL_FORMAT, "checksum");
        CHECK(truncate(path, 5000) == 0);
        CHECK_FAILS(zonal__checkpoint_load(t, path), ZONAL_FORMAT, path);
        CHECK(make_steps(t, 2, &m)); /* it goes on as if nothing had been */
    }
    zonal__trainer_destroy(t);
    zonal__source_close(s.source);
    test_folder_remove(&folder);
}

static void test_refusals(void) {
    setting s;
    zonal__trainer *t;
    if (!prepare(&s, "mmd-heat", ZONAL_DTYPE_FP32)) return;
    s.options.loader.in_order = 1;
    CHECK_FAILS(zonal__trainer_create(&s.options, &t), ZONAL_ARGUMENT, "in_order");
    CHECK(t == NULL);
    s.options.loader.in_order = 0;
    s.options.loader.batch = 1;
    CHECK_FAILS(zonal__trainer_create(&s.options, &t), ZONAL_SHAPE, "");
    s.options.loader.batch = 16;
    s.options.schedule.total = 0;
    CHECK_FAILS(zonal__trainer_create(&s.options, &t), ZONAL_ARGUMENT, "");
    zonal__source_close(s.source);
}

/* Created, trained for a step, saved and loaded: "context" is the file. */
static zonal_status live_briefly(void *context) {
    setting s;
    zonal__trainer *t = NULL;
    zonal__trainer_metrics m;
    const zonal__source_options source = {
        .path = "textures:wood", .texture_count = 8, .texture_size = 16};
    zonal_status status = zonal__source_open(&source, &s.source);
    if (status == ZONAL_OK) {
        fill_options(&s, "mmd-heat", ZONAL_DTYPE_FP32);
        s.options.network.width = 1.0 / 64;
        s.options.loader.batch = 4;
        s.options.loader.groups = 1;
        s.options.loader.group[0].width = s.options.loader.group[0].height = 8;
        s.options.loader.workers = 1; /* so that the n-th allocation is nearly always the same */
        s.options.threads = 1;
        status = zonal__trainer_create(&s.options, &t);
    }
    if (status == ZONAL_OK) status = zonal__trainer_step(t, &m);
    if (status == ZONAL_OK) status = zonal__checkpoint_save(t, context);
    if (status == ZONAL_OK) status = zonal__checkpoint_load(t, context);
    /* What fails in a worker is heard of with the next batch. */
    if (status == ZONAL_OK) status = zonal__trainer_step(t, &m);
    zonal__trainer_destroy(t);
    zonal__source_close(s.source);
    return status;
}

static void test_allocations(void) {
    test_folder folder;
    char path[800];
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    test_every_allocation("a trainer", live_briefly, path);
    test_folder_remove(&folder);
}

static const test_case tests[] = {{"learns", test_learns},
                                  {"same_every_time", test_same_every_time},
                                  {"resumes", test_resumes},
                                  {"wrong_checkpoints", test_wrong_checkpoints},
                                  {"refusals", test_refusals},
                                  {"allocations", test_allocations},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
