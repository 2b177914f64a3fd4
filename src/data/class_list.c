#include "data/class_list.h"

#include <string.h>

#include "core/file_read.h"
#include "core/memory.h"
#include "core/text.h"

enum { LONGEST_LIST = 1 << 20 };

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reader {
    const char *path, *owner, *is;
    const zonal__names *known;
    zonal__names *chosen;
} reader;

static const char *find_name(const zonal__names *names, const char *name) {
    for (int64_t i = 0; i < names->count; i++)
        if (strcmp(names->at[i], name) == 0) return names->at[i];
    return NULL;
}

static zonal_status fail_unknown(const reader *r, const char *word) {
    const char *near = r->known->count > 0 ? zonal__text_nearest(word, r->known->at) : NULL;
    return ZONAL_FAIL(ZONAL_FORMAT, "%s names class %s, but %s has no such %s%s%s%s", r->path, word,
                      r->owner, r->is, near ? "; did you mean " : "", near ? near : "",
                      near ? "?" : "");
}

static zonal_status take_line(const reader *r, char *line) {
    static const char blanks[] = " \t\r";
    char *word = line + strspn(line, blanks);
    size_t length = strlen(word);
    const char *name;
    while (length > 0 && strchr(blanks, word[length - 1])) word[--length] = '\0';
    if (length == 0 || word[0] == '#') return ZONAL_OK;
    name = find_name(r->known, word);
    if (!name) {
        word[strcspn(word, blanks)] = '\0';
        name = find_name(r->known, word);
    }
    if (!name) return fail_unknown(r, word);
    if (find_name(r->chosen, name))
        return ZONAL_FAIL(ZONAL_FORMAT, "%s names class %s twice; remove one", r->path, name);
    return zonal__names_add(r->chosen, name);
}

static zonal_status take_lines(const reader *r, char *text, size_t length) {
    if (memchr(text, 0, length))
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s has a byte of 0, so it is no text; write one class per line",
                          r->path);
    text = zonal__text_behind_mark(text);
    while (text[0]) {
        char *line = text;
        size_t end = strcspn(text, "\n");
        text += end + (text[end] == '\n');
        line[end] = '\0';
        ZONAL_TRY(take_line(r, line));
    }
    if (r->chosen->count > 0) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_FORMAT, "%s names no class; write one %s name of %s per line", r->path,
                      r->is, r->owner);
}

zonal_status zonal__class_list_read(const char *path, const char *owner, const char *is,
                                    const zonal__names *known, zonal__names *chosen) {
    const reader r = {path, owner, is, known, chosen};
    char *text;
    size_t length;
    zonal_status status;
    ZONAL_TRY(zonal__file_read(path, LONGEST_LIST, &text, &length));
    status = take_lines(&r, text, length);
    zonal__free(text);
    return status;
}

/* ---- applying -------------------------------------------------------------------------------- */

/* The number of each class in the list; -1: not in it. */
static void number_classes(const zonal__names *known, const zonal__names *chosen, int32_t *number) {
    for (int64_t i = 0; i < known->count; i++) {
        number[i] = -1;
        for (int64_t k = 0; k < chosen->count; k++)
            if (chosen->at[k] == known->at[i]) number[i] = (int32_t)k;
    }
}

static zonal_status select_numbered(zonal__source *source, const int32_t *number, int may_be_empty,
                                    const char *path) {
    int64_t *keep, kept = 0;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&keep, source->count, "the images of a class list"));
    for (int64_t i = 0; i < source->count; i++)
        if (number[source->labels[i]] >= 0) keep[kept++] = i;
    status = kept > 0 || may_be_empty
                 ? zonal__source_select(source, kept, keep)
                 : ZONAL_FAIL(ZONAL_FORMAT, "%s has no image of the classes in %s; name others",
                              source->path, path);
    zonal__free(keep);
    if (status != ZONAL_OK) return status;
    for (int64_t i = 0; i < kept; i++) source->labels[i] = number[source->labels[i]];
    return ZONAL_OK;
}

/* The names of classes that the list leaves out are released. */
static zonal_status take_names(zonal__source *source, const int32_t *number, int chosen) {
    char **names;
    ZONAL_TRY(ZONAL_NEW(&names, chosen, "the classes"));
    for (int i = 0; i < source->classes; i++)
        if (number[i] >= 0)
            names[number[i]] = source->class_names[i];
        else
            zonal__free(source->class_names[i]);
    zonal__free(source->class_names);
    source->class_names = names;
    source->classes = chosen;
    return ZONAL_OK;
}

static zonal_status apply(zonal__source *source, const zonal__source_options *options,
                          zonal__names *known, zonal__names *chosen) {
    int32_t *number;
    zonal_status status;
    for (int i = 0; i < source->classes; i++)
        ZONAL_TRY(zonal__names_add(known, source->class_names[i]));
    ZONAL_TRY(zonal__class_list_read(options->class_list, source->path, "class", known, chosen));
    ZONAL_TRY(ZONAL_NEW(&number, known->count, "the classes of a list"));
    number_classes(known, chosen, number);
    status = select_numbered(source, number, options->strict_split, options->class_list);
    if (status == ZONAL_OK) status = take_names(source, number, (int)chosen->count);
    zonal__free(number);
    return status;
}

zonal_status zonal__class_list_apply(zonal__source *source, const zonal__source_options *options) {
    zonal__names known = {0}, chosen = {0};
    zonal_status status;
    if (!source->class_names || !source->labels)
        return ZONAL_FAIL(
            ZONAL_ARGUMENT,
            "--class-list chooses classes by their names, and %s has %s; leave it out",
            source->path, source->labels ? "classes with numbers only" : "no classes");
    status = apply(source, options, &known, &chosen);
    zonal__names_fini(&known);
    zonal__names_fini(&chosen);
    return status;
}
