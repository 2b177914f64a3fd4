#include "cli/eval/subject.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/device.h"
#include "cli/common/inputs.h"
#include "core/text.h"
#include "nn/weights.h"
#include "train/run_folder.h"
#include "train/run_group.h"

const char *const zonal__subject_overrides[ZONAL__SUBJECT_OVERRIDES] = {
    "data",      "side",       "mean",      "std",           "augmentation", "class-list",
    "val-share", "test-share", "data-seed", "texture-count", "texture-size", "crop"};
const char *const zonal__subject_precisions[] = {"fp32", "bf16", NULL};

enum { SGD_BATCH = 256 };

/* ---- the weights ----------------------------------------------------------------------------- */

static zonal_status copy(const char *name, char out[ZONAL__TRAINING_PATH]) {
    if (snprintf(out, ZONAL__TRAINING_PATH, "%s", name) >= ZONAL__TRAINING_PATH)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the name %.80s... is too long", name);
    return ZONAL_OK;
}

static zonal_status join(const char *folder, const char *name, char out[ZONAL__TRAINING_PATH]) {
    if (snprintf(out, ZONAL__TRAINING_PATH, "%s/%s", folder, name) >= ZONAL__TRAINING_PATH)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the name %.80s... is too long", folder);
    return ZONAL_OK;
}

static zonal_status check_is_run(const char *folder) {
    char path[ZONAL__TRAINING_PATH];
    struct stat state;
    ZONAL_TRY(join(folder, "config.toml", path));
    if (stat(path, &state) == 0) return ZONAL_OK;
    return ZONAL_FAIL(
        ZONAL_IO,
        "%s is not a run folder: it has no config.toml (%s); give a folder that zonal "
        "train made",
        folder, strerror(errno));
}

static zonal_status find_latest(const char *run, char out[ZONAL__TRAINING_PATH]) {
    zonal__run_folder folder = {.lock = -1}; /* for reading: a run may go on meanwhile */
    zonal_status status;
    ZONAL_TRY(copy(run, folder.path));
    ZONAL_TRY(check_is_run(run));
    status = zonal__run_folder_latest(&folder, out);
    if (status != ZONAL_IO) return status;
    return ZONAL_FAIL(ZONAL_IO,
                      "the run %s has no checkpoint yet; one is made every --checkpoint-minutes, "
                      "with every new best, and when training is stopped by Ctrl-C",
                      run);
}

zonal_status zonal__subject_weights(const char *name, const char *checkpoint, int *is_run,
                                    char out[ZONAL__TRAINING_PATH]) {
    struct stat state;
    *is_run = stat(name, &state) == 0 && S_ISDIR(state.st_mode);
    if (!*is_run) {
        if (strcmp(checkpoint, "last") != 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--checkpoint is for run folders, and %s is not one",
                              name);
        return copy(name, out);
    }
    if (strcmp(checkpoint, "last") == 0) return find_latest(name, out);
    if (strcmp(checkpoint, "best") == 0) return join(name, "checkpoints/best.safetensors", out);
    if (access(checkpoint, R_OK) != 0)
        return ZONAL_FAIL(ZONAL_IO, "--checkpoint is last, best or a file; cannot read %s: %s",
                          checkpoint, strerror(errno));
    return copy(checkpoint, out);
}

zonal_status zonal__subject_keep_inputs(const char *option, const char *out, const char *name,
                                        const zonal__subject_settings *settings) {
    ZONAL_TRY(zonal__cli_keep_input(option, out, name));
    ZONAL_TRY(zonal__cli_keep_input(option, out, settings->checkpoint));
    for (int i = 0; i < ZONAL__SUBJECT_OVERRIDES; i++) /* those that are no files match none */
        ZONAL_TRY(zonal__cli_keep_input(option, out, settings->overrides[i]));
    return ZONAL_OK;
}

static zonal_status read_notes(const zonal__safetensors *file, zonal__subject *s) {
    const char *step = zonal__safetensors_note_text(file, "zonal.step");
    if (!step || zonal__text_int64(step, "zonal.step", &s->step) != ZONAL_OK || s->step < 0)
        s->step = -1;
    return s->is_run ? ZONAL_OK : zonal__preprocessing_of_file(file, &s->preprocessing);
}

static zonal_status load_model(zonal__subject *s, const zonal__subject_settings *settings) {
    zonal__safetensors *file;
    zonal_status status;
    s->precision = settings->precision;
    /* "auto" takes what is there; a device that was asked for must be. */
    ZONAL_TRY(zonal__device_choose(settings->device, &s->device));
    ZONAL_TRY(zonal__safetensors_open(s->weights, ZONAL__SAFETENSORS_ANY, &file));
    status = read_notes(file, s);
    if (status == ZONAL_OK)
        status = zonal__weights_model(
            file, s->device, settings->precision ? ZONAL_DTYPE_BF16 : ZONAL_DTYPE_FP32, &s->model);
    zonal__safetensors_close(file);
    return status;
}

/* ---- the images ------------------------------------------------------------------------------ */

static zonal_status set_option(zonal__training *training, const char *name, const char *text) {
    char shown[32];
    snprintf(shown, sizeof shown, "--%s", name);
    return zonal__options_set(&training->options, name, shown, text, ZONAL__SOURCE_FLAG);
}

static const char *override_of(const zonal__subject_settings *settings, const char *name) {
    for (int i = 0; i < ZONAL__SUBJECT_OVERRIDES; i++)
        if (strcmp(zonal__subject_overrides[i], name) == 0) return settings->overrides[i];
    return NULL;
}

/* What a file says of itself, where the command line says nothing else. */
static zonal_status use_preprocessing(zonal__subject *s, const zonal__subject_settings *settings) {
    for (int i = 0; i < ZONAL__PREPROCESSING_NOTES; i++) {
        const char *name = zonal__preprocessing_names[i], *text = s->preprocessing.text[i];
        const char *override = override_of(settings, name);
        char shown[ZONAL__TRAINING_PATH + 64];
        if (!text[0]) continue;
        if (override) {
            if (strcmp(override, text) != 0)
                zonal__log("%s was trained with %s %s; --%s %s overrides it", s->name, name, text,
                           name, override);
            continue;
        }
        snprintf(shown, sizeof shown, "zonal.%s in the metadata of %s", name, s->name);
        ZONAL_TRY(zonal__options_set(&s->training.options, name, shown, text, ZONAL__SOURCE_FLAG));
    }
    return ZONAL_OK;
}

/* What this version does not know, another may. */
static zonal_status explain_version(zonal_status status) {
    if (status != ZONAL_ARGUMENT) return status;
    const zonal_error error = *zonal_last_error(); /* a copy: the sentence is about to change */
    return ZONAL_FAIL(
        ZONAL_FORMAT,
        "%.500s; a run of another version of zonal is evaluated by that version (this "
        "is %s)",
        error.message, zonal_version());
}

/* ---- what the command line changes ----------------------------------------------------------- */

/* Where the images lie and how they are looked at (side, crop, mean, std) is said beside a result.
 * The augmentation is not, and decides how every image is resized, not only random views. */
static const char *const untold[] = {"augmentation", "class-list",    "val-share",   "test-share",
                                     "data-seed",    "texture-count", "texture-size"};
enum { UNTOLD = sizeof untold / sizeof untold[0] };

static const char *text_of(const zonal__subject *s, const char *name) {
    const zonal__options *options = &s->training.options;
    for (int i = 0; options->table[i].name; i++)
        if (strcmp(options->table[i].name, name) == 0) return options->state[i].text;
    return NULL;
}

/* 0.1 and 0.10 are the same number; the wide type holds every seed. */
static int is_same(const char *x, const char *y) {
    char *end_x, *end_y;
    if (!x || !y) return x == y;
    if (strcmp(x, y) == 0) return 1;
    const long double a = strtold(x, &end_x), b = strtold(y, &end_y);
    return end_x > x && end_y > y && !*end_x && !*end_y && !(a < b) && !(a > b);
}

/* "own": the texts before the overrides. Images that proved to be the run's own were chosen by the
 * same list, wherever its file is now. */
static void note_changes(zonal__subject *s, const zonal__subject_settings *settings,
                         const char *const own[UNTOLD]) {
    for (int i = 0; i < UNTOLD; i++) {
        const char *text = text_of(s, untold[i]);
        const int is_list = strcmp(untold[i], "class-list") == 0;
        if (!override_of(settings, untold[i]) || is_same(own[i], text)) continue;
        if (is_list && s->own_data) continue;
        zonal__text_append(s->changes, sizeof s->changes, "%s--%s %s", s->changes[0] ? ", " : "",
                           untold[i], text ? text : "");
    }
}

/* What large images are shrunk to when they are read follows from the sizes of the views, unless a
 * run was told: views of another size would be made of images that are too small for them. */
static zonal_status free_max_side(zonal__subject *s, const char *config) {
    zonal__run_settings settings;
    int settled = 0;
    ZONAL_TRY(zonal__run_settings_read(config, &settings));
    for (int64_t i = 0; i < settings.count; i++)
        if (strcmp(settings.at[i].key, "max-side") == 0)
            settled = zonal__config_is_settled(settings.at[i].source);
    zonal__run_settings_fini(&settings);
    return settled ? set_option(&s->training, "max-side", "0") : ZONAL_OK;
}

static zonal_status configure(zonal__subject *s, const zonal__subject_settings *settings,
                              const char *own[UNTOLD]) {
    zonal__training *t = &s->training;
    char path[ZONAL__TRAINING_PATH];
    if (s->is_run) {
        ZONAL_TRY(join(s->name, "config.toml", path));
        ZONAL_TRY(explain_version(zonal__training_read(path, t)));
    } else {
        if (!settings->overrides[0])
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "--data is needed: %s is a file of weights and does "
                              "not say which images to take",
                              s->name);
        ZONAL_TRY(zonal__options_init(&t->options, zonal__train_table, &t->settings));
    }
    ZONAL_TRY(use_preprocessing(s, settings));
    for (int i = 0; i < UNTOLD; i++) own[i] = text_of(s, untold[i]);
    for (int i = 0; i < ZONAL__SUBJECT_OVERRIDES; i++)
        if (settings->overrides[i])
            ZONAL_TRY(set_option(t, zonal__subject_overrides[i], settings->overrides[i]));
    if (override_of(settings, "side")) {
        ZONAL_TRY(set_option(t, "eval-side", override_of(settings, "side")));
        if (s->is_run) ZONAL_TRY(free_max_side(s, path));
    }
    ZONAL_TRY(set_option(t, "channels", s->model->spec.channels == 1 ? "1" : "3"));
    if (s->is_run) ZONAL_TRY(zonal__training_check_place(t, s->name));
    return zonal__training_open_views(t);
}

/* How far a run is that will go on. */
static void say_unfinished(const zonal__subject *s) {
    const int64_t total = zonal__training_steps(&s->training);
    if (s->own_data && s->step >= 0 && s->step < total)
        zonal__log("%s is not finished: the weights are of step %lld of %lld", s->name,
                   (long long)s->step, (long long)total);
}

/* Images that are to be those of the run: other ones would have trained another network. Those that
 * were asked for by name are the run's own if they are what it has recorded: they have moved. */
static zonal_status check_data(zonal__subject *s, const zonal__subject_settings *settings) {
    static const int of_place[] = {0, 5}, of_parts[] = {6, 7, 8, 9, 10}; /* the overrides */
    zonal__data_changes changes;
    int elsewhere = 0;
    for (size_t i = 0; i < sizeof of_parts / sizeof of_parts[0]; i++)
        if (settings->overrides[of_parts[i]]) return ZONAL_OK;
    if (!s->is_run) return ZONAL_OK;
    for (size_t i = 0; i < sizeof of_place / sizeof of_place[0]; i++)
        elsewhere |= settings->overrides[of_place[i]] != NULL;
    if (elsewhere) {
        s->own_data = zonal__training_check_data(&s->training, s->name, &changes) == ZONAL_OK &&
                      changes.recorded && !changes.changed;
        return ZONAL_OK;
    }
    s->own_data = 1;
    ZONAL_TRY(zonal__training_check_data(&s->training, s->name, &changes));
    if (!changes.changed) return ZONAL_OK;
    if (settings->changed_data == ZONAL__CHANGED_REFUSE)
        return zonal__training_refuse_changed(s->name, &changes);
    zonal__log("the images of %s have changed since it began: %s", s->name, changes.text);
    return ZONAL_OK;
}

zonal_status zonal__subject_open(const char *name, const zonal__subject_settings *settings,
                                 zonal__subject *s) {
    const char *own[UNTOLD];
    zonal_status status;
    memset(s, 0, sizeof *s);
    s->name = name;
    s->batch = settings->batch;
    s->limit = settings->limit;
    s->threads = (int)settings->threads;
    ZONAL_TRY_GOTO(status, failed,
                   zonal__subject_weights(name, settings->checkpoint, &s->is_run, s->weights));
    ZONAL_TRY_GOTO(status, failed, load_model(s, settings));
    ZONAL_TRY_GOTO(status, failed, configure(s, settings, own));
    ZONAL_TRY_GOTO(status, failed, check_data(s, settings));
    note_changes(s, settings, own);
    zonal__training_eval_augmentation(&s->training, &s->still);
    say_unfinished(s);
    return ZONAL_OK;
failed:
    zonal__subject_close(s);
    return status;
}

void zonal__subject_close(zonal__subject *s) {
    zonal__model_destroy(s->model);
    zonal__training_close(&s->training);
    memset(s, 0, sizeof *s);
}

zonal_status zonal__subject_source(const zonal__subject *s, zonal__split split,
                                   zonal__source **source) {
    return zonal__training_source(&s->training, split, s->limit, source);
}

/* ---- the views ------------------------------------------------------------------------------- */

static zonal__features_options common(const zonal__subject *s, zonal__source *source, int side) {
    const zonal__loader_options *loader = &s->training.trainer.loader;
    zonal__features_options o = {.source = source,
                                 .width = side,
                                 .height = side,
                                 .max_side = loader->max_side,
                                 .batch = s->batch,
                                 .threads = s->threads};
    memcpy(o.mean, loader->mean, sizeof o.mean);
    memcpy(o.std, loader->std, sizeof o.std);
    return o;
}

zonal__features_options zonal__subject_still(const zonal__subject *s, zonal__source *source) {
    zonal__features_options o = common(s, source, zonal__training_eval_side(&s->training));
    o.views = 1;
    o.augmentations = &s->still;
    return o;
}

/* The augmentations of training take turns where there are more views than it had. */
zonal__features_options zonal__subject_random(zonal__subject *s, zonal__source *source, int views,
                                              uint64_t seed) {
    const zonal__view_group *group = &s->training.trainer.loader.group[0];
    zonal__features_options o = common(s, source, group->width);
    for (int v = 0; v < views; v++) s->augmentations[v] = group->augmentations[v % group->views];
    o.views = views;
    o.augmentations = s->augmentations;
    o.seed = seed;
    return o;
}

zonal__features_options zonal__subject_augmented(zonal__subject *s, zonal__source *source,
                                                 int usual, int64_t epochs, uint64_t seed) {
    zonal__augmentation like = s->training.trainer.loader.group[0].augmentations[0];
    zonal__augmentation *augmentation = &s->augmentations[0];
    zonal__features_options o = common(s, source, zonal__training_eval_side(&s->training));
    *augmentation = like;
    if (like.kind == ZONAL__VIEW_PHOTOGRAPH) {
        if (usual) zonal__augmentation_byol(0, &like); /* whose crops and mirroring these are */
        zonal__augmentation_identity(ZONAL__VIEW_PHOTOGRAPH, augmentation);
        augmentation->crop = ZONAL__CROP_RANDOM;
        augmentation->area = like.area;
        augmentation->aspect = like.aspect;
        augmentation->flip = like.flip;
    }
    o.views = 1;
    o.augmentations = augmentation;
    o.seed = seed;
    o.epochs = epochs;
    /* An epoch of few images has some steps too. */
    o.batch = source->count / 8 < SGD_BATCH ? (source->count + 7) / 8 : SGD_BATCH;
    return o;
}
