/*
 * Configuration files, writing: the effective values of an option table, with their sources.
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
    const zonal__scale *scale = target;
    char text[24];
    switch (option->type) {
    case ZONAL__OPTION_FLAG:
        put(p, *(const int *)target ? "true" : "false");
        break;
    case ZONAL__OPTION_INT:
        snprintf(text, sizeof text, "%" PRId64, *(const int64_t *)target);
        put(p, text);
        break;
    case ZONAL__OPTION_DOUBLE:
        put_double(p, *(const double *)target);
        break;
    case ZONAL__OPTION_SCALE:
        if (scale->power == 0)
            put_double(p, scale->factor);
        else
            put_quoted(p, options->state[i].text);
        break;
    default:
        put_quoted(p, options->state[i].text);
    }
}

static void put_source(page *p, const zonal__options *options, int i) {
    const zonal__option_state *state = &options->state[i];
    char text[320];
    if (state->source == ZONAL__SOURCE_DEFAULT)
        snprintf(text, sizeof text, "default");
    else if (state->source == ZONAL__SOURCE_FILE)
        snprintf(text, sizeof text, "%.250s:%d", state->file, state->line);
    else
        snprintf(text, sizeof text, "--%s%.60s",
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

static void put_page(page *p, const zonal__options *options) {
    for (int i = 0; options->table[i].name; i++) {
        if (!is_written(options, i)) continue;
        p->line_start = p->length;
        put(p, options->table[i].name);
        put(p, " = ");
        put_value(p, options, i);
        put_source(p, options, i);
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

zonal_status zonal__config_dump(const zonal__options *options, char **out) {
    page p = {0};
    *out = NULL;
    ZONAL_TRY(check_texts(options));
    put_page(&p, options);
    ZONAL_TRY(ZONAL_NEW(out, p.length + 1, "the configuration's text"));
    p = (page){.text = *out};
    put_page(&p, options);
    return ZONAL_OK;
}
