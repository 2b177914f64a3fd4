#include "reproduce/assignments.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/options.h"

zonal_status zonal__assign(zonal__assignments *list, const char *key, const char *value) {
    int place = 0, order = 1;
    if (strlen(key) >= ZONAL__ASSIGNMENT_KEY || strlen(value) >= ZONAL__ASSIGNMENT_VALUE)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%.60s=%.60s... is too long; shorten it", key, value);
    while (place < list->count && (order = strcmp(list->at[place].key, key)) < 0) place++;
    if (place == list->count) order = 1;
    if (order != 0) {
        if (list->count == ZONAL__ASSIGNMENTS)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "at most %d options can be set, and %.60s is more",
                              ZONAL__ASSIGNMENTS, key);
        memmove(&list->at[place + 1], &list->at[place],
                (size_t)(list->count++ - place) * sizeof list->at[0]);
    }
    snprintf(list->at[place].key, ZONAL__ASSIGNMENT_KEY, "%s", key);
    snprintf(list->at[place].value, ZONAL__ASSIGNMENT_VALUE, "%s", value);
    return ZONAL_OK;
}

static zonal_status set(void *list, const char *name, const char *text) {
    return zonal__assign(list, name, text);
}

zonal_status zonal__assign_text(zonal__assignments *list, const char *text, char separator) {
    const char *seen[ZONAL__OPTIONS_MOST + 1];
    char *commas = NULL, *copy = NULL;
    size_t length = strlen(text);
    zonal_status status = ZONAL_NEW(&commas, length + 1, "a list of options");
    if (status == ZONAL_OK) {
        memcpy(commas, text, length);
        for (char *c = commas; *c; c++)
            if (*c == separator) *c = ',';
        status = zonal__options_set_text(commas, set, list, seen, &copy);
    }
    zonal__free(copy);
    zonal__free(commas);
    return status;
}

static void drop(zonal__assignments *list, const char *key) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->at[i].key, key) == 0) {
            memmove(&list->at[i], &list->at[i + 1],
                    (size_t)(--list->count - i) * sizeof list->at[0]);
            return;
        }
}

zonal_status zonal__assign_all(zonal__assignments *list, const zonal__assignments *other) {
    if (zonal__assigned(other, "epochs")) drop(list, "steps");
    if (zonal__assigned(other, "steps")) drop(list, "epochs");
    for (int i = 0; i < other->count; i++)
        ZONAL_TRY(zonal__assign(list, other->at[i].key, other->at[i].value));
    return ZONAL_OK;
}

const char *zonal__assigned(const zonal__assignments *list, const char *key) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->at[i].key, key) == 0) return list->at[i].value;
    return NULL;
}

zonal_status zonal__assignments_text(const zonal__assignments *list, char separator, char **out) {
    size_t room = 1, length = 0;
    for (int i = 0; i < list->count; i++)
        room += strlen(list->at[i].key) + strlen(list->at[i].value) + 2;
    ZONAL_TRY(ZONAL_NEW(out, room, "a list of options"));
    for (int i = 0; i < list->count; i++) {
        int written =
            snprintf(*out + length, room - length, "%s=%s", list->at[i].key, list->at[i].value);
        length += (size_t)written;
        if (i + 1 < list->count) (*out)[length++] = separator;
    }
    return ZONAL_OK;
}
