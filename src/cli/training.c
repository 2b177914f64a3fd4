#include "cli/training.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/nn_amx.h"
#include "backend/device.h"
#include "core/memory.h"
#include "core/text.h"

enum { USUAL_SIDE = 224, LARGEST_SMALL_STEM = 64, PROBED_PICTURES = 16, LEAST_INTERVAL = 100 };

static int given(const zonal__training *t, const char *name) {
    return zonal__options_source(&t->options, name) > ZONAL__SOURCE_DEFAULT;
}

/* ---- settling -------------------------------------------------------------------------------- */

static zonal__option_state *state_of(zonal__training *t, const char *name) {
    int i = 0;
    while (strcmp(t->options.table[i].name, name) != 0) i++; /* the table has it */
    return &t->options.state[i];
}

/* The configuration that is written names what was chosen, and where the choice was asked for. */
static void settle_text(zonal__training *t, const char *name, const char *text) {
    zonal__option_state *state = state_of(t, name);
    if (strcmp(state->text, text) != 0) state->note = state->text;
    state->text = text;
}

static void settle_word(zonal__training *t, const char *name, int choice, int *setting) {
    for (const zonal__option *option = t->options.table; option->name; option++)
        if (strcmp(option->name, name) == 0) settle_text(t, name, option->words[choice]);
    *setting = choice;
}

/* A run can then be resumed from another folder. */
static void settle_path(zonal__training *t, const char *name, char room[ZONAL__TRAINING_PATH],
                        const char **setting) {
    _Static_assert(PATH_MAX <= ZONAL__TRAINING_PATH, "realpath needs as much");
    if (!*setting || !realpath(*setting, room)) return;
    *setting = room;
    settle_text(t, name, room);
}

int zonal__training_gains_by_bf16(const zonal__training *t) {
    return t->settings.device == ZONAL__PLACE_CUDA || zonal__amx_usable();
}

static zonal_status settle_device(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    int cuda = s->device != ZONAL__PLACE_CPU && zonal__device_available() == ZONAL_OK;
    if (s->device == ZONAL__PLACE_CUDA) ZONAL_TRY(zonal__device_available());
    settle_word(t, "device", cuda ? ZONAL__PLACE_CUDA : ZONAL__PLACE_CPU, &s->device);
    if (s->precision == ZONAL__PRECISION_AUTO)
        settle_word(t, "precision",
                    zonal__training_gains_by_bf16(t) ? ZONAL__PRECISION_BF16
                                                     : ZONAL__PRECISION_FP32,
                    &s->precision);
    if (s->log_every == 0) s->log_every = cuda ? 50 : 10;
    return ZONAL_OK;
}

/* The shorter side that most pictures have at least. */
static zonal_status probe_side(zonal__source *source, int *side) {
    zonal__image image = {0};
    zonal_status status = ZONAL_OK;
    *side = source->width < source->height ? source->width : source->height;
    if (*side > 0) return ZONAL_OK;
    for (int64_t i = 0; i < PROBED_PICTURES && status == ZONAL_OK; i++) {
        int64_t index = i * source->count / PROBED_PICTURES;
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
    int fits = shorter > 0 && shorter <= t->settings.side;
    return fits || t->settings.law == ZONAL__LAW_TEXTURE ? ZONAL__FRAME_WHOLE : ZONAL__FRAME_CENTRE;
}

static zonal_status settle_views(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    int shorter = USUAL_SIDE;
    if (s->side == 0) {
        ZONAL_TRY(probe_side(t->source, &shorter));
        s->side = shorter < USUAL_SIDE ? shorter : USUAL_SIDE;
    }
    if (s->local_side == 0) s->local_side = (3 * s->side + 6) / 7;
    if (s->largest_side == 0)
        s->largest_side =
            zonal__largest_side((int)(s->side > s->local_side ? s->side : s->local_side));
    if (s->source.channels == 0) s->source.channels = t->source->channels == 1 ? 1 : 3;
    if (s->law == ZONAL__LAW_AUTO)
        settle_word(t, "law",
                    strcmp(t->source->table->kind, "textures") == 0 ? ZONAL__LAW_TEXTURE
                                                                    : ZONAL__LAW_BYOL,
                    &s->law);
    if (s->crop == ZONAL__FRAME_AUTO) settle_word(t, "crop", choose_crop(t), &s->crop);
    if (s->stem == ZONAL__STEM_AUTO)
        settle_word(t, "stem",
                    s->side <= LARGEST_SMALL_STEM ? ZONAL__STEM_AS_SMALL : ZONAL__STEM_AS_IMAGENET,
                    &s->stem);
    return ZONAL_OK;
}

/* A folder of a few pictures need not be told that it is small. */
static void settle_batch(zonal__training *t) {
    int64_t count = t->source->count;
    if (!given(t, "batch") && count >= 2 && count < t->settings.batch) t->settings.batch = count;
}

/* ---- network --------------------------------------------------------------------------------- */

zonal_status zonal__training_network(const zonal__training *t, zonal__network_spec *spec) {
    static const int depths[] = {18, 34, 50};
    const zonal__train_settings *s = &t->settings;
    *spec = zonal__network_defaults();
    if (s->stem == ZONAL__STEM_AUTO || s->source.channels == 0 ||
        s->precision == ZONAL__PRECISION_AUTO)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "stem, channels and precision depend on pictures and "
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

/* ---- loss ------------------------------------------------------------------------------------ */

static int64_t dimension(const zonal__training *t) {
    const zonal__network_spec *network = &t->trainer.network;
    return network->projector_width[network->projector_layers - 1];
}

static zonal_status parse_gain(const char *text, zonal_objective_options *objective) {
    if (strcmp(text, "auto") == 0) return ZONAL_OK;
    if (strcmp(text, "unit") == 0 || strcmp(text, "batch") == 0) {
        objective->gain = text[0] == 'u' ? ZONAL_GAIN_UNIT : ZONAL_GAIN_BATCH;
        return ZONAL_OK;
    }
    objective->gain = ZONAL_GAIN_VALUE;
    ZONAL_TRY(
        zonal__text_double(text, "--gain, if not auto, batch or unit,", &objective->gain_value));
    if (objective->gain_value > 0) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT, "--gain must be above 0, got %s", text);
}

/* One of --gain, --margin and --selectivity sets the gain. */
static zonal_status choose_gain(zonal__training *t, zonal_objective_options *objective) {
    const zonal__train_settings *s = &t->settings;
    int margin = given(t, "margin"), selectivity = given(t, "selectivity");
    if (margin + selectivity + (strcmp(s->gain, "auto") != 0) > 1)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--gain, --margin and --selectivity all set the weight of uniformity; "
                          "give one of them");
    ZONAL_TRY(parse_gain(s->gain, objective));
    if (margin || selectivity) {
        objective->gain = margin ? ZONAL_GAIN_MARGIN : ZONAL_GAIN_SELECTIVITY;
        objective->gain_value = margin ? s->margin : s->selectivity;
    }
    return zonal_objective_describe(objective, s->views + s->local_views, s->views, s->batch,
                                    dimension(t), &t->weight);
}

/* The weight of uniformity depends on the method and the batch; the configuration says what it came
 * to. A gain by its word stays one, so that a run with another batch has the gain of that. */
static void settle_weight(zonal__training *t) {
    zonal__option_state *lambda = state_of(t, "lambda"), *gain = state_of(t, "gain");
    if (!given(t, "lambda")) {
        snprintf(t->lambda_note, sizeof t->lambda_note, "that of %.40s", t->settings.method);
        t->settings.lambda = t->trainer.objective.lambda;
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
    ZONAL_TRY(zonal_objective_defaults(s->method, objective));
    zonal__loss_unused(&objective->loss, &t->options, unused, sizeof unused);
    if (unused[0])
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s does not use %s; leave it out", s->method, unused);
    ZONAL_TRY(zonal__kernel_settings_apply(&s->kernel, dimension(t), objective->loss.discrepancy,
                                           &objective->loss.kernel, &t->weights));
    ZONAL_TRY(zonal__method_settings_apply(&s->loss, &t->options, &objective->loss));
    if (given(t, "lambda")) objective->lambda = s->lambda;
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

/* ---- pictures and views ---------------------------------------------------------------------- */

zonal_status zonal__training_thin(zonal__source *source, int64_t most) {
    int64_t *keep;
    zonal_status status;
    if (most == 0 || source->count <= most) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&keep, most, "the choice of pictures"));
    for (int64_t i = 0; i < most; i++) keep[i] = i * source->count / most;
    status = zonal__source_select(source, most, keep);
    zonal__free(keep);
    return status;
}

zonal_status zonal__training_source(const zonal__training *t, zonal__split split, int64_t most,
                                    zonal__source **source) {
    const zonal__source_options options =
        zonal__source_settings_apply(&t->settings.source, t->settings.data, split);
    zonal_status status;
    ZONAL_TRY(zonal__source_open(&options, source));
    status = zonal__training_thin(*source, most);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__source_close(*source);
    *source = NULL;
    return status;
}

static zonal_status fill_laws(zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    int global = (int)s->views, all = global + (int)s->local_views;
    for (int v = 0; v < all; v++) {
        zonal__view_law *law = &t->laws[v];
        if (s->law == ZONAL__LAW_TEXTURE)
            zonal__view_law_texture(law);
        else if (v < global)
            zonal__view_law_byol(v, law);
        else
            zonal__view_law_local(law);
        zonal__train_apply_views(s, &t->options, v >= global, law);
        ZONAL_TRY(zonal__view_law_check(law));
    }
    return ZONAL_OK;
}

static void spread(const zonal__per_channel *numbers, const double usual[3], float out[3]) {
    for (int c = 0; c < 3; c++)
        out[c] = (float)(numbers->count == 0 ? usual[c] : numbers->value[c % numbers->count]);
}

void zonal__training_normalisation(const zonal__training *t, float mean[3], float deviation[3]) {
    /* Of ImageNet, as everyone has used them for networks that see RGB. */
    static const double rgb_mean[] = {.485, .456, .406}, rgb_deviation[] = {.229, .224, .225};
    static const double grey_mean[] = {.5, .5, .5}, grey_deviation[] = {.25, .25, .25};
    const zonal__train_settings *s = &t->settings;
    int rgb = s->source.channels == 3;
    spread(&s->mean, rgb ? rgb_mean : grey_mean, mean);
    spread(&s->deviation, rgb ? rgb_deviation : grey_deviation, deviation);
}

static void fill_loader(zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    zonal__loader_options *loader = &t->trainer.loader;
    *loader = (zonal__loader_options){.source = t->source,
                                      .batch = s->batch,
                                      .groups = s->local_views > 0 ? 2 : 1,
                                      .group = {{.views = (int)s->views,
                                                 .width = (int)s->side,
                                                 .height = (int)s->side,
                                                 .laws = t->laws},
                                                {.views = (int)s->local_views,
                                                 .width = (int)s->local_side,
                                                 .height = (int)s->local_side,
                                                 .laws = t->laws + s->views,
                                                 .first = (int)s->views}},
                                      .largest_side = (int)s->largest_side,
                                      .workers = (int)s->workers};
    zonal__training_normalisation(t, loader->mean, loader->deviation);
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
    if (given(t, "warmup")) {
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

/* What has no effect was meant to have one. */
static zonal_status check_views(const zonal__training *t) {
    const char *unused = zonal__train_unused_view(&t->settings, &t->options);
    if (!unused) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "--%s has no effect on these views; leave it out, or change --law or "
                      "--local-views (zonal train --help says which law it is of)",
                      unused);
}

static zonal_status check_batch(const zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    if (s->batch < 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--batch must be at least 2, got %lld: uniformity is a "
                          "matter between pictures",
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

zonal_status zonal__training_read(const char *path, zonal__training *t) {
    memset(t, 0, sizeof *t);
    ZONAL_TRY(zonal__options_init(&t->options, zonal__train_table, &t->settings));
    return zonal__config_read(path, &t->options, &t->config);
}

zonal_status zonal__training_open_views(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    settle_path(t, "data", t->data, &s->data);
    settle_path(t, "class-list", t->class_list, &s->source.class_list);
    settle_path(t, "init", t->init, &s->init);
    ZONAL_TRY(zonal__training_source(t, (zonal__split)s->split, 0, &t->source));
    ZONAL_TRY(settle_views(t));
    settle_batch(t);
    ZONAL_TRY(fill_laws(t));
    fill_loader(t);
    return ZONAL_OK;
}

zonal_status zonal__training_open(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    if (!s->data)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there are no pictures to train on: zonal train DIR, or "
                                          "\"data\" in the configuration");
    ZONAL_TRY(settle_device(t));
    t->trainer = (zonal__trainer_options){
        .device = s->device == ZONAL__PLACE_CUDA ? ZONAL_DEVICE_CUDA : ZONAL_DEVICE_CPU,
        .residence = (zonal__residence)s->residence,
        .decay_all = s->decay_all,
        .seed = (uint64_t)s->seed,
        .zero_last_scale = s->zero_last_scale,
        .micro_batch = s->micro_batch,
        .no_graph = !s->graph,
        .threads = (int)s->threads};
    ZONAL_TRY(zonal__training_open_views(t));
    ZONAL_TRY(check_views(t));
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
    zonal__free(t->weights);
    zonal__config_destroy(t->config);
    memset(t, 0, sizeof *t);
}

/* ---- the evaluation on the way --------------------------------------------------------------- */

void zonal__training_eval_law(const zonal__training *t, zonal__view_law *law) {
    if (t->settings.law == ZONAL__LAW_TEXTURE)
        zonal__view_law_identity(ZONAL__VIEW_TEXTURE, law);
    else if (t->settings.crop == ZONAL__FRAME_WHOLE)
        zonal__view_law_identity(ZONAL__VIEW_PHOTOGRAPH, law);
    else
        zonal__view_law_centre(law);
}

static zonal_status open_retrieval(zonal__training *t) {
    t->eval_laws[0] = t->laws[0];
    t->eval_laws[1] = t->laws[t->settings.views > 1];
    if (t->queries->count >= 2) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "retrieval needs 2 pictures or more in the validation part of %s; give "
                      "--eval none, or more by --val-share",
                      t->settings.data);
}

static zonal_status open_knn(zonal__training *t) {
    zonal__training_eval_law(t, &t->eval_laws[0]);
    if (t->queries->classes < 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "%s has no classes for --eval knn; take retrieval or none",
                          t->settings.data);
    ZONAL_TRY(zonal__training_source(t, ZONAL__SPLIT_TRAIN, t->settings.eval_memory, &t->memory));
    t->online.memory = t->memory;
    t->online.k = (int)t->settings.eval_k;
    if (t->online.k > t->memory->count) t->online.k = (int)t->memory->count;
    t->online.temperature = t->settings.eval_temperature;
    return ZONAL_OK;
}

/* Nobody has asked for an evaluation where there is nothing to evaluate on. */
static int choose_protocol(const zonal__training *t) {
    if (t->queries->count < 2) return ZONAL__EVAL_NONE;
    if (t->queries->classes >= 2 && t->settings.law == ZONAL__LAW_BYOL) return ZONAL__EVAL_KNN;
    return ZONAL__EVAL_RETRIEVAL;
}

zonal_status zonal__training_open_online(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    int automatic = s->eval == ZONAL__EVAL_AUTO;
    zonal_status status;
    if (s->eval == ZONAL__EVAL_NONE) return ZONAL_OK;
    status = zonal__training_source(t, ZONAL__SPLIT_VAL, s->eval_count, &t->queries);
    if (status != ZONAL_OK && !automatic) return status;
    if (automatic)
        settle_word(t, "eval", status == ZONAL_OK ? choose_protocol(t) : ZONAL__EVAL_NONE,
                    &s->eval);
    if (s->eval == ZONAL__EVAL_NONE) return ZONAL_OK;
    t->online = (zonal__online_options){
        .protocol = s->eval == ZONAL__EVAL_KNN ? ZONAL__ONLINE_KNN : ZONAL__ONLINE_RETRIEVAL,
        .queries = t->queries,
        .laws = t->eval_laws,
        .side = (int)s->side,
        .largest_side = (int)s->largest_side,
        .seed = (uint64_t)s->seed,
        .device = t->trainer.device,
        .threads = (int)s->threads};
    memcpy(t->online.mean, t->trainer.loader.mean, sizeof t->online.mean);
    memcpy(t->online.deviation, t->trainer.loader.deviation, sizeof t->online.deviation);
    return s->eval == ZONAL__EVAL_KNN ? open_knn(t) : open_retrieval(t);
}
