/* zonal devices: what can compute here, and why the rest cannot. */
#include <inttypes.h>
#include <stdio.h>

#include "backend/device.h"
#include "cli/common/cli.h"
#include "cli/common/json_line.h"
#include "cli/common/rows.h"

typedef struct settings {
    int json;
} settings;

static const zonal__option table[] = {
    {.name = "json",
     .type = ZONAL__OPTION_FLAG,
     .target = offsetof(settings, json),
     .help = "one object on a line instead of a table"},
    {.name = NULL},
};

static const zonal__cli_usage usage = {
    .synopsis = "zonal devices [--json]",
    .description =
        "Lists what can compute: the processor, and the GPUs that this build can use. The\n"
        "name in the first column is what --device takes.\n",
    .argument = "no argument",
    .most = 0};

static void print_json_device(zonal__json *json, const zonal_device_info *info) {
    char capability[32] = "";
    if (info->compute_major > 0)
        snprintf(capability, sizeof capability, "%d.%d", info->compute_major, info->compute_minor);
    zonal__json_begin_object(json);
    zonal__json_key_text(json, "name", info->name);
    zonal__json_key_text(json, "model", info->model);
    zonal__json_key_int(json, "index", info->index);
    zonal__json_key_text(json, "compute_capability", capability);
    zonal__json_key_int(json, "total_memory", (int64_t)info->total_memory);
    zonal__json_key_int(json, "free_memory", (int64_t)info->free_memory);
    zonal__json_end_object(json);
}

/* A line is no wider than 80 columns: a longer model is cut off here, and whole in JSON. */
static void print_device(const zonal_device_info *info) {
    char capability[32] = "-";
    if (info->compute_major > 0)
        snprintf(capability, sizeof capability, "%d.%d", info->compute_major, info->compute_minor);
    printf("%-8s %-38.38s %10s %10.1f %9.1f\n", info->name,
           info->model[0] ? zonal__cli_plain(info->model).text : "-", capability,
           (double)info->total_memory / 0x1p30, (double)info->free_memory / 0x1p30);
}

/* *json NULL: as a table. */
static zonal_status list_devices(zonal__json *json) {
    int count = zonal_device_count();
    for (int i = 0; i < count; i++) {
        zonal_device_info info = ZONAL_DEVICE_INFO_INIT;
        ZONAL_TRY(zonal_device_info_get(i, &info));
        if (json)
            print_json_device(json, &info);
        else
            print_device(&info);
    }
    return ZONAL_OK;
}

static void list_missing(zonal__json *json) {
    const char *backend, *reason;
    char lead[64];
    for (int i = 0; (backend = zonal__backend_known(i)); i++) {
        reason = zonal_device_missing(backend);
        if (!reason) continue;
        if (json) {
            zonal__json_begin_object(json);
            zonal__json_key_text(json, "backend", backend);
            zonal__json_key_text(json, "reason", reason);
            zonal__json_end_object(json);
        } else {
            snprintf(lead, sizeof lead, "\nno %.50s: ", backend);
            zonal__cli_wrap(lead, reason);
        }
    }
}

static zonal_status print_json(void) {
    zonal__json json;
    zonal_status status;
    zonal__json_line_begin(&json);
    zonal__json_key(&json, "devices");
    zonal__json_begin_array(&json);
    status = list_devices(&json);
    zonal__json_end_array(&json);
    zonal__json_key(&json, "missing");
    zonal__json_begin_array(&json);
    if (status == ZONAL_OK) list_missing(&json);
    zonal__json_end_array(&json);
    zonal__json_line_end(&json);
    return status;
}

static zonal_status print_table(void) {
    printf("%-8s %-38s %10s %10s %9s\n", "name", "model", "capability", "memory GiB", "free GiB");
    ZONAL_TRY(list_devices(NULL));
    list_missing(NULL);
    return ZONAL_OK;
}

int zonal__cli_devices(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if ((s.json ? print_json() : print_table()) != ZONAL_OK) return zonal__cli_failed();
    return ZONAL__EXIT_OK;
}
