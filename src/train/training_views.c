/* The images of a training and the augmentations. */
#include "core/memory.h"
#include "train/training_parts.h"

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
        zonal__train_apply_views(s, &t->options, v >= global, augmentation);
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
                                      .workers = (int)s->workers};
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

zonal_status zonal__training_check_views(const zonal__training *t) {
    const char *unused = zonal__train_unused_view(&t->settings, &t->options);
    if (!unused) return ZONAL_OK;
    return ZONAL_FAIL(
        ZONAL_ARGUMENT,
        "--%s has no effect on these views; leave it out, or change --augmentation or "
        "--local-views (zonal train --help says which augmentation it is of)",
        unused);
}
