#include "train/algorithms.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/training/tables.h"

enum { PATH = 4096 };

/* The user's folder for what can be made again: 0 where there is none. */
static int find_cache(char out[PATH]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (cache && cache[0] == '/') /* its specification has a relative one ignored */
        length = snprintf(out, PATH, "%s", cache);
    else if (home && home[0] == '/')
        length = snprintf(out, PATH, "%s/.cache", home);
    return length > 0 && length < PATH - 256; /* with room for the rest */
}

/* "NVIDIA H200" becomes "NVIDIA-H200". */
static void add_model(const zonal__device *device, char out[PATH]) {
    zonal_device_info info = ZONAL_DEVICE_INFO_INIT;
    size_t used = strlen(out);
    if (zonal__device_describe(device, &info) != ZONAL_OK || !info.model[0])
        snprintf(info.model, sizeof info.model, "%s", device->backend->name);
    for (const char *at = info.model; *at && used < PATH - 8; at++)
        out[used++] = isalnum((unsigned char)*at) ? *at : '-';
    snprintf(out + used, PATH - used, ".txt");
}

/* The user's file for devices like this one, whose folders are made for "make" = 1. */
static int find_users(const zonal__device *device, int make, char out[PATH]) {
    if (!find_cache(out)) return 0;
    if (make) (void)mkdir(out, 0700);
    strcat(out, "/zonal");
    if (make) (void)mkdir(out, 0700);
    strcat(out, "/autotune-");
    add_model(device, out);
    return 1;
}

static int is_none(const char *given) {
    return given && strcmp(given, "none") == 0;
}

static zonal_status take_given(const zonal__device *device, const zonal__training_tables *tables,
                               const char *given) {
    if (access(given, R_OK) != 0)
        return ZONAL_FAIL(ZONAL_IO, "cannot read the autotuning cache %s: %s", given,
                          strerror(errno));
    return tables->autotune_read(device, given);
}

zonal_status zonal__algorithms_take(const zonal__device *device, const char *own,
                                    const char *given) {
    const zonal__training_tables *tables;
    char users[PATH];
    if (!zonal__device_autotunes(device)) {
        if (!given || is_none(given)) return ZONAL_OK;
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--autotune-cache %s is CUDA's, and this run is on the processor; leave "
                          "it out, or use --device cuda",
                          given);
    }
    ZONAL_TRY(zonal__device_training(device, &tables));
    if (own) ZONAL_TRY(tables->autotune_read(device, own));
    if (given && !is_none(given)) return take_given(device, tables, given);
    if (own || given || !find_users(device, 0, users)) return ZONAL_OK;
    if (tables->autotune_read(device, users) != ZONAL_OK)
        zonal__log("%s; it is passed over", zonal_last_error()->message);
    return ZONAL_OK;
}

zonal_status zonal__algorithms_keep(const zonal__device *device, const char *own,
                                    const char *given) {
    const zonal__training_tables *tables;
    char users[PATH];
    if (!zonal__device_autotunes(device)) return ZONAL_OK;
    ZONAL_TRY(zonal__device_training(device, &tables));
    ZONAL_TRY(tables->autotune_write(device, own));
    if (given || !find_users(device, 1, users)) return ZONAL_OK;
    if (tables->autotune_write(device, users) != ZONAL_OK)
        zonal__log("the measured algorithms are not kept for other runs: %s",
                   zonal_last_error()->message);
    return ZONAL_OK;
}
