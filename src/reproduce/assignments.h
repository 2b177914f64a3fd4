/*
 * Options of zonal train by name and text, as a list: "side=128,steps=6400".
 */
#ifndef ZONAL_REPRODUCE_ASSIGNMENTS_H
#define ZONAL_REPRODUCE_ASSIGNMENTS_H

#include "core/error.h"

enum { ZONAL__ASSIGNMENTS = 64, ZONAL__ASSIGNMENT_KEY = 64, ZONAL__ASSIGNMENT_VALUE = 512 };

typedef struct zonal__assignment {
    char key[ZONAL__ASSIGNMENT_KEY], value[ZONAL__ASSIGNMENT_VALUE];
} zonal__assignment;

/* Zero-initialise. In the order of the keys, each there once: so that two lists of the same options
 * are the same text. */
typedef struct zonal__assignments {
    int count;
    zonal__assignment at[ZONAL__ASSIGNMENTS];
} zonal__assignments;

/* Sets a key, also one that is there. ZONAL_ARGUMENT for what does not fit. */
zonal_status zonal__assign(zonal__assignments *list, const char *key, const char *value);
/* Sets all of "key=value,key=value"; what has no "=" belongs to the list before it. A separator
 * other than the comma stands between them in "kl-heat:t=3/d:margin=1.2". */
zonal_status zonal__assign_text(zonal__assignments *list, const char *text, char separator);
/* Lays another list over this one. A length in epochs takes the place of one in steps, and steps
 * that of epochs: zonal train takes one of them. */
zonal_status zonal__assign_all(zonal__assignments *list, const zonal__assignments *other);

/* NULL where it is not there. */
const char *zonal__assigned(const zonal__assignments *list, const char *key);

/* The list as text, "key=value" with the separator between them. Release *out with zonal__free. */
zonal_status zonal__assignments_text(const zonal__assignments *list, char separator, char **out);

#endif
