#include "train/preprocessing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE, AUGMENTATION, CROP, MEAN, STD };
const char *const zonal__preprocessing_names[ZONAL__PREPROCESSING_NOTES] = {"side", "augmentation",
                                                                            "crop", "mean", "std"};

/* With as few digits as read back to the same float. */
static int put_float(char *out, size_t size, float value) {
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    return snprintf(out, size, "%s", text);
}

/* One number where all are the same. */
static void put_channels(const float value[3], int channels, char out[ZONAL__PREPROCESSING_TEXT]) {
    const int same = channels == 1 || (value[0] == value[1] && value[1] == value[2]);
    int used = put_float(out, ZONAL__PREPROCESSING_TEXT, value[0]);
    for (int c = 1; c < 3 && !same; c++) {
        out[used++] = ',';
        used += put_float(out + used, (size_t)(ZONAL__PREPROCESSING_TEXT - used), value[c]);
    }
}

void zonal__preprocessing_of_run(const zonal__training *t, zonal__preprocessing *out) {
    const zonal__train_settings *s = &t->settings;
    const int texture = s->augmentation == ZONAL__AUGMENTATION_TEXTURE;
    float mean[3], std[3];
    memset(out, 0, sizeof *out);
    zonal__training_normalisation(t, mean, std);
    snprintf(out->text[SIDE], ZONAL__PREPROCESSING_TEXT, "%d", zonal__training_eval_side(t));
    snprintf(out->text[AUGMENTATION], ZONAL__PREPROCESSING_TEXT, texture ? "texture" : "byol");
    if (texture || s->crop != ZONAL__EVAL_CROP_AUTO)
        snprintf(out->text[CROP], ZONAL__PREPROCESSING_TEXT,
                 texture || s->crop == ZONAL__EVAL_CROP_WHOLE ? "whole" : "center");
    put_channels(mean, (int)s->source.channels, out->text[MEAN]);
    put_channels(std, (int)s->source.channels, out->text[STD]);
}

void zonal__preprocessing_of_views(const zonal__training *t, zonal__preprocessing *out) {
    zonal__preprocessing_of_run(t, out);
    snprintf(out->text[SIDE], ZONAL__PREPROCESSING_TEXT, "%" PRId64, t->settings.side);
}

static int is_meant(int which, const char *text) {
    const size_t length = strlen(text);
    if (length == 0 || length >= ZONAL__PREPROCESSING_TEXT) return 0;
    if (which == AUGMENTATION) return strcmp(text, "byol") == 0 || strcmp(text, "texture") == 0;
    if (which == CROP) return strcmp(text, "center") == 0 || strcmp(text, "whole") == 0;
    return strspn(text, which == SIDE ? "0123456789" : "0123456789.,+-e") == length;
}

zonal_status zonal__preprocessing_of_file(const zonal__safetensors *file,
                                          zonal__preprocessing *out) {
    memset(out, 0, sizeof *out);
    for (int i = 0; i < ZONAL__PREPROCESSING_NOTES; i++) {
        char key[32];
        const char *text;
        snprintf(key, sizeof key, "zonal.%s", zonal__preprocessing_names[i]);
        text = zonal__safetensors_note_text(file, key);
        if (!text) continue;
        if (!is_meant(i, text))
            return ZONAL_FAIL(ZONAL_FORMAT,
                              "the metadata of %s say \"%.60s\" for %s, which makes no sense; "
                              "export the weights again",
                              file->path, text, key);
        memcpy(out->text[i], text, strlen(text) + 1);
    }
    return ZONAL_OK;
}

const char *zonal__preprocessing_get(const zonal__preprocessing *p, const char *name) {
    for (int i = 0; i < ZONAL__PREPROCESSING_NOTES; i++)
        if (strcmp(zonal__preprocessing_names[i], name) == 0) return p->text[i];
    return "";
}

void zonal__preprocessing_describe(const zonal__preprocessing *p,
                                   char out[ZONAL__PREPROCESSING_SENTENCE]) {
    snprintf(out, ZONAL__PREPROCESSING_SENTENCE, "%s px, %s, mean %s, std %s", p->text[SIDE],
             p->text[CROP], p->text[MEAN], p->text[STD]);
}
