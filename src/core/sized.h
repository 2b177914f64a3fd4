/*
 * Structs of the public headers that begin with their size, so that they can grow: a program that
 * was built with fewer members, or with more, works with this library.
 *
 *     zonal_loss_options full = ...;                       the defaults
 *     ZONAL_TRY(zonal__sized_read(ZONAL__SIZED(zonal_loss_options, kernel), given, &full));
 *     ...
 *     return zonal__sized_write(ZONAL__SIZED(zonal_plan_info, bias), &full, info);
 *
 * Of the caller's struct no more than its own size is touched. Members that it lacks keep what
 * "full" holds; members that the library lacks are zeroed on writing, and on reading must be zero,
 * which means their default.
 */
#ifndef ZONAL_CORE_SIZED_H
#define ZONAL_CORE_SIZED_H

#include <stddef.h>

#include "core/error.h"

typedef struct zonal__sized {
    const char *name;   /* of the type */
    size_t full, least; /* its size here, and the least that any version has */
} zonal__sized;

/* "member": the last one that every version has. */
#define ZONAL__SIZED(type, member)                                                                 \
    (zonal__sized) {                                                                               \
#type, sizeof(type), offsetof(type, member) + sizeof(((type *)0)->member)                  \
    }

/* Refuses a size that no version can have: ZONAL_ARGUMENT. */
zonal_status zonal__sized_check(zonal__sized type, const void *given);

/* *full holds the defaults and gets the caller's members; its size is that of this library. */
zonal_status zonal__sized_read(zonal__sized type, const void *given, void *full);

/* Copies *full to the caller's struct, whose size stays. */
zonal_status zonal__sized_write(zonal__sized type, const void *full, void *out);

/* 1: all bytes are zero. */
int zonal__is_zero(const void *bytes, size_t count);

#endif
