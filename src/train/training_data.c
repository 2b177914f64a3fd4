/* The images of a training: its source, the augmentations of its views, what it is evaluated on,
 * and whether they are still what they were. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "train/run_folder.h"
#include "train/training_parts.h"

/* ---- the source ------------------------------------------------------------------------------ */

zonal_status zonal__training_thin(zonal__source *source, int64_t most) {
    int64_t *keep;
    zonal_status status;
    if (most == 0 || source->count <= most) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&keep, most, "the choice of images"));
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

/* ---- the options of views: which augmentation they are of ------------------------------------ */

#define VIEW(augmentation, name, field)                                                            \
    {                                                                                              \
        name, ZONAL__AUGMENTATION_##augmentation, offsetof(zonal__augmentation, field),            \
            sizeof(((zonal__augmentation *)0)->field)                                              \
    }

/* The options that every view of an augmentation takes, and where in the augmentation they lie. */
static const struct {
    const char *name;
    int augmentation;
    size_t at, size;
} view_options[] = {
    VIEW(BYOL, "view-aspect", aspect),
    VIEW(BYOL, "view-flip", flip),
    VIEW(BYOL, "view-flip-alternate", flip_alternates),
    VIEW(BYOL, "view-jitter", jitter),
    VIEW(BYOL, "view-brightness", brightness),
    VIEW(BYOL, "view-contrast", contrast),
    VIEW(BYOL, "view-saturation", saturation),
    VIEW(BYOL, "view-hue", hue),
    VIEW(BYOL, "view-grey", grey),
    VIEW(BYOL, "view-blur", blur),
    VIEW(BYOL, "view-solarise", solarise),
    VIEW(TEXTURE, "view-rotation", rotation),
    VIEW(TEXTURE, "view-shift", shift),
    VIEW(TEXTURE, "view-scale", scale),
    VIEW(TEXTURE, "view-shear", shear),
    VIEW(TEXTURE, "view-brightness-added", added),
    VIEW(TEXTURE, "view-contrast-factor", times),
    VIEW(TEXTURE, "view-noise", noise),
    VIEW(TEXTURE, "view-erase", erase),
    VIEW(TEXTURE, "view-erase-side", erase_side),
};
enum { VIEW_OPTIONS = sizeof view_options / sizeof view_options[0] };

static int is_given(const zonal__options *options, const char *name) {
    return zonal__options_source(options, name) != ZONAL__SOURCE_NONE;
}

/* Copies the given --view-... options over those of an augmentation; "local": of a local view. */
static void apply_views(const zonal__train_settings *settings, const zonal__options *options,
                        int local, zonal__augmentation *augmentation) {
    for (int i = 0; i < VIEW_OPTIONS; i++)
        if (is_given(options, view_options[i].name))
            memcpy((char *)augmentation + view_options[i].at,
                   (const char *)&settings->view + view_options[i].at, view_options[i].size);
    if (!local && is_given(options, "view-area")) augmentation->area = settings->view.area;
    if (local && is_given(options, "local-area")) augmentation->area = settings->local_area;
}

/* The first given --view-... option that views of the augmentation, which is settled, do not use;
 * NULL: there is none. */
static const char *find_unused_view(const zonal__train_settings *settings,
                                    const zonal__options *options) {
    int byol = settings->augmentation == ZONAL__AUGMENTATION_BYOL;
    for (int i = 0; i < VIEW_OPTIONS; i++)
        if (view_options[i].augmentation != settings->augmentation &&
            is_given(options, view_options[i].name))
            return view_options[i].name;
    if (!byol && is_given(options, "view-area")) return "view-area";
    if ((!byol || settings->local_views == 0) && is_given(options, "local-area"))
        return "local-area";
    return NULL;
}

/* ---- views ----------------------------------------------------------------------------------- */

zonal_status zonal__training_fill_augmentations(zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    int global = (int)s->views, all = global + (int)s->local_views;
    for (int v = 0; v < all; v++) {
        zonal__augmentation *augmentation = &t->augmentations[v];
        if (s->augmentation == ZONAL__AUGMENTATION_TEXTURE)
            zonal__augmentation_texture(augmentation);
        else if (v < global)
            zonal__augmentation_byol(v, augmentation);
        else
            zonal__augmentation_local(augmentation);
        apply_views(s, &t->options, v >= global, augmentation);
        ZONAL_TRY(zonal__augmentation_check(augmentation));
    }
    return ZONAL_OK;
}

static void spread(const zonal__per_channel *numbers, const double usual[3], float out[3]) {
    for (int c = 0; c < 3; c++)
        out[c] = (float)(numbers->count == 0 ? usual[c] : numbers->value[c % numbers->count]);
}

void zonal__training_normalisation(const zonal__training *t, float mean[3], float std[3]) {
    /* Of ImageNet, as everyone has used them for networks that see RGB. */
    static const double rgb_mean[] = {.485, .456, .406}, rgb_std[] = {.229, .224, .225};
    static const double grey_mean[] = {.5, .5, .5}, grey_std[] = {.25, .25, .25};
    const zonal__train_settings *s = &t->settings;
    int rgb = s->source.channels == 3;
    spread(&s->mean, rgb ? rgb_mean : grey_mean, mean);
    spread(&s->std, rgb ? rgb_std : grey_std, std);
}

void zonal__training_fill_loader(zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    zonal__loader_options *loader = &t->trainer.loader;
    *loader = (zonal__loader_options){.source = t->source,
                                      .batch = s->batch,
                                      .groups = s->local_views > 0 ? 2 : 1,
                                      .group = {{.views = (int)s->views,
                                                 .width = (int)s->side,
                                                 .height = (int)s->side,
                                                 .augmentations = t->augmentations},
                                                {.views = (int)s->local_views,
                                                 .width = (int)s->local_side,
                                                 .height = (int)s->local_side,
                                                 .augmentations = t->augmentations + s->views,
                                                 .first = (int)s->views}},
                                      .max_side = (int)s->max_side,
                                      .workers = (int)zonal__job_threads(t->job, s->workers)};
    zonal__training_normalisation(t, loader->mean, loader->std);
}

void zonal__training_eval_augmentation(const zonal__training *t,
                                       zonal__augmentation *augmentation) {
    if (t->settings.augmentation == ZONAL__AUGMENTATION_TEXTURE)
        zonal__augmentation_identity(ZONAL__VIEW_TEXTURE, augmentation);
    else if (t->settings.crop == ZONAL__EVAL_CROP_WHOLE)
        zonal__augmentation_identity(ZONAL__VIEW_PHOTOGRAPH, augmentation);
    else
        zonal__augmentation_center_crop(augmentation);
}

int zonal__training_eval_side(const zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    return (int)(s->eval_side > 0 ? s->eval_side : s->side);
}

zonal_status zonal__training_check_views(const zonal__training *t) {
    const char *unused = find_unused_view(&t->settings, &t->options);
    if (!unused) return ZONAL_OK;
    return ZONAL_FAIL(
        ZONAL_ARGUMENT,
        "--%s has no effect on these views; leave it out, or change --augmentation or "
        "--local-views (zonal train --help says which augmentation it is of)",
        unused);
}

/* ---- the evaluation on the way --------------------------------------------------------------- */

/* The probe is tested on the features that k-NN is tested on. */
static zonal_status settle_probe(zonal__training *t) {
    if (!t->settings.probe) return ZONAL_OK;
    if (t->settings.eval != ZONAL__EVAL_KNN)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--probe is tested with k-NN, and there is %s; give images with classes "
                          "and --eval knn, or leave --probe out",
                          t->settings.eval == ZONAL__EVAL_NONE ? "no evaluation"
                                                               : "retrieval instead");
    t->trainer.probe_classes = t->source->classes;
    t->trainer.probe_rate = t->settings.probe_lr;
    return ZONAL_OK;
}

static const char *eval_split_word(const zonal__training *t) {
    return t->settings.eval_split == ZONAL__EVAL_ON_TEST ? "test" : "val";
}

static zonal_status open_retrieval(zonal__training *t) {
    t->eval_augmentations[0] = t->augmentations[0];
    t->eval_augmentations[1] = t->augmentations[t->settings.views > 1];
    if (t->queries->count >= 2) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "retrieval needs 2 images or more in the %s split of %s; give --eval none, "
                      "or more by --val-share",
                      eval_split_word(t), t->settings.data);
}

static zonal_status open_knn(zonal__training *t) {
    zonal__training_eval_augmentation(t, &t->eval_augmentations[0]);
    if (t->queries->classes < 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has no classes for --eval knn; use retrieval or none",
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
    if (t->queries->classes >= 2 && t->settings.augmentation == ZONAL__AUGMENTATION_BYOL)
        return ZONAL__EVAL_KNN;
    return ZONAL__EVAL_RETRIEVAL;
}

/* Images that nobody but the evaluation misses. */
static zonal_status explain_eval(const zonal__training *t, zonal_status status) {
    zonal_error inner = *zonal_last_error(); /* a copy: the sentence is about to change */
    if (status != ZONAL_ARGUMENT) return status;
    return ZONAL_FAIL(status,
                      "%.700s; evaluation during training needs that split: give --eval-split %s, "
                      "or --eval none",
                      inner.message,
                      t->settings.eval_split == ZONAL__EVAL_ON_TEST ? "val" : "test");
}

static zonal_status open_protocol(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    int automatic = s->eval == ZONAL__EVAL_AUTO;
    zonal_status status;
    if (s->eval == ZONAL__EVAL_NONE) return ZONAL_OK;
    status = zonal__training_source(
        t, s->eval_split == ZONAL__EVAL_ON_TEST ? ZONAL__SPLIT_TEST : ZONAL__SPLIT_VAL,
        s->eval_count, &t->queries);
    if (status != ZONAL_OK && (!automatic || status == ZONAL_MEMORY))
        return explain_eval(t, status);
    if (automatic)
        zonal__settle_word(t, "eval", status == ZONAL_OK ? choose_protocol(t) : ZONAL__EVAL_NONE,
                           &s->eval);
    if (s->eval == ZONAL__EVAL_NONE) return ZONAL_OK;
    t->online = (zonal__online_options){
        .job = t->job,
        .protocol = s->eval == ZONAL__EVAL_KNN ? ZONAL__ONLINE_KNN : ZONAL__ONLINE_RETRIEVAL,
        .queries = t->queries,
        .augmentations = t->eval_augmentations,
        .side = s->eval == ZONAL__EVAL_KNN ? zonal__training_eval_side(t) : (int)s->side,
        .max_side = (int)s->max_side,
        .seed = (uint64_t)s->seed,
        .device = t->trainer.device,
        .threads = t->trainer.threads};
    memcpy(t->online.mean, t->trainer.loader.mean, sizeof t->online.mean);
    memcpy(t->online.std, t->trainer.loader.std, sizeof t->online.std);
    return s->eval == ZONAL__EVAL_KNN ? open_knn(t) : open_retrieval(t);
}

zonal_status zonal__training_open_online(zonal__training *t) {
    ZONAL_TRY(open_protocol(t));
    return settle_probe(t);
}

/* ---- the record of the images ---------------------------------------------------------------- */

enum { PARTS = 3 };

static void close_parts(zonal__data_part *parts, int count) {
    for (int i = 0; i < count; i++) zonal__source_close(parts[i].source);
}

/* The part that is trained on, and those for validation and test where the images have them. */
static zonal_status open_parts(const zonal__training *t, zonal__data_part parts[PARTS],
                               int *count) {
    const zonal__split own = (zonal__split)t->settings.split;
    const zonal__split splits[PARTS] = {own, ZONAL__SPLIT_VAL, ZONAL__SPLIT_TEST};
    *count = 0;
    for (int i = 0; i < PARTS; i++) {
        zonal__source *source;
        zonal_status status;
        if (i > 0 && splits[i] == own) continue;
        status = zonal__training_source(t, splits[i], 0, &source);
        if (status != ZONAL_OK && i > 0 && status != ZONAL_MEMORY) continue;
        if (status != ZONAL_OK) {
            close_parts(parts, *count);
            return status;
        }
        parts[(*count)++] = (zonal__data_part){zonal__split_words[splits[i]], source};
    }
    return ZONAL_OK;
}

zonal_status zonal__training_record(const zonal__training *t, zonal__data_record **record) {
    zonal__data_part parts[PARTS];
    int count;
    zonal_status status;
    *record = NULL;
    ZONAL_TRY(open_parts(t, parts, &count));
    status = zonal__data_record_make(parts, count, 0, record);
    close_parts(parts, count);
    return status;
}

zonal_status zonal__training_check_place(const zonal__training *t, const char *run) {
    const char *path = t->settings.data;
    if (!path || zonal__source_is_textures(path) || access(path, F_OK) == 0) return ZONAL_OK;
    if (zonal__options_source(&t->options, "data") == ZONAL__SOURCE_FLAG)
        return ZONAL_FAIL(ZONAL_IO,
                          "cannot read --data %.300s: %s; name the folder or file of the images",
                          path, strerror(errno));
    return ZONAL_FAIL(ZONAL_IO,
                      "cannot read the images of %.200s: %s; they were at %.300s; if they have "
                      "been moved, give --data PATH",
                      run, strerror(errno), path);
}

zonal_status zonal__training_check_data(const zonal__training *t, const char *run,
                                        zonal__data_changes *changes) {
    zonal__data_part parts[PARTS];
    int count;
    zonal_status status;
    *changes = (zonal__data_changes){0};
    ZONAL_TRY(zonal__training_check_place(t, run));
    ZONAL_TRY(open_parts(t, parts, &count));
    status = zonal__run_folder_check_data(run, parts, count, changes);
    close_parts(parts, count);
    return status;
}

zonal_status zonal__training_refuse_changed(const char *run, const zonal__data_changes *changes) {
    return ZONAL_FAIL(ZONAL_IO,
                      "the images of %.200s are not those it was trained on: %.400s; put them "
                      "back, or give --changed-data allow",
                      run, changes->text);
}
