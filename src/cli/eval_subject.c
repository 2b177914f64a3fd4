#include "cli/eval_subject.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/device.h"
#include "nn/weights.h"
#include "train/run_folder.h"

const char *const zonal__subject_overrides[ZONAL__SUBJECT_OVERRIDES] = {
    "data",      "side",       "mean",      "deviation",     "law",         "class-list",
    "val-share", "test-share", "data-seed", "texture-count", "texture-size"};
const char *const zonal__subject_devices[] = {"auto", "cpu", "cuda", NULL};
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

static zonal_status find_latest(const char *run, char out[ZONAL__TRAINING_PATH]) {
    zonal__run_folder folder = {.lock = -1}; /* for reading: a run may go on meanwhile */
    ZONAL_TRY(copy(run, folder.path));
    return zonal__run_folder_latest(&folder, out);
}

zonal_status zonal__subject_weights(const char *name, const char *checkpoint, int *is_run,
                                    char out[ZONAL__TRAINING_PATH]) {
    struct stat state;
    *is_run = stat(name, &state) == 0 && S_ISDIR(state.st_mode);
    if (!*is_run) {
        if (strcmp(checkpoint, "last") != 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--checkpoint is for run folders, and %s is none",
                              name);
        return copy(name, out);
    }
    if (strcmp(checkpoint, "last") == 0) return find_latest(name, out);
    if (strcmp(checkpoint, "best") == 0) return join(name, "checkpoints/best.safetensors", out);
    return copy(checkpoint, out);
}

static zonal_status load_model(zonal__subject *s, const zonal__subject_settings *settings) {
    const zonal__nn_table *table = zonal__nn_cpu();
    /* "auto" takes what is there; a device that was asked for must be. */
    if (settings->device == ZONAL__PLACE_CUDA) ZONAL_TRY(zonal__device_available());
    if (settings->device != ZONAL__PLACE_CPU && zonal__device_available() == ZONAL_OK) {
        s->device = ZONAL_DEVICE_CUDA;
        table = zonal__nn_cuda();
        if (!table) return zonal_last_error()->status;
    }
    return zonal__weights_open(
        s->weights, table, settings->precision ? ZONAL_DTYPE_BF16 : ZONAL_DTYPE_FP32, &s->model);
}

/* ---- the pictures ---------------------------------------------------------------------------- */

static zonal_status set_option(zonal__training *training, const char *name, const char *text) {
    char shown[32];
    snprintf(shown, sizeof shown, "--%s", name);
    return zonal__options_set(&training->options, name, shown, text, ZONAL__SOURCE_FLAG);
}

static zonal_status configure(zonal__subject *s, const zonal__subject_settings *settings) {
    zonal__training *t = &s->training;
    char path[ZONAL__TRAINING_PATH];
    if (s->is_run) {
        ZONAL_TRY(join(s->name, "config.toml", path));
        ZONAL_TRY(zonal__training_read(path, t));
    } else {
        if (!settings->overrides[0])
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "--data is needed: %s is a file of weights and does "
                              "not say which pictures to take",
                              s->name);
        ZONAL_TRY(zonal__options_init(&t->options, zonal__train_table, &t->settings));
    }
    for (int i = 0; i < ZONAL__SUBJECT_OVERRIDES; i++)
        if (settings->overrides[i])
            ZONAL_TRY(set_option(t, zonal__subject_overrides[i], settings->overrides[i]));
    ZONAL_TRY(set_option(t, "channels", s->model->spec.channels == 1 ? "1" : "3"));
    return zonal__training_open_views(t);
}

/* Images that are to be those of the run: other ones would have trained another network. */
static zonal_status check_data(const zonal__subject *s, const zonal__subject_settings *settings) {
    static const int of_data[] = {0, 5, 6, 7, 8, 9, 10}; /* the overrides that choose others */
    zonal__data_changes changes;
    for (size_t i = 0; i < sizeof of_data / sizeof of_data[0]; i++)
        if (settings->overrides[of_data[i]]) return ZONAL_OK;
    if (!s->is_run) return ZONAL_OK;
    ZONAL_TRY(zonal__training_check_data(&s->training, s->name, &changes));
    if (!changes.changed) return ZONAL_OK;
    if (settings->changed_data == ZONAL__CHANGED_REFUSE)
        return zonal__training_refuse_changed(s->name, &changes);
    zonal__log("the images of %s have changed since it began: %s", s->name, changes.text);
    return ZONAL_OK;
}

zonal_status zonal__subject_open(const char *name, const zonal__subject_settings *settings,
                                 zonal__subject *s) {
    zonal_status status;
    memset(s, 0, sizeof *s);
    s->name = name;
    s->batch = settings->batch;
    s->limit = settings->limit;
    s->threads = (int)settings->threads;
    ZONAL_TRY_GOTO(status, failed,
                   zonal__subject_weights(name, settings->checkpoint, &s->is_run, s->weights));
    ZONAL_TRY_GOTO(status, failed, load_model(s, settings));
    ZONAL_TRY_GOTO(status, failed, configure(s, settings));
    ZONAL_TRY_GOTO(status, failed, check_data(s, settings));
    zonal__training_eval_law(&s->training, &s->still);
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

static zonal__features_options common(const zonal__subject *s, zonal__source *source) {
    const zonal__loader_options *loader = &s->training.trainer.loader;
    zonal__features_options o = {.source = source,
                                 .width = loader->group[0].width,
                                 .height = loader->group[0].height,
                                 .batch = s->batch,
                                 .threads = s->threads};
    memcpy(o.mean, loader->mean, sizeof o.mean);
    memcpy(o.deviation, loader->deviation, sizeof o.deviation);
    return o;
}

zonal__features_options zonal__subject_still(const zonal__subject *s, zonal__source *source) {
    zonal__features_options o = common(s, source);
    o.views = 1;
    o.laws = &s->still;
    return o;
}

/* The laws of training take turns where there are more views than it had. */
zonal__features_options zonal__subject_random(zonal__subject *s, zonal__source *source, int views,
                                              uint64_t seed) {
    const zonal__view_group *group = &s->training.trainer.loader.group[0];
    zonal__features_options o = common(s, source);
    for (int v = 0; v < views; v++) s->laws[v] = group->laws[v % group->views];
    o.views = views;
    o.laws = s->laws;
    o.seed = seed;
    return o;
}

zonal__features_options zonal__subject_augmented(zonal__subject *s, zonal__source *source,
                                                 int64_t epochs, uint64_t seed) {
    const zonal__view_group *group = &s->training.trainer.loader.group[0];
    zonal__view_law *law = &s->laws[0];
    zonal__features_options o = common(s, source);
    *law = group->laws[0];
    if (law->kind == ZONAL__VIEW_PHOTOGRAPH) {
        zonal__view_law_identity(ZONAL__VIEW_PHOTOGRAPH, law);
        law->crop = ZONAL__CROP_RANDOM;
        law->area = group->laws[0].area;
        law->aspect = group->laws[0].aspect;
        law->mirror = group->laws[0].mirror;
    }
    o.views = 1;
    o.laws = law;
    o.seed = seed;
    o.epochs = epochs;
    /* An epoch of few pictures has some steps too. */
    o.batch = source->count / 8 < SGD_BATCH ? (source->count + 7) / 8 : SGD_BATCH;
    return o;
}
