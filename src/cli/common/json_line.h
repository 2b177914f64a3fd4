/*
 * A JSON object on a line of its own, on stdout.
 *
 *     zonal__json json;
 *     zonal__json_line_begin(&json);
 *     zonal__json_key_double(&json, "ms", ms);
 *     zonal__json_line_end(&json);
 */
#ifndef ZONAL_CLI_COMMON_JSON_LINE_H
#define ZONAL_CLI_COMMON_JSON_LINE_H

#include "core/json.h"

void zonal__json_line_begin(zonal__json *json);
/* Prints the line and releases the writer. An object that could not be written is left out. */
void zonal__json_line_end(zonal__json *json);

#endif
