#include "core/sized.h"

#include <stdio.h>
#include <string.h>

enum { LARGEST = 1 << 16 }; /* more is memory that nobody has set */

static size_t size_of(const void *given) {
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

int zonal__is_zero(const void *bytes, size_t count) {
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < count; i++)
        if (byte[i]) return 0;
    return 1;
}

/* ZONAL_LOSS_OPTIONS for zonal_loss_options. */
static void capitals(const char *name, char *out, size_t size) {
    snprintf(out, size, "%s", name);
    for (; *out; out++)
        if (*out >= 'a' && *out <= 'z') *out = (char)(*out - 'a' + 'A');
}

zonal_status zonal__sized_check(zonal__sized type, const void *given) {
    size_t size = size_of(given);
    char name[64];
    if (size >= type.least && size <= LARGEST && size % sizeof size == 0) return ZONAL_OK;
    capitals(type.name, name, sizeof name);
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "a %s has size %zu, which no version of it has; begin with %s_INIT, or set "
                      "its size to sizeof(%s)",
                      type.name, size, name, type.name);
}

zonal_status zonal__sized_read(zonal__sized type, const void *given, void *full) {
    size_t size = size_of(given);
    ZONAL_TRY(zonal__sized_check(type, given));
    if (size > type.full && !zonal__is_zero((const char *)given + type.full, size - type.full))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a %s sets members that zonal %s does not know; install the version "
                          "that the program was built with",
                          type.name, zonal_version());
    memcpy(full, given, size < type.full ? size : type.full);
    memcpy(full, &type.full, sizeof type.full);
    return ZONAL_OK;
}

zonal_status zonal__sized_write(zonal__sized type, const void *full, void *out) {
    size_t size = size_of(out);
    ZONAL_TRY(zonal__sized_check(type, out));
    memcpy(out, full, size < type.full ? size : type.full);
    if (size > type.full) memset((char *)out + type.full, 0, size - type.full);
    memcpy(out, &size, sizeof size);
    return ZONAL_OK;
}
