/* The images of a training and the laws of their views. */
#include "core/memory.h"
#include "train/training_parts.h"

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

zonal_status zonal__training_fill_laws(zonal__training *t) {
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

void zonal__training_fill_loader(zonal__training *t) {
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

void zonal__training_eval_law(const zonal__training *t, zonal__view_law *law) {
    if (t->settings.law == ZONAL__LAW_TEXTURE)
        zonal__view_law_identity(ZONAL__VIEW_TEXTURE, law);
    else if (t->settings.crop == ZONAL__FRAME_WHOLE)
        zonal__view_law_identity(ZONAL__VIEW_PHOTOGRAPH, law);
    else
        zonal__view_law_centre(law);
}

zonal_status zonal__training_check_views(const zonal__training *t) {
    const char *unused = zonal__train_unused_view(&t->settings, &t->options);
    if (!unused) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "--%s has no effect on these views; leave it out, or change --law or "
                      "--local-views (zonal train --help says which law it is of)",
                      unused);
}
