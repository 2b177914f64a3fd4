#include "report/flat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_read.h"
#include "core/memory.h"

static zonal_status read_value(zonal__flat *flat, zonal__json_reader *reader, const char *name);

static zonal_status add(zonal__flat *flat, const char *name, const char *text, double number) {
    zonal__flat_entry *entry;
    if (strlen(name) >= sizeof entry->name) return ZONAL_OK;
    if (flat->count == ZONAL__FLAT_MOST)
        return ZONAL_FAIL(ZONAL_FORMAT, "it has more than %d values", ZONAL__FLAT_MOST);
    ZONAL_TRY(ZONAL_GROW(&flat->entry, flat->count, &flat->room, "the values of a JSON text"));
    entry = &flat->entry[flat->count++];
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->text = text;
    entry->number = number;
    return ZONAL_OK;
}

/* The reader checks the grammar; what it passed over is then a number or one of three words. */
static zonal_status read_scalar(zonal__flat *flat, zonal__json_reader *reader, const char *name) {
    const char *start = reader->at;
    char digits[64];
    size_t length;
    double number = NAN;
    ZONAL_TRY(zonal__json_read_skip(reader));
    length = (size_t)(reader->at - start);
    snprintf(digits, sizeof digits, "%.*s", length < 63 ? (int)length : 63, start);
    if (digits[0] == 't' || digits[0] == 'f')
        number = digits[0] == 't';
    else if (digits[0] != 'n')
        number = strtod(digits, NULL);
    return add(flat, name, NULL, number);
}

static zonal_status read_members(zonal__flat *flat, zonal__json_reader *reader, char bracket,
                                 const char *name) {
    char inner[128], number[24];
    const char *key = number;
    int more;
    ZONAL_TRY(zonal__json_read_begin(reader, bracket));
    for (int64_t i = 0;; i++) {
        ZONAL_TRY(zonal__json_read_more(reader, bracket == '{' ? '}' : ']', &more));
        if (!more) return ZONAL_OK;
        snprintf(number, sizeof number, "%lld", (long long)i);
        if (bracket == '{') ZONAL_TRY(zonal__json_read_key(reader, &key));
        /* What does not fit is longer than any name of an entry, and so is all below it. */
        snprintf(inner, sizeof inner, "%s%s%s", name, name[0] ? "." : "", key);
        reader->at += strspn(reader->at, " \n\t\r");
        if (bracket == '[' && *reader->at != '{')
            ZONAL_TRY(zonal__json_read_skip(reader));
        else
            ZONAL_TRY(read_value(flat, reader, inner));
    }
}

static zonal_status read_value(zonal__flat *flat, zonal__json_reader *reader, const char *name) {
    const char *text;
    reader->at += strspn(reader->at, " \n\t\r");
    switch (*reader->at) {
    case '{':
    case '[':
        return read_members(flat, reader, *reader->at, name);
    case '"':
        ZONAL_TRY(zonal__json_read_text(reader, &text));
        return add(flat, name, text, NAN);
    default:
        return read_scalar(flat, reader, name);
    }
}

zonal_status zonal__flat_read(zonal__flat *flat, char *text, size_t length, const char *name) {
    zonal__json_reader reader;
    flat->count = 0;
    zonal__json_reader_init(&reader, text, length, name);
    ZONAL_TRY(read_members(flat, &reader, '{', ""));
    return zonal__json_read_end(&reader);
}

void zonal__flat_fini(zonal__flat *flat) {
    zonal__free(flat->entry);
    *flat = (zonal__flat){0};
}

static const zonal__flat_entry *find(const zonal__flat *flat, const char *name) {
    for (int64_t i = 0; i < flat->count; i++)
        if (strcmp(flat->entry[i].name, name) == 0) return &flat->entry[i];
    return NULL;
}

const char *zonal__flat_text(const zonal__flat *flat, const char *name) {
    const zonal__flat_entry *entry = find(flat, name);
    return entry ? entry->text : NULL;
}

double zonal__flat_number(const zonal__flat *flat, const char *name) {
    const zonal__flat_entry *entry = find(flat, name);
    return entry && !entry->text ? entry->number : NAN;
}

void zonal__flat_protocol(const zonal__flat *flat, const char *prefix, char *out, size_t size) {
    char name[160];
    const char *protocol, *features;
    snprintf(name, sizeof name, "%sprotocol", prefix);
    protocol = zonal__flat_text(flat, name);
    snprintf(name, sizeof name, "%sfeatures", prefix);
    features = zonal__flat_text(flat, name);
    if (!features) features = zonal__flat_text(flat, "features");
    out[0] = '\0';
    if (protocol) snprintf(out, size, "%.40s.%.24s.", protocol, features ? features : "backbone");
}
