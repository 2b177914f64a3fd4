#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/text.h"

static _Thread_local zonal_error last_error = {ZONAL_OK, "", 0, ""};
static zonal_log_function log_function;
static void *log_context;

zonal_status zonal__fail(zonal_status status, const char *file, int line, const char *format, ...) {
    char whole[8192];
    va_list arguments;
    last_error.status = status;
    last_error.file = file;
    last_error.line = line;
    va_start(arguments, format);
    vsnprintf(whole, sizeof whole, format, arguments);
    va_end(arguments);
    zonal__text_shorten(whole, last_error.message, sizeof last_error.message);
    return status;
}

zonal_status zonal_error_set(zonal_status status, const char *message) {
    return zonal__fail(status, "", 0, "%s", message ? message : "no reason was given");
}

const zonal_error *zonal_last_error(void) {
    return &last_error;
}

const char *zonal_status_name(zonal_status status) {
    switch (status) {
#define NAME_CASE(name, number, text)                                                              \
    case ZONAL_##name:                                                                             \
        return #name;
        ZONAL_STATUS_LIST(NAME_CASE)
#undef NAME_CASE
    }
    return "?";
}

#define TEXT_OF(number)                   #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *zonal_version(void) {
    return VERSION_TEXT(ZONAL_VERSION_MAJOR, ZONAL_VERSION_MINOR, ZONAL_VERSION_PATCH);
}

void zonal_set_log(zonal_log_function log, void *context) {
    log_function = log;
    log_context = context;
}

void zonal__log(const char *format, ...) {
    char line[1024];
    va_list arguments;
    if (!log_function) return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log_function(log_context, line);
}
