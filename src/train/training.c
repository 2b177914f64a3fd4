#include "train/training.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/training/tables.h"
#include "core/memory.h"
#include "core/text.h"
#include "loss/family.h"
#include "train/resume.h"
#include "train/training_parts.h"

enum { USUAL_SIDE = 224, LARGEST_SMALL_STEM = 64, PROBED_IMAGES = 16 };
enum { LEAST_EVAL_INTERVAL = 100, LEAST_DEVICE_EVAL_INTERVAL = 1000 }; /* steps */

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
    static const char *const own[] = {"config", "set", "dump-config", "resume", "retries", "quiet"};
    const char *kept;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(name, own[i]) == 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "%s is an option of the program and not of a training", name);
    ZONAL_TRY(keep_text(t, text, &kept));
    return set_again(t, name, kept);
}

/* ---- what a configuration leaves open, settled by the images and the device ------------------ */

int zonal__training_given(const zonal__training *t, const char *name) {
    return zonal__options_source(&t->options, name) > ZONAL__SOURCE_DEFAULT;
}

zonal__option_state *zonal__training_state(zonal__training *t, const char *name) {
    for (int i = 0; t->options.table[i].name; i++)
        if (strcmp(t->options.table[i].name, name) == 0) return &t->options.state[i];
    return NULL;
}

/* The configuration that is written names what was chosen, and where the choice was asked for. */
static void settle_text(zonal__training *t, const char *name, const char *text) {
    zonal__option_state *state = zonal__training_state(t, name); /* the table has it */
    if (strcmp(state->text, text) != 0) state->note = state->text;
    state->text = text;
}

void zonal__settle_word(zonal__training *t, const char *name, int choice, int *setting) {
    for (const zonal__option *option = t->options.table; option->name; option++)
        if (strcmp(option->name, name) == 0) settle_text(t, name, option->words[choice]);
    *setting = choice;
}

/* A path becomes absolute, in "room"; one that is not given, or leads nowhere, stays. */
static void settle_path(zonal__training *t, const char *name, char room[ZONAL__TRAINING_PATH],
                        const char **setting) {
    _Static_assert(PATH_MAX <= ZONAL__TRAINING_PATH, "realpath needs as much");
    if (!*setting || *setting == room || !realpath(*setting, room)) return;
    *setting = room;
    settle_text(t, name, room);
}

void zonal__training_settle_paths(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    settle_path(t, "data", t->data, &s->data);
    settle_path(t, "class-list", t->class_list, &s->source.class_list);
    settle_path(t, "init", t->init, &s->init);
}

int zonal__training_gains_by_bf16(const zonal__training *t) {
    const zonal__training_tables *tables;
    return zonal__device_training(t->device, &tables) == ZONAL_OK && tables->bf16_pays();
}

static zonal_status settle_device(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    char name[ZONAL_DEVICE_NAME];
    ZONAL_TRY(zonal__job_device_name(t->job, s->device, name)); /* each rank has one of its own */
    ZONAL_TRY(zonal__device_open(name, &t->device));
    if (strcmp(s->device, "auto") == 0) settle_text(t, "device", t->device->name);
    s->device = t->device->name;
    if (s->precision == ZONAL__PRECISION_AUTO)
        zonal__settle_word(t, "precision",
                           zonal__training_gains_by_bf16(t) ? ZONAL__PRECISION_BF16
                                                            : ZONAL__PRECISION_FP32,
                           &s->precision);
    if (s->log_every == 0) s->log_every = zonal__device_is_host(t->device) ? 10 : 50;
    return ZONAL_OK;
}

/* The shorter side that most images have at least. */
static zonal_status probe_side(zonal__source *source, int *side) {
    zonal__image image = {0};
    zonal_status status = ZONAL_OK;
    *side = source->width < source->height ? source->width : source->height;
    if (*side > 0) return ZONAL_OK;
    for (int64_t i = 0; i < PROBED_IMAGES && status == ZONAL_OK; i++) {
        int64_t index = i * source->count / PROBED_IMAGES;
        int shorter;
        status = zonal__source_read_sound(source, &index, &image);
        if (status != ZONAL_OK) break;
        shorter = image.width < image.height ? image.width : image.height;
        if (*side == 0 || shorter < *side) *side = shorter;
    }
    zonal__image_fini(&image);
    return status;
}

/* Of images that differ in size nobody knows whether all fit. */
static int choose_crop(const zonal__training *t) {
    const zonal__source *source = t->source;
    int shorter = source->width < source->height ? source->width : source->height;
    int fits = shorter > 0 && shorter <= zonal__training_eval_side(t);
    return fits || t->settings.augmentation == ZONAL__AUGMENTATION_TEXTURE
               ? ZONAL__EVAL_CROP_WHOLE
               : ZONAL__EVAL_CROP_CENTER;
}

static zonal_status settle_views(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    int shorter = USUAL_SIDE;
    if (s->side == 0) {
        ZONAL_TRY(probe_side(t->source, &shorter));
        s->side = shorter < USUAL_SIDE ? shorter : USUAL_SIDE;
    }
    if (s->local_side == 0) s->local_side = (3 * s->side + 6) / 7;
    if (s->max_side == 0) {
        int64_t largest = s->side > s->local_side ? s->side : s->local_side;
        if (largest < s->eval_side) largest = s->eval_side;
        s->max_side = zonal__max_side((int)largest);
    }
    if (s->source.channels == 0) s->source.channels = t->source->channels == 1 ? 1 : 3;
    if (s->augmentation == ZONAL__AUGMENTATION_AUTO)
        zonal__settle_word(t, "augmentation",
                           strcmp(t->source->table->kind, "textures") == 0
                               ? ZONAL__AUGMENTATION_TEXTURE
                               : ZONAL__AUGMENTATION_BYOL,
                           &s->augmentation);
    if (s->crop == ZONAL__EVAL_CROP_AUTO) zonal__settle_word(t, "crop", choose_crop(t), &s->crop);
    if (s->stem == ZONAL__STEM_AUTO)
        zonal__settle_word(t, "stem",
                           s->side <= LARGEST_SMALL_STEM ? ZONAL__STEM_AS_SMALL
                                                         : ZONAL__STEM_AS_IMAGENET,
                           &s->stem);
    return ZONAL_OK;
}

/* A folder of a few images need not be told that it is small. */
static void settle_batch(zonal__training *t) {
    int64_t count = t->source->count;
    if (!zonal__training_given(t, "batch") && count >= 2 && count < t->settings.batch)
        t->settings.batch = count;
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

/* An epoch, but no less than it takes for evaluations to be a small part of the time. */
static int64_t eval_interval(const zonal__training *t) {
    int64_t least =
        zonal__device_is_host(t->device) ? LEAST_EVAL_INTERVAL : LEAST_DEVICE_EVAL_INTERVAL;
    if (t->settings.eval_every > 0) return t->settings.eval_every;
    return t->steps_per_epoch > least ? t->steps_per_epoch : least;
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
                              "a warm-up of %g epoch%s, %.0f steps, is longer than the run of "
                              "%lld; shorten --warmup",
                              s->warmup, s->warmup == 1 ? "" : "s", warmup,
                              (long long)schedule->total);
        schedule->warmup = (int64_t)(warmup + .5);
    }
    schedule->base = s->lr;
    schedule->floor = s->final_lr;
    s->eval_every = eval_interval(t);
    return zonal__schedule_check(schedule);
}

static zonal_status check_batch(const zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    if (s->batch < 2)
        return ZONAL_FAIL(
            ZONAL_ARGUMENT,
            "--batch must be at least 2, got %lld: uniformity compares images with each other",
            (long long)s->batch);
    if (t->source->count < 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "there %s %lld image%s in the %s split of %s, and training needs 2 or "
                          "more: uniformity compares images with each other",
                          t->source->count == 1 ? "is" : "are", (long long)t->source->count,
                          zonal__text_plural(t->source->count), zonal__split_words[s->split],
                          t->source->path);
    if (s->batch > t->source->count)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--batch %lld is more than the %lld image%s in the %s split of %s; lower "
                          "it, or train on more (--split all, --val-share, --test-share)",
                          (long long)s->batch, (long long)t->source->count,
                          zonal__text_plural(t->source->count), zonal__split_words[s->split],
                          t->source->path);
    if (s->micro_batch > s->batch)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--micro-batch %lld is more than --batch %lld",
                          (long long)s->micro_batch, (long long)s->batch);
    return ZONAL_OK;
}

/* ---- the loss, and the weight of its uniformity (zonal/loss.h derives it) -------------------- */

static int64_t dimension(const zonal__training *t) {
    const zonal__network_spec *network = &t->trainer.network;
    return network->projector_width[network->projector_layers - 1];
}

/* One of --gain, --margin and --selectivity sets the gain. */
static zonal_status choose_gain(zonal__training *t, zonal_objective_options *objective) {
    const zonal__train_settings *s = &t->settings;
    const char *gain = zonal__training_state(t, "gain")->text;
    if (zonal__training_given(t, "margin") + zonal__training_given(t, "selectivity") +
            (strcmp(gain, "auto") != 0) >
        1)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--gain, --margin and --selectivity all set the weight of uniformity; "
                          "give one of them");
    t->weight = (zonal_objective_info)ZONAL_OBJECTIVE_INFO_INIT;
    return zonal_objective_describe(objective, s->views + s->local_views, s->views, s->batch,
                                    dimension(t), &t->weight);
}

/* The weight of uniformity depends on the method and the batch; the configuration says what it came
 * to. A gain by its word stays one, so that a run with another batch has the gain of that. */
static void settle_weight(zonal__training *t) {
    zonal__option_state *lambda = zonal__training_state(t, "lambda"),
                        *gain = zonal__training_state(t, "gain");
    if (!zonal__training_given(t, "lambda")) {
        snprintf(t->lambda_note, sizeof t->lambda_note, "that of %.40s", t->settings.method);
        t->settings.objective.lambda = t->trainer.objective.lambda;
        *lambda = (zonal__option_state){
            .source = ZONAL__SOURCE_DEFAULT, .text = "", .note = t->lambda_note};
    }
    snprintf(t->gain_note, sizeof t->gain_note, "here %.10g", t->weight.gain);
    gain->note = t->gain_note;
}

static zonal_status fill_objective(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    zonal_objective_options *objective = &t->trainer.objective;
    char unused[400];
    objective->size = sizeof *objective;
    ZONAL_TRY(zonal_objective_defaults(s->method, objective));
    zonal__loss_unused(&objective->loss, &t->options, unused, sizeof unused);
    if (unused[0])
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s does not use %s; leave it out", s->method, unused);
    ZONAL_TRY(
        zonal__objective_apply(&t->options, offsetof(zonal__train_settings, objective), objective));
    ZONAL_TRY(zonal__family_check_gradient(&zonal__families[objective->loss.kernel.family]));
    ZONAL_TRY(choose_gain(t, objective));
    settle_weight(t);
    return ZONAL_OK;
}

zonal_status zonal__training_objective(zonal__training *t) {
    zonal__network_spec *network = &t->trainer.network;
    ZONAL_TRY(zonal__projector_parse(t->settings.projector, "--projector",
                                     ZONAL__MOST_PROJECTOR_LAYERS, network->projector_width,
                                     &network->projector_layers));
    return fill_objective(t);
}

/* ---- the whole ------------------------------------------------------------------------------- */

zonal_status zonal__training_open_views(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    zonal__training_settle_paths(t);
    ZONAL_TRY(zonal__training_source(t, (zonal__split)s->split, 0, &t->source));
    ZONAL_TRY(settle_views(t));
    settle_batch(t);
    ZONAL_TRY(zonal__training_fill_augmentations(t));
    zonal__training_fill_loader(t);
    return ZONAL_OK;
}

zonal_status zonal__training_open(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    if (!s->data)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there are no images to train on: zonal train DIR, or "
                                          "\"data\" in the configuration");
    ZONAL_TRY(settle_device(t));
    if (s->decoder && zonal__device_is_host(t->device))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--decoder device needs a GPU (--device cuda); leave it "
                                          "out on the device cpu");
    t->trainer = (zonal__trainer_options){.device = t->device,
                                          .data_location = (zonal__data_location)s->data_location,
                                          .device_decodes = s->decoder,
                                          .decay_all = s->decay_all,
                                          .seed = (uint64_t)s->seed,
                                          .zero_init_residual = s->zero_init_residual,
                                          .micro_batch = s->micro_batch,
                                          .no_graph = !s->graph,
                                          .fold_norms = s->fold_norms,
                                          .own_norms = !s->sync_norm,
                                          .bucket_size = (size_t)(s->bucket_size * (1 << 20)),
                                          .threads = (int)zonal__job_threads(t->job, s->threads)};
    ZONAL_TRY(zonal__training_open_views(t));
    ZONAL_TRY(zonal__training_check_views(t));
    ZONAL_TRY(check_batch(t));
    ZONAL_TRY(zonal__training_network(t, &t->trainer.network));
    fill_optimiser(t);
    ZONAL_TRY(fill_schedule(t));
    return fill_objective(t);
}

void zonal__training_close(zonal__training *t) {
    zonal__source_close(t->source);
    zonal__source_close(t->queries);
    zonal__source_close(t->memory);
    zonal__config_destroy(t->config);
    drop_texts(t);
    memset(t, 0, sizeof *t);
}
