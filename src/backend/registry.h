/*
 * The backends of this build, in the order in which devices are listed. The lists are made by
 * cmake/ZonalBackends.cmake from what each backend's CMakeLists.txt says, so that a new backend is
 * a folder and nothing here or above changes.
 */
#ifndef ZONAL_BACKEND_REGISTRY_H
#define ZONAL_BACKEND_REGISTRY_H

#include "backend/backend.h"

/* A backend that could have been built and was not; "this build of zonal has no WHAT". */
typedef struct zonal__backend_left_out {
    const char *name, *what;
} zonal__backend_left_out;

extern const zonal__backend *(*const zonal__backends_built[])(void); /* ends with NULL */
extern const zonal__backend_left_out zonal__backends_left_out[];     /* ends with a name NULL */

#endif
