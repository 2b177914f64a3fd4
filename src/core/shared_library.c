/* The loader's dlopen and dlsym, with sentences: shared_library.h. */
#include "core/shared_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *open_any(const zonal__shared_library *library, const char *folder, int flags,
                      char *reason, size_t room) {
    for (const char *const *name = library->names; *name; name++) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", *name);
        if (length < 0 || (size_t)length >= sizeof path) continue;
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
        if (handle) return handle;
        const char *why = dlerror();
        if (reason && !*reason && why) snprintf(reason, room, "%s", why);
    }
    return NULL;
}

zonal_status zonal__shared_library_open(const zonal__shared_library *library, void **handle) {
    char reason[512] = "";
    *handle = open_any(library, "", RTLD_NOLOAD, NULL, 0);
    if (!*handle) *handle = open_any(library, "", 0, reason, sizeof reason);
    if (!*handle && library->folder)
        *handle = open_any(library, library->folder, 0, reason, sizeof reason);
    if (*handle) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "%s cannot be opened (%s); %s", library->what, reason,
                      library->remedy);
}

zonal_status zonal__shared_library_function(const zonal__shared_library *library, void *handle,
                                            const char *name, void *out) {
    void *address = dlsym(handle, name);
    /* ISO C has no conversion of a pointer to data into one to a function; POSIX says that the
     * bytes are the same. */
    memcpy(out, &address, sizeof address);
    if (address) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "%s has no function %s: it is of another version; %s",
                      library->what, name, library->remedy);
}
