/* The host's memory and, through backend/device.h, the device's: memory.h. */
#include "backend/memory.h"

#include <string.h>

#include "backend/device.h"
#include "core/memory.h"

static zonal_status take_host(size_t bytes, const char *what, void **out) {
    if (bytes > PTRDIFF_MAX) {
        *out = NULL;
        return ZONAL_FAIL(ZONAL_MEMORY, "%s is more than can be addressed", what);
    }
    return zonal__alloc((int64_t)bytes, 1, what, out);
}

static zonal_status copy_host(void *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
    return ZONAL_OK;
}

static zonal_status copy_within_host(void *stream, void *to, const void *from, size_t bytes) {
    (void)stream;
    return copy_host(to, from, bytes);
}

const zonal__memory zonal__memory_host = {.name = "the host",
                                          .is_host = 1,
                                          .take = take_host,
                                          .give_back = zonal__free,
                                          .write = copy_host,
                                          .read = copy_host,
                                          .copy = copy_within_host};

static zonal_status write_device(void *to, const void *host, size_t bytes) {
    ZONAL_TRY(zonal__device_synchronise());
    return zonal__device_write(to, host, bytes);
}

static zonal_status read_device(void *host, const void *from, size_t bytes) {
    ZONAL_TRY(zonal__device_synchronise());
    return zonal__device_read(host, from, bytes);
}

const zonal__memory zonal__memory_device = {.name = "the device",
                                            .take = zonal__device_alloc,
                                            .give_back = zonal__device_free,
                                            .write = write_device,
                                            .read = read_device,
                                            .copy = zonal__device_copy_on};
