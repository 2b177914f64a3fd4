#include "train/run_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/file_read.h"
#include "core/memory.h"
#include "core/text.h"

enum {
    MOST_NAMED = 3, /* differences in a sentence */
    MOST_SETTINGS = 1000
};

/* ---- the configuration ----------------------------------------------------------------------- */

/* Of a key that is there twice the first counts; zonal train would refuse the file. */
static zonal_status take_setting(void *context, const char *name, const char *value,
                                 const char *comment) {
    zonal__run_settings *settings = context;
    zonal__run_setting *setting;
    if (strlen(name) >= ZONAL__RUN_KEY || zonal__run_settings_of(settings, name)) return ZONAL_OK;
    if (settings->count == MOST_SETTINGS)
        return ZONAL_FAIL(ZONAL_FORMAT, "more than %d settings are not read: is it a run's file?",
                          MOST_SETTINGS);
    ZONAL_TRY(ZONAL_GROW(&settings->at, settings->count, &settings->room, "a run's settings"));
    setting = &settings->at[settings->count++];
    memcpy(setting->key, name, strlen(name) + 1);
    setting->value = value;
    setting->source = comment;
    return ZONAL_OK;
}

zonal_status zonal__run_settings_read(const char *path, zonal__run_settings *settings) {
    zonal_status status;
    *settings = (zonal__run_settings){0};
    status = zonal__config_list(path, take_setting, settings, &settings->config);
    if (status != ZONAL_OK) zonal__run_settings_fini(settings);
    return status;
}

void zonal__run_settings_fini(zonal__run_settings *settings) {
    zonal__free(settings->at);
    zonal__config_destroy(settings->config);
    *settings = (zonal__run_settings){0};
}

char *zonal__run_images_read(const char *folder) {
    static const size_t longest = (size_t)1 << 28;
    char path[4096 + 16], *text;
    size_t length;
    if (snprintf(path, sizeof path, "%s/data.txt", folder) >= (int)sizeof path) return NULL;
    return zonal__file_read(path, longest, &text, &length) == ZONAL_OK ? text : NULL;
}

static const zonal__run_setting *find(const zonal__run_settings *settings, const char *key) {
    for (int64_t i = 0; i < settings->count; i++)
        if (strcmp(settings->at[i].key, key) == 0) return &settings->at[i];
    return NULL;
}

const char *zonal__run_settings_of(const zonal__run_settings *settings, const char *key) {
    const zonal__run_setting *setting = find(settings, key);
    return setting ? setting->value : NULL;
}

/* ---- what differs ---------------------------------------------------------------------------- */

/* Not in this list, although the weights do not depend on them: eval and eval-..., on which "best"
 * and the curves of the evaluation on the way depend; on-collapse, which can end a run. */
int zonal__run_setting_counts(const char *key) {
    static const char *const names[] = {"seed", /* what makes samples of one thing */
                                        "threads",
                                        "workers",
                                        "data-location",
                                        "graph",
                                        "bucket-size", /* how fast */
                                        "device",      /* where; the precision counts */
                                        "log-every",
                                        "keep",
                                        "quiet",
                                        "checkpoint-every",
                                        "checkpoint-minutes", /* how often */
                                        "tensorboard",        /* what else is written */
                                        "out",
                                        "config",
                                        "autotune-cache"}; /* names of files */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(key, names[i]) == 0) return 0;
    return 1;
}

static int equal(const char *x, const char *y) {
    return x && y ? strcmp(x, y) == 0 : x == y;
}

/* Where the same images lie is no difference. */
static int is_path_of_images(const char *key) {
    return strcmp(key, "data") == 0 || strcmp(key, "class-list") == 0;
}

/* How a run came to its length where it was given another one on the way, as config.toml says it:
 * "--resume at step 30; 30 steps before". Its learning rates until then were those of the other
 * length. "" where the key is not what decides the length, or it was so from the first step. */
static const char *continued(const zonal__run_settings *settings, const char *key) {
    static const char said[] = "--resume at step ", from_start[] = "--resume at step 0;";
    const zonal__run_setting *steps = find(settings, "steps"), *setting = find(settings, key);
    const int by_steps = steps && strcmp(steps->value, "0") != 0;
    if (strcmp(key, by_steps ? "steps" : "epochs") != 0 || !setting) return "";
    if (strncmp(setting->source, from_start, sizeof from_start - 1) == 0) return "";
    return strncmp(setting->source, said, sizeof said - 1) == 0 ? setting->source : "";
}

/* Visits the keys of a and then those that b alone has: the i-th of them in which they differ. */
static const char *difference(const zonal__run_sample *p, const zonal__run_sample *q, int64_t i) {
    const zonal__run_settings *a = p->settings, *b = q->settings;
    const int same_images = p->images && q->images && strcmp(p->images, q->images) == 0;
    for (int64_t k = 0; k < a->count + b->count; k++) {
        const int second = k >= a->count;
        const char *key = second ? b->at[k - a->count].key : a->at[k].key;
        const char *x = zonal__run_settings_of(a, key), *y = zonal__run_settings_of(b, key);
        if ((second && x) || !zonal__run_setting_counts(key)) continue;
        if (equal(x, y) && strcmp(continued(a, key), continued(b, key)) == 0) continue;
        if (same_images && is_path_of_images(key)) continue;
        if (i-- == 0) return key;
    }
    return NULL;
}

static int are_samples_of_one(const zonal__run_sample *a, const zonal__run_sample *b) {
    return a->step == b->step && !difference(a, b, 0);
}

void zonal__run_group(int64_t count, const zonal__run_sample *runs, zonal__run_place *places) {
    for (int64_t i = 0; i < count; i++) {
        const char *seed = zonal__run_settings_of(runs[i].settings, "seed");
        places[i] = (zonal__run_place){.group = i};
        for (int64_t k = i - 1; k >= 0; k--) {
            if (!are_samples_of_one(&runs[k], &runs[i])) continue;
            places[i].group = places[k].group;
            if (equal(zonal__run_settings_of(runs[k].settings, "seed"), seed))
                places[i].repeats = 1;
        }
    }
}

static void append_value(const zonal__run_settings *settings, const char *key, char *out,
                         size_t size) {
    const char *value = zonal__run_settings_of(settings, key), *how = continued(settings, key);
    zonal__text_append(out, size, "%s%s%s", value ? value : "not given", how[0] ? " by " : "", how);
}

void zonal__run_difference(const zonal__run_sample *a, const zonal__run_sample *b, char *out,
                           size_t size) {
    const char *key;
    int64_t count = 0;
    out[0] = '\0';
    for (; (key = difference(a, b, count)); count++) {
        if (count >= MOST_NAMED) continue;
        zonal__text_append(out, size, "%s%s (", count ? ", " : "", key);
        append_value(a->settings, key, out, size);
        zonal__text_append(out, size, " and ");
        append_value(b->settings, key, out, size);
        zonal__text_append(out, size, ")");
    }
    if (count > MOST_NAMED)
        zonal__text_append(out, size, " and %" PRId64 " more settings", count - MOST_NAMED);
    if (a->step != b->step)
        zonal__text_append(out, size, "%sthe steps done (%" PRId64 " and %" PRId64 ")",
                           count ? ", " : "", a->step, b->step);
}
