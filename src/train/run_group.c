#include "train/run_group.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/file_read.h"
#include "core/memory.h"

enum { MOST_NAMED = 3 }; /* differences in a sentence */
static const size_t LONGEST_CONFIG = (size_t)1 << 20;

/* ---- the configuration ----------------------------------------------------------------------- */

static char *trim(char *text) {
    size_t length;
    text += strspn(text, " \t\r");
    length = strlen(text);
    while (length > 0 && strchr(" \t\r", text[length - 1])) text[--length] = '\0';
    return text;
}

/* Takes the quotes off a text, where it stands, and returns what follows it. \" and \\ become what
 * they stand for; other escapes are shown as they are written. */
static char *unquote(char *text) {
    char *out = text, *at = text + 1;
    for (; *at && *at != '"'; at++) {
        if (*at == '\\' && (at[1] == '"' || at[1] == '\\')) at++;
        *out++ = *at;
    }
    at += *at == '"';
    *out = '\0';
    return at;
}

/* key = value  # source. Returns 0 for a line without a setting. */
static int read_setting(char *line, zonal__run_setting *setting) {
    char *value = strchr(line, '='), *rest;
    line = trim(line);
    if (line[0] == '#' || line[0] == '[' || !value || value == line) return 0;
    *value++ = '\0';
    value += strspn(value, " \t");
    rest = *value == '"' ? unquote(value) : value;
    rest += strcspn(rest, "#");
    setting->source = *rest ? trim(rest + 1) : "";
    *rest = '\0';
    setting->key = trim(line);
    setting->value = trim(value);
    return 1;
}

zonal_status zonal__run_settings_read(const char *path, zonal__run_settings *settings) {
    size_t length;
    int64_t lines = 1;
    zonal_status status;
    *settings = (zonal__run_settings){0};
    ZONAL_TRY(zonal__file_read(path, LONGEST_CONFIG, &settings->text, &length));
    for (size_t i = 0; i < length; i++) lines += settings->text[i] == '\n';
    status = ZONAL_NEW(&settings->at, lines, "a run's settings");
    if (status != ZONAL_OK) {
        zonal__run_settings_fini(settings);
        return status;
    }
    for (char *line = settings->text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        settings->count += read_setting(line, &settings->at[settings->count]);
    }
    return ZONAL_OK;
}

void zonal__run_settings_fini(zonal__run_settings *settings) {
    zonal__free(settings->at);
    zonal__free(settings->text);
    *settings = (zonal__run_settings){0};
}

const char *zonal__run_settings_of(const zonal__run_settings *settings, const char *key) {
    for (int64_t i = 0; i < settings->count; i++)
        if (strcmp(settings->at[i].key, key) == 0) return settings->at[i].value;
    return NULL;
}

/* ---- what differs ---------------------------------------------------------------------------- */

/* Not in this list, although the weights do not depend on them: eval and eval-..., on which "best"
 * and the curves of the evaluation on the way depend; on-collapse, which can end a run. */
int zonal__run_setting_counts(const char *key) {
    static const char *const names[] = {
        "seed",                                       /* what makes samples of one thing */
        "threads",   "workers", "residence", "graph", /* how fast */
        "device",                                     /* where; the precision counts */
        "log-every", "keep",    "quiet",     "checkpoint-every", /* how often */
        "out",       "config",  "choices"};                      /* names of files */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(key, names[i]) == 0) return 0;
    return 1;
}

static int equal(const char *x, const char *y) {
    return x && y ? strcmp(x, y) == 0 : x == y;
}

/* Visits the keys of a and then those that b alone has: the i-th of them in which they differ. */
static const char *difference(const zonal__run_settings *a, const zonal__run_settings *b,
                              int64_t i) {
    for (int64_t k = 0; k < a->count + b->count; k++) {
        const int second = k >= a->count;
        const char *key = second ? b->at[k - a->count].key : a->at[k].key;
        const char *x = zonal__run_settings_of(a, key), *y = zonal__run_settings_of(b, key);
        if ((second && x) || !zonal__run_setting_counts(key) || equal(x, y)) continue;
        if (i-- == 0) return key;
    }
    return NULL;
}

static int are_samples_of_one(const zonal__run_sample *a, const zonal__run_sample *b) {
    return a->step == b->step && !difference(a->settings, b->settings, 0);
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

/* What has no room is cut off. */
__attribute__((format(printf, 4, 5))) static void append(char *out, size_t size, size_t *used,
                                                         const char *format, ...) {
    va_list arguments;
    int length;
    if (*used >= size) return;
    va_start(arguments, format);
    length = vsnprintf(out + *used, size - *used, format, arguments);
    va_end(arguments);
    *used += length > 0 ? (size_t)length : 0;
}

void zonal__run_difference(const zonal__run_sample *a, const zonal__run_sample *b, char *out,
                           size_t size) {
    const char *key;
    size_t used = 0;
    int64_t count = 0;
    out[0] = '\0';
    for (; (key = difference(a->settings, b->settings, count)); count++) {
        const char *x = zonal__run_settings_of(a->settings, key);
        const char *y = zonal__run_settings_of(b->settings, key);
        if (count >= MOST_NAMED) continue;
        append(out, size, &used, "%s%s (%s and %s)", count ? ", " : "", key, x ? x : "not given",
               y ? y : "not given");
    }
    if (count > MOST_NAMED)
        append(out, size, &used, " and %" PRId64 " more settings", count - MOST_NAMED);
    if (a->step != b->step)
        append(out, size, &used, "%sthe steps done (%" PRId64 " and %" PRId64 ")",
               count ? ", " : "", a->step, b->step);
}
