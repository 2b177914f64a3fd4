/* Options as one text: options.h. */
#include <string.h>

#include "core/memory.h"
#include "core/options.h"

/* Where the value at "text" ends: at its end, or at a comma before the next name=. What has no =
 * belongs to the list before it. */
static char *value_end(char *text) {
    char *comma = strchr(text, ',');
    for (; comma; comma = strchr(comma + 1, ',')) {
        size_t length = strcspn(comma + 1, ",=");
        if (comma[1 + length] == '=') return comma;
    }
    return text + strlen(text);
}

static char *trim(char *text) {
    size_t length;
    text += strspn(text, " \t\n");
    length = strlen(text);
    while (length > 0 && strchr(" \t\n", text[length - 1])) length--;
    text[length] = '\0';
    return text;
}

static zonal_status note_name(const char *seen[ZONAL__OPTIONS_MOST + 1], const char *name) {
    int count = 0;
    for (; seen[count]; count++)
        if (strcmp(seen[count], name) == 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "%s is given twice; leave one out", name);
    seen[count] = name; /* names are known and differ, so there is room */
    return ZONAL_OK;
}

/* "t=5/d,precision=fp32": cuts the text up and sets one after the other. */
static zonal_status set_all(char *text, zonal__option_setter *set, void *options,
                            const char *seen[ZONAL__OPTIONS_MOST + 1]) {
    char *at = trim(text), *equals, *end, *name;
    while (*at) {
        int last;
        equals = strchr(at, '=');
        if (!equals)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "options are written name=value, with commas between them, as in "
                              "t=5/d,precision=fp32; got \"%.60s\"",
                              at);
        end = value_end(equals + 1);
        last = *end == '\0';
        *equals = *end = '\0';
        name = trim(at);
        ZONAL_TRY(set(options, name, trim(equals + 1)));
        ZONAL_TRY(note_name(seen, name));
        at = last ? end : end + 1;
    }
    return ZONAL_OK;
}

zonal_status zonal__options_set_text(const char *text, zonal__option_setter *set, void *options,
                                     const char *seen[ZONAL__OPTIONS_MOST + 1], char **copy) {
    size_t length = text ? strlen(text) : 0;
    memset(seen, 0, (ZONAL__OPTIONS_MOST + 1) * sizeof *seen);
    ZONAL_TRY(ZONAL_NEW(copy, (int64_t)length + 1, "the options' text"));
    if (length > 0) memcpy(*copy, text, length);
    return set_all(*copy, set, options, seen);
}
