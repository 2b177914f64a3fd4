/*
 * Shared libraries that are opened when they are first needed, so that programs which never need
 * them start without them. A copy that the process has loaded already, as a Python package may
 * have, is used before any other. Nothing is ever closed.
 */
#ifndef ZONAL_CORE_SHARED_LIBRARY_H
#define ZONAL_CORE_SHARED_LIBRARY_H

#include "core/error.h"

typedef struct zonal__shared_library {
    const char *what;         /* for the sentence: "cuBLAS" */
    const char *const *names; /* SONAMEs, best first, ended by NULL */
    const char *folder;       /* where to look after the loader's own places, or NULL */
    const char *remedy;       /* the end of the sentence when there is none */
} zonal__shared_library;

/* ZONAL_UNSUPPORTED where none can be opened: the sentence has the loader's reason against the
 * first name, and the remedy. */
zonal_status zonal__shared_library_open(const zonal__shared_library *library, void **handle);

/* A function of an open library, written to the function pointer at "out". ZONAL_UNSUPPORTED where
 * the library, of another version, does not have it. */
zonal_status zonal__shared_library_function(const zonal__shared_library *library, void *handle,
                                            const char *name, void *out);

#endif
