/*
 * Configuration files, writing: the effective values of an option table, with their sources, or
 * without them, to compare with later.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"
#include "core/memory.h"

enum { COMMENT_COLUMN = 40 };

typedef struct page {
    char *text; /* NULL while only counting */
    size_t length, line_start;
} page;

static void put(page *p, const char *text) {
    size_t count = strlen(text);
    if (p->text) memcpy(p->text + p->length, text, count);
    p->length += count;
}

static void put_quoted(page *p, const char *text) {
    static const char letters[] = "\"\\btnfr", meanings[] = "\"\\\b\t\n\f\r";
    put(p, "\"");
    for (; *text; text++) {
        const char *found = strchr(meanings, *text);
        char escape[8] = {*text, '\0'};
        if (found)
            snprintf(escape, sizeof escape, "\\%c", letters[found - meanings]);
        else if ((unsigned char)*text < ' ' || *text == 127)
            snprintf(escape, sizeof escape, "\\u%04X", (unsigned)(unsigned char)*text);
        put(p, escape);
    }
    put(p, "\"");
}

/* With as few digits as read back to the same bits. */
static void put_double(page *p, double value) {
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    put(p, text);
}

static void put_value(page *p, const zonal__options *options, int i) {
    const zonal__option *option = &options->table[i];
    const void *target = (const char *)options->values + option->target;
    zonal__scale scale;
    double number;
    char text[24];
    switch (option->type) {
    case ZONAL__OPTION_FLAG:
        put(p, *(const int *)target ? "true" : "false");
        break;
    case ZONAL__OPTION_INT:
        snprintf(text, sizeof text, "%" PRId64, *(const int64_t *)target);
        put(p, text);
        break;
    /* By their texts, since several options may share one target; one that was settled has none. */
    case ZONAL__OPTION_DOUBLE:
        if (zonal__text_double(options->state[i].text, "", &number) != ZONAL_OK)
            number = *(const double *)target;
        put_double(p, number);
        break;
    case ZONAL__OPTION_SCALE:
        if (zonal__text_scale(options->state[i].text, "", &scale) == ZONAL_OK && scale.power == 0)
            put_double(p, scale.factor);
        else
            put_quoted(p, options->state[i].text);
        break;
    default:
        put_quoted(p, options->state[i].text);
    }
}

/* What was asked for, where the value is another one; NULL: it is that. */
static const char *settled_from(const zonal__options *options, int i) {
    const zonal__option_state *state = &options->state[i];
    const void *target = (const char *)options->values + options->table[i].target;
    int64_t asked;
    if (state->note || options->table[i].type != ZONAL__OPTION_INT) return state->note;
    if (zonal__text_int64(state->text, "", &asked) != ZONAL_OK) return NULL;
    return asked == *(const int64_t *)target ? NULL : state->text;
}

static const char by[] = " by ";

int zonal__config_is_settled(const char *comment) {
    const char *end = strstr(comment, by), *quote = strchr(comment, '"');
    return end && !(quote && quote < end);
}

static void put_source(page *p, const zonal__options *options, int i) {
    const zonal__option_state *state = &options->state[i];
    const char *settled = settled_from(options, i);
    char text[512] = "";
    size_t used = 0;
    if (settled) used = (size_t)snprintf(text, sizeof text, "%.120s%s", settled, by);
    if (state->source == ZONAL__SOURCE_DEFAULT)
        snprintf(text + used, sizeof text - used, "default");
    else if (state->source == ZONAL__SOURCE_FILE)
        snprintf(text + used, sizeof text - used,
                 strstr(state->file, by) ? "\"%.250s\":%d" : "%.250s:%d", state->file, state->line);
    else
        snprintf(text + used, sizeof text - used, "--%s%.60s",
                 options->table[i].type == ZONAL__OPTION_FLAG && state->text[0] == 'n' ? "no-" : "",
                 options->table[i].name);
    for (char *c = text; *c; c++) /* a comment holds UTF-8 without control characters */
        if (zonal__text_utf8(c) == 0 || (unsigned char)*c < ' ' || *c == 127)
            *c = '?';
        else
            c += zonal__text_utf8(c) - 1;
    do put(p, " ");
    while (p->length - p->line_start < COMMENT_COLUMN);
    put(p, "# ");
    put(p, text);
}

static int is_written(const zonal__options *options, int i) {
    const zonal__option *option = &options->table[i];
    return options->state[i].source != ZONAL__SOURCE_NONE &&
           !(option->rules & ZONAL__OPTION_LINE) && option->type != ZONAL__OPTION_ASSIGN;
}

/* What a page is to hold. */
typedef struct content {
    const zonal__options *options;
    zonal__config_filter *left_out;
    int sources; /* 1: in comments */
} content;

static int is_in(const content *c, int i) {
    return is_written(c->options, i) && !(c->left_out && c->left_out(c->options->table[i].name));
}

static void put_page(page *p, const content *c) {
    for (int i = 0; c->options->table[i].name; i++) {
        if (!is_in(c, i)) continue;
        p->line_start = p->length;
        put(p, c->options->table[i].name);
        put(p, " = ");
        put_value(p, c->options, i);
        if (c->sources) put_source(p, c->options, i);
        put(p, "\n");
    }
}

static zonal_status check_texts(const zonal__options *options) {
    for (int i = 0; options->table[i].name; i++) {
        if (!is_written(options, i)) continue;
        for (const char *at = options->state[i].text; *at; at += zonal__text_utf8(at))
            if (zonal__text_utf8(at) == 0)
                return ZONAL_FAIL(ZONAL_ARGUMENT,
                                  "the value of --%s is not UTF-8, so no configuration file can "
                                  "hold it; rename what it names",
                                  options->table[i].name);
    }
    return ZONAL_OK;
}

static zonal_status make_page(const content *c, char **out) {
    page p = {0};
    *out = NULL;
    ZONAL_TRY(check_texts(c->options));
    put_page(&p, c);
    ZONAL_TRY(ZONAL_NEW(out, p.length + 1, "the configuration's text"));
    p = (page){.text = *out};
    put_page(&p, c);
    return ZONAL_OK;
}

zonal_status zonal__config_dump(const zonal__options *options, char **out) {
    return make_page(&(content){.options = options, .sources = 1}, out);
}

/* ---- comparing ------------------------------------------------------------------------------- */

zonal_status zonal__config_values(const zonal__options *options, zonal__config_filter *left_out,
                                  char **out) {
    return make_page(&(content){.options = options, .left_out = left_out}, out);
}

typedef struct span {
    const char *at;
    size_t length;
} span;

static int same(span a, span b) {
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

/* The next line of a text of such lines, "key = value"; 0 at its end. */
static int next_line(const char **at, span *key, span *value) {
    const char *start = *at, *end = start + strcspn(start, "\n"), *equals = strstr(start, " = ");
    if (!*start) return 0;
    *at = end + (*end == '\n');
    if (!equals || equals >= end) equals = end;
    *key = (span){start, (size_t)(equals - start)};
    *value = (span){equals, 0};
    if (equals < end) *value = (span){equals + 3, (size_t)(end - equals - 3)};
    return 1;
}

/* The value of a key in such a text; 0: it has none. */
static int find_value(const char *text, span wanted, span *value) {
    span key;
    while (next_line(&text, &key, value))
        if (same(key, wanted)) return 1;
    *value = (span){text, 0};
    return 0;
}

static void set_change(zonal__config_change *change, span key, span before, span now) {
    snprintf(change->name, sizeof change->name, "%.*s", (int)key.length, key.at);
    snprintf(change->before, sizeof change->before, "%.*s", (int)before.length, before.at);
    snprintf(change->now, sizeof change->now, "%.*s", (int)now.length, now.at);
}

static int differs(const content *c, const char *before, const char *now,
                   zonal__config_change *change) {
    span key, old, new;
    for (const char *at = now; next_line(&at, &key, &new);) {
        int there = find_value(before, key, &old);
        if (there && same(old, new)) continue;
        set_change(change, key, old, new);
        if (there || zonal__options_source(c->options, change->name) != ZONAL__SOURCE_DEFAULT)
            return 1;
    }
    for (const char *at = before; next_line(&at, &key, &old);) {
        if (find_value(now, key, &new)) continue;
        set_change(change, key, old, new);
        if (!(c->left_out && c->left_out(change->name))) return 1;
    }
    return 0;
}

zonal_status zonal__config_compare(const zonal__options *options, zonal__config_filter *left_out,
                                   const char *before, zonal__config_change *change, int *found) {
    const content c = {.options = options, .left_out = left_out};
    char *now;
    *found = 0;
    ZONAL_TRY(make_page(&c, &now));
    *found = differs(&c, before, now, change);
    zonal__free(now);
    return ZONAL_OK;
}
