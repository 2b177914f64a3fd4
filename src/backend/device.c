/* Devices by name, over the backends of this build: backend/device.h, zonal/device.h. */
#include "backend/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/registry.h"
#include "core/sized.h"
#include "core/text.h"
#include "core/thread.h"

enum { MOST_ADDED = 8, MOST_DEVICES = 256, BACKEND_NAME = 24 };

static struct {
    pthread_mutex_t lock;
    int added_count, device_count;
    const zonal__backend *added[MOST_ADDED]; /* by zonal__device_register */
    zonal__device devices[MOST_DEVICES];     /* that were opened; they never move */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- backends -------------------------------------------------------------------------------- */

/* The i-th backend, NULL past the last. */
static const zonal__backend *backend_at(int i) {
    const zonal__backend *backend = NULL;
    int built = 0;
    while (zonal__backends_built[built]) built++;
    if (i < built) return zonal__backends_built[i]();
    pthread_mutex_lock(&process.lock);
    if (i - built < process.added_count) backend = process.added[i - built];
    pthread_mutex_unlock(&process.lock);
    return backend;
}

static const zonal__backend *find_backend(const char *name) {
    const zonal__backend *backend;
    for (int i = 0; (backend = backend_at(i)); i++)
        if (strcmp(backend->name, name) == 0) return backend;
    return NULL;
}

zonal_status zonal__device_register(const zonal__backend *backend) {
    zonal_status status = ZONAL_OK;
    if (strlen(backend->name) >= BACKEND_NAME || find_backend(backend->name))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a backend cannot be added as %s: the name is taken, or "
                          "longer than %d letters",
                          backend->name, BACKEND_NAME - 1);
    pthread_mutex_lock(&process.lock);
    if (process.added_count < MOST_ADDED)
        process.added[process.added_count++] = backend;
    else
        status = ZONAL_ARGUMENT;
    pthread_mutex_unlock(&process.lock);
    if (status == ZONAL_OK) return status;
    return ZONAL_FAIL(status, "no more than %d backends can be added", MOST_ADDED);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void name_device(const zonal__backend *backend, int index, char out[ZONAL_DEVICE_NAME]) {
    if (backend->is_host)
        snprintf(out, ZONAL_DEVICE_NAME, "%s", backend->name);
    else
        snprintf(out, ZONAL_DEVICE_NAME, "%.*s:%d", BACKEND_NAME - 1, backend->name, index);
}

static zonal_status no_such_name(const char *name) {
    char known[160] = "";
    const zonal__backend *backend;
    for (int i = 0; (backend = backend_at(i)); i++)
        if (!backend->is_oracle) zonal__text_append(known, sizeof known, "%s, ", backend->name);
    for (int i = 0; zonal__backends_left_out[i].name; i++)
        zonal__text_append(known, sizeof known, "%s (not in this build), ",
                           zonal__backends_left_out[i].name);
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "there is no device %.40s; use one of %sor such a name with a number, as in "
                      "cuda:1",
                      name, known);
}

static zonal_status no_such_index(const zonal__backend *backend, const char *name, int count) {
    char known[160] = "", one[ZONAL_DEVICE_NAME];
    for (int i = 0; i < count && i < 8; i++) {
        name_device(backend, i, one);
        zonal__text_append(known, sizeof known, "%s%s",
                           i == 0           ? ""
                           : i == count - 1 ? " and "
                                            : ", ",
                           one);
    }
    return ZONAL_FAIL(ZONAL_DEVICE, "there is no device %.40s; this machine has %s%s", name, known,
                      count > 8 ? " and more" : "");
}

static zonal_status not_built(const char *name) {
    for (int i = 0; zonal__backends_left_out[i].name; i++)
        if (strcmp(zonal__backends_left_out[i].name, name) == 0)
            return ZONAL_FAIL(ZONAL_UNSUPPORTED, "this build of zonal has no %s",
                              zonal__backends_left_out[i].what);
    return ZONAL_OK;
}

/* "cuda:12" as "cuda" and 12; 0 where it is not written like that. */
static int parse(const char *name, char backend[BACKEND_NAME], int *index) {
    size_t length = strcspn(name, ":"), digits;
    *index = 0;
    if (length == 0 || length >= BACKEND_NAME) return 0;
    memcpy(backend, name, length);
    backend[length] = '\0';
    if (!name[length]) return 1;
    digits = strspn(name + length + 1, "0123456789");
    if (digits == 0 || digits > 4 || name[length + 1 + digits]) return 0;
    for (size_t i = 0; i < digits; i++) *index = 10 * *index + (name[length + 1 + i] - '0');
    return 1;
}

/* ---- devices --------------------------------------------------------------------------------- */

static const zonal__device *enter(const zonal__backend *backend, int index) {
    zonal__device *found = NULL;
    pthread_mutex_lock(&process.lock);
    for (int i = 0; i < process.device_count && !found; i++)
        if (process.devices[i].backend == backend && process.devices[i].index == index)
            found = &process.devices[i];
    if (!found && process.device_count < MOST_DEVICES) {
        found = &process.devices[process.device_count++];
        *found = (zonal__device){.backend = backend, .index = index};
        name_device(backend, index, found->name);
    }
    pthread_mutex_unlock(&process.lock);
    return found;
}

zonal_status zonal__device_open(const char *name, const zonal__device **out) {
    const zonal__backend *backend;
    char kind[BACKEND_NAME];
    int index, count;
    *out = NULL;
    if (!name[0]) name = "cpu";
    if (!parse(name, kind, &index)) return no_such_name(name);
    backend = find_backend(kind);
    if (!backend) {
        ZONAL_TRY(not_built(kind));
        return no_such_name(name);
    }
    ZONAL_TRY(backend->count(&count));
    if (index >= count) return no_such_index(backend, name, count);
    *out = enter(backend, index);
    if (*out) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_DEVICE, "more than %d devices cannot be opened", MOST_DEVICES);
}

/* Hosts come first and are one each, so there is always room for them. */
const zonal__device *zonal__device_cpu(void) {
    return enter(zonal__backend_cpu(), 0);
}

const zonal__device *zonal__device_ref(void) {
    return enter(zonal__backend_ref(), 0);
}

const zonal__device *zonal__device_or_cpu(const zonal__device *device) {
    return device ? device : zonal__device_cpu();
}

zonal_status zonal__device_choose(const char *name, const zonal__device **out) {
    const zonal__backend *backend;
    int count;
    if (strcmp(name, "auto") != 0) return zonal__device_open(name, out);
    for (int i = 0; (backend = backend_at(i)); i++)
        if (!backend->is_host && backend->count(&count) == ZONAL_OK && count > 0)
            return zonal__device_open(backend->name, out);
    *out = zonal__device_cpu();
    return ZONAL_OK;
}

zonal_status zonal__device_describe(const zonal__device *device, zonal_device_info *info) {
    *info = (zonal_device_info){.size = sizeof *info, .index = device->index};
    memcpy(info->name, device->name, sizeof info->name);
    return device->backend->describe(device->index, info);
}

zonal_status zonal__device_operation(const zonal__device *device, zonal__operation operation,
                                     const zonal__operation_table **table) {
    static const char *const names[ZONAL__OPERATIONS] = {
        "pairs",  "KL",         "moments",     "sliced losses", "alignment of views",
        "survey", "covariance", "eigenvalues", "objective"};
    *table = device->backend->operations[operation];
    if (*table) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "the device %s does not compute %s; use the device cpu",
                      device->name, names[operation]);
}

const char *zonal__backend_known(int i) {
    const zonal__backend *backend;
    for (int b = 0; (backend = backend_at(b)); b++)
        if (!backend->is_oracle && i-- == 0) return backend->name;
    for (int b = 0; zonal__backends_left_out[b].name; b++)
        if (i-- == 0) return zonal__backends_left_out[b].name;
    return NULL;
}

/* ---- the public query ------------------------------------------------------------------------ */

/* Devices of the i-th backend that are listed. */
static int listed(const zonal__backend *backend) {
    int count;
    if (backend->is_oracle || backend->count(&count) != ZONAL_OK) return 0;
    return count;
}

/* The processor is device 0, wherever its backend stands in the list; the others follow it. */
static const zonal__device *listed_device(int i) {
    const zonal__backend *backend;
    if (i == 0) return zonal__device_cpu();
    i--;
    for (int b = 0; (backend = backend_at(b)); b++) {
        int count = backend == zonal__backend_cpu() ? 0 : listed(backend);
        if (i < count) return enter(backend, i);
        i -= count;
    }
    return NULL;
}

int zonal_device_count(void) {
    const zonal__backend *backend;
    int count = 0;
    for (int b = 0; (backend = backend_at(b)); b++) count += listed(backend);
    return count;
}

#define INFO_SIZED ZONAL__SIZED(zonal_device_info, name)

zonal_status zonal_device_info_get(int i, zonal_device_info *info) {
    zonal_device_info full;
    const zonal__device *device;
    ZONAL_NEED(info, "info");
    ZONAL_TRY(zonal__sized_check(INFO_SIZED, info));
    device = i < 0 ? NULL : listed_device(i);
    if (!device)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no device number %d; there are %d", i,
                          zonal_device_count());
    ZONAL_TRY(zonal__device_describe(device, &full));
    return zonal__sized_write(INFO_SIZED, &full, info);
}

const char *zonal_device_missing(const char *name) {
    const zonal__device *device;
    if (!name) name = "";
    return zonal__device_open(name, &device) == ZONAL_OK ? NULL : zonal_last_error()->message;
}

/* ---- what the backends share ----------------------------------------------------------------- */

double zonal__problem_value(const zonal__problem *problem, double raw) {
    return problem->offset + problem->factor * raw;
}

int zonal__backend_threads(int asked) {
    return zonal__thread_count(asked);
}
