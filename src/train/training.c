#include "train/training.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "train/resume.h"
#include "train/training_parts.h"

enum { LEAST_INTERVAL = 100 };

/* ---- settings -------------------------------------------------------------------------------- */

struct zonal__training_text {
    zonal__training_text *before;
    char text[];
};

zonal_status zonal__training_init(zonal__training *t) {
    memset(t, 0, sizeof *t);
    return zonal__options_init(&t->options, zonal__train_table, &t->settings);
}

zonal_status zonal__training_read(const char *path, zonal__training *t) {
    ZONAL_TRY(zonal__training_init(t));
    return zonal__config_read(path, &t->options, &t->config);
}

/* A copy that lasts as long as the training. */
static zonal_status keep_text(zonal__training *t, const char *text, const char **kept) {
    zonal__training_text *entry;
    size_t bytes = strlen(text) + 1;
    ZONAL_TRY(zonal__alloc(1, sizeof *entry + bytes, "the text of a setting", (void **)&entry));
    memcpy(entry->text, text, bytes);
    entry->before = t->texts;
    t->texts = entry;
    *kept = entry->text;
    return ZONAL_OK;
}

static void drop_texts(zonal__training *t) {
    while (t->texts) {
        zonal__training_text *entry = t->texts;
        t->texts = entry->before;
        zonal__free(entry);
    }
}

/* What was set before is overridden and not "given twice"; of a text that cannot be taken nothing
 * stays. */
static zonal_status set_again(zonal__training *t, const char *name, const char *text) {
    zonal__option_state *state = zonal__training_state(t, name), before = {0};
    zonal_status status;
    if (state) before = *state;
    if (state && state->source == ZONAL__SOURCE_FLAG) state->source = ZONAL__SOURCE_NONE;
    status = zonal__options_set(&t->options, name, name, text, ZONAL__SOURCE_FLAG);
    if (status != ZONAL_OK && state) *state = before;
    return status;
}

zonal_status zonal__training_resume(const char *run, zonal__training *t) {
    char path[ZONAL__TRAINING_PATH];
    const char *kept;
    ZONAL_TRY(zonal__training_init(t));
    ZONAL_TRY(zonal__resume_find_config(run, path));
    ZONAL_TRY(zonal__config_read(path, &t->options, &t->config));
    ZONAL_TRY(keep_text(t, run, &kept));
    return set_again(t, "resume", kept);
}

zonal_status zonal__training_set(zonal__training *t, const char *name, const char *text) {
    static const char *const own[] = {"config", "set", "dump-config", "resume", "quiet"};
    const char *kept;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(name, own[i]) == 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "%s is an option of the program and not of a training", name);
    ZONAL_TRY(keep_text(t, text, &kept));
    return set_again(t, name, kept);
}

/* ---- network --------------------------------------------------------------------------------- */

zonal_status zonal__training_network(const zonal__training *t, zonal__network_spec *spec) {
    static const int depths[] = {18, 34, 50};
    const zonal__train_settings *s = &t->settings;
    *spec = zonal__network_defaults();
    if (s->stem == ZONAL__STEM_AUTO || s->source.channels == 0 ||
        s->precision == ZONAL__PRECISION_AUTO)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "stem, channels and precision depend on images and "
                                          "device here: take the config.toml of a run");
    spec->depth = depths[s->network];
    spec->stem = s->stem == ZONAL__STEM_AS_SMALL ? ZONAL__STEM_SMALL : ZONAL__STEM_IMAGENET;
    spec->channels = (int)s->source.channels;
    spec->width = s->width;
    spec->projector_activation =
        s->activation == 0 ? ZONAL__ACTIVATION_GELU : ZONAL__ACTIVATION_RELU;
    spec->projector_norm = s->projector_norm;
    spec->projector_last_bias = s->projector_bias;
    spec->dtype = s->precision == ZONAL__PRECISION_BF16 ? ZONAL_DTYPE_BF16 : ZONAL_DTYPE_FP32;
    return zonal__projector_parse(s->projector, "--projector", ZONAL__MOST_PROJECTOR_LAYERS,
                                  spec->projector_width, &spec->projector_layers);
}

/* ---- optimiser and length -------------------------------------------------------------------- */

static void fill_optimiser(zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    zonal__optimiser_spec *optimiser = &t->trainer.optimiser;
    *optimiser = zonal__optimiser_defaults((zonal__optimiser_kind)s->optimiser);
    optimiser->weight_decay = s->weight_decay;
    optimiser->clip = s->clip;
    optimiser->beta1 = s->beta1;
    optimiser->beta2 = s->beta2;
    optimiser->epsilon = s->epsilon;
    optimiser->momentum = s->momentum;
    optimiser->nesterov = s->nesterov;
    optimiser->trust = s->trust;
}

static int64_t interval(int64_t asked, int64_t per_epoch) {
    if (asked > 0) return asked;
    return per_epoch > LEAST_INTERVAL ? per_epoch : LEAST_INTERVAL;
}

int64_t zonal__training_steps(const zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    return s->steps > 0 ? s->steps : s->epochs * (t->source->count / s->batch);
}

static zonal_status fill_schedule(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    zonal__schedule *schedule = &t->trainer.schedule;
    if (zonal__options_source(&t->options, "epochs") == ZONAL__SOURCE_FLAG) {
        if (zonal__options_source(&t->options, "steps") == ZONAL__SOURCE_FLAG)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "--epochs and --steps both say how long to train; give one of them");
        s->steps = 0; /* the command line overrides a file */
    }
    t->steps_per_epoch = t->source->count / s->batch;
    schedule->kind = (zonal__schedule_kind)s->schedule;
    schedule->total = zonal__training_steps(t);
    if ((double)schedule->total > ZONAL__MOST_STEPS)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--epochs %lld are %lld steps, and a run has at most %.0f; lower it",
                          (long long)s->epochs, (long long)schedule->total, ZONAL__MOST_STEPS);
    schedule->warmup = t->steps_per_epoch;
    if (schedule->warmup > schedule->total / 10) schedule->warmup = schedule->total / 10;
    if (zonal__training_given(t, "warmup")) {
        double warmup = s->warmup * (double)t->steps_per_epoch;
        if (!(warmup <= (double)schedule->total)) /* also of what no whole number holds */
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "a warm-up of %g epochs is longer than the run of %lld steps; "
                              "shorten --warmup",
                              s->warmup, (long long)schedule->total);
        schedule->warmup = (int64_t)(warmup + .5);
    }
    schedule->base = s->lr;
    schedule->floor = s->final_lr;
    s->checkpoint_every = interval(s->checkpoint_every, t->steps_per_epoch);
    s->eval_every = interval(s->eval_every, t->steps_per_epoch);
    return zonal__schedule_check(schedule);
}

static zonal_status check_batch(const zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    if (s->batch < 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--batch must be at least 2, got %lld: uniformity is a "
                          "matter between images",
                          (long long)s->batch);
    if (s->batch > t->source->count)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--batch %lld is more than the %lld image%s of the %s part of %s; "
                          "lower it, or train on more (--split all, --val-share, --test-share)",
                          (long long)s->batch, (long long)t->source->count,
                          zonal__text_plural(t->source->count), zonal__split_words[s->split],
                          t->source->path);
    if (s->micro_batch > s->batch)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--micro-batch %lld is more than --batch %lld",
                          (long long)s->micro_batch, (long long)s->batch);
    return ZONAL_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

zonal_status zonal__training_open_views(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    zonal__settle_path(t, "data", t->data, &s->data);
    zonal__settle_path(t, "class-list", t->class_list, &s->source.class_list);
    zonal__settle_path(t, "init", t->init, &s->init);
    ZONAL_TRY(zonal__training_source(t, (zonal__split)s->split, 0, &t->source));
    ZONAL_TRY(zonal__settle_views(t));
    zonal__settle_batch(t);
    ZONAL_TRY(zonal__training_fill_augmentations(t));
    zonal__training_fill_loader(t);
    return ZONAL_OK;
}

zonal_status zonal__training_open(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    if (!s->data)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there are no images to train on: zonal train DIR, or "
                                          "\"data\" in the configuration");
    ZONAL_TRY(zonal__settle_device(t));
    t->trainer = (zonal__trainer_options){.device = t->device,
                                          .data_location = (zonal__data_location)s->data_location,
                                          .decay_all = s->decay_all,
                                          .seed = (uint64_t)s->seed,
                                          .zero_init_residual = s->zero_init_residual,
                                          .micro_batch = s->micro_batch,
                                          .no_graph = !s->graph,
                                          .threads = (int)s->threads};
    ZONAL_TRY(zonal__training_open_views(t));
    ZONAL_TRY(zonal__training_check_views(t));
    ZONAL_TRY(check_batch(t));
    ZONAL_TRY(zonal__training_network(t, &t->trainer.network));
    fill_optimiser(t);
    ZONAL_TRY(fill_schedule(t));
    return zonal__training_fill_objective(t);
}

void zonal__training_close(zonal__training *t) {
    zonal__source_close(t->source);
    zonal__source_close(t->queries);
    zonal__source_close(t->memory);
    zonal__config_destroy(t->config);
    drop_texts(t);
    memset(t, 0, sizeof *t);
}
