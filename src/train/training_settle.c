/* What a configuration leaves open, settled by the images and the device. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "backend/training/tables.h"
#include "train/training_parts.h"

enum { USUAL_SIDE = 224, LARGEST_SMALL_STEM = 64, PROBED_IMAGES = 16 };

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

void zonal__settle_path(zonal__training *t, const char *name, char room[ZONAL__TRAINING_PATH],
                        const char **setting) {
    _Static_assert(PATH_MAX <= ZONAL__TRAINING_PATH, "realpath needs as much");
    if (!*setting || !realpath(*setting, room)) return;
    *setting = room;
    settle_text(t, name, room);
}

int zonal__training_gains_by_bf16(const zonal__training *t) {
    const zonal__training_tables *tables;
    return zonal__device_training(t->device, &tables) == ZONAL_OK && tables->bf16_pays();
}

zonal_status zonal__settle_device(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    ZONAL_TRY(zonal__device_choose(s->device, &t->device));
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
    int fits = shorter > 0 && shorter <= t->settings.side;
    return fits || t->settings.augmentation == ZONAL__AUGMENTATION_TEXTURE
               ? ZONAL__EVAL_CROP_WHOLE
               : ZONAL__EVAL_CROP_CENTER;
}

zonal_status zonal__settle_views(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    int shorter = USUAL_SIDE;
    if (s->side == 0) {
        ZONAL_TRY(probe_side(t->source, &shorter));
        s->side = shorter < USUAL_SIDE ? shorter : USUAL_SIDE;
    }
    if (s->local_side == 0) s->local_side = (3 * s->side + 6) / 7;
    if (s->max_side == 0)
        s->max_side = zonal__max_side((int)(s->side > s->local_side ? s->side : s->local_side));
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
void zonal__settle_batch(zonal__training *t) {
    int64_t count = t->source->count;
    if (!zonal__training_given(t, "batch") && count >= 2 && count < t->settings.batch)
        t->settings.batch = count;
}
