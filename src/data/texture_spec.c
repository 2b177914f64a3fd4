/* The settings of textures (texture.h): names, ranges, defaults, and reading them from text. */
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/checksum.h"
#include "core/text.h"
#include "data/texture.h"

static const char *const family_names[] = {"cloud", "disk", "flake", "wood", NULL};

typedef struct setting {
    const char *name;
    size_t at; /* in the spec */
    enum { WHOLE, REAL } kind;
    double least, most;
} setting;

#define SETTING(name, kind, least, most)                                                           \
    { #name, offsetof(zonal__texture_spec, name), kind, least, most }

enum { SETTINGS = 15 };
static const setting settings[SETTINGS] = {
    SETTING(size, WHOLE, 8, 4096),    SETTING(saturation, REAL, 0, 0.5),
    SETTING(alpha, REAL, 0.5, 2),     SETTING(radius, REAL, 0.5, 64),
    SETTING(arms, WHOLE, 3, 16),      SETTING(arm_width, REAL, 0.5, 64),
    SETTING(exponent, REAL, 0, 4),    SETTING(blur, REAL, 0, 64),
    SETTING(spacing, REAL, 2, 1024),  SETTING(line, REAL, 0.05, 0.9),
    SETTING(period, REAL, 2, 4096),   SETTING(stretch, REAL, 0.1, 10),
    SETTING(waviness, REAL, 0, 1024), SETTING(octaves, WHOLE, 1, 8),
    SETTING(roughness, REAL, 0, 1),
};

void zonal__texture_defaults(zonal__texture_family family, zonal__texture_spec *spec) {
    *spec = (zonal__texture_spec){
        .family = family,
        .size = 256,
        .saturation = 0.01,
        .alpha = 1,
        .radius = family == ZONAL__TEXTURE_FLAKE ? 12 : 5,
        .arms = 6,
        .arm_width = 5,
        .exponent = 1.5,
        .blur = 2,
        .spacing = 20,
        .line = 0.25,
        .period = 90,
        .stretch = 1,
        .waviness = 60,
        .octaves = 2,
        .roughness = 0.35,
    };
}

const char *zonal__texture_name(zonal__texture_family family) {
    return family_names[family];
}

int64_t zonal__texture_number(zonal__split split, int64_t i) {
    const int64_t val = (int64_t)1 << 40, test = (int64_t)1 << 41;
    if (split == ZONAL__SPLIT_VAL) return val + i;
    if (split == ZONAL__SPLIT_TEST) return test + i;
    if (split == ZONAL__SPLIT_TRAIN || i < ZONAL__TEXTURE_TRAIN_COUNT) return i;
    i -= ZONAL__TEXTURE_TRAIN_COUNT;
    return i < ZONAL__TEXTURE_VAL_COUNT ? val + i : test + i - ZONAL__TEXTURE_VAL_COUNT;
}

/* Cells below a pixel would be white noise, at the price of a lattice larger than the image. */
static zonal_status check_cells(const zonal__texture_spec *spec) {
    double cell = ldexp(spec->period * (spec->stretch < 1 ? spec->stretch : 1), 1 - spec->octaves);
    if (spec->family == ZONAL__TEXTURE_WOOD && cell < 1)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the last of %d octaves of wood has cells of %g pixels, below 1: take "
                          "fewer octaves or a longer period",
                          spec->octaves, cell);
    return ZONAL_OK;
}

static double value_of(const zonal__texture_spec *spec, const setting *s) {
    const char *at = (const char *)spec + s->at;
    return s->kind == WHOLE ? *(const int *)at : *(const double *)at;
}

uint64_t zonal__texture_fingerprint(const zonal__texture_spec *spec) {
    const uint64_t key[2] = {(uint64_t)spec->family, spec->seed};
    zonal__checksum sum;
    zonal__checksum_init(&sum);
    zonal__checksum_add(&sum, key, sizeof key);
    for (int i = 0; i < SETTINGS; i++) {
        double value = value_of(spec, &settings[i]);
        zonal__checksum_add(&sum, &value, sizeof value);
    }
    return zonal__checksum_value(&sum);
}

zonal_status zonal__texture_check(const zonal__texture_spec *spec) {
    if ((int)spec->family < 0 || (int)spec->family >= ZONAL__TEXTURE_FAMILIES)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a texture's family must be from 0 to %d, got %d",
                          ZONAL__TEXTURE_FAMILIES - 1, (int)spec->family);
    for (int i = 0; i < SETTINGS; i++) {
        const setting *s = &settings[i];
        double value = value_of(spec, s);
        if (!(value >= s->least && value <= s->most))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "a texture's %s must be from %g to %g, got %g",
                              s->name, s->least, s->most, value);
    }
    return check_cells(spec);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int find(const char *word, const char *const *names) {
    for (int i = 0; names[i]; i++)
        if (strcmp(word, names[i]) == 0) return i;
    return -1;
}

static zonal_status unknown(const char *what, const char *word, const char *const *names) {
    const char *nearest = zonal__text_nearest(word, names);
    char list[256] = ""; /* either list of names fits */
    size_t used = 0;
    for (int i = 0; names[i]; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    if (nearest)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "no texture %s \"%s\"; did you mean %s? (one of: %s)",
                          what, word, nearest, list);
    return ZONAL_FAIL(ZONAL_ARGUMENT, "no texture %s \"%s\"; it is one of: %s", what, word, list);
}

/* One NAME=VALUE; cuts "word" in two. */
static zonal_status set(char *word, zonal__texture_spec *spec) {
    const char *names[SETTINGS + 1] = {NULL};
    char *value = strchr(word, '=');
    int which;
    for (int i = 0; i < SETTINGS; i++) names[i] = settings[i].name;
    if (value) *value++ = '\0';
    which = find(word, names);
    if (which < 0) return unknown("setting", word, names);
    if (!value)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "texture setting %s has no value: write %s=NUMBER", word,
                          word);
    if (settings[which].kind == WHOLE) {
        int64_t whole;
        ZONAL_TRY(zonal__text_int64(value, word, &whole));
        if (whole > INT_MAX) whole = INT_MAX; /* as far out of range as the number itself */
        if (whole < INT_MIN) whole = INT_MIN;
        *(int *)((char *)spec + settings[which].at) = (int)whole;
        return ZONAL_OK;
    }
    return zonal__text_double(value, word, (double *)((char *)spec + settings[which].at));
}

zonal_status zonal__texture_parse(const char *text, zonal__texture_spec *spec) {
    char copy[512], *word = copy, *comma;
    int family = -1;
    if (strlen(text) >= sizeof copy)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a texture's settings must be shorter than %zu letters",
                          sizeof copy);
    strcpy(copy, text);
    do {
        comma = strchr(word, ',');
        if (comma) *comma = '\0';
        if (word == copy) {
            family = find(word, family_names);
            if (family < 0) return unknown("family", word, family_names);
            zonal__texture_defaults((zonal__texture_family)family, spec);
        } else {
            ZONAL_TRY(set(word, spec));
        }
        if (comma) word = comma + 1;
    } while (comma);
    return zonal__texture_check(spec);
}
